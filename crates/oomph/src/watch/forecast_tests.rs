//! Tests of the forecast on series with a known outcome.

use oomph_report::Trend;
use proptest::prelude::*;

use super::*;

const MIB: f64 = 1024.0 * 1024.0;

/// A generator that gives the same numbers every time, between -1 and 1.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 33).unwrap()) / f64::from(1_u32 << 30) - 1.0
    }
}

/// A series in which a step holds `held(step)` MiB at its end and `above(step)` MiB more at its peak, on a card with room
/// for `room` MiB, seen every `every` steps until `until` or death; and the step of the death.
fn series(
    held: impl Fn(f64) -> f64,
    above: impl Fn(f64) -> f64,
    room: f64,
    every: u64,
    until: u64,
) -> (Series, Option<u64>) {
    let (mut series, mut peak, mut died) = (Series::default(), 0.0_f64, None);
    for step in 1..1_000_000 {
        let now = held(float(step));
        peak = peak.max(now + above(float(step)));
        if peak > room {
            died = Some(step);
            break;
        }
        if step <= until && step % every == 0 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the sizes of tests are small")]
            let bytes = |mib: f64| (mib * MIB) as u64;
            let sample = Sample {
                seconds: float(step) * 0.5,
                step,
                allocated: bytes(now),
                peak: bytes(peak),
                reserved: bytes(peak) + (30 << 20),
                fragments: 0,
                room: Some(bytes(room)),
            };
            series.add(sample);
        }
    }
    (series, died)
}

#[test]
fn ten_leaks_are_dated_within_five_percent() {
    // What is held at first, what leaks per step, the noise of a step, the room, how often it is seen, and until where.
    let leaks: [(f64, f64, f64, f64, u64, u64); 10] = [
        (2000.0, 4.0, 0.0, 12_000.0, 1, 300),
        (2000.0, 4.0, 40.0, 12_000.0, 1, 600),
        (500.0, 0.5, 2.0, 4_000.0, 5, 1500),
        (9000.0, 12.0, 0.0, 24_000.0, 3, 200),
        (100.0, 100.0, 20.0, 11_000.0, 1, 40),
        (6000.0, 0.05, 0.2, 7_200.0, 20, 4000),
        (4000.0, 8.0, 100.0, 80_000.0, 10, 3000),
        (1000.0, 1.0, 15.0, 8_000.0, 2, 2000),
        (3000.0, 33.3, 0.0, 40_000.0, 1, 60),
        (700.0, 2.5, 10.0, 16_000.0, 7, 1400),
    ];
    for (number, (first, leak, noise, room, every, until)) in leaks.into_iter().enumerate() {
        let wobble = |step: f64| Noise(step.to_bits() ^ 77).next() * noise;
        let (series, died) = series(|step| first + leak * step + wobble(step), |_| 600.0, room, every, until);
        let outlook = series.outlook();
        let (foretold, died) = (outlook.full_at_step, died.expect("a leak fills the card"));
        assert_eq!(outlook.trend, Trend::Leak, "{number}: {outlook:?}");
        let foretold = foretold.unwrap_or_else(|| panic!("{number}: {outlook:?}"));
        assert!(float(foretold.abs_diff(died)) <= 0.05 * float(died), "{number}: foretold {foretold}, died {died}");
    }
}

/// A leak that cuts segments into pieces fills the card with them too; one that starts with a high peak is dated all the same.
#[test]
fn pieces_and_an_early_peak_are_counted() {
    let dated = |peak: fn(u64) -> u64, fragments: fn(u64) -> u64| {
        let (mut seen, room) = (Series::default(), 4500);
        for step in 1..=40 {
            seen.add(Sample {
                seconds: 0.0,
                step,
                allocated: (100 + 50 * step) << 20,
                peak: peak(step) << 20,
                reserved: (peak(step) + fragments(step) + 30) << 20,
                fragments: fragments(step) << 20,
                room: Some(room << 20),
            });
        }
        (seen.outlook().full_at_step, seen.outlook().bytes_per_step)
    };
    // 142 and 63 for each step reach 4500 in step 69, and 50 are kept.
    assert_eq!(dated(|step| 142 + 50 * step, |step| 13 * step), (Some(70), Some(50.0 * MIB)));
    // Between nothing and 2000, as the peak lay above the last looks: the card is full between the steps 48 and 88.
    assert_eq!(dated(|_| 4000, |_| 0).0, Some(48));
}

