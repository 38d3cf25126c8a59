//! Attributes: pairs of key and value in libpmix's own form, built, read, and carried between hosts as bytes that only
//! libpmix understands.
#![allow(unsafe_code)]

use crate::ProcName;
use crate::library::Library;
use crate::sys::{self, ByteObject, DataArray, DataBuffer, Proc, RawInfo, RawValue, ValueData};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::validate::Validate;
use std::ffi::{CString, c_char, c_void};

/// Data types of libpmix that are used here.
pub(crate) mod kind {
    pub(crate) const BOOL: u16 = 1;
    pub(crate) const STRING: u16 = 3;
    pub(crate) const SIZE: u16 = 4;
    pub(crate) const INT: u16 = 6;
    pub(crate) const UINT16: u16 = 13;
    pub(crate) const UINT32: u16 = 14;
    pub(crate) const PROC: u16 = 22;
    pub(crate) const INFO: u16 = 24;
    pub(crate) const BYTES: u16 = 27;
    pub(crate) const RANGE: u16 = 33;
    pub(crate) const ARRAY: u16 = 39;
    pub(crate) const RANK: u16 = 40;
    pub(crate) const REGEX: u16 = 49;
}

/// The value of an attribute.
pub(crate) enum Value<'a> {
    Bool(bool),
    Text(&'a str),
    U16(u16),
    U32(u32),
    Size(usize),
    Rank(u32),
    Proc(&'a ProcName),
    Bytes(&'a [u8]),
    /// A text that libpmix made: opaque, may hold zero bytes.
    Regex(&'a Regex),
    Array(&'a Infos),
}

/// A packed list that libpmix made.
pub(crate) struct Regex(pub(crate) *mut c_char);

impl Drop for Regex {
    fn drop(&mut self) {
        // SAFETY: libpmix allocated it with malloc and left it to its caller.
        unsafe { libc::free(self.0.cast()) };
    }
}

/// An owned list of attributes.
pub(crate) struct Infos {
    library: &'static Library,
    raw: Vec<RawInfo>,
}

impl Infos {
    pub(crate) fn new(library: &'static Library) -> Infos {
        Infos {
            library,
            raw: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.raw.len()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut RawInfo {
        if self.raw.is_empty() {
            return std::ptr::null_mut();
        }
        self.raw.as_mut_ptr()
    }

    /// Adds an attribute; its value is copied.
    pub(crate) fn add(&mut self, key: &str, value: Value<'_>) {
        match value {
            Value::Bool(flag) => self.load(key, (&raw const flag).cast(), kind::BOOL),
            Value::Text(text) => {
                // A name from argv, the environment or the configuration contains no zero byte.
                let text = CString::new(text).unwrap_or_default();
                self.load(key, text.as_ptr().cast(), kind::STRING);
            }
            Value::U16(n) => self.load(key, (&raw const n).cast(), kind::UINT16),
            Value::U32(n) => self.load(key, (&raw const n).cast(), kind::UINT32),
            Value::Size(n) => self.load(key, (&raw const n).cast(), kind::SIZE),
            Value::Rank(n) => self.load(key, (&raw const n).cast(), kind::RANK),
            Value::Proc(name) => {
                let proc = name.raw();
                self.load(key, (&raw const proc).cast(), kind::PROC);
            }
            Value::Bytes(bytes) => {
                let object = ByteObject {
                    bytes: bytes.as_ptr().cast_mut().cast(),
                    size: bytes.len(),
                };
                self.load(key, (&raw const object).cast(), kind::BYTES);
            }
            Value::Regex(regex) => {
                // PMIx 3 has no separate type for this value.
                let kind = if self.library.major < 4 {
                    kind::STRING
                } else {
                    kind::REGEX
                };
                self.load(key, regex.0.cast(), kind);
            }
            Value::Array(infos) => {
                let array = DataArray {
                    kind: kind::INFO,
                    size: infos.raw.len(),
                    array: infos.raw.as_ptr().cast_mut().cast(),
                };
                self.load(key, (&raw const array).cast(), kind::ARRAY);
            }
        }
    }

    fn load(&mut self, key: &str, data: *const c_void, kind: u16) {
        let functions = &self.library.functions;
        let mut info = RawInfo {
            key: sys::fixed(key),
            flags: 0,
            value: empty(),
        };
        // SAFETY: `data` leads to a value of that kind, which the function copies; key and value are live.
        unsafe {
            if let Some(load) = functions.info_load {
                let key = info.key;
                load(&raw mut info, key.as_ptr(), data, kind);
            } else if let Some(load) = functions.value_load {
                load(&raw mut info.value, data, kind);
            }
        }
        self.raw.push(info);
    }

    /// Attributes in their transport encoding.
    pub(crate) fn packed(library: &'static Library, infos: &[RawInfo]) -> Packed {
        let mut buffer = DataBuffer {
            base: std::ptr::null_mut(),
            pack: std::ptr::null_mut(),
            unpack: std::ptr::null_mut(),
            allocated: 0,
            used: 0,
        };
        let count = u32::try_from(infos.len()).unwrap_or(0);
        if count == 0 {
            return Packed::default();
        }
        // SAFETY: the buffer is in the state of an empty one; the array has as many elements as are said.
        let bytes = unsafe {
            let rc = (library.functions.data_pack)(
                std::ptr::null(),
                &raw mut buffer,
                infos.as_ptr().cast(),
                count.cast_signed(),
                kind::INFO,
            );
            let bytes = sys::slice(buffer.base.cast::<u8>(), buffer.used).to_vec();
            libc::free(buffer.base.cast());
            if rc != crate::status::SUCCESS {
                return Packed::default();
            }
            bytes
        };
        Packed {
            count,
            bytes: bytes.into(),
        }
    }

    /// Attributes decoded from another host's message.
    pub(crate) fn unpacked(library: &'static Library, packed: &Packed) -> Infos {
        let mut infos = Infos::new(library);
        let count = packed.count as usize;
        // An attribute takes more than one byte, so a larger count is invalid.
        if count == 0 || count > packed.bytes.len() {
            return infos;
        }
        infos.raw = vec![
            RawInfo {
                key: [0; sys::KEY],
                flags: 0,
                value: empty(),
            };
            count
        ];
        let mut number = packed.count.cast_signed();
        let length = packed.bytes.len();
        // SAFETY: the buffer is given the bytes in memory of malloc, as libpmix may grow or free it; the array has
        // room for as many attributes as are asked for.
        let rc = unsafe {
            let base = libc::malloc(length).cast::<c_char>();
            if base.is_null() {
                return Infos::new(library);
            }
            std::ptr::copy_nonoverlapping(packed.bytes.as_ptr().cast(), base, length);
            let mut buffer = DataBuffer {
                base,
                pack: base.add(length),
                unpack: base,
                allocated: length,
                used: length,
            };
            let rc = (library.functions.data_unpack)(
                std::ptr::null(),
                &raw mut buffer,
                infos.raw.as_mut_ptr().cast(),
                &raw mut number,
                kind::INFO,
            );
            libc::free(buffer.base.cast());
            rc
        };
        if rc != crate::status::SUCCESS {
            eprintln!("invalid attributes from another host (status {rc})");
            infos.raw.clear();
        }
        infos.raw.truncate(usize::try_from(number).unwrap_or(0));
        infos
    }

    pub(crate) fn raw(&self) -> &[RawInfo] {
        &self.raw
    }
}

impl Drop for Infos {
    fn drop(&mut self) {
        let Some(destruct) = self.library.functions.value_destruct else {
            return;
        };
        for info in &mut self.raw {
            // SAFETY: the value was made by libpmix and is not used again.
            unsafe { destruct(&raw mut info.value) };
        }
    }
}

/// Attributes as bytes.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub(crate) struct Packed {
    /// Number of entries.
    #[n(0)]
    pub(crate) count: u32,
    /// As libpmix packs them.
    #[n(1)]
    pub(crate) bytes: ByteVec,
}

impl Default for Packed {
    fn default() -> Packed {
        Packed {
            count: 0,
            bytes: Vec::new().into(),
        }
    }
}

fn empty() -> RawValue {
    RawValue {
        kind: 0,
        data: ValueData { words: [0; 3] },
    }
}

impl RawInfo {
    /// The key of the attribute.
    pub(crate) fn name(&self) -> String {
        sys::unfixed(&self.key)
    }

    /// The attribute as a boolean; an attribute without a value is true.
    pub(crate) fn is_set(&self) -> bool {
        match self.value.kind {
            // SAFETY: the kind says which member holds the value; a bool of C is read as the byte that it is.
            kind::BOOL => unsafe { self.value.data.byte != 0 },
            0 => true,
            _ => false,
        }
    }

    /// A text.
    pub(crate) fn text(&self) -> Option<String> {
        // SAFETY: the kind says which member holds the value.
        (self.value.kind == kind::STRING).then(|| unsafe { sys::copied(self.value.data.text) })
    }

    /// A number of one of the small kinds.
    pub(crate) fn number(&self) -> Option<i64> {
        // SAFETY: the kind says which member holds the value.
        unsafe {
            Some(match self.value.kind {
                kind::INT | 9 | 20 => i64::from(self.value.data.int),
                kind::UINT32 | 11 | kind::RANK => i64::from(self.value.data.uint),
                kind::SIZE | 15 => i64::try_from(self.value.data.size).ok()?,
                kind::RANGE | 12 | 30 => i64::from(self.value.data.byte),
                _ => return None,
            })
        }
    }

    /// The bytes of a byte object.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        if self.value.kind != kind::BYTES {
            return None;
        }
        // SAFETY: for this kind the union holds a `pmix_byte_object_t`: pointer and length.
        unsafe {
            let words = self.value.data.words;
            let length = usize::try_from(words[1]).ok()?;
            Some(sys::slice(words[0] as usize as *const u8, length).to_vec())
        }
    }
}

impl ProcName {
    pub(crate) fn raw(&self) -> Proc {
        Proc {
            nspace: sys::fixed(&self.nspace),
            rank: self.rank,
        }
    }

    pub(crate) fn of(proc: &Proc) -> ProcName {
        ProcName {
            nspace: sys::unfixed(&proc.nspace),
            rank: proc.rank,
        }
    }
}
