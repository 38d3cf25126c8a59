//! Specifications of jobs as they wait for the store: without what follows the part of a command line that the store keeps. A user's
//! lines of a megabyte had all that may wait, and everybody waited for the store.

use crate::change::{AccountingChange, JobRow};
use muster_model::limits::TEXT_BYTES_MAX;
use muster_model::spec::JobSpec;
use muster_model::visible_text::beginning;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// Number that is remembered before those are forgotten of which none waits.
const KNOWN_MIN: usize = 1024;

/// The cut ones, by the addresses of the whole ones: changes that shared one share it cut as well.
#[derive(Debug, Default)]
pub(crate) struct CutSpecs {
    known: HashMap<usize, CutSpec>,
    /// Number at which they are looked through next.
    full: usize,
}

#[derive(Debug)]
struct CutSpec {
    /// Its address is no other's as long as this is kept.
    _whole: Weak<JobSpec>,
    cut: Weak<JobSpec>,
}

impl CutSpecs {
    /// Cuts texts that are longer than they will be written.
    pub(crate) fn cut(&mut self, changes: &mut [AccountingChange]) {
        for row in changes.iter_mut().filter_map(row_of) {
            if row.spec.submit_line.len() > TEXT_BYTES_MAX {
                row.spec = self.cut_of(&row.spec);
            }
        }
    }

    fn cut_of(&mut self, whole: &Arc<JobSpec>) -> Arc<JobSpec> {
        let address = Arc::as_ptr(whole).addr();
        let known = self.known.get(&address);
        if let Some(cut) = known.and_then(|known| known.cut.upgrade()) {
            return cut;
        }
        if self.known.len() >= self.full.max(KNOWN_MIN) {
            self.known.retain(|_, known| known.cut.strong_count() > 0);
            self.full = 2 * self.known.len();
        }
        let cut = Arc::new(JobSpec {
            submit_line: beginning(&whole.submit_line, TEXT_BYTES_MAX).to_owned(),
            ..(**whole).clone()
        });
        let known = CutSpec {
            _whole: Arc::downgrade(whole),
            cut: Arc::downgrade(&cut),
        };
        self.known.insert(address, known);
        cut
    }
}

fn row_of(change: &mut AccountingChange) -> Option<&mut JobRow> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(line: usize) -> Arc<JobSpec> {
        Arc::new(JobSpec {
            submit_line: "x".repeat(line),
            ..JobSpec::default()
        })
    }

    #[test]
    fn what_shares_a_specification_shares_it_cut() {
        let mut specs = CutSpecs::default();
        let (whole, other) = (spec(1 << 20), spec(1 << 20));
        let first = specs.cut_of(&whole);
        assert_eq!(first.submit_line.len(), TEXT_BYTES_MAX);
        assert!(Arc::ptr_eq(&first, &specs.cut_of(&whole)));
        assert!(!Arc::ptr_eq(&first, &specs.cut_of(&other)));
        for _ in 0..10 * KNOWN_MIN {
            drop(specs.cut_of(&spec(0)));
        }
        assert!(specs.known.len() <= KNOWN_MIN);
        assert!(Arc::ptr_eq(&first, &specs.cut_of(&whole)));
    }
}
