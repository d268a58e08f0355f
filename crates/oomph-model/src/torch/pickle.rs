//! A reader of the pickles in PyTorch's checkpoints. It builds plain data and tensors' descriptions, and runs nothing.

use std::rc::Rc;

use oomph_pickle::{Code, Decoder, Instruction, Op, Problem};

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
        decoder: Decoder::new(bytes),
        longest_line: bytes.len(),
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
    decoder: Decoder<&'a [u8]>,
    /// The pickle's length, in bytes.
    longest_line: usize,
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
            let instruction = self.decoder.instruction().map_err(|error| self.broken(error))?;
            if instruction.op == Op::Stop {
                return self.pop();
            }
            self.execute(instruction)?;
            self.kept += 1;
            if self.kept > MOST_VALUES {
                return Err(self.fault("more values than any checkpoint has"));
            }
        }
    }

    fn fault(&self, problem: impl Into<String>) -> ModelError {
        malformed(problem, self.base + self.decoder.offset())
    }

    /// What the decoder found wrong.
    fn broken(&self, error: oomph_pickle::Error) -> ModelError {
        let problem = match error.problem {
            Problem::Cut => "a pickle that is cut short".to_owned(),
            problem => problem.to_string(),
        };
        malformed(problem, self.base + error.offset)
    }

    /// Text up to the end of the line.
    fn line(&mut self) -> Result<String, ModelError> {
        let line = self.decoder.line(self.longest_line).map_err(|error| self.broken(error))?;
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn text(&mut self, length: u64) -> Result<Value, ModelError> {
        let text = self.decoder.payload(length, |bytes| Value::Text(String::from_utf8_lossy(bytes).into()));
        text.map_err(|error| self.broken(error))
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

    fn get(&self, index: usize) -> Result<Value, ModelError> {
        let value = self.memo.get(index).cloned();
        value.ok_or_else(|| self.fault(format!("entry {index} of a memo that has none")))
    }

    /// Puts keys and values, by turns, into the dict on top of the stack.
    fn fill_dict(&mut self, pairs: Vec<Value>) {
        let Some(Value::Node(index)) = self.stack.last() else { return };
        if let Node::Dict(entries) = &mut self.heap.nodes[*index] {
            let mut pairs = pairs.into_iter();
            while let (Some(key), Some(value)) = (pairs.next(), pairs.next()) {
                entries.push((key, value));
            }
        }
    }

    /// Appends values to the list on top of the stack.
    fn fill_list(&mut self, more: Vec<Value>) {
        let Some(Value::Node(index)) = self.stack.last() else { return };
        if let Node::Items(items) = &mut self.heap.nodes[*index] {
            items.extend(more);
        }
    }

    fn execute(&mut self, instruction: Instruction) -> Result<(), ModelError> {
        let value = match instruction.op {
            Op::Protocol(_) | Op::Frame(_) => return Ok(()),
            Op::Mark => {
                self.marks.push(self.stack.len());
                return Ok(());
            }
            Op::Pop => return self.pop().map(drop),
            Op::PopMark => return self.since_mark().map(drop),
            Op::Dup => self.stack.last().cloned().unwrap_or(Value::Nothing),
            Op::Nothing | Op::Unsigned(_) | Op::WideInt | Op::Float(_) => Value::Nothing,
            Op::Bool(value) => Value::Integer(value.into()),
            Op::Int(value) => Value::Integer(value),
            Op::NumberLine => self.line()?.trim_end_matches('L').parse().map_or(Value::Nothing, Value::Integer),
            Op::Text(length) => self.text(length)?,
            Op::TextLine => Value::Text(self.line()?.trim_matches(['\'', '"']).into()),
            Op::Bytes(length) => {
                self.decoder.skip(length).map_err(|error| self.broken(error))?;
                Value::Nothing
            }
            Op::EmptyDict => self.heap.dict(),
            Op::EmptyList | Op::EmptyTuple | Op::EmptySet => self.heap.items(Vec::new()),
            Op::List | Op::Tuple | Op::FrozenSet => {
                let items = self.since_mark()?;
                self.heap.items(items)
            }
            Op::TupleOf(count) => {
                let Some(start) = self.stack.len().checked_sub(count) else {
                    return Err(self.fault("a tuple of more values than there are"));
                };
                let items = self.stack.split_off(start);
                self.heap.items(items)
            }
            Op::Dict => {
                let pairs = self.since_mark()?;
                let dict = self.heap.dict();
                self.stack.push(dict);
                self.fill_dict(pairs);
                return Ok(());
            }
            Op::SetItem => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.fill_dict(vec![key, value]);
                return Ok(());
            }
            Op::SetItems => return self.since_mark().map(|pairs| self.fill_dict(pairs)),
            Op::Append => return self.pop().map(|value| self.fill_list(vec![value])),
            Op::Appends | Op::AddItems => return self.since_mark().map(|values| self.fill_list(values)),
            Op::Put(index) => return self.put(index as usize),
            Op::Memoize => return self.put(self.memo.len()),
            Op::Get(index) => self.get(index as usize)?,
            Op::Code(code) => return self.describe(code, instruction),
            Op::Stop | Op::Unknown => return Err(self.refuse(instruction)),
        };
        self.stack.push(value);
        Ok(())
    }

    /// Puts a description of what an instruction's code would make onto the stack. Nothing is run.
    fn describe(&mut self, code: Code, instruction: Instruction) -> Result<(), ModelError> {
        let value = match code {
            Code::Global => {
                let (module, name) = (self.line()?, self.line()?);
                Value::Global(format!("{module}.{name}").into())
            }
            Code::StackGlobal => {
                let (name, module) = (self.pop()?, self.pop()?);
                match (module, name) {
                    (Value::Text(module), Value::Text(name)) => Value::Global(format!("{module}.{name}").into()),
                    _ => Value::Nothing,
                }
            }
            Code::BinPersId => {
                let id = self.pop()?;
                self.storage(&id)
            }
            Code::Reduce | Code::NewObj => {
                let (arguments, callable) = (self.pop()?, self.pop()?);
                self.call(&callable, &arguments)
            }
            Code::NewObjEx => {
                for _ in 0..3 {
                    self.pop()?;
                }
                Value::Nothing
            }
            // A state for an object: of an object that is not known it may hold the weights, so it takes its place.
            Code::Build => {
                let state = self.pop()?;
                if let Some(object @ Value::Nothing) = self.stack.last_mut() {
                    *object = state;
                }
                return Ok(());
            }
            Code::Inst | Code::Obj | Code::Ext1 | Code::Ext2 | Code::Ext4 | Code::PersId => {
                return Err(self.refuse(instruction));
            }
        };
        self.stack.push(value);
        Ok(())
    }

    fn refuse(&self, instruction: Instruction) -> ModelError {
        let problem = format!("opcode {:#04x}, which no checkpoint has", instruction.opcode);
        malformed(problem, self.base + instruction.at)
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
