//! Finds the engines that a program serves a language model with, and where their settings are written: as arguments of the
//! call that makes one, or as attributes of a structure that it is made with.

use std::path::{Path, PathBuf};

use tree_sitter::Node;

use crate::calls::Call;
use crate::edit::{Edit, lines_after};
use crate::literals::plain;
use crate::names::{Value, follow};
use crate::program::Program;
use crate::source::{At, around, function_of, statement_of, within};

use super::imports;

/// What serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Library {
    Vllm,
    /// llama-cpp-python.
    LlamaCpp,
    /// Another binding of llama.cpp.
    Cyllama,
}

impl Library {
    /// The module that a program imports.
    pub fn module(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::LlamaCpp => "llama_cpp",
            Self::Cyllama => "cyllama",
        }
    }
}

/// Which settings something that a program makes has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// All, as arguments.
    All,
    /// These alone, as arguments.
    Only(&'static [&'static str]),
    /// These alone, as attributes of what the call gives.
    Attributes(&'static [&'static str]),
}

/// What makes an engine, or a structure with its settings, and whose it is.
const MAKERS: &[(&str, Library, Takes)] = &[
    ("LLM", Library::Vllm, Takes::All),
    ("AsyncEngineArgs", Library::Vllm, Takes::All),
    ("EngineArgs", Library::Vllm, Takes::All),
    ("Llama", Library::LlamaCpp, Takes::All),
    ("Llama.from_pretrained", Library::LlamaCpp, Takes::All),
    ("llama_model_default_params", Library::LlamaCpp, Takes::Attributes(OF_MODELS)),
    ("llama_context_default_params", Library::LlamaCpp, Takes::Attributes(&["n_ctx", "n_ubatch", "offload_kqv"])),
    ("LLM", Library::Cyllama, Takes::Only(&["n_ctx", "n_batch", "n_gpu_layers"])),
    ("AsyncLLM", Library::Cyllama, Takes::Only(&["n_ctx", "n_batch", "n_gpu_layers"])),
    ("GenerationConfig", Library::Cyllama, Takes::Only(&["n_ctx", "n_batch", "n_gpu_layers"])),
    ("BatchGenerator", Library::Cyllama, Takes::Only(&["n_ctx", "n_gpu_layers"])),
    ("LlamaModelParams", Library::Cyllama, Takes::Attributes(OF_MODELS)),
    ("LlamaContextParams", Library::Cyllama, Takes::Attributes(OF_CONTEXTS)),
];

/// What llama.cpp's structure for a model has of what matters here.
const OF_MODELS: &[&str] = &["n_gpu_layers"];

/// What its structure for a context has.
const OF_CONTEXTS: &[&str] = &["n_ctx", "n_batch", "n_ubatch", "flash_attn_type", "type_k", "type_v", "offload_kqv"];

/// What opens a model, by its first argument.
const OPENERS: &[&str] = &[
    "LLM",
    "AsyncLLM",
    "AsyncEngineArgs",
    "EngineArgs",
    "Llama",
    "LlamaModel",
    "BatchGenerator",
    "llama_model_load_from_file",
    "llama_load_model_from_file",
];

/// An engine that a program makes, or a structure with some of its settings.
pub(super) struct Engine<'a> {
    pub library: Library,
    takes: Takes,
    call: Call<'a>,
}

