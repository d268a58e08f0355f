//! Follows a name to where its value is written: a literal, a constant in another file, or an option of the program.

use std::path::Path;

use crate::calls::Call;
use crate::literals::{plain, string};
use crate::opt::Opt;
use crate::program::Program;
use crate::scopes::{assigned, assigned_text, parameters};
use crate::settings;
use crate::source::{At, Source, function_of, within};

/// Names are followed through so many others.
const MOST_STEPS: usize = 8;

/// What an expression is.
#[derive(Clone)]
pub(crate) enum Value<'a> {
    /// A literal, here.
    Literal(At<'a>),
    /// What an option of the program says.
    Option(Opt),
    /// A word of the command line, counted from 0 after the script's name.
    Word(usize),
    /// Something that is computed.
    Unknown,
}

/// Follows an expression.
pub(crate) fn follow<'a>(program: &'a Program, at: At<'a>) -> Value<'a> {
    let options = program.options();
    Follower { program, options: &options }.value(at, MOST_STEPS)
}

struct Follower<'a, 'o> {
    program: &'a Program,
    options: &'o [Opt],
}

impl<'a> Follower<'a, '_> {
    fn value(&self, at: At<'a>, left: usize) -> Value<'a> {
        if plain(at).is_some() {
            return Value::Literal(at);
        }
        if left == 0 {
            return Value::Unknown;
        }
        match at.node.kind() {
            "parenthesized_expression" => {
                at.node.named_child(0).map_or(Value::Unknown, |inner| self.value(at.with(inner), left - 1))
            }
            "identifier" => self.name(at, left),
            "attribute" => self.attribute(at, left),
            "subscript" => self.subscript(at, left),
            // `int(args.batch)` is the option still, and `int(config["batch"])` the number.
            "call" => match Call::of(at) {
                Some(call) if call.name() == "get" => {
                    settings::read_by(self.program, at).map_or(Value::Unknown, Value::Option)
                }
                Some(call) if matches!(call.path(), "int" | "float" | "bool" | "str") => call
                    .positional()
                    .first()
                    .map_or(Value::Unknown, |inner| match self.value(at.with(*inner), left - 1) {
                        Value::Option(option) => Value::Option(option),
                        Value::Word(place) => Value::Word(place),
                        Value::Literal(number) if call.path() == "int" && number.node.kind() == "integer" => {
                            Value::Literal(number)
                        }
                        _ => Value::Unknown,
                    }),
                _ => Value::Unknown,
            },
            _ => Value::Unknown,
        }
    }

    fn name(&self, at: At<'a>, left: usize) -> Value<'a> {
        let name = at.text();
        if let Some(function) = function_of(at.node) {
            let function = at.with(function);
            match assigned(function, name).as_slice() {
                [] => {}
                [one] => return self.value(*one, left - 1),
                _ => return Value::Unknown,
            }
            if let Some((place, default)) = parameters(function)
                .into_iter()
                .enumerate()
                .find_map(|(place, (found, default))| (found == name).then_some((place, default)))
            {
                return self.parameter(function, name, place, default, left);
            }
        }
        let module = at.with(at.source.root());
        match assigned(module, name).as_slice() {
            [one] => return self.value(*one, left - 1),
            [] => {}
            _ => return Value::Unknown,
        }
        self.imported(at, name, left)
    }

    /// What the only call of a function gives for a parameter.
    fn parameter(&self, function: At<'a>, name: &str, place: usize, default: Option<At<'a>>, left: usize) -> Value<'a> {
        if let Some(option) = self.options.iter().find(|option| option.parameter && option.name == name) {
            return Value::Option(option.clone());
        }
        let Some(called) = function.node.child_by_field_name("name").map(|node| function.source.of(node)) else {
            return Value::Unknown;
        };
        let method = parameters(function).first().is_some_and(|(first, _)| *first == "self");
        let class = crate::source::around(function.node).find(|node| node.kind() == "class_definition");
        let class = class.and_then(|node| node.child_by_field_name("name")).map(|node| function.source.of(node));
        let calls: Vec<Call<'a>> = self
            .program
            .calls()
            .into_iter()
            .filter(|call| if called == "__init__" { Some(call.name()) == class } else { call.name() == called })
            .collect();
        let place = if method { place.saturating_sub(1) } else { place };
        match calls.as_slice() {
            [] => default.map_or(Value::Unknown, |default| self.value(default, left - 1)),
            [one] => match one.argument(name, place) {
                Some(given) => self.value(given, left - 1),
                None => default.map_or(Value::Unknown, |default| self.value(default, left - 1)),
            },
            _ => Value::Unknown,
        }
    }

    /// A name that another file of the program gives.
    fn imported(&self, at: At<'a>, name: &str, left: usize) -> Value<'a> {
        for node in at.source.all("import_from_statement") {
            let Some(module) = node.child_by_field_name("module_name").map(|node| at.source.of(node)) else { continue };
            let mut cursor = node.walk();
            let has = node.children_by_field_name("name", &mut cursor).any(|found| at.source.of(found) == name)
                || at.source.of(node).trim_end().ends_with('*');
            if has && let Some((file, source)) = self.program.module(at.file, module) {
                let root = At { file, source, node: source.root() };
                if let [one] = assigned(root, name).as_slice() {
                    return self.value(*one, left - 1);
                }
            }
        }
        Value::Unknown
    }

    fn attribute(&self, at: At<'a>, left: usize) -> Value<'a> {
        let (Some(object), Some(name)) =
            (at.node.child_by_field_name("object"), at.node.child_by_field_name("attribute"))
        else {
            return Value::Unknown;
        };
        let (object, name) = (at.with(object), at.source.of(name));
        let declared = |option: &&Opt| !option.parameter && option.written.is_none() && option.name == name;
        if let Some(option) = self.options.iter().find(declared)
            && self.holds_options(object)
        {
            return Value::Option(option.clone());
        }
        // `self.batch_size` is set where the object is made.
        if object.text() == "self" {
            let class = crate::source::around(at.node).find(|node| node.kind() == "class_definition");
            let found: Vec<At<'a>> = class.map(|class| assigned_text(at.with(class), at.text())).unwrap_or_default();
            return match found.as_slice() {
                [one] => self.value(*one, left - 1),
                _ => settings::read_by(self.program, at).map_or_else(|| self.field(name, left), Value::Option),
            };
        }
        // `save_hyperparameters()` of Lightning's keeps what the object was made with.
        if object.text() == "self.hparams"
            && let Some(class) = crate::source::around(at.node).find(|node| node.kind() == "class_definition")
            && let Some(init) = within(class).find(|node| {
                let named = node.child_by_field_name("name").map(|name| at.source.of(name));
                node.kind() == "function_definition" && named == Some("__init__")
            })
            && let Some((place, (_, default))) =
                parameters(at.with(init)).into_iter().enumerate().find(|(_, (found, _))| *found == name)
        {
            return self.parameter(at.with(init), name, place, default, left);
        }
        // `config.BATCH` of a module, `Config.batch` of a class, or `config.batch` of an object of a class.
        for module in [object.text()] {
            if let Some((file, source)) = self.imports_module(at, module) {
                let root = At { file, source, node: source.root() };
                if let [one] = assigned(root, name).as_slice() {
                    return self.value(*one, left - 1);
                }
            }
        }
        if let Some(setting) = settings::read_by(self.program, at) {
            return Value::Option(setting);
        }
        self.field(name, left)
    }

    fn imports_module(&self, at: At<'a>, module: &str) -> Option<(&'a Path, &'a Source)> {
        let imported = within(at.source.root())
            .filter(|node| matches!(node.kind(), "import_statement" | "import_from_statement"))
            .any(|node| at.source.of(node).contains(module));
        if imported { self.program.module(at.file, module) } else { None }
    }

    /// The only field of that name of a class of the program.
    fn field(&self, name: &str, left: usize) -> Value<'a> {
        let mut found = Vec::new();
        for class in self.program.all("class_definition") {
            let Some(body) = class.node.child_by_field_name("body") else { continue };
            for statement in crate::source::statements(body) {
                if let Some(assignment) = statement.named_child(0).filter(|node| node.kind() == "assignment")
                    && let Some(left) = assignment.child_by_field_name("left")
                    && class.source.of(left) == name
                    && let Some(right) = assignment.child_by_field_name("right")
                {
                    found.push(class.with(right));
                }
            }
        }
        match found.as_slice() {
            [one] => self.value(*one, left - 1),
            [] => self.entry(None, name, left),
            _ => Value::Unknown,
        }
    }

    /// `cfg["batch_size"]` of a dictionary that is written out.
    fn subscript(&self, at: At<'a>, left: usize) -> Value<'a> {
        let (Some(object), Some(key)) =
            (at.node.child_by_field_name("value"), at.node.child_by_field_name("subscript"))
        else {
            return Value::Unknown;
        };
        if matches!(at.source.of(object), "sys.argv" | "argv") {
            let place = at.source.of(key).parse::<usize>().ok().and_then(|place| place.checked_sub(1));
            return place.map_or(Value::Unknown, Value::Word);
        }
        let Some(key) = string(at.with(key)) else { return Value::Unknown };
        if let Some(setting) = settings::read_by(self.program, at) {
            return Value::Option(setting);
        }
        self.entry(Some(at.source.of(object)), &key, left)
    }

    /// What a dictionary that is written out, or an object made of named values, has under a key: the one of that name,
    /// or the only one of the program, since a function knows it by the name of its parameter.
    fn entry(&self, name: Option<&str>, key: &str, left: usize) -> Value<'a> {
        let pairs = self.program.all("pair").into_iter().filter(|pair| {
            pair.node.child_by_field_name("key").and_then(|node| string(pair.with(node))).as_deref() == Some(key)
        });
        let named = self.program.all("keyword_argument").into_iter().filter(|named| {
            named.node.child_by_field_name("name").is_some_and(|node| named.source.of(node) == key)
                && named
                    .node
                    .parent()
                    .and_then(|list| list.parent())
                    .and_then(|call| Call::of(named.with(call)))
                    .is_some_and(|call| {
                        matches!(call.name(), "dict" | "SimpleNamespace" | "Namespace" | "EasyDict" | "ConfigDict")
                    })
        });
        let entries: Vec<(&str, At<'a>)> = pairs
            .chain(named)
            .filter_map(|entry| {
                let whose = crate::source::around(entry.node).find(|node| node.kind() == "assignment")?;
                let value = entry.node.child_by_field_name("value")?;
                Some((entry.source.of(whose.child_by_field_name("left")?), entry.with(value)))
            })
            .collect();
        let of_name: Vec<At<'a>> =
            entries.iter().filter(|(whose, _)| Some(*whose) == name).map(|(_, value)| *value).collect();
        match (of_name.as_slice(), entries.as_slice()) {
            ([one], _) | ([], [(_, one)]) => self.value(*one, left - 1),
            _ => Value::Unknown,
        }
    }

    /// Whether an object is what a parser gave, or a parameter, which may be.
    fn holds_options(&self, object: At<'a>) -> bool {
        if object.node.kind() == "attribute" {
            // `self.args`
            return true;
        }
        let scopes = function_of(object.node).map(|node| object.with(node));
        let root = object.with(object.source.root());
        for scope in scopes.into_iter().chain([root]) {
            let found = assigned(scope, object.text());
            if !found.is_empty() {
                return found.iter().any(|at| {
                    let text = at.text();
                    text.contains("parse")
                        || text.contains("get_args")
                        || text.contains("FLAGS")
                        || text.contains("cli(")
                        || text.contains("options")
                        || text.contains("args")
                });
            }
            // Several things may be given at once: `a, b = parser.parse_args_into_dataclasses()`.
            let several = within(scope.node).any(|node| {
                node.kind() == "assignment"
                    && node.child_by_field_name("left").is_some_and(|left| {
                        within(left).any(|name| name.kind() == "identifier" && object.source.of(name) == object.text())
                    })
                    && object.source.of(node).contains("parse")
            });
            if several || scope.node.kind() == "function_definition" && is_parameter(scope, object.text()) {
                return true;
            }
        }
        matches!(object.text(), "args" | "opt" | "opts" | "FLAGS" | "options" | "flags.FLAGS")
    }
}

fn is_parameter(function: At<'_>, name: &str) -> bool {
    parameters(function).iter().any(|(found, _)| *found == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(files: &[(&str, &str)]) -> String {
        let read = |path: &Path| {
            let name = path.strip_prefix("/p").ok()?.to_str()?;
            files.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
        };
        let program = Program::reading(Path::new("/p/train.py"), Path::new("/p"), Vec::new(), read).unwrap();
        let call = program.calls().into_iter().find(|call| call.name() == "DataLoader").unwrap();
        match follow(&program, call.value("batch_size").unwrap()) {
            Value::Literal(at) => format!("{} {}", at.file.display(), at.text()),
            Value::Option(option) => option.flag().to_owned(),
            Value::Word(place) => format!("word {place}"),
            Value::Unknown => "?".to_owned(),
        }
    }

    #[test]
    fn what_an_object_of_lightning_s_was_made_with_is_followed() {
        let text = "class Data:\n    def __init__(self, batch_size=128, workers=0):\n        \
                    self.save_hyperparameters()\n    def loader(self):\n        \
                    return DataLoader(d, batch_size=self.hparams.batch_size)\ndata = Data(batch_size=96)\n";
        assert_eq!(batch(&[("train.py", text)]), "/p/train.py 96");
        assert_eq!(batch(&[("train.py", &text.replace("batch_size=96", ""))]), "/p/train.py 128");
    }

    #[test]
    fn names_are_followed_to_literals() {
        assert_eq!(batch(&[("train.py", "B = 8\nl = DataLoader(d, batch_size=B)\n")]), "/p/train.py 8");
        assert_eq!(
            batch(&[("train.py", "from conf import *\nl = DataLoader(d, batch_size=B)\n"), ("conf.py", "B = 16\n")]),
            "/p/conf.py 16"
        );
        assert_eq!(
            batch(&[("train.py", "import conf\nl = DataLoader(d, batch_size=conf.B)\n"), ("conf.py", "B = 16\n")]),
            "/p/conf.py 16"
        );
        assert_eq!(
            batch(&[("train.py", "def f(n=4):\n    return DataLoader(d, batch_size=n)\nf(n=12)\n")]),
            "/p/train.py 12"
        );
        assert_eq!(
            batch(&[("train.py", "class C:\n    batch = 5\nc = C()\nl = DataLoader(d, batch_size=c.batch)\n")]),
            "/p/train.py 5"
        );
        let passed = "C = {'batch': 7}\ndef f(cfg):\n    return DataLoader(d, batch_size=cfg['batch'])\nf(C)\n";
        assert_eq!(batch(&[("train.py", passed)]), "/p/train.py 7");
        let object =
            "c = SimpleNamespace(batch=9)\ndef f(cfg):\n    return DataLoader(d, batch_size=cfg.batch)\nf(c)\n";
        assert_eq!(batch(&[("train.py", object)]), "/p/train.py 9");
        let two = "A = {'n': 1}\nB = {'n': 2}\ndef f(c):\n    return DataLoader(d, batch_size=c['n'])\nf(A)\n";
        assert_eq!(batch(&[("train.py", two)]), "?");
        assert_eq!(
            batch(&[("train.py", "cfg = {'batch': 6}\nl = DataLoader(d, batch_size=cfg['batch'])\n")]),
            "/p/train.py 6"
        );
    }

    #[test]
    fn names_are_followed_to_options() {
        let head = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--bs', type=int, default=4)\n";
        let text = format!("{head}a = p.parse_args()\nl = DataLoader(d, batch_size=a.bs)\n");
        assert_eq!(batch(&[("train.py", &text)]), "--bs");
        let text = format!(
            "{head}a = p.parse_args()\nn = a.bs\ndef f(cfg):\n    l = DataLoader(d, batch_size=cfg.bs)\nf(a)\n"
        );
        assert_eq!(batch(&[("train.py", &text)]), "--bs");
        let text = "import sys\ndef f(n):\n    return DataLoader(d, batch_size=n)\nf(int(sys.argv[2]))\n";
        assert_eq!(batch(&[("train.py", text)]), "word 1");
        let text = "B = 8\nB = 9\nl = DataLoader(d, batch_size=B)\n";
        assert_eq!(batch(&[("train.py", text)]), "?");
    }
}
