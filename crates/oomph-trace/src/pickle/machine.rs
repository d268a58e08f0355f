//! The pickle machine: a stack, marks in it, and a memo.

use std::io::Read;

use hashbrown::HashMap;

use super::input::Input;
use super::opcode::{self as op, runs_code};
use super::value::{Atom, Dict, Heap, List, Value};
use crate::StringId;
use crate::error::{Cause, Fault};

/// Gives meaning to dicts and lists while they are read.
pub(crate) trait Shapes {
    /// Keeps a string.
    fn text(&mut self, text: &str) -> StringId;

    /// Looks at a dict that was just filled, key and value by turns. `Some` replaces it by a record; `Err` says in one
    /// sentence why the file cannot be right.
    fn dict(&mut self, items: &[Value], heap: &mut Heap) -> Result<Option<Atom>, String>;

    /// Looks at the first items of a list. `Some` replaces the list by a record.
    fn list(&mut self, items: &[Value], heap: &Heap) -> Option<Atom>;

    /// The items of a list that [`list`](Self::list) replaced, for a list that goes on after all.
    fn expand(&self, atom: Atom) -> Vec<Value>;

    /// About how many bytes of memory the records hold.
    fn held(&self) -> usize;
}

/// How much a pickle may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of memory, whatever the file's size.
    pub(crate) memory: u64,
}

/// Marks that may be open at once. A snapshot nests five; it is a tree of known height.
const DEPTH: usize = 256;

/// Bytes of a text. The longest in a snapshot are C++ function names and traces of FX nodes, some kilobytes long.
const TEXT: u64 = 16 << 20;

/// A pickle may cost this many bytes of memory at once...
const FREE: u64 = 16 << 20;

/// ...and this many for each byte that was read: a file of a few bytes cannot ask for more than its size explains.
/// Snapshots need one or two.
const RATIO: u64 = 8;

/// How often the memory is looked at, in bytes of the file.
const CHECK: u64 = 1 << 16;

/// Reads one pickle.
pub(crate) struct Machine<'s, R, S> {
    input: Input<R>,
    shapes: &'s mut S,
    limits: Limits,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: Memo,
    pub(crate) heap: Heap,
}

impl<'s, R: Read, S: Shapes> Machine<'s, R, S> {
    pub(crate) fn new(source: R, shapes: &'s mut S, limits: Limits) -> Self {
        Self {
            input: Input::new(source),
            shapes,
            limits,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Memo::default(),
            heap: Heap::default(),
        }
    }

    /// Executes the pickle up to its STOP, and gives its value.
    pub(crate) fn run(&mut self) -> Result<Value, Fault> {
        let mut check = 0;
        loop {
            if self.input.offset() >= check {
                self.check_memory()?;
                check = self.input.offset() + CHECK;
            }
            self.gets()?;
            let at = self.input.offset();
            let [opcode] = self.input.bytes()?;
            if opcode == op::STOP {
                let value = self.pop(at)?;
                return Ok(self.heap.resolve(value));
            }
            self.execute(opcode, at)?;
        }
    }

    /// Executes a run of BINGET and LONG_BINGET at once: nine of ten opcodes of a snapshot are these, a list of frames
    /// being a list of memo entries.
    #[inline]
    fn gets(&mut self) -> Result<(), Fault> {
        let bytes = self.input.buffered();
        let mut done = 0;
        // Five bytes are the longest of the two; the last few of a buffer go the ordinary way.
        while let Some(&[opcode, a, b, c, d]) = bytes.get(done..).and_then(|rest| rest.first_chunk::<5>()) {
            let (index, length) = match opcode {
                op::BINGET => (u32::from(a), 2),
                op::LONG_BINGET => (u32::from_le_bytes([a, b, c, d]), 5),
                _ => break,
            };
            let Some(value) = self.memo.get(index) else { break };
            self.stack.push(value);
            done += length;
        }
        self.input.consume(done);
        Ok(())
    }

