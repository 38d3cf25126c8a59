//! Log levels of daemons: Slurm's names and numbers for them.

use log::LevelFilter;

/// Levels of the log, least first.
const LEVELS: [LevelFilter; 5] = [
    LevelFilter::Off,
    LevelFilter::Error,
    LevelFilter::Info,
    LevelFilter::Debug,
    LevelFilter::Trace,
];

/// Slurm's names, by number, with the levels here.
const NAMES: [(&str, usize); 10] = [
    ("quiet", 0),
    ("fatal", 1),
    ("error", 1),
    ("info", 2),
    ("verbose", 2),
    ("debug", 3),
    ("debug2", 4),
    ("debug3", 4),
    ("debug4", 4),
    ("debug5", 4),
];

/// The level of a name or a number such as `SlurmctldDebug` has, plus this number of `-v`; `None` if there is no such
/// level.
pub fn filter(setting: &str, more: usize) -> Option<LevelFilter> {
    let wanted = setting.to_ascii_lowercase();
    let by_number = wanted.parse().ok().and_then(|at: usize| NAMES.get(at));
    let (_, base) = by_number.or_else(|| NAMES.iter().find(|(name, _)| *name == wanted))?;
    Some(LEVELS[(base + more).min(LEVELS.len() - 1)])
}

/// Number of levels by which the log is above that of a setting.
pub(crate) fn above(setting: &str) -> usize {
    let at = |level| LEVELS.iter().position(|l| *l == level).unwrap_or(0);
    let base = filter(setting, 0).map_or(0, at);
    at(log::max_level()).saturating_sub(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        assert_eq!(filter("info", 0), Some(LevelFilter::Info));
        assert_eq!(filter("3", 0), Some(LevelFilter::Info));
        assert_eq!(filter("DEBUG", 0), Some(LevelFilter::Debug));
        assert_eq!(filter("9", 0), Some(LevelFilter::Trace));
        assert_eq!(filter("0", 0), Some(LevelFilter::Off));
        assert_eq!(filter("error", 2), Some(LevelFilter::Debug));
        assert_eq!(filter("debug5", 7), Some(LevelFilter::Trace));
        assert_eq!(filter("10", 0), None);
        assert_eq!(filter("loud", 0), None);
    }
}
