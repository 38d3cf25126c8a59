//! CBOR (RFC 8949) as a tree of values: any message can be read without its type, changed anywhere, and written again,
//! also to something that no encoder of the program's own would write. Does not know what a message means.

use std::fmt;

/// A value. Texts are bytes, so that they can be what UTF-8 forbids.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Major type 0.
    Unsigned(u64),
    /// Major type 1: -1 minus this.
    Negative(u64),
    /// Major type 2.
    Bytes(Vec<u8>),
    /// Major type 3.
    Text(Vec<u8>),
    /// Major type 4.
    Array(Vec<Value>),
    /// Major type 5, in the order as written, with repeated keys.
    Map(Vec<(Value, Value)>),
    /// Major type 6.
    Tag(u64, Box<Value>),
    /// Booleans, null, undefined and unassigned simple values.
    Simple(u8),
    /// A float of 2, 4 or 8 bytes, as its bits.
    Float(Vec<u8>),
    /// Bytes that are written as they are; never read.
    Raw(Vec<u8>),
}

/// `null`, as which an absent option is encoded.
pub const NULL: Value = Value::Simple(22);

/// Bytes that are not one CBOR value.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Offset at which reading stopped.
    pub at: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no CBOR at byte {}", self.at)
    }
}

impl std::error::Error for Malformed {}

/// Nesting that [`Value::decode`] follows; the messages of the program need a dozen.
const DEPTH_MAX: u32 = 64;

/// Position of a value in a tree: the index at each level. Keys and values of a map count one by one.
pub type ValuePath = Vec<usize>;

impl Value {
    /// The tree of a message.
    ///
    /// # Panics
    /// The message does not encode to CBOR.
    pub fn of<T: minicbor::Encode<()>>(message: &T) -> Value {
        let mut bytes = Vec::new();
        minicbor::encode(message, &mut bytes).expect("writing to memory cannot fail");
        Value::decode(&bytes).expect("a message is CBOR")
    }

    /// A text.
    pub fn text(text: &str) -> Value {
        Value::Text(text.as_bytes().to_vec())
    }

    /// A set of indices as the protocol writes it: a map of ranges, in the given order.
    pub fn ranges(ranges: &[(u64, u64)]) -> Value {
        let pair = |(a, b): &(u64, u64)| (Value::Unsigned(*a), Value::Unsigned(*b));
        Value::Map(ranges.iter().map(pair).collect())
    }

    /// Reads exactly one value.
    ///
    /// # Errors
    /// The bytes are anything else.
    pub fn decode(bytes: &[u8]) -> Result<Value, Malformed> {
        let mut reader = Reader { bytes, at: 0 };
        let value = reader.value(0)?;
        match reader.at == bytes.len() {
            true => Ok(value),
            false => Err(Malformed { at: reader.at }),
        }
    }

