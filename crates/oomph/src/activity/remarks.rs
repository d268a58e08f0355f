//! Suggests changes to a program's memory calls, one sentence each.

use oomph_gpu::size::format as human;
use oomph_launch::activity as counted;
use oomph_report::activity::{AllocationSite, Allocations, Pooled, Transfers};

use super::element::Element;

/// A loop that allocates is worth a word from so many calls on that a pool would save.
const CHURN: u64 = 100;
/// Copies are worth a word from so many bytes on.
const TRAFFIC: u64 = 16 << 20;
/// A buffer is large from so many bytes on.
const LARGE: u64 = 64 << 20;
/// A line that copies so often does it in a loop.
const LOOP: u64 = 8;
/// A line leaks where it keeps at least one in so many of its allocations.
const KEPT_OF: u64 = 20;
/// Places that a sentence names.
const PLACES: usize = 3;

/// What is known of the code of a program.
pub struct Code<'a> {
    /// Whether a framework allocates on the program's behalf: it keeps what it holds to the end by design, and knows its
    /// own types.
    pub framework: bool,
    /// Whether a place belongs to a library from whose own threads memory is taken.
    pub library: &'a dyn Fn(&str) -> bool,
    /// What a place allocates.
    pub element: &'a dyn Fn(&str) -> Element,
}

/// What is worth changing; `refused` is the request that ended the program.
pub fn remarks(
    growing: &[Growing],
    allocations: &Allocations,
    pooled: &Pooled,
    transfers: &Transfers,
    refused: Option<&Refused>,
    code: &Code<'_>,
) -> Vec<String> {
    let Code { framework, library, element } = *code;
    let own = |remark: Option<String>| remark.filter(|_| !framework);
    let at_death = growing.iter().any(|site| site.at_refusal);
    let smaller = match framework {
        true => Vec::new(),
        false => half_precision(allocations, &pooled.allocations, library, element),
    };
    [
        own(growth(growing, library)),
        own(oversized(refused)),
        own(never_freed(allocations, &pooled.allocations, library, at_death || refused.is_some())),
        churn(allocations),
        regrown(pooled),
        doubled(transfers),
        resent(transfers),
        own(pageable(transfers, library)),
    ]
    .into_iter()
    .flatten()
    .chain(smaller)
    .collect()
}

/// What one way through the program to an allocation holds in the end, or when the card refused what ended the program.
pub struct Growing {
    place: String,
    calls: u64,
    kept: u64,
    held_bytes: u64,
    most_held_bytes: u64,
    /// Whether this was when the card refused a request. What a program frees on its way out is held then.
    at_refusal: bool,
}

impl Growing {
    /// Of a call site, whose line is `place`.
    pub fn of(place: String, site: &counted::AllocationSite) -> Self {
        let (kept, held_bytes) = site.at_refusal.unwrap_or((site.calls.saturating_sub(site.freed), site.held_bytes));
        let at_refusal = site.at_refusal.is_some();
        Self { place, calls: site.calls, kept, held_bytes, most_held_bytes: site.most_held_bytes, at_refusal }
    }

    /// Whether it gives too little back: what it holds is the most that it ever held, or it is a queue that is filled and
    /// emptied.
    pub fn grows(&self) -> bool {
        let some = self.kept * KEPT_OF >= self.calls && self.held_bytes >= self.most_held_bytes / 10 * 9;
        self.kept >= LOOP && some && self.held_bytes >= LARGE
    }
}

/// A line that allocates again and again and gives nothing back, or not always: what the program dies of, sooner or later.
/// What it holds must be the most that it ever held, or it is a queue that is filled and emptied.
fn growth(growing: &[Growing], library: &dyn Fn(&str) -> bool) -> Option<String> {
    let most =
        growing.iter().filter(|site| site.grows() && !library(&site.place)).max_by_key(|site| site.held_bytes)?;
    let (each, held) = (human(most.held_bytes / most.calls), human(most.held_bytes));
    let Growing { place, calls, kept, .. } = most;
    let when = if most.at_refusal { "when the card refused a request" } else { "when the program ended" };
    Some(if kept == calls {
        format!(
            "memory grows by {each} with each allocation at {place}: none of the {calls} was freed {when} ({held} in all)"
        )
    } else {
        format!(
            "memory grows at {place}: {kept} of its {calls} allocations were not freed {when} ({held} in all, {each} per \
             allocation)"
        )
    })
}