#[test]
fn ten_fluctuating_series_get_no_date() {
    let wave = |step: f64, period: f64| (step * std::f64::consts::TAU / period).sin();
    let walk = |step: f64| {
        let mut noise = Noise(5);
        let mut level = 0.0;
        // A walk that is drawn back to where it began.
        for _ in 0..step.min(5000.0) as u64 {
            level = level * 0.98 + noise.next() * 60.0;
        }
        level
    };
    let shapes: [Box<dyn Fn(f64) -> f64>; 10] = [
        Box::new(|step| 4000.0 + 800.0 * Noise(step.to_bits()).next()),
        Box::new(move |step| 4000.0 + 500.0 * wave(step, 40.0)),
        Box::new(move |step| 4000.0 + 500.0 * wave(step, 230.0)),
        Box::new(|step| 3000.0 + 10.0 * (step % 100.0)),
        Box::new(|step| 3000.0 + 900.0 * (step / 75.0).floor().rem_euclid(2.0)),
        Box::new(move |step| 4000.0 + walk(step)),
        Box::new(|step| 2000.0 + 400.0 * step.ln()),
        Box::new(|step| 2000.0 + 3000.0 * (1.0 - (-step / 60.0).exp())),
        Box::new(|step| 5000.0 - 1500.0 * Noise(step.to_bits()).next().powi(3)),
        Box::new(move |step| 4000.0 + step * 0.2 + 700.0 * Noise(step.to_bits() ^ 3).next() + 300.0 * wave(step, 90.0)),
    ];
    for (number, held) in shapes.iter().enumerate() {
        for until in [60, 150, 400, 900] {
            let (mut seen, mut peak) = (Series::default(), 0);
            for step in 1..=until {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as above")]
                let allocated = (held(float(step)) * MIB) as u64;
                peak = peak.max(allocated + (600 << 20));
                let room = Some(24 << 30);
                seen.add(Sample { seconds: float(step), step, allocated, peak, reserved: peak, fragments: 0, room });
            }
            let outlook = seen.outlook();
            // A part of one period that rises in a line is one, as far as anybody can see.
            let rises = number == 3 && until == 60 || number == 4 && until < 75;
            assert!(rises || outlook.full_at_step.is_none(), "{number} until {until}: {outlook:?}");
        }
    }
}

#[test]
fn growing_inputs_and_fragmentation_are_distinguished_from_leaks() {
    let (inputs, died) = series(|_| 3000.0, |step| 500.0 + 5.0 * step, 12_000.0, 1, 300);
    let outlook = inputs.outlook();
    assert_eq!(outlook.trend, Trend::GrowingInputs);
    assert!(outlook.full_at_step.unwrap().abs_diff(died.unwrap()) <= 2, "{outlook:?}");

    let mut seen = Series::default();
    for step in 1..=100 {
        let reserved = (4000 + 8 * step) << 20;
        let sample = Sample {
            seconds: 0.0,
            step,
            allocated: 3 << 30,
            peak: 7 << 29,
            reserved,
            fragments: 0,
            room: Some(24 << 30),
        };
        seen.add(sample);
    }
    let outlook = seen.outlook();
    assert_eq!((outlook.trend, outlook.full_at_step), (Trend::Fragmentation, None));

    let (steady, _) = series(|_| 3000.0, |_| 500.0, 12_000.0, 1, 100);
    let outlook = steady.outlook();
    assert_eq!((outlook.trend, outlook.headroom_bytes), (Trend::Steady, Some(8500 << 20)));
}

#[test]
fn a_restart_begins_anew() {
    let (mut leak, died) = series(|step| 1000.0 + 10.0 * step, |_| 0.0, 4000.0, 1, 100);
    let here = leak.outlook().full_at_step.unwrap();
    assert!(here.abs_diff(died.unwrap()) <= 1);
    leak.add(Sample { seconds: 0.0, step: 3, allocated: 1, peak: 1, reserved: 1, fragments: 0, room: None });
    assert_eq!(leak.outlook().trend, Trend::Unknown);
    assert_eq!(Series::default().outlook(), WatchedOutlook::default());
}

#[test]
fn a_long_series_stays_short_and_keeps_its_ends() {
    let mut seen = Series::default();
    for step in 1..=10_000 {
        let bytes = step << 20;
        seen.add(Sample {
            seconds: float(step),
            step,
            allocated: bytes,
            peak: bytes,
            reserved: bytes,
            fragments: 0,
            room: None,
        });
    }
    assert!(seen.samples.len() <= MOST && seen.samples.len() > MOST / 3, "{}", seen.samples.len());
    assert_eq!(seen.samples.first().map(|one| one.step), Some(1));
    assert!(seen.samples.last().is_some_and(|one| one.step > 9_900));
    assert_eq!(seen.outlook().trend, Trend::Leak);
}

proptest! {
    #[test]
    fn a_straight_leak_is_dated(
        first in 100.0..9000.0_f64, leak in 0.2..50.0_f64, above in 0.0..4000.0_f64, left in 30.0..3000.0_f64,
    ) {
        let until = 100;
        let room = first + above + leak * (float(until) + left);
        let (seen, died) = series(|step| first + leak * step, |_| above, room, 1, until);
        let foretold = seen.outlook().full_at_step;
        prop_assert!(foretold.is_some_and(|foretold| foretold.abs_diff(died.unwrap()) <= 2), "{foretold:?} {died:?}");
    }

    #[test]
    fn noise_around_a_level_is_not_dated(level in 1000.0..20_000.0_f64, noise in 0.0..0.5_f64, seed: u64) {
        let held = |step: f64| level * (1.0 + noise * Noise(step.to_bits() ^ seed).next());
        let mut seen = Series::default();
        let mut peak = 0;
        for step in 1..=80 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as above")]
            let allocated = (held(float(step)) * MIB) as u64;
            peak = peak.max(allocated);
            seen.add(Sample { seconds: 0.0, step, allocated, peak, reserved: peak, fragments: 0, room: Some(80 << 30) });
        }
        prop_assert_eq!(seen.outlook().full_at_step, None);
    }

    #[test]
    fn nothing_panics(samples: Vec<(u32, u64, u64, u64, Option<u64>)>) {
        let mut seen = Series::default();
        for (step, allocated, peak, reserved, room) in samples {
            seen.add(Sample { seconds: f64::NAN, step: step.into(), allocated, peak, reserved, fragments: peak, room });
            let _ = seen.outlook();
        }
    }
}