    /// Writes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::Unsigned(n) => head(out, 0, *n),
            Value::Negative(n) => head(out, 1, *n),
            Value::Bytes(bytes) | Value::Text(bytes) => {
                let major = if matches!(self, Value::Bytes(_)) {
                    2
                } else {
                    3
                };
                head(out, major, bytes.len() as u64);
                out.extend_from_slice(bytes);
            }
            Value::Array(items) => {
                head(out, 4, items.len() as u64);
                items.iter().for_each(|item| item.write(out));
            }
            Value::Map(pairs) => {
                head(out, 5, pairs.len() as u64);
                for (key, value) in pairs {
                    key.write(out);
                    value.write(out);
                }
            }
            Value::Tag(tag, value) => {
                head(out, 6, *tag);
                value.write(out);
            }
            Value::Simple(n) if *n < 24 => out.push(0xe0 | n),
            Value::Simple(n) => out.extend_from_slice(&[0xf8, *n]),
            Value::Float(bits) => {
                out.push(match bits.len() {
                    2 => 0xf9,
                    4 => 0xfa,
                    _ => 0xfb,
                });
                out.extend_from_slice(bits);
            }
            Value::Raw(bytes) => out.extend_from_slice(bytes),
        }
    }

    fn children(&self) -> Vec<&Value> {
        match self {
            Value::Array(items) => items.iter().collect(),
            Value::Map(pairs) => pairs.iter().flat_map(|(k, v)| [k, v]).collect(),
            Value::Tag(_, value) => vec![value],
            _ => Vec::new(),
        }
    }

    fn child_mut(&mut self, index: usize) -> Option<&mut Value> {
        match self {
            Value::Array(items) => items.get_mut(index),
            Value::Map(pairs) => pairs
                .get_mut(index / 2)
                .map(|(k, v)| if index.is_multiple_of(2) { k } else { v }),
            Value::Tag(_, value) => Some(value),
            _ => None,
        }
    }

    /// Values in the tree, itself included.
    pub fn count(&self) -> usize {
        let below = self.children().into_iter().map(Value::count);
        below.fold(1, usize::saturating_add)
    }

    /// Every place in the tree, the root first.
    pub fn places(&self) -> Vec<ValuePath> {
        let mut places = Vec::new();
        self.collect(&mut Vec::new(), &mut places);
        places
    }

    fn collect(&self, at: &mut ValuePath, places: &mut Vec<ValuePath>) {
        places.push(at.clone());
        for (index, child) in self.children().into_iter().enumerate() {
            at.push(index);
            child.collect(at, places);
            at.pop();
        }
    }

    /// The value at a place.
    pub fn get(&self, place: &[usize]) -> Option<&Value> {
        match place.split_first() {
            None => Some(self),
            Some((index, rest)) => self.children().get(*index)?.get(rest),
        }
    }

    /// The value at a place, to be changed.
    pub fn get_mut(&mut self, place: &[usize]) -> Option<&mut Value> {
        match place.split_first() {
            None => Some(self),
            Some((index, rest)) => self.child_mut(*index)?.get_mut(rest),
        }
    }

    /// A copy with one value replaced.
    #[must_use]
    pub fn with(&self, place: &[usize], value: Value) -> Value {
        let mut copy = self.clone();
        if let Some(old) = copy.get_mut(place) {
            *old = value;
        }
        copy
    }

    /// A copy in which a value that occurs in it is another one. It serves to put something into a message that its type
    /// does not allow: the message is made with a marker in that place.
    ///
    /// # Panics
    /// The marker is not there, or more than once.
    #[must_use]
    pub fn replaced(&self, marker: &Value, value: &Value) -> Value {
        let places = self.places();
        let mut at = places.iter().filter(|p| self.get(p) == Some(marker));
        match (at.next(), at.next()) {
            (Some(place), None) => self.with(place, value.clone()),
            (None, _) => panic!("{marker:?} is not in the message"),
            _ => panic!("{marker:?} is in the message more than once"),
        }
    }
}

