//! `oomph watch`: shows which processes hold GPU memory, and forecasts its growth.
//!
//! [`look`] puts the driver's figures and those of guarded runs side by side; [`condition`] waits for a card; [`course`]
//! keeps what was seen of each process, for the [`forecast`]; [`screen`] draws it in a terminal, [`lines`] says what has
//! changed, [`metrics`] serves it to other programs, and [`tensorboard`] writes curves.

mod condition;
mod course;
mod forecast;
mod lines;
mod look;
mod metrics;
mod screen;
mod tensorboard;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use oomph_gpu::size;
use oomph_report::{WatchReport, clean_json, render_watch};

use crate::cli::{Format, WatchArgs};
use crate::failure::hinted;
use crate::output;
use crate::status;
use crate::syntax::Condition;

use course::Courses;
use lines::Lines;
use look::Looker;
use screen::Screen;
use tensorboard::Board;

/// Between the two looks that a card has to satisfy.
const AGAIN: Duration = Duration::from_millis(500);

/// Looks at the cards as the options say.
///
/// # Errors
/// When there is nothing to watch, or the figures cannot be served or written.
pub fn run(args: &WatchArgs, quiet: bool) -> Result<ExitCode> {
    let alerts = if args.alert.is_empty() { vec![Condition::nearly_full()] } else { args.alert.clone() };
    let metrics = args.metrics.map(metrics::Server::start).transpose()?;
    let board = args.tensorboard.as_deref().map(Board::new).transpose()?;

    let mut looker = Looker::new()?;
    let first = chosen(looker.look(), args.gpu)?;
    if args.once {
        write_once(&first, args.format)?;
        return Ok(ExitCode::from(status::DONE));
    }
    let end = args.timeout.and_then(|time| Instant::now().checked_add(time));
    match &args.until {
        Some(until) => wait(&mut looker, first, args, until, end, quiet),
        None => {
            if let Some(server) = &metrics {
                output::tell(&format!("oomph: metrics at http://{}/metrics", server.address()), quiet);
            }
            let mut shown = Shown::new(args, Lines::new(alerts), Recorders { metrics, board })?;
            follow(&mut looker, first, args, &mut shown, end)
        }
    }
}

/// The report of the card that was asked for.
fn chosen(mut report: WatchReport, gpu: Option<usize>) -> Result<WatchReport> {
    if report.cards.is_empty() {
        return Err(hinted(
            "this machine has no NVIDIA GPU to watch, and no rehearsal is running",
            "rehearse a run on a virtual one and watch that: oomph run --rehearse rtx-4090 -- CMD",
        ));
    }
    if let Some(gpu) = gpu {
        let count = report.cards.len();
        report.cards.retain(|card| card.place == gpu);
        if report.cards.is_empty() {
            let cards =
                if count == 1 { "one card, 0".to_owned() } else { format!("{count} cards, 0 to {}", count - 1) };
            return Err(hinted(
                format!("there is no card {gpu}: this machine has {cards}"),
                "`oomph watch --once` lists them",
            ));
        }
    }
    Ok(report)
}

fn document(report: &WatchReport, is_pretty: bool) -> Result<String> {
    let text = if is_pretty { serde_json::to_string_pretty(report) } else { serde_json::to_string(report) };
    let text = text.context("cannot write the figures as JSON")?;
    Ok(clean_json(&text).into_owned() + "\n")
}

fn write_once(report: &WatchReport, format: Format) -> Result<()> {
    match format {
        Format::Json => output::data(&document(report, true)?),
        Format::Text => output::data(&render_watch(report, output::style())),
    }
}

