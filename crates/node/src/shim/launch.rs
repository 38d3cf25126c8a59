//! The child side of a batch launch: from a fork of the shim to the user's script, with nothing of root left. Also
//! the small children that write a line into a job's file as its user.

use super::wire::{Launch, User};
use crate::sys;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Uid, chdir, execve, setsid};
use std::ffi::CString;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// A launch with everything worked out that the child need not do.
pub(crate) struct Prepared<'a> {
    /// The order.
    pub(crate) order: &'a Launch,
    /// The submitter's environment.
    pub(crate) context: &'a [CString],
    /// Where to tell of a failure before exec.
    pub(crate) slots: &'a sys::SharedSlots,
    /// See above.
    pub(crate) slot: usize,
    /// This process is root and must not stay it.
    pub(crate) root: bool,
}

/// Becomes the batch script. Never returns.
pub(crate) fn become_script(p: &Prepared) -> ! {
    let error = match prepare(p) {
        Ok(()) => exec(p),
        Err(error) => error,
    };
    p.slots.put(p.slot, &error);
    sys::exit_now(1)
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

fn prepare(p: &Prepared) -> Result<(), String> {
    let o = p.order;
    sys::restore_signals();
    setsid().map_err(|e| format!("{NODE}setsid: {e}"))?;
    if let Some(cpus) = &o.cpus {
        // The CPUs were there when the agent started; if some are not any more, the script runs wherever it may.
        let _ = sys::set_affinity(cpus);
    }
    for &(resource, soft) in &o.limits {
        // A limit that cannot be set is not worth the job; sbatch(1) says that propagation is best effort.
        let _ = sys::set_soft_limit(resource, soft);
    }
    if p.root {
        sys::become_user(o.user.uid, o.user.gid, &o.user.groups).map_err(|e| {
            format!(
                "{NODE}cannot become user {} (uid {}): {e}",
                o.user.name, o.user.uid
            )
        })?;
    }
    let mask = Mode::from_bits_truncate(o.umask & 0o777);
    umask(mask);
    let astray = go_to(&o.work_dir).map_err(|e| format!("{JOB}chdir to /tmp: {e}"))?;
    connect(o)?;
    if let Some(line) = astray {
        say(&line);
    }
    Ok(())
}

/// Changes into a directory, or into /tmp with a line that says so.
pub(crate) fn go_to(dir: &str) -> io::Result<Option<String>> {
    let Err(e) = chdir(dir) else {
        return Ok(None);
    };
    chdir("/tmp")?;
    Ok(Some(format!(
        "couldn't chdir to `{dir}': {}: going to /tmp instead",
        e.desc()
    )))
}

/// Writes a line to standard error as slurmstepd does.
pub(crate) fn say(text: &str) {
    // Nothing can be done when the job's own file cannot be written.
    let _ = io::stderr().write_all(format!("slurmstepd: error: {text}\n").as_bytes());
}

fn connect(o: &Launch) -> Result<(), String> {
    open_as(&o.stdin, OFlag::O_RDONLY, 0)
        .map_err(|e| format!("{JOB}Could not open stdin file {}: {e}", o.stdin))?;
    let flags = output_flags(o.append);
    open_as(&o.stdout, flags, 1)
        .map_err(|e| format!("{JOB}Could not open stdout file {}: {e}", o.stdout))?;
    match &o.stderr {
        Some(path) if *path != o.stdout => open_as(path, flags, 2)
            .map_err(|e| format!("{JOB}Could not open stderr file {path}: {e}"))?,
        _ => sys::dup_to(1, 2).map_err(|e| format!("{NODE}dup2: {e}"))?,
    }
    sys::close_on_exec_from(3);
    Ok(())
}

/// Flags of output files: always append, so that several writers do not overwrite each other.
pub(crate) fn output_flags(append: bool) -> OFlag {
    let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_APPEND;
    if append {
        flags
    } else {
        flags | OFlag::O_TRUNC
    }
}

/// Opens a file as a standard descriptor. Directories of an output file that do not exist are made: programs that
/// name them after the job can only make them once they know its number, and by then the job may have started.
pub(crate) fn open_as(path: &str, flags: OFlag, target: i32) -> Result<(), String> {
    let mode = Mode::from_bits_truncate(0o666);
    let try_open = || open(path, flags | OFlag::O_CLOEXEC | OFlag::O_NOCTTY, mode);
    let mut opened = try_open();
    if matches!(opened, Err(Errno::ENOENT)) && flags.contains(OFlag::O_CREAT) {
        let directory = Path::new(path).parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory).map_err(|e| e.to_string())?;
        opened = try_open();
    }
    let fd = opened.map_err(|e| e.desc().to_owned())?;
    sys::dup_to(fd.as_raw_fd(), target).map_err(|e| e.to_string())?;
    if fd.as_raw_fd() <= 2 {
        // It took the place of a standard descriptor that was closed; it must not be closed again.
        std::mem::forget(fd);
    }
    Ok(())
}

/// Executes the script; gives an error only if even that cannot be tried.
fn exec(p: &Prepared) -> String {
    let o = p.order;
    let Ok(path) = CString::new(o.script.as_str()) else {
        return format!("{NODE}the script's path has a zero byte");
    };
    let mut argv = vec![path.clone()];
    argv.extend(o.args.iter().filter_map(|a| CString::new(a.as_str()).ok()));
    let pid = CString::new(format!("SLURM_TASK_PID={}", std::process::id()))
        .expect("digits have no zero byte");
    let own: Vec<CString> = o
        .env
        .iter()
        .filter_map(|v| CString::new(v.as_str()).ok())
        .collect();
    let env: Vec<&CString> = p.context.iter().chain(&own).chain([&pid]).collect();
    let Err(e) = execve(&path, &argv, &env);
    say(&format!("execve(): {}: {}", o.script, e.desc()));
    // Slurm makes the errno the exit code.
    sys::exit_now(e as i32)
}

/// In a fresh fork: writes a line at the end of a job's file as its user, and ends.
pub(crate) fn write_line(user: &User, work_dir: &str, path: &str, line: &str) -> ! {
    let write = || -> Option<()> {
        if Uid::effective().is_root() {
            sys::become_user(user.uid, user.gid, &user.groups).ok()?;
        }
        go_to(work_dir).ok()?;
        let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
        let fd = open(path, flags, Mode::empty()).ok()?;
        let mut file = std::fs::File::from(fd);
        file.write_all(line.as_bytes()).ok()
    };
    // The message is a courtesy; a job whose file is gone ends all the same.
    let code = i32::from(write().is_none());
    sys::exit_now(code)
}
