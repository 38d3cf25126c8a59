//! Failed launches: how often they are retried, and whether the failure is the node's fault.

use super::records::Fault;

/// Wait before something is tried again that was lacking.
pub(super) const RETRY_MS: u64 = 1000;
/// Most retries, before it fails.
pub(super) const TRIES_MAX: u32 = 60;

/// Why a launch failed before anything of it began.
pub(super) struct LaunchRefusal {
    pub(super) error: String,
    pub(super) fault: Fault,
}

impl LaunchRefusal {
    pub(super) fn of_job(error: impl Into<String>) -> LaunchRefusal {
        LaunchRefusal {
            error: error.into(),
            fault: Fault::Job,
        }
    }

    pub(super) fn of_node(error: impl Into<String>) -> LaunchRefusal {
        LaunchRefusal {
            error: error.into(),
            fault: Fault::Node,
        }
    }
}

/// Party at fault if a launch that is none of its job's has failed.
pub(super) fn fault_of(is_temporary: bool) -> Fault {
    match is_temporary {
        true => Fault::Lack,
        false => Fault::Node,
    }
}