    fn execute(&mut self, opcode: u8, at: u64) -> Result<(), Fault> {
        let value = match opcode {
            op::MARK => {
                if self.marks.len() >= DEPTH {
                    return Err(Fault::malformed(at, format!("more than {DEPTH} values are nested in each other")));
                }
                self.marks.push(self.stack.len());
                return Ok(());
            }
            op::BINGET => {
                let [index] = self.input.bytes()?;
                self.get(u32::from(index), at)?
            }
            op::LONG_BINGET => {
                let index = u32::from_le_bytes(self.input.bytes()?);
                self.get(index, at)?
            }
            op::MEMOIZE => return self.put(self.memo.len(), at),
            op::BINPUT => {
                let [index] = self.input.bytes()?;
                return self.put(u32::from(index), at);
            }
            op::LONG_BINPUT => {
                let index = u32::from_le_bytes(self.input.bytes()?);
                return self.put(index, at);
            }
            op::SHORT_BINUNICODE | op::SHORT_BINSTRING => {
                let [length] = self.input.bytes()?;
                self.text(u64::from(length), at)?
            }
            op::BINUNICODE | op::BINSTRING => {
                let length = u32::from_le_bytes(self.input.bytes()?);
                self.text(u64::from(length), at)?
            }
            op::BINUNICODE8 => {
                let length = u64::from_le_bytes(self.input.bytes()?);
                self.text(length, at)?
            }
            op::BININT => Value::Int(i64::from(i32::from_le_bytes(self.input.bytes()?))),
            op::BININT1 => {
                let [value] = self.input.bytes()?;
                Value::Int(i64::from(value))
            }
            op::BININT2 => Value::Int(i64::from(u16::from_le_bytes(self.input.bytes()?))),
            op::LONG1 => {
                let [length] = self.input.bytes()?;
                self.long(u64::from(length))?
            }
            op::LONG4 => {
                let length = i32::from_le_bytes(self.input.bytes()?);
                let length = u64::try_from(length)
                    .map_err(|_| Fault::malformed(at, "an integer has a negative number of bytes"))?;
                self.long(length)?
            }
            op::BINFLOAT => Value::Float(f64::from_be_bytes(self.input.bytes()?)),
            op::NONE => Value::Nothing,
            op::NEWTRUE => Value::Bool(true),
            op::NEWFALSE => Value::Bool(false),
            op::EMPTY_LIST | op::EMPTY_TUPLE => self.new_list(List::Empty),
            op::EMPTY_DICT => self.new_dict(),
            op::SETITEMS => {
                let mark = self.mark(at)?;
                return self.set_items(mark, at);
            }
            op::SETITEM => {
                let start = self.below(2, at)?;
                return self.set_items(start, at);
            }
            op::APPENDS => {
                let mark = self.mark(at)?;
                return self.append(mark, at);
            }
            op::APPEND => {
                let start = self.below(1, at)?;
                return self.append(start, at);
            }
            op::TUPLE1 => self.tuple(self.below(1, at)?),
            op::TUPLE2 => self.tuple(self.below(2, at)?),
            op::TUPLE3 => self.tuple(self.below(3, at)?),
            op::TUPLE | op::LIST => {
                let mark = self.mark(at)?;
                self.tuple(mark)
            }
            op::DICT => {
                let mark = self.mark(at)?;
                let dict = self.new_dict();
                self.stack.insert(mark, dict);
                return self.set_items(mark + 1, at);
            }
            op::PROTO => {
                let [protocol] = self.input.bytes()?;
                if !(2..=5).contains(&protocol) {
                    return Err(Fault::malformed(at, format!("pickle protocol {protocol} is none of 2 to 5")));
                }
                return Ok(());
            }
            // What a frame promises about the next bytes is of no use to a reader that has its own buffer.
            op::FRAME => return self.input.bytes::<8>().map(|_| ()),
            op::POP => return self.pop(at).map(|_| ()),
            op::POP_MARK => {
                let mark = self.mark(at)?;
                self.stack.truncate(mark);
                return Ok(());
            }
            op::DUP => {
                let value = self.pop(at)?;
                self.stack.push(value);
                value
            }
            op::SHORT_BINBYTES => {
                let [length] = self.input.bytes()?;
                self.bytes(u64::from(length))?
            }
            op::BINBYTES => {
                let length = u32::from_le_bytes(self.input.bytes()?);
                self.bytes(u64::from(length))?
            }
            op::BINBYTES8 | op::BYTEARRAY8 => {
                let length = u64::from_le_bytes(self.input.bytes()?);
                self.bytes(length)?
            }
            _ => return Err(self.refuse(opcode, at)),
        };
        self.stack.push(value);
        Ok(())
    }

