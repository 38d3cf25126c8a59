//! About how many bytes changes hold. Specifications and allocations are shared by changes of one job, and of the tasks of an array:
//! each counts once.

use crate::change::{AccountingChange, JobRow};
use muster_core::event::spec_bytes;
use muster_model::job::Allocation;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of a change beside its texts.
const FIXED_BYTES: usize = 512;
/// Bytes of an allocation's node beside the names of its devices.
const NODE_BYTES: usize = 256;

/// Bytes of some changes.
#[derive(Debug, Default)]
pub(crate) struct HeldBytes {
    total: usize,
    /// Parts that several changes share, by address.
    shared: HashMap<usize, SharedPart>,
}

/// A part that several changes share.
#[derive(Debug)]
struct SharedPart {
    /// Number of its holders.
    count: usize,
    bytes: usize,
}

impl HeldBytes {
    /// All of them.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    pub(crate) fn add(&mut self, changes: &[AccountingChange]) {
        for change in changes {
            self.total += own_bytes(change);
            if let AccountingChange::Text { bytes, .. } = change {
                self.share(address(bytes), || bytes.len());
            }
            let Some(row) = row_of(change) else { continue };
            self.share(address(&row.spec), || {
                usize::try_from(spec_bytes(&row.spec)).unwrap_or(usize::MAX)
            });
            if let Some(alloc) = &row.alloc {
                self.share(address(alloc), || alloc_bytes(alloc));
            }
        }
    }

    /// These were added before.
    pub(crate) fn remove(&mut self, changes: &[AccountingChange]) {
        for change in changes {
            self.total = self.total.saturating_sub(own_bytes(change));
            if let AccountingChange::Text { bytes, .. } = change {
                self.unshare(address(bytes));
            }
            let Some(row) = row_of(change) else { continue };
            let shared = [Some(address(&row.spec)), row.alloc.as_ref().map(address)];
            for address in shared.into_iter().flatten() {
                self.unshare(address);
            }
        }
    }

    fn share(&mut self, address: usize, bytes: impl FnOnce() -> usize) {
        let part = self.shared.entry(address).or_insert_with(|| {
            let bytes = bytes();
            self.total = self.total.saturating_add(bytes);
            SharedPart { count: 0, bytes }
        });
        part.count += 1;
    }

    fn unshare(&mut self, address: usize) {
        let Some(part) = self.shared.get_mut(&address) else {
            return;
        };
        part.count -= 1;
        if part.count == 0 {
            self.total = self.total.saturating_sub(part.bytes);
            self.shared.remove(&address);
        }
    }
}

fn address<T>(shared: &Arc<T>) -> usize {
    Arc::as_ptr(shared).addr()
}

fn alloc_bytes(alloc: &Allocation) -> usize {
    alloc.hostlist.len() + alloc.nodes.len() * NODE_BYTES
}

fn row_of(change: &AccountingChange) -> Option<&JobRow> {
    match change {
        AccountingChange::Job(row) | AccountingChange::Run(row) | AccountingChange::Fresh(row) => {
            Some(row)
        }
        AccountingChange::Resized { next, .. } => Some(next),
        AccountingChange::Text { .. }
        | AccountingChange::StepStarted { .. }
        | AccountingChange::StepEnded { .. }
        | AccountingChange::Suspended { .. }
        | AccountingChange::Resumed { .. }
        | AccountingChange::Node(_)
        | AccountingChange::Reservation(_)
        | AccountingChange::Transaction { .. }
        | AccountingChange::JobNoted { .. }
        | AccountingChange::Storage { .. } => None,
    }
}

/// Bytes of a change without its shared parts.
fn own_bytes(change: &AccountingChange) -> usize {
    let texts = match change {
        AccountingChange::StepStarted { step, .. } => {
            step.submit_line.len() + step.hostlist.len() + step.name.len()
        }
        AccountingChange::Node(now) => now.reason.as_ref().map_or(0, |reason| reason.text.len()),
        AccountingChange::Reservation(now) => now.set.as_ref().map_or(0, |set| {
            set.nodes.len() + set.users.len() + set.accounts.len()
        }),
        AccountingChange::Transaction { transaction, .. } => {
            let names = transaction.users.iter().chain(&transaction.accounts);
            let names = names.map(|name| name.len() + size_of::<String>());
            transaction.target.len() + transaction.info.len() + names.sum::<usize>()
        }
        AccountingChange::JobNoted { note, .. } => {
            let texts = [&note.comment, &note.admin_comment, &note.wckey];
            texts.into_iter().flatten().map(String::len).sum()
        }
        AccountingChange::Storage { name, scan } => {
            let users = scan.users.iter();
            let users = users.map(|user| size_of_val(user) + user.user.len());
            name.len() + scan.path.len() + users.sum::<usize>()
        }
        AccountingChange::Job(_)
        | AccountingChange::Run(_)
        | AccountingChange::Fresh(_)
        | AccountingChange::Text { .. }
        | AccountingChange::Resized { .. }
        | AccountingChange::StepEnded { .. }
        | AccountingChange::Suspended { .. }
        | AccountingChange::Resumed { .. } => 0,
    };
    FIXED_BYTES + texts
}
