//! Work of the process.

use crate::bare::{self, Errno, TextBuffer};
use crate::order::MappedOrder;
use crate::tmp_dir::{self, TmpDirNames};
use crate::{identity, kernel, oom};
use core::ffi::{CStr, c_char};

/// Descriptor of the order.
pub const ORDER_FD: i32 = 3;
/// Descriptor of the memory in which failures are reported.
pub const SLOTS_FD: i32 = 4;
/// Bytes of a slot there: one with the length, then the text.
pub const SLOT: usize = 256;

/// Signals whose disposition the launcher changes.
const CHANGED_SIGNALS: [i32; 2] = [kernel::SIGHUP, kernel::SIGPIPE];

/// Text without memory of its own.
macro_rules! message {
    ($($text:tt)*) => { TextBuffer::of(format_args!($($text)*)) };
}

/// Party at fault for a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOwner {
    /// The node's.
    Node,
    /// The job's.
    Job,
}

impl FaultOwner {
    /// The first letter of a text in a slot.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            FaultOwner::Node => 'N',
            FaultOwner::Job => 'J',
        }
    }
}

/// Executes the script of the order as its user. Does not return.
pub fn main() -> ! {
    // The exec of the script closes the slots. Besides them, only the order is open.
    let begun = bare::set_undumpable()
        .and_then(|()| bare::close_on_exec_from(3).or_else(|_| bare::close_on_exec(SLOTS_FD)))
        .and_then(|()| bare::length(ORDER_FD))
        .and_then(|length| bare::map(ORDER_FD, length));
    // The user could open it as /proc/self/fd/3, and truncate it while it is mapped.
    bare::close(ORDER_FD);
    bare::set_name(c"muster-shim");
    let Some(order) = begun.ok().and_then(MappedOrder::read) else {
        bare::write(
            2,
            b"muster-shim: this program is started by Muster itself\n",
        );
        bare::exit(1)
    };
    Script(order).run()
}

struct Script(MappedOrder);

/// A stage before the exec that can fail.
#[derive(Clone, Copy)]
enum StartStage {
    User,
    Directory,
    Stdin,
    Stdout,
    Stderr,
}

impl Script {
    fn run(&mut self) -> ! {
        let (stage, error) = match self.prepare() {
            Ok(()) => self.exec(),
            Err(failed) => failed,
        };
        let text = self.explain(stage, error);
        put_in_slot(self.0.slot, text.as_bytes());
        bare::exit(1)
    }

    fn explain(&self, failed: StartStage, e: Errno) -> TextBuffer<255> {
        let (node, job) = (FaultOwner::Node.letter(), FaultOwner::Job.letter());
        let could_not = |what: &str, path: &CStr| {
            let path = PathText(path);
            message!("{job}Could not open {what} file {path}: {e}")
        };
        match failed {
            StartStage::User => {
                let uid = self.0.user.map_or(0, |user| user.0);
                let name = PathText(self.0.user_name);
                message!("{node}cannot become user {name} (uid {uid}): {e}")
            }
            StartStage::Directory => message!("{job}chdir to /tmp: {e}"),
            StartStage::Stdin => could_not("stdin", self.0.stdin),
            StartStage::Stdout => could_not("stdout", self.0.stdout),
            StartStage::Stderr => could_not("stderr", self.0.stderr.unwrap_or(self.0.stdout)),
        }
    }

    fn prepare(&self) -> Result<(), (StartStage, Errno)> {
        let at = |stage: StartStage| move |e: Errno| (stage, e);
        let order = &self.0;
        bare::restore_signals(&CHANGED_SIGNALS);
        oom::leave_protection();
        for limit in order.limits.chunks_exact(2) {
            // A limit that cannot be set is not worth the job; sbatch(1) says that propagation is best effort.
            let resource = u32::try_from(limit[0]).unwrap_or(u32::MAX);
            let _ = bare::set_soft_limit(resource, limit[1]);
        }
        // Messages of this process go to the script's standard error, or to /dev/null.
        let _ = bare::copy_to(0, 2);
        if let Some((uid, gid, groups)) = order.user {
            identity::become_user(uid, gid, groups).map_err(at(StartStage::User))?;
        }
        bare::umask(order.umask);
        let astray = bare::chdir(order.work_dir).err();
        if astray.is_some() {
            bare::chdir(c"/tmp").map_err(at(StartStage::Directory))?;
        }
        open_as(order.stdin, kernel::O_RDONLY, 0).map_err(at(StartStage::Stdin))?;
        let flags = output_flags(order.append);
        open_as(order.stdout, flags, 1).map_err(at(StartStage::Stdout))?;
        match order.stderr {
            Some(path) if path != order.stdout => open_as(path, flags, 2),
            _ => bare::copy_to(1, 2),
        }
        .map_err(at(StartStage::Stderr))?;
        if let Some(e) = astray {
            let dir = PathText(order.work_dir);
            say(&message!(
                "couldn't chdir to `{dir}': {e}: going to /tmp instead"
            ));
        }
        Ok(())
    }

