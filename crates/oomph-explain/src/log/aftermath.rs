//! Decides from what follows an error in a log whether the program went on to a normal end: a search for the batch size, a study
//! whose trials are pruned, a loop that leaves a batch out.
//!
//! A log says neither who caught an error nor how its program ended. Three things together stand for it: the program itself reports the
//! error (or does after it what it did before), it does something afterwards, and nothing says that it failed.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::text;

/// Lines before an error whose forms are kept.
const LINES_BEFORE: usize = 60;
/// Lines at the end of a log that say how it ended.
const LAST_LINES: usize = 3;

/// An exception as Python's interpreter prints it at the end of a traceback.
static EXCEPTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^\s*(?:\[?rank ?\d+\]?:? ?)?(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|Interrupt)\b:?").ok()
});

/// A log level, as loggers print it in front of what they report.
static LEVEL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\[[IWEDF][ \]]|\b(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|EXCEPTION)\b").ok());

/// What ends a program, anywhere behind an error.
static DEATH: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"Traceback \(most recent call last\)|\bAborted\b|Segmentation fault|\bKilled\b|core dumped|SIGKILL|SIGABRT|SIGTERM|terminate called|(?i:exit ?(?:code|status)[ :=]+-?[1-9])|exitcode|returned non-zero|srun: error|slurmstepd|ChildFailedError|CalledProcessError|panicked at",
    )
    .ok()
});

/// What a program says that gives up, in its last lines.
static GIVES_UP: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?:fatal|abort\w*|exiting|giving up|gave up|error|crashed|could not|cannot|unable to|terminat\w+|shut\w* down)\b")
        .ok()
});

/// Advice, which follows an error that ends a program.
static ADVICE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?:please|try|consider|reduc\w+|decreas\w+|suggest\w*|hint|you (?:can|may|should|might)|use a smaller)\b").ok()
});

/// What a program says that works.
static WORKS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)\b(?:epochs?|steps?|iter\w*|loss|acc\w*|trials?|best|finished|done|complete\w*|saved?|saving|results?|score|metric\w*|train\w*|eval\w*|valid\w*|test\w*|ok|works|fits|found|using|chosen|final|batch(?:[ _]size)?)\b|it/s|\d ?%",
    )
    .ok()
});

fn is(expression: &LazyLock<Option<Regex>>, line: &str) -> bool {
    expression.as_ref().is_some_and(|expression| expression.is_match(line))
}

/// How an error came into the log, and what the program wrote before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    /// The program, or a logger, reports it: it is not the last line of a traceback that the interpreter printed.
    reported: bool,
    /// A thread, a handler or a process of the program's died of it.
    elsewhere: bool,
    /// The forms of the lines before it.
    forms: BTreeSet<String>,
}

impl Before {
    /// Reads the line of the message and those before it, the line itself last.
    pub fn of(lines: &[(String, u64)], line: &str) -> Self {
        let above: Vec<&str> = lines.iter().map(|(line, _)| line.as_str()).collect();
        let head = above.iter().rposition(|line| line.contains("Traceback (most recent call last)"));
        let announced = head.and_then(|head| head.checked_sub(1)).and_then(|at| above.get(at)).copied().unwrap_or("");
        // A traceback that ended long before is another error's.
        let of_traceback = is(&EXCEPTION, line);
        let reported = if of_traceback { head.is_some() && is(&LEVEL, announced) } else { true };
        let elsewhere = of_traceback
            && ["Exception in thread", "Exception occurred during", "Process "].iter().any(|words| {
                announced.starts_with(words) || above.iter().rev().take(3).any(|line| line.starts_with(words))
            });
        let until = if of_traceback { head.unwrap_or(above.len()) } else { above.len() };
        let forms = above[..until].iter().rev().take(LINES_BEFORE).filter_map(|line| form(line)).collect();
        Self { reported, elsewhere, forms }
    }

    /// The same for two messages about one error.
    pub fn and(mut self, other: Self) -> Self {
        self.forms.extend(other.forms);
        Self {
            reported: self.reported && other.reported,
            elsewhere: self.elsewhere || other.elsewhere,
            forms: self.forms,
        }
    }

