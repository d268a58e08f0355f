//! Creates a ledger, and reads one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::layout::{
    DESCRIPTION_BYTES, DeviceWord, FILE_BYTES, HeaderWord, Kind, MAGIC, MAX_DEVICES, MAX_NOTES, MAX_PROCESSES,
    NOTE_BYTES, NoteKind, VERSION, description_offset, device_word, note_offset, process_device_word, process_word,
};
use crate::{DeviceDescription, MissingCard, layout};

/// The state of a ledger when it was read.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    devices: Vec<DeviceUse>,
    processes: Vec<ProcessUse>,
    notes: Vec<Note>,
}

/// A card and what all processes together took from it.
#[derive(Clone, Debug, Default)]
pub struct DeviceUse {
    /// The card.
    pub description: DeviceDescription,
    /// Bytes in use when the ledger was read.
    pub used_bytes: u64,
    /// The most bytes that were in use at once, by all processes together.
    pub peak_bytes: u64,
    /// How many allocations the card refused.
    pub refusals: u64,
    /// The size of the last refused allocation, in bytes.
    pub refused_bytes: u64,
}

/// One process that created a context on at least one card.
#[derive(Clone, Debug, Default)]
pub struct ProcessUse {
    /// Its process id.
    pub pid: u32,
    /// Its books on each card, by device index.
    pub devices: Vec<ProcessDeviceUse>,
}

/// What one process took from one card.
#[derive(Clone, Debug, Default)]
pub struct ProcessDeviceUse {
    /// The bytes that it held when the ledger was read.
    pub used_bytes: u64,
    /// The most bytes it held at once: what `nvidia-smi` would have shown for it.
    pub peak_bytes: u64,
    /// Bytes per [`Kind`] at that moment.
    pub at_peak: [u64; Kind::ALL.len()],
    /// How many of its allocations were refused.
    pub refusals: u64,
}

impl ProcessDeviceUse {
    /// Bytes of a kind at the process's peak.
    #[must_use]
    pub fn at_peak(&self, kind: Kind) -> u64 {
        self.at_peak[kind as usize]
    }
}

/// A line that the virtual GPU left for the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What it says.
    pub kind: NoteKind,
    /// The warning's sentence, or the function's name.
    pub text: String,
}

impl Ledger {
    /// Makes the file at `path` for these cards (at most [`MAX_DEVICES`]).
    ///
    /// # Errors
    /// Any error of the file system, or `InvalidInput` for more cards than a ledger can hold.
    pub fn create(path: &Path, devices: &[DeviceDescription]) -> io::Result<()> {
        if devices.len() > MAX_DEVICES {
            let message = format!("a run has at most {MAX_DEVICES} virtual cards, {} were asked for", devices.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        // Written and not only set: every process maps the file, and one that touches a page for which the disk has no
        // room is killed. A full disk is to be found out here.
        file.write_all(&vec![0; FILE_BYTES])?;
        for (word, value) in
            [(HeaderWord::Magic, MAGIC), (HeaderWord::Version, VERSION), (HeaderWord::Devices, devices.len() as u64)]
        {
            file.seek(SeekFrom::Start(word as u64 * 8))?;
            file.write_all(&value.to_le_bytes())?;
        }
        for (index, device) in devices.iter().enumerate() {
            file.seek(SeekFrom::Start(description_offset(index) as u64))?;
            file.write_all(&device.encode())?;
        }
        Ok(())
    }

    /// Reads the ledger at `path`.
    ///
    /// # Errors
    /// Any error of the file system, or `InvalidData` where the file is not a ledger of this version.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut bytes = Vec::with_capacity(FILE_BYTES);
        File::open(path)?.take(FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Self::parse(&bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{} is not a ledger", path.display())))
    }

    /// Reads the bytes of a ledger; `None` where they are not one of this version.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |index: usize| -> Option<u64> {
            let at = index.checked_mul(8)?;
            Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
        };
        if bytes.len() != FILE_BYTES
            || word(HeaderWord::Magic as usize)? != MAGIC
            || word(HeaderWord::Version as usize)? != VERSION
        {
            return None;
        }
        let count = usize::try_from(word(HeaderWord::Devices as usize)?).ok().filter(|count| *count <= MAX_DEVICES)?;
        let taken = |at: HeaderWord, most: usize| -> Option<usize> {
            Some(usize::try_from(word(at as usize)?).unwrap_or(most).min(most))
        };
        let mut ledger = Self::default();
        for device in 0..count {
            let at = description_offset(device);
            ledger.devices.push(DeviceUse {
                description: DeviceDescription::decode(bytes.get(at..at + DESCRIPTION_BYTES)?)?,
                used_bytes: word(device_word(device, DeviceWord::Used))?,
                peak_bytes: word(device_word(device, DeviceWord::Peak))?,
                refusals: word(device_word(device, DeviceWord::Refusals))?,
                refused_bytes: word(device_word(device, DeviceWord::RefusedBytes))?,
            });
        }
        for slot in 0..taken(HeaderWord::Processes, MAX_PROCESSES)? {
            let mut process =
                ProcessUse { pid: u32::try_from(word(process_word(slot))?).ok()?, devices: Vec::with_capacity(count) };
            for device in 0..count {
                let at = process_device_word(slot, device);
                let mut books = ProcessDeviceUse {
                    used_bytes: word(at)?,
                    peak_bytes: word(at + 1)?,
                    refusals: word(at + layout::PROCESS_REFUSALS)?,
                    ..ProcessDeviceUse::default()
                };
                for kind in Kind::ALL {
                    books.at_peak[kind as usize] = word(at + layout::PROCESS_AT_PEAK + kind as usize)?;
                }
                process.devices.push(books);
            }
            ledger.processes.push(process);
        }
        for index in 0..taken(HeaderWord::Notes, MAX_NOTES)? {
            let at = note_offset(index);
            let (kind, text) = bytes.get(at..at + NOTE_BYTES)?.split_first()?;
            let kind = match kind {
                1 => NoteKind::Warning,
                2 => NoteKind::Unsupported,
                3 => NoteKind::Code,
                4 => NoteKind::HostLimit,
                5 => NoteKind::StaticRuntime,
                6 => NoteKind::MissingCard,
                // The process died between taking the note's place and filling it.
                _ => continue,
            };
            let text: Vec<u8> = text.iter().copied().take_while(|byte| *byte != 0).collect();
            ledger.notes.push(Note { kind, text: String::from_utf8_lossy(&text).into_owned() });
        }
        Some(ledger)
    }

    /// The cards, by index.
    #[must_use]
    pub fn devices(&self) -> &[DeviceUse] {
        &self.devices
    }

    /// Every process that created a context, in the order in which they did.
    #[must_use]
    pub fn processes(&self) -> &[ProcessUse] {
        &self.processes
    }

    /// How many allocations were refused, on all cards.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.devices.iter().fold(0, |all, device| all.saturating_add(device.refusals))
    }

