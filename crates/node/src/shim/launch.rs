//! A batch launch: what the launcher works out, what its child does with it, and what the process does that this becomes.
//!
//! The child shares the launcher's memory ([`sys::nursery`]), so it stays root there and only executes this program's own
//! file afresh: a change of identity would set the dumpable flag of that memory to `fs.suid_dumpable`, and a user could then
//! look into it by another child that waits for a file of the user's. The new process has its order in a memory file and
//! nothing else of the launcher's; it becomes the user, opens the user's files, which may take as long as the user likes, and
//! executes the script.

use super::batch::Launch;
use super::files::output_flags;
use super::membership::Row;
use crate::role;
use crate::sys::bare::{self, Errno, Line};
use crate::sys::nursery::Nursery;
use crate::sys::{self, CHANGED_SIGNALS, SharedSlots, Words};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use std::ffi::{CStr, CString, c_char};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::process::ExitCode;
use std::rc::Rc;

/// The argument with which the launcher's program becomes a batch script instead.
pub(super) const SCRIPT_ARGUMENT: &str = "--script";

/// Text without memory of its own.
macro_rules! message {
    ($($text:tt)*) => { Line::of(format_args!($($text)*)) };
}

/// First letter of a message in a slot: whose fault it is.
const NODE: char = 'N';
const JOB: char = 'J';

/// Takes a slot's message apart: whether the node is at fault, and the text.
pub(crate) fn failure(text: &str) -> (bool, String) {
    (
        text.starts_with(NODE),
        text.get(1..).unwrap_or("").to_owned(),
    )
}

/// What can fail before exec.
#[derive(Clone, Copy)]
enum Step {
    User,
    Directory,
    Stdin,
    Stdout,
    Stderr,
}

/// Strings for the kernel, one after another.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Strings {
    /// Adds a string, which is these one after another, unless it has a zero byte.
    pub(crate) fn push(&mut self, parts: &[&[u8]]) {
        if parts.iter().any(|part| part.contains(&0)) {
            return;
        }
        self.starts.push(self.bytes.len());
        parts
            .iter()
            .for_each(|part| self.bytes.extend_from_slice(part));
        self.bytes.push(0);
    }

    /// The strings of these that have no zero byte.
    pub(crate) fn of<'a>(strings: impl IntoIterator<Item = &'a [u8]>) -> Strings {
        let mut all = Strings::default();
        for string in strings {
            all.push(&[string]);
        }
        all
    }

    /// Those of bytes that end with zero bytes.
    fn from_bytes(bytes: Vec<u8>) -> Strings {
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == 0);
        let ends: Vec<usize> = ends.map(|(at, _)| at + 1).collect();
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let starts = starts.take(ends.len()).collect();
        Strings { bytes, starts }
    }

    /// Where they are, as long as this is not changed or dropped.
    fn pointers(&self) -> impl Iterator<Item = *const c_char> {
        let at = |start: &usize| self.bytes[*start..].as_ptr().cast();
        self.starts.iter().map(at)
    }
}

/// What the process is told that becomes a script. Launcher and process are of one file.
#[derive(Debug, Encode, Decode)]
struct Order {
    #[n(0)]
    path: String,
    /// Arguments, and the environment but for the process id, each with a zero byte at its end.
    #[n(1)]
    args: ByteVec,
    #[n(2)]
    env: ByteVec,
    /// Whom to become, where the launcher is root.
    #[n(3)]
    user: Option<(u32, u32, Vec<u32>)>,
    #[n(4)]
    user_name: String,
    #[n(5)]
    work_dir: String,
    #[n(6)]
    stdin: String,
    #[n(7)]
    stdout: String,
    #[n(8)]
    stderr: Option<String>,
    #[n(9)]
    append: bool,
    #[n(10)]
    umask: u32,
    #[n(11)]
    limits: Vec<(u32, u64)>,
    /// CPUs as the kernel takes them.
    #[n(12)]
    cpus: Option<Vec<u64>>,
    /// Where to tell of a failure before exec.
    #[n(13)]
    slot: u64,
}

