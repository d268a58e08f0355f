//! Losses that compare the samples of a batch with each other.

use tree_sitter::Node;

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::{Edit, import};
use crate::error::CannotPlace;
use crate::loops::{Pass, passes, trained_names};
use crate::models::{is_name, model_names};
use crate::source::{At, around, function_of, within};

use super::{cannot, imports_torch};

/// Samples whose graph is on the card at once.
const PART: &str = "16";
/// Losses of Sentence Transformers that have a cached variant, which begins with `Cached`.
const CACHEABLE: [&str; 3] = ["MultipleNegativesRankingLoss", "MultipleNegativesSymmetricRankingLoss", "GISTEmbedLoss"];

/// The cached variant of a loss of Sentence Transformers, or embeddings of a plain loop that are made in parts.
pub fn cached(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let made: Vec<Call<'_>> = program.calls().into_iter().filter(|call| CACHEABLE.contains(&call.name())).collect();
    let Some(first) = made.first() else { return in_parts(draft) };
    if made.iter().any(|call| call.at.file != first.at.file || call.name() != first.name()) {
        return cannot("several losses are made");
    }
    let name = first.name();
    for at in program.all("identifier").into_iter().filter(|at| at.file == first.at.file && at.text() == name) {
        draft.edit(at.file, Way::Code, Edit::insert(at.node.start_byte(), "Cached"));
    }
    for call in &made {
        draft.edit(call.at.file, Way::Code, call.setting("mini_batch_size", PART));
    }
    Ok(())
}

/// What a statement of a training loop has its model compute.
struct Embeds<'a> {
    call: Call<'a>,
    /// Whether several results come back.
    several: bool,
}

/// Calls of the model on a part of the batch at a time, each under `checkpoint`. The loss is over all embeddings, as before;
/// the backward pass computes one part after the other again, so that the graph of one is on the card at a time. That is
/// what Gao et al. 2021 (GradCache) do.
fn in_parts(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    if draft.facts.trainer.is_some() {
        return cannot("no loss of Sentence Transformers that has a cached variant is made in the program's code");
    }
    if draft.facts.normalises_batches {
        return cannot("the model normalises over the batch, so that parts of one have other embeddings");
    }
    if draft.facts.cards > 1 {
        return cannot("DistributedDataParallel takes one forward pass for each backward pass");
    }
    let passes = passes(draft.program);
    let [Pass { at_loop: Some(node), backwards }] = passes.as_slice() else {
        return cannot("the training loop could not be identified");
    };
    let [backward] = backwards.as_slice() else { return cannot("the loop makes several backward passes") };
    let (at, file) = (backward.at, backward.at.file.to_owned());
    if !imports_torch(at.source) {
        return cannot("the file does not import torch");
    }
    let mut models = model_names(draft.program);
    models.extend(trained_names(draft.program));
    let embeds: Vec<Embeds<'_>> = within(*node)
        .filter(|inner| inner.kind() == "assignment" && inner.end_byte() < at.node.start_byte())
        .filter(|inner| function_of(*inner) == function_of(*node) && !without_graph(at, *inner))
        .filter_map(|inner| embedding(at.with(inner), &models))
        .collect();
    let Some(several) = embeds.first().map(|first| first.several) else {
        return cannot("no statement of the training loop makes embeddings with the model");
    };
    if embeds.iter().any(|embeds| embeds.several != several) {
        return cannot("the model is called in several ways");
    }
    for Embeds { call, .. } in &embeds {
        let given: Vec<&str> = call.positional().into_iter().map(|node| at.source.of(node)).collect();
        let text = format!("in_parts({}, {})", at.source.of(call.function), given.join(", "));
        draft.edit(&file, Way::Code, Edit::replace(call.at.node, text));
    }
    let newline = at.source.newline();
    if let Some(edit) = import(at.source, &helper(several, &at.source.unit()).join(newline)) {
        draft.edit(&file, Way::Code, edit);
    }
    Ok(())
}

/// The function that is written into the file, after its imports.
fn helper(several: bool, unit: &str) -> Vec<String> {
    let together = if several {
        "tuple(torch.cat(same) if same[0].dim() else same[0] for same in zip(*parts))"
    } else {
        "torch.cat(parts)"
    };
    let lines = [
        "from torch.utils.checkpoint import checkpoint",
        "",
        "",
        "def in_parts(encode, *inputs):",
        "    # The backward pass computes one part after the other again, so that one graph is in memory at a time.",
        &format!("    parts = zip(*(batch.split({PART}) for batch in inputs))"),
        "    parts = [checkpoint(encode, *part, use_reentrant=False) for part in parts]",
        &format!("    return {together}"),
    ]
    .map(|line| line.replace("    ", unit));
    lines.to_vec()
}

/// The call of a model whose results a statement gives names of embeddings.
fn embedding<'a>(at: At<'a>, models: &std::collections::BTreeSet<String>) -> Option<Embeds<'a>> {
    let (left, right) = at.node.child_by_field_name("left").zip(at.node.child_by_field_name("right"))?;
    let call = Call::of(at.with(right))?;
    let is = |node: Node<'_>| models.contains(at.source.of(node));
    let encodes = ["encode", "embed", "forward", "features"];
    let of_model = call.object().is_some_and(is) && encodes.iter().any(|word| call.name().contains(word));
    let given = call.positional();
    let all = right.child_by_field_name("arguments").map_or(0, |arguments| arguments.named_child_count());
    let plain = !given.is_empty() && given.len() == all && given.iter().all(|node| !node.kind().contains("splat"));
    if !(is(call.function) || of_model) || !plain {
        return None;
    }
    let names: Vec<&str> = match left.kind() {
        "pattern_list" | "tuple_pattern" => {
            let mut cursor = left.walk();
            left.named_children(&mut cursor).map(|node| at.source.of(node)).collect()
        }
        _ => vec![at.source.of(left)],
    };
    // A model that compares the samples itself cannot be called in parts.
    let compares = |name: &&str| {
        let name = name.to_lowercase();
        let says = ["logit", "loss", "sim", "score", "output"].iter().any(|word| name.contains(word));
        !is_name(&name) || says && !name.contains("scale")
    };
    if names.iter().any(compares) {
        return None;
    }
    Some(Embeds { call, several: names.len() > 1 })
}

fn without_graph(at: At<'_>, node: Node<'_>) -> bool {
    around(node).filter(|outer| outer.kind() == "with_statement").any(|outer| {
        outer.child(1).is_some_and(|clause| {
            let text = at.source.of(clause);
            text.contains("no_grad") || text.contains("inference_mode")
        })
    })
}
