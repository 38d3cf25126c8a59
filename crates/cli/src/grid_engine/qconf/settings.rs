//! The configuration of the cluster and of the scheduler: what slurm.conf has, in the rows of `qconf -sconf` and `-ssconf`. Rows that
//! stand for nothing here have the value by which Grid Engine switches them off.

use muster_conf::grid_engine::Mapping;

/// ShownSettings by Slurm's names, as `scontrol show config` has them.
pub(super) struct ShownSettings<'s> {
    pub(super) pairs: &'s [(String, String)],
    pub(super) mapping: &'s Mapping,
    /// Each has a job that resources are reserved for.
    pub(super) partitions: usize,
}

impl ShownSettings<'_> {
    /// The value of a key; `none` where it has none.
    fn text(&self, key: &str) -> &str {
        let found = self
            .pairs
            .iter()
            .find(|(own, _)| own.eq_ignore_ascii_case(key));
        match found.map_or("", |(_, value)| value) {
            "" | "(null)" | "NONE" => "none",
            value => value,
        }
    }

    fn number(&self, key: &str) -> u64 {
        self.text(key).parse().unwrap_or(0)
    }

    /// A span: `300 sec`, `00:05:00`, `7-00:00:00`.
    fn seconds(&self, key: &str) -> u64 {
        let text = self.text(key).trim_end_matches(" sec");
        let (days, clock) = text.split_once('-').unwrap_or(("0", text));
        let parts = clock.split(':').map(|part| part.parse().unwrap_or(0));
        let clock = parts.fold(0_u64, |sum, part| {
            sum.saturating_mul(60).saturating_add(part)
        });
        let days: u64 = days.parse().unwrap_or(0);
        days.saturating_mul(86_400).saturating_add(clock)
    }

    fn has_word(&self, key: &str, word: &str) -> bool {
        let mut words = self.text(key).split(',');
        words.any(|own| own.trim().eq_ignore_ascii_case(word))
    }

    /// `qconf -ssconf`.
    pub(super) fn scheduler(&self) -> String {
        let by_factors = self.text("PriorityType") == "priority/multifactor";
        let weight = |key| match by_factors {
            true => format!("{}.000000", self.number(key)),
            false => "0.000000".to_owned(),
        };
        let (has_shares, sorts_by_load) = (
            by_factors && self.number("PriorityWeightFairShare") > 0,
            self.has_word("SelectTypeParameters", "CR_LLN"),
        );
        let of = |key: &str| match key {
            "queue_sort_method" if sorts_by_load => "load".to_owned(),
            "queue_sort_method" => "seqno".to_owned(),
            "params" => self.text("SchedulerParameters").to_owned(),
            "reprioritize_interval" if by_factors => {
                short_clock(self.seconds("PriorityCalcPeriod"))
            }
            "reprioritize_interval" => short_clock(0),
            "halftime" => (self.seconds("PriorityDecayHalfLife") / 3600).to_string(),
            "policy_hierarchy" if has_shares => "S".to_owned(),
            "policy_hierarchy" => "NONE".to_owned(),
            "weight_ticket" => weight("PriorityWeightFairShare"),
            "weight_waiting_time" => weight("PriorityWeightAge"),
            "max_reservation" => self.partitions.to_string(),
            _ => "none".to_owned(),
        };
        rows(&SCHEDULER, 33, of)
    }

    /// `qconf -sconf`.
    pub(super) fn global(&self) -> String {
        let has_associations = ["associations", "limits", "qos", "safe"]
            .iter()
            .any(|own| self.has_word("AccountingStorageEnforce", own));
        let keeps_jobs = self.text("AccountingStorageType") != "accounting_storage/none";
        let of = |key: &str| match key {
            "execd_spool_dir" => self.text("SlurmdSpoolDir").to_owned(),
            "mailer" => self.text("MailProg").to_owned(),
            "prolog" => self.text("Prolog").to_owned(),
            "epilog" => self.text("Epilog").to_owned(),
            "enforce_project" | "enforce_user" => has_associations.to_string(),
            SILENCE_LIMIT => long_clock(self.seconds("SlurmdTimeout")),
            // Jobs of a node that is lost run again as soon as it counts as lost.
            "reschedule_unknown" => long_clock(u64::from(self.text("JobRequeue") == "1")),
            "loglevel" => match self.text("SlurmctldDebug") {
                "quiet" | "fatal" | "error" => "log_err".to_owned(),
                _ => "log_info".to_owned(),
            },
            "reporting_params" => format!("accounting={keeps_jobs} reporting=false"),
            "max_aj_tasks" => self.number("MaxArraySize").saturating_sub(1).to_string(),
            "max_jobs" => self.number("MaxJobCount").to_string(),
            "jsv_url" => self
                .mapping
                .jsv
                .clone()
                .unwrap_or_else(|| "none".to_owned()),
            "jsv_allowed_mod" => match &self.mapping.jsv_allowed_mod {
                Some(options) if !options.is_empty() => options.join(","),
                _ => "none".to_owned(),
            },
            _ => "none".to_owned(),
        };
        format!("#global:\n{}", rows(&GLOBAL, 28, of))
    }
}

