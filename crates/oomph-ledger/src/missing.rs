//! Names a card that a program asked for and that its run does not have.

/// What a program asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingCard {
    /// The number by which it asked, as the process counts its cards. `None` where its list names a card that is not there.
    pub ordinal: Option<u32>,
    /// The process's `CUDA_VISIBLE_DEVICES`.
    pub list: Option<String>,
    /// How many cards the run would need. `None` where no number of cards is enough: the list leaves the card out, or names
    /// one by an identity that no card has.
    pub needs: Option<u32>,
}

impl MissingCard {
    /// What is missing where a process asks for a card by its number.
    #[must_use]
    pub fn by_ordinal(ordinal: u32, list: Option<&str>) -> Self {
        let needs = match list {
            None => ordinal.checked_add(1),
            Some(list) => needs_of(list, usize::try_from(ordinal).ok().and_then(|ordinal| ordinal.checked_add(1))),
        };
        Self { ordinal: Some(ordinal), list: list.map(str::to_owned), needs }
    }

    /// What is missing of a list for a run that has `cards`; `None` where it names no card that is not there. A list that is empty, or
    /// that names -1, is meant to hide cards.
    #[must_use]
    pub fn of_list(list: &str, cards: usize) -> Option<Self> {
        let is_missing = |entry: &str| match entry.parse::<i64>() {
            Ok(index) => usize::try_from(index).is_ok_and(|index| index >= cards),
            Err(_) => entry.starts_with("GPU-") || entry.starts_with("MIG-"),
        };
        let named = list.split(',').map(str::trim).take_while(|entry| entry.parse::<i64>() != Ok(-1));
        let mut missing = named.filter(|entry| is_missing(entry)).peekable();
        missing.peek()?;
        Some(Self { ordinal: None, list: Some(list.to_owned()), needs: needs_of(list, None) })
    }

    /// The text of its note.
    #[must_use]
    pub fn text(&self) -> String {
        let number = |value: Option<u32>| value.map(|value| value.to_string()).unwrap_or_default();
        let has_list = if self.list.is_some() { "=" } else { "" };
        let list = self.list.as_deref().unwrap_or_default();
        format!("{} {} {has_list}{list}", number(self.ordinal), number(self.needs))
    }

    /// Reads the text of a note.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let (ordinal, needs, list) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            ordinal: ordinal.parse().ok(),
            list: list.strip_prefix('=').map(str::to_owned),
            needs: needs.parse().ok(),
        })
    }
}

/// How many cards a list's first entries ask for, all of them where no number is given. `None` where there are fewer, or
/// one is not a number.
fn needs_of(list: &str, first: Option<usize>) -> Option<u32> {
    let entries: Vec<&str> = list.split(',').map(str::trim).collect();
    let asked = entries.get(..first.unwrap_or(entries.len()))?;
    let indices: Vec<u32> = asked.iter().map(|entry| entry.parse().ok()).collect::<Option<_>>()?;
    indices.into_iter().max()?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_asks_for_one_card_more() {
        assert_eq!(MissingCard::by_ordinal(1, None).needs, Some(2));
        assert_eq!(MissingCard::by_ordinal(1, Some("0,3")).needs, Some(4), "the list names a card that is not there");
        assert_eq!(MissingCard::by_ordinal(1, Some("0")).needs, None, "the list leaves it out");
        assert_eq!(MissingCard::by_ordinal(u32::MAX, None).needs, None);
    }

    #[test]
    fn a_list_asks_for_its_largest_number() {
        let needs = |list: &str, cards| MissingCard::of_list(list, cards).map(|missing| missing.needs);
        assert_eq!(needs("2", 1), Some(Some(3)));
        assert_eq!(needs("0,1", 1), Some(Some(2)));
        assert_eq!(needs("GPU-deadbeef", 1), Some(None));
        for meant in ["", "-1", "0", "0,-1,5", "NoDevFiles"] {
            assert_eq!(needs(meant, 1), None, "{meant}");
        }
    }

    #[test]
    fn notes_are_read_back() {
        for missing in [
            MissingCard::by_ordinal(1, None),
            MissingCard::by_ordinal(1, Some("0, 3")),
            MissingCard::by_ordinal(1, Some("")),
            MissingCard { ordinal: None, list: Some("2".into()), needs: Some(3) },
        ] {
            assert_eq!(MissingCard::parse(&missing.text()), Some(missing));
        }
        assert_eq!(MissingCard::parse("nonsense"), None);
    }
}
