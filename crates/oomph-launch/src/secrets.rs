//! Hides passwords and tokens in what is written down: reports, messages, names of environments.

/// What replaces a secret.
const MASK: &str = "***";

/// How the names of options end whose value is secret, in lower case and with hyphens.
const SECRET_NAMES: [&str; 22] = [
    "access-key",
    "access-token",
    "api-key",
    "api-token",
    "apikey",
    "auth-token",
    "bearer-token",
    "bot-token",
    "credential",
    "credentials",
    "gh-token",
    "github-token",
    "hf-token",
    "hub-token",
    "huggingface-token",
    "passphrase",
    "passwd",
    "password",
    "private-key",
    "secret",
    "secret-key",
    "wandb-key",
];

/// How tokens of known services begin, and the least number of characters that follow.
const TOKENS: [(&str, usize); 13] = [
    ("hf_", 20),
    ("api_org_", 20),
    ("sk-", 20),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghs_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("nvapi-", 20),
    ("AKIA", 16),
    ("eyJhbGciOi", 20),
];

/// A command line as it may be shown to others: values of options such as `--token`, tokens of known services and
/// passwords in addresses are masked.
pub fn masked(words: &[String]) -> Vec<String> {
    let mut found = Vec::with_capacity(words.len());
    let mut is_value = false;
    for word in words {
        let is_option = word.starts_with('-');
        if std::mem::replace(&mut is_value, false) && !is_option {
            found.push(MASK.to_owned());
            continue;
        }
        match word.split_once('=') {
            Some((name, value)) if is_secret_name(name) && !value.is_empty() => found.push(format!("{name}={MASK}")),
            _ => {
                is_value = is_option && is_secret_name(word);
                found.push(masked_text(word));
            }
        }
    }
    found
}

/// A text without tokens of known services and passwords in addresses.
pub fn masked_text(text: &str) -> String {
    without_tokens(&without_password(text))
}

/// The last words of environment variables whose value is secret: `MY_TOKEN=...`, `REGISTRY_KEY=...`.
const SECRET_VARIABLES: [&str; 6] = ["TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIALS"];

/// Whether a name is that of an environment variable with a secret. Names in lower case may be settings (`eos_token=</s>`).
fn is_secret_variable(name: &str) -> bool {
    let is_variable =
        name.bytes().all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == b'_');
    is_variable && name.rsplit('_').next().is_some_and(|last| SECRET_VARIABLES.contains(&last))
}

fn is_secret_name(name: &str) -> bool {
    if is_secret_variable(name) {
        return true;
    }
    let name = name.trim_start_matches(['-', '+']).rsplit('.').next().unwrap_or_default();
    let name = name.to_ascii_lowercase().replace('_', "-");
    name == "token" || SECRET_NAMES.iter().any(|end| name.strip_suffix(end).is_some_and(ends_a_word))
}

/// Whether what precedes the end of a name leaves that end a word of its own.
fn ends_a_word(before: &str) -> bool {
    before.is_empty() || before.ends_with('-')
}

fn without_tokens(text: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let mut out = String::with_capacity(text.len());
    for piece in text.split_inclusive(|letter| !is_part(letter)) {
        let end = piece.trim_end_matches(|letter| !is_part(letter));
        let token =
            TOKENS.iter().find(|(start, least)| end.strip_prefix(start).is_some_and(|rest| rest.len() >= *least));
        match token {
            Some((start, _)) => {
                out.push_str(start);
                out.push_str(MASK);
                out.push_str(&piece[end.len()..]);
            }
            None => out.push_str(piece),
        }
    }
    out
}

/// A text whose addresses have no user and password any more: `https://***@host/simple`.
pub(crate) fn without_password(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let ends = |letter: char| letter.is_whitespace() || "/?#\"'<>`,;".contains(letter);
        let authority = &after[..after.find(ends).unwrap_or(after.len())];
        rest = match authority.rsplit_once('@') {
            // The user of SSH is not a secret.
            Some((user, _)) if before.ends_with("ssh://") && !user.contains(':') => after,
            Some((user, _)) => {
                out.push_str(MASK);
                &after[user.len()..]
            }
            None => after,
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        masked(&words).join(" ")
    }

    #[test]
    fn values_that_are_secret_are_masked() {
        assert_eq!(words("train.py --token abc --lr 1e-4"), "train.py --token *** --lr 1e-4");
        assert_eq!(words("train.py --hub_token=abc hub.api_key=x"), "train.py --hub_token=*** hub.api_key=***");
        assert_eq!(words("HF_TOKEN=abc --push"), "HF_TOKEN=*** --push");
        assert_eq!(
            words("env MY_TOKEN=abc REGISTRY_KEY=x python a.py"),
            "env MY_TOKEN=*** REGISTRY_KEY=*** python a.py"
        );
        assert_eq!(words("--token --push"), "--token --push");
        let token = format!("hf_{}", "a1".repeat(17));
        assert_eq!(words(&format!("login {token}, then")), "login hf_***, then");
        assert_eq!(words("--index https://me:pw@host/simple"), "--index https://***@host/simple");
    }

    #[test]
    fn what_is_none_stays() {
        for line in [
            "--max-tokens 5 --tokenizer gpt2 --eos-token </s> --num_tokens=7 --tokens 5",
            "OMP_NUM_THREADS=4 TOKENIZERS_PARALLELISM=false eos_token=x MONKEY=x",
            "--model hf_model --path a/sk-1 --monkey=x --secretary y",
            "git+ssh://git@github.com/a/b https://host/a@b http://host",
        ] {
            assert_eq!(words(line), line);
        }
    }

    #[test]
    fn passwords_leave_addresses() {
        assert_eq!(without_password("a https://u:p@h/x b git+https://t@h"), "a https://***@h/x b git+https://***@h");
        assert_eq!(without_password("https://u:p@ss@h/x?q=https://a:b@c"), "https://***@h/x?q=https://***@c");
        assert_eq!(without_password("://@"), "://***@");
    }
}
