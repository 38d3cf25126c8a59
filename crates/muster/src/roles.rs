//! The roles of the binary and the names they answer to.

use std::process::ExitCode;

/// What a process of this binary can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The controller.
    Controller,
    /// A node's agent.
    Agent,
    /// A node's supervisor of processes; started by the agent.
    Shim,
    /// sbatch, srun, salloc, scancel, scontrol.
    Submit,
    /// squeue, sinfo, sacct, sdiag and the like.
    Listing,
}

/// Link name, role, and the `muster` subcommand of the same role where it has another name.
const NAMES: [(&str, Role, Option<&str>); 16] = [
    ("slurmctld", Role::Controller, Some("ctld")),
    ("slurmd", Role::Agent, Some("noded")),
    ("muster-shim", Role::Shim, Some("shim")),
    ("sbatch", Role::Submit, None),
    ("srun", Role::Submit, None),
    ("salloc", Role::Submit, None),
    ("scancel", Role::Submit, None),
    ("scontrol", Role::Submit, None),
    ("squeue", Role::Listing, None),
    ("sinfo", Role::Listing, None),
    ("sacct", Role::Listing, None),
    ("sacctmgr", Role::Listing, None),
    ("sdiag", Role::Listing, None),
    ("sprio", Role::Listing, None),
    ("sshare", Role::Listing, None),
    ("sstat", Role::Listing, None),
];

/// Names that a cluster's `bin` directory gets.
pub(crate) fn links() -> impl Iterator<Item = &'static str> {
    NAMES
        .iter()
        .filter(|(_, role, _)| *role != Role::Shim)
        .map(|(name, ..)| *name)
}

/// The role that a link's name stands for.
pub(crate) fn by_link(name: &str) -> Option<Role> {
    NAMES
        .iter()
        .find(|(link, ..)| *link == name)
        .map(|(_, role, _)| *role)
}

/// The role that a subcommand stands for, and the name to run it under.
pub(crate) fn by_command(command: &str) -> Option<(Role, &'static str)> {
    NAMES
        .iter()
        .find(|(link, _, own)| *link == command || *own == Some(command))
        .map(|(link, role, _)| (*role, *link))
}

/// Runs a role.
pub(crate) fn run(role: Role, name: &str, args: &[String]) -> ExitCode {
    match role {
        Role::Controller => crate::slurmctld::main(args),
        Role::Agent => crate::slurmd::main(args),
        Role::Shim => muster_node::shim_main(args.iter().cloned()),
        Role::Submit => muster_cli::submit::main(name, args),
        Role::Listing => muster_cli::listing::main(name, args),
    }
}
