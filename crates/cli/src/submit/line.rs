//! The part that sbatch, srun and salloc share: options from command line and environment, and what becomes of a
//! job before it is sent.

use super::components;
use super::filters::Filters;
use crate::clusters::ClusterSelection;
use crate::connect::{Client, ConnectError, unexpected};
use crate::people;
use crate::process;
use crate::say::{self, Say};
use crate::zone::{self, LocalZone};
use muster_conf::endpoint;
use muster_conf::options::job::{self, BuiltJob, SubmitEnvironment};
use muster_conf::options::{ChosenOptions, OptionCommand, OptionError, Source, environment, help};
use muster_model::command::{Reply, UserCommand};
use muster_model::environment::split;
use muster_model::hostlist;
use muster_model::spec::Owner;
use muster_model::time::Timestamp;
use muster_proto::client::Response;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Time that commands wait for a controller that restarts.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A command line that asks for work.
pub(crate) struct SubmitLine {
    /// Options of command line and environment.
    pub(crate) chosen: ChosenOptions,
    /// Script or program, and its arguments.
    pub(crate) words: Vec<String>,
    /// Prints the command's messages.
    pub(crate) say: Say,
}

/// Reads command line and environment: one line for each component, with what the one before it passes on.
///
/// # Errors
/// The exit code, when there is nothing more to do: help was printed, or an option was wrong.
pub(crate) fn read(
    command: OptionCommand,
    args: &[String],
    filters: &Filters,
) -> Result<Vec<SubmitLine>, ExitCode> {
    read_in(command, args, filters, |own, _, name| own.value(name))
}

/// The caller's variables that can be options: a hundred names are looked for, and to walk the whole environment for each
/// of them would be a quarter of what sbatch does, and more of what srun does in an allocation.
pub(crate) struct Variables {
    all: Vec<(&'static str, &'static str)>,
    /// Marks of the names in the environment: most names that are looked for have none of these marks.
    marks: [u64; 4],
}

impl Variables {
    pub(crate) fn read() -> Variables {
        let given = process::variables().iter().map(|v| v.to_bytes());
        let mut all = Vec::with_capacity(given.len());
        let mut marks = [0; 4];
        for variable in given.filter(|v| environment::may_be_option(v)) {
            let (name, Some(value)) = split(variable) else {
                continue;
            };
            let (word, bit) = mark(name);
            marks[word] |= bit;
            all.push((name, value));
        }
        Variables { all, marks }
    }

    /// The value of one of these variables.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let (word, bit) = mark(name);
        if self.marks[word] & bit == 0 {
            return None;
        }
        let found = self.all.iter().find(|(own, _)| *own == name);
        found.map(|(_, value)| (*value).to_owned())
    }
}

/// The mark of a name, one of 256, as a word's number and a bit of it.
fn mark(name: &str) -> (usize, u64) {
    let last = name.bytes().last().unwrap_or(0);
    let middle = name.as_bytes().get(name.len() / 2).copied().unwrap_or(0);
    let number =
        name.len().wrapping_mul(41) ^ usize::from(last).wrapping_mul(7) ^ usize::from(middle);
    (number / 64 % 4, 1 << (number % 64))
}

/// As above, with an environment for each component, by its number.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_in(
    command: OptionCommand,
    args: &[String],
    filters: &Filters,
    variable: impl Fn(&Variables, usize, &str) -> Option<String>,
) -> Result<Vec<SubmitLine>, ExitCode> {
    let say = Say::new(command.name());
    let parts = components::split(command, args, filters.site).map_err(|text| {
        say.option_error(&OptionError {
            lines: vec![text],
            exit: 255,
            bare: true,
        })
    })?;
    let own = Variables::read();
    let mut lines: Vec<SubmitLine> = Vec::with_capacity(parts.len());
    for (number, part) in parts.into_iter().enumerate() {
        let mut chosen = filters.defaults(command, false)?;
        if let Some(before) = lines.last() {
            components::pass_on(&before.chosen, &mut chosen, Source::CommandLine);
        }
        for (row, value) in part.options {
            match row.long {
                "help" => return Err(print(&help::help(command, filters.site))),
                "usage" => return Err(print(&help::usage(command))),
                "version" => return Err(say::version()),
                _ => chosen.give(row, value, Source::CommandLine),
            }
        }
        environment::read(&mut chosen, |name| variable(&own, number, name));
        if chosen
            .value("gres")
            .is_some_and(|gres| gres.eq_ignore_ascii_case("help"))
        {
            return Err(print(&gres_help()));
        }
        let mut say = say;
        say.quiet = chosen.has("quiet");
        say.verbose = chosen.verbose;
        lines.push(SubmitLine {
            chosen,
            words: part.words,
            say,
        });
    }
    Ok(lines)
}

