//! Shared memory of ranks under names in /dev/shm. MPICH 5 removes such a name in `MPI_Finalize`, UCX as soon as all
//! ranks have opened it. If ranks are killed before, the memory would stay until the node is rebooted. The daemon
//! therefore notes the names that ranks have mapped when it orders them to end, and removes these names after they
//! have ended. If ranks end by themselves with an error, it searches instead for files that belong to the user, are
//! newer than the step, and are in use by no process.

use crate::processes::all_pids;
use muster_node_core::pmix_place::SHARED_MEMORY;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Prefixes of such names. MPICH makes new names for each job, UCX for each process, so no other step uses them.
const NAMES: [&str; 2] = ["mpich_", "ucx_shm_posix_"];

/// Bytes of a process's table that are read: more than 65,530 mappings, which the kernel lets a process have, take with names that
/// are not made to be long.
const MAPS_BYTES_MAX: u64 = 16 << 20;
/// Names of a process that are noted.
const NAMED_MAX: usize = 4096;

/// Adds the names that a process has open or mapped.
pub(super) fn note(pid: i32, noted: &mut BTreeSet<PathBuf>) {
    noted.extend(mapped_by(pid));
}

/// Such memory of a process. A user chooses how long the table is: it is read a line at a time, and no further than this.
fn mapped_by(pid: i32) -> BTreeSet<PathBuf> {
    match File::open(format!("/proc/{pid}/maps")) {
        Ok(maps) => named(BufReader::new(maps.take(MAPS_BYTES_MAX))),
        Err(_) => BTreeSet::new(),
    }
}

/// Adds files made since then that belong to `user` and are in use by no process.
pub(super) fn find(since: SystemTime, user: u32, noted: &mut BTreeSet<PathBuf>) {
    let files = fs::read_dir(SHARED_MEMORY).into_iter().flatten().flatten();
    let mut found: BTreeSet<PathBuf> = files
        .filter(|entry| entry.file_name().to_str().is_some_and(is_one))
        .filter(|entry| {
            let is_new = |file: &fs::Metadata| file.modified().is_ok_and(|at| at >= since);
            entry
                .metadata()
                .is_ok_and(|file| file.uid() == user && is_new(&file))
        })
        .map(|entry| entry.path())
        .collect();
    if found.is_empty() {
        return;
    }
    for pid in all_pids() {
        // A process opens the file, maps it and then closes it. The search looks in this order, so it finds the file
        // in at least one of the two places.
        for open in fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            if let Ok(path) = fs::read_link(open.path()) {
                found.remove(&path);
            }
        }
        for path in mapped_by(pid) {
            found.remove(&path);
        }
    }
    noted.extend(found);
}

/// Removes those of the files that exist and belong to `user`: a process may have mapped memory of another user,
/// which stays.
pub(super) fn remove(noted: &BTreeSet<PathBuf>, user: u32) {
    for path in noted {
        // The directory is sticky, so no other user can put a file of his in this one's place in between; and the rank
        // that made it may have removed it first.
        if fs::symlink_metadata(path).is_ok_and(|file| file.uid() == user) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Paths of such memory in a process's memory table, proc_pid_maps(5).
fn named(maps: impl BufRead) -> BTreeSet<PathBuf> {
    let lines = maps.split(b'\n').map_while(Result::ok);
    let path = |line: Vec<u8>| {
        // Names of other files are not always text.
        let line = String::from_utf8_lossy(&line);
        let path = &line[line.find('/')?..];
        let name = Path::new(path).strip_prefix(SHARED_MEMORY).ok()?;
        is_one(name.to_str()?).then(|| PathBuf::from(path))
    };
    lines.filter_map(path).take(NAMED_MAX).collect()
}

/// Whether a file is called so. The kernel adds a word where the name is gone.
fn is_one(name: &str) -> bool {
    let begins = NAMES.iter().any(|begin| name.starts_with(begin));
    begins && !name.contains('/') && !name.ends_with(" (deleted)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_of_mpi_is_noted() {
        let maps = "\
7f00-7f01 rw-s 00000000 00:19 12 /dev/shm/mpich_shm_3a_0
7f01-7f02 rw-s 00000000 00:19 13 /dev/shm/mpich_shar_tmpAbCdEf (deleted)
7f02-7f03 rw-s 00000000 00:19 14 /dev/shm/ucx_shm_posix_1f
7f03-7f04 rw-s 00000000 00:19 15 /dev/shm/results
7f04-7f05 rw-s 00000000 00:19 15 /home/a/dev/shm/mpich_shm_1_0
7f05-7f06 rw-s 00000000 00:19 15 /dev/shm/mpich_of_a_user/data
7f06-7f07 rw-p 00000000 00:00 0 [heap]
";
        let found: Vec<PathBuf> = named(maps.as_bytes()).into_iter().collect();
        let wanted = ["/dev/shm/mpich_shm_3a_0", "/dev/shm/ucx_shm_posix_1f"];
        assert_eq!(found, wanted.map(PathBuf::from));
    }

    /// Earlier, all names that a process could map were in memory at once.
    #[test]
    fn of_many_names_no_more_than_some_are_held() {
        let line = |n| format!("7f00-7f01 rw-s 00000000 00:19 12 /dev/shm/mpich_shm_{n}\n");
        let maps: String = (0..2 * NAMED_MAX).map(line).collect();
        assert_eq!(named(maps.as_bytes()).len(), NAMED_MAX);
    }

    #[test]
    fn only_what_is_the_users_is_removed() {
        let path = std::env::temp_dir().join(format!("mpich_shm_test_{}", std::process::id()));
        fs::write(&path, "").unwrap();
        let user = fs::metadata(&path).unwrap().uid();
        let noted = BTreeSet::from([path.clone()]);
        remove(&noted, user + 1);
        assert!(path.exists());
        remove(&noted, user);
        assert!(!path.exists());
    }
}
