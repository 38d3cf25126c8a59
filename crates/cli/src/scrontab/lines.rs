//! From the lines of a crontab to jobs: options of `#SCRON` lines, variables, and the script around each command.

use super::SAY;
use crate::people;
use crate::submit::capture;
use crate::submit::line::{self, SubmitLine};
use minicbor::bytes::ByteVec;
use muster_conf::options::{ChosenOptions, OptionCommand, directives};
use muster_model::cron::{CrontabLine, Schedule};
use muster_model::environment::Environment;
use muster_model::ids::BlobId;
use muster_model::spec::{JobKind, JobSpec};
use muster_trust::host::short_name;
use nix::unistd::User;
use std::path::Path;

/// Options of sbatch that make no sense for an entry: its time is the crontab's, its script the command.
const REFUSED: [&str; 14] = [
    "array",
    "begin",
    "clusters",
    "cluster-constraint",
    "deadline",
    "export-file",
    "get-user-env",
    "gid",
    "immediate",
    "parsable",
    "test-only",
    "uid",
    "wait",
    "wrap",
];

/// The jobs of a crontab, with scripts and environments.
#[derive(Debug, Default)]
pub(super) struct CrontabJobs {
    /// One for each entry.
    pub(super) specs: Vec<JobSpec>,
    /// Scripts that they name.
    pub(super) blobs: Vec<(BlobId, ByteVec)>,
}

impl CrontabJobs {
    /// Numbers will do as names: the controller gives blobs theirs by content.
    fn blob(&mut self, bytes: Vec<u8>) -> BlobId {
        if let Some((id, _)) = self.blobs.iter().find(|(_, known)| ***known == *bytes) {
            return *id;
        }
        let mut name = [0; 32];
        name[..8].copy_from_slice(&(self.blobs.len() as u64 + 1).to_be_bytes());
        self.blobs.push((BlobId(name), bytes.into()));
        BlobId(name)
    }
}

/// The name of a user's own group.
pub(super) fn group_name(user: &User) -> String {
    let group = people::group_of_gid(user.gid.as_raw());
    group.map_or_else(|| user.gid.to_string(), |group| group.name)
}

/// The jobs of a text.
///
/// # Errors
/// What is wrong, a line each.
pub(super) fn jobs(text: &str, user: &User) -> Result<CrontabJobs, Vec<String>> {
    let (mut jobs, mut faults) = (CrontabJobs::default(), Vec::new());
    let mut variables: Vec<(&str, String)> = Vec::new();
    let mut options: Vec<&str> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        match CrontabLine::of(line) {
            CrontabLine::Comment => {}
            CrontabLine::Options(words) => options.push(words),
            CrontabLine::Variable(name, value) => variables.push((name, unquoted(value))),
            CrontabLine::Entry(entry) => {
                let options = std::mem::take(&mut options);
                if let Err(why) = add(&mut jobs, user, entry, &options, &variables) {
                    faults.push(format!("line {}: {why}", number + 1));
                }
            }
        }
    }
    match faults.is_empty() {
        true => Ok(jobs),
        false => Err(faults),
    }
}

fn add(
    jobs: &mut CrontabJobs,
    user: &User,
    entry: &str,
    options: &[&str],
    variables: &[(&str, String)],
) -> Result<(), String> {
    let (_, command) = Schedule::parse_entry(entry).map_err(|e| e.to_string())?;
    if command.is_empty() {
        return Err("an entry has no command".to_owned());
    }
    let times = entry.strip_suffix(command).unwrap_or(entry).trim();
    let command = expanded(command, variables);
    let chosen = chosen(options)?;
    let home = user.dir.to_string_lossy().into_owned();
    let mut line = SubmitLine {
        chosen,
        words: Vec::new(),
        say: SAY,
    };
    // It has printed why.
    let built =
        line::build(&mut line, "scrontab").map_err(|_| "options are not valid".to_owned())?;
    let mut spec = built.spec;
    spec.kind = JobKind::Batch;
    spec.owner = Default::default();
    spec.work_dir = match line.chosen.value("chdir") {
        Some(chdir) => Path::new(&home).join(chdir).to_string_lossy().into_owned(),
        None => home,
    };
    if spec.name.is_empty() {
        spec.name = line::base_name(command.split_whitespace().next().unwrap_or_default());
    }
    spec.submit_line = "scrontab".to_owned();
    let script = script(options, times, &command);
    spec.command = command;
    spec.script = Some(jobs.blob(script.into_bytes()));
    spec.context = Some(jobs.blob(context(&line.chosen, user, &spec.work_dir)?));
    jobs.specs.push(spec);
    Ok(())
}

/// The options of an entry.
fn chosen(lines: &[&str]) -> Result<ChosenOptions, String> {
    let invalid = |what: &str| format!("Invalid option found in #SCRON line: {what}");
    let mut chosen = ChosenOptions::new(OptionCommand::Sbatch);
    for text in lines {
        let directive = format!("#SBATCH{text}\n");
        let sections = directives::sections(&directive, "crontab");
        let sections = sections.map_err(|e| e.lines.join("; "))?;
        let [words] = sections.as_slice() else {
            return Err(invalid(text.trim()));
        };
        directives::apply(&mut chosen, words).map_err(|_| invalid(text.trim()))?;
    }
    let refused = chosen
        .iter()
        .find(|given| REFUSED.contains(&given.row.long));
    if let Some(given) = refused {
        return Err(invalid(&format!("--{}", given.row.long)));
    }
    Ok(chosen)
}

