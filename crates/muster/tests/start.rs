//! What every start of a command costs: counted, not timed.

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
