//! How the cards are connected: `topo -m`.

use crate::machine::Machine;

/// The matrix. Virtual cards hang on one PCI host bridge, as NVML says of them, and every processor is near each.
pub(crate) fn matrix(machine: &Machine) -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut out = String::from("\t");
    for card in &machine.cards {
        out += &format!("GPU{}\t", card.index);
    }
    out += "CPU Affinity\tNUMA Affinity\tGPU NUMA ID\n";
    for card in &machine.cards {
        out += &format!("GPU{}\t", card.index);
        for other in &machine.cards {
            out += if card.index == other.index { " X \t" } else { "PHB\t" };
        }
        out += &format!("0-{}\t0\t\tN/A\n", processors - 1);
    }
    out + "\nLegend:\n\n  X    = Self\n  PHB  = Connection through a PCIe host bridge\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_meet_at_the_host_bridge() {
        let text = matrix(&Machine::example(2));
        assert!(text.starts_with("\tGPU0\tGPU1\tCPU Affinity"), "{text}");
        assert!(text.contains("\nGPU1\tPHB\t X \t0-"), "{text}");
    }
}
