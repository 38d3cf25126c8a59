//! Finds the next place in an order of nodes that may have enough free resources, in logarithmic
//! time.

/// The maximum of free CPUs and memory over ranges of places.
#[derive(Debug)]
pub(super) struct Tree {
    /// Number of leaves, a power of two.
    leaves: usize,
    most: Vec<(u32, u64)>,
}

impl Tree {
    pub(super) fn new(len: usize) -> Tree {
        let leaves = len.next_power_of_two();
        Tree {
            leaves,
            most: vec![(0, 0); leaves * 2],
        }
    }

    pub(super) fn set(&mut self, pos: usize, value: (u32, u64)) {
        let mut at = self.leaves + pos;
        if self.most[at] == value {
            return;
        }
        self.most[at] = value;
        while at > 1 {
            at /= 2;
            let (a, b) = (self.most[at * 2], self.most[at * 2 + 1]);
            let new = (a.0.max(b.0), a.1.max(b.1));
            if self.most[at] == new {
                break;
            }
            self.most[at] = new;
        }
    }

    pub(super) fn next(&self, from: usize, cpus: u32, mib: u64) -> Option<usize> {
        if from >= self.leaves {
            return None;
        }
        // An empty or closed node is (0, 0); a request needs at least one CPU.
        let cpus = cpus.max(1);
        let enough = |at: usize| self.most[at].0 >= cpus && self.most[at].1 >= mib;
        let mut at = self.leaves + from;
        loop {
            if enough(at) {
                if at >= self.leaves {
                    return Some(at - self.leaves);
                }
                at *= 2;
                continue;
            }
            // Continues with the subtree to the right. The two maxima may come from different
            // nodes, so a subtree with enough of both may contain no node with enough of both.
            while at & 1 == 1 {
                at >>= 1;
            }
            if at == 0 {
                return None;
            }
            at += 1;
        }
    }
}
