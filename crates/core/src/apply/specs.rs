//! Submissions that are equal have one specification.

use crate::state::State;
use muster_model::spec::JobSpec;
use std::collections::hash_map::Entry;
use std::sync::Arc;

impl State {
    /// The specification that a new submission has: the one that an equal submission has already, if there is one.
    pub(crate) fn share_spec(&mut self, spec: &Arc<JobSpec>) -> Arc<JobSpec> {
        match self.specs.entry(Arc::clone(spec)) {
            Entry::Occupied(mut known) => {
                *known.get_mut() += 1;
                Arc::clone(known.key())
            }
            Entry::Vacant(new) => {
                new.insert(1);
                Arc::clone(spec)
            }
        }
    }

    /// A submission that had this specification has another one now, or is gone.
    pub(crate) fn unshare_spec(&mut self, spec: &Arc<JobSpec>) {
        if let Entry::Occupied(mut known) = self.specs.entry(Arc::clone(spec)) {
            *known.get_mut() -= 1;
            if *known.get() == 0 {
                known.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> Arc<JobSpec> {
        Arc::new(JobSpec {
            name: name.to_owned(),
            ..JobSpec::default()
        })
    }

    #[test]
    fn equal_submissions_share() {
        let mut state = State::default();
        let first = state.share_spec(&spec("a"));
        let second = state.share_spec(&spec("a"));
        assert!(Arc::ptr_eq(&first, &second));
        state.unshare_spec(&first);
        assert!(Arc::ptr_eq(&first, &state.share_spec(&spec("a"))));
        state.unshare_spec(&first);
        state.unshare_spec(&second);
        assert!(state.specs.is_empty());
    }
}
