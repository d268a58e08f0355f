//! Shows the cards at one moment.

use oomph_gpu::size::format as size;
use oomph_protocol::Moment;

use super::batches::grouped;
use super::page::{Ink, Page, Style, shortened};
use crate::clean;
use crate::watch::{MpsRole, Trend, WatchReport, WatchedFramework, WatchedGpu, WatchedOutlook, WatchedProcess};

/// A command line is cut at this many columns.
const COMMAND: usize = 60;

/// Figures of the framework that are older than this many seconds say so.
const OLD: f64 = 3.0;

/// Writes the cards, what is on them, and where it is heading.
#[must_use]
pub fn render_watch(report: &WatchReport, style: Style) -> String {
    let mut page = Page::new(style);
    for card in &report.cards {
        write_card(&mut page, card);
    }
    page.gap();
    page.paragraph(0, 2, &[(Ink::Faint, &watch_cost_words(report))]);
    page.finish()
}

/// The time that the looks spent inside the driver, in words.
#[must_use]
pub fn watch_cost_words(report: &WatchReport) -> String {
    format!("inside the driver: {} calls, {:.1} ms", report.driver.calls, report.driver.seconds * 1e3)
}

/// The number and the name of a card.
#[must_use]
pub fn watched_card_words(card: &WatchedGpu) -> String {
    let mut name = format!("GPU {}: {}", card.place, clean(&card.name));
    if let Some(mig) = card.mig {
        name = format!("{name}, MIG device {mig} of card {}", card.index);
    }
    if let Some(launcher) = card.rehearsal {
        name = format!("{name} (virtual, rehearsal {launcher})");
    }
    name
}

fn write_card(page: &mut Page, card: &WatchedGpu) {
    let name = watched_card_words(card);
    match (card.used_bytes, card.total_bytes, card.free_bytes) {
        (Some(used), Some(total), Some(free)) => {
            let memory = format!(": {} of {} used, {} free", size(used), size(total), size(free));
            page.paragraph(0, 2, &[(Ink::Strong, &name), (Ink::Plain, &memory)]);
        }
        _ => {
            let reason = clean(card.memory_reason.as_deref().unwrap_or("its memory is not known"));
            page.paragraph(0, 2, &[(Ink::Strong, &name), (Ink::Care, &format!(": {reason}"))]);
        }
    }
    for process in &card.processes {
        write_process(page, process);
    }
    match &card.processes_reason {
        Some(reason) => {
            page.paragraph(2, 4, &[(Ink::Faint, "processes:"), (Ink::Plain, &format!(" {}", clean(reason)))])
        }
        None if card.processes.is_empty() => page.paragraph(2, 4, &[(Ink::Faint, "no process is on it")]),
        None => {}
    }
}

fn write_process(page: &mut Page, process: &WatchedProcess) {
    let command = process
        .command
        .as_deref()
        .map_or_else(String::new, |command| format!(" {}", shortened(&clean(command), COMMAND, page.unicode())));
    let head = format!("{}{command}{}", process.pid, watched_role_words(process));
    let total = process.driver_bytes.map_or_else(String::new, |bytes| format!(": {}", size(bytes)));
    page.paragraph(2, 4, &[(Ink::Plain, &head), (Ink::Strong, &total)]);
    if let Some(framework) = &process.framework {
        let mut items = vec![
            vec![(Ink::Faint, "allocated ".to_owned()), (Ink::Plain, size(framework.allocated_bytes))],
            vec![(Ink::Faint, "cached ".to_owned()), (Ink::Plain, size(framework.cached_bytes))],
            vec![(Ink::Faint, "reserved ".to_owned()), (Ink::Plain, size(framework.reserved_bytes))],
        ];
        if let Some(outside) = process.outside_bytes {
            items.push(vec![(Ink::Faint, "outside the framework ".to_owned()), (Ink::Plain, size(outside))]);
        }
        page.items(4, &items);
        page.paragraph(4, 6, &[(Ink::Faint, &watched_moment_words(framework))]);
        if let Some(outlook) = &framework.outlook {
            let ink = match outlook.trend {
                Trend::Leak | Trend::GrowingInputs => Ink::Bad,
                Trend::Fragmentation | Trend::Fluctuating => Ink::Care,
                Trend::Unknown | Trend::Steady => Ink::Faint,
            };
            page.paragraph(4, 6, &[(ink, &outlook_words(outlook))]);
        }
    }
    for reason in watched_reasons(process) {
        page.paragraph(4, 6, &[(Ink::Faint, &reason)]);
    }
}