fn churn(allocations: &Allocations) -> Option<String> {
    let saved = allocations.pool_saves_calls;
    if saved < CHURN || saved * 2 < allocations.calls {
        return None;
    }
    let most = allocations.sites.iter().map(|site| site.freed).max().unwrap_or(0);
    let busiest = allocations.sites.iter().filter(|site| most > 0 && site.freed * 2 >= most);
    let place = named(", most of them at ", busiest.map(|site| &site.place), "");
    let (now, then) = (human(allocations.most_held_bytes), human(allocations.pool_peak_bytes));
    let peak = if now == then { "at the same peak".into() } else { format!("at a peak of {then} instead of {now}") };
    Some(format!(
        "{saved} of {} allocations were of a size that had just been freed{place}: cudaMallocAsync, or buffers that are \
         kept, would save these calls and as many frees, {peak}",
        allocations.calls
    ))
}

fn regrown(pooled: &Pooled) -> Option<String> {
    (pooled.regrew >= CHURN).then(|| {
        format!(
            "its pool grew {} times, {} of them to re-acquire memory released at a synchronisation: set \
             cudaMemPoolAttrReleaseThreshold to keep it",
            pooled.grew, pooled.regrew
        )
    })
}

/// What was not freed. Who dies of a refusal has not come to freeing what it needs to its end: what grows is said elsewhere.
fn never_freed(
    direct: &Allocations,
    pooled: &Allocations,
    library: &dyn Fn(&str) -> bool,
    died: bool,
) -> Option<String> {
    let held = || [direct, pooled].into_iter().flat_map(|kind| &kind.sites).filter(|site| site.held_bytes > 0);
    let (mut blocks, mut bytes) =
        (direct.never_freed_blocks + pooled.never_freed_blocks, direct.never_freed_bytes + pooled.never_freed_bytes);
    for site in held().filter(|site| library(&site.place)) {
        blocks = blocks.saturating_sub(site.calls.saturating_sub(site.freed));
        bytes = bytes.saturating_sub(site.held_bytes);
    }
    if blocks == 0 || died {
        return None;
    }
    let places = held().filter(|site| !library(&site.place)).map(|site| &site.place);
    let places = named(" (allocated at ", places, ")");
    // What was held when the card refused a request may be freed on the way out: this is what is left after that.
    let verb = if blocks == 1 { "was" } else { "were" };
    Some(format!("{} in {} {verb} never freed, up to the end{places}", human(bytes), counted(blocks, "block")))
}

fn doubled(transfers: &Transfers) -> Option<String> {
    if transfers.most_doubled_bytes < TRAFFIC {
        return None;
    }
    let copies = transfers.sites.iter().filter(|site| site.traffic.doubled_bytes > 0);
    let places = named(", the second time at ", copies.map(|site| &site.place), "");
    let bytes = human(transfers.most_doubled_bytes);
    Some(format!("{bytes} lay on the card twice: the same bytes were sent to two buffers{places}"))
}

fn resent(transfers: &Transfers) -> Option<String> {
    let way = &transfers.to_card;
    if way.resent_bytes < TRAFFIC {
        return None;
    }
    let copies = transfers.sites.iter().filter(|site| site.traffic.resent_bytes > 0);
    let places = named(", at ", copies.map(|site| &site.place), "");
    Some(format!(
        "{} of the {} sent to the card had been sent before ({}{places}): unless kernels change them, send them once and \
         keep them",
        human(way.resent_bytes),
        human(way.bytes),
        counted(way.resent_calls, "copy")
    ))
}

/// Only who copies in a loop can do something about it, and only there it costs something: page-locking takes as long as a
/// copy or two.
fn pageable(transfers: &Transfers, library: &dyn Fn(&str) -> bool) -> Option<String> {
    let copies = transfers
        .sites
        .iter()
        .filter(|site| site.traffic.pageable_bytes >= LARGE && site.traffic.calls >= LOOP && !library(&site.place));
    let copies: Vec<_> = copies.collect();
    let pageable: u64 = copies.iter().map(|site| site.traffic.pageable_bytes).sum();
    let places = named(", at ", copies.iter().map(|site| &site.place), "");
    let all = transfers.to_card.bytes + transfers.to_host.bytes;
    (pageable > 0).then(|| {
        format!(
            "{} of the {} between host and card went through ordinary memory{places}: page-locked memory \
             (cudaMallocHost, pin_memory=True) copies faster and overlaps kernels",
            human(pageable),
            human(all)
        )
    })
}

