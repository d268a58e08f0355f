//! `oomph help`: prints a command's help, or the whole command line as data, from the definition that parses it.

use std::any::TypeId;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Arg, ArgAction};
use serde::Serialize;

use crate::cli::{Format, HelpArgs};
use crate::failure::hinted;
use crate::status;
use crate::{cli, output};

/// The command line as a document, `oomph.help/1`.
#[derive(Debug, Serialize)]
struct HelpDocument {
    schema: &'static str,
    version: &'static str,
    #[serde(flatten)]
    command: CommandHelp,
}

/// A command and what it takes.
#[derive(Debug, Serialize)]
pub struct CommandHelp {
    /// Its name, as typed.
    pub name: String,
    /// What it does, in a sentence.
    pub help: String,
    /// Examples, exit statuses and the like, as its help ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<String>,
    /// What it takes, in the order of its help.
    pub arguments: Vec<ArgumentHelp>,
    /// Commands below it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandHelp>,
}

/// An option, or a word of a certain place.
#[derive(Debug, Serialize)]
pub struct ArgumentHelp {
    /// The long option without its dashes, or the name of the place.
    pub name: String,
    /// Whether it is known by its place and not by a name.
    pub positional: bool,
    /// The short option, without its dash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short: Option<char>,
    /// Other names of the option.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// What a value is.
    #[serde(rename = "type")]
    pub kind: ValueKind,
    /// What the help calls a value, or each of several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub value_names: Vec<String>,
    /// The words that it may be, where it may not be anything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<ValueHelp>,
    /// What it is where it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Whether it must be given.
    pub required: bool,
    /// Whether it may be given several times, or takes several words.
    pub repeatable: bool,
    /// What separates several values in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub separator: Option<char>,
    /// What it does.
    pub help: String,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueKind {
    /// There is none: the option is given or not.
    Switch,
    /// A whole number from 0.
    Number,
    /// The path of a file or folder.
    Path,
    /// A word of a list.
    Choice,
    /// Any text.
    Text,
}

/// A word that an argument may be.
#[derive(Debug, Serialize)]
pub struct ValueHelp {
    /// The word.
    pub value: String,
    /// What it means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// Writes the help that was asked for.
///
/// # Errors
/// When there is no such command, or stdout cannot be written.
pub fn run(args: &HelpArgs) -> Result<ExitCode> {
    let mut whole = cli::definition();
    whole.build();
    let mut command = &mut whole;
    for name in &args.command {
        command = command.find_subcommand_mut(name).ok_or_else(|| {
            hinted(format!("there is no command `{}`", oomph_report::clean(name)), "`oomph help` lists the commands")
        })?;
    }
    let text = match args.format {
        Format::Text => command.render_long_help().to_string(),
        Format::Json => {
            let document = HelpDocument {
                schema: "oomph.help/1",
                version: env!("CARGO_PKG_VERSION"),
                command: CommandHelp::of(command),
            };
            serde_json::to_string_pretty(&document).context("cannot write the help as JSON")? + "\n"
        }
    };
    output::data(&text)?;
    Ok(ExitCode::from(status::DONE))
}

impl CommandHelp {
    /// What a definition says. It must have been built (`clap::Command::build`), which gives it its global options.
    pub fn of(command: &clap::Command) -> Self {
        let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set() && !is_of_clap(argument));
        let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
        Self {
            name: command.get_name().to_owned(),
            help: command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default(),
            more: command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string),
            arguments: arguments.map(ArgumentHelp::of).collect(),
            commands: commands.map(Self::of).collect(),
        }
    }
}

impl ArgumentHelp {
    fn of(argument: &Arg) -> Self {
        let several = argument.get_num_args().is_some_and(|count| count.max_values() > 1);
        let default = argument.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
        let switch = kind(argument) == ValueKind::Switch;
        Self {
            name: argument.get_long().unwrap_or(argument.get_id().as_str()).to_owned(),
            positional: argument.is_positional(),
            short: argument.get_short(),
            aliases: argument.get_visible_aliases().unwrap_or_default().into_iter().map(ToOwned::to_owned).collect(),
            kind: kind(argument),
            value_names: if switch {
                Vec::new()
            } else {
                argument.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect()
            },
            values: values(argument),
            default: default.filter(|_| !switch),
            required: argument.is_required_set(),
            repeatable: several || matches!(argument.get_action(), ArgAction::Append),
            separator: argument.get_value_delimiter(),
            help: argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default(),
        }
    }
}

/// `--help` and `--version`, which every program has.
fn is_of_clap(argument: &Arg) -> bool {
    use ArgAction::{Help, HelpLong, HelpShort, Version};
    matches!(argument.get_action(), Help | HelpLong | HelpShort | Version)
}

fn kind(argument: &Arg) -> ValueKind {
    let parsed = argument.get_value_parser().type_id();
    let numbers = [TypeId::of::<u8>(), TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<usize>()];
    if !argument.get_action().takes_values() {
        ValueKind::Switch
    } else if numbers.iter().any(|number| parsed == *number) {
        ValueKind::Number
    } else if parsed == TypeId::of::<PathBuf>() {
        ValueKind::Path
    } else if argument.get_possible_values().is_empty() {
        ValueKind::Text
    } else {
        ValueKind::Choice
    }
}

fn values(argument: &Arg) -> Vec<ValueHelp> {
    if !argument.get_action().takes_values() {
        return Vec::new();
    }
    let values = argument.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
    let help = |value: &clap::builder::PossibleValue| value.get_help().map(ToString::to_string);
    values.map(|value| ValueHelp { value: value.get_name().to_owned(), help: help(&value) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(name: &str) -> CommandHelp {
        let mut whole = cli::definition();
        whole.build();
        CommandHelp::of(whole.find_subcommand(name).expect("there is such a command"))
    }

    fn argument<'a>(command: &'a CommandHelp, name: &str) -> &'a ArgumentHelp {
        command.arguments.iter().find(|argument| argument.name == name).expect("there is such an argument")
    }

    #[test]
    fn every_kind_of_argument_is_known() {
        let dry_run = command("dry-run");
        assert_eq!(argument(&dry_run, "steps").kind, ValueKind::Number);
        assert_eq!(argument(&dry_run, "until-exit").kind, ValueKind::Switch);
        assert_eq!(argument(&dry_run, "report").kind, ValueKind::Path);
        let values = argument(&dry_run, "values");
        assert_eq!((values.kind, values.default.as_deref()), (ValueKind::Choice, Some("small")));
        // What is read as a number and has units is typed as text.
        for (name, option) in [("explain", "vram"), ("check", "max-peak"), ("watch", "interval"), ("run", "margin")] {
            assert_eq!(argument(&command(name), option).kind, ValueKind::Text, "{name} --{option}");
        }
        let gpu = argument(&dry_run, "gpu");
        assert!(gpu.repeatable && gpu.separator == Some(',') && !gpu.required);
        let words = argument(&dry_run, "command");
        assert!(words.positional && words.required && words.repeatable);
    }

    #[test]
    fn every_command_says_what_it_does() {
        let mut whole = cli::definition();
        whole.build();
        for command in CommandHelp::of(&whole).commands {
            assert!(!command.help.is_empty(), "{}", command.name);
            assert!(command.arguments.iter().all(|argument| !argument.help.is_empty()), "{}", command.name);
        }
    }
}
