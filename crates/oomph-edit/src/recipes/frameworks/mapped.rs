//! JAX: what `vmap` computes of all samples at once is computed of some at a time by `lax.map`.

use tree_sitter::Node;

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::Edit;
use crate::error::CannotPlace;
use crate::program::Program;
use crate::source::{At, unused};

use super::super::cannot;
use super::alias;
use super::pieces::rows_of_a_piece;
use super::reduced::is_state;
use super::traced::is_jit;

/// `jax.vmap(f, in_axes=(None, 0))(params, x)` becomes `jax.lax.map(lambda one: f(params, one), x, batch_size=...)`, and
/// `jax.hessian(f)(x)` is computed row by row. Those of the line that ran out are changed, or else all of the program.
pub fn mapped(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let by = draft.amount.by.unwrap_or(4).max(2);
    let ran_out = draft.facts.died_at.as_ref();
    let is_there = |at: At<'_>| {
        ran_out.is_some_and(|(file, line)| {
            let lines = at.node.start_position().row + 1..=at.node.end_position().row + 1;
            at.file == *file && lines.contains(line)
        })
    };
    let calls: Vec<(At<'_>, String)> =
        program.calls().into_iter().filter_map(|call| Some((call.at, some_at_a_time(program, call, by)?))).collect();
    let here = calls.iter().any(|(at, _)| is_there(*at));
    let chosen: Vec<&(At<'_>, String)> = calls.iter().filter(|(at, _)| !here || is_there(*at)).collect();
    for (at, text) in &chosen {
        // What is mapped inside of another is computed as often as that is.
        let inside = |(outer, _): &&(At<'_>, String)| {
            let range = outer.node.byte_range();
            outer.file == at.file && outer.node != at.node && range.contains(&at.node.start_byte())
        };
        if !chosen.iter().any(inside) {
            draft.edit(at.file, Way::Code, Edit::replace(at.node, text.clone()));
        }
    }
    if chosen.is_empty() {
        return cannot("no function is mapped over samples with `jax.vmap`");
    }
    Ok(())
}

/// The text of a call that maps a function, with a part of what it is mapped over at a time.
fn some_at_a_time(program: &Program, call: Call<'_>, by: u64) -> Option<String> {
    let source = call.at.source;
    let jax = alias(source, "jax")?;
    let given = call.positional();
    if given.is_empty() || has_others(&call) {
        return None;
    }
    let maker = maker(program, call)?;
    let function = maker.argument("fun", 0)?;
    if is(&maker, "hessian") {
        let [point] = given.as_slice() else { return None };
        return rows_of_hessian(&maker, function, *point, by);
    }
    if !is(&maker, "vmap") {
        return None;
    }
    let over = axes(&maker, given.len())?;
    let each: Vec<(&str, bool)> = given.iter().map(|node| source.of(*node)).zip(over).collect();
    let samples: Vec<&str> = each.iter().filter(|(_, over)| *over).map(|(text, _)| *text).collect();
    let first = samples.first()?;
    let simple = |text: &&&str| text.chars().all(|one| one.is_alphanumeric() || "_.".contains(one)) && !is_state(text);
    let size = match samples.iter().find(simple) {
        Some(counted) => format!("len({counted})"),
        None => format!("{jax}.tree.leaves({first})[0].shape[0]"),
    };
    let mut mapped = function.text().to_owned();
    let mut data = (*first).to_owned();
    if each.len() > 1 {
        let sample = unused(source, &["one", "sample", "mapped_sample"])?;
        let parts = (0..).map(|place| format!("{sample}[{place}]"));
        let mut parts: Box<dyn Iterator<Item = String>> =
            if samples.len() == 1 { Box::new(std::iter::once(sample.to_owned())) } else { Box::new(parts) };
        let arguments: Vec<String> = each
            .iter()
            .filter_map(|(text, over)| if *over { parts.next() } else { Some((*text).to_owned()) })
            .collect();
        if function.node.kind() == "lambda" {
            mapped = format!("({mapped})");
        }
        mapped = format!("lambda {sample}: {mapped}({})", arguments.join(", "));
        if samples.len() > 1 {
            data = format!("({})", samples.join(", "));
        }
    }
    // A gradient of all would keep what each part computed.
    let trains = |call: &Call<'_>| matches!(call.name(), "grad" | "value_and_grad");
    if program.calls().iter().any(trains) && !function.text().contains("grad(") {
        mapped = format!("{jax}.checkpoint({mapped})");
    }
    Some(format!("{jax}.lax.map({mapped}, {data}, batch_size={})", rows_of_a_piece(&size, by)))
}

/// The Hessian of a function of one flat array, some of its rows at a time: each is a product with it, which costs a gradient.
fn rows_of_hessian(maker: &Call<'_>, function: At<'_>, point: Node<'_>, by: u64) -> Option<String> {
    let source = function.source;
    let (jax, numpy) = (alias(source, "jax")?, alias(source, "jax.numpy")?);
    let point = Some(source.of(point)).filter(|_| point.kind() == "identifier" && maker.positional().len() == 1)?;
    let row = unused(source, &["row", "tangent", "hessian_row"])?;
    let gradient = format!("{jax}.grad({})", function.text());
    (!has_others(maker)).then(|| {
        format!(
            "{jax}.lax.map(lambda {row}: {jax}.jvp({gradient}, ({point},), ({row},))[1], \
             {numpy}.eye({point}.size, dtype={point}.dtype), batch_size={})",
            rows_of_a_piece(&format!("{point}.size"), by)
        )
    })
}

/// The call that made what is called: `jax.vmap(f)` of `jax.vmap(f)(x)`, also by a name, and compiled.
fn maker<'a>(program: &'a Program, call: Call<'a>) -> Option<Call<'a>> {
    let made = match call.function.kind() {
        "call" => call.at.with(call.function),
        "identifier" => match program.assigned(call.path()).as_slice() {
            [made] => *made,
            _ => return None,
        },
        _ => return None,
    };
    let made = Call::of(made)?;
    if is_jit(made.path()) { Call::of(made.argument("fun", 0)?) } else { Some(made) }
}

/// Whether a call is that of a function of JAX's: `jax.vmap`, or `vmap` where it was imported.
fn is(call: &Call<'_>, name: &str) -> bool {
    let source = call.at.source;
    alias(source, "jax").is_some_and(|jax| call.path() == format!("{jax}.{name}"))
        || alias(source, &format!("jax.{name}")) == Some(call.path())
}

/// Whether a call is given more than arguments in their places.
fn has_others(call: &Call<'_>) -> bool {
    let mut cursor = call.arguments.walk();
    let others = ["keyword_argument", "dictionary_splat", "list_splat"];
    call.arguments.named_children(&mut cursor).any(|node| others.contains(&node.kind()))
}

/// Which of so many arguments a `vmap` goes over, along their first axis; `None` where it goes along others.
fn axes(vmap: &Call<'_>, count: usize) -> Option<Vec<bool>> {
    let mut cursor = vmap.arguments.walk();
    let named = |node: Node<'_>| node.child_by_field_name("name").map(|name| vmap.at.source.of(name));
    let keywords = vmap.arguments.named_children(&mut cursor).filter(|node| node.kind() == "keyword_argument");
    if keywords.filter_map(named).any(|name| !matches!(name, "fun" | "in_axes")) || vmap.positional().len() > 2 {
        return None;
    }
    let Some(given) = vmap.argument("in_axes", 1) else { return Some(vec![true; count]) };
    let axis = |node: Node<'_>| match given.source.of(node) {
        "0" => Some(true),
        "None" => Some(false),
        _ => None,
    };
    if given.node.kind() == "integer" {
        return axis(given.node).map(|over| vec![over; count]);
    }
    let mut cursor = given.node.walk();
    let each: Option<Vec<bool>> = given.node.named_children(&mut cursor).map(axis).collect();
    each.filter(|each| matches!(given.node.kind(), "tuple" | "list") && each.len() == count && each.contains(&true))
}