/// `--gres=help`: what the cluster has names for.
fn gres_help() -> String {
    let site = endpoint::read(&endpoint::conf_path());
    let names = site.map(|site| site.gres_types).unwrap_or_default();
    let lines = names.iter().map(|name| format!("{name}[[:type]:count]\n"));
    format!("Valid gres options are:\n{}", lines.collect::<String>())
}

fn print(text: &str) -> ExitCode {
    say::stdout(text);
    ExitCode::SUCCESS
}

/// Makes the job, reads the files that options name, and reports options without effect.
///
/// # Errors
/// The exit code, after the error was printed.
pub(crate) fn build(line: &mut SubmitLine, prefix: &str) -> Result<BuiltJob, ExitCode> {
    let say = line.say;
    read_node_files(&mut line.chosen).map_err(|e| say.option_error(&e))?;
    make_room_for_repeated_nodes(&mut line.chosen);
    let zone = LocalZone::default();
    let ambient = SubmitEnvironment {
        now: zone::now,
        zone: &zone,
    };
    let mut built = job::build(&line.chosen, &ambient).map_err(|e| say.build_error(prefix, &e))?;
    for warning in &built.warnings {
        say.warning(warning);
    }
    built.spec.owner = owner(&line.chosen).map_err(|e| say.option_error(&e))?;
    let here = current_dir();
    built.spec.work_dir = line
        .chosen
        .value("chdir")
        .map_or_else(|| here.clone(), |d| here.join(d))
        .to_string_lossy()
        .into_owned();
    built.spec.submit_host = muster_trust::host::short_name();
    built.spec.submit_sid = session_id();
    Ok(built)
}

/// `SLURM_HOSTFILE` names the nodes of an allocation for which no others are named.
pub(crate) fn take_hostfile(lines: &mut [SubmitLine]) {
    let Some(path) = process::variable("SLURM_HOSTFILE") else {
        return;
    };
    let named = |line: &&mut SubmitLine| line.chosen.has("nodelist") || line.chosen.has("nodefile");
    for line in lines.iter_mut().filter(|line| !named(line)) {
        line.chosen.set("nodefile", Some(path.to_owned()));
    }
}

/// `--nodefile`, and `--nodelist` or `--exclude` with the name of a file.
fn read_node_files(chosen: &mut ChosenOptions) -> Result<(), OptionError> {
    let files = [
        ("nodefile", "nodelist"),
        ("nodelist", "nodelist"),
        ("exclude", "exclude"),
    ];
    for (long, target) in files {
        let Some(path) = chosen.value(long) else {
            continue;
        };
        if long != "nodefile" && !path.contains('/') {
            continue;
        }
        let text = std::fs::read_to_string(path).map_err(|e| {
            let what = if long == "nodefile" {
                " node file"
            } else {
                " specification"
            };
            OptionError::invalid(format!("Invalid --{long}{what}"))
                .with_hint(format!("cannot read {path}: {e}"))
        })?;
        let names: Vec<&str> = text
            .lines()
            .filter(|l| !l.trim_start().starts_with('#'))
            .flat_map(str::split_whitespace)
            .collect();
        if names.is_empty() {
            return Err(
                OptionError::invalid(format!("Invalid --{long} specification"))
                    .with_hint(format!("{path} names no node")),
            );
        }
        let list = names.join(",");
        chosen.set(target, Some(list));
    }
    Ok(())
}

/// An arbitrary distribution may name a node several times, for as many of its tasks: each node has to have CPUs for the most that one
/// of them gets.
fn make_room_for_repeated_nodes(chosen: &mut ChosenOptions) {
    let distribution = chosen.value("distribution").unwrap_or("");
    if !distribution.starts_with("arbitrary") || chosen.has("mincpus") {
        return;
    }
    let names = hostlist::parse(chosen.value("nodelist").unwrap_or("")).unwrap_or_default();
    let mut tasks: BTreeMap<&str, u32> = BTreeMap::new();
    for name in &names {
        *tasks.entry(name).or_default() += 1;
    }
    let most = tasks.into_values().max().unwrap_or(1);
    let cpus = chosen
        .value("cpus-per-task")
        .map_or(Some(1), |text| text.parse().ok());
    if let (2.., Some(cpus)) = (most, cpus) {
        let cpus = most.saturating_mul(cpus);
        chosen.set("mincpus", Some(cpus.to_string()));
    }
}

