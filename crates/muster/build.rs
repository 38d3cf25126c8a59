//! What the program carries and how it is laid out. Functions that every job needs lie side by side: spread over all of the
//! program, each brings a page fault of its own to the process that becomes the job. Without `-no-pie`, 60 pages of tables
//! with addresses would be written, and copied into every child that a shim forks.

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
    if var("PROFILE") == "release" {
        early_text(&Path::new(&var("OUT_DIR")).join("early_text.ld"));
    }
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

/// A linker script that adds a section of its own to the linker's usual ones.
fn early_text(script: &Path) {
    println!("cargo:rerun-if-changed=early_text.txt");
    let list = include_str!("early_text.txt");
    let functions = list.lines().filter(|line| !line.starts_with('#'));
    // Where a profile says how often a function runs, its section's name says so, too.
    let of = |name: &str| {
        ["", "hot.", "unlikely."]
            .map(|often| format!("\".text.{often}{name}\" \".text.{often}{name}.llvm.*\""))
            .join(" ")
    };
    let sections: String = functions.map(|name| format!("*({})\n", of(name))).collect();
    let text = format!("SECTIONS {{ .text.early : {{\n{sections}}} }} INSERT BEFORE .text\n");
    match std::fs::write(script, text) {
        Ok(()) => println!("cargo:rustc-link-arg-bins=-Wl,-T,{}", script.display()),
        Err(e) => println!("cargo:warning=functions stay where they are: {e}"),
    }
}
