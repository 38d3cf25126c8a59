//! Values of options: counts, node ranges, arrays, dependencies, signals, devices. Each function reads one form and
//! reports errors in Slurm's words.

pub mod time;

use super::OptionError;
use muster_model::ids::JobId;
use muster_model::index_set::IndexSet;
use muster_model::limits::DEPENDENCY_TERMS_MAX;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{
    ArraySpec, Dependency, DependencyKind, DependencyTerm, GresAsk, WarnSignal,
};
use muster_model::topology::SwitchAsk;

pub use crate::value::parse_mem_mib;

/// A whole number with an optional `k` or `m` (1024, 1024 * 1024).
pub fn count(text: &str) -> Option<u32> {
    let lower = text.trim().to_ascii_lowercase();
    let (digits, factor) = match lower.strip_suffix('k') {
        Some(rest) => (rest, 1024),
        None => match lower.strip_suffix('m') {
            Some(rest) => (rest, 1024 * 1024),
            None => (lower.as_str(), 1),
        },
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // The highest values are reserved in Slurm's formats.
    let value = digits.parse::<u32>().ok()?.checked_mul(factor)?;
    (value < u32::MAX - 16).then_some(value)
}

/// A number of at least `least` for an option.
///
/// # Errors
/// `Invalid numeric value`, exit code 1.
pub fn number(long: &str, text: &str, least: u32) -> Result<u32, OptionError> {
    count(text).filter(|n| *n >= least).ok_or_else(|| {
        OptionError::fatal(format!("Invalid numeric value \"{text}\" for --{long}."))
    })
}

/// `--nodes`: least, which is one at least, and most, which is 0 only where nothing else is said.
///
/// # Errors
/// Not a count or range.
pub fn nodes(text: &str) -> Result<(u32, u32), OptionError> {
    let bad = || OptionError::invalid(format!("\"{text}\" is not a valid node count"));
    let (min, max) = match text.split_once('-') {
        Some((min, max)) => (count(min), count(max)),
        None => (count(text), count(text)),
    };
    let (min, max) = (min.ok_or_else(bad)?, max.ok_or_else(bad)?);
    if max < min {
        return Err(OptionError::invalid(format!(
            "Maximum node count {max} is less than minimum node count {min}"
        )));
    }
    Ok((min.clamp(1, max.max(1)), max))
}

/// Array indices: `0-15:4%2`, `1,3,5`, `[1-3]`. A limit of 0 is none.
pub fn array(text: &str) -> Option<ArraySpec> {
    let (list, throttle) = match text.split_once('%') {
        Some((list, limit)) => (list, Some(count(limit)?).filter(|n| *n > 0)),
        None => (text, None),
    };
    let indices = indices(list)?;
    (!indices.is_empty()).then_some(ArraySpec { indices, throttle })
}

/// A list of indices and ranges with strides, in brackets or not.
pub fn indices(list: &str) -> Option<IndexSet> {
    /// Indices of all ranges with strides, each of which takes a place in the set. slurmrestd reads those of many users.
    const STRIDED_MAX: u32 = 500_000;
    let list = match list.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None => list,
    };
    let index = |t: &str| {
        (!t.is_empty() && t.bytes().all(|b| b.is_ascii_digit()))
            .then(|| t.parse::<u32>().ok())
            .flatten()
            .filter(|i| *i < u32::MAX - 16)
    };
    let mut ranges = Vec::new();
    let mut strided = 0_u32;
    for item in list.split(',') {
        let Some((first, rest)) = item.split_once('-') else {
            let only = index(item)?;
            ranges.push((only, only, 1));
            continue;
        };
        let (last, stride) = match rest.split_once(':') {
            Some((last, stride)) => (last, index(stride)?),
            None => (rest, 1),
        };
        let (first, last) = (index(first)?, index(last)?);
        if last < first || stride == 0 {
            return None;
        }
        if stride > 1 {
            strided = strided.saturating_add((last - first) / stride);
        }
        ranges.push((first, last, stride));
    }
    if strided > STRIDED_MAX {
        return None;
    }
    let mut set = IndexSet::default();
    for (first, last, stride) in ranges {
        if stride == 1 {
            set.insert_range(first, last);
            continue;
        }
        let mut at = first;
        while at <= last {
            set.insert(at);
            at = at.checked_add(stride)?;
        }
    }
    Some(set)
}

