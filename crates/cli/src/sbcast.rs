//! sbcast: copies a file to each node of a job. A step of the job, with one task on each node, reads the file from srun and
//! writes it with the rights of the job's user; nothing is written by a daemon.

pub(crate) mod libraries;
mod receive;
pub(crate) mod target;

use crate::SLURM_VERSION;
use crate::clusters;
use crate::errno;
use crate::listing::print;
use crate::options::{HelpForm, Opt, Spec, env, flag, opt};
use crate::own_step;
use crate::say::{self, Say};
use libraries::CopyDefaults;
use muster_conf::endpoint;
use muster_model::hostlist;
use muster_proto::client::AllocationInfo;
use receive::WriteOrder;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::process::{ExitCode, Stdio};
use target::CopyTarget;

/// sbcast.
pub(crate) static SPEC: Spec = Spec {
    name: "sbcast",
    about: "Copies a file to each node of a job.",
    operands: "SOURCE DEST",
    form: HelpForm::OptionsAs("[--exclude] [-CfFjpstvV] [--send-libs] SOURCE DEST"),
    options: OPTIONS,
    variables: &[
        ("SBCAST_COMPRESS", "compress"),
        ("SBCAST_EXCLUDE", "exclude"),
        ("SBCAST_FANOUT", "fanout"),
        ("SBCAST_FORCE", "force"),
        ("SBCAST_PRESERVE", "preserve"),
        ("SBCAST_SEND_LIBS", "send-libs"),
        ("SBCAST_SIZE", "size"),
        ("SBCAST_TIMEOUT", "timeout"),
    ],
    notes: "\
SOURCE is read here; DEST is a path on the nodes, below the current directory if it is relative. The file is written by a
step of the job, named sbcast, which has the rights of the job's user, and it has its name only when it is complete.
The exit status is the error's number where a node could not write the file: 17 for a file that exists, 28 for a full disk.
",
};

const ONE_WAY: &str = "srun sends the file once to each node, as it is";

static OPTIONS: &[Opt] = &[
    opt("compress", "TYPE", "compress what is sent")
        .short('C')
        .optional()
        .stored(ONE_WAY),
    opt(
        "exclude",
        "PATHS",
        "directories whose libraries are not sent, or NONE",
    ),
    opt("fanout", "N", "how many nodes one sends to")
        .short('F')
        .stored(ONE_WAY),
    flag("force", "replace a file that exists").short('f'),
    flag("help", "print this help").short('h'),
    opt(
        "jobid",
        "JOB[.STEP]",
        "the nodes of this job or step, at first of the job that sbcast is called in; JOB+N is a component",
    )
    .short('j'),
    flag("preserve", "keep the times and the modes of the file").short('p'),
    opt(
        "send-libs",
        "YES|NO",
        "send the libraries of a program, too, to the directory DEST_libs",
    )
    .optional(),
    opt(
        "size",
        "BYTES",
        "size of the parts in which the file is sent",
    )
    .short('s')
    .stored(ONE_WAY),
    opt("timeout", "SECONDS", "time limit for each message")
        .short('t')
        .stored("the nodes' connections have limits of their own"),
    flag("usage", "print a short summary"),
    flag("verbose", "say what is sent where").short('v'),
    flag("version", "print the version").short('V'),
];

/// Exit status of Slurm's sbcast where nothing was sent.
const NOT_SENT: u8 = 255;

/// Begins the arguments of the task that writes the file.
const RECEIVE: &str = "--receive";

/// Runs sbcast, or its task on a node.
pub(crate) fn main(args: &[String]) -> ExitCode {
    match args.split_first() {
        Some((first, words)) if first == RECEIVE => receive::main(words),
        _ => run(args).unwrap_or_else(|code| code),
    }
}

/// Options of the command line.
#[derive(Debug, Default)]
struct Options {
    job: Option<String>,
    force: bool,
    preserve: bool,
    verbose: u32,
    /// Libraries are sent, too.
    libraries: bool,
    exclude: Option<String>,
}