/// Writes rows; those without a value get the one of `own`.
fn rows(all: &[(&str, &str)], width: usize, own: impl Fn(&str) -> String) -> String {
    let value = |(key, same): &(&str, &str)| match *same {
        "" => own(key),
        same => same.to_owned(),
    };
    let line = |row: &(&str, &str)| format!("{:<width$} {}\n", row.0, value(row));
    all.iter().map(line).collect()
}

/// `0:5:0`.
fn short_clock(seconds: u64) -> String {
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours}:{minutes}:{}", seconds % 60)
}

/// `00:05:00`.
fn long_clock(seconds: u64) -> String {
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

/// Rows of the scheduler in Grid Engine's order. The scheduler runs whenever something has changed. A step of `-p` counts as one point
/// of priority, which is a weight of 2047 for all steps that there are.
const SCHEDULER: [(&str, &str); 35] = [
    ("algorithm", "default"),
    ("schedule_interval", "0:0:0"),
    ("maxujobs", "0"),
    ("queue_sort_method", ""),
    ("job_load_adjustments", "none"),
    ("load_adjustment_decay_time", "0:0:0"),
    ("load_formula", "none"),
    ("schedd_job_info", "true"),
    ("flush_submit_sec", "1"),
    ("flush_finish_sec", "1"),
    ("params", ""),
    ("reprioritize_interval", ""),
    ("halftime", ""),
    ("usage_weight_list", "cpu=1.000000,mem=0.000000,io=0.000000"),
    ("compensation_factor", "0.000000"),
    ("weight_user", "0.000000"),
    ("weight_project", "0.000000"),
    ("weight_department", "0.000000"),
    ("weight_job", "0.000000"),
    ("weight_tickets_functional", "0"),
    ("weight_tickets_share", "0"),
    ("share_override_tickets", "FALSE"),
    ("share_functional_shares", "FALSE"),
    ("max_functional_jobs_to_schedule", "0"),
    ("report_pjob_tickets", "FALSE"),
    ("max_pending_tasks_per_job", "0"),
    ("halflife_decay_list", "none"),
    ("policy_hierarchy", ""),
    ("weight_ticket", ""),
    ("weight_waiting_time", ""),
    ("weight_deadline", "0.000000"),
    ("weight_urgency", "0.000000"),
    ("weight_priority", "2047.000000"),
    ("max_reservation", ""),
    ("default_duration", "INFINITY"),
];

/// Time for which a host may send nothing.
const SILENCE_LIMIT: &str = "max_unheard";

/// Rows of the cluster in Grid Engine's order.
const GLOBAL: [(&str, &str); 48] = [
    ("execd_spool_dir", ""),
    ("mailer", ""),
    ("xterm", "none"),
    ("load_sensor", "none"),
    ("prolog", ""),
    ("epilog", ""),
    ("shell_start_mode", "unix_behavior"),
    ("login_shells", "none"),
    ("min_uid", "0"),
    ("min_gid", "0"),
    ("user_lists", "none"),
    ("xuser_lists", "none"),
    ("projects", "none"),
    ("xprojects", "none"),
    ("enforce_project", ""),
    ("enforce_user", ""),
    ("load_report_time", "00:00:00"),
    (SILENCE_LIMIT, ""),
    ("reschedule_unknown", ""),
    ("loglevel", ""),
    ("administrator_mail", "none"),
    ("set_token_cmd", "none"),
    ("pag_cmd", "none"),
    ("token_extend_time", "none"),
    ("shepherd_cmd", "none"),
    ("qmaster_params", "none"),
    ("execd_params", "none"),
    ("reporting_params", ""),
    ("finished_jobs", "0"),
    ("gid_range", "none"),
    ("qlogin_command", "builtin"),
    ("qlogin_daemon", "builtin"),
    ("rlogin_command", "builtin"),
    ("rlogin_daemon", "builtin"),
    ("rsh_command", "builtin"),
    ("rsh_daemon", "builtin"),
    ("max_aj_instances", "0"),
    ("max_aj_tasks", ""),
    ("max_u_jobs", "0"),
    ("max_jobs", ""),
    ("auto_user_oticket", "0"),
    ("auto_user_fshare", "0"),
    ("auto_user_default_project", "none"),
    ("auto_user_delete_time", "0"),
    ("delegated_file_staging", "false"),
    ("reprioritize", "0"),
    ("jsv_url", ""),
    ("jsv_allowed_mod", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(
        pairs: &[(&str, &str)],
        show: impl for<'s> Fn(&'s ShownSettings<'s>) -> String,
    ) -> String {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let pairs: Vec<(String, String)> = pairs.iter().map(own).collect();
        let mapping = Mapping::default();
        let settings = ShownSettings {
            pairs: &pairs,
            mapping: &mapping,
            partitions: 3,
        };
        show(&settings)
    }

    #[test]
    fn what_slurm_conf_has_is_in_the_rows_of_the_scheduler() {
        let text = shown(
            &[
                ("PriorityType", "priority/multifactor"),
                ("PriorityWeightAge", "1000"),
                ("PriorityWeightFairShare", "500"),
                ("PriorityDecayHalfLife", "14-12:00:00"),
                ("PriorityCalcPeriod", "00:05:00"),
                ("SchedulerParameters", "(null)"),
                ("SelectTypeParameters", "CR_CPU,CR_LLN"),
            ],
            |own| own.scheduler(),
        );
        for row in [
            "algorithm                         default",
            "queue_sort_method                 load",
            "params                            none",
            "reprioritize_interval             0:5:0",
            "halftime                          348",
            "policy_hierarchy                  S",
            "weight_ticket                     500.000000",
            "weight_waiting_time               1000.000000",
            "max_reservation                   3",
        ] {
            assert!(text.lines().any(|own| own == row), "{row}\n{text}");
        }
        let basic = shown(&[("PriorityWeightAge", "7")], |own| own.scheduler());
        assert!(basic.contains("weight_waiting_time               0.000000\n"));
    }

    #[test]
    fn what_slurm_conf_has_is_in_the_rows_of_the_cluster() {
        let text = shown(
            &[
                ("Prolog", "(null)"),
                ("Epilog", "/etc/epilog"),
                ("SlurmdTimeout", "300 sec"),
                ("AccountingStorageEnforce", "associations,limits"),
                ("MaxArraySize", "1001"),
                ("JobRequeue", "1"),
            ],
            |own| own.global(),
        );
        assert!(text.starts_with("#global:\nexecd_spool_dir              none\n"));
        for row in [
            "prolog                       none",
            "epilog                       /etc/epilog",
            "enforce_project              true",
            &format!("{SILENCE_LIMIT:<28} 00:05:00"),
            "reschedule_unknown           00:00:01",
            "max_aj_tasks                 1000",
        ] {
            assert!(text.lines().any(|own| own == row), "{row}\n{text}");
        }
    }
}
