//! Relaxes a plate step by step, with cudarc.
//!
//!     relax careless|careful CELLS STEPS
//!
//! `careless` allocates its scratch again in every step and waits for the card after each, so that the driver's pool gives the
//! memory back and takes it again; it sends the sources in every step, keeps a second copy of them, reads the whole plate
//! back every tenth step, and never lets go of what it put aside. `careful` takes everything once, sends it once from
//! page-locked memory and reads the plate back at the end.
//!
//! Each counts what it does where it does it and prints that as `key=value` lines, for the test that compares them with
//! the report.

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PinnedHostSlice, PushKernelArg};
use cudarc::nvrtc::Ptx;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The card, its kernel, and what the program did with it, as it sees it.
struct Plate {
    stream: Arc<CudaStream>,
    kernel: CudaFunction,
    cells: usize,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    allocations: usize,
    frees: usize,
    held: usize,
    most_held: usize,
    to_card: usize,
    to_host: usize,
    pageable: usize,
    resent: usize,
    doubled: usize,
    /// Synchronisations at which the pool had something to give back that was then taken again.
    given_back: usize,
}

impl Plate {
    fn bytes(&self) -> usize {
        self.cells * size_of::<f32>()
    }

    fn made(&mut self, slice: CudaSlice<f32>) -> CudaSlice<f32> {
        self.counts.allocations += 1;
        self.counts.held += self.bytes();
        self.counts.most_held = self.counts.most_held.max(self.counts.held);
        slice
    }

    fn drop(&mut self, slice: CudaSlice<f32>) {
        self.counts.frees += 1;
        self.counts.held -= self.bytes();
        drop(slice);
    }

    fn empty(&mut self) -> Result<CudaSlice<f32>> {
        // SAFETY: every cell is written by a kernel or a copy before it is read.
        let slice = unsafe { self.stream.alloc(self.cells) }?;
        Ok(self.made(slice))
    }

    fn send(&mut self, data: &[f32], to: &mut CudaSlice<f32>) -> Result<()> {
        self.counts.to_card += size_of_val(data);
        self.counts.pageable += size_of_val(data);
        Ok(self.stream.memcpy_htod(data, to)?)
    }

    fn send_locked(&mut self, data: &PinnedHostSlice<f32>, to: &mut CudaSlice<f32>) -> Result<()> {
        self.counts.to_card += self.bytes();
        Ok(self.stream.memcpy_htod(data, to)?)
    }

    fn look(&mut self, at: &CudaSlice<f32>) -> Result<Vec<f32>> {
        self.counts.to_host += self.bytes();
        self.counts.pageable += self.bytes();
        Ok(self.stream.clone_dtoh(at)?)
    }

    fn step(&self, now: &CudaSlice<f32>, sources: &CudaSlice<f32>, next: &mut CudaSlice<f32>) -> Result<()> {
        let cells = u32::try_from(self.cells)?;
        let mut launch = self.stream.launch_builder(&self.kernel);
        launch.arg(now).arg(sources).arg(next).arg(&cells);
        // SAFETY: the kernel takes three arrays of `cells` floats and their number.
        unsafe { launch.launch(LaunchConfig::for_num_elems(cells)) }?;
        Ok(())
    }
}

/// Numbers that differ from each other and from those of another seed.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|index| ((index * 31 + seed * 7919) % 9973) as f32 / 9973.0).collect()
}

fn careless(plate: &mut Plate, steps: usize) -> Result<()> {
    let (start, sources) = (numbers(plate.cells, 1), numbers(plate.cells, 2));
    let mut now = plate.empty()?;
    plate.send(&start, &mut now)?;
    let mut aside = plate.empty()?;
    plate.send(&sources, &mut aside)?;
    for step in 0..steps {
        let mut next = plate.empty()?;
        let mut sources_of_step = plate.empty()?;
        plate.send(&sources, &mut sources_of_step)?;
        plate.counts.resent += plate.bytes();
        plate.counts.doubled = plate.bytes();
        plate.step(&now, &sources_of_step, &mut next)?;
        if step % 10 == 9 {
            plate.look(&next)?;
        }
        plate.drop(sources_of_step);
        plate.drop(std::mem::replace(&mut now, next));
        plate.stream.synchronize()?;
        plate.counts.given_back += usize::from(step + 1 < steps);
    }
    plate.drop(now);
    // Put aside in something that lives as long as the program, as caches do.
    Box::leak(Box::new(aside));
    Ok(())
}

fn careful(plate: &mut Plate, steps: usize) -> Result<()> {
    let (start, sources) = (locked(plate, 1)?, locked(plate, 2)?);
    let [mut now, mut next, mut sources_on_card] = [plate.empty()?, plate.empty()?, plate.empty()?];
    plate.send_locked(&start, &mut now)?;
    plate.send_locked(&sources, &mut sources_on_card)?;
    for _ in 0..steps {
        plate.step(&now, &sources_on_card, &mut next)?;
        std::mem::swap(&mut now, &mut next);
    }
    plate.stream.synchronize()?;
    // SAFETY: the copy writes every cell.
    let mut seen = unsafe { plate.stream.context().alloc_pinned::<f32>(plate.cells) }?;
    plate.counts.to_host += plate.bytes();
    plate.stream.memcpy_dtoh(&now, &mut seen)?;
    plate.stream.synchronize()?;
    for slice in [now, next, sources_on_card] {
        plate.drop(slice);
    }
    Ok(())
}

fn locked(plate: &Plate, seed: usize) -> Result<PinnedHostSlice<f32>> {
    // SAFETY: all of it is written below.
    let mut slice = unsafe { plate.stream.context().alloc_pinned::<f32>(plate.cells) }?;
    slice.as_mut_slice()?.copy_from_slice(&numbers(plate.cells, seed));
    Ok(slice)
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [way, cells, steps] = words.as_slice() else { return Err("usage: relax careless|careful CELLS STEPS".into()) };
    let context = CudaContext::new(0)?;
    let kernel = context.load_module(Ptx::from_src(include_str!("relax.ptx")))?.load_function("relax")?;
    let stream = context.default_stream();
    let mut plate = Plate { stream, kernel, cells: cells.parse()?, counts: Counts::default() };
    match way.as_str() {
        "careless" => careless(&mut plate, steps.parse()?)?,
        "careful" => careful(&mut plate, steps.parse()?)?,
        _ => return Err(format!("{way} is neither careless nor careful").into()),
    }
    let counts = &plate.counts;
    println!("pooled_allocations={}\npooled_frees={}", counts.allocations, counts.frees);
    println!("pooled_most_held_bytes={}\npooled_never_freed_bytes={}", counts.most_held, counts.held);
    println!("to_card_bytes={}\nto_host_bytes={}", counts.to_card, counts.to_host);
    println!("resent_bytes={}\ndoubled_bytes={}", counts.resent, counts.doubled);
    println!("pageable_bytes={}\npools_regrew={}", counts.pageable, counts.given_back);
    Ok(())
}
