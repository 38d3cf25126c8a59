//! The roles of the binary and the names they answer to.

use nix::sys::stat::{Mode, umask};
use std::process::ExitCode;

/// Role of a process of this binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The controller.
    Controller,
    /// A node's supervisor.
    Supervisor,
    /// A node's agent; started by the supervisor.
    Agent,
    /// The process that starts a node's jobs and waits for them; started by the supervisor.
    Shim,
    /// The process that runs the tasks of a step; started by the shim.
    StepDaemon,
    /// The process that connects other hosts with a node's sockets; started by the supervisor.
    Relay,
    /// The process that makes a credential for a node; started by the supervisor.
    Credential,
    /// The process that makes tokens of auth/slurm for users of a node; started by the supervisor.
    Sack,
    /// The process that makes such tokens on hosts that are no nodes.
    TokenDaemon,
    /// The process that copies accounting to a database.
    AccountingCopy,
    /// The process that answers HTTP.
    RestServer,
    /// The process that runs job_submit.lua; started by the controller.
    Verifier,
    /// The process that becomes the program of a user's trigger; started by the controller.
    TriggerProgram,
    /// The process that serves MPI beside a step daemon; started by that.
    PmixHost,
    /// One of Slurm's user commands.
    Command,
}

/// Link name, role, and the `muster` subcommand of the same role.
const DAEMONS: [(&str, Role, &str); 14] = [
    ("slurmctld", Role::Controller, "ctld"),
    ("slurmd", Role::Supervisor, "noded"),
    ("sackd", Role::TokenDaemon, "sackd"),
    ("slurmdbd", Role::AccountingCopy, "dbd"),
    ("slurmrestd", Role::RestServer, "restd"),
    (muster_node::AGENT_NAME, Role::Agent, "agent"),
    (muster_node::LAUNCHER_NAME, Role::Shim, "shim"),
    (muster_node::STEPD_NAME, Role::StepDaemon, "stepd"),
    (muster_node::RELAY_NAME, Role::Relay, "relay"),
    (muster_node::CREDENTIAL_NAME, Role::Credential, "credential"),
    (muster_node::SACK_NAME, Role::Sack, "sack"),
    (muster_node::HOST_NAME, Role::PmixHost, "pmix-host"),
    (muster_verifier::process::NAME, Role::Verifier, "verifier"),
    (
        muster_ctld::trigger_program::NAME,
        Role::TriggerProgram,
        "trigger-program",
    ),
];

/// Names that a cluster's `bin` directory gets.
pub(crate) fn links() -> impl Iterator<Item = &'static str> {
    let daemons = DAEMONS
        .iter()
        .filter(|(_, role, _)| {
            use Role::{Agent, Credential, PmixHost, Relay, Sack, Shim, StepDaemon};
            use Role::{TriggerProgram, Verifier};
            !matches!(
                role,
                Agent
                    | Shim
                    | StepDaemon
                    | PmixHost
                    | Credential
                    | Relay
                    | Sack
                    | TriggerProgram
                    | Verifier
            )
        })
        .map(|(name, ..)| *name);
    daemons.chain(muster_cli::names())
}

/// The role that a link's name stands for.
pub(crate) fn by_link(name: &str) -> Option<Role> {
    let daemon = DAEMONS.iter().find(|(link, ..)| *link == name);
    let command = || muster_cli::names().any(|known| known == name);
    match daemon {
        Some((_, role, _)) => Some(*role),
        None => command().then_some(Role::Command),
    }
}

/// The role that a subcommand stands for, and the name to run it under.
pub(crate) fn by_command(command: &str) -> Option<(Role, &str)> {
    let daemon = DAEMONS
        .iter()
        .find(|(link, _, own)| *link == command || *own == command);
    match daemon {
        Some((link, role, _)) => Some((*role, link)),
        None => Some((by_link(command)?, command)),
    }
}

/// Has nobody else write what this process makes, whatever mask it was started with. What users run has their own mask.
pub(crate) fn keep_others_from_writing() {
    let writing = Mode::S_IWGRP | Mode::S_IWOTH;
    let before = umask(writing);
    umask(before | writing);
}

/// Runs a role.
pub(crate) fn run(role: Role, name: &str, args: &[String]) -> ExitCode {
    if role != Role::Command {
        keep_others_from_writing();
    }
    match role {
        Role::Controller => crate::slurmctld::main(args),
        Role::Supervisor => crate::slurmd::main(args),
        Role::Agent => crate::slurmd::agent_main(),
        Role::Shim => muster_node::launcher_main(args.iter().cloned()),
        Role::StepDaemon => muster_node::stepd_main(),
        Role::Relay => muster_node::relay_main(),
        Role::Credential => muster_node::credential_main(),
        Role::Sack => muster_node::sack_main(),
        Role::TokenDaemon => crate::sackd::main(args),
        Role::AccountingCopy => crate::slurmdbd::main(args),
        Role::RestServer => crate::slurmrestd::main(args),
        Role::Verifier => muster_verifier::process::main(),
        Role::TriggerProgram => muster_ctld::trigger_program::main(args),
        Role::PmixHost => muster_node::pmix_host_main(),
        Role::Command => {
            muster_cli::set_lua(muster_verifier::load_cli_filter);
            muster_cli::run(name, args).unwrap_or(ExitCode::FAILURE)
        }
    }
}
