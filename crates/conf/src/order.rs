//! From the loaded files to what the order of jobs depends on.

use crate::model::{Config, PriorityType};
use crate::value::{self, DurationLimit};
use muster_model::order_config::{Multifactor, NoNormalFlags, OrderConfig, UsageReset};
use muster_model::preemption::{PreemptMode, PreemptType, Preemption, parse_mode};

impl Config {
    /// Settings of priority, preemption and reservations.
    pub(crate) fn order_config(&self) -> OrderConfig {
        let enforces = |word: &str| self.accounting_enforce.contains(&word);
        let flags = self.words("AccountingStoreFlags");
        let keeps = |word: &str| flags.iter().any(|flag| flag == word);
        OrderConfig {
            resv_over_run_s: self.limits.resv_over_run_min.map_or(u32::MAX, |minutes| {
                u32::try_from(minutes.saturating_mul(60)).unwrap_or(u32::MAX)
            }),
            multifactor: (self.priority == PriorityType::Multifactor).then(|| self.multifactor()),
            enforce_associations: enforces("associations"),
            enforce_qos: enforces("qos"),
            preemption: self.preemption(),
            enforce_limits: enforces("limits"),
            time_slice_s: self.time_slice_s(),
            enforce_safe: enforces("safe"),
            enforce_wckeys: enforces("wckeys"),
            track_wckeys: self.tracks_wckeys(),
            no_job_rows: enforces("nojobs"),
            no_step_rows: enforces("nosteps"),
            keeps_scripts: keeps("job_script"),
            keeps_environments: keeps("job_env"),
        }
    }

    /// `TrackWCKey`, which enforcing keys sets.
    pub(crate) fn tracks_wckeys(&self) -> bool {
        let says = self.text("TrackWCKey").unwrap_or_default();
        let says = ["yes", "true", "up", "1"].contains(&says.to_ascii_lowercase().as_str());
        says || self.accounting_enforce.contains(&"wckeys")
    }

    /// Jobs take turns on CPUs that they share.
    fn time_slice_s(&self) -> Option<u32> {
        let modes = self.words("PreemptMode");
        let gang = modes.iter().any(|mode| mode == "gang");
        let slice = self.text("SchedulerTimeSlice");
        gang.then(|| slice.and_then(|s| s.trim().parse().ok()).unwrap_or(30))
    }

    fn preemption(&self) -> Preemption {
        let kind = self.text("PreemptType").unwrap_or("none");
        let kind = match kind.rsplit('/').next().unwrap_or("").to_ascii_lowercase() {
            kind if kind == "partition_prio" => PreemptType::PartitionPrio,
            kind if kind == "qos" => PreemptType::Qos,
            _ => PreemptType::None,
        };
        let mode = self.text("PreemptMode").and_then(parse_mode);
        let (mode, within) = mode.unwrap_or_default();
        let own = self.words("PreemptParameters");
        // Older releases have these words in `SchedulerParameters`.
        let older = self.words("SchedulerParameters");
        let signals = self.words("SlurmctldParameters");
        let says = |word: &str| {
            own.iter().any(|w| w == word) || older.iter().any(|w| *w == format!("preempt_{word}"))
        };
        let exempt_s = match self.text("PreemptExemptTime") {
            // -1 is none.
            Some("-1") | None => 0,
            Some(_) => self.clock_s("PreemptExemptTime", 0),
        };
        Preemption {
            kind,
            mode: mode.unwrap_or(PreemptMode::Off),
            within,
            exempt_s: u32::try_from(exempt_s).unwrap_or(u32::MAX),
            youngest_first: says("youngest_first"),
            min_exempt_priority: own
                .iter()
                .find_map(|w| w.strip_prefix("min_exempt_priority=")?.parse().ok()),
            send_user_signal: says("send_user_signal")
                || signals.iter().any(|w| w == "preempt_send_user_signal"),
            strict_order: says("strict_order"),
            reclaim_licenses: own.iter().any(|w| w == "reclaim_licenses"),
        }
    }

    /// A list's words in lower case.
    fn words(&self, key: &str) -> Vec<String> {
        let text = self.text(key).unwrap_or_default();
        text.split(',')
            .map(|w| w.trim().to_ascii_lowercase())
            .collect()
    }

