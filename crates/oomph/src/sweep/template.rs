//! A text with names in braces, each of which stands for a value of an axis.

/// A text with names in braces. `{{name}}` is the name in braces itself, and any other brace stays unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Name(String),
}

impl Template {
    /// Reads a text.
    pub fn new(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            plain.push_str(&rest[..at]);
            rest = &rest[at..];
            let doubled = rest.starts_with("{{");
            let (open, close) = if doubled { ("{{", "}}") } else { ("{", "}") };
            let name = rest[open.len()..].find(close).map(|end| &rest[open.len()..open.len() + end]);
            match name.filter(|name| is_name(name)) {
                Some(name) => {
                    if doubled {
                        plain.push_str(&format!("{{{name}}}"));
                    } else {
                        if !plain.is_empty() {
                            parts.push(Part::Text(std::mem::take(&mut plain)));
                        }
                        parts.push(Part::Name(name.to_owned()));
                    }
                    rest = &rest[open.len() + name.len() + close.len()..];
                }
                None => {
                    plain.push('{');
                    rest = &rest[1..];
                }
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Self { parts }
    }

    /// The names in braces.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Name(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// The text with the value of each name in its place.
    pub fn filled<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Name(name) => value(name).unwrap_or_default().to_owned(),
        };
        self.parts.iter().map(part).collect()
    }
}

/// Whether a name may be used in braces.
pub fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|letter| letter.is_alphabetic() || letter == '_')
        && letters.all(|letter| letter.is_alphanumeric() || "_-.".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_in_and_other_braces_stay() {
        let filled = |text: &str| Template::new(text).filled(|name| (name == "lr").then_some("1e-4"));
        assert_eq!(filled("--lr={lr}"), "--lr=1e-4");
        assert_eq!(filled("{{lr}} {\"a\": {lr}} {"), "{lr} {\"a\": 1e-4} {");
        assert_eq!(filled("${} {1} { lr }"), "${} {1} { lr }");
        assert_eq!(Template::new("{a}{b-2}{{c}}").names().collect::<Vec<_>>(), ["a", "b-2"]);
    }
}
