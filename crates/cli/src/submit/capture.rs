//! State of the shell that a job or step inherits: environment, file mode mask, resource limits. Only
//! what differs by shell is in it, never what differs by job, so that a thousand submissions share one copy.

use crate::connect::TOKEN_VARIABLE;
use crate::process;
use crate::say::Say;
use muster_conf::options::ChosenOptions;
use muster_model::environment::{self, Environment};
use muster_model::job_env;
use muster_model::limits::CONTEXT_BYTES_MAX;
use muster_model::spec::{ExecContext, SoftLimit};
use muster_trust::host::short_name;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::{Mode, umask};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// Variables of srun and MPI launchers that belong to the step the caller is in, beside those that describe a job.
const OF_A_STEP: [&str; 4] = ["SLURM_CPU_BIND", "SLURM_PTY_", "PMIX_", "PMI_"];
/// More of them, by their whole names.
const OF_AN_ALLOCATION: [&str; 6] = [
    "SLURM_OVERCOMMIT",
    "SLURM_SUBMIT_DIR",
    "SLURM_SUBMIT_HOST",
    "SLURM_THREADS_PER_CORE",
    "SLURM_TRES_PER_TASK",
    "SRUN_DEBUG",
];

/// Whether a variable would be wrong in another allocation; the node sets it afresh.
fn is_of_an_allocation(name: &str) -> bool {
    // Where the configuration is holds for every job.
    (job_env::is_job_variable(name) && name != "SLURM_CONF" && name != "SLURM_UMASK")
        || OF_AN_ALLOCATION.contains(&name)
        || OF_A_STEP.iter().any(|p| name.starts_with(p))
}

/// The caller's environment without variables of some names.
pub(crate) fn own_without(is_other: impl Fn(&[u8]) -> bool) -> Environment {
    let all = process::variables();
    let size: usize = all.iter().map(|v| v.count_bytes() + 1).sum();
    // A few are added.
    let mut own = Environment::with_capacity(all.len() + 8, size + 256);
    for variable in all {
        let name = environment::name(variable.to_bytes());
        if !name.is_empty() && name.len() < variable.count_bytes() && !is_other(name) {
            own.push_string(variable);
        }
    }
    own
}

/// The variables as a command is given them.
pub(crate) fn pairs(environment: &Environment) -> impl Iterator<Item = (&OsStr, &OsStr)> {
    environment.iter().map(|variable| {
        let name = environment::name(variable);
        let value = variable.get(name.len() + 1..).unwrap_or_default();
        (OsStr::from_bytes(name), OsStr::from_bytes(value))
    })
}

/// The caller's environment without what belongs to an allocation it may be in, and without a user's token, which is nobody
/// else's to read: a job is its user's without it.
pub(crate) fn own_environment() -> Environment {
    own_without(|name| {
        name == TOKEN_VARIABLE.as_bytes() || str::from_utf8(name).is_ok_and(is_of_an_allocation)
    })
}

/// Which variables a batch job gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selection<'a> {
    /// All of the caller's.
    pub(crate) all: bool,
    /// The user's login environment below them.
    pub(crate) login: bool,
    /// Names, with a value of their own or the caller's.
    pub(crate) named: Vec<(&'a str, Option<&'a str>)>,
}

/// `--export`: `ALL`, `NONE`, `NIL`, or a list in which values may be quoted.
pub(crate) fn selection(text: Option<&str>) -> Selection<'_> {
    let mut selection = Selection {
        all: false,
        login: false,
        named: Vec::new(),
    };
    let Some(text) = text else {
        selection.all = true;
        return selection;
    };
    if text.eq_ignore_ascii_case("NIL") {
        return selection;
    }
    if text.eq_ignore_ascii_case("NONE") {
        selection.login = true;
        return selection;
    }
    for word in split_unquoted(text) {
        if word.eq_ignore_ascii_case("ALL") {
            selection.all = true;
        } else if let Some((name, value)) = word.split_once('=') {
            selection.named.push((name, Some(unquoted(value))));
        } else if !word.is_empty() {
            selection.named.push((word, None));
        }
    }
    selection.login = !selection.all;
    selection
}

