//! The process that becomes the program of a user's trigger where the controller is root. It is executed anew, so that it has
//! nothing of the controller's memory, gives up root for good and only then executes what the user named. It decides nothing:
//! who may have triggers is said in the table of rights.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Uid, User, geteuid, initgroups, setresgid, setresuid, setsid};
use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// Processes that the owner of a trigger may have on the controller's host for its program to start more.
const PROCESSES_MAX: u64 = 4096;

/// Name of the process.
pub const NAME: &str = "muster-trigger";

/// Owner of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TriggerOwner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The command that becomes the user's program.
pub(crate) fn command(owner: TriggerOwner, program: &str, args: &[String]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(NAME)
        .args([owner.uid.to_string(), owner.gid.to_string()])
        .arg(program)
        .args(args);
    command
}

/// The process: becomes the user of the number in its arguments, then the program that follows.
pub fn main(args: &[String]) -> ExitCode {
    match run(args) {
        Ok(never) => match never {},
        Err(e) => {
            eprintln!("{NAME}: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> io::Result<std::convert::Infallible> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
    let [uid, gid, program, args @ ..] = args else {
        return Err(invalid("usage: UID GID PROGRAM [ARGUMENT ...]"));
    };
    let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n != u32::MAX);
    let (Some(uid), Some(gid)) = (number(uid), number(gid)) else {
        return Err(invalid("a uid or gid is invalid"));
    };
    if uid == 0 || !geteuid().is_root() {
        return Err(invalid("it makes root an ordinary user, and nothing else"));
    }
    // A terminal from which root started the controller is not the user's, who could type there.
    setsid()?;
    // Children inherit what the service manager gave the controller; only root can give it up.
    let _ = std::fs::write("/proc/self/oom_score_adj", "0");
    limit_processes()?;
    become_user(Uid::from_raw(uid), Gid::from_raw(gid))?;
    Err(Command::new(program).args(args).exec())
}

/// Gives the user's processes on this host a bound, as a login does: root has none.
fn limit_processes() -> io::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NPROC)?;
    let least = |limit: u64| limit.min(PROCESSES_MAX);
    setrlimit(Resource::RLIMIT_NPROC, least(soft), least(hard))?;
    Ok(())
}

/// Gives up root for good.
fn become_user(uid: Uid, gid: Gid) -> io::Result<()> {
    let user = User::from_uid(uid)?;
    let user = user.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such account"))?;
    let name = CString::new(user.name)?;
    initgroups(&name, gid)?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_becomes_no_root_and_nobody_whose_number_means_no_change() {
        let refused = |args: [&str; 3]| {
            let args = args.map(str::to_owned);
            run(&args).unwrap_err().to_string()
        };
        assert!(refused(["0", "0", "/bin/true"]).contains("ordinary user"));
        assert!(refused(["4294967295", "1", "/bin/true"]).contains("invalid"));
        assert!(refused(["1", "4294967295", "/bin/true"]).contains("invalid"));
        assert!(refused(["-1", "x", "/bin/true"]).contains("invalid"));
        assert!(run(&[]).is_err());
    }
}
