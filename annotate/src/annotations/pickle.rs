//! Reads Python pickles of plain data: dicts, lists, tuples, texts, numbers, booleans, None.
//!
//! A pickle is a program for a small stack machine. Only the instructions that build plain data are executed here. An instruction that
//! names a class or makes a call is refused, so nothing in a file ever runs. Shared objects are copied at the end, and the copies count
//! against a limit.

use serde_json::{Map, Number, Value};

use super::Unreadable;

/// The maximum number of values, copies included.
const MAX_VALUES: usize = 4 << 20;
/// The maximum size of all texts in bytes, copies included.
const MAX_TEXTS: usize = 256 << 20;
/// The maximum depth of nested values.
const MAX_DEPTH: usize = 32;

/// A value that others refer to by number.
enum Object {
    Plain(Value),
    List(Vec<usize>),
    Dict(Vec<(usize, usize)>),
}

struct Machine<'a> {
    rest: &'a [u8],
    objects: Vec<Object>,
    stack: Vec<usize>,
    marks: Vec<usize>,
    memo: Vec<Option<usize>>,
}

pub(super) fn read(bytes: &[u8]) -> Result<Value, Unreadable> {
    let mut machine =
        Machine { rest: bytes, objects: Vec::new(), stack: Vec::new(), marks: Vec::new(), memo: Vec::new() };
    loop {
        if let Some(object) = machine.step()? {
            let mut left = (MAX_VALUES, MAX_TEXTS);
            return machine.value(object, MAX_DEPTH, &mut left);
        }
    }
}

fn wrong(why: &str) -> Unreadable {
    Unreadable(format!("a pickle that {why}; save the annotations as JSON: `json.dump(dict(annotations), file)`"))
}

fn nonsense() -> Unreadable {
    wrong("is malformed")
}

