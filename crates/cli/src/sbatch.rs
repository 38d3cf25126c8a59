//! sbatch: a script becomes a job. Prints one line, and with `--wait` stays until the job has ended.

pub(crate) mod script;

use crate::connect::{self, Client, ConnectError, unexpected};
use crate::say::{self, Say};
use crate::submit::filters::Filters;
use crate::submit::line::{self, SubmitLine};
use crate::submit::{capture, components, holder, verbose};
use crate::zone;
use muster_conf::options::{OptionCommand, Source, directives, environment as variables};
use muster_model::command::{Reply, UserCommand};
use muster_model::environment::{self, Environment};
use muster_model::ids::{BlobId, JobId};
use muster_model::job::ExitStatus;
use muster_model::spec::{ExecContext, JobKind, JobSpec};
use muster_proto::client::{RequestBody, Response};
use script::Script;
use std::process::ExitCode;

/// The text before a refusal.
const PREFIX: &str = "Batch job submission failed";

/// Additions to a job by another command that submits it by sbatch's options.
#[derive(Debug, Default)]
pub(crate) struct SubmissionOrigin {
    /// The script, in place of what the words of the command line name.
    pub(crate) script: Option<Script>,
    /// The command line, in place of sbatch's.
    pub(crate) submit_line: Option<String>,
    /// Settings of the job beyond options ([`JobSpec::shown`]).
    pub(crate) marks: Vec<(String, String)>,
    /// Variables of the job.
    pub(crate) variables: Vec<(String, String)>,
    /// Names of variables of the caller that are not the job's.
    pub(crate) left_out: &'static [&'static str],
    /// The job's file mode mask, in place of the caller's.
    pub(crate) umask: Option<u32>,
}

/// Runs sbatch.
pub(crate) fn main(args: &[String]) -> ExitCode {
    main_for(args, SubmissionOrigin::default())
}

/// Runs sbatch for another command.
pub(crate) fn main_for(args: &[String], origin: SubmissionOrigin) -> ExitCode {
    run(args, origin).unwrap_or_else(|code| code)
}

fn run(args: &[String], origin: SubmissionOrigin) -> Result<ExitCode, ExitCode> {
    let filters = Filters::of_site(OptionCommand::Sbatch, args)?;
    let (lines, command) = prepared(args, &filters, origin)?;
    let line = &lines[0];
    let mut client = line::connect(line, PREFIX, &command)?;
    let reply = client
        .command(command)
        .map_err(|e| match line.chosen.has("test-only") {
            true => holder::test_failed(&line.say, PREFIX, &e),
            false => line.say.connect_error(PREFIX, &e),
        })?;
    if let Reply::Submitted { id, .. } = &reply {
        filters.post_submit(0, id.0, None);
    }
    report(line, client, reply)
}

/// Request of a command line to the controller. Filters of the command line are not run.
///
/// # Errors
/// The exit code, after the error was written.
pub(crate) fn request(args: &[String]) -> Result<UserCommand, ExitCode> {
    let filters = Filters::options_of_site(OptionCommand::Sbatch)?;
    prepared(args, &filters, SubmissionOrigin::default()).map(|(_, command)| command)
}

fn prepared(
    args: &[String],
    filters: &Filters,
    mut origin: SubmissionOrigin,
) -> Result<(Vec<SubmitLine>, UserCommand), ExitCode> {
    if !filters.is_empty() {
        // sbatch of Slurm asks, too, for data that it needs before it reads the script; there is none of it here.
        filters.defaults(OptionCommand::Sbatch, true)?;
    }
    let mut lines = line::read(OptionCommand::Sbatch, args, filters)?;
    let last = lines.last().expect("a command line has a first component");
    // --wrap is the whole job's, whichever component it is said of.
    let wrap = lines.iter().rev().find_map(|l| l.chosen.value("wrap"));
    let mut script = match origin.script.take() {
        Some(own) => own,
        None => read_script(last, wrap)?,
    };
    let words = last.words.clone();
    read_directives(&mut lines, &script, filters)?;
    let (first, others) = lines.split_at_mut(1);
    let others = others.iter().map(|line| &line.chosen);
    components::pass_back_files(&mut first[0].chosen, others);
    filters.pre_submit(&mut lines)?;
    line::take_hostfile(&mut lines);
    for line in &mut lines {
        line.say.quiet = line.chosen.has("quiet");
        line.say.verbose = line.chosen.verbose;
    }
    if let Some(path) = lines[0].chosen.value("bbf") {
        script.insert(path).map_err(|texts| {
            script::complain(&lines[0].say, &texts);
            lines[0].say.failed()
        })?;
    }
    verbose::list_options(&lines);
    origin
        .submit_line
        .get_or_insert_with(|| line::submit_line("sbatch", args));
    let command = submission(&mut lines, script, &words, &origin)?;
    Ok((lines, command))
}

