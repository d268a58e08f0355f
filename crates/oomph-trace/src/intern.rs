//! Interns strings, frames and stacks.
//!
//! A snapshot repeats the same few hundred frames in tens of thousands of stacks; kept once each, a gigabyte of file is
//! some tens of megabytes of information.

use std::hash::{BuildHasher, Hasher};

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

/// Names a string of a [`Strings`] table. [`StringId::EMPTY`] is the empty string in every table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StringId(pub u32);

impl StringId {
    /// The empty string; also "nothing was recorded".
    pub const EMPTY: StringId = StringId(0);
}

/// Strings, each kept once.
#[derive(Debug, Clone)]
pub struct Strings {
    text: String,
    /// End of each string in `text`; a string starts where the one before it ends.
    ends: Vec<usize>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Default for Strings {
    fn default() -> Self {
        let mut strings = Self {
            text: String::new(),
            ends: Vec::new(),
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        };
        strings.intern("");
        strings
    }
}

impl Strings {
    /// The id of `text`, which is kept if it is new.
    pub fn intern(&mut self, text: &str) -> StringId {
        let Self { text: all, ends, index, hasher } = self;
        let hash = hasher.hash_one(text);
        if let Some(&id) = index.find(hash, |&id| slice(all, ends, id) == text) {
            return StringId(id);
        }
        let id = u32::try_from(ends.len()).unwrap_or(u32::MAX);
        all.push_str(text);
        ends.push(all.len());
        index.insert_unique(hash, id, |&id| hasher.hash_one(slice(all, ends, id)));
        StringId(id)
    }

    /// The id of a string that is kept.
    pub fn find(&self, text: &str) -> Option<StringId> {
        let found = self.index.find(self.hasher.hash_one(text), |&id| slice(&self.text, &self.ends, id) == text);
        found.map(|&id| StringId(id))
    }

    /// The string of an id; empty for an id of another table.
    pub fn get(&self, id: StringId) -> &str {
        slice(&self.text, &self.ends, id.0)
    }

    /// How many different strings there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// False: the empty string is always there.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// About how many bytes of memory the table holds.
    pub(crate) fn held(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<usize>() + self.index.capacity() * 5
    }
}

/// The string numbered `id` of `text`, in which string `i` ends at `ends[i]`; empty where there is none.
fn slice<'a>(text: &'a str, ends: &[usize], id: u32) -> &'a str {
    let index = id as usize;
    let Some(&end) = ends.get(index) else { return "" };
    let start = if index == 0 { 0 } else { ends[index - 1] };
    &text[start..end]
}

/// One line of a stack, by its strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function's name; "??" for C++ frames without symbols.
    pub name: StringId,
    /// The file's path as recorded.
    pub file: StringId,
    /// The line, from 1; 0 where it is unknown.
    pub line: u32,
}

/// Names a frame of a [`Frames`] table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);

/// Frames, each kept once.
#[derive(Debug, Clone, Default)]
pub struct Frames {
    frames: Vec<Frame>,
    index: HashMap<Frame, u32>,
}

impl Frames {
    /// The id of `frame`, which is kept if it is new.
    pub fn intern(&mut self, frame: Frame) -> FrameId {
        let next = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        let id = *self.index.entry(frame).or_insert(next);
        if id == next {
            self.frames.push(frame);
        }
        FrameId(id)
    }

    /// The frame of an id.
    pub fn get(&self, id: FrameId) -> Option<Frame> {
        self.frames.get(id.0 as usize).copied()
    }

    /// About how many bytes of memory the table holds.
    pub(crate) fn held(&self) -> usize {
        self.frames.capacity() * 12 + self.index.capacity() * 17
    }

    /// How many different frames there are.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// True when no frame was recorded.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

/// Names a stack of a [`Stacks`] tree. [`StackId::NONE`] means that none was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

impl StackId {
    /// No stack: the root of the tree.
    pub const NONE: StackId = StackId(0);
}

/// Stacks as a prefix tree: a node is a caller's stack and one more frame, so that two stacks share all their callers.
#[derive(Debug, Clone)]
pub struct Stacks {
    nodes: Vec<(StackId, FrameId)>,
    index: HashMap<(StackId, FrameId), u32>,
}

impl Default for Stacks {
    fn default() -> Self {
        // The root stands for "no caller"; its frame is never looked at.
        Self { nodes: vec![(StackId::NONE, FrameId(u32::MAX))], index: HashMap::new() }
    }
}

impl Stacks {
    /// The stack of `caller` with `frame` called from it.
    pub fn push(&mut self, caller: StackId, frame: FrameId) -> StackId {
        let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let id = *self.index.entry((caller, frame)).or_insert(next);
        if id == next {
            self.nodes.push((caller, frame));
        }
        StackId(id)
    }

