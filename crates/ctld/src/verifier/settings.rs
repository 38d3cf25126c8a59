//! The verifiers of a site, and their bounds.

use muster_conf::grid_engine::{self, Mapping};
use muster_conf::verifier::{self, VerifierBounds};
use muster_conf::{Config, optional_text};
use muster_verifier::jsv::Site;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The kind of a verifier.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// job_submit.lua.
    Lua,
    /// `jsv_url` of sge.conf.
    Jsv(Box<Site>),
}

/// A verifier.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// Its kind.
    pub(crate) kind: Kind,
    /// Its script or program.
    pub(crate) script: PathBuf,
    /// `ClusterName`.
    pub(crate) cluster: String,
    /// Number of its processes.
    pub(crate) processes: usize,
    /// Time for one request.
    pub(crate) time_limit: Duration,
    /// Memory of a process's script.
    pub(crate) memory_bytes: u64,
    /// Requests that it fails to verify pass.
    pub(crate) passes_on_failure: bool,
}

impl Settings {
    /// The verifiers of a configuration and of the files beside it, in order. Errors of the files were found when the
    /// configuration was checked.
    ///
    /// # Errors
    /// One of the files cannot be read.
    pub(crate) fn of(config: &Config) -> io::Result<Vec<Settings>> {
        let beside = |name: &str| config.path.with_file_name(name);
        let file = beside(verifier::FILE);
        let (bounds, _) =
            VerifierBounds::parse(&optional_text(&file)?, &file.display().to_string());
        let settings = |kind, script| Settings {
            kind,
            script,
            cluster: config.cluster_name.clone(),
            processes: bounds.processes,
            time_limit: Duration::from_secs(bounds.time_limit_s),
            memory_bytes: bounds.memory_mib << 20,
            passes_on_failure: bounds.passes_on_failure,
        };
        let plugins = config.text("JobSubmitPlugins").unwrap_or_default();
        let mut words = plugins.split(',').map(str::trim);
        let is_lua = words.any(|word| word == "lua" || word == "job_submit/lua");
        let lua = is_lua.then(|| settings(Kind::Lua, beside("job_submit.lua")));
        let file = beside(grid_engine::FILE);
        let (mapping, _) = Mapping::parse(&optional_text(&file)?, &file.display().to_string());
        let jsv = mapping.jsv.clone().map(|path| {
            let gres = config.text("GresTypes").unwrap_or_default();
            let gres = gres.split(',').map(|name| name.trim().to_owned());
            let site = Site {
                mapping,
                gres: gres.filter(|name| !name.is_empty()).collect(),
            };
            settings(Kind::Jsv(Box::new(site)), PathBuf::from(path))
        });
        Ok(lua.into_iter().chain(jsv).collect())
    }

    /// Whether it sees changes of jobs, too.
    pub(crate) fn sees_changes(&self) -> bool {
        self.kind == Kind::Lua
    }

    /// Its name in the log.
    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Lua => "job_submit/lua",
            Kind::Jsv(_) => "jsv",
        }
    }
}
