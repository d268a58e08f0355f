//! What was found in files, as rows of the tables, and the Arrow columns that rows are gathered in.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, RecordBatch, StringBuilder, TimestampMicrosecondBuilder,
};
use datafusion::arrow::error::ArrowError;

use crate::schema::{Cell, Row, TABLES, Table, Type};

/// The longest text of a cell, in bytes. Texts of hostile files have no bounds of their own.
const LONGEST: usize = 8 << 10;

/// A day, in days since 1970 in UTC.
pub type Day = i32;

/// The rows that a file gives.
#[derive(Debug, Default)]
pub struct Found {
    rows: Vec<(usize, Day, Vec<Cell>)>,
}

impl Found {
    /// Adds a row.
    pub fn push<R: Row>(&mut self, day: Day, row: R) {
        self.rows.push((R::TABLE, day, row.cells()));
    }

    /// How many rows of a table there are.
    #[must_use]
    pub fn count<R: Row>(&self) -> usize {
        self.rows.iter().filter(|(table, _, _)| *table == R::TABLE).count()
    }

    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether the table has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Rows of many files, by table and day.
#[derive(Default)]
pub struct Gathered {
    parts: BTreeMap<(usize, Day), Columns>,
    bytes: usize,
}

impl Gathered {
    /// Adds the rows of a file.
    pub fn add(&mut self, found: Found) {
        for (table, day, cells) in found.rows {
            let columns = self.parts.entry((table, day)).or_insert_with(|| Columns::new(&TABLES[table]));
            self.bytes += columns.push(cells);
        }
    }

    /// About how many bytes the rows take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The parts: a table, a day, and the rows.
    pub fn into_parts(self) -> impl Iterator<Item = (&'static Table, Day, Columns)> {
        self.parts.into_iter().map(|((table, day), columns)| (&TABLES[table], day, columns))
    }
}

enum Builder {
    Text(StringBuilder),
    Int(Int64Builder),
    Real(Float64Builder),
    Flag(BooleanBuilder),
    Time(TimestampMicrosecondBuilder),
}

/// Rows of one table, by column.
pub struct Columns {
    table: &'static Table,
    builders: Vec<Builder>,
}

impl Columns {
    /// No rows.
    #[must_use]
    pub fn new(table: &'static Table) -> Self {
        let builder = |kind| match kind {
            Type::Text => Builder::Text(StringBuilder::new()),
            Type::Int => Builder::Int(Int64Builder::new()),
            Type::Real => Builder::Real(Float64Builder::new()),
            Type::Flag => Builder::Flag(BooleanBuilder::new()),
            Type::Time => Builder::Time(TimestampMicrosecondBuilder::new().with_timezone("UTC")),
        };
        Self { table, builders: table.columns.iter().map(|column| builder(column.kind)).collect() }
    }

    /// Adds a row, and returns about how many bytes it takes.
    pub fn push(&mut self, cells: Vec<Cell>) -> usize {
        let mut bytes = 0;
        for (builder, cell) in self.builders.iter_mut().zip(cells) {
            bytes += 8;
            match (builder, cell) {
                (Builder::Text(builder), Cell::Text(value)) => {
                    let value = value.as_deref().map(shortened);
                    bytes += value.map_or(0, str::len);
                    builder.append_option(value);
                }
                (Builder::Int(builder), Cell::Int(value)) => builder.append_option(value),
                (Builder::Time(builder), Cell::Int(value)) => builder.append_option(value),
                (Builder::Real(builder), Cell::Real(value)) => builder.append_option(value),
                (Builder::Flag(builder), Cell::Flag(value)) => builder.append_option(value),
                // The declaration of the tables makes cells and builders from the same types.
                (builder, _) => builder.append_null(),
            }
        }
        bytes
    }

    /// The rows as Arrow holds them.
    ///
    /// # Errors
    /// Never for rows of the declared tables.
    pub fn finish(mut self) -> Result<RecordBatch, ArrowError> {
        let arrays = self.builders.iter_mut().map(Builder::finish).collect();
        RecordBatch::try_new(self.table.arrow(), arrays)
    }
}

impl Builder {
    fn append_null(&mut self) {
        match self {
            Self::Text(builder) => builder.append_null(),
            Self::Int(builder) => builder.append_null(),
            Self::Real(builder) => builder.append_null(),
            Self::Flag(builder) => builder.append_null(),
            Self::Time(builder) => builder.append_null(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Text(builder) => Arc::new(builder.finish()),
            Self::Int(builder) => Arc::new(builder.finish()),
            Self::Real(builder) => Arc::new(builder.finish()),
            Self::Flag(builder) => Arc::new(builder.finish()),
            Self::Time(builder) => Arc::new(builder.finish()),
        }
    }
}

/// A text without what is beyond [`LONGEST`].
fn shortened(text: &str) -> &str {
    match text.len() {
        0..=LONGEST => text,
        _ => {
            let end = (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            &text[..end]
        }
    }
}

/// A figure as the tables hold it. What no computer can hold is a lie of the file, and null: a sum over many rows must not
/// overflow.
#[must_use]
pub fn figure(value: u64) -> Option<i64> {
    i64::try_from(value).ok().filter(|value| *value < 1 << 53)
}

/// The word that JSON has for a value of an enumeration.
pub fn word(value: &impl serde::Serialize) -> Option<String> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => Some(word),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Array;

    use super::*;
    use crate::schema::{Fact, Failure};

    #[test]
    fn rows_are_gathered_by_table_and_day() {
        let mut found = Found::default();
        found.push(1, Fact { id: Some("a".into()), number: Some(7), ..Fact::default() });
        found.push(2, Fact { id: Some("b".into()), text: Some("é".repeat(LONGEST)), ..Fact::default() });
        found.push(2, Failure { certainty: Some(f64::NAN), happened_at: Some(5), ..Failure::default() });
        let mut gathered = Gathered::default();
        gathered.add(found);
        let parts: Vec<_> =
            gathered.into_parts().map(|(table, day, columns)| (table.name, day, columns.finish().unwrap())).collect();
        let names: Vec<_> = parts.iter().map(|(name, day, rows)| (*name, *day, rows.num_rows())).collect();
        assert_eq!(names, [("failures", 2, 1), ("facts", 1, 1), ("facts", 2, 1)]);
        assert!(parts[0].2.column_by_name("certainty").unwrap().is_null(0));
        let text = parts[2].2.column_by_name("text").unwrap();
        assert!(text.get_array_memory_size() < 4 * LONGEST);
    }

    #[test]
    fn impossible_figures_are_null() {
        assert_eq!(figure(80 << 30), Some(80 << 30));
        assert_eq!(figure(u64::MAX), None);
    }
}
