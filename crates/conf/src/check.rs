//! Finding a configuration and reporting on it as a whole: `muster config check`.

mod alone;

pub use self::alone::check_alone;

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::diagnostic::{Diagnostic, Findings, Origin, Severity};
use crate::grid_engine::{self, Mapping};
use crate::job_classes::{self, JobClasses};
use crate::load::load_with;
use crate::site_options::{self, SiteOptions};
use crate::source::{ReadFile, read_from_disk};
use crate::verifier::{self, VerifierBounds};
use crate::webhooks;
use crate::{
    Config, NodeDef, SLURMD_SPOOL_DIR_BYTES_MAX, expand_path, files, job_container, topology,
};
use muster_model::mcs::{McsConfig, McsKind};

/// Where Slurm looks without `SLURM_CONF`.
pub const DEFAULT_PATH: &str = "/etc/slurm/slurm.conf";

/// Where `slurmd --conf-server` keeps what the controller gives.
pub(crate) const GIVEN_PATH: &str = "/run/slurm/conf/slurm.conf";

/// Why there is no configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// `SLURM_CONF` names a file that is not there.
    #[error("SLURM_CONF names {0}, which does not exist; correct SLURM_CONF or unset it")]
    NotThere(PathBuf),
    /// There is neither.
    #[error(
        "there is neither {DEFAULT_PATH} nor {GIVEN_PATH}, where 'slurmd --conf-server' keeps what the controller gives, and \
         SLURM_CONF is not set: set SLURM_CONF to a slurm.conf"
    )]
    Nothing,
}

/// The slurm.conf to use: that of `SLURM_CONF`, else `/etc/slurm/slurm.conf`, else what the controller has given this host.
pub fn find_config() -> Result<PathBuf, FindError> {
    find_config_in(
        std::env::var_os("SLURM_CONF").map(PathBuf::from),
        &Path::exists,
    )
}

fn find_config_in(
    named: Option<PathBuf>,
    exists: &dyn Fn(&Path) -> bool,
) -> Result<PathBuf, FindError> {
    match named.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) if exists(&path) => Ok(path),
        Some(path) => Err(FindError::NotThere(path)),
        None if exists(Path::new(DEFAULT_PATH)) => Ok(DEFAULT_PATH.into()),
        None if exists(Path::new(GIVEN_PATH)) => Ok(GIVEN_PATH.into()),
        None => Err(FindError::Nothing),
    }
}

/// Everything there is to say about a configuration.
#[derive(Debug)]
pub struct CheckReport {
    /// The configuration, as far as it could be read.
    pub config: Config,
    /// Findings in slurm.conf, then those in the files beside it.
    pub diagnostics: Vec<Diagnostic>,
}

impl CheckReport {
    /// Number of findings of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.diagnostics
            .iter()
            .filter(|d| d.severity == severity)
            .count()
    }

    /// Whether the configuration can be used.
    pub fn is_usable(&self) -> bool {
        self.count(Severity::Error) == 0
    }
}

/// One line for each finding, its help below it, and a summary at the end.
impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in &self.diagnostics {
            writeln!(f, "{diagnostic}")?;
        }
        let plural = |count: usize, word: &str| match count {
            1 => format!("1 {word}"),
            _ => format!("{count} {word}s"),
        };
        write!(
            f,
            "{}: {}, {}, {}, {}, {} without effect",
            self.config.path.display(),
            plural(self.config.nodes.len(), "node"),
            plural(self.config.partitions.len(), "partition"),
            plural(self.count(Severity::Error), "error"),
            plural(self.count(Severity::Warning), "warning"),
            plural(self.count(Severity::NoEffect), "key"),
        )
    }
}

/// Checks slurm.conf and the gres.conf, topology.conf, cgroup.conf, job_container.conf, mpi.conf, verifier.conf, sge.conf and
/// job_classes.conf beside it.
pub fn check(path: &Path) -> CheckReport {
    check_with(path, &read_from_disk)
}

