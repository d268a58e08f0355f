//! Measures how far two programs are apart: in the gradients that each optimizer step saw, and in what they hold at the end.

use std::collections::BTreeMap;

use oomph_protocol::compared::{Compared, ComparedPiece, ComparedStep};

/// A relative difference of gradients that rounding makes in sums of another order, in single precision and with no control.
const ROUNDING: f64 = 1e-5;
/// The same of weights and of what the program holds, whose difference is taken relative to how far the training moved them.
const ROUNDING_KEPT: f64 = 1e-4;
/// How many times as far as by a change in the last digit of the weights a program may be apart and be equal: where a sum is made in
/// another order each number of it is rounded anew.
const TIMES: f64 = 30.0;

/// What a program computed.
#[derive(Clone, Debug)]
pub struct Trace {
    compared: Compared,
    numbers: Vec<f64>,
}

impl Trace {
    /// What was recorded, with the numbers that it names.
    pub fn new(compared: Compared, numbers: Vec<f64>) -> Self {
        Self { compared, numbers }
    }

    /// The record.
    pub fn record(&self) -> &Compared {
        &self.compared
    }

    /// How many optimizer steps it made.
    pub fn steps(&self) -> usize {
        self.compared.steps.len()
    }

    /// Whether the training drew random numbers on the card.
    pub fn draws(&self) -> bool {
        self.compared.draws > 0
    }

    /// How many samples each loader gave.
    pub fn samples(&self) -> Vec<u64> {
        self.compared.loaders.iter().map(|loader| loader.samples).collect()
    }

    /// How many samples it makes at a time without a loader, and how many were made in their place.
    pub fn fewer(&self) -> Option<(u64, u64)> {
        self.compared.batch.zip(self.compared.few)
    }

    /// Whether there is something to compare where no optimizer stepped.
    pub fn has_results(&self) -> bool {
        !self.compared.kept.is_empty() || !self.compared.printed.is_empty()
    }

    /// Whether no step saw a gradient other than zero.
    pub fn is_silent(&self) -> bool {
        !self.compared.steps.iter().any(|step| norm(&step.gradients).is_some_and(|norm| norm > 0.0))
    }

    /// The noted elements of a tensor.
    fn elements(&self, piece: &ComparedPiece) -> &[f64] {
        let (from, count) =
            (usize::try_from(piece.at).unwrap_or(usize::MAX), usize::try_from(piece.noted).unwrap_or(0));
        self.numbers.get(from..from.saturating_add(count)).unwrap_or_default()
    }
}

/// What differs.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// The gradients of a step, from 1.
    Gradients(usize),
    /// The learning rate of a step, from 1.
    Rate(usize),
    /// The weights after a step, from 1.
    Weights(usize),
    /// A variable, or a weight or buffer of a model.
    Kept(String),
    /// How many steps there are.
    Steps(usize, usize),
    /// Which weights are trained.
    Trained,
    /// A line of output, before and after.
    Printed(String, String),
}

/// How far two programs are apart.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// Of the gradients of each step, relative to their norm.
    gradients: Vec<f64>,
    /// Of the weights after each step, relative to how far the training had moved them.
    weights: Vec<f64>,
    /// Of what is held at the end, by name.
    kept: Vec<(String, f64)>,
    /// What makes the two different programs, whatever the numbers are.
    structure: Option<What>,
    /// How many lines of output both have.
    lines: usize,
    /// The lines of output that are different, by their numbers.
    printed: BTreeMap<usize, (String, String)>,
}

