//! sbcast: files that are copied to the nodes of a job.

use crate::cluster::Cluster;

#[test]
fn a_file_is_copied_to_each_node_of_the_job() {
    let c = Cluster::start(2, 2);
    c.write("src", "hello\n");
    c.ok("chmod 640 src; head -c 3000000 /dev/urandom > big");
    let job = c.ok("sbatch --parsable -N2 --exclusive --wrap 'srun sleep 1000'");
    c.until_prints(
        &format!("squeue -h -s -j {job} -o %i | grep -c '[.]0$' || true"),
        "1",
    );
    let sbcast = |args: &str| c.run(&format!("sbcast -j {job} {args}"));

    // Both nodes are on this host: the second finds the first one's file, and says so.
    let twice = sbcast("src there");
    assert_eq!(twice.code, 17, "{}", twice.err);
    assert_eq!(twice.err.lines().count(), 1, "{}", twice.err);
    assert!(
        twice.err.starts_with("sbcast: error: REQUEST_FILE_BCAST(n")
            && twice.err.contains("): File exists (there)"),
        "{}",
        twice.err
    );
    assert_eq!(c.ok("cat there; stat -c %a there"), "hello\n640");

    c.ok(&format!(
        "touch -d '2001-02-03 04:05:06' src; sbcast -fp -j {job} src there"
    ));
    assert_eq!(c.ok("stat -c %y there | cut -c1-19"), "2001-02-03 04:05:06");
    c.ok(&format!("sbcast -f -j {job} big copy; cmp big copy"));
    assert_eq!(c.ok("ls | grep -F .sbcast. || true"), "");

    let nowhere = sbcast("-f src /nosuchdir/x");
    assert_eq!(nowhere.code, 2, "{}", nowhere.err);
    for node in ["n1", "n2"] {
        let line = format!(
            "sbcast: error: REQUEST_FILE_BCAST({node}): No such file or directory (/nosuchdir/x)"
        );
        assert!(nowhere.err.contains(&line), "{}", nowhere.err);
    }
    assert_eq!(sbcast("-f src /tmp").code, 21);
    let unread = sbcast("/nosuch x");
    assert_eq!(unread.code, 255);
    assert_eq!(
        unread.err.trim_end(),
        "sbcast: error: Can't open `/nosuch`: No such file or directory"
    );
    let unknown = c.run("sbcast -j 99999 src x");
    assert_eq!(unknown.code, 255);
    assert_eq!(
        unknown.err.trim_end(),
        "sbcast: error: Slurm job 99999 lookup error: Invalid job id specified"
    );
    c.ok(&format!("scancel {job}"));
}

#[test]
fn a_file_is_copied_to_the_nodes_of_one_step_or_component() {
    let c = Cluster::start(3, 2);
    c.write("src", "hello\n");
    let sent_to = |out: &str| -> Vec<String> {
        let lines = out.lines();
        lines
            .filter_map(|line| line.strip_prefix("sbcast: node_list = "))
            .map(str::to_owned)
            .collect()
    };
    // The step asks about itself, which the controller may not know yet.
    let of_step = c.ok(
        "salloc -Q -N2 -w n1,n2 srun -N1 -n1 -w n2 bash -c 'sbcast -vf -j$SLURM_JOB_ID.$SLURM_STEP_ID src there' 2>&1",
    );
    assert_eq!(sent_to(&of_step), ["n2"], "{of_step}");
    let components = c.ok("salloc -Q -N1 -w n1 : -N2 -w n2,n3 bash -c '\
         sbcast -vf src all 2>&1; for i in 0 1; do sbcast -vf -j$SLURM_JOB_ID+$i src one 2>&1; done'");
    assert_eq!(
        sent_to(&components),
        ["n1", "n[2-3]", "n1", "n[2-3]"],
        "{components}"
    );
    let no_step = c.run("salloc -Q -N1 bash -c 'sbcast -f -j$SLURM_JOB_ID.7 src x'");
    assert!(
        no_step.code == 255
            && no_step
                .err
                .contains("lookup error: Invalid job id specified"),
        "{no_step:?}"
    );
}

#[test]
fn a_job_copies_a_program_and_runs_it() {
    let c = Cluster::start(1, 2);
    c.write("program", "#!/bin/sh\necho ran $SLURM_PROCID\n");
    c.ok("chmod +x program");
    let out = c.ok(
        "SBCAST_FORCE=1 salloc -Q -n2 bash -c 'sbcast program copy && srun ./copy | sort; echo $?'",
    );
    assert_eq!(out, "ran 0\nran 1\n0");
    let alone = c.run("sbcast program x");
    assert_eq!(
        alone.err.trim_end(),
        "sbcast: error: Need a job id to run this command.  Run from within a Slurm job or use the --jobid option."
    );
}

#[test]
fn srun_copies_the_program_that_it_runs() {
    let c = Cluster::start(2, 2);
    c.write("program", "#!/bin/sh\necho $SLURM_PROCID $0\n");
    c.ok("chmod +x program; mkdir copies");
    let mine = c.path("work/copies/mine");
    let copy = mine.display();
    assert_eq!(
        c.ok(&format!("srun -N2 --bcast={copy} ./program | sort")),
        format!("0 {copy}\n1 {copy}")
    );
    assert!(mine.exists());
    // In a job that is there, below a directory, by a name that is made up.
    let out = c.ok("salloc -Q -N2 srun -n2 --bcast=copies/ program | sort || true");
    assert_eq!(out, "", "it is not in PATH");
    let out = c.ok("PATH=$PWD:$PATH salloc -Q -N2 srun -n2 --bcast=copies/ program | sort");
    let lines: Vec<&str> = out.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].contains("/copies/slurm_bcast_"),
        "{out}"
    );
    let nowhere = c.run("srun -N2 --bcast=/nosuchdir/x ./program");
    assert!(
        nowhere.code == 1 && nowhere.err.contains("could not be copied to /nosuchdir/x"),
        "{nowhere:?}"
    );
}

