//! The server's tools: schemas made from the commands' definitions, and calls turned into command lines.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use oomph_report::Brief;
use rmcp::ErrorData;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use crate::cli;
use crate::help::{ArgumentHelp, CommandHelp, ValueKind};

/// The commands that are offered.
const COMMANDS: [&str; 6] = ["dry-run", "fix", "tune", "plan", "explain", "gpus"];

/// Options that are not offered: those that write files, change the program's files or let it write and upload, which
/// people decide on, and those whose answer is not in the short form.
const WITHHELD: [&str; 24] = [
    "allow-writes",
    "apply",
    "brief",
    "config",
    "explain",
    "export",
    "follow",
    "format",
    "html",
    "in-place",
    "list",
    "private",
    "quiet",
    "real",
    "report",
    "script",
    "snapshot",
    "table",
    "trace",
    "verbose",
    "write",
    "yes",
    "no-owners",
    "guide",
];

/// The name of the one parameter that no command has.
const DIRECTORY: &str = "directory";

/// A command that is offered.
pub struct Offered {
    name: String,
    command: CommandHelp,
}

/// A call that makes sense.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    /// The words after `oomph`.
    pub arguments: Vec<OsString>,
    /// The folder to run in, where one was named.
    pub directory: Option<PathBuf>,
}

/// A parameter that does not make sense.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    field: String,
    message: String,
}

impl Wrong {
    fn new(field: &str, what: &str) -> Self {
        Self { field: field.to_owned(), message: format!("`{field}` {what}") }
    }

    /// As an error of the protocol, with the name of the parameter as data.
    pub fn into_error(self) -> ErrorData {
        ErrorData::invalid_params(self.message, Some(json!({"field": self.field})))
    }
}

/// The tools.
pub fn offered() -> Vec<Offered> {
    let mut whole = cli::definition();
    whole.build();
    let found = COMMANDS.iter().filter_map(|name| whole.find_subcommand(name));
    found
        .map(|command| {
            let mut command = CommandHelp::of(command);
            command.arguments.retain(|argument| !WITHHELD.contains(&argument.name.as_str()));
            for argument in &mut command.arguments {
                // The whole catalogue would fill a context window; and a program is needed where nothing is only listed.
                argument.required |= command.name == "gpus" || argument.name == "command";
            }
            Offered { name: command.name.replace('-', "_"), command }
        })
        .collect()
}

impl Offered {
    /// The tool's name: the command's, with `_` for `-`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its answer is in the short form. The catalogue's is not: an entry is short.
    fn is_brief(&self) -> bool {
        self.name != "gpus"
    }

    /// The tool as the protocol describes it.
    pub fn tool(&self) -> Tool {
        let title = format!("oomph {}", self.command.name);
        let annotations =
            ToolAnnotations::with_title(title).read_only(true).destructive(false).idempotent(true).open_world(false);
        let tool = Tool::new(self.name.clone(), self.command.help.clone(), Arc::new(self.schema()));
        let tool = tool.with_annotations(annotations);
        if self.is_brief() { tool.with_output_schema::<Brief>() } else { tool }
    }

