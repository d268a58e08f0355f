//! `--act`: searches for a remedy at the first sign of a death, while the program still runs. Only when there is one is
//! the program asked to save a checkpoint and to end.
//!
//! The search is a process of its own ([`look`]), because the end of a dry run ends all that runs below its process. It
//! gives the remedies by their ids; the next start tries them once more, and no others.

use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use oomph_launch::{Companion, RunFolder};
use serde::{Deserialize, Serialize};

use super::remedy::Configuration;
use super::{Decision, Guarded};
use crate::cards::Card;
use crate::cli::RunArgs;
use crate::output;
use crate::run_context::Ending;

/// Between two looks at the program and at the search.
const LOOK: Duration = Duration::from_millis(500);

/// What a search next to a running program found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Found {
    /// The remedies of the best fix, with their amounts; none where nothing fits.
    pub remedies: Vec<String>,
    /// A few words for each.
    titles: Vec<String>,
    /// Why there is none.
    reason: Option<String>,
}

/// The command line of the search next to a program on these cards: everything but the step and the program.
pub fn search_arguments(args: &RunArgs, cards: &[Card]) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    if let Some(card) = cards.first() {
        let name = card.like.as_ref().unwrap_or(&card.label);
        words.extend(["--rehearse".into(), format!("{name}:{}", cards.len()).into()]);
        let room = cards.iter().filter_map(Card::capacity_bytes).min();
        words.extend(room.into_iter().flat_map(|bytes| ["--vram".into(), bytes.to_string().into()]));
    }
    let mut option = |name: &str, value: &str| words.extend([name.into(), value.into()]);
    args.allow.iter().for_each(|id| option("--allow", id));
    args.forbid.iter().for_each(|id| option("--forbid", id));
    args.with.iter().for_each(|package| option("--with", package));
    args.margin.iter().for_each(|margin| option("--margin", &margin.text));
    args.max_time.iter().for_each(|time| option("--max-time", &format!("{}s", time.as_secs_f64())));
    words
}

/// The search itself: looks for what lets a program that has made so many steps go on, and writes what it found.
pub fn look(guarded: &Guarded<'_>, steps: u64) -> Result<ExitCode> {
    let cards = guarded.cards()?;
    let unchanged = Configuration::unchanged(guarded.context);
    let found = match guarded.decide(&unchanged, steps, &cards, 0, &mut Vec::new()) {
        Ok(Decision::Again(next)) => Found { remedies: next.remedies, titles: next.titles, reason: None },
        Ok(Decision::End(reason)) => Found { reason: Some(reason), ..Found::default() },
        Err(crate::trial::Stop::Interrupted(signal)) => return Ok(crate::status::interrupted(signal)),
        Err(crate::trial::Stop::Failed(error)) => return Err(error),
    };
    output::data(&(serde_json::to_string(&found)? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

impl Guarded<'_> {
    /// Waits for a sign, has a fix looked for, and asks the program to leave for it.
    pub(super) fn act_on_signs(&self, folder: &RunFolder, ending: &Ending, found: &Mutex<Found>) {
        let has_ended = || ending.has_ended.load(Ordering::Relaxed);
        let steps = loop {
            if has_ended() {
                return;
            }
            std::thread::sleep(LOOK);
            let reports = folder.reports().reports;
            let progress = || reports.iter().filter_map(|hook| hook.progress.as_ref());
            if progress().any(|progress| !progress.signs.is_empty()) {
                let counted = reports.iter().map(|hook| hook.optimizer_steps).max().unwrap_or(0);
                break progress().filter_map(|one| one.step).max().unwrap_or(counted);
            }
        };
        self.tell("looking for a fix while it runs");
        let began = Instant::now();
        let answer = match self.searched(steps, &has_ended) {
            Ok(Some(answer)) => answer,
            Ok(None) => return,
            Err(error) => return output::say(&format!("oomph: warning: the program goes on unchanged: {error:#}")),
        };
        if answer.remedies.is_empty() {
            let reason = answer.reason.unwrap_or_else(|| "nothing was found".into());
            return output::say(&format!("oomph: the program goes on unchanged: {reason}"));
        }
        let seconds = began.elapsed().as_secs();
        output::say(&format!(
            "oomph: found after {seconds} s: {}; it starts again with that from its next checkpoint",
            answer.titles.join(" + ")
        ));
        *found.lock().unwrap_or_else(PoisonError::into_inner) = answer;
        if let Err(error) = folder.ask_to_leave() {
            output::say(&format!("oomph: warning: the program cannot be asked to save: {error}"));
        }
    }

    /// What the search says; `None` where the program ended before.
    fn searched(&self, steps: u64, has_ended: &dyn Fn() -> bool) -> Result<Option<Found>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["-q", "run", "--search-beside"]).arg(steps.to_string()).args(&self.search_arguments).arg("--");
        command.args(&self.context.program.command).current_dir(&self.context.directory);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut search = Companion::start(&mut command)?;
        while !search.has_ended()? {
            if has_ended() {
                // Dropped, it is asked to end.
                return Ok(None);
            }
            std::thread::sleep(LOOK);
        }
        let text = search.output()?;
        Ok(Some(
            serde_json::from_str(&text)
                .unwrap_or_else(|_| Found { reason: Some("the search failed".into()), ..Found::default() }),
        ))
    }
}
