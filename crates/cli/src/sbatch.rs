//! sbatch: a script becomes a job. Prints one line, and with `--wait` stays until the job has ended.

mod script;

use crate::connect::{Client, ConnectError, unexpected};
use crate::say::{self, Say};
use crate::submit::filters::Filters;
use crate::submit::line::{self, Line};
use crate::submit::{capture, components, holder, verbose};
use crate::zone;
use muster_conf::options::{Command, Source, directives, environment};
use muster_model::command::{Reply, UserCommand};
use muster_model::ids::{BlobId, JobId};
use muster_model::job::ExitStatus;
use muster_model::spec::{JobKind, JobSpec};
use muster_proto::client::{RequestBody, Response};
use script::Script;
use std::process::ExitCode;

/// The text before a refusal.
const PREFIX: &str = "Batch job submission failed";

/// Runs sbatch.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run(args).unwrap_or_else(|code| code)
}

fn run(args: &[String]) -> Result<ExitCode, ExitCode> {
    let filters = Filters::of_site(Command::Sbatch, args)?;
    let (lines, command) = prepared(args, &filters)?;
    let line = &lines[0];
    let mut client = line::connect(line, PREFIX)?;
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

/// What a command line asks the controller for. Filters of the command line are not run.
///
/// # Errors
/// The exit code, after the error was written.
pub(crate) fn request(args: &[String]) -> Result<UserCommand, ExitCode> {
    let filters = Filters::options_of_site(Command::Sbatch)?;
    prepared(args, &filters).map(|(_, command)| command)
}

fn prepared(args: &[String], filters: &Filters) -> Result<(Vec<Line>, UserCommand), ExitCode> {
    if !filters.is_empty() {
        // As sbatch of Slurm asks, too, for what it needs to know before it reads the script; there is nothing of it here.
        filters.defaults(Command::Sbatch, true)?;
    }
    let mut lines = line::read(Command::Sbatch, args, filters)?;
    let last = lines.last().expect("a command line has a first component");
    // --wrap is the whole job's, whichever component it is said of.
    let wrap = lines.iter().rev().find_map(|l| l.chosen.value("wrap"));
    let script = read_script(last, wrap)?;
    let words = last.words.clone();
    read_directives(&mut lines, &script, filters)?;
    filters.pre_submit(&mut lines)?;
    for line in &mut lines {
        line.say.quiet = line.chosen.has("quiet");
        line.say.verbose = line.chosen.verbose;
    }
    verbose::list_options(&lines);
    let command = submission(&mut lines, script, &words, args)?;
    Ok((lines, command))
}

/// Options in the script, component by component; there are as many components as the command line or the script has.
fn read_directives(
    lines: &mut Vec<Line>,
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
    // Lines for LSF count in a script that has none for sbatch.
    if let [only] = sections.as_mut_slice()
        && only.is_empty()
        && !lines[0].chosen.has("ignore-pbs")
    {
        *only = directives::of_bsub(script.head(), name).map_err(|e| say.option_error(&e))?;
    }
    while lines.len() < sections.len() {
        let mut chosen = filters.defaults(Command::Sbatch, false)?;
        if let Some(before) = lines.last() {
            components::pass_on(&before.chosen, &mut chosen, Source::CommandLine);
        }
        environment::read(&mut chosen, |name| std::env::var(name).ok());
        lines.push(Line {
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

fn submission(
    lines: &mut [Line],
    script: Script,
    words: &[String],
    args: &[String],
) -> Result<UserCommand, ExitCode> {
    let test_only = lines[0].chosen.has("test-only");
    let (first, others) = lines.split_at_mut(1);
    let (spec, blobs) = make_job(&mut first[0], script, words, args)?;
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
fn beside(line: &mut Line, first: &JobSpec) -> Result<JobSpec, ExitCode> {
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

fn read_script(line: &Line, wrap: Option<&str>) -> Result<Script, ExitCode> {
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

type Blobs = Vec<(BlobId, minicbor::bytes::ByteVec)>;

fn make_job(
    line: &mut Line,
    script: Script,
    words: &[String],
    args: &[String],
) -> Result<(JobSpec, Blobs), ExitCode> {
    let mut spec = line::build(line, PREFIX)?.spec;
    let context = capture::batch_context(&line.chosen, &line.say).map_err(|text| {
        line.say.error(&text);
        line.say.failed()
    })?;
    if spec.name.is_empty() {
        spec.name = script.name;
    }
    spec.command = script.path;
    spec.argv = words.iter().skip(1).cloned().collect();
    spec.submit_line = line::submit_line("sbatch", args);
    // Numbers will do: the controller gives blobs their ids by content.
    let (first, second) = (BlobId([1; 32]), BlobId([2; 32]));
    spec.script = Some(first);
    spec.context = Some(second);
    let blobs = [(first, script.bytes), (second, capture::encoded(&context))];
    Ok((spec, blobs.map(|(id, b)| (id, b.into())).into()))
}

fn report(line: &Line, client: Client, reply: Reply) -> Result<ExitCode, ExitCode> {
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
                say::stdout(&format!("Submitted batch job {id}\n"));
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
