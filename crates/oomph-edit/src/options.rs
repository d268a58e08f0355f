//! The program's own options, read from its `argparse`, `click`, `typer`, `fire`, `absl`, `tyro` and `HfArgumentParser`, and
//! from the configuration files of `hydra` and those that it opens itself.

use crate::calls::Call;
use crate::literals::{listed, plain, string};
use crate::opt::{Opt, OptKind};
use crate::program::Program;
use crate::scopes::parameters;
use crate::source::At;
use crate::trainers;

impl Program {
    /// The program's own options.
    pub fn options(&self) -> Vec<Opt> {
        all(self)
    }

    /// Whether the program takes an option of this spelling, such as `--batch_size`; `None` where its own files do not say.
    pub fn takes(&self, flag: &str) -> Option<bool> {
        takes(self, flag)
    }
}

/// All options of a program.
fn all(program: &Program) -> Vec<Opt> {
    let mut found = Vec::new();
    for call in program.calls() {
        match call.name() {
            "add_argument" => found.extend(argparse(&call)),
            "option" if call.path().ends_with("click.option") || is_decorator(&call) => found.extend(click(&call)),
            "Fire" => found.extend(fire(program, &call)),
            "run" if call.path() == "typer.run" => found.extend(typer(called(program, &call))),
            "command" if is_decorator(&call) && has_typer(&call) => found.extend(typer(decorated(&call))),
            "cli" if call.path() == "tyro.cli" => found.extend(dataclass(program, &call, true)),
            "HfArgumentParser" | "TrlParser" => found.extend(dataclass(program, &call, false)),
            name if name.starts_with("DEFINE_") => found.extend(absl(&call)),
            _ => {}
        }
    }
    found.extend(program.configured().iter().cloned());
    found.extend(program.settings().cloned());
    found
}

/// Calls that make a parser whose options are not, or not only, those that [`all`] reads.
const OTHER_PARSERS: &[&str] = &["HfArgumentParser", "TrlParser", "Fire", "cli", "CLI", "LightningCLI", "ArgParser"];

/// Whether the program takes an option of this spelling. `None` where its own files do not say so, because a library
/// declares options for it, or because another parser than `argparse` reads them.
fn takes(program: &Program, flag: &str) -> Option<bool> {
    let calls = program.calls();
    let is = |name: &str| calls.iter().any(|call| call.name() == name);
    if OTHER_PARSERS.iter().any(|name| is(name)) || program.all("decorator").iter().any(declares_options) {
        return None;
    }
    let mut parsers = calls.iter().filter(|call| call.name() == "ArgumentParser").peekable();
    if parsers.peek().is_none() {
        // A script that writes down a Trainer's arguments and has no parser takes no options at all.
        let takes_none = all(program).is_empty() && trainers::arguments(program).is_some();
        return takes_none.then_some(false);
    }
    if parsers.any(|call| call.keyword("parents").is_some()) {
        return None;
    }
    let defined: Vec<&str> = program.all("function_definition").into_iter().filter_map(name_of).collect();
    // A function of a library that is handed the parser adds options of its own.
    let is_handed_on = calls.iter().any(|call| {
        let parser = |node: &tree_sitter::Node<'_>| call.at.source.of(*node).ends_with("parser");
        call.positional().iter().any(parser) && !defined.contains(&call.name())
    });
    let mut declared = calls.iter().filter(|call| call.name() == "add_argument");
    // What is left over on the line, such as detectron2's `opts`, may hold anything.
    let takes_the_rest = |call: &Call<'_>| {
        call.value("nargs").is_some_and(|at| at.text().contains("REMAINDER") || at.text().contains('*'))
    };
    if is_handed_on || declared.clone().any(takes_the_rest) {
        return None;
    }
    let is_flag = |call: &Call<'_>| {
        call.positional().iter().any(|node| string(call.at.with(*node)).is_some_and(|known| known == flag))
    };
    Some(declared.any(is_flag))
}

fn name_of(at: At<'_>) -> Option<&str> {
    at.node.child_by_field_name("name").map(|name| at.source.of(name))
}

/// Whether a decorator makes a function's parameters options: `@click.command`, `@app.command`, `@hydra.main`.
fn declares_options(at: &At<'_>) -> bool {
    let text = at.text();
    ["command", "option", "hydra.main"].iter().any(|word| text.contains(word))
}