impl Machine<'_> {
    /// Executes one instruction. The last one returns the object.
    fn step(&mut self) -> Result<Option<usize>, Unreadable> {
        match self.take::<1>()?[0] {
            // Protocol, frame.
            0x80 => drop(self.take::<1>()?),
            0x95 => drop(self.take::<8>()?),
            b'}' => self.push(Object::Dict(Vec::new()))?,
            b']' | b')' => self.push(Object::List(Vec::new()))?,
            b'(' => self.marks.push(self.stack.len()),
            b'N' => self.plain(Value::Null)?,
            0x88 => self.plain(true.into())?,
            0x89 => self.plain(false.into())?,
            b'J' => {
                let number = i32::from_le_bytes(self.take()?);
                self.plain(number.into())?;
            }
            b'K' => {
                let number = self.take::<1>()?[0];
                self.plain(number.into())?;
            }
            b'M' => {
                let number = u16::from_le_bytes(self.take()?);
                self.plain(number.into())?;
            }
            0x8A => {
                let len = usize::from(self.take::<1>()?[0]);
                let number = long(self.bytes(len)?).ok_or_else(|| wrong("has an integer of more than 64 bits"))?;
                self.plain(Value::Number(number))?;
            }
            b'G' => {
                let number = f64::from_be_bytes(self.take()?);
                self.plain(Number::from_f64(number).map_or_else(|| number.to_string().into(), Value::Number))?;
            }
            0x8C => {
                let len = u64::from(self.take::<1>()?[0]);
                self.text(len)?;
            }
            b'X' => {
                let len = u64::from(u32::from_le_bytes(self.take()?));
                self.text(len)?;
            }
            0x8D => {
                let len = u64::from_le_bytes(self.take()?);
                self.text(len)?;
            }
            0x94 => self.remember(self.memo.len())?,
            b'q' => {
                let at = usize::from(self.take::<1>()?[0]);
                self.remember(at)?;
            }
            b'r' => {
                let at = u32::from_le_bytes(self.take()?) as usize;
                self.remember(at)?;
            }
            b'h' => {
                let at = usize::from(self.take::<1>()?[0]);
                self.recall(at)?;
            }
            b'j' => {
                let at = u32::from_le_bytes(self.take()?) as usize;
                self.recall(at)?;
            }
            b'a' => {
                let at = self.stack.len().saturating_sub(1);
                self.append(at)?;
            }
            b'e' => {
                let at = self.mark()?;
                self.append(at)?;
            }
            b's' => {
                let at = self.stack.len().saturating_sub(2);
                self.set(at)?;
            }
            b'u' => {
                let at = self.mark()?;
                self.set(at)?;
            }
            tuple @ 0x85..=0x87 => {
                let at = self.stack.len().checked_sub(usize::from(tuple - 0x84)).ok_or_else(nonsense)?;
                self.collect(at)?;
            }
            b't' | b'l' => {
                let at = self.mark()?;
                self.collect(at)?;
            }
            b'.' => return self.stack.pop().map(Some).ok_or_else(nonsense),
            b'0' => drop(self.stack.pop()),
            _ => return Err(wrong("contains more than plain dicts, lists, texts and numbers")),
        }
        Ok(None)
    }

    fn bytes(&mut self, len: usize) -> Result<&[u8], Unreadable> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or_else(|| wrong("is truncated"))?;
        self.rest = rest;
        Ok(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(|| wrong("is truncated"))?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn text(&mut self, len: u64) -> Result<(), Unreadable> {
        let len = usize::try_from(len).map_err(|_| wrong("is truncated"))?;
        let text = str::from_utf8(self.bytes(len)?).map_err(|_| wrong("has a text that is not UTF-8"))?.to_owned();
        self.plain(text.into())
    }

    fn plain(&mut self, value: Value) -> Result<(), Unreadable> {
        self.push(Object::Plain(value))
    }

    fn push(&mut self, object: Object) -> Result<(), Unreadable> {
        if self.objects.len() == MAX_VALUES {
            return Err(wrong("contains too many values"));
        }
        self.stack.push(self.objects.len());
        self.objects.push(object);
        Ok(())
    }

    fn mark(&mut self) -> Result<usize, Unreadable> {
        self.marks.pop().filter(|at| *at <= self.stack.len()).ok_or_else(nonsense)
    }

    fn remember(&mut self, at: usize) -> Result<(), Unreadable> {
        let top = *self.stack.last().ok_or_else(nonsense)?;
        if at >= self.memo.len() {
            // Numbers are consecutive.
            if at > MAX_VALUES {
                return Err(nonsense());
            }
            self.memo.resize(at + 1, None);
        }
        self.memo[at] = Some(top);
        Ok(())
    }

    fn recall(&mut self, at: usize) -> Result<(), Unreadable> {
        self.stack.push(self.memo.get(at).copied().flatten().ok_or_else(nonsense)?);
        Ok(())
    }

    /// Takes the values on the stack from `at` on, and the object below them.
    fn above(&mut self, at: usize) -> Result<(Vec<usize>, &mut Object), Unreadable> {
        let items = self.stack.split_off(at);
        let below = *self.stack.last().ok_or_else(nonsense)?;
        Ok((items, &mut self.objects[below]))
    }

    /// Appends the values on the stack from `at` on to the list below them.
    fn append(&mut self, at: usize) -> Result<(), Unreadable> {
        let (items, Object::List(list)) = self.above(at)? else { return Err(nonsense()) };
        list.extend(items);
        Ok(())
    }

    /// Inserts the pairs on the stack from `at` on into the dict below them.
    fn set(&mut self, at: usize) -> Result<(), Unreadable> {
        let (items, Object::Dict(dict)) = self.above(at)? else { return Err(nonsense()) };
        dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        Ok(())
    }

    /// Makes a list of the values on the stack from `at` on.
    fn collect(&mut self, at: usize) -> Result<(), Unreadable> {
        let items = self.stack.split_off(at);
        self.push(Object::List(items))
    }

    /// Converts an object to a value. An object that contains itself exceeds the depth.
    fn value(&self, object: usize, depth: usize, left: &mut (usize, usize)) -> Result<Value, Unreadable> {
        let depth = depth.checked_sub(1).ok_or_else(|| wrong("is nested too deeply"))?;
        left.0 = left.0.checked_sub(1).ok_or_else(|| wrong("contains too many values"))?;
        Ok(match &self.objects[object] {
            Object::Plain(value) => {
                let len = value.as_str().map_or(0, str::len);
                left.1 = left.1.checked_sub(len).ok_or_else(|| wrong("contains too much text"))?;
                value.clone()
            }
            Object::List(items) => {
                let values = items.iter().map(|item| self.value(*item, depth, left));
                Value::Array(values.collect::<Result<_, _>>()?)
            }
            Object::Dict(pairs) => {
                let mut dict = Map::new();
                for (key, item) in pairs {
                    let key = match self.value(*key, depth, left)? {
                        Value::String(text) => text,
                        Value::Number(number) => number.to_string(),
                        _ => return Err(wrong("has keys that are neither texts nor numbers")),
                    };
                    let value = self.value(*item, depth, left)?;
                    dict.insert(key, value);
                }
                Value::Object(dict)
            }
        })
    }
}

/// An integer of any length, lowest byte first, two's complement.
fn long(bytes: &[u8]) -> Option<Number> {
    let mut wide = [if bytes.last().is_some_and(|byte| *byte >= 0x80) { 0xFF } else { 0 }; 16];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let number = i128::from_le_bytes(wide);
    u64::try_from(number).map(Number::from).or_else(|_| i64::try_from(number).map(Number::from)).ok()
}
