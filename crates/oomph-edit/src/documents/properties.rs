//! What holds for every file of settings: it is read without a panic, and a change of one value changes nothing else.

use std::path::Path;

use proptest::prelude::*;
use serde_json::Value;

use super::{Document, spelled};

/// A table of settings, as a program would have it.
fn table() -> impl Strategy<Value = Value> {
    let text = prop_oneof!["[a-z]{1,8}", "[ -~\u{e9}\u{4e2d}]{0,12}"];
    let value = prop_oneof![
        (-1000i64..100_000).prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        (1u32..1000).prop_map(|value| Value::from(f64::from(value) / 64.0)),
        text.prop_map(Value::from),
    ];
    let key = "[a-z][a-z0-9_]{0,10}";
    let tables = value.prop_recursive(3, 24, 5, move |inner| {
        prop::collection::btree_map(key, inner, 1..5).prop_map(|entries| Value::Object(entries.into_iter().collect()))
    });
    prop::collection::btree_map(key, tables, 1..5).prop_map(|entries| Value::Object(entries.into_iter().collect()))
}

/// The same in block style, with a comment behind every third value. A quoted text of JSON is one of YAML.
fn yaml(table: &Value, depth: usize, count: &mut usize, out: &mut String) {
    let Value::Object(entries) = table else { return };
    for (key, value) in entries {
        out.push_str(&format!("{}{key}:", "  ".repeat(depth)));
        if value.is_object() {
            out.push('\n');
            yaml(value, depth + 1, count, out);
            continue;
        }
        *count += 1;
        out.push_str(&format!(" {value}{}\n", if count.is_multiple_of(3) { "   # caf\u{e9}: 1" } else { "" }));
    }
}

fn toml(table: &Value, path: &str, out: &mut String) {
    let Value::Object(entries) = table else { return };
    for (key, value) in entries.iter().filter(|(_, value)| !value.is_object()) {
        out.push_str(&format!("{key} = {value} # caf\u{e9}\n"));
    }
    for (key, value) in entries.iter().filter(|(_, value)| value.is_object()) {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        out.push_str(&format!("\n[{path}]\n"));
        toml(value, &path, out);
    }
}

/// Each value with the keys that lead to it.
fn values(path: &Path, text: &str) -> Option<Vec<(Vec<String>, String)>> {
    let document = Document::parse(path, text.to_owned())?;
    let entry = |option: crate::opt::Opt| Some((option.written?.keys, option.default?));
    document.settings.into_iter().map(entry).collect()
}

fn one_value_changes(name: &str, text: &str, place: usize, new: &str) -> Result<(), TestCaseError> {
    let path = Path::new(name);
    let document =
        Document::parse(path, text.to_owned()).ok_or_else(|| TestCaseError::fail(format!("not read:\n{text}")))?;
    let place = place % document.settings.len();
    let range = document.settings[place].written.clone().unwrap().range;
    let mut changed = text.to_owned();
    let spelled = spelled(path, new, &text[range.clone()]);
    changed.replace_range(range, &spelled);
    let mut expected = values(path, text).unwrap();
    expected[place].1 = new.to_owned();
    prop_assert_eq!(values(path, &changed), Some(expected), "\n{}\nbecame\n{}", text, changed);
    Ok(())
}

proptest! {
    #[test]
    fn a_change_of_one_value_changes_nothing_else(
        table in table(), place in any::<usize>(), new in prop_oneof![Just("7"), Just("True"), Just("0.5"), Just("bf16")],
    ) {
        one_value_changes("a.json", &serde_json::to_string_pretty(&table).unwrap(), place, new)?;
        let mut text = String::from("# caf\u{e9}\n");
        yaml(&table, 0, &mut 0, &mut text);
        one_value_changes("a.yaml", &text, place, new)?;
        let mut text = String::new();
        toml(&table, "", &mut text);
        one_value_changes("a.toml", &text, place, new)?;
    }

    #[test]
    fn nothing_in_a_file_is_a_panic(text in "[a-c:\\- \n\t#\"'{}\\[\\],=|>&*!%@0-9.\u{e9}\\\\]{0,80}", name in "a\\.(yaml|json|toml)") {
        if let Some(document) = Document::parse(Path::new(&name), text.clone()) {
            for option in document.settings {
                prop_assert!(!text[option.written.unwrap().range].is_empty());
            }
        }
    }
}
