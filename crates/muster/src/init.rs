//! `muster init`: writes the configuration of a new cluster, and prints the commands to run on each host. It asks for
//! missing options at a terminal, and nowhere else.

mod nodes;
mod settings;
mod steps;

use anyhow::{Context as _, Result, bail, ensure};
use muster_conf::check_with;
use nix::unistd::{Uid, User, chown, geteuid};
use settings::{Auth, Settings};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bytes of a new key of auth/slurm.
const KEY_BYTES: usize = 1024;

/// A file that is to be written.
struct NewFile {
    path: PathBuf,
    bytes: Vec<u8>,
    mode: u32,
    /// Its owner; the caller if absent.
    owner: Option<Uid>,
}

/// Runs it.
pub(crate) fn main(words: &[String]) -> Result<ExitCode> {
    let settings = Settings::of_words(words)?;
    let files = files(&settings)?;
    refuse_to_overwrite(&settings, &files)?;
    let conf = settings.directory.join("slurm.conf");
    // As 'muster config check' looks at it, before anything is written.
    let read = |path: &Path| match files.iter().find(|file| file.path == path) {
        Some(file) => Ok(file.bytes.clone()),
        None => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let report = check_with(&conf, &read);
    if !report.is_usable() {
        complain!("{report}");
        bail!("nothing was written: the configuration would not be usable");
    }
    let mut builder = DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o755)
        .create(&settings.directory)
        .with_context(|| settings.directory.display().to_string())?;
    for file in &files {
        write(file).with_context(|| format!("cannot write {}", file.path.display()))?;
    }
    say!("{report}\n\n{}", steps::text(&settings, &files_of(&files)));
    Ok(ExitCode::SUCCESS)
}

fn files_of(files: &[NewFile]) -> Vec<&Path> {
    files.iter().map(|file| file.path.as_path()).collect()
}

/// All of them, slurm.conf first.
fn files(settings: &Settings) -> Result<Vec<NewFile>> {
    let at = |name: &str| settings.directory.join(name);
    let plain = |name: &str, text: String| NewFile {
        path: at(name),
        bytes: text.into_bytes(),
        mode: 0o644,
        owner: None,
    };
    let mut files = vec![plain("slurm.conf", settings.slurm_conf())];
    if settings.has_cgroups {
        let text = "ConstrainCores=yes\nConstrainRAMSpace=yes\nConstrainDevices=yes\n";
        files.push(plain("cgroup.conf", text.to_owned()));
    }
    if settings.auth == Auth::Slurm {
        let user = User::from_name(&settings.slurm_user).ok().flatten();
        let user = user.with_context(|| {
            format!(
                "this host has no account '{0}', whose slurm.key is to be: 'useradd --system --shell /usr/sbin/nologin {0}', or --user",
                settings.slurm_user
            )
        })?;
        let mut bytes = vec![0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(|e| anyhow::anyhow!("no random numbers: {e}"))?;
        files.push(NewFile {
            path: at("slurm.key"),
            bytes,
            mode: 0o600,
            owner: Some(user.uid).filter(|uid| *uid != geteuid()),
        });
    }
    Ok(files)
}

fn refuse_to_overwrite(settings: &Settings, files: &[NewFile]) -> Result<()> {
    // A key is never replaced: hosts that have it would be refused.
    let key = files.iter().find(|file| file.mode == 0o600);
    if let Some(key) = key.filter(|key| fs::symlink_metadata(&key.path).is_ok()) {
        bail!(
            "{} is there: move it away if hosts are to get another key",
            key.path.display()
        );
    }
    for file in files {
        ensure!(
            settings.is_forced || fs::symlink_metadata(&file.path).is_err(),
            "{} is there: --force replaces it",
            file.path.display()
        );
    }
    Ok(())
}

/// Writes a file whole, in place of an existing one.
fn write(file: &NewFile) -> io::Result<()> {
    let mut name = file.path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let _ = fs::remove_file(&new);
    let mut written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    written.write_all(&file.bytes)?;
    if let Some(uid) = file.owner {
        chown(&new, Some(uid), None)?;
    }
    written.set_permissions(fs::Permissions::from_mode(file.mode))?;
    written.sync_all()?;
    fs::rename(&new, &file.path)?;
    File::open(file.path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    fn words(dir: &Path, more: &str) -> Vec<String> {
        let text = format!("--dir {} {more}", dir.display());
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn place(name: &str) -> (PathBuf, PathBuf) {
        let dir = std::env::temp_dir().join(format!("muster-init-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let machines = dir.join("machines");
        let text = "NodeName=n1 CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=900\nUpTime=0-01:00:00\n";
        fs::write(&machines, text).unwrap();
        (dir, machines)
    }

    #[test]
    fn what_is_written_is_usable_and_overwrites_nothing() {
        let (dir, machines) = place("written");
        let own = User::from_uid(geteuid()).unwrap().unwrap().name;
        for (auth, count) in [("keys", 2), ("munge", 2), ("slurm", 3)] {
            let to = dir.join(auth);
            let more = format!(
                "--cluster c --controller ctl --user {own} --node-from {} --auth {auth} --accounting yes",
                machines.display()
            );
            let more = words(&to, &more);
            main(&more).unwrap();
            assert_eq!(fs::read_dir(&to).unwrap().count(), count, "{auth}");
            let report = muster_conf::check(&to.join("slurm.conf"));
            let said = report.to_string();
            assert!(
                said.contains("1 node, 1 partition, 0 errors, 0 warnings"),
                "{said}"
            );
            let again = main(&more).unwrap_err().to_string();
            assert!(again.contains("is there"), "{again}");
            let forced = main(&[more, vec!["--force".to_owned()]].concat());
            assert_eq!(forced.is_ok(), auth != "slurm", "a key is never replaced");
        }
        let key = fs::metadata(dir.join("slurm/slurm.key")).unwrap();
        assert_eq!((key.mode() & 0o777, key.len()), (0o600, KEY_BYTES as u64));
        fs::remove_dir_all(&dir).unwrap();
    }

    /// Standard input of tests is no terminal.
    #[test]
    fn what_is_missing_is_named_and_not_waited_for() {
        let (dir, machines) = place("missing");
        let to = dir.join("new");
        let nodes = format!("--node-from {}", machines.display());
        for (more, why) in [
            (nodes.clone(), "--cluster"),
            (format!("--cluster c {nodes}"), "--controller"),
            ("--cluster c --controller h".to_owned(), "--node-from"),
            (format!("--cluster a/b --controller h {nodes}"), "name"),
            (
                format!("--cluster c --controller h {nodes} --auth x"),
                "--auth",
            ),
            (format!("--cluster c --controller h;x {nodes}"), "host"),
            (
                format!("--cluster c --controller h {nodes} --user no-such-user --auth slurm"),
                "no account",
            ),
        ] {
            let refused = main(&words(&to, &more)).unwrap_err();
            let said = format!("{refused:#}");
            assert!(said.contains(why), "{more}: {said}");
            assert!(!to.exists(), "{more}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
