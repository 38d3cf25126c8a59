//! The task of sbcast on a node: copies standard input to a file, which gets its name when it is complete. It has the
//! rights of the job's user and no others.

use crate::errno::system_text;
use crate::options::env;
use crate::say;
use nix::errno::Errno;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;
use std::process::ExitCode;

/// Order to write a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WriteOrder {
    /// The path on the node.
    pub(super) dest: String,
    /// Bytes of the file.
    pub(super) size: u64,
    /// Its permissions.
    pub(super) mode: u32,
    /// Whether it may replace another.
    pub(super) force: bool,
    /// When it was read and changed last, in seconds, if that is kept.
    pub(super) times_s: Option<(i64, i64)>,
    /// Whether its directory is made if it is not there, and must be the user's alone.
    pub(super) makes_dir: bool,
}

impl WriteOrder {
    /// As words of a command line.
    pub(super) fn words(&self) -> Vec<String> {
        let (atime, mtime) = match self.times_s {
            None => ("-".to_owned(), "-".to_owned()),
            Some((atime, mtime)) => (atime.to_string(), mtime.to_string()),
        };
        vec![
            self.dest.clone(),
            self.size.to_string(),
            format!("{:o}", self.mode),
            u8::from(self.force).to_string(),
            atime,
            mtime,
            u8::from(self.makes_dir).to_string(),
        ]
    }

    fn read(words: &[String]) -> Option<WriteOrder> {
        let [dest, size, mode, force, atime, mtime, makes_dir] = words else {
            return None;
        };
        let times_s = match (atime.as_str(), mtime.as_str()) {
            ("-", "-") => None,
            (atime, mtime) => Some((atime.parse().ok()?, mtime.parse().ok()?)),
        };
        Some(WriteOrder {
            dest: dest.clone(),
            size: size.parse().ok()?,
            mode: u32::from_str_radix(mode, 8).ok()? & 0o777,
            force: force == "1",
            times_s,
            makes_dir: makes_dir == "1",
        })
    }

    /// Writes the file.
    fn execute(&self, input: impl Read) -> io::Result<()> {
        let dest = Path::new(&self.dest);
        if let Some(dir) = dest.parent().filter(|_| self.makes_dir) {
            make_own_dir(dir)?;
        }
        if !self.force && dest.symlink_metadata().is_ok() {
            return Err(Errno::EEXIST.into());
        }
        let part = format!("{}.sbcast.{}", self.dest, std::process::id());
        let mut options = File::options();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&part)?;
        let result = self.fill(file, input).and_then(|()| self.publish(&part));
        if result.is_err() {
            // An incomplete file has no use; the first error is the one to report.
            let _ = fs::remove_file(&part);
        }
        result
    }

    fn fill(&self, mut file: File, input: impl Read) -> io::Result<()> {
        // One byte more shows that there is too much.
        let copied = io::copy(&mut input.take(self.size.saturating_add(1)), &mut file)?;
        if copied != self.size {
            return Err(io::Error::other(format!(
                "{copied} of {} bytes have come: srun was ended, or the file has changed",
                self.size
            )));
        }
        file.set_permissions(fs::Permissions::from_mode(self.mode))
    }

    /// Gives the complete file its name. Without force that replaces no file, nor one that was made meanwhile.
    fn publish(&self, part: &str) -> io::Result<()> {
        if let Some((atime_s, mtime_s)) = self.times_s {
            let (atime, mtime) = (TimeSpec::new(atime_s, 0), TimeSpec::new(mtime_s, 0));
            let flags = UtimensatFlags::NoFollowSymlink;
            utimensat(nix::fcntl::AT_FDCWD, part, &atime, &mtime, flags)?;
        }
        if self.force {
            return fs::rename(part, &self.dest);
        }
        match fs::hard_link(part, &self.dest) {
            Ok(()) => fs::remove_file(part),
            Err(e) if lacks_links(&e) => self.take_name(part),
            Err(e) => Err(e),
        }
    }

    /// As above, where there are no hard links: an empty file takes the name, which fails if there is one, and is
    /// replaced.
    fn take_name(&self, part: &str) -> io::Result<()> {
        File::create_new(&self.dest)?;
        fs::rename(part, &self.dest).inspect_err(|_| {
            let _ = fs::remove_file(&self.dest);
        })
    }
}

/// Makes a directory that only this user writes to. One that is there may be another's, who would have programs load libraries of
/// his, so it must be this user's already.
fn make_own_dir(dir: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let about = fs::symlink_metadata(dir)?;
    let is_own = about.uid() == nix::unistd::geteuid().as_raw() && about.mode() & 0o022 == 0;
    match about.is_dir() && is_own {
        true => Ok(()),
        false => Err(Errno::EPERM.into()),
    }
}

/// Whether link(2) says that its file system has no hard links.
fn lacks_links(error: &io::Error) -> bool {
    let errors = [Errno::EPERM, Errno::EOPNOTSUPP, Errno::ENOSYS];
    let number = error.raw_os_error();
    errors.iter().any(|e| number == Some(*e as i32))
}

