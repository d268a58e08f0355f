//! A reader of the pickles in PyTorch's checkpoints. It builds plain data and tensors' descriptions, and runs nothing.
//!
//! Opcodes: <https://github.com/python/cpython/blob/main/Lib/pickletools.py>.

use std::rc::Rc;

use super::{malformed, storage_dtype};
use crate::{Dtype, ModelError};

/// Values that may be kept at once; a checkpoint of a hundred thousand tensors has four millions.
const MOST_VALUES: usize = 8_000_000;

/// What a pickle holds. Texts and tensors are shared, so that naming one again costs no memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// Anything that does not matter here, such as objects of classes that are not known.
    Nothing,
    Integer(i64),
    Text(Rc<str>),
    /// A class or a function, by its name.
    Global(Rc<str>),
    /// A dict, list or tuple.
    Node(usize),
    Storage {
        key: Rc<str>,
        dtype: Dtype,
    },
    Tensor(Rc<Described>),
}

/// A tensor's description.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Described {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<u64>,
    pub(super) storage: Rc<str>,
    pub(super) offset: u64,
}

#[derive(Debug)]
enum Node {
    Dict(Vec<(Value, Value)>),
    /// A list or a tuple.
    Items(Vec<Value>),
}

/// The containers of a pickle.
#[derive(Debug, Default)]
pub(super) struct Heap {
    nodes: Vec<Node>,
}

impl Heap {
    fn dict(&mut self) -> Value {
        self.nodes.push(Node::Dict(Vec::new()));
        Value::Node(self.nodes.len() - 1)
    }

    fn items(&mut self, items: Vec<Value>) -> Value {
        self.nodes.push(Node::Items(items));
        Value::Node(self.nodes.len() - 1)
    }

    /// Keys and values of a dict; nothing for anything else.
    pub(super) fn entries(&self, value: &Value) -> &[(Value, Value)] {
        match value {
            Value::Node(index) => match &self.nodes[*index] {
                Node::Dict(entries) => entries,
                Node::Items(_) => &[],
            },
            _ => &[],
        }
    }

    pub(super) fn is_dict(&self, value: &Value) -> bool {
        matches!(value, Value::Node(index) if matches!(self.nodes[*index], Node::Dict(_)))
    }

    fn list(&self, value: &Value) -> &[Value] {
        match value {
            Value::Node(index) => match &self.nodes[*index] {
                Node::Items(items) => items,
                Node::Dict(_) => &[],
            },
            _ => &[],
        }
    }
}

/// Reads a pickle that is at `base` in its file.
pub(super) fn read(bytes: &[u8], base: u64) -> Result<(Value, Heap), ModelError> {
    let mut machine = Machine {
        bytes,
        at: 0,
        base,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        heap: Heap::default(),
        kept: 0,
    };
    let root = machine.run()?;
    Ok((root, machine.heap))
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    base: u64,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: Vec<Value>,
    heap: Heap,
    /// Values that were copied out of the memo or pushed, which bounds the memory that a small file can ask for.
    kept: usize,
}

