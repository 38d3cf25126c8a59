//! Operations of the API at a path, as its description (OpenAPI) lists them.

use super::http::Method;

/// The first part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Area {
    /// `/slurm/`: the queue and the machines.
    Slurm,
    /// `/slurmdb/`: accounting.
    Slurmdb,
    /// `/util/`: lists of hosts.
    Util,
    /// `/metrics`: text for Prometheus, without a version.
    Metrics,
    /// `/muster/v1/`: what only Muster has.
    Muster,
}

/// Operation of a method at a path.
pub(super) struct RestOperation {
    pub(super) method: Method,
    pub(super) area: Area,
    /// The path behind the version; a name in braces is any one part.
    pub(super) path: &'static str,
    /// Minor number of the first version that has it, as the releases of Slurm do.
    pub(super) since: u32,
    /// The call of Slurm's library that errors name as their source.
    pub(super) call: &'static str,
    /// Its effect, for the description.
    pub(super) summary: &'static str,
    /// Parameters of the query, for the description.
    pub(super) parameters: &'static [&'static str],
    /// The schema of the body, if it takes one.
    pub(super) body: Option<&'static str>,
    /// The schema of the answer.
    pub(super) response: &'static str,
}

/// The operation that the path of a request names.
pub(super) struct Target {
    pub(super) operation: &'static RestOperation,
    /// Minor number of the version in the path.
    pub(super) version: u32,
    /// Parts of the path where that of the operation has braces.
    pub(super) names: Vec<String>,
}
