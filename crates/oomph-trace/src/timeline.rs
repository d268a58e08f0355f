//! Reads what `torch.profiler`'s `export_memory_timeline` writes, as `.json` and as `.raw.json.gz`.
//!
//! Neither says which device it is, nor any address: addresses are made up ([`Pairing`]), and the label of an event is
//! the category that the profiler gave the bytes. `.json` is `[times in us, [0, bytes of each category] at each time]`; `.raw.json` is a
//! list of `[time in ns, action, bytes, category]`.

use serde::de::{Error, SeqAccess};

use crate::json::{Scalar, TOO_LARGE};
use crate::pairing::{PAIRED, Pairing};
use crate::{Action, Device, Event, Note, SourceKind, StackId, StringId, Trace};

/// The profiler's categories in the order of its numbers (`_CATEGORY_TO_INDEX` of PyTorch 2.0 to 2.15).
const CATEGORIES: [&str; 8] =
    ["parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail", "unknown"];

/// Actions of the raw timeline.
const PREEXISTING: i64 = 1;
const DESTROY: i64 = 4;

pub(crate) struct Timeline {
    memory: u64,
    members: usize,
    trace: Trace,
    device: Device,
    categories: [StringId; CATEGORIES.len()],
    /// The first member: the times of a `.json`, or the first row of a `.raw.json`.
    first: Vec<i64>,
    /// Bytes of each category so far, in a `.json`.
    sizes: [i64; CATEGORIES.len()],
    rows: usize,
    pairing: Pairing,
}

impl Timeline {
    pub(crate) fn new(memory: u64) -> Self {
        let mut trace = Trace { source: SourceKind::Timeline, ..Trace::default() };
        let categories = CATEGORIES.map(|name| trace.strings.intern(name));
        let sizes = [0; CATEGORIES.len()];
        let (device, first, pairing) = (Device::default(), Vec::new(), Pairing::default());
        Self { memory, members: 0, trace, device, categories, first, sizes, rows: 0, pairing }
    }

    /// A member of the outermost list.
    pub(crate) fn member<'de, A: SeqAccess<'de>>(&mut self, mut list: A) -> Result<(), A::Error> {
        self.members += 1;
        match self.members {
            1 => {
                while let Some(value) = list.next_element::<Scalar>()? {
                    self.first.push(value.change("a number").map_err(A::Error::custom)?.unwrap_or(0));
                    self.check()?;
                }
            }
            2 => {
                // The sizes are a list of lists, a second row is a list of numbers.
                let mut row = Vec::new();
                while let Some(member) = list.next_element::<NumberOrRow>()? {
                    match member {
                        NumberOrRow::Number(number) => {
                            row.push(number.change("a number").map_err(A::Error::custom)?.unwrap_or(0));
                        }
                        NumberOrRow::Row(sizes) => self.sizes(&sizes).map_err(A::Error::custom)?,
                    }
                    self.check()?;
                }
                if self.rows == 0 {
                    let first = std::mem::take(&mut self.first);
                    self.row(&first);
                    self.row(&row);
                }
            }
            _ => {
                let mut row = [0; 4];
                let mut length = 0;
                while let Some(value) = list.next_element::<Scalar>()? {
                    if let Some(slot) = row.get_mut(length) {
                        *slot = value.change("a number").map_err(A::Error::custom)?.unwrap_or(0);
                    }
                    length += 1;
                }
                self.row(&row[..length.min(4)]);
                self.check()?;
            }
        }
        Ok(())
    }

    fn check<E: Error>(&self) -> Result<(), E> {
        let held = self.device.events.held() + self.first.capacity() * 8 + self.pairing.held();
        if held as u64 > self.memory { Err(E::custom(TOO_LARGE)) } else { Ok(()) }
    }

    /// A row of a `.raw.json`.
    fn row(&mut self, row: &[i64]) {
        let &[time_ns, action, bytes, category] = row else { return };
        if !(PREEXISTING..=DESTROY).contains(&action) {
            return;
        }
        // What was there before has the time -1.
        self.change(time_ns.max(0) / 1000, bytes, usize::try_from(category).unwrap_or(usize::MAX));
    }

    /// A row of a `.json`: the bytes of each category, after a zero to stack them on.
    fn sizes(&mut self, sizes: &[Scalar]) -> Result<(), String> {
        let Some(&time_us) = self.first.get(self.rows) else { return Err("there are more sizes than times".into()) };
        self.rows += 1;
        for (category, size) in sizes.iter().skip(1).take(CATEGORIES.len()).enumerate() {
            let size = size.bytes("a size")?.unwrap_or(0) as i64;
            let change = size.saturating_sub(self.sizes[category]);
            self.sizes[category] = size;
            self.change(time_us, change, category);
        }
        Ok(())
    }

    /// Bytes that came or went.
    fn change(&mut self, time_us: i64, bytes: i64, category: usize) {
        if bytes == 0 {
            return;
        }
        let label = self.categories[category.min(CATEGORIES.len() - 1)];
        let event = Event {
            action: if bytes > 0 { Action::Alloc } else { Action::FreeCompleted },
            address: 0,
            size: bytes.unsigned_abs(),
            stream: 0,
            pool: None,
            stack: StackId::NONE,
            time_us,
            label,
        };
        self.pairing.place(event, label, |event| self.device.events.push(event));
    }

    /// The trace; `None` when the lists are something else.
    pub(crate) fn finish(mut self) -> Option<Trace> {
        if self.members == 1 {
            let first = std::mem::take(&mut self.first);
            self.row(&first);
        }
        if self.device.events.is_empty() && self.rows == 0 {
            return None;
        }
        self.trace.devices.push(self.device);
        self.trace.notes.push(Note { offset: None, text: PAIRED.into() });
        Some(self.trace)
    }
}

/// A member of a list that is either a row of numbers or a list of rows.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum NumberOrRow {
    Row(Vec<Scalar>),
    Number(Scalar),
}
