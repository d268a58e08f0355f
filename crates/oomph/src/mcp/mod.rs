//! `oomph mcp`: a Model Context Protocol server on stdin and stdout, for coding agents.
//!
//! A tool is a command of oomph: its schema comes from the definition that parses the command line (`tools`), and a call
//! runs this executable as a process of its own with `--brief` (`job`). So a tool answers what the command answers, can do
//! nothing that the command cannot, and is ended like a command. Options that write files or upload are left to people.

mod job;
mod tools;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use tokio::sync::{RwLock, mpsc};

use crate::failure::hinted;
use crate::output;
use crate::status;

use job::{Finished, Job};
use tools::Offered;

/// How long the commands that run have to end when the server ends.
const GRACE: Duration = Duration::from_secs(10);

const INSTRUCTIONS: &str = "\
oomph predicts, explains and fixes CUDA out-of-memory errors without a GPU. dry_run runs an unmodified program on a virtual \
card and says whether it fits, what it needs and which line dies. When it does not fit, fix finds changes that were run and \
fit, as a patch or a command line; tune finds the largest batch or length. explain reads a log or a memory snapshot of a \
crash. plan answers from a model's name alone, in milliseconds. Sizes are in bytes (GiB = 2^30). Programs run unmodified; \
what they would write is thrown away.";

/// Serves until the client leaves.
///
/// # Errors
/// When no client speaks the protocol on stdin.
pub fn run() -> Result<ExitCode> {
    // One thread: what a command is started by must live as long as the server (`end_with_parent`).
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the server")?;
    let served = runtime.block_on(serve());
    // A read of stdin cannot be called off.
    runtime.shutdown_background();
    served.map(|()| ExitCode::from(status::DONE))
}

async fn serve() -> Result<()> {
    if std::io::stdin().is_terminal() {
        output::say("oomph: this serves the Model Context Protocol on stdin; an agent starts it (Ctrl-D ends it)");
    }
    let server = Server { tools: tools::offered(), running: Arc::default() };
    let running = Arc::clone(&server.running);
    let service = server.serve(rmcp::transport::stdio()).await.map_err(|error| {
        hinted(
            format!("no client of the Model Context Protocol spoke on stdin: {error}"),
            "an agent starts this command; see `oomph mcp --help`",
        )
    })?;
    let stop = service.cancellation_token();
    let waiting = service.waiting();
    tokio::pin!(waiting);
    tokio::select! {
        _ = &mut waiting => {}
        () = asked_to_end() => {
            stop.cancel();
            let _ = tokio::time::timeout(GRACE, waiting).await;
        }
    }
    // Each command that runs holds the lock together with the others, and has been asked to end.
    let _ = tokio::time::timeout(GRACE, running.write()).await;
    Ok(())
}

/// Comes to its end when a signal asks this process to end.
#[cfg(unix)]
async fn asked_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Comes to its end when Ctrl-C asks this process to end.
#[cfg(not(unix))]
async fn asked_to_end() {
    let _ = tokio::signal::ctrl_c().await;
}

struct Server {
    tools: Vec<Offered>,
    running: Arc<RwLock<()>>,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("oomph", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.iter().map(Offered::tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let offered = self.tools.iter().find(|offered| offered.name() == request.name);
        let offered = offered.ok_or_else(|| {
            let names: Vec<&str> = self.tools.iter().map(Offered::name).collect();
            let message = format!("there is no tool `{}`; there are {}", request.name, names.join(", "));
            ErrorData::invalid_params(message, None)
        })?;
        let call = offered.call(request.arguments.unwrap_or_default()).map_err(|wrong| wrong.into_error())?;
        let _running = self.running.read().await;
        let (tell, mut messages) = mpsc::unbounded_channel();
        let forward = async {
            let mut count = 0.0;
            while let Some(message) = messages.recv().await {
                let Some(token) = context.meta.get_progress_token() else { continue };
                count += 1.0;
                let progress = ProgressNotificationParam::new(token, count).with_message(message);
                // A client that does not listen gets its answer all the same.
                let _ = context.peer.notify_progress(progress).await;
            }
        };
        let job = Job { arguments: call.arguments, directory: call.directory };
        let (finished, ()) = tokio::join!(job.run(context.ct.cancelled(), tell), forward);
        match finished {
            Ok(Some(finished)) => Ok(answer(&finished).into()),
            // Nobody waits for the answer of a call that was cancelled.
            Ok(None) => Ok(CallToolResult::error(vec![ContentBlock::text("cancelled")]).into()),
            Err(error) => Err(ErrorData::internal_error(format!("cannot run oomph: {error}"), None)),
        }
    }
}

/// The answer of a command: its document; where it has none, what it said instead.
fn answer(finished: &Finished) -> CallToolResult {
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(&finished.stdout) else {
        let said = finished.said();
        let text = if said.is_empty() { format!("oomph ended with {}", finished.status) } else { said };
        return CallToolResult::error(vec![ContentBlock::text(text)]);
    };
    let failed = document["verdict"] == "failed";
    let mut result = CallToolResult::structured(document);
    if failed {
        result.content.push(ContentBlock::text(format!("The end of its messages:\n{}", finished.messages())));
    }
    result
}
