//! Tests how the view looks, and that no size and no key makes it fail.

use oomph_report::{
    Moment, MpsRole, Style, Trend, WatchCost, WatchReport, WatchSchema, WatchedFramework, WatchedGpu, WatchedOutlook,
    WatchedProcess,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use super::draw::draw;
use super::view::View;
use super::{Key, key};

const MIB: u64 = 1 << 20;
const UNICODE: Style = Style { width: 80, colour: false, unicode: true };
const ASCII: Style = Style { unicode: false, ..UNICODE };

fn card(place: usize, processes: Vec<WatchedProcess>) -> WatchedGpu {
    WatchedGpu {
        place,
        index: u32::try_from(place).unwrap(),
        name: "NVIDIA GeForce RTX 3060".into(),
        total_bytes: Some(12_288 * MIB),
        used_bytes: Some(8_000 * MIB),
        free_bytes: Some(4_288 * MIB),
        processes,
        ..WatchedGpu::default()
    }
}

fn leak() -> WatchedOutlook {
    WatchedOutlook {
        trend: Trend::Leak,
        bytes_per_step: Some(4.0 * 1_048_576.0),
        headroom_bytes: Some(4_788 * MIB),
        full_at_step: Some(2_310),
        full_in_seconds: Some(2_400.0),
        seconds_per_step: Some(2.4),
        steps_seen: 900,
    }
}

fn trains(pid: u32, outlook: WatchedOutlook) -> WatchedProcess {
    WatchedProcess {
        pid,
        command: Some("python train.py --model llama --batch-size 32 --gradient-checkpointing".into()),
        driver_bytes: Some(7_600 * MIB),
        framework: Some(WatchedFramework {
            allocated_bytes: 6_000 * MIB,
            reserved_bytes: 7_000 * MIB,
            cached_bytes: 1_000 * MIB,
            allocated_peak_bytes: 6_500 * MIB,
            reserved_peak_bytes: Some(7_000 * MIB),
            step: 1_310,
            process_steps: 1_310,
            moment: Moment::StepEnd,
            age_seconds: 0.2,
            outlook: Some(outlook),
            ..WatchedFramework::default()
        }),
        outside_bytes: Some(600 * MIB),
        ..WatchedProcess::default()
    }
}

fn foreign(pid: u32) -> WatchedProcess {
    WatchedProcess {
        pid,
        command: Some("/usr/bin/Xorg :0".into()),
        driver_bytes: Some(40 * MIB),
        framework_reason: Some("it was not started by oomph run".into()),
        outside_reason: Some("it was not started by oomph run".into()),
        ..WatchedProcess::default()
    }
}

fn report(time: f64, cards: Vec<WatchedGpu>) -> WatchReport {
    WatchReport { schema: WatchSchema, time, cards, driver: WatchCost { calls: 128, seconds: 0.0031 } }
}

/// Two minutes of a card that fills.
fn watched(cards: &[WatchedGpu], style: Style) -> View {
    let mut view = View::new(style);
    for second in 0..=120_u64 {
        let mut cards = cards.to_vec();
        for card in &mut cards {
            card.used_bytes = card.used_bytes.map(|used| used * (second + 60) / 180);
            if second == 120 {
                card.used_bytes = cards_used(card);
            }
        }
        let news = if second == 5 { vec!["1970-01-01T00:00:05Z GPU 0: 4711 is on it".into()] } else { vec![] };
        #[expect(clippy::cast_precision_loss, reason = "two minutes")]
        view.add(&report(second as f64, cards), news);
    }
    view
}

fn cards_used(card: &WatchedGpu) -> Option<u64> {
    Some(card.total_bytes? - card.free_bytes?)
}

fn drawn(view: &mut View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, view)).unwrap();
    let buffer = terminal.backend().buffer();
    assert!(view.style.colour || buffer.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    // The backend cannot write a screen without columns.
    if width == 0 { String::new() } else { terminal.backend().to_string() }
}

fn unavailable() -> Vec<WatchedGpu> {
    let reason = "under WSL2 the driver does not report memory per process";
    let mut blind = trains(4711, WatchedOutlook::default());
    (blind.driver_bytes, blind.driver_reason) = (None, Some(reason.into()));
    (blind.outside_bytes, blind.outside_reason) = (None, Some(reason.into()));
    let memory = WatchedGpu {
        name: "NVIDIA T4".into(),
        place: 1,
        memory_reason: Some("the driver is too old to tell its memory; update it to 510 or later".into()),
        processes_reason: Some("this user is not allowed to list the processes of the card".into()),
        ..WatchedGpu::default()
    };
    vec![card(0, vec![blind]), memory]
}

fn twelve() -> Vec<WatchedGpu> {
    let mut processes: Vec<_> = (0..10).map(|at| trains(4_700 + at, leak())).collect();
    processes[3].mps = Some(MpsRole::Client);
    processes[4].rank = Some(4);
    processes.push(foreign(9_001));
    processes.push(foreign(9_002));
    vec![WatchedGpu {
        name: "NVIDIA H100 80GB HBM3".into(),
        total_bytes: Some(81_559 * MIB),
        used_bytes: Some(76_800 * MIB),
        free_bytes: Some(4_759 * MIB),
        ..card(0, processes)
    }]
}

#[test]
fn one_card_with_no_process() {
    let mut view = watched(&[card(0, vec![])], UNICODE);
    insta::assert_snapshot!("empty-80x24", drawn(&mut view, 80, 24));
    insta::assert_snapshot!("empty-160x50", drawn(&mut view, 160, 50));
}