    /// Executes the script, or ends as one that cannot be executed.
    fn exec(&mut self) -> ! {
        let pid = bare::getpid();
        let added = Variables {
            task_pid: TextBuffer::of(format_args!("SLURM_TASK_PID={pid}\0")),
            tmp_dir: self.0.tmp_dir.map(|names| tmp_dir_variables(&names)),
        };
        added.add_to(&mut self.0);
        let lists = [&*self.0.argv, &*self.0.env].map(|list| list.as_ptr().cast::<*const c_char>());
        let [argv, env] = lists;
        // SAFETY: both are of addresses of strings that stay as they are, and end with a null; the lines live until exec.
        #[allow(unsafe_code)]
        let e = unsafe { bare::execve(self.0.path, argv, env) };
        let path = PathText(self.0.path);
        say(&message!("execve(): {path}: {e}"));
        // Slurm makes the errno the exit code.
        bare::exit(e.0)
    }
}

/// Bytes of a variable that names a path.
const PATH_VARIABLE: usize = kernel::PATH_MAX as usize + 16;

/// Variables that are known last, each with a zero byte after it.
struct Variables {
    task_pid: TextBuffer<32>,
    /// Variables that name the job's temporary directory.
    tmp_dir: Option<[TextBuffer<PATH_VARIABLE>; 2]>,
}

impl Variables {
    /// Adds those that are whole.
    fn add_to(&self, order: &mut MappedOrder) {
        let of_tmp_dir = self.tmp_dir.iter().flatten().map(TextBuffer::as_bytes);
        let all = of_tmp_dir.chain([self.task_pid.as_bytes()]);
        let whole = all.filter_map(|bytes| CStr::from_bytes_with_nul(bytes).ok());
        whole.for_each(|variable| order.add_variable(variable));
    }
}

/// Makes the job's temporary directory, and gives the variables that name it, or the one above where it cannot be made: that is for the
/// job to know, and not to fail by.
fn tmp_dir_variables(names: &TmpDirNames<'_>) -> [TextBuffer<PATH_VARIABLE>; 2] {
    let path = tmp_dir::make(names).unwrap_or_else(|e| {
        let (usual, above) = (PathText(names.usual), PathText(names.above));
        say(&message!(
            "temporary directory {usual} cannot be made: {e}: TMPDIR is {above}"
        ));
        names.above
    });
    let path = PathText(path);
    [message!("TMPDIR={path}\0"), message!("TMP={path}\0")]
}

/// Flags of output files: always append, so that several writers do not overwrite each other.
fn output_flags(append: bool) -> i32 {
    let flags = kernel::O_CREAT | kernel::O_WRONLY | kernel::O_APPEND;
    match append {
        true => flags,
        false => flags | kernel::O_TRUNC,
    }
}

/// Writes a text into a slot, cut to what fits.
fn put_in_slot(slot: usize, text: &[u8]) {
    let mut bytes = [0; SLOT];
    let [length, room @ ..] = &mut bytes;
    let end = text.len().min(room.len());
    *length = u8::try_from(end).unwrap_or(u8::MAX);
    room.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    if let (Some(at), Some(bytes)) = (slot.checked_mul(SLOT), bytes.get(..=end)) {
        // The file is sealed, so it cannot grow.
        let _ = bare::write_at(SLOTS_FD, bytes, at);
    }
}

/// A path in a message.
struct PathText<'a>(&'a CStr);

impl core::fmt::Display for PathText<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let chunks = self.0.to_bytes().utf8_chunks();
        chunks
            .into_iter()
            .try_for_each(|chunk| f.write_str(chunk.valid()))
    }
}

/// Writes a line to standard error as slurmstepd does.
fn say(text: &TextBuffer<512>) {
    bare::write(2, b"slurmstepd: error: ");
    bare::write(2, text.as_bytes());
    bare::write(2, b"\n");
}

/// Opens a file as a standard descriptor. Directories of an output file that do not exist are made: programs that
/// name them after the job can only make them once they know its number, and by then the job may have started.
fn open_as(path: &CStr, flags: i32, target: i32) -> Result<(), Errno> {
    let try_open = || bare::open(path, flags | kernel::O_CLOEXEC | kernel::O_NOCTTY, 0o666);
    let mut opened = try_open();
    if opened == Err(Errno(kernel::ENOENT)) && flags & kernel::O_CREAT != 0 {
        make_directories(path)?;
        opened = try_open();
    }
    bare::move_to(opened?, target)
}

/// Makes the directories that lead to a path.
fn make_directories(path: &CStr) -> Result<(), Errno> {
    let mut part = [0u8; kernel::PATH_MAX as usize];
    for (at, byte) in path.to_bytes().iter().enumerate() {
        if *byte == b'/' && at > 0 {
            match bare::mkdir(&part, 0o777) {
                Ok(()) | Err(Errno(kernel::EEXIST)) => {}
                Err(e) => return Err(e),
            }
        }
        *part.get_mut(at).ok_or(Errno(kernel::ENAMETOOLONG))? = *byte;
    }
    Ok(())
}
