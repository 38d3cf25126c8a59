//! Groups of users, from the system's user database, which may be on other machines and slow, and which loads modules of the
//! site. They are looked up before a launch, each time by a process of its own that is executed afresh without
//! privileges, so that nobody but the user waits.

use super::jobs::{Role, Shim};
use crate::role::{self, Start};
use crate::sys;
use muster_model::spec::Owner;
use muster_node_core::messages::User;
use nix::unistd::{Gid, getgrouplist};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long an answer is used without asking again: a burst of jobs asks once, a change is seen soon.
const FRESH: Duration = Duration::from_secs(10);
/// How long it is used while the next one is on its way.
const USABLE: Duration = Duration::from_secs(300);
/// Look-ups that are under way at a time.
const LOOKUPS_MAX: usize = 32;
/// How long one may take before it is killed and begun anew.
const LOOKUP_WAIT: Duration = Duration::from_secs(120);
/// Bytes of an answer.
const ANSWER_MAX: usize = 1 << 20;

/// The argument with which the launcher's program looks up groups instead.
pub(super) const GROUPS_ARGUMENT: &str = "--groups";
/// The user and group that a look-up runs as: numbers that no account has. What it answers becomes groups of jobs, so no process of
/// others may look into it or signal it, and there are such of the user nobody: jobs, and programs of the system.
const LOOK_UP_ID: u32 = 65_530;

/// A user's name and primary group.
pub(super) type Account = (String, u32);

/// A look-up under way.
#[derive(Debug)]
struct LookUp {
    account: Account,
    pid: i32,
    answer: UnixStream,
    bytes: Vec<u8>,
    by: Instant,
}

/// What is known, and what is being asked.
#[derive(Debug)]
pub(super) struct Users {
    known: HashMap<Account, (Instant, Rc<[u32]>)>,
    asked: Vec<LookUp>,
    /// Are asked when there is room.
    waiting: VecDeque<Account>,
    /// Processes that were started since the last look at them.
    started: Vec<i32>,
    start: fn(&Account) -> io::Result<(i32, UnixStream)>,
}

impl Default for Users {
    fn default() -> Users {
        Users {
            known: HashMap::new(),
            asked: Vec::new(),
            waiting: VecDeque::new(),
            started: Vec::new(),
            start: start_look_up,
        }
    }
}

impl Users {
    /// All groups of a user, if they are known; else a look-up will give them.
    fn groups(&mut self, account: &Account) -> Option<Rc<[u32]>> {
        let known = self.known.get(account);
        let age = known.map(|(at, _)| at.elapsed());
        let groups = known.map(|(_, groups)| Rc::clone(groups));
        if age.is_none_or(|age| age >= FRESH) {
            self.ask(account);
        }
        groups.filter(|_| age.is_some_and(|age| age < USABLE))
    }

    fn ask(&mut self, account: &Account) {
        let is_asked = self.asked.iter().any(|l| l.account == *account);
        if is_asked || self.waiting.contains(account) {
            return;
        }
        if self.asked.len() >= LOOKUPS_MAX {
            return self.waiting.push_back(account.clone());
        }
        match (self.start)(account) {
            Ok((pid, answer)) => {
                self.started.push(pid);
                self.asked.push(LookUp {
                    account: account.clone(),
                    pid,
                    answer,
                    bytes: Vec::new(),
                    by: Instant::now() + LOOKUP_WAIT,
                });
            }
            Err(e) => {
                eprintln!("no process to look up the groups of {}: {e}", account.0);
                self.found(account.clone(), vec![account.1]);
            }
        }
    }

    fn found(&mut self, account: Account, groups: Vec<u32>) {
        self.known.retain(|_, (at, _)| at.elapsed() < USABLE);
        self.known.insert(account, (Instant::now(), groups.into()));
        if let Some(next) = self.waiting.pop_front() {
            self.ask(&next);
        }
    }

