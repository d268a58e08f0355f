//! Finds the sizes that a program writes down: options, words and constants that are whole numbers and named like a size.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::calls::Call;
use crate::edit::Edit;
use crate::error::CannotPlace;
use crate::opt::{Opt, OptKind};
use crate::program::Program;
use crate::recipes::{own, without_layers};
use crate::source::At;

/// Parts of the names of sizes, in the singular.
const SIZES: [&str; 53] = [
    "atom",
    "batch",
    "batche",
    "bin",
    "body",
    "bodie",
    "buffer",
    "capacity",
    "cell",
    "chunk",
    "col",
    "column",
    "context",
    "count",
    "ctx",
    "dim",
    "feature",
    "frame",
    "grid",
    "height",
    "hidden",
    "image",
    "item",
    "len",
    "length",
    "num",
    "option",
    "particle",
    "path",
    "picture",
    "point",
    "pixel",
    "query",
    "querie",
    "resolution",
    "row",
    "sample",
    "sequence",
    "seq",
    "session",
    "side",
    "simulation",
    "site",
    "size",
    "strike",
    "token",
    "trial",
    "ubatch",
    "user",
    "vertice",
    "width",
    "window",
    "neuron",
];

/// Parts of names whose number does not say how much lies on the card.
const OTHERS: [&str; 22] = [
    "block",
    "device",
    "epoch",
    "every",
    "gpu",
    "interval",
    "iter",
    "iteration",
    "port",
    "print",
    "rank",
    "repeat",
    "retry",
    "seed",
    "step",
    "thread",
    "timeout",
    "tpb",
    "verbose",
    "version",
    "warmup",
    "worker",
];

/// Names whose parts do not show that they are sizes.
const WHOLE: [&str; 13] = ["n", "m", "k", "nx", "ny", "nz", "dx", "ngl", "n_gpu_layers", "l", "w", "h", "d"];

/// Names of how much is done at a time, or of how much lies on the card: the result stays the same.
const AT_A_TIME: [&str; 7] = ["batch", "ubatch", "chunk", "tile", "ngl", "layers", "buffer"];

/// What stands for a value that is not known yet; no expression of Python's has it.
const UNSET: &str = "$";

/// More layers than models have that people serve on one card.
const ALL_LAYERS: u64 = 99;

/// Parts of the names of what gives a model its shape, in the singular.
const OF_MODELS: [&str; 22] = [
    "channel",
    "classe",
    "depth",
    "dim",
    "embed",
    "embedding",
    "feature",
    "filter",
    "head",
    "hidden",
    "inner",
    "kernel",
    "latent",
    "layer",
    "model",
    "neuron",
    "patch",
    "rank",
    "unit",
    "vocab",
    "vocabulary",
    "width",
];

/// A size that a program writes down.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    /// What the program calls it: `--grid`, `POINTS`, `argument 2`.
    pub name: String,
    /// Its value.
    pub value: u64,
    /// How the program writes the value where it is not that number: `-1` for all layers.
    pub word: Option<&'static str>,
    /// Whether the result stays the same with a smaller one.
    pub keeps_the_result: bool,
    place: Place,
}

/// What a size measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Measured {
    /// How much of the data is worked on at a time, where no remedy has it: `--reindex-batch 256`.
    AtATime,
    /// How much data there is.
    Data,
    /// Its name does not say: `--gallery 4000`.
    Unknown,
    /// The shape of a model.
    Model,
}

#[derive(Clone, Debug, PartialEq)]
enum Place {
    Option(Opt),
    Word(usize),
    Code(PathBuf, std::ops::Range<usize>),
    /// It is not written, and this edit adds it, with `UNSET` for its value.
    Unset(PathBuf, Edit),
}

impl Size {
    /// Whether it is set on the command line, so that no code changes.
    pub fn is_typed(&self) -> bool {
        !matches!(self.place, Place::Code(..) | Place::Unset(..))
    }

    /// Whether it is how much is worked on at a time, so that the program does the same with a smaller one.
    pub fn is_at_a_time(&self) -> bool {
        self.measures() == Some(Measured::AtATime)
    }

    /// Whether it is what a remedy of the catalogue's changes in a program that serves a language model.
    pub fn is_of(&self, remedy: &str) -> bool {
        let name = self.name.rsplit('.').next().unwrap_or(&self.name).replace('-', "_");
        match remedy {
            "fewer-gpu-layers" => counts_layers(&name),
            "shorter-context" => parts(&name).iter().any(|part| matches!(part.as_str(), "ctx" | "context")),
            _ => false,
        }
    }