/// `--dependency`.
///
/// # Errors
/// [`RefusalCode::InvalidDependency`] with a reason.
pub fn dependency(text: &str) -> Result<Dependency, Refusal> {
    let refuse = |why: String| Refusal::new(RefusalCode::InvalidDependency, why);
    let any = text.contains('?');
    if any && text.contains(',') {
        let why = "a dependency list uses either ',' (all) or '?' (any), not both";
        return Err(refuse(why.to_owned()));
    }
    let mut terms = Vec::new();
    for part in text.split([',', '?']).filter(|p| !p.is_empty()) {
        dependency_term(part, &mut terms)
            .map_err(|why| refuse(format!("dependency '{part}': {why}")))?;
        if terms.len() > DEPENDENCY_TERMS_MAX {
            return Err(refuse(format!(
                "more than {DEPENDENCY_TERMS_MAX} conditions"
            )));
        }
    }
    Ok(Dependency { terms, any })
}

fn dependency_term(part: &str, terms: &mut Vec<DependencyTerm>) -> Result<(), String> {
    if part.eq_ignore_ascii_case("singleton") {
        terms.push(DependencyTerm::Singleton);
        return Ok(());
    }
    let (kind, jobs) = match part.split_once(':') {
        // A number alone means any end, as in old scripts.
        _ if part.starts_with(|c: char| c.is_ascii_digit()) => ("afterany", part),
        Some((kind, jobs)) => (kind, jobs),
        None => return Err("expected TYPE:JOBID[:JOBID...] or singleton".to_owned()),
    };
    let kind = match kind.to_ascii_lowercase().as_str() {
        "after" => DependencyKind::After,
        "afterany" => DependencyKind::AfterAny,
        "afterok" => DependencyKind::AfterOk,
        "afternotok" => DependencyKind::AfterNotOk,
        "aftercorr" => DependencyKind::AfterCorr,
        "afterburstbuffer" => return Err("there are no burst buffers here".to_owned()),
        "expand" => return Err("jobs cannot be expanded; submit a larger job".to_owned()),
        _ => {
            return Err(
                "the types are after, afterany, afterok, afternotok, aftercorr and singleton"
                    .to_owned(),
            );
        }
    };
    for job in jobs.split(':') {
        terms.push(job_term(kind, job)?);
    }
    Ok(())
}

fn job_term(kind: DependencyKind, text: &str) -> Result<DependencyTerm, String> {
    let bad = || format!("'{text}' is not a job id");
    let (id, delay) = match text.split_once('+') {
        Some((id, delay)) if kind == DependencyKind::After => (
            id,
            count(delay).ok_or_else(|| format!("'{delay}' is not a number of minutes"))?,
        ),
        Some(_) => return Err("only after:JOBID+MINUTES takes a delay".to_owned()),
        None => (text, 0),
    };
    let (job, task) = match id.split_once('_') {
        Some((job, "*")) => (job, None),
        Some((job, task)) => (job, Some(count(task).ok_or_else(bad)?)),
        None => (id, None),
    };
    let job = job.parse().ok().filter(|n| *n > 0).ok_or_else(bad)?;
    Ok(DependencyTerm::Job {
        kind,
        job: JobId(job),
        task,
        delay_minutes: delay,
    })
}

