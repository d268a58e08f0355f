//! Tracebacks: the frames that lead to a failure, and the user's innermost line among them.

use std::sync::LazyLock;

use regex::Regex;

use super::report::Site;
use super::text;

/// One frame of a traceback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The file.
    pub file: String,
    /// The line in it.
    pub line: u64,
    /// The function.
    pub function: Option<String>,
    /// The source line.
    pub code: Option<String>,
    /// The line of the log.
    pub log_line: u64,
}

/// The most frames that are kept of one traceback: recursion can make thousands.
const MOST_FRAMES: usize = 120;

struct Forms {
    /// Python: `File "x.py", line 3, in f`; IPython 8: `File x.py:3, in f(...)`; `Cell In[5], line 3`.
    python: Regex,
    notebook_file: Regex,
    cell: Regex,
    /// IPython 7: `x.py in f(args)`, then `---> 12 code`.
    old_notebook: Regex,
    arrow: Regex,
    /// pytest: `x.py:12: in f`.
    pytest: Regex,
    /// Rust: `thread 'main' panicked at src/main.rs:3:5`, and `at ./src/main.rs:3:5` of a backtrace.
    rust: Regex,
}

static FORMS: LazyLock<Option<Forms>> = LazyLock::new(|| {
    Some(Forms {
        python: Regex::new(r#"File "([^"]+)", line (\d+)(?:, in (\S.*))?"#).ok()?,
        notebook_file: Regex::new(r"^\s*File (\S+\.py):(\d+), in ([\w.<>]+)").ok()?,
        cell: Regex::new(r"(?:Cell|Input) (In ?\[\d+\]),? (?:line (\d+)|in (<[^>]*>))").ok()?,
        old_notebook: Regex::new(r"^\s*(\S+\.py|<ipython-input-[^>]+>|/tmp/ipykernel\S+) in ([\w.<>]+)").ok()?,
        arrow: Regex::new(r"^\s*-+>\s*(\d+)\s(.*)").ok()?,
        pytest: Regex::new(r"^\s*([\w./\\-]+\.py):(\d+): (?:in )?([\w.<>]+)").ok()?,
        rust: Regex::new(r"(?:panicked at |\bat )'?\.?/?((?:[\w.-]+/)*[\w-]+\.rs):(\d+):\d+").ok()?,
    })
});

/// The frames of the last traceback in `lines` (text and number), outermost first.
///
/// Lines of another rank than `of_rank` are passed over, since ranks write over each other.
pub(crate) fn frames(lines: &[(String, u64)], of_rank: Option<u32>) -> Vec<Frame> {
    let Some(forms) = FORMS.as_ref() else { return Vec::new() };
    let mut frames: Vec<Frame> = Vec::new();
    for (line, number) in lines {
        if of_rank.is_some() && text::rank(line).is_some_and(|rank| Some(rank) != of_rank) {
            continue;
        }
        if line.contains("Traceback (most recent call last)") {
            frames.clear();
            continue;
        }
        if let Some(frame) = forms.frame(line, *number) {
            if frames.len() == MOST_FRAMES {
                frames.remove(MOST_FRAMES / 2);
            }
            frames.push(frame);
        } else if let Some(arrow) = forms.arrow.captures(line) {
            let code = Some(arrow[2].trim().to_owned());
            let at = arrow[1].parse().unwrap_or(0);
            match frames.last_mut() {
                Some(last) if last.code.is_none() => {
                    last.code = code;
                    last.line = at;
                }
                _ => frames.push(Frame { line: at, code, log_line: *number, ..Frame::default() }),
            }
        } else if let Some(last) = frames.last_mut() {
            // The source line is below its frame; markers under it (^^^^, ~~~~) are not code.
            let code = text::without_prefix(line).trim();
            if last.code.is_none() && last.log_line + 1 >= *number && code.chars().any(char::is_alphabetic) {
                last.code = Some(code.chars().take(300).collect());
            }
        }
    }
    frames
}

impl Forms {
    fn frame(&self, line: &str, number: u64) -> Option<Frame> {
        let make = |file: &str, at: &str, function: Option<&str>| {
            Some(Frame {
                file: file.to_owned(),
                line: at.parse().ok()?,
                function: function.map(|name| name.trim().chars().take(120).collect()),
                code: None,
                log_line: number,
            })
        };
        if let Some(found) = self.python.captures(line) {
            return make(&found[1], &found[2], found.get(3).map(|name| name.as_str()));
        }
        if let Some(found) = self.notebook_file.captures(line) {
            return make(&found[1], &found[2], Some(&found[3]));
        }
        if let Some(found) = self.cell.captures(line) {
            let at = found.get(2).map_or("0", |at| at.as_str());
            return make(&found[1], at, None);
        }
        if let Some(found) = self.old_notebook.captures(line) {
            return make(&found[1], "0", Some(&found[2]));
        }
        if let Some(found) = self.pytest.captures(line) {
            return make(&found[1], &found[2], Some(&found[3]));
        }
        let found = self.rust.captures(line)?;
        make(&found[1], &found[2], None)
    }
}

/// The innermost frame that is the user's own: outside installed packages and the interpreter.
pub(crate) fn user_site(frames: &[Frame]) -> Option<Site> {
    const FOREIGN: &[&str] = &[
        "site-packages",
        "dist-packages",
        "/lib/python3",
        "\\lib\\",
        "/lib64/python",
        "sgl-workspace",
        "<frozen",
        "<string>",
        "<decorator",
        "importlib",
        ".cargo/registry",
        "/rustc/",
        "torch/nn/",
        "torch/autograd/",
        "torch/utils/",
        // oomph's own wrappers, unpacked for a run, are in the tracebacks of programs that it ran.
        "/python/oomph/",
    ];
    let is_own = |frame: &&Frame| {
        let lower = frame.file.to_ascii_lowercase();
        !frame.file.is_empty() && !FOREIGN.iter().any(|foreign| lower.contains(foreign))
    };
    // Cython names a source by its path where the module was built, which does not show that it is an installed one's.
    let is_cython = |frame: &&Frame| frame.file.ends_with(".pyx") || frame.file.ends_with(".pxd");
    let python = frames.iter().rev().filter(is_own).find(|frame| !is_cython(frame));
    let frame = python.or_else(|| frames.iter().rev().find(is_own))?;
    Some(Site {
        file: frame.file.clone(),
        line: frame.line,
        function: frame.function.clone(),
        code: frame.code.clone(),
        log_line: frame.log_line,
    })
}

/// Whether a traceback leads through a binding of llama.cpp's for Python: `llama_cpp`, `cyllama` and others.
pub(crate) fn in_binding(frames: &[Frame]) -> bool {
    frames.iter().any(|frame| {
        let file = frame.file.replace('\\', "/");
        // Compiled modules are named by their sources: `cyllama/llama/llama_cpp.pyx`.
        let compiled = file.ends_with(".pyx").then_some(file.as_str());
        let inside = file.split_once("-packages/").map(|(_, inside)| inside).or(compiled);
        let package = inside.and_then(|inside| inside.split('/').next());
        package.is_some_and(|package| package.contains("llama"))
    })
}

/// Whether the user's own line hands a binding of llama.cpp's one of the library's structures, whose attributes are its settings.
pub(crate) fn with_structures(frames: &[Frame]) -> bool {
    const TAKE_ONE: [&str; 4] =
        ["LlamaContext(", "LlamaModel(", "llama_init_from_model(", "llama_model_load_from_file("];
    let site = user_site(frames);
    let own = frames
        .iter()
        .filter(|frame| site.as_ref().is_some_and(|site| site.file == frame.file && site.line == frame.line));
    let codes: Vec<&str> = own.filter_map(|frame| frame.code.as_deref()).collect();
    codes.iter().any(|code| TAKE_ONE.iter().any(|call| code.contains(call)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<Frame> {
        let lines: Vec<_> = text.lines().enumerate().map(|(index, line)| (line.to_owned(), index as u64 + 1)).collect();
        frames(&lines, None)
    }

    #[test]
    fn a_python_traceback() {
        let frames = of("Traceback (most recent call last):\n  File \"/home/me/train.py\", line 40, in main\n    \
                         loss.backward()\n    ^^^^^^^\n  File \"/v/lib/python3.12/site-packages/torch/_tensor.py\", line \
                         521, in backward\n    torch.autograd.backward(");
        assert_eq!(frames.len(), 2);
        let site = user_site(&frames).unwrap();
        assert_eq!((site.file.as_str(), site.line), ("/home/me/train.py", 40));
        assert_eq!(site.code.as_deref(), Some("loss.backward()"));
    }

    #[test]
    fn a_wrapper_of_oomphs_is_not_the_users_line() {
        let frames =
            of("Traceback (most recent call last):\n  File \"/w/judge.py\", line 28, in <module>\n    llm = LLM(\n  \
                         File \"/home/me/.cache/oomph/runtime/0a1b/python/oomph/vllm.py\", line 80, in watched\n    \
                         return inner(*args, **kwargs)");
        assert_eq!(user_site(&frames).map(|site| (site.file, site.line)), Some(("/w/judge.py".to_owned(), 28)));
    }

    #[test]
    fn a_source_of_cython_is_the_users_only_where_nothing_else_is() {
        let place = |text: &str| user_site(&of(text)).map(|site| (site.file, site.line));
        let cython =
            "  File \"cyllama/llama/llama_cpp.pyx\", line 2372, in cyllama.llama.llama_cpp.LlamaContext.__init__";
        let traceback = "Traceback (most recent call last):\n  File \"/w/router.py\", line 38, in ticket\n    \
                         self.model(text)\n  File \"/v/lib/python3.12/site-packages/cyllama/api.py\", line 1034, in \
                         _ensure_context\n    ctx = LlamaContext(self.model, ctx_params)\n";
        assert_eq!(place(&format!("{traceback}{cython}")), Some(("/w/router.py".to_owned(), 38)));
        assert_eq!(place(cython), Some(("cyllama/llama/llama_cpp.pyx".to_owned(), 2372)));
    }

    #[test]
    fn notebooks_pytest_and_rust() {
        let old =
            of("<ipython-input-4-25bed> in <module>\n----> 3 y = model(x)\n/usr/local/lib/python3.11/dist-packages/t\
                      orch/optim/adam.py in _init_group(self, group)\n--> 174  state[\"exp_avg\"] = torch.zeros_like(");
        assert_eq!(old[1].code.as_deref(), Some("state[\"exp_avg\"] = torch.zeros_like("));
        assert_eq!(user_site(&old).unwrap().line, 3);
        assert_eq!(of("Cell In[5], line 3")[0].line, 3);
        assert_eq!(of("tests/test_a.py:12: in test_fit")[0].function.as_deref(), Some("test_fit"));
        assert_eq!(of("thread 'main' panicked at src/model/load.rs:31:9:")[0].file, "src/model/load.rs");
    }

    #[test]
    fn frames_of_another_rank_are_passed_over() {
        let text = "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/a.py\", line 1, in f\n[rank1]:   File \
                    \"/b.py\", line 2, in g\n[rank0]:     go()";
        let lines: Vec<_> = text.lines().enumerate().map(|(index, line)| (line.to_owned(), index as u64 + 1)).collect();
        let frames = frames(&lines, Some(0));
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0].file, "/a.py");
    }
}
