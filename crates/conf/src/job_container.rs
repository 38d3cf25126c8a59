//! job_container.conf(5): which directories jobs have to themselves, by node.

use crate::diagnostic::{Diagnostic, Findings, Origin};
use crate::files::check_line;
use crate::keys;
use crate::load::Checker;
use crate::model::Config;
use crate::reader::{Reader, Settings};
use crate::source::{self, ReadFile};
use muster_model::hostlist;
use std::path::Path;

/// The file's name; it stands beside slurm.conf.
pub const FILE: &str = "job_container.conf";

/// A line of the file, with what the file says for all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerLine {
    /// `NodeName`, a hostlist; empty for all other nodes.
    pub nodes: String,
    /// `BasePath`; none where jobs have no directories of their own.
    pub base: Option<String>,
    /// `AutoBasePath`.
    pub auto_base: bool,
    /// `Dirs`.
    pub dirs: Vec<String>,
    /// `Shared`.
    pub shared: bool,
    /// `InitScript`.
    pub init_script: Option<String>,
    /// `CloneNSScript` and `CloneNSScript_Wait`.
    pub clone_script: (Option<String>, u32),
    /// `CloneNSEpilog` and `CloneNSEpilog_Wait`.
    pub clone_epilog: (Option<String>, u32),
}

/// Loads the file from disk.
pub fn load(path: &Path) -> (Vec<ContainerLine>, Vec<Diagnostic>) {
    load_with(path, &source::read_from_disk)
}

/// [`load`] by way of the caller's own file reader.
pub fn load_with(path: &Path, read: ReadFile<'_>) -> (Vec<ContainerLine>, Vec<Diagnostic>) {
    let mut findings = Findings::default();
    let lines = source::read_lines(path, read, &mut findings);
    let mut checker = Checker::new(&mut findings);
    let (mut of_all, mut of_nodes) = ((Settings::new(), None), Vec::new());
    for line in lines {
        let settings = check_line(&line, &keys::JOB_CONTAINER, FILE, &mut checker);
        let origin = line[0].origin.clone();
        match settings.contains_key("NodeName") {
            true => of_nodes.push((settings, origin)),
            false => {
                of_all.0.extend(settings);
                of_all.1.get_or_insert(origin);
            }
        }
    }
    let (general, first) = of_all;
    let has_base = general.contains_key("BasePath");
    let mut found = Vec::new();
    for (own, origin) in of_nodes {
        let mut settings = general.clone();
        settings.extend(own);
        found.extend(container_line(&settings, &origin, checker.findings));
    }
    if let Some(origin) = first.filter(|_| has_base || found.is_empty()) {
        found.extend(container_line(&general, &origin, checker.findings));
    }
    (found, findings.sorted())
}

fn container_line(
    settings: &Settings,
    origin: &Origin,
    findings: &mut Findings,
) -> Option<ContainerLine> {
    let reader = Reader {
        settings,
        table: &keys::JOB_CONTAINER,
    };
    let Some(base) = reader.given("BasePath") else {
        findings.error(
            origin,
            "BasePath",
            "nothing says where directories of jobs are made",
            "add BasePath=DIRECTORY, or BasePath=none for none",
        );
        return None;
    };
    let is_none = base.eq_ignore_ascii_case("none");
    let base = plain(base);
    let dirs: Vec<String> = reader.list("Dirs").iter().map(|d| plain(d)).collect();
    let mut complain = |key: &str, message: String, help: &str| {
        findings.error(origin, key, message, help);
    };
    if !is_none && !is_absolute(&base) {
        let message = format!("BasePath={base} is not an absolute path");
        complain("BasePath", message, "write it from / on, without ..");
    }
    if let Some(dir) = dirs.iter().find(|dir| !is_none && **dir == base) {
        let message = format!("BasePath={base} is one of Dirs, which jobs have otherwise");
        complain(
            "BasePath",
            message,
            &format!("use a directory beside {dir}"),
        );
    }
    for dir in &dirs {
        if !is_absolute(dir) || dir == "/" {
            let message = format!("Dirs: {dir} is not an absolute path below /");
            complain("Dirs", message, "write it from / on, without ..");
        }
        if let Some(other) = dirs.iter().find(|other| is_below(dir, other)) {
            let message = format!("Dirs: {dir} is below {other}, which a job finds empty");
            complain("Dirs", message, "remove one of the two");
        }
    }
    let mut program = |key: &'static str| {
        let path = reader.given(key).filter(|path| !path.is_empty())?;
        if !is_absolute(path) {
            let message = format!("{key}={path} is not an absolute path");
            complain(key, message, "write it from / on, without ..");
        }
        Some(path.to_owned())
    };
    let wait_s = |key: &str| reader.count(key);
    let line = ContainerLine {
        nodes: reader.given("NodeName").unwrap_or_default().to_owned(),
        auto_base: reader.is_set("AutoBasePath"),
        shared: reader.is_set("Shared"),
        init_script: program("InitScript"),
        clone_script: (program("CloneNSScript"), wait_s("CloneNSScript_Wait")),
        clone_epilog: (program("CloneNSEpilog"), wait_s("CloneNSEpilog_Wait")),
        base: (!is_none).then_some(base),
        dirs,
    };
    if let Err(e) = hostlist::parse(&line.nodes)
        && !line.nodes.is_empty()
    {
        complain("NodeName", format!("NodeName: {e}"), "");
    }
    Some(line)
}