impl Difference {
    /// How far `other` is from `one`.
    pub fn between(one: &Trace, other: &Trace) -> Self {
        let lines = one.compared.printed.len().min(other.compared.printed.len());
        let mut found = Self { lines, printed: printed(one, other), ..Self::default() };
        let (mine, theirs) = (&one.compared, &other.compared);
        if mine.ended && theirs.ended && mine.steps.len() != theirs.steps.len() {
            found.structure = Some(What::Steps(mine.steps.len(), theirs.steps.len()));
        }
        for (number, (step, changed)) in mine.steps.iter().zip(&theirs.steps).enumerate() {
            let counts = |step: &ComparedStep| step.gradients.iter().map(|piece| piece.count).collect::<Vec<_>>();
            if counts(step) != counts(changed) || step.weights.len() != changed.weights.len() {
                found.structure.get_or_insert(What::Trained);
                break;
            }
            let rates = step.rates.iter().zip(&changed.rates).any(|(one, other)| apart(*one, *other) > ROUNDING);
            if rates {
                found.structure.get_or_insert(What::Rate(number + 1));
            }
            let pairs = step.gradients.iter().zip(&changed.gradients);
            let elements = relative(pairs.map(|(a, b)| (one.elements(a), other.elements(b))), None);
            // Of a tensor that is nearly empty, such as a large embedding's gradient, the noted elements may all be zero.
            let norms =
                norm(&step.gradients).zip(norm(&changed.gradients)).map_or(0.0, |(one, other)| apart(one, other));
            found.gradients.push(elements.max(norms));
            let first = mine.steps.iter().find(|known| known.optimizer == step.optimizer).unwrap_or(step);
            let pairs = step.weights.iter().zip(&changed.weights);
            let moved = moved(one, first, step);
            let scale = if moved > 0.0 { Some(moved) } else { None };
            found.weights.push(relative(pairs.map(|(a, b)| (one.elements(a), other.elements(b))), scale));
        }
        if mine.ended && theirs.ended {
            for value in &mine.kept {
                let Some(changed) = theirs.kept.iter().find(|changed| changed.name == value.name) else { continue };
                let far = if value.piece.count == changed.piece.count {
                    let pair = (one.elements(&value.piece), other.elements(&changed.piece));
                    relative(std::iter::once(pair), None)
                } else {
                    1.0
                };
                found.kept.push((value.name.clone(), far));
            }
        }
        found
    }

    /// Whether there was nothing to compare.
    pub fn is_empty(&self) -> bool {
        self.gradients.is_empty() && self.kept.is_empty() && self.lines == 0 && self.structure.is_none()
    }

    /// How many optimizer steps were compared.
    pub fn steps(&self) -> usize {
        self.gradients.len()
    }

    /// The largest of them.
    pub fn largest(&self) -> f64 {
        self.gradients
            .iter()
            .chain(&self.weights)
            .chain(self.kept.iter().map(|(_, far)| far))
            .fold(0.0, |most, far| far.max(most))
    }

    /// The largest of the gradients.
    pub fn of_gradients(&self) -> f64 {
        self.gradients.iter().copied().fold(0.0, f64::max)
    }

    /// The largest, of the gradients where there are any: 0 where all is the same bit for bit.
    pub fn worst(&self) -> f64 {
        let of_gradients = self.of_gradients();
        if of_gradients > 0.0 { of_gradients } else { self.largest() }
    }

    /// What differs first, by more than is tolerated.
    pub fn first(&self, tolerance: &Tolerance) -> Option<(What, f64)> {
        if let Some(What::Trained | What::Steps(..)) = &self.structure {
            return self.structure.clone().map(|what| (what, 1.0));
        }
        for (number, (gradients, weights)) in self.gradients.iter().zip(&self.weights).enumerate() {
            if *gradients > tolerance.gradients(number) {
                return Some((What::Gradients(number + 1), *gradients));
            }
            if self.structure == Some(What::Rate(number + 1)) {
                return Some((What::Rate(number + 1), 1.0));
            }
            if *weights > tolerance.weights(number) {
                return Some((What::Weights(number + 1), *weights));
            }
        }
        let kept = self.kept.iter().find(|(name, far)| *far > tolerance.kept(name));
        let kept = kept.map(|(name, far)| (What::Kept(name.clone()), *far));
        let printed = || {
            let (_, (before, after)) = self.printed.iter().find(|(line, _)| !tolerance.0.printed.contains_key(line))?;
            Some((What::Printed(before.clone(), after.clone()), 1.0))
        };
        kept.or_else(printed)
    }

    /// Whether nothing differs by more than is tolerated.
    pub fn is_within(&self, tolerance: &Tolerance) -> bool {
        self.first(tolerance).is_none()
    }
}

/// How far apart equal programs may be.
#[derive(Clone, Debug, Default)]
pub struct Tolerance(Difference);

impl Tolerance {
    /// What single precision does at best.
    pub fn none() -> Self {
        Self::default()
    }

    /// By what rounding does to this program.
    pub fn of(control: &Difference) -> Self {
        Self(control.clone())
    }

    /// What rounding alone does, at most.
    pub fn largest(&self) -> f64 {
        self.0.worst()
    }

    fn gradients(&self, step: usize) -> f64 {
        self.0.gradients.get(step).map_or(0.0, |far| TIMES * far).max(ROUNDING)
    }

    fn weights(&self, step: usize) -> f64 {
        self.0.weights.get(step).map_or(0.0, |far| TIMES * far).max(ROUNDING_KEPT)
    }

    fn kept(&self, name: &str) -> f64 {
        let known = self.0.kept.iter().find(|(known, _)| known == name);
        known.map_or(0.0, |(_, far)| TIMES * far).max(ROUNDING_KEPT)
    }
}

