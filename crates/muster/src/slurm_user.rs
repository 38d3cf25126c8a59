//! The change from root to `SlurmUser` when the controller starts (slurm.conf(5), `SlurmUser`). What only root can make is
//! made before it: directories and files in places that belong to root. Everything else, the log included, is opened after it.

use crate::daemon::lock_path;
use anyhow::{Context, Result, ensure};
use muster_conf::endpoint::controller_socket;
use muster_conf::{Config, Diagnostic, Severity};
use muster_node::only_root_leads_to;
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, User, fchown, geteuid, initgroups, setresgid, setresuid};
use std::ffi::CString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Makes what the controller needs from root, then gives up root for `SlurmUser`, for good. From then on the process
/// leaves no core file and cannot be traced by others of that user, since it holds the cluster's secrets.
///
/// # Errors
/// When there is no such account, when the process is neither root's nor that user's, or when a directory belongs to
/// somebody else.
pub(crate) fn assume(config: &Config, log: Option<&Path>) -> Result<()> {
    let user = find(&config.slurm_user)?;
    if geteuid().is_root() {
        if !user.uid.is_root() {
            prepare(config, log, &user)?;
            drop_root(&user)?;
        }
    } else {
        ensure!(
            geteuid() == user.uid,
            "SlurmUser={}, but this process runs as uid {}: start slurmctld as root or as that user",
            config.slurm_user,
            geteuid()
        );
    }
    prctl::set_dumpable(false).context("cannot protect the controller's memory")
}

/// Findings of `muster config check` about a `SlurmUser` and a `SlurmdUser` that have no account here. The file may be for another
/// host.
pub(crate) fn check_accounts(config: &Config) -> Vec<Diagnostic> {
    let daemons = [
        ("SlurmUser", "slurmctld", "the controller's host"),
        ("SlurmdUser", "slurmd", "each node"),
    ];
    let missing = daemons.into_iter().filter_map(|(key, daemon, host)| {
        let setting = config.raw.get(key)?;
        let name = &setting.value;
        matches!(look_up(name), Ok(None)).then(|| Diagnostic {
            severity: Severity::Warning,
            origin: setting.origin.clone(),
            key: key.to_owned(),
            message: format!(
                "{key}={name}: this host has no such account; {daemon} would not start here"
            ),
            help: format!("make the account on {host}, or name another"),
        })
    });
    missing.collect()
}

fn look_up(name: &str) -> nix::Result<Option<User>> {
    match name.parse() {
        Ok(uid) => User::from_uid(Uid::from_raw(uid)),
        Err(_) => User::from_name(name),
    }
}

fn find(name: &str) -> Result<User> {
    let found = look_up(name);
    let found = found.with_context(|| format!("SlurmUser={name} cannot be looked up"))?;
    found.with_context(|| {
        format!("SlurmUser={name}: this host has no such account; make it, or name another in slurm.conf")
    })
}

fn prepare(config: &Config, log: Option<&Path>, user: &User) -> Result<()> {
    own_directory(&config.paths.state_save_location, 0o700, user)
        .context("StateSaveLocation cannot be used")?;
    let pid_file = &config.paths.slurmctld_pid_file;
    let socket = controller_socket(pid_file, *config.slurmctld_ports.start());
    if let Some(dir) = socket.parent() {
        own_directory(dir, 0o755, user).context("the controller's socket cannot be made")?;
    }
    for file in [pid_file.as_path(), &lock_path(pid_file)] {
        own_file(file, user).context("SlurmctldPidFile cannot be used")?;
    }
    match log {
        Some(log) => own_file(log, user).context("SlurmctldLogFile cannot be used"),
        None => Ok(()),
    }
}

/// Sees to a directory of the user's. One that is there already is taken if it is the user's, or root's and empty. Where others
/// than root could have put a link on the way to it, root makes and gives away nothing: the user makes it, later.
fn own_directory(path: &Path, mode: u32, user: &User) -> Result<()> {
    if !only_root_leads_to(path).with_context(|| format!("cannot look at {}", path.display()))? {
        return check_owner(path, user);
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => {
            return Err(e).with_context(|| format!("cannot create {}", path.display()));
        }
        _ => {}
    }
    let dir = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let is_empty = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    if dir.metadata()?.uid() != 0 || !is_empty() {
        return check_owner(path, user);
    }
    fchown(&dir, Some(user.uid), Some(user.gid))
        .with_context(|| format!("cannot give {} to {}", path.display(), user.name))
}

/// Refuses a directory that is there and somebody else's.
fn check_owner(path: &Path, user: &User) -> Result<()> {
    let owner = match fs::metadata(path) {
        Ok(found) => found.uid(),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e).with_context(|| format!("cannot look at {}", path.display())),
    };
    ensure!(
        owner == user.uid.as_raw(),
        "{} belongs to uid {owner}, and SlurmUser is {}: 'chown -R {} {}' gives it to that user",
        path.display(),
        user.name,
        user.name,
        path.display()
    );
    Ok(())
}

