use std::collections::HashSet;

use super::*;

const GIB: u64 = 1 << 30;

#[test]
fn there_are_enough_cards_of_every_kind() {
    let catalogue = Catalogue::builtin();
    assert!(catalogue.len() >= 75, "{} cards", catalogue.len());
    for kind in [Kind::Consumer, Kind::Professional, Kind::Datacenter, Kind::Laptop, Kind::Mig, Kind::Jetson] {
        assert!(catalogue.iter().any(|gpu| gpu.kind == kind), "no {kind} card");
    }
    assert!(!catalogue.is_empty());
}

#[test]
fn ids_are_unique_and_in_kebab_case() {
    let mut seen = HashSet::new();
    for gpu in Catalogue::builtin().iter() {
        assert!(seen.insert(&gpu.id), "{} is there twice", gpu.id);
        let kebab = gpu.id.chars().all(|character| {
            character.is_ascii_lowercase() || character.is_ascii_digit() || matches!(character, '-' | '.')
        });
        assert!(kebab && !gpu.id.starts_with('-'), "{}", gpu.id);
    }
}

#[test]
fn every_figure_has_a_source() {
    for gpu in Catalogue::builtin().iter() {
        for source in [&gpu.capacity_source, &gpu.silicon_source, &gpu.context.source] {
            assert!(source.trim().len() >= 10, "{}: source {source:?}", gpu.id);
        }
        assert!(!gpu.name.is_empty(), "{}", gpu.id);
        assert!(gpu.aliases.iter().all(|alias| !alias.is_empty()), "{}", gpu.id);
    }
}

/// Cards whose capacity may lie outside 85 to 100 % of the size on the box, with the reason. None at present.
const CAPACITY_EXCEPTIONS: &[&str] = &[];

#[test]
fn capacities_are_plausible() {
    for gpu in Catalogue::builtin().iter() {
        let nominal = u64::from(gpu.memory_gb) * GIB;
        if !CAPACITY_EXCEPTIONS.contains(&gpu.id.as_str()) {
            for capacity in [gpu.capacity_low_bytes, gpu.capacity_bytes, gpu.capacity_high_bytes] {
                assert!(capacity < nominal && capacity * 100 > nominal * 85, "{}: {capacity} of {nominal}", gpu.id);
            }
        }
        assert!(gpu.capacity_low_bytes <= gpu.capacity_bytes, "{}", gpu.id);
        assert!(gpu.capacity_bytes <= gpu.capacity_high_bytes, "{}", gpu.id);
        let spread = gpu.capacity_high_bytes - gpu.capacity_low_bytes;
        assert!(spread * 100 <= nominal * 8, "{}: {spread} apart", gpu.id);
    }
}

#[test]
fn contexts_are_intervals_that_grow_with_the_card() {
    for gpu in Catalogue::builtin().iter() {
        let context = &gpu.context;
        assert!(context.low_bytes <= context.expected_bytes, "{}", gpu.id);
        assert!(context.expected_bytes <= context.high_bytes, "{}", gpu.id);
        assert!(context.low_bytes >= 32 << 20, "{}", gpu.id);
        assert!(context.high_bytes <= GIB, "{}", gpu.id);
        // Less would contradict the stack space that a context reserves for every resident thread.
        let stacks = u64::from(gpu.sm_count) * u64::from(gpu.architecture.max_threads_per_sm) * 1024;
        assert!(context.expected_bytes > stacks, "{}", gpu.id);
    }
}

#[test]
fn silicon_is_plausible() {
    for gpu in Catalogue::builtin().iter() {
        let id = &gpu.id;
        assert!((4..=200).contains(&gpu.sm_count), "{id}");
        assert!((1 << 20..=160 << 20).contains(&gpu.l2_bytes), "{id}");
        assert!((900_000..=2_700_000).contains(&gpu.sm_clock_khz), "{id}");
        assert!((700_000..=16_000_000).contains(&gpu.memory_clock_khz), "{id}");
        assert!((96..=8192).contains(&gpu.memory_bus_bits), "{id}");
        assert_eq!(gpu.memory_bus_bits % 16, 0, "{id}");
        assert_eq!(gpu.pci_device_id.is_none(), gpu.kind == Kind::Jetson, "{id}");
        assert_eq!(gpu.mig_parent.is_some(), gpu.kind == Kind::Mig, "{id}");
        if gpu.kind == Kind::Jetson {
            assert!(gpu.integrated && gpu.note.is_some(), "{id}");
        }
    }
}

#[test]
fn slices_are_smaller_than_their_cards() {
    let catalogue = Catalogue::builtin();
    for slice in catalogue.iter() {
        let Some(parent) = &slice.mig_parent else {
            continue;
        };
        let parent = catalogue.get(parent).unwrap();
        assert!(slice.capacity_bytes < parent.capacity_bytes, "{}", slice.id);
        assert!(slice.sm_count <= parent.sm_count, "{}", slice.id);
        assert!(slice.name.starts_with(&parent.name), "{}", slice.id);
        assert_eq!(slice.architecture, parent.architecture, "{}", slice.id);
    }
}

