//! A queue of output bytes. Data for many receivers, such as input for all tasks of a step, is
//! shared among their queues: a frame of it may have 64 MiB.

use std::collections::VecDeque;
use std::rc::Rc;

/// Shorter data is copied: a list of many small pieces would cost more memory than its contents.
const SHARED_LEAST: usize = 64 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SharedQueue {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that were already taken.
    taken: usize,
    length: usize,
}

#[derive(Debug)]
enum Piece {
    Own(Vec<u8>),
    Shared(Rc<Vec<u8>>),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Own(bytes) => bytes,
            Piece::Shared(bytes) => bytes,
        }
    }
}

impl SharedQueue {
    /// Number of queued bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Whether the queue is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Adds bytes; shares them if they are many.
    pub(crate) fn push(&mut self, bytes: &Rc<Vec<u8>>) {
        if bytes.len() < SHARED_LEAST {
            return self.push_copy(bytes);
        }
        self.length += bytes.len();
        self.pieces.push_back(Piece::Shared(Rc::clone(bytes)));
    }

    /// Adds a copy of bytes.
    pub(crate) fn push_copy(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.length += bytes.len();
        match self.pieces.back_mut() {
            Some(Piece::Own(last)) if last.len() < SHARED_LEAST => last.extend_from_slice(bytes),
            _ => self.pieces.push_back(Piece::Own(bytes.to_vec())),
        }
    }

    /// The first queued bytes; `None` if the queue is empty.
    pub(crate) fn front(&self) -> &[u8] {
        let first = self.pieces.front().map_or(&[][..], Piece::bytes);
        first.get(self.taken..).unwrap_or_default()
    }

    /// Removes that many bytes of [the first](SharedQueue::front).
    pub(crate) fn advance(&mut self, count: usize) {
        let count = count.min(self.front().len());
        (self.taken, self.length) = (self.taken + count, self.length - count);
        if self.front().is_empty() {
            self.pieces.pop_front();
            self.taken = 0;
        }
    }

    /// Empties the queue.
    pub(crate) fn clear(&mut self) {
        *self = SharedQueue::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_of(queue: &mut SharedQueue) -> Vec<u8> {
        let mut all = Vec::new();
        while !queue.is_empty() {
            let front = queue.front();
            let part = &front[..front.len().min(1000)];
            all.extend_from_slice(part);
            queue.advance(part.len());
        }
        all
    }

    #[test]
    fn what_goes_to_many_is_there_once_and_small_pieces_are_joined() {
        let large = Rc::new(vec![7; SHARED_LEAST]);
        let small = Rc::new(vec![8; 3]);
        let mut queues: Vec<SharedQueue> = (0..64).map(|_| SharedQueue::default()).collect();
        for queue in &mut queues {
            for bytes in [&small, &large, &small, &small] {
                queue.push(bytes);
            }
            assert_eq!(queue.pieces.len(), 3);
        }
        assert_eq!(Rc::strong_count(&large), 65);
        assert_eq!(Rc::strong_count(&small), 1);
        let expected = [&small[..], &large, &small, &small].concat();
        for mut queue in queues {
            assert_eq!(queue.len(), expected.len());
            assert_eq!(all_of(&mut queue), expected);
            assert!(queue.pieces.is_empty() && queue.front().is_empty());
        }
        assert_eq!(Rc::strong_count(&large), 1);
    }

    /// A queue from which a receiver slowly takes data, while a sender adds to it at the same rate, does not retain
    /// data that was taken.
    #[test]
    fn pieces_that_were_taken_go() {
        let mut queue = SharedQueue::default();
        for _ in 0..1000 {
            queue.push_copy(&[1; 1000]);
            queue.push_copy(&[2; 1000]);
            queue.advance(2000);
            queue.push_copy(&[]);
        }
        let kept: usize = queue.pieces.iter().map(|piece| piece.bytes().len()).sum();
        assert!(kept <= queue.len() + 2 * SHARED_LEAST, "{kept} bytes");
    }
}
