//! From chosen options to a [`JobSpec`]. The caller adds what only it can know: script, environment, directories.

mod ask;
mod bind;
mod devices;
mod no_effect;

use super::chosen::{ChosenOptions, OptionValue, Source};
use super::environment;
use super::row::{Group, OptionCommand};
use super::values::time::CivilZone;
use super::values::{self, number};
use super::{OptionError, values::time};
use crate::value::{self, DurationLimit};
use muster_model::job_class::JobClass;
use muster_model::mail::{MAIL_LINES_MAX, MailOptions};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{JobKind, JobSpec, StdioSpec};
use muster_model::time::{TimeLimit, Timestamp};

pub use ask::{memory, resource_ask};
pub use bind::{cpu_bind, gpu_bind, mem_bind};

/// Why options make no job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// An option is malformed.
    Option(OptionError),
    /// The controller would refuse it; said in the words that it would use.
    Refused(Refusal),
}

impl From<OptionError> for BuildError {
    fn from(error: OptionError) -> BuildError {
        BuildError::Option(error)
    }
}

impl From<Refusal> for BuildError {
    fn from(refusal: Refusal) -> BuildError {
        BuildError::Refused(refusal)
    }
}

/// Outside values for the pure part.
pub struct SubmitEnvironment<'a> {
    /// Now. Hardly anything needs it, and what leads there would be some per cent of what sbatch does.
    pub now: fn() -> Timestamp,
    /// The user's time zone.
    pub zone: &'a dyn CivilZone,
}

/// A job as far as options say, and what to tell the user.
#[derive(Debug)]
pub struct BuiltJob {
    /// The job.
    pub spec: JobSpec,
    /// Lines for standard error.
    pub warnings: Vec<String>,
}

/// Makes the job that the options ask for.
///
/// # Errors
/// The first option that is malformed or refused.
pub fn build(
    chosen: &ChosenOptions,
    ambient: &SubmitEnvironment<'_>,
) -> Result<BuiltJob, BuildError> {
    let mut warnings = chosen.check_status()?;
    let ask = resource_ask(chosen, &mut warnings)?;
    mem_bind(chosen)?;
    gpu_bind(chosen)?;
    no_effect::check(chosen)?;
    let text = |long| chosen.value(long).map(str::to_owned);
    let mut spec = JobSpec {
        name: text("job-name").unwrap_or_default(),
        account: text("account"),
        qos: text("qos"),
        partitions: partitions(chosen),
        kind: match chosen.command {
            OptionCommand::Sbatch => JobKind::Batch,
            OptionCommand::Srun | OptionCommand::Salloc => JobKind::Allocation,
        },
        ask,
        time_limit: time_limit(chosen, "time")?,
        time_min: time_limit(chosen, "time-min")?,
        begin: point(chosen, "begin", ambient)?,
        deadline: point(chosen, "deadline", ambient)?,
        hold: chosen.has("hold"),
        priority: priority(chosen)?,
        nice: nice(chosen)?,
        comment: text("comment"),
        wckey: text("wckey"),
        class: class(chosen),
        licenses: text("licenses").filter(|l| !l.is_empty()),
        reservation: text("reservation").filter(|name| !name.is_empty()),
        mail: mail(chosen)?,
        no_kill: no_kill(chosen)?,
        shown: shown(chosen),
        interactive: chosen.command != OptionCommand::Sbatch,
        ..JobSpec::default()
    };
    if spec
        .begin
        .zip(spec.deadline)
        .is_some_and(|(begin, end)| begin > end)
    {
        let why = "Incompatible begin and deadline time specification";
        return Err(OptionError::fatal(why).into());
    }
    if let Some(text) = chosen.value("dependency") {
        spec.dependency = values::dependency(text)?;
    }
    if let Some(text) = chosen.value("signal") {
        // Other jobs have no batch script that could get it.
        let is_batch = chosen.command == OptionCommand::Sbatch;
        let forms = match is_batch {
            true => "a signal such as USR1@60 or B:TERM@120",
            false => "a signal such as USR1@60",
        };
        let read = values::warn_signal(text).filter(|signal| is_batch || !signal.batch_only);
        spec.warn_signal = Some(read.ok_or_else(|| OptionError::bad_value("signal", text, forms))?);
    }
    match chosen.command {
        OptionCommand::Sbatch => batch_only(chosen, &mut spec)?,
        OptionCommand::Srun | OptionCommand::Salloc => spec.immediate_s = immediate(chosen)?,
    }
    if chosen.command != OptionCommand::Srun && chosen.value("wait-all-nodes").is_some() {
        let text = chosen.value("wait-all-nodes").unwrap_or_default();
        spec.wait_all_nodes = match number("wait-all-nodes", text, 0)? {
            0 => false,
            1 => true,
            _ => return Err(OptionError::invalid("Invalid --wait-all-nodes specification").into()),
        };
    }
    Ok(BuiltJob { spec, warnings })
}

