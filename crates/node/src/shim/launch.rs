//! A batch launch: what the shim works out, and what its child does with it, from the clone to the user's script with
//! nothing of root left. The child shares the shim's memory until then ([`sys::nursery`]), so everything that needs
//! memory is done before. It may wait long for a file that the user has named: meanwhile it has no descriptors of the shim,
//! nobody may look into it, and the shim goes on.

use super::batch::Launch;
use super::context::Prepared;
use super::files::output_flags;
use super::membership::Row;
use crate::sys::bare::{self, Errno, Line};
use crate::sys::{self, CHANGED_SIGNALS, SharedSlots};
use std::ffi::{CStr, CString, c_char};
use std::rc::Rc;

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
    Session,
    Audit,
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

    /// Where they are, as long as this is not changed or dropped.
    fn pointers(&self) -> impl Iterator<Item = *const c_char> {
        let at = |start: &usize| self.bytes[*start..].as_ptr().cast();
        self.starts.iter().map(at)
    }
}

/// A script that is to be started, in the form in which a child needs it.
pub(crate) struct Script {
    path: CString,
    /// Pointers into `strings`, `context` and `task_pid`, with a null pointer at the end.
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    /// See above: only kept.
    _strings: [Strings; 2],
    _context: Rc<Prepared>,
    /// Whom to become, where this process is root.
    user: Option<(u32, u32, Vec<u32>)>,
    uid: u32,
    user_name: String,
    work_dir: CString,
    stdin: CString,
    stdout: CString,
    stderr: Option<CString>,
    append: bool,
    umask: u32,
    limits: Vec<(u32, u64)>,
    /// CPUs as the kernel takes them.
    cpus: Option<Vec<u64>>,
    /// Where it notes itself.
    row: Row,
    /// Where to tell of a failure before exec.
    slots: Rc<SharedSlots>,
    slot: usize,
}

impl Script {
    /// # Errors
    /// A path has a zero byte.
    pub(crate) fn new(
        order: &mut Launch,
        root: bool,
        row: Row,
        (slots, slot): (Rc<SharedSlots>, usize),
    ) -> Result<Script, String> {
        let path = |text: &str| {
            CString::new(text).map_err(|_| format!("{text:?}: a path cannot have a zero byte"))
        };
        let argv = [&order.script].into_iter().chain(&order.args);
        let argv = Strings::of(argv.map(|s| s.as_bytes()));
        let own = std::mem::take(&mut order.env);
        let context = Rc::clone(&order.context);
        let end = || [std::ptr::null()];
        let inherited = context.env.pointers();
        // One place more, for the process id, which only the child knows.
        let env = inherited.chain(own.pointers()).chain(end()).chain(end());
        let user = &order.user;
        Ok(Script {
            path: path(&order.script)?,
            argv: argv.pointers().chain(end()).collect(),
            env: env.collect(),
            _strings: [argv, own],
            user: root.then(|| (user.uid, user.gid, user.groups.clone())),
            user_name: user.name.clone(),
            work_dir: path(&order.work_dir)?,
            stdin: path(&order.stdin)?,
            stdout: path(&order.stdout)?,
            stderr: order.stderr.as_deref().map(path).transpose()?,
            append: order.append,
            umask: context.umask & 0o777,
            limits: sys::with_first_limits(&order.limits),
            cpus: order.cpus.as_ref().map(sys::bitmap),
            _context: context,
            row,
            uid: user.uid,
            slots,
            slot,
        })
    }

    /// In a child: becomes the batch script.
    pub(crate) fn run(&mut self) -> ! {
        let (step, error) = match self.prepare() {
            Ok(()) => self.exec(),
            Err(failed) => failed,
        };
        let text = self.explain(step, error);
        self.slots.put(self.slot, text.as_bytes());
        bare::exit(1)
    }

    fn explain(&self, failed: Step, e: Errno) -> Line<255> {
        let could_not = |what: &str, path: &CStr| {
            let path = Shown(path);
            message!("{JOB}Could not open {what} file {path}: {e}")
        };
        match failed {
            Step::Session => message!("{NODE}setsid: {e}"),
            Step::Audit => message!("{NODE}/proc/self/loginuid: {e}"),
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
        bare::setsid().map_err(at(Step::Session))?;
        let begun = self.row.begin_session(self.uid);
        begun.map_err(at(Step::Audit))?;
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
        bare::close_from(3);
        if let Some((uid, gid, groups)) = &self.user {
            bare::become_user(*uid, *gid, groups).map_err(at(Step::User))?;
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
