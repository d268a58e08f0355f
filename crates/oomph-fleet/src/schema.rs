//! The tables of a dataset: every table and column is declared here once, with what it means.
//!
//! The declaration makes the types of the rows, the Arrow schema of the files, the tables that queries see and the
//! description that `oomph-fleet query --schema` prints. A change of meaning, name or type needs another [`VERSION`], under
//! which files lie in folders of their own; a new column needs none, and is null in older files.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

/// The version of the layout and the tables, as in the folder `v=1`.
pub const VERSION: u32 = 1;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A string.
    Text,
    /// A whole number.
    Int,
    /// A number.
    Real,
    /// True or false.
    Flag,
    /// A moment, in microseconds since 1970 in UTC.
    Time,
}

impl Type {
    /// The type in Arrow and, through it, in Parquet.
    #[must_use]
    pub fn arrow(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::Int => DataType::Int64,
            Self::Real => DataType::Float64,
            Self::Flag => DataType::Boolean,
            Self::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    /// The type in SQL.
    #[must_use]
    pub fn sql(self) -> &'static str {
        match self {
            Self::Text => "varchar",
            Self::Int => "bigint",
            Self::Real => "double",
            Self::Flag => "boolean",
            Self::Time => "timestamptz",
        }
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Type,
    /// What it means.
    pub doc: &'static str,
}

/// A table of a dataset.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name, which is also its folder's.
    pub name: &'static str,
    /// What a row is.
    pub doc: &'static str,
    /// Its columns. Files hold them in this order; the column `day` comes from the folder.
    pub columns: &'static [Column],
}

impl Table {
    /// The schema of the table's files.
    #[must_use]
    pub fn arrow(&self) -> SchemaRef {
        let field = |column: &Column| Field::new(column.name, column.kind.arrow(), true);
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }
}

/// A value of a row. `None` is null: a figure that is not known is never 0.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Of [`Type::Text`].
    Text(Option<String>),
    /// Of [`Type::Int`] or [`Type::Time`].
    Int(Option<i64>),
    /// Of [`Type::Real`].
    Real(Option<f64>),
    /// Of [`Type::Flag`].
    Flag(Option<bool>),
}

impl From<Option<String>> for Cell {
    fn from(value: Option<String>) -> Self {
        Self::Text(value)
    }
}

impl From<Option<i64>> for Cell {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Self {
        Self::Real(value.filter(|value| value.is_finite()))
    }
}

impl From<Option<bool>> for Cell {
    fn from(value: Option<bool>) -> Self {
        Self::Flag(value)
    }
}

/// A row of one of the tables.
pub trait Row {
    /// The place of its table in [`TABLES`].
    const TABLE: usize;

    /// Its values, in the order of the table's columns.
    fn cells(self) -> Vec<Cell>;
}

macro_rules! rust {
    (Text) => {
        String
    };
    (Int) => {
        i64
    };
    (Time) => {
        i64
    };
    (Real) => {
        f64
    };
    (Flag) => {
        bool
    };
}

