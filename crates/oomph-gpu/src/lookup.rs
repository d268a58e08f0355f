//! Finding a card by whatever people call it: by its normalised name, with a size, or by what is most similar.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::catalogue::Catalogue;
use crate::gpu::Gpu;
use crate::names::{key, size_in_gb, words};

/// A name that no card answers to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no GPU is called \"{text}\"; {}", advice(.nearest))]
pub struct UnknownGpu {
    /// What was asked for, shortened to 60 characters.
    pub text: String,
    /// The ids of the cards with the most similar names, best first. It may be empty.
    pub nearest: Vec<String>,
}

fn advice(nearest: &[String]) -> String {
    if nearest.is_empty() {
        "list the known ones with \"oomph gpus\"".into()
    } else {
        format!("did you mean {}? \"oomph gpus\" lists all", nearest.join(", "))
    }
}

/// Texts longer than this are never names of cards, and comparing them would only take time.
const LONGEST_NAME: usize = 120;

/// The number of insertions, deletions, substitutions and swaps of neighbours between two texts.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut table = vec![vec![0; right.len() + 1]; left.len() + 1];
    for line in 0..=left.len() {
        for column in 0..=right.len() {
            if line == 0 || column == 0 {
                table[line][column] = line + column;
                continue;
            }
            let (from, to) = (left[line - 1], right[column - 1]);
            let mut cost = (table[line - 1][column - 1] + usize::from(from != to))
                .min(table[line - 1][column] + 1)
                .min(table[line][column - 1] + 1);
            // Swapped digits are the most frequent slip in the name of a card.
            let swapped = line > 1 && column > 1 && from == right[column - 2] && to == left[line - 2];
            if swapped {
                cost = cost.min(table[line - 2][column - 2] + 1);
            }
            table[line][column] = cost;
        }
    }
    table[left.len()][right.len()]
}

/// How many characters two texts have in common at the start.
fn common_prefix(left: &str, right: &str) -> usize {
    left.chars().zip(right.chars()).take_while(|(from, to)| from == to).count()
}

impl Catalogue {
    /// The card that a text means: an id, an alias, the name that CUDA prints, or a sloppy spelling of one of these.
    ///
    /// A name that several cards share means the most common one (an `A100` is the 80 GB SXM card, an `H100` the
    /// 80 GB SXM card, an `RTX 3060` the 12 GB card); [`Catalogue::variants`] lists the others.
    pub fn find(&self, text: &str) -> Result<&Gpu, UnknownGpu> {
        self.lookup(text).ok_or_else(|| UnknownGpu {
            text: text.chars().take(60).collect(),
            nearest: self.nearest(text).into_iter().map(|gpu| gpu.id.clone()).collect(),
        })
    }

    fn lookup(&self, text: &str) -> Option<&Gpu> {
        if text.len() > LONGEST_NAME {
            return None;
        }
        let mut words = words(text);
        if let Some(&position) = self.keys.get(&words.concat()) {
            return Some(&self.gpus[position]);
        }
        // "4090 24gb" names the size although there is only one, and "orin 64 gb" picks one of several.
        let mut last = words.pop()?;
        if matches!(last.as_str(), "gb" | "gib" | "g") {
            last = format!("{}gb", words.pop()?);
        }
        let size = size_in_gb(&last)?;
        let base = &self.gpus[*self.keys.get(&words.concat())?];
        self.gpus.iter().find(|gpu| gpu.name == base.name && gpu.memory_gb == size)
    }

    /// The other cards that CUDA gives the same name, for example the 8 GB RTX 3060 for the 12 GB one.
    pub fn variants(&self, gpu: &Gpu) -> impl Iterator<Item = &Gpu> {
        self.iter().filter(|other| other.name == gpu.name && other.id != gpu.id)
    }

