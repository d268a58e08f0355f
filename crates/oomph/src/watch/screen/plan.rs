//! How the rows of a terminal are shared among cards, processes and the rest.

/// Fewer rows have no heading.
const HEADING: u16 = 8;

/// Fewer rows have no line of keys.
const FOOTER: u16 = 6;

/// Fewer rows say nothing more of the selected process.
const DETAILS: u16 = 20;

/// A curve has at least so many rows next to a bar with its legend.
const CURVE: u16 = 2;

/// What there is to show.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Rows of the terminal.
    pub height: u16,
    /// Cards.
    pub cards: usize,
    /// Rows that the legend of a card takes.
    pub legend: u16,
    /// Processes.
    pub processes: usize,
    /// Rows that they take where each has its trend below it.
    pub process_rows: usize,
    /// Rows about processes that are not listed.
    pub notes: u16,
    /// Rows about the selected process.
    pub details: u16,
    /// Rows that explain the keys.
    pub help: u16,
}

/// How much is shown of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A heading, a bar, its legend with figures, and a curve of so many rows.
    Full(u16),
    /// A heading, a bar, and a curve of so many rows.
    Brief(u16),
    /// One row with a bar.
    Line,
}

/// Rows for each part, from the top to the bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The heading of the page.
    pub heading: u16,
    /// How much is shown of each card.
    pub detail: Detail,
    /// So many cards fit.
    pub cards: usize,
    /// The legend of all cards.
    pub legend: u16,
    /// The processes, with two rows above them.
    pub table: u16,
    /// Whether trends are below processes.
    pub has_trends: bool,
    /// Why processes are not listed.
    pub notes: u16,
    /// The selected process.
    pub details: u16,
    /// The newest line of the log.
    pub news: u16,
    /// The keys, explained.
    pub help: u16,
    /// The last row.
    pub footer: u16,
}

impl Detail {
    /// The rows of a card.
    pub fn rows(self, legend: u16) -> u16 {
        match self {
            Self::Full(curve) => 2_u16.saturating_add(legend).saturating_add(curve),
            Self::Brief(curve) => 2_u16.saturating_add(curve),
            Self::Line => 1,
        }
    }
}

/// Shares the rows. Cards come first, then processes, and what is good to know fills the rest.
pub fn plan(asked: &Asked) -> Plan {
    let heading = u16::from(asked.height >= HEADING);
    let footer = u16::from(asked.height >= FOOTER);
    let mut left = asked.height - heading - footer;
    let help = asked.help.min(left / 2);
    left -= help;
    let cards = rows(asked.cards);
    let notes = asked.notes.min(left.saturating_sub(cards.max(1)));
    left -= notes;
    // A few processes are worth more than curves, and a line for a card more than processes.
    let least = if asked.processes == 0 { 0 } else { 2 + rows(asked.processes).min(if left < 16 { 2 } else { 4 }) };
    let least = least.min(left.saturating_sub(cards.max(1)));
    let least = if least < 3 { 0 } else { least };
    let details = if asked.height >= DETAILS { asked.details.min(asked.height / 3) } else { 0 };
    let room = left - least;
    let of = |detail: Detail| detail.rows(asked.legend).saturating_mul(cards);
    let fits = |detail: Detail, details: u16| {
        let legend = u16::from(!matches!(detail, Detail::Full(_)));
        of(detail).saturating_add(legend).saturating_add(details) <= room
    };
    let choices = [Detail::Full(CURVE), Detail::Brief(1), Detail::Brief(0)];
    let found = choices.into_iter().find(|choice| fits(*choice, details)).map(|choice| (choice, details));
    // With many cards a line for each is enough, where the selected process can be explained below them.
    let below = room.saturating_sub(cards).saturating_sub(1);
    let (mut detail, details) = found.unwrap_or((Detail::Line, details.min(below)));
    let wanted = if asked.processes == 0 { 0 } else { 2_u16.saturating_add(rows(asked.process_rows)) };
    let mut spare = room.saturating_sub(of(detail)).saturating_sub(details);
    if let (Detail::Full(curve), true) = (detail, cards > 0) {
        let most = (asked.height / 4).max(curve);
        let more = (spare.saturating_sub(wanted.saturating_sub(least)) / cards).min(most - curve);
        detail = Detail::Full(curve + more);
        spare = spare.saturating_sub(more.saturating_mul(cards));
    }
    let shown = cards.min(room);
    if detail == Detail::Line {
        spare = room.saturating_sub(shown).saturating_sub(details);
    }
    let legend = u16::from(!matches!(detail, Detail::Full(_)) && spare > 0 && asked.height >= FOOTER && cards > 0);
    spare -= legend;
    let table = least.saturating_add(spare).min(wanted);
    let table = if table < 3 { 0 } else { table };
    spare = least.saturating_add(spare).saturating_sub(table);
    Plan {
        heading,
        detail,
        cards: usize::from(shown),
        legend,
        table,
        has_trends: table == wanted && wanted > 0,
        notes,
        details,
        news: u16::from(spare > 0 && asked.height >= DETAILS),
        help,
        footer,
    }
}

fn rows(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_terminal_is_given_more_rows_than_it_has() {
        for height in 0..70 {
            for (cards, processes) in [(0, 0), (1, 0), (1, 1), (2, 3), (8, 12), (70, 300), (usize::MAX, usize::MAX)] {
                for (help, notes, legend) in [(0, 0, 1), (4, 3, 2)] {
                    let process_rows = processes.saturating_mul(2);
                    let asked = Asked { height, cards, legend, processes, process_rows, notes, details: 6, help };
                    let plan = plan(&asked);
                    let shown = plan.detail.rows(legend) * u16::try_from(plan.cards).unwrap();
                    let rest = [plan.legend, plan.table, plan.notes, plan.details, plan.news, plan.help, plan.footer];
                    let sum = plan.heading + shown + rest.iter().sum::<u16>();
                    assert!(sum <= height, "{sum} rows of {height}: {asked:?} {plan:?}");
                    assert!(cards == 0 || height < 2 || plan.cards > 0, "no card: {asked:?} {plan:?}");
                }
            }
        }
    }
}
