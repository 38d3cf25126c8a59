//! Values of options that have no effect here. They are read all the same, so that a mistake is found before the job runs
//! where they have one.

use crate::options::OptionError;
use crate::options::chosen::ChosenOptions;

/// Refuses values that Slurm refuses.
///
/// # Errors
/// The first value that is malformed, in Slurm's words.
pub(super) fn check(chosen: &ChosenOptions) -> Result<(), OptionError> {
    let value = |long| chosen.value(long).filter(|text| !text.is_empty());
    if let Some(text) = value("acctg-freq").filter(|text| !text.split(',').all(is_interval)) {
        return Err(OptionError::invalid(format!(
            "Invalid --acctg-freq specification: {text}"
        )));
    }
    if let Some(text) = value("cpu-freq").filter(|text| !is_cpu_frequency(text)) {
        let mut error = OptionError::invalid("Invalid --cpu-freq argument");
        error
            .lines
            .insert(0, format!("unrecognized --cpu-freq argument \"{text}\""));
        return Err(error);
    }
    if let Some(text) = value("gpu-freq").filter(|text| !text.split(',').all(is_gpu_frequency)) {
        return Err(OptionError::invalid(format!(
            "Invalid --gpu-freq argument: gpu:{text}"
        )));
    }
    if value("accel-bind").is_some_and(|text| !text.chars().all(|c| "gmnv".contains(c))) {
        return Err(OptionError::invalid("Invalid --accel-bind specification"));
    }
    if value("delay-boot").is_some_and(|text| super::read_limit(text).is_err()) {
        return Err(OptionError::invalid("Invalid --delay-boot specification"));
    }
    if let Some(text) = value("profile").filter(|text| !text.split(',').all(is_profile)) {
        return Err(OptionError::invalid(format!(
            "invalid --profile={text} option"
        )));
    }
    Ok(())
}

/// `30`, `task=30`.
fn is_interval(text: &str) -> bool {
    let (kind, seconds) = text.split_once('=').unwrap_or(("task", text));
    let kinds = ["task", "energy", "network", "filesystem"];
    kinds.iter().any(|known| kind.eq_ignore_ascii_case(known)) && seconds.parse::<u32>().is_ok()
}

/// `low`, `1000-2000`, `high:Performance`, `OnDemand`.
fn is_cpu_frequency(text: &str) -> bool {
    let governors = [
        "conservative",
        "ondemand",
        "performance",
        "powersave",
        "schedutil",
        "userspace",
    ];
    let is_governor = |word: &str| {
        governors
            .iter()
            .any(|known| word.eq_ignore_ascii_case(known))
    };
    let (range, governor) = match text.split_once(':') {
        Some((range, governor)) => (range, Some(governor)),
        None => (text, None),
    };
    let is_range = range.split('-').count() <= 2 && range.split('-').all(is_frequency);
    match governor {
        Some(governor) => is_range && is_governor(governor),
        None => is_range || is_governor(range),
    }
}

/// `low`, `graphics=1000`, `memory=high`, `verbose`.
fn is_gpu_frequency(text: &str) -> bool {
    let (kind, frequency) = text.split_once('=').unwrap_or(("graphics", text));
    text.eq_ignore_ascii_case("verbose")
        || matches!(kind, "graphics" | "memory") && is_frequency(frequency)
}

fn is_frequency(text: &str) -> bool {
    let words = ["low", "medium", "high", "highm1"];
    words.iter().any(|known| text.eq_ignore_ascii_case(known)) || text.parse::<u32>().is_ok()
}

fn is_profile(text: &str) -> bool {
    let kinds = [
        "none",
        "all",
        "energy",
        "filesystem",
        "lustre",
        "network",
        "task",
    ];
    kinds.iter().any(|known| text.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for text in [
            "low",
            "1000-2000",
            "high:Performance",
            "OnDemand",
            "low-high",
        ] {
            assert!(is_cpu_frequency(text), "{text}");
        }
        assert!(!is_cpu_frequency("x") && !is_cpu_frequency("low:x") && !is_cpu_frequency("1-2-3"));
        assert!(is_gpu_frequency("memory=high") && is_gpu_frequency("verbose"));
        assert!(!is_gpu_frequency("x") && !is_gpu_frequency("x=low"));
        assert!(is_interval("30") && is_interval("task=30"));
        assert!(!is_interval("x") && !is_interval("x=30"));
        assert!(is_profile("Task") && !is_profile("x"));
    }
}
