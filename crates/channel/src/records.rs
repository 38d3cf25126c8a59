//! Records of a channel once keys are agreed: of bounded length, each sealed with its number, so that none can be read,
//! changed, repeated, left out or cut off unnoticed.

use snow::StatelessTransportState;
use std::sync::Arc;

/// Bytes of the seal of a record.
const SEAL: usize = 16;
/// Bytes that one record carries: who receives them keeps them until they are all there.
const CARRIED_MAX: usize = 32 << 10;
/// Bytes of a record behind its length.
pub const RECORD_BYTES_MAX: usize = CARRIED_MAX + SEAL;

/// Why a channel cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A record that the other side has not sent, or not as the next.
    #[error("received data were modified")]
    Changed,
    /// So many records were never sent.
    #[error("the channel is used up")]
    Exhausted,
    /// Bytes after the end that the other side has set.
    #[error("more came after the end")]
    AfterEnd,
}

/// The direction that goes out.
pub struct Sealer {
    keys: Arc<StatelessTransportState>,
    number: u64,
}

impl Sealer {
    pub(crate) fn new(keys: Arc<StatelessTransportState>) -> Sealer {
        Sealer { keys, number: 0 }
    }

    /// Seals bytes, and adds them to what goes over the network.
    ///
    /// # Errors
    /// [`RecordError::Exhausted`].
    pub fn seal(&mut self, bytes: &[u8], sealed: &mut Vec<u8>) -> Result<(), RecordError> {
        for carried in bytes.chunks(CARRIED_MAX) {
            self.record(carried, sealed)?;
        }
        Ok(())
    }

    /// Seals the end of the stream, by which the peer detects truncation.
    ///
    /// # Errors
    /// [`RecordError::Exhausted`].
    pub fn seal_end(&mut self, sealed: &mut Vec<u8>) -> Result<(), RecordError> {
        self.record(&[], sealed)
    }

    fn record(&mut self, carried: &[u8], sealed: &mut Vec<u8>) -> Result<(), RecordError> {
        let length = carried.len() + SEAL;
        sealed.extend((length as u16).to_be_bytes());
        let start = sealed.len();
        sealed.resize(start + length, 0);
        self.keys
            .write_message(self.number, carried, &mut sealed[start..])
            .map_err(|_| RecordError::Exhausted)?;
        self.number = self.number.checked_add(1).ok_or(RecordError::Exhausted)?;
        Ok(())
    }
}

/// The direction that comes in.
pub struct Unsealer {
    keys: Arc<StatelessTransportState>,
    number: u64,
    /// Received bytes, and how many of them were opened.
    bytes: Vec<u8>,
    opened: usize,
    ended: bool,
}

impl Unsealer {
    pub(crate) fn new(keys: Arc<StatelessTransportState>) -> Unsealer {
        Unsealer {
            keys,
            number: 0,
            bytes: Vec::new(),
            opened: 0,
            ended: false,
        }
    }

    /// Takes received bytes. A caller that opens all whole records before it takes more keeps this bounded by one record and the
    /// last bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.drop_opened();
        self.bytes.extend(bytes);
    }

    /// Bytes that are kept: of a record that has not come whole, once all others were opened.
    pub fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Nothing is kept while nothing happens, and of a part of a record no more than it has.
    fn drop_opened(&mut self) {
        if self.opened > 0 {
            self.bytes = self.bytes[self.opened..].to_vec();
            self.opened = 0;
        }
    }

    /// Opens the next record that has come whole, and adds its contents. Returns whether there was one.
    ///
    /// # Errors
    /// The channel is broken.
    pub fn open_next(&mut self, plain: &mut Vec<u8>) -> Result<bool, RecordError> {
        let is_whole = self.open_whole(plain)?;
        if !is_whole {
            self.drop_opened();
        }
        Ok(is_whole)
    }

    fn open_whole(&mut self, plain: &mut Vec<u8>) -> Result<bool, RecordError> {
        let rest = &self.bytes[self.opened..];
        if self.ended && !rest.is_empty() {
            return Err(RecordError::AfterEnd);
        }
        let Some((length, rest)) = rest.split_first_chunk::<2>() else {
            return Ok(false);
        };
        let length = usize::from(u16::from_be_bytes(*length));
        if !(SEAL..=RECORD_BYTES_MAX).contains(&length) {
            return Err(RecordError::Changed);
        }
        let Some(record) = rest.get(..length) else {
            return Ok(false);
        };
        let start = plain.len();
        // The cipher wants room for the seal as well.
        plain.resize(start + length, 0);
        let read = self
            .keys
            .read_message(self.number, record, &mut plain[start..]);
        let carried = read.as_ref().map_or(0, |carried| *carried);
        plain.truncate(start + carried);
        read.map_err(|_| RecordError::Changed)?;
        self.number = self.number.checked_add(1).ok_or(RecordError::Exhausted)?;
        self.opened += 2 + length;
        self.ended = carried == 0;
        Ok(true)
    }

    /// Whether the other side has set the end. A connection that ends without was cut.
    pub fn has_ended(&self) -> bool {
        self.ended
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealer at {}", self.number)
    }
}