fn split_unquoted(text: &str) -> Vec<&str> {
    let (mut words, mut start, mut quote) = (Vec::new(), 0, None);
    for (at, c) in text.char_indices() {
        match (c, quote) {
            (c, Some(q)) if c == q => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            (',', None) => {
                words.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    words.push(&text[start..]);
    words
}

fn unquoted(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = value
            .strip_prefix(quote)
            .and_then(|v| v.strip_suffix(quote))
        {
            return inner;
        }
    }
    value
}

/// The environment that `--export` selects from `own`, the caller's.
pub(crate) fn select(
    own: Environment,
    selection: &Selection<'_>,
    login: Environment,
) -> Environment {
    let mut chosen = if selection.all {
        own
    } else {
        let mut chosen = login;
        for (name, value) in pairs(&own) {
            let name = name.as_bytes();
            if name.starts_with(b"SLURM_") || name.starts_with(b"SPANK_") {
                chosen.set(name, value.as_bytes());
            }
        }
        for (name, value) in &selection.named {
            if value.is_none()
                && let Some(own) = own.value(name.as_bytes())
            {
                chosen.set(name.as_bytes(), own);
            }
        }
        chosen
    };
    for (name, value) in &selection.named {
        if let Some(value) = value {
            chosen.set(name.as_bytes(), value.as_bytes());
        }
    }
    chosen
}

/// The context of a batch job.
///
/// # Errors
/// Lines for the user.
pub(crate) fn batch_context(chosen: &ChosenOptions, say: &Say) -> Result<ExecContext, String> {
    let selection = match chosen.get("export") {
        Some(given) => selection(given.value.as_deref().or(Some("ALL"))),
        None => selection(None),
    };
    let own = match chosen.value("export-file") {
        Some(file) => exported_file(file)?,
        None => own_environment(),
    };
    let asked = chosen.has("get-user-env");
    let login = if selection.login || asked {
        super::login::environment(say)
    } else {
        Environment::default()
    };
    let mut environment = if asked && selection.all {
        select(merged(login, &own), &selection, Environment::default())
    } else {
        select(own, &selection, login)
    };
    if let Some(text) = chosen.value("export")
        && !text.eq_ignore_ascii_case("ALL")
    {
        environment.set(b"SLURM_EXPORT_ENV", text.as_bytes());
        environment.set(b"SLURM_GET_USER_ENV", b"1");
    }
    set_submission(&mut environment);
    context(
        environment,
        chosen.get("propagate").map(|g| g.value.as_deref()),
    )
}

/// Variables of the caller over those that a login gives the user.
pub(crate) fn over_login(own: &Environment, say: &Say) -> Environment {
    merged(super::login::environment(say), own)
}

/// A login environment with the variables of the caller, which are stronger.
fn merged(mut login: Environment, own: &Environment) -> Environment {
    for (name, value) in pairs(own) {
        login.set(name.as_bytes(), value.as_bytes());
    }
    login
}

/// `--export-file`: `NAME=value`, each ended by a zero byte, from a file or an open descriptor.
fn exported_file(name: &str) -> Result<Environment, String> {
    let path = match name.parse::<u32>() {
        Ok(fd) => format!("/proc/self/fd/{fd}"),
        Err(_) => name.to_owned(),
    };
    let bytes =
        std::fs::read(&path).map_err(|_| format!("Could not open user environment file {name}"))?;
    Ok(split_environment(&bytes))
}

/// `NAME=value` pairs between zero bytes.
pub(crate) fn split_environment(bytes: &[u8]) -> Environment {
    bytes
        .split(|b| *b == 0)
        .filter(|pair| !pair.starts_with(b"=") && pair.contains(&b'='))
        .collect()
}

/// Says where a submission was made.
pub(crate) fn set_submission(environment: &mut Environment) {
    let here = super::line::current_dir();
    environment.set(b"SLURM_SUBMIT_DIR", here.as_os_str().as_bytes());
    environment.set(b"SLURM_SUBMIT_HOST", short_name().as_bytes());
}

/// Environment, mask and limits as they travel.
///
/// # Errors
/// A limit that has no such name; an environment that is too large.
pub(crate) fn context(
    mut environment: Environment,
    propagate: Option<Option<&str>>,
) -> Result<ExecContext, String> {
    let mask = own_umask();
    environment.set(b"SLURM_PRIO_PROCESS", own_nice().to_string().as_bytes());
    let size = environment.size_bytes();
    if size > CONTEXT_BYTES_MAX {
        return Err(format!(
            "the environment has {size} bytes, at most {CONTEXT_BYTES_MAX} are passed on; use --export=NAMES"
        ));
    }
    Ok(ExecContext {
        environment,
        umask: mask,
        soft_limits: soft_limits(propagate)?,
    })
}

/// The file mode mask: `SLURM_UMASK` in octal, else this process's.
pub(super) fn own_umask() -> u32 {
    let given = process::variable("SLURM_UMASK");
    if let Some(mask) = given.and_then(|text| u32::from_str_radix(text, 8).ok()) {
        return mask & 0o777;
    }
    // There is no way to read the mask but to set it; commands have one thread.
    let mask = umask(Mode::empty());
    umask(mask);
    mask.bits()
}

fn own_nice() -> i32 {
    // SAFETY: it takes numbers and gives a number.
    #[allow(unsafe_code)]
    unsafe {
        libc::getpriority(libc::PRIO_PROCESS, 0)
    }
}

/// Limits that travel, by name and number.
const LIMITS: &[(&str, Resource)] = &[
    ("CPU", Resource::RLIMIT_CPU),
    ("FSIZE", Resource::RLIMIT_FSIZE),
    ("DATA", Resource::RLIMIT_DATA),
    ("STACK", Resource::RLIMIT_STACK),
    ("CORE", Resource::RLIMIT_CORE),
    ("RSS", Resource::RLIMIT_RSS),
    ("NPROC", Resource::RLIMIT_NPROC),
    ("NOFILE", Resource::RLIMIT_NOFILE),
    ("MEMLOCK", Resource::RLIMIT_MEMLOCK),
    ("AS", Resource::RLIMIT_AS),
];

/// Names and values of the limits that travel.
pub(super) fn soft_limit_texts() -> impl Iterator<Item = (&'static str, u64)> {
    let limits = LIMITS.iter();
    limits.filter_map(|(name, resource)| Some((*name, getrlimit(*resource).ok()?.0)))
}

/// `--propagate`: absent or without a value, all of them.
fn soft_limits(propagate: Option<Option<&str>>) -> Result<Vec<SoftLimit>, String> {
    let text = propagate.flatten().unwrap_or("ALL");
    if text.eq_ignore_ascii_case("NONE") {
        return Ok(Vec::new());
    }
    let all = text.eq_ignore_ascii_case("ALL");
    let wanted: Vec<String> = text
        .split(',')
        .map(|n| n.trim_start_matches("RLIMIT_").to_ascii_uppercase())
        .collect();
    let is_known = |name: &&String| LIMITS.iter().any(|(known, _)| known == *name);
    if !all && let Some(place) = wanted.iter().position(|name| !is_known(&name)) {
        let bad = text.split(',').nth(place).unwrap_or_default();
        return Err(format!(
            "Bad rlimit name: {bad}\n--propagate={text} is not valid."
        ));
    }
    Ok(LIMITS
        .iter()
        .filter(|(name, _)| all || wanted.iter().any(|w| w == name))
        .filter_map(|(_, resource)| {
            let (soft, _) = getrlimit(*resource).ok()?;
            Some(SoftLimit::new(*resource as u32, soft))
        })
        .collect())
}

/// An encoded context.
pub(crate) fn encoded(context: &ExecContext) -> Vec<u8> {
    let mut bytes = Vec::new();
    minicbor::encode(context, &mut bytes).expect("writing to memory cannot fail");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().map(|(n, v)| format!("{n}={v}")).collect()
    }

    fn selected(text: Option<&str>) -> Environment {
        let own = env(&[("HOME", "/h"), ("A", "1"), ("B", "2"), ("SLURM_CONF", "/c")]);
        select(own, &selection(text), env(&[("LOGIN", "yes"), ("A", "0")]))
    }

    #[test]
    fn export_forms() {
        let all = env(&[("HOME", "/h"), ("A", "1"), ("B", "2"), ("SLURM_CONF", "/c")]);
        assert_eq!(selected(None), all);
        assert_eq!(selected(Some("ALL")), all);
        assert_eq!(
            selected(Some("ALL,A=x,C='1,2'")),
            env(&[
                ("HOME", "/h"),
                ("A", "x"),
                ("B", "2"),
                ("SLURM_CONF", "/c"),
                ("C", "1,2")
            ])
        );
        assert_eq!(
            selected(Some("B,D=4,NOTSET")),
            env(&[
                ("LOGIN", "yes"),
                ("A", "0"),
                ("SLURM_CONF", "/c"),
                ("B", "2"),
                ("D", "4")
            ])
        );
        assert_eq!(
            selected(Some("NONE")),
            env(&[("LOGIN", "yes"), ("A", "0"), ("SLURM_CONF", "/c")])
        );
        assert!(!selection(Some("NIL")).login && selection(Some("NONE")).login);
    }

    #[test]
    fn allocations_do_not_leak_into_each_other() {
        for name in [
            "SLURM_JOB_ID",
            "SLURM_NTASKS",
            "SLURM_STEP_ID",
            "PMIX_RANK",
            "MUSTER_NODE",
        ] {
            assert!(is_of_an_allocation(name), "{name}");
        }
        for name in [
            "SLURM_CONF",
            "PATH",
            "SLURM_EXPORT_ENV",
            "SLURM_LABELIO",
            "SBATCH_PARTITION",
        ] {
            assert!(!is_of_an_allocation(name), "{name}");
        }
    }

    #[test]
    fn limits_by_name() {
        assert_eq!(soft_limits(None).unwrap().len(), LIMITS.len());
        assert!(soft_limits(Some(Some("NONE"))).unwrap().is_empty());
        assert_eq!(soft_limits(Some(Some("core,NOFILE"))).unwrap().len(), 2);
        assert!(soft_limits(Some(Some("foo"))).is_err());
    }

    #[test]
    fn equal_contexts_are_equal_bytes() {
        let one = encoded(&context(env(&[("A", "1")]), None).unwrap());
        let two = encoded(&context(env(&[("A", "1")]), None).unwrap());
        assert_eq!(one, two);
    }

    #[test]
    fn environments_between_zero_bytes() {
        assert_eq!(
            split_environment(b"A=1\0B=x=y\n\0=bad\0\0C"),
            env(&[("A", "1"), ("B", "x=y\n")])
        );
    }
}