impl Order {
    fn of(launch: &Launch, root: bool, slot: usize) -> Order {
        let args = [&launch.script].into_iter().chain(&launch.args);
        let context = &launch.context;
        let user = &launch.user;
        Order {
            path: launch.script.clone(),
            args: Strings::of(args.map(|s| s.as_bytes())).bytes.into(),
            env: [&context.env.bytes[..], &launch.env.bytes].concat().into(),
            user: root.then(|| (user.uid, user.gid, user.groups.clone())),
            user_name: user.name.clone(),
            work_dir: launch.work_dir.clone(),
            stdin: launch.stdin.clone(),
            stdout: launch.stdout.clone(),
            stderr: launch.stderr.clone(),
            append: launch.append,
            umask: context.umask & 0o777,
            limits: sys::with_first_limits(&launch.limits),
            cpus: launch.cpus.as_ref().map(sys::bitmap),
            slot: slot as u64,
        }
    }

    /// A path that the kernel cannot be given.
    fn wrong_path(&self) -> Option<String> {
        let paths = [&self.path, &self.work_dir, &self.stdin, &self.stdout];
        let mut paths = paths.into_iter().chain(&self.stderr);
        let wrong = paths.find(|path| path.contains('\0'))?;
        Some(format!("{wrong:?}: a path cannot have a zero byte"))
    }
}

/// Children that are about to execute this program's file, to become scripts there.
#[derive(Default)]
pub(super) struct Launches(Nursery<Child>);

/// Such a child.
struct Child {
    words: Words<'static>,
    environment: Words<'static>,
    /// What it keeps, from descriptor 3 on.
    kept: [RawFd; 2],
    /// Where it notes itself.
    row: Row,
    uid: u32,
    /// Where to tell of a failure before exec.
    slots: Rc<SharedSlots>,
    slot: usize,
}

/// Why a launch did not get as far as a process.
pub(super) enum NotStarted {
    /// The job is at fault.
    Wrong(String),
    /// The launcher lacks something, or the node is at fault.
    Failed(io::Error),
}

impl Launches {
    /// Starts a process that becomes a script; gives its process id.
    pub(super) fn start(
        &mut self,
        launch: &Launch,
        root: bool,
        row: Row,
        (slots, slot): (Rc<SharedSlots>, usize),
    ) -> Result<i32, NotStarted> {
        let order = Order::of(launch, root, slot);
        if let Some(wrong) = order.wrong_path() {
            return Err(NotStarted::Wrong(wrong));
        }
        let bytes = minicbor::to_vec(&order).expect("writing to memory cannot fail");
        let file = role::memory_file(&bytes).map_err(NotStarted::Failed)?;
        let words = [super::SHIM_NAME, SCRIPT_ARGUMENT].map(CString::new);
        let words = words.into_iter().collect::<Result<_, _>>();
        let child = Child {
            words: Words::new(words.map_err(|e| NotStarted::Failed(e.into()))?),
            environment: Words::new(Vec::new()),
            kept: [file.as_raw_fd(), slots.as_raw_fd()],
            row,
            uid: launch.user.uid,
            slots,
            slot,
        };
        let started = self.0.start(child, Child::run);
        started.map_err(NotStarted::Failed)
    }
}

impl Child {
    fn run(&mut self) -> ! {
        let e = match self.prepare() {
            Ok(()) => sys::exec_bare(role::OWN_FILE, &self.words, &self.environment),
            Err(e) => e,
        };
        let text: Line<255> = message!("{NODE}a process for the script cannot be started: {e}");
        self.slots.put(self.slot, text.as_bytes());
        bare::exit(1)
    }

    fn prepare(&mut self) -> Result<(), Errno> {
        bare::setsid()?;
        self.row.begin_session(self.uid)?;
        bare::keep_only(&mut self.kept)
    }
}

