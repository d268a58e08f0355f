//! Runs trials as children of one fork server, so that they share their imports.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use oomph_launch::{ForkServer, Forked, ForkedRun, Limits, Output, ProgramKind, PythonProgram, RunFolder};
use oomph_ledger::{DeviceDescription, Ledger};

use crate::cards::Card;
use crate::changes::Changes;
use crate::run_context::{Ended, RunContext, RunRequest};
use crate::trial::Runner;

/// Runs trials in a fork server, or as processes of their own where the program, a change or the server does not let it.
/// Which of the two it was makes no difference to a result.
pub struct ForkRunner<'a> {
    context: &'a RunContext,
    jobs: usize,
    /// Variables that the server itself is started with.
    env: Vec<(String, String)>,
    state: Mutex<State>,
}

enum State {
    /// Nothing has been run yet.
    New,
    Serving(Arc<Serving>),
    /// The program cannot be forked.
    Plain,
}

struct Serving {
    server: ForkServer,
    program: PythonProgram,
    cards: Vec<DeviceDescription>,
    /// The server's own run folder; it goes after the server.
    _folder: RunFolder,
}

impl<'a> ForkRunner<'a> {
    /// `jobs` trials at most go on at a time; by default one per core of this machine.
    pub fn new(context: &'a RunContext, jobs: Option<usize>) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self { context, jobs: jobs.unwrap_or_else(cores).max(1), env: Vec::new(), state: Mutex::new(State::New) }
    }

    /// The same with variables that libraries read while they are imported, which a child would set too late.
    pub fn with_env(self, env: Vec<(String, String)>) -> Self {
        Self { env, ..self }
    }

    /// Whether trials share their imports, as far as that is known.
    pub fn forks(&self) -> bool {
        matches!(*self.state(), State::Serving(_))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server, started at the first call. The others wait for it.
    fn serving(&self, program: &PythonProgram, cards: &[Card]) -> Option<Arc<Serving>> {
        let mut state = self.state();
        if matches!(*state, State::New) {
            *state = self.start(program, cards).map_or(State::Plain, |serving| State::Serving(Arc::new(serving)));
        }
        match &*state {
            State::Serving(serving) => Some(Arc::clone(serving)),
            State::New | State::Plain => None,
        }
    }

    fn start(&self, program: &PythonProgram, cards: &[Card]) -> Option<Serving> {
        // The log of the devices belongs to one run folder from the start.
        if self.context.program.device_log || !matches!(self.context.kind(), ProgramKind::Python { .. }) {
            return None;
        }
        let changes = Changes { env: self.env.clone(), ..Changes::none(&self.context.program.command) };
        let request = RunRequest {
            changes: &changes,
            cards,
            output: Output::Discard,
            limits: Limits::default(),
            history: false,
            keep: None,
            writes: false,
        };
        // What keeps a server from starting keeps a process from starting as well, and says so there.
        let (folder, launch) = self.context.prepare_run(&request).ok()?;
        let server = ForkServer::start(launch, program, &[]).ok()?;
        // An import that used a card did so in the server's name, and a child would lack what it made.
        let untouched = Ledger::read(&folder.ledger()).ok()?.processes().is_empty();
        untouched.then(|| Serving { server, program: program.clone(), cards: descriptions(cards), _folder: folder })
    }
}

fn descriptions(cards: &[Card]) -> Vec<DeviceDescription> {
    cards.iter().enumerate().map(|(index, card)| card.description(index)).collect()
}

/// Whether a child of a server with some cards can have the others: the same, whatever they can hold.
fn are_alike(some: &[DeviceDescription], others: &[DeviceDescription]) -> bool {
    let alike = |(one, other): (&DeviceDescription, &DeviceDescription)| {
        DeviceDescription { capacity_bytes: other.capacity_bytes, ..one.clone() } == *other
    };
    some.len() == others.len() && some.iter().zip(others).all(alike)
}

impl Runner for ForkRunner<'_> {
    fn perform(&self, request: &RunRequest<'_>) -> Result<Ended> {
        let program = PythonProgram::of(&request.changes.command);
        let serving = program.as_ref().and_then(|program| self.serving(program, request.cards));
        if let (Some(program), Some(serving)) = (&program, serving)
            && serving.program.is_same_program(program)
            && are_alike(&serving.cards, &descriptions(request.cards))
        {
            let (folder, launch) = self.context.prepare_run(request)?;
            let Some(program) = &PythonProgram::of(&request.changes.command_in(folder.path())) else {
                return self.context.perform(request);
            };
            let (output, limits) = (request.output, request.limits);
            let run =
                ForkedRun { program, env: &request.changes.env, folder: &folder, launch: &launch, output, limits };
            match serving.server.run(&run) {
                Ok(Forked::Ran(outcome)) => return RunContext::left_by(&folder, outcome, request.keep),
                Ok(Forked::NeedsAProcess) => {}
                Ok(Forked::NeverForked) | Err(_) => *self.state() = State::Plain,
            }
        }
        self.context.perform(request)
    }

    fn prepare(&self, cards: &[Card]) {
        if let Some(program) = PythonProgram::of(&self.context.program.command) {
            self.serving(&program, cards);
        }
    }

    /// The launcher supervises one process at a time; the children of a server are the server's.
    fn jobs(&self) -> usize {
        if matches!(*self.state(), State::Serving(_)) { self.jobs } else { 1 }
    }
}
