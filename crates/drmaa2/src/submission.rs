//! Request of a job template to the controller: the options of sbatch for its attributes, and fields without an option.

use crate::abi;
use crate::error::{DrmaaCode, DrmaaError};
use crate::job_ref::TaskIndices;
use crate::values::AttributeMap;
use muster_cli::library;
use muster_model::command::UserCommand;
use muster_model::spec::{ExecContext, SoftLimit};
use muster_model::time::Timestamp;

/// The implementation-specific attribute with further options of sbatch.
pub const OPTIONS: &str = "muster_jt_options";

/// Priorities that stand for none: the binding's UNSET value is read as such already; this is Univa's.
const UNSET_PRIORITY: i64 = -99_999;
/// Bytes in a kibibyte, which limits of memory and files are counted in.
const KIB: u64 = 1024;

/// A job array that is to be submitted.
#[derive(Clone, Copy, Debug)]
pub struct ArrayAsk {
    /// Its indices.
    pub tasks: TaskIndices,
    /// Number of its jobs that run at once.
    pub max_parallel: Option<u32>,
}

/// Whether which machines there are matters to a template.
pub fn needs_machines(template: &AttributeMap) -> bool {
    !template.texts("candidateMachines").is_empty() || template.number("machineArch").is_some()
}

/// The request for a job or a job array. `excluded` are machines that the job may not run on.
///
/// # Errors
/// The attributes make no job, or have a value that is not supported.
pub fn request(
    template: &AttributeMap,
    array: Option<ArrayAsk>,
    excluded: &[String],
) -> Result<UserCommand, DrmaaError> {
    let command = template.text("remoteCommand");
    let command = command.ok_or_else(|| DrmaaError::argument("remoteCommand is not set"))?;
    let mut line = options(template, array)?;
    if let Some(queue) = template.text("queueName") {
        let names = library::queue_names();
        let names = names.map_err(|text| DrmaaError::new(DrmaaCode::DeniedByDrms, text))?;
        let partition = names.partition(queue);
        line.extend(partition.map(|partition| format!("--partition={partition}")));
    }
    if !excluded.is_empty() {
        line.push(format!("--exclude={}", excluded.join(",")));
    }
    let others = library::words(template.extra(OPTIONS).unwrap_or_default());
    line.extend(others.map_err(|why| DrmaaError::argument(format!("{OPTIONS}: {why}")))?);
    let arguments = template.texts("args");
    line.push(format!("--wrap=exec {}", quoted(command, arguments)));
    let made = library::sbatch_submission(&line);
    let mut made = made.map_err(|text| DrmaaError::new(DrmaaCode::DeniedByDrms, text))?;
    complete(&mut made, template)?;
    Ok(made)
}

fn quoted(command: &str, arguments: &[String]) -> String {
    let words = std::iter::once(command).chain(arguments.iter().map(String::as_str));
    let words = words.map(|word| format!("'{}'", word.replace('\'', "'\\''")));
    words.collect::<Vec<_>>().join(" ")
}

fn unsupported(name: &str, why: &str) -> DrmaaError {
    DrmaaError::new(
        DrmaaCode::UnsupportedAttribute,
        format!("{name} is not supported: {why}"),
    )
}

