//! From what qsub's options ask for to a command line of sbatch or salloc, in the form that Slurm's qsub gives it.

use super::request::{Join, TorqueRequest};
use super::script::{self, TorqueProgram};
use crate::options::env;
use crate::say;
use crate::sbatch::SubmissionOrigin;
use crate::sbatch::script::Script;
use crate::submit::line;
use muster_conf::options::torque::ResourceReader;
use muster_model::torque::{COMMAND, VARIABLES};
use muster_trust::host::short_name;
use std::path::Path;

/// Letters that Slurm's qsub writes for long options, and whether their values are beside them.
const LETTERS: [(&str, &str); 4] = [
    ("nodes", "-N"),
    ("ntasks", "-n"),
    ("time", "-t"),
    ("nodelist", "-w"),
];

/// The words of sbatch's command line, the script and its arguments being last. `said` are options that the script says in lines
/// for sbatch.
///
/// # Errors
/// A request of resources that is malformed or refused.
pub(super) fn words(
    request: &TorqueRequest,
    program: &TorqueProgram,
    said: &[&str],
) -> Result<Vec<String>, String> {
    let mut all = files(request, program, said);
    all.extend(resources(request)?);
    let mut add = |word: String| all.push(word);
    if let Some(begin) = &request.begin {
        add(format!("--begin={begin}"));
    }
    if let Some(export) = request.export() {
        add(format!("--export={export}"));
    }
    if let Some(events) = &request.mail {
        add(format!("--mail-type={events}"));
    }
    if let Some(to) = &request.mail_to {
        add(format!("--mail-user={to}"));
    }
    if let Some(tasks) = &request.tasks {
        add(format!("--array={tasks}"));
    }
    match request.rerun {
        Some(true) => add("--requeue".to_owned()),
        Some(false) => add("--no-requeue".to_owned()),
        None => {}
    }
    if request.fault_tolerant {
        add("--no-kill".to_owned());
    }
    if request.block {
        add("--wait".to_owned());
    }
    add(match request.quiet {
        true => "--quiet".to_owned(),
        false => "--parsable".to_owned(),
    });
    add("--ignore-pbs".to_owned());
    if let Some(name) = name(request, program, said) {
        all.extend(["-J".to_owned(), name]);
    }
    match program.is_command {
        true => all.push(format!("--wrap={}", command(&program.args))),
        false => {
            all.push(match program.path.as_str() {
                "" => program.name.clone(),
                path => path.to_owned(),
            });
            all.extend(arguments(request, program));
        }
    }
    Ok(all)
}

/// The words of salloc's command line.
///
/// # Errors
/// As [`words`].
pub(super) fn of_allocation(request: &TorqueRequest) -> Result<Vec<String>, String> {
    let mut all = resources(request)?;
    if !request.resources.has("nodes") && !request.resources.has("select") {
        all.insert(0, "-N1".to_owned());
    }
    if let Some(name) = &request.name {
        all.extend(["-J".to_owned(), name.clone()]);
    }
    if let Some(begin) = &request.begin {
        all.push(format!("--begin={begin}"));
    }
    Ok(all)
}