/// Options in the script, component by component; there are as many components as the command line or the script has.
fn read_directives(
    lines: &mut Vec<SubmitLine>,
    script: &Script,
    filters: &Filters,
) -> Result<(), ExitCode> {
    let name = if script.path.is_empty() {
        &script.name
    } else {
        &script.path
    };
    let say = lines[0].say;
    let mut sections =
        directives::sections(script.head(), name).map_err(|e| say.option_error(&e))?;
    if let [only] = sections.as_mut_slice()
        && !lines[0].chosen.has("ignore-pbs")
        && !only.iter().any(|word| word == "--ignore-pbs")
    {
        let others = of_other_systems(script, name, &say)?;
        only.extend(others);
    }
    while lines.len() < sections.len() {
        let mut chosen = filters.defaults(OptionCommand::Sbatch, false)?;
        if let Some(before) = lines.last() {
            components::pass_on(&before.chosen, &mut chosen, Source::CommandLine);
        }
        variables::read(&mut chosen, |name| std::env::var(name).ok());
        lines.push(SubmitLine {
            chosen,
            words: Vec::new(),
            say,
        });
    }
    for (number, section) in sections.iter().enumerate() {
        let (before, rest) = lines.split_at_mut(number);
        let chosen = &mut rest[0].chosen;
        if let Some(before) = before.last() {
            components::pass_on(&before.chosen, chosen, Source::Directive);
        }
        directives::apply(chosen, section).map_err(|e| say.option_error(&e))?;
    }
    Ok(())
}

/// Options in lines for LSF, or for PBS where there are none of these. They are stronger than those for sbatch, as in
/// Slurm.
fn of_other_systems(script: &Script, name: &str, say: &Say) -> Result<Vec<String>, ExitCode> {
    let of_lsf = directives::of_bsub(script.head(), name).map_err(|e| say.option_error(&e))?;
    if !of_lsf.is_empty() {
        return Ok(of_lsf);
    }
    let of_pbs = directives::of_pbs(script.head(), name).map_err(|e| say.option_error(&e))?;
    for warning in &of_pbs.warnings {
        say.warning(warning);
    }
    Ok(of_pbs.words)
}

fn submission(
    lines: &mut [SubmitLine],
    script: Script,
    words: &[String],
    origin: &SubmissionOrigin,
) -> Result<UserCommand, ExitCode> {
    let test_only = lines[0].chosen.has("test-only");
    let (first, others) = lines.split_at_mut(1);
    let (spec, blobs) = make_job(&mut first[0], script, words, origin)?;
    if others.is_empty() {
        return Ok(UserCommand::Submit {
            spec: Box::new(spec),
            blobs,
            test_only,
        });
    }
    let mut specs = vec![spec];
    for line in others {
        let component = beside(line, &specs[0])?;
        specs.push(component);
    }
    Ok(UserCommand::SubmitHet {
        specs,
        blobs,
        test_only,
    })
}

/// A component beside the one that runs the script: nodes, and nobody to write mails to.
fn beside(line: &mut SubmitLine, first: &JobSpec) -> Result<JobSpec, ExitCode> {
    let spec = line::build(line, PREFIX)?.spec;
    let name = match spec.name.as_str() {
        "" => first.name.clone(),
        own => own.to_owned(),
    };
    Ok(JobSpec {
        name,
        kind: JobKind::Allocation,
        command: first.command.clone(),
        argv: first.argv.clone(),
        submit_line: first.submit_line.clone(),
        mail: None,
        ..spec
    })
}

fn read_script(line: &SubmitLine, wrap: Option<&str>) -> Result<Script, ExitCode> {
    let say = line.say;
    let script = match (wrap, line.words.first()) {
        (Some(_), Some(_)) => {
            say.error("Script arguments not permitted with --wrap option");
            return Err(say.failed());
        }
        (Some(command), None) => Script::wrapped(command),
        (None, Some(path)) => Script::from_file(path),
        (None, None) => Script::from_stdin(),
    };
    script.map_err(|lines| {
        script::complain(&say, &lines);
        say.failed()
    })
}

