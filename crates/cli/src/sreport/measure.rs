//! Amounts of trackable resources over time, and how they are written.

use muster_model::time::Timestamp;
use muster_model::use_slots::RunSpan;
use muster_proto::acct::{AcctJob, UsageRow};

/// Format of amounts (`-t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TimeFormat {
    /// Seconds in the unit; none where only the share counts.
    unit: Option<u32>,
    /// The share of the whole, too.
    share: bool,
}

/// Minutes, as nothing else is asked for.
pub(super) const MINUTES: TimeFormat = TimeFormat {
    unit: Some(60),
    share: false,
};

impl TimeFormat {
    /// Reads a name or a beginning of one.
    pub(super) fn parse(word: &str) -> Option<TimeFormat> {
        let word = word.to_ascii_lowercase();
        let units = [
            ("sec", "seconds", 1),
            ("min", "minutes", 60),
            ("hour", "hours", 3600),
        ];
        if !word.is_empty() && "percent".starts_with(&word) {
            let (unit, share) = (None, true);
            return Some(TimeFormat { unit, share });
        }
        units.iter().find_map(|(short, long, seconds)| {
            let with_share = word
                .strip_prefix(short)
                .is_some_and(|rest| !rest.is_empty() && "per".starts_with(rest));
            let alone = !word.is_empty() && long.starts_with(&word);
            (with_share || alone).then_some(TimeFormat {
                unit: Some(*seconds),
                share: with_share,
            })
        })
    }

    /// `Minutes`, `Seconds/Percentage of Total`.
    pub(super) fn name(self) -> String {
        let unit = match self.unit {
            None => return "Percentage of Total".to_owned(),
            Some(1) => "Seconds",
            Some(60) => "Minutes",
            Some(_) => "Hours",
        };
        match self.share {
            true => format!("{unit}/Percentage of Total"),
            false => unit.to_owned(),
        }
    }

    /// Amounts have their share beside them.
    pub(super) fn is_wide(self) -> bool {
        self.share && self.unit.is_some()
    }

    /// No amount, only shares.
    pub(super) fn is_percent(self) -> bool {
        self.unit.is_none()
    }

    /// An amount in seconds of a whole.
    pub(super) fn text(self, amount: f64, whole: f64) -> String {
        // The sum of nothing is -0, which would be written so.
        let amount = amount + 0.0;
        let share = if whole > 0.0 {
            amount / whole * 100.0
        } else {
            0.0
        };
        match (self.unit, self.share) {
            (None, _) => format!("{share:.2}%"),
            (Some(unit), true) => format!("{:.0}({share:.2}%)", amount / f64::from(unit)),
            (Some(unit), false) => format!("{:.0}", amount / f64::from(unit)),
        }
    }
}

/// From when to when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Period {
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
}

impl Period {
    /// Its length.
    pub(super) fn seconds(self) -> f64 {
        self.end.since_ms(self.start) as f64 / 1000.0
    }

    /// Seconds of it that are within a time, which may be open.
    pub(super) fn overlap(self, start: Timestamp, end: Option<Timestamp>) -> f64 {
        let end = end.map_or(self.end, |end| end.min(self.end));
        end.since_ms(start.max(self.start)) as f64 / 1000.0
    }
}

/// Seconds that a job ran in a period, without those in which it was stopped.
pub(crate) fn ran_s(job: &AcctJob, period: Period, now: Timestamp) -> f64 {
    let Some(start) = job.start else { return 0.0 };
    let span = RunSpan {
        start,
        end: job.end.unwrap_or(now),
        suspended_ms: job.suspended_ms,
    };
    span.ran_ms(period.start, period.end) as f64 / 1000.0
}

/// Milliseconds times how much of a trackable resource there was.
pub(super) fn used_ms(row: &UsageRow, tres: &str) -> u64 {
    match tres {
        "cpu" | "billing" => row.cpu_ms,
        "mem" => row.mem_mib_ms,
        "node" => row.node_ms,
        other => {
            let device = row.devices.iter().find(|(name, _)| name == other);
            device.map_or(0, |(_, ms)| *ms)
        }
    }
}

/// Amount of a trackable resource that a job has.
pub(crate) fn has(job: &AcctJob, tres: &str) -> f64 {
    match tres {
        "cpu" | "billing" => f64::from(job.alloc_cpus),
        "mem" => job.alloc_mem_mib as f64,
        "node" => f64::from(job.alloc_nodes),
        other => {
            let gres = job.gres.iter().find(|(name, _)| name == other);
            gres.map_or(0.0, |(_, count)| *count as f64)
        }
    }
}

/// Trackable resources that every cluster has, in Slurm's order.
pub(super) const TRES: [&str; 8] = [
    "cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_names_and_beginnings() {
        for (word, name) in [
            ("SecPer", "Seconds/Percentage of Total"),
            ("minper", "Minutes/Percentage of Total"),
            ("HourPer", "Hours/Percentage of Total"),
            ("s", "Seconds"),
            ("Minutes", "Minutes"),
            ("hour", "Hours"),
            ("per", "Percentage of Total"),
        ] {
            let format = TimeFormat::parse(word);
            assert_eq!(
                format.map(TimeFormat::name).as_deref(),
                Some(name),
                "{word}"
            );
        }
        for word in ["", "x", "hoursper", "percents"] {
            assert_eq!(TimeFormat::parse(word), None, "{word}");
        }
    }

    #[test]
    fn amounts_as_slurm_rounds_them() {
        let text = |word: &str| {
            TimeFormat::parse(word)
                .unwrap_or_default()
                .text(94.0, 18752.0)
        };
        assert_eq!(text("Minutes"), "2");
        assert_eq!(text("Hours"), "0");
        assert_eq!(text("Percent"), "0.50%");
        assert_eq!(text("SecPer"), "94(0.50%)");
        assert_eq!(MINUTES.text(1.0, 0.0), "0");
        assert_eq!(MINUTES.text(-0.0, 1.0), "0");
    }
}
