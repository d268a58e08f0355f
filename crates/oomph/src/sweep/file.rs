//! Reads the file of a sweep: a program with names in braces, the values of each name, and options of dry runs.
//!
//! It is read strictly. A key that is not known, an axis that nothing uses and a name that no axis has are errors with
//! their line, because a sweep of hundreds of runs is a bad place to learn of a typing mistake.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use oomph_report::{SweepAxis, clean};
use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};

use super::template::{self, Template};
use crate::failure::{hinted, nearest};

/// A file with more bytes is not a description of a sweep.
const LONGEST: u64 = 1 << 20;
/// A sweep of more cells is refused.
pub const MOST_CELLS: usize = 20_000;
/// The axis that names cards.
pub const CARDS: &str = "gpu";
/// The axis that names commits.
pub const COMMITS: &str = "commit";

/// The options of `oomph dry-run` that a file may set, and whether each takes a value or is a switch.
const OPTIONS: [(&str, Takes); 13] = [
    ("gpu", Takes::Value),
    ("vram", Takes::Value),
    ("with", Takes::List),
    ("steps", Takes::Value),
    ("until-exit", Takes::Nothing),
    ("budget", Takes::Value),
    ("timeout", Takes::Value),
    ("values", Takes::Value),
    ("routing", Takes::Value),
    ("batches", Takes::Value),
    ("random-weights", Takes::Nothing),
    ("ranks", Takes::Value),
    ("network", Takes::Value),
];

/// The other keys.
const KEYS: [&str; 5] = ["program", "matrix", "env", "exclude", "commits"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Value,
    List,
    Nothing,
}

/// What a file says.
#[derive(Clone, Debug)]
pub struct SweepFile {
    /// The program and its arguments; never empty.
    pub program: Vec<Template>,
    /// The axes, in the order of the file; `commit` comes first.
    pub axes: Vec<SweepAxis>,
    /// Variables of the program's environment.
    pub env: Vec<(String, Template)>,
    /// Combinations that are left out: the values, by the places of their axes.
    pub exclude: Vec<Rule>,
    /// Options of `oomph dry-run`: the word and its value, if it takes one.
    pub options: Vec<(String, Option<Template>)>,
}

/// What is left out: some values of some axes, which are known by their places.
pub type Rule = Vec<(usize, Vec<String>)>;

/// A value of the file, and its line.
struct Node<'a> {
    node: &'a MarkedYaml<'a>,
    text: &'a Text<'a>,
}

/// The file's text, by the letters that the parser counts.
struct Text<'a> {
    path: &'a Path,
    text: &'a str,
    starts: Vec<usize>,
}

impl Text<'_> {
    fn wrong(&self, line: usize, what: impl std::fmt::Display, hint: impl Into<String>) -> anyhow::Error {
        hinted(format!("{}, line {line}: {what}", self.path.display()), hint)
    }
}

impl<'a> Node<'a> {
    fn line(&self) -> usize {
        self.node.span.start.line()
    }

    fn wrong(&self, what: impl std::fmt::Display, hint: impl Into<String>) -> anyhow::Error {
        self.text.wrong(self.line(), what, hint)
    }

    fn with(&self, node: &'a MarkedYaml<'a>) -> Self {
        Self { node, text: self.text }
    }

    /// A plain value as it is written: `1e-4` stays so.
    fn scalar(&self) -> Option<String> {
        match &self.node.data {
            YamlData::Value(Scalar::String(text)) => Some(text.to_string()),
            YamlData::Value(Scalar::Null) => None,
            YamlData::Value(_) => {
                let place = |index: usize| self.text.starts.get(index).copied();
                let (start, end) = (place(self.node.span.start.index())?, place(self.node.span.end.index())?);
                // The end of a plain value may lie behind the spaces after it.
                Some(self.text.text.get(start..end)?.trim_end().to_owned())
            }
            _ => None,
        }
    }

    fn text(&self, what: &str, hint: &str) -> Result<String> {
        self.scalar().ok_or_else(|| self.wrong(format_args!("{what} is not a plain value"), hint))
    }

