//! The models of a program: what it calls them, where it makes them, and what runs them.

use std::collections::BTreeSet;

use tree_sitter::Node;

use crate::calls::Call;
use crate::program::Program;
use crate::source::{At, around, function_of, statement_of, within};

/// Methods of a model that compute nothing with it.
const COMPUTE_NOTHING: &[&str] = &[
    "train",
    "eval",
    "to",
    "cuda",
    "half",
    "float",
    "bfloat16",
    "apply",
    "parameters",
    "named_parameters",
    "modules",
    "named_modules",
    "children",
    "zero_grad",
    "state_dict",
    "load_state_dict",
    "requires_grad_",
    "save_pretrained",
    "gradient_checkpointing_enable",
    "enable_input_require_grads",
    "register_forward_hook",
];
/// Functions that take a model and do not run it. One whose name begins with a capital letter makes something of it.
const TAKE_ONLY: &[&str] = &[
    "append",
    "extend",
    "insert",
    "add",
    "print",
    "len",
    "type",
    "id",
    "isinstance",
    "deepcopy",
    "prepare",
    "compile",
    "fully_shard",
    "get_peft_model",
    "clip_grad_norm_",
    "clip_grad_value_",
    "save",
];

/// What the program calls its models: `model`, `self.net`, and `net` of `for net in nets`.
pub(crate) fn model_names(program: &Program) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for call in program.calls() {
        let object = call.object().map(|node| call.at.source.of(node));
        match (call.name(), object) {
            ("parameters" | "named_parameters" | "eval" | "state_dict" | "load_state_dict" | "train", Some(object))
                if is_name(object) && !matches!(object, "trainer" | "self") =>
            {
                names.insert(object.to_owned());
            }
            _ => {}
        }
    }
    for call in program.calls() {
        if let Some(optimizer) = call.object().map(|node| call.at.source.of(node))
            && call.name() == "state_dict"
            && steps(program, optimizer)
        {
            names.remove(optimizer);
        }
    }
    for at in program.all("assignment") {
        if let Some((left, right)) = sides(at)
            && is_name(at.source.of(left))
            && loads_a_model(at.with(right))
        {
            names.insert(at.source.of(left).to_owned());
        }
    }
    let lists = lists_of(program, &names);
    names.extend(members_of(program, &lists));
    names
}

/// The left and the right side of an assignment, or of the `in` of a loop.
fn sides(at: At<'_>) -> Option<(Node<'_>, Node<'_>)> {
    at.node.child_by_field_name("left").zip(at.node.child_by_field_name("right"))
}

/// Whether an expression loads a pretrained model: `AutoModel.from_pretrained(name).cuda()`.
fn loads_a_model(at: At<'_>) -> bool {
    let mut node = Some(at.node);
    while let Some(call) = node.and_then(|node| Call::of(at.with(node))) {
        let object = call.object().map(|object| at.source.of(object)).unwrap_or_default();
        if call.name() == "from_pretrained" && (object.contains("Model") || object.contains("For")) {
            return true;
        }
        node = call.object();
    }
    false
}

/// Lists and dictionaries that models are put into.
fn lists_of(program: &Program, models: &BTreeSet<String>) -> BTreeSet<String> {
    let mut lists = BTreeSet::new();
    for call in program.calls() {
        let is_model = |node: &Node<'_>| models.contains(call.at.source.of(*node));
        if call.name() == "append"
            && call.positional().iter().any(is_model)
            && let Some(object) = call.object()
        {
            lists.insert(call.at.source.of(object).to_owned());
        }
    }
    for at in program.all("assignment") {
        let Some((left, right)) = sides(at) else { continue };
        let is_model = |node: Node<'_>| models.contains(at.source.of(node));
        let mut members = (0..right.named_child_count()).filter_map(|place| right.named_child(place));
        let list = match (left.kind(), right.kind()) {
            (_, "list") if members.any(is_model) => Some(left),
            ("subscript", _) if is_model(right) => left.child_by_field_name("value"),
            _ => None,
        };
        lists.extend(list.map(|list| at.source.of(list).to_owned()));
    }
    lists
}

