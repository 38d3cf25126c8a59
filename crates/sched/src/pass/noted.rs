//! Numbers that are noted often and read once: events of a wide job note each of its nodes, and a pass then looks at
//! them in order. A list that is sorted when it is read costs a fraction of a tree.

/// The changes since the last call.
#[derive(Debug)]
pub(crate) struct Noted<T>(Vec<T>);

impl<T> Default for Noted<T> {
    fn default() -> Noted<T> {
        Noted(Vec::new())
    }
}

impl<T: Copy + Ord> Noted<T> {
    /// Notes one more.
    pub(crate) fn insert(&mut self, number: T) {
        if self.0.last() != Some(&number) {
            self.0.push(number);
        }
    }

    /// All that were noted, in order, each once; none is from now on.
    pub(crate) fn take(&mut self) -> Vec<T> {
        let mut all = std::mem::take(&mut self.0);
        // Events of a wide job come in the order of its nodes: the sort finds such runs.
        all.sort();
        all.dedup();
        all
    }
}

impl<T> Noted<T> {
    /// Takes the space of a list that has been read, for the next one.
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
