//! What verifiers a site has, and within what bounds they run.

use muster_conf::Config;
use muster_conf::verifier;
use std::path::PathBuf;
use std::time::Duration;

/// A verifier.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// job_submit.lua.
    pub(crate) script: PathBuf,
    /// `ClusterName`.
    pub(crate) cluster: String,
    /// How many processes it has.
    pub(crate) processes: usize,
    /// Time for one request.
    pub(crate) time_limit: Duration,
    /// Memory of a process's script.
    pub(crate) memory_bytes: u64,
    /// What it does not come to an end with passes.
    pub(crate) passes_on_failure: bool,
}

impl Settings {
    /// Those of a configuration, if it has a verifier.
    pub(crate) fn of(config: &Config, bounds: &verifier::Bounds) -> Option<Settings> {
        let plugins = config.text("JobSubmitPlugins").unwrap_or_default();
        let mut words = plugins.split(',').map(str::trim);
        let is_lua = |word: &str| word == "lua" || word == "job_submit/lua";
        words.any(is_lua).then(|| Settings {
            script: config.path.with_file_name("job_submit.lua"),
            cluster: config.cluster_name.clone(),
            processes: bounds.processes,
            time_limit: Duration::from_secs(bounds.time_limit_s),
            memory_bytes: bounds.memory_mib << 20,
            passes_on_failure: bounds.passes_on_failure,
        })
    }

    /// What the log calls it.
    pub(crate) fn name(&self) -> &'static str {
        "job_submit/lua"
    }
}
