//! Validation of what comes from outside. A message is decoded and validated in one step (`muster_proto::frame::decode`);
//! [`macro@Validate`] derives the walk over all fields, so that none is forgotten. What a value means in the state of the
//! cluster is not known here: that is checked by `muster_core::decide`.

use crate::limits::{FRAME_BYTES_MAX, LIST_ITEMS_MAX, TEXT_BYTES_MAX};
use minicbor::bytes::{ByteArray, ByteSlice, ByteVec};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use muster_validate_derive::Validate;

/// A value that may come from outside.
pub trait Validate {
    /// Checks it and all that is in it. The bounds are those of the field that it is in, and count for texts, numbers and
    /// lists; a type with fields of its own has bounds for each of them.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    fn validate_within(&self, bounds: &Bounds) -> Result<(), Invalid>;

    /// Checks it within the default bounds.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    fn validate(&self) -> Result<(), Invalid> {
        self.validate_within(&Bounds::DEFAULT)
    }
}

/// Bounds of the texts, lists and numbers of a field.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    text_bytes: usize,
    blob_bytes: usize,
    items: usize,
    range: Option<(i128, i128)>,
}

impl Bounds {
    /// Bounds of a field that sets no others.
    pub const DEFAULT: Bounds = Bounds {
        text_bytes: TEXT_BYTES_MAX,
        blob_bytes: FRAME_BYTES_MAX,
        items: LIST_ITEMS_MAX,
        range: None,
    };

    /// Texts and byte strings of at most `most` bytes.
    #[must_use]
    pub const fn with_bytes(mut self, most: usize) -> Bounds {
        (self.text_bytes, self.blob_bytes) = (most, most);
        self
    }

    /// Lists of at most `most` elements.
    #[must_use]
    pub const fn with_items(mut self, most: usize) -> Bounds {
        self.items = most;
        self
    }

    /// Numbers in this range, both ends included.
    #[must_use]
    pub const fn with_range(mut self, least: i128, most: i128) -> Bounds {
        self.range = Some((least, most));
        self
    }

    /// Checks the length of bytes that are no text.
    ///
    /// # Errors
    /// There are too many.
    #[inline]
    pub fn check_bytes(&self, bytes: usize) -> Result<(), Invalid> {
        let most = self.blob_bytes;
        match bytes <= most {
            true => Ok(()),
            false => Err(Fault::TooLong { bytes, most }.into()),
        }
    }

    #[inline]
    fn check_items(&self, items: usize) -> Result<(), Invalid> {
        if items <= self.items {
            return Ok(());
        }
        let most = self.items;
        Err(Fault::TooMany { items, most }.into())
    }

