//! Remedies in programs of TensorFlow with Keras, JAX and ONNX Runtime, and in scripts that serve by vLLM or llama.cpp.

mod engines;
mod fused;
mod jax;
mod kept;
mod keras;
mod mapped;
mod onnx_runtime;
mod pieces;
mod places;
mod reduced;
mod remat;
mod serving;
mod traced;

use tree_sitter::Node;

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::{Edit, lines_after};
use crate::error::CannotPlace;
use crate::program::Program;
use crate::source::{Source, statements, within};

use super::Recipe;

pub(crate) use engines::without_layers;
pub(crate) use serving::served;

/// The recipe of a remedy for the framework of a program; `None` where the program computes with PyTorch.
pub fn recipe(program: &Program, remedy: &str) -> Option<Recipe> {
    // Such scripts import Transformers for a tokenizer, and none of its remedies would help, unless they train as well.
    if let Some(recipes) = serving::recipes(program) {
        let is_of_the_engine = recipes.iter().any(|(id, _)| *id == remedy);
        return (is_of_the_engine || !learns(program)).then(|| among(recipes, remedy));
    }
    let of = |modules: &[&str]| program.files().any(|(_, source)| modules.iter().any(|name| imports(source, name)));
    if of(&["torch", "transformers", "diffusers", "lightning", "pytorch_lightning"]) {
        return None;
    }
    // Keras may compute with JAX, and is written in its own words all the same.
    let recipes = if of(&["keras", "tensorflow", "tf_keras"]) {
        keras::RECIPES
    } else if of(&["jax", "flax"]) {
        jax::RECIPES
    } else if of(&["onnxruntime"]) {
        onnx_runtime::RECIPES
    } else {
        return None;
    };
    Some(among(recipes, remedy))
}

/// Whether a program makes backward passes, or has a trainer make them.
fn learns(program: &Program) -> bool {
    program.calls().iter().any(|call| matches!(call.name(), "backward" | "train"))
}

/// The recipe of a remedy among those of a framework, or one that refuses.
fn among(recipes: &[(&str, Recipe)], remedy: &str) -> Recipe {
    let found = recipes.iter().find(|(id, _)| *id == remedy).map(|(_, recipe)| *recipe);
    found.unwrap_or(|_| super::cannot("it is not written into code of this framework"))
}

/// The statements of a file that import something, wherever they are.
fn import_statements(source: &Source) -> impl Iterator<Item = Node<'_>> {
    within(source.root()).filter(|node| matches!(node.kind(), "import_statement" | "import_from_statement"))
}

/// Whether a file imports a module or something of it.
fn imports(source: &Source, module: &str) -> bool {
    import_statements(source).any(|node| {
        let mut cursor = node.walk();
        let from = node.child_by_field_name("module_name");
        let names: Vec<Node<'_>> = match from {
            Some(from) => vec![from],
            None => node.children_by_field_name("name", &mut cursor).collect(),
        };
        names.iter().any(|name| {
            let name = source.of(*name).split_whitespace().next().unwrap_or_default();
            name == module || name.strip_prefix(module).is_some_and(|rest| rest.starts_with('.'))
        })
    })
}

/// What a file calls a module that it imports whole: `tf` of `import tensorflow as tf`, `keras` of `from tensorflow
/// import keras`.
fn alias<'a>(source: &'a Source, module: &str) -> Option<&'a str> {
    import_statements(source).find_map(|node| {
        let mut cursor = node.walk();
        let from = node.child_by_field_name("module_name").map(|from| source.of(from));
        node.children_by_field_name("name", &mut cursor).find_map(|name| {
            let (real, called) = match (name.child_by_field_name("name"), name.child_by_field_name("alias")) {
                (Some(real), Some(alias)) => (source.of(real), source.of(alias)),
                _ => (source.of(name), source.of(name)),
            };
            let whole = from.map_or_else(|| real.to_owned(), |from| format!("{from}.{real}"));
            (whole == module).then_some(called)
        })
    })
}

/// A line after the last import of any of these modules at the top of a file.
fn after_imports(
    draft: &mut Draft<'_>,
    modules: &[&str],
    line: impl Fn(&Source) -> Option<String>,
) -> Result<(), CannotPlace> {
    let program = draft.program;
    let mut files: Vec<_> = program.files().collect();
    files.sort_by_key(|(path, _)| *path != program.script());
    for (path, source) in files {
        let is_import = |node: &Node<'_>| matches!(node.kind(), "import_statement" | "import_from_statement");
        let names = |node: &Node<'_>| modules.iter().any(|module| source.of(*node).contains(module));
        let last = statements(source.root()).into_iter().rfind(|node| is_import(node) && names(node));
        if let (Some(last), Some(line)) = (last, line(source))
            && let Some(edit) = lines_after(source, last, &[line])
        {
            draft.edit(path, Way::Code, edit);
            return Ok(());
        }
    }
    super::cannot("the import after which it would come was not found")
}

/// `from functools import partial`, where a file lacks it; how the file calls it.
fn partial(draft: &mut Draft<'_>, call_site: &std::path::Path, source: &Source) -> Option<String> {
    if let Some(name) = alias(source, "functools.partial") {
        return Some(name.to_owned());
    }
    if let Some(module) = alias(source, "functools") {
        return Some(format!("{module}.partial"));
    }
    let edit = crate::edit::import(source, "from functools import partial")?;
    draft.edit(call_site, Way::Code, edit);
    Some("partial".to_owned())
}

/// Puts `head(` and `tail)` around an expression.
fn around_expression(call: &Call<'_>, head: &str, tail: &str) -> Edit {
    Edit::replace(call.at.node, format!("{head}({}{tail})", call.at.text()))
}