macro_rules! tables {
    ($($(#[doc = $table_doc:literal])* $place:literal $table:literal $row:ident {
        $($(#[doc = $doc:literal])* $column:ident: $kind:ident,)*
    })*) => {
        $(
            $(#[doc = $table_doc])*
            #[derive(Clone, Debug, Default, PartialEq)]
            pub struct $row {
                $($(#[doc = $doc])* pub $column: Option<rust!($kind)>,)*
            }

            impl Row for $row {
                const TABLE: usize = $place;

                fn cells(self) -> Vec<Cell> {
                    vec![$(Cell::from(self.$column)),*]
                }
            }
        )*

        /// Every table of a dataset that grows by the day.
        pub const TABLES: &[Table] = &[$(Table {
            name: $table,
            doc: concat!($($table_doc),*),
            columns: &[$(Column {
                name: stringify!($column),
                kind: Type::$kind,
                doc: concat!($($doc),*),
            }),*],
        }),*];
    };
}

tables! {
    /// One row for each failure: an error in a log, an out-of-memory error in a snapshot or a dry run, a death in a journal.
    0 "failures" Failure {
        /// The failure: the hash of the file's content, and the failure's number in it.
        id: Text,
        /// The file: the hash of its content.
        file_id: Text,
        /// What it was read from: log, snapshot, dry-run or journal.
        source: Text,
        /// Where the file was found.
        path: Text,
        /// When: the time stamp before it in the log, or the time when the file was last written.
        happened_at: Time,
        /// Whether `happened_at` is a time stamp of the log or recording.
        time_is_recorded: Flag,
        /// Whether a GPU's memory ran out.
        is_gpu_oom: Flag,
        /// How sure that is, 0 to 1.
        certainty: Real,
        /// What it is instead, where it is not a GPU's memory: killed, host-memory, shared-memory, ...
        not_oom: Text,
        /// The library or program whose words these are.
        framework: Text,
        /// Its back end, where that is not CUDA.
        backend: Text,
        /// The program around it.
        front_end: Text,
        /// The releases that print this form.
        era: Text,
        /// The model, where the log or the command names it.
        model: Text,
        /// The card's name, where it is known.
        gpu: Text,
        /// The rank that failed.
        rank: Int,
        /// The GPU's index, as the process sees it.
        device: Int,
        /// The file of the user's innermost line.
        site_file: Text,
        /// That line.
        site_line: Int,
        /// The function that it is in.
        site_function: Text,
        /// Its text.
        site_code: Text,
        /// What the program was doing: forward, backward, optimizer-step, load, ...
        operation: Text,
        /// The likeliest cause.
        cause: Text,
        /// How likely that is, 0 to 1.
        cause_confidence: Real,
        /// Bytes that were requested.
        requested_bytes: Int,
        /// The card's memory in bytes.
        capacity_bytes: Int,
        /// Bytes that the driver reported as free.
        free_bytes: Int,
        /// Bytes of live tensors.
        allocated_bytes: Int,
        /// Bytes that the framework's allocator held.
        reserved_bytes: Int,
        /// Bytes that the process held in all.
        process_bytes: Int,
        /// Bytes of this process outside of the framework's allocator.
        non_framework_bytes: Int,
        /// Bytes on the card that are not this process's.
        other_tenants_bytes: Int,
        /// Bytes that were missing for the request.
        shortfall_bytes: Int,
        /// Bytes that the card would have to hold, where a run or a replay showed it.
        needed_bytes: Int,
        /// Whether the program caught the error and went on.
        survived: Flag,
        /// How often the same message came.
        times: Int,
        /// The line of the log.
        line: Int,
        /// The message, shortened.
        message: Text,
        /// The pattern that recognised it.
        pattern: Text,
    }

    /// One row for each figure and setting that a log states, with the line that it is in.
    1 "facts" Fact {
        /// The failure that it belongs to.
        id: Text,
        /// Its name: requested_bytes, batch_size, torch, ...
        name: Text,
        /// Its value, where that is a whole number; sizes are in bytes.
        number: Int,
        /// Its value as text, where it is not.
        text: Text,
        /// The line of the log.
        line: Int,
    }

    /// One row for each owner of bytes on a card at the moment of the failure, or at the peak.
    2 "owners" Owner {
        /// The card of a snapshot or dry run: the `id` of its row in reports, and of its failure.
        id: Text,
        /// What it was read from: snapshot or dry-run.
        source: Text,
        /// The moment: oom or peak.
        moment: Text,
        /// Whose: parameters, gradients, activations, cached-split, free, ...
        owner: Text,
        /// How many bytes.
        bytes: Int,
        /// In how many blocks.
        blocks: Int,
        /// How sure this is, 0 to 1.
        confidence: Real,
        /// How it is known: named, inferred or recorded.
        known_by: Text,
        /// Whether the bytes are part of what the framework's allocator reserved.
        in_reserved: Flag,
    }

    /// One row for each cause of a failure, of a full card or of memory that grows, the likeliest first.
    3 "causes" Cause {
        /// The failure, or the card of a snapshot or dry run.
        id: Text,
        /// What it was read from: log, snapshot or dry-run.
        source: Text,
        /// Its place among the causes, from 1.
        place: Int,
        /// Why.
        cause: Text,
        /// Whether the row only completes the sum of a card.
        background: Flag,
        /// How likely or how sure, 0 to 1.
        confidence: Real,
        /// The bytes that it accounts for.
        bytes: Int,
        /// Bytes that each further step adds, for a leak.
        each_bytes: Int,
        /// What shows it.
        because: Text,
        /// The file whose line holds the memory or allocates most of it, where that is known.
        site_file: Text,
        /// That line, from 1.
        site_line: Int,
    }

    /// One row for each change that was considered: a remedy, a setting of the allocator, another card.
    4 "what_if" WhatIf {
        /// The failure, or the card of a snapshot or dry run.
        id: Text,
        /// How it is known: advised (from the words of a log), replayed (from a snapshot) or run (by a dry run).
        known_by: Text,
        /// The remedy's identifier in the catalogue.
        remedy: Text,
        /// The allocator's settings, as PYTORCH_CUDA_ALLOC_CONF takes them.
        settings: Text,
        /// Whether these are the settings and the card of the recording.
        as_recorded: Flag,
        /// The card.
        gpu: Text,
        /// That card's memory in bytes.
        capacity_bytes: Int,
        /// Whether the program passes with it.
        survives: Flag,
        /// The peak of reserved bytes with it.
        peak_reserved_bytes: Int,
        /// Bytes that it frees, compared with the program as it was.
        frees_bytes: Int,
    }

    /// One row for each group of live bytes of a snapshot or dry run, by where in the program they come from.
    5 "stacks" Stack {
        /// The card of a snapshot or dry run.
        id: Text,
        /// What the group has in common: stack, line, module, dtype or phase.
        grouped_by: Text,
        /// The line, module, data type or phase; of a stack its frames, innermost first, separated by semicolons.
        name: Text,
        /// Bytes that the program asked for.
        bytes: Int,
        /// In how many blocks.
        blocks: Int,
        /// The owner of most of the bytes.
        owner: Text,
    }

    /// One row for each event of a snapshot. Only with `--events`.
    6 "events" Event {
        /// The card of the snapshot.
        id: Text,
        /// The event's place, from 0.
        event: Int,
        /// When, in microseconds as the recording counts.
        time_us: Int,
        /// What happened: alloc, free_requested, free_completed, segment_alloc, ...
        action: Text,
        /// The address.
        address: Text,
        /// Bytes.
        bytes: Int,
        /// The stream.
        stream: Text,
        /// The innermost line of the stack.
        line: Text,
    }

    /// One row for each card of a snapshot or of a dry run's report, whether or not memory ran out.
    7 "reports" Report {
        /// The card: the hash of the file's content, and the card's index.
        id: Text,
        /// The file: the hash of its content.
        file_id: Text,
        /// What it was read from: snapshot or dry-run.
        source: Text,
        /// Where the file was found.
        path: Text,
        /// When the file was last written.
        written_at: Time,
        /// The answer: fits, oom, recovered, unsure, failed, no-gpu-use, no-oom.
        verdict: Text,
        /// The model, where the command names it.
        model: Text,
        /// The program: the first script of the command.
        program: Text,
        /// The card, where it is known.
        gpu: Text,
        /// The card's index.
        device: Int,
        /// The card's memory in bytes.
        capacity_bytes: Int,
        /// The peak of the process in bytes.
        process_bytes: Int,
        /// The peak of reserved bytes.
        reserved_bytes: Int,
        /// The peak of allocated bytes.
        allocated_bytes: Int,
        /// Bytes of the CUDA contexts.
        context_bytes: Int,
        /// The smallest card that holds the program, in bytes of its memory.
        needed_bytes: Int,
        /// The smallest card of the catalogue that holds it.
        smallest_gpu: Text,
        /// That card's memory in bytes.
        smallest_gpu_bytes: Int,
        /// Optimizer steps that were seen.
        steps: Int,
        /// The program's exit status.
        exit_status: Int,
        /// Wall time in seconds.
        seconds: Real,
        /// The release of PyTorch.
        torch: Text,
        /// The allocator's settings.
        settings: Text,
    }

    /// One row for each start of a program by `oomph run`.
    8 "attempts" Attempt {
        /// The attempt: the hash of its lines in the journal.
        id: Text,
        /// Where the journal was found.
        path: Text,
        /// The command's run, as the journal names it.
        run: Text,
        /// The attempt's number, from 1.
        number: Int,
        /// When it began.
        began_at: Time,
        /// The command.
        command: Text,
        /// The model, where the command names it.
        model: Text,
        /// The card.
        gpu: Text,
        /// Whether it was a rehearsal on a virtual card.
        rehearsal: Flag,
        /// The remedies that it ran with, separated by commas.
        remedies: Text,
        /// The step of the checkpoint that it resumed from.
        resumed_from_step: Int,
        /// The optimizer steps that were made again.
        repeated_steps: Int,
        /// The peak that the dry run predicted, in bytes.
        predicted_peak_bytes: Int,
        /// The peak of reserved bytes.
        reserved_peak_bytes: Int,
        /// The exit status; null where the journal breaks off.
        exit_status: Int,
        /// Wall time in seconds.
        seconds: Real,
        /// Optimizer steps of the training.
        steps: Int,
        /// Samples of an optimizer step.
        effective_batch: Int,
        /// Whether memory ran out.
        out_of_memory: Flag,
        /// The part of the program in which it ran out.
        phase: Text,
        /// What was decided afterwards, and why.
        decision: Text,
    }

    /// One row for each file that was collected.
    9 "files" File {
        /// The hash of its content.
        file_id: Text,
        /// What it is: log, snapshot, dry-run, journal or names.
        kind: Text,
        /// Where it was found.
        path: Text,
        /// Its size in bytes.
        bytes: Int,
        /// When it was last written.
        written_at: Time,
        /// How many failures it holds.
        failures: Int,
        /// What the reader noted, separated by semicolons.
        notes: Text,
    }

    /// One row for each file that could not be read, with the reason.
    10 "bad_files" BadFile {
        /// The hash of its content; of its name, size and time where that could not be read.
        file_id: Text,
        /// What it seems to be.
        kind: Text,
        /// Where it was found.
        path: Text,
        /// Its size in bytes.
        bytes: Int,
        /// When it was last written.
        written_at: Time,
        /// Why it could not be read.
        reason: Text,
    }
}

/// The table of the cards that the catalogue knows. It does not grow; each collect writes it again.
pub const GPUS: Table = Table {
    name: "gpus",
    doc: " One row for each card of the catalogue, for joins.",
    columns: &[
        Column { name: "gpu", kind: Type::Text, doc: " Its identifier." },
        Column { name: "gpu_name", kind: Type::Text, doc: " Its name as CUDA prints it." },
        Column { name: "kind", kind: Type::Text, doc: " desktop, laptop, data-center, mig, ..." },
        Column { name: "memory_gb", kind: Type::Int, doc: " Its nominal memory, in GB." },
        Column { name: "capacity_bytes", kind: Type::Int, doc: " What CUDA reports as its memory, in bytes." },
        Column { name: "context_bytes", kind: Type::Int, doc: " What a CUDA context takes of it, in bytes." },
    ],
};

/// The table of a name.
#[must_use]
pub fn table(name: &str) -> Option<&'static Table> {
    TABLES.iter().find(|table| table.name == name).or((name == GPUS.name).then_some(&GPUS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_cells_of_its_table() {
        fn check<R: Row + Default>() {
            assert_eq!(R::default().cells().len(), TABLES[R::TABLE].columns.len(), "{}", TABLES[R::TABLE].name);
        }
        check::<Failure>();
        check::<Fact>();
        check::<Owner>();
        check::<Cause>();
        check::<WhatIf>();
        check::<Stack>();
        check::<Event>();
        check::<Report>();
        check::<Attempt>();
        check::<File>();
        check::<BadFile>();
        assert_eq!(TABLES[BadFile::TABLE].name, "bad_files");
        assert_eq!(TABLES.len(), BadFile::TABLE + 1);
    }

    #[test]
    fn every_column_says_what_it_is() {
        for table in TABLES.iter().chain([&GPUS]) {
            assert!(table.doc.ends_with('.'), "{}", table.name);
            for column in table.columns {
                assert!(column.doc.ends_with('.') || column.doc.ends_with("..."), "{}.{}", table.name, column.name);
            }
        }
    }
}
