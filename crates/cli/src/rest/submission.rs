//! Submissions. The options come from the keys of the body, and become a job as those of sbatch do; script, environment and
//! directory are in the body, too, and nothing of this process goes into the job.

use super::call::{Call, CallFailure, Outcome};
use super::errno;
use super::http::HttpStatus;
use super::job_keys::{self, KeyError, member, text_of};
use crate::connect::unexpected;
use crate::zone::{self, LocalZone};
use muster_conf::options::job::{self, BuildError, SubmitEnvironment};
use muster_model::command::{Reply, UserCommand};
use muster_model::environment::Environment;
use muster_model::ids::{BlobId, JobId};
use muster_model::limits::{CONTEXT_BYTES_MAX, SCRIPT_BYTES_MAX};
use muster_model::spec::{ExecContext, JobKind, JobSpec, Owner, SoftLimit};
use muster_proto::client::Response;
use muster_trust::host::short_name;
use nix::sys::resource::Resource;
use serde_json::{Map, Value};

/// The keys of a job.
pub(super) type Body = Map<String, Value>;

/// `POST job/submit`.
pub(super) fn submit(call: &mut Call<'_>) -> Outcome {
    let body = std::mem::take(&mut call.body);
    let body = object(&body, "the body")?;
    let whole = jobs_of(body)?;
    let first = whole[0];
    let script = match text_of(body, "script").map_err(malformed)? {
        Some(script) => Some(script),
        None => text_of(first, "script").map_err(malformed)?,
    };
    let no_script = || {
        let (status, number) = (HttpStatus::INTERNAL_ERROR, errno::NO_SCRIPT);
        CallFailure::numbered(status, number, "script", "the body has no script")
    };
    let script = script.ok_or_else(no_script)?;
    check_script(&script)?;
    let context = context(first)?;
    let test_only = member(first, "test_only").and_then(Value::as_bool) == Some(true);
    let mut spec = spec(call, first, work_dir(first)?)?;
    spec.argv = arguments(first)?;
    if spec.name.is_empty() {
        "openapi".clone_into(&mut spec.name);
    }
    // Numbers will do: the controller gives blobs their ids by content.
    let (script_id, context_id) = (BlobId([1; 32]), BlobId([2; 32]));
    (spec.script, spec.context) = (Some(script_id), Some(context_id));
    let blobs = vec![
        (script_id, script.into_bytes().into()),
        (context_id, context.encoded().into()),
    ];
    let command = match whole.len() {
        1 => UserCommand::Submit {
            spec: Box::new(spec),
            blobs,
            test_only,
        },
        _ => {
            let mut specs = vec![spec];
            for component in &whole[1..] {
                let beside = beside(
                    self::spec(call, component, work_dir(component)?)?,
                    &specs[0],
                );
                specs.push(beside);
            }
            UserCommand::SubmitHet {
                specs,
                blobs,
                test_only,
            }
        }
    };
    send(call, command)
}

fn malformed(error: KeyError) -> CallFailure {
    CallFailure::malformed(&error.key, format!("{}: {}", error.key, error.why))
}

/// A member that must be an object.
pub(super) fn object<'a>(value: &'a Value, what: &str) -> Result<&'a Body, CallFailure> {
    value.as_object().ok_or_else(|| match value {
        // As Slurm says it of an empty body.
        Value::Null => CallFailure::numbered(
            HttpStatus::INTERNAL_ERROR,
            errno::NO_SCRIPT,
            "script",
            "there is no body",
        ),
        _ => CallFailure::malformed("body", format!("{what} is not an object")),
    })
}

/// The job, or the components of a heterogeneous one.
fn jobs_of(body: &Body) -> Result<Vec<&Body>, CallFailure> {
    if let Some(job) = member(body, "job").filter(|job| !job.is_null()) {
        return Ok(vec![object(job, "job")?]);
    }
    match member(body, "jobs") {
        Some(Value::Array(jobs)) if !jobs.is_empty() => jobs
            .iter()
            .map(|job| object(job, "a job of jobs"))
            .collect(),
        _ => Err(CallFailure::malformed(
            "job",
            "the body has neither job nor jobs, which say what the job is to be",
        )),
    }
}