fn head(out: &mut Vec<u8>, major: u8, n: u64) {
    let major = major << 5;
    let bytes = n.to_be_bytes();
    match n {
        0..24 => out.push(major | bytes[7]),
        24..0x100 => out.extend_from_slice(&[major | 24, bytes[7]]),
        0x100..0x1_0000 => {
            out.push(major | 25);
            out.extend_from_slice(&bytes[6..]);
        }
        0x1_0000..0x1_0000_0000 => {
            out.push(major | 26);
            out.extend_from_slice(&bytes[4..]);
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&bytes);
        }
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, count: u64) -> Result<&[u8], Malformed> {
        let error = Malformed { at: self.at };
        let Some(end) = usize::try_from(count)
            .ok()
            .and_then(|c| self.at.checked_add(c))
        else {
            return Err(error);
        };
        let part = self.bytes.get(self.at..end).ok_or(error)?;
        self.at = end;
        Ok(part)
    }

    /// Initial byte and argument; no argument where the length is indefinite.
    fn head(&mut self) -> Result<(u8, Option<u64>), Malformed> {
        let at = self.at;
        let first = self.take(1)?[0];
        let argument = match first & 31 {
            small @ 0..24 => u64::from(small),
            wide @ 24..28 => {
                let bytes = self.take(1 << (wide - 24))?;
                bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
            }
            31 => return Ok((first, None)),
            _ => return Err(Malformed { at }),
        };
        Ok((first, Some(argument)))
    }

    fn value(&mut self, depth: u32) -> Result<Value, Malformed> {
        let at = self.at;
        let error = || Malformed { at };
        if depth > DEPTH_MAX {
            return Err(error());
        }
        let (first, argument) = self.head()?;
        Ok(match (first >> 5, argument) {
            (0, Some(n)) => Value::Unsigned(n),
            (1, Some(n)) => Value::Negative(n),
            (2, Some(n)) => Value::Bytes(self.take(n)?.to_vec()),
            (3, Some(n)) => Value::Text(self.take(n)?.to_vec()),
            (4, length) => Value::Array(self.items(length, depth)?),
            (5, length) => {
                let length = length.map(|n| n.saturating_mul(2));
                let items = self.items(length, depth)?;
                if items.len() % 2 == 1 {
                    return Err(error());
                }
                let mut items = items.into_iter();
                let pairs = std::iter::from_fn(|| Some((items.next()?, items.next()?)));
                Value::Map(pairs.collect())
            }
            (6, Some(tag)) => Value::Tag(tag, Box::new(self.value(depth + 1)?)),
            (7, Some(_)) if matches!(first & 31, 25..28) => {
                Value::Float(self.bytes[at + 1..self.at].to_vec())
            }
            (7, Some(n)) => Value::Simple(u8::try_from(n).map_err(|_| error())?),
            _ => return Err(error()),
        })
    }

    fn items(&mut self, length: Option<u64>, depth: u32) -> Result<Vec<Value>, Malformed> {
        let mut items = Vec::new();
        match length {
            // A length that lies ends with the bytes.
            Some(length) => {
                for _ in 0..length {
                    items.push(self.value(depth + 1)?);
                }
            }
            None => {
                while self.bytes.get(self.at) != Some(&0xff) {
                    items.push(self.value(depth + 1)?);
                }
                self.at += 1;
            }
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::index_set::IndexSet;
    use muster_model::spec::JobSpec;

    #[test]
    fn messages_come_back_as_they_were_written() {
        for message in crate::requests::samples(&crate::requests::Ids::default()) {
            let mut bytes = Vec::new();
            minicbor::encode(&message.body, &mut bytes).unwrap();
            let tree = Value::decode(&bytes).unwrap();
            assert_eq!(tree.encode(), bytes, "{}", message.name);
        }
    }

    #[test]
    fn a_marked_field_becomes_what_no_type_allows() {
        let mut indices = IndexSet::default();
        indices.insert_range(70_001, 70_003);
        let spec = JobSpec {
            array: Some(muster_model::spec::ArraySpec {
                indices,
                throttle: None,
            }),
            ..JobSpec::default()
        };
        let overlapping = Value::ranges(&[(0, 3), (2, 9)]);
        let tree = Value::of(&spec).replaced(&Value::ranges(&[(70_001, 70_003)]), &overlapping);
        assert!(
            tree.places()
                .iter()
                .any(|p| tree.get(p) == Some(&overlapping))
        );
    }

    #[test]
    fn what_is_not_one_value_is_refused() {
        for bytes in [
            &[0x82, 0x01][..],
            &[0x01, 0x01],
            &[0x1f],
            &[0xbf, 0x01, 0xff],
            &[0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0x81; 4096],
        ] {
            assert!(Value::decode(bytes).is_err(), "{bytes:x?}");
        }
        let indefinite = Value::decode(&[0x9f, 0x01, 0x02, 0xff]).unwrap();
        assert_eq!(indefinite.encode(), [0x82, 0x01, 0x02]);
    }
}
