//! Bad input: the exit status that Slurm gives, nothing on standard output, and a message that names the thing.

use crate::cluster::Cluster;

/// Command, exit status, words that the message must have.
const BAD: [(&str, i32, &[&str]); 20] = [
    (
        "sbatch -p nosuch --wrap true",
        1,
        &[
            "invalid partition specified: nosuch",
            "Invalid partition name specified",
        ],
    ),
    (
        "sbatch --mem=99999999 --wrap true",
        1,
        &[
            "Memory specification can not be satisfied",
            "Requested node configuration is not available",
        ],
    ),
    ("sbatch -t abc --wrap true", 255, &["time", "abc"]),
    (
        "sbatch nosuchfile.sh",
        1,
        &["Unable to open file nosuchfile.sh"],
    ),
    ("sbatch noshebang.sh", 1, &["#!"]),
    ("sbatch empty.sh", 1, &["empty"]),
    ("sbatch dos.sh", 1, &["DOS line breaks"]),
    ("sbatch badopt.sh", 255, &["nosuchoption"]),
    (
        "sbatch --nosuchoption x",
        255,
        &[
            "unrecognized option '--nosuchoption'",
            "Try \"sbatch --help\"",
        ],
    ),
    ("sbatch /tmp", 1, &["empty"]),
    ("sbatch --array=5-1 --wrap true", 1, &["array"]),
    ("sbatch --mem=12Q --wrap true", 255, &["12Q"]),
    (
        "sbatch -w nosuchnode --wrap true",
        1,
        &["nosuchnode", "Invalid node name specified"],
    ),
    ("sbatch --gres=gpu:1 --wrap true", 1, &["gres"]),
    (
        "sbatch -C nosuch --wrap true",
        1,
        &["Invalid feature specification"],
    ),
    ("sbatch -n 0 --wrap true", 1, &["0"]),
    ("echo true | sbatch", 1, &["#!"]),
    (
        "sbatch --reservation=nosuch --wrap true",
        1,
        &["Requested reservation is invalid"],
    ),
    (
        "srun -p nosuch true",
        1,
        &[
            "Unable to allocate resources",
            "Invalid partition name specified",
        ],
    ),
    ("scontrol hold 99999", 1, &["Invalid job id specified"]),
];

#[test]
fn bad_input_is_refused_with_slurms_exit_status_and_a_clear_message() {
    let c = Cluster::start(1, 2);
    c.write("noshebang.sh", "true\n");
    c.write("empty.sh", "");
    c.write("dos.sh", "#!/bin/bash\r\ntrue\r\n");
    c.write("badopt.sh", "#!/bin/bash\n#SBATCH --nosuchoption=1\ntrue\n");
    for (command, code, words) in BAD {
        let ran = c.run(command);
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (code, ""),
            "{command}: {ran:?}"
        );
        for word in words {
            assert!(
                ran.err.contains(word),
                "{command} should say '{word}', but says\n{}",
                ran.err
            );
        }
    }
    assert_eq!(c.ok("squeue -h -t all"), "", "nothing was submitted");
}

#[test]
fn unknown_ids_are_told_as_clients_expect() {
    let c = Cluster::start(1, 2);
    let one = c.run("squeue -j 99999");
    assert_eq!(
        (one.code, one.err.as_str()),
        (1, "slurm_load_jobs error: Invalid job id specified\n")
    );
    let two = c.run("squeue -h -j 99999,99999");
    assert_eq!((two.code, two.out.as_str(), two.err.as_str()), (0, "", ""));
    assert_eq!(c.run("scontrol show job 99999").code, 1);
    assert_eq!(
        (
            c.run("sacct -n -j 99999").code,
            c.run("sacct -n -j 99999").out.as_str()
        ),
        (0, "")
    );
    c.kill(c.controller());
    let down = c.run("squeue");
    assert_eq!(down.code, 1);
    assert!(
        down.err.contains("Unable to contact slurm controller"),
        "{}",
        down.err
    );
    assert_eq!(c.start_controller().code, 0);
}

/// A limit that has no effect because of a typing error would not be missed before it is needed.
#[test]
fn a_misspelt_limit_on_requests_is_an_error_wherever_the_file_is_read() {
    let c = Cluster::start(1, 1);
    let good = std::fs::read_to_string(c.path("slurm.conf")).unwrap();
    let bad = format!("{good}SlurmctldParameters=rl_enable,rl_bucket_sise=3\n");
    let line = bad.lines().count();
    std::fs::write(c.path("slurm.conf"), bad).unwrap();
    let is_refused = |command: &str| {
        let ran = c.run(command);
        let said = format!("{}{}", ran.out, ran.err);
        assert_eq!(ran.code, 1, "{command}: {said}");
        for word in [
            &format!("slurm.conf:{line}:"),
            "rl_bucket_sise=3",
            "did you mean `rl_bucket_size`?",
        ] {
            assert!(said.contains(word), "{command}: {said}");
        }
    };
    is_refused("muster config check $SLURM_CONF");
    is_refused("scontrol reconfigure --dry-run");
    is_refused("scontrol reconfigure");
    c.kill(c.controller());
    is_refused("slurmctld");
    std::fs::write(c.path("slurm.conf"), good).unwrap();
    assert_eq!(c.start_controller().code, 0);
}
