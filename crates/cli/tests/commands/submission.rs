//! sbatch, salloc, scancel.

use crate::stage::Stage;
use muster_model::command::{Reply, SignalScope, UserCommand};
use muster_model::ids::JobId;
use muster_model::job::ExitStatus;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::time::Timestamp;
use muster_proto::client::{RequestBody, Response};

#[test]
fn sbatch_prints_one_line() {
    let stage = Stage::new();
    stage.willing_controller(&["n1"]);
    let seen = stage.run(&["sbatch", "-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(
        (seen.stdout.as_str(), seen.stderr.as_str(), seen.code),
        ("Submitted batch job 5\n", "", 0)
    );
    let spec = stage.submitted();
    assert_eq!((spec.name.as_str(), spec.command.as_str()), ("wrap", ""));
    assert_eq!(spec.submit_line, "sbatch -o /dev/null --wrap true");
    assert_eq!(spec.work_dir, stage.dir.to_string_lossy());
    let seen = stage.run(&["sbatch", "--parsable", "--wrap", "true"]);
    assert_eq!(seen.stdout, "5\n");
    let seen = stage.run(&["sbatch", "--parsable", "-M", "peer", "--wrap", "true"]);
    assert_eq!(seen.stdout, "5;peer\n");
    let seen = stage.run(&["sbatch", "-Q", "--wrap", "true"]);
    assert_eq!((seen.stdout.as_str(), seen.stderr.as_str()), ("", ""));
    let seen = stage.run(&["sbatch", "-W", "--wrap", "exit 3"]);
    assert_eq!(
        (seen.stdout.as_str(), seen.code),
        ("Submitted batch job 5\n", 3)
    );
}

#[test]
fn a_script_and_its_directives() {
    let stage = Stage::new();
    stage.willing_controller(&["n1"]);
    stage.write(
        "job.sh",
        "#!/bin/bash -l\n#SBATCH -J \"'psi j'\" -N 2\n#SBATCH --time        2:00  # comment\n#SBATCH -p a\ntrue\n",
    );
    let env = [("SBATCH_PARTITION", "b"), ("SLURM_NTASKS", "9")];
    let seen = stage.run_with(&["sbatch", "-t3", "job.sh", "-x", "arg"], &env, "");
    assert_eq!((seen.stderr.as_str(), seen.code), ("", 0));
    let spec = stage.submitted();
    assert_eq!(
        (spec.name.as_str(), spec.ask.min_nodes, spec.ask.ntasks),
        ("'psi j'", 2, None)
    );
    assert_eq!(spec.partitions, ["b"]);
    assert_eq!(spec.time_limit.and_then(|t| t.seconds()), Some(180));
    assert_eq!(spec.argv, ["-x", "arg"]);
    assert_eq!(spec.command, stage.dir.join("job.sh").to_string_lossy());
}

#[test]
fn what_goes_along() {
    let stage = Stage::new();
    stage.willing_controller(&["n1"]);
    let env = [
        ("SLURM_NTASKS", "9"),
        ("COLOUR", "red"),
        ("SLURM_JOB_ID", "1"),
    ];
    let seen = stage.run_with(
        &["sbatch", "--export=ALL,K='a,b'"],
        &env,
        "#!/bin/sh\ntrue\n",
    );
    assert_eq!(
        (seen.stdout.as_str(), seen.code),
        ("Submitted batch job 5\n", 0)
    );
    let requests = stage.requests.lock().unwrap();
    let RequestBody::Command(command) = &requests[0] else {
        panic!("{requests:?}");
    };
    let UserCommand::Submit { spec, blobs, .. } = &**command else {
        panic!("{command:?}");
    };
    assert_eq!(spec.name, "sbatch");
    assert_eq!(&blobs[0].1[..], b"#!/bin/sh\ntrue\n");
    assert_eq!(
        (spec.script, spec.context),
        (Some(blobs[0].0), Some(blobs[1].0))
    );
    let context: muster_model::spec::ExecContext = minicbor::decode(&blobs[1].1).unwrap();
    let has = |pair: &str| context.environment.iter().any(|e| e == pair.as_bytes());
    assert!(
        has("COLOUR=red") && has("K=a,b") && has(&format!("SLURM_PRIO_PROCESS={}", niceness()))
    );
    assert!(!has("SLURM_NTASKS=9") && !has("SLURM_JOB_ID=1"));
    assert!(!context.soft_limits.is_empty());
}

#[test]
fn refusals_have_slurms_words() {
    let stage = Stage::new();
    stage.controller(|_| {
        let refusal = Refusal::new(
            RefusalCode::InvalidPartition,
            "invalid partition specified: nosuch",
        );
        vec![Response::Reply(Box::new(Reply::Refused(refusal)))]
    });
    for (args, prefix) in [
        (
            &["sbatch", "-p", "nosuch", "--wrap", "true"][..],
            "sbatch: error: Batch job submission failed",
        ),
        (
            &["srun", "-p", "nosuch", "true"],
            "srun: error: Unable to allocate resources",
        ),
        (
            &["salloc", "-p", "nosuch", "true"],
            "salloc: error: Job submit/allocate failed",
        ),
    ] {
        let seen = stage.run(args);
        let name = args[0];
        assert_eq!(
            seen.stderr,
            format!(
                "{name}: error: invalid partition specified: nosuch\n{prefix}: Invalid partition name specified\n"
            )
        );
        assert_eq!((seen.stdout.as_str(), seen.code), ("", 1));
    }
    let seen = stage.run_with(
        &["sbatch", "--wrap", "true"],
        &[("SLURM_EXIT_ERROR", "42")],
        "",
    );
    assert_eq!(seen.code, 42);
}

#[test]
fn mistakes_are_told_without_a_controller() {
    let stage = Stage::new();
    stage.write("noshebang.sh", "true\n");
    stage.write("empty.sh", "");
    stage.write("dos.sh", "#!/bin/sh\r\ntrue\r\n");
    stage.write("badopt.sh", "#!/bin/sh\n#SBATCH --nosuchoption\ntrue\n");
    stage.write("stray.sh", "#!/bin/sh\n#SBATCH -J dask w\ntrue\n");
    let no_shebang = "sbatch: error: This does not look like a batch script.  The first\n\
                      sbatch: error: line must start with #! followed by the path to an interpreter.\n\
                      sbatch: error: For instance: #!/bin/sh\n";
    let unknown = "sbatch: unrecognized option '--nosuchoption'\nTry \"sbatch --help\" for more information\n";
    let cases: &[(&[&str], &str, i32)] = &[
        (
            &["sbatch", "-t", "abc", "--wrap", "true"],
            "sbatch: error: 'abc' is not a time limit such as 30 (minutes), 2:00:00, 1-12:00 or UNLIMITED\n\
             sbatch: error: Invalid --time specification\n",
            255,
        ),
        (
            &["sbatch", "--mem=12Q", "--wrap", "true"],
            "sbatch: error: '12Q' is not a size such as 500M, 4G or 2048 (MiB)\n\
             sbatch: error: Invalid --mem specification\n",
            255,
        ),
        (
            &["sbatch", "--nice=abc", "--wrap", "true"],
            "sbatch: error: 'abc' is not a whole number such as 100 or -10\n\
             sbatch: error: Invalid --nice specification\n",
            255,
        ),
        (
            &["sbatch", "--exclusive=bogus", "--wrap", "true"],
            "sbatch: error: --exclusive takes nothing, 'user' or 'mcs'\n\
             sbatch: error: Invalid --exclusive specification\n",
            255,
        ),
        (
            &["sbatch", "-n", "0", "--wrap", "true"],
            "sbatch: error: Invalid numeric value \"0\" for --ntasks.\n",
            1,
        ),
        (
            &["sbatch", "nosuchfile.sh"],
            "sbatch: error: Unable to open file nosuchfile.sh\n",
            1,
        ),
        (&["sbatch", "noshebang.sh"], no_shebang, 1),
        (
            &["sbatch", "empty.sh"],
            "sbatch: error: Batch script is empty!\n",
            1,
        ),
        (
            &["sbatch", "/tmp"],
            "sbatch: error: Batch script is empty!\n",
            1,
        ),
        (
            &["sbatch", "dos.sh"],
            "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n\
             sbatch: error: instead of expected UNIX line breaks (\\n).\n",
            1,
        ),
        (&["sbatch", "badopt.sh"], unknown, 255),
        (&["sbatch", "--nosuchoption", "x"], unknown, 255),
        (
            &["sbatch", "stray.sh"],
            "sbatch: error: Invalid directive found in batch script: w\n",
            255,
        ),
        (
            &["sbatch", "--wrap", "true", "sleep.sh"],
            "sbatch: error: Script arguments not permitted with --wrap option\n",
            1,
        ),
        (&["srun"], "srun: fatal: No command given to execute.\n", 1),
        (
            &["scancel"],
            "scancel: error: No job identification provided\n",
            1,
        ),
        (
            &["scancel", "foo"],
            "scancel: error: Invalid job id foo\n",
            1,
        ),
        (
            &["scancel", "-s", "FOO", "1"],
            "Unknown job signal: FOO\n",
            1,
        ),
    ];
    for (args, stderr, code) in cases {
        let seen = stage.run(args);
        assert_eq!(seen.stderr, *stderr, "{args:?}");
        assert_eq!((seen.stdout.as_str(), seen.code), ("", *code), "{args:?}");
    }
    assert_eq!(
        stage.run_with(&["sbatch"], &[], "true\n").stderr,
        no_shebang
    );
    let seen = stage.run(&["sbatch", "--container=x", "--wrap", "true"]);
    assert!(
        seen.stderr
            .starts_with("sbatch: error: --container is not supported: "),
        "{}",
        seen.stderr
    );
}

#[test]
fn help_and_version() {
    let stage = Stage::new();
    for name in ["sbatch", "srun", "salloc"] {
        let help = stage.run(&[name, "--help"]);
        assert_eq!(help.code, 0);
        insta::assert_snapshot!(format!("{name}_help"), help.stdout);
        let usage = stage.run(&[name, "--usage"]);
        assert!(usage.stdout.starts_with(&format!("Usage: {name} [")) && usage.code == 0);
        assert!(
            usage.stdout.lines().all(|l| l.len() <= 80),
            "{}",
            usage.stdout
        );
    }
    for name in ["sbatch", "srun", "salloc", "scancel", "scontrol"] {
        let version = stage.run(&[name, "--version"]).stdout;
        assert_eq!(version, format!("slurm {}\n", muster_cli::SLURM_VERSION));
    }
}

#[test]
fn test_only_tells_when() {
    let stage = Stage::new();
    stage.controller(|_| {
        vec![Response::Reply(Box::new(Reply::WouldStart {
            at: Timestamp::from_unix_s(1_795_470_826),
            cpus: 2,
            nodes: "n[1-2]".to_owned(),
            partition: "batch".to_owned(),
            id: JobId(21),
        }))]
    });
    let seen = stage.run(&["sbatch", "--test-only", "-N2", "--wrap", "true"]);
    assert_eq!(
        seen.stderr,
        "sbatch: Job 21 to start at 2026-11-23T21:53:46 using 2 processors on nodes n[1-2] in partition batch\n"
    );
    assert_eq!((seen.stdout.as_str(), seen.code), ("", 0));
}

#[test]
fn salloc_holds_while_its_command_runs() {
    let stage = Stage::new();
    stage.willing_controller(&["n1"]);
    let command = [
        "salloc",
        "-n1",
        "sh",
        "-c",
        "echo $SLURM_JOB_ID $SLURM_JOB_NODELIST; exit 3",
    ];
    let seen = stage.run(&command);
    assert_eq!((seen.stdout.as_str(), seen.code), ("5 n1\n", 3));
    assert_eq!(
        seen.stderr,
        "salloc: Granted job allocation 5\nsalloc: Relinquishing job allocation 5\n"
    );
    let requests = stage.requests.lock().unwrap();
    assert!(requests.contains(&RequestBody::Hold(JobId(5))));
    let end = UserCommand::EndAllocation {
        job: JobId(5),
        exit: ExitStatus { code: 3, signal: 0 },
    };
    assert_eq!(requests.last(), Some(&RequestBody::Command(Box::new(end))));
    drop(requests);
    let seen = stage.run(&["salloc", "/nosuch/program"]);
    assert_eq!(seen.code, 1);
    assert!(
        seen.stderr
            .contains("salloc: error: _fork_command: Unable to find command \"/nosuch/program\"")
    );
    let seen = stage.run(&["salloc", "--no-shell"]);
    assert_eq!(
        (seen.stderr.as_str(), seen.code),
        ("salloc: Granted job allocation 5\n", 0)
    );
}

#[test]
fn scancel_asks_and_stays_quiet() {
    let stage = Stage::new();
    stage.controller(|_| {
        let gone = Refusal::new(RefusalCode::InvalidJobId, "there is no job 99999");
        vec![Response::Reply(Box::new(Reply::Done {
            changed: 0,
            refused: vec![("99999".to_owned(), gone)],
        }))]
    });
    let seen = stage.run(&["scancel", "99999"]);
    assert_eq!(
        (seen.stdout.as_str(), seen.stderr.as_str(), seen.code),
        ("", "", 0)
    );
    let seen = stage.run(&["scancel", "-v", "99999"]);
    assert_eq!(
        seen.stderr,
        "scancel: Terminating job 99999\n\
         scancel: error: Kill job error on job id 99999: Invalid job id specified\n"
    );
    assert_eq!(seen.code, 0);
    for args in [
        &["scancel", "-s", "USR1", "99999"][..],
        &["scancel", "99999.0"],
    ] {
        let seen = stage.run(args);
        assert!(seen.stderr.ends_with(": Invalid job id specified\n"));
        assert_eq!(seen.code, 1, "{args:?}");
    }
    stage.run(&["scancel", "7", "--signal", "USR2", "-b"]);
    let requests = stage.requests.lock().unwrap();
    match requests.last() {
        Some(RequestBody::Command(command)) => match &**command {
            UserCommand::Signal {
                signal,
                scope,
                selection,
            } => {
                assert_eq!((*signal, *scope), (12, SignalScope::Batch));
                assert_eq!(selection.targets[0].job, JobId(7));
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// How nice this process is: field 19 of proc(5) `stat`.
fn niceness() -> String {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    after_name.split_whitespace().nth(16).unwrap().to_owned()
}
