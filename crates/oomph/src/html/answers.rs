//! Lays out the commands' answers for a page: a headline, bars, and texts to copy.

use oomph_explain::snapshot::OwnerRow;
use oomph_report::{
    DiffReport, DryRunReport, ExplainReport, FixReport, FixVerdict, PlanReport, Style, SweepCell, SweepReport,
    TuneReport, TuneVerdict, Verdict, render_diff, render_dry_run, render_explain, render_fix, render_plan,
    render_sweep, render_tune,
};
use oomph_view::{Answer, Row, Section, Tone};

/// The title of the section with the text of an answer.
pub const WHOLE: &str = "The whole answer";
/// How wide the text of an answer is on a page.
const WIDTH: usize = 92;
/// Wide enough for a paragraph on one line.
const WIDEST: usize = 4000;

/// An answer whose headline is the first line of what the terminal shows, and which has all of that at its end.
fn answer(render: impl Fn(Style) -> String, tone: Tone, mut sections: Vec<Section>) -> Answer {
    let style = |width| Style { width, colour: false, unicode: true };
    let wide = render(style(WIDEST));
    let headline = wide.trim_start().lines().next().unwrap_or_default().trim().to_owned();
    sections.push(Section {
        title: WHOLE.into(),
        rows: vec![Row { code: Some(render(style(WIDTH)).trim().to_owned()), ..Row::default() }],
        ..Section::default()
    });
    Answer { headline, tone, lines: Vec::new(), sections }
}

fn commands<'a>(next: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<Section> {
    let rows: Vec<Row> = next
        .into_iter()
        .map(|(why, command)| Row { note: why.to_owned(), code: Some(command.to_owned()), ..Row::default() })
        .collect();
    (!rows.is_empty()).then(|| Section { title: "Next".into(), rows, ..Section::default() })
}

fn owners(title: &str, rows: &[OwnerRow], limit: Option<u64>) -> Option<Section> {
    let row =
        |row: &OwnerRow| Row { name: row.owner.name().replace('-', " "), bytes: Some(row.bytes), ..Row::default() };
    let rows: Vec<Row> = rows.iter().filter(|row| row.bytes > 0).map(row).collect();
    (!rows.is_empty()).then(|| Section { title: title.into(), limit, rows, ..Section::default() })
}

/// Of logs: recordings speak for themselves.
pub fn explain(report: &ExplainReport) -> Option<Answer> {
    let failures = report.failures.as_ref()?;
    let bad = failures.iter().any(|failure| failure.is_gpu_oom);
    let mut sections = Vec::new();
    for failure in failures.iter().take(3) {
        let rows: Vec<Row> = failure
            .remedies
            .iter()
            .map(|offer| Row {
                name: offer.title.clone(),
                note: offer.because.clone(),
                code: Some(offer.apply.clone()).filter(|text| !text.is_empty()),
                ..Row::default()
            })
            .collect();
        if !rows.is_empty() {
            sections.push(Section { title: "What to try".into(), rows, ..Section::default() });
        }
    }
    let tone = if bad { Tone::Bad } else { Tone::Plain };
    Some(answer(|style| render_explain(report, style), tone, sections))
}

/// Of a dry run.
pub fn dry_run(report: &DryRunReport) -> Answer {
    let tone = match report.verdict {
        Verdict::Fits => Tone::Good,
        Verdict::Oom | Verdict::Recovered => Tone::Bad,
        Verdict::Failed | Verdict::Unsure | Verdict::NoGpuUse => Tone::Plain,
    };
    let mut sections = Vec::new();
    for device in &report.devices {
        let mut rows = vec![Row {
            name: "peak on the card".into(),
            bytes: Some(device.peak.process_bytes),
            note: format!("cuda:{} ({})", device.index, device.gpu),
            tone: if device.oom.is_some() { Tone::Bad } else { Tone::Plain },
            ..Row::default()
        }];
        rows.extend(device.smallest_capacity.as_ref().map(|smallest| Row {
            name: "smallest card that holds it".into(),
            bytes: Some(smallest.capacity_bytes),
            tone: Tone::Good,
            ..Row::default()
        }));
        rows.extend(device.phases.iter().map(|phase| Row {
            name: phase.phase.spelled_out().to_owned(),
            bytes: Some(phase.reserved_bytes),
            note: format!("reserved; {} allocated", size(phase.allocated_bytes)),
            ..Row::default()
        }));
        sections.push(Section {
            title: format!("cuda:{}", device.index),
            limit: device.capacity_bytes,
            rows,
            ..Section::default()
        });
    }
    let cards: Vec<Row> = report
        .smallest
        .iter()
        .map(|card| Row {
            name: card.gpu_name.clone(),
            bytes: Some(card.capacity_bytes),
            note: if card.tight { "tight".into() } else { String::new() },
            ..Row::default()
        })
        .collect();
    if !cards.is_empty() {
        sections.push(Section { title: "Cards that hold it".into(), rows: cards, ..Section::default() });
    }
    sections.extend(commands(report.next.iter().map(|step| (step.why.as_str(), step.command.as_str()))));
    answer(|style| render_dry_run(report, style), tone, sections)
}

