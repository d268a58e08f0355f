//! What was typed means this: the cards, the rule by which the run ends, the limits.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use oomph_gpu::nvml::{self, InstalledGpu};
use oomph_gpu::{Catalogue, Gpu, size};
use oomph_launch::{Stop, StopMode, Values};
use oomph_ledger::{DeviceDescription, MAX_DEVICES, UNBOUNDED_CAPACITY};

use crate::cli::{self, DryRunArgs, Format};
use crate::failure::{Hinted, hinted};

/// How many steps the peak must stand still by default.
const STABLE_STEPS: u32 = 3;

/// The card whose properties a card without a name has: every CUDA build of the supported frameworks has code for its
/// compute capability, and it takes no path that only the newest cards take.
const NAMELESS: &str = "a100-80gb";

/// A dry run as it was meant.
#[derive(Debug)]
pub struct DryRunPlan {
    /// The virtual cards, by CUDA index; never empty.
    pub cards: Vec<Card>,
    /// The options that named them, as typed, ready for a shell.
    pub card_options: Vec<String>,
    /// The program and its arguments; never empty.
    pub command: Vec<OsString>,
    /// Packages to run it with; empty for the user's own Python.
    pub with: Vec<String>,
    /// When the hook ends the run.
    pub stop: Stop,
    /// When the launcher ends the run.
    pub timeout: Option<Duration>,
    /// Which results are computed for real.
    pub values: Values,
    /// Whether missing weights are made up.
    pub random_weights: bool,
    /// Whether the program's writes go where it says.
    pub allow_writes: bool,
    /// Whether to run again after an out-of-memory error.
    pub probe: bool,
    /// How the answer is written.
    pub format: Format,
    /// Where the document goes as well.
    pub report: Option<PathBuf>,
    /// Whether it is recorded whose memory it is.
    pub history: bool,
    /// Where the recordings go, in PyTorch's format.
    pub snapshot: Option<PathBuf>,
    /// Where the recordings go, for other tools.
    pub trace: Option<PathBuf>,
}

/// A virtual card.
#[derive(Clone, Debug)]
pub struct Card {
    /// What the report calls it.
    pub label: String,
    /// The card whose properties it has, with its own capacity.
    pub gpu: Gpu,
    /// Whether it has no limit.
    pub unbounded: bool,
}

impl Card {
    fn of(gpu: &Gpu, vram: Option<u64>) -> Self {
        let gpu = vram.map_or_else(|| gpu.clone(), |bytes| gpu.with_capacity(bytes));
        Self { label: gpu.id.clone(), gpu, unbounded: false }
    }

    /// What CUDA reports as its total, in bytes; `None` for a card without a limit.
    pub fn capacity_bytes(&self) -> Option<u64> {
        (!self.unbounded).then_some(self.gpu.capacity_bytes)
    }

    /// The same card without a limit.
    pub fn without_limit(&self) -> Self {
        Self { unbounded: true, ..self.clone() }
    }

    /// The card as the processes of the run see it.
    pub fn description(&self, index: usize) -> DeviceDescription {
        let (gpu, architecture) = (&self.gpu, &self.gpu.architecture);
        let capability = gpu.compute_capability();
        let mut uuid = *b"oomph-virtual-\0\0";
        uuid[15] = u8::try_from(index).unwrap_or(u8::MAX);
        DeviceDescription {
            name: gpu.name.clone(),
            uuid,
            capacity_bytes: if self.unbounded { UNBOUNDED_CAPACITY } else { gpu.capacity_bytes },
            context_bytes: gpu.context.expected_bytes,
            cc_major: capability.major.into(),
            cc_minor: capability.minor.into(),
            sm_count: gpu.sm_count.into(),
            max_threads_per_sm: architecture.max_threads_per_sm.into(),
            max_blocks_per_sm: architecture.max_blocks_per_sm.into(),
            // On every architecture of the catalogue one block may use all registers of a multiprocessor.
            regs_per_block: architecture.registers_per_sm.into(),
            regs_per_sm: architecture.registers_per_sm.into(),
            shared_per_block: architecture.shared_memory_per_block_bytes.into(),
            shared_per_block_optin: architecture.shared_memory_per_block_optin_bytes.into(),
            shared_per_sm: architecture.shared_memory_per_sm_bytes.into(),
            reserved_shared_per_block: architecture.shared_memory_reserved_per_block_bytes.into(),
            l2_bytes: gpu.l2_bytes,
            clock_khz: gpu.sm_clock_khz.into(),
            memory_clock_khz: gpu.memory_clock_khz.into(),
            bus_width_bits: gpu.memory_bus_bits.into(),
            pci_device_id: gpu.pci_device_id.unwrap_or(0).into(),
            integrated: gpu.integrated.into(),
        }
    }
}