    /// What it measures; `None` for a batch that remedies change, and for a keyword of some call.
    fn measures(&self) -> Option<Measured> {
        let last = self.name.rsplit('.').next().unwrap_or(&self.name);
        let parts = parts(last);
        let is_constant = last.to_uppercase() == last;
        let has = |word: &str| parts.iter().any(|part| part == word);
        if !(self.is_typed() || is_constant) || own::is_batch_of_training(last) {
            return None;
        }
        if has("batch") {
            return self.is_typed().then_some(Measured::AtATime);
        }
        let of_a_model = parts.iter().any(|part| OF_MODELS.contains(&part.as_str()));
        let is_data = is_size(last) || self.name.starts_with("argument ");
        Some(if of_a_model {
            Measured::Model
        } else if is_data {
            Measured::Data
        } else {
            Measured::Unknown
        })
    }
}

impl Program {
    /// The sizes that it writes down, those of how much is done at a time first.
    pub fn sizes(&self) -> Vec<Size> {
        let mut found = self.typed_sizes(is_size);
        found.extend(self.sizes_in_code());
        found.sort_by_key(|size| (!size.is_typed(), !size.keeps_the_result));
        found
    }

    /// What makes the work less if it is made smaller: options for how much is worked on at a time, the amounts of data, then
    /// options whose names do not say what they count, then the shape of the model. The batch of training is left out.
    pub fn amounts(&self) -> Vec<Size> {
        let mut found = self.typed_sizes(may_be_size);
        found.extend(self.sizes_in_code());
        let mut found: Vec<(Measured, Size)> =
            found.into_iter().filter_map(|size| Some((size.measures()?, size))).collect();
        found.sort_by_key(|(measured, _)| *measured);
        found.into_iter().map(|(_, size)| size).collect()
    }

    /// The program with another value for a size.
    ///
    /// # Errors
    /// Where that cannot be placed.
    pub fn with_size(&self, size: &Size, value: u64) -> Result<Self, CannotPlace> {
        let (mut arguments, value) = (self.arguments().to_vec(), value.to_string());
        match &size.place {
            Place::Option(Opt { written: Some(_), .. }) => {
                return Err(CannotPlace("it is set in a configuration file".into()));
            }
            Place::Option(option) => option.set(&mut arguments, &value),
            Place::Word(place) => {
                if let Some(word) = arguments.get_mut(*place) {
                    *word = value;
                }
            }
            Place::Unset(file, edit) => {
                let edit = Edit { range: edit.range.clone(), text: edit.text.replace(UNSET, &value) };
                return self.edited(&BTreeMap::from([(file.clone(), vec![edit])]), arguments);
            }
            Place::Code(file, range) => {
                let edits = BTreeMap::from([(file.clone(), vec![Edit { range: range.clone(), text: value }])]);
                return self.edited(&edits, arguments);
            }
        }
        Ok(self.with_arguments(arguments))
    }

    /// The program with the arrays of Numba that these lines make in managed memory.
    ///
    /// # Errors
    /// Where a line makes none.
    pub fn with_managed_arrays(&self, lines: &[(PathBuf, usize)]) -> Result<Self, CannotPlace> {
        let calls = self.calls();
        let mut edits: BTreeMap<PathBuf, Vec<Edit>> = BTreeMap::new();
        for (file, line) in lines {
            let here =
                calls.iter().filter(|call| call.at.file == file && rows(call.at).contains(&line.saturating_sub(1)));
            let found: Vec<Edit> = here.filter_map(managed).collect();
            if found.is_empty() {
                return Err(CannotPlace("the line makes no array of its own".into()));
            }
            let edits = edits.entry(file.clone()).or_default();
            edits.extend(found.into_iter().filter(|edit| !edits.contains(edit)).collect::<Vec<_>>());
        }
        self.edited(&edits, self.arguments().to_vec())
    }

    /// The options with a name that is wanted, and the words, that are whole numbers.
    fn typed_sizes(&self, is_wanted: fn(&str) -> bool) -> Vec<Size> {
        let arguments = self.arguments();
        let of_option = |option: Opt| {
            let text = option.value_in(arguments)?;
            let value = numbered(&option.name, &text, whole)?;
            let fits = option.kind == OptKind::Value && option.choices.is_empty() && is_wanted(&option.name);
            let name = option.flag().to_owned();
            fits.then(|| Size {
                keeps_the_result: is_at_a_time(&option.name),
                name,
                value,
                word: word_of(&text),
                place: Place::Option(option),
            })
        };
        let mut found: Vec<Size> = self.options().into_iter().filter_map(of_option).collect();
        for (place, word) in arguments.iter().enumerate() {
            let is_value = place > 0 && arguments[place - 1].starts_with('-');
            if let Some(value) = whole(word).filter(|_| !is_value) {
                let name = format!("argument {}", place + 1);
                found.push(Size { name, value, word: None, keeps_the_result: false, place: Place::Word(place) });
            }
        }
        found
    }

