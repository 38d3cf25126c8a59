//! A configuration was read.

use super::draft::Draft;
use crate::config::ClusterConfig;
use crate::event::Event;
use std::sync::Arc;

/// Takes it over, unless it is what is in force already.
pub(super) fn configure(draft: &mut Draft<'_>, config: &Arc<ClusterConfig>) {
    let state = draft.state;
    let same = state.config.as_ref().is_some_and(|known| known == config);
    if same && state.partitions == config.partitions {
        return;
    }
    let at = draft.now;
    draft.emit(Event::Configured {
        config: config.clone(),
        at,
    });
}