impl SubmissionOrigin {
    /// Makes the context that of the command's jobs.
    fn change(&self, context: &mut ExecContext) {
        if !self.left_out.is_empty() {
            let is_kept = |variable: &&[u8]| {
                let name = environment::name(variable);
                !self.left_out.iter().any(|own| own.as_bytes() == name)
            };
            let kept: Environment = context.environment.iter().filter(is_kept).collect();
            context.environment = kept;
        }
        for (name, value) in &self.variables {
            context.environment.set(name.as_bytes(), value.as_bytes());
        }
        if let Some(mask) = self.umask {
            context.umask = mask;
        }
    }
}

type Blobs = Vec<(BlobId, minicbor::bytes::ByteVec)>;

fn make_job(
    line: &mut SubmitLine,
    script: Script,
    words: &[String],
    origin: &SubmissionOrigin,
) -> Result<(JobSpec, Blobs), ExitCode> {
    let mut spec = line::build(line, PREFIX)?.spec;
    let mut context = capture::batch_context(&line.chosen, &line.say).map_err(|text| {
        line.say.error(&text);
        line.say.failed()
    })?;
    origin.change(&mut context);
    if spec.name.is_empty() {
        spec.name = script.name;
    }
    spec.command = script.path;
    spec.argv = words.iter().skip(1).cloned().collect();
    spec.submit_line = origin.submit_line.clone().unwrap_or_default();
    spec.shown.extend(origin.marks.iter().cloned());
    // Numbers will do: the controller gives blobs their ids by content.
    let (first, second) = (BlobId([1; 32]), BlobId([2; 32]));
    spec.script = Some(first);
    spec.context = Some(second);
    let blobs = [(first, script.bytes), (second, capture::encoded(&context))];
    Ok((spec, blobs.map(|(id, b)| (id, b.into())).into()))
}

fn report(line: &SubmitLine, client: Client, reply: Reply) -> Result<ExitCode, ExitCode> {
    let say = line.say;
    match reply {
        Reply::Submitted {
            id,
            warnings,
            lines,
            ..
        } => {
            lines.iter().for_each(|line| say.info(line));
            for warning in &warnings {
                say.warning(warning);
            }
            if line.chosen.has("parsable") {
                match line.chosen.has("clusters") {
                    true => say::stdout(&format!("{id};{}\n", client.endpoint.cluster)),
                    false => say::stdout(&format!("{id}\n")),
                }
            } else if !say.quiet {
                let cluster = client.endpoint.cluster.as_str();
                let on = match line.chosen.value("clusters") {
                    Some(names) if connect::chosen().is_some() || names.contains(',') => {
                        format!(" on cluster {cluster}")
                    }
                    _ => String::new(),
                };
                say::stdout(&format!("Submitted batch job {id}{on}\n"));
            }
            if line.chosen.has("wait") {
                return Ok(wait_for_end(&say, client, id));
            }
            Ok(ExitCode::SUCCESS)
        }
        Reply::WouldStart {
            at,
            cpus,
            nodes,
            partition,
            id,
        } => {
            // This is the answer asked for: --quiet does not hide it.
            say::stderr(&format!(
                "sbatch: Job {id} to start at {} using {cpus} processors on nodes {nodes} in partition {partition}\n",
                zone::show(at)
            ));
            Ok(ExitCode::SUCCESS)
        }
        other => {
            let error = unexpected(&Response::Reply(Box::new(other)));
            Err(say.connect_error(PREFIX, &error))
        }
    }
}

/// `--wait`: the job's exit code, 1 if a signal ended it. A controller that restarts meanwhile is asked again.
fn wait_for_end(say: &Say, mut client: Client, id: JobId) -> ExitCode {
    loop {
        match client.call(RequestBody::WaitEnded(id)) {
            Ok(Response::JobEnded { exit, .. }) => return exit_code(exit),
            Ok(other) => return say.connect_error("--wait", &unexpected(&other)),
            Err(ConnectError::Broken(_)) => match Client::connect_patiently(line::PATIENCE * 30) {
                Ok(again) => client = again,
                Err(error) => return say.connect_error("--wait", &error),
            },
            Err(error) => return say.connect_error("--wait", &error),
        }
    }
}

fn exit_code(exit: ExitStatus) -> ExitCode {
    if exit.signal != 0 {
        return ExitCode::FAILURE;
    }
    ExitCode::from(u8::try_from(exit.code & 0xff).unwrap_or(1))
}