#[test]
fn shared_memory_fits_the_compute_capability() {
    for architecture in Catalogue::builtin().architectures() {
        let name = &architecture.name;
        let optin = architecture.shared_memory_per_block_optin_bytes;
        assert_eq!(architecture.shared_memory_per_block_bytes, 48 << 10, "{name}");
        assert_eq!(architecture.registers_per_sm, 65_536, "{name}");
        assert!(matches!(architecture.max_threads_per_sm, 1024 | 1536 | 2048));
        assert!(matches!(architecture.max_blocks_per_sm, 16 | 24 | 32));
        assert!(optin >= architecture.shared_memory_per_block_bytes, "{name}");
        assert!(optin <= architecture.shared_memory_per_sm_bytes, "{name}");
        let ampere = ComputeCapability { major: 8, minor: 0 };
        if architecture.compute_capability >= ampere {
            // From Ampere on a block may take all of an SM's shared memory but the part that CUDA reserves.
            assert_eq!(
                optin + architecture.shared_memory_reserved_per_block_bytes,
                architecture.shared_memory_per_sm_bytes,
                "{name}"
            );
        } else {
            assert_eq!(architecture.shared_memory_reserved_per_block_bytes, 0);
        }
    }
}

#[test]
fn well_known_capacities_are_what_cuda_prints() {
    for (id, printed) in [
        ("rtx-4090", "23.64 GiB"),
        ("rtx-3090", "23.69 GiB"),
        ("rtx-3060", "11.76 GiB"),
        ("rtx-5090", "31.36 GiB"),
        ("t4", "14.56 GiB"),
        ("v100-16gb", "15.77 GiB"),
        ("p100", "15.89 GiB"),
        ("l4", "22.03 GiB"),
        ("a10g", "22.06 GiB"),
        ("a100-40gb", "39.42 GiB"),
        ("a100-80gb", "79.15 GiB"),
        ("h100", "79.18 GiB"),
        ("h100-nvl", "93.09 GiB"),
        ("h200", "139.80 GiB"),
        ("b200", "178.36 GiB"),
        ("h200-mig-3g.71gb", "69.50 GiB"),
    ] {
        let gpu = Catalogue::builtin().get(id).unwrap();
        assert_eq!(crate::size::format(gpu.capacity_bytes), printed, "{id}");
    }
}

#[test]
fn cards_come_smallest_first() {
    let capacities: Vec<u64> = Catalogue::builtin().iter().map(|gpu| gpu.capacity_bytes).collect();
    assert!(capacities.is_sorted());
}

#[test]
fn the_smallest_card_that_holds_leaves_room_for_the_context() {
    let catalogue = Catalogue::builtin();
    let need = 23 * GIB;
    let fitting: Vec<&Gpu> = catalogue.smallest_that_hold(need).collect();
    assert!(fitting.iter().all(|gpu| gpu.usable_bytes() >= need));
    assert!(fitting.iter().any(|gpu| gpu.id == "rtx-4090"));
    assert!(!fitting.iter().any(|gpu| gpu.id == "l4"));
    // What people buy or rent comes before laptops' GPUs, slices and modules, however small those are.
    assert!(fitting.iter().map(|gpu| (!gpu.kind.is_card(), gpu.capacity_bytes)).collect::<Vec<_>>().is_sorted());
    assert!(fitting.first().is_some_and(|gpu| gpu.kind.is_card()));
    assert!(fitting.last().is_some_and(|gpu| !gpu.kind.is_card()));
    // A byte more than a card can give is too much for it.
    let card = catalogue.get("rtx-4090").unwrap();
    let holds = |bytes| catalogue.smallest_that_hold(bytes).any(|gpu| gpu.id == card.id);
    assert!(holds(card.usable_bytes()) && !holds(card.usable_bytes() + 1));
    assert_eq!(catalogue.smallest_that_hold(u64::MAX).count(), 0);
    assert_eq!(catalogue.smallest_that_hold(0).count(), catalogue.len());
}

#[test]
fn a_card_can_be_given_another_capacity() {
    let card = Catalogue::builtin().get("rtx-3060").unwrap();
    let small = card.with_capacity(4 * GIB);
    assert_eq!(small.capacity_bytes, 4 * GIB);
    assert_eq!(small.capacity_low_bytes, 4 * GIB);
    assert_eq!((&small.id, small.sm_count), (&card.id, card.sm_count));
}

#[test]
fn a_broken_file_is_refused_with_the_reason() {
    let good = include_str!("../../data/gpus.toml");
    let no_architecture = good.replacen("compute_capability = \"6.0\"", "compute_capability = \"5.9\"", 1);
    let message = Catalogue::parse(&no_architecture).unwrap_err().to_string();
    assert!(message.contains("p100") && message.contains("6.0"), "{message}");

    let twice = good.replace("id = \"rtx-4090-d\"", "id = \"rtx 4090\"");
    let message = Catalogue::parse(&twice).unwrap_err().to_string();
    assert!(message.contains("both answer to"), "{message}");

    let orphan = good.replace("mig_parent = \"h200\"", "mig_parent = \"h201\"");
    let message = Catalogue::parse(&orphan).unwrap_err().to_string();
    assert!(message.contains("h201"), "{message}");

    assert!(matches!(Catalogue::parse("architecture = 1"), Err(CatalogueError::Syntax(_))));
}