    /// Up to three cards whose names are most similar to a text, best first.
    ///
    /// A text that resembles nothing gets no answer.
    pub fn nearest(&self, text: &str) -> Vec<&Gpu> {
        if text.len() > LONGEST_NAME {
            return Vec::new();
        }
        let wanted = key(text);
        let limit = (wanted.chars().count() / 2).min(4);
        let mut best: HashMap<usize, (usize, Reverse<usize>)> = HashMap::new();
        for (name, &position) in &self.keys {
            let apart = distance(&wanted, name);
            if apart <= limit {
                // Among names that are equally far, the one with the same beginning is the likelier.
                let rank = (apart, Reverse(common_prefix(&wanted, name)));
                best.entry(position).and_modify(|known| *known = rank.min(*known)).or_insert(rank);
            }
        }
        let mut ranked: Vec<_> = best.into_iter().map(|(position, rank)| (rank, position)).collect();
        ranked.sort_unstable();
        ranked.into_iter().take(3).map(|(_, position)| &self.gpus[position]).collect()
    }

    /// The card that a real GPU is, by the name that CUDA and NVML print and its total memory in bytes.
    ///
    /// The total may come from CUDA or from NVML, which reports up to 3 % more. Where several cards share the name,
    /// the closest total decides; a total that is more than a tenth away from all of them (a rebuilt card with
    /// twice the memory, for example) has no answer.
    pub fn matching(&self, name: &str, total_bytes: u64) -> Option<&Gpu> {
        let wanted = key(name);
        let named = self.keys.get(&wanted).map(|&position| &self.gpus[position]);
        self.gpus
            .iter()
            .filter(|gpu| key(&gpu.name) == wanted)
            .chain(named)
            .min_by_key(|gpu| gpu.capacity_bytes.abs_diff(total_bytes))
            .filter(|gpu| gpu.capacity_bytes.abs_diff(total_bytes) <= gpu.capacity_bytes / 10)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(text: &str) -> &str {
        Catalogue::builtin().find(text).map_or("unknown", |gpu| &gpu.id)
    }

    #[test]
    fn cards_are_found_by_whatever_people_call_them() {
        for (text, expected) in [
            ("rtx-4090", "rtx-4090"),
            ("4090", "rtx-4090"),
            ("RTX 4090", "rtx-4090"),
            ("rtx4090", "rtx-4090"),
            ("RTX_4090", "rtx-4090"),
            ("  GeForce RTX 4090 ", "rtx-4090"),
            ("NVIDIA GeForce RTX 4090", "rtx-4090"),
            ("4090 24GB", "rtx-4090"),
            ("4090 D", "rtx-4090-d"),
            ("4090 laptop", "rtx-4090-laptop"),
            ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop"),
            ("rtx 3060 mobile", "rtx-3060-laptop"),
            ("3060", "rtx-3060"),
            ("3060 12gb", "rtx-3060"),
            ("3060 8gb", "rtx-3060-8gb"),
            ("RTX 3060 8 GB", "rtx-3060-8gb"),
            ("3060-8G", "rtx-3060-8gb"),
            ("3080 12GiB", "rtx-3080-12gb"),
            ("4060ti", "rtx-4060-ti"),
            ("4060ti 16gb", "rtx-4060-ti-16gb"),
            ("5060 Ti 8GB", "rtx-5060-ti-8gb"),
            ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
            ("a100-80gb", "a100-80gb"),
            ("A100 80GB", "a100-80gb"),
            ("A100", "a100-80gb"),
            ("A100 40GB", "a100-40gb"),
            ("NVIDIA A100-PCIE-40GB", "a100-40gb-pcie"),
            ("a100-pcie-80gb", "a100-80gb-pcie"),
            ("h100", "h100"),
            ("H100 SXM", "h100"),
            ("H100 80GB", "h100"),
            ("NVIDIA H100 80GB HBM3", "h100"),
            ("h100 pcie", "h100-pcie"),
            ("Tesla T4", "t4"),
            ("t4", "t4"),
            ("v100", "v100-16gb"),
            ("V100 32GB", "v100-32gb"),
            ("Tesla V100-PCIE-16GB", "v100-16gb"),
            ("l40s", "l40s"),
            ("A6000", "rtx-a6000"),
            ("RTX 6000 Ada", "rtx-6000-ada"),
            ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
            ("RTX PRO 6000", "rtx-pro-6000-blackwell"),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-blackwell-server"),
            ("1080 Ti", "gtx-1080-ti"),
            ("gtx1060", "gtx-1060"),
            ("titan rtx", "titan-rtx"),
            ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a100-mig-1g.5gb"),
            ("h100 mig 3g.40gb", "h100-mig-3g.40gb"),
            ("jetson orin nano", "jetson-orin-nano-8gb"),
            ("orin 64 gb", "jetson-agx-orin-64gb"),
            ("Orin 16GB", "jetson-orin-nx-16gb"),
        ] {
            assert_eq!(id(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_card_is_not_found() {
        for text in ["", " ", "rtx", "nvidia", "4090 16gb", "7900 XTX", "8gb", "gb", "5095"] {
            assert_eq!(id(text), "unknown", "{text:?}");
        }
        assert_eq!(id(&"4090".repeat(100_000)), "unknown");
    }

    #[test]
    fn every_id_alias_and_name_is_found() {
        let catalogue = Catalogue::builtin();
        for gpu in catalogue.iter() {
            for text in std::iter::once(&gpu.id).chain(&gpu.aliases) {
                assert_eq!(id(text), gpu.id, "{text}");
            }
            assert_eq!(catalogue.find(&gpu.name).unwrap().name, gpu.name);
        }
    }

    #[test]
    fn an_unknown_name_gets_suggestions() {
        let error = Catalogue::builtin().find("rtx 5095").unwrap_err();
        assert_eq!(error.nearest[0], "rtx-5090");
        assert_eq!(error.to_string().lines().count(), 1, "one line of text: {error}");
        assert!(error.to_string().contains("did you mean rtx-5090"), "{error}");
        let nearest = |text| &Catalogue::builtin().nearest(text)[0].id;
        assert_eq!(nearest("a100 80bg"), "a100-80gb");
        assert_eq!(nearest("rtx 4009"), "rtx-4090");
        assert_eq!(nearest("h10"), "h100");
        let strange = Catalogue::builtin().find("a completely different thing");
        assert!(strange.unwrap_err().to_string().contains("oomph gpus"));
    }

    #[test]
    fn variants_share_a_name() {
        let catalogue = Catalogue::builtin();
        let card = catalogue.get("rtx-3060").unwrap();
        let others: Vec<&str> = catalogue.variants(card).map(|gpu| gpu.id.as_str()).collect();
        assert_eq!(others, ["rtx-3060-8gb"]);
    }

    #[test]
    fn real_cards_are_matched_by_name_and_memory() {
        let catalogue = Catalogue::builtin();
        for (name, mib, expected) in [
            ("NVIDIA GeForce RTX 3060", 12_288, Some("rtx-3060")),
            ("NVIDIA GeForce RTX 3060", 8_192, Some("rtx-3060-8gb")),
            ("NVIDIA GeForce RTX 3080", 10_240, Some("rtx-3080")),
            ("NVIDIA GeForce RTX 3080", 12_288, Some("rtx-3080-12gb")),
            ("NVIDIA GeForce RTX 3080", 20_479, None),
            ("NVIDIA GeForce RTX 4090", 24_564, Some("rtx-4090")),
            ("NVIDIA GeForce RTX 4090", 49_140, None),
            ("NVIDIA H200", 143_771, Some("h200")),
            ("Tesla V100-PCIE-16GB", 16_384, Some("v100-16gb")),
            ("Orin", 62_841, Some("jetson-agx-orin-64gb")),
            ("AMD Instinct MI300X", 196_288, None),
        ] {
            let found = catalogue.matching(name, mib << 20).map(|gpu| &*gpu.id);
            assert_eq!(found, expected, "{name} {mib}");
        }
    }

    #[test]
    fn distances_count_edits() {
        assert_eq!(distance("", ""), 0);
        assert_eq!(distance("4090", ""), 4);
        assert_eq!(distance("", "4090"), 4);
        assert_eq!(distance("4090", "4080"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("4009", "4090"), 1);
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "\\PC{0,40}") {
            let _ = Catalogue::builtin().find(&text);
        }

        #[test]
        fn distance_is_symmetric(left in "[a-c]{0,8}", right in "[a-c]{0,8}") {
            prop_assert_eq!(distance(&left, &right), distance(&right, &left));
            prop_assert_eq!(distance(&left, &right) == 0, left == right);
        }
    }
}