/// The difference of several tensors, relative to the norm of the first ones, or to `scale`. What is not a number in both is the same.
fn relative<'a>(pairs: impl Iterator<Item = (&'a [f64], &'a [f64])>, scale: Option<f64>) -> f64 {
    let (mut far, mut whole) = (0.0, 0.0);
    for (one, other) in pairs {
        if one.len() != other.len() {
            return f64::INFINITY;
        }
        for (one, other) in one.iter().zip(other) {
            if one.is_finite() && other.is_finite() {
                far += (one - other).powi(2);
                whole += one.powi(2);
            } else if one.is_nan() != other.is_nan() || one.is_infinite() != other.is_infinite() {
                return f64::INFINITY;
            }
        }
    }
    match far {
        0.0 => 0.0,
        _ => far.sqrt() / scale.unwrap_or(whole.sqrt()),
    }
}

/// How far an optimizer has moved its weights since its first step; 0 in that step, where it is not known.
fn moved(trace: &Trace, first: &ComparedStep, now: &ComparedStep) -> f64 {
    let pairs = first.weights.iter().zip(&now.weights);
    let squares = pairs.flat_map(|(before, after)| trace.elements(before).iter().zip(trace.elements(after)));
    squares.map(|(before, after)| (before - after).powi(2)).filter(|square| square.is_finite()).sum::<f64>().sqrt()
}

fn norm(pieces: &[ComparedPiece]) -> Option<f64> {
    let squares: Vec<f64> = pieces.iter().filter_map(|piece| piece.norm).map(|norm| norm * norm).collect();
    (!squares.is_empty()).then(|| squares.iter().sum::<f64>().sqrt())
}

fn apart(one: f64, other: f64) -> f64 {
    (one - other).abs() / one.abs().max(other.abs()).max(f64::MIN_POSITIVE)
}

/// The lines that have other numbers, or other words, of those that both print.
fn printed(one: &Trace, other: &Trace) -> BTreeMap<usize, (String, String)> {
    let lines = one.compared.printed.iter().zip(&other.compared.printed).enumerate();
    let differs = |(_, (mine, theirs)): &(usize, (&String, &String))| {
        let (mine, theirs) = (parts(mine), parts(theirs));
        mine.len() != theirs.len() || !mine.iter().zip(&theirs).all(|(one, other)| one.is_like(*other))
    };
    lines.filter(differs).map(|(line, (mine, theirs))| (line, (mine.clone(), theirs.clone()))).collect()
}

/// A part of a line.
#[derive(Clone, Copy, Debug)]
enum Part<'t> {
    Words(&'t str),
    /// A number, and one of its last digit.
    Number(f64, f64),
}

impl Part<'_> {
    /// Whether two are the same, or numbers as close as they are printed.
    fn is_like(self, other: Part<'_>) -> bool {
        match (self, other) {
            (Part::Words(one), Part::Words(other)) => one == other,
            (Part::Number(one, digit), Part::Number(other, _)) => {
                apart(one, other) < 1e-3 || (one - other).abs() < 1.5 * digit
            }
            _ => false,
        }
    }
}

