//! The environment of a step's tasks in one piece of memory: it is made, sent, taken in and given to a program without a
//! string of its own for each variable. On the wire it is a list of strings of bytes.

use minicbor::decode::{self, Decoder};
use minicbor::encode::{self, Encoder, Write};
use minicbor::{Decode, Encode};
use std::ffi::CStr;

/// `NAME=value`, many times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    /// Each with a zero byte after it.
    bytes: Vec<u8>,
    count: u64,
}

impl Environment {
    /// One for so many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Environment {
        Environment {
            bytes: Vec::with_capacity(bytes),
            count: 0,
        }
    }

    /// Adds a variable that is in parts. A program cannot be given one with a zero byte.
    pub(crate) fn push(&mut self, parts: &[&[u8]]) {
        if parts.iter().any(|part| part.contains(&0)) {
            return;
        }
        parts.iter().for_each(|p| self.bytes.extend_from_slice(p));
        self.bytes.push(0);
        self.count += 1;
    }

    /// The variables.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &CStr> {
        let all = self.bytes.split_inclusive(|b| *b == 0);
        all.filter_map(|v| CStr::from_bytes_with_nul(v).ok())
    }
}

impl<C> Encode<C> for Environment {
    fn encode<W: Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.array(self.count)?;
        for variable in self.iter() {
            e.bytes(variable.to_bytes())?;
        }
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for Environment {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        let count = d.array()?.ok_or_else(|| {
            decode::Error::message("an environment says how many variables it has")
        })?;
        // What follows is not much longer.
        let left = d.input().len().saturating_sub(d.position());
        let mut all = Environment::with_capacity(left.min(1 << 20));
        for _ in 0..count {
            all.push(&[d.bytes()?]);
        }
        Ok(all)
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
        assert_eq!(own.iter().collect::<Vec<_>>(), [c"A=1", c"EMPTY="]);
    }
}
