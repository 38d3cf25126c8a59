//! Changes of sge.conf and job_classes.conf by users who may write them on the controller's host: read, changed, checked and put in
//! place as a whole, under a lock. On another host, and for other users, there is no change.

use crate::connect::Client;
use muster_conf::endpoint;
use muster_conf::{Diagnostic, Severity};
use muster_trust::host::short_name;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{AccessFlags, access, geteuid};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// The largest file that is changed, bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The file whose lock a change holds.
const LOCK: &str = ".muster-qconf.lock";

/// A file beside slurm.conf.
pub(super) struct SiteFile {
    path: PathBuf,
    directory: PathBuf,
}

impl SiteFile {
    /// The file, if the caller can change it and this is a controller's host: copies on other hosts, and files given by a controller,
    /// are changed there.
    pub(super) fn changeable(name: &str, client: &Client) -> Option<SiteFile> {
        let path = endpoint::conf_path().with_file_name(name);
        let directory = path.parent()?.to_owned();
        let own = short_name();
        let short = |host: &str| host.split('.').next().unwrap_or_default().to_owned();
        let is_here = client
            .endpoint
            .hosts
            .iter()
            .any(|host| short(host) == own || host == "localhost");
        let may = access(&directory, AccessFlags::W_OK).is_ok();
        (is_here && may).then_some(SiteFile { path, directory })
    }

    /// Changes the text. `check` gives the findings about the new one, of which none may be an error.
    ///
    /// # Errors
    /// The change or the new text is refused, or the file cannot be read or written.
    pub(super) fn change(
        &self,
        change: impl FnOnce(&str) -> Result<String, String>,
        check: impl FnOnce(&str, &str) -> Vec<Diagnostic>,
    ) -> Result<(), String> {
        let shown = self.path.display().to_string();
        let failed = |e: std::io::Error| format!("error changing {shown}: {e}");
        let lock = self.lock()?;
        let before = self.read().map_err(failed)?;
        let text = change(&before)?;
        let findings = check(&text, &shown);
        let errors = findings
            .iter()
            .filter(|own| own.severity == Severity::Error);
        let errors: Vec<String> = errors.map(ToString::to_string).collect();
        if !errors.is_empty() {
            return Err(format!("denied: {}", errors.join("\n")));
        }
        self.write(&text).map_err(failed)?;
        drop(lock);
        let directory = File::open(&self.directory);
        directory.and_then(|own| own.sync_all()).map_err(failed)
    }

    /// Locks the file against other changes, by a file that others can neither open nor lock.
    fn lock(&self) -> Result<Flock<File>, String> {
        let path = self.directory.join(LOCK);
        let failed = |e: std::io::Error| format!("error locking {}: {e}", path.display());
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW)
            .open(&path)
            .map_err(failed)?;
        // The owner of the directory changes its files as well.
        let owner = fs::metadata(&self.directory).map_err(failed)?.uid();
        if geteuid().is_root() {
            fchown(&file, Some(owner), None).map_err(failed)?;
        }
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| failed(e.into()))
    }

    /// The text as it is now.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read_text(&self) -> Result<String, String> {
        let shown = self.path.display();
        self.read()
            .map_err(|e| format!("error reading {shown}: {e}"))
    }

    fn read(&self) -> std::io::Result<String> {
        let mut text = String::new();
        match File::open(&self.path) {
            Ok(file) => {
                file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
                match text.len() as u64 > FILE_BYTES_MAX {
                    true => Err(std::io::Error::other("it has more than 4 MiB")),
                    false => Ok(text),
                }
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(text),
            Err(e) => Err(e),
        }
    }

    /// Writes a new file with the owner and mode of the old one, and puts it in its place.
    fn write(&self, text: &str) -> std::io::Result<()> {
        let new = self
            .path
            .with_extension(format!("conf.{}", std::process::id()));
        let written = self
            .write_new(&new, text)
            .and_then(|()| fs::rename(&new, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }

    fn write_new(&self, new: &Path, text: &str) -> std::io::Result<()> {
        let before = fs::metadata(&self.path).ok();
        let mode = before.as_ref().map_or(0o644, |own| own.mode() & 0o777);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(new)?;
        if let Some(own) = before {
            fchown(&file, Some(own.uid()), Some(own.gid()))?;
        }
        // The mask of the caller is not the file's.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }
}
