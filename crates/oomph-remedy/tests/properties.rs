//! What holds in every situation, however odd its figures.

use std::collections::BTreeMap;

use oomph_remedy::{
    Catalogue, Cause, Framework, Installed, MOST_AVOIDED, MOST_OFFERS, Memory, Operation, OwnerGroup, Platform,
    Settings, Situation, Task, suggest,
};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

fn memory() -> impl Strategy<Value = Memory> {
    proptest::collection::vec(of(any::<u64>()), 10).prop_map(|figures| Memory {
        requested: figures[0],
        capacity: figures[1],
        free: figures[2],
        allocated: figures[3],
        reserved: figures[4],
        allowed: figures[5],
        process: figures[6],
        other_processes: figures[7],
        graph_pools: figures[8],
        largest_other: figures[9],
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    (proptest::collection::vec(of(any::<u64>()), 12), of(any::<f64>()), of(any::<f64>()), of(any::<bool>())).prop_map(
        |(counts, utilization, bytes, packing)| Settings {
            batch_size: counts[0],
            gradient_accumulation: counts[1],
            sequence_length: counts[2],
            context_length: counts[3],
            context_that_fits: counts[4],
            concurrent_sequences: counts[5],
            gpu_layers: counts[6],
            layers_that_fit: counts[7],
            is_mixture: packing,
            images: counts[7],
            resolution: counts[8].zip(counts[9]),
            model_parameters: counts[10],
            trainable_parameters: counts[11],
            vocabulary: counts[0],
            world_size: counts[1],
            divide_by: counts[2],
            memory_utilization: utilization,
            bytes_per_parameter: bytes,
            packing,
            batch_norm: packing,
            compares_samples: packing,
            collects_on_card: packing,
            calls_untrained: packing,
            convolves: packing,
            steps_by_hand: packing,
            takes_tiles: packing,
        },
    )
}

fn situation() -> impl Strategy<Value = Situation> {
    let ids: Vec<String> = Catalogue::builtin().remedies().iter().map(|remedy| remedy.id.clone()).collect();
    (
        proptest::collection::vec((select(Framework::ALL), of(0_u32..20)), 0..4),
        of(select(Task::ALL)),
        proptest::collection::vec(select(Cause::ALL), 0..3),
        of(proptest::collection::btree_map(select(OwnerGroup::ALL), any::<u64>(), 0..6)),
        (memory(), settings()),
        proptest::collection::btree_set(select(ids), 0..4),
        of(select(Operation::ALL)),
        (of((0_u32..13, 0_u32..10)), of(any::<u32>()), of(select(Platform::ALL)), any::<bool>()),
    )
        .prop_map(|(frameworks, task, causes, owners, (memory, settings), on, operation, machine)| Situation {
            frameworks: frameworks
                .into_iter()
                .map(|(framework, version)| match version {
                    Some(version) => Installed::new(framework, &format!("{version}.1")),
                    None => Installed::from(framework),
                })
                .collect(),
            task,
            causes: causes.into_iter().map(Into::into).collect(),
            owners: owners.map(|owners: BTreeMap<OwnerGroup, u64>| owners),
            memory,
            settings,
            on,
            operation,
            within: None,
            compute_capability: machine.0,
            gpus: machine.1,
            platform: machine.2,
            notebook: machine.3,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn nothing_is_offered_that_cannot_help(situation in situation()) {
        let catalogue = Catalogue::builtin();
        let suggestion = suggest(&situation);
        prop_assert!(suggestion.remedies.len() <= MOST_OFFERS);
        prop_assert!(suggestion.avoid.len() <= MOST_AVOIDED);
        for offer in &suggestion.remedies {
            let remedy = catalogue.get(&offer.id).expect("offers come from the catalogue");
            prop_assert!(!situation.on.contains(&offer.id), "{} is on already", offer.id);
            for on in &situation.on {
                prop_assert!(!catalogue.conflict(on, &offer.id), "{on} excludes {}", offer.id);
            }
            prop_assert_ne!(offer.frees_bytes, Some(0));
            if let Some(task) = situation.task {
                prop_assert!(remedy.when.tasks.is_empty() || remedy.when.tasks.contains(&task));
            }
            if let Some(operation) = situation.operation {
                let live = operation.live_owners();
                prop_assert!(remedy.effects.iter().any(|effect| live.contains(&effect.owner)), "{}", offer.id);
            }
            prop_assert!(!offer.apply.is_empty() && !offer.cost.is_empty() && !offer.because.is_empty());
        }
    }
}
