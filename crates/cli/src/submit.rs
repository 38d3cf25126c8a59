//! sbatch, srun, salloc, scancel, scontrol: what they ask for. What a command line means is in `muster_conf::options`;
//! here are the conversations with controller and agents, and what users read on their terminals.

mod capture;
mod components;
mod holder;
mod incoming;
mod line;
mod login;
mod salloc;
mod say;
mod sbatch;
pub(crate) mod scancel;
pub(crate) mod scontrol;
mod script;
mod signals;
mod srun;
mod zone;

use muster_model::command::UserCommand;
use say::Say;
use std::process::ExitCode;

/// What sbatch with these arguments asks the controller for.
///
/// # Errors
/// The exit code of sbatch, after it has written why.
pub fn request(args: &[String]) -> Result<UserCommand, ExitCode> {
    sbatch::request(args)
}

/// Runs the command `name` with `args`, its own name left out.
pub fn main(name: &str, args: &[String]) -> ExitCode {
    match name {
        "salloc" => salloc::main(args),
        "sbatch" => sbatch::main(args),
        "srun" => srun::main(args),
        "scancel" => scancel::main(args),
        "scontrol" => scontrol::main(args),
        _ => {
            Say::new("muster").error(&format!("there is no command '{name}'"));
            ExitCode::FAILURE
        }
    }
}
