//! Memory that ranks share under names of their own in /dev/shm. MPICH 5 takes such a name away in `MPI_Finalize`, UCX when
//! the others have found it; where ranks are killed before, the memory would stay until the node is booted. What ranks have
//! of it is noted when they are told to end, and removed when they have.

use crate::shim::SHARED_MEMORY;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// How such names begin. MPICH makes them anew for each job, UCX for each process: no other step looks for them.
const NAMES: [&str; 2] = ["mpich_", "ucx_shm_posix_"];

/// Adds what a process has.
pub(super) fn note(pid: i32, noted: &mut BTreeSet<PathBuf>) {
    if let Ok(maps) = fs::read_to_string(format!("/proc/{pid}/maps")) {
        noted.extend(named(&maps).map(PathBuf::from));
    }
}

/// Removes all that is there still.
pub(super) fn remove(noted: &BTreeSet<PathBuf>) {
    for path in noted {
        // The rank that made it may have come first.
        let _ = fs::remove_file(path);
    }
}

/// Paths of such memory in a table of a process's memory, proc_pid_maps(5).
fn named(maps: &str) -> impl Iterator<Item = &str> {
    maps.lines().filter_map(|line| {
        let path = &line[line.find('/')?..];
        let name = Path::new(path).strip_prefix(SHARED_MEMORY).ok()?;
        let name = name.to_str()?;
        let is_one = NAMES.iter().any(|begin| name.starts_with(begin));
        // The kernel says so where the name is gone.
        (is_one && !name.contains('/') && !name.ends_with(" (deleted)")).then_some(path)
    })
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
        let found: Vec<&str> = named(maps).collect();
        assert_eq!(
            found,
            ["/dev/shm/mpich_shm_3a_0", "/dev/shm/ucx_shm_posix_1f"]
        );
    }
}
