//! The table that `nvidia-smi` prints without arguments, in the layout of the driver series 580.

use crate::machine::{Card, Machine, mib};

/// Characters of a line.
const WIDTH: usize = 91;
/// Characters of a process's name and of the memory behind it.
const NAME: usize = 35;
const USED: usize = 8;

/// The table.
pub(crate) fn text(machine: &Machine) -> String {
    let whole = format!("+{}+\n", "-".repeat(WIDTH - 2));
    let parts = format!("+{}+{}+{}+\n", "-".repeat(41), "-".repeat(24), "-".repeat(22));
    let under = format!("|{}+{}+{}|\n", "=".repeat(41), "=".repeat(24), "=".repeat(22));
    let mut out = format!("{}       \n{whole}", chrono::Local::now().format("%a %b %e %H:%M:%S %Y"));
    out += &format!(
        "| NVIDIA-SMI {:<22} Driver Version: {:<14} CUDA Version: {:<8} |\n{parts}",
        machine.driver, machine.driver, machine.cuda
    );
    out += "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n";
    out += "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n";
    out += "|                                         |                        |               MIG M. |\n";
    out += &under;
    for card in &machine.cards {
        out += &of_card(card);
        out += &parts;
    }
    out += &format!("\n{whole}");
    out += "| Processes:                                                                              |\n";
    out += "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n";
    out += "|        ID   ID                                                               Usage      |\n";
    out += &format!("|{}|\n", "=".repeat(WIDTH - 2));
    let before = out.len();
    for card in &machine.cards {
        for process in &card.processes {
            let name = process.name.as_deref().unwrap_or("-");
            let used = process.used.map_or("N/A".to_owned(), |bytes| format!("{}MiB", mib(bytes)));
            out += &format!(
                "| {:>4}   N/A  N/A {:>15}      C   {:<NAME$}  {used:>width$} |\n",
                card.index,
                process.pid,
                end_of(name, NAME),
                width = USED + 1,
            );
        }
    }
    if out.len() == before {
        out += "|  No running processes found                                                             |\n";
    }
    out + &whole
}

fn of_card(card: &Card) -> String {
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "N/A".to_owned());
    let on = |value: Option<bool>| value.map_or("N/A", |value| if value { "On" } else { "Off" });
    let watts = |value: Option<u32>| or_none(value.map(|milliwatts| format!("{}W", (milliwatts + 500) / 1000)));
    let power = format!("{} / {:>5}", watts(card.power), watts(card.enforced_limit));
    let memory = format!("{:>7}MiB / {:>6}MiB", mib(card.memory.used), mib(card.memory.total));
    // Errors are counted where they are corrected.
    let errors = card.ecc.map_or("N/A", |ecc| if ecc.0 { "0" } else { "Off" });
    let mig = card.mig.map_or("N/A", |mig| if mig.0 { "Enabled" } else { "Disabled" });
    let mut name = card.name.clone();
    if name.chars().count() > 27 {
        name = name.chars().take(23).collect::<String>() + " ...";
    }
    let mut out = format!(
        "| {:>3}  {:<28} {:>5} | {:>18} {:>3} | {errors:>20} |\n",
        card.index,
        name,
        on(card.persistence),
        card.bus_id,
        on(card.display_active),
    );
    out += &format!(
        "| {:>3} {:>5} {:>5} {power:>23} | {memory:>22} | {:>7} {:>12} |\n",
        or_none(card.fan.map(|percent| format!("{percent}%"))),
        or_none(card.temperature.map(|degrees| format!("{degrees}C"))),
        or_none(card.performance.map(|state| format!("P{state}"))),
        or_none(card.utilization.map(|rates| format!("{}%", rates.0))),
        "Default",
    );
    out + &format!("|{:41}|{:24}| {mig:>20} |\n", "", "")
}

/// The end of a name that is too long, which names the program.
fn end_of(name: &str, most: usize) -> String {
    let count = name.chars().count();
    if count <= most {
        return name.to_owned();
    }
    format!("...{}", name.chars().skip(count - (most - 3)).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of public logs of the driver 580, with our figures.
    #[test]
    fn the_table_has_the_layout_of_the_tool() {
        let mut machine = Machine::example(1);
        machine.cards[0].processes[0].name = Some("/home/me/environments/project/bin/python".into());
        let text = text(&machine);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[2],
            "| NVIDIA-SMI 595.00                 Driver Version: 595.00         CUDA Version: 13.2     |"
        );
        assert_eq!(
            lines[8],
            "|   0  NVIDIA GeForce RTX 3060         On |   00000000:01:00.0 N/A |                  N/A |"
        );
        assert_eq!(
            lines[9],
            "| N/A   35C    P0             30W /  300W |    1000MiB /  12000MiB |      0%      Default |"
        );
        assert_eq!(
            lines[18],
            "|    0   N/A  N/A            4711      C   .../environments/project/bin/python    1000MiB |"
        );
        for line in lines.iter().skip(1).filter(|line| !line.is_empty()) {
            assert_eq!(line.chars().count(), WIDTH, "{line}");
        }
        // The figures that scripts take from the table.
        let memory = lines.iter().find(|line| line.contains("MiB /")).unwrap();
        let words: Vec<&str> = memory.split_whitespace().collect();
        assert_eq!((words[8], words[10]), ("1000MiB", "12000MiB"));
    }

    #[test]
    fn an_idle_card_says_so() {
        let mut machine = Machine::example(1);
        machine.cards[0].processes.clear();
        assert!(text(&machine).contains("|  No running processes found"));
    }
}