fn run(args: &[String]) -> Result<ExitCode, ExitCode> {
    let mut say = Say::new("sbcast");
    clusters::choose_working_cluster();
    let parsed = SPEC.parse(args).map_err(|text| {
        say::stderr(&format!("{text}\n"));
        ExitCode::FAILURE
    })?;
    let site = endpoint::read(&endpoint::conf_path()).ok();
    let defaults = CopyDefaults::of_site(site.as_ref());
    let wrong = |text: String| {
        say.error(&text);
        ExitCode::FAILURE
    };
    let mut options = Options {
        job: env("SLURM_JOB_ID"),
        force: env("SBCAST_FORCE").is_some(),
        preserve: env("SBCAST_PRESERVE").is_some(),
        verbose: 0,
        libraries: defaults.sends_libraries,
        exclude: env("SBCAST_EXCLUDE"),
    };
    if let Some(value) = env("SBCAST_SEND_LIBS") {
        options.libraries = libraries::are_wanted(Some(&value)).map_err(wrong)?;
    }
    for (name, value) in parsed.options {
        match name {
            "force" => options.force = true,
            "preserve" => options.preserve = true,
            "verbose" => options.verbose += 1,
            "jobid" => options.job = value,
            "exclude" => options.exclude = value,
            "send-libs" => {
                options.libraries = libraries::are_wanted(value.as_deref()).map_err(wrong)?;
            }
            "help" => return Ok(informed(&SPEC.help())),
            "usage" => return Ok(informed(&SPEC.usage())),
            _ => return Ok(informed(&format!("slurm {SLURM_VERSION}\n"))),
        }
    }
    say.verbose = options.verbose;
    let [source, dest] = parsed.operands.as_slice() else {
        say::stderr(&format!(
            "Need two file names, have {} names\nTry \"sbcast --help\" for more information\n",
            parsed.operands.len()
        ));
        return Err(ExitCode::FAILURE);
    };
    if dest.ends_with('/') {
        say.error("CopyTarget filename cannot be a directory.");
        return Err(ExitCode::FAILURE);
    }
    let Some(job) = &options.job else {
        say.error(
            "Need a job id to run this command.  Run from within a Slurm job or use the --jobid option.",
        );
        return Err(ExitCode::FAILURE);
    };
    let failed = |text: String| {
        say.error(&text);
        ExitCode::from(NOT_SENT)
    };
    let (_, order) = open(source, dest, &options).map_err(failed)?;
    let targets = target::find(job).map_err(failed)?;
    if order.size == 0 {
        say.error(&format!("Warning: file `{source}` is empty."));
    }
    let copies = match options.libraries {
        true => {
            let excluded = defaults.excluded(options.exclude.as_deref());
            let excluded = excluded.map_err(failed)?;
            copies_with_libraries(source, dest, &excluded).map_err(failed)?
        }
        false => vec![Copied::program(source, dest)],
    };
    let mut outcome = ExitCode::SUCCESS;
    for target in &targets {
        match send_all(&copies, &options, target, say)? {
            ExitCode::SUCCESS => {}
            other => outcome = other,
        }
    }
    Ok(outcome)
}

/// A file to copy.
struct Copied {
    source: String,
    dest: String,
    is_library: bool,
}

impl Copied {
    fn program(source: &str, dest: &str) -> Copied {
        Copied {
            source: source.to_owned(),
            dest: dest.to_owned(),
            is_library: false,
        }
    }
}

/// The file itself, and its libraries in their directory beside the copy.
fn copies_with_libraries(
    source: &str,
    dest: &str,
    excluded: &[String],
) -> Result<Vec<Copied>, String> {
    let directory = libraries::directory(dest);
    let of_library = |path: String| {
        let name = path.rsplit('/').next().unwrap_or_default();
        Copied {
            dest: format!("{directory}/{name}"),
            source: path,
            is_library: true,
        }
    };
    let mut all = vec![Copied::program(source, dest)];
    let found = libraries::find(source, excluded)?;
    all.extend(found.into_iter().map(of_library));
    Ok(all)
}

