//! The knobs: the values of each, and the command with a value in place of each `{name}`.

use std::collections::BTreeMap;
use std::ffi::OsString;

use anyhow::Result;

use crate::changes::Changes;
use crate::cli::TuneArgs;
use crate::failure::hinted;
use crate::syntax::{Keep, Values, Vary};

/// More values of one knob are not held.
const MOST_VALUES: u64 = 1 << 20;

/// More combinations of all knobs but the last are not tried: each is a search of its own.
const MOST_COMBINATIONS: usize = 32;

/// The value of each name.
pub type Setting = BTreeMap<String, u64>;

/// One knob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    /// What is in the braces.
    pub name: String,
    /// Its values, ascending; never empty.
    pub values: Vec<u64>,
}

/// All knobs of a search, and where their values go.
#[derive(Clone, Debug)]
pub struct Knobs {
    /// As they were typed; never empty. The last varies inside the earlier ones.
    pub knobs: Vec<Knob>,
    keep: Option<Kept>,
    command: Vec<OsString>,
    env: Vec<(String, String)>,
}

/// A product of two names that is kept, by what becomes of each.
#[derive(Clone, Debug)]
struct Kept {
    varied: String,
    derived: String,
    product: u64,
}

impl Knobs {
    /// The knobs of a search.
    ///
    /// # Errors
    /// When there are too many values or none, or a knob turns nothing.
    pub fn new(args: &TuneArgs) -> Result<Self> {
        let (command, env) = (&args.program.command, &args.env);
        let mut knobs = args.vary.iter().map(|vary| knob(vary, args.step, args.powers)).collect::<Result<Vec<_>>>()?;
        let keep = args.keep.as_ref().map(|keep| kept(keep, &mut knobs)).transpose()?;
        let names = knobs.iter().map(|knob| &knob.name).chain(keep.as_ref().map(|keep| &keep.derived));
        for (index, name) in names.clone().enumerate() {
            if names.clone().skip(index + 1).any(|other| other == name) {
                return Err(hinted(format!("`{name}` is varied twice"), "give each --vary a name of its own"));
            }
            let mark = format!("{{{name}}}");
            let named = |text: &str| text.contains(&mark);
            if !command.iter().any(|word| named(&word.to_string_lossy())) && !env.iter().any(|(_, value)| named(value))
            {
                return Err(hinted(
                    format!("`{mark}` does not appear in the command, so varying it changes nothing"),
                    format!("write it where the number goes, for example `--batch-size {mark}`"),
                ));
            }
        }
        let outer = knobs.iter().rev().skip(1).fold(1_usize, |all, knob| all.saturating_mul(knob.values.len()));
        if outer > MOST_COMBINATIONS {
            return Err(hinted(
                format!("the knobs before the last have {outer} combinations, and each is a search of its own"),
                format!("give them lists, like --vary seq=512,1024,2048: at most {MOST_COMBINATIONS} in all"),
            ));
        }
        Ok(Self { knobs, keep, command: command.clone(), env: env.clone() })
    }

    /// The settings of all knobs but the last, in the order of their values; one that is empty if there is one knob.
    pub fn outer(&self) -> Vec<Setting> {
        let mut settings = vec![Setting::new()];
        for knob in self.knobs.iter().rev().skip(1).rev() {
            settings = settings
                .iter()
                .flat_map(|setting| {
                    knob.values.iter().map(|value| {
                        let mut setting = setting.clone();
                        setting.insert(knob.name.clone(), *value);
                        setting
                    })
                })
                .collect();
        }
        settings
    }

    /// The last knob: the one that is searched.
    pub fn inner(&self) -> &Knob {
        // There is one at least, because --vary is required.
        &self.knobs[self.knobs.len() - 1]
    }

    /// A setting of the outer knobs with a value of the last one, and what is derived of both.
    pub fn with(&self, outer: &Setting, value: u64) -> Setting {
        let mut setting = outer.clone();
        setting.insert(self.inner().name.clone(), value);
        if let Some(keep) = &self.keep
            && let Some(varied) = setting.get(&keep.varied).filter(|varied| **varied > 0)
        {
            let derived = keep.product / varied;
            setting.insert(keep.derived.clone(), derived);
        }
        setting
    }

    /// The program with the values of a setting.
    pub fn changes(&self, setting: &Setting) -> Changes {
        let env = self.env.iter().map(|(name, value)| (name.clone(), filled(value, setting))).collect();
        let command: Vec<OsString> = self
            .command
            .iter()
            .map(|word| match word.to_str() {
                Some(text) => filled(text, setting).into(),
                None => word.clone(),
            })
            .collect();
        Changes { env, ..Changes::none(&command) }
    }
}

/// A text with a value in place of each name in braces. Other braces stay.
fn filled(text: &str, setting: &Setting) -> String {
    setting.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), &value.to_string()))
}

