//! Finds expressions of a program that give tensors with a graph, or tensors on the card.

use std::collections::BTreeSet;

use tree_sitter::Node;

use crate::calls::Call;
use crate::loops::without_graph;
use crate::models::{calls_model, model_names};
use crate::program::Program;
use crate::source::{At, around, function_of, within};

/// Objects whose functions are a library's, whatever the program calls its own.
const LIBRARIES: &[&str] = &["torch", "F", "nn", "np", "numpy", "math", "wandb", "logging", "writer", "tqdm", "os"];

/// What of a whole program gives graphs.
pub(crate) struct Graphs<'a> {
    program: &'a Program,
    /// Names of models, whose calls give tensors with a graph.
    models: BTreeSet<String>,
    /// Names of the program's functions that give tensors with a graph.
    giving: BTreeSet<&'a str>,
}

impl<'a> Graphs<'a> {
    /// Looks through a program.
    pub fn of(program: &'a Program) -> Self {
        let mut models = model_names(program);
        models.extend(parts_of_modules(program));
        models.extend(plain_modules(program));
        let mut graphs = Self { program, models, giving: BTreeSet::new() };
        // A function may give what another one gives.
        for _ in 0..2 {
            let giving = program.all("function_definition").into_iter().filter_map(|function| {
                let names = graphs.names(function);
                let returns = within(function.node)
                    .filter(|node| node.kind() == "return_statement" && function_of(*node) == Some(function.node))
                    .filter_map(|node| node.named_child(0));
                let gives = returns
                    .map(|node| function.with(node))
                    .any(|value| !without_graph(value) && graphs.carries(value, &names));
                let name = function.source.of(function.node.child_by_field_name("name")?);
                (gives && name != "forward").then_some(name)
            });
            graphs.giving = giving.collect();
        }
        graphs
    }

