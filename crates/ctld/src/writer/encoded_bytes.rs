//! Encoded length of a value, without encoding it.

use std::convert::Infallible;

/// The length of something that is not encoded.
pub(super) fn encoded_bytes(value: &impl minicbor::Encode<()>) -> u64 {
    let mut counter = Counter(0);
    match minicbor::encode(value, &mut counter) {
        Ok(()) => counter.0,
        Err(_) => unreachable!("counting cannot fail"),
    }
}

/// Counts the bytes that are written.
struct Counter(u64);

impl minicbor::encode::Write for Counter {
    type Error = Infallible;

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        self.0 += bytes.len() as u64;
        Ok(())
    }
}
