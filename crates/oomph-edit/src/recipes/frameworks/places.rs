//! Finds where programs without a `DataLoader` say how many samples they take at a time.

use crate::calls::Call;
use crate::draft::Draft;
use crate::error::CannotPlace;
use crate::program::Program;
use crate::source::{At, around};

use super::super::batch::{Batch, place_of, resize};
use super::super::{cannot, own};

/// Whether an expression belongs to an evaluation: by what it is given to, or by the name that it gets.
pub fn evaluates(at: At<'_>) -> bool {
    let says = |text: &str| {
        let text = text.to_lowercase();
        ["val", "test", "eval", "predict", "infer"].iter().any(|word| text.contains(word))
    };
    around(at.node).any(|node| match node.kind() {
        "keyword_argument" => node.child_by_field_name("name").is_some_and(|name| says(at.source.of(name))),
        "assignment" => node.child_by_field_name("left").is_some_and(|left| says(at.source.of(left))),
        "call" => Call::of(at.with(node)).is_some_and(|call| says(call.name())),
        "function_definition" => node.child_by_field_name("name").is_some_and(|name| says(at.source.of(name))),
        _ => false,
    })
}

/// Divides the batch at each of these arguments, or where the program's own option or constant gives it; what it was and
/// is.
pub fn divide(draft: &mut Draft<'_>, arguments: &[(Call<'_>, &'static str)]) -> Result<(u64, u64), CannotPlace> {
    let by = draft.amount.by.unwrap_or(2).max(2);
    let size = |old: u64| if old < 2 { None } else { Some(old.div_ceil(by)) };
    let program = draft.program;
    let mut places: Vec<Batch<'_>> = Vec::new();
    for (call, name) in arguments {
        if let Some(given) = given(call, name)
            && let Some(place) = place_of(program, *call, given).or(Some(Batch::Literal(given)))
            && !places.iter().any(|known| same(known, &place))
        {
            places.push(place);
        }
    }
    if places.is_empty() {
        let written = own::batch(draft).map(Batch::Option);
        places.extend(written.or_else(|| own::batch_constant(draft).or_else(|| local(program)).map(Batch::Literal)));
    }
    let mut sizes = None;
    for place in places {
        let changed = resize(draft, place, size)?;
        sizes = sizes.or(Some(changed));
    }
    sizes.map_or_else(|| cannot("where the batch size is written was not found"), Ok)
}

/// The argument of a call by its name; the only one without a name of a method that takes nothing else.
pub fn given<'a>(call: &Call<'a>, name: &str) -> Option<At<'a>> {
    let alone = || match (call.name(), call.positional().as_slice()) {
        ("batch", [only, ..]) => Some(call.at.with(*only)),
        _ => None,
    };
    call.value(name).or_else(alone)
}

fn same(one: &Batch<'_>, other: &Batch<'_>) -> bool {
    match (one, other) {
        (Batch::Option(one), Batch::Option(other)) => one == other,
        (Batch::Literal(one), Batch::Literal(other)) => one.file == other.file && one.node == other.node,
        _ => false,
    }
}

/// `batch_size = 64` inside of a function, where only one is written.
fn local(program: &Program) -> Option<At<'_>> {
    let mut found = program.all("assignment").into_iter().filter_map(|at| {
        let (left, right) = (at.node.child_by_field_name("left")?, at.node.child_by_field_name("right")?);
        let named = left.kind() == "identifier"
            && matches!(at.source.of(left).to_lowercase().as_str(), "batch_size" | "batchsize" | "train_batch_size");
        (named && right.kind() == "integer").then(|| at.with(right))
    });
    found.next().filter(|_| found.next().is_none())
}
