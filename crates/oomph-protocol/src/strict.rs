//! Reads documents and accepts no drift: for tests of whoever writes a document.
//!
//! A reader in production passes over what it does not know and takes defaults for what is absent, because a process may
//! die at any time and files outlive versions. That leniency hides drift: a field that was renamed on one side reads as 0.
//! So tests read strictly. A document is read and written again, and must be what it was: an unknown field is gone
//! afterwards, an absent one is there, a word that is not in the vocabulary has become another, and a value that was
//! given up for its type has become null.

use serde_json::Value;

use crate::{Document, ReadError};

/// Reads a document, and fails where this crate does not declare exactly what it says.
///
/// # Errors
/// One sentence that names the first place that differs.
pub fn read<T: Document>(text: &[u8]) -> Result<T, String> {
    let document: T = crate::read(text).map_err(|error: ReadError| error.to_string())?;
    let said: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let declared = serde_json::to_value(&document).map_err(|error| error.to_string())?;
    match difference(&said, &declared, &mut String::new()) {
        Some(difference) => Err(format!("{}: {difference}", T::SCHEMA)),
        None => Ok(document),
    }
}

/// The first place at which two values differ, and how.
fn difference(said: &Value, declared: &Value, place: &mut String) -> Option<String> {
    let at = |place: &str, name: &str| if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
    match (said, declared) {
        (Value::Object(said), Value::Object(declared)) => {
            if let Some(name) = said.keys().find(|name| !declared.contains_key(*name)) {
                return Some(format!("unknown field `{}`", at(place, name)));
            }
            if let Some(name) = declared.keys().find(|name| !said.contains_key(*name)) {
                return Some(format!("missing field `{}`", at(place, name)));
            }
            said.iter().find_map(|(name, value)| difference(value, &declared[name], &mut at(place, name)))
        }
        (Value::Array(said), Value::Array(declared)) if said.len() == declared.len() => {
            let pairs = said.iter().zip(declared).enumerate();
            pairs.into_iter().find_map(|(index, (one, other))| difference(one, other, &mut format!("{place}[{index}]")))
        }
        // Python writes 1.0 or 1 for the same figure.
        (Value::Number(said), Value::Number(declared)) if said.as_f64() == declared.as_f64() => None,
        _ if said == declared => None,
        _ => Some(format!("`{place}` is {said}, which reads as {declared}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;

    const WHOLE: &str = r#"{"schema":"oomph.names/1","pid":1,"devices":{},"names":[],"modules":[],
        "phases":[{"device":0,"at":1,"phase":"load","step":1,"begin":true}],"complete":{"names":true,"modules":true}}"#;

    fn says(from: &str, to: &str) -> String {
        assert!(WHOLE.contains(from));
        read::<Names>(WHOLE.replace(from, to).as_bytes()).unwrap_err()
    }

    #[test]
    fn every_kind_of_drift_is_an_error_that_names_the_place() {
        read::<Names>(WHOLE.as_bytes()).unwrap();
        assert_eq!(says(r#""step":1,"#, ""), "oomph.names/1: missing field `phases[0].step`");
        assert_eq!(says(r#""begin""#, r#""starts""#), "oomph.names/1: unknown field `phases[0].starts`");
        assert_eq!(
            says(r#""load""#, r#""loading""#),
            r#"oomph.names/1: `phases[0].phase` is "loading", which reads as "other""#
        );
        assert!(says("names/1", "names/2").contains("a newer oomph wrote it"));
        assert!(says(r#""schema":"oomph.names/1","#, "").contains("has no schema"));
    }
}