    /// The virtual GPU's warnings, each once, in order of appearance.
    #[must_use]
    pub fn warnings(&self) -> Vec<&str> {
        self.notes_of(NoteKind::Warning)
    }

    /// Names of unsupported functions that the program called, each once.
    #[must_use]
    pub fn unsupported_calls(&self) -> Vec<&str> {
        self.notes_of(NoteKind::Unsupported)
    }

    /// What each file was compiled for whose kernels were launched: its architectures as nvcc calls them, and its name.
    #[must_use]
    pub fn code(&self) -> Vec<(Vec<&str>, &str)> {
        let notes = self.notes_of(NoteKind::Code).into_iter().filter_map(|note| note.split_once(" in "));
        notes.map(|(architectures, file)| (architectures.split(' ').collect(), file)).collect()
    }

    /// The limits of the host that left no addresses for memory which the card could hold, each once.
    #[must_use]
    pub fn host_limits(&self) -> Vec<&str> {
        self.notes_of(NoteKind::HostLimit)
    }

    /// Files that have the CUDA runtime linked in statically, by name: the virtual GPU does not get their calls.
    #[must_use]
    pub fn static_runtimes(&self) -> Vec<&str> {
        self.notes_of(NoteKind::StaticRuntime)
    }

    /// Cards that the program asked for and the run lacks, each once, in order of appearance.
    #[must_use]
    pub fn missing_cards(&self) -> Vec<MissingCard> {
        self.notes_of(NoteKind::MissingCard).into_iter().filter_map(MissingCard::parse).collect()
    }

    fn notes_of(&self, kind: NoteKind) -> Vec<&str> {
        let mut texts = Vec::new();
        for note in self.notes.iter().filter(|note| note.kind == kind) {
            if !texts.contains(&note.text.as_str()) {
                texts.push(note.text.as_str());
            }
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_ledger_reads_back_empty() -> io::Result<()> {
        let path = std::env::temp_dir().join(format!("oomph-ledger-test-{}", std::process::id()));
        let card = DeviceDescription { name: "card".into(), capacity_bytes: 42, ..DeviceDescription::default() };
        Ledger::create(&path, std::slice::from_ref(&card))?;
        let ledger = Ledger::read(&path);
        std::fs::remove_file(&path)?;
        let ledger = ledger?;
        assert_eq!(ledger.devices().len(), 1);
        assert_eq!(ledger.devices()[0].description, card);
        assert!(ledger.processes().is_empty() && ledger.warnings().is_empty());
        Ok(())
    }

    #[test]
    fn nonsense_is_no_ledger() {
        assert!(Ledger::parse(&[]).is_none());
        assert!(Ledger::parse(&vec![0; FILE_BYTES]).is_none());
        let mut lying = vec![0; FILE_BYTES];
        lying[..8].copy_from_slice(&MAGIC.to_le_bytes());
        lying[8..16].copy_from_slice(&VERSION.to_le_bytes());
        lying[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Ledger::parse(&lying).is_none());
        // A program that wrote over its books is answered all the same.
        lying[16..24].copy_from_slice(&2_u64.to_le_bytes());
        for device in 0..2 {
            let at = device_word(device, DeviceWord::Refusals) * 8;
            lying[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        }
        assert_eq!(Ledger::parse(&lying).map(|ledger| ledger.refusals()), Some(u64::MAX));
    }
}
