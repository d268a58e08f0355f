//! Prints an answer as a table for people, JSON, CSV or Arrow.

use std::io::Write;

use anyhow::{Context, Result};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::csv::WriterBuilder as CsvWriter;
use datafusion::arrow::datatypes::{DataType, Int64Type, Schema};
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::json::WriterBuilder as JsonWriter;
use datafusion::arrow::json::writer::JsonArray;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use oomph_report::clean;
use serde_json::json;

use super::engine::Rows;
use super::functions::FUNCTIONS;
use crate::schema::{GPUS, TABLES};

/// Rows that a table for people has at most.
const MOST_ROWS: usize = 1000;
/// What a column keeps of its width, in characters, in a narrow terminal.
const LEAST_WIDTH: usize = 12;
/// The width where there is no terminal, in characters: everything is shown.
const WIDE: usize = 4000;

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table for people
    #[default]
    Table,
    /// One JSON document
    Json,
    /// CSV with a line of names
    Csv,
    /// Arrow's IPC stream
    Arrow,
}

/// Writes an answer.
///
/// # Errors
/// When the answer cannot be computed or written.
pub fn write(rows: Rows, format: Format, to: &mut dyn Write) -> Result<()> {
    let failed = "cannot write the answer";
    match format {
        Format::Table => {
            let (table, more) = text(rows, width())?;
            to.write_all(table.as_bytes()).context(failed)?;
            if more {
                let _ = writeln!(
                    std::io::stderr(),
                    "note: only the first {MOST_ROWS} rows are shown; --format csv writes all of them"
                );
            }
            Ok(())
        }
        Format::Csv => {
            let mut writer = CsvWriter::new().with_header(true).build(&mut *to);
            // An answer without rows has its names all the same.
            writer.write(&RecordBatch::new_empty(rows.schema())).context(failed)?;
            for batch in rows {
                writer.write(&batch?).context(failed)?;
            }
            Ok(())
        }
        Format::Arrow => {
            let mut writer = StreamWriter::try_new(&mut *to, &rows.schema()).context(failed)?;
            for batch in rows {
                writer.write(&batch?).context(failed)?;
            }
            writer.finish().context(failed)
        }
        Format::Json => {
            let names: Vec<String> = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
            write!(to, "{{\"schema\":\"oomph.query/1\",\"columns\":{},\"rows\":", json!(names)).context(failed)?;
            let mut writer = JsonWriter::new().with_explicit_nulls(true).build::<_, JsonArray>(&mut *to);
            for batch in rows {
                writer.write(&batch?).context(failed)?;
            }
            writer.finish().context(failed)?;
            drop(writer);
            to.write_all(b"}\n").context(failed)
        }
    }
}

/// The width of the terminal in characters.
#[must_use]
pub fn width() -> usize {
    terminal_size::terminal_size().map_or(WIDE, |(width, _)| usize::from(width.0))
}

/// An answer as a table of a width, and whether it has more rows than are shown. A column whose name ends in `_bytes` is
/// shown in GiB, MiB or KiB.
///
/// # Errors
/// When the answer cannot be computed.
pub fn text(rows: Rows, width: usize) -> Result<(String, bool)> {
    let schema = rows.schema();
    let (cells, more) = cells(rows, MOST_ROWS)?;
    Ok((table(&schema, &cells, width), more))
}

/// The cells of the first rows as people read them, and whether there are more rows.
pub(super) fn cells(rows: Rows, most: usize) -> Result<(Vec<Vec<String>>, bool)> {
    let mut cells = Vec::new();
    for batch in rows {
        let batch = batch?;
        let schema = batch.schema();
        for row in 0..batch.num_rows() {
            if cells.len() == most {
                return Ok((cells, true));
            }
            let shown = batch
                .columns()
                .iter()
                .zip(schema.fields())
                .map(|(column, field)| cell(field.name(), column.as_ref(), row));
            cells.push(shown.collect::<Result<Vec<String>>>()?);
        }
    }
    Ok((cells, false))
}