/// Runs the task; its exit status is the error's number.
pub(super) fn main(words: &[String]) -> ExitCode {
    let Some(order) = WriteOrder::read(words) else {
        say::stderr("sbcast: error: --receive is for sbcast's own tasks\n");
        return ExitCode::FAILURE;
    };
    let Err(error) = order.execute(io::stdin().lock()) else {
        return ExitCode::SUCCESS;
    };
    let node = env("SLURMD_NODENAME").unwrap_or_default();
    say::stderr(&format!(
        "sbcast: error: REQUEST_FILE_BCAST({node}): {} ({})\n",
        system_text(&error),
        order.dest
    ));
    let number = error.raw_os_error().and_then(|n| u8::try_from(n).ok());
    ExitCode::from(number.unwrap_or(Errno::EIO as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of its own, which is removed.
    struct Dir(std::path::PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let path = std::env::temp_dir().join(format!("sbcast-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Dir(path)
        }

        fn order(&self, size: u64) -> WriteOrder {
            WriteOrder {
                dest: self.0.join("dest").display().to_string(),
                size,
                mode: 0o640,
                force: false,
                times_s: None,
                makes_dir: false,
            }
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let name = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
            entries.map(name).collect()
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_file_is_written_with_its_mode_and_times() {
        let dir = Dir::new("mode");
        let order = WriteOrder {
            times_s: Some((1_000_000, 2_000_000)),
            ..dir.order(5)
        };
        order.execute(&b"hello"[..]).unwrap();
        let about = fs::metadata(&order.dest).unwrap();
        assert_eq!(about.permissions().mode() & 0o7777, 0o640);
        let changed = about.modified().unwrap();
        let since = changed.duration_since(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(since.as_secs(), 2_000_000);
        assert_eq!(fs::read(&order.dest).unwrap(), b"hello");
        assert_eq!(dir.names(), ["dest"]);
    }

    #[test]
    fn a_file_that_exists_is_replaced_by_force_only() {
        let dir = Dir::new("force");
        let order = dir.order(3);
        fs::write(&order.dest, "old").unwrap();
        let refused = order.execute(&b"new"[..]).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::EEXIST as i32));
        assert_eq!(fs::read(&order.dest).unwrap(), b"old");
        let forced = WriteOrder {
            force: true,
            ..order
        };
        forced.execute(&b"new"[..]).unwrap();
        assert_eq!(fs::read(&forced.dest).unwrap(), b"new");
        assert_eq!(dir.names(), ["dest"]);
    }

    #[test]
    fn a_name_is_taken_once_where_there_are_no_links() {
        let dir = Dir::new("links");
        let order = dir.order(3);
        let part = dir.0.join("part").display().to_string();
        fs::write(&part, "new").unwrap();
        order.take_name(&part).unwrap();
        assert_eq!(fs::read(&order.dest).unwrap(), b"new");
        fs::write(&part, "newer").unwrap();
        let refused = order.take_name(&part).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::EEXIST as i32));
        assert_eq!(fs::read(&order.dest).unwrap(), b"new");
        assert!(lacks_links(&Errno::EOPNOTSUPP.into()));
        assert!(!lacks_links(&refused));
    }

    #[test]
    fn what_is_incomplete_leaves_nothing() {
        let dir = Dir::new("part");
        for size in [4, 6] {
            let error = dir.order(size).execute(&b"hello"[..]).unwrap_err();
            assert!(error.to_string().contains("bytes have come"), "{error}");
            assert_eq!(dir.names(), [""; 0]);
        }
    }

    #[test]
    fn a_directory_of_libraries_is_the_users_alone() {
        let dir = Dir::new("own");
        let below = dir.0.join("x_libs");
        let order = WriteOrder {
            dest: below.join("a.so").display().to_string(),
            makes_dir: true,
            ..dir.order(3)
        };
        order.execute(&b"new"[..]).unwrap();
        assert_eq!(fs::read(&order.dest).unwrap(), b"new");
        fs::remove_file(&order.dest).unwrap();
        fs::set_permissions(&below, fs::Permissions::from_mode(0o777)).unwrap();
        let refused = order.execute(&b"new"[..]).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::EPERM as i32));
        fs::remove_dir(&below).unwrap();
        std::os::unix::fs::symlink(&dir.0, &below).unwrap();
        let refused = order.execute(&b"new"[..]).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::EPERM as i32));
    }

    #[test]
    fn orders_are_read_as_they_are_written() {
        let dir = Dir::new("words");
        for times_s in [None, Some((-1, 7))] {
            let order = WriteOrder {
                times_s,
                makes_dir: times_s.is_some(),
                ..dir.order(9)
            };
            assert_eq!(WriteOrder::read(&order.words()), Some(order));
        }
        assert_eq!(WriteOrder::read(&["x".to_owned()]), None);
    }
}