    /// Why an opcode is not executed.
    #[cold]
    fn refuse(&mut self, opcode: u8, at: u64) -> Fault {
        match runs_code(opcode) {
            Some(name) => {
                let target = matches!(opcode, op::GLOBAL | op::INST).then(|| self.two_lines()).flatten();
                let target = target.map_or(String::new(), |target| format!(" {target}"));
                Fault::at(at, Cause::RunsCode(format!("{name}{target}")))
            }
            None => Fault::malformed(at, format!("0x{opcode:02x} is not an opcode that a snapshot uses")),
        }
    }

    /// The names after a GLOBAL, for the message.
    fn two_lines(&mut self) -> Option<String> {
        let mut text = String::new();
        while text.len() < 120 {
            let [byte] = self.input.bytes().ok()?;
            match byte {
                b'\n' if text.contains('.') => return Some(text),
                b'\n' => text.push('.'),
                b'!'..=b'~' => text.push(char::from(byte)),
                _ => return None,
            }
        }
        None
    }

    fn text(&mut self, length: u64, at: u64) -> Result<Value, Fault> {
        if length > TEXT {
            return Err(Fault::malformed(at, format!("a text of {length} bytes is longer than any in a snapshot")));
        }
        let shapes = &mut *self.shapes;
        let id = self.input.with(length as usize, |bytes| match std::str::from_utf8(bytes) {
            Ok(text) => shapes.text(text),
            // Python writes file names that are no UTF-8 with surrogates.
            Err(_) => shapes.text(&String::from_utf8_lossy(bytes)),
        })?;
        Ok(Value::Text(id))
    }

    /// A whole number of any length, little end first, in two's complement.
    fn long(&mut self, length: u64) -> Result<Value, Fault> {
        match length {
            0 => Ok(Value::Int(0)),
            1..=9 => self.input.with(length as usize, |bytes| {
                let fill = if bytes.last().is_some_and(|top| top & 0x80 != 0) { 0xff } else { 0 };
                let mut low = [fill; 8];
                let kept = bytes.len().min(8);
                low[..kept].copy_from_slice(&bytes[..kept]);
                match bytes.get(8) {
                    // An address above 2^63 has a ninth byte for its sign.
                    Some(0) => Value::Unsigned(u64::from_le_bytes(low)),
                    Some(_) => Value::Nothing,
                    None => Value::Int(i64::from_le_bytes(low)),
                }
            }),
            _ => self.bytes(length),
        }
    }

    fn bytes(&mut self, length: u64) -> Result<Value, Fault> {
        self.input.skip(length)?;
        Ok(Value::Nothing)
    }

    fn get(&self, index: u32, at: u64) -> Result<Value, Fault> {
        self.memo.get(index).ok_or_else(|| Fault::malformed(at, format!("memo entry {index} was never written")))
    }

    fn put(&mut self, index: u32, at: u64) -> Result<(), Fault> {
        let Some(&value) = self.stack.last() else {
            return Err(Fault::malformed(at, "nothing is there to be remembered"));
        };
        if let Value::Dict(dict) = value
            && let Some(Dict::Empty { memo }) = self.heap.dicts.get_mut(dict as usize)
        {
            *memo = index;
        }
        if self.memo.put(index, value) {
            Ok(())
        } else {
            Err(Fault::malformed(at, "the memo's numbers are out of all order"))
        }
    }

    fn pop(&mut self, at: u64) -> Result<Value, Fault> {
        self.stack.pop().ok_or_else(|| Fault::malformed(at, "the stack is empty"))
    }

    /// Where the values above the innermost mark start; the mark is taken away.
    fn mark(&mut self, at: u64) -> Result<usize, Fault> {
        match self.marks.pop() {
            Some(mark) if mark <= self.stack.len() => Ok(mark),
            _ => Err(Fault::malformed(at, "values end that never began")),
        }
    }

