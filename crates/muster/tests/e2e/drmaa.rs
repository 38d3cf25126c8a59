//! DRMAA 1.0: programs in C and Python that call all functions of the library, which this build made.

use crate::cluster::Cluster;

#[test]
fn a_program_in_c_does_all_that_the_standard_has() {
    let c = Cluster::start(2, 4);
    // Cargo puts the library beside the test, which depends on it.
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("libdrmaa.so");
    let manifest = env!("CARGO_MANIFEST_DIR");
    let build = c.run(&format!(
        "ln -s '{}' libdrmaa.so.1.0 && cc -Wall -Werror -I '{manifest}/../../packaging/drmaa' -o session \
         '{manifest}/tests/e2e/drmaa/session.c' ./libdrmaa.so.1.0",
        library.display()
    ));
    assert_eq!(build.code, 0, "{build:?}");
    let ran = c.run("PLACE=$PWD LD_LIBRARY_PATH=. timeout 100 ./session");
    assert_eq!((ran.code, ran.out.as_str()), (0, "done\n"), "{}", ran.err);
    assert!(c.read("out.1").contains("1\n"), "{}", c.read("out.1"));
    assert_eq!(c.read("out.5"), "5\n");
    let job = c.ok("sacct -n -X -j 1 -o Timelimit%20,Account,State,ExitCode");
    assert!(job.contains("00:05:00") && job.contains("3:0"), "{job}");
    // Without a cluster, the library says so.
    let ran = c.run("SLURM_CONF=/nosuch LD_LIBRARY_PATH=. ./session");
    assert_eq!(ran.code, 1);
    // Every name of the header is in the library.
    let names = c.ok(&format!(
        "grep -oE '\\bdrmaa_[a-zA-Z_]+\\(' '{manifest}/../../packaging/drmaa/drmaa.h' | tr -d '(' | sort -u >want; \
         nm -D --defined-only libdrmaa.so.1.0 | grep -oE '\\bdrmaa_[a-zA-Z_]+' | sort -u >have; comm -3 want have"
    ));
    assert_eq!(names, "");
}

#[test]
fn the_drmaa_of_python_does_all_that_programs_call() {
    let Some(packages) = crate::packages::installed("drmaa==0.7.9") else {
        return;
    };
    let c = Cluster::start(2, 4);
    let library = std::env::current_exe()
        .unwrap()
        .with_file_name("libdrmaa.so");
    let ran = c.run(&format!(
        "PLACE=$PWD DRMAA_LIBRARY_PATH='{}' timeout 100 '{}/bin/python' '{}/tests/e2e/drmaa/session.py'",
        library.display(),
        packages.display(),
        env!("CARGO_MANIFEST_DIR")
    ));
    assert_eq!((ran.code, ran.out.as_str()), (0, "done\n"), "{}", ran.err);
    assert!(c.read("py.out").contains("a,b=c two words\n"));
}