/// The variables of loops over such lists, in comprehensions too.
fn members_of(program: &Program, lists: &BTreeSet<String>) -> Vec<String> {
    let mut members = Vec::new();
    for at in ["for_statement", "for_in_clause"].into_iter().flat_map(|kind| program.all(kind)) {
        let Some((left, right)) = sides(at) else { continue };
        let over = match Call::of(at.with(right)) {
            Some(call) if call.path() == "enumerate" => call.positional().first().copied(),
            Some(call) if matches!(call.name(), "values" | "items") => call.object(),
            Some(_) => None,
            None => Some(right),
        };
        if over.is_some_and(|over| lists.contains(at.source.of(over))) {
            // The model comes last: `for name, net in nets.items()`.
            let last = within(left).filter(|node| node.kind() == "identifier").max_by_key(Node::start_byte);
            members.extend(last.map(|node| at.source.of(node).to_owned()));
        }
    }
    members
}

/// Whether a node calls a model, or calls something with a model.
pub(crate) fn calls_model(at: At<'_>, models: &BTreeSet<String>) -> bool {
    within(at.node).filter_map(|node| Call::of(at.with(node))).any(|call| calls_model_itself(&call, models))
}

/// Whether a call is one of a model, or one that runs a model that it is given.
pub(crate) fn calls_model_itself(call: &Call<'_>, models: &BTreeSet<String>) -> bool {
    let is = |node: Node<'_>| models.contains(call.at.source.of(node));
    let of_model = call.object().is_some_and(is) && !COMPUTE_NOTHING.contains(&call.name());
    let makes = call.name().starts_with(char::is_uppercase);
    let with_model = call.positional().into_iter().any(is) && !makes && !TAKE_ONLY.contains(&call.name());
    is(call.function) || of_model || with_model
}

fn steps(program: &Program, name: &str) -> bool {
    program
        .calls()
        .iter()
        .any(|call| call.name() == "step" && call.object().is_some_and(|object| call.at.source.of(object) == name))
}

pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '.'))
}

/// The statement after which a model of this name is there, and what it is called there. A name that a function is
/// given is followed to its callers.
pub(crate) fn made<'a>(program: &'a Program, name: &str) -> Option<(String, At<'a>)> {
    let mut found: Vec<At<'a>> = Vec::new();
    for at in program.all("assignment") {
        let Some(left) = at.node.child_by_field_name("left") else { continue };
        let is = at.source.of(left) == name
            || matches!(left.kind(), "pattern_list" | "tuple_pattern")
                && (0..left.named_child_count())
                    .filter_map(|place| left.named_child(place))
                    .any(|part| at.source.of(part) == name);
        let text = at.node.child_by_field_name("right").map(|right| at.source.of(right)).unwrap_or_default();
        // What only wraps or moves a model is not where it is made.
        let is_given = |call: Call<'_>| call.positional().iter().any(|given| at.source.of(*given) == name);
        let wraps = within(at.node).filter_map(|node| Call::of(at.with(node))).any(is_given)
            || text.starts_with(&format!("{name}."));
        if is && !wraps && !text.is_empty() && text != "None" {
            found.push(at);
        }
    }
    let first = *found.first()?;
    let scope = |at: &At<'a>| (at.file, function_of(at.node));
    if found.iter().any(|at| scope(at) != scope(&first)) {
        // The same name in several functions: only one of them makes a model.
        let makes = |at: &&At<'a>| {
            within(at.node).any(|node| Call::of(at.with(node)).is_some_and(|call| call.name() == "from_pretrained"))
        };
        let mut makers = found.iter().filter(makes);
        let only = makers.next().filter(|_| makers.next().is_none())?;
        return statement_of(only.node).map(|node| (name.to_owned(), only.with(node)));
    }
    let last = *found.last()?;
    // Where branches make it differently, it is there after all of them.
    let mut statement = statement_of(last.node)?;
    if found.len() > 1 {
        let shared = around(first.node)
            .find(|node| matches!(node.kind(), "block" | "module") && around(last.node).any(|other| other == *node))?;
        statement = std::iter::once(statement).chain(around(statement)).find(|node| node.parent() == Some(shared))?;
    }
    Some((name.to_owned(), last.with(statement)))
}
