//! Settings of QOS.

use super::LimitForm::{self, Count, Time, Tres};
use super::{
    bad_time, known_qos, limit_asks, limits, millionths, optional, printed, run_time_s, seconds,
};
use crate::sacctmgr::book::Book;
use crate::sacctmgr::words::Word;
use crate::sacctmgr::{amounts_text, clock, clock_of_minutes};
use muster_model::account_limits::TresAmounts;
use muster_model::command::ListEdit;
use muster_model::command::QosAsk;

/// A key of a QOS' settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum QosKey {
    Description,
    Flags,
    GraceTime,
    Preempt,
    PreemptMode,
    PreemptExempt,
    Priority,
    RawUsage,
    UsageFactor,
    UsageThreshold,
    LimitFactor,
    Limit(&'static str, LimitForm),
}

use QosKey as Q;

const fn of_qos(name: &'static str, form: LimitForm) -> Q {
    Q::Limit(name, form)
}

/// Keys of QOS.
pub(in super::super) const QOS: &[(&str, usize, Q)] = &[
    ("Description", 1, Q::Description),
    ("Flags", 2, Q::Flags),
    ("GraceTime", 3, Q::GraceTime),
    ("GrpCPUMins", 7, of_qos("GrpCPUMins", Count)),
    ("GrpCPURunMins", 7, of_qos("GrpCPURunMins", Count)),
    ("GrpCPUs", 6, of_qos("GrpCPUs", Count)),
    ("GrpJobsAccrue", 8, of_qos("GrpJobsAccrue", Count)),
    ("GrpJobs", 4, of_qos("GrpJobs", Count)),
    ("GrpMemory", 4, of_qos("GrpMemory", Count)),
    ("GrpNodes", 4, of_qos("GrpNodes", Count)),
    ("GrpSubmitJobs", 4, of_qos("GrpSubmitJobs", Count)),
    ("GrpTRESMins", 8, of_qos("GrpTRESMins", Tres)),
    ("GrpTRESRunMins", 8, of_qos("GrpTRESRunMins", Tres)),
    ("GrpTRES", 7, of_qos("GrpTRES", Tres)),
    ("GrpWall", 4, of_qos("GrpWall", Time)),
    ("LimitFactor", 6, Q::LimitFactor),
    ("MaxCPUMinsPerJob", 7, of_qos("MaxCPUMins", Count)),
    ("MaxCPUsPerUser", 11, of_qos("MaxCPUsPerUser", Count)),
    ("MaxCPUsPU", 9, of_qos("MaxCPUsPerUser", Count)),
    ("MaxCPUsPerJob", 7, of_qos("MaxCPUs", Count)),
    (
        "MaxCPURunMinsPerUser",
        7,
        of_qos("MaxCPURunMinsPerUser", Count),
    ),
    (
        "MaxJobsAccruePerAccount",
        17,
        of_qos("MaxJobsAccruePerAccount", Count),
    ),
    (
        "MaxJobsAccruePA",
        15,
        of_qos("MaxJobsAccruePerAccount", Count),
    ),
    (
        "MaxJobsAccruePerUser",
        8,
        of_qos("MaxJobsAccruePerUser", Count),
    ),
    ("MaxJobsAccruePU", 15, of_qos("MaxJobsAccruePerUser", Count)),
    ("MaxJobsPerAccount", 11, of_qos("MaxJobsPerAccount", Count)),
    ("MaxJobsPA", 9, of_qos("MaxJobsPerAccount", Count)),
    ("MaxJobsPerUser", 4, of_qos("MaxJobsPerUser", Count)),
    ("MaxJobsPU", 9, of_qos("MaxJobsPerUser", Count)),
    ("MaxNodesPerUser", 12, of_qos("MaxNodesPerUser", Count)),
    ("MaxNodesPU", 10, of_qos("MaxNodesPerUser", Count)),
    ("MaxNodesPerJob", 4, of_qos("MaxNodes", Count)),
    (
        "MaxSubmitJobsPerAccount",
        17,
        of_qos("MaxSubmitJobsPerAccount", Count),
    ),
    (
        "MaxSubmitJobsPA",
        15,
        of_qos("MaxSubmitJobsPerAccount", Count),
    ),
    ("MaxSubmitPA", 11, of_qos("MaxSubmitJobsPerAccount", Count)),
    (
        "MaxSubmitJobsPerUser",
        4,
        of_qos("MaxSubmitJobsPerUser", Count),
    ),
    ("MaxSubmitJobsPU", 15, of_qos("MaxSubmitJobsPerUser", Count)),
    ("MaxSubmitPU", 11, of_qos("MaxSubmitJobsPerUser", Count)),
    ("MaxTRESMinsPerJob", 8, of_qos("MaxTRESMins", Tres)),
    ("MaxTRESMinsPJ", 8, of_qos("MaxTRESMins", Tres)),
    ("MaxTRESPerAccount", 11, of_qos("MaxTRESPerAccount", Tres)),
    ("MaxTRESPA", 9, of_qos("MaxTRESPerAccount", Tres)),
    ("MaxTRESPerNode", 11, of_qos("MaxTRESPerNode", Tres)),
    ("MaxTRESPN", 9, of_qos("MaxTRESPerNode", Tres)),
    ("MaxTRESPerUser", 11, of_qos("MaxTRESPerUser", Tres)),
    ("MaxTRESPU", 9, of_qos("MaxTRESPerUser", Tres)),
    (
        "MaxTRESRunMinsPerAccount",
        18,
        of_qos("MaxTRESRunMinsPerAccount", Tres),
    ),
    (
        "MaxTRESRunMinsPA",
        16,
        of_qos("MaxTRESRunMinsPerAccount", Tres),
    ),
    (
        "MaxTRESRunMinsPerUser",
        8,
        of_qos("MaxTRESRunMinsPerUser", Tres),
    ),
    (
        "MaxTRESRunMinsPU",
        16,
        of_qos("MaxTRESRunMinsPerUser", Tres),
    ),
    ("MaxTRESPerJob", 7, of_qos("MaxTRES", Tres)),
    ("MaxTRESPJ", 9, of_qos("MaxTRES", Tres)),
    ("MaxWallDurationPerJob", 4, of_qos("MaxWall", Time)),
    ("MinPrioThreshold", 4, of_qos("MinPrioThreshold", Count)),
    ("MinTRESPerJob", 7, of_qos("MinTRES", Tres)),
    ("PreemptMode", 8, Q::PreemptMode),
    ("PreemptExemptTime", 8, Q::PreemptExempt),
    ("Preempt", 7, Q::Preempt),
    ("Priority", 3, Q::Priority),
    ("RawUsage", 7, Q::RawUsage),
    ("UsageFactor", 6, Q::UsageFactor),
    ("UsageThreshold", 6, Q::UsageThreshold),
];

