//! The words of `SchedulerParameters`: what each does here, or why it has no effect. Slurm's parameters for the most
//! part bound the cost of a pass over all jobs; here a pass costs what has changed, so they have nothing to bound.

use crate::diagnostic::{Findings, Origin, Severity};
use crate::keys::nearest_of;

/// Effect of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterSupport {
    /// The effect in Slurm.
    Works,
    /// Nothing, and why that is no loss.
    Nothing(&'static str),
    /// Nothing, although it would matter.
    Missing(&'static str),
}

/// A word of `SchedulerParameters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterWord {
    /// The word, before an equals sign if there is one.
    pub name: &'static str,
    /// A value follows (`name=value`).
    pub has_value: bool,
    /// Its effect here.
    pub effect: ParameterSupport,
    /// One line about it.
    pub help: &'static str,
}

const fn word(
    name: &'static str,
    has_value: bool,
    effect: ParameterSupport,
    help: &'static str,
) -> ParameterWord {
    ParameterWord {
        name,
        has_value,
        effect,
        help,
    }
}

use ParameterSupport::{Missing, Nothing, Works};

const EVENTS: &str = "a pass runs when something has changed, and looks only at that";
const ALL: &str = "every job is considered: a pass costs what has changed, not how many jobs wait";
const ALWAYS: &str = "that is always so";

