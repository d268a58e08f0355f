//! Lists of values: `--query-gpu` and `--query-compute-apps`.

use crate::columns::{self, Field, OnCard};
use crate::machine::Machine;
use crate::options::Format;
use crate::{INVALID, Refusal};

/// What stands for a value that the card does not report.
const MISSING: &str = "[N/A]";

/// A line for each card.
pub(crate) fn cards(machine: &Machine, fields: &[String], format: Format, is_first: bool) -> Result<String, Refusal> {
    lines(machine, fields, columns::of_cards, &machine.cards, format, is_first)
}

/// A line for each process on each card.
pub(crate) fn processes(
    machine: &Machine,
    fields: &[String],
    format: Format,
    is_first: bool,
) -> Result<String, Refusal> {
    let of_card = |card: &crate::Card| {
        let card = card.clone();
        card.processes.clone().into_iter().map(move |process| OnCard { card: card.clone(), process })
    };
    let found: Vec<OnCard> = machine.cards.iter().flat_map(of_card).collect();
    lines(machine, fields, columns::of_processes, &found, format, is_first)
}

fn lines<Of>(
    machine: &Machine,
    fields: &[String],
    find: fn(&str) -> Option<Field<Of>>,
    things: &[Of],
    format: Format,
    is_first: bool,
) -> Result<String, Refusal> {
    let unknown = |name: &str| Refusal::tools(INVALID, format!("Field \"{name}\" is not a valid field to query.\n"));
    let found: Vec<Field<Of>> =
        fields.iter().map(|name| find(name).ok_or_else(|| unknown(name))).collect::<Result<_, _>>()?;
    let mut text = String::new();
    if format.header && is_first {
        let names: Vec<String> = found
            .iter()
            .map(|field| match field.unit {
                Some(unit) => format!("{} [{unit}]", field.name),
                None => field.name.clone(),
            })
            .collect();
        text += &format!("{}\n", names.join(", "));
    }
    for thing in things {
        let values: Vec<String> = found
            .iter()
            .map(|field| match (field.value.and_then(|value| value(machine, thing)), field.unit) {
                (Some(value), Some(unit)) if format.units => format!("{value} {unit}"),
                (Some(value), _) => value,
                (None, _) => MISSING.to_owned(),
            })
            .collect();
        text += &format!("{}\n", values.join(", "));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    const ALL: Format = Format { header: true, units: true };
    const BARE: Format = Format { header: false, units: false };

    #[test]
    fn a_header_names_properties_and_units() {
        let asked = fields("index,gpu_name,memory.used,utilization.gpu,temperature.gpu,power.draw,clocks.sm,fan.speed");
        let text = cards(&Machine::example(2), &asked, ALL, true).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "index, name, memory.used [MiB], utilization.gpu [%], temperature.gpu, power.draw [W], \
                 clocks.current.sm [MHz], fan.speed [%]",
                "0, NVIDIA GeForce RTX 3060, 1000 MiB, 0 %, 35, 30.00 W, 1777 MHz, [N/A]",
                "1, NVIDIA GeForce RTX 3060, 1000 MiB, 0 %, 35, 30.00 W, 1777 MHz, [N/A]",
            ]
        );
        assert_eq!(cards(&Machine::example(2), &asked, ALL, false).unwrap().lines().count(), 2, "no second header");
    }

    #[test]
    fn processes_are_listed_card_by_card() {
        let text = processes(&Machine::example(1), &fields("pid,name,used_memory"), ALL, true).unwrap();
        assert_eq!(text, "pid, process_name, used_gpu_memory [MiB]\n4711, python, 1000 MiB\n");
        let text = processes(&Machine::example(1), &fields("pid,used_memory"), BARE, true).unwrap();
        assert_eq!(text, "4711, 1000\n");
    }

    #[test]
    fn an_unknown_field_is_refused_as_the_tool_does() {
        let refused = cards(&Machine::example(1), &fields("name,cuda_version"), ALL, true).unwrap_err();
        assert_eq!(
            (refused.status, refused.text.as_str()),
            (2, "Field \"cuda_version\" is not a valid field to query.\n")
        );
    }
}