/// Settings of a QOS.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in super::super) struct QosSettings {
    /// As they are asked for.
    pub(in super::super) ask: QosAsk,
    /// Whether use is to be forgotten.
    pub(in super::super) resets_usage: bool,
    cleared: Vec<(String, String)>,
}

/// Flags of a QOS in the order in which they are listed, beside those that are obeyed.
const FLAGS: [&str; 10] = [
    "DenyOnLimit",
    "EnforceUsageThreshold",
    "NoReserve",
    "PartitionMaxNodes",
    "PartitionMinNodes",
    "OverPartQOS",
    "PartitionTimeLimit",
    "RequiresReservation",
    "NoDecay",
    "UsageFactorSafe",
];

/// Flags in the order in which they are listed.
pub(in super::super) fn flags_text(flags: &[String]) -> String {
    let known = FLAGS
        .iter()
        .filter(|flag| flags.iter().any(|own| own == *flag));
    known.copied().collect::<Vec<_>>().join(",")
}

impl QosSettings {
    pub(in super::super) fn is_empty(&self) -> bool {
        *self == QosSettings::default()
    }

    /// Takes a setting, or returns its error.
    pub(in super::super) fn take(
        &mut self,
        key: Q,
        word: &Word,
        book: &Book,
    ) -> Result<(), String> {
        let value = word.value.as_str();
        let ask = &mut self.ask;
        match key {
            Q::Description => ask.description = Some(value.to_lowercase()),
            Q::Flags => {
                let outer = word
                    .text
                    .split_once('=')
                    .and_then(|(key, _)| key.chars().next_back());
                let mut names = Vec::new();
                for name in word.list().iter().filter(|name| *name != "-1") {
                    let bare = name.trim_start_matches(['+', '-']);
                    let found = FLAGS.iter().find(|flag| flag.eq_ignore_ascii_case(bare));
                    let Some(flag) = found else {
                        return Err(format!(
                            " Unknown QOS flag used in:\n  '{value}'\n Valid QOS flags are\n  '{}'",
                            FLAGS.join(",")
                        ));
                    };
                    names.push((*flag).to_owned());
                }
                let inner = value
                    .chars()
                    .next()
                    .filter(|c| "+-".contains(*c) && value != "-1");
                ask.flags = Some(ListEdit {
                    sign: outer.filter(|c| "+-".contains(*c)).or(inner),
                    names,
                });
            }
            Q::GraceTime => {
                let seconds = match value {
                    "-1" => Some(0),
                    _ => seconds(value),
                };
                ask.grace_time_s = Some(seconds.ok_or_else(|| bad_time("GraceTime", word))?);
            }
            Q::Preempt => {
                let names: Vec<String> = word
                    .list()
                    .iter()
                    .map(|name| book.all.qos_key(name.trim_start_matches(['+', '-'])))
                    .filter(|name| !name.is_empty())
                    .collect();
                names.iter().try_for_each(|name| known_qos(name, book))?;
                ask.preempt = Some(ListEdit {
                    sign: word.sign,
                    names,
                });
            }
            Q::PreemptMode => {
                let known = [
                    "cluster", "off", "cancel", "requeue", "suspend", "gang", "within",
                ];
                let words: Vec<String> = value
                    .split(',')
                    .map(|word| word.trim().to_ascii_lowercase())
                    .collect();
                if words.iter().any(|word| !known.contains(&word.as_str())) {
                    return Err(format!(" Bad Preempt Mode given: {}", word.text));
                }
                ask.preempt_mode = Some(value.to_owned());
            }
            Q::PreemptExempt => {
                let seconds = match value {
                    "-1" => None,
                    _ => {
                        Some(run_time_s(value).ok_or_else(|| bad_time("PreemptExemptTime", word))?)
                    }
                };
                ask.preempt_exempt_s = Some(seconds);
            }
            Q::Priority => ask.priority = Some(optional("Priority", value)?.unwrap_or(0)),
            Q::RawUsage => {
                if value.parse::<f64>() != Ok(0.0) {
                    let text = "sacctmgr: error: Raw usage can only be set to 0 (zero)";
                    return Err(text.to_owned());
                }
                self.resets_usage = true;
            }
            Q::UsageFactor => {
                let factor = millionths("UsageFactor", value)?;
                ask.usage_factor_millionths = Some(factor.unwrap_or(1_000_000));
            }
            Q::UsageThreshold => {
                ask.usage_threshold_millionths = Some(millionths("UsageThreshold", value)?);
            }
            Q::LimitFactor => {
                ask.limit_factor_millionths = Some(millionths("LimitFactor", value)?);
            }
            Q::Limit(name, form) => {
                let asks = limit_asks((name, form), word, &mut self.cleared, book)?;
                ask.limits.extend(asks);
            }
        }
        Ok(())
    }

