//! What nvcc's start-up code registers of a program: fat binaries, and the host functions that stand for their kernels.

use crate::fork::{Mutex, MutexGuard};
use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use oomph_ledger::NoteKind;

use crate::boundary::Record;
use crate::loaded::{self, File};
use crate::work::kernel::{self, Launch, Recipe};
use crate::{books, device, image};

/// The architectures of a fat binary: a bit for each with machine code, and one for each with PTX.
#[derive(Clone, Copy, Default)]
struct Architectures {
    code: [u64; 4],
    ptx: [u64; 4],
}

impl Architectures {
    fn add(&mut self, arch: u32, is_code: bool) {
        let words = if is_code { &mut self.code } else { &mut self.ptx };
        if let Some(word) = words.get_mut(arch as usize / 64) {
            *word |= 1 << (arch % 64);
        }
    }

    fn has(words: &[u64; 4], arch: u32) -> bool {
        words.get(arch as usize / 64).is_some_and(|word| word >> (arch % 64) & 1 == 1)
    }

    fn join(&mut self, other: &Self) {
        for (ours, theirs) in self.code.iter_mut().zip(other.code).chain(self.ptx.iter_mut().zip(other.ptx)) {
            *ours |= theirs;
        }
    }

    /// As nvcc calls them: `sm_90` is machine code, `compute_90` is PTX.
    fn names(&self) -> Vec<String> {
        let named = |kind: &'static str, words: [u64; 4]| {
            (0..256).filter(move |arch| Self::has(&words, *arch)).map(move |arch| format!("{kind}_{arch}"))
        };
        named("sm", self.code).chain(named("compute", self.ptx)).collect()
    }

    /// What a card would run: machine code of its major version up to its minor one, else the newest PTX that is not
    /// newer than the card.
    fn for_card(&self, major: u32, minor: u32) -> Option<u32> {
        let code = (0..=minor).rev().map(|minor| major * 10 + minor).find(|arch| Self::has(&self.code, *arch));
        code.or_else(|| (30..=major * 10 + minor).rev().find(|arch| Self::has(&self.ptx, *arch)))
    }
}

/// What nvcc's start-up code registered: fat binaries, and which kernel of the program is in which.
struct Registered {
    binaries: Vec<Binary>,
    /// Host functions that stand for kernels, with the index of their fat binary and the address of their name. Torch
    /// registers a hundred thousand
    /// while it loads and asks about a few, so they are sorted at the first question.
    kernels: Vec<(usize, u32, usize)>,
    sorted: bool,
    /// Where the files lie that were already reported.
    told: Vec<Range<usize>>,
}

/// A fat binary, and where it lies in the program.
struct Binary {
    architectures: Architectures,
    at: usize,
}

static REGISTERED: Mutex<Registered> =
    Mutex::new(Registered { binaries: Vec::new(), kernels: Vec::new(), sorted: true, told: Vec::new() });

/// Size of the wrapper in which nvcc's start-up code passes a fat binary, in bytes, and where its members lie.
pub const WRAPPER: usize = 24;
const MAGIC: usize = 0;
const DATA: usize = 8;
const WRAPPER_MAGIC: u32 = 0x4662_43b1;

/// Notes for which architectures a fat binary holds code, and returns its handle.
pub fn register(wrapper: Record<'_, WRAPPER>) -> *mut c_void {
    let mut found = Architectures::default();
    if wrapper.read(MAGIC) == Some(WRAPPER_MAGIC)
        && let Some(data) = wrapper.read::<*const u8>(DATA)
    {
        // SAFETY: nvcc's start-up code passes the wrapper of a whole fat binary, as its magic number says.
        for (arch, is_code) in unsafe { image::architectures(data) } {
            found.add(arch, is_code);
        }
    }
    let mut registered = registered();
    registered.binaries.push(Binary { architectures: found, at: wrapper.address() });
    // A handle is the binary's place, counted from 1 because null is not a handle.
    registered.binaries.len() as *mut c_void
}

/// Notes that a host function stands for a kernel of a fat binary.
///
/// The name is kept by its address: it lies in the program, which is never unloaded as long as it launches the kernel.
pub fn register_kernel(binary: *mut c_void, function: *const c_void, name: *const c_char) {
    let mut registered = registered();
    let Some(index) = (binary as usize).checked_sub(1).filter(|index| *index < registered.binaries.len()) else {
        return;
    };
    registered.kernels.push((function as usize, index as u32, name as usize));
    registered.sorted = false;
}

impl Registered {
    /// The fat binary that a host function's kernel is in.
    fn binary_of(&mut self, function: *const c_void) -> Option<&Binary> {
        let (_, binary, _) = self.find(function)?;
        self.binaries.get(binary as usize)
    }