/// Waits until a card satisfies the condition. Virtual cards count only where there are no others.
fn wait(
    looker: &mut Looker,
    mut report: WatchReport,
    args: &WatchArgs,
    until: &Condition,
    end: Option<Instant>,
    quiet: bool,
) -> Result<ExitCode> {
    let began = Instant::now();
    let (mut before, mut is_told) = (Vec::new(), false);
    loop {
        let has_real = report.cards.iter().any(|card| card.rehearsal.is_none());
        let counts = |card: &&oomph_report::WatchedGpu| args.gpu.is_some() || card.rehearsal.is_none() || !has_real;
        let now: Vec<_> =
            report.cards.iter().filter(counts).filter(|card| until.holds(card, false) == Some(true)).collect();
        if let Some(card) = now.iter().find(|card| before.contains(&card.place)) {
            if args.format == Format::Json {
                output::data(&document(&report, true)?)?;
            } else {
                output::data(&format!("{}\n", card.uuid.clone().unwrap_or_else(|| card.index.to_string())))?;
                let free = card.free_bytes.map_or_else(|| "an unknown amount".to_owned(), size::format);
                let name = oomph_report::clean(&card.name);
                output::tell(&format!("oomph: GPU {} ({name}) has {free} free", card.place), quiet);
            }
            return Ok(ExitCode::from(status::DONE));
        }
        before = now.iter().map(|card| card.place).collect();
        if before.is_empty() && !is_told {
            output::tell(&format!("oomph: waiting until a card has {until}"), quiet);
            is_told = true;
        }
        let pause = if before.is_empty() { args.interval } else { AGAIN };
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            let seconds = began.elapsed().as_secs();
            output::say(&format!("oomph: no card had {until} within {seconds} s (--timeout)"));
            return Ok(ExitCode::from(status::OUT_OF_TIME));
        }
        std::thread::sleep(left.map_or(pause, |left| left.min(pause)));
        // A rehearsal that has ended takes its cards along.
        let next = looker.look();
        report = if next.cards.is_empty() { next } else { chosen(next, args.gpu)? };
    }
}

/// Programs that read along.
struct Recorders {
    metrics: Option<metrics::Server>,
    board: Option<Board>,
}

/// Where the looks go.
struct Shown {
    place: Place,
    lines: Lines,
    recorders: Recorders,
}

enum Place {
    /// A document a line.
    Documents,
    /// A line for each change.
    Lines,
    Screen(Box<Screen>),
}

impl Shown {
    fn new(args: &WatchArgs, lines: Lines, recorders: Recorders) -> Result<Self> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let screen = if args.format == Format::Text && std::io::stdout().is_terminal() && !is_dumb {
            Screen::open(output::style()).context("cannot take over the terminal; TERM=dumb does without")?
        } else {
            None
        };
        let place = match (screen, args.format) {
            (Some(screen), _) => Place::Screen(Box::new(screen)),
            (None, Format::Json) => Place::Documents,
            (None, Format::Text) => Place::Lines,
        };
        Ok(Self { place, lines, recorders })
    }

    /// Shows a look; says whether anybody still reads it.
    fn add(&mut self, report: &WatchReport) -> Result<bool> {
        if let Some(server) = &self.recorders.metrics {
            server.show(report);
        }
        if let Some(board) = &mut self.recorders.board {
            board.add(report)?;
        }
        match &mut self.place {
            Place::Documents => is_read(&document(report, false)?),
            Place::Lines => is_read(&self.lines.of(report).into_iter().map(|line| line + "\n").collect::<String>()),
            Place::Screen(screen) => {
                let news = self.lines.of(report);
                screen.show(report, news).context("cannot draw in the terminal").map(|()| true)
            }
        }
    }

    /// Waits for the next look, or for the status that the user or a signal ends the watch with.
    fn pause(&mut self, time: Duration) -> Result<Option<ExitCode>> {
        match &mut self.place {
            Place::Screen(screen) => screen.pause(time).context("cannot read from the terminal"),
            Place::Documents | Place::Lines => {
                std::thread::sleep(time);
                Ok(None)
            }
        }
    }
}

/// Looks again and again, until the time is over.
fn follow(
    looker: &mut Looker,
    mut report: WatchReport,
    args: &WatchArgs,
    shown: &mut Shown,
    end: Option<Instant>,
) -> Result<ExitCode> {
    let mut courses = Courses::default();
    loop {
        courses.add(&mut report);
        let is_read = shown.add(&report)?;
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if !is_read || left.is_some_and(|left| left.is_zero()) {
            return Ok(ExitCode::from(status::DONE));
        }
        if let Some(status) = shown.pause(left.map_or(args.interval, |left| left.min(args.interval)))? {
            return Ok(status);
        }
        let next = looker.look();
        // The cards of a rehearsal go with it; those of a machine stay.
        let is_wanted = |card: &oomph_report::WatchedGpu| args.gpu.is_none_or(|gpu| gpu == card.place);
        report = WatchReport { cards: next.cards.into_iter().filter(is_wanted).collect(), ..next };
    }
}

/// Writes to stdout; says whether anybody still reads it.
fn is_read(text: &str) -> Result<bool> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).context("cannot write to stdout"),
    }
}