/// All of them, those of Slurm and our own.
pub const WORDS: &[ParameterWord] = &[
    word(
        "allow_zero_lic",
        false,
        Missing("jobs that ask for licenses there are not are refused"),
        "accept jobs that ask for more licenses than there are",
    ),
    word(
        "assoc_limit_stop",
        false,
        Missing("jobs over their limits never keep others back"),
        "jobs over limits keep others back",
    ),
    word(
        "batch_sched_delay",
        true,
        Nothing(EVENTS),
        "seconds that a submission may wait for a pass",
    ),
    word(
        "bb_array_stage_cnt",
        true,
        Nothing("there are no burst buffers"),
        "array tasks with burst buffers staged in",
    ),
    word(
        "bf_busy_nodes",
        false,
        Nothing("nodes that are busy are promised before those that are free, always"),
        "promise busy nodes first",
    ),
    word(
        "bf_continue",
        false,
        Nothing("a pass is never interrupted; what changes meanwhile comes with the next"),
        "go on after locks were released",
    ),
    word(
        "bf_hetjob_immediate",
        false,
        Nothing("components of a job are placed together, at once"),
        "start heterogeneous jobs as soon as all parts fit",
    ),
    word(
        "bf_hetjob_prio",
        true,
        Works,
        "priority of heterogeneous jobs by their components: `max`, which is always so, or none",
    ),
    word(
        "bf_interval",
        true,
        Nothing(EVENTS),
        "seconds between passes of the backfill scheduler",
    ),
    word(
        "bf_job_part_count_reserve",
        true,
        Nothing("the first job of every partition has a promise"),
        "jobs of each partition that get promises",
    ),
    word(
        "bf_licenses",
        false,
        Nothing(ALWAYS),
        "backfill counts licenses",
    ),
    word(
        "bf_max_job_array_resv",
        true,
        Nothing("an array is one entry in line, and its first task gets the promise"),
        "tasks of an array that get promises",
    ),
    word(
        "bf_max_job_assoc",
        true,
        Nothing(ALL),
        "jobs of an association that a pass looks at",
    ),
    word(
        "bf_max_job_part",
        true,
        Nothing(ALL),
        "jobs of a partition that a pass looks at",
    ),
    word(
        "bf_max_job_start",
        true,
        Nothing("what one pass leaves the next one starts at once"),
        "jobs that a pass of backfill starts",
    ),
    word(
        "bf_max_job_test",
        true,
        Nothing(ALL),
        "jobs that a pass of backfill looks at",
    ),
    word(
        "bf_max_job_user",
        true,
        Nothing(ALL),
        "jobs of a user that a pass looks at",
    ),
    word(
        "bf_max_job_user_part",
        true,
        Nothing(ALL),
        "jobs of a user in a partition that a pass looks at",
    ),
    word(
        "bf_max_time",
        true,
        Nothing("a pass takes milliseconds"),
        "seconds that a pass may take",
    ),
    word(
        "bf_min_age_reserve",
        true,
        Works,
        "seconds that a job waits before nodes are kept for it",
    ),
    word(
        "bf_min_prio_reserve",
        true,
        Works,
        "least priority of a job that nodes are kept for",
    ),
    word(
        "bf_node_space_size",
        true,
        Nothing("the plan needs no table of fixed size"),
        "entries in the table of the plan",
    ),
    word(
        "bf_one_resv_per_job",
        false,
        Works,
        "a job that waits in several partitions has nodes kept for it in one",
    ),
    word(
        "bf_promises",
        true,
        Works,
        "jobs of each partition that nodes are kept for; 1 unless set, 'all' for conservative backfill (Muster's own)",
    ),
    word(
        "bf_resolution",
        true,
        Nothing("times are exact"),
        "seconds to which the plan rounds",
    ),
    word(
        "bf_running_job_reserve",
        false,
        Nothing("time-sharing and whole nodes are kept apart already"),
        "extra promises for running jobs",
    ),
    word(
        "bf_window",
        true,
        Works,
        "minutes ahead in which nodes are kept for jobs; without bound unless set",
    ),
    word(
        "bf_window_linear",
        true,
        Nothing("the plan holds all ends"),
        "minutes by which the plan grows coarser",
    ),
    word(
        "bf_yield_interval",
        true,
        Nothing("readers do not wait for the scheduler"),
        "how often locks are released",
    ),
    word(
        "bf_yield_sleep",
        true,
        Nothing("readers do not wait for the scheduler"),
        "how long locks are released",
    ),
    word(
        "build_queue_timeout",
        true,
        Nothing("the queue is kept, not built anew"),
        "microseconds to build the queue in",
    ),
    word(
        "correspond_after_task_cnt",
        true,
        Nothing("an array may be of any size for aftercorr"),
        "tasks to split for aftercorr",
    ),
    word(
        "default_queue_depth",
        true,
        Nothing(ALL),
        "jobs that a quick pass looks at",
    ),
    word(
        "defer",
        false,
        Nothing("submissions of a turn are scheduled together; each costs microseconds"),
        "no attempt to start a job when it is submitted",
    ),
    word(
        "defer_batch",
        false,
        Nothing("submissions of a turn are scheduled together; each costs microseconds"),
        "the same for batch jobs",
    ),
    word(
        "delay_boot",
        true,
        Missing("nodes are not rebooted for features"),
        "seconds before nodes are rebooted for features",
    ),
    word(
        "disable_hetjob_steps",
        false,
        Missing("steps may span components"),
        "no steps over several components",
    ),
    word(
        "disable_job_shrink",
        false,
        Works,
        "jobs that run may not give nodes up",
    ),
    word(
        "enable_hetjob_steps",
        false,
        Nothing(ALWAYS),
        "steps over several components",
    ),
    word(
        "enable_user_top",
        false,
        Works,
        "users may use 'scontrol top'",
    ),
    word(
        "Ignore_NUMA",
        false,
        Missing("NUMA domains are as the node reports them"),
        "ignore NUMA domains",
    ),
    word(
        "ignore_prefer_validation",
        false,
        Nothing("what no node has is not preferred, and no job is refused for it"),
        "accept any --prefer",
    ),
    word("max_array_tasks", true, Works, "most tasks of an array"),
    word(
        "max_rpc_cnt",
        true,
        Nothing("requests do not wait for the scheduler"),
        "requests at which scheduling pauses",
    ),
    word(
        "max_sched_time",
        true,
        Nothing("a pass takes milliseconds"),
        "seconds that a quick pass may take",
    ),
    word("max_script_size", true, Works, "bytes of a batch script"),
    word(
        "max_submit_line_size",
        true,
        Works,
        "bytes of the command line of a job",
    ),
    word(
        "max_switch_wait",
        true,
        Works,
        "seconds that jobs may wait for few leaf switches; 300 unless set",
    ),
    word(
        "no_backup_scheduling",
        false,
        Nothing("a controller that is not in charge does not schedule"),
        "a backup controller starts nothing",
    ),
    word(
        "no_env_cache",
        false,
        Nothing("environments are not cached"),
        "no cached environments",
    ),
    word(
        "no_predict_run_times",
        false,
        Works,
        "plan by time limits alone (Muster's own)",
    ),
    word(
        "no_pull",
        false,
        Works,
        "the answer to a job's end does not carry the next job: for measurements (Muster's own)",
    ),
    word(
        "nohold_on_prolog_fail",
        false,
        Works,
        "requeue, not hold, jobs whose prolog fails",
    ),
    word(
        "pack_serial_at_end",
        false,
        Missing("jobs of one CPU are placed like others, on nodes that are in use already"),
        "serial jobs on the last nodes",
    ),
    word(
        "partition_job_depth",
        true,
        Nothing(ALL),
        "jobs of a partition that a quick pass looks at",
    ),
    word(
        "predict_run_times",
        false,
        Works,
        "predict how long jobs run, to plan by (Muster's own)",
    ),
    word(
        "preempt_reorder_count",
        true,
        Nothing("the fewest jobs of the lowest rank make room, whatever their order"),
        "attempts at reordering jobs to preempt",
    ),
    word(
        "preempt_strict_order",
        false,
        Works,
        "preempt in order of priority alone",
    ),
    word(
        "preempt_youngest_first",
        false,
        Works,
        "preempt the youngest first",
    ),
    word(
        "reduce_completing_frag",
        false,
        Nothing("completing nodes hold up nobody else"),
        "limits to what CompleteWait holds up",
    ),
    word(
        "requeue_setup_env_fail",
        false,
        Nothing("environments are captured at submission"),
        "requeue jobs whose environment cannot be set up",
    ),
    word(
        "salloc_wait_nodes",
        false,
        Nothing("an allocation starts when its nodes answer"),
        "salloc waits for all nodes",
    ),
    word(
        "sbatch_wait_nodes",
        false,
        Nothing("an allocation starts when its nodes answer"),
        "sbatch waits for all nodes",
    ),
    word(
        "sched_interval",
        true,
        Nothing(EVENTS),
        "seconds between passes over all jobs",
    ),
    word(
        "sched_max_job_start",
        true,
        Nothing("what one pass leaves the next one starts at once"),
        "jobs that a pass starts",
    ),
    word(
        "sched_min_interval",
        true,
        Nothing("what happens while a pass runs is one pass afterwards"),
        "microseconds between passes",
    ),
    word(
        "spec_cores_first",
        false,
        Missing("core specialisation takes the last cores"),
        "specialised cores are the first ones",
    ),
    word(
        "step_retry_count",
        true,
        Nothing("steps that wait are started by events"),
        "steps to retry at once",
    ),
    word(
        "step_retry_time",
        true,
        Nothing("steps that wait are started by events"),
        "seconds between retries of steps",
    ),
    word(
        "time_min_as_soft_limit",
        false,
        Missing("--time-min counts at the start only"),
        "--time-min as a soft limit",
    ),
    word(
        "whole_hetjob",
        false,
        Works,
        "to cancel, hold or release one component is to do so with all",
    ),
];

