//! A batch launch: the launcher's preparation, and the steps of its child. The process that results
//! runs another program (`muster_script`).
//!
//! The child shares the launcher's memory ([`sys::vm_clone`]), so it stays root there and only
//! executes another program: a change of identity would set the dumpable flag of that memory to
//! `fs.suid_dumpable`, and a user could then look into it through another child that waits for a
//! file of the user's. The new process has its order in a memory file and nothing else of the
//! launcher's. It becomes the user, opens the user's files, which may block as long as the user
//! likes, and executes the script.

use super::containers::Namespace;
use super::membership::Row;
use crate::cgroup::Entrances;
use crate::os_error::is_temporary;
use crate::role;
use crate::sys::bare::{self, Errno, TextBuffer};
use crate::sys::vm_clone::VmCloneSpawner;
use crate::sys::{self, ExecArguments, SharedSlots};
use muster_model::environment::Environment;
use muster_model::spec::SoftLimit;
use muster_node_core::JobTmpDir;
use muster_node_core::launcher::context::Context;
use muster_node_core::launcher::interface::{
    Failure, ScriptFailure, ScriptLaunch, ScriptNotStarted,
};
use muster_script::{ExecOrder, FaultOwner, ResourceLimit, Strings};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

/// The argument with which the launcher's own program becomes a batch script.
pub(super) const SCRIPT_ARGUMENT: &str = "--script";

/// Maximum number of concurrent launches whose child can report a failure before exec; further ones
/// fail with an exit code.
const SLOTS: usize = 4096;

/// The lowest descriptor number that children do not assign to inherited descriptors.
const FIRST_FREE: RawFd = 8;

/// Decodes the message in a slot.
fn failure(text: &str) -> ScriptFailure {
    ScriptFailure {
        is_nodes: text.starts_with(FaultOwner::Node.letter()),
        error: text.get(1..).unwrap_or("").to_owned(),
    }
}

/// Starts the program that becomes a script.
pub(super) struct ScriptStarter {
    children: VmCloneSpawner<Child>,
    /// The program as a memory file. Without it the launcher's own program is executed.
    program: Option<OwnedFd>,
    /// Slots in which children report a failure before the exec.
    slots: Rc<SharedSlots>,
    free_slots: Vec<usize>,
    /// Slots by process.
    used_slots: HashMap<i32, usize>,
    /// The environment of the last script's context: tasks of an array share it.
    last_context: (Rc<Context>, Strings),
    is_root: bool,
}

/// The data of a child.
struct Child {
    words: ExecArguments<'static>,
    environment: ExecArguments<'static>,
    /// Inherited descriptors, from number 3 on: the order and the slots.
    kept: [RawFd; 2],
    /// The program that becomes a script.
    program: Option<RawFd>,
    /// The row in which it records itself.
    row: Row,
    /// Its control groups.
    groups: Entrances,
    /// Its mount namespace.
    namespace: Namespace,
    uid: u32,
    /// CPUs that it may run on, in the kernel's format.
    cpus: Option<Vec<u64>>,
    /// Slots for a failure before the exec.
    slots: Rc<SharedSlots>,
    slot: usize,
}