    /// Constants and attributes that are set to a number, and keywords of calls.
    fn sizes_in_code(&self) -> Vec<Size> {
        let assigned = self.all("assignment").into_iter().filter_map(|at| {
            let (left, right) = (at.node.child_by_field_name("left")?, at.node.child_by_field_name("right")?);
            Some((at.with(left), at.with(right)))
        });
        let keywords = self.all("keyword_argument").into_iter().filter_map(|at| {
            let (name, value) = (at.node.child_by_field_name("name")?, at.node.child_by_field_name("value")?);
            let declares = at.node.parent().and_then(|list| list.parent()).and_then(|call| Call::of(at.with(call)));
            // The default of an option is found with the option.
            let declares = declares.is_some_and(|call| call.name() == "add_argument" || call.name() == "option");
            (!declares).then(|| (at.with(name), at.with(value)))
        });
        let mut names = BTreeSet::new();
        let of = |(name, value): (At<'_>, At<'_>)| {
            let text = name.text();
            let last = text.rsplit('.').next().unwrap_or(text);
            let number = numbered(last, value.text(), |_| computed(value))?;
            (is_size(last) && names.insert((value.file.to_owned(), value.node.byte_range().start))).then(|| Size {
                name: text.to_owned(),
                value: number,
                word: word_of(value.text()),
                keeps_the_result: is_at_a_time(last),
                place: Place::Code(value.file.to_owned(), value.node.byte_range()),
            })
        };
        let unset = without_layers(self, UNSET).into_iter().map(|(file, edit)| Size {
            name: "n_gpu_layers".to_owned(),
            value: ALL_LAYERS,
            word: Some("all"),
            keeps_the_result: true,
            place: Place::Unset(file, edit),
        });
        assigned.chain(keywords).filter_map(of).chain(unset).collect()
    }
}

/// Whether a name is that of a size of data.
pub fn is_size(name: &str) -> bool {
    let name = name.trim_start_matches('-').replace('-', "_").to_lowercase();
    if WHOLE.contains(&name.as_str()) {
        return true;
    }
    let parts = parts(&name);
    let joined = SIZES.iter().any(|word| word.len() > 3 && parts.iter().any(|part| part.ends_with(word)));
    (joined || parts.iter().any(|part| SIZES.contains(&part.as_str()))) && may_be_size(&name)
}

/// Whether a name leaves it open that its number is a size.
fn may_be_size(name: &str) -> bool {
    !parts(name).iter().any(|part| OTHERS.contains(&part.as_str()))
}

/// The words that a name is made of, in small letters and the singular.
fn parts(name: &str) -> Vec<String> {
    let name = name.trim_start_matches('-').replace('-', "_").to_lowercase();
    let singular = |part: &str| part.strip_suffix('s').filter(|stem| stem.len() > 1).unwrap_or(part).to_owned();
    name.split('_').map(singular).collect()
}

fn is_at_a_time(name: &str) -> bool {
    let name = name.trim_start_matches('-').replace('-', "_").to_lowercase();
    name.split('_').any(|part| AT_A_TIME.contains(&part))
}

/// The number of a size, of which -1 stands for all layers where it counts them.
fn numbered(name: &str, text: &str, number: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    if counts_layers(name) && word_of(text).is_some() { Some(ALL_LAYERS) } else { number(text) }
}

/// Whether a name is that of how many layers lie on the card.
fn counts_layers(name: &str) -> bool {
    is_at_a_time(name) && ["ngl", "layers"].iter().any(|word| name.ends_with(word))
}

fn word_of(text: &str) -> Option<&'static str> {
    (text == "-1").then_some("-1")
}

/// The whole number that a word is, if it is one that can be made smaller.
fn whole(word: &str) -> Option<u64> {
    word.replace('_', "").parse().ok().filter(|value| *value > 1)
}

/// A whole number as it is written: `40_000`, `1 << 22`, `2 ** 20`, `64 * 1024`.
fn computed(at: At<'_>) -> Option<u64> {
    let value = match at.node.kind() {
        "integer" => at.text().replace('_', "").parse().ok()?,
        "binary_operator" => {
            let side = |name: &str| at.node.child_by_field_name(name).and_then(|node| computed(at.with(node)));
            let (left, right) = (side("left")?, side("right")?);
            let right_power = u32::try_from(right).ok()?;
            match at.node.child_by_field_name("operator").map(|node| at.source.of(node))? {
                "<<" => 1_u64.checked_shl(right_power).and_then(|power| left.checked_mul(power))?,
                "**" => left.checked_pow(right_power)?,
                "*" => left.checked_mul(right)?,
                _ => return None,
            }
        }
        _ => return None,
    };
    Some(value)
}

/// The lines of a node, counted from 0.
fn rows(at: At<'_>) -> std::ops::RangeInclusive<usize> {
    at.node.start_position().row..=at.node.end_position().row
}

