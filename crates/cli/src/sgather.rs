//! sgather: copies a file from each node of a job. A step on each node reads it with the rights of the job's user, and srun
//! brings it here; nothing is read by a daemon.

mod node;

use crate::SLURM_VERSION;
use crate::errno;
use crate::options::{HelpForm, Opt, Spec, env, flag, opt};
use crate::own_step;
use crate::say::{self, Say};
use crate::sbcast::target::{self, CopyTarget};
use muster_model::ids::JobId;
use node::Header;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

/// sgather.
pub(crate) static SPEC: Spec = Spec {
    name: "sgather",
    about: "Copies a file from each node of a job to files here.",
    operands: "SOURCE DEST",
    form: HelpForm::OptionsAs("[-CfFhjkprtuvV] SOURCE DEST"),
    options: OPTIONS,
    variables: &[
        ("SGATHER_COMPRESS", "compress"),
        ("SGATHER_FANOUT", "fanout"),
        ("SGATHER_FORCE", "force"),
        ("SGATHER_KEEP", "keep"),
        ("SGATHER_PRESERVE", "preserve"),
        ("SGATHER_RECURSIVE", "recursive"),
        ("SGATHER_TIMEOUT", "timeout"),
    ],
    notes: "\
SOURCE is a path on the nodes, below the current directory if it is relative; DEST is written here, with '.' and the node's
name added. SOURCE is removed from a node when its copy is complete, unless --keep is given. Steps of the job named sgather
read it with the rights of the job's user. Directories are sent by tar, which must be there and here.
The exit status is 1 where a node's file could not be copied.
",
};

static OPTIONS: &[Opt] = &[
    flag("compress", "compress what is sent")
        .short('C')
        .stored("srun sends the file as it is"),
    opt("fanout", "N", "how many nodes send at a time, 8 at first").short('F'),
    flag("force", "a node without SOURCE is not an error").short('f'),
    flag("help", "print this help").short('h'),
    opt(
        "jobid",
        "JOB_ID",
        "the nodes of this job, at first the one that sgather is called in",
    )
    .short('j'),
    flag("keep", "leave SOURCE where it is").short('k'),
    flag("preserve", "keep the times and the modes of the file").short('p'),
    flag("recursive", "copy directories").short('r'),
    opt("timeout", "SECONDS", "time limit for each message")
        .short('t')
        .stored("the nodes' connections have limits of their own"),
    flag("usage", "print a short summary").short('u'),
    flag("verbose", "say what is copied from where").short('v'),
    flag("version", "print the version").short('V'),
];

/// Number of nodes that send at a time.
const FANOUT: usize = 8;

/// Options of the command line.
#[derive(Clone, Debug)]
struct Options {
    job: Option<String>,
    fanout: usize,
    force: bool,
    keep: bool,
    preserve: bool,
    recursive: bool,
    source: String,
    dest: String,
}

/// Runs sgather, or its task on a node.
pub(crate) fn main(args: &[String]) -> ExitCode {
    match args.split_first() {
        Some((first, words)) if first == node::SEND || first == node::REMOVE => {
            node::main(first == node::REMOVE, words)
        }
        _ => run(args).unwrap_or_else(|code| code),
    }
}

fn run(args: &[String]) -> Result<ExitCode, ExitCode> {
    let mut say = Say::new("sgather");
    let parsed = SPEC.parse(args).map_err(|text| {
        say::stderr(&format!("{text}\n"));
        ExitCode::FAILURE
    })?;
    let given = |name: &str| env(name).is_some();
    let mut options = Options {
        job: env("SLURM_JOB_ID"),
        fanout: FANOUT,
        force: given("SGATHER_FORCE"),
        keep: given("SGATHER_KEEP"),
        preserve: given("SGATHER_PRESERVE"),
        recursive: given("SGATHER_RECURSIVE"),
        source: String::new(),
        dest: String::new(),
    };
    let mut fanout = env("SGATHER_FANOUT");
    for (name, value) in parsed.options {
        match name {
            "fanout" => fanout = value,
            "force" => options.force = true,
            "keep" => options.keep = true,
            "preserve" => options.preserve = true,
            "recursive" => options.recursive = true,
            "jobid" => options.job = value,
            "verbose" => say.verbose += 1,
            "help" => return Ok(print(&SPEC.help())),
            "usage" => return Ok(print(&SPEC.usage())),
            _ => return Ok(print(&format!("slurm {SLURM_VERSION}\n"))),
        }
    }
    let failed = |text: &str| {
        say.error(text);
        ExitCode::FAILURE
    };
    if let Some(text) = fanout {
        let number = text.parse().ok().filter(|n| (1..=64).contains(n));
        options.fanout = number
            .ok_or_else(|| failed(&format!("--fanout={text} is not a number from 1 to 64")))?;
    }
    let Ok([source, dest]) = <[String; 2]>::try_from(parsed.operands) else {
        say::stderr("Need two file names\nTry \"sgather --help\" for more information\n");
        return Err(ExitCode::FAILURE);
    };
    (options.source, options.dest) = (source, dest);
    let job = options.job.as_deref().ok_or_else(|| {
        failed("Need a job id to run this command.  Run from within a Slurm job or use the --jobid option.")
    })?;
    let targets = target::find(job).map_err(|text| failed(&text))?;
    let mut outcome = ExitCode::SUCCESS;
    for target in &targets {
        match gather(&options, target, say) {
            ExitCode::SUCCESS => {}
            other => outcome = other,
        }
    }
    Ok(outcome)
}