impl Config {
    /// Whether jobs have directories of their own.
    pub fn has_job_containers(&self) -> bool {
        let is_tmpfs = |key: &str| self.text(key).is_some_and(|text| text.ends_with("tmpfs"));
        is_tmpfs("JobContainerType") || is_tmpfs("NamespaceType")
    }

    /// Directories of `Dirs` in which nodes have what their jobs must find.
    pub(crate) fn check_containers(&self, lines: &[ContainerLine], findings: &mut Findings) {
        let key = match self.raw.contains_key("NamespaceType") {
            true => "NamespaceType",
            false => "JobContainerType",
        };
        let Some(origin) = self.raw.get(key).map(|setting| setting.origin.clone()) else {
            return;
        };
        let spool = plain(&self.paths.slurmd_spool_dir);
        let conf = self.path.display().to_string();
        for (what, path) in [("SlurmdSpoolDir", &spool), ("slurm.conf", &conf)] {
            let mut dirs = lines
                .iter()
                .filter(|l| l.base.is_some())
                .flat_map(|l| &l.dirs);
            if let Some(dir) = dirs.find(|dir| is_below(path, dir) || *path == **dir) {
                let message = format!(
                    "{FILE} has {dir} in Dirs, and {what} is {path}, which jobs would not see"
                );
                findings.error(&origin, key, message, "move it, or leave that out of Dirs");
            }
        }
        if lines.is_empty() {
            let message = format!("{key} is set, and no {FILE} beside slurm.conf says a BasePath");
            findings.error(
                &origin,
                key,
                message,
                format!("write {FILE} with BasePath=DIRECTORY"),
            );
        }
    }
}

/// A path without slashes at its end.
fn plain(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" => path.to_owned(),
        path => path.to_owned(),
    }
}

fn is_absolute(path: &str) -> bool {
    path.starts_with('/') && path.split('/').all(|part| part != "..")
}

/// Whether a path is below a directory.
fn is_below(path: &str, dir: &str) -> bool {
    let rest = path.strip_prefix(dir);
    rest.is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn of(text: &str) -> (Vec<ContainerLine>, Vec<String>) {
        let read = |_: &Path| -> io::Result<Vec<u8>> { Ok(text.as_bytes().to_vec()) };
        let (lines, found) = load_with(Path::new("/etc/slurm/job_container.conf"), &read);
        let found = found.into_iter().map(|finding| finding.message);
        (lines, found.collect())
    }

    #[test]
    fn lines_of_nodes_add_to_what_is_said_for_all() {
        let (lines, found) = of(
            "AutoBasePath=true\nBasePath=/nvme/%n/ Dirs=/tmp,/var/tmp/,/dev/shm\n\
             NodeName=big[1-2] BasePath=/big InitScript=/etc/init.sh Shared=true CloneNSScript=/c CloneNSScript_Wait=3\n\
             NodeName=login BasePath=none\n",
        );
        assert_eq!(found, Vec::<String>::new());
        let [big, login, all] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert_eq!(
            (big.nodes.as_str(), big.base.as_deref()),
            ("big[1-2]", Some("/big"))
        );
        assert!(big.auto_base && big.shared && !all.shared);
        assert_eq!(big.dirs, ["/tmp", "/var/tmp", "/dev/shm"]);
        assert_eq!(big.init_script.as_deref(), Some("/etc/init.sh"));
        assert_eq!(big.clone_script, (Some("/c".to_owned()), 3));
        assert_eq!(big.clone_epilog, (None, 10));
        assert_eq!((login.nodes.as_str(), &login.base), ("login", &None));
        assert_eq!(
            (all.nodes.as_str(), all.base.as_deref()),
            ("", Some("/nvme/%n"))
        );
    }

    #[test]
    fn what_cannot_work_is_an_error() {
        for (text, wanted) in [
            ("AutoBasePath=true\n", "nothing says where"),
            ("BasePath=/tmp/\n", "is one of Dirs"),
            ("BasePath=nvme\n", "not an absolute path"),
            (
                "BasePath=/a Dirs=/tmp,/tmp/x\n",
                "Dirs: /tmp/x is below /tmp",
            ),
            (
                "BasePath=/a Dirs=/tmp,/b/../etc\n",
                "Dirs: /b/../etc is not an absolute path",
            ),
            (
                "BasePath=/a InitScript=x.sh\n",
                "InitScript=x.sh is not an absolute path",
            ),
            ("BasePath=/a NodeName=n[\n", "NodeName"),
        ] {
            let (_, found) = of(text);
            assert!(found.iter().any(|f| f.contains(wanted)), "{text}{found:?}");
        }
    }
}
