//! A batch launch: what the launcher works out, and what its child does with it. What the process does that this becomes is a
//! program of its own (`muster_script`).
//!
//! The child shares the launcher's memory ([`sys::vm_clone`]), so it stays root there and only executes another program: a
//! change of identity would set the dumpable flag of that memory to `fs.suid_dumpable`, and a user could then look into it by
//! another child that waits for a file of the user's. The new process has its order in a memory file and nothing else of the
//! launcher's; it becomes the user, opens the user's files, which may take as long as the user likes, and executes the script.

use super::batch::Launch;
use super::membership::Row;
use crate::role;
use crate::sys::bare::{self, Errno, Line};
use crate::sys::vm_clone::VmCloneSpawner;
use crate::sys::{self, SharedSlots, Words};
pub(crate) use muster_script::Strings;
use muster_script::{FaultOwner, Order};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

/// The argument with which the launcher's own program becomes a batch script instead.
pub(super) const SCRIPT_ARGUMENT: &str = "--script";

/// The first descriptor that no child gives to what it keeps.
const FIRST_FREE: RawFd = 8;

/// Takes a slot's message apart: whether the node is at fault, and the text.
pub(crate) fn failure(text: &str) -> (bool, String) {
    (
        text.starts_with(FaultOwner::Node.letter()),
        text.get(1..).unwrap_or("").to_owned(),
    )
}

/// Children that are about to execute the program that becomes a script.
pub(super) struct Launches {
    children: VmCloneSpawner<Child>,
    /// That program, as a memory file. Without it, the launcher's own program is executed.
    program: Option<OwnedFd>,
}

/// Such a child.
struct Child {
    words: Words<'static>,
    environment: Words<'static>,
    /// What it keeps, from descriptor 3 on: the order and the slots.
    kept: [RawFd; 2],
    /// The program that becomes a script.
    program: Option<RawFd>,
    /// Where it notes itself.
    row: Row,
    uid: u32,
    /// CPUs that it may run on, as the kernel takes them.
    cpus: Option<Vec<u64>>,
    /// Where a failure before the exec is reported.
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
    pub(super) fn new() -> Launches {
        let program = match muster_script::PROGRAM {
            [] => None,
            program => {
                // Its number must not be one of those that a child gives to what it keeps.
                let made = sys::sealed_program(c"muster-script", program);
                let made = made.and_then(|file| sys::dup_from(file.as_raw_fd(), FIRST_FREE));
                let complain = |e| {
                    eprintln!(
                        "batch scripts are started by Muster's own program, which is slower: {e}"
                    )
                };
                made.map_err(complain).ok()
            }
        };
        Launches {
            children: VmCloneSpawner::default(),
            program,
        }
    }

    /// Starts a process that becomes a script; gives its process id.
    pub(super) fn start(
        &mut self,
        launch: &Launch,
        root: bool,
        row: Row,
        (slots, slot): (Rc<SharedSlots>, usize),
    ) -> Result<i32, NotStarted> {
        let order = order_of(launch, root, slot)?;
        let file = role::memory_file(&order).map_err(NotStarted::Failed)?;
        let child = Child {
            words: Words::with([c"muster-shim", c"--script"], Vec::new()),
            environment: Words::new(Vec::new()),
            kept: [file.as_raw_fd(), slots.as_raw_fd()],
            program: self.program.as_ref().map(AsRawFd::as_raw_fd),
            row,
            uid: launch.user.uid,
            cpus: launch.cpus.as_ref().map(sys::bitmap),
            slots,
            slot,
        };
        let started = self.children.start(child, Child::run);
        started.map_err(NotStarted::Failed)
    }
}

/// The order of a launch, as a file.
fn order_of(launch: &Launch, root: bool, slot: usize) -> Result<Vec<u8>, NotStarted> {
    let args = [&launch.script].into_iter().chain(&launch.args);
    let context = &launch.context;
    let user = &launch.user;
    let order = Order {
        path: &launch.script,
        args: &Strings::of(args.map(|s| s.as_bytes())),
        env: [&context.env, &launch.env],
        user: root.then_some((user.uid, user.gid, &user.groups[..])),
        user_name: &user.name,
        work_dir: &launch.work_dir,
        stdin: &launch.stdin,
        stdout: &launch.stdout,
        stderr: launch.stderr.as_deref(),
        append: launch.append,
        umask: context.umask & 0o777,
        limits: &sys::with_first_limits(&launch.limits),
        slot,
    };
    match order.wrong_path() {
        Some(wrong) => Err(NotStarted::Wrong(wrong)),
        None => Ok(order.to_bytes()),
    }
}

impl Child {
    fn run(&mut self) -> ! {
        let e = match self.prepare() {
            Ok(()) => self.execute(),
            Err(e) => e,
        };
        let node = FaultOwner::Node.letter();
        let text = format_args!("{node}a process for the script cannot be started: {e}");
        self.slots.put(self.slot, Line::<255>::of(text).as_bytes());
        bare::exit(1)
    }

    fn prepare(&mut self) -> Result<(), Errno> {
        bare::setsid()?;
        if let Some(cpus) = &self.cpus {
            // Before the kernel looks for a CPU for what is executed. The CPUs were there when the agent started; if some are not
            // any more, the script runs wherever it may.
            let _ = bare::set_affinity(cpus);
        }
        self.row.begin_session(self.uid)?;
        bare::keep_only(&mut self.kept)
    }

    fn execute(&self) -> Errno {
        if let Some(program) = self.program {
            // Returns if the kernel does not execute memory files.
            sys::exec_file_bare(program, &self.words, &self.environment);
        }
        sys::exec_bare(role::OWN_FILE, &self.words, &self.environment)
    }
}