fn is_decorator(call: &Call<'_>) -> bool {
    call.at.node.parent().is_some_and(|parent| parent.kind() == "decorator")
}

fn argparse(call: &Call<'_>) -> Option<Opt> {
    let words: Vec<String> = call.positional().into_iter().filter_map(|node| string(call.at.with(node))).collect();
    let flags: Vec<String> = words.into_iter().filter(|word| word.starts_with('-')).collect();
    let long = flags.iter().find(|flag| flag.starts_with("--")).or(flags.first())?;
    let name = call.value("dest").and_then(string);
    let name = name.unwrap_or_else(|| long.trim_start_matches('-').replace('-', "_"));
    let action = call.value("action").map(|at| string(at).unwrap_or_else(|| at.text().to_owned()));
    let kind = match action.as_deref() {
        Some("store_true") => OptKind::Switch,
        Some("store_false") => OptKind::OffSwitch,
        Some(text) if text.ends_with("BooleanOptionalAction") => OptKind::Switch,
        Some("store") | None => OptKind::Value,
        Some(_) => return None,
    };
    let of_truth = call.value("type").is_some_and(|at| {
        let text = at.text().to_lowercase();
        text.contains("bool") || text.contains("str2")
    });
    Some(Opt {
        flags,
        name,
        kind: if kind == OptKind::Value && of_truth { OptKind::Truth } else { kind },
        default: call.value("default").and_then(plain),
        choices: call.value("choices").map(listed).unwrap_or_default(),
        parameter: false,
        written: None,
    })
}

fn click(call: &Call<'_>) -> Option<Opt> {
    let words: Vec<String> = call.positional().into_iter().filter_map(|node| string(call.at.with(node))).collect();
    let first = words.iter().find(|word| word.starts_with("--")).or(words.first())?;
    let pair = first.contains('/');
    let flags: Vec<String> = words
        .iter()
        .filter(|word| word.starts_with('-'))
        .map(|word| word.split('/').next().unwrap_or(word).to_owned())
        .collect();
    let plain_name = words.iter().find(|word| !word.starts_with('-')).cloned();
    let name = plain_name.unwrap_or_else(|| {
        let long = flags.iter().find(|flag| flag.starts_with("--")).or(flags.first());
        long.map(|flag| flag.trim_start_matches('-').replace('-', "_").to_lowercase()).unwrap_or_default()
    });
    let switch = pair || call.value("is_flag").is_some_and(|at| at.text() == "True");
    let choices = call.value("type").and_then(Call::of).filter(|kind| kind.name() == "Choice");
    let choices = choices.and_then(|kind| kind.argument("choices", 0)).map(listed).unwrap_or_default();
    Some(Opt {
        flags,
        name,
        kind: if switch { OptKind::Switch } else { OptKind::Value },
        default: call.value("default").and_then(plain),
        choices,
        parameter: true,
        written: None,
    })
}

/// The function that a call is given by its name.
fn called<'a>(program: &'a Program, call: &Call<'a>) -> Option<At<'a>> {
    let name = call.positional().first().map(|node| call.at.source.of(*node))?;
    let functions = program.all("function_definition");
    functions.into_iter().find(|at| at.node.child_by_field_name("name").is_some_and(|node| at.source.of(node) == name))
}

/// The function that a call decorates.
fn decorated<'a>(call: &Call<'a>) -> Option<At<'a>> {
    let outer = call.at.node.parent()?.parent()?;
    outer.child_by_field_name("definition").map(|node| call.at.with(node))
}

/// Whether a file makes its commands with `typer`; those of `click` are declared one by one.
fn has_typer(call: &Call<'_>) -> bool {
    call.at.source.text().contains("typer.Typer(")
}

