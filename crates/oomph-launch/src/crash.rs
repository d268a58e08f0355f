//! Reads where in oomph's own code a process died of a signal.
//!
//! Python's `faulthandler` wrote the frames of the thread that died; the hook had it write them to the run folder, below a line
//! that names the folder of its own files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// More of a file is not read.
const MOST_BYTES: u64 = 1 << 20;

/// The functions within which the hook looks at a program, by file; what calls back into the program is never below them.
const LOOKING: [(&str, &str); 3] = [("quiet.py", "quiet"), ("hook.py", "guarded"), ("ends.py", "safely")];

/// The folder of the kernels that compute values.
const VALUES: &str = "values/";

/// The functions in it that only hand a call on to the program's operation.
const HANDED_ON: [&str; 2] = ["kernel", "_native"];

/// Where in oomph's own code a process died, as `owners/modules.py:372 in see_gradients`; `None` where it died elsewhere.
pub fn site(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    of(&text)
}

fn of(text: &str) -> Option<String> {
    let mut lines = text.lines();
    let folder = lines.next()?.strip_suffix('/')?;
    let frames = lines.skip_while(|line| !line.contains("(most recent call first)")).skip(1).map_while(frame);
    // What was called last, up to the first frame that belongs to others: `(file below the folder, line, function)`.
    let mut own = Vec::new();
    for (file, line, function) in frames {
        let Some(file) = file.strip_prefix(folder).and_then(|file| file.strip_prefix('/')) else { break };
        own.push((file, line, function));
    }
    let (file, line, function) = *own.first()?;
    let looks = own.iter().any(|(file, _, function)| LOOKING.contains(&(file, function)));
    let computes = file.starts_with(VALUES) && !HANDED_ON.contains(&function);
    (looks || computes).then(|| format!("{file}:{line} in {function}"))
}

/// A line `  File "PATH", line 12 in function`.
fn frame(line: &str) -> Option<(&str, u32, &str)> {
    let (file, rest) = line.trim_start().strip_prefix("File \"")?.rsplit_once("\", line ")?;
    let (line, function) = rest.split_once(" in ")?;
    Some((file, line.parse().ok()?, function))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn died(frames: &[&str]) -> Option<String> {
        let head = "/x/oomph/\nFatal Python error: Segmentation fault\n\nStack (most recent call first):\n";
        let frames: Vec<String> = frames.iter().map(|frame| format!("  File \"{frame}\n")).collect();
        of(&format!("{head}{}\nExtension modules: torch._C\n", frames.concat()))
    }

    #[test]
    fn what_dies_while_the_hook_looks_is_its_own() {
        let look = [
            "/x/oomph/owners/modules.py\", line 372 in see_gradients",
            "/x/oomph/owners/__init__.py\", line 236 in backward_ended",
            "/x/oomph/quiet.py\", line 36 in quiet",
            "/x/oomph/owners/__init__.py\", line 189 in run_backward",
            "/env/torch/_tensor.py\", line 623 in backward",
        ];
        assert_eq!(died(&look).as_deref(), Some("owners/modules.py:372 in see_gradients"));
        let computes =
            ["/x/oomph/values/arithmetic.py\", line 9 in compute", "/x/oomph/values/kernels.py\", line 4 in kernel"];
        assert_eq!(died(&computes).as_deref(), Some("values/arithmetic.py:9 in compute"));
    }

    #[test]
    fn what_dies_in_the_program_is_the_program_s() {
        // The program's own operation, handed on; its backward pass, which goes through the hook; its own code, called by a look.
        assert_eq!(died(&["/x/oomph/values/kernels.py\", line 4 in kernel", "/home/train.py\", line 3 in f"]), None);
        assert_eq!(
            died(&["/x/oomph/owners/__init__.py\", line 189 in run_backward", "/home/train.py\", line 3 in f"]),
            None
        );
        assert_eq!(died(&["/home/train.py\", line 3 in __len__", "/x/oomph/quiet.py\", line 36 in quiet"]), None);
        assert_eq!(died(&["/home/train.py\", line 3 in f"]), None);
        assert_eq!(died(&[]), None);
    }

    #[test]
    fn a_process_that_did_not_die_says_nothing() {
        for text in
            ["", "/x/oomph/\n", "Stack (most recent call first):\n", "/x/oomph/\nStack (most recent call first):"]
        {
            assert_eq!(of(text), None);
        }
        assert_eq!(site(Path::new("/nowhere")), None);
    }
}