    /// A list of values, or one value.
    fn list(&self, what: &str, hint: &str) -> Result<Vec<String>> {
        match &self.node.data {
            YamlData::Sequence(values) => values.iter().map(|value| self.with(value).text(what, hint)).collect(),
            _ => Ok(vec![self.text(what, hint)?]),
        }
    }

    fn entries(&self, what: &str, hint: &str) -> Result<Vec<(String, usize, Self)>> {
        let YamlData::Mapping(entries) = &self.node.data else {
            return Err(self.wrong(format_args!("{what} is not a table of keys and values"), hint));
        };
        let entry = |(key, value): (&'a MarkedYaml<'a>, &'a MarkedYaml<'a>)| {
            let key = self.with(key);
            Ok((key.text("a key", hint)?, key.line(), self.with(value)))
        };
        entries.iter().map(entry).collect()
    }
}

const MATRIX_HINT: &str = "write `matrix:` and below it lists, such as `batch: [1, 2, 4]`";
const PROGRAM_HINT: &str = "write, for example, `program: python train.py --batch-size {batch}`";

/// The keys of a file; what depends on the axes is not read yet.
#[derive(Default)]
struct Keys<'a> {
    program: Option<Node<'a>>,
    env: Option<Node<'a>>,
    exclude: Option<Node<'a>>,
    /// The axes with their lines; `commit` comes first.
    axes: Vec<(SweepAxis, usize)>,
    options: Vec<(String, Option<Template>)>,
}

impl<'a> Keys<'a> {
    fn of(root: &Node<'a>) -> Result<Self> {
        let mut keys = Self::default();
        for (key, line, value) in root.entries("the file", "start with `program:` and `matrix:`")? {
            let option = OPTIONS.iter().find(|(name, _)| *name == key);
            match (key.as_str(), option) {
                ("program", _) => keys.program = Some(value),
                ("env", _) => keys.env = Some(value),
                ("exclude", _) => keys.exclude = Some(value),
                ("matrix", _) => {
                    for (name, line, values) in value.entries("matrix", MATRIX_HINT)? {
                        keys.axes.push((axis(&name, line, &values)?, line));
                    }
                }
                ("commits", _) => {
                    let values = value.list("a commit", "write `commits: [main, HEAD~5]`")?;
                    keys.axes.insert(0, (distinct(COMMITS, values, &value)?, line));
                }
                (_, Some((name, takes))) => keys.options.extend(option_of(name, *takes, &value)?),
                ("allow-writes", _) => {
                    return Err(root.text.wrong(
                        line,
                        "the runs of a sweep may not write to your files, because they run at the same time",
                        "run one program with `oomph dry-run --allow-writes`",
                    ));
                }
                (unknown, None) => {
                    let names = KEYS.iter().copied().chain(OPTIONS.iter().map(|(name, _)| *name));
                    return Err(root.text.wrong(
                        line,
                        format_args!("there is no key `{}`", clean(unknown)),
                        nearest(unknown, names, "`oomph sweep --help` lists the keys"),
                    ));
                }
            }
        }
        Ok(keys)
    }
}

/// The variables that `env` sets.
fn variables(env: &Node<'_>) -> Result<Vec<(String, Template)>> {
    let one = |(name, _, value): (String, usize, Node<'_>)| {
        Ok((name, Template::new(&value.text("a variable", "write `NAME: value`")?)))
    };
    env.entries("env", "write `env:` and below it `NAME: value`")?.into_iter().map(one).collect()
}

impl SweepFile {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or says something that has no meaning.
    pub fn read(path: &Path) -> Result<Self> {
        let context = || format!("cannot read {}", path.display());
        let size = fs::metadata(path).with_context(context)?.len();
        if size > LONGEST {
            return Err(hinted(
                format!("{} has {size} bytes, so it is not the description of a sweep", path.display()),
                "`oomph sweep --help` shows what such a file looks like",
            ));
        }
        Self::parse(path, &fs::read_to_string(path).with_context(context)?)
    }