    /// The schema of its parameters.
    fn schema(&self) -> JsonObject {
        let mut properties = JsonObject::new();
        for argument in &self.command.arguments {
            properties.insert(field(argument), property(argument));
        }
        let text = "The folder to run in, from which relative paths start [default: the server's]";
        properties.insert(DIRECTORY.into(), json!({"type": "string", "description": text}));
        let required: Vec<String> =
            self.command.arguments.iter().filter(|argument| argument.required).map(field).collect();
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        });
        match schema {
            Value::Object(schema) => schema,
            _ => JsonObject::new(),
        }
    }

    /// A call as a command line.
    ///
    /// # Errors
    /// Names the first parameter that the schema does not allow.
    pub fn call(&self, mut parameters: JsonObject) -> Result<Call, Wrong> {
        let directory = match parameters.remove(DIRECTORY) {
            None | Some(Value::Null) => None,
            Some(Value::String(path)) if PathBuf::from(&path).is_dir() => Some(path.into()),
            Some(Value::String(_)) => return Err(Wrong::new(DIRECTORY, "must be a folder that exists")),
            Some(_) => return Err(Wrong::new(DIRECTORY, "must be a string")),
        };
        let mut options: Vec<OsString> = vec![self.command.name.clone().into()];
        let mut words: Vec<OsString> = Vec::new();
        for argument in &self.command.arguments {
            let field = field(argument);
            let value = parameters.remove(&field).filter(|value| !value.is_null());
            let Some(value) = value else {
                if argument.required {
                    return Err(Wrong::new(&field, "is required"));
                }
                continue;
            };
            let values = values(argument, &field, &value)?;
            if argument.positional {
                words.extend(values.into_iter().map(OsString::from));
            } else if argument.kind == ValueKind::Switch {
                options.extend((value == true).then(|| format!("--{}", argument.name).into()));
            } else {
                // In one word, so that no value is taken for an option.
                options.extend(values.iter().map(|value| format!("--{}={value}", argument.name).into()));
            }
        }
        if let Some(field) = parameters.keys().next() {
            let known: Vec<String> = self.command.arguments.iter().map(self::field).collect();
            return Err(Wrong::new(
                field,
                &format!("is not a parameter of {}; it has {}", self.name, known.join(", ")),
            ));
        }
        options.push(if self.is_brief() { "--brief" } else { "--format=json" }.into());
        options.push("--ends-with-parent".into());
        options.push("--".into());
        options.extend(words);
        Ok(Call { arguments: options, directory })
    }
}

/// The name of an argument as a parameter.
fn field(argument: &ArgumentHelp) -> String {
    argument.name.replace('-', "_")
}

fn property(argument: &ArgumentHelp) -> Value {
    let mut one = match argument.kind {
        ValueKind::Switch => json!({"type": "boolean"}),
        ValueKind::Number => json!({"type": "integer", "minimum": 0}),
        ValueKind::Path | ValueKind::Text => json!({"type": "string"}),
        ValueKind::Choice => json!({"type": "string", "enum": choices(argument)}),
    };
    let meanings: Vec<String> =
        argument.values.iter().filter_map(|value| Some(format!("{}: {}", value.value, value.help.as_ref()?))).collect();
    let mut text = argument.help.clone();
    if !meanings.is_empty() {
        text = format!("{text}. {}", meanings.join("; "));
    }
    if let (Some(default), false) = (&argument.default, argument.repeatable) {
        one["default"] = match argument.kind {
            ValueKind::Number => default.parse::<u64>().map_or(Value::Null, Value::from),
            _ => default.clone().into(),
        };
    }
    if argument.repeatable {
        one = json!({"type": "array", "items": one});
        if argument.required {
            one["minItems"] = 1.into();
        }
    }
    one["description"] = text.into();
    one
}

fn choices(argument: &ArgumentHelp) -> Vec<&str> {
    argument.values.iter().map(|value| value.value.as_str()).collect()
}

/// The words of a parameter.
fn values(argument: &ArgumentHelp, field: &str, value: &Value) -> Result<Vec<String>, Wrong> {
    match (value, argument.repeatable) {
        (Value::Array(values), true) if values.is_empty() && argument.required => {
            Err(Wrong::new(field, "must not be empty"))
        }
        (Value::Array(values), true) => values.iter().map(|value| word(argument, field, value)).collect(),
        (_, true) => Err(Wrong::new(field, "must be an array of strings")),
        (value, false) => Ok(vec![word(argument, field, value)?]),
    }
}

