//! sbatch: a script becomes a job. Prints one line, and with `--wait` stays until the job has ended.

use super::capture;
use super::line::{self, Line};
use super::say::{self, Say};
use super::script::{self, Script};
use super::zone;
use crate::connect::{Client, ConnectError, unexpected};
use muster_conf::options::{Command, directives};
use muster_core::command::{Reply, UserCommand};
use muster_core::ids::{BlobId, JobId};
use muster_core::job::ExitStatus;
use muster_core::spec::JobSpec;
use muster_proto::client::{RequestBody, Response};
use std::process::ExitCode;

/// What stands before a refusal.
const PREFIX: &str = "Batch job submission failed";

/// Runs sbatch.
pub(super) fn main(args: &[String]) -> ExitCode {
    run(args).unwrap_or_else(|code| code)
}

fn run(args: &[String]) -> Result<ExitCode, ExitCode> {
    let mut line = line::read(Command::Sbatch, args)?;
    let script = read_script(&line)?;
    let name = if script.path.is_empty() {
        &script.name
    } else {
        &script.path
    };
    directives::read(&mut line.chosen, script.head(), name)
        .map_err(|e| line.say.option_error(&e))?;
    line.say.quiet = line.chosen.has("quiet");
    let (spec, blobs) = make_job(&mut line, script, args)?;
    let mut client = line::connect(&line, PREFIX)?;
    let reply = client
        .command(UserCommand::Submit {
            spec: Box::new(spec),
            blobs,
            test_only: line.chosen.has("test-only"),
        })
        .map_err(|e| line.say.connect_error(PREFIX, &e))?;
    report(&line, client, reply)
}

fn read_script(line: &Line) -> Result<Script, ExitCode> {
    let say = line.say;
    let script = match (line.chosen.value("wrap"), line.words.first()) {
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
    spec.argv = line.words.iter().skip(1).cloned().collect();
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
        Reply::Submitted { id, warnings } => {
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