/// The options of sbatch.
fn options(template: &AttributeMap, array: Option<ArrayAsk>) -> Result<Vec<String>, DrmaaError> {
    for name in ["stageInFiles", "stageOutFiles"] {
        if !template.pairs(name).is_empty() {
            return Err(unsupported(
                name,
                "machines of the cluster share their files",
            ));
        }
    }
    if template
        .number("machineOS")
        .is_some_and(|os| os != OS_LINUX)
    {
        return Err(unsupported("machineOS", "all machines run Linux"));
    }
    let place = |text: &str| placed(template, text, array.is_some());
    let mut line = Vec::new();
    let mut add = |option: &str, value: String| line.push(format!("--{option}={value}"));
    for (name, option) in [
        ("jobName", "job-name"),
        ("jobCategory", "class"),
        ("reservationId", "reservation"),
        ("accountingId", "account"),
    ] {
        if let Some(value) = template.text(name) {
            add(option, value.to_owned());
        }
    }
    for (name, option) in [
        ("workingDirectory", "chdir"),
        ("inputPath", "input"),
        ("outputPath", "output"),
        ("errorPath", "error"),
    ] {
        let joined = name == "errorPath" && template.is_true("joinFiles");
        if let Some(path) = template.text(name).filter(|_| !joined) {
            add(option, place(path));
        }
    }
    if let Some(slots) = slots(template)? {
        add("ntasks", slots.to_string());
    }
    if let Some(kib) = template.number("minPhysMemory") {
        let kib = u64::try_from(kib).map_err(|_| negative("minPhysMemory", kib))?;
        add("mem", format!("{kib}K"));
    }
    let priority = template.number("priority");
    if let Some(priority) = priority.filter(|own| ![0, UNSET_PRIORITY].contains(own)) {
        add("nice", priority.saturating_neg().to_string());
    }
    if let Some(seconds) = wallclock(template)? {
        add("time", format!("0:{seconds}"));
    }
    if let Some(array) = array {
        add("array", indices(array));
    }
    mail(template, &mut add);
    line.push(match template.is_true("rerunnable") {
        true => "--requeue".to_owned(),
        false => "--no-requeue".to_owned(),
    });
    if template.is_true("submitAsHold") {
        line.push("--hold".to_owned());
    }
    Ok(line)
}

/// `DRMAA2_LINUX`.
pub const OS_LINUX: i64 = 3;

fn negative(name: &str, value: i64) -> DrmaaError {
    DrmaaError::argument(format!(
        "{name} is {value}: a number of 0 or more is expected"
    ))
}

fn indices(array: ArrayAsk) -> String {
    let TaskIndices { first, last, step } = array.tasks;
    let range = format!("{first}-{last}:{step}");
    match array.max_parallel {
        Some(most) => format!("{range}%{most}"),
        None => range,
    }
}

fn mail(template: &AttributeMap, add: &mut impl FnMut(&str, String)) {
    let addresses = template.texts("email");
    if !addresses.is_empty() {
        add("mail-user", addresses.join(","));
    }
    let mut kinds = Vec::new();
    if template.is_true("emailOnStarted") {
        kinds.push("BEGIN");
    }
    if template.is_true("emailOnTerminated") {
        kinds.extend(["END", "FAIL"]);
    }
    if !kinds.is_empty() {
        add("mail-type", kinds.join(","));
    }
}

/// One number of slots: jobs get all that they ask for.
fn slots(template: &AttributeMap) -> Result<Option<i64>, DrmaaError> {
    let (least, most) = (template.number("minSlots"), template.number("maxSlots"));
    for (name, value) in [("minSlots", least), ("maxSlots", most)] {
        if let Some(value) = value.filter(|value| *value < 1) {
            return Err(DrmaaError::argument(format!(
                "{name} is {value}: a job has 1 or more"
            )));
        }
    }
    match (least, most) {
        (least, Some(most)) if least.unwrap_or(1) != most => Err(unsupported(
            "maxSlots",
            "jobs get as many slots as they ask for; set minSlots to the same number",
        )),
        (least, _) => Ok(least),
    }
}

/// Seconds of the limit of time.
fn wallclock(template: &AttributeMap) -> Result<Option<u64>, DrmaaError> {
    let all = template.pairs("resourceLimits");
    let found = all.iter().find(|pair| pair.key == "WALLCLOCK_TIME");
    found.map(|pair| limit(&pair.key, &pair.value)).transpose()
}

fn limit(name: &str, value: &str) -> Result<u64, DrmaaError> {
    let number = value.parse().ok().filter(|_| !value.starts_with('+'));
    number.ok_or_else(|| {
        DrmaaError::argument(format!(
            "resourceLimits has {name}=\"{value:.100}\": a whole number is expected"
        ))
    })
}