/// The row of a word, which may have a value.
pub fn find(word: &str) -> Option<&'static ParameterWord> {
    let name = word.split('=').next().unwrap_or(word).trim();
    WORDS
        .iter()
        .find(|known| known.name.eq_ignore_ascii_case(name))
}

/// Says which words do nothing, and which are none.
pub(crate) fn check(words: &[String], origin: &Origin, findings: &mut Findings) {
    const KEY: &str = "SchedulerParameters";
    for word in words {
        let name = word.split('=').next().unwrap_or(word);
        let Some(row) = find(word) else {
            let near = nearest_of(name, WORDS.iter().map(|known| known.name));
            let help = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => "docs/compat.md lists the words of SchedulerParameters".to_owned(),
            };
            let message = format!("{KEY}: unknown parameter `{name}`, which is ignored");
            findings.warn(origin, KEY, message, help);
            continue;
        };
        let known = row.name;
        if row.has_value != word.contains('=') {
            let message = if row.has_value {
                format!("{KEY}: {known} needs a value")
            } else {
                format!("{KEY}: {known} takes no value")
            };
            findings.warn(
                origin,
                KEY,
                message,
                format!("write {known}{}", if row.has_value { "=N" } else { "" }),
            );
        }
        match row.effect {
            Works => {}
            Nothing(why) => {
                let message = format!("{KEY}: {known} has no effect in Muster: {why}");
                findings.add(Severity::NoEffect, origin, KEY, message, "");
            }
            Missing(why) => {
                let message = format!("{KEY}: {known} is not implemented and is ignored: {why}");
                findings.warn(origin, KEY, message, "");
            }
        }
        numbers(word, known, origin, findings);
        if known == "bf_hetjob_prio" {
            priority_of_het_jobs(word, origin, findings);
        }
    }
}

