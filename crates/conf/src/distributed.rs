//! The files that a controller with `SlurmctldParameters=enable_configless` gives to hosts which have none: slurm.conf,
//! its included files, the files beside it, and the scripts that it names without a directory (Slurm's guide to
//! "configless").

use crate::Config;
use crate::load::load_with;
use crate::source::ReadFile;
use std::cell::RefCell;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Files that are given where they are beside slurm.conf.
const BESIDE: [&str; 16] = [
    "acct_gather.conf",
    "burst_buffer.conf",
    "cgroup.conf",
    "cli_filter.lua",
    "gres.conf",
    "helpers.conf",
    "job_container.conf",
    "mpi.conf",
    "namespace.yaml",
    "oci.conf",
    "plugstack.conf",
    "scrun.lua",
    "sge.conf",
    "site_options.conf",
    "topology.conf",
    "topology.yaml",
];
/// Keys whose value is a script that is given if it has no directory.
const SCRIPTS: [&str; 4] = ["Prolog", "Epilog", "TaskProlog", "TaskEpilog"];

/// A file for other hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistributedFile {
    /// Its path from the directory of slurm.conf on.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
    /// It is a program.
    pub is_program: bool,
}

/// Files for other hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DistributedFiles {
    /// The files, slurm.conf first.
    pub files: Vec<DistributedFile>,
    /// Files that slurm.conf includes and that other hosts cannot be given, since they are not in its directory.
    pub left_out: Vec<PathBuf>,
}

impl DistributedFiles {
    /// Reads them. Slurm.conf is called so whatever its name here is.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(conf: &Path, read: ReadFile<'_>) -> io::Result<DistributedFiles> {
        let included: RefCell<Vec<(PathBuf, Vec<u8>)>> = RefCell::default();
        let (config, _) = load_with(conf, &|path| {
            let bytes = read(path)?;
            included.borrow_mut().push((path.to_owned(), bytes.clone()));
            Ok(bytes)
        });
        let dir = conf.parent().unwrap_or(Path::new(""));
        let mut found = DistributedFiles::default();
        for (path, bytes) in included.take() {
            let name = match path == conf {
                true => Some("slurm.conf".to_owned()),
                false => path.strip_prefix(dir).ok().and_then(plain_name),
            };
            match name {
                Some(name) => found.add(name, bytes, false),
                None => found.left_out.push(path),
            }
        }
        for name in BESIDE {
            if let Ok(bytes) = read(&dir.join(name)) {
                found.add(name.to_owned(), bytes, false);
            }
        }
        let scripts = SCRIPTS.into_iter().filter_map(|key| config.text(key));
        for script in scripts.flat_map(|names| names.split(',')) {
            let script = Some(script).filter(|name| !name.contains('/'));
            let Some(name) = script.and_then(|name| plain_name(Path::new(name))) else {
                continue;
            };
            if let Ok(bytes) = read(&dir.join(&name)) {
                found.add(name, bytes, true);
            }
        }
        if found.files.is_empty() {
            // Whatever the reason was.
            read(conf)?;
        }
        Ok(found)
    }

    fn add(&mut self, name: String, bytes: Vec<u8>, is_program: bool) {
        if self.files.iter().all(|file| file.name != name) {
            self.files.push(DistributedFile {
                name,
                bytes,
                is_program,
            });
        }
    }
}

impl Config {
    /// Whether hosts without files are given this configuration (`SlurmctldParameters=enable_configless`).
    pub fn gives_configuration(&self) -> bool {
        let words = self.text("SlurmctldParameters").unwrap_or_default();
        let mut words = words.split(',').map(str::trim);
        words.any(|word| word.eq_ignore_ascii_case("enable_configless"))
    }
}

/// A path that leads to nothing outside of a directory, as text.
pub fn plain_name(path: &Path) -> Option<String> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let name = path.to_str()?;
    let plain = !name.is_empty() && path.components().all(is_plain);
    plain.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> DistributedFiles {
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            let found = found.map(|(_, text)| text.as_bytes().to_vec());
            found.ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        DistributedFiles::read(Path::new("/etc/slurm/slurm.conf"), &read).unwrap()
    }

    #[test]
    fn what_belongs_to_the_configuration_is_given() {
        let found = read(&[
            (
                "/etc/slurm/slurm.conf",
                "ClusterName=c\nInclude nodes/all.conf\nInclude /opt/site.conf\nProlog=/opt/all.d/*\nProlog=prolog.sh\n\
                 Epilog=/opt/epilog.sh\nTaskProlog=missing.sh\n",
            ),
            ("/etc/slurm/nodes/all.conf", "NodeName=n1\n"),
            ("/opt/site.conf", "# of the site\n"),
            ("/opt/epilog.sh", "#!/bin/sh\n"),
            ("/etc/slurm/prolog.sh", "#!/bin/sh\n"),
            ("/etc/slurm/gres.conf", "# none\n"),
            ("/etc/slurm/slurmdbd.conf", "StoragePass=secret\n"),
            ("/etc/slurm/slurm.key", "secret"),
        ]);
        let names: Vec<(&str, bool)> = (found.files.iter())
            .map(|file| (file.name.as_str(), file.is_program))
            .collect();
        let expected = [
            ("slurm.conf", false),
            ("nodes/all.conf", false),
            ("gres.conf", false),
            ("prolog.sh", true),
        ];
        assert_eq!(names, expected);
        assert_eq!(found.left_out, [Path::new("/opt/site.conf")]);
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        for name in ["../x", "/etc/passwd", "a/../../b", "", "."] {
            assert_eq!(plain_name(Path::new(name)), None, "{name}");
        }
        assert_eq!(plain_name(Path::new("a/b")).as_deref(), Some("a/b"));
    }
}
