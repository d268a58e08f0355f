//! Resolves the cards that a command line names.

use anyhow::{Context, Result};
use oomph_gpu::nvml::{self, InstalledGpu};
use oomph_gpu::{Catalogue, Gpu, size};
use oomph_ledger::{DeviceDescription, MAX_DEVICES, UNBOUNDED_CAPACITY};
use oomph_report::CardCorrection;

use crate::correction;
use crate::failure::hinted;
use crate::syntax::{Amount, NamedCards};

/// The card whose properties a card without a name has: every CUDA build of the supported frameworks has code for its
/// compute capability, and it takes no path that only the newest cards take.
const NAMELESS: &str = "a100-80gb";

/// A virtual card.
#[derive(Clone, Debug)]
pub struct Card {
    /// What the report calls it.
    pub label: String,
    /// The identifier of the card that was named, where it has another capacity than that.
    pub like: Option<String>,
    /// The card whose properties it has, with its own capacity.
    pub gpu: Gpu,
    /// Whether it has no limit.
    pub unbounded: bool,
    /// What of its figures was measured on this machine and differs from the catalogue's.
    pub correction: Option<CardCorrection>,
}

impl Card {
    fn of(gpu: &Gpu, vram: Option<u64>) -> Self {
        // A card of another size is no longer the one of that name.
        match vram.filter(|bytes| *bytes != gpu.capacity_bytes) {
            Some(bytes) => Self {
                label: oomph_report::CUSTOM.into(),
                like: Some(gpu.id.clone()),
                gpu: gpu.with_capacity(bytes),
                unbounded: false,
                correction: None,
            },
            None => Self { label: gpu.id.clone(), like: None, gpu: gpu.clone(), unbounded: false, correction: None },
        }
    }

    /// The card with this machine's figures for it, where `oomph calibrate` kept some.
    fn as_measured_here(gpu: &Gpu, vram: Option<u64>) -> Self {
        match correction::kept(&gpu.id) {
            Some(kept) => Self { correction: Some(kept.clone()), ..Self::of(&correction::applied(gpu, &kept), vram) },
            None => Self::of(gpu, vram),
        }
    }

    /// The card as the catalogue has it.
    pub fn of_catalogue(gpu: &Gpu) -> Self {
        Self::of(gpu, None)
    }

    /// The same card with a context that is so much larger, in bytes.
    pub fn with_larger_context(mut self, bytes: u64) -> Self {
        self.gpu.context.expected_bytes += bytes;
        self
    }

    /// What CUDA reports as its total, in bytes; `None` for a card without a limit.
    pub fn capacity_bytes(&self) -> Option<u64> {
        (!self.unbounded).then_some(self.gpu.capacity_bytes)
    }

    /// The same card without a limit.
    pub fn without_limit(&self) -> Self {
        Self { unbounded: true, ..self.clone() }
    }

    /// The same card with so many bytes.
    pub fn with_capacity(&self, bytes: u64) -> Self {
        Self { gpu: self.gpu.with_capacity(bytes), unbounded: false, ..self.clone() }
    }

