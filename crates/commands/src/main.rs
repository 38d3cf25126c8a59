//! Slurm's user commands and nothing else, to be linked statically: the dynamic C library asks the processor for its
//! features and caches before `main`, and under a hypervisor each question is a trap, together more than half of what a
//! command costs. `cargo xtask build` puts this program into `muster`, which lays it out under the commands' names.
#![deny(unsafe_code)]
#![cfg_attr(not(test), no_main)]

use muster_cli::connect;
#[cfg(not(test))]
use muster_cli::process;
use std::process::ExitCode;

/// The C library's own gives every few pages back and asks for them again.
#[global_allocator]
static HEAP: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// Called by the C library.
// SAFETY: the one definition of this symbol, with the signature that the C library calls.
#[cfg(not(test))]
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn main(
    argc: nix::libc::c_int,
    argv: *const *const nix::libc::c_char,
) -> nix::libc::c_int {
    // SAFETY: as the C library hands them over.
    let words = unsafe { process::arguments(argc, argv) };
    process::run(move || by_name(&words))
}

/// Runs the command by whose name the program was called, or that its first argument names.
fn by_name(words: &[String]) -> ExitCode {
    let Some((called, args)) = words.split_first() else {
        return ExitCode::FAILURE;
    };
    let name = muster_cli::process::called_as(called);
    // Neither libmunge nor any other library can be opened here.
    connect::hand_over(name, args);
    let run = || match args.split_first() {
        Some((first, rest)) => muster_cli::run(first, rest),
        None => None,
    };
    muster_cli::run(name, args)
        .or_else(run)
        .unwrap_or_else(|| {
            let names: Vec<&str> = muster_cli::names().collect();
            eprintln!(
                "{name}: this program is one of these commands, by the name of the link that it is called by: {}",
                names.join(", ")
            );
            ExitCode::FAILURE
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_command_fails() {
        let words = |text: &str| Vec::from_iter(text.split(' ').map(str::to_owned));
        assert_eq!(by_name(&words("/bin/muster-commands")), ExitCode::FAILURE);
        assert_eq!(by_name(&words("x squeue --version")), ExitCode::SUCCESS);
        assert_eq!(by_name(&words("/bin/squeue --version")), ExitCode::SUCCESS);
    }
}
