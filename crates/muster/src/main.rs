//! One binary, every role: the name it is called by says which. Links to it bear Slurm's names.
#![deny(unsafe_code)]
#![cfg_attr(not(test), no_main)]

#[macro_use]
mod say;

mod archive_process;
mod bench;
mod cluster;
mod conf_owner;
mod controller_host;
mod daemon;
mod doctor;
mod emulate;
mod export;
mod flags;
mod generate;
mod given_conf;
mod given_configuration;
mod heap;
mod help;
mod home;
mod hosts;
mod import;
mod init;
mod install;
mod logging;
mod mpi;
mod node;
mod roles;
mod sackd;
mod scratch;
mod service_records;
mod simulate;
mod slurm_user;
mod slurmctld;
mod slurmd;
mod slurmdbd;
mod slurmrestd;
#[cfg(not(test))]
mod start;
mod web;

use std::process::ExitCode;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap;

/// Runs the role of the name by which the process was called.
#[cfg_attr(test, allow(dead_code))]
fn main_by_name() -> ExitCode {
    let mut args = std::env::args_os().map(|a| a.to_string_lossy().into_owned());
    let called = args.next().unwrap_or_default();
    let name = muster_cli::process::called_as(&called);
    let args: Vec<String> = args.collect();
    match roles::by_link(name) {
        Some(role) => roles::run(role, name, &args),
        None => muster(&args),
    }
}

/// `muster COMMAND ...`: our own commands, and every role by name.
fn muster(args: &[String]) -> ExitCode {
    let Some((command, rest)) = args.split_first() else {
        complain!("{}", help::GENERAL.trim_end());
        return ExitCode::from(1);
    };
    // The words after a host's name are a command with options of its own; a kind of import has help of its own.
    let own = if ["host", "import"].contains(&command.as_str()) {
        rest.get(..1).unwrap_or(rest)
    } else {
        rest
    };
    if help::is_wanted(own)
        && let Some(text) = help::of_command(command)
    {
        return print_help(text);
    }
    if ["up", "install", "emulate", "down"].contains(&command.as_str()) {
        roles::keep_others_from_writing();
    }
    match command.as_str() {
        "help" | "--help" | "-h" => match rest {
            [command, ..] if roles::by_command(command).is_some() || help::is_own(command) => {
                muster(&[command.clone(), "--help".to_owned()])
            }
            _ => print_help(help::GENERAL),
        },
        "version" | "--version" | "-V" => {
            say!("muster {}\n", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        "up" => report(cluster::up(rest)),
        "down" => report(cluster::down(rest)),
        "env" => report(cluster::env(rest)),
        "host" => report(cluster::host(rest)),
        "config" => cluster::config(rest),
        "generate" => report(generate::run(rest)),
        "export" => report(export::main(rest)),
        "import" => report(import::main(rest)),
        "install" => report(cluster::install(rest)),
        "node" => report(node::main(rest)),
        "init" => report(init::main(rest)),
        "sim" => report(simulate::main(rest)),
        "doctor" => report(doctor::main(rest)),
        "bench" => report(bench::main(rest)),
        muster_ctld::ARCHIVE_COMMAND => report(archive_process::main(rest)),
        scratch::guard::COMMAND => report(scratch::guard::main(rest)),
        "why" => muster_cli::why(rest),
        "class" => muster_cli::class(rest),
        "logs" => muster_cli::logs(rest),
        "watch" => muster_cli::watch(rest),
        "top" => muster_cli::top(rest),
        "web" => report(web::main(rest)),
        "report" => muster_cli::report(rest),
        "storage" => muster_cli::storage(rest),
        "emulate" => report(emulate::main(rest)),
        other => match roles::by_command(other) {
            Some((role, name)) => roles::run(role, name, rest),
            None => {
                complain!("muster: there is no command '{other}'. 'muster help' lists them.");
                ExitCode::from(1)
            }
        },
    }
}

fn print_help(text: &str) -> ExitCode {
    say!("{text}");
    ExitCode::SUCCESS
}

fn report(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|e| {
        complain!("muster: {e:#}");
        ExitCode::from(1)
    })
}
