//! Recognises command lines of the form `python [OPTIONS] SCRIPT|-m MODULE [ARGUMENTS]`, which a fork server can run.

use std::ffi::OsString;
use std::path::Path;

use crate::program::is_python_name;

/// A program that a Python runs from a file or a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonProgram {
    /// The interpreter as it was typed.
    pub(super) interpreter: String,
    /// Python's own options, before the script or the module.
    pub(super) options: Vec<String>,
    /// What is run.
    pub(super) target: Target,
    /// The program's arguments.
    pub(super) arguments: Vec<String>,
}

/// What a Python runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Script(String),
    Module(String),
}

/// Launchers that start the program as processes of their own: forking them saves nothing.
const LAUNCHERS: [&str; 6] = [
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
    "deepspeed.launcher.launch",
    "pdb",
];

impl PythonProgram {
    /// Reads a command line; `None` where a fork server cannot run it: another program, code on the command line, a
    /// launcher, or an option that keeps the hook out.
    pub fn of(command: &[OsString]) -> Option<Self> {
        let words: Vec<&str> = command.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
        let (interpreter, words) = words.split_first()?;
        if !Path::new(interpreter).file_name().is_some_and(is_python_name) {
            return None;
        }
        let mut options = Vec::new();
        let mut rest = words.iter().copied();
        let target = loop {
            let word = rest.next()?;
            if !word.starts_with('-') {
                break Target::Script(word.to_owned());
            }
            match flags(word)? {
                Flags::Plain => options.push(word.to_owned()),
                Flags::WithValue => options.extend([word.to_owned(), rest.next()?.to_owned()]),
                Flags::Module { before, name } => {
                    options.extend(before);
                    let name = match name {
                        Some(name) => name,
                        None => rest.next()?.to_owned(),
                    };
                    break Target::Module(name);
                }
            }
        };
        match &target {
            Target::Module(name) if LAUNCHERS.contains(&name.as_str()) => return None,
            Target::Script(path) if path.ends_with(".pyc") || path.ends_with(".zip") => return None,
            _ => {}
        }
        let arguments = rest.map(str::to_owned).collect();
        Some(Self { interpreter: (*interpreter).to_owned(), options, target, arguments })
    }

    /// Whether this is the same program as another one, its arguments apart.
    pub fn is_same_program(&self, other: &Self) -> bool {
        self.interpreter == other.interpreter && self.options == other.options && self.target == other.target
    }

    /// `sys.argv`. Of a module, the first word is found by Python itself.
    pub(super) fn argv(&self) -> Vec<&str> {
        let first = match &self.target {
            Target::Script(path) => path,
            Target::Module(_) => "-m",
        };
        std::iter::once(first).chain(self.arguments.iter().map(String::as_str)).collect()
    }

    /// `sys.orig_argv`.
    pub(super) fn command(&self) -> Vec<&str> {
        let target = match &self.target {
            Target::Script(path) => vec![path.as_str()],
            Target::Module(name) => vec!["-m", name],
        };
        let options = self.options.iter().map(String::as_str);
        std::iter::once(self.interpreter.as_str())
            .chain(options)
            .chain(target)
            .chain(self.arguments.iter().map(String::as_str))
            .collect()
    }
}

/// What a word of options holds.
enum Flags {
    Plain,
    WithValue,
    Module { before: Option<String>, name: Option<String> },
}

/// Reads a word of Python's options. Letters may be joined, and the last may have its value behind it.
fn flags(word: &str) -> Option<Flags> {
    if let Some(long) = word.strip_prefix("--") {
        return (long == "check-hash-based-pycs").then_some(Flags::WithValue);
    }
    let letters = word.strip_prefix('-').filter(|letters| !letters.is_empty())?;
    for (index, letter) in letters.char_indices() {
        let behind = &letters[index + letter.len_utf8()..];
        match letter {
            'b' | 'B' | 'd' | 'O' | 'P' | 'q' | 's' | 'u' | 'v' | 'R' => {}
            'W' | 'X' => return Some(if behind.is_empty() { Flags::WithValue } else { Flags::Plain }),
            'm' => {
                let before = (index > 0).then(|| format!("-{}", &letters[..index]));
                let name = (!behind.is_empty()).then(|| behind.to_owned());
                return Some(Flags::Module { before, name });
            }
            // -c has no file, -i and -x change how one is read, and -E, -I and -S leave out the hook.
            _ => return None,
        }
    }
    Some(Flags::Plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<PythonProgram> {
        PythonProgram::of(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn scripts_and_modules_are_distinguished_from_options() {
        let script = read("python3 -u -X dev -Wignore train.py --lr 1 -m x").unwrap();
        assert_eq!(script.options, ["-u", "-X", "dev", "-Wignore"]);
        assert_eq!(script.target, Target::Script("train.py".into()));
        assert_eq!(script.argv(), ["train.py", "--lr", "1", "-m", "x"]);
        assert_eq!(script.command().join(" "), "python3 -u -X dev -Wignore train.py --lr 1 -m x");

        let module = read("/opt/v/bin/python3.11 -Bum pkg.train --epochs 3").unwrap();
        assert_eq!((module.options, module.target), (vec!["-Bu".into()], Target::Module("pkg.train".into())));
        assert_eq!(read("python -mpkg").unwrap().target, Target::Module("pkg".into()));
    }

    #[test]
    fn what_cannot_be_forked_is_left_to_a_process() {
        for line in [
            "torchrun train.py",
            "accelerate launch train.py",
            "python -m torch.distributed.run train.py",
            "python -c 1",
            "python -",
            "python -I train.py",
            "python -i train.py",
            "python",
            "python -u",
            "python -m",
            "./train.py",
            "python --version",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn other_arguments_are_the_same_program() {
        let first = read("python -u a.py --batch 1").unwrap();
        assert!(first.is_same_program(&read("python -u a.py --batch 2").unwrap()));
        assert!(!first.is_same_program(&read("python a.py --batch 1").unwrap()));
        assert!(!first.is_same_program(&read("python -u b.py --batch 1").unwrap()));
    }
}