fn check_script(script: &str) -> Result<(), CallFailure> {
    let wrong = |why: &str| Err(CallFailure::malformed("script", why));
    match script.as_bytes() {
        bytes if bytes.len() > SCRIPT_BYTES_MAX => Err(CallFailure::numbered(
            HttpStatus::INTERNAL_ERROR,
            2012,
            "script",
            format!("it is larger than {} MiB", SCRIPT_BYTES_MAX >> 20),
        )),
        bytes if !bytes.starts_with(b"#!") => {
            wrong("its first line must be #! and the path of an interpreter")
        }
        bytes if bytes.contains(&0) => wrong("it has a zero byte"),
        bytes if bytes.windows(2).any(|pair| pair == b"\r\n") => {
            wrong("its lines end as those of DOS do (\\r\\n)")
        }
        _ => Ok(()),
    }
}

/// The job that the keys ask for.
pub(super) fn spec(
    call: &mut Call<'_>,
    body: &Body,
    work_dir: String,
) -> Result<JobSpec, CallFailure> {
    let (chosen, unknown) = job_keys::options(body).map_err(malformed)?;
    for key in unknown {
        if call.dialect.is_old() {
            let why = format!("Unknown key \"{key}\"");
            return Err(CallFailure::malformed(&key, why));
        }
        let what = format!("{key} is not a key of a job, and has no effect");
        call.warn(&key, what);
    }
    let zone = LocalZone::default();
    let ambient = SubmitEnvironment {
        now: zone::now,
        zone: &zone,
    };
    let built = job::build(&chosen, &ambient).map_err(|error| match error {
        BuildError::Option(error) => CallFailure::malformed("job", error.lines.join("; ")),
        BuildError::Refused(refusal) => call.refusal(&refusal),
    })?;
    for warning in built.warnings {
        call.warn("job", warning);
    }
    let mut spec = built.spec;
    spec.owner = Owner {
        uid: call.caller.uid,
        ..Owner::default()
    };
    spec.work_dir = work_dir;
    spec.submit_host = short_name();
    Ok(spec)
}

const WORK_DIR_KEYS: [&str; 3] = ["current_working_directory", "cwd", "chdir"];

/// Where the job is to run, if the body says so.
pub(super) fn given_work_dir(body: &Body) -> Result<Option<String>, CallFailure> {
    for name in WORK_DIR_KEYS {
        match text_of(body, name).map_err(malformed)? {
            Some(path) if path.starts_with('/') && !path.contains('\0') => return Ok(Some(path)),
            Some(path) => {
                let why = format!("'{path}' is not an absolute path");
                return Err(CallFailure::malformed(name, why));
            }
            None => {}
        }
    }
    Ok(None)
}

fn work_dir(body: &Body) -> Result<String, CallFailure> {
    let missing = || {
        let why = "the job has no current_working_directory, where it is to run";
        let status = HttpStatus::INTERNAL_ERROR;
        CallFailure::numbered(status, errno::NO_WORK_DIR, WORK_DIR_KEYS[0], why)
    };
    given_work_dir(body)?.ok_or_else(missing)
}

fn arguments(body: &Body) -> Result<Vec<String>, CallFailure> {
    let expected = || CallFailure::malformed("argv", "argv is not a list of strings");
    match member(body, "argv") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(expected))
            .collect(),
        Some(_) => Err(expected()),
    }
}

/// Environment of the job's processes: only that of the body.
fn context(body: &Body) -> Result<ExecContext, CallFailure> {
    let mut environment = variables(body)?;
    let here = work_dir(body)?;
    environment.set(b"SLURM_SUBMIT_DIR", here.as_bytes());
    environment.set(b"SLURM_SUBMIT_HOST", short_name().as_bytes());
    let size = environment.size_bytes();
    if size > CONTEXT_BYTES_MAX {
        let why = format!("environment has {size} bytes, at most {CONTEXT_BYTES_MAX} are taken");
        return Err(CallFailure::malformed("environment", why));
    }
    let umask = match text_of(body, "umask").map_err(malformed)? {
        None => 0o022,
        Some(text) => u32::from_str_radix(&text, 8)
            .ok()
            .filter(|mask| *mask <= 0o777)
            .ok_or_else(|| {
                CallFailure::malformed("umask", "expected a mask in octal, such as 022")
            })?,
    };
    Ok(ExecContext {
        environment,
        umask,
        soft_limits: soft_limits(body)?,
    })
}