/// The process that becomes a script.
pub(super) fn script_main() -> ExitCode {
    let begin = || -> io::Result<Script> {
        sys::set_undumpable()?;
        sys::set_name(c"muster-shim");
        super::end_at_panic();
        let order: Order = minicbor::decode(&role::read_order()?).map_err(io::Error::other)?;
        Ok(Script::new(order, role::take_descriptor(role::FIRST_FD)?)?)
    };
    match begin() {
        Ok(mut script) => script.run(),
        Err(e) => {
            eprintln!("{}: {e}", super::SHIM_NAME);
            ExitCode::FAILURE
        }
    }
}

/// A script, with all that needs memory: the limits that this process gets may leave it none.
struct Script {
    path: CString,
    /// Pointers into `strings` and the line with the process id, with a null pointer at the end.
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    /// See above: only kept.
    _strings: [Strings; 2],
    user: Option<(u32, u32, Vec<u32>)>,
    user_name: String,
    work_dir: CString,
    stdin: CString,
    stdout: CString,
    stderr: Option<CString>,
    append: bool,
    umask: u32,
    limits: Vec<(u32, u64)>,
    cpus: Option<Vec<u64>>,
    slots: OwnedFd,
    slot: usize,
}

impl Script {
    fn new(order: Order, slots: OwnedFd) -> Result<Script, std::ffi::NulError> {
        let args = Strings::from_bytes(order.args.into());
        let env = Strings::from_bytes(order.env.into());
        let end = || [std::ptr::null()];
        Ok(Script {
            path: CString::new(order.path)?,
            argv: args.pointers().chain(end()).collect(),
            // One place more, for the process id.
            env: env.pointers().chain(end()).chain(end()).collect(),
            _strings: [args, env],
            user: order.user,
            user_name: order.user_name,
            work_dir: CString::new(order.work_dir)?,
            stdin: CString::new(order.stdin)?,
            stdout: CString::new(order.stdout)?,
            stderr: order.stderr.map(CString::new).transpose()?,
            append: order.append,
            umask: order.umask,
            limits: order.limits,
            cpus: order.cpus,
            slots,
            slot: usize::try_from(order.slot).unwrap_or(usize::MAX),
        })
    }

    /// Becomes the batch script.
    fn run(&mut self) -> ! {
        let (step, error) = match self.prepare() {
            Ok(()) => self.exec(),
            Err(failed) => failed,
        };
        let text = self.explain(step, error);
        sys::put_in_slot(&self.slots, self.slot, text.as_bytes());
        bare::exit(1)
    }

    fn explain(&self, failed: Step, e: Errno) -> Line<255> {
        let could_not = |what: &str, path: &CStr| {
            let path = Shown(path);
            message!("{JOB}Could not open {what} file {path}: {e}")
        };
        match failed {
            Step::User => {
                let uid = self.user.as_ref().map_or(0, |user| user.0);
                let name = &self.user_name;
                message!("{NODE}cannot become user {name} (uid {uid}): {e}")
            }
            Step::Directory => message!("{JOB}chdir to /tmp: {e}"),
            Step::Stdin => could_not("stdin", &self.stdin),
            Step::Stdout => could_not("stdout", &self.stdout),
            Step::Stderr => could_not("stderr", self.stderr.as_deref().unwrap_or(&self.stdout)),
        }
    }