/// The values that are tried.
fn knob(vary: &Vary, step: u64, powers: bool) -> Result<Knob> {
    let wrong = |what: &str| {
        hinted(format!("--vary `{vary}` {what}"), "write --vary batch=1..512, or --vary seq=512,1024,2048 for a list")
    };
    let mut values = match &vary.values {
        Values::Range(low, high) => range(*low, *high, step, powers).ok_or_else(|| wrong("has too many values"))?,
        Values::List(values) => values.clone(),
    };
    values.sort_unstable();
    values.dedup();
    if values.is_empty() {
        return Err(wrong("holds no power of two"));
    }
    Ok(Knob { name: vary.name.clone(), values })
}

fn range(low: u64, high: u64, step: u64, powers: bool) -> Option<Vec<u64>> {
    if powers {
        return Some((0..u64::BITS).map(|power| 1 << power).filter(|value| (low..=high).contains(value)).collect());
    }
    let step = step.max(1);
    ((high - low) / step < MOST_VALUES).then(|| (0..=(high - low) / step).map(|index| low + index * step).collect())
}

/// Finds out which name of a product is varied, and leaves only its values that divide the product.
fn kept(keep: &Keep, knobs: &mut [Knob]) -> Result<Kept> {
    let [first, second] = &keep.names;
    let varied = |name: &str| knobs.iter().any(|knob| knob.name == name);
    let (varied, derived) = match (varied(first), varied(second)) {
        (true, false) => (first, second),
        (false, true) => (second, first),
        _ => return Err(Keep::wrong("--keep", &keep.to_string()).into()),
    };
    let kept = Kept { varied: varied.clone(), derived: derived.clone(), product: keep.product };
    for knob in knobs.iter_mut().filter(|knob| knob.name == kept.varied) {
        knob.values.retain(|value| *value > 0 && kept.product.is_multiple_of(*value));
        if knob.values.is_empty() {
            return Err(hinted(
                format!("no value of `{}` divides {}", knob.name, kept.product),
                "widen the range of --vary, or keep another product",
            ));
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::syntax::vary;

    fn knobs(vary: &[&str], keep: Option<&str>, command: &str) -> Result<Knobs> {
        let options = vary.iter().map(|text| ["--vary", text]).chain(keep.map(|text| ["--keep", text]));
        let words = ["oomph", "tune"].into_iter().chain(options.flatten()).chain(["--"]).chain(command.split(' '));
        match Cli::try_parse_from(words).expect("the words are a command line").command {
            Command::Tune(args) => Knobs::new(&args),
            other => panic!("not a search: {other:?}"),
        }
    }

    fn values(text: &str, step: u64, powers: bool) -> Option<Vec<u64>> {
        Some(knob(&vary("--vary", text).expect("it is a range or a list"), step, powers).ok()?.values)
    }

    fn error(result: Result<Knobs>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn values_stand_where_the_names_stood() {
        let knobs = knobs(&["seq=512,256", "batch=1..4"], None, "python {x} --b={batch} --s {seq}{seq}").unwrap();
        assert_eq!(knobs.outer().len(), 2);
        let setting = knobs.with(&knobs.outer()[0], 3);
        assert_eq!(knobs.changes(&setting).command, ["python", "{x}", "--b=3", "--s", "256256"]);
    }

    #[test]
    fn ranges_steps_and_powers() {
        assert_eq!(values("b=1..4", 1, false).unwrap(), [1, 2, 3, 4]);
        assert_eq!(values("b=8..=64", 24, false).unwrap(), [8, 32, 56]);
        assert_eq!(values("b=3..40", 1, true).unwrap(), [4, 8, 16, 32]);
        assert_eq!(values("b=9,3,9", 1, false).unwrap(), [3, 9]);
        assert_eq!(values("b=0..18446744073709551615", 1, false), None);
        assert_eq!(values("b=5..7", 1, true), None);
    }

    #[test]
    fn a_kept_product_leaves_its_divisors() {
        let knobs = knobs(&["batch=1..64"], Some("batch*accum=48"), "python --b {batch} --a {accum}").unwrap();
        assert_eq!(knobs.inner().values, [1, 2, 3, 4, 6, 8, 12, 16, 24, 48]);
        assert_eq!(knobs.changes(&knobs.with(&Setting::new(), 16)).command, ["python", "--b", "16", "--a", "3"]);
    }

    #[test]
    fn a_knob_that_turns_nothing_is_an_error() {
        let text = error(knobs(&["batch=1..4"], None, "python train.py --batch 8"));
        assert!(text.contains("{batch}") && !text.contains('\n'), "{text}");
        assert!(error(knobs(&["b=1..4"], Some("b*a=8"), "python {b}")).contains("{a}"));
        assert!(error(knobs(&["b=1..4", "b=1..2"], None, "python {b}")).contains("twice"));
        assert!(error(knobs(&["a=1..99", "b=1..2"], None, "python {a} {b}")).contains("99 combinations"));
    }
}