/// Sends files one after another, each by a step; the first error ends it.
fn send_all(
    copies: &[Copied],
    options: &Options,
    target: &CopyTarget,
    say: Say,
) -> Result<ExitCode, ExitCode> {
    for copied in copies {
        // Each step reads its file from the beginning.
        let opened = open(&copied.source, &copied.dest, options);
        let (file, mut order) = opened.map_err(|text| {
            say.error(&text);
            ExitCode::from(NOT_SENT)
        })?;
        order.makes_dir = copied.is_library;
        match send(file, &order, target, say)? {
            ExitCode::SUCCESS => {}
            other => return Ok(other),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn informed(text: &str) -> ExitCode {
    print(text);
    ExitCode::SUCCESS
}

/// The file that is sent, and what its receivers do.
fn open(source: &str, dest: &str, options: &Options) -> Result<(File, WriteOrder), String> {
    let failed = |e: std::io::Error| format!("Can't open `{source}`: {}", errno::system_text(&e));
    let file = File::open(source).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if about.is_dir() {
        return Err(format!("Can't mmap file `{source}`, No such device."));
    }
    let order = WriteOrder {
        dest: dest.to_owned(),
        size: about.size(),
        mode: about.mode() & 0o777,
        force: options.force,
        times_s: options.preserve.then(|| (about.atime(), about.mtime())),
        makes_dir: false,
    };
    Ok((file, order))
}

/// Copies a program to all nodes of a job, in the place of another if there is one; with its libraries, if `excluded` says
/// whose directories are left out. Whether libraries were sent.
///
/// # Errors
/// The exit code, after why was said.
pub(crate) fn copy_program(
    source: &str,
    dest: &str,
    excluded: Option<&[String]>,
    info: &AllocationInfo,
    say: Say,
) -> Result<bool, ExitCode> {
    let options = Options {
        force: true,
        ..Options::default()
    };
    let failed = |text: String| {
        say.error(&text);
        say.failed()
    };
    open(source, dest, &options).map_err(failed)?;
    let copies = match excluded {
        Some(excluded) => copies_with_libraries(source, dest, excluded).map_err(failed)?,
        None => vec![Copied::program(source, dest)],
    };
    match send_all(&copies, &options, &CopyTarget::all_of(info), say)? {
        ExitCode::SUCCESS => Ok(copies.len() > 1),
        _ => {
            say.error(&format!("the program could not be copied to {dest}"));
            Err(say.failed())
        }
    }
}

/// Runs the step that writes the file.
fn send(
    file: File,
    order: &WriteOrder,
    target: &CopyTarget,
    say: Say,
) -> Result<ExitCode, ExitCode> {
    let names: Vec<&str> = target.nodes.iter().map(String::as_str).collect();
    for (what, value) in [
        ("force   ", order.force.to_string()),
        ("preserve", order.times_s.is_some().to_string()),
        ("dest    ", order.dest.clone()),
        ("modes   ", format!("100{:o}", order.mode)),
        ("size    ", order.size.to_string()),
        ("jobid   ", target.job.to_string()),
        ("node_list", hostlist::compress(&names)),
    ] {
        say.verbose(&format!("{what} = {value}"));
    }
    let failed = |e: std::io::Error| {
        say.error(&format!("cannot run srun, which sends the file: {e}"));
        ExitCode::from(NOT_SENT)
    };
    let mut command = own_step::command(target.job, SPEC.name, &names).map_err(failed)?;
    command
        .arg(RECEIVE)
        .args(order.words())
        .stdin(Stdio::from(file))
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(errors) = child.stderr.take() {
        // Names of files in it need not be UTF-8.
        for line in BufReader::new(errors).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            if !own_step::is_of_task_exit(&line) {
                say::stderr(&format!("{line}\n"));
            }
        }
    }
    let status = child.wait().map_err(failed)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(NOT_SENT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_that_cannot_be_read_are_named() {
        let options = Options::default();
        let missing = open("/nosuch", "/d", &options).unwrap_err();
        assert_eq!(missing, "Can't open `/nosuch`: No such file or directory");
        let directory = open("/", "/d", &options).unwrap_err();
        assert_eq!(directory, "Can't mmap file `/`, No such device.");
    }
}