    /// The card as the processes of the run see it.
    pub fn description(&self, index: usize) -> DeviceDescription {
        let (gpu, architecture) = (&self.gpu, &self.gpu.architecture);
        let capability = gpu.compute_capability();
        let mut uuid = *b"oomph-virtual-\0\0";
        uuid[15] = u8::try_from(index).unwrap_or(u8::MAX);
        DeviceDescription {
            name: gpu.name.clone(),
            uuid,
            capacity_bytes: if self.unbounded { UNBOUNDED_CAPACITY } else { gpu.capacity_bytes },
            context_bytes: gpu.context.expected_bytes,
            cc_major: capability.major.into(),
            cc_minor: capability.minor.into(),
            sm_count: gpu.sm_count.into(),
            max_threads_per_sm: architecture.max_threads_per_sm.into(),
            max_blocks_per_sm: architecture.max_blocks_per_sm.into(),
            // On every architecture of the catalogue one block may use all registers of a multiprocessor.
            regs_per_block: architecture.registers_per_sm.into(),
            regs_per_sm: architecture.registers_per_sm.into(),
            shared_per_block: architecture.shared_memory_per_block_bytes.into(),
            shared_per_block_optin: architecture.shared_memory_per_block_optin_bytes.into(),
            shared_per_sm: architecture.shared_memory_per_sm_bytes.into(),
            reserved_shared_per_block: architecture.shared_memory_reserved_per_block_bytes.into(),
            l2_bytes: gpu.l2_bytes,
            clock_khz: gpu.sm_clock_khz.into(),
            memory_clock_khz: gpu.memory_clock_khz.into(),
            bus_width_bits: gpu.memory_bus_bits.into(),
            pci_device_id: gpu.pci_device_id.unwrap_or(0).into(),
            integrated: gpu.integrated.into(),
        }
    }
}

/// The virtual cards that `--gpu` and `--vram` name; without either the installed ones, else one without a limit.
pub fn cards(
    named: &[NamedCards],
    vram: Option<u64>,
    installed: impl FnOnce() -> Result<Vec<InstalledGpu>>,
) -> Result<Vec<Card>> {
    let catalogue = Catalogue::builtin();
    let mut cards = Vec::new();
    for NamedCards { gpu, count } in named {
        // The count is bounded before anything is made of it.
        cards.extend(std::iter::repeat_n(Card::as_measured_here(gpu, vram), (*count).min(MAX_DEVICES + 1)));
    }
    if named.is_empty() {
        // A card that cannot be read must not keep anybody from a dry run.
        let installed = if vram.is_none() { installed().unwrap_or_default() } else { Vec::new() };
        cards.extend(installed.iter().filter_map(|found| real(catalogue, found)).take(MAX_DEVICES));
    }
    if cards.len() > MAX_DEVICES {
        return Err(hinted(format!("a run has at most {MAX_DEVICES} cards"), "one machine rarely has more"));
    }
    if cards.is_empty() {
        cards.push(nameless(catalogue, vram)?);
    }
    Ok(cards)
}

/// The virtual twin of an installed card. A card that the catalogue does not know is not guessed at.
fn real(catalogue: &Catalogue, found: &InstalledGpu) -> Option<Card> {
    found.entry(catalogue).map(|gpu| Card::as_measured_here(gpu, None))
}

/// The cards that the program will see. CUDA numbers equal cards as NVML does; of different ones it puts the fastest
/// first, unless CUDA_DEVICE_ORDER says otherwise.
pub fn visible_here() -> Result<Vec<InstalledGpu>> {
    let all = nvml::installed()?;
    Ok(match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(list) => visible(all, &list),
        Err(_) => all,
    })
}

/// The cards that a list of CUDA_VISIBLE_DEVICES names, up to the first word that names none.
fn visible(all: Vec<InstalledGpu>, list: &str) -> Vec<InstalledGpu> {
    let named = |word: &str| {
        let by_number = |found: &&InstalledGpu| word.parse::<u32>() == Ok(found.index);
        let by_uuid = |found: &&InstalledGpu| found.uuid.as_ref().is_some_and(|uuid| uuid.starts_with(word));
        let is_uuid = word.starts_with("GPU-");
        all.iter().find(|found| if is_uuid { by_uuid(found) } else { by_number(found) }).cloned()
    };
    list.split(',').map(|word| named(word.trim())).map_while(|found| found).collect()
}

/// The card that is used when nobody named one.
fn nameless(catalogue: &Catalogue, vram: Option<u64>) -> Result<Card> {
    let gpu = catalogue.get(NAMELESS).context("the catalogue lacks its own default card")?;
    let card = Card::of(gpu, vram);
    Ok(match vram {
        Some(_) => Card { label: oomph_report::CUSTOM.into(), like: None, ..card },
        None => Card { label: oomph_report::UNBOUNDED.into(), unbounded: true, ..card },
    })
}