/// Checks values of words that have an effect.
fn numbers(word: &str, name: &str, origin: &Origin, findings: &mut Findings) {
    let used = [
        "bf_min_age_reserve",
        "bf_min_prio_reserve",
        "bf_window",
        "bf_promises",
        "max_array_tasks",
        "max_script_size",
        "max_submit_line_size",
        "max_switch_wait",
    ];
    let (Some((_, value)), true) = (word.split_once('='), used.contains(&name)) else {
        return;
    };
    let all = name == "bf_promises" && value == "all";
    if !all && value.parse::<u32>().is_err() {
        let message = format!("SchedulerParameters: `{value}` is not a number for {name}");
        // Limits of users are not left out.
        if ["max_array_tasks", "max_script_size", "max_submit_line_size"].contains(&name) {
            findings.error(
                origin,
                "SchedulerParameters",
                message,
                "write a number, of bytes for sizes",
            );
        } else {
            findings.warn(
                origin,
                "SchedulerParameters",
                message + ", which is ignored",
                "",
            );
        }
    }
}

/// All components are tried when the turn of the first of them comes: that is `max`.
fn priority_of_het_jobs(word: &str, origin: &Origin, findings: &mut Findings) {
    const KEY: &str = "SchedulerParameters";
    let Some((_, value)) = word.split_once('=') else {
        return;
    };
    let (message, help) = match value.to_ascii_lowercase().as_str() {
        "max" => return,
        "min" | "avg" => (
            format!("{KEY}: bf_hetjob_prio={value} is not implemented and is ignored"),
            "components have their turn with the first of them, as with bf_hetjob_prio=max",
        ),
        _ => (
            format!("{KEY}: `{value}` is not a valid value of bf_hetjob_prio, which is ignored"),
            "min, avg or max",
        ),
    };
    findings.warn(origin, KEY, message, help);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(text: &str) -> Vec<String> {
        let conf = format!(
            "ClusterName=c\nSlurmctldHost=h\nNodeName=n CPUs=1\nPartitionName=p Nodes=n\nSchedulerParameters={text}\n"
        );
        let (_, findings) = crate::load_text(std::path::Path::new("slurm.conf"), &conf);
        let mine = findings
            .iter()
            .filter(|f| f.message.contains("SchedulerParameters"));
        mine.map(|f| format!("{}: {} {}", f.severity, f.message, f.help))
            .collect()
    }

    #[test]
    fn words_in_order_each_once() {
        let names = || WORDS.iter().map(|word| word.name.to_ascii_lowercase());
        assert!(names().zip(names().skip(1)).all(|(a, b)| a < b));
    }

    #[test]
    fn words_without_effect_are_reported_with_the_reason() {
        assert_eq!(
            warnings("bf_window=4320,max_switch_wait=60,predict_run_times"),
            Vec::<String>::new()
        );
        assert_eq!(
            warnings("bf_interval=30,pack_serial_at_end"),
            [
                "no effect: SchedulerParameters: bf_interval has no effect in Muster: a pass runs when something has changed, and looks only at that ",
                "warning: SchedulerParameters: pack_serial_at_end is not implemented and is ignored: jobs of one CPU are placed like others, on nodes that are in use already ",
            ]
        );
    }

    #[test]
    fn het_jobs_have_the_highest_priority_of_their_components() {
        assert_eq!(warnings("bf_hetjob_prio=max"), Vec::<String>::new());
        assert_eq!(
            warnings("bf_hetjob_prio=min"),
            [
                "warning: SchedulerParameters: bf_hetjob_prio=min is not implemented and is ignored components have their turn with the first of them, as with bf_hetjob_prio=max",
            ]
        );
    }

    #[test]
    fn unknown_words_are_reported_with_the_nearest() {
        assert_eq!(
            warnings("bf_max_job_tset=5,bf_window,bf_min_age_reserve=x"),
            [
                "warning: SchedulerParameters: unknown parameter `bf_max_job_tset`, which is ignored did you mean `bf_max_job_test`?",
                "warning: SchedulerParameters: bf_window needs a value write bf_window=N",
                "warning: SchedulerParameters: `x` is not a number for bf_min_age_reserve, which is ignored ",
            ]
        );
    }
}