    /// The lines of the settings, in Slurm's order.
    pub(in super::super) fn lines(&self) -> String {
        let (ask, l) = (&self.ask, limits(&self.ask.limits, true));
        let cleared = |name: &str| self.cleared.iter().any(|(own, _)| own == name);
        let count = |name: &str, value: Option<u32>| match value {
            Some(value) => value.to_string(),
            None if cleared(name) => "NONE".to_owned(),
            None => String::new(),
        };
        let time = |value: Option<u64>| value.map_or(String::new(), clock_of_minutes);
        let tres = |of: &TresAmounts| amounts_text(of);
        let names = |list: &Option<ListEdit>| {
            let list = list.as_ref();
            list.map_or(String::new(), |edit| edit.names.join(","))
        };
        let flags = ask.flags.as_ref().map(|edit| flags_text(&edit.names));
        let factor = |millionths: u64| format!("{:.4}", millionths as f64 / 1e6);
        let all = [
            ("Flags", 25, flags.unwrap_or_default()),
            (
                "GraceTime",
                25,
                ask.grace_time_s.map_or(String::new(), |s| s.to_string()),
            ),
            ("GrpJobs", 25, count("GrpJobs", l.grp_jobs)),
            (
                "GrpJobsAccrue",
                25,
                count("GrpJobsAccrue", l.grp_jobs_accrue),
            ),
            ("GrpSubmitJobs", 25, count("GrpSubmitJobs", l.grp_submit)),
            ("GrpTRES", 25, tres(&l.grp_tres)),
            ("GrpTRESMins", 25, tres(&l.grp_tres_mins)),
            ("GrpTRESRunMins", 25, tres(&l.grp_tres_run_mins)),
            ("GrpWall", 25, time(l.grp_wall_min)),
            (
                "MaxJobsAccruePerAccount",
                25,
                count("MaxJobsAccruePerAccount", l.max_jobs_accrue_account),
            ),
            (
                "MaxJobsAccruePerUser",
                25,
                count("MaxJobsAccruePerUser", l.max_jobs_accrue),
            ),
            (
                "MaxJobsPerAccount",
                25,
                count("MaxJobsPerAccount", l.max_jobs_account),
            ),
            ("MaxJobsPerUser", 15, count("MaxJobsPerUser", l.max_jobs)),
            (
                "MaxSubmitJobsPerAccount",
                25,
                count("MaxSubmitJobsPerAccount", l.max_submit_account),
            ),
            (
                "MaxSubmitJobsPerUser",
                25,
                count("MaxSubmitJobsPerUser", l.max_submit),
            ),
            ("MaxTRESPerAccount", 25, tres(&l.max_tres_account)),
            ("MaxTRESPerJob", 25, tres(&l.max_tres)),
            ("MaxTRESPerNode", 25, tres(&l.max_tres_node)),
            ("MaxTRESPerUser", 25, tres(&l.max_tres_user)),
            (
                "MinPrioThresh",
                25,
                count("MinPrioThreshold", l.min_priority),
            ),
            ("MinTRESPerJob", 25, tres(&l.min_tres)),
            ("MaxTRESMins", 25, tres(&l.max_tres_mins)),
            (
                "MaxTRESRUNMinsPerAccount",
                25,
                tres(&l.max_tres_run_mins_account),
            ),
            ("MaxTRESRUNMinsPerUser", 25, tres(&l.max_tres_run_mins_user)),
            ("MaxWall", 25, time(l.max_wall_min.map(u64::from))),
            ("Preempt", 25, names(&ask.preempt)),
            (
                "PreemptMode",
                25,
                ask.preempt_mode
                    .as_ref()
                    .map_or(String::new(), |m| m.to_ascii_uppercase()),
            ),
            (
                "PreemptExemptTime",
                25,
                ask.preempt_exempt_s.flatten().map_or(String::new(), clock),
            ),
            (
                "Priority",
                25,
                ask.priority.map_or(String::new(), |p| p.to_string()),
            ),
            (
                "LimitFactor",
                25,
                ask.limit_factor_millionths
                    .flatten()
                    .map_or(String::new(), factor),
            ),
            (
                "UsageFactor",
                25,
                ask.usage_factor_millionths.map_or(String::new(), factor),
            ),
            (
                "UsageThreshold",
                25,
                ask.usage_threshold_millionths
                    .flatten()
                    .map_or(String::new(), factor),
            ),
        ];
        printed(&all)
    }
}
