//! `oomph fix`: finds the cheapest changes that make a program fit; each is run before it is offered.

mod answer;
mod applied;
mod applier;
mod apply;
mod baseline;
mod bench;
mod budget;
mod comparison;
mod edits;
mod engine;
mod evaluation;
mod in_place;
pub mod list;
mod own;
mod phases;
mod price;
mod question;
mod search;
mod serving;
mod situation;
mod unmodified;
mod wanted;
mod work_tree;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use oomph_remedy::Catalogue;
use oomph_remedy::search::Wishes;
use oomph_report::{FixVerdict, render_fix};

use crate::cli::FixArgs;
use crate::fork_runner::ForkRunner;
use crate::output::Form;
use crate::program::Program;
use crate::progress::Progress;
use crate::run_context::RunContext;
use crate::shell_words::quoted;
use crate::status::{self, interrupted};
use crate::syntax::Amount;
use crate::trial::Stop;
use crate::{cards, html, output};

pub use answer::Answer;
pub use applied::Applied;
use search::Search;
pub use wanted::{Wanted, limited};

/// Searches and answers.
///
/// # Errors
/// When an option makes no sense, or something that is needed is missing.
pub fn run(args: FixArgs, quiet: bool) -> Result<ExitCode> {
    let start = Instant::now();
    let catalogue = Catalogue::builtin();
    let form = args.format.form();
    if args.list {
        return list::print(catalogue, form);
    }
    in_place::can_ask(args.in_place, args.yes)?;
    let program = Program::new(args.program.clone())?;
    if let Some(file) = &args.write.0 {
        apply::writable(&file.path, &program.command)?;
    }
    let wanted = wanted(&args, &program, catalogue)?;
    if let Some(path) = &args.report {
        output::writable(path)?;
    }
    html::writable(&args.page)?;
    if args.real {
        apply::needs_a_gpu()?;
    }
    let context = RunContext::new(program, quiet)?;
    let progress = Progress::new(quiet);
    let runner = ForkRunner::new(&context, args.jobs);
    let tell = |what: &str| progress.tell(what);
    let search = Search { context: &context, runner: &runner, catalogue, wanted: &wanted, start, tell: &tell };
    let searched = search.answer().and_then(|answer| compared(&context, &wanted, answer, &tell));
    progress.finish();
    let answer = match searched {
        Ok(answer) => answer,
        Err(Stop::Interrupted(signal)) => return Ok(interrupted(signal)),
        Err(Stop::Failed(error)) => return Err(error),
    };
    if answer.report.verdict == FixVerdict::Failed {
        output::say(&format!("oomph: the end of the program's messages:\n{}", answer.messages.trim_end()));
    }
    let report = &answer.report;
    html::answered(&args.page, format!("oomph fix: {}", html::short(&report.command)), || html::fix(report))?;
    output::answer(report, form, args.report.as_deref(), || render_fix(report, output::style()))?;
    if let Some(signal) = answer.stopped {
        output::tell("oomph: stopped; this is what was found until then", quiet);
        return Ok(interrupted(signal));
    }
    if let Some(status) = act(&args, &context, &answer, quiet)? {
        return Ok(status);
    }
    Ok(ExitCode::from(match report.verdict {
        FixVerdict::FitsAlready | FixVerdict::Fixed => status::DONE,
        FixVerdict::NothingFits if report.out_of_time => status::OUT_OF_TIME,
        FixVerdict::NothingFits => status::DOES_NOT_FIT,
        FixVerdict::Failed => status::PROGRAM_FAILED,
    }))
}

/// The answer with what its fixes do to the result, where that was asked for.
fn compared(
    context: &RunContext,
    wanted: &Wanted,
    mut answer: Answer,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Answer, Stop> {
    let compares = wanted.compares && answer.stopped.is_none();
    comparison::complete(context, wanted, &mut answer, (compares, tell))?;
    answer.report.elapsed_seconds = answer::seconds(answer.start);
    Ok(answer)
}

/// What the options ask for.
fn wanted(args: &FixArgs, program: &Program, catalogue: &Catalogue) -> Result<Wanted> {
    let limited = limited(&program.cards, args.target.as_ref().map(|target| target.value.0))?;
    let cards = cards::less(&limited, args.margin.as_ref().map_or(Amount::NONE, |margin| margin.value))?;
    let wishes = Wishes {
        prefer: args.prefer,
        allow: list::allowed(catalogue, &args.allow)?,
        forbid: list::ids(catalogue, "--forbid", &args.forbid)?,
    };
    let (target, margin) = (args.target.as_ref(), args.margin.as_ref());
    let typed = [("--target", target.map(|target| &target.text)), ("--margin", margin.map(|margin| &margin.text))];
    let typed = typed.into_iter().filter_map(|(name, text)| Some([name.to_owned(), quoted(text?)]));
    // What is to be applied or written has to be found first.
    let written = args.write.0.as_ref().map(|file| file.number);
    let chosen = [args.apply, args.in_place, written].into_iter().flatten();
    Ok(Wanted {
        cards,
        wishes,
        fixes: chosen.fold(args.fixes, usize::max),
        jobs: args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
        max_time: args.max_time,
        accept_recovered: args.accept_recovered,
        compares: !args.no_compare,
        options: typed.flatten().collect(),
    })
}

/// Does with a fix what the options say: writes it to a file, changes the program's files, or runs the program with it. Gives
/// the exit status of that run.
fn act(args: &FixArgs, context: &RunContext, answer: &Answer, quiet: bool) -> Result<Option<ExitCode>> {
    if answer.report.verdict != FixVerdict::Fixed {
        if args.write.0.is_some() || args.apply.is_some() || args.in_place.is_some() {
            output::say("oomph: there is no fix to write or to apply");
        }
        return Ok(None);
    }
    if let Some(file) = &args.write.0 {
        output::tell(&apply::write(answer, file)?, quiet);
    }
    if let Some(number) = args.in_place {
        output::tell(&in_place::change(answer, number, args.yes)?, quiet);
    }
    let is_text = args.format.form() == Form::Text;
    args.apply.map(|number| apply::run(context, answer, number, args.real, (!is_text, quiet))).transpose()
}

/// Searches without an answer for people.
///
/// # Errors
/// When a run cannot be set up, or a signal ends the search before anything is found.
pub fn find(context: &RunContext, wanted: &Wanted, tell: &(dyn Fn(&str) + Sync)) -> Result<Answer, Stop> {
    let runner = ForkRunner::new(context, Some(wanted.jobs));
    let catalogue = Catalogue::builtin();
    let answer = Search { context, runner: &runner, catalogue, wanted, start: Instant::now(), tell }.answer()?;
    compared(context, wanted, answer, tell)
}