    /// As [`Self::read`], of a text.
    fn parse(path: &Path, text: &str) -> Result<Self> {
        let mut starts: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
        starts.push(text.len());
        let source = Text { path, text, starts };
        let documents = MarkedYaml::load_from_str(text).map_err(|error| {
            source.wrong(
                error.marker().line(),
                clean(error.info()),
                "the file is YAML; check its indentation and quotes",
            )
        })?;
        let [document] = documents.as_slice() else {
            return Err(hinted(
                format!("{} holds {} documents, and a sweep is one", path.display(), documents.len()),
                "`oomph sweep --help` shows what such a file looks like",
            ));
        };
        let Keys { program, env, exclude, axes, options } = Keys::of(&Node { node: document, text: &source })?;
        let Some(program) = program else {
            return Err(hinted(format!("{} does not say what to run", path.display()), PROGRAM_HINT));
        };
        let words = words(&program)?;
        if axes.is_empty() {
            return Err(hinted(format!("{} has no matrix, so there is nothing to vary", path.display()), MATRIX_HINT));
        }
        for (at, (axis, line)) in axes.iter().enumerate() {
            if axes[..at].iter().any(|(other, _)| other.name == axis.name) {
                return Err(source.wrong(*line, format_args!("there are two axes `{}`", axis.name), "rename one"));
            }
        }
        let (axes, lines): (Vec<SweepAxis>, Vec<usize>) = axes.into_iter().unzip();
        let variables = env.as_ref().map_or_else(|| Ok(Vec::new()), variables)?;
        let mut file = Self { program: words, axes, env: variables, exclude: Vec::new(), options };
        file.name_cards();
        file.check_names(&program, env.as_ref())?;
        file.check_axes(&lines, &source)?;
        if let Some(exclude) = &exclude {
            file.exclude = file.excluded(exclude)?;
        }
        let cells = file.axes.iter().fold(1_usize, |all, axis| all.saturating_mul(axis.values.len()));
        if cells > MOST_CELLS {
            return Err(hinted(
                format!("{} describes {cells} runs", path.display()),
                format!("a sweep has at most {MOST_CELLS}; give the axes fewer values"),
            ));
        }
        Ok(file)
    }

    /// An axis of cards needs no place: that is what --gpu is for. The same for sizes of cards.
    fn name_cards(&mut self) {
        for name in [CARDS, "vram"] {
            if self.axes.iter().any(|axis| axis.name == name)
                && !self.options.iter().any(|(word, _)| word[2..] == *name)
            {
                self.options.push((format!("--{name}"), Some(Template::new(&format!("{{{name}}}")))));
            }
        }
    }

    /// Every axis is used. `lines` are those of the axes.
    fn check_axes(&self, lines: &[usize], source: &Text<'_>) -> Result<()> {
        for (axis, line) in self.axes.iter().zip(lines) {
            let used =
                axis.name == COMMITS || self.templates().any(|template| template.names().any(|name| name == axis.name));
            if !used {
                return Err(source.wrong(
                    *line,
                    format_args!("nothing uses the axis `{}`, so its runs would all be the same", axis.name),
                    format!("write {{{}}} where its value goes, in `program` or `env`", axis.name),
                ));
            }
        }
        Ok(())
    }

    fn templates(&self) -> impl Iterator<Item = &Template> {
        let env = self.env.iter().map(|(_, value)| value);
        self.program.iter().chain(env).chain(self.options.iter().filter_map(|(_, value)| value.as_ref()))
    }

    /// Every name in braces is an axis.
    fn check_names(&self, program: &Node<'_>, env: Option<&Node<'_>>) -> Result<()> {
        let axes = || self.axes.iter().map(|axis| axis.name.as_str());
        for template in self.templates() {
            if let Some(name) = template.names().find(|name| !axes().any(|axis| axis == *name)) {
                let in_program = self.program.iter().any(|word| std::ptr::eq(word, template));
                let in_env = self.env.iter().any(|(_, value)| std::ptr::eq(value, template));
                let node = if in_program { Some(program) } else { env.filter(|_| in_env) };
                let hint = nearest(name, axes(), "give it values in `matrix`");
                return Err(match node {
                    Some(node) => node.wrong(
                        format_args!("{{{name}}} is not an axis"),
                        format!("{hint} (for the word in braces itself write {{{{{name}}}}})"),
                    ),
                    None => hinted(format!("{}: {{{name}}} is not an axis", program.text.path.display()), hint),
                });
            }
        }
        Ok(())
    }