fn cell(name: &str, column: &dyn Array, row: usize) -> Result<String> {
    if column.is_null(row) {
        return Ok("-".to_owned());
    }
    if name.ends_with("bytes") && column.data_type() == &DataType::Int64 {
        let bytes = column.as_primitive::<Int64Type>().value(row);
        let shown = oomph_gpu::size::format(bytes.unsigned_abs());
        return Ok(if bytes < 0 { format!("-{shown}") } else { shown });
    }
    let formatter = ArrayFormatter::try_new(column, &FormatOptions::default())?;
    Ok(clean(&formatter.value(row).try_to_string()?).into_owned())
}

/// Whether a column is of numbers, which are aligned to the right.
pub(super) fn is_number(kind: &DataType) -> bool {
    kind.is_numeric()
}

fn table(schema: &Schema, rows: &[Vec<String>], width: usize) -> String {
    let names: Vec<String> = schema.fields().iter().map(|field| clean(field.name()).into_owned()).collect();
    let mut widths: Vec<usize> = names.iter().map(|name| name.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    // The widest column gives way until the table fits.
    let gaps = 2 * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > width {
        match widths.iter_mut().max() {
            Some(widest) if *widest > LEAST_WIDTH => *widest -= 1,
            _ => break,
        }
    }
    let mut text = String::new();
    let mut line = |cells: &[String]| {
        let mut out = String::new();
        for ((cell, width), field) in cells.iter().zip(&widths).zip(schema.fields()) {
            let shown = shortened(cell, *width);
            let pad = " ".repeat(width.saturating_sub(shown.chars().count()));
            if !out.is_empty() {
                out.push_str("  ");
            }
            if is_number(field.data_type()) {
                out.push_str(&pad);
                out.push_str(&shown);
            } else {
                out.push_str(&shown);
                out.push_str(&pad);
            }
        }
        text.push_str(out.trim_end());
        text.push('\n');
    };
    line(&names);
    line(&widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>());
    for row in rows {
        line(row);
    }
    text
}

/// A text with its middle left out where it is too long: the start of a path says as much as its end.
fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width || width < 5 {
        return text.chars().take(width).collect();
    }
    let head = (width - 2) / 2;
    let tail = width - 2 - head;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(length - tail).collect();
    format!("{start}..{end}")
}

/// The tables and functions, for people.
#[must_use]
pub fn schema_text() -> String {
    let mut text = String::new();
    for table in TABLES.iter().chain([&GPUS]) {
        text.push_str(&format!("{}:{}\n", table.name, table.doc));
        let by_day = (table.name != GPUS.name).then_some(("day", "date", " The day of the failure or file, in UTC."));
        let columns = table.columns.iter().map(|column| (column.name, column.kind.sql(), column.doc));
        for (name, kind, doc) in columns.chain(by_day) {
            text.push_str(&format!("  {name:<20} {kind:<11}{doc}\n"));
        }
        text.push('\n');
    }
    text.push_str("functions:\n");
    for (name, doc) in FUNCTIONS {
        text.push_str(&format!("  {name:<20} {doc}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Field;

    use super::*;

    #[test]
    fn a_table_fits_the_terminal() {
        let schema = Schema::new(vec![
            Field::new("site_file", DataType::Utf8, true),
            Field::new("failures", DataType::Int64, true),
        ]);
        let rows = [
            vec!["/home/ada/projects/very/long/folder/train.py".to_owned(), "12".to_owned()],
            vec!["a.py".to_owned(), "3".to_owned()],
        ];
        let wide = table(&schema, &rows, WIDE);
        assert!(wide.contains("/home/ada/projects/very/long/folder/train.py        12\n"), "{wide}");
        let narrow = table(&schema, &rows, 40);
        assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
        assert!(narrow.contains("/home/ada/proj..older/train.py        12"), "{narrow}");
    }

    #[test]
    fn the_schema_is_written_with_every_table() {
        let text = schema_text();
        assert!(text.contains("failures: One row for each failure"), "{text}");
        assert!(text.contains("requested_bytes      bigint      Bytes that were requested."), "{text}");
        assert!(text.contains("stack_has(id, text)"), "{text}");
    }
}
