//! What is offered in real situations, and what is not: a table of crashes as people report them.

mod situations;

use std::collections::BTreeSet;

use oomph_remedy::{Kind, MOST_AVOIDED, MOST_OFFERS, Suggestion, suggest};
use situations::{Case, cases};

fn ids(suggestion: &Suggestion) -> Vec<&str> {
    suggestion.remedies.iter().map(|offer| offer.id.as_str()).collect()
}

#[test]
fn each_situation_gets_its_answer() {
    let mut wrong = Vec::new();
    for Case { name, situation, first, among, never, avoid, words } in cases() {
        let suggestion = suggest(&situation);
        let offered = ids(&suggestion);
        if offered.first().copied() != Some(first) {
            wrong.push(format!("{name}: first is {offered:?} and not {first}"));
        }
        for id in among {
            if !offered.contains(id) {
                wrong.push(format!("{name}: {id} is not among {offered:?}"));
            }
        }
        for id in never {
            if offered.contains(id) {
                wrong.push(format!("{name}: {id} cannot help, and is among {offered:?}"));
            }
        }
        let avoided: Vec<_> = suggestion.avoid.iter().map(|avoid| avoid.id.as_str()).collect();
        for id in avoid {
            if !avoided.contains(id) {
                wrong.push(format!("{name}: {id} is not avoided in {avoided:?}"));
            }
        }
        for text in words {
            if !suggestion.remedies.iter().any(|offer| offer.apply.contains(text)) {
                wrong.push(format!("{name}: nobody says {text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn offers_are_few_different_and_without_open_names() {
    for Case { name, situation, .. } in cases() {
        let suggestion = suggest(&situation);
        assert!(!suggestion.remedies.is_empty() && suggestion.remedies.len() <= MOST_OFFERS, "{name}");
        assert!(suggestion.avoid.len() <= MOST_AVOIDED, "{name}");
        let different: BTreeSet<_> = ids(&suggestion).into_iter().collect();
        assert_eq!(different.len(), suggestion.remedies.len(), "{name}");
        for offer in &suggestion.remedies {
            assert!(!situation.on.contains(&offer.id), "{name}: {} is on already", offer.id);
            assert_ne!(offer.frees_bytes, Some(0), "{name}: {}", offer.id);
            for open in ["{half", "{double", "{lower", "{higher", "{requested", "{weights", "{others", "{slack"] {
                assert!(!offer.apply.contains(open) && !offer.because.contains(open), "{name}: {offer:?}");
            }
        }
    }
}

#[test]
fn who_starts_a_finished_program_is_not_asked_to_write_code() {
    use oomph_remedy::{Cause, Framework, Reach, Situation};
    for &framework in Framework::ALL.iter().filter(|framework| framework.reach() == Reach::Application) {
        for &cause in Cause::ALL {
            let suggestion = suggest(&Situation::of([framework, Framework::Pytorch], cause));
            for offer in &suggestion.remedies {
                assert!(offer.framework == framework || offer.kind != Kind::Code, "{framework}, {cause}: {offer:?}");
            }
        }
    }
}

#[test]
fn json_has_the_fields_of_the_report() {
    let case = cases().into_iter().next().unwrap();
    let json = serde_json::to_value(suggest(&case.situation)).unwrap();
    let offer = &json["remedies"][0];
    for field in ["id", "title", "apply", "frees_bytes", "cost", "because", "sameness", "kind", "framework"] {
        assert!(offer.get(field).is_some(), "{field} in {offer}");
    }
}

/// The whole answers, for people to read when the catalogue changes.
#[test]
fn the_answers_as_a_whole() {
    let mut text = String::new();
    for Case { name, situation, .. } in cases() {
        let suggestion = suggest(&situation);
        text += &format!("## {name}\n");
        for offer in &suggestion.remedies {
            let frees = offer.frees_bytes.map_or("?".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
            text +=
                &format!("- {} ({frees}): {}\n    because {}; {}\n", offer.id, offer.apply, offer.because, offer.cost);
        }
        for avoid in &suggestion.avoid {
            text += &format!("- not {}: {}\n", avoid.title, avoid.because);
        }
        text += "\n";
    }
    insta::assert_snapshot!(text);
}