    /// Whether a thread, a handler or a process of the program's died of it.
    pub fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Whether the program went on to a normal end, by all that follows its last message.
    pub fn goes_on(&self, after: &str) -> bool {
        let lines: Vec<String> =
            after.lines().map(|line| text::plain(line.as_bytes())).filter(|line| !line.trim().is_empty()).collect();
        if self.elsewhere || lines.iter().any(|line| is(&DEATH, line)) {
            return false;
        }
        let ends_badly = |line: &String| is(&GIVES_UP, line) || is(&ADVICE, line) || is(&EXCEPTION, line);
        if lines.iter().rev().take(LAST_LINES).any(ends_badly) {
            return false;
        }
        let again = |line: &str| form(line).is_some_and(|form| self.forms.contains(&form));
        let works = |line: &str| is(&WORKS, line) && !is(&ADVICE, line) && !line.to_lowercase().contains("retry");
        if self.reported {
            lines.iter().any(|line| works(line) || again(line))
        } else {
            lines.iter().any(|line| again(line))
        }
    }
}

/// The first words of a line without what differs each time: numbers, times, levels. `None` where too little is left.
fn form(line: &str) -> Option<String> {
    let line = line.trim();
    if line.starts_with("File \"") || line.starts_with('^') || line.contains("Traceback (") {
        return None;
    }
    let mut words = Vec::new();
    for word in line.split_whitespace() {
        let mut shape = String::new();
        for letter in word.chars().take(24) {
            match letter {
                '0'..='9' if shape.ends_with('#') => {}
                '0'..='9' => shape.push('#'),
                other => shape.push(other),
            }
        }
        let says = shape.chars().any(char::is_alphabetic) && !is(&LEVEL, &format!("{word} "));
        if says || !words.is_empty() {
            words.push(shape);
        }
        if words.len() == 2 {
            return Some(words.join(" "));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB";

    fn survived(before: &str, line: &str, after: &str) -> bool {
        let lines: Vec<(String, u64)> =
            before.lines().zip(1..).map(|(line, number)| (line.to_owned(), number)).collect();
        Before::of(&lines, line).goes_on(after)
    }

    #[test]
    fn a_search_that_finds_what_fits_goes_on() {
        let line = format!("batch 64: {MESSAGE}");
        assert!(survived("model ready", &line, "batch 32 ok\nepoch 0 loss 0.31\ndone"));
        assert!(survived("", MESSAGE, "using batch size 16\nsaved model.pt"));
        assert!(!survived("model ready", &line, ""), "the log ends with it");
        assert!(!survived("model ready", &line, "Please reduce the batch size."), "advice");
        assert!(!survived("model ready", &line, "epoch 1\nerror: giving up after 3 attempts"));
        assert!(!survived(
            "model ready",
            &line,
            "batch 32 ok\nTraceback (most recent call last):\n  ...\nKeyError: 'a'"
        ));
    }

    #[test]
    fn a_study_goes_on_after_trials_that_are_pruned() {
        let before = "[I 2026-11-29 09:13:08,898] Trial 9 finished with value: 0.3";
        let line = format!("OOM in trial 10 {MESSAGE}");
        assert!(survived(before, &line, "[I 2026-11-29 09:13:09,411] Trial 10 pruned.\n12 {'w': 4096}"));
        let logged = "[W 2026-11-29 09:13:08,898] Trial 3 failed with parameters: {'w': 30000}\n\
                      Traceback (most recent call last):\n  File \"a.py\", line 3, in objective";
        let line = format!("torch.OutOfMemoryError: {MESSAGE}");
        assert!(survived(
            logged,
            &line,
            "[W 2026-11-29 09:13:08,900] Trial 3 failed with value None.\n\
            [I 2026-11-29 09:13:09,411] Trial 4 finished with value: 0.2"
        ));
    }

    #[test]
    fn what_ends_a_program_or_a_thread_is_no_recovery() {
        let line = format!("torch.OutOfMemoryError: {MESSAGE}");
        let trace = "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>";
        assert!(!survived(&format!("epoch 0 loss 0.5\n{trace}"), &line, "job done at 12:00"), "a script's last word");
        assert!(!survived(
            &format!("epoch 0 loss 0.5\n{trace}"),
            &line,
            "srun: error: node1: task 0: Exited with exit code 1"
        ));
        assert!(!survived(
            &format!("epoch 0 loss 0.5\nException in thread Thread-1 (work):\n{trace}"),
            &line,
            "epoch 1 loss 0.4"
        ));
        assert!(
            survived(&format!("epoch 0 loss 0.5\n{trace}"), &line, "epoch 1 loss 0.4\nepoch 2 loss 0.3"),
            "as before"
        );
    }
}
