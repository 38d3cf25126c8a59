//! The part of `SchedulerParameters` about backfill reservations.

use muster_model::config::ClusterConfig;

/// For which jobs nodes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Jobs of each partition (`bf_promises`): 1 is EASY backfill, all conservative backfill.
    pub(crate) reservations: u32,
    /// How far ahead, milliseconds (`bf_window`).
    pub(crate) window_ms: Option<u64>,
    /// How long a job has waited at least, milliseconds (`bf_min_age_reserve`).
    pub(crate) least_age_ms: u64,
    /// The priority it has at least (`bf_min_prio_reserve`).
    pub(crate) least_priority: u32,
    /// A job has nodes kept in one partition only (`bf_one_resv_per_job`).
    pub(crate) one_each: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            reservations: 1,
            window_ms: None,
            least_age_ms: 0,
            least_priority: 0,
            one_each: false,
        }
    }
}

impl Settings {
    /// From the words; what is no number counts as not written.
    pub(crate) fn new(config: &ClusterConfig) -> Settings {
        let words = &config.scheduler_parameters;
        let value = |name: &str| {
            let pairs = words.iter().rev().filter_map(|word| word.split_once('='));
            let mut named = pairs.filter(|(key, _)| *key == name);
            named.next().map(|(_, value)| value)
        };
        let number = |name: &str| value(name).and_then(|value| value.parse::<u32>().ok());
        Settings {
            reservations: match value("bf_promises") {
                Some("all") => u32::MAX,
                _ => number("bf_promises").unwrap_or(1).max(1),
            },
            window_ms: number("bf_window").map(|minutes| u64::from(minutes) * 60_000),
            least_age_ms: u64::from(number("bf_min_age_reserve").unwrap_or(0)) * 1000,
            least_priority: number("bf_min_prio_reserve").unwrap_or(0),
            one_each: words.iter().any(|word| word == "bf_one_resv_per_job"),
        }
    }
}