/// The variables: an object as up to v0.0.38, or a list of `NAME=value`.
fn variables(body: &Body) -> Result<Environment, CallFailure> {
    let name = "environment";
    // The last word of several on one variable counts.
    let mut all = Map::new();
    match member(body, name) {
        Some(Value::Object(members)) => all.clone_from(members),
        Some(Value::Array(items)) => {
            for item in items {
                let pair = item.as_str().and_then(|text| text.split_once('='));
                let Some((variable, value)) = pair else {
                    let why = format!("{item} is not of the form NAME=value");
                    return Err(CallFailure::malformed(name, why));
                };
                all.insert(variable.to_owned(), value.into());
            }
        }
        None | Some(Value::Null) => {}
        Some(_) => {
            return Err(CallFailure::malformed(
                name,
                "environment must be a dictionary",
            ));
        }
    }
    if all.is_empty() {
        let why = "the job has no environment; one variable at least must be there, such as PATH";
        let status = HttpStatus::INTERNAL_ERROR;
        return Err(CallFailure::numbered(
            status,
            errno::NO_ENVIRONMENT,
            name,
            why,
        ));
    }
    let mut variables = Environment::default();
    for (variable, value) in &all {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => {
                let why = format!("the value of {variable} is not a string");
                return Err(CallFailure::malformed(name, why));
            }
        };
        let is_name = !variable.is_empty() && !variable.contains(['=', '\0']);
        if !is_name || text.contains('\0') {
            let why = format!("'{variable}' cannot be a variable");
            return Err(CallFailure::malformed(name, why));
        }
        variables.push(&[variable.as_bytes(), b"=", text.as_bytes()]);
    }
    Ok(variables)
}

/// Limits by the key that `rlimits` has for them.
const LIMITS: &[(&str, Resource)] = &[
    ("cpu", Resource::RLIMIT_CPU),
    ("fsize", Resource::RLIMIT_FSIZE),
    ("data", Resource::RLIMIT_DATA),
    ("stack", Resource::RLIMIT_STACK),
    ("core", Resource::RLIMIT_CORE),
    ("rss", Resource::RLIMIT_RSS),
    ("nproc", Resource::RLIMIT_NPROC),
    ("nofile", Resource::RLIMIT_NOFILE),
    ("memlock", Resource::RLIMIT_MEMLOCK),
    ("as", Resource::RLIMIT_AS),
];

fn soft_limits(body: &Body) -> Result<Vec<SoftLimit>, CallFailure> {
    let limits = match member(body, "rlimits") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(limits)) => limits,
        Some(_) => return Err(CallFailure::malformed("rlimits", "expected an object")),
    };
    let mut found = Vec::new();
    for (name, value) in limits {
        let bad = |why: &str| CallFailure::malformed("rlimits", format!("{name}: {why}"));
        let (_, resource) = LIMITS
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| bad("there is no such limit"))?;
        let given = super::value::read(value).map_err(bad)?;
        let number = match given {
            super::value::GivenValue::Nothing => continue,
            super::value::GivenValue::Infinite => u64::MAX,
            other => {
                let text = other.text().unwrap_or_default();
                text.parse().map_err(|_| bad("expected a number"))?
            }
        };
        found.push(SoftLimit::new(*resource as u32, number));
    }
    Ok(found)
}

/// A component beside the one that runs the script: nodes, and nobody to write mails to.
fn beside(component: JobSpec, first: &JobSpec) -> JobSpec {
    JobSpec {
        name: match component.name.as_str() {
            "" => first.name.clone(),
            own => own.to_owned(),
        },
        kind: JobKind::Allocation,
        argv: first.argv.clone(),
        mail: None,
        ..component
    }
}

fn send(call: &mut Call<'_>, command: UserCommand) -> Outcome {
    let reply = call.ask(|client| client.command(command))?;
    match reply {
        Reply::Submitted {
            id,
            warnings,
            lines,
            ..
        } => {
            for warning in lines.into_iter().chain(warnings) {
                call.warn("job", warning);
            }
            Ok(submitted(call, id))
        }
        Reply::WouldStart {
            at,
            nodes,
            partition,
            id,
            ..
        } => {
            let when = zone::show(at);
            call.warn(
                "test_only",
                format!("the job would start at {when} on {nodes} in partition {partition}; it was not submitted"),
            );
            Ok(submitted(call, id))
        }
        other => {
            let error = unexpected(&Response::Reply(Box::new(other)));
            Err(call.failure(&error))
        }
    }
}

fn submitted(call: &mut Call<'_>, id: JobId) -> String {
    call.document(&call.context(), |w| {
        if !w.is_old() && w.version() < 42 {
            w.map("result", |w| {
                w.raw("job_id", id.0);
                w.text("step_id", "batch");
                w.raw("error_code", 0);
                w.text("error", "No error");
                w.text("job_submit_user_msg", "");
            });
        }
        w.raw("job_id", id.0);
        w.text("step_id", if w.is_old() { "BATCH" } else { "batch" });
        w.text("job_submit_user_msg", "");
    })
}
