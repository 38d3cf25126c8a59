//! A batch: records that become durable together. One buffer holds all of them, so that filling
//! and clearing a batch over and over allocates nothing.

/// Records in the order in which they were pushed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a record.
    pub fn push(&mut self, record: &[u8]) {
        self.push_with(|bytes| bytes.extend_from_slice(record));
    }

    /// Adds a record that `encode` appends to the buffer it is given. The buffer holds earlier
    /// records: `encode` must only append.
    pub fn push_with(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        encode(&mut self.bytes);
        assert!(self.bytes.len() >= start, "encode only appends");
        self.ends.push(self.bytes.len());
    }

    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there is no record (a record may be empty, though).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Sum of the records' lengths, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all records and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The records in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let record = &self.bytes[start..end];
            start = end;
            record
        })
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for Batch {
    fn from_iter<I: IntoIterator<Item = T>>(records: I) -> Batch {
        let mut batch = Batch::new();
        for record in records {
            batch.push(record.as_ref());
        }
        batch
    }
}