#[test]
fn the_libraries_of_a_program_are_sent_with_it() {
    let c = Cluster::start(2, 2);
    c.write("a.c", "int a(void) { return 7; }\n");
    c.write("b.c", "int a(void); int main(void) { return a(); }\n");
    c.ok("mkdir lib && gcc -shared -fPIC -o lib/liba.so a.c && gcc -o b b.c -Llib -la");
    c.ok("mkdir copies");
    // The loader finds the library by this variable.
    let run = |options: &str| {
        let path = c.path("work/lib");
        c.run(&format!(
            "export LD_LIBRARY_PATH={}; salloc -Q -N1 sh -c 'sbcast -f {options} b copies/b && ls copies'",
            path.display()
        ))
    };
    let plain = run("");
    assert_eq!((plain.code, plain.out.trim()), (0, "b"), "{plain:?}");
    let sent = run("--send-libs");
    assert_eq!((sent.code, sent.out.trim()), (0, "b\nb_libs"), "{sent:?}");
    assert_eq!(
        c.ok("ls copies/b_libs; cmp lib/liba.so copies/b_libs/liba.so"),
        "liba.so"
    );
    c.ok("rm -r copies/b_libs");
    let excluded = run(&format!(
        "--send-libs --exclude={},/lib,/usr/lib,/lib64",
        c.path("work").display()
    ));
    assert_eq!(excluded.out.trim(), "b", "{excluded:?}");
    let wrong = run("--send-libs=maybe");
    assert!(wrong.err.contains("Invalid --send-libs value"), "{wrong:?}");

    let lib = c.path("work/lib");
    let step = c.run(&format!(
        "LD_LIBRARY_PATH={} SLURM_SEND_LIBS=yes srun -n1 --bcast=copies/c --bcast-exclude=/lib,/usr/lib,/lib64 ./b",
        lib.display()
    ));
    assert_eq!(step.code, 7, "{step:?}");
    assert_eq!(c.ok("ls copies/c_libs"), "liba.so");
    c.ok("rm -r copies/c_libs");
    let found = c.run(&format!(
        "LD_LIBRARY_PATH={} srun -n1 --bcast=copies/c --send-libs sh -c 'echo $LD_LIBRARY_PATH'",
        lib.display()
    ));
    assert_eq!(
        found.out.trim(),
        lib.display().to_string(),
        "all of sh's are excluded: {found:?}"
    );
    let found = c.run(&format!(
        "LD_LIBRARY_PATH={} srun -n1 --bcast=copies/c --send-libs --bcast-exclude=none sh -c 'echo $LD_LIBRARY_PATH'",
        lib.display()
    ));
    assert_eq!(
        found.out.trim(),
        format!(
            "{}/c_libs:{}",
            c.path("work/copies").display(),
            lib.display()
        ),
        "{found:?}"
    );
}

#[test]
fn files_are_gathered_from_the_nodes_of_a_job() {
    let c = Cluster::start(2, 2);
    let job = c.ok("sbatch --parsable -N2 --exclusive --wrap 'srun sleep 1000'");
    c.until_prints(
        &format!("squeue -h -s -j {job} -o %i | grep -c '[.]0$' || true"),
        "1",
    );
    c.ok("head -c 300000 /dev/urandom > src; chmod 640 src; touch -d '2001-02-03 04:05:06' src");
    let sgather = |args: &str| c.run(&format!("sgather -j {job} {args}"));
    // Both nodes are on this host, and have the same file.
    let all = sgather("-kp src got");
    assert_eq!(all.code, 0, "{}", all.err);
    for node in ["n1", "n2"] {
        c.ok(&format!("cmp src got.{node}"));
        assert_eq!(
            c.ok(&format!("stat -c '%a %y' got.{node} | cut -c1-23")),
            "640 2001-02-03 04:05:06"
        );
    }
    c.ok("mkdir -p tree/below; echo x > tree/below/file");
    let plain = sgather("-k tree dir");
    assert!(
        plain.code == 1 && plain.err.contains("--recursive copies it"),
        "{plain:?}"
    );
    let tree = sgather("-kr tree dir");
    assert_eq!(tree.code, 0, "{}", tree.err);
    assert_eq!(c.ok("cat dir.n1/below/file dir.n2/below/file"), "x\nx");

    // Without --keep it moves: of two nodes with one file, the first takes it.
    let moved = sgather("-F1 -f src moved");
    assert_eq!(moved.code, 0, "{}", moved.err);
    assert_eq!(c.ok("ls | grep -E '^(src|moved)'"), "moved.n1");
    let gone = sgather("src again");
    assert!(
        gone.code == 1 && gone.err.contains("No such file or directory"),
        "{gone:?}"
    );
    assert_eq!(c.ok("ls | grep -F again || true"), "");
    c.ok(&format!("scancel {job}"));
    assert_eq!(c.run("sgather src x").code, 1, "no job is named");
}
