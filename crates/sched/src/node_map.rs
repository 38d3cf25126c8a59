//! Maps by node number. Passes look nodes up by the million, so the hash is one multiplication; a node's number is not
//! chosen by users, and the maps are never iterated where order could matter.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by node number.
pub(crate) type NodeMap<V> = HashMap<u32, V, BuildHasherDefault<NodeHasher>>;

/// Multiplies by an odd constant whose bits are well mixed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeHasher(u64);

impl Hasher for NodeHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        let mixed = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
