//! A hash for tables whose keys are large and that are only looked up: specifications, and what is made of them. One
//! multiplication a word. It begins anywhere in each table, so that nobody can make keys that meet.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Makes the hashers of a table.
#[derive(Clone, Debug)]
pub struct QuickHash(u64);

impl Default for QuickHash {
    fn default() -> QuickHash {
        QuickHash(RandomState::new().hash_one(0u64))
    }
}

impl BuildHasher for QuickHash {
    type Hasher = QuickHasher;

    fn build_hasher(&self) -> QuickHasher {
        QuickHasher(self.0)
    }
}

/// Multiplies, and adds up both halves of the product.
#[derive(Clone, Copy, Debug)]
pub struct QuickHasher(u64);

impl Hasher for QuickHasher {
    fn finish(&self) -> u64 {
        // Tables take some bits of one end and some of the other.
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(last));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    fn write_u16(&mut self, n: u16) {
        self.write_u64(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        const ODD: u128 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from(self.0 ^ n) * ODD;
        let low = u64::try_from(product & u128::from(u64::MAX)).unwrap_or_default();
        let high = u64::try_from(product >> 64).unwrap_or_default();
        // Where the product is 0, what came before must not be lost.
        self.0 = (low ^ high).wrapping_add(self.0.rotate_left(23));
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::JobSpec;
    use std::collections::BTreeSet;

    #[test]
    fn what_differs_a_little_has_another_hash() {
        let table = QuickHash::default();
        let spec = |n: u32| JobSpec {
            name: format!("job{n}"),
            nice: i32::try_from(n).unwrap(),
            ..JobSpec::default()
        };
        let hashes: BTreeSet<u64> = (0..10_000).map(|n| table.hash_one(spec(n))).collect();
        assert_eq!(hashes.len(), 10_000);
        assert_eq!(table.hash_one(spec(7)), table.hash_one(spec(7)));
        let places: BTreeSet<u64> = hashes.iter().map(|h| h & 0xfff).collect();
        assert!(places.len() > 3_000, "{}", places.len());
        let tags: BTreeSet<u64> = hashes.iter().map(|h| h >> 57).collect();
        assert_eq!(tags.len(), 128);
    }
}
