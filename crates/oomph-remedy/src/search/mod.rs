//! Searches for remedies that make a program fit, cheapest first. It starts no process: a [`Bench`] does that.
//!
//! 1. [`Catalogue::candidates`](crate::Catalogue::candidates) are the remedies that may help here, in the order of what
//!    they cost.
//! 2. A [`Forecast`] says from the owners of the peak how much each of them may free, so that what cannot matter is not
//!    tried.
//! 3. [`search`] tries single remedies, then mixes: it adds the cheapest ones until the program fits, and takes out again
//!    what it fits without.
//!
//! Only what was tried and fitted is called a fix.

mod candidates;
mod forecast;
mod mix;
mod walk;

pub use candidates::{Candidate, Prefer, Wishes};
pub use forecast::{Forecast, Measured};
pub use mix::{Dose, Mix};
pub use walk::{Bench, Fix, Found, Ran, search};

#[cfg(test)]
mod tests;