    #[inline]
    fn check_number(&self, number: i128) -> Result<(), Invalid> {
        match self.range {
            Some((least, most)) if number < least || number > most => {
                let fault = Fault::OutOfRange {
                    number,
                    least,
                    most,
                };
                Err(fault.into())
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// A value that was refused: where it is in its message, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Names of fields from the inside out.
    path: Vec<&'static str>,
    /// The violated bound.
    pub fault: Fault,
}

/// Why a value was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A text or byte string.
    #[error("has {bytes} bytes, the limit is {most}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// Greatest length.
        most: usize,
    },
    /// A list.
    #[error("has {items} elements, the limit is {most}")]
    TooMany {
        /// Its number of elements.
        items: usize,
        /// Greatest number of elements.
        most: usize,
    },
    /// A text with a NUL in it, which neither the kernel nor a program would take whole.
    #[error("has a NUL byte in it")]
    Nul,
    /// A number.
    #[error("is {number}, which is not between {least} and {most}")]
    OutOfRange {
        /// The number.
        number: i128,
        /// The least that it may be.
        least: i128,
        /// The most that it may be.
        most: i128,
    },
    /// Something that its type alone does not say.
    #[error("{0}")]
    Malformed(&'static str),
}

impl Invalid {
    /// This finding inside a field of this name.
    #[must_use]
    pub fn at(mut self, field: &'static str) -> Invalid {
        self.path.push(field);
        self
    }

    /// The fields that lead to it: `body.spec.name`.
    pub fn path(&self) -> String {
        let names: Vec<&str> = self.path.iter().rev().copied().collect();
        names.join(".")
    }
}

impl From<Fault> for Invalid {
    fn from(fault: Fault) -> Invalid {
        Invalid {
            path: Vec::new(),
            fault,
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.is_empty() {
            true => write!(f, "the message {}", self.fault),
            false => write!(f, "{} {}", self.path(), self.fault),
        }
    }
}

impl std::error::Error for Invalid {}

fn check_text(bytes: &[u8], most: usize) -> Result<(), Invalid> {
    if bytes.len() > most {
        let bytes = bytes.len();
        return Err(Fault::TooLong { bytes, most }.into());
    }
    // CPUs look at many bytes of a short text at once where nothing ends the search early.
    let nuls = bytes.iter().fold(false, |nul, byte| nul | (*byte == 0));
    if nuls { Err(Fault::Nul.into()) } else { Ok(()) }
}

impl Validate for String {
    #[inline]
    fn validate_within(&self, bounds: &Bounds) -> Result<(), Invalid> {
        check_text(self.as_bytes(), bounds.text_bytes)
    }
}

impl Validate for PathBuf {
    fn validate_within(&self, bounds: &Bounds) -> Result<(), Invalid> {
        check_text(self.as_os_str().as_encoded_bytes(), bounds.text_bytes)
    }
}

impl Validate for ByteVec {
    #[inline]
    fn validate_within(&self, bounds: &Bounds) -> Result<(), Invalid> {
        bounds.check_bytes(self.len())
    }
}

impl Validate for ByteSlice {
    fn validate_within(&self, bounds: &Bounds) -> Result<(), Invalid> {
        bounds.check_bytes(self.len())
    }
}

impl<const N: usize> Validate for [u8; N] {
    fn validate_within(&self, _: &Bounds) -> Result<(), Invalid> {
        Ok(())
    }
}

impl<const N: usize> Validate for ByteArray<N> {
    fn validate_within(&self, _: &Bounds) -> Result<(), Invalid> {
        Ok(())
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl Validate for $number {
            #[inline]
            fn validate_within(&self, bounds: &Bounds) -> Result<(), Invalid> {
                bounds.check_number(i128::from(*self))
            }
        })*
    };
}
numbers!(u8 u16 u32 u64 i8 i16 i32 i64);

macro_rules! any_value {
    ($($plain:ty)*) => {
        $(impl Validate for $plain {
            #[inline]
            fn validate_within(&self, _: &Bounds) -> Result<(), Invalid> {
                Ok(())
            }
        })*
    };
}
any_value!(bool char std::net::IpAddr);

macro_rules! pointers {
    ($($pointer:ty)*) => {
        $(impl<T: Validate + ?Sized> Validate for $pointer {
            #[inline]
            fn validate_within(&self, bounds: &Bounds) -> Result<(), Invalid> {
                (**self).validate_within(bounds)
            }
        })*
    };
}
pointers!(Box<T> Arc<T> &T);

impl<T: Validate> Validate for Option<T> {
    #[inline]
    fn validate_within(&self, bounds: &Bounds) -> Result<(), Invalid> {
        self.as_ref().map_or(Ok(()), |v| v.validate_within(bounds))
    }
}

impl<T: Validate, E: Validate> Validate for Result<T, E> {
    fn validate_within(&self, bounds: &Bounds) -> Result<(), Invalid> {
        match self {
            Ok(value) => value.validate_within(bounds),
            Err(error) => error.validate_within(bounds),
        }
    }
}

impl<T: Validate> Validate for Vec<T> {
    fn validate_within(&self, bounds: &Bounds) -> Result<(), Invalid> {
        bounds.check_items(self.len())?;
        self.iter().try_for_each(|v| v.validate_within(bounds))
    }
}

impl<T: Validate> Validate for BTreeSet<T> {
    fn validate_within(&self, bounds: &Bounds) -> Result<(), Invalid> {
        bounds.check_items(self.len())?;
        self.iter().try_for_each(|v| v.validate_within(bounds))
    }
}

impl<K: Validate, V: Validate> Validate for BTreeMap<K, V> {
    fn validate_within(&self, bounds: &Bounds) -> Result<(), Invalid> {
        bounds.check_items(self.len())?;
        self.iter().try_for_each(|(key, value)| {
            key.validate_within(bounds)?;
            value.validate_within(bounds)
        })
    }
}

macro_rules! tuples {
    ($(($($name:ident $place:tt),*))*) => {
        $(impl<$($name: Validate),*> Validate for ($($name,)*) {
            #[inline]
            fn validate_within(&self, bounds: &Bounds) -> Result<(), Invalid> {
                $(self.$place.validate_within(bounds)?;)*
                Ok(())
            }
        })*
    };
}
tuples!((A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3));

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default, Validate)]
    struct Inner {
        #[valid(max_bytes = 4)]
        name: Option<String>,
        #[valid(min = 1, max = 64)]
        signal: u32,
        #[valid(max_items = 2)]
        list: Vec<(String, u32)>,
        #[valid(max_bytes = 8)]
        blob: ByteVecField,
    }

    #[derive(Validate)]
    #[valid(max_bytes = 2)]
    struct Short(String, #[valid(max_bytes = 3)] String);

    #[derive(Validate)]
    struct ByteVecField(#[valid(max_bytes = 8)] ByteVec);

    impl Default for ByteVecField {
        fn default() -> Self {
            ByteVecField(Vec::new().into())
        }
    }

    #[derive(Validate)]
    #[valid(with = no_twins)]
    enum Outer {
        Unit,
        One(Box<Inner>),
        Two { a: Inner, b: Vec<Inner> },
    }

    fn no_twins(outer: &Outer) -> Result<(), Fault> {
        match outer {
            Outer::Two { b, .. } if b.len() == 2 => Err(Fault::Malformed("has twins")),
            _ => Ok(()),
        }
    }

    fn inner() -> Inner {
        Inner {
            signal: 1,
            ..Inner::default()
        }
    }

    #[test]
    fn every_field_of_every_variant_is_visited() {
        let text = |outer: Outer| outer.validate().map_err(|e| e.to_string());
        assert_eq!(text(Outer::Unit), Ok(()));
        assert_eq!(text(Outer::One(Box::new(inner()))), Ok(()));
        let long = Inner {
            name: Some("longer".to_owned()),
            ..inner()
        };
        let refused = text(Outer::One(Box::new(long)));
        assert_eq!(refused, Err("name has 6 bytes, the limit is 4".to_owned()));
        let zero = Inner {
            signal: 0,
            ..inner()
        };
        let b = vec![inner(), zero];
        let refused = text(Outer::Two { a: inner(), b });
        let why = "b.signal is 0, which is not between 1 and 64";
        assert_eq!(refused, Err(why.to_owned()));
        let many = Inner {
            list: vec![(String::new(), 7); 3],
            ..inner()
        };
        let refused = text(Outer::Two { a: many, b: vec![] });
        let why = "a.list has 3 elements, the limit is 2";
        assert_eq!(refused, Err(why.to_owned()));
        let blob = Inner {
            blob: ByteVecField(vec![0; 9].into()),
            ..inner()
        };
        let refused = text(Outer::Two { a: blob, b: vec![] });
        let why = "a.blob has 9 bytes, the limit is 8";
        assert_eq!(refused, Err(why.to_owned()));
        let b = vec![inner(), inner()];
        let refused = text(Outer::Two { a: inner(), b });
        assert_eq!(refused, Err("the message has twins".to_owned()));
    }

    #[test]
    fn bounds_of_a_type_are_those_of_its_fields() {
        let fits = |a: &str, b: &str| Short(a.to_owned(), b.to_owned()).validate().is_ok();
        assert!(fits("aa", "bbb"));
        assert!(!fits("aaa", "bbb"));
        assert!(!fits("aa", "bbbb"));
    }

    #[test]
    fn texts_have_no_nul() {
        assert_eq!("a\0b".to_owned().validate().unwrap_err().fault, Fault::Nul);
        // Bytes are anything.
        ByteVec::from(vec![0, 1]).validate().unwrap();
    }
}
