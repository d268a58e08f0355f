//! Answers `nvidia-smi` for the virtual cards of a run: its options, its fields, its layouts and its exit statuses.
//!
//! Programs start `nvidia-smi` to choose a card or a batch size, and many do not run without it. The figures come from
//! NVML, as those of the real tool do, so that both say the same of a virtual card. Names, units, layouts and statuses
//! are those that the tool documents (`nvidia-smi --help-query-gpu`, its manual page) and that its output shows in public
//! logs of the driver series 550 to 590. A property that NVML does not report of a virtual card reads `[N/A]`, as it does for
//! cards that lack it.
#![forbid(unsafe_code)]

mod columns;
mod csv;
mod log;
mod machine;
mod options;
mod section;
mod table;
mod topology;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

pub use machine::{Card, Machine, Memory, Process};

use crate::options::{Every, Request, What};

/// An argument or a flag is invalid, by the tool's manual page.
const INVALID: u8 = 2;
/// The operation is not available on the card.
const UNAVAILABLE: u8 = 3;
/// A query to find an object was unsuccessful.
const NOT_FOUND: u8 = 6;
/// The driver is not loaded.
const NO_DRIVER: u8 = 9;

/// What ends a call: text for the standard output or error, and the exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) text: String,
    pub(crate) status: u8,
    /// The tool's own refusals go to its standard output, as they do in its logs. Ours go to the standard error.
    pub(crate) ours: bool,
}

impl Refusal {
    fn tools(status: u8, text: impl Into<String>) -> Self {
        Self { text: text.into(), status, ours: false }
    }

    fn ours(status: u8, text: impl Into<String>) -> Self {
        Self { text: text.into(), status, ours: true }
    }
}

/// Does what `nvidia-smi ARGUMENTS` does, asking the NVML at `library`, and gives the exit status.
pub fn run(arguments: &[OsString], library: &OsStr) -> u8 {
    match attempt(arguments, library) {
        Ok(()) => 0,
        Err(refusal) => {
            let text = format!("{}\n", refusal.text);
            // Nobody is left to hear of a failure to write.
            let _ = if refusal.ours {
                io::stderr().write_all(text.as_bytes())
            } else {
                io::stdout().write_all(text.as_bytes())
            };
            refusal.status
        }
    }
}

fn attempt(arguments: &[OsString], library: &OsStr) -> Result<(), Refusal> {
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let request = options::parse(&words)?;
    let mut out: Box<dyn Write> = match &request.file {
        Some(path) => Box::new(File::create(path).map_err(|error| {
            Refusal::ours(INVALID, format!("oomph: cannot write {path}: {error}; name another file with -f"))
        })?),
        None => Box::new(io::stdout()),
    };
    let mut is_first = true;
    loop {
        let text = answer(&request, is_first, &|| Machine::read(library))?;
        // A reader that went away has seen enough.
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            return Ok(());
        }
        match request.every {
            Every::Once => return Ok(()),
            Every::After(pause) => std::thread::sleep(pause.max(Duration::from_millis(1))),
        }
        is_first = false;
    }
}

/// One answer. The header of a list of values is printed with the first only.
fn answer(request: &Request, is_first: bool, read: &dyn Fn() -> Result<Machine, String>) -> Result<String, Refusal> {
    if let What::Text(text) = &request.what {
        return Ok(text.clone());
    }
    let mut machine = read().map_err(|_| Refusal::tools(NO_DRIVER, NO_DRIVER_TEXT))?;
    machine.select(&request.cards)?;
    Ok(match &request.what {
        What::Summary => table::text(&machine),
        What::List => machine.cards.iter().map(|card| format!("{}\n", card.line())).collect(),
        What::Log { sections, xml } => log::text(&machine, sections, *xml),
        What::Cards { fields, format } => csv::cards(&machine, fields, *format, is_first)?,
        What::Processes { fields, format } => csv::processes(&machine, fields, *format, is_first)?,
        What::Topology => topology::matrix(&machine),
        What::Versions => machine.versions(),
        What::Text(text) => text.clone(),
    })
}

const NO_DRIVER_TEXT: &str = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that \
    the latest NVIDIA driver is installed and running.\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str], machine: &Machine) -> Result<String, Refusal> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        answer(&options::parse(&words)?, true, &|| Ok(machine.clone()))
    }

    #[test]
    fn a_batch_is_chosen_from_free_memory() {
        let machine = Machine::example(1);
        let asked = asked(&["--query-gpu=memory.free", "--format=csv,noheader,nounits"], &machine);
        assert_eq!(asked, Ok("11000\n".to_owned()));
    }

    #[test]
    fn a_card_that_is_not_there_is_not_found() {
        let machine = Machine::example(2);
        assert_eq!(asked(&["-L", "-i", "1"], &machine).unwrap().lines().count(), 1);
        let refused = asked(&["--query-gpu=name", "--format=csv", "-i", "2"], &machine).unwrap_err();
        assert_eq!((refused.status, refused.text.as_str()), (6, "No devices were found"));
    }

    #[test]
    fn without_cards_the_driver_is_missed() {
        let request = options::parse(&[]).unwrap();
        let refused = answer(&request, true, &|| Err("driver not loaded".to_owned())).unwrap_err();
        assert_eq!(refused.status, 9);
    }
}
