//! Queries a dataset: SQL with DataFusion, the usual questions by name, and the answer in several forms.

mod engine;
mod functions;
mod output;
mod page;
mod usual;

pub use engine::{Engine, Rows};
pub use output::{Format, schema_text, text, width, write};
pub use page::page;
pub use usual::{USUAL, Usual, find};
