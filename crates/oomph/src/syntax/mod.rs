//! Reads the values of the command line: sizes, durations, margins, cards, ranges.
//!
//! [`crate::cli`] says for each option what reads its value ([`Syntax`]), or what reads several words together
//! ([`Validated`]). Nothing else reads a text of the command line: commands take values, and a wrong one is refused before
//! anything happens. The error is one line with a hint, in oomph's own words; clap carries it to [`refused`].
//!
//! A reader takes the option that the text was given to, with its dashes, and the text.

mod amounts;
mod cards;
mod condition;
mod durations;
mod knobs;
mod plan;
mod ranges;
mod sizes;

use std::ffi::OsStr;

use clap::builder::TypedValueParser;
use clap::{Arg, ArgMatches, Args, FromArgMatches};

use crate::failure::Hinted;

pub use amounts::{Amount, growth, margin};
pub use cards::{NamedCards, cards, counted_cards, gpu, planned_cards};
pub use condition::{Condition, Memory, condition};
pub use durations::{duration, interval};
pub use knobs::{Keep, Values, Vary, keep, variable, vary};
pub use plan::{moment, optimizer, recipe, resolution};
pub use ranges::{Ranks, cells, loopback, ranks, steps};
pub use sizes::{capacity, size, target};

/// A parser of clap that reads a value with a function of this module.
#[derive(Clone)]
pub struct Syntax<F>(pub F);

impl<F, T> TypedValueParser for Syntax<F>
where
    F: Fn(&str, &str) -> Result<T, Hinted> + Clone + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, command: &clap::Command, argument: Option<&Arg>, text: &OsStr) -> Result<T, clap::Error> {
        let option = argument.and_then(Arg::get_long).map(|long| format!("--{long}")).unwrap_or_default();
        let read = self.0.clone();
        let parser = move |text: &str| read(&option, text);
        parser.parse_ref(command, argument, text)
    }
}

/// A value and the text that it was read from, which the command lines that oomph prints repeat.
#[derive(Clone, Debug)]
pub struct Typed<T> {
    /// The value.
    pub value: T,
    /// The text.
    pub text: String,
}

/// A reader that keeps the text.
pub fn typed<T: 'static>(
    read: impl Fn(&str, &str) -> Result<T, Hinted> + Clone + Send + Sync + 'static,
) -> impl Fn(&str, &str) -> Result<Typed<T>, Hinted> + Clone + Send + Sync + 'static {
    move |option: &str, text: &str| Ok(Typed { value: read(option, text)?, text: text.to_owned() })
}

/// Arguments that mean something only together.
pub trait Together: Args {
    /// What they mean.
    type Value;

    /// Reads what was typed.
    ///
    /// # Errors
    /// When it means nothing.
    fn read(self) -> Result<Self::Value, Hinted>;
}

/// The value of arguments that are read together. clap defines them as those of `T`.
#[derive(Debug)]
pub struct Validated<T: Together>(pub T::Value);

impl<T> FromArgMatches for Validated<T>
where
    T: Together,
    T::Value: Clone + Send + Sync + 'static,
{
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches(matches)?.read().or_else(refuse).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T> Args for Validated<T>
where
    T: Together,
    T::Value: Clone + Send + Sync + 'static,
{
    fn group_id() -> Option<clap::Id> {
        T::group_id()
    }

    fn augment_args(command: clap::Command) -> clap::Command {
        T::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        T::augment_args_for_update(command)
    }
}

/// An error of this module as one of clap. Only a parser of a value gives clap's errors a cause.
fn refuse<T: Clone + Send + Sync + 'static>(error: Hinted) -> Result<T, clap::Error> {
    let parser = move |_: &str| Err::<T, Hinted>(error.clone());
    parser.parse_ref(&clap::Command::new("oomph"), None, OsStr::new(""))
}

/// What this module refused, where that is why clap failed.
pub fn refused(error: &clap::Error) -> Option<&Hinted> {
    std::error::Error::source(error)?.downcast_ref()
}

#[cfg(test)]
mod tests;