/// `typer.run(main)` and `@app.command()`: the parameters of a function, which `typer.Option` may describe.
fn typer(function: Option<At<'_>>) -> Vec<Opt> {
    let parameters = function.map(parameters).unwrap_or_default();
    let option = |(name, default): (&str, Option<At<'_>>)| {
        let described = Call::of(default?).filter(|call| call.name() == "Option");
        let value = match &described {
            Some(call) => call.argument("default", 0).and_then(plain),
            None => default.and_then(plain),
        };
        let words = described.iter().flat_map(|call| call.positional().into_iter().map(|node| call.at.with(node)));
        let mut flags: Vec<String> = words.filter_map(string).filter(|word| word.starts_with('-')).collect();
        // `--amp/--no-amp`
        flags.iter_mut().for_each(|flag| flag.truncate(flag.find('/').unwrap_or(flag.len())));
        if flags.is_empty() {
            flags.push(format!("--{}", name.replace('_', "-")));
        }
        let truth = matches!(value.as_deref(), Some("True" | "False"));
        Some(Opt {
            flags,
            name: name.to_owned(),
            kind: if truth { OptKind::Switch } else { OptKind::Value },
            default: value,
            choices: Vec::new(),
            parameter: true,
            written: None,
        })
    };
    parameters.into_iter().filter_map(option).collect()
}

/// `fire.Fire(main)`: the parameters of a function.
fn fire(program: &Program, call: &Call<'_>) -> Vec<Opt> {
    let Some(function) = called(program, call) else { return Vec::new() };
    parameters(function)
        .into_iter()
        .filter_map(|(name, default)| {
            let default = default.and_then(plain)?;
            let kind = if matches!(default.as_str(), "True" | "False") { OptKind::Truth } else { OptKind::Value };
            Some(Opt {
                flags: vec![format!("--{name}")],
                name: name.to_owned(),
                kind,
                default: Some(default),
                choices: Vec::new(),
                parameter: true,
                written: None,
            })
        })
        .collect()
}

/// The fields of dataclasses that a parser is made for.
fn dataclass(program: &Program, call: &Call<'_>, dashes: bool) -> Vec<Opt> {
    let Some(first) = call.positional().first().copied() else { return Vec::new() };
    let names: Vec<&str> = crate::source::within(first)
        .filter(|node| node.kind() == "identifier")
        .map(|node| call.at.source.of(node))
        .collect();
    let mut found = Vec::new();
    for class in program.all("class_definition") {
        let named = class.node.child_by_field_name("name").is_some_and(|node| names.contains(&class.source.of(node)));
        let Some(body) = class.node.child_by_field_name("body").filter(|_| named) else { continue };
        for statement in crate::source::statements(body) {
            let Some(assignment) = statement.named_child(0).filter(|node| node.kind() == "assignment") else {
                continue;
            };
            let Some(left) = assignment.child_by_field_name("left").filter(|left| left.kind() == "identifier") else {
                continue;
            };
            let Some(kind) = assignment.child_by_field_name("type") else { continue };
            let right = assignment.child_by_field_name("right").map(|node| class.with(node));
            let default = right.and_then(|at| plain(at).or_else(|| plain(Call::of(at)?.value("default")?)));
            let name = class.source.of(left).to_owned();
            let of_truth = class.source.of(kind).contains("bool");
            let flag = if dashes { name.replace('_', "-") } else { name.clone() };
            let kind = match (of_truth, dashes) {
                (false, _) => OptKind::Value,
                (true, true) => OptKind::Switch,
                (true, false) => OptKind::Truth,
            };
            found.push(Opt {
                flags: vec![format!("--{flag}")],
                name,
                kind,
                default,
                choices: Vec::new(),
                parameter: false,
                written: None,
            });
        }
    }
    found
}