    /// A look-up has something to say; whose groups are known now, if it was the last of it.
    fn receive(&mut self, fd: RawFd) -> Option<Account> {
        let is_it = |l: &LookUp| l.answer.as_raw_fd() == fd;
        let at = self.asked.iter().position(is_it)?;
        let look_up = &mut self.asked[at];
        let mut chunk = [0; 4 << 10];
        match look_up.answer.read(&mut chunk) {
            Ok(n) if n > 0 && look_up.bytes.len() + n <= ANSWER_MAX => {
                look_up.bytes.extend_from_slice(&chunk[..n]);
                return None;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return None,
            _ => {}
        }
        let LookUp { account, bytes, .. } = self.asked.swap_remove(at);
        let groups = minicbor::decode(&bytes).unwrap_or_else(|_| {
            eprintln!("the groups of {} cannot be looked up", account.0);
            vec![account.1]
        });
        self.found(account.clone(), groups);
        Some(account)
    }

    /// Begins look-ups anew that have taken too long.
    fn repeat_late(&mut self, now: Instant) {
        while let Some(at) = self.asked.iter().position(|l| l.by <= now) {
            let LookUp { account, pid, .. } = self.asked.swap_remove(at);
            eprintln!("looking up the groups of {} takes too long", account.0);
            sys::kill(pid, libc::SIGKILL);
            self.waiting.push_back(account);
            if let Some(next) = self.waiting.pop_front() {
                self.ask(&next);
            }
        }
    }
}

fn start_look_up(account: &Account) -> io::Result<(i32, UnixStream)> {
    let (answer, far_end) = UnixStream::pair()?;
    answer.set_nonblocking(true)?;
    let pid = Start {
        words: &[super::SHIM_NAME, GROUPS_ARGUMENT],
        environment: Vec::new(),
        user: &look_up_user(),
        order: minicbor::to_vec(account).expect("writing to memory cannot fail"),
        errors: None,
        kept: vec![far_end.as_raw_fd()],
        outlives: false,
    }
    .start()?;
    Ok((pid, answer))
}

fn look_up_user() -> User {
    User {
        uid: LOOK_UP_ID,
        gid: LOOK_UP_ID,
        groups: Vec::new(),
        name: String::new(),
    }
}

/// All groups of a user, the primary one included. One who is not in the database has only that.
fn look_up((user, gid): &Account) -> Vec<u32> {
    let found = CString::new(user.as_str())
        .ok()
        .and_then(|name| getgrouplist(&name, Gid::from_raw(*gid)).ok());
    found.map_or_else(
        || vec![*gid],
        |all| all.into_iter().map(Gid::as_raw).collect(),
    )
}

/// The process that looks up groups.
pub(super) fn groups_main() -> ExitCode {
    let answer = || -> io::Result<()> {
        let account: Account = minicbor::decode(&role::read_order()?).map_err(io::Error::other)?;
        let mut answer = File::from(role::take_descriptor(role::FIRST_FD)?);
        let groups = look_up(&account);
        answer.write_all(&minicbor::to_vec(groups).map_err(io::Error::other)?)
    };
    match answer() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

impl Shim {
    /// The identity of a job's owner, if the groups are known; else [`Shim::groups_found`] comes.
    pub(super) fn user_of(&mut self, owner: &Owner) -> Option<Rc<User>> {
        let groups = self.users.groups(&(owner.user.clone(), owner.gid));
        self.enter_look_ups();
        Some(Rc::new(User {
            uid: owner.uid,
            gid: owner.gid,
            groups: groups?.to_vec(),
            name: owner.user.clone(),
        }))
    }

    /// Descriptors of look-ups that are under way: [`Shim::receive_groups`].
    pub(super) fn look_up_fds(&self) -> impl Iterator<Item = RawFd> {
        self.users.asked.iter().map(|l| l.answer.as_raw_fd())
    }

    /// A look-up has something to say, if this is one.
    pub(super) fn receive_groups(&mut self, fd: RawFd) {
        if let Some(account) = self.users.receive(fd) {
            self.enter_look_ups();
            self.groups_found(&account);
        }
    }

    pub(super) fn repeat_late_look_ups(&mut self, now: Instant) {
        self.users.repeat_late(now);
        self.enter_look_ups();
    }

    /// When the first of the look-ups is late.
    pub(super) fn look_up_deadline(&self) -> Option<Instant> {
        self.users.asked.iter().map(|l| l.by).min()
    }

    fn enter_look_ups(&mut self) {
        let started = std::mem::take(&mut self.users.started);
        self.roles
            .extend(started.into_iter().map(|pid| (pid, Role::Other)));
    }

    /// The groups of a user are known: what waited for them goes on.
    fn groups_found(&mut self, account: &Account) {
        let is_of = |owner: &Owner| (&owner.user, owner.gid) == (&account.0, account.1);
        let waiting: HashSet<_> = self.without_groups.iter().copied().collect();
        for run in waiting {
            let grant = self.jobs.get(&run).and_then(|e| e.grant.as_ref());
            if grant.is_none_or(|grant| is_of(&grant.spec.owner)) {
                self.without_groups.remove(&run);
                self.go_on_with_groups(run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    thread_local! {
        /// Far ends of look-ups.
        static FAR: RefCell<Vec<UnixStream>> = const { RefCell::new(Vec::new()) };
    }

    fn account(number: u32) -> Account {
        (format!("u{number}"), number)
    }

    /// Of users with an odd number nothing is ever received.
    fn slow_for_some((_, gid): &Account) -> io::Result<(i32, UnixStream)> {
        let (near, mut far) = UnixStream::pair()?;
        near.set_nonblocking(true)?;
        match gid % 2 {
            1 => FAR.with_borrow_mut(|all| all.push(far)),
            _ => far.write_all(&minicbor::to_vec(vec![*gid, 7]).unwrap())?,
        }
        Ok((i32::MAX, near))
    }

    fn users() -> Users {
        Users {
            start: slow_for_some,
            ..Users::default()
        }
    }

    /// A command of a user whose only group has the same number.
    fn command_of(id: u32, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).uid(id).gid(id);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// What it answers is believed: a job of the user nobody could have had any groups, root's with them.
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

    #[test]
    fn a_user_whose_groups_do_not_come_delays_no_other() {
        let mut users = users();
        assert_eq!(users.groups(&account(1)), None);
        assert_eq!(users.groups(&account(2)), None);
        let fds: Vec<RawFd> = users.asked.iter().map(|l| l.answer.as_raw_fd()).collect();
        assert_eq!(users.receive(fds[0]), None);
        assert_eq!(users.receive(fds[1]), None, "there may come more");
        assert_eq!(users.receive(fds[1]), Some(account(2)));
        assert_eq!(users.groups(&account(2)).as_deref(), Some(&[2, 7][..]));
        assert_eq!(users.groups(&account(1)), None);
        assert_eq!(users.asked.len(), 1, "once");
        // One that takes too long is begun anew.
        let first = users.asked[0].by;
        users.repeat_late(Instant::now());
        assert_eq!(users.asked[0].by, first);
        users.repeat_late(first);
        assert_eq!(users.asked.len(), 1);
        assert!(users.asked[0].by > first);
    }

    #[test]
    fn an_answer_is_used_while_the_next_is_on_its_way() {
        let mut users = users();
        let ago = |age| Instant::now().checked_sub(age).unwrap();
        let one: Rc<[u32]> = Rc::new([1]);
        users
            .known
            .insert(account(1), (ago(FRESH * 2), one.clone()));
        assert_eq!(users.groups(&account(1)), Some(one.clone()));
        assert_eq!(users.asked.len(), 1);
        users.known.insert(account(3), (ago(USABLE), one));
        assert_eq!(users.groups(&account(3)), None);
    }
}
