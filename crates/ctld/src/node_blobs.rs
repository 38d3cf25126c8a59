//! Which scripts and environments a node's launcher has from the controller, for jobs that share them, and which it is to
//! drop. It bounds everything that users send: in bytes for all users, and for each.

use muster_model::ids::BlobId;
use std::collections::{HashMap, HashSet, VecDeque};

/// Blobs that a launcher keeps.
const PIECES_MAX: usize = 256;
/// Bytes that a launcher keeps of them, of all users.
const BYTES_MAX: usize = 64 << 20;
/// Bytes that it keeps of the jobs of one user: the largest script with the largest environment that is usual.
const BYTES_OF_USER: usize = 16 << 20;

/// A blob that was sent.
#[derive(Clone, Copy, Debug)]
struct SentBlob {
    id: BlobId,
    user: u32,
    bytes: usize,
}

/// Blobs that a launcher has, oldest first.
#[derive(Debug, Default)]
pub(crate) struct SentBlobs {
    blobs: VecDeque<SentBlob>,
    ids: HashSet<BlobId>,
    bytes: usize,
    /// Bytes by the user whose job had them sent.
    of_users: HashMap<u32, usize>,
}

impl SentBlobs {
    /// A job of the user needs the blob. Returns whether it is to be sent.
    pub(crate) fn insert(&mut self, id: BlobId, user: u32, bytes: usize) -> bool {
        if !self.ids.insert(id) {
            return false;
        }
        self.blobs.push_back(SentBlob { id, user, bytes });
        self.bytes += bytes;
        *self.of_users.entry(user).or_default() += bytes;
        true
    }

    /// Removes the excess, the oldest first, of users who have more than their share before that of others.
    pub(crate) fn take_excess(&mut self) -> Vec<BlobId> {
        let mut excess = Vec::new();
        let over = |bytes: &usize| *bytes > BYTES_OF_USER;
        if self.of_users.values().any(over) {
            for sent in std::mem::take(&mut self.blobs) {
                match self.of_users.get(&sent.user).is_some_and(over) {
                    true => excess.push(self.dropped(sent)),
                    false => self.blobs.push_back(sent),
                }
            }
        }
        while (self.bytes > BYTES_MAX || self.blobs.len() > PIECES_MAX)
            && let Some(sent) = self.blobs.pop_front()
        {
            excess.push(self.dropped(sent));
        }
        excess
    }

    fn dropped(&mut self, SentBlob { id, user, bytes }: SentBlob) -> BlobId {
        self.ids.remove(&id);
        self.bytes -= bytes;
        if let Some(of_user) = self.of_users.get_mut(&user) {
            *of_user -= bytes;
            if *of_user == 0 {
                self.of_users.remove(&user);
            }
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> BlobId {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&number.to_be_bytes());
        BlobId(id)
    }

    #[test]
    fn a_users_blobs_are_bounded_in_bytes_and_leave_those_of_others() {
        const SIZE: usize = 7 << 20;
        let mut sent = SentBlobs::default();
        assert!(sent.insert(id(1000), 2, 4096));
        assert!(sent.take_excess().is_empty());
        let mut dropped = Vec::new();
        for number in 0..41 {
            assert!(sent.insert(id(number), 1, SIZE));
            dropped.extend(sent.take_excess());
            assert!(sent.of_users[&1] <= BYTES_OF_USER);
        }
        assert_eq!(dropped, (0..39).map(id).collect::<Vec<_>>());
        assert!(!sent.insert(id(1000), 2, 4096), "it is there still");
        assert!(sent.insert(id(0), 1, SIZE), "it is sent again");
        // More than the share of a user by itself goes at once.
        assert!(sent.insert(id(500), 3, BYTES_OF_USER + 1));
        assert!(sent.take_excess().contains(&id(500)));
    }

    #[test]
    fn blobs_of_all_users_are_bounded() {
        let mut sent = SentBlobs::default();
        for number in 0..1000 {
            sent.insert(id(number), u32::try_from(number).unwrap(), 1 << 20);
            sent.take_excess();
            assert!(sent.bytes <= BYTES_MAX && sent.ids.len() == sent.blobs.len());
        }
        assert_eq!(sent.blobs.len(), 64);
        for number in 1000..2000 {
            sent.insert(id(number), 1, 10);
            sent.take_excess();
        }
        assert_eq!(sent.blobs.len(), PIECES_MAX);
    }
}
