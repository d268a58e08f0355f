//! Popular advice that is wrong or useless in a situation, and why.

use serde::Deserialize;

use crate::condition::When;

/// What people are advised to do, and when it does not help.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advice {
    /// Its name in the catalogue.
    pub id: String,
    /// The advice as people give it.
    pub title: String,
    /// When it is wrong or useless; what is not known does not count as true.
    pub when: When,
    /// Why, in one sentence; names in braces are filled in from the figures.
    pub because: String,
    /// Who says so.
    pub source: String,
}
