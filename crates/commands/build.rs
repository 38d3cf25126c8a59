//! How the commands are laid out: constants come before code, and headers, code and constants are one mapping. Then what a
//! command needs lies in the first 2 MiB, which the kernel maps by one entry where the file's pages are one piece of memory, as
//! a file that was written at once is if there is such a piece (`muster/install.rs` writes it so); and each mapping that a
//! program has costs its start and its end.

use std::path::Path;

/// Adds a section to the linker's usual ones.
const SCRIPT: &str = "SECTIONS { .rodata.early : { *(.rodata .rodata.*) } } INSERT BEFORE .text\n";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let is_static = var("CARGO_CFG_TARGET_OS") == "linux" && var("CARGO_CFG_TARGET_ENV") == "musl";
    if !is_static || var("PROFILE") != "release" {
        return;
    }
    println!("cargo:rustc-link-arg-bins=-Wl,-z,noseparate-code");
    let script = Path::new(&var("OUT_DIR")).join("constants_first.ld");
    match std::fs::write(&script, SCRIPT) {
        Ok(()) => println!("cargo:rustc-link-arg-bins=-Wl,-T,{}", script.display()),
        Err(e) => println!("cargo:warning=constants stay where they are: {e}"),
    }
}