/// Limits of the job's processes, but for that of time.
fn soft_limits(template: &AttributeMap) -> Result<Vec<SoftLimit>, DrmaaError> {
    let mut all = Vec::new();
    for pair in template.pairs("resourceLimits") {
        let (resource, unit) = match pair.key.as_str() {
            "WALLCLOCK_TIME" => continue,
            "CORE_FILE_SIZE" => (libc::RLIMIT_CORE, KIB),
            "CPU_TIME" => (libc::RLIMIT_CPU, 1),
            "DATA_SIZE" => (libc::RLIMIT_DATA, KIB),
            "FILE_SIZE" => (libc::RLIMIT_FSIZE, KIB),
            "OPEN_FILES" => (libc::RLIMIT_NOFILE, 1),
            "STACK_SIZE" => (libc::RLIMIT_STACK, KIB),
            "VIRTUAL_MEMORY" => (libc::RLIMIT_AS, KIB),
            other => {
                return Err(DrmaaError::argument(format!(
                    "resourceLimits has {other:.100}: there is no such limit"
                )));
            }
        };
        let value = limit(&pair.key, &pair.value)?.saturating_mul(unit);
        all.push(SoftLimit::new(resource, value));
    }
    Ok(all)
}

/// A path with the placeholders replaced.
fn placed(template: &AttributeMap, text: &str, is_array: bool) -> String {
    let home = || std::env::var("HOME").unwrap_or_else(|_| "/".to_owned());
    let own = template.text("workingDirectory").unwrap_or(".");
    let dir = || own.replace("$DRMAA2_HOME_DIR$", &home());
    let index = || if is_array { "%a" } else { "1" }.to_owned();
    let mut out = text.to_owned();
    for (name, value) in [
        ("$DRMAA2_WORKING_DIR$", &dir as &dyn Fn() -> String),
        ("$DRMAA2_HOME_DIR$", &home),
        ("$DRMAA2_INDEX$", &index),
    ] {
        if out.contains(name) {
            out = out.replace(name, &value());
        }
    }
    out
}

