//! Queues and parallel environments: partitions, and their names in sge.conf.

use super::dump::{Dump, KnownHosts, Object};
use super::{Made, is_path};
use muster_model::calendar::Calendar;
use muster_model::hostlist;
use std::collections::BTreeSet;

/// Keys of queues that say something which partitions do not have, and why not.
const WITHOUT: [(&str, &str); 13] = [
    (
        "load_thresholds",
        "a node that is loaded is not left alone: the scheduler counts CPUs and memory",
    ),
    ("suspend_thresholds", "jobs are not suspended by load"),
    (
        "subordinate_list",
        "see PreemptType and PriorityTier of slurm.conf",
    ),
    ("prolog", "see Prolog and TaskProlog of slurm.conf"),
    ("epilog", "see Epilog and TaskEpilog of slurm.conf"),
    ("starter_method", "see TaskProlog of slurm.conf"),
    (
        "suspend_method",
        "jobs are suspended by SIGTSTP and SIGSTOP",
    ),
    ("resume_method", "jobs go on by SIGCONT"),
    (
        "terminate_method",
        "jobs are ended by SIGTERM and, after KillWait, SIGKILL",
    ),
    ("ckpt_list", "there are no checkpointing environments"),
    (
        "xuser_lists",
        "partitions do not exclude users: name who may use it by AllowGroups",
    ),
    (
        "owner_list",
        "operators are users of AdminLevel=Operator: sacctmgr modify user",
    ),
    (
        "s_rt",
        "give it to jobs by a job class or a verifier: -l s_rt",
    ),
];
/// `TmpFS` where nothing is said, and what queues of Grid Engine have.
const TMP_FS_DEFAULT: &str = "/tmp";
/// Values without a meaning here.
const USUAL: [&str; 4] = ["np_load_avg=1.75", "SIGSTOP", "SIGKILL", "SIGCONT"];

/// Lines of partitions, and of sge.conf.
pub(super) fn write(dump: &Dump, made: &mut Made) {
    let default = default_queue(dump);
    let known = dump.known_hosts();
    dump.calendars
        .iter()
        .for_each(|own| write_calendar(own, made));
    for (number, queue) in dump.queues.iter().enumerate() {
        write_queue(dump, &known, queue, number == default, made);
    }
    for environment in &dump.environments {
        write_environment(environment, made);
    }
}

/// Where jobs have their temporary directories: that of the default queue.
pub(super) fn write_tmp_fs(dump: &Dump, made: &mut Made) {
    let default = default_queue(dump);
    let of = |queue: &Object| queue.list("tmpdir").0.into_iter().next();
    let chosen = dump.queues.get(default).and_then(of);
    let chosen = chosen.filter(|dir| is_path(dir));
    let tmp_fs = chosen.as_deref().unwrap_or(TMP_FS_DEFAULT);
    if tmp_fs != TMP_FS_DEFAULT {
        made.slurm.push_str(&format!("TmpFS={tmp_fs}\n"));
    }
    for queue in &dump.queues {
        let (dirs, is_by_host) = queue.list("tmpdir");
        if is_by_host || dirs.first().is_some_and(|dir| dir != tmp_fs) {
            let (own, value) = (queue.name(), queue.get("tmpdir").unwrap_or_default());
            made.note(
                &format!("queue {own}: tmpdir {value}"),
                &format!(
                    "jobs of all partitions have their temporary directories in TmpFS of slurm.conf, which is {tmp_fs}"
                ),
            );
        }
    }
}

/// The position of the queue that becomes the default partition.
fn default_queue(dump: &Dump) -> usize {
    let mut queues = dump.queues.iter();
    queues
        .position(|queue| queue.name() == "all.q")
        .unwrap_or(0)
}

fn write_queue(
    dump: &Dump,
    known: &KnownHosts<'_>,
    queue: &Object,
    is_default: bool,
    made: &mut Made,
) {
    let own = queue.name();
    let name = partition(own);
    let nodes = nodes_of(dump, known, queue, made);
    if nodes.is_empty() {
        made.note(
            &format!("queue {own}"),
            "it has no hosts, so that there is no partition for it",
        );
        return;
    }
    let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let mut line = format!("PartitionName={name} Nodes={}", hostlist::compress(&names));
    if is_default {
        line.push_str(" Default=YES");
    }
    line.push_str(&format!(" MaxTime={}", limit(queue, made)));
    access(dump, queue, &mut line, made);
    slots(queue, &mut line, made);
    if queue
        .get("initial_state")
        .is_some_and(|state| state.starts_with("disabled"))
    {
        line.push_str(" State=DOWN");
    }
    made.slurm.push_str(&format!("{line}\n"));
    if name != own {
        made.sge.push_str(&format!("queue {own} {name}\n"));
    }
    let has_calendar = |name: &&str| dump.calendars.iter().any(|own| own.name() == *name);
    match queue.get("calendar") {
        None => {}
        Some(calendar) if has_calendar(&calendar) => {
            made.sge
                .push_str(&format!("queue_calendar {own} {calendar}\n"));
        }
        Some(calendar) => made.note(
            &format!("queue {own}: calendar {calendar}"),
            "nothing is known of this calendar",
        ),
    }
    note_losses(queue, made);
}