/// The edit that makes an array of Numba managed.
fn managed(call: &Call<'_>) -> Option<Edit> {
    let function = call.at.node.child_by_field_name("function")?;
    let path = call.path();
    let prefix = path.rsplit_once('.').map(|(prefix, _)| format!("{prefix}.")).unwrap_or_default();
    match call.name() {
        "device_array" => Some(Edit::replace(function, format!("{prefix}managed_array"))),
        "device_array_like" => {
            let positional = call.positional();
            let [like] = positional.as_slice() else { return None };
            let like = (like.kind() == "identifier").then(|| call.at.source.of(*like))?;
            let made = format!("{prefix}managed_array({like}.shape, {like}.dtype)");
            Some(Edit::replace(call.at.node, made))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn program(text: &str, arguments: &[&str]) -> Program {
        let read = |path: &Path| (path == Path::new("/p/x.py")).then(|| text.to_owned());
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        Program::reading(Path::new("/p/x.py"), Path::new("/p"), arguments, read).unwrap()
    }

    #[test]
    fn sizes_are_found_where_a_program_writes_them_down() {
        let text = "import argparse\nPATHS = 1 << 22\nSEED = 17\nTHREADS = 256\np = argparse.ArgumentParser()\n\
                    p.add_argument('--grid', type=int, default=2048)\np.add_argument('--steps', type=int, default=20)\n\
                    o.n_gpu_layers = 99\na.n_ctx = a.n_batch = 512\nmodel = Llama(n_ctx=4096, seed=7)\n\
                    other = Llama(n_gpu_layers=-1, seed=-1)\n";
        let sizes = program(text, &["64"]).sizes();
        let names: Vec<(&str, u64)> = sizes.iter().map(|size| (size.name.as_str(), size.value)).collect();
        let wanted = [
            ("--grid", 2048),
            ("argument 1", 64),
            ("o.n_gpu_layers", 99),
            ("a.n_batch", 512),
            ("n_gpu_layers", 99),
            ("PATHS", 1 << 22),
            ("n_ctx", 4096),
        ];
        assert_eq!(names, wanted);
    }

    #[test]
    fn amounts_of_data_come_before_the_shape_of_the_model() {
        let text = "import argparse\nTEST_ROWS = 20000\nHIDDEN_ROWS = 512\np = argparse.ArgumentParser()\n\
                    p.add_argument('--batch_size', type=int, default=64)\np.add_argument('--test_size', type=int, default=2000)\n\
                    p.add_argument('--batches', type=int, default=200)\np.add_argument('--hidden-size', type=int, default=20)\n\
                    p.add_argument('--gallery', type=int, default=4000)\np.add_argument('--units', type=int, default=256)\n\
                    p.add_argument('--steps', type=int, default=300)\np.add_argument('--reindex-batch', type=int, default=256)\n\
                    x = f(n_rows=4096)\n";
        let amounts = program(text, &[]).amounts();
        let names: Vec<&str> = amounts.iter().map(|size| size.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "--reindex-batch",
                "--test_size",
                "--batches",
                "TEST_ROWS",
                "--gallery",
                "--hidden-size",
                "--units",
                "HIDDEN_ROWS"
            ]
        );
    }

    #[test]
    fn a_size_is_set_where_it_is_written() {
        let text = "PATHS = 1 << 22\n";
        let program = program(text, &["64", "--x"]);
        let sizes = program.sizes();
        let typed = program.with_size(&sizes[0], 32).unwrap();
        assert_eq!(typed.arguments(), ["32", "--x"]);
        let edited = program.with_size(&sizes[1], 1024).unwrap();
        assert_eq!(edited.text(Path::new("/p/x.py")), Some("PATHS = 1024\n"));
    }

    #[test]
    fn arrays_of_numba_become_managed() {
        let text = "from numba import cuda\na = cuda.device_array((n, n), dtype=t)\nb = cuda.device_array_like(a)\nc = cuda.to_device(x)\n";
        let program = program(text, &[]);
        let at = |line: usize| program.with_managed_arrays(&[(PathBuf::from("/p/x.py"), line)]);
        let text = |line: usize| at(line).unwrap().text(Path::new("/p/x.py")).unwrap().to_owned();
        assert!(text(2).contains("a = cuda.managed_array((n, n), dtype=t)"));
        assert!(text(3).contains("b = cuda.managed_array(a.shape, a.dtype)"));
        assert!(at(4).is_err());
    }

    #[test]
    fn names_of_sizes_are_distinguished_from_others() {
        for name in ["POINTS", "--batch-size", "n_ctx", "N", "num_particles", "max_model_len", "gridsize", "ngl"] {
            assert!(is_size(name), "{name}");
        }
        for name in ["seed", "num_epochs", "STEPS", "threads_per_block", "device", "lr", "num_workers", "BLOCK_SIZE"] {
            assert!(!is_size(name), "{name}");
        }
    }
}