fn word(argument: &ArgumentHelp, field: &str, value: &Value) -> Result<String, Wrong> {
    match (argument.kind, value) {
        (ValueKind::Switch, Value::Bool(value)) => Ok(value.to_string()),
        (ValueKind::Switch, _) => Err(Wrong::new(field, "must be true or false")),
        (ValueKind::Number, value) => value
            .as_u64()
            .map(|number| number.to_string())
            .ok_or_else(|| Wrong::new(field, "must be a whole number from 0")),
        (ValueKind::Choice, Value::String(word)) if choices(argument).contains(&word.as_str()) => Ok(word.clone()),
        (ValueKind::Choice, _) => Err(Wrong::new(field, &format!("must be one of {}", choices(argument).join(", ")))),
        (ValueKind::Path | ValueKind::Text, Value::String(word)) if word.contains('\0') => {
            Err(Wrong::new(field, "must not hold a null character"))
        }
        (ValueKind::Path | ValueKind::Text, Value::String(word)) => Ok(word.clone()),
        (ValueKind::Path | ValueKind::Text, _) if argument.repeatable => {
            Err(Wrong::new(field, "must be an array of strings"))
        }
        (ValueKind::Path | ValueKind::Text, _) => Err(Wrong::new(field, "must be a string")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(name: &str, parameters: Value) -> Result<Vec<String>, Wrong> {
        let offered = offered();
        let offered = offered.iter().find(|offered| offered.name() == name).expect("there is such a tool");
        let Value::Object(parameters) = parameters else { panic!("parameters are an object") };
        let call = offered.call(parameters)?;
        Ok(call.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect())
    }

    fn wrong(name: &str, parameters: Value) -> (String, String) {
        let wrong = called(name, parameters).expect_err("it is wrong");
        (wrong.field, wrong.message)
    }

    #[test]
    fn a_call_becomes_a_command_line() {
        let line = called(
            "dry_run",
            json!({"command": ["python", "a.py", "--batch", "4"], "gpu": ["rtx-3060"], "steps": 2, "until_exit": false,
                   "random_weights": true, "values": "off"}),
        );
        let expected = "dry-run --gpu=rtx-3060 --steps=2 --values=off --random-weights --brief --ends-with-parent -- python a.py --batch 4";
        assert_eq!(line.map(|words| words.join(" ")), Ok(expected.to_owned()));
    }

    #[test]
    fn no_value_becomes_an_option() {
        let line = called("explain", json!({"files": ["--html=x"], "gpu": "--export=y"})).unwrap_or_default();
        assert_eq!(line, ["explain", "--gpu=--export=y", "--brief", "--ends-with-parent", "--", "--html=x"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(wrong("dry_run", json!({})), ("command".into(), "`command` is required".into()));
        let (field, message) = wrong("dry_run", json!({"command": ["true"], "steps": "two"}));
        assert_eq!((field.as_str(), message.as_str()), ("steps", "`steps` must be a whole number from 0"));
        assert_eq!(wrong("dry_run", json!({"command": "python a.py"})).0, "command");
        assert_eq!(wrong("dry_run", json!({"command": ["true"], "values": "none"})).0, "values");
        assert_eq!(wrong("plan", json!({"model": "llama-3-8b", "batch_size": 4})).0, "batch_size");
        // What writes is not offered.
        assert_eq!(wrong("fix", json!({"command": ["true"], "in_place": 1})).0, "in_place");
        assert_eq!(wrong("gpus", json!({})).0, "name");
    }

    #[test]
    fn every_option_that_is_withheld_exists() {
        let mut whole = cli::definition();
        whole.build();
        for name in WITHHELD {
            let known = whole.get_subcommands().flat_map(clap::Command::get_arguments);
            assert!(known.chain(whole.get_arguments()).any(|argument| argument.get_long() == Some(name)), "{name}");
        }
    }

    #[test]
    fn every_tool_has_its_schemas() {
        for offered in offered() {
            let tool = offered.tool();
            assert_eq!(tool.input_schema["type"], "object", "{}", tool.name);
            assert_eq!(tool.output_schema.is_some(), offered.is_brief(), "{}", tool.name);
            assert!(!tool.description.unwrap_or_default().is_empty(), "{}", tool.name);
        }
    }
}