    fn prepare(&self) -> Result<(), (Step, Errno)> {
        let at = |step: Step| move |e: Errno| (step, e);
        bare::restore_signals(&CHANGED_SIGNALS);
        sys::leave_protection();
        if let Some(cpus) = &self.cpus {
            // The CPUs were there when the agent started; if some are not any more, the script runs wherever it may.
            let _ = bare::set_affinity(cpus);
        }
        for &(resource, soft) in &self.limits {
            // A limit that cannot be set is not worth the job; sbatch(1) says that propagation is best effort.
            let _ = bare::set_soft_limit(resource, soft);
        }
        // Messages of this child go where the script's own will go, or nowhere.
        let _ = bare::copy_to(0, 2);
        if let Some((uid, gid, groups)) = &self.user {
            let became = sys::become_user(*uid, *gid, groups);
            let number = |e: io::Error| Errno(e.raw_os_error().unwrap_or(libc::EPERM));
            became.map_err(|e| (Step::User, number(e)))?;
        }
        bare::umask(self.umask);
        let astray = bare::chdir(&self.work_dir).err();
        if astray.is_some() {
            bare::chdir(c"/tmp").map_err(at(Step::Directory))?;
        }
        open_as(&self.stdin, libc::O_RDONLY, 0).map_err(at(Step::Stdin))?;
        let flags = output_flags(self.append).bits();
        open_as(&self.stdout, flags, 1).map_err(at(Step::Stdout))?;
        match &self.stderr {
            Some(path) if *path != self.stdout => open_as(path, flags, 2),
            _ => bare::copy_to(1, 2),
        }
        .map_err(at(Step::Stderr))?;
        if let Some(e) = astray {
            let dir = Shown(&self.work_dir);
            say(&message!(
                "couldn't chdir to `{dir}': {e}: going to /tmp instead"
            ));
        }
        Ok(())
    }

    /// Executes the script, or ends as one that cannot be executed.
    fn exec(&mut self) -> ! {
        let pid = bare::getpid();
        // The buffer is longer than any such line, so a zero byte follows.
        let task_pid = Line::<32>::of(format_args!("SLURM_TASK_PID={pid}\0"));
        if let [.., last, _] = self.env.as_mut_slice() {
            *last = task_pid.as_bytes().as_ptr().cast();
        }
        // SAFETY: `new` made both lists from strings that are kept here, and ended them; the line lives until exec.
        #[allow(unsafe_code)]
        let e = unsafe { bare::execve(&self.path, self.argv.as_ptr(), self.env.as_ptr()) };
        let path = Shown(&self.path);
        say(&message!("execve(): {path}: {e}"));
        // Slurm makes the errno the exit code.
        bare::exit(e.0)
    }
}

/// A path in a message.
struct Shown<'a>(&'a CStr);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let chunks = self.0.to_bytes().utf8_chunks();
        chunks
            .into_iter()
            .try_for_each(|chunk| f.write_str(chunk.valid()))
    }
}

/// Writes a line to standard error as slurmstepd does.
fn say(text: &Line<512>) {
    bare::write(2, b"slurmstepd: error: ");
    bare::write(2, text.as_bytes());
    bare::write(2, b"\n");
}

/// Opens a file as a standard descriptor. Directories of an output file that do not exist are made: programs that
/// name them after the job can only make them once they know its number, and by then the job may have started.
fn open_as(path: &CStr, flags: i32, target: i32) -> Result<(), Errno> {
    let try_open = || bare::open(path, flags | libc::O_CLOEXEC | libc::O_NOCTTY, 0o666);
    let mut opened = try_open();
    if opened == Err(Errno(libc::ENOENT)) && flags & libc::O_CREAT != 0 {
        make_directories(path)?;
        opened = try_open();
    }
    bare::move_to(opened?, target)
}

/// Makes the directories that lead to a path.
fn make_directories(path: &CStr) -> Result<(), Errno> {
    let mut part = [0u8; libc::PATH_MAX as usize];
    for (at, byte) in path.to_bytes().iter().enumerate() {
        if *byte == b'/' && at > 0 {
            match bare::mkdir(&part, 0o777) {
                Ok(()) | Err(Errno(libc::EEXIST)) => {}
                Err(e) => return Err(e),
            }
        }
        *part.get_mut(at).ok_or(Errno(libc::ENAMETOOLONG))? = *byte;
    }
    Ok(())
}