fn print(text: &str) -> ExitCode {
    say::stdout(text);
    ExitCode::SUCCESS
}

/// Copies from all nodes, some at a time.
fn gather(options: &Options, target: &CopyTarget, say: Say) -> ExitCode {
    let names = &target.nodes;
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Lines of several nodes do not mix.
    let voice = Mutex::new(say);
    let print_result = |text: &str, is_error: bool| {
        let Ok(say) = voice.lock() else { return };
        match is_error {
            true => say.error(text),
            false => say.verbose(text),
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.fanout.min(names.len()) {
            scope.spawn(|| {
                while let Some(node) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let dest = format!("{}.{node}", options.dest);
                    match from_node(options, target.job, node, &dest) {
                        Ok(true) => {
                            print_result(&format!("{node}:{} -> {dest}", options.source), false)
                        }
                        Ok(false) => {
                            print_result(&format!("{node} has no {}", options.source), false)
                        }
                        Err(why) => {
                            print_result(&format!("{node}: {why}"), true);
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    match failed.load(Ordering::Relaxed) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Copies from one node; whether there was something.
fn from_node(options: &Options, job: JobId, node: &str, dest: &str) -> Result<bool, String> {
    let mut command = step(options, job, node, node::SEND).map_err(|e| e.to_string())?;
    let mut child = command
        .spawn()
        .map_err(|e| format!("cannot run srun: {}", errno::system_text(&e)))?;
    let copied = child
        .stdout
        .take()
        .map(|output| receive(options, output, dest));
    let errors = said(&mut child);
    let status = child.wait().map_err(|e| e.to_string())?;
    if status.code() == Some(node::ABSENT.into()) && options.force {
        return Ok(false);
    }
    if let Some(Err(why)) = copied {
        remove(dest);
        return Err(format!("{dest}: {why}; {errors}")
            .trim_end_matches("; ")
            .to_owned());
    }
    if !status.success() {
        return Err(match errors.is_empty() {
            true => format!("srun ended with {status}"),
            false => errors,
        });
    }
    if !options.keep {
        let mut command = step(options, job, node, node::REMOVE).map_err(|e| e.to_string())?;
        let mut child = command
            .spawn()
            .map_err(|e| format!("cannot run srun: {}", errno::system_text(&e)))?;
        let errors = said(&mut child);
        let status = child.wait().map_err(|e| e.to_string())?;
        if !status.success() {
            return Err(format!(
                "{} was copied and is still there: {errors}",
                options.source
            ));
        }
    }
    Ok(true)
}

fn step(options: &Options, job: JobId, node: &str, what: &str) -> io::Result<Command> {
    let mut command = own_step::command(job, SPEC.name, &[node])?;
    let recursive = if options.recursive { "1" } else { "0" };
    command
        .args([what, &options.source, recursive])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command)
}

/// Output of the task, in a line.
fn said(child: &mut Child) -> String {
    let mut text = Vec::new();
    if let Some(mut errors) = child.stderr.take() {
        // what cannot be read is lost.
        let _ = errors.by_ref().take(64 << 10).read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter(|line| !own_step::is_of_task_exit(line));
    lines.collect::<Vec<_>>().join("; ")
}

/// Removes an incomplete file, which has no use.
fn remove(dest: &str) {
    let _ = fs::remove_file(part(dest));
}

fn part(dest: &str) -> PathBuf {
    PathBuf::from(format!("{dest}.sgather.{}", std::process::id()))
}

/// Writes what a node sends.
fn receive(options: &Options, mut input: impl Read, dest: &str) -> io::Result<()> {
    let Some(header) = Header::read(&mut input)? else {
        // The task says why.
        return Ok(());
    };
    if header.is_directory {
        return unpack(options, input, dest);
    }
    let part = part(dest);
    let mut file = File::create_new(&part)?;
    // One byte more shows that there is too much.
    let copied = io::copy(&mut input.take(header.size.saturating_add(1)), &mut file)?;
    if copied != header.size {
        let text = format!("{copied} of {} bytes have come", header.size);
        return Err(io::Error::other(text));
    }
    if options.preserve {
        file.set_permissions(fs::Permissions::from_mode(header.mode))?;
        let time = |s: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
        let times = fs::FileTimes::new();
        file.set_times(
            times
                .set_accessed(time(header.atime_s))
                .set_modified(time(header.mtime_s)),
        )?;
    }
    fs::rename(&part, dest)
}

/// The files of a directory go below a new one of this name.
fn unpack(options: &Options, mut input: impl Read, dest: &str) -> io::Result<()> {
    fs::create_dir(Path::new(dest))?;
    let mut tar = Command::new("tar");
    tar.args(["-x", "-f", "-", "--strip-components=1", "-C", dest]);
    if options.preserve {
        tar.arg("-p");
    }
    let mut child = tar.stdin(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        match io::copy(&mut input, &mut stdin) {
            // tar does not read what follows the end of its archive.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                io::copy(&mut input, &mut io::sink())?;
            }
            copied => drop(copied?),
        }
    }
    let status = child.wait()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("tar ended with {status}"))),
    }
}