impl Machine<'_> {
    fn run(&mut self) -> Result<Value, ModelError> {
        loop {
            let start = self.at;
            let [opcode] = self.take()?;
            if opcode == b'.' {
                return self.pop();
            }
            self.execute(opcode, start)?;
            self.kept += 1;
            if self.kept > MOST_VALUES {
                return Err(self.fault("more values than any checkpoint has"));
            }
        }
    }

    fn fault(&self, problem: impl Into<String>) -> ModelError {
        malformed(problem, self.base + self.at as u64)
    }

    fn slice(&mut self, length: usize) -> Result<&[u8], ModelError> {
        let end = self.at.checked_add(length).filter(|&end| end <= self.bytes.len());
        let Some(end) = end else { return Err(self.fault("a pickle that is cut short")) };
        let slice = &self.bytes[self.at..end];
        self.at = end;
        Ok(slice)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], ModelError> {
        let mut taken = [0; N];
        taken.copy_from_slice(self.slice(N)?);
        Ok(taken)
    }

    /// Text up to the end of the line.
    fn line(&mut self) -> Result<String, ModelError> {
        let length = self.bytes[self.at..].iter().position(|&byte| byte == b'\n');
        let Some(length) = length else { return Err(self.fault("a pickle that is cut short")) };
        let text = String::from_utf8_lossy(self.slice(length)?).into_owned();
        self.at += 1;
        Ok(text)
    }

    fn text(&mut self, length: usize) -> Result<(), ModelError> {
        let text = String::from_utf8_lossy(self.slice(length)?).into_owned();
        self.stack.push(Value::Text(text.into()));
        Ok(())
    }

    fn length(&mut self) -> Result<usize, ModelError> {
        let length = u64::from_le_bytes(self.take()?);
        usize::try_from(length).map_err(|_| self.fault(format!("a length of {length}")))
    }

    fn pop(&mut self) -> Result<Value, ModelError> {
        self.stack.pop().ok_or_else(|| self.fault("a value where there is none"))
    }

    /// What was pushed since the last mark.
    fn since_mark(&mut self) -> Result<Vec<Value>, ModelError> {
        let mark = self.marks.pop().filter(|&mark| mark <= self.stack.len());
        let Some(mark) = mark else { return Err(self.fault("no mark where one must be")) };
        Ok(self.stack.split_off(mark))
    }

    fn put(&mut self, index: usize) -> Result<(), ModelError> {
        let value = self.stack.last().cloned().unwrap_or(Value::Nothing);
        // A memo is numbered without gaps; a far number would ask for memory that the file does not explain.
        if index > self.memo.len() + 4096 {
            return Err(self.fault(format!("entry {index} of a memo of {}", self.memo.len())));
        }
        if index >= self.memo.len() {
            self.memo.resize(index + 1, Value::Nothing);
        }
        self.memo[index] = value;
        Ok(())
    }

    fn get(&mut self, index: usize) -> Result<(), ModelError> {
        let value = self.memo.get(index).cloned();
        let Some(value) = value else { return Err(self.fault(format!("entry {index} of a memo that has none"))) };
        self.stack.push(value);
        Ok(())
    }

    fn fill_dict(&mut self, pairs: Vec<Value>) {
        let Some(Value::Node(index)) = self.stack.last() else { return };
        if let Node::Dict(entries) = &mut self.heap.nodes[*index] {
            let mut pairs = pairs.into_iter();
            while let (Some(key), Some(value)) = (pairs.next(), pairs.next()) {
                entries.push((key, value));
            }
        }
    }

    fn fill_list(&mut self, more: Vec<Value>) {
        let Some(Value::Node(index)) = self.stack.last() else { return };
        if let Node::Items(items) = &mut self.heap.nodes[*index] {
            items.extend(more);
        }
    }

    fn execute(&mut self, opcode: u8, start: usize) -> Result<(), ModelError> {
        match opcode {
            // Protocol and frames.
            0x80 => drop(self.slice(1)?),
            0x95 => drop(self.slice(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.since_mark()?),
            b'2' => {
                let top = self.stack.last().cloned().unwrap_or(Value::Nothing);
                self.stack.push(top);
            }
            b'N' => self.stack.push(Value::Nothing),
            0x88 => self.stack.push(Value::Integer(1)),
            0x89 => self.stack.push(Value::Integer(0)),
            b'K' => {
                let [byte] = self.take()?;
                self.stack.push(Value::Integer(byte.into()));
            }
            b'M' => {
                let value = u16::from_le_bytes(self.take()?);
                self.stack.push(Value::Integer(value.into()));
            }
            b'J' => {
                let value = i32::from_le_bytes(self.take()?);
                self.stack.push(Value::Integer(value.into()));
            }
            0x8A => {
                let [length] = self.take()?;
                let bytes = self.slice(length.into())?;
                let mut wide = [if bytes.last().is_some_and(|&last| last >= 0x80) { 0xFF } else { 0 }; 8];
                let fits = bytes.len() <= 8;
                if fits {
                    wide[..bytes.len()].copy_from_slice(bytes);
                }
                self.stack.push(if fits { Value::Integer(i64::from_le_bytes(wide)) } else { Value::Nothing });
            }
            b'I' | b'L' | b'F' => {
                let line = self.line()?;
                let number = line.trim_end_matches('L').parse().map_or(Value::Nothing, Value::Integer);
                self.stack.push(number);
            }
            b'G' => {
                self.slice(8)?;
                self.stack.push(Value::Nothing);
            }
            b'X' | b'T' => {
                let length = u32::from_le_bytes(self.take()?) as usize;
                self.text(length)?;
            }
            0x8C | b'U' => {
                let [length] = self.take()?;
                self.text(length.into())?;
            }
            0x8D => {
                let length = self.length()?;
                self.text(length)?;
            }
            b'V' | b'S' => {
                let line = self.line()?;
                self.stack.push(Value::Text(line.trim_matches(['\'', '"']).into()));
            }
            b'B' => {
                let length = u32::from_le_bytes(self.take()?) as usize;
                self.slice(length)?;
                self.stack.push(Value::Nothing);
            }
            b'C' => {
                let [length] = self.take()?;
                self.slice(length.into())?;
                self.stack.push(Value::Nothing);
            }
            0x8E | 0x96 => {
                let length = self.length()?;
                self.slice(length)?;
                self.stack.push(Value::Nothing);
            }
            b'}' => {
                let dict = self.heap.dict();
                self.stack.push(dict);
            }
            b']' | b')' | 0x8F => {
                let items = self.heap.items(Vec::new());
                self.stack.push(items);
            }
            b'l' | b't' | 0x91 => {
                let items = self.since_mark()?;
                let items = self.heap.items(items);
                self.stack.push(items);
            }
            b'd' => {
                let pairs = self.since_mark()?;
                let dict = self.heap.dict();
                self.stack.push(dict);
                self.fill_dict(pairs);
            }
            0x85..=0x87 => {
                let count = usize::from(opcode - 0x84);
                if self.stack.len() < count {
                    return Err(self.fault("a tuple of more values than there are"));
                }
                let items = self.stack.split_off(self.stack.len() - count);
                let items = self.heap.items(items);
                self.stack.push(items);
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.fill_dict(vec![key, value]);
            }
            b'u' => {
                let pairs = self.since_mark()?;
                self.fill_dict(pairs);
            }
            b'a' => {
                let value = self.pop()?;
                self.fill_list(vec![value]);
            }
            b'e' | 0x90 => {
                let values = self.since_mark()?;
                self.fill_list(values);
            }
            b'q' => {
                let [index] = self.take()?;
                self.put(index.into())?;
            }
            b'r' => {
                let index = u32::from_le_bytes(self.take()?) as usize;
                self.put(index)?;
            }
            0x94 => self.put(self.memo.len())?,
            b'h' => {
                let [index] = self.take()?;
                self.get(index.into())?;
            }
            b'j' => {
                let index = u32::from_le_bytes(self.take()?) as usize;
                self.get(index)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.stack.push(Value::Global(format!("{module}.{name}").into()));
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                self.stack.push(match (module, name) {
                    (Value::Text(module), Value::Text(name)) => Value::Global(format!("{module}.{name}").into()),
                    _ => Value::Nothing,
                });
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = self.storage(&id);
                self.stack.push(storage);
            }
            b'R' | 0x81 => {
                let (arguments, callable) = (self.pop()?, self.pop()?);
                let made = self.call(&callable, &arguments);
                self.stack.push(made);
            }
            0x92 => {
                for _ in 0..3 {
                    self.pop()?;
                }
                self.stack.push(Value::Nothing);
            }
            // A state for an object: of an object that is not known it may hold the weights, so it takes its place.
            b'b' => {
                let state = self.pop()?;
                if let Some(Value::Nothing) = self.stack.last() {
                    self.stack.pop();
                    self.stack.push(state);
                }
            }
            _ => {
                self.at = start;
                return Err(self.fault(format!("opcode {opcode:#04x}, which no checkpoint has")));
            }
        }
        Ok(())
    }

    /// `('storage', class, key, device, count)`.
    fn storage(&self, id: &Value) -> Value {
        match self.heap.list(id) {
            [Value::Text(kind), Value::Global(class), Value::Text(key), ..] if &**kind == "storage" => {
                let class = class.rsplit('.').next().unwrap_or_default();
                Value::Storage { key: key.clone(), dtype: storage_dtype(class) }
            }
            _ => Value::Nothing,
        }
    }

    /// What a call would make, for the few that are understood. Nothing is called.
    fn call(&mut self, callable: &Value, arguments: &Value) -> Value {
        let Value::Global(name) = callable else { return Value::Nothing };
        let arguments = self.heap.list(arguments);
        match (&**name, arguments) {
            ("collections.OrderedDict" | "builtins.dict" | "collections.defaultdict", _) => self.heap.dict(),
            (
                "torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor" | "torch._utils._rebuild_tensor_v3",
                [Value::Storage { key, dtype }, offset, size, rest @ ..],
            ) => {
                let shape = self.heap.list(size).iter().map(count).collect::<Option<Vec<u64>>>();
                let Some(shape) = shape else { return Value::Nothing };
                // The third version names the type, its storage having none.
                let named = rest.iter().find_map(|value| match value {
                    Value::Global(name) => name.strip_prefix("torch.").map(Dtype::of_torch),
                    _ => None,
                });
                let dtype = if name.ends_with("v3") { named.unwrap_or_else(|| dtype.clone()) } else { dtype.clone() };
                let offset = count(offset).unwrap_or(0);
                Value::Tensor(Rc::new(Described { dtype, shape, storage: key.clone(), offset }))
            }
            (
                "torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state",
                [Value::Tensor(tensor), ..],
            ) => Value::Tensor(tensor.clone()),
            ("torch._tensor._rebuild_from_type_v2", [_, _, inner, ..]) => {
                // A function and its arguments, wrapped for a subclass.
                let (function, inner) = (arguments[0].clone(), inner.clone());
                if function == *callable { Value::Nothing } else { self.call(&function, &inner) }
            }
            _ => Value::Nothing,
        }
    }
}

/// A size or an offset.
fn count(value: &Value) -> Option<u64> {
    match value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}
