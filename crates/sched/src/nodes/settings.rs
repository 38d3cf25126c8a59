//! The part of `SchedulerParameters` about backfill reservations.

use muster_model::config::ClusterConfig;

/// The jobs for which nodes are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Number of jobs per partition with a reservation (`bf_promises`): 1 is EASY backfill, all is
    /// conservative backfill.
    pub(crate) reservations: u32,
    /// Time span of reservations, milliseconds (`bf_window`).
    pub(crate) window_ms: Option<u64>,
    /// Minimum wait of a job with a reservation, milliseconds (`bf_min_age_reserve`).
    pub(crate) least_age_ms: u64,
    /// Minimum priority of a job with a reservation (`bf_min_prio_reserve`).
    pub(crate) least_priority: u32,
    /// A job gets a reservation in one partition only (`bf_one_resv_per_job`).
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
    /// Reads the settings from the words; a value that is not a number is ignored.
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