/// What smaller numbers would take off, by what the buffers hold as far as their lines say it.
fn half_precision(
    direct: &Allocations,
    pooled: &Allocations,
    library: &dyn Fn(&str) -> bool,
    element: &dyn Fn(&str) -> Element,
) -> Vec<String> {
    let large: Vec<&AllocationSite> = [direct, pooled]
        .into_iter()
        .flat_map(|kind| &kind.sites)
        .filter(|site| site.sizes.iter().any(|size| size.bytes >= LARGE) && !library(&site.place))
        .collect();
    let of = |wanted: Element| {
        let held = || large.iter().filter(move |site| element(&site.place) == wanted);
        let bytes: u64 = held().map(|site| site.most_held_bytes).sum();
        let places = named(" (allocated at ", held().map(|site| &site.place), ")");
        let less = human(bytes / 2);
        let bytes_held = human(bytes);
        let said = match wanted {
            Element::Float => {
                format!("{bytes_held} lie in large buffers of float{places}: half precision takes off {less}")
            }
            Element::Double => format!("{bytes_held} lie in large buffers of double{places}: float takes off {less}"),
            Element::Unknown => format!(
                "{bytes_held} lie in large buffers{places}: where they are float, half precision takes off {less}"
            ),
            Element::Other => return None,
        };
        (bytes > 0).then_some(said)
    };
    [Element::Double, Element::Float, Element::Unknown].into_iter().filter_map(of).collect()
}

/// A request that alone takes a good part of the card: where it is made, how large it is, and the card, in bytes.
pub struct Refused {
    /// The line that made it.
    pub place: String,
    /// What it asked for.
    pub bytes: u64,
    /// What the card has.
    pub capacity: u64,
}

fn oversized(refused: Option<&Refused>) -> Option<String> {
    let Refused { place, bytes, capacity } = refused.filter(|refused| refused.bytes >= refused.capacity / 2)?;
    let parts = (2..).find(|parts| bytes / parts < capacity / 2)?;
    Some(format!(
        "{} are requested at {place} in one buffer, on a card of {}: {parts} parts, one after the other, take {} each",
        human(*bytes),
        human(*capacity),
        human(bytes.div_ceil(parts))
    ))
}

/// The first few places between two words, or nothing where there are none.
fn named<'a>(before: &str, places: impl Iterator<Item = &'a String>, after: &str) -> String {
    let mut first: Vec<&str> = Vec::new();
    let mut more = 0;
    for place in places {
        if first.contains(&place.as_str()) {
            continue;
        }
        if first.len() < PLACES { first.push(place) } else { more += 1 }
    }
    match (first.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => format!("{before}{}{after}", first.join(", ")),
        (false, _) => format!("{before}{} and {more} more{after}", first.join(", ")),
    }
}

