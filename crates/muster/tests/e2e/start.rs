//! What every start of a command costs: counted, not timed.

use crate::cluster::Cluster;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

/// Libraries would be mapped, relocated and initialised at each start.
#[test]
fn commands_load_no_library() {
    let Some(commands) = option_env!("MUSTER_COMMANDS") else {
        eprintln!(
            "not looked at: this build carries no commands of its own (cargo xtask check gives it them)"
        );
        return;
    };
    let program = std::fs::read(commands).unwrap();
    // A program that needs libraries names the loader that is to bring them.
    let loader = program
        .windows(7)
        .any(|w| w == b"/ld-lin" || w == b"/ld-mus");
    assert!(!loader, "{commands} names a loader");
}

/// `muster install` lays out every name: daemons are `muster`, and commands the program that starts quickly, where this
/// build carries it.
#[test]
fn daemons_and_commands_are_installed_under_their_names() {
    let dir = std::env::temp_dir().join(format!("muster-install-{}", std::process::id()));
    // Twice: what is there is replaced.
    for _ in 0..2 {
        let muster = Command::new(env!("CARGO_BIN_EXE_muster"))
            .args(["install".as_ref(), dir.as_os_str()])
            .status()
            .unwrap();
        assert!(muster.success());
    }
    let program = |name: &str| std::fs::metadata(dir.join(name)).unwrap().ino();
    let commands = option_env!("MUSTER_COMMANDS").map_or("muster", |_| "muster-commands");
    for name in ["slurmctld", "slurmd"] {
        assert_eq!(program(name), program("muster"), "{name}");
    }
    for name in ["sbatch", "srun", "squeue", "sacct", "scontrol"] {
        assert_eq!(program(name), program(commands), "{name}");
        let out = Command::new(dir.join(name)).arg("--version").output();
        let told = String::from_utf8(out.unwrap().stdout).unwrap();
        assert!(told.starts_with("slurm "), "{name}: {told}");
    }
    assert!(!dir.join(".new").exists());
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Tools find daemons by the file that they run, and wait until none is left after they have stopped them: launchers, which run on,
/// were taken for slurmd.
#[test]
fn processes_are_found_under_their_own_names() {
    let c = Cluster::start(1, 1);
    let job = c.sbatch("-o /dev/null --wrap 'sleep 1000'");
    c.until_prints(&format!("squeue -h -j {job} -o %T"), "RUNNING");
    let found = |name: &str| {
        c.ok(&format!(
            "for of in $(pgrep -f $(dirname $SLURM_CONF)/); do \
               [ \"$(readlink /proc/$of/exe)\" = $(dirname $SLURM_CONF)/bin/{name} ] && cat /proc/$of/comm; \
             done | sort | tr '\\n' ' '"
        ))
    };
    assert!(
        found("slurmctld").starts_with("slurmctld"),
        "{}",
        found("slurmctld")
    );
    assert!(!found("slurmd").contains("shim"), "{}", found("slurmd"));
    assert!(
        found("muster").contains("muster-shim"),
        "{}",
        found("muster")
    );
    c.ok("scontrol shutdown");
    c.until_prints(
        "for of in $(pgrep -f $(dirname $SLURM_CONF)/); do readlink /proc/$of/exe; done | grep -c '/slurm' || true",
        "0",
    );
}

/// Root's daemons were links to the builder's file: who built them could change them.
#[test]
fn a_program_that_others_can_write_to_is_copied() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not looked at: it takes root to have a file of another user's");
        return;
    }
    let dir = std::env::temp_dir().join(format!("muster-install-of-others-{}", std::process::id()));
    let (own, installed) = (dir.join("built"), dir.join("installed"));
    std::fs::create_dir_all(&dir).unwrap();
    let is_root = |at: &std::path::Path| {
        let file = std::fs::metadata(at).unwrap();
        (file.uid(), file.mode() & 0o7777) == (0, 0o755)
    };
    for (uid, mode) in [(65534, 0o755), (0, 0o775)] {
        // Not by this process: a child of another test would have the file open for writing while it is run.
        let copied = Command::new("cp")
            .args([env!("CARGO_BIN_EXE_muster").as_ref(), own.as_os_str()])
            .status();
        assert!(copied.unwrap().success());
        std::os::unix::fs::chown(&own, Some(uid), None).unwrap();
        std::fs::set_permissions(&own, PermissionsExt::from_mode(mode)).unwrap();
        let muster = Command::new(&own)
            .args(["install".as_ref(), installed.as_os_str()])
            .status()
            .unwrap();
        assert!(muster.success());
        let inode = |at: &std::path::Path| std::fs::metadata(at).unwrap().ino();
        assert_ne!(
            inode(&own),
            inode(&installed.join("slurmd")),
            "{uid} {mode:o}"
        );
        assert!(is_root(&installed.join("slurmd")), "{uid} {mode:o}");
        assert!(is_root(&installed.join("sbatch")), "{uid} {mode:o}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// `muster ... | head`: a reader that has gone away is no failure to tell of.
#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    for words in [&["help"][..], &["sim", "--help"], &["version"], &["doctor"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = Command::new(env!("CARGO_BIN_EXE_muster"))
            .args(words)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(
            (ended.status.code(), told.as_str()),
            (Some(141), ""),
            "{words:?}"
        );
    }
}

/// Whoever starts a cluster may have a mask that lets others write.
#[test]
fn nobody_else_writes_what_a_cluster_makes_whatever_the_mask() {
    let c = Cluster::fresh();
    let program = env!("CARGO_BIN_EXE_muster");
    let home = c.path("");
    let up = format!(
        "umask 000; export MUSTER_HOME={}; {program} up --nodes 1 --cpus 2",
        home.display()
    );
    c.ok(&up);
    c.ok("srun true");
    // What is there already stays as it was made.
    c.ok(&up);
    assert_eq!(c.ok("stat -c %a ../spool.n1"), "711");
    let found = "find .. -path ../work -prune -o -path '../tmp.*' -prune -o ! -type l ! -type s -perm /022 -print";
    assert_eq!(c.ok(found), "");
    for verb in ["env", "down"] {
        let ran = c.muster(verb, &[]);
        assert!(
            ran.status.success(),
            "{verb}: {}",
            String::from_utf8_lossy(&ran.stderr)
        );
    }
}
