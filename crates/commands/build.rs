//! How the commands are laid out: functions that they run lie side by side. Spread over all of the program, each brings a
//! page fault of its own, and a command lives for less than a millisecond, of which these are a good part.
//! `muster/install.rs` writes the program at once.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=early_text.txt");
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let is_static = var("CARGO_CFG_TARGET_OS") == "linux" && var("CARGO_CFG_TARGET_ENV") == "musl";
    if !is_static || var("PROFILE") != "release" {
        return;
    }
    // A section of its own beside the linker's usual ones. It begins with what the C library has in sections that bear no
    // names. Functions that are called from another file than the one they were compiled in may have a longer name, those that the
    // compiler takes for rarely called a longer section's.
    let list = include_str!("early_text.txt");
    let functions = list.lines().filter(|line| !line.starts_with('#'));
    let sections: String = functions
        .map(|name| {
            let early = [".text.", ".text.unlikely."]
                .map(|s| format!("\"{s}{name}\" \"{s}{name}.llvm.*\""));
            format!("*({})\n", early.join(" "))
        })
        .collect();
    // Constants come before them: then what commands need lies in the first 2 MiB, which the kernel maps by one entry where
    // the file's pages are one piece of memory, as a file that was written at once is if there is such a piece.
    let text = format!(
        "SECTIONS {{ .rodata.early : {{ *(.rodata .rodata.*) }} .text.early : {{\n*crt1.o(.text)\n*__set_thread_area.lo(.text)\n*memset.lo(.text)\n*(.text._Exit)\nKEEP(*(SORT_NONE(.fini)))\n{sections}}} }} INSERT BEFORE .text\n"
    );
    // Headers, code and constants are one mapping then: each that a program has costs its start and its end.
    println!("cargo:rustc-link-arg-bins=-Wl,-z,noseparate-code");
    let script = Path::new(&var("OUT_DIR")).join("early_text.ld");
    match std::fs::write(&script, text) {
        Ok(()) => println!("cargo:rustc-link-arg-bins=-Wl,-T,{}", script.display()),
        Err(e) => println!("cargo:warning=functions stay where they are: {e}"),
    }
}