/// A calendar. One that is wrong stays, with its queues open.
fn write_calendar(calendar: &Object, made: &mut Made) {
    let part = |key| calendar.get(key).unwrap_or("NONE");
    let name = calendar.name();
    match Calendar::new(name, part("year"), part("week")) {
        Ok(own) => made.sge.push_str(&format!("calendar {}\n", own.text())),
        Err(why) => {
            made.note(&format!("calendar {name}"), &why);
            made.sge
                .push_str(&format!("calendar {name} year NONE week NONE\n"));
        }
    }
}

/// The hosts of a queue, as far as they are known.
fn nodes_of(dump: &Dump, known: &KnownHosts<'_>, queue: &Object, made: &mut Made) -> Vec<String> {
    let (hosts, _) = queue.list("hostlist");
    let all = dump.hosts_of(&hosts, known);
    let words: BTreeSet<&str> = hosts.iter().map(String::as_str).collect();
    for host in words.into_iter().filter(|word| !known.has(word)) {
        made.note(
            &format!("queue {}: {host}", queue.name()),
            "nothing is known of this host or group",
        );
    }
    all
}

/// Notes settings of a queue that have no counterpart in a partition.
fn note_losses(queue: &Object, made: &mut Made) {
    let own = queue.name();
    for (key, why) in WITHOUT {
        if let Some(value) = queue.get(key).filter(|value| !USUAL.contains(value)) {
            made.note(&format!("queue {own}: {key} {value}"), why);
        }
    }
    let per_host = ["h_rt", "slots", "user_lists", "projects"]
        .into_iter()
        .filter(|key| queue.list(key).1);
    for key in per_host {
        let value = queue.get(key).unwrap_or_default();
        made.note(
            &format!("queue {own}: {key} {value}"),
            "values for single hosts are left out: make a partition of these",
        );
    }
}

fn write_environment(environment: &Object, made: &mut Made) {
    let name = environment.name();
    let rule = environment.get("allocation_rule").unwrap_or("$pe_slots");
    let line = format!("pe {name} {rule}\n");
    let (_, findings) = muster_conf::grid_engine::Mapping::parse(&line, "sge.conf");
    match findings.first() {
        None => made.sge.push_str(&line),
        Some(finding) => made.note(&format!("parallel environment {name}"), &finding.message),
    }
    for key in [
        "user_lists",
        "xuser_lists",
        "start_proc_args",
        "stop_proc_args",
    ] {
        let usual = |value: &&str| !value.ends_with("/bin/true");
        if let Some(value) = environment.get(key).filter(usual) {
            made.note(
                &format!("parallel environment {name}: {key} {value}"),
                "there is nothing like it",
            );
        }
    }
}

/// `all.q` is `all`.
pub(super) fn partition(queue: &str) -> String {
    let short = queue.strip_suffix(".q").unwrap_or(queue);
    let fit = |c: char| {
        if c.is_ascii_alphanumeric() || "_-.".contains(c) {
            c
        } else {
            '_'
        }
    };
    match short {
        // Slurm has these words for something else.
        "DEFAULT" | "default" => "default_q".to_owned(),
        short => short.chars().map(fit).collect(),
    }
}

fn limit(queue: &Object, made: &mut Made) -> String {
    let (words, _) = queue.list("h_rt");
    let Some(text) = words.first() else {
        return "INFINITE".to_owned();
    };
    match muster_conf::grid_engine::resources::time("h_rt", Some(text)) {
        Ok(Some(seconds)) => seconds.div_ceil(60).max(1).to_string(),
        Ok(None) => "INFINITE".to_owned(),
        Err(why) => {
            made.note(&format!("queue {}: h_rt {text}", queue.name()), &why);
            "INFINITE".to_owned()
        }
    }
}

/// Users who may use it.
fn access(dump: &Dump, queue: &Object, line: &mut String, made: &mut Made) {
    let own = queue.name();
    let (lists, _) = queue.list("user_lists");
    if !lists.is_empty() {
        let sets = lists
            .iter()
            .map(|list| dump.usersets.iter().find(|set| set.name() == list));
        let entries = sets.map(|set| set.map(|set| set.list("entries").0));
        let entries: Option<Vec<String>> =
            entries.collect::<Option<Vec<_>>>().map(|all| all.concat());
        let groups =
            entries.filter(|all| !all.is_empty() && all.iter().all(|entry| entry.starts_with('@')));
        match groups {
            Some(groups) => {
                let groups: Vec<&str> = groups.iter().map(|entry| entry.trim_start_matches('@')).collect();
                line.push_str(&format!(" AllowGroups={}", groups.join(",")));
            }
            None => made.note(
                &format!("queue {own}: user_lists {}", lists.join(" ")),
                "everybody may use the partition until AllowGroups names groups: user lists are not groups",
            ),
        }
    }
    for (key, option) in [("projects", "AllowAccounts"), ("xprojects", "DenyAccounts")] {
        let (projects, _) = queue.list(key);
        if !projects.is_empty() {
            let accounts: Vec<String> = projects
                .iter()
                .map(|own| super::accounts::account(own))
                .collect();
            line.push_str(&format!(" {option}={}", accounts.join(",")));
        }
    }
}

/// Fewer slots than a host has CPUs.
fn slots(queue: &Object, line: &mut String, made: &mut Made) {
    let (words, _) = queue.list("slots");
    let slots = words.first().and_then(|text| text.parse::<u32>().ok());
    match slots {
        Some(0) => {
            line.push_str(" State=DOWN");
            made.note(
                &format!("queue {}: slots 0", queue.name()),
                "the partition is down",
            );
        }
        Some(slots) => line.push_str(&format!(" MaxCPUsPerNode={slots}")),
        None => {}
    }
}
