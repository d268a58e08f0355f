//! Estimates how much longer one piece of work takes than another on a card, from the roofline of each operation.
//!
//! An operation takes as long as the slower of its arithmetic and its memory traffic, and never less than a kernel does. The
//! host launches kernels one after the other, so a step takes at least as long as its launches. Copies over the link overlap
//! with the rest or not.
//!
//! Absolute times of such a model are poor (44 to 91 % off in published comparisons), and their ratios are not: what is wrong
//! with a time is wrong in the same direction before and after a change. So it gives ratios only, as intervals: each end of
//! what is not known about the card is taken in turn ([`Assumed`]), the same for both times, and the interval holds them all.

pub use oomph_protocol::work::{Copies, Counted};

use crate::gpu::{Gpu, Kind};

/// The numbers that a product is computed with, by what cards have units for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// 64-bit floating point.
    F64,
    /// 32-bit floating point without tensor cores.
    F32,
    /// 32-bit floating point in tensor cores.
    Tf32,
    /// 16-bit floating point of either kind.
    F16,
    /// 8-bit floating point.
    F8,
    /// 8-bit integers.
    I8,
}

impl Number {
    /// The number of this name, as the virtual GPU writes it; `None` for a name that it does not write.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "f64" => Self::F64,
            "f32" => Self::F32,
            "tf32" => Self::Tf32,
            "f16" => Self::F16,
            "f8" => Self::F8,
            "i8" => Self::I8,
            _ => return None,
        })
    }
}

/// Products of matrices, convolutions or attention, all alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Products {
    /// The numbers they are computed with.
    pub number: Number,
    /// Additions and multiplications of one.
    pub operations: f64,
    /// Bytes that one reads and writes, each operand once.
    pub bytes: f64,
    /// How many there are.
    pub times: f64,
}

/// Calls of one kind, and their bytes together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Calls {
    /// How many.
    pub calls: f64,
    /// Their bytes together.
    pub bytes: f64,
}

/// What a program computes and moves in some stretch of its run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Products, convolutions and attention.
    pub products: Vec<Products>,
    /// Other kernels, in groups of like size.
    pub kernels: Vec<Calls>,
    /// Copies between host and card, both directions together.
    pub link: Calls,
    /// Copies on the card.
    pub on_card: Calls,
    /// What the host's optimizers read and write in the host's memory, in bytes.
    pub host_bytes: f64,
}

impl From<&Counted> for Work {
    fn from(seen: &Counted) -> Self {
        let calls = |&(calls, bytes): &(u64, u64)| Calls { calls: calls as f64, bytes: bytes as f64 };
        let (to_card, to_host) = (calls(&seen.copies.to_card), calls(&seen.copies.to_host));
        let products = seen.products.iter().map(|(number, operations, bytes, times)| Products {
            number: Number::named(number).unwrap_or(Number::F32),
            operations: *operations as f64,
            bytes: *bytes as f64,
            times: *times as f64,
        });
        Self {
            products: products.collect(),
            kernels: seen.kernels.iter().map(calls).collect(),
            link: Calls { calls: to_card.calls + to_host.calls, bytes: to_card.bytes + to_host.bytes },
            on_card: calls(&seen.copies.on_card),
            host_bytes: seen.host_bytes as f64,
        }
    }
}

/// How much longer a step takes than before, for the same samples.
///
/// `smaller_batch` is the effective batch before and after, where a change makes it smaller by the program's settings; what its
/// loaders gave is better known, and counts where it was seen. `None` where one of them computes nothing.
pub fn of_steps(gpu: &Gpu, before: &Counted, after: &Counted, smaller_batch: Option<(u64, u64)>) -> Option<Slowdown> {
    let seen = Some((before.samples, after.samples)).filter(|(before, after)| *before > 0 && *after > 0);
    let steps = match seen.or(smaller_batch) {
        Some((before, after)) if after > 0 => before as f64 / after as f64,
        _ => 1.0,
    };
    let price = slowdown(gpu, &before.into(), &after.into())?;
    Some(Slowdown { low: price.low * steps, high: price.high * steps })
}

/// One choice of what is not known about a card and its machine.
#[derive(Clone, Copy, Debug)]
struct Assumed {
    /// The share of its peak that a large product reaches.
    arithmetic: f64,
    /// The share of its bandwidth that a large kernel reaches.
    bandwidth: f64,
    /// What other kernels move, by what their launches say.
    traffic: f64,
    /// How long the smallest kernel takes, in seconds.
    kernel: f64,
    /// How long the host takes to launch a kernel, in seconds.
    launch: f64,
    /// Which share of the copies is hidden behind the rest.
    overlap: f64,
    /// What the host's optimizer moves, in bytes a second.
    host: f64,
}

/// Peaks are reached by 45 to 70 %, bandwidths by 60 to 85 %; a launch takes 4 to 8 us in eager PyTorch.
const TYPICAL: Assumed =
    Assumed { arithmetic: 0.58, bandwidth: 0.72, traffic: 1.0, kernel: 3e-6, launch: 6e-6, overlap: 0.5, host: 25e9 };