    /// Where the topmost `count` values start.
    fn below(&self, count: usize, at: u64) -> Result<usize, Fault> {
        self.stack.len().checked_sub(count).ok_or_else(|| Fault::malformed(at, "the stack holds too few values"))
    }

    fn new_list(&mut self, list: List) -> Value {
        let index = self.heap.lists.len() as u32;
        self.heap.lists.push(list);
        Value::List(index)
    }

    fn new_dict(&mut self) -> Value {
        let index = self.heap.dicts.len() as u32;
        self.heap.dicts.push(Dict::default());
        Value::Dict(index)
    }

    /// The values from `start` on as a tuple.
    fn tuple(&mut self, start: usize) -> Value {
        if let [a, b] = self.stack[start..]
            && let (Some(a), Some(b)) = (a.unsigned(), b.unsigned())
        {
            self.stack.truncate(start);
            return self.heap.new_pair(a, b);
        }
        let values = Box::new(self.stack.split_off(start));
        self.heap.boxed += 48 + values.capacity() * size_of::<Value>();
        self.new_list(List::Values(values))
    }

    /// Puts the values from `start` on into the dict below them.
    fn set_items(&mut self, start: usize, at: u64) -> Result<(), Fault> {
        let Some((below, items)) = self.stack.split_at_checked(start) else {
            return Err(Fault::malformed(at, "items without a dict"));
        };
        let Some(&Value::Dict(index)) = below.last() else {
            return match below.last() {
                Some(Value::Atom(_)) => Err(Fault::malformed(at, "a record is filled a second time")),
                _ => Err(Fault::malformed(at, "items are put into something that is not a dict")),
            };
        };
        if items.len() % 2 != 0 {
            return Err(Fault::malformed(at, "a key without a value"));
        }
        if let Some(&Dict::Empty { memo }) = self.heap.dicts.get(index as usize) {
            let recognised = self.shapes.dict(items, &mut self.heap).map_err(|what| Fault::malformed(at, what))?;
            if let Some(atom) = recognised {
                self.heap.dicts[index as usize] = Dict::Atom(atom);
                self.stack.truncate(start);
                self.stack[start - 1] = Value::Atom(atom);
                self.memo.replace(memo, Value::Dict(index), Value::Atom(atom));
                return Ok(());
            }
        }
        let pairs = items.as_chunks::<2>().0.iter().map(|&[key, value]| (key, value));
        match self.heap.dicts.get_mut(index as usize) {
            Some(Dict::Items(known)) => {
                self.heap.boxed += size_of_val(items) * 2;
                known.extend(pairs);
            }
            Some(slot @ Dict::Empty { .. }) => {
                self.heap.boxed += 48 + size_of_val(items);
                *slot = Dict::Items(Box::new(pairs.collect()));
            }
            Some(Dict::Atom(_)) | None => return Err(Fault::malformed(at, "a record is filled a second time")),
        }
        self.stack.truncate(start);
        Ok(())
    }

    /// Puts the values from `start` on at the end of the list below them.
    fn append(&mut self, start: usize, at: u64) -> Result<(), Fault> {
        let Some((below, items)) = self.stack.split_at_checked(start) else {
            return Err(Fault::malformed(at, "items without a list"));
        };
        let Some(&Value::List(index)) = below.last() else {
            return Err(Fault::malformed(at, "items are appended to something that is not a list"));
        };
        let heap = &mut self.heap;
        let slot = index as usize;
        let replaced = match heap.lists.get_mut(slot) {
            _ if items.is_empty() => None,
            Some(List::Empty) => match self.shapes.list(items, heap) {
                Some(atom) => Some(List::Atom { atom, closed: false }),
                None => {
                    let list = List::of(items, heap);
                    heap.boxed += 48 + if matches!(list, List::Values(_)) { size_of_val(items) } else { 16 };
                    Some(list)
                }
            },
            Some(List::Records(_)) => {
                let items: Vec<Value> = items.iter().map(|&item| heap.resolve(item)).collect();
                let Some(List::Records(records)) = heap.lists.get_mut(slot) else { return Ok(()) };
                let runs = records.runs.len();
                let taken = records.extend(&items);
                heap.boxed += (records.runs.len() - runs) * 16;
                (taken < items.len()).then(|| {
                    let mut values = records.values();
                    values.extend_from_slice(&items[taken..]);
                    heap.boxed += values.len() * size_of::<Value>();
                    List::Values(Box::new(values))
                })
            }
            Some(List::Values(values)) => {
                values.extend_from_slice(items);
                heap.boxed += size_of_val(items) * 2;
                None
            }
            Some(&mut List::Atom { atom, closed: false }) => {
                let mut values = self.shapes.expand(atom);
                values.extend_from_slice(items);
                heap.boxed += 48 + values.len() * size_of::<Value>();
                Some(List::Values(Box::new(values)))
            }
            Some(List::Atom { .. } | List::Taken) | None => {
                return Err(Fault::malformed(at, "a list goes on after it was used"));
            }
        };
        if let Some(list) = replaced {
            heap.lists[slot] = list;
        }
        self.stack.truncate(start);
        Ok(())
    }