/// A directory in which paths of sockets are longer than the kernel lets them be: slurmd refuses to start there.
fn long_spool_dir(config: &Config) -> Option<Diagnostic> {
    let setting = config.raw.get("SlurmdSpoolDir")?;
    let template = &config.paths.slurmd_spool_dir;
    let expand = |node: &NodeDef| expand_path(template, &node.name, &node.hostname);
    let paths = config.nodes.iter().map(expand);
    let longest = paths.max_by_key(|path| path.as_os_str().len());
    let path = longest.unwrap_or_else(|| expand_path(template, "", ""));
    let bytes = path.as_os_str().len();
    if bytes <= SLURMD_SPOOL_DIR_BYTES_MAX {
        return None;
    }
    let message = format!(
        "SlurmdSpoolDir has {bytes} bytes ({}), and at most {SLURMD_SPOOL_DIR_BYTES_MAX} leave room for names of sockets: slurmd does \
         not start",
        path.display()
    );
    let mut findings = Findings::default();
    let help = "name a shorter path, such as /var/spool/slurmd";
    findings.error(&setting.origin, "SlurmdSpoolDir", message, help);
    findings.sorted().into_iter().next()
}

/// [`check`] by way of the caller's own file reader.
pub fn check_with(path: &Path, read: ReadFile<'_>) -> CheckReport {
    let (config, mut diagnostics) = load_with(path, read);
    let directory = path.parent().unwrap_or(Path::new(""));
    diagnostics.extend(unreadable(directory, read));
    let beside = |name: &str| Some(directory.join(name)).filter(|path| read(path).is_ok());
    if let Some(path) = beside("gres.conf") {
        diagnostics.extend(files::load_gres_with(&path, read).1);
    }
    let (topologies, found) = topology::resolve(&config, read);
    if topologies.is_empty()
        && found.is_empty()
        && let Some(path) = beside("topology.conf")
    {
        diagnostics.extend(topology::load_with(&path, read).1);
    }
    diagnostics.extend(found);
    for (name, kind) in [
        ("cgroup.conf", files::PlainFile::Cgroup),
        ("mpi.conf", files::PlainFile::Mpi),
    ] {
        if let Some(path) = beside(name) {
            diagnostics.extend(files::load_flat_with(kind, &path, read).1);
        }
    }
    let file = directory.join(verifier::FILE);
    if let Ok(text) = read(&file) {
        let text = String::from_utf8_lossy(&text);
        diagnostics.extend(VerifierBounds::parse(&text, &file.display().to_string()).1);
    }
    let containers = beside(job_container::FILE).map(|path| job_container::load_with(&path, read));
    let (lines, found) = containers.unwrap_or_default();
    diagnostics.extend(found);
    diagnostics.extend(prolog_flags(&config));
    diagnostics.extend(mcs_parameters(&config));
    diagnostics.extend(long_spool_dir(&config));
    if config.has_job_containers() {
        let mut findings = Findings::default();
        config.check_containers(&lines, &mut findings);
        diagnostics.extend(findings.sorted());
    }
    let file = directory.join(grid_engine::FILE);
    if let Ok(text) = read(&file) {
        let text = String::from_utf8_lossy(&text);
        let (mapping, found) = Mapping::parse(&text, &file.display().to_string());
        // The controller runs without a line that is wrong, as only the commands that read it stop, but not where that may be the one
        // that says who verifies jobs and what may be changed afterwards.
        diagnostics.extend(found.into_iter().map(|finding| {
            let is_of_verifier = finding.key.starts_with("jsv_");
            // It may be meant to be one of those.
            let is_unknown = !grid_engine::is_keyword(&finding.key);
            let severity = match is_of_verifier || is_unknown {
                true => Severity::Error,
                false => Severity::Warning,
            };
            Diagnostic {
                severity,
                ..finding
            }
        }));
        diagnostics.extend(
            mapping.queues_without_partition(&file.display().to_string(), |name| {
                config
                    .partitions
                    .iter()
                    .any(|partition| partition.name == name)
            }),
        );
    }
    let file = directory.join(site_options::FILE);
    if let Ok(text) = read(&file) {
        let text = String::from_utf8_lossy(&text);
        diagnostics.extend(SiteOptions::parse(&text, &file.display().to_string()).1);
    }
    let file = directory.join(webhooks::FILE);
    if let Ok(text) = read(&file) {
        let text = String::from_utf8_lossy(&text);
        diagnostics.extend(webhooks::parse(&text, &file.display().to_string()).1);
    }
    let file = directory.join(job_classes::FILE);
    if let Ok(text) = read(&file) {
        let text = String::from_utf8_lossy(&text);
        let (classes, found) = JobClasses::parse(&text, &file.display().to_string());
        diagnostics.extend(found);
        let sge = read(&directory.join(grid_engine::FILE)).unwrap_or_default();
        let (mapping, _) = Mapping::parse(&String::from_utf8_lossy(&sge), grid_engine::FILE);
        diagnostics.extend(classes.check(&mapping, &config.gres_types));
    }
    CheckReport {
        config,
        diagnostics,
    }
}