/// `--uid` and `--gid`. Without them the controller takes the caller's own identity, whatever is sent.
///
/// # Errors
/// There is no such user or group, or only root may name it.
pub(crate) fn owner(chosen: &ChosenOptions) -> Result<Owner, OptionError> {
    let (uid, gid) = (chosen.value("uid"), chosen.value("gid"));
    let mut owner = Owner {
        uid: nix::unistd::getuid().as_raw(),
        gid: nix::unistd::getgid().as_raw(),
        ..Owner::default()
    };
    if uid.is_none() && gid.is_none() {
        return Ok(owner);
    }
    let only_root =
        |long: &str| OptionError::invalid(format!("--{long} only permitted by root user"));
    let is_root = nix::unistd::geteuid().is_root();
    if let Some(text) = uid {
        let user = user(text).ok_or_else(|| OptionError::invalid("Invalid --uid specification"))?;
        if !is_root && user.uid.as_raw() != owner.uid {
            return Err(only_root("uid"));
        }
        (owner.uid, owner.gid, owner.user) = (user.uid.as_raw(), user.gid.as_raw(), user.name);
        let group = people::group_of_gid(owner.gid);
        owner.group = group.map_or_else(|| owner.gid.to_string(), |group| group.name);
    }
    if let Some(text) = gid {
        let group =
            group(text).ok_or_else(|| OptionError::invalid("Invalid --gid specification"))?;
        if !is_root && group.gid.as_raw() != owner.gid {
            return Err(only_root("gid"));
        }
        (owner.gid, owner.group) = (group.gid.as_raw(), group.name);
    }
    Ok(owner)
}

/// A user by name or number.
pub(crate) fn user(text: &str) -> Option<nix::unistd::User> {
    match text.parse() {
        Ok(uid) => people::user_of_uid(uid),
        Err(_) => people::user_named(text),
    }
}

fn group(text: &str) -> Option<nix::unistd::Group> {
    match text.parse() {
        Ok(gid) => people::group_of_gid(gid),
        Err(_) => people::group_named(text),
    }
}

/// Where the command was called.
pub(crate) fn current_dir() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"))
}

fn session_id() -> u32 {
    let sid = nix::unistd::getsid(None).map_or(0, nix::unistd::Pid::as_raw);
    u32::try_from(sid).unwrap_or(0)
}

/// A command line as accounting keeps it.
pub(crate) fn submit_line(name: &str, args: &[String]) -> String {
    let mut text = name.to_owned();
    for arg in args {
        text.push(' ');
        text.push_str(arg);
    }
    text
}

/// Connects to the controller, or to that of the cluster of `--clusters` at which the job of a command would start first.
///
/// # Errors
/// The exit code, after the error was printed.
pub(crate) fn connect(
    line: &SubmitLine,
    prefix: &str,
    command: &UserCommand,
) -> Result<Client, ExitCode> {
    let say = line.say;
    if let Some(names) = line.chosen.value("clusters") {
        let script = script_from_stdin(line, command);
        let named = ClusterSelection::find(say.name, names, script).map_err(|failure| {
            say::stderr(&format!("{failure}\n"));
            say.failed()
        })?;
        let chosen = named.choose_least(|| expected_start(command));
        chosen.map_err(|e| say.connect_error(prefix, &e))?;
    }
    Client::connect_patiently(PATIENCE).map_err(|e| unreachable(&say, prefix, &e))
}

/// When the job would start at the chosen cluster.
fn expected_start(command: &UserCommand) -> Result<Timestamp, ConnectError> {
    let mut question = command.clone();
    if let UserCommand::Submit { test_only, .. } | UserCommand::SubmitHet { test_only, .. } =
        &mut question
    {
        *test_only = true;
    }
    match Client::connect()?.command(question)? {
        Reply::WouldStart { at, .. } => Ok(at),
        other => Err(unexpected(&Response::Reply(Box::new(other)))),
    }
}

/// The script, if the command has read it from its standard input.
fn script_from_stdin<'a>(line: &SubmitLine, command: &'a UserCommand) -> Option<&'a [u8]> {
    match command {
        UserCommand::Submit { blobs, .. } | UserCommand::SubmitHet { blobs, .. }
            if line.words.is_empty() && !line.chosen.has("wrap") =>
        {
            blobs.first().map(|(_, script)| script.as_slice())
        }
        _ => None,
    }
}

fn unreachable(say: &Say, prefix: &str, error: &ConnectError) -> ExitCode {
    if let ConnectError::Unreachable { socket, source } = error {
        say.verbose(&format!("{socket}: {source}"));
    }
    say.connect_error(prefix, error)
}

/// A path's last part.
pub(crate) fn base_name(path: &str) -> String {
    Path::new(path)
        .file_name()
        .map_or_else(|| path.to_owned(), |n| n.to_string_lossy().into_owned())
}