/// The numbers of a line, and what is between them.
fn parts(line: &str) -> Vec<Part<'_>> {
    let mut found = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let begins = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
        let (words, from) = rest.split_at(begins);
        if !words.is_empty() {
            found.push(Part::Words(words));
        }
        let belongs = |(place, letter): (usize, char)| {
            let after_e = from[..place].ends_with(['e', 'E']);
            !(letter.is_ascii_digit()
                || letter == '.'
                || matches!(letter, 'e' | 'E')
                || after_e && matches!(letter, '+' | '-'))
        };
        let mut end = from.char_indices().find(|at| belongs(*at)).map_or(from.len(), |(place, _)| place);
        while end > 0 && from[..end].parse::<f64>().is_err() {
            end -= 1;
        }
        if let Ok(number) = from[..end].parse::<f64>() {
            let mantissa = from[..end].split(['e', 'E']).next().unwrap_or_default();
            let decimals = mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            // A whole number counts something.
            let digit = if decimals == 0 { 0.0 } else { 0.1_f64.powi(i32::try_from(decimals).unwrap_or(i32::MAX)) };
            found.push(Part::Number(number, digit));
        }
        rest = &from[end..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use oomph_protocol::compared::ComparedValue;

    /// A training of one weight of two numbers: the gradients and the weights of each step.
    fn trace(steps: &[([f64; 2], [f64; 2])]) -> Trace {
        let mut numbers = Vec::new();
        let mut piece = |values: [f64; 2]| {
            let at = numbers.len() as u64;
            numbers.extend(values);
            ComparedPiece { at, noted: 2, count: 2, norm: Some(values[0].hypot(values[1])) }
        };
        let steps = steps.iter().map(|(gradients, weights)| ComparedStep {
            optimizer: 0,
            gradients: vec![piece(*gradients)],
            weights: vec![piece(*weights)],
            rates: vec![0.1],
        });
        let steps = steps.collect();
        Trace::new(Compared { steps, ended: true, ..Compared::default() }, numbers)
    }

    #[test]
    fn rounding_is_told_from_another_gradient() {
        let original = trace(&[([3.0, 4.0], [1.0, 1.0]), ([3.0, 4.0], [0.7, 0.6])]);
        let rounded = trace(&[([3.0, 4.000001], [1.0, 1.0]), ([3.0, 4.0], [0.7, 0.6])]);
        let halved = trace(&[([3.0, 4.0], [1.0, 1.0]), ([1.5, 2.0], [0.85, 0.8])]);
        assert!(Difference::between(&original, &rounded).is_within(&Tolerance::none()));
        let found = Difference::between(&original, &halved);
        assert_eq!(found.first(&Tolerance::none()), Some((What::Gradients(2), 0.5)));
        // Where rounding drives the program as far apart nothing can be said against it.
        assert!(found.is_within(&Tolerance::of(&found)));
    }

    #[test]
    fn two_that_have_nothing_in_common_are_not_equal() {
        assert!(Difference::between(&trace(&[]), &trace(&[])).is_empty());
        let one = trace(&[([3.0, 4.0], [1.0, 1.0])]);
        assert!(!Difference::between(&one, &one).is_empty());
    }

    #[test]
    fn what_was_not_noted_shows_in_the_norm() {
        let original = trace(&[([3.0, 4.0], [1.0, 1.0])]);
        let mut other = original.clone();
        other.compared.steps[0].gradients[0].norm = Some(5.5);
        let found = Difference::between(&original, &other).first(&Tolerance::none());
        assert_eq!(found.map(|(what, _)| what), Some(What::Gradients(1)));
    }

    #[test]
    fn fewer_steps_and_other_weights_are_another_training() {
        let original = trace(&[([3.0, 4.0], [1.0, 1.0]), ([3.0, 4.0], [0.7, 0.6])]);
        let fewer = trace(&[([3.0, 4.0], [1.0, 1.0])]);
        let found = Difference::between(&original, &fewer);
        assert_eq!(found.first(&Tolerance::none()).map(|(what, _)| what), Some(What::Steps(2, 1)));
        let mut other = original.clone();
        other.compared.steps[1].gradients.clear();
        let found = Difference::between(&original, &other);
        assert_eq!(found.first(&Tolerance::none()).map(|(what, _)| what), Some(What::Trained));
    }

    #[test]
    fn what_lives_on_is_compared_by_name_and_what_is_new_is_not() {
        let mut original = trace(&[([3.0, 4.0], [1.0, 1.0])]);
        let mut changed = original.clone();
        let piece = ComparedPiece { at: 0, noted: 2, count: 2, norm: None };
        original.compared.kept = vec![ComparedValue { name: "average".into(), piece }];
        changed.compared.kept = vec![ComparedValue { name: "part".into(), piece }];
        assert!(Difference::between(&original, &changed).is_within(&Tolerance::none()));
        changed.compared.kept[0].name = "average".into();
        changed.compared.kept[0].piece.at = 2;
        let found = Difference::between(&original, &changed).first(&Tolerance::none());
        assert_eq!(found.map(|(what, _)| what), Some(What::Kept("average".into())));
    }

    #[test]
    fn numbers_in_lines_are_compared_as_numbers() {
        let mut original = trace(&[]);
        let mut changed = original.clone();
        original.compared.printed = vec!["loss=1.49416, lr 2.0e-05, 3 steps".into()];
        changed.compared.printed = vec!["loss=1.49420, lr 2.1e-05, 3 steps".into()];
        assert!(Difference::between(&original, &changed).is_within(&Tolerance::none()));
        changed.compared.printed = vec!["loss=1.39416, lr 2.0e-05, 3 steps".into()];
        let found = Difference::between(&original, &changed);
        assert!(matches!(found.first(&Tolerance::none()), Some((What::Printed(..), _))));
        // What another run prints otherwise as well, such as a time, says nothing.
        assert!(found.is_within(&Tolerance::of(&found)));
    }
}
