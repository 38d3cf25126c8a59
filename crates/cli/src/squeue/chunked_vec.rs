//! A vector in chunks. A `Vec` that grows to a megabyte was copied from half a megabyte before, and from a quarter; touching all of
//! that memory takes a command longer than writing its contents.

/// Values in a chunk.
const CHUNK_LEN: usize = 1 << 12;

/// Values, in the order in which they were added.
#[derive(Debug)]
pub(super) struct ChunkedVec<T>(Vec<Vec<T>>);

impl<T> Default for ChunkedVec<T> {
    fn default() -> ChunkedVec<T> {
        // The first chunk grows as needed: most lists need no other, and little of it.
        ChunkedVec(vec![Vec::new()])
    }
}

impl<T: Copy> ChunkedVec<T> {
    /// Adds a value.
    pub(super) fn push(&mut self, value: T) {
        match self.0.last_mut() {
            Some(last) if last.len() < CHUNK_LEN => last.push(value),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK_LEN);
                chunk.push(value);
                self.0.push(chunk);
            }
        }
    }

    /// The value at a place that has one.
    pub(super) fn at(&self, place: usize) -> T {
        self.0[place / CHUNK_LEN][place % CHUNK_LEN]
    }

    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        let last = self.0.last().map_or(0, Vec::len);
        self.0.len().saturating_sub(1) * CHUNK_LEN + last
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = T> {
        self.0.iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_where_they_were_added() {
        for count in [0, 1, CHUNK_LEN - 1, CHUNK_LEN, CHUNK_LEN + 1, 3 * CHUNK_LEN] {
            let mut pieces = ChunkedVec::default();
            (0..count).for_each(|n| pieces.push(n));
            assert_eq!(pieces.len(), count);
            assert!((0..count).all(|n| pieces.at(n) == n));
            assert!(pieces.iter().eq(0..count));
        }
    }
}
