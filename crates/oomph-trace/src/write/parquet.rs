//! Writes the events as a Parquet table, for DuckDB, pandas, Polars and the like.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::{device_name, pickle};
use crate::{Device, Event, FrameId, StringId, Trace};

/// The table. Unsigned columns are so marked; `time_us` is a plain number where the writer's epoch is not known.
const SCHEMA: &str = "
message events {
  required binary device (STRING);
  required int64 event (INTEGER(64, false));
  required int64 time_us;
  required binary action (STRING);
  required int64 address (INTEGER(64, false));
  required int64 size (INTEGER(64, false));
  required int64 stream (INTEGER(64, false));
  optional binary pool (STRING);
  optional binary label (STRING);
  optional group stack (LIST) {
    repeated group list {
      required binary element (STRING);
    }
  }
}";

/// Events in a row group.
const GROUP: usize = 1 << 18;

/// Events whose values are in memory at once.
const BATCH: usize = 1 << 12;

/// Writes the events of every device, one a row: `device`, `event` (from 0, of its device), `time_us`, `action`,
/// `address`, `size`, `stream`, `pool`, `label`, and `stack` as a list of `function (file:line)`, the innermost first.
///
/// # Errors
/// When writing fails.
pub fn parquet(trace: &Trace, out: impl Write + Send) -> io::Result<()> {
    table(trace, out).map_err(|error| match error {
        ParquetError::External(inner) => io::Error::other(inner),
        error => io::Error::other(error),
    })
}

fn table(trace: &Trace, out: impl Write + Send) -> Result<(), ParquetError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    let frames: Vec<ByteArray> = (0..trace.frames.len()).map(|id| frame(trace, FrameId(id as u32))).collect();
    for device in &trace.devices {
        let rows = Rows { trace, device, name: device_name(device).as_str().into(), frames: &frames };
        for start in (0..device.events.len()).step_by(GROUP) {
            let mut group = writer.next_row_group()?;
            rows.group(start..(start + GROUP).min(device.events.len()), &mut group)?;
            group.close()?;
        }
    }
    writer.close().map(|_| ())
}

fn frame(trace: &Trace, id: FrameId) -> ByteArray {
    let Some(frame) = trace.frames.get(id) else { return "".into() };
    let (name, file) = (trace.strings.get(frame.name), trace.strings.get(frame.file));
    if file.is_empty() { name.into() } else { format!("{name} ({file}:{})", frame.line).as_str().into() }
}

/// The rows of one device.
struct Rows<'t> {
    trace: &'t Trace,
    device: &'t Device,
    name: ByteArray,
    frames: &'t [ByteArray],
}

impl Rows<'_> {
    fn group<W: Write + Send>(
        &self,
        rows: Range<usize>,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        let text = |text: &str| Some(ByteArray::from(text));
        self.texts(&rows, group, |_| Some(self.name.clone()))?;
        self.numbers(&rows, group, |index, _| index as i64)?;
        self.numbers(&rows, group, |_, event| event.time_us)?;
        self.texts(&rows, group, |event| text(pickle::action(event.action)))?;
        self.numbers(&rows, group, |_, event| event.address as i64)?;
        self.numbers(&rows, group, |_, event| event.size as i64)?;
        self.numbers(&rows, group, |_, event| event.stream as i64)?;
        self.texts(&rows, group, |event| event.pool.and_then(|pool| text(&format!("{}.{}", pool.0, pool.1))))?;
        self.texts(&rows, group, |event| {
            (event.label != StringId::EMPTY).then(|| self.trace.strings.get(event.label).into())
        })?;
        self.stacks(&rows, group)
    }

    /// The events of some rows, in batches.
    fn batches(&self, rows: &Range<usize>) -> impl Iterator<Item = impl Iterator<Item = (usize, Event)>> {
        let end = rows.end;
        rows.clone().step_by(BATCH).map(move |start| {
            (start..(start + BATCH).min(end)).filter_map(|index| Some((index, self.device.events.get(index)?)))
        })
    }

    fn numbers<W: Write + Send>(
        &self,
        rows: &Range<usize>,
        group: &mut SerializedRowGroupWriter<'_, W>,
        value: impl Fn(usize, Event) -> i64,
    ) -> Result<(), ParquetError> {
        let Some(mut column) = group.next_column()? else { return Ok(()) };
        for batch in self.batches(rows) {
            let values: Vec<i64> = batch.map(|(index, event)| value(index, event)).collect();
            column.typed::<Int64Type>().write_batch(&values, None, None)?;
        }
        column.close()
    }

    /// A column of texts; where one is absent the column must be an optional one.
    fn texts<W: Write + Send>(
        &self,
        rows: &Range<usize>,
        group: &mut SerializedRowGroupWriter<'_, W>,
        value: impl Fn(Event) -> Option<ByteArray>,
    ) -> Result<(), ParquetError> {
        let Some(mut column) = group.next_column()? else { return Ok(()) };
        for batch in self.batches(rows) {
            let cells: Vec<Option<ByteArray>> = batch.map(|(_, event)| value(event)).collect();
            let present: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
            let values: Vec<ByteArray> = cells.into_iter().flatten().collect();
            column.typed::<ByteArrayType>().write_batch(&values, Some(&present), None)?;
        }
        column.close()
    }

    fn stacks<W: Write + Send>(
        &self,
        rows: &Range<usize>,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        let Some(mut column) = group.next_column()? else { return Ok(()) };
        for batch in self.batches(rows) {
            // Parquet's levels: 0 is not a list, 2 an element; an element that goes on a list repeats at level 1.
            let (mut values, mut present, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
            for (_, event) in batch {
                let before = values.len();
                for id in self.trace.stacks.innermost_first(event.stack) {
                    repeated.push(i16::from(values.len() > before));
                    present.push(2);
                    values.push(self.frames.get(id.0 as usize).cloned().unwrap_or_else(|| "".into()));
                }
                if values.len() == before {
                    repeated.push(0);
                    present.push(0);
                }
            }
            column.typed::<ByteArrayType>().write_batch(&values, Some(&present), Some(&repeated))?;
        }
        column.close()
    }
}