impl DryRunPlan {
    /// Works out what was meant.
    ///
    /// # Errors
    /// When a card, a size, a count or a duration cannot be understood.
    pub fn new(args: DryRunArgs) -> Result<Self> {
        Self::on(args, || Ok(nvml::installed()?))
    }

    /// As [`Self::new`], with the question for the installed cards apart, so that it can be tested.
    fn on(args: DryRunArgs, installed: impl FnOnce() -> Result<Vec<InstalledGpu>>) -> Result<Self> {
        let vram = args.vram.as_deref().map(capacity).transpose()?;
        let cards = cards(&args.gpu, vram, installed)?;
        let mut card_options = Vec::new();
        if !args.gpu.is_empty() {
            card_options.extend(["--gpu".into(), quoted(&args.gpu.join(","))]);
        }
        if let Some(vram) = &args.vram {
            card_options.extend(["--vram".into(), quoted(vram)]);
        }
        let stop = match (args.steps, args.until_exit) {
            (Some(0), _) => {
                return Err(hinted("--steps 0 would stop before anything happened", "the least is --steps 1"));
            }
            (Some(steps), _) => Stop { mode: StopMode::Steps, steps },
            (None, true) => Stop { mode: StopMode::Exit, steps: STABLE_STEPS },
            (None, false) => Stop { mode: StopMode::PeakStable, steps: STABLE_STEPS },
        };
        Ok(Self {
            cards,
            card_options,
            command: args.command,
            with: args.with,
            stop,
            timeout: args.timeout.as_deref().map(duration).transpose()?,
            values: match args.values {
                cli::Values::Off => Values::Off,
                cli::Values::Small => Values::Small,
                cli::Values::AllHost => Values::AllHost,
            },
            random_weights: args.random_weights,
            allow_writes: args.allow_writes,
            probe: !args.no_probe,
            format: args.format,
            report: args.report,
            history: !args.no_owners,
            snapshot: args.snapshot,
            trace: args.trace,
        })
    }

    /// The command line of the same dry run on other cards: `cards` are the options that name them, ready for a shell.
    pub fn command_line(&self, cards: &[String]) -> String {
        let mut words: Vec<String> = vec!["oomph".into(), "dry-run".into()];
        words.extend_from_slice(cards);
        for requirement in &self.with {
            words.extend(["--with".into(), quoted(requirement)]);
        }
        match self.stop.mode {
            StopMode::PeakStable => {}
            StopMode::Steps => words.extend(["--steps".into(), self.stop.steps.to_string()]),
            StopMode::Exit => words.push("--until-exit".into()),
        }
        if let Some(timeout) = self.timeout {
            words.extend(["--timeout".into(), format!("{}s", timeout.as_secs_f64())]);
        }
        match self.values {
            Values::Small => {}
            Values::Off => words.extend(["--values".into(), "off".into()]),
            Values::AllHost => words.extend(["--values".into(), "all-host".into()]),
        }
        if self.random_weights {
            words.push("--random-weights".into());
        }
        if self.allow_writes {
            words.push("--allow-writes".into());
        }
        if !self.history {
            words.push("--no-owners".into());
        }
        words.push("--".into());
        words.extend(self.command.iter().map(|word| quoted(&word.to_string_lossy())));
        words.join(" ")
    }

    /// The options that name as many of a catalogue's card as this plan has cards.
    pub fn as_many_of(&self, gpu: &str) -> Vec<String> {
        let count = self.cards.len();
        vec!["--gpu".into(), if count > 1 { format!("{gpu}:{count}") } else { gpu.to_owned() }]
    }
}