/// Sets fields that no option sets, or that no option can set to every value.
fn complete(made: &mut UserCommand, template: &AttributeMap) -> Result<(), DrmaaError> {
    let limits = soft_limits(template)?;
    let UserCommand::Submit {
        spec, test_only, ..
    } = made
    else {
        return Err(DrmaaError::argument(format!(
            "{OPTIONS} makes a job of several components, which cannot be waited for"
        )));
    };
    if *test_only {
        return Err(DrmaaError::argument(format!("{OPTIONS} only verifies")));
    }
    let point = |name: &str| {
        let seconds = template.number(name);
        let seconds = seconds.filter(|at| ![abi::NOW, abi::INFINITE_TIME].contains(at));
        let wrong = |at: &i64| *at < 0;
        match seconds {
            Some(at) if wrong(&at) => Err(negative(name, at)),
            at => Ok(at.map(Timestamp::from_unix_s)),
        }
    };
    spec.begin = point("startTime")?.or(spec.begin);
    spec.deadline = point("deadlineTime")?.or(spec.deadline);
    let words = template.text("remoteCommand").into_iter();
    let words = words.chain(template.texts("args").iter().map(String::as_str));
    spec.submit_line = words.collect::<Vec<_>>().join(" ");
    let variables = template.pairs("jobEnvironment");
    if variables.is_empty() && limits.is_empty() {
        return Ok(());
    }
    for pair in variables {
        if pair.key.is_empty() || pair.key.contains('=') {
            return Err(DrmaaError::argument(format!(
                "jobEnvironment has \"{:.100}\": that is no name of a variable",
                pair.key
            )));
        }
    }
    let change = |context: &mut ExecContext| {
        for pair in variables {
            let (name, value) = (pair.key.as_bytes(), pair.value.as_bytes());
            context.environment.set(name, value);
        }
        for own in &limits {
            context
                .soft_limits
                .retain(|old| old.resource != own.resource);
            context.soft_limits.push(*own);
        }
    };
    library::change_context(made, change).map_err(|why| DrmaaError::new(DrmaaCode::Internal, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{AttributeValue, TextPair};

    fn texts(values: &[(&str, &str)]) -> AttributeMap {
        let mut all = AttributeMap::default();
        values
            .iter()
            .for_each(|(name, value)| all.put_text(name, *value));
        all
    }

    fn numbers(values: &[(&str, i64)]) -> AttributeMap {
        let mut all = AttributeMap::default();
        for (name, value) in values {
            all.put(name, AttributeValue::Number(*value));
        }
        all
    }

    fn limited(key: &str, value: &str) -> AttributeMap {
        let mut all = texts(&[("remoteCommand", "true")]);
        let pair = TextPair {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        all.put("resourceLimits", AttributeValue::Pairs(vec![pair]));
        all
    }

    #[test]
    fn attributes_are_options_of_sbatch() {
        let mut own = texts(&[
            ("jobName", "n"),
            ("workingDirectory", "/w"),
            ("outputPath", "$DRMAA2_WORKING_DIR$/o.$DRMAA2_INDEX$"),
            ("errorPath", "/never"),
            ("accountingId", "physics"),
            ("reservationId", "7"),
        ]);
        for name in [
            "joinFiles",
            "submitAsHold",
            "emailOnStarted",
            "emailOnTerminated",
        ] {
            own.put(name, AttributeValue::True);
        }
        let list = ["a@x", "b@x"].map(str::to_owned).to_vec();
        own.put("email", AttributeValue::Texts(list));
        for (name, value) in [
            ("minSlots", 4),
            ("maxSlots", 4),
            ("minPhysMemory", 2048),
            ("priority", 5),
        ] {
            own.put(name, AttributeValue::Number(value));
        }
        let array = ArrayAsk {
            tasks: TaskIndices::of(1, 9, 2).unwrap(),
            max_parallel: Some(3),
        };
        assert_eq!(
            options(&own, Some(array)).unwrap().join(" "),
            "--job-name=n --reservation=7 --account=physics --chdir=/w --output=/w/o.%a --ntasks=4 \
             --mem=2048K --nice=-5 --array=1-9:2%3 --mail-user=a@x,b@x --mail-type=BEGIN,END,FAIL --no-requeue --hold"
        );
        let own = limited("WALLCLOCK_TIME", "90");
        assert_eq!(
            options(&own, None).unwrap().join(" "),
            "--time=0:90 --no-requeue"
        );
        assert_eq!(
            quoted("/bin/x", &["it's".to_owned()]),
            "'/bin/x' 'it'\\''s'"
        );
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let code = |own: &AttributeMap| options(own, None).unwrap_err().code;
        for (own, expected) in [
            (numbers(&[("maxSlots", 4)]), DrmaaCode::UnsupportedAttribute),
            (
                numbers(&[("minSlots", 2), ("maxSlots", 4)]),
                DrmaaCode::UnsupportedAttribute,
            ),
            (numbers(&[("minSlots", 0)]), DrmaaCode::InvalidArgument),
            (
                numbers(&[("machineOS", 11)]),
                DrmaaCode::UnsupportedAttribute,
            ),
            (
                numbers(&[("minPhysMemory", -2)]),
                DrmaaCode::InvalidArgument,
            ),
            (
                limited("WALLCLOCK_TIME", "1:00"),
                DrmaaCode::InvalidArgument,
            ),
        ] {
            assert_eq!(code(&own), expected, "{own:?}");
        }
        let mut staged = AttributeMap::default();
        let pair = TextPair {
            key: "a".to_owned(),
            value: "b".to_owned(),
        };
        staged.put("stageInFiles", AttributeValue::Pairs(vec![pair]));
        assert_eq!(code(&staged), DrmaaCode::UnsupportedAttribute);
        assert!(soft_limits(&limited("NOSUCH", "1")).is_err());
        let none = request(&AttributeMap::default(), None, &[]).unwrap_err();
        assert_eq!(none.text, "remoteCommand is not set");
        let ends = texts(&[("remoteCommand", "true")]);
        let mut ends = ends;
        ends.put(
            crate::values::EXTRAS,
            AttributeValue::Pairs(vec![TextPair {
                key: OPTIONS.to_owned(),
                value: "'a".to_owned(),
            }]),
        );
        assert!(
            request(&ends, None, &[])
                .unwrap_err()
                .text
                .contains(OPTIONS)
        );
    }

    #[test]
    fn limits_of_memory_are_in_kibibytes() {
        let all = soft_limits(&limited("CORE_FILE_SIZE", "3")).unwrap();
        assert_eq!(all, [SoftLimit::new(libc::RLIMIT_CORE, 3072)]);
        let all = soft_limits(&limited("CPU_TIME", "3")).unwrap();
        assert_eq!(all, [SoftLimit::new(libc::RLIMIT_CPU, 3)]);
    }
}