/// Signals by number: name without `SIG`. Linux numbers.
const SIGNALS: &[(&str, u32)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("IOT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

/// A signal by number or name, with or without `SIG`, in any case.
pub fn signal(text: &str) -> Option<u32> {
    if let Ok(number) = text.parse::<u32>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    SIGNALS.iter().find(|(n, _)| *n == name).map(|(_, n)| *n)
}

/// `--signal=[{R|B}:]signal[@seconds]`.
pub fn warn_signal(text: &str) -> Option<WarnSignal> {
    let (flags, rest) = match text.split_once(':') {
        Some((flags, rest)) => (flags, rest),
        None => ("", text),
    };
    let mut batch_only = false;
    for flag in flags.chars() {
        match flag {
            'B' | 'b' => batch_only = true,
            // Only reservations' ends would make a difference.
            'R' | 'r' => {}
            _ => return None,
        }
    }
    let (name, before) = match rest.split_once('@') {
        Some((name, seconds)) => (name, count(seconds).filter(|s| *s <= 65_535)?),
        None => (rest, 60),
    };
    Some(WarnSignal {
        signal: signal(name)?,
        before_s: before,
        batch_only,
    })
}

/// `--gres`: `gpu`, `gpu:2`, `gpu:a100:2`, `gres/gpu:2`, `gpu=2`, `none`.
pub fn gres(text: &str) -> Option<Vec<GresAsk>> {
    let mut list: Vec<GresAsk> = Vec::new();
    if text.eq_ignore_ascii_case("none") {
        return Some(list);
    }
    for item in text.split(',') {
        let item = item
            .strip_prefix("gres/")
            .or(item.strip_prefix("gres:"))
            .unwrap_or(item);
        let mut parts: Vec<&str> = item.split([':', '=']).collect();
        if parts.iter().any(|p| p.is_empty()) || parts.len() > 3 {
            return None;
        }
        let name = parts.remove(0);
        let count = match parts.last() {
            Some(last) if last.starts_with(|c: char| c.is_ascii_digit()) => {
                let n = crate::value::parse_count(last).ok()?;
                parts.pop();
                n
            }
            _ => 1,
        };
        let kind = match parts.as_slice() {
            [] => None,
            [kind] => Some((*kind).to_owned()),
            _ => return None,
        };
        push_gres(&mut list, name, kind, count);
    }
    Some(list)
}

/// `[type:]number[,[type:]number...]` of `--gpus` and its kin. A type alone is one of it, as Slurm reads it.
pub fn gpus(text: &str) -> Option<Vec<GresAsk>> {
    let mut list = Vec::new();
    for item in text.split(',') {
        let (kind, number) = match item.rsplit_once([':', '=']) {
            Some((kind, number)) if !kind.is_empty() => (Some(kind.to_owned()), number),
            Some(_) => return None,
            None if item.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                (Some(item.to_owned()), "1")
            }
            None => (None, item),
        };
        push_gres(&mut list, "gpu", kind, u64::from(count(number)?));
    }
    Some(list)
}

/// Adds to a list of devices; the same device twice adds up, none of it is nothing.
pub fn push_gres(list: &mut Vec<GresAsk>, name: &str, kind: Option<String>, count: u64) {
    if let Some(known) = list.iter_mut().find(|g| g.name == name && g.kind == kind) {
        known.count = known.count.saturating_add(count);
    } else if count > 0 {
        list.push(GresAsk {
            name: name.to_owned(),
            kind,
            count,
        });
    }
}

/// Whether a distribution is one of Slurm's: `block|cyclic|plane=n|arbitrary|*[:...[:...]][,Pack|NoPack]`.
pub fn distribution_is_known(text: &str) -> bool {
    !text.is_empty() && muster_model::distribution::Distribution::parse(text).is_ok()
}

/// `--switches=count[@time]`.
///
/// # Errors
/// Not a count, or not a time.
pub fn switches(text: &str) -> Result<SwitchAsk, OptionError> {
    let (count, time) = match text.split_once('@') {
        Some((count, time)) => (count, Some(time)),
        None => (text, None),
    };
    let count = number("switches", count, 1)?;
    let wait_s = match time {
        None => None,
        Some(time) => match crate::value::parse_time_limit(time) {
            Ok(crate::value::DurationLimit::Seconds(s)) => Some(s),
            Ok(crate::value::DurationLimit::Unlimited) => None,
            Err(_) => return Err(OptionError::invalid("Invalid --switches specification")),
        },
    };
    Ok(SwitchAsk { count, wait_s })
}

/// Whether each word of a `--mail-type` list is one of Slurm's.
pub fn mail_type_is_known(text: &str) -> bool {
    const TYPES: [&str; 14] = [
        "NONE",
        "BEGIN",
        "END",
        "FAIL",
        "REQUEUE",
        "ALL",
        "INVALID_DEPEND",
        "STAGE_OUT",
        "TIME_LIMIT",
        "TIME_LIMIT_90",
        "TIME_LIMIT_80",
        "TIME_LIMIT_50",
        "ARRAY_TASKS",
        "REQUEUED",
    ];
    text.split(',')
        .all(|word| TYPES.iter().any(|t| t.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests;