    /// The names that carry a graph in the function, or outside of functions in the file, that holds a node.
    pub fn around(&self, at: At<'a>) -> Names<'a> {
        let scope = function_of(at.node).unwrap_or_else(|| at.source.root());
        self.names(at.with(scope))
    }

    /// The names that carry a graph in a function or a file.
    pub fn names(&self, scope: At<'a>) -> Names<'a> {
        let function = (scope.node.kind() == "function_definition").then_some(scope.node);
        let own = |node: &Node<'a>| function_of(*node) == function;
        let sources: Vec<(Node<'a>, Node<'a>)> = within(scope.node)
            .filter(own)
            .filter(|node| matches!(node.kind(), "assignment" | "for_statement"))
            .filter_map(|node| Some((node.child_by_field_name("left")?, node.child_by_field_name("right")?)))
            .collect();
        let mut names = Names::default();
        for (left, right) in &sources {
            let freed = lets_go(scope.with(*right));
            names.freed.extend(freed.then(|| (scope.source.of(*left), right.end_byte())));
        }
        // What `.backward()` is called on has a graph, whoever computed it.
        for call in within(scope.node).filter(own).filter_map(|node| Call::of(scope.with(node))) {
            let object = call.object().filter(|object| object.kind() == "identifier" && call.name() == "backward");
            names.carrying.extend(object.map(|object| scope.source.of(object)));
        }
        // Again, because a loop comes round again, and what one name carries another is computed of.
        for _ in 0..3 {
            for (left, right) in &sources {
                let value = scope.with(*right);
                if without_graph(value) {
                    continue;
                }
                let of_model = calls_model(value, &self.models) && !lets_go(value) && value.node.kind() != "string";
                if (of_model && is_computed(value)) || self.carries(value, &names) {
                    let given = targets(scope.with(*left)).into_iter();
                    // A model that is compiled or moved is a model still.
                    names.carrying.extend(given.filter(|name| !self.models.contains(*name)));
                }
                if self.is_on_card(value, &names) {
                    names.on_card.extend(targets(scope.with(*left)));
                }
            }
        }
        names
    }

    /// Whether an expression gives a tensor with a graph.
    pub fn carries(&self, at: At<'a>, names: &Names<'a>) -> bool {
        if lets_go(at) {
            return false;
        }
        match at.node.kind() {
            "identifier" => names.carries(at),
            "attribute" => {
                let name = at.node.child_by_field_name("attribute").map(|node| at.source.of(node)).unwrap_or_default();
                !matches!(name, "shape" | "data" | "device" | "dtype" | "grad" | "ndim")
                    && at.node.child_by_field_name("object").is_some_and(|object| self.carries(at.with(object), names))
            }
            "call" => {
                let Some(call) = Call::of(at) else { return false };
                if gives_no_graph(call.name()) {
                    return false;
                }
                self.models.contains(call.path())
                    || self.gives(&call)
                    || call.object().is_some_and(|object| self.carries(at.with(object), names))
                    || call.positional().into_iter().any(|node| self.carries(at.with(node), names))
            }
            "comparison_operator" | "string" | "lambda" => false,
            _ => children(at.node).any(|child| self.carries(at.with(child), names)),
        }
    }

    /// Whether an expression gives a tensor that lies on the card, with a graph or without.
    pub fn is_on_card(&self, at: At<'a>, names: &Names<'a>) -> bool {
        match at.node.kind() {
            "identifier" => names.carries(at) || names.on_card.contains(at.text()) && !names.is_freed(at),
            "attribute" => {
                let name = at.node.child_by_field_name("attribute").map(|node| at.source.of(node)).unwrap_or_default();
                !matches!(name, "shape" | "device" | "dtype" | "ndim")
                    && at.node.child_by_field_name("object").is_some_and(|node| self.is_on_card(at.with(node), names))
            }
            "call" => {
                let Some(call) = Call::of(at) else { return false };
                if matches!(call.name(), "item" | "tolist" | "numpy" | "cpu" | "len" | "float" | "int" | "size" | "str")
                    && !(call.name() == "float" && call.object().is_some())
                    && !(call.name() == "int" && call.object().is_some())
                {
                    return false;
                }
                let placed = call.value("device").is_some_and(|at| !at.text().contains("cpu"));
                let moved = call.name() == "cuda" && call.object().is_some() || call.name() == "to";
                placed
                    || moved
                    || self.models.contains(call.path())
                    || call.object().is_some_and(|object| self.is_on_card(at.with(object), names))
                    || call.path().starts_with("torch.")
                        && call.positional().into_iter().any(|node| self.is_on_card(at.with(node), names))
            }
            "string" | "lambda" => false,
            _ => children(at.node).any(|child| self.is_on_card(at.with(child), names)),
        }
    }

    /// Whether a call is one of a function of the program's own that gives a graph.
    fn gives(&self, call: &Call<'a>) -> bool {
        let library = call.object().is_some_and(|object| LIBRARIES.contains(&call.at.source.of(object)));
        self.giving.contains(call.name()) && !library
    }

    /// Whether an assignment is of what a model gives.
    pub fn gives_of(&self, assignment: At<'a>) -> bool {
        let right = assignment.node.child_by_field_name("right");
        right.and_then(|node| Call::of(assignment.with(node))).is_some_and(|call| self.models.contains(call.path()))
    }

    /// The calls of a function of the program's own.
    pub fn calls_of(&self, function: At<'a>) -> Vec<Call<'a>> {
        let Some(name) = function.node.child_by_field_name("name").map(|node| function.source.of(node)) else {
            return Vec::new();
        };
        let class = class_of(function.node);
        let is = |call: &Call<'a>| {
            if call.name() != name {
                return false;
            }
            let Some(object) = call.object().map(|object| call.at.source.of(object)) else { return class.is_none() };
            let other = object == "self" && class_of(call.at.node) != class;
            class.is_some() && !other && !LIBRARIES.contains(&object)
        };
        self.program.calls().into_iter().filter(is).collect()
    }
}

/// Names in one function.
#[derive(Default)]
pub(crate) struct Names<'a> {
    carrying: BTreeSet<&'a str>,
    on_card: BTreeSet<&'a str>,
    /// Names that are given what has no graph, with the place behind that.
    freed: Vec<(&'a str, usize)>,
}

impl<'a> Names<'a> {
    /// One name that carries a graph, such as a parameter of a hook.
    pub fn one(name: &'a str) -> Self {
        Self { carrying: BTreeSet::from([name]), ..Self::default() }
    }

    fn carries(&self, at: At<'_>) -> bool {
        self.carrying.contains(at.text()) && !self.is_freed(at)
    }

    /// Whether `loss = loss.item()` precedes a use of the name.
    fn is_freed(&self, at: At<'_>) -> bool {
        self.freed.iter().any(|(name, place)| *name == at.text() && *place <= at.node.start_byte())
    }
}

/// `self.net` and the like: the parts of modules that the program defines, whose calls give graphs.
fn parts_of_modules(program: &Program) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for class in program.all("class_definition") {
        let Some(body) = class.node.child_by_field_name("body") else { continue };
        let methods = within(body).filter(|node| node.kind() == "function_definition");
        let names: Vec<&str> =
            methods.filter_map(|node| node.child_by_field_name("name")).map(|name| class.source.of(name)).collect();
        if !names.iter().any(|name| matches!(*name, "forward" | "training_step")) {
            continue;
        }
        for assignment in within(body).filter(|node| node.kind() == "assignment") {
            let (Some(left), Some(right)) =
                (assignment.child_by_field_name("left"), assignment.child_by_field_name("right"))
            else {
                continue;
            };
            let made = Call::of(class.with(right)).is_some_and(|call| {
                call.name().starts_with(|letter: char| letter.is_uppercase()) && !call.name().ends_with("Loss")
            });
            let name = class.source.of(left);
            if made && name.starts_with("self.") {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

/// Names that are given a module of `torch.nn`: `backbone = nn.Sequential(...).cuda()`.
fn plain_modules(program: &Program) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for at in program.all("assignment") {
        let (Some(left), Some(right)) = (at.node.child_by_field_name("left"), at.node.child_by_field_name("right"))
        else {
            continue;
        };
        let mut made = Call::of(at.with(right));
        // What `.cuda()` and `.to(device)` are called on.
        while let Some(call) =
            made.filter(|call| matches!(call.name(), "cuda" | "to" | "train" | "eval" | "requires_grad_"))
        {
            made = call.object().and_then(|object| Call::of(at.with(object)));
        }
        let module = made.is_some_and(|call| {
            let path = call.path().trim_start_matches("torch.");
            path.strip_prefix("nn.").is_some_and(|class| {
                class.starts_with(char::is_uppercase) && !class.ends_with("Loss") && class != "Parameter"
            })
        });
        if module && left.kind() == "identifier" {
            found.insert(at.source.of(left).to_owned());
        }
    }
    found
}

/// The class that a node is in.
fn class_of(node: Node<'_>) -> Option<Node<'_>> {
    around(node).find(|node| node.kind() == "class_definition")
}

/// The names that an assignment or a loop gives values to.
fn targets(left: At<'_>) -> Vec<&str> {
    let names = within(left.node).filter(|node| node.kind() == "identifier");
    let plain = names.filter(|node| {
        node.parent().is_none_or(|parent| !matches!(parent.kind(), "attribute" | "subscript")) || *node == left.node
    });
    plain.map(|node| left.source.of(node)).collect()
}

/// Whether an expression computes something, rather than making an object of a class or naming functions and models.
fn is_computed(at: At<'_>) -> bool {
    let makes = Call::of(at).is_some_and(|call| {
        call.name().starts_with(|letter: char| letter.is_uppercase()) || matches!(call.name(), "deepcopy" | "compile")
    });
    !makes && !matches!(at.node.kind(), "lambda" | "list" | "dictionary" | "list_comprehension")
}

/// Functions whose results have no graph.
fn gives_no_graph(name: &str) -> bool {
    matches!(
        name,
        "size"
            | "len"
            | "dim"
            | "numel"
            | "isnan"
            | "range"
            | "print"
            | "format"
            | "argmax"
            | "argsort"
            | "eq"
            | "keys"
    )
}

/// Whether an expression ends in what has no graph.
pub(crate) fn lets_go(at: At<'_>) -> bool {
    let Some(call) = Call::of(at) else {
        return at.node.kind() == "attribute" && at.text().ends_with(".data");
    };
    if matches!(call.path(), "float" | "int" | "len" | "bool" | "str")
        || matches!(call.name(), "item" | "detach" | "tolist" | "numpy" | "argmax")
    {
        return true;
    }
    // `x.detach().cpu()`, `x.detach().mean()`
    call.object().is_some_and(|object| lets_go(at.with(object)))
}

/// The nodes below one.
pub(crate) fn children(node: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    (0..node.named_child_count()).filter_map(move |place| node.named_child(place))
}
