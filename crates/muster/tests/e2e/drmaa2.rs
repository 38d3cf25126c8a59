//! DRMAA 2: programs in C and Python that call the functions of the library, which this build made.

use crate::cluster::Cluster;
use std::path::PathBuf;

/// Cargo puts the library beside the test, which depends on it.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.with_file_name("libdrmaa2.so")
}

/// A cluster with a program of this directory, linked with the library.
fn built(program: &str) -> Cluster {
    let c = Cluster::start(2, 4);
    let manifest = env!("CARGO_MANIFEST_DIR");
    let build = c.run(&format!(
        "ln -s '{}' libdrmaa2.so && cc -Wall -Wextra -Werror -pthread -I '{manifest}/../../packaging/drmaa' \
         -o {program} '{manifest}/tests/e2e/drmaa2/{program}.c' ./libdrmaa2.so",
        library().display()
    ));
    assert_eq!(build.code, 0, "{build:?}");
    c
}

#[test]
fn a_program_in_c_does_what_the_second_standard_has() {
    let c = built("session");
    let ran = c.run("PLACE=$PWD HOME=$PWD/home LD_LIBRARY_PATH=. timeout 200 ./session");
    assert_eq!((ran.code, ran.out.as_str()), (0, "done\n"), "{}", ran.err);
    let job = c.ok("sacct -n -X -j 1 -o Timelimit%20,Account,State,ExitCode");
    assert!(job.contains("00:05:00") && job.contains("3:0"), "{job}");
    // Nobody else sees what a user's sessions have.
    let modes = c.ok("cd home/.local/state/muster-drmaa2 && stat -c %a . jobs jobs/one");
    assert_eq!(modes, "700\n700\n600");
    // Another process has the session, and destroys it.
    let ran = c.run("HOME=$PWD/home LD_LIBRARY_PATH=. ./session one");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.out.trim().parse::<u32>().is_ok_and(|jobs| jobs >= 6),
        "{}",
        ran.out
    );
    assert_eq!(c.ok("ls home/.local/state/muster-drmaa2/jobs"), "");
    // Without a cluster, the library says so.
    let ran = c.run("HOME=$PWD/home SLURM_CONF=/nosuch LD_LIBRARY_PATH=. ./session");
    assert!(ran.code == 1 && ran.err.contains("/nosuch"), "{ran:?}");
    // Every name of the header is in the library, which has none of the first standard.
    let manifest = env!("CARGO_MANIFEST_DIR");
    let names = c.ok(&format!(
        "grep -oE '\\bdrmaa2_[a-z0-9_]+\\(' '{manifest}/../../packaging/drmaa/drmaa2.h' | tr -d '(' | sort -u >want; \
         nm -D --defined-only libdrmaa2.so | grep -oE '\\b(drmaa|drmaa2)_[a-z0-9_]+' | sort -u >have; comm -23 want have; \
         grep -v '^drmaa2_' have || true"
    ));
    assert_eq!(names, "");
}

#[test]
fn the_drmaa2_of_python_does_what_programs_call() {
    let Some(packages) = crate::packages::installed("uge-drmaa2==8.11.0") else {
        return;
    };
    let c = Cluster::start(2, 4);
    let ran = c.run(&format!(
        "ln -s '{}' libdrmaa2.so; env -u SGE_ROOT PLACE=$PWD HOME=$PWD/home LD_LIBRARY_PATH=$PWD \
         MUSTER_DRMAA2_MACHINE_NAMES=1 timeout 200 '{}/bin/python' '{}/tests/e2e/drmaa2/session.py'",
        library().display(),
        packages.display(),
        env!("CARGO_MANIFEST_DIR")
    ));
    assert_eq!((ran.code, ran.out.as_str()), (0, "done\n"), "{}", ran.err);
}