/// Of a search for fixes: each as a bar against the card, with its patch.
pub fn fix(report: &FixReport) -> Answer {
    let tone = match report.verdict {
        FixVerdict::Fixed | FixVerdict::FitsAlready => Tone::Good,
        FixVerdict::NothingFits => Tone::Bad,
        FixVerdict::Failed => Tone::Plain,
    };
    let baseline = &report.baseline;
    let limit = baseline.limit_bytes.or(baseline.capacity_bytes);
    let mut rows: Vec<Row> = baseline
        .peak_bytes
        .map(|bytes| Row {
            name: "unmodified".into(),
            bytes: Some(bytes),
            note: if baseline.peak_is_minimum { "at least".into() } else { String::new() },
            tone: if baseline.oom.is_some() { Tone::Bad } else { Tone::Plain },
            ..Row::default()
        })
        .into_iter()
        .collect();
    for fix in &report.fixes {
        let mut note = vec![format!("speed: {}", fix.time())];
        note.extend(fix.quality_cost.iter().map(|cost| format!("quality: {cost}")));
        note.push(if fix.verified { "run on the virtual GPU".into() } else { "not verified".to_owned() });
        note.extend(fix.notes.iter().cloned());
        let patch: Vec<&str> =
            fix.apply.iter().map(|apply| apply.text.as_str()).chain(fix.command.as_deref()).collect();
        rows.push(Row {
            name: fix.titles.join(" + "),
            bytes: Some(fix.peak_bytes),
            note: note.join("; "),
            tone: if fix.verdict == Verdict::Fits { Tone::Good } else { Tone::Bad },
            code: (!patch.is_empty()).then(|| patch.join("\n\n")),
        });
    }
    let mut sections = vec![Section { title: "Fixes".into(), limit, rows, ..Section::default() }];
    let attempts: Vec<Row> = report
        .attempts
        .iter()
        .map(|attempt| Row {
            name: attempt.remedies.join(" + "),
            bytes: attempt.peak_bytes,
            note: attempt.why.clone().unwrap_or_default(),
            tone: if attempt.verdict == Verdict::Fits { Tone::Good } else { Tone::Bad },
            ..Row::default()
        })
        .collect();
    if !attempts.is_empty() {
        sections.push(Section { title: "Everything that was run".into(), limit, rows: attempts, ..Section::default() });
    }
    sections.extend(owners("Whose memory, unmodified", &baseline.owners, None));
    sections.extend(commands(report.next.iter().map(|step| (step.why.as_str(), step.command.as_str()))));
    answer(|style| render_fix(report, style), tone, sections)
}

/// Of a search for the largest value: every value that was run, against the card.
pub fn tune(report: &TuneReport) -> Answer {
    let tone = match report.verdict {
        TuneVerdict::Found | TuneVerdict::AllFit => Tone::Good,
        TuneVerdict::NoneFits => Tone::Bad,
        TuneVerdict::Failed => Tone::Plain,
    };
    let mut tried: Vec<_> = report.tried.iter().collect();
    tried.sort_by(|a, b| a.values.iter().cmp(b.values.iter()));
    let rows = tried
        .into_iter()
        .map(|tried| {
            let values: Vec<String> = tried.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let mut note = Vec::new();
            let died = tried.phase.filter(|_| tried.verdict == Verdict::Oom);
            let phase = died.and_then(|phase| serde_json::to_value(phase).ok());
            note.extend(phase.and_then(|phase| phase.as_str().map(|phase| format!("ran out in {phase}"))));
            note.extend(tried.step.map(|step| format!("step {step}")));
            note.extend((Some(&tried.values) == report.recommended.as_ref()).then(|| "recommended".to_owned()));
            note.extend((Some(&tried.values) == report.best.as_ref()).then(|| "the largest that fits".to_owned()));
            Row {
                name: values.join(", "),
                bytes: tried.peak_bytes,
                note: note.join("; "),
                tone: if tried.verdict == Verdict::Fits { Tone::Good } else { Tone::Bad },
                code: None,
            }
        })
        .collect();
    let limit = (report.capacity_bytes > 0).then_some(report.capacity_bytes);
    let mut sections =
        vec![Section { title: format!("{} on {}", report.varied, report.gpu), limit, rows, ..Section::default() }];
    sections.extend(commands(report.next.iter().map(|step| (step.why.as_str(), step.command.as_str()))));
    answer(|style| render_tune(report, style), tone, sections)
}

