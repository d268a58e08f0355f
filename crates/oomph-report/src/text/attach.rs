//! Shows what was seen inside running processes.

use oomph_gpu::size::format as size;

use super::explain_snapshot;
use super::page::{Ink, Page, Style, shortened};
use crate::attach::{AttachReport, AttachedDevice, AttachedProcess};
use crate::clean;

/// A command line is cut at this many columns.
const COMMAND: usize = 60;

/// Writes the processes, their cards, and whose memory it is.
#[must_use]
pub fn render_attach(report: &AttachReport, style: Style) -> String {
    let mut page = Page::new(style);
    for process in &report.processes {
        page.gap();
        write_process(&mut page, process, report.action);
    }
    page.finish()
}

fn write_process(page: &mut Page, process: &AttachedProcess, action: &str) {
    let command = process
        .command
        .as_deref()
        .map_or_else(String::new, |command| format!(" {}", shortened(&clean(command), COMMAND, page.unicode())));
    let rank = process.rank.map_or_else(String::new, |rank| format!(" (rank {rank})"));
    page.paragraph(
        0,
        2,
        &[(Ink::Strong, &format!("process {}", process.pid)), (Ink::Plain, &format!("{command}{rank}"))],
    );
    let mut facts = Vec::new();
    facts.extend(process.python.as_ref().map(|version| format!("Python {}", clean(version))));
    facts.extend(process.torch.as_ref().map(|version| format!("PyTorch {}", clean(version))));
    facts.extend(process.threads.map(|threads| format!("{threads} threads")));
    facts.extend(process.user.map(|user| format!("user {user}")));
    if !facts.is_empty() {
        page.paragraph(2, 4, &[(Ink::Faint, &facts.join(", "))]);
    }
    if action == "check" {
        for way in &process.ways {
            match &way.closed {
                None => page.paragraph(2, 4, &[(Ink::Good, "open:"), (Ink::Plain, &format!(" {}", way.name))]),
                Some(reason) => page.paragraph(
                    2,
                    4,
                    &[(Ink::Care, "closed:"), (Ink::Plain, &format!(" {}: {}", way.name, clean(reason)))],
                ),
            }
        }
    } else if let Some(way) = process.ways.iter().find(|way| Some(way.id) == process.way) {
        let pause =
            process.seconds.map_or_else(String::new, |seconds| format!("; it paused for {:.0} ms", seconds * 1e3));
        page.paragraph(2, 4, &[(Ink::Faint, "attached by"), (Ink::Plain, &format!(" {}{pause}", way.name))]);
    }
    if let Some(reason) = &process.reason {
        let (word, ink) = if process.failed { ("not attached:", Ink::Bad) } else { ("nothing to see:", Ink::Care) };
        page.paragraph(2, 4, &[(ink, word), (Ink::Plain, &format!(" {}", clean(reason)))]);
    }
    if let Some(hint) = &process.hint {
        page.paragraph(2, 4, &[(Ink::Faint, "hint:"), (Ink::Plain, &format!(" {}", clean(hint)))]);
    }
    for device in &process.devices {
        write_device(page, device);
    }
    write_recording(page, process);
    for note in &process.notes {
        page.paragraph(2, 4, &[(Ink::Faint, "note:"), (Ink::Plain, &format!(" {}", clean(note)))]);
    }
    let used = |device: &&oomph_explain::snapshot::DeviceExplanation| device.peak_reserved_bytes > 0;
    for device in process.explanation.iter().filter(used) {
        page.gap();
        explain_snapshot::device(page, device);
    }
}

/// The layers: the card, the process on it, the framework in the process.
fn write_device(page: &mut Page, device: &AttachedDevice) {
    let name = format!("cuda:{} {}", device.index, clean(&device.name));
    let free = device.free_bytes.map_or_else(
        || ": what is free cannot be asked while a CUDA graph is captured".to_owned(),
        |free| {
            let used = device.total_bytes.saturating_sub(free);
            format!(": {} of {} used, {} free", size(used), size(device.total_bytes), size(free))
        },
    );
    page.paragraph(2, 4, &[(Ink::Strong, &name), (Ink::Plain, &free)]);
    let cached = device.reserved_bytes.saturating_sub(device.allocated_bytes);
    let mut items = vec![
        vec![(Ink::Faint, "allocated ".to_owned()), (Ink::Plain, size(device.allocated_bytes))],
        vec![(Ink::Faint, "cached ".to_owned()), (Ink::Plain, size(cached))],
        vec![(Ink::Faint, "reserved ".to_owned()), (Ink::Plain, size(device.reserved_bytes))],
    ];
    if let Some(outside) = device.outside_bytes {
        items.push(vec![(Ink::Faint, "contexts and other processes ".to_owned()), (Ink::Plain, size(outside))]);
    }
    page.items(4, &items);
    let peaks = format!(
        "peak allocated {}, reserved {}; {} live allocations",
        size(device.allocated_peak_bytes),
        size(device.reserved_peak_bytes),
        device.allocations
    );
    let trouble = match (device.retries, device.refusals) {
        (0, 0) => String::new(),
        (retries, refusals) => format!("; {retries} cache flushes after a refusal, {refusals} out-of-memory errors"),
    };
    page.paragraph(4, 6, &[(Ink::Faint, &peaks), (Ink::Care, &trouble)]);
}

fn write_recording(page: &mut Page, process: &AttachedProcess) {
    if let Some(recorded) = &process.recorded {
        let whose = if recorded.theirs { "the program's own recording" } else { "recorded" };
        let words = format!("{whose}: {} optimizer steps in {:.1} s", recorded.steps, recorded.seconds);
        page.paragraph(2, 4, &[(Ink::Plain, &words)]);
    } else if process.recording.as_deref() == Some("off") && !process.devices.is_empty() {
        let words = "PyTorch does not record: who allocated what, and since when, needs --record 5";
        page.paragraph(2, 4, &[(Ink::Faint, words)]);
    }
    if let Some(dump) = &process.dump {
        let words = format!("it records until memory runs out, and then writes {}", clean(dump));
        page.paragraph(2, 4, &[(Ink::Good, &words)]);
        page.paragraph(2, 4, &[(Ink::Faint, &format!("end that with oomph attach --stop {}", process.pid))]);
    }
    if let Some(snapshot) = &process.snapshot {
        page.paragraph(2, 4, &[(Ink::Faint, "snapshot:"), (Ink::Plain, &format!(" {}", clean(snapshot)))]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::{AttachSchema, WayIn};

    #[test]
    fn a_check_says_which_way_is_open_and_why_not() {
        let way =
            |id, closed: Option<&str>| WayIn { id, name: id.to_owned(), closed: closed.map(str::to_owned), hint: None };
        let process = AttachedProcess {
            pid: 7,
            command: Some("python \u{1b}[31mtrain.py".into()),
            ways: vec![way("door", Some("it does not run under oomph")), way("ptrace", None)],
            ..AttachedProcess::default()
        };
        let report = AttachReport { schema: AttachSchema, action: "check", processes: vec![process] };
        let text = render_attach(&report, Style::default());
        assert!(text.starts_with("process 7 python ") && !text.contains('\u{1b}'), "{text}");
        assert!(text.contains("closed: door: it does not run under oomph") && text.contains("open: ptrace"), "{text}");
    }
}
