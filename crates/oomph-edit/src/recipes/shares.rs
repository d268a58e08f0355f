//! Gives the parts of a batch other shares than those of their samples. Which of them is right is seen when the program is run with
//! numbers.

use tree_sitter::Node;

use crate::source::Source;

/// A program whose batches are cut, with another share for each part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reweighed {
    /// The whole text.
    pub text: String,
    /// The lines that are different, before and after.
    pub lines: Vec<(String, String)>,
    /// What the loss of a part counts for.
    pub share: String,
}

/// The shares that a part may have where it is not that of its samples, the likeliest first: a loss that sums, one that leaves labels
/// out, one that weighs classes, one that is divided by a mask.
pub fn reweighed(text: &str) -> Vec<Reweighed> {
    const HEAD: &str = "def micro_batches(batch, count):";
    let loop_line = text.lines().find(|line| line.contains(", share in micro_batches(") && line.ends_with("):"));
    let end = text.lines().find(|line| line.contains("yield cut(batch, slice(start, start + length)), min("));
    let (Some(loop_line), Some(end), Some(source)) = (loop_line, end, Source::parse(text)) else { return Vec::new() };
    let indentation = &end[..end.len() - end.trim_start().len()];
    let mut found = Vec::new();
    let mut add = |share: &str, lines: Vec<(String, String)>| {
        let changed =
            lines.iter().fold(text.to_owned(), |text, (before, after)| text.replacen(before.as_str(), after, 1));
        found.push(Reweighed { text: changed, lines, share: share.to_owned() });
    };
    let plain = format!("{indentation}yield cut(batch, slice(start, start + length)), 1");
    let summed = ("a loss that sums", vec![(end.to_owned(), plain)]);
    let by_amount = |expression: &str| {
        // A part in which nothing counts has no mean.
        let last = format!(
            "{indentation}if amount(part := cut(batch, slice(start, start + length))): \
             yield part, amount(part) / amount(batch)"
        );
        let given = loop_line.trim_end_matches("):");
        vec![
            (HEAD.to_owned(), HEAD.replace("count)", "count, amount)")),
            (end.to_owned(), last),
            (loop_line.to_owned(), format!("{given}, lambda part: {expression}):")),
        ]
    };
    let sums = text.contains(".sum()") || text.contains("\"sum\"") || text.contains("'sum'");
    if sums {
        add(summed.0, summed.1.clone());
    }
    let target = loop_line.trim_start().trim_start_matches("for ").split(", share in ").next().unwrap_or_default();
    let names: Vec<&str> = target.trim_matches(['(', ')']).split(", ").collect();
    let of = |place: usize| if names.len() == 1 { "part".to_owned() } else { format!("part[{place}]") };
    for (criterion, place) in weighed_targets(&source, &names) {
        add("the weights of its classes", by_amount(&format!("{criterion}.weight[{}].sum()", of(place))));
    }
    for (place, name) in names.iter().enumerate() {
        for key in ["\"labels\"", "'labels'"] {
            if text.contains(&format!("{name}[{key}]")) || names.len() == 1 && text.contains(&format!("**{name}")) {
                let labels = "part[\"labels\"]".replace("part", &of(place));
                add("the labels that count", by_amount(&format!("({labels}[..., 1:] != -100).sum()")));
                add("the labels that count", by_amount(&format!("({labels} != -100).sum()")));
                break;
            }
        }
    }
    if text.contains("ignore_index")
        || text.contains("-100")
        || text.contains("cross_entropy")
        || text.contains("CrossEntropy")
    {
        let ignored = ignored(&source).unwrap_or_else(|| "-100".to_owned());
        for (place, _) in names.iter().enumerate().rev().filter(|_| names.len() > 1) {
            add("the labels that count", by_amount(&format!("({} != {ignored}).sum()", of(place))));
        }
    }
    for (place, name) in names.iter().enumerate() {
        if text.contains(&format!("{name}.sum()")) && names.len() > 1 {
            add("its mask", by_amount(&format!("{}.sum()", of(place))));
        }
    }
    if !sums {
        add(summed.0, summed.1);
    }
    found
}

/// The criteria that weigh classes, and the place of the names among the parts that they are given as targets.
fn weighed_targets(source: &Source, names: &[&str]) -> Vec<(String, usize)> {
    let text = |node: Node<'_>| source.of(node);
    let is_weight = |node: &Node<'_>| {
        node.kind() == "keyword_argument" && node.child_by_field_name("name").is_some_and(|key| text(key) == "weight")
    };
    let is_weighed = |call: Node<'_>| {
        let list = call.child_by_field_name("arguments");
        list.is_some_and(|list| {
            (0..list.named_child_count()).filter_map(|place| list.named_child(place)).any(|node| is_weight(&node))
        })
    };
    let weighs = |node: &Node<'_>| {
        let right = node.child_by_field_name("right").filter(|right| right.kind() == "call")?;
        let name = node.child_by_field_name("left").map(text)?;
        is_weighed(right).then(|| name.to_owned())
    };
    let criteria: Vec<String> = source.all("assignment").iter().filter_map(weighs).collect();
    let mut found = Vec::new();
    for call in source.all("call") {
        let Some(name) = call.child_by_field_name("function").map(text) else { continue };
        let Some(list) = call.child_by_field_name("arguments") else { continue };
        let target = list.named_child(1).map(text).unwrap_or_default();
        if let (true, Some(place)) =
            (criteria.iter().any(|known| known == name), names.iter().position(|one| *one == target))
        {
            found.push((name.to_owned(), place));
        }
    }
    found.dedup();
    found
}

/// The label that a loss of the program leaves out.
fn ignored(source: &Source) -> Option<String> {
    let is = |node: &Node<'_>| node.child_by_field_name("name").is_some_and(|name| source.of(name) == "ignore_index");
    let found = source.all("keyword_argument").into_iter().find(is)?;
    found.child_by_field_name("value").map(|value| source.of(value).to_owned())
}