/// The cards less what has to stay free on each.
///
/// # Errors
/// When that leaves nothing of one.
pub fn less(cards: &[Card], margin: Amount) -> Result<Vec<Card>> {
    let less = |card: &Card| {
        let Some(capacity) = card.capacity_bytes() else { return Ok(card.clone()) };
        let margin = margin.of(capacity);
        match capacity.checked_sub(margin) {
            Some(_) if margin == 0 && capacity > 0 => Ok(card.clone()),
            Some(left) if left > 0 => Ok(card.with_capacity(left)),
            _ => Err(hinted(
                format!("--margin leaves nothing of {}", size::format(capacity)),
                "write --margin 512MiB or --margin 10%",
            )),
        }
    };
    cards.iter().map(less).collect()
}

#[cfg(test)]
mod tests {
    use oomph_gpu::nvml::InstalledMemory;

    use super::*;

    fn installed(index: u32, uuid: &str) -> InstalledGpu {
        InstalledGpu {
            index,
            name: "NVIDIA GeForce RTX 4090".into(),
            uuid: Some(uuid.into()),
            compute_capability: None,
            memory: Ok(InstalledMemory { total_bytes: 24 << 30, used_bytes: 4 << 30, free_bytes: 20 << 30 }),
        }
    }

    #[test]
    fn cards_are_chosen_as_cuda_chooses_them() {
        let all = || vec![installed(0, "GPU-aa11"), installed(1, "GPU-bb22")];
        let indices = |list: &str| visible(all(), list).iter().map(|found| found.index).collect::<Vec<_>>();
        assert_eq!(indices("1,0"), [1, 0]);
        assert_eq!(indices("GPU-bb"), [1]);
        assert_eq!(indices("0,7,1"), [0]);
        assert_eq!(indices(""), [] as [u32; 0]);
    }

    #[test]
    fn a_card_of_another_size_no_longer_has_the_name() {
        let named = [NamedCards::one(Catalogue::builtin().get("rtx-3060").unwrap())];
        let card = |named: &[NamedCards], vram| cards(named, vram, || Ok(Vec::new())).unwrap().remove(0);
        let small = card(&named, Some(2 << 30));
        assert_eq!((small.label.as_str(), small.like.as_deref()), (oomph_report::CUSTOM, Some("rtx-3060")));
        assert_eq!(small.capacity_bytes(), Some(2 << 30));
        let own = card(&named, None);
        assert_eq!((own.label.as_str(), own.like), ("rtx-3060", None));
        // A size alone names no card.
        assert_eq!(card(&[], Some(2 << 30)).like, None);
    }

    #[test]
    fn a_margin_takes_from_cards_with_a_limit_and_leaves_something() {
        let card = nameless(Catalogue::builtin(), Some(8 << 30)).unwrap();
        let left = |margin| Some(less(std::slice::from_ref(&card), margin).ok()?[0].capacity_bytes());
        assert_eq!(left(Amount::Percent(25.0)), Some(Some(6 << 30)));
        assert_eq!(left(Amount::NONE), Some(Some(8 << 30)));
        assert_eq!(left(Amount::Bytes(8 << 30)), None);
        let unbounded = card.without_limit();
        assert_eq!(less(&[unbounded], Amount::Percent(25.0)).unwrap()[0].capacity_bytes(), None);
    }

    #[test]
    fn every_card_of_the_catalogue_can_be_described() {
        for gpu in Catalogue::builtin().iter() {
            let description = Card::of(gpu, None).description(3);
            assert_eq!(description.capacity_bytes, gpu.capacity_bytes);
            assert!(!description.is_unbounded(), "{}", gpu.id);
            assert_eq!(DeviceDescription::decode(&description.encode()), Some(description), "{}", gpu.id);
        }
    }
}