/// Sees to a file that the user writes, where only root can make one. In other directories the user makes it, later: there,
/// root could be led to a file of somebody else.
pub(crate) fn own_file(path: &Path, user: &User) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let roots =
        only_root_leads_to(dir).with_context(|| format!("cannot look at {}", dir.display()))?;
    if !roots {
        return Ok(());
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let place = fs::metadata(dir).with_context(|| dir.display().to_string())?;
    if place.uid() != 0 || place.mode() & 0o022 != 0 {
        return Ok(());
    }
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    ensure!(
        file.metadata()?.is_file(),
        "{} is not a regular file",
        path.display()
    );
    fchown(&file, Some(user.uid), Some(user.gid))
        .with_context(|| format!("cannot give {} to {}", path.display(), user.name))
}

fn drop_root(user: &User) -> Result<()> {
    let name = CString::new(user.name.as_str()).context("the name of SlurmUser")?;
    let (uid, gid): (Uid, Gid) = (user.uid, user.gid);
    initgroups(&name, gid)
        .and_then(|()| setresgid(gid, gid, gid))
        .and_then(|()| setresuid(uid, uid, uid))
        .with_context(|| format!("cannot become SlurmUser {}", user.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(name: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("muster-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        dir
    }

    #[test]
    fn an_unknown_account_is_named_with_what_to_do() {
        let error = find("no-such-account").unwrap_err().to_string();
        assert!(
            error.contains("no-such-account") && error.contains("make it"),
            "{error}"
        );
    }

    /// `muster config check` found nothing in a file with which slurmctld did not start.
    #[test]
    fn a_check_says_that_the_account_is_not_there() {
        let found = |line: &str| {
            let (config, _) = muster_conf::load_text(
                Path::new("slurm.conf"),
                &format!("ClusterName=c\n{line}\n"),
            );
            let found = check_accounts(&config);
            found.first().map(ToString::to_string)
        };
        assert_eq!((found(""), found("SlurmUser=root")), (None, None));
        let node = found("SlurmdUser=no-such-account").expect("a finding");
        assert!(node.contains("slurmd would not start"), "{node}");
        let said = found("SlurmUser=no-such-account").unwrap();
        for word in [
            ":2:",
            "warning: SlurmUser=no-such-account: this host has no such account",
        ] {
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn a_directory_with_somebody_elses_files_is_refused() {
        if !geteuid().is_root() {
            eprintln!("not root: owners cannot be changed; this test looked at nothing");
            return;
        }
        let place = dir("slurm-user");
        let user = find("nobody").unwrap();
        let state = place.join("state");
        own_directory(&state, 0o700, &user).unwrap();
        assert_eq!(fs::metadata(&state).unwrap().uid(), user.uid.as_raw());
        let old = place.join("old");
        fs::create_dir(&old).unwrap();
        fs::write(old.join("journal"), "x").unwrap();
        let error = format!("{:#}", own_directory(&old, 0o700, &user).unwrap_err());
        assert!(error.contains("chown -R nobody"), "{error}");
        fs::remove_dir_all(&place).unwrap();
    }

    /// A user's link on the way to a directory, or in its place, would have root give away the target.
    #[test]
    fn root_gives_no_directory_away_that_others_chose() {
        if !geteuid().is_root() {
            eprintln!("not root: nothing can be given away; this test looked at nothing");
            return;
        }
        let place = dir("slurm-user-dir");
        let user = find("nobody").unwrap();
        let (roots, users) = (place.join("roots"), place.join("users"));
        for dir in [&roots, &roots.join("bin"), &users] {
            fs::create_dir(dir).unwrap();
        }
        std::os::unix::fs::chown(&users, Some(user.uid.as_raw()), None).unwrap();
        std::os::unix::fs::symlink(roots.join("bin"), users.join("state")).unwrap();
        std::os::unix::fs::symlink(&roots, users.join("way")).unwrap();
        for path in [
            users.join("state"),
            users.join("way/bin"),
            roots.join("../users/state"),
        ] {
            let refused = own_directory(&path, 0o700, &user).unwrap_err();
            assert!(
                format!("{refused:#}").contains("belongs to uid 0"),
                "{refused:#}"
            );
        }
        assert_eq!(fs::metadata(roots.join("bin")).unwrap().uid(), 0);
        // The user makes it, once the process is the user's.
        own_directory(&users.join("new"), 0o700, &user).unwrap();
        assert!(!users.join("new").exists());
        // A link that is root's is another matter.
        std::os::unix::fs::symlink(&roots, place.join("link")).unwrap();
        own_directory(&place.join("link/state"), 0o700, &user).unwrap();
        let owner = fs::metadata(roots.join("state")).unwrap().uid();
        assert_eq!(owner, user.uid.as_raw());
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn root_makes_no_file_where_others_may_have_put_a_link() {
        if !geteuid().is_root() {
            eprintln!("not root: there is nothing to be led to; this test looked at nothing");
            return;
        }
        let place = dir("slurm-user-link");
        let user = find("nobody").unwrap();
        let secret = place.join("secret");
        fs::write(&secret, "root's").unwrap();
        std::os::unix::fs::symlink(&secret, place.join("log")).unwrap();
        assert!(own_file(&place.join("log"), &user).is_err());
        let open = place.join("open");
        DirBuilder::new().mode(0o700).create(&open).unwrap();
        std::os::unix::fs::chown(&open, Some(user.uid.as_raw()), None).unwrap();
        fs::hard_link(&secret, open.join("log")).unwrap();
        own_file(&open.join("log"), &user).unwrap();
        assert_eq!(fs::metadata(&secret).unwrap().uid(), 0);
        fs::remove_dir_all(&place).unwrap();
    }
}
