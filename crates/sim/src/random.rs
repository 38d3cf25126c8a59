//! The one source of chance in a simulation: SplitMix64, small and the same on every machine. Everything that a run
//! does follows from the seed.

/// Random numbers from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A generator of its own for every seed and purpose.
    pub(crate) fn new(seed: u64, purpose: u64) -> Random {
        let mut random = Random(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.next();
        random
    }

    /// Any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A key that nobody can guess but this seed.
    pub(crate) fn secret(&mut self) -> [u8; muster_trust::KEY] {
        let mut secret = [0; muster_trust::KEY];
        for chunk in secret.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes());
        }
        secret
    }

    /// A number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }

    /// A number in `first..=last`.
    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last.saturating_sub(first) + 1)
    }

    /// A small number in `first..=last`.
    pub(crate) fn small(&mut self, first: u32, last: u32) -> u32 {
        u32::try_from(self.between(u64::from(first), u64::from(last))).unwrap_or(last)
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of several; the slice must not be empty.
    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let at = usize::try_from(self.below(of.len() as u64)).unwrap_or(0);
        &of[at]
    }

    /// Mostly short and sometimes long, with about this mean; at least 1.
    pub(crate) fn around(&mut self, mean: u64) -> u64 {
        let mut sum = 1;
        while sum < mean * 8 && !self.one_in(4) {
            sum += self.below(mean.max(1));
        }
        sum
    }
}
