//! Files in places where root writes or waits: links in the spool directory, output that is a FIFO.

use super::{finished, must_submit, or_end, small_job, state, victim_works};
use crate::outcome::Outcome;
use crate::random::Random;
use crate::sys::{ATTACKER, ROOT, as_user};
use crate::target::{PATIENCE, Target, until};
use muster_model::job::JobState;
use muster_model::spec::StdioSpec;
use nix::unistd::{AccessFlags, access, mkfifo};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Content of a file of root alone.
const SECRET: &str = "nobody but root writes or reads this\n";

/// Names that files have in the spool directory while they are written.
const NAMES: [&str; 6] = [
    "next",
    "slurm_script",
    "slurm_script.new",
    "tmp",
    "new",
    ".next",
];

/// A directory and all below it.
fn directories(dir: &Path, found: &mut Vec<PathBuf>) {
    found.push(dir.to_path_buf());
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            directories(&entry.path(), found);
        }
    }
}

/// Puts links to a file in place of all that is in a directory, and of what may come there.
fn fill_with_links(dir: &Path, to: &Path) -> usize {
    let names = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path());
    let names: Vec<PathBuf> = names
        .chain(NAMES.iter().map(|name| dir.join(name)))
        .collect();
    let link = |path: &PathBuf| {
        let _ = fs::remove_file(path);
        symlink(to, path).is_ok()
    };
    names.iter().filter(|path| link(path)).count()
}

/// Links to root's files where the agent keeps scripts, before it is started again.
pub(super) fn link_in_spool(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let private = target.home().join("private");
    let secret = private.join("secret");
    let made = fs::create_dir_all(&private)
        .and_then(|()| fs::set_permissions(&private, fs::Permissions::from_mode(0o700)))
        .and_then(|()| fs::write(&secret, SECRET))
        .and_then(|()| fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)));
    outcome.require(made.is_ok(), "root's own file cannot be made");
    let script = "#!/bin/sh\n# the same for all jobs\nexec sleep $1\n";
    let job = |seconds: &str| muster_model::spec::JobSpec {
        argv: vec![seconds.to_owned()],
        ..small_job(target, ATTACKER)
    };
    let first = or_end!(
        must_submit(target, ATTACKER, job("600"), script, &mut outcome),
        target,
        outcome
    );
    until(|| state(target, first) == Some(JobState::Running));
    for node in target.nodes() {
        let spool = target.spool(&node);
        // A user may write where it may not list: its job knows the path of its script.
        let mut dirs = Vec::new();
        directories(&spool, &mut dirs);
        let links = as_user(ATTACKER, || {
            dirs.retain(|dir| access(dir, AccessFlags::W_OK | AccessFlags::X_OK).is_ok());
            dirs.iter()
                .map(|dir| fill_with_links(dir, &secret))
                .sum::<usize>()
        });
        outcome.sent += links as u64;
        let again = target.restart_agent(&node);
        outcome.require(again.code == 0, "an agent does not start again");
    }
    outcome.require(target.nodes_are_up(), "nodes do not come back");
    let second = must_submit(target, ATTACKER, job("0"), script, &mut outcome);
    if let Some(job) = second {
        target.ended(job);
    }
    let kept = fs::metadata(&secret);
    let untouched = kept.is_ok_and(|m| m.uid() == 0 && m.gid() == 0 && m.mode() & 0o7777 == 0o600)
        && fs::read_to_string(&secret).is_ok_and(|text| text == SECRET);
    outcome.require(untouched, "root has written through a user's link");
    let private = fs::metadata(&private);
    outcome.require(
        private.is_ok_and(|m| m.uid() == 0 && m.mode() & 0o7777 == 0o700),
        "root has given a directory away through a user's link",
    );
    finished(target, outcome)
}

/// Time that a node may need to run jobs again after its shim was killed.
const SHIM_MAX: Duration = Duration::from_secs(30);

/// A job whose output is a FIFO that nobody reads, and the loss of the shim while its process waits there.
pub(super) fn fifo_and_lost_shim(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let fifo = target.dir_of(ATTACKER).join("fifo");
    let made = as_user(ATTACKER, || {
        let _ = fs::remove_file(&fifo);
        mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU)
    });
    outcome.require(made.is_ok(), "no FIFO can be made");
    let text = || Some(fifo.display().to_string());
    let mut jobs = Vec::new();
    for stdio in [
        StdioSpec {
            stdout: text(),
            ..StdioSpec::default()
        },
        StdioSpec {
            stderr: text(),
            stdout: Some("/dev/null".to_owned()),
            ..StdioSpec::default()
        },
        StdioSpec {
            stdin: text(),
            stdout: Some("/dev/null".to_owned()),
            ..StdioSpec::default()
        },
    ] {
        let spec = muster_model::spec::JobSpec {
            stdio,
            ..small_job(target, ATTACKER)
        };
        if let Some(job) = must_submit(target, ATTACKER, spec, "#!/bin/sh\n", &mut outcome) {
            jobs.push(job);
        }
    }
    // Either they wait, or a file that does not open ends them.
    let settled = until(|| {
        !target.processes_of(ATTACKER).is_empty()
            || jobs
                .iter()
                .all(|job| state(target, *job).is_none_or(JobState::is_ended))
    });
    outcome.require(settled, "jobs whose files are a FIFO neither wait nor end");
    if let Err(e) = victim_works(target, Some(super::FIRST_NODE), SHIM_MAX) {
        outcome.finding(format!("beside jobs that wait for a FIFO: {e}"));
    }
    match target.pid(&format!("spool.{}/shim.pid", super::FIRST_NODE)) {
        Some(shim) => target.kill(shim),
        None => outcome.finding("the shim's number is not known"),
    }
    // A job that is launched on a node whose shim is gone may fail there and start again.
    if let Err(e) = victim_works(target, Some(super::FIRST_NODE), SHIM_MAX) {
        outcome.finding(format!("after the shim was lost: {e}"));
    }
    target.run(ROOT, &format!("scancel --user={}", ATTACKER.uid));
    let gone = until(|| target.processes_of(ATTACKER).is_empty());
    if !gone {
        outcome.finding(format!(
            "processes that wait for a FIFO are still there {} s after their job was cancelled",
            PATIENCE.as_secs()
        ));
        // They would hold up what comes next.
        target
            .processes_of(ATTACKER)
            .into_iter()
            .for_each(|pid| target.kill(pid));
    }
    outcome.require(target.nodes_are_up(), "nodes do not come back");
    finished(target, outcome)
}
