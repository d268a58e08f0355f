//! Prints what to run on platforms without the virtual GPU: the same command in WSL2 or in a container.

use oomph_launch::masked;

use crate::failure::hinted;
use crate::shell_words::quoted;

/// The image that the container runs: a Python, and a glibc that is new enough.
const IMAGE: &str = "python:3.12-slim";

/// The error for a command that runs a program, on a system other than Linux.
pub fn refusal() -> anyhow::Error {
    let words: Vec<_> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    hinted("programs run on the virtual GPU only on Linux", hint(std::env::consts::OS, &masked(&words)))
}

fn hint(system: &str, words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    let command = format!("oomph {}", words.join(" "));
    // The wheels for x86-64 run on Apple's processors too, translated.
    let inner = format!("pip install --quiet oomph && {command}");
    let container = format!(
        "docker run --rm --platform linux/amd64 -v \"${{PWD}}:/work\" -w /work {IMAGE} sh -c {}",
        quoted(&inner)
    );
    if system == "windows" {
        format!(
            "in WSL2 (`wsl --install` sets it up) run `pipx install oomph` and then `{command}`; or with Docker, in \
             PowerShell: {container}"
        )
    } else {
        format!("run it in a container: {container}")
    }
}

#[cfg(test)]
mod tests {
    use super::hint;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_same_command_runs_in_a_container() {
        let hint = hint("macos", &words("dry-run --gpu rtx-3060 --with torch -- python train.py"));
        let (before, inner) = hint.split_once(" sh -c ").unwrap();
        assert!(
            before.ends_with("docker run --rm --platform linux/amd64 -v \"${PWD}:/work\" -w /work python:3.12-slim")
        );
        let expected = "pip install --quiet oomph && oomph dry-run --gpu rtx-3060 --with torch -- python train.py";
        assert_eq!(shlex(inner), expected);
    }

    #[test]
    fn windows_has_a_linux_of_its_own() {
        let hint = hint("windows", &words("fix --gpu rtx-3060 -- python train.py"));
        assert!(hint.contains("`oomph fix --gpu rtx-3060 -- python train.py`"), "{hint}");
        assert!(hint.contains("wsl --install") && hint.contains("docker run"), "{hint}");
    }

    #[test]
    fn words_with_spaces_stay_one_word() {
        let words: Vec<String> = ["dry-run", "--", "python", "my train.py"].map(str::to_owned).into();
        let hint = hint("macos", &words);
        let (_, inner) = hint.split_once(" sh -c ").unwrap();
        assert!(shlex(inner).ends_with("oomph dry-run -- python 'my train.py'"), "{inner}");
    }

    /// What a shell makes of one quoted word.
    fn shlex(word: &str) -> String {
        word.strip_prefix('\'').and_then(|word| word.strip_suffix('\'')).unwrap().replace("'\\''", "'")
    }
}