/// A word as a shell would read it.
pub(super) fn shown(word: &str) -> String {
    match word.strip_prefix("--wrap=") {
        Some(command) => format!("--wrap=\"{command}\""),
        None if word.contains(|c: char| c.is_whitespace() || "\"'$\\`*?;&|<>()".contains(c)) => {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
        None => word.to_owned(),
    }
}

/// A command's words in one, which a shell reads.
fn command(words: &[String]) -> String {
    let quoted = |word: &String| {
        let has_blank = word.is_empty() || word.contains(char::is_whitespace);
        match has_blank && words.len() > 1 {
            true => format!("'{}'", word.replace('\'', "'\\''")),
            false => word.clone(),
        }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn arguments(request: &TorqueRequest, program: &TorqueProgram) -> Vec<String> {
    let mut all = program.args.clone();
    if let Some(text) = &request.arguments {
        let text = text.trim_matches(['"', '\'']);
        all.extend(text.split_whitespace().map(str::to_owned));
    }
    all
}

/// The job's name, unless it is the script's file name, which is sbatch's default.
fn name(request: &TorqueRequest, program: &TorqueProgram, said: &[&str]) -> Option<String> {
    match &request.name {
        Some(name) => Some(name.clone()),
        None if said.contains(&"job-name") => None,
        None if program.is_command || program.path.is_empty() => Some(program.name.clone()),
        None => None,
    }
}

/// Where standard output and error go: `NAME.oNUMBER` and `NAME.eNUMBER` unless something else is said.
fn files(request: &TorqueRequest, program: &TorqueProgram, said: &[&str]) -> Vec<String> {
    let usual = |letter: char| {
        let task = if request.tasks.is_some() { ".%a" } else { "" };
        // The name that sbatch would take from the script may be another.
        let name = match (&request.name, said.contains(&"job-name")) {
            (Some(name), _) => name.replace('%', "%%"),
            (None, true) => "%x".to_owned(),
            (None, false) => program.name.replace('%', "%%"),
        };
        format!("{name}.{letter}%A{task}")
    };
    let path = |given: &Option<String>, letter: char, long: &str| match given {
        None if said.contains(&long) => None,
        None => Some(usual(letter)),
        Some(path) => Some(in_dir(request, path, &usual(letter))),
    };
    let (out, err) = match request.join {
        Join::Apart => (
            path(&request.stdout, 'o', "output"),
            path(&request.stderr, 'e', "error"),
        ),
        Join::Output => (path(&request.stdout, 'o', "output"), None),
        Join::Error => (path(&request.stderr, 'e', "error"), None),
    };
    let mut all = Vec::new();
    for (letter, file) in [("-e", err), ("-o", out)] {
        if let Some(file) = file {
            all.extend([letter.to_owned(), file]);
        }
    }
    all
}

/// A path, or the usual name in it if it is a directory.
fn in_dir(request: &TorqueRequest, path: &str, usual: &str) -> String {
    let expanded = variables_of_path(path, request.tasks.is_some());
    let dir = request.dir.as_deref().unwrap_or(".");
    let is_dir = path.ends_with('/') || Path::new(dir).join(path).is_dir();
    match is_dir && path != "/dev/null" {
        true => format!("{}/{usual}", expanded.trim_end_matches('/')),
        false => expanded,
    }
}

/// `$PBS_JOBID` and `^array_index^` in the name of a file.
fn variables_of_path(path: &str, is_array: bool) -> String {
    let index = if is_array { "%a" } else { "0" };
    let mut path = path.to_owned();
    for (name, value) in [
        ("$PBS_JOBID", "%j"),
        ("$PBS_JOBNAME", "%x"),
        ("$PBS_ARRAYID", index),
        ("^array_index^", index),
    ] {
        path = path.replace(name, value);
    }
    path
}

/// Resources and what else both sbatch and salloc know.
fn resources(request: &TorqueRequest) -> Result<Vec<String>, String> {
    let translated = request.resources.translated(ResourceReader::Qsub)?;
    for (name, why) in &translated.without_effect {
        say::stderr(&format!("qsub: warning: {name} has no effect: {why}\n"));
    }
    let mut all: Vec<String> = Vec::new();
    for option in &translated.options {
        let (long, value) = (option.long, option.value.as_deref());
        let letter = LETTERS.iter().find(|(own, _)| *own == long);
        all.push(match (letter, value) {
            (Some((_, letter)), Some(value)) => format!("{letter}{value}"),
            (None, Some(value)) => format!("--{long}={value}"),
            (_, None) => format!("--{long}"),
        });
    }
    let mut add = |word: String| all.push(word);
    if let Some(account) = request.account.as_ref().or(request.group.as_ref()) {
        add(format!("--account={account}"));
    }
    if let Some(count) = request.cpus_per_task {
        add(format!("--cpus-per-task={count}"));
    }
    if let Some(depend) = &request.depend {
        add(format!("--dependency={depend}"));
    }
    if let Some(dir) = &request.dir {
        add(format!("-D{dir}"));
    }
    if request.exclusive {
        add("--exclusive".to_owned());
    }
    if request.hold {
        add("-H".to_owned());
    }
    if let Some(nice) = request.nice {
        add(format!("--nice={nice}"));
    }
    if let Some(queue) = request.queue.as_ref().filter(|name| !name.is_empty()) {
        all.extend(["-p".to_owned(), queue.clone()]);
    }
    if let Some(wckey) = &request.wckey {
        all.push(format!("--wckey={wckey}"));
    }
    Ok(all)
}

/// Additions to the job beyond options.
pub(super) fn origin(
    request: &TorqueRequest,
    program: TorqueProgram,
    args: &[String],
) -> SubmissionOrigin {
    let of_caller = ["HOME", "LANG", "LOGNAME", "PATH", "MAIL", "SHELL", "TZ"];
    let named = of_caller.iter();
    let mut variables: Vec<(String, String)> = named
        .filter_map(|name| Some((format!("PBS_O_{name}"), env(name)?)))
        .collect();
    let dir = line::current_dir().to_string_lossy().into_owned();
    variables.push(("PBS_O_HOST".to_owned(), short_name()));
    variables.push(("PBS_O_WORKDIR".to_owned(), dir));
    let text = match program.is_command {
        true => format!("#!/bin/sh\n{}\n", command(&program.args)).into_bytes(),
        false => program.bytes,
    };
    let script = Script {
        bytes: script::made(&text, request.shell.as_deref()),
        name: program.name,
        path: program.path,
    };
    SubmissionOrigin {
        script: Some(script),
        submit_line: Some(line::submit_line("qsub", args)),
        marks: vec![(COMMAND.to_owned(), "qsub".to_owned())],
        variables,
        left_out: &VARIABLES,
        umask: request.umask,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torque::arguments::{WordPlaces, parse};
    use crate::torque::qsub::SPEC;
    use muster_conf::options::torque::AmountUnits;

    fn of(text: &str, said: &[&str]) -> String {
        let given: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let parsed = parse(&SPEC, &given, WordPlaces::End).unwrap();
        let mut request = TorqueRequest::default();
        for given in &parsed.options {
            request.take(given, AmountUnits::Torque).unwrap();
        }
        let program = match request.is_command {
            true => TorqueProgram::of_command(&parsed.operands).unwrap(),
            false => TorqueProgram {
                name: "j.sh".to_owned(),
                path: "j.sh".to_owned(),
                args: parsed.operands[1..].to_vec(),
                ..TorqueProgram::default()
            },
        };
        let all = words(&request, &program, said).unwrap();
        let all = all
            .iter()
            .filter(|w| !["--parsable", "--ignore-pbs"].contains(&w.as_str()));
        all.map(|word| shown(word)).collect::<Vec<_>>().join(" ")
    }

    /// Calls by Slurm 22.05's qsub, but for the order of options, tasks of each node, and the path of the job's output.
    #[test]
    fn command_lines_of_sbatch() {
        for (text, want) in [
            ("j.sh", "-e j.sh.e%A -o j.sh.o%A j.sh"),
            ("-N nm j.sh", "-e nm.e%A -o nm.o%A -J nm j.sh"),
            (
                "-l nodes=2:ppn=3:gpus=2 j.sh",
                "-e j.sh.e%A -o j.sh.o%A -N2 -n6 --ntasks-per-node=3 --gpus-per-node=2 j.sh",
            ),
            (
                "-A acct -e err -o out -h -p 100 -q short -r n j.sh",
                "-e err -o out --account=acct -H --nice=100 -p short --no-requeue j.sh",
            ),
            ("-j oe j.sh", "-o j.sh.o%A j.sh"),
            ("-j oe -o out j.sh", "-o out j.sh"),
            ("-j eo -e err j.sh", "-o err j.sh"),
            (
                "-m abe -M a@b j.sh",
                "-e j.sh.e%A -o j.sh.o%A --mail-type=FAIL,BEGIN,END --mail-user=a@b j.sh",
            ),
            (
                "-v A=1 -V j.sh",
                "-e j.sh.e%A -o j.sh.o%A --export=all,A=1 j.sh",
            ),
            (
                "-t 1-3%2 j.sh a b",
                "-e j.sh.e%A.%a -o j.sh.o%A.%a --array=1-3%2 j.sh a b",
            ),
            (
                "-wd /nosuch -l walltime=90 j.sh",
                "-e j.sh.e%A -o j.sh.o%A -t2 -D/nosuch j.sh",
            ),
            (
                "-b y echo hi",
                "-e echo.e%A -o echo.o%A -J echo --wrap=\"echo hi\"",
            ),
            (
                "-P wk -pe shm 4 -W group_list=g,block=true j.sh",
                "-e j.sh.e%A -o j.sh.o%A --account=g --cpus-per-task=4 --wckey=wk --wait j.sh",
            ),
            ("-o /tmp -e x/ j.sh", "-e x/j.sh.e%A -o /tmp/j.sh.o%A j.sh"),
            (
                "-o log.$PBS_JOBID -j oe -t 1 j.sh",
                "-o log.%j --array=1 j.sh",
            ),
        ] {
            assert_eq!(of(text, &[]), want, "{text}");
        }
        let said = of("j.sh", &["output", "job-name"]);
        assert_eq!(said, "-e %x.e%A j.sh");
    }

    #[test]
    fn words_of_a_command() {
        let words = |all: &[&str]| Vec::from_iter(all.iter().map(|w| (*w).to_owned()));
        assert_eq!(
            command(&words(&["echo", "a b", "$HOME"])),
            "echo 'a b' $HOME"
        );
        assert_eq!(command(&words(&["echo a; echo b"])), "echo a; echo b");
    }
}