/// `--class`, with what the user said of what each job has.
fn class(chosen: &ChosenOptions) -> Option<Box<JobClass>> {
    let named = [("job-name", "N"), ("chdir", "cwd")];
    let given = named.iter().filter(|(long, _)| chosen.has(long));
    Some(Box::new(JobClass {
        name: chosen
            .value("class")
            .filter(|name| !name.is_empty())?
            .to_owned(),
        given: given
            .map(|(_, attribute)| (*attribute).to_owned())
            .collect(),
        ..JobClass::default()
    }))
}

fn batch_only(chosen: &ChosenOptions, spec: &mut JobSpec) -> Result<(), BuildError> {
    // An empty list is none, as in Slurm: scripts fill it from a variable.
    if let Some(text) = chosen.value("array").filter(|text| !text.is_empty()) {
        let array = values::array(text);
        spec.array = Some(array.ok_or_else(|| {
            Refusal::new(
                RefusalCode::InvalidArray,
                format!("--array={text}: expected indexes such as 0-15, 1,3,7 or 0-15:4%2"),
            )
        })?);
    }
    let expedite = |word: &str| word.eq_ignore_ascii_case("expedite");
    // The variable is a flag's in older versions.
    let is_off = |given: &OptionValue| {
        let word = given.value.as_deref().unwrap_or_default();
        given.source == Source::Environment && !expedite(word) && !environment::is_on(word)
    };
    let requeue = chosen.strongest(&["requeue", "no-requeue"]);
    let requeue = requeue.filter(|given| !is_off(given));
    spec.requeue = requeue.map(|given| given.row.long == "requeue");
    spec.expedite = match requeue.and_then(|given| Some((given.value.as_deref()?, given.source))) {
        None => false,
        Some((word, _)) if expedite(word) => true,
        Some((_, Source::Environment)) => false,
        Some((word, _)) => {
            return Err(
                OptionError::invalid(format!("Invalid --requeue specification: {word}")).into(),
            );
        }
    };
    spec.kill_on_invalid_dep = match chosen.value("kill-on-invalid-dep") {
        None => None,
        Some(text) if text.eq_ignore_ascii_case("yes") => Some(true),
        Some(text) if text.eq_ignore_ascii_case("no") => Some(false),
        Some(_) => {
            return Err(OptionError::invalid("Invalid --kill-on-invalid-dep specification").into());
        }
    };
    spec.export = chosen.value("export").map(str::to_owned);
    spec.stdio = stdio(chosen)?;
    Ok(())
}

/// `--input`, `--output`, `--error`, `--open-mode`.
///
/// # Errors
/// An open mode that is neither.
pub fn stdio(chosen: &ChosenOptions) -> Result<StdioSpec, OptionError> {
    let text = |long| chosen.value(long).map(str::to_owned);
    Ok(StdioSpec {
        stdin: text("input"),
        stdout: text("output"),
        stderr: text("error"),
        append: match chosen.value("open-mode").map(|m| (m, m.chars().next())) {
            None => None,
            Some((_, Some('a' | 'A'))) => Some(true),
            Some((_, Some('t' | 'T'))) => Some(false),
            Some((text, _)) => {
                let forms = "append or truncate";
                return Err(OptionError::bad_value("open-mode", text, forms));
            }
        },
    })
}

fn partitions(chosen: &ChosenOptions) -> Vec<String> {
    chosen
        .value("partition")
        .unwrap_or("")
        .split(',')
        .filter(|p| !p.is_empty())
        .map(str::to_owned)
        .collect()
}

/// `--time`, `--time-min`.
///
/// # Errors
/// Not a time limit.
pub fn time_limit(
    chosen: &ChosenOptions,
    long: &'static str,
) -> Result<Option<TimeLimit>, OptionError> {
    let Some(text) = chosen.value(long) else {
        return Ok(None);
    };
    match read_limit(text) {
        // Zero means nothing for the least time, and no limit for the limit.
        Ok(TimeLimit::Minutes(0)) if long == "time-min" => Ok(None),
        Ok(TimeLimit::Minutes(0)) => Ok(Some(TimeLimit::Unlimited)),
        Ok(limit) => Ok(Some(limit)),
        Err(_) => Err(OptionError::bad_value(
            long,
            text,
            "a time limit such as 30 (minutes), 2:00:00, 1-12:00 or UNLIMITED",
        )),
    }
}

/// A time limit in the core's terms, rounded up to minutes.
///
/// # Errors
/// Not a time limit.
pub fn read_limit(text: &str) -> Result<TimeLimit, value::ValueError> {
    Ok(match value::parse_time_limit(text)? {
        DurationLimit::Unlimited => TimeLimit::Unlimited,
        limit @ DurationLimit::Seconds(_) => {
            let minutes = limit.minutes().unwrap_or(0);
            TimeLimit::Minutes(u32::try_from(minutes).unwrap_or(u32::MAX - 16))
        }
    })
}