/// Where a setting is written, or comes.
pub(super) enum Place<'a> {
    /// Its value.
    Value(At<'a>),
    /// It is added to the file by this edit.
    Added(&'a Path, Edit),
}

/// The engines of a program, in the order of its text.
pub(super) fn engines(program: &Program) -> Vec<Engine<'_>> {
    let of = |call: Call<'_>| {
        let known = MAKERS.iter().find(|(name, library, _)| {
            let path = call.path();
            (path == *name || path.strip_suffix(*name).is_some_and(|module| module.ends_with('.')))
                && imports(call.at.source, library.module())
        });
        known.map(|(_, library, takes)| (*library, *takes))
    };
    let mut found: Vec<Engine<'_>> = program
        .calls()
        .into_iter()
        .filter_map(|call| {
            let (library, takes) = of(call)?;
            Some(Engine { library, takes, call })
        })
        .collect();
    // Such a structure may say how to sample alone. Where it says more, the engine that gets it takes it from there.
    found.retain(|engine| !engine.is_configuration() || engine.given().iter().any(|(name, _)| engine.takes(name)));
    if found.iter().any(Engine::is_configuration) {
        let is_given_one = |engine: &Engine<'_>| {
            matches!(engine.call.name(), "LLM" | "AsyncLLM") && engine.call.argument("config", 1).is_some()
        };
        found.retain(|engine| engine.library != Library::Cyllama || !is_given_one(engine));
    }
    found
}

/// What each engine lacks that would put all layers of its model on the card, with `value` for the number of them.
pub(crate) fn without_layers(program: &Program, value: &str) -> Vec<(PathBuf, Edit)> {
    const NAME: &str = "n_gpu_layers";
    let lacking = engines(program).into_iter().filter(|engine| {
        engine.library == Library::Cyllama
            && engine.takes(NAME)
            && !engine.given().iter().any(|(name, _)| *name == NAME)
    });
    let places = lacking.filter_map(|engine| match engine.place(NAME, value)? {
        Place::Added(file, edit) => Some((file.to_owned(), edit)),
        Place::Value(_) => None,
    });
    places.collect()
}