/// Existing files beside slurm.conf that cannot be read: without those used by the controller, forbidden requests would
/// be allowed. The others may be root's, for slurmd.
fn unreadable(directory: &Path, read: ReadFile<'_>) -> Vec<Diagnostic> {
    let files = [
        ("gres.conf", Severity::Warning),
        ("topology.conf", Severity::Warning),
        ("cgroup.conf", Severity::Warning),
        ("mpi.conf", Severity::Warning),
        (job_container::FILE, Severity::Warning),
        (verifier::FILE, Severity::Error),
        (grid_engine::FILE, Severity::Error),
        (site_options::FILE, Severity::Error),
        (job_classes::FILE, Severity::Error),
        (webhooks::FILE, Severity::Error),
    ];
    let wrong = files.iter().filter_map(|(name, severity)| {
        let path = directory.join(name);
        let error = read(&path).err()?;
        let is_absent = [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind());
        (!is_absent).then(|| unreadable_file(&path, *severity, &error))
    });
    wrong.collect()
}

fn unreadable_file(path: &Path, severity: Severity, error: &io::Error) -> Diagnostic {
    Diagnostic {
        severity,
        origin: Origin {
            file: path.display().to_string().into(),
            line: 0,
            column: 0,
        },
        key: String::new(),
        message: format!("cannot be read: {error}"),
        help: "let the user that the daemon runs as read the file, or remove it".to_owned(),
    }
}

/// Flags of `PrologFlags` that exclude each other, as in slurm.conf(5).
fn prolog_flags(config: &Config) -> Vec<Diagnostic> {
    let mut findings = Findings::default();
    let also = ["Contain", "X11"];
    let also = also.into_iter().find(|word| config.has_prolog_flag(word));
    if let (true, Some(also), Some(setting)) = (
        config.has_prolog_flag("NoHold"),
        also,
        config.raw.get("PrologFlags"),
    ) {
        let message = format!("PrologFlags: NoHold and {also} exclude each other");
        let help = "remove one of the two";
        findings.error(&setting.origin, "PrologFlags", message, help);
    }
    findings.sorted()
}

/// `MCSParameters`, which decide with whom nodes are shared: an unknown word is an error.
fn mcs_parameters(config: &Config) -> Vec<Diagnostic> {
    let mut findings = Findings::default();
    let Some(kind) = config.mcs_kind() else {
        return findings.sorted();
    };
    let given = config.raw.get("MCSParameters");
    let plugin = config.raw.get("MCSPlugin");
    let text = given.map_or("", |setting| setting.value.as_str());
    if let (Err(why), Some(setting)) = (McsConfig::parse(kind, text), given.or(plugin)) {
        let message = format!("MCSParameters: {why}");
        let help = "see MCSParameters in slurm.conf(5)";
        findings.error(&setting.origin, "MCSParameters", message, help);
    }
    let enforced = config.text("AccountingStorageEnforce").unwrap_or("");
    let has_associations = !matches!(enforced.to_ascii_lowercase().as_str(), "" | "none" | "0");
    if let Some(setting) = plugin.filter(|_| kind == McsKind::Account && !has_associations) {
        let message =
            "any user gets the label of any account by --account, since accounts are not enforced";
        let help = "set AccountingStorageEnforce=associations";
        findings.warn(&setting.origin, "MCSPlugin", message, help);
    }
    findings.sorted()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_comes_first() {
        let all = |_: &Path| true;
        let none = |_: &Path| false;
        assert_eq!(find_config_in(Some("/a".into()), &all), Ok("/a".into()));
        assert_eq!(
            find_config_in(Some("/a".into()), &none),
            Err(FindError::NotThere("/a".into()))
        );
        assert_eq!(find_config_in(None, &all), Ok(DEFAULT_PATH.into()));
        assert_eq!(
            find_config_in(Some("".into()), &none),
            Err(FindError::Nothing)
        );
    }
}