    fn find(&mut self, function: *const c_void) -> Option<(usize, u32, usize)> {
        if !self.sorted {
            self.kernels.sort_unstable();
            self.sorted = true;
        }
        let place = self.kernels.binary_search_by_key(&(function as usize), |(function, ..)| *function).ok()?;
        self.kernels.get(place).copied()
    }
}

fn registered() -> MutexGuard<'static, Registered> {
    REGISTERED.lock()
}

/// How many places remember a kernel that was launched.
const REMEMBERED: usize = 1 << 12;

/// A kernel that was launched and looked at. Host functions begin at multiples of 16, so the low four bits of the address
/// hold what its launches are looked at for: a place that another thread changes never has arguments read that are not there.
struct Place {
    function: AtomicUsize,
    recipe: AtomicU64,
}

/// Kernels that were launched and looked at, each at a place that its address says.
static LAUNCHED: [Place; REMEMBERED] =
    [const { Place { function: AtomicUsize::new(0), recipe: AtomicU64::new(0) } }; REMEMBERED];

/// Counts a launch, and notes for the report what the file was compiled for that a kernel of the program is in.
#[inline]
pub fn launched(function: *const c_void, launch: &Launch<'_>) {
    let place = &LAUNCHED[(function as usize >> 4) % REMEMBERED];
    let mut known = place.function.load(Ordering::Relaxed);
    if known & !15 != function as usize & !15 {
        let recipe = recipe_of(function);
        place.recipe.store(recipe.0, Ordering::Relaxed);
        known = function as usize & !15 | recipe.tag();
        place.function.store(known, Ordering::Relaxed);
        first_launch(function);
    }
    let recipe = Recipe(place.recipe.load(Ordering::Relaxed) & !15 | (known & 15) as u64);
    // SAFETY: a program launches a kernel with an address for each of its parameters; which of them are read was found for
    // this very kernel.
    unsafe { kernel::launched(recipe, launch) };
}

#[cold]
fn recipe_of(function: *const c_void) -> Recipe {
    let Some((_, _, name)) = registered().find(function).filter(|(_, _, name)| *name != 0) else {
        return Recipe::of("");
    };
    // SAFETY: nvcc's start-up code registered a text that ends with a zero byte, in the file that launches the kernel.
    let name = unsafe { CStr::from_ptr(name as *const c_char) };
    Recipe::of(&name.to_string_lossy())
}

#[cold]
fn first_launch(function: *const c_void) {
    let at = {
        let mut registered = registered();
        let Some(at) = registered.binary_of(function).map(|binary| binary.at) else { return };
        if registered.told.iter().any(|file| file.contains(&at)) {
            return;
        }
        at
    };
    // Without the lock: the loader may wait for a thread that is loading a library, whose start-up code registers here.
    let Some(File { name, range }) = loaded::file_of(at) else { return };
    let mut registered = registered();
    // A library has many binaries, and some are for one card alone, beside others for the rest.
    let mut all = Architectures::default();
    for binary in registered.binaries.iter().filter(|binary| range.contains(&binary.at)) {
        all.join(&binary.architectures);
    }
    registered.told.push(range);
    drop(registered);
    let names = all.names();
    if !names.is_empty() {
        books::note(NoteKind::Code, &format!("{} in {name}", names.join(" ")));
    }
}

/// The architecture of the code that the current card would run for a kernel of the program. Templates of CUB and
/// others choose by it among what they were compiled for, so it must be one that the kernel's binary holds.
pub fn code_architecture(function: *const c_void) -> u32 {
    let Some(device) = device::current() else { return 80 };
    let (major, minor) = (device.description.cc_major as u32, device.description.cc_minor as u32);
    let found = registered().binary_of(function).map(|binary| binary.architectures);
    // Where there is none, the report says so of the file.
    found.and_then(|found| found.for_card(major, minor)).unwrap_or(major * 10 + minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_runs_its_own_code_or_older_ptx() {
        let mut found = Architectures::default();
        for (arch, is_code) in [(75, true), (80, true), (86, true), (90, true), (90, false)] {
            found.add(arch, is_code);
        }
        assert_eq!(found.for_card(8, 9), Some(86), "code of a lower minor version runs");
        assert_eq!(found.for_card(7, 0), None, "code of a higher minor version does not");
        assert_eq!(found.for_card(12, 0), Some(90), "PTX is compiled for a newer card");
        let mut other = Architectures::default();
        other.add(100, true);
        found.join(&other);
        assert_eq!(found.names(), ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "compute_90"]);
    }
}