/// The virtual cards.
fn cards(
    names: &[String],
    vram: Option<u64>,
    installed: impl FnOnce() -> Result<Vec<InstalledGpu>>,
) -> Result<Vec<Card>> {
    let catalogue = Catalogue::builtin();
    let mut cards = Vec::new();
    for name in names {
        let (gpu, count) = named(catalogue, name)?;
        // The count is bounded before anything is made of it.
        cards.extend(std::iter::repeat_n(Card::of(gpu, vram), count.min(MAX_DEVICES + 1)));
    }
    if names.is_empty() {
        // A card that cannot be read must not keep anybody from a dry run.
        let installed = if vram.is_none() { installed().unwrap_or_default() } else { Vec::new() };
        cards.extend(installed.iter().filter_map(|found| real(catalogue, found)).take(MAX_DEVICES));
    }
    if cards.len() > MAX_DEVICES {
        return Err(hinted(format!("a run has at most {MAX_DEVICES} cards"), "one machine rarely has more"));
    }
    if cards.is_empty() {
        cards.push(nameless(catalogue, vram)?);
    }
    Ok(cards)
}

/// A card by its name, and how many of it.
fn named<'a>(catalogue: &'a Catalogue, text: &str) -> Result<(&'a Gpu, usize)> {
    let text = text.trim();
    if text.is_empty() {
        return Err(hinted("--gpu has an empty name", "`oomph gpus` lists the cards"));
    }
    let (name, count) = match text.rsplit_once(':') {
        Some((name, count)) => (name, Some(count)),
        None => (text, None),
    };
    let count = match count.map(|count| (count, count.trim().parse::<usize>())) {
        None => 1,
        Some((_, Ok(count @ 1..))) => count,
        Some((count, _)) => {
            let message = format!("`{count}` in --gpu {text} is not a number of cards");
            return Err(hinted(message, format!("--gpu {name}:2 means two of them")));
        }
    };
    Ok((find(catalogue, name)?, count))
}

/// A card by any of its names.
pub fn find<'a>(catalogue: &'a Catalogue, name: &str) -> Result<&'a Gpu> {
    catalogue.find(name).map_err(|unknown| {
        let hint = match unknown.nearest.as_slice() {
            [] => "`oomph gpus` lists the cards; --vram SIZE takes any capacity".to_owned(),
            nearest => format!("did you mean {}? `oomph gpus` lists all", list(nearest)),
        };
        // The name may hold anything; the line must stay one.
        hinted(format!("there is no GPU `{}` in the catalogue", oomph_report::clean(&unknown.text)), hint)
    })
}

/// The virtual twin of an installed card. A card that the catalogue does not know is not guessed at.
fn real(catalogue: &Catalogue, found: &InstalledGpu) -> Option<Card> {
    found.entry(catalogue).map(|gpu| Card::of(gpu, None))
}

/// The card that is used when nobody named one.
fn nameless(catalogue: &Catalogue, vram: Option<u64>) -> Result<Card> {
    let gpu = catalogue.get(NAMELESS).context("the catalogue lacks its own default card")?;
    let card = Card::of(gpu, vram);
    Ok(match vram {
        Some(_) => Card { label: oomph_report::CUSTOM.into(), ..card },
        None => Card { label: oomph_report::UNBOUNDED.into(), unbounded: true, ..card },
    })
}

/// `a`, `a or b`, `a, b or c`.
fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// The capacity that `--vram` gives, in bytes.
pub fn capacity(text: &str) -> Result<u64> {
    let bytes = size::parse(text)
        .map_err(|error| hinted(format!("--vram: {error}"), "write --vram 8GiB, --vram 512MiB or --vram 24G"))?;
    match bytes {
        0 => Err(hinted("--vram 0 leaves nothing to run on", "write --vram 8GiB, for example")),
        UNBOUNDED_CAPACITY.. => Err(hinted(
            format!("--vram {text} is more than any card has"),
            "leave out --gpu and --vram for a card without a limit",
        )),
        _ => Ok(bytes),
    }
}

/// A duration: "90", "90s", "1.5h", "1h30m", "500ms".
fn duration(text: &str) -> Result<Duration> {
    let wrong = || {
        anyhow::Error::from(Hinted::new(
            format!("--timeout `{}` is not a duration", oomph_report::clean(text)),
            "write 90s, 10m or 1h30m",
        ))
    };
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero()).ok_or_else(wrong);
    }
    let (mut total, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit() && character != '.').ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|character: char| !character.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let seconds = match unit {
            "ms" => 0.001,
            "s" | "sec" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = after.trim_start();
    }
    if total.is_zero() { Err(wrong()) } else { Ok(total) }
}

/// A word as a POSIX shell takes it.
pub fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_./=:,+@%".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