#[test]
fn one_process() {
    let mut view = watched(&[card(0, vec![trains(4711, leak())])], UNICODE);
    insta::assert_snapshot!("one-80x24", drawn(&mut view, 80, 24));
    insta::assert_snapshot!("one-160x50", drawn(&mut view, 160, 50));
    let mut plain = watched(&[card(0, vec![trains(4711, leak())])], ASCII);
    let text = drawn(&mut plain, 80, 24);
    assert!(text.is_ascii(), "{text}");
    insta::assert_snapshot!("one-ascii-80x24", text);
}

#[test]
fn two_cards() {
    let steady = WatchedOutlook { trend: Trend::Steady, steps_seen: 40, ..WatchedOutlook::default() };
    let cards = [card(0, vec![trains(4711, leak()), foreign(17)]), card(1, vec![trains(4712, steady)])];
    let mut view = watched(&cards, UNICODE);
    insta::assert_snapshot!("two-80x24", drawn(&mut view, 80, 24));
    insta::assert_snapshot!("two-160x50", drawn(&mut view, 160, 50));
}

#[test]
fn twelve_processes_and_help() {
    let mut view = watched(&twelve(), UNICODE);
    insta::assert_snapshot!("twelve-80x24", drawn(&mut view, 80, 24));
    view.press(Key::Up);
    view.press(Key::Help);
    insta::assert_snapshot!("twelve-last-help-80x24", drawn(&mut view, 80, 24));
    insta::assert_snapshot!("twelve-last-help-160x50", drawn(&mut view, 160, 50));
}

#[test]
fn figures_that_are_not_known_have_reasons() {
    let mut view = watched(&unavailable(), UNICODE);
    insta::assert_snapshot!("unavailable-80x24", drawn(&mut view, 80, 24));
    insta::assert_snapshot!("unavailable-160x50", drawn(&mut view, 160, 50));
}

#[test]
fn tiny_terminals_show_what_fits() {
    let mut view = watched(&[card(0, vec![trains(4711, leak())]), card(1, vec![])], UNICODE);
    let sizes = [(10, 3), (20, 5), (30, 8), (40, 12)];
    let all = sizes.map(|(width, height)| format!("{width}x{height}\n{}", drawn(&mut view, width, height)));
    insta::assert_snapshot!("tiny", all.join("\n"));
}

#[test]
fn no_size_and_no_figure_makes_it_fail() {
    let strange = WatchedGpu {
        name: "\u{1b}[31m表\u{200b}".repeat(40),
        used_bytes: Some(u64::MAX),
        free_bytes: Some(u64::MAX),
        total_bytes: Some(0),
        processes: vec![WatchedProcess {
            pid: u32::MAX,
            command: Some("表 ".repeat(3_000)),
            driver_bytes: Some(u64::MAX),
            outside_bytes: Some(u64::MAX),
            framework: Some(WatchedFramework {
                allocated_bytes: u64::MAX,
                step: u64::MAX,
                age_seconds: f64::NAN,
                ..WatchedFramework::default()
            }),
            ..WatchedProcess::default()
        }],
        ..WatchedGpu::default()
    };
    let many: Vec<_> = (0..40).map(|place| card(place, vec![foreign(7)])).collect();
    for cards in [vec![], vec![strange], many, twelve(), unavailable()] {
        for style in [UNICODE, ASCII, Style { colour: true, ..UNICODE }] {
            let mut view = View::new(style);
            drawn(&mut view, 80, 24);
            view.add(&report(f64::NAN, cards.clone()), vec!["\u{7} news".into()]);
            for (width, height) in (0..60).map(|size| (size * 3, size)).chain((0..60).map(|size| (size, 60 - size))) {
                for key in [Key::Down, Key::Up, Key::Last, Key::PageUp, Key::PageDown, Key::First, Key::Help] {
                    view.press(key);
                    drawn(&mut view, width, height);
                }
            }
            view.add(&report(0.0, vec![]), vec![]);
            drawn(&mut view, 80, 24);
        }
    }
}

#[test]
fn the_selection_stays_with_its_process() {
    let mut view = watched(&twelve(), UNICODE);
    let pid = |view: &View| view.selected().map(|(_, process)| process.pid);
    assert_eq!(pid(&view), Some(4_700));
    view.press(Key::Up);
    assert_eq!(pid(&view), Some(9_002), "up from the first is the last");
    view.press(Key::PageUp);
    assert_eq!(pid(&view), Some(4_701));
    let mut fewer = twelve();
    fewer[0].processes.remove(0);
    view.add(&report(121.0, fewer.clone()), vec![]);
    assert_eq!(pid(&view), Some(4_701));
    fewer[0].processes.remove(0);
    view.add(&report(122.0, fewer), vec![]);
    assert_eq!(pid(&view), Some(4_702), "the next takes the place of one that ended");
    view.add(&report(123.0, vec![card(0, vec![])]), vec![]);
    assert_eq!(pid(&view), None);
}

#[test]
fn keys_end_with_their_status() {
    let plain = |code| key(KeyEvent::new(code, KeyModifiers::NONE));
    let control = |letter| key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
    assert_eq!(
        [plain(KeyCode::Char('q')), plain(KeyCode::Esc), control('c')],
        [0, 0, 130].map(|end| Some(Key::End(end)))
    );
    assert_eq!((plain(KeyCode::Tab), plain(KeyCode::BackTab)), (Some(Key::Down), Some(Key::Up)));
    assert_eq!((plain(KeyCode::Char('?')), control('q'), plain(KeyCode::Char('x'))), (Some(Key::Help), None, None));
}