    fn check_memory(&self) -> Result<(), Fault> {
        let held =
            self.stack.capacity() * size_of::<Value>() + self.memo.held() + self.heap.held() + self.shapes.held();
        let offset = self.input.offset();
        let allowed = (FREE + offset.saturating_mul(RATIO)).min(self.limits.memory);
        if held as u64 > allowed { Err(Fault::at(offset, Cause::TooLarge(allowed >> 20))) } else { Ok(()) }
    }

    /// What there is when a file ends too early: every list and dict that is still open is closed where it is, and
    /// the outermost is given.
    pub(crate) fn close_open(&mut self) -> Value {
        while self.stack.len() > 1 {
            let start = self.marks.pop().unwrap_or(1).clamp(1, self.stack.len());
            // A dict that was being filled may lack anything; it is dropped, unless it is the outermost.
            if start > 1 && matches!(self.stack[start - 1], Value::Dict(_)) {
                self.stack.truncate(start - 1);
            } else {
                self.close_to(start);
                self.stack.truncate(start);
            }
        }
        let value = self.stack.pop().unwrap_or(Value::Nothing);
        self.heap.resolve(value)
    }

    /// Closes what lies from `start` on into the container below it.
    fn close_to(&mut self, start: usize) {
        // A failure here only means that less is saved.
        let _ = if matches!(self.stack[start - 1], Value::Dict(_)) {
            while !(self.stack.len() - start).is_multiple_of(2) {
                // Either a key without its value, or the only item of the list below it, which was not appended yet.
                let top = self.stack.len() - 1;
                let item = top > start && matches!(self.stack[top - 1], Value::List(_));
                if !(item && self.append(top, 0).is_ok()) {
                    self.stack.pop();
                }
            }
            self.set_items(start, 0)
        } else {
            self.append(start, 0)
        };
    }
}

/// Memo entries whose numbers do not follow those before them.
const SPARSE: usize = 1 << 16;

/// What was remembered.
#[derive(Default)]
struct Memo {
    /// Writers number their entries from 0 on...
    dense: Vec<Value>,
    /// ...and the entries of one that does not are kept here, so that a large number costs no large table.
    sparse: HashMap<u32, Value>,
}

impl Memo {
    fn len(&self) -> u32 {
        (self.dense.len() + self.sparse.len()) as u32
    }

    #[inline]
    fn get(&self, index: u32) -> Option<Value> {
        match self.dense.get(index as usize) {
            Some(&value) => Some(value),
            None => self.sparse.get(&index).copied(),
        }
    }

    /// Says whether there was room.
    fn put(&mut self, index: u32, value: Value) -> bool {
        if index as usize == self.dense.len() && self.sparse.is_empty() {
            self.dense.push(value);
        } else if let Some(known) = self.dense.get_mut(index as usize) {
            *known = value;
        } else {
            self.sparse.insert(index, value);
        }
        self.sparse.len() <= SPARSE
    }

    /// Replaces an entry if it is still `old`.
    fn replace(&mut self, index: u32, old: Value, new: Value) {
        if let Some(known) = self.dense.get_mut(index as usize)
            && *known == old
        {
            *known = new;
        }
    }

    fn held(&self) -> usize {
        self.dense.capacity() * size_of::<Value>() + self.sparse.capacity() * 24
    }
}