/// `flags.DEFINE_integer("batch_size", 32, "...")`.
fn absl(call: &Call<'_>) -> Option<Opt> {
    let words = call.positional();
    let name = string(call.at.with(*words.first()?))?;
    let default = words.get(1).and_then(|node| plain(call.at.with(*node)));
    let truth = call.name() == "DEFINE_bool" || call.name() == "DEFINE_boolean";
    let kind = if truth { OptKind::Switch } else { OptKind::Value };
    Some(Opt {
        flags: vec![format!("--{name}")],
        name,
        kind,
        default,
        choices: Vec::new(),
        parameter: false,
        written: None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn of(text: &str) -> Vec<Opt> {
        let script = Path::new("/p/train.py");
        Program::reading(script, Path::new("/p"), Vec::new(), |path| (path == script).then(|| text.to_owned()))
            .unwrap()
            .options()
    }

    fn takes_sequence_length(text: &str) -> Option<bool> {
        let script = Path::new("/p/sft_lora.py");
        Program::reading(script, Path::new("/p"), Vec::new(), |path| (path == script).then(|| text.to_owned()))
            .unwrap()
            .takes("--max_length")
    }

    #[test]
    fn what_a_program_takes_is_said_where_its_own_files_declare_all_options() {
        let own = "p = argparse.ArgumentParser()\np.add_argument('--model')\n";
        assert_eq!(takes_sequence_length(own), Some(false));
        assert_eq!(takes_sequence_length(&format!("{own}p.add_argument('--max_length')\n")), Some(true));
        assert_eq!(takes_sequence_length("args = SFTConfig(output_dir='out')\n"), Some(false));
        for unknown in [
            "p = HfArgumentParser((SFTConfig,))\n",
            "p = argparse.ArgumentParser(parents=[base])\n",
            "parser = argparse.ArgumentParser()\ntrain_util.add_training_arguments(parser)\n",
            "from trl.scripts.sft import main\nmain()\n",
            "p = argparse.ArgumentParser()\np.add_argument('opts', nargs=argparse.REMAINDER)\n",
            "flags.DEFINE_integer('batch', 4, '')\nargs = SFTConfig(output_dir='out')\n",
        ] {
            assert_eq!(takes_sequence_length(unknown), None, "{unknown}");
        }
        let helper = "def add(parser):\n    parser.add_argument('--max_length')\n";
        let helped = format!("{helper}parser = argparse.ArgumentParser()\nadd(parser)\n");
        assert_eq!(takes_sequence_length(&helped), Some(true));
    }

    #[test]
    fn options_of_argparse() {
        let text = "p.add_argument('-b', '--batch-size', type=int, default=32)\np.add_argument('--amp', action='store_true')\np.add_argument('file')\n";
        let options = of(text);
        assert_eq!(options.len(), 2);
        assert_eq!((options[0].flag(), options[0].name.as_str()), ("--batch-size", "batch_size"));
        let mut words: Vec<String> = ["x", "-b", "16"].map(String::from).into();
        assert_eq!(options[0].value_in(&words).as_deref(), Some("16"));
        options[0].set(&mut words, "8");
        options[1].set(&mut words, "True");
        assert_eq!(words, ["x", "-b", "8", "--amp"]);
        assert_eq!(options[1].value_in(&words).as_deref(), Some("True"));
    }

    #[test]
    fn options_of_typer() {
        let options = of(
            "import typer\napp = typer.Typer()\n@app.command()\ndef main(data: str, batch_size: int = 32, lr: float = typer.Option(0.1, '--lr'), amp: bool = False):\n    pass\n",
        );
        let flags: Vec<_> = options.iter().map(|option| (option.flag(), option.kind)).collect();
        assert_eq!(flags, [("--batch-size", OptKind::Value), ("--lr", OptKind::Value), ("--amp", OptKind::Switch)]);
        assert_eq!(options[1].default.as_deref(), Some("0.1"));
        assert_eq!(of("import typer\ndef main(bs: int = 8):\n    pass\ntyper.run(main)\n")[0].flag(), "--bs");
    }

    #[test]
    fn options_of_click_fire_and_dataclasses() {
        let click = of(
            "@click.option('--batch-size', default=8)\n@click.option('--amp/--no-amp', default=False)\ndef main(batch_size, amp):\n    pass\n",
        );
        assert_eq!((click[0].name.as_str(), click[0].kind), ("batch_size", OptKind::Value));
        assert_eq!((click[1].flag(), click[1].kind), ("--amp", OptKind::Switch));
        let fire = of("def main(batch_size=8, amp=False):\n    pass\nfire.Fire(main)\n");
        assert_eq!((fire[1].flag(), fire[1].kind), ("--amp", OptKind::Truth));
        let hf = of(
            "@dataclass\nclass A:\n    length: int = field(default=4)\n    use_lora: bool = False\nHfArgumentParser((A, TrainingArguments))\n",
        );
        assert_eq!((hf[0].flag(), hf[0].default.as_deref()), ("--length", Some("4")));
        assert_eq!(hf[1].kind, OptKind::Truth);
    }
}
