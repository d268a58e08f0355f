//! ONNX Runtime: the options of the CUDA provider, and how much a session is given at a time.

use tree_sitter::Node;

use crate::calls::{Call, removed};
use crate::draft::{Draft, Way};
use crate::edit::Edit;
use crate::error::CannotPlace;
use crate::literals::string;
use crate::program::Program;
use crate::source::{At, around, is_statement, statement_of};

use super::super::{Recipe, cannot, images};
use super::places::divide;
use super::{alias, kept, pieces};

/// What can be placed.
pub const RECIPES: &[(&str, Recipe)] = &[
    ("smaller-batch", |draft| divide(draft, &[]).map(|_| ())),
    ("arena-as-requested", |draft| provider_option(draft, "arena_extend_strategy", "kSameAsRequested")),
    ("smaller-workspaces", |draft| provider_option(draft, "cudnn_conv_use_max_workspace", "0")),
    ("raise-limit", without_limit),
    ("half-weights", half),
    ("collect-on-host", kept::onnx_runtime),
    ("eval-accumulation", kept::onnx_runtime),
    ("in-pieces", pieces::onnx_runtime),
    ("own-tiles", images::own_tiles),
];

const PROVIDER: &str = "CUDAExecutionProvider";

/// Where the options of the CUDA provider are written.
enum Options<'a> {
    /// A dictionary.
    Written(At<'a>),
    /// Another expression, which gives a dictionary or nothing.
    Computed(At<'a>),
    /// The name of the provider, without options.
    Name(At<'a>),
}

/// The options of the CUDA provider of each session.
fn options(program: &Program) -> Vec<Options<'_>> {
    let mut found = Vec::new();
    for at in program.all("string").into_iter().filter(|at| string(*at).as_deref() == Some(PROVIDER)) {
        let Some(parent) = at.node.parent() else { continue };
        match parent.kind() {
            "list" => found.extend(apart(at, parent)),
            "tuple" => {
                let Some(given) = parent.named_child(1).map(|node| at.with(node)) else { continue };
                match given.node.kind() {
                    "dictionary" => found.push(Options::Written(given)),
                    "identifier" => {
                        let made = program.assigned(given.text());
                        let written: Vec<At<'_>> =
                            made.into_iter().filter(|at| at.node.kind() == "dictionary").collect();
                        if written.is_empty() {
                            found.push(Options::Computed(given));
                        }
                        found.extend(written.into_iter().map(Options::Written));
                    }
                    _ => found.push(Options::Computed(given)),
                }
            }
            _ => {}
        }
    }
    found
}

/// The options of a provider that is a name in a list: those at its place in `provider_options=[...]` of the same call.
fn apart<'a>(name: At<'a>, list: Node<'a>) -> Option<Options<'a>> {
    let call = around(list).take_while(|node| !is_statement(*node)).find_map(|node| Call::of(name.with(node)));
    let Some(given) = call.and_then(|call| call.value("provider_options")) else { return Some(Options::Name(name)) };
    let place = (0..list.named_child_count()).find(|place| list.named_child(*place) == Some(name.node))?;
    let own = given.node.named_child(place).filter(|_| given.node.kind() == "list").map(|node| given.with(node))?;
    Some(if own.node.kind() == "dictionary" { Options::Written(own) } else { Options::Computed(own) })
}

/// The pair of a key in a dictionary.
fn pair<'a>(dictionary: At<'a>, key: &str) -> Option<Node<'a>> {
    let count = dictionary.node.named_child_count();
    (0..count).filter_map(|place| dictionary.node.named_child(place)).find(|node| {
        node.kind() == "pair"
            && node
                .child_by_field_name("key")
                .is_some_and(|found| string(dictionary.with(found)).as_deref() == Some(key))
    })
}

/// Gives the CUDA provider an option.
fn provider_option(draft: &mut Draft<'_>, key: &str, value: &str) -> Result<(), CannotPlace> {
    for place in options(draft.program) {
        match place {
            Options::Name(at) => {
                let with = format!("({}, {{\"{key}\": \"{value}\"}})", at.text());
                draft.edit(at.file, Way::Argument, Edit::replace(at.node, with));
            }
            Options::Computed(at) => {
                let with = format!("{{**({} or {{}}), \"{key}\": \"{value}\"}}", at.text());
                draft.edit(at.file, Way::Argument, Edit::replace(at.node, with));
            }
            Options::Written(at) => match pair(at, key).and_then(|pair| pair.child_by_field_name("value")) {
                Some(present) if string(at.with(present)).as_deref() == Some(value) => {}
                Some(present) => draft.edit(at.file, Way::Argument, Edit::replace(present, format!("\"{value}\""))),
                None => {
                    let count = at.node.named_child_count();
                    let last = (0..count).filter_map(|place| at.node.named_child(place)).next_back();
                    let edit = match last {
                        Some(last) => Edit::insert(last.end_byte(), format!(", \"{key}\": \"{value}\"")),
                        None => Edit::replace(at.node, format!("{{\"{key}\": \"{value}\"}}")),
                    };
                    draft.edit(at.file, Way::Argument, edit);
                }
            },
        }
    }
    if draft.is_empty() {
        return cannot("where the CUDA provider gets its options was not found, or it has this one already");
    }
    Ok(())
}