impl ScriptStarter {
    pub(super) fn new() -> io::Result<ScriptStarter> {
        let program = match muster_script::PROGRAM {
            [] => None,
            program => {
                // The number must not be one that a child assigns to inherited descriptors.
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
        Ok(ScriptStarter {
            children: VmCloneSpawner::default(),
            program,
            slots: Rc::new(SharedSlots::new(SLOTS)?),
            free_slots: (0..SLOTS).rev().collect(),
            used_slots: HashMap::new(),
            last_context: (Rc::default(), Strings::default()),
            is_root: nix::unistd::geteuid().is_root(),
        })
    }

    /// Starts a process that becomes a script; returns its process id.
    pub(super) fn start(
        &mut self,
        launch: &ScriptLaunch,
        place: (Row, Entrances, Namespace),
    ) -> Result<i32, ScriptNotStarted> {
        let slot = self.free_slots.pop();
        let started = self.start_with(launch, place, slot.unwrap_or(usize::MAX));
        match (&started, slot) {
            (Ok(pid), Some(slot)) => drop(self.used_slots.insert(*pid, slot)),
            (Err(_), Some(slot)) => self.free_slots.push(slot),
            (_, None) => {}
        }
        started
    }

    fn start_with(
        &mut self,
        launch: &ScriptLaunch,
        (row, groups, namespace): (Row, Entrances, Namespace),
        slot: usize,
    ) -> Result<i32, ScriptNotStarted> {
        let failed = |e: io::Error| {
            ScriptNotStarted::Failed(Failure {
                is_temporary: is_temporary(&e),
                error: e.to_string(),
            })
        };
        let order = self
            .order_of(launch, slot)
            .map_err(ScriptNotStarted::Wrong)?;
        let file = role::memory_file(&order).map_err(failed)?;
        let child = Child {
            words: ExecArguments::with([c"muster-shim", c"--script"], Vec::new()),
            environment: ExecArguments::new(Vec::new()),
            kept: [file.as_raw_fd(), self.slots.as_raw_fd()],
            program: self.program.as_ref().map(AsRawFd::as_raw_fd),
            row,
            groups,
            namespace,
            uid: launch.user.uid,
            cpus: launch.cpus.as_ref().map(sys::bitmap),
            slots: Rc::clone(&self.slots),
            slot,
        };
        self.children.start(child, Child::run).map_err(failed)
    }

    /// The order of a launch, as a file.
    ///
    /// # Errors
    /// The part of the order that the job has made invalid.
    fn order_of(&mut self, launch: &ScriptLaunch, slot: usize) -> Result<Vec<u8>, String> {
        let args = [&launch.script].into_iter().chain(&launch.args);
        let context = &launch.context;
        if !Rc::ptr_eq(&self.last_context.0, context) {
            self.last_context = (Rc::clone(context), strings(&context.env));
        }
        let user = &launch.user;
        let tmp_dir = launch.tmp_dir.as_ref().map(tmp_dir_paths).transpose()?;
        let order = ExecOrder {
            path: &launch.script,
            args: &Strings::of(args.map(|s| s.as_bytes())),
            env: [&self.last_context.1, &strings(&launch.env)],
            user: self
                .is_root
                .then_some((user.uid, user.gid, &user.groups[..])),
            user_name: &user.name,
            work_dir: &launch.work_dir,
            stdin: &launch.stdin,
            stdout: &launch.stdout,
            stderr: launch.stderr.as_deref(),
            append: launch.append,
            umask: context.umask & 0o777,
            limits: &resource_limits(&launch.limits),
            slot,
            tmp_dir: tmp_dir
                .as_ref()
                .map(|paths| paths.each_ref().map(String::as_str)),
        };
        match order.wrong_path() {
            Some(wrong) => Err(wrong),
            None => Ok(order.to_bytes()),
        }
    }

    /// Handles the end of such a process: returns the reason if the script was not reached.
    pub(super) fn ended(&mut self, pid: i32) -> Option<ScriptFailure> {
        let slot = self.used_slots.remove(&pid)?;
        self.free_slots.push(slot);
        self.slots.take(slot).map(|text| failure(&text))
    }
}

/// The base directories of a job's temporary directory, from the order.
///
/// # Errors
/// A path is not valid text.
fn tmp_dir_paths(dir: &JobTmpDir) -> Result<[String; 3], String> {
    let other = dir.other_path();
    let paths = [dir.path.as_path(), &other, dir.above()];
    let texts = paths.map(|path| path.to_str().map(str::to_owned));
    match texts {
        [Some(usual), Some(other), Some(above)] => Ok([usual, other, above]),
        _ => Err(format!("TmpFS: {}: it is not UTF-8", dir.path.display())),
    }
}

/// Soft limits of a script, from the order.
fn resource_limits(asked: &[SoftLimit]) -> Vec<ResourceLimit> {
    let limits = sys::with_first_limits(asked).into_iter();
    let limits = limits.map(|limit| ResourceLimit {
        resource: limit.resource,
        soft: limit.value,
    });
    limits.collect()
}

fn strings(environment: &Environment) -> Strings {
    let mut all = Strings::default();
    environment
        .iter()
        .for_each(|variable| all.push(&[variable]));
    all
}

impl Child {
    fn run(&mut self) -> ! {
        let e = match self.prepare() {
            Ok(()) => self.execute(),
            Err(e) => e,
        };
        let node = FaultOwner::Node.letter();
        let text = format_args!("{node}a process for the script cannot be started: {e}");
        self.slots
            .put(self.slot, TextBuffer::<255>::of(text).as_bytes());
        bare::exit(1)
    }

    fn prepare(&mut self) -> Result<(), Errno> {
        bare::setsid()?;
        // The group must come first, because its CPUs replace the affinity that the process has
        // set.
        self.groups.join()?;
        if let Some(cpus) = &self.cpus {
            // Set before exec, when the kernel chooses a CPU. The CPUs existed when the agent
            // started; if some are missing now, the script runs on any CPU.
            let _ = bare::set_affinity(cpus);
        }
        self.row.begin_session(self.uid)?;
        self.namespace.join()?;
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