fn script(options: &[&str], times: &str, command: &str) -> String {
    let options: String = options
        .iter()
        .map(|line| format!("#SCRON{line}\n"))
        .collect();
    format!(
        "#!/bin/sh\n# This job was submitted through scrontab\n{options}# crontab time request was: '{times}'\n{command}\n"
    )
}

/// As cron(8) makes it, with what `--export` sets: who installs a crontab may do so from anywhere.
fn context(chosen: &ChosenOptions, user: &User, work_dir: &str) -> Result<Vec<u8>, String> {
    let home = user.dir.to_string_lossy();
    let basic = [
        ("HOME", &*home),
        ("USER", &user.name),
        ("LOGNAME", &user.name),
        ("SHELL", "/bin/sh"),
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ];
    let basic: Environment = basic
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let export = chosen.value("export");
    let selection = capture::selection(export);
    let mut environment = match selection.all {
        true => capture::select(basic, &selection, Environment::default()),
        false => capture::select(Environment::default(), &selection, basic),
    };
    if let Some(text) = export {
        environment.set(b"SLURM_EXPORT_ENV", text.as_bytes());
    }
    environment.set(b"SLURM_SUBMIT_DIR", work_dir.as_bytes());
    environment.set(b"SLURM_SUBMIT_HOST", short_name().as_bytes());
    let propagate = chosen.get("propagate").map(|given| given.value.as_deref());
    capture::context(environment, propagate).map(|context| capture::encoded(&context))
}

/// A value as a shell would take it from between quotes.
fn unquoted(value: &str) -> String {
    let inner = ['"', '\''].into_iter().find_map(|quote| {
        let inner = value.strip_prefix(quote)?;
        inner.strip_suffix(quote)
    });
    inner.unwrap_or(value).to_owned()
}

/// The command with `$NAME` replaced where the crontab sets it; all else is the shell's.
fn expanded(command: &str, variables: &[(&str, String)]) -> String {
    let mut out = String::with_capacity(command.len());
    let mut rest = command;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
        let name = &after[..end];
        match variables.iter().rev().find(|(known, _)| *known == name) {
            Some((_, value)) => out.push_str(value),
            None => out.push_str(&rest[at..at + 1 + end]),
        }
        rest = &after[end..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> User {
        line::user("root").unwrap()
    }

    #[test]
    fn an_entry_is_a_job_with_its_own_options() {
        let text = "DIR=\"/opt/x\"\n#SCRON -t 5 -J mine\n#SCRON -n 2\n*/5 * * * * $DIR/run $HOME 'a b'\n@daily echo $DIRS\n";
        let jobs = jobs(text, &root()).unwrap();
        let [first, second] = jobs.specs.as_slice() else {
            panic!("{jobs:?}")
        };
        assert_eq!(
            (first.name.as_str(), second.name.as_str()),
            ("mine", "echo")
        );
        assert_eq!(first.command, "/opt/x/run $HOME 'a b'");
        assert_eq!(second.command, "echo $DIRS");
        assert_eq!(first.work_dir, "/root");
        assert!(first.time_limit.is_some() && second.time_limit.is_none());
        assert_eq!(first.context, second.context);
        let script = jobs
            .blobs
            .iter()
            .find(|(id, _)| Some(*id) == first.script)
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&script.1),
            "#!/bin/sh\n# This job was submitted through scrontab\n#SCRON -t 5 -J mine\n#SCRON -n 2\n\
             # crontab time request was: '*/5 * * * *'\n/opt/x/run $HOME 'a b'\n"
        );
    }

    #[test]
    fn the_callers_environment_is_not_the_jobs() {
        let jobs = jobs("#SCRON --export=A=1\n@daily true\n", &root()).unwrap();
        let context = jobs
            .blobs
            .iter()
            .find(|(id, _)| Some(*id) == jobs.specs[0].context);
        let context: muster_model::spec::ExecContext =
            minicbor::decode(&context.unwrap().1).unwrap();
        assert_eq!(context.environment.value(b"A"), Some(&b"1"[..]));
        assert_eq!(context.environment.value(b"HOME"), Some(&b"/root"[..]));
        assert_eq!(context.environment.value(b"CARGO_MANIFEST_DIR"), None);
    }

    #[test]
    fn faults_are_named_with_their_lines() {
        for (text, fault) in [
            (
                "@daily true\n@nosuch x\n",
                "line 2: invalid @ line: there is no @nosuch",
            ),
            ("@daily\n", "line 1: an entry has no command"),
            (
                "#SCRON --nosuch\n@daily x\n",
                "line 2: Invalid option found in #SCRON line: --nosuch",
            ),
            (
                "#SCRON --array=1-3\n@daily x\n",
                "line 2: Invalid option found in #SCRON line: --array",
            ),
            (
                "#SCRON -b now\n@daily x\n",
                "line 2: Invalid option found in #SCRON line: --begin",
            ),
            (
                "#SCRON script\n@daily x\n",
                "line 2: Invalid option found in #SCRON line: script",
            ),
            (
                "#SCRON hetjob\n@daily x\n",
                "line 2: Invalid option found in #SCRON line: hetjob",
            ),
            ("*/0 * * * * x\n", "line 1: bad step value: 0"),
        ] {
            assert_eq!(jobs(text, &root()).unwrap_err(), [fault]);
        }
    }
}