/// Takes the limit of the arena away.
fn without_limit(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    const KEY: &str = "gpu_mem_limit";
    let program = draft.program;
    for place in options(program) {
        if let Options::Written(at) = place
            && let Some(pair) = pair(at, KEY)
        {
            draft.edit(at.file, Way::Argument, removed(at.source, pair));
        }
    }
    // `options["gpu_mem_limit"] = ...`
    for at in program.all("assignment") {
        let key = at.node.child_by_field_name("left").and_then(|left| left.child_by_field_name("subscript"));
        if key.and_then(|key| string(at.with(key))).as_deref() == Some(KEY)
            && let Some(statement) = statement_of(at.node)
        {
            draft.edit(at.file, Way::Code, Edit::replace(statement, "pass"));
        }
    }
    if draft.is_empty() {
        return cannot("the program sets no gpu_mem_limit");
    }
    Ok(())
}

/// What a session is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Model {
    /// The model itself.
    Bytes,
    /// The name of its file.
    File,
    /// One of them.
    Either,
}

/// What an expression is; a name is looked up where the program gives it its only value.
fn made_of(program: &Program, model: At<'_>) -> Model {
    let of_call = |text: &str| match text {
        _ if text.starts_with("str(") || text.contains("path.join(") => Some(Model::File),
        _ if [".SerializeToString()", ".read()", ".read_bytes()"].iter().any(|end| text.ends_with(end)) => {
            Some(Model::Bytes)
        }
        _ => None,
    };
    match model.node.kind() {
        // A function of the program that is called right here gives the model.
        "call" => of_call(model.text()).unwrap_or(Model::Bytes),
        "identifier" => match program.assigned(model.text()).as_slice() {
            [made] if made.node.kind() == "call" => of_call(made.text()).unwrap_or(Model::Either),
            [made] if made.node.kind() != "identifier" => Model::File,
            _ => Model::Either,
        },
        // `args.model` is a name, and `self.model` may be what the object was given.
        "attribute" if model.text().starts_with("self.") => Model::Either,
        // `"model.onnx"`, `folder / "model.onnx"`, `args.model`
        _ => Model::File,
    }
}

/// Converts the model that a session is made of to 16 bits; what goes in and comes out keeps its type.
fn half(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    const CONVERT: &str = "convert_float_to_float16";
    let program = draft.program;
    for call in program.calls().into_iter().filter(|call| call.name() == "InferenceSession") {
        let Some(model) = call.argument("path_or_bytes", 0) else { continue };
        if program.calls().iter().any(|call| call.name() == CONVERT) {
            return cannot("the program converts its model already");
        }
        let known = alias(call.at.source, "onnx");
        let onnx = known.unwrap_or("onnx");
        let text = model.text();
        let read = |model: &str| format!("{onnx}.load_model_from_string({model})");
        let loaded = match (text.strip_suffix(".SerializeToString()"), made_of(program, model)) {
            (Some(model), _) => model.to_owned(),
            (None, Model::Bytes) => read(text),
            (None, Model::File) => format!("{onnx}.load({text})"),
            (None, Model::Either) => format!("({} if isinstance({text}, bytes) else {onnx}.load({text}))", read(text)),
        };
        let text = format!("{CONVERT}({loaded}, keep_io_types=True).SerializeToString()");
        draft.edit(call.at.file, Way::Code, Edit::replace(model.node, text));
        let mut lines = format!("from onnxruntime.transformers.float16 import {CONVERT}");
        if known.is_none() {
            lines = format!("import onnx{}{lines}", call.at.source.newline());
        }
        let Some(edit) = crate::edit::import(call.at.source, &lines) else {
            return cannot("the imports of the program were not found");
        };
        draft.edit_once(call.at.file, Way::Code, edit);
    }
    if draft.is_empty() { cannot("no session is made in the program's own files") } else { Ok(()) }
}