    /// The stack of these frames, the outermost caller first.
    pub fn intern(&mut self, outermost_first: impl IntoIterator<Item = FrameId>) -> StackId {
        outermost_first.into_iter().fold(StackId::NONE, |stack, frame| self.push(stack, frame))
    }

    /// The frames of a stack, the innermost first, as PyTorch writes them.
    pub fn innermost_first(&self, stack: StackId) -> impl Iterator<Item = FrameId> + '_ {
        let mut at = stack;
        std::iter::from_fn(move || {
            let &(caller, frame) = self.nodes.get(at.0 as usize)?;
            if at == StackId::NONE {
                return None;
            }
            at = caller;
            Some(frame)
        })
    }

    /// The stack without its innermost frame; [`StackId::NONE`] of itself.
    pub fn caller(&self, stack: StackId) -> StackId {
        self.nodes.get(stack.0 as usize).map_or(StackId::NONE, |node| node.0)
    }

    /// The innermost frame of a stack.
    pub fn frame(&self, stack: StackId) -> Option<FrameId> {
        (stack != StackId::NONE).then(|| self.nodes.get(stack.0 as usize).map(|node| node.1)).flatten()
    }

    /// About how many bytes of memory the tree holds.
    pub(crate) fn held(&self) -> usize {
        self.nodes.capacity() * 8 + self.index.capacity() * 13
    }

    /// How many nodes the tree has, the root included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True when no stack was recorded.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }
}

/// Finds the stack of a whole list of frames at once.
///
/// A snapshot writes the list of frames of each event out in full, some forty frames for each of a million events, and
/// nearly always the list was there before. Walking the tree with a look-up for each frame would take most of a
/// reader's time; here it is one look-up for the list, and the tree is only built on for lists that are new.
#[derive(Debug, Default)]
pub(crate) struct WholeStacks {
    index: HashTable<WholeStack>,
    /// The lists one after the other: comparing with a list is much faster than with a path of the tree.
    lists: Vec<FrameId>,
    hasher: DefaultHashBuilder,
}

#[derive(Clone, Copy, Debug)]
struct WholeStack {
    hash: u64,
    /// Where the list starts in `lists`.
    start: usize,
    length: u32,
    stack: StackId,
}

impl WholeStacks {
    /// The stack of these frames, the innermost first.
    pub(crate) fn intern(&mut self, stacks: &mut Stacks, innermost_first: &[FrameId]) -> StackId {
        if innermost_first.is_empty() {
            return StackId::NONE;
        }
        let mut hasher = self.hasher.build_hasher();
        let (pairs, rest) = innermost_first.as_chunks::<2>();
        for &[a, b] in pairs {
            hasher.write_u64(u64::from(a.0) << 32 | u64::from(b.0));
        }
        for frame in rest {
            hasher.write_u32(frame.0);
        }
        let hash = hasher.finish();
        let same = |known: &WholeStack| {
            known.hash == hash
                && known.length as usize == innermost_first.len()
                && self.lists[known.start..][..innermost_first.len()] == *innermost_first
        };
        if let Some(known) = self.index.find(hash, same) {
            return known.stack;
        }
        let stack = stacks.intern(innermost_first.iter().rev().copied());
        let (start, length) = (self.lists.len(), innermost_first.len() as u32);
        self.lists.extend_from_slice(innermost_first);
        self.index.insert_unique(hash, WholeStack { hash, start, length, stack }, |known| known.hash);
        stack
    }

    /// About how many bytes of memory the table holds.
    pub(crate) fn held(&self) -> usize {
        self.index.capacity() * (size_of::<WholeStack>() + 1) + self.lists.capacity() * size_of::<FrameId>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_share_their_callers() {
        let (mut strings, mut frames, mut stacks) = (Strings::default(), Frames::default(), Stacks::default());
        let mut frame = |name: &str| {
            let name = strings.intern(name);
            frames.intern(Frame { name, file: StringId::EMPTY, line: 1 })
        };
        let (main, forward, linear) = (frame("main"), frame("forward"), frame("linear"));
        let a = stacks.intern([main, forward]);
        let b = stacks.intern([main, forward, linear]);
        assert_eq!(stacks.caller(b), a);
        assert_eq!(stacks.len(), 4);
        assert_eq!(stacks.innermost_first(b).collect::<Vec<_>>(), [linear, forward, main]);
        assert_eq!(stacks.innermost_first(StackId::NONE).count(), 0);
    }

    #[test]
    fn the_empty_string_is_always_the_first() {
        let mut strings = Strings::default();
        assert_eq!(strings.intern(""), StringId::EMPTY);
        let id = strings.intern("naïve");
        assert_eq!(strings.intern("naïve"), id);
        assert_eq!(strings.get(id), "naïve");
        assert_eq!(strings.get(StringId(99)), "");
    }
}
