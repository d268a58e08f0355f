//! Makes pages fit to share: file names without their folders.

use oomph_trace::Trace;
use serde_json::Value;

/// Replaces the paths of a program by their last part, or by their place among the packages.
#[derive(Debug, Default)]
pub struct Shortener {
    /// What is replaced, longest first.
    paths: Vec<(String, String)>,
}

impl Shortener {
    /// One that knows the files of recordings, and other paths.
    pub fn new<'a>(traces: impl IntoIterator<Item = &'a Trace>, others: impl IntoIterator<Item = String>) -> Self {
        let mut files: Vec<String> = others.into_iter().collect();
        for trace in traces {
            let frames = (0..trace.frames.len() as u32).filter_map(|id| trace.frames.get(oomph_trace::FrameId(id)));
            files.extend(frames.map(|frame| trace.strings.get(frame.file).to_owned()));
        }
        files.retain(|file| file.contains(['/', '\\']));
        files.sort_unstable();
        files.dedup();
        files.sort_by_key(|file| std::cmp::Reverse(file.len()));
        Self { paths: files.into_iter().map(|file| (short(&file), file)).map(|(short, file)| (file, short)).collect() }
    }

    /// The text without folders.
    pub fn text(&self, text: &str) -> String {
        if !text.contains(['/', '\\']) {
            return text.to_owned();
        }
        if let Some((_, short)) = self.paths.iter().find(|(path, _)| path == text) {
            return short.clone();
        }
        let known = self.paths.iter().filter(|(path, _)| text.contains(path.as_str()));
        let mut text = text.to_owned();
        for (path, short) in known.collect::<Vec<_>>() {
            text = text.replace(path.as_str(), short);
        }
        // What names a folder without being the name of a recorded file: a message, a command.
        text.split(' ').map(bare).collect::<Vec<_>>().join(" ")
    }

    /// Every text of a document without folders. What holds a line of source is left out.
    pub fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.value(value)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    if name == "text" && value.is_string() {
                        *value = Value::Null;
                    } else {
                        self.value(value);
                    }
                }
            }
            _ => {}
        }
    }
}

/// A word without the folders of a path that begins at the root, a drive or the home.
fn bare(word: &str) -> String {
    let opens = |character: char| matches!(character, '"' | '\'' | '(' | '[' | '=' | '`');
    let Some(start) = word.find(['/', '\\', '~']) else { return word.to_owned() };
    let before = &word[..start];
    let drive = before.len() >= 2 && before.ends_with(':');
    if before.is_empty() || before.ends_with(opens) || drive {
        let before = if drive { &before[..before.len() - 2] } else { before };
        return format!("{before}{}", short(&word[start..]));
    }
    word.to_owned()
}

/// A path without what shows where it lies: from the packages on, or its last part.
fn short(path: &str) -> String {
    let path = path.replace('\\', "/");
    if let Some(at) = path.rfind("-packages/") {
        return path[at + "-packages/".len()..].to_owned();
    }
    path.trim_end_matches('/').rsplit('/').next().unwrap_or("").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_left_out() {
        let paths = ["/home/zoe/secret project/train.py", "/opt/lib/site-packages/torch/nn/linear.py"];
        let shortener = Shortener::new([], paths.map(str::to_owned));
        assert_eq!(shortener.text(paths[0]), "train.py");
        assert_eq!(shortener.text("/home/zoe/secret project/train.py:3 in f"), "train.py:3 in f");
        assert_eq!(shortener.text("see /opt/lib/site-packages/torch/nn/linear.py:8"), "see torch/nn/linear.py:8");
        assert_eq!(
            shortener.text("--data=/mnt/zoe/set and 3 GiB/s, C:\\Users\\zoe\\a.py"),
            "--data=set and 3 GiB/s, a.py"
        );
        let mut value = serde_json::json!({"text": "x = 1", "rows": [{"site": "/home/a/b.py:2"}], "bytes": 3});
        shortener.value(&mut value);
        assert_eq!(value, serde_json::json!({"text": null, "rows": [{"site": "b.py:2"}], "bytes": 3}));
    }
}
