//! The temporary directory that a job of the Grid Engine commands has on a node. Each process of the job that is started makes it, as
//! its user and in the job: what others put at its name, or do to the directory above, is the affair of this process alone.

use crate::bare::{self, Errno};
use crate::kernel;
use core::ffi::CStr;

/// Where it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TmpDirNames<'a> {
    /// Its usual path, which others can guess.
    pub usual: &'a CStr,
    /// A path that others cannot guess, for where something else has the usual one.
    pub other: &'a CStr,
    /// The directory above both.
    pub above: &'a CStr,
}

/// Makes the directory, unless another process of the job has; gives its path. Allocates nothing.
///
/// # Errors
/// It cannot be made, at neither path.
pub fn make<'a>(names: &TmpDirNames<'a>) -> Result<&'a CStr, Errno> {
    // The user's may take rights from the user.
    let mask = bare::umask(0o077);
    let made = make_at(names.usual, names.above).or_else(|_| make_at(names.other, names.above));
    bare::umask(mask);
    made
}

fn make_at<'a>(path: &'a CStr, above: &CStr) -> Result<&'a CStr, Errno> {
    match bare::mkdir(path.to_bytes_with_nul(), 0o700) {
        Ok(()) => Ok(path),
        Err(Errno(kernel::EEXIST)) if is_own_dir(path, above)? => Ok(path),
        Err(e) => Err(e),
    }
}

/// Whether a directory of this user's is there. One on another file system is not: it is one that somebody has mounted, and may say
/// of itself that it is whosever.
fn is_own_dir(path: &CStr, above: &CStr) -> Result<bool, Errno> {
    let found = bare::look_at(path, kernel::AT_SYMLINK_NOFOLLOW)?;
    let above = bare::look_at(above, 0)?;
    let is_dir = found.mode & kernel::S_IFMT == kernel::S_IFDIR;
    Ok(is_dir && found.uid == bare::effective_user() && found.device == above.device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::{MetadataExt as _, chown, symlink};
    use std::path::{Path, PathBuf};
    use std::string::ToString as _;
    use std::vec::Vec;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let name = std::format!("muster-tmp-dir-{name}.{}", std::process::id());
            let place = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&place);
            fs::create_dir(&place).unwrap();
            Place(place)
        }

        /// Makes it; which of the names it has.
        fn make(&self) -> Result<Option<std::string::String>, Errno> {
            let path = |name: &str| CString::new(self.0.join(name).as_os_str().as_bytes()).unwrap();
            let [usual, other, above] = ["usual", "other", ""].map(path);
            let names = TmpDirNames {
                usual: &usual,
                other: &other,
                above: &above,
            };
            let made = make(&names)?;
            let made = Path::new(std::ffi::OsStr::from_bytes(made.to_bytes()));
            Ok(made
                .file_name()
                .map(|name| name.to_string_lossy().to_string()))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_first_makes_it_and_the_others_find_it() {
        let place = Place::new("own");
        for _ in 0..2 {
            assert_eq!(place.make().unwrap().as_deref(), Some("usual"));
        }
        let made = fs::symlink_metadata(place.0.join("usual")).unwrap();
        assert_eq!((made.mode() & 0o7777, made.is_dir()), (0o700, true));
    }

    /// Names can be guessed: what others had put there failed jobs.
    #[test]
    fn what_others_have_put_there_is_left_alone() {
        let place = Place::new("others");
        let usual = place.0.join("usual");
        let mut puts: Vec<&dyn Fn()> = Vec::new();
        let file = || fs::write(&usual, "a file").unwrap();
        // It is followed to no directory of the user's own.
        let link = || symlink("/", &usual).unwrap();
        let dir = || {
            fs::create_dir(&usual).unwrap();
            chown(&usual, Some(65_533), None).unwrap();
        };
        puts.extend([&file as &dyn Fn(), &link]);
        // SAFETY: no preconditions.
        #[allow(unsafe_code)]
        let is_root = unsafe { libc::geteuid() } == 0;
        match is_root {
            true => puts.push(&dir),
            false => std::eprintln!("only root makes directories of others; these were left out"),
        }
        for put in puts {
            put();
            for _ in 0..2 {
                assert_eq!(place.make().unwrap().as_deref(), Some("other"));
            }
            let found = fs::symlink_metadata(&usual).unwrap();
            match found.is_dir() {
                true => fs::remove_dir(&usual).unwrap(),
                false => fs::remove_file(&usual).unwrap(),
            }
            fs::remove_dir(place.0.join("other")).unwrap();
        }
    }

    #[test]
    fn where_nothing_can_be_made_there_is_none() {
        let place = Place::new("none");
        fs::write(place.0.join("usual"), "").unwrap();
        fs::write(place.0.join("other"), "").unwrap();
        assert_eq!(place.make(), Err(Errno(kernel::EEXIST)));
        fs::remove_dir_all(&place.0).unwrap();
        assert_eq!(place.make(), Err(Errno(kernel::ENOENT)));
    }

    /// /proc, which is another file system than its parent, and this user's if that is root.
    #[test]
    fn what_is_mounted_there_is_not_the_jobs() {
        let found = |path: &CStr| bare::look_at(path, kernel::AT_SYMLINK_NOFOLLOW).unwrap();
        let (proc, root) = (found(c"/proc"), found(c"/"));
        assert_ne!(proc.device, root.device);
        assert_eq!(is_own_dir(c"/proc", c"/"), Ok(false));
        let of_library = fs::symlink_metadata("/proc").unwrap();
        assert_eq!((proc.uid, proc.mode), (of_library.uid(), of_library.mode()));
    }
}