    fn excluded(&self, node: &Node<'_>) -> Result<Vec<Rule>> {
        const HINT: &str = "write `exclude: [{gpu: t4, batch: 16}]`";
        let YamlData::Sequence(rules) = &node.node.data else {
            return Err(node.wrong("exclude is not a list", HINT));
        };
        let rule = |rule: &MarkedYaml<'_>| -> Result<Rule> {
            let rule = Node { node: rule, text: node.text };
            let entries = rule.entries("what is excluded", HINT)?;
            if entries.is_empty() {
                return Err(rule.wrong("this would exclude everything", HINT));
            }
            let one = |(name, _, values): (String, usize, Node<'_>)| {
                let Some(place) = self.axes.iter().position(|axis| axis.name == name) else {
                    let names = self.axes.iter().map(|axis| axis.name.as_str());
                    let hint = nearest(&name, names, "the axes are those of `matrix`");
                    return Err(values.wrong(format_args!("there is no axis `{}`", clean(&name)), hint));
                };
                let list = values.list("a value", HINT)?;
                let axis = &self.axes[place];
                if let Some(unknown) = list.iter().find(|value| axis.place(value).is_none()) {
                    let known = axis.values.iter().map(String::as_str);
                    let hint = nearest(unknown, known, "write a value of that axis");
                    let what = format!("`{}` is not a value of `{name}`", clean(unknown));
                    return Err(values.wrong(what, hint));
                }
                Ok((place, list))
            };
            entries.into_iter().map(one).collect()
        };
        rules.iter().map(rule).collect()
    }
}

fn axis(name: &str, line: usize, values: &Node<'_>) -> Result<SweepAxis> {
    if !template::is_name(name) {
        return Err(values.text.wrong(
            line,
            format_args!("`{}` cannot be used in braces", clean(name)),
            "an axis is named with letters, digits, `_`, `-` and `.`, and begins with a letter",
        ));
    }
    if name == COMMITS {
        return Err(values.text.wrong(line, "`commit` is the axis of `commits`", "write `commits: [main, HEAD~5]`"));
    }
    distinct(name, values.list(&format!("a value of `{name}`"), MATRIX_HINT)?, values)
}

fn distinct(name: &str, values: Vec<String>, node: &Node<'_>) -> Result<SweepAxis> {
    if values.is_empty() {
        return Err(node.wrong(format_args!("`{name}` has no values"), MATRIX_HINT));
    }
    for (at, value) in values.iter().enumerate() {
        if values[..at].contains(value) {
            return Err(node.wrong(format_args!("`{name}` has the value `{}` twice", clean(value)), "leave one out"));
        }
    }
    Ok(SweepAxis { name: name.to_owned(), values })
}

/// The words of a command line, as a shell would part them, or those of a list.
fn words(program: &Node<'_>) -> Result<Vec<Template>> {
    let words = match &program.node.data {
        YamlData::Sequence(_) => program.list("a word of the program", PROGRAM_HINT)?,
        _ => {
            let text = program.text("program", PROGRAM_HINT)?;
            shlex::split(&text).ok_or_else(|| program.wrong("a quote is not closed", PROGRAM_HINT))?
        }
    };
    let Some(first) = words.first() else { return Err(program.wrong("program is empty", PROGRAM_HINT)) };
    if first.contains('=') && template::is_name(first.split('=').next().unwrap_or_default()) {
        return Err(program
            .wrong(format_args!("program begins with a variable, `{}`", clean(first)), "put variables below `env:`"));
    }
    Ok(words.iter().map(|word| Template::new(word)).collect())
}

fn option_of(name: &str, takes: Takes, value: &Node<'_>) -> Result<Vec<(String, Option<Template>)>> {
    let word = format!("--{name}");
    let hint = format!("`oomph dry-run --help` says what --{name} takes");
    match takes {
        Takes::Value => Ok(vec![(word, Some(Template::new(&value.text(name, &hint)?)))]),
        Takes::List => {
            let values = value.list(name, &hint)?;
            Ok(values.iter().map(|value| (word.clone(), Some(Template::new(value)))).collect())
        }
        Takes::Nothing => match value.text(name, &hint)?.as_str() {
            "true" => Ok(vec![(word, None)]),
            "false" => Ok(vec![]),
            _ => Err(value.wrong(format_args!("{name} is neither true nor false"), hint)),
        },
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