/// The model that these engines open, if it is one.
pub(super) fn model_of(program: &Program, engines: &[Engine<'_>]) -> Option<String> {
    let library = engines.first()?.library.module();
    let mut calls =
        program.calls().into_iter().filter(|call| OPENERS.contains(&call.name()) && imports(call.at.source, library));
    let (call, None) = (calls.next()?, calls.next()) else { return None };
    let at = call.argument("model_path", 0)?;
    // The library's own functions take bytes.
    let bytes = Call::of(at).filter(|call| call.name() == "encode").and_then(|call| call.object());
    value_of(program, bytes.map_or(at, |object| at.with(object)))
}

/// What an expression says, followed to a literal, to an option of the program or to a word of its command line.
pub(super) fn value_of(program: &Program, at: At<'_>) -> Option<String> {
    // `-1` is not a literal of the grammar's.
    if at.node.kind() == "unary_operator" {
        return Some(at.text().to_owned());
    }
    match follow(program, at) {
        Value::Literal(at) => plain(at),
        Value::Option(option) => option.value_in(program.arguments()),
        Value::Word(place) => program.arguments().get(place).cloned(),
        Value::Unknown => None,
    }
}

impl<'a> Engine<'a> {
    /// Whether it stands for a model, rather than for what is made of one.
    pub fn is_of_a_model(&self) -> bool {
        match self.takes {
            Takes::All | Takes::Only(_) => true,
            Takes::Attributes(names) => names == OF_MODELS,
        }
    }

    fn is_configuration(&self) -> bool {
        self.library == Library::Cyllama && self.call.name() == "GenerationConfig"
    }

    fn takes(&self, name: &str) -> bool {
        match self.takes {
            Takes::All => true,
            Takes::Only(names) | Takes::Attributes(names) => names.contains(&name),
        }
    }

    /// The settings that the program gives it, with their values.
    pub fn given(&self) -> Vec<(&'a str, At<'a>)> {
        if let Takes::Attributes(_) = self.takes {
            return self.attributes().into_iter().map(|(name, value, _)| (name, value)).collect();
        }
        let arguments = self.call.arguments;
        (0..arguments.named_child_count())
            .filter_map(|place| arguments.named_child(place))
            .filter(|node| node.kind() == "keyword_argument")
            .filter_map(|node| {
                let (name, value) = (node.child_by_field_name("name")?, node.child_by_field_name("value")?);
                Some((self.call.at.source.of(name), self.call.at.with(value)))
            })
            .collect()
    }

    /// How this engine spells a setting of `Llama(...)` or `LLM(...)`; `None` where it has no such setting, or needs none.
    pub fn spelled<'n>(&self, program: &Program, name: &'n str, value: &'n str) -> Option<(&'n str, &'n str)> {
        let (Takes::Only(names) | Takes::Attributes(names)) = self.takes else { return Some((name, value)) };
        if names.contains(&name) {
            return Some((name, value));
        }
        match name {
            // The structure's own value lets llama.cpp decide, which takes it.
            "flash_attn" => {
                let given = self.given().into_iter().find(|(name, _)| *name == "flash_attn_type");
                let is_off = given.and_then(|(_, at)| value_of(program, at)).is_some_and(|value| value == "0");
                is_off.then_some(("flash_attn_type", "1"))
            }
            // What is worked on at a time is never more than the batch.
            "n_ubatch" if names.contains(&"n_batch") => Some(("n_batch", value)),
            _ => None,
        }
    }

    /// Where a setting is written, or where this value for it comes. A value that is also another setting's is not its place.
    pub fn place(&self, name: &str, value: &str) -> Option<Place<'a>> {
        let at = self.call.at;
        if !matches!(self.takes, Takes::Attributes(_)) {
            return Some(match self.call.value(name) {
                Some(given) => Place::Value(given),
                None => Place::Added(at.file, self.call.adding(name, value)),
            });
        }
        let attributes = self.attributes();
        let own = attributes.iter().find(|(known, _, assignment)| *known == name && !is_chained(*assignment));
        let same = |at: &At<'_>, other: &At<'_>| at.text() == other.text() && plain(*at).is_none();
        if let Some((_, given, _)) = own
            && attributes.iter().filter(|(_, other, _)| same(given, other)).count() <= 1
        {
            return Some(Place::Value(*given));
        }
        if let Some((_, given, _)) = own {
            return Some(Place::Added(at.file, Edit::replace(given.node, value)));
        }
        let last = attributes.iter().map(|(_, _, assignment)| *assignment).chain([at.node]);
        let last = last.max_by_key(|node| node.start_byte()).and_then(statement_of)?;
        let line = format!("{}.{name} = {value}", self.object()?);
        Some(Place::Added(at.file, lines_after(at.source, last, &[line])?))
    }

    /// What the program calls the structure: `params`, `self.params`.
    fn object(&self) -> Option<&'a str> {
        let at = self.call.at;
        let assignment = at.node.parent().filter(|node| node.kind() == "assignment")?;
        let left = assignment.child_by_field_name("left")?;
        matches!(left.kind(), "identifier" | "attribute").then(|| at.source.of(left))
    }

    /// What is assigned to the structure's attributes where it is made: names, values and the assignments.
    fn attributes(&self) -> Vec<(&'a str, At<'a>, Node<'a>)> {
        let (Some(object), at) = (self.object(), self.call.at) else { return Vec::new() };
        let function = function_of(at.node);
        let scope = function.unwrap_or_else(|| at.source.root());
        let of = |node: Node<'a>| {
            let left = node.child_by_field_name("left").filter(|left| left.kind() == "attribute")?;
            let name = left.child_by_field_name("attribute").map(|name| at.source.of(name))?;
            let whose = left.child_by_field_name("object").map(|whose| at.source.of(whose))?;
            let mut value = node.child_by_field_name("right")?;
            while value.kind() == "assignment" {
                value = value.child_by_field_name("right")?;
            }
            (whose == object).then(|| (name, at.with(value), node))
        };
        within(scope)
            .filter(|node| node.kind() == "assignment" && function_of(*node) == function)
            .filter(|node| node.start_byte() > at.node.start_byte())
            .filter_map(of)
            .collect()
    }
}

/// Whether an assignment gives its value to others as well: `a.x = a.y = 1`.
fn is_chained(assignment: Node<'_>) -> bool {
    let is_assignment = |node: Option<Node<'_>>| node.is_some_and(|node| node.kind() == "assignment");
    is_assignment(assignment.child_by_field_name("right")) || is_assignment(around(assignment).next())
}
