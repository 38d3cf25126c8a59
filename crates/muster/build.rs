//! What the program carries and how it is linked. Without `-no-pie`, 60 pages of tables with addresses would be written, and
//! copied into every child that the launcher forks.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let out = var("OUT_DIR");
    for (variable, file) in [
        ("MUSTER_COMMANDS", "commands"),
        ("MUSTER_DRMAA", "drmaa"),
        ("MUSTER_DRMAA2", "drmaa2"),
        ("MUSTER_LIBSLURM", "libslurm"),
    ] {
        carry(variable, &var(variable), &Path::new(&out).join(file));
    }
    if var("CARGO_CFG_TARGET_OS") != "linux" || var("CARGO_CFG_TARGET_ENV") != "gnu" {
        return;
    }
    println!("cargo:rustc-link-arg-bins=-no-pie");
}

/// The statically linked program of the user commands, and the libraries libdrmaa, libdrmaa2 and libslurm, that `cargo xtask build` names
/// become parts of this one. Without the former the commands are links to this program, and start more slowly; without the latter
/// there are none.
fn carry(variable: &str, built: &str, copy: &Path) {
    println!("cargo:rerun-if-env-changed={variable}");
    let carried = match built {
        "" => std::fs::write(copy, ""),
        _ => {
            println!("cargo:rerun-if-changed={built}");
            std::fs::copy(built, copy).map(|_| ())
        }
    };
    carried.unwrap_or_else(|e| panic!("{variable}={built}: {e}"));
}
