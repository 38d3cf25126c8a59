//! The environment of a process in one piece of memory: it is read, made, sent, taken in and given to a program without a
//! string of its own for each variable. On the wire it is a list of strings of bytes.

use crate::limits::ENVIRONMENT_VARIABLES_MAX;
use crate::validate::{Bounds, Invalid, Validate};
use minicbor::decode::{self, Decoder};
use minicbor::encode::{self, Encoder, Write};
use minicbor::{Decode, Encode};
use std::ffi::CStr;

/// Variables that are taken in: those of a user, and those that are added to them.
const DECODED_MAX: usize = 2 * ENVIRONMENT_VARIABLES_MAX;

/// `NAME=value`, many times, in order; bytes, since values need not be UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Each with a zero byte after it.
    bytes: Vec<u8>,
    /// Where each ends, with its zero byte.
    ends: Vec<usize>,
}

impl Environment {
    /// An empty environment with room for this many variables and bytes: name, value and two more bytes of each.
    #[must_use]
    pub fn with_capacity(count: usize, bytes: usize) -> Environment {
        Environment {
            bytes: Vec::with_capacity(bytes),
            ends: Vec::with_capacity(count),
        }
    }

    /// Adds a variable that is in parts. A program cannot be given one with a zero byte.
    pub fn push(&mut self, parts: &[&[u8]]) {
        if parts.iter().any(|part| part.contains(&0)) {
            return;
        }
        parts.iter().for_each(|p| self.bytes.extend_from_slice(p));
        self.bytes.push(0);
        self.ends.push(self.bytes.len());
    }

    /// Adds a variable that a program was given.
    pub fn push_string(&mut self, variable: &CStr) {
        self.bytes.extend_from_slice(variable.to_bytes_with_nul());
        self.ends.push(self.bytes.len());
    }

    /// Sets a variable, in place of one that is there.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        let Some(at) = self.find(name) else {
            return self.push(&[name, b"=", value]);
        };
        if value.contains(&0) {
            return;
        }
        let (begin, end) = (self.begin(at) + name.len() + 1, self.ends[at] - 1);
        self.bytes.splice(begin..end, value.iter().copied());
        for later in &mut self.ends[at..] {
            *later = *later - end + begin + value.len();
        }
    }

    /// The value of a variable.
    #[must_use]
    pub fn value(&self, name: &[u8]) -> Option<&[u8]> {
        self.get(self.find(name)?).get(name.len() + 1..)
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        let is_it = |variable: &[u8]| {
            let rest = variable.strip_prefix(name);
            rest.is_some_and(|rest| rest.first() == Some(&b'='))
        };
        self.iter().position(is_it)
    }

    fn begin(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    fn get(&self, at: usize) -> &[u8] {
        &self.bytes[self.begin(at)..self.ends[at] - 1]
    }

    /// The variables.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).map(|at| self.get(at))
    }

    /// The variables as a program is given them.
    pub fn strings(&self) -> impl Iterator<Item = &CStr> {
        let string = |at| {
            let bytes = &self.bytes[self.begin(at)..self.ends[at]];
            CStr::from_bytes_with_nul(bytes).ok()
        };
        (0..self.ends.len()).filter_map(string)
    }

    /// Number of variables.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Bytes that a program is given, without the pointers to them.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl<V: AsRef<[u8]>> FromIterator<V> for Environment {
    fn from_iter<I: IntoIterator<Item = V>>(variables: I) -> Environment {
        let mut all = Environment::default();
        for variable in variables {
            all.push(&[variable.as_ref()]);
        }
        all
    }
}

/// The name of a variable.
#[must_use]
pub fn name(variable: &[u8]) -> &[u8] {
    let at = variable.iter().position(|b| *b == b'=');
    &variable[..at.unwrap_or(variable.len())]
}

/// Name and value of a variable; the name is empty if it is not UTF-8, which no variable with a meaning here is.
#[must_use]
pub fn split(variable: &[u8]) -> (&str, Option<&str>) {
    let name = name(variable);
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let value = variable.get(name.len() + 1..).and_then(text);
    (text(name).unwrap_or(""), value)
}

impl<C> Encode<C> for Environment {
    fn encode<W: Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.array(self.ends.len() as u64)?;
        for variable in self.iter() {
            e.bytes(variable)?;
        }
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for Environment {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        let count = d.array()?.ok_or_else(|| {
            decode::Error::message("an environment says how many variables it has")
        })?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > DECODED_MAX {
            return Err(decode::Error::message(format!(
                "an environment has {count} variables, the limit is {ENVIRONMENT_VARIABLES_MAX}"
            )));
        }
        // The rest of the input is not much longer.
        let left = d.input().len().saturating_sub(d.position());
        let mut all = Environment::with_capacity(count.min(left), left.min(1 << 20));
        for _ in 0..count {
            all.push(&[d.bytes()?]);
        }
        Ok(all)
    }
}

impl Validate for Environment {
    fn validate_within(&self, bounds: &Bounds) -> Result<(), Invalid> {
        bounds.check_bytes(self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minicbor::bytes::ByteVec;

    #[test]
    fn it_is_a_list_on_the_wire() {
        let mut own = Environment::default();
        own.push(&[b"A", b"=", b"1"]);
        own.push(&[b"EMPTY="]);
        own.push(&[b"Z=\0"]);
        let list: Vec<ByteVec> = vec![b"A=1".to_vec().into(), b"EMPTY=".to_vec().into()];
        let bytes = minicbor::to_vec(&own).unwrap();
        assert_eq!(bytes, minicbor::to_vec(&list).unwrap());
        assert_eq!(minicbor::decode::<Environment>(&bytes).unwrap(), own);
        assert_eq!(own.strings().collect::<Vec<_>>(), [c"A=1", c"EMPTY="]);
        assert_eq!(own.size_bytes(), 11);
    }

    /// Eight million of them fit into the bytes that a job may bring.
    #[test]
    fn no_more_variables_are_taken_in_than_there_may_be() {
        let list = |count: usize| minicbor::to_vec(vec![ByteVec::from(Vec::new()); count]);
        let most = list(DECODED_MAX).unwrap();
        let taken = minicbor::decode::<Environment>(&most).unwrap();
        assert_eq!(taken.count(), DECODED_MAX);
        let more = list(DECODED_MAX + 1).unwrap();
        let refused = minicbor::decode::<Environment>(&more).unwrap_err();
        assert!(refused.to_string().contains("the limit is 65536"));
    }

    #[test]
    fn variables_are_set_in_their_place() {
        let mut own: Environment = ["A=1", "AB=2", "B=3"].iter().collect();
        own.set(b"AB", b"longer");
        own.set(b"C", b"");
        own.set(b"B", b"");
        own.set(b"A", b"\0");
        let all: Vec<&CStr> = own.strings().collect();
        assert_eq!(all, [c"A=1", c"AB=longer", c"B=", c"C="]);
        assert_eq!(own.value(b"AB"), Some(&b"longer"[..]));
        assert_eq!((own.value(b"B"), own.value(b"D")), (Some(&b""[..]), None));
        let again: Environment = own.iter().collect();
        assert_eq!((&own, own.count()), (&again, 4));
    }

    #[test]
    fn names_are_split_from_values() {
        assert_eq!(split(b"A=b=c"), ("A", Some("b=c")));
        assert_eq!(split(b"A"), ("A", None));
        assert_eq!(split(b"\xff=1"), ("", Some("1")));
    }
}