impl std::fmt::Debug for Unsealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opener at {}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::{Channel, Initiator, Responder};
    use crate::opening::{Opening, Scheme};

    fn pair() -> (Channel, Channel) {
        let secret = [3; 32];
        let (mut client, bytes) = Initiator::begin(Scheme::Job, b"7", &secret, b"").unwrap();
        let opening = Opening::decode(&bytes).unwrap().unwrap();
        let (answer, mut far) = Responder::accept(&opening, &secret)
            .and_then(|(server, _)| server.answer(b""))
            .unwrap();
        let near = client.finish(&answer).unwrap().unwrap();
        assert!(far.confirm(&near.confirmation).unwrap());
        (near.channel, far.into_channel())
    }

    fn open_all(opener: &mut Unsealer, bytes: &[u8]) -> Result<Vec<u8>, RecordError> {
        let mut plain = Vec::new();
        opener.push(bytes);
        while opener.open_next(&mut plain)? {}
        Ok(plain)
    }

    #[test]
    fn records_come_once_and_in_order() {
        let (mut near, mut far) = pair();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        near.sealer.seal(b"one", &mut first).unwrap();
        near.sealer.seal(b"two", &mut second).unwrap();
        assert_eq!(open_all(&mut far.opener, &first).unwrap(), b"one");
        assert_eq!(open_all(&mut far.opener, &first), Err(RecordError::Changed));
        let (mut near, mut far) = pair();
        near.sealer.seal(b"one", &mut Vec::new()).unwrap();
        let mut second = Vec::new();
        near.sealer.seal(b"two", &mut second).unwrap();
        assert_eq!(
            open_all(&mut far.opener, &second),
            Err(RecordError::Changed)
        );
    }

    #[test]
    fn nothing_can_be_changed_or_sent_back() {
        let (mut near, mut far) = pair();
        let mut sealed = Vec::new();
        near.sealer.seal(b"text", &mut sealed).unwrap();
        // The keys of both directions differ.
        assert_eq!(
            open_all(&mut near.opener, &sealed),
            Err(RecordError::Changed)
        );
        let last = sealed.len() - 1;
        sealed[last] ^= 1;
        assert_eq!(
            open_all(&mut far.opener, &sealed),
            Err(RecordError::Changed)
        );
        let (_, mut far) = pair();
        assert_eq!(
            open_all(&mut far.opener, &[0, 3, 1, 2, 3]),
            Err(RecordError::Changed)
        );
    }

    /// Records of 64 KiB were kept until they were whole, though nobody sends such.
    #[test]
    fn no_more_is_kept_than_the_part_of_a_record_that_is_sent() {
        let (mut near, mut far) = pair();
        let mut sealed = Vec::new();
        near.sealer.seal(&[7; 100_000], &mut sealed).unwrap();
        let parts: Vec<&[u8]> = sealed.chunks(10_000).collect();
        let mut read = 0;
        for part in parts {
            read += open_all(&mut far.opener, part).unwrap().len();
            assert!(far.opener.held() <= 2 * RECORD_BYTES_MAX);
        }
        assert_eq!((read, far.opener.held()), (100_000, 0));
        let mut more = Vec::new();
        near.sealer.seal(b"one", &mut more).unwrap();
        near.sealer.seal(b"two", &mut more).unwrap();
        more.pop();
        assert_eq!(open_all(&mut far.opener, &more).unwrap(), b"one");
        assert_eq!(far.opener.held(), 2 + SEAL + 2);
        let longest = u16::try_from(RECORD_BYTES_MAX).unwrap();
        let (_, mut far) = pair();
        assert_eq!(
            open_all(&mut far.opener, &longest.to_be_bytes()),
            Ok(vec![])
        );
        let (_, mut far) = pair();
        let longer = (longest + 1).to_be_bytes();
        assert_eq!(
            open_all(&mut far.opener, &longer),
            Err(RecordError::Changed)
        );
    }

    #[test]
    fn an_end_and_a_cut_differ() {
        let (mut near, mut far) = pair();
        let mut sealed = Vec::new();
        near.sealer.seal(b"text", &mut sealed).unwrap();
        open_all(&mut far.opener, &sealed).unwrap();
        assert!(!far.opener.has_ended());
        let mut end = Vec::new();
        near.sealer.seal_end(&mut end).unwrap();
        assert_eq!(open_all(&mut far.opener, &end).unwrap(), b"");
        assert!(far.opener.has_ended());
        assert_eq!(open_all(&mut far.opener, b"x"), Err(RecordError::AfterEnd));
    }
}
