//! What the program carries and how it is linked. Without `-no-pie`, 60 pages of tables with addresses would be written, and
//! copied into every child that the launcher forks.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    carry_commands(
        &var("MUSTER_COMMANDS"),
        &Path::new(&var("OUT_DIR")).join("commands"),
    );
    if var("CARGO_CFG_TARGET_OS") != "linux" || var("CARGO_CFG_TARGET_ENV") != "gnu" {
        return;
    }
    println!("cargo:rustc-link-arg-bins=-no-pie");
}

/// The statically linked program of the user commands that `cargo xtask build` names becomes a part of this one. Without
/// it the commands are links to this program, and start more slowly.
fn carry_commands(built: &str, copy: &Path) {
    println!("cargo:rerun-if-env-changed=MUSTER_COMMANDS");
    let carried = match built {
        "" => std::fs::write(copy, ""),
        _ => {
            println!("cargo:rerun-if-changed={built}");
            std::fs::copy(built, copy).map(|_| ())
        }
    };
    carried.unwrap_or_else(|e| panic!("MUSTER_COMMANDS={built}: {e}"));
}
