//! The pickle machine: a stack, marks in it, and a memo.

use std::io::Read;

use oomph_pickle::{Code, Decoder, Instruction, Op};

use super::memo::Memo;
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

/// Bytes of the names of a module and a function, for a message.
const LONGEST_TARGET: usize = 120;

/// A pickle may cost this many bytes of memory at once...
const FREE: u64 = 16 << 20;

/// ...and this many for each byte that was read: a file of a few bytes cannot ask for more than its size explains.
/// Snapshots need one or two.
const RATIO: u64 = 8;

/// How often the memory is looked at, in bytes of the file.
const CHECK: u64 = 1 << 16;

/// Reads one pickle.
pub(crate) struct Machine<'s, R, S> {
    decoder: Decoder<R>,
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
            decoder: Decoder::new(source),
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
            if self.decoder.offset() >= check {
                self.check_memory()?;
                check = self.decoder.offset() + CHECK;
            }
            self.gets();
            let instruction = self.decoder.instruction()?;
            if instruction.op == Op::Stop {
                let value = self.pop(instruction.at)?;
                return Ok(self.heap.resolve(value));
            }
            self.execute(instruction)?;
        }
    }

    /// Executes a run of GETs at once: nine of ten instructions of a snapshot are these, a list of frames being a list
    /// of memo entries.
    #[inline]
    fn gets(&mut self) {
        let (memo, stack) = (&self.memo, &mut self.stack);
        self.decoder.gets(|index| match memo.get(index) {
            Some(value) => {
                stack.push(value);
                true
            }
            None => false,
        });
    }

    #[inline]
    fn execute(&mut self, instruction: Instruction) -> Result<(), Fault> {
        let at = instruction.at;
        let value = match instruction.op {
            Op::Mark => return self.open(at),
            Op::Get(index) => self.get(index, at)?,
            Op::Memoize => return self.put(self.memo.len(), at),
            Op::Put(index) => return self.put(index, at),
            Op::Text(length) => self.text(length, at)?,
            Op::Int(value) => Value::Int(value),
            Op::Unsigned(value) => Value::Unsigned(value),
            Op::Float(value) => Value::Float(value),
            Op::Bool(value) => Value::Bool(value),
            Op::Nothing | Op::WideInt => Value::Nothing,
            Op::Bytes(length) => {
                self.decoder.skip(length)?;
                Value::Nothing
            }
            Op::EmptyList | Op::EmptyTuple => self.new_list(List::Empty),
            Op::EmptyDict => self.new_dict(),
            Op::SetItems => {
                let mark = self.mark(at)?;
                return self.set_items(mark, at);
            }
            Op::SetItem => {
                let start = self.below(2, at)?;
                return self.set_items(start, at);
            }
            Op::Appends => {
                let mark = self.mark(at)?;
                return self.append(mark, at);
            }
            Op::Append => {
                let start = self.below(1, at)?;
                return self.append(start, at);
            }
            Op::TupleOf(count) => self.tuple(self.below(count, at)?),
            Op::Tuple | Op::List => {
                let mark = self.mark(at)?;
                self.tuple(mark)
            }
            Op::Dict => {
                let mark = self.mark(at)?;
                let dict = self.new_dict();
                self.stack.insert(mark, dict);
                return self.set_items(mark + 1, at);
            }
            Op::Protocol(2..=5) | Op::Frame(_) => return Ok(()),
            Op::Pop => return self.pop(at).map(|_| ()),
            Op::PopMark => {
                let mark = self.mark(at)?;
                self.stack.truncate(mark);
                return Ok(());
            }
            Op::Dup => {
                let value = self.pop(at)?;
                self.stack.push(value);
                value
            }
            Op::Protocol(_)
            | Op::NumberLine
            | Op::TextLine
            | Op::EmptySet
            | Op::FrozenSet
            | Op::AddItems
            | Op::Code(_)
            | Op::Stop
            | Op::Unknown => return Err(self.refuse(instruction)),
        };
        self.stack.push(value);
        Ok(())
    }

    /// Why an instruction is not executed.
    #[cold]
    fn refuse(&mut self, instruction: Instruction) -> Fault {
        let at = instruction.at;
        match instruction.op {
            Op::Code(code) => {
                let target = matches!(code, Code::Global | Code::Inst).then(|| self.target()).flatten();
                let target = target.map_or(String::new(), |target| format!(" {target}"));
                Fault::at(at, Cause::RunsCode(format!("{}{target}", code.name())))
            }
            Op::Protocol(protocol) => Fault::malformed(at, format!("pickle protocol {protocol} is none of 2 to 5")),
            _ => Fault::malformed(at, format!("0x{:02x} is not an opcode that a snapshot uses", instruction.opcode)),
        }
    }

    /// What a GLOBAL wants to call, for the message.
    fn target(&mut self) -> Option<String> {
        let module = self.decoder.line(LONGEST_TARGET).ok()?;
        let name = self.decoder.line(LONGEST_TARGET.checked_sub(module.len())?).ok()?;
        let target = [module, name].join(&b'.');
        if target.iter().all(u8::is_ascii_graphic) { String::from_utf8(target).ok() } else { None }
    }

    fn text(&mut self, length: u64, at: u64) -> Result<Value, Fault> {
        if length > TEXT {
            return Err(Fault::malformed(at, format!("a text of {length} bytes is longer than any in a snapshot")));
        }
        let shapes = &mut *self.shapes;
        let id = self.decoder.payload(length, |bytes| match std::str::from_utf8(bytes) {
            Ok(text) => shapes.text(text),
            // Python writes file names that are no UTF-8 with surrogates.
            Err(_) => shapes.text(&String::from_utf8_lossy(bytes)),
        })?;
        Ok(Value::Text(id))
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

    /// Marks where the stack ends now.
    fn open(&mut self, at: u64) -> Result<(), Fault> {
        if self.marks.len() >= DEPTH {
            return Err(Fault::malformed(at, format!("more than {DEPTH} values are nested in each other")));
        }
        self.marks.push(self.stack.len());
        Ok(())
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
        let offset = self.decoder.offset();
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
