//! Looks up groups of users in the system's user database, which loads modules of the site. Each
//! look-up runs in a separate process that is executed afresh without privileges.

use crate::role::{self, LAUNCHER_NAME, NO_ACCOUNT, Start};
use muster_node_core::launcher::UserAccount;
use muster_node_core::messages::ProcessIdentity;
use nix::unistd::{Gid, getgrouplist};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

/// The argument with which the launcher's program looks up groups.
pub(super) const GROUPS_ARGUMENT: &str = "--groups";
/// The groups in an answer, if it is complete; else only the primary one.
pub(super) fn groups_of(account: &UserAccount, answer: &[u8]) -> Vec<u32> {
    minicbor::decode(answer).unwrap_or_else(|_| {
        eprintln!("the groups of {} cannot be looked up", account.name);
        vec![account.gid]
    })
}

/// Starts a look-up; returns its process and the descriptor of its answer.
pub(super) fn start(account: &UserAccount) -> io::Result<(i32, UnixStream)> {
    let (answer, far_end) = UnixStream::pair()?;
    answer.set_nonblocking(true)?;
    let pid = Start {
        words: &[LAUNCHER_NAME, GROUPS_ARGUMENT],
        environment: Vec::new(),
        user: &look_up_user(),
        order: minicbor::to_vec((&account.name, account.gid))
            .expect("writing to memory cannot fail"),
        errors: None,
        is_untraceable: true,
        kept: vec![far_end.as_raw_fd()],
        outlives: false,
        namespace: None,
    }
    .start()?;
    Ok((pid, answer))
}

/// The answer determines the groups of jobs.
fn look_up_user() -> ProcessIdentity {
    ProcessIdentity {
        uid: NO_ACCOUNT,
        gid: NO_ACCOUNT,
        groups: Vec::new(),
        name: String::new(),
    }
}

/// All groups of a user including the primary one. A user who is not in the database has only that
/// one.
fn look_up(account: &UserAccount) -> Vec<u32> {
    let found = CString::new(account.name.as_str())
        .ok()
        .and_then(|name| getgrouplist(&name, Gid::from_raw(account.gid)).ok());
    found.map_or_else(
        || vec![account.gid],
        |all| all.into_iter().map(Gid::as_raw).collect(),
    )
}

/// The process that looks up groups.
pub(super) fn groups_main() -> ExitCode {
    let answer = || -> io::Result<()> {
        let (name, gid) = minicbor::decode(&role::read_order()?).map_err(io::Error::other)?;
        let account = UserAccount { name, gid };
        let mut answer = File::from(role::take_descriptor(role::FIRST_FD)?);
        let groups = look_up(&account);
        answer.write_all(&minicbor::to_vec(groups).map_err(io::Error::other)?)
    };
    match answer() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    /// A user whose only group has the same number as the user.
    fn command_of(id: u32, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).uid(id).gid(id);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// The launcher trusts the answer of the look-up. When the look-up ran as the user nobody, a job of that user
    /// could forge any groups, root's included.
    #[test]
    fn no_job_looks_into_a_look_up_or_signals_it() {
        const NOBODY: u32 = 65_534;
        if !nix::unistd::geteuid().is_root() {
            eprintln!("only root starts processes of others; this test looked at nothing");
            return;
        }
        let user = look_up_user();
        assert_eq!(user.uid, user.gid);
        let [of_look_up, of_nobody] = [user.uid, NOBODY].map(|id| {
            let mut process = command_of(id, "sleep", &["600"]).spawn().unwrap();
            let environment = format!("/proc/{}/environ", process.id());
            let signal = format!("kill -0 {}", process.id());
            let may = |program: &str, args: &[&str]| {
                let status = command_of(NOBODY, program, args).status();
                status.unwrap().success()
            };
            let done = (may("cat", &[&environment]), may("sh", &["-c", &signal]));
            process.kill().unwrap();
            process.wait().unwrap();
            done
        });
        assert_eq!(of_look_up, (false, false));
        assert_eq!(of_nobody, (true, true));
    }
}
