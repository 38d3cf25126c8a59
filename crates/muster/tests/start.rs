//! What every start of a command costs: counted, not timed.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Libraries are mapped, relocated and initialised at each start; the C library alone is worth that.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn only_the_c_library_is_loaded() {
    let out = Command::new(env!("CARGO_BIN_EXE_muster"))
        .arg("--version")
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(|name| name.rsplit('/').next().unwrap_or(name))
        .filter(|name| !name.starts_with("linux-") && !name.starts_with("ld-"))
        .collect();
    assert_eq!(names, ["libc.so.6"], "{text}");
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