    fn multifactor(&self) -> Multifactor {
        let weight = |key: &str| self.number_of(key);
        let flags = self.words("PriorityFlags");
        let flag = |name: &str| flags.iter().any(|f| f == name);
        let tres = self.text("PriorityWeightTRES").unwrap_or_default();
        Multifactor {
            weight_age: weight("PriorityWeightAge"),
            weight_assoc: weight("PriorityWeightAssoc"),
            weight_fair_share: weight("PriorityWeightFairShare"),
            weight_job_size: weight("PriorityWeightJobSize"),
            weight_partition: weight("PriorityWeightPartition"),
            weight_qos: weight("PriorityWeightQOS"),
            weight_tres: muster_model::factors::tres_weights(tres)
                .map(|(name, weight)| (name.to_owned(), weight))
                .collect(),
            max_age_s: self.clock_s("PriorityMaxAge", 7 * 86_400).max(1),
            calc_period_s: self.clock_s("PriorityCalcPeriod", 300).max(1),
            half_life_s: self.clock_s("PriorityDecayHalfLife", 7 * 86_400),
            usage_reset: match self
                .text("PriorityUsageResetPeriod")
                .unwrap_or("NONE")
                .to_ascii_uppercase()
                .as_str()
            {
                "NOW" => UsageReset::Now,
                "DAILY" => UsageReset::Daily,
                "WEEKLY" => UsageReset::Weekly,
                "MONTHLY" => UsageReset::Monthly,
                "QUARTERLY" => UsageReset::Quarterly,
                "YEARLY" => UsageReset::Yearly,
                _ => UsageReset::None,
            },
            favor_small: self
                .text("PriorityFavorSmall")
                .is_some_and(|v| ["yes", "true", "1"].contains(&v.to_ascii_lowercase().as_str())),
            fair_tree: !flag("no_fair_tree") && !flag("depth_oblivious"),
            dampening: self.number_of("FairShareDampeningFactor").max(1),
            accrue_always: flag("accrue_always"),
            small_relative_to_time: flag("small_relative_to_time"),
            no_normal: NoNormalFlags {
                assoc: flag("no_normal_all") || flag("no_normal_assoc"),
                partition: flag("no_normal_all") || flag("no_normal_part"),
                qos: flag("no_normal_all") || flag("no_normal_qos"),
                tres: flag("no_normal_all") || flag("no_normal_tres"),
            },
            utc_offset_s: 0,
            max_tres: flag("max_tres"),
            max_tres_gres: flag("max_tres_gres"),
            calculate_running: flag("calculate_running"),
            depth_oblivious: flag("depth_oblivious"),
            incr_only: flag("incr_only"),
        }
    }

    /// A time in seconds; unlimited is the most there is.
    fn clock_s(&self, key: &str, default: u64) -> u64 {
        match self.text(key).map(value::parse_time_limit) {
            Some(Ok(DurationLimit::Seconds(seconds))) => seconds,
            Some(Ok(DurationLimit::Unlimited)) => u64::from(u32::MAX),
            Some(Err(_)) | None => default,
        }
    }

    fn number_of(&self, key: &str) -> u32 {
        self.text(key)
            .and_then(|v| v.trim().parse().ok())
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use crate::load_text;
    use std::path::Path;

    /// Each word of `AccountingStorageEnforce`, and its checks: associations, limits, QOS, safe, keys, no jobs, no
    /// steps.
    #[test]
    fn words_of_accounting_storage_enforce() {
        for (words, stands_for) in [
            ("none", "......."),
            ("0", "......."),
            ("1", "a......"),
            ("associations", "a......"),
            ("limits", "al....."),
            ("qos", "a.q...."),
            ("safe", "al.s..."),
            ("wckeys", "a...k.."),
            ("nosteps", "......t"),
            ("nojobs", ".....jt"),
            ("all", "alqsk.."),
            ("all,nojobs", "alqskjt"),
            ("qos,Limits,nosteps", "alq...t"),
        ] {
            let text = format!(
                "ClusterName=c\nSlurmctldHost=h\nNodeName=n CPUs=2\nPartitionName=p Nodes=n Default=YES\n\
                 AccountingStorageEnforce={words}\n"
            );
            let (config, findings) = load_text(Path::new("slurm.conf"), &text);
            assert!(findings.is_empty(), "{words}: {findings:?}");
            let order = config.order_config();
            let shown = [
                (order.enforce_associations, 'a'),
                (order.enforce_limits, 'l'),
                (order.enforce_qos, 'q'),
                (order.enforce_safe, 's'),
                (order.enforce_wckeys, 'k'),
                (order.no_job_rows, 'j'),
                (order.no_step_rows, 't'),
            ];
            let shown: String = shown
                .map(|(is, c)| if is { c } else { '.' })
                .iter()
                .collect();
            assert_eq!(shown, stands_for, "{words}");
            // Keys that are enforced are tracked.
            assert_eq!(order.track_wckeys, order.enforce_wckeys, "{words}");
        }
    }

    /// Each ignored key is named, with the alternative.
    #[test]
    fn what_is_ignored_says_why() {
        let (line, why) = ("PrioritySiteFactorPlugin=x", "SiteFactor=");
        let text = format!(
            "ClusterName=c\nSlurmctldHost=h\nNodeName=n CPUs=2\n\
             PartitionName=p Nodes=n Default=YES\n{line}\n"
        );
        let (_, findings) = load_text(Path::new("slurm.conf"), &text);
        let [finding] = findings.as_slice() else {
            panic!("{findings:?}");
        };
        assert!(finding.help.contains(why), "{finding:?}");
    }
}
