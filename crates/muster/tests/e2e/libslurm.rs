//! libslurm: a program in C that calls the functions of the library, which this build made.

use crate::cluster::Cluster;
use std::path::PathBuf;

/// Cargo puts the library beside the test, which depends on it.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.with_file_name("libslurm.so")
}

#[test]
fn a_program_in_c_lists_submits_and_changes() {
    let c = Cluster::start(2, 4);
    let manifest = env!("CARGO_MANIFEST_DIR");
    let build = c.run(&format!(
        "ln -s '{}' libslurm.so.38 && ln -s libslurm.so.38 libslurm.so && cc -g -Wall -Wextra -Werror -I \
         '{manifest}/../../packaging/slurm' -o session '{manifest}/tests/e2e/libslurm/session.c' -L . -lslurm",
        library().display()
    ));
    assert_eq!(build.code, 0, "{build:?}");
    let ran = c.run("LD_LIBRARY_PATH=. timeout 200 ./session");
    assert_eq!((ran.code, ran.out.as_str()), (0, "done\n"), "{}", ran.err);
    assert_eq!(
        ran.err,
        "libslurm: error: slurm_set_fs_dampeningfactor is not implemented (docs/libslurm.md)\n"
    );
    // Without a cluster, the error number says so.
    let ran = c.run("SLURM_CONF=/nosuch LD_LIBRARY_PATH=. ./session");
    assert!(ran.code == 1 && ran.err.contains("error 1001"), "{ran:?}");
    // Every function of the headers is in the library.
    let names = c.ok(&format!(
        "cat '{manifest}'/../../packaging/slurm/slurm/*.h | grep -v -e '#define' -e '^    ' | grep -oE '\\b(slurm|slurmdb)_[a-z0-9_]+\\(' | tr -d '(' | sort -u >want; \
         nm -D --defined-only libslurm.so | grep -oE '\\b(slurm|slurmdb)_[A-Za-z0-9_]+$' | sort -u >have; comm -23 want have"
    ));
    assert_eq!(names, "");
}