/// The rank of a process and its part in the Multi-Process Service, in parentheses behind its command line. Empty for a
/// process that has neither.
#[must_use]
pub fn watched_role_words(process: &WatchedProcess) -> String {
    let rank = process.rank.filter(|rank| *rank > 0).map_or_else(String::new, |rank| format!(" (rank {rank})"));
    let mps = match process.mps {
        Some(MpsRole::Client) => " (MPS client)",
        Some(MpsRole::Server) => " (MPS server)",
        None => "",
    };
    format!("{rank}{mps}")
}

/// Why figures of a process are not known, a line for each.
#[must_use]
pub fn watched_reasons(process: &WatchedProcess) -> Vec<String> {
    // What is outside the framework lacks one of the other two, and that reason is given already, unless both are there.
    let outside =
        process.outside_reason.as_ref().filter(|_| process.driver_bytes.is_some() && process.framework.is_some());
    [
        ("bytes on the card", process.driver_reason.as_ref()),
        ("framework", process.framework_reason.as_ref()),
        ("outside the framework", outside),
    ]
    .into_iter()
    .filter_map(|(what, reason)| Some(format!("{what}: {}", clean(reason?))))
    .collect()
}

/// The moment of a framework's figures, and its peaks.
#[must_use]
pub fn watched_moment_words(framework: &WatchedFramework) -> String {
    let step = grouped(framework.step);
    let moment = match framework.moment {
        Moment::Start => "before the first step".to_owned(),
        Moment::StepEnd => format!("at the end of step {step}"),
        Moment::Refusal => format!("when the card refused an allocation, after step {step}"),
        Moment::Other if framework.step == 0 => "before the first step's end".to_owned(),
        Moment::Other => format!("after step {step}"),
    };
    let old = if framework.age_seconds > OLD {
        format!(", {} ago", time_words(framework.age_seconds))
    } else {
        String::new()
    };
    let reserved = framework.reserved_peak_bytes.map_or_else(String::new, |peak| format!(", reserved {}", size(peak)));
    format!("{moment}{old}; peak allocated {}{reserved}", size(framework.allocated_peak_bytes))
}

/// Where memory is heading, in a line.
#[must_use]
pub fn outlook_words(outlook: &WatchedOutlook) -> String {
    let per_step = outlook.bytes_per_step.map_or_else(String::new, |bytes| {
        // A rate in whole bytes is exact enough, and nonsense becomes 0.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the rate of a growth is positive")]
        let bytes = bytes.round() as u64;
        format!(" by {} a step", size(bytes))
    });
    let full = match (outlook.full_at_step, outlook.full_in_seconds) {
        (Some(step), Some(seconds)) => format!("; full in about {}, step {}", time_words(seconds), grouped(step)),
        (Some(step), None) => format!("; full at about step {}", grouped(step)),
        _ => String::new(),
    };
    let headroom = outlook.headroom_bytes.map_or_else(String::new, |bytes| format!("; headroom {}", size(bytes)));
    match outlook.trend {
        Trend::Unknown => format!("trend: too few steps seen{headroom}"),
        Trend::Steady => format!("steady over {} steps{headroom}", grouped(outlook.steps_seen)),
        Trend::Leak => format!("leak: allocated grows{per_step}{full}{headroom}"),
        Trend::GrowingInputs => {
            format!("growing inputs: the peak grows{per_step}, allocated at step ends does not{full}{headroom}")
        }
        Trend::Fragmentation => format!(
            "fragmentation: reserved grows{per_step}, allocated does not; expandable_segments:True in \
             PYTORCH_ALLOC_CONF helps{headroom}"
        ),
        Trend::Fluctuating => format!("fluctuating{headroom}"),
    }
}

/// A time in the unit that suits it.
#[must_use]
pub fn time_words(seconds: f64) -> String {
    match seconds {
        short if short < 1.5 => "1 second".into(),
        short if short < 90.0 => format!("{short:.0} seconds"),
        medium if medium < 90.0 * 60.0 => format!("{:.0} minutes", medium / 60.0),
        long if long < 48.0 * 3600.0 => format!("{:.0} hours", long / 3600.0),
        long => format!("{:.0} days", long / 86400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        let times = [0.2, 40.0, 2400.0, 7200.0, 400_000.0].map(time_words);
        assert_eq!(times, ["1 second", "40 seconds", "40 minutes", "2 hours", "5 days"]);
    }

    #[test]
    fn roles_and_reasons_are_named() {
        let mut process = WatchedProcess { rank: Some(3), mps: Some(MpsRole::Client), ..WatchedProcess::default() };
        assert_eq!(watched_role_words(&process), " (rank 3) (MPS client)");
        process.driver_reason = Some("it is WSL2".into());
        process.outside_reason = Some("it is WSL2".into());
        assert_eq!(watched_reasons(&process), ["bytes on the card: it is WSL2"], "a reason is given once");
        (process.rank, process.mps) = (Some(0), None);
        assert_eq!(watched_role_words(&process), "");
    }
}
