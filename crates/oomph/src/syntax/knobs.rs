//! What `oomph tune` varies: the values of a name, a product that is kept, variables of the environment.

use std::fmt;

use oomph_report::clean;

use crate::failure::Hinted;

/// A name that is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vary {
    /// What is in the braces.
    pub name: String,
    /// Its values.
    pub values: Values,
}

/// The values of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// From the one to the other, which is not smaller.
    Range(u64, u64),
    /// These, in the order they were typed; never empty.
    List(Vec<u64>),
}

impl fmt::Display for Vary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.values {
            Values::Range(low, high) => write!(formatter, "{}={low}..{high}", self.name),
            Values::List(values) => {
                let values: Vec<String> = values.iter().map(u64::to_string).collect();
                write!(formatter, "{}={}", self.name, values.join(","))
            }
        }
    }
}

/// `NAME=LOW..HIGH` or `NAME=A,B,C`.
///
/// # Errors
/// When it is neither.
pub fn vary(option: &str, text: &str) -> Result<Vary, Hinted> {
    let wrong = |what: &str| {
        Hinted::new(
            format!("{option} `{}` {what}", clean(text)),
            format!("write {option} batch=1..512, or {option} seq=512,1024,2048 for a list"),
        )
    };
    let (name, values) = text.split_once('=').ok_or_else(|| wrong("has no values"))?;
    let name = name.trim();
    if name.is_empty() || !name.chars().all(|letter| letter.is_alphanumeric() || "_-.".contains(letter)) {
        return Err(wrong("has no name that could be used in braces"));
    }
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong("has a value that is not a whole number"));
    let values = match values.split_once("..") {
        Some((low, high)) => {
            let (low, high) = (number(low)?, number(high.trim_start_matches('='))?);
            if low > high {
                return Err(wrong("ends before it begins"));
            }
            Values::Range(low, high)
        }
        None => Values::List(values.split(',').map(number).collect::<Result<_, _>>()?),
    };
    Ok(Vary { name: name.to_owned(), values })
}

/// A product of two names that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The names.
    pub names: [String; 2],
    /// Their product; at least 1.
    pub product: u64,
}

impl Keep {
    /// The error of a product whose names do not suit what is varied.
    pub fn wrong(option: &str, shown: &str) -> Hinted {
        Hinted::new(
            format!("{option} `{}` is not understood", clean(shown)),
            format!("write {option} batch*accum=64, where `batch` is varied and {{accum}} is in the command"),
        )
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = &self.names;
        write!(formatter, "{first}*{second}={}", self.product)
    }
}

/// `A*B=N`.
///
/// # Errors
/// When it is something else, or N is 0.
pub fn keep(option: &str, text: &str) -> Result<Keep, Hinted> {
    let parts = || {
        let (names, product) = text.split_once('=')?;
        let (first, second) = names.split_once('*')?;
        let product = product.trim().parse::<u64>().ok().filter(|product| *product > 0)?;
        Some(Keep { names: [first, second].map(|name| name.trim().to_owned()), product })
    };
    parts().ok_or_else(|| Keep::wrong(option, text))
}

/// `NAME=VALUE`.
///
/// # Errors
/// When there is no name.
pub fn variable(option: &str, text: &str) -> Result<(String, String), Hinted> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Hinted::new(format!("{option} `{}` sets nothing", clean(text)), format!("write {option} NAME=VALUE"))),
    }
}