fn assumptions() -> Vec<Assumed> {
    let balance = [(0.45, 0.85, 0.8), (0.70, 0.60, 1.25)];
    let launches = [4e-6, 8e-6];
    let machines = [(0.0, 12e9), (1.0, 40e9)];
    let mut all = vec![TYPICAL];
    for (arithmetic, bandwidth, traffic) in balance {
        for launch in launches {
            for (overlap, host) in machines {
                all.push(Assumed { arithmetic, bandwidth, traffic, launch, overlap, host, ..TYPICAL });
            }
        }
    }
    all
}

/// How much longer something takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowdown {
    /// The least ratio of the times.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Slowdown {
    /// The ratio in the middle, by which answers are compared.
    pub fn middle(self) -> f64 {
        (self.low * self.high).sqrt()
    }
}

/// What no assumption covers: caches, shapes that suit a kernel badly, the order of launches. It is wrong by a share of what
/// changes, so that what changes nothing costs nothing.
const UNKNOWN: f64 = 0.15;

/// How much longer `after` takes than `before` on a card; `None` where one of them computes nothing.
pub fn slowdown(gpu: &Gpu, before: &Work, after: &Work) -> Option<Slowdown> {
    let ratios = assumptions().into_iter().filter_map(|assumed| {
        let (before, after) = (seconds(gpu, before, assumed), seconds(gpu, after, assumed));
        (before > 0.0 && after > 0.0).then(|| after / before)
    });
    let ends = ratios.flat_map(|ratio| [ratio.powf(1.0 - UNKNOWN), ratio.powf(1.0 + UNKNOWN)]);
    ends.fold(None, |found: Option<Slowdown>, ratio| {
        let known = found.unwrap_or(Slowdown { low: ratio, high: ratio });
        Some(Slowdown { low: known.low.min(ratio), high: known.high.max(ratio) })
    })
}

fn seconds(gpu: &Gpu, work: &Work, assumed: Assumed) -> f64 {
    let bandwidth = gpu.bytes_per_second() * assumed.bandwidth;
    let mut card = 0.0;
    let mut launches = 0.0;
    for product in &work.products {
        let arithmetic = product.operations / (gpu.operations_per_second(product.number) * assumed.arithmetic);
        card += product.times * arithmetic.max(product.bytes / bandwidth).max(assumed.kernel);
        launches += product.times;
    }
    let on_card = Calls { bytes: work.on_card.bytes * 2.0, ..work.on_card };
    let traffic = work.kernels.iter().map(|calls| Calls { bytes: calls.bytes * assumed.traffic, ..*calls });
    for calls in traffic.chain([on_card]).filter(|calls| calls.calls > 0.0) {
        card += calls.calls * (calls.bytes / calls.calls / bandwidth).max(assumed.kernel);
        launches += calls.calls;
    }
    let link = work.link.bytes / gpu.link_bytes_per_second();
    launches += work.link.calls;
    let busy = card.max(launches * assumed.launch);
    // What is hidden is at most what there is to hide behind.
    busy + link - (link * assumed.overlap).min(busy) + work.host_bytes / assumed.host
}

impl Gpu {
    /// The peak of dense additions and multiplications a second, with sums of 32 bits, at the maximum clock.
    pub fn operations_per_second(&self, number: Number) -> f64 {
        let each = &self.architecture.operations_per_clock;
        let (count, tensor) = match number {
            Number::F64 => (each.f64, false),
            Number::F32 => (each.f32, false),
            Number::Tf32 => (each.tf32, each.tf32 > each.f32),
            Number::F16 => (each.f16, each.f16 > each.f32),
            Number::F8 => (each.f8, true),
            // Integers are summed in 32 bits by all cards at full speed.
            Number::I8 => (each.i8, false),
        };
        let halved = tensor && each.geforce_halves && matches!(self.kind, Kind::Consumer | Kind::Laptop);
        let share = if halved { 0.5 } else { 1.0 };
        f64::from(count) * share * f64::from(self.sm_count) * f64::from(self.sm_clock_khz) * 1e3
    }

    /// The peak bandwidth of the card's memory in bytes a second.
    pub fn bytes_per_second(&self) -> f64 {
        f64::from(self.memory_clock_khz) * 1e3 * 2.0 * f64::from(self.memory_bus_bits) / 8.0
    }

