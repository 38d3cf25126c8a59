//! A list that grows in pieces. A vector of a megabyte has been half a megabyte before, and a quarter: to touch all of that
//! memory takes a command longer than to write what is in it.

/// So many values are in a piece.
const PIECE: usize = 1 << 12;

/// Values, in the order in which they were added.
#[derive(Debug)]
pub(super) struct Pieces<T>(Vec<Vec<T>>);

impl<T> Default for Pieces<T> {
    fn default() -> Pieces<T> {
        // The first one grows as it must: mostly it is the only one, and short.
        Pieces(vec![Vec::new()])
    }
}

impl<T: Copy> Pieces<T> {
    /// Adds a value.
    pub(super) fn push(&mut self, value: T) {
        match self.0.last_mut() {
            Some(last) if last.len() < PIECE => last.push(value),
            _ => {
                let mut piece = Vec::with_capacity(PIECE);
                piece.push(value);
                self.0.push(piece);
            }
        }
    }

    /// The value at a place that has one.
    pub(super) fn at(&self, place: usize) -> T {
        self.0[place / PIECE][place % PIECE]
    }

    /// How many they are.
    pub(super) fn len(&self) -> usize {
        let last = self.0.last().map_or(0, Vec::len);
        self.0.len().saturating_sub(1) * PIECE + last
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
        for count in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE] {
            let mut pieces = Pieces::default();
            (0..count).for_each(|n| pieces.push(n));
            assert_eq!(pieces.len(), count);
            assert!((0..count).all(|n| pieces.at(n) == n));
            assert!(pieces.iter().eq(0..count));
        }
    }
}