/// Of a sweep: a section per card, with a bar for each cell.
pub fn sweep(report: &SweepReport, by: Option<&str>) -> Answer {
    const CARDS: &str = "gpu";
    let cards: Vec<Option<&String>> =
        report.axis(CARDS).map_or_else(|| vec![None], |axis| axis.values.iter().map(Some).collect());
    let row = |cell: &SweepCell| {
        let others = report.axes.iter().filter(|axis| axis.name != CARDS || report.axes.len() == 1);
        let named = others.filter_map(|axis| Some(format!("{}={}", axis.name, cell.values.get(&axis.name)?)));
        let word = |value: serde_json::Result<serde_json::Value>| Some(value.ok()?.as_str()?.replace('-', " "));
        let phase = cell.phase.filter(|_| cell.verdict == Some(Verdict::Oom));
        let note = [
            cell.verdict.filter(|_| !cell.fits()).and_then(|verdict| word(serde_json::to_value(verdict))),
            phase.and_then(|phase| word(serde_json::to_value(phase))),
            cell.pending.and_then(|pending| word(serde_json::to_value(pending))),
            cell.message.clone(),
        ];
        Row {
            name: named.collect::<Vec<_>>().join(", "),
            bytes: cell.peak_bytes.filter(|_| cell.fits()),
            note: note.into_iter().flatten().collect::<Vec<_>>().join("; "),
            tone: match (cell.fits(), cell.verdict) {
                (true, _) => Tone::Good,
                (false, Some(_)) => Tone::Bad,
                (false, None) => Tone::Plain,
            },
            code: None,
        }
    };
    let section = |card: &Option<&String>| {
        let own: Vec<&SweepCell> =
            report.cells.iter().filter(|cell| card.is_none_or(|card| cell.values.get(CARDS) == Some(card))).collect();
        Section {
            title: card.map_or_else(|| "Cells".to_owned(), |card| (*card).clone()),
            limit: own.iter().find_map(|cell| cell.capacity_bytes),
            rows: own.into_iter().map(row).collect(),
            ..Section::default()
        }
    };
    answer(|style| render_sweep(report, by, style), Tone::Plain, cards.iter().map(section).collect())
}

/// Of a plan: owners, and what would change it.
pub fn plan(report: &PlanReport) -> Answer {
    let mut sections = Vec::new();
    let mut tone = Tone::Plain;
    for device in &report.devices {
        tone = match device.fits {
            Some(oomph_report::Fits::Yes) => Tone::Good,
            Some(oomph_report::Fits::No) => Tone::Bad,
            _ => tone,
        };
        let mut rows = vec![Row {
            name: "expected".into(),
            bytes: Some(device.expected_bytes),
            note: format!("between {} and {}", size(device.low_bytes), size(device.high_bytes)),
            tone,
            ..Row::default()
        }];
        rows.extend(device.owners.iter().map(|owner| Row {
            name: owner.owner.replace('-', " "),
            bytes: Some(owner.bytes),
            ..Row::default()
        }));
        let title = device.gpu.clone().unwrap_or_else(|| "each card".into());
        sections.push(Section { title, limit: device.capacity_bytes, rows, ..Section::default() });
    }
    let remedies: Vec<Row> = report
        .remedies
        .iter()
        .map(|remedy| Row {
            name: remedy.title.clone(),
            bytes: Some(remedy.expected_bytes),
            note: if remedy.changes_result { "changes the result".into() } else { String::new() },
            ..Row::default()
        })
        .collect();
    if !remedies.is_empty() {
        let limit = report.devices.first().and_then(|device| device.capacity_bytes);
        sections.push(Section { title: "With one change".into(), limit, rows: remedies, ..Section::default() });
    }
    answer(|style| render_plan(report, style), tone, sections)
}

/// Of a comparison.
pub fn diff(report: &DiffReport) -> Answer {
    answer(|style| render_diff(report, style), Tone::Plain, Vec::new())
}

fn size(bytes: u64) -> String {
    oomph_gpu::size::format(bytes)
}
