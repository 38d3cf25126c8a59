//! Numbers that are recorded often and read once: events of a wide job record each of its nodes,
//! and a pass then reads them in order. Sorting a list once costs a fraction of maintaining a tree.

/// The numbers recorded since the last call.
#[derive(Debug)]
pub(crate) struct Noted<T>(Vec<T>);

impl<T> Default for Noted<T> {
    fn default() -> Noted<T> {
        Noted(Vec::new())
    }
}

impl<T: Copy + Ord> Noted<T> {
    /// Records one more number.
    pub(crate) fn insert(&mut self, number: T) {
        if self.0.last() != Some(&number) {
            self.0.push(number);
        }
    }

    /// Returns all recorded numbers in order, each once, and clears the list.
    pub(crate) fn take(&mut self) -> Vec<T> {
        let mut all = std::mem::take(&mut self.0);
        // Events of a wide job arrive in node order, so the list consists of sorted runs.
        all.sort();
        all.dedup();
        all
    }
}

impl<T> Noted<T> {
    /// Takes back the memory of a list that has been read, for reuse.
    pub(crate) fn give_back(&mut self, mut list: Vec<T>) {
        if self.0.is_empty() {
            list.clear();
            self.0 = list;
        }
    }
}

impl<T: Copy + Ord> Extend<T> for Noted<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, numbers: I) {
        self.0.extend(numbers);
    }
}

impl<T: Copy + Ord> FromIterator<T> for Noted<T> {
    fn from_iter<I: IntoIterator<Item = T>>(numbers: I) -> Noted<T> {
        Noted(numbers.into_iter().collect())
    }
}
