//! Collects the crashes of many machines into one dataset, and answers questions about it.
//!
//! - [`collect`] reads logs, snapshots, reports of dry runs and journals, and writes their rows as Parquet, by table and
//!   day. It can be killed at any moment and run again: nothing is lost, and nothing is there twice.
//! - [`query`] asks such a dataset in SQL, with DataFusion inside the process. Every other engine that reads Parquet can
//!   ask the same dataset.
//! - [`schema`] declares the tables, once for all.
//!
//! Design constraints:
//! - A file is hostile. Whatever is in it, it becomes rows or a row in `bad_files`; memory is bounded.
//! - A reader of a table sees complete parts of complete batches and needs no knowledge of manifests.
#![forbid(unsafe_code)]

pub mod collect;
mod found;
pub mod hint;
mod input;
pub mod name;
pub mod query;
pub mod read;
pub mod schema;
mod stamp;