    /// What a large copy between host and card reaches, in bytes a second: that of 16 lanes of the PCIe generation of
    /// its architecture. NVLink to the host (GH200) is not distinguished from PCIe.
    pub fn link_bytes_per_second(&self) -> f64 {
        match self.compute_capability().major {
            0..=7 => 12e9,
            8 => 24e9,
            _ => 50e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalogue;

    fn card(id: &str) -> &'static Gpu {
        Catalogue::builtin().get(id).expect("the catalogue has it")
    }

    #[test]
    fn peaks_are_those_of_the_data_sheets() {
        // TFLOPS dense with 32-bit sums, GB/s: NVIDIA's data sheets and white papers.
        for (id, number, peak, bandwidth) in [
            ("a100-80gb", Number::F16, 312.0, 2039.0),
            ("a100-80gb", Number::Tf32, 156.0, 2039.0),
            ("h100", Number::F16, 989.0, 3352.0),
            ("rtx-4090", Number::F16, 165.2, 1008.0),
            ("rtx-3090", Number::F16, 71.0, 936.0),
            ("rtx-3090", Number::F32, 35.6, 936.0),
            ("rtx-a6000", Number::F16, 154.8, 768.0),
            ("l40s", Number::F16, 362.0, 864.0),
            ("t4", Number::F16, 65.0, 320.0),
            ("v100-16gb", Number::F16, 125.0, 900.0),
            ("rtx-5090", Number::F16, 209.5, 1792.0),
        ] {
            let Some(gpu) = Catalogue::builtin().find(id).ok() else { panic!("{id} is not in the catalogue") };
            let (tflops, gbs) = (gpu.operations_per_second(number) / 1e12, gpu.bytes_per_second() / 1e9);
            // Maximum clocks lie above the boost clocks that data sheets count with.
            assert!((0.95..1.30).contains(&(tflops / peak)), "{id} {number:?}: {tflops:.1} of {peak}");
            assert!((0.97..1.03).contains(&(gbs / bandwidth)), "{id}: {gbs:.0} of {bandwidth}");
        }
    }

    fn step(products: f64, operations: f64, bytes: f64, kernels: f64) -> Work {
        Work {
            products: vec![Products { number: Number::F16, operations, bytes, times: products }],
            kernels: vec![Calls { calls: kernels, bytes: kernels * 1e8 }],
            ..Work::default()
        }
    }

    #[test]
    fn a_third_more_of_everything_takes_a_third_longer() {
        let (before, after) = (step(300.0, 1e11, 1e8, 900.0), step(400.0, 1e11, 1e8, 1200.0));
        let price = slowdown(card("rtx-4090"), &before, &after).expect("both compute");
        assert!((price.middle() - 4.0 / 3.0).abs() < 0.01, "{price:?}");
        assert!((1.25..1.30).contains(&price.low) && (1.37..1.42).contains(&price.high), "{price:?}");
        assert!(slowdown(card("rtx-4090"), &Work::default(), &after).is_none());
    }

    #[test]
    fn what_is_small_costs_its_launch() {
        // The same arithmetic in a hundred times as many products: the host launches them one after the other.
        let (before, after) = (step(100.0, 1e9, 1e6, 0.0), step(10_000.0, 1e7, 1e4, 0.0));
        let price = slowdown(card("h100"), &before, &after).expect("both compute");
        assert!(price.low > 10.0, "{price:?}");
    }

    #[test]
    fn copies_overlap_or_not_and_that_is_the_interval() {
        let before = step(300.0, 1e11, 1e8, 0.0);
        let gpu = card("rtx-4090");
        let seconds = seconds(gpu, &before, TYPICAL);
        let after =
            Work { link: Calls { calls: 1.0, bytes: seconds * 0.5 * gpu.link_bytes_per_second() }, ..before.clone() };
        let price = slowdown(gpu, &before, &after).expect("both compute");
        assert!((price.low - 1.0).abs() < 0.01, "{price:?}");
        assert!((1.35..1.90).contains(&price.high), "{price:?}");
    }

    #[test]
    fn sixteen_bits_are_as_much_faster_as_the_card_has_units_for_them() {
        let with = |number| Work {
            products: vec![Products { number, operations: 1e12, bytes: 1e6, times: 10.0 }],
            ..Work::default()
        };
        let price = slowdown(card("rtx-3090"), &with(Number::F32), &with(Number::F16)).expect("both compute");
        assert!((price.middle() - 0.5).abs() < 0.01, "{price:?}");
    }

    fn counted(times: u64, samples: u64) -> Counted {
        Counted {
            steps: 4,
            samples,
            products: vec![("f16".into(), 100_000_000_000, 100_000_000, times)],
            ..Counted::default()
        }
    }

    #[test]
    fn prices_are_for_the_same_samples() {
        let price = |before: &Counted, after: &Counted, batch| {
            of_steps(card("rtx-4090"), before, after, batch).expect("both compute").middle()
        };
        let near = |price: f64, expected: f64| assert!((price - expected).abs() < 0.01, "{price}, not {expected}");
        near(price(&counted(300, 16), &counted(400, 16), None), 4.0 / 3.0);
        // Half the work for half the samples is no faster, whether the loaders say so or the settings.
        near(price(&counted(300, 16), &counted(150, 8), None), 1.0);
        near(price(&counted(300, 0), &counted(150, 0), Some((16, 8))), 1.0);
        near(price(&counted(300, 16), &counted(300, 16), Some((16, 8))), 1.0);
    }
}