fn point(
    chosen: &ChosenOptions,
    long: &'static str,
    ambient: &SubmitEnvironment<'_>,
) -> Result<Option<Timestamp>, OptionError> {
    let Some(text) = chosen.value(long) else {
        return Ok(None);
    };
    match time::parse(text, (ambient.now)(), ambient.zone) {
        Some(at) => Ok(Some(at)),
        None => Err(OptionError::bad_value(
            long,
            text,
            "a time such as 16:00, tomorrow, now+1hour or 2030-01-20T12:34:00",
        )),
    }
}

fn priority(chosen: &ChosenOptions) -> Result<Option<u32>, OptionError> {
    match chosen.value("priority") {
        None => Ok(None),
        Some(text) if text.eq_ignore_ascii_case("TOP") => Ok(Some(u32::MAX - 1)),
        Some(text) => text
            .parse::<u32>()
            .ok()
            .filter(|p| *p < u32::MAX - 1)
            .map(Some)
            .ok_or_else(|| OptionError::invalid("Invalid --priority specification")),
    }
}

fn nice(chosen: &ChosenOptions) -> Result<i32, OptionError> {
    const LIMIT: i64 = 2_147_483_645;
    match chosen.get("nice").map(|g| g.value.as_deref()) {
        None => Ok(0),
        Some(None) => Ok(100),
        Some(Some(text)) => match text.parse::<i64>() {
            Ok(n) if n.abs() <= LIMIT => Ok(i32::try_from(n).unwrap_or(0)),
            Ok(_) => Err(OptionError::invalid(format!(
                "Invalid --nice value, out of range (+/- {LIMIT})"
            ))),
            Err(_) => Err(OptionError::bad_value(
                "nice",
                text,
                "a whole number such as 100 or -10",
            )),
        },
    }
}

fn mail(chosen: &ChosenOptions) -> Result<Option<MailOptions>, OptionError> {
    let (kind, user) = (chosen.value("mail-type"), chosen.value("mail-user"));
    if let Some(kind) = kind
        && !values::mail_type_is_known(kind)
    {
        let forms = "a list of events such as END,FAIL";
        return Err(OptionError::bad_value("mail-type", kind, forms));
    }
    let lines = mail_lines(chosen)?;
    if lines.is_some() && kind.is_none() {
        return Err(OptionError::invalid("--mail-lines needs --mail-type")
            .with_hint("such as --mail-type=FAIL"));
    }
    Ok((kind.is_some() || user.is_some()).then(|| MailOptions {
        types: kind.unwrap_or_default().to_owned(),
        user: user.unwrap_or_default().to_owned(),
        lines,
    }))
}

/// `--mail-lines`; 0 takes back what a script or the environment asks for.
fn mail_lines(chosen: &ChosenOptions) -> Result<Option<u16>, OptionError> {
    let Some(text) = chosen.value("mail-lines") else {
        return Ok(None);
    };
    let lines = text.parse().ok().filter(|n| *n <= MAIL_LINES_MAX);
    let lines: u16 = lines.ok_or_else(|| {
        let forms = format!("a number of lines up to {MAIL_LINES_MAX}");
        OptionError::bad_value("mail-lines", text, &forms)
    })?;
    Ok(Some(lines).filter(|n| *n > 0))
}

fn no_kill(chosen: &ChosenOptions) -> Result<bool, OptionError> {
    match chosen.get("no-kill").map(|g| g.value.as_deref()) {
        None => Ok(false),
        Some(None) => Ok(true),
        Some(Some("off" | "no")) => Ok(false),
        Some(Some("set" | "yes" | "1")) => Ok(true),
        Some(Some(_)) => Err(OptionError::invalid("Invalid --no-kill specification")
            .with_hint("--no-kill takes nothing or 'off'")),
    }
}

fn immediate(chosen: &ChosenOptions) -> Result<Option<u32>, OptionError> {
    match chosen.get("immediate").map(|g| g.value.as_deref()) {
        None => Ok(None),
        Some(None) => Ok(Some(1)),
        Some(Some(text)) => values::count(text)
            .map(Some)
            .ok_or_else(|| OptionError::invalid("Invalid --immediate specification")),
    }
}

/// Options of the site's own, by their variables.
fn of_site(chosen: &ChosenOptions) -> impl Iterator<Item = (String, String)> {
    let given = chosen.iter().filter(|given| given.row.group == Group::Site);
    given.filter_map(|given| {
        let variable = given.row.env_of(chosen.command).first()?;
        let value = given.value.clone().unwrap_or_default();
        Some(((*variable).to_owned(), value))
    })
}

/// Options that listings show and nothing else uses, and those of the site's own.
fn shown(chosen: &ChosenOptions) -> Vec<(String, String)> {
    [
        "extra",
        "mcs-label",
        "network",
        "prefer",
        "cpu-freq",
        "gpu-freq",
        "gpu-bind",
        "mem-bind",
        "tres-bind",
        "power",
        "profile",
        "acctg-freq",
        "gres-flags",
    ]
    .iter()
    .filter_map(|long| {
        chosen
            .value(long)
            .map(|v| ((*long).to_owned(), v.to_owned()))
    })
    .chain(of_site(chosen))
    .collect()
}

#[cfg(test)]
mod tests;