fn counted(count: u64, word: &str) -> String {
    match (count, word.strip_suffix('y')) {
        (1, _) => format!("1 {word}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) => format!("{count} {word}s"),
    }
}

#[cfg(test)]
mod tests {
    use oomph_report::activity::{Traffic, TransferSite};

    use super::*;

    fn site(place: &str, bytes: u64, held: u64) -> AllocationSite {
        AllocationSite { place: place.into(), calls: 1, bytes, held_bytes: held, ..Default::default() }
    }

    /// The code of a program of which no place is known.
    fn code(framework: bool) -> Code<'static> {
        Code { framework, library: &|_| false, element: &|_| Element::Unknown }
    }

    #[test]
    fn what_pools_never_got_back_is_reported_with_what_the_card_never_got_back() {
        let direct = Allocations {
            never_freed_blocks: 1,
            never_freed_bytes: 1 << 20,
            sites: vec![site("a.cu:1", 1 << 20, 1 << 20)],
            ..Default::default()
        };
        let pooled = Allocations { sites: vec![site("b.rs:2", 3 << 20, 3 << 20)], ..direct.clone() };
        let remark = never_freed(&direct, &pooled, &|_| false, false).unwrap();
        assert_eq!(remark, "2.00 MiB in 2 blocks were never freed, up to the end (allocated at a.cu:1, b.rs:2)");
        // What a library's pool keeps is left out.
        let direct = Allocations { sites: vec![site("a.cu:1", 1 << 20, 1 << 20)], ..direct };
        let remark = never_freed(&direct, &Allocations::default(), &|place| place == "a.cu:1", false);
        assert_eq!(remark, None);
    }

    #[test]
    fn a_line_that_gives_too_little_back_comes_first_with_its_growth() {
        let frames = |calls: u64, freed: u64, most: u64| counted::AllocationSite {
            calls,
            freed,
            held_bytes: (calls - freed) << 26,
            most_held_bytes: most << 26,
            ..Default::default()
        };
        let growing = |site: &counted::AllocationSite| [Growing::of("frames.cu:13".into(), site)];
        let all = frames(180, 0, 180);
        let direct = Allocations {
            calls: 1180,
            pool_saves_calls: 1000,
            never_freed_blocks: 180,
            never_freed_bytes: 180 << 26,
            sites: vec![site("frames.cu:13", 180 << 26, 180 << 26)],
            ..Default::default()
        };
        let said = remarks(&growing(&all), &direct, &Pooled::default(), &Transfers::default(), None, &code(false));
        assert!(said[0].starts_with("memory grows by 64.00 MiB with each allocation at frames.cu:13"), "{said:#?}");
        assert!(said[1].contains("were never freed"), "{said:#?}");

        let grows = |site: counted::AllocationSite| growth(&growing(&site), &|place| place == "lib.cu:1");
        // One in five is forgotten.
        let said = grows(frames(180, 144, 37)).unwrap();
        let wanted = "memory grows at frames.cu:13: 36 of its 180 allocations were not freed when the program ended (2.25 GiB in all, 12.80 MiB";
        assert!(said.starts_with(wanted), "{said}");
        // A queue has held more than at its end, and one of a few buffers does not leak.
        assert_eq!(grows(frames(180, 144, 72)), None);
        assert_eq!(grows(frames(2000, 1990, 10)), None);
        assert_eq!(grows(frames(4, 0, 4)), None);
        assert_eq!(growth(&[Growing::of("lib.cu:1".into(), &all)], &|place| place == "lib.cu:1"), None);
        // A program that frees all on its way out had it when the card refused.
        let died = counted::AllocationSite { at_refusal: Some((180, 180 << 26)), ..frames(180, 180, 180) };
        assert!(grows(died).unwrap().contains("none of the 180 was freed when the card refused a request"));
    }

    #[test]
    fn only_a_loop_of_the_programs_own_is_warned_of_page_locked_memory() {
        let copying = |place: &str, calls: u64, bytes: u64| TransferSite {
            place: place.into(),
            way: "to_card".into(),
            traffic: Traffic { calls, bytes, pageable_bytes: bytes, ..Default::default() },
        };
        let transfers = Transfers {
            to_card: Traffic { calls: 101, bytes: 3 << 30, ..Default::default() },
            sites: vec![copying("load.cu:1", 1, 2 << 30), copying("loop.cu:2", 100, 1 << 30)],
            ..Default::default()
        };
        let remark = pageable(&transfers, &|_| false).unwrap();
        assert!(remark.starts_with("1.00 GiB of the 3.00 GiB"), "{remark}");
        assert!(remark.contains("at loop.cu:2:"), "{remark}");
        assert_eq!(pageable(&transfers, &|place| place == "loop.cu:2"), None);
        // What a framework copies on the program's behalf is not its author's to change.
        let none = (Allocations::default(), Pooled::default());
        assert_eq!(remarks(&[], &none.0, &none.1, &transfers, None, &code(true)), Vec::<String>::new());
        assert_eq!(remarks(&[], &none.0, &none.1, &transfers, None, &code(false)).len(), 1);
    }

    #[test]
    fn a_pool_that_gives_back_and_takes_again_is_warned_of_its_threshold() {
        let pooled = Pooled { grew: 120, regrew: 119, ..Default::default() };
        assert!(regrown(&pooled).unwrap().contains("cudaMemPoolAttrReleaseThreshold"));
        assert_eq!(regrown(&Pooled { grew: 120, regrew: 3, ..Default::default() }), None);
    }

    #[test]
    fn a_request_that_is_most_of_the_card_is_reported_with_parts_that_fit() {
        let refused = |bytes| Refused { place: "gram.rs:16".into(), bytes, capacity: 4 << 30 };
        let said = oversized(Some(&refused(6 << 30))).unwrap();
        assert_eq!(
            said,
            "6.00 GiB are requested at gram.rs:16 in one buffer, on a card of 4.00 GiB: 4 parts, one after the other, take \
             1.50 GiB each"
        );
        assert_eq!(oversized(Some(&refused(1 << 30))), None);
    }

    #[test]
    fn only_numbers_that_can_be_smaller_are_offered_to_be() {
        let at = |place: &str| AllocationSite {
            sizes: vec![oomph_report::activity::Sized { bytes: 1 << 30, calls: 1 }],
            most_held_bytes: 1 << 30,
            ..site(place, 1 << 30, 0)
        };
        let direct = Allocations { sites: vec![at("a.cu:1"), at("b.cu:2"), at("c.cu:3")], ..Default::default() };
        let element = |place: &str| match place {
            "a.cu:1" => Element::Double,
            "b.cu:2" => Element::Other,
            _ => Element::Unknown,
        };
        let said = half_precision(&direct, &Allocations::default(), &|_| false, &element);
        assert_eq!(said.len(), 2);
        assert!(said[0].contains("of double (allocated at a.cu:1): float takes off 512.00 MiB"), "{said:?}");
        assert!(said[1].contains("(allocated at c.cu:3): where they are float"), "{said:?}");
    }

    #[test]
    fn many_places_are_counted_and_no_place_is_no_word() {
        let places: Vec<String> = (0..5).map(|line| format!("a.cu:{line}")).collect();
        assert_eq!(named(" at ", places.iter(), ""), " at a.cu:0, a.cu:1, a.cu:2 and 2 more");
        assert_eq!(named(" at ", [].iter(), ""), "");
    }
}
