//! Elements, their order and nesting beside those that Grid Engine 8.1.9 printed.

use super::*;
use muster_model::ids::JobId;
use muster_model::index_set::IndexSet;
use muster_model::job::{Hold, JobState};
use muster_model::mail::MailOptions;
use muster_model::spec::{ArraySpec, DependencyTerm, Owner};
use muster_model::time::{TimeLimit, Timestamp};
use std::sync::Arc;

/// Children of a job's element in the order in which 8.1.9 prints them; those of a job class and of a project as in Univa's.
const ORDER: [&str; 54] = [
    "JB_job_number",
    "JB_ar",
    "JB_exec_file",
    "JB_submission_time",
    "JB_owner",
    "JB_uid",
    "JB_group",
    "JB_gid",
    "JB_account",
    "JB_merge_stderr",
    "JB_mail_list",
    "JB_project",
    "JB_notify",
    "JB_job_name",
    "JB_stdout_path_list",
    "JB_jobshare",
    "JB_hard_resource_list",
    "JB_soft_resource_list",
    "JB_hard_queue_list",
    "JB_shell_list",
    "JB_env_list",
    "JB_job_args",
    "JB_script_file",
    "JB_stderr_path_list",
    "JB_ja_tasks",
    "JB_cwd",
    "JB_jid_predecessor_list",
    "JB_jid_request_list",
    "JB_jid_successor_list",
    "JB_deadline",
    "JB_execution_time",
    "JB_checkpoint_attr",
    "JB_checkpoint_interval",
    "JB_reserve",
    "JB_mail_options",
    "JB_priority",
    "JB_restart",
    "JB_verify",
    "JB_script_size",
    "JB_pe",
    "JB_pe_range",
    "JB_jc",
    "JB_verify_suitable_queues",
    "JB_soft_wallclock_gmt",
    "JB_hard_wallclock_gmt",
    "JB_override_tickets",
    "JB_version",
    "JB_ja_structure",
    "JB_type",
    "JB_binding",
    "JB_ja_task_concurrency",
    "JB_nurg",
    "JAT_status",
    "JAT_task_number",
];

fn spec() -> JobSpec {
    let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    JobSpec {
        name: "a<b".to_owned(),
        owner: Owner {
            user: "geuser".to_owned(),
            uid: u32::MAX,
            ..Owner::default()
        },
        submit_host: "vm".to_owned(),
        command: "job.sh".to_owned(),
        argv: vec!["20".to_owned(), "x y".to_owned()],
        mail: MailOptions::of_texts("BEGIN,END".to_owned(), "a@b".to_owned()),
        work_dir: "/w".to_owned(),
        nice: 5,
        shown: [
            (marks::COMMAND, "qsub"),
            (marks::PE, "smp 2"),
            (
                marks::HARD,
                "h_rt=0:10:0,h_vmem=1.5G,exclusive,gpu=2,hostname=vm",
            ),
            (marks::SOFT, "arch=lx"),
            (marks::MERGE, "y"),
            (marks::HOLD_JID, "RUN,4"),
            (marks::BINARY, "y"),
            (marks::HARD_QUEUES, "all.q,long.q@vm"),
        ]
        .map(own)
        .into(),
        ..JobSpec::default()
    }
}

fn job(spec: JobSpec) -> Job {
    let at = Timestamp::from_unix_s(1_795_287_905);
    Job::new(JobId(4), Arc::new(spec), TimeLimit::Unlimited, at)
}

/// All elements with their depth; fails where one is not closed by its own name.
fn elements(text: &str) -> Vec<(usize, String)> {
    let mut open: Vec<String> = Vec::new();
    let mut all = Vec::new();
    for line in text.lines().skip(1) {
        let line = line.trim_start();
        let name = line.trim_start_matches(['<', '/']);
        let name: String = name.chars().take_while(|c| !"> ".contains(*c)).collect();
        if line.starts_with("</") {
            assert_eq!(open.pop().as_deref(), Some(name.as_str()), "{line}");
            continue;
        }
        all.push((open.len(), name.clone()));
        if !line.ends_with(&format!("</{name}>")) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    all
}

fn has(text: &str, element: &str, value: &str) {
    let want = format!("<{element}>{value}</{element}>");
    assert!(text.contains(&want), "{want}\n{text}");
}

#[test]
fn elements_are_those_of_grid_engine_in_its_order() {
    let mut waiting = job(spec());
    waiting.waiting_on = vec![DependencyTerm::Singleton];
    let mut running = job(JobSpec {
        array: Some(ArraySpec {
            indices: [1_u32, 3, 5]
                .into_iter()
                .fold(IndexSet::default(), |mut set, index| {
                    set.insert(index);
                    set
                }),
            throttle: Some(2),
        }),
        ..spec()
    });
    running.state = JobState::Running;
    running.start_time = Some(Timestamp::from_unix_s(1_795_287_906));
    let mut failed = job(spec());
    (failed.special_exit, failed.hold) = (true, Hold::Admin);
    for one in [&waiting, &running, &failed] {
        let text = jobs(&[vec![one]], &[]);
        has(&text, "QR_name", "long.q@vm");
        let names: Vec<String> = elements(&text)
            .into_iter()
            .filter(|(depth, _)| *depth == 3)
            .map(|(_, name)| name)
            .filter(|name| name.starts_with("JB_"))
            .collect();
        let mut at = 0;
        for name in &names {
            let found = ORDER.iter().skip(at).position(|own| own == name);
            at += found.unwrap_or_else(|| panic!("{name} is out of order: {names:?}"));
        }
        has(&text, "JB_job_name", "a&lt;b");
        has(&text, "JB_priority", "1019");
        has(&text, "JB_mail_options", "1572864");
        has(&text, "MR_user", "a");
    }
    let text = jobs(&[vec![&running]], &[]);
    for (element, value) in [
        ("JAT_status", "128"),
        ("JAT_start_time", "1795287906"),
        ("JB_type", "192"),
        ("JB_ja_task_concurrency", "2"),
        ("RN_max", "5"),
        ("RN_step", "2"),
    ] {
        has(&text, element, value);
    }
    has(&jobs(&[vec![&failed]], &[]), "MES_message_number", "32");
    has(&jobs(&[vec![&waiting]], &[]), "MES_message_number", "35");
    assert!(!jobs(&[vec![&waiting]], &[]).contains("JB_ja_tasks"));
}

#[test]
fn requests_have_types_and_numbers() {
    for (name, value, want) in [
        ("h_rt", Some("0:10:0"), (3, 600.0)),
        ("h_vmem", Some("1.5G"), (4, 1_610_612_736.0)),
        ("hostname", Some("vm"), (7, 0.0)),
        ("arch", Some("lx-amd64"), (2, 0.0)),
        ("exclusive", None, (5, 1.0)),
        ("gpu", Some("2"), (1, 2.0)),
    ] {
        assert_eq!(typed(name, value), want, "{name}");
    }
}

#[test]
fn what_is_not_there_and_what_waits() {
    assert_eq!(
        unknown(&["777", "a&b"]),
        "<?xml version='1.0'?>\n<unknown_jobs >\n    <ST_name>777</ST_name>\n    <ST_name>a&amp;b</ST_name>\n</unknown_jobs>\n"
    );
    let mut held = job(spec());
    held.hold = Hold::User;
    let text = waiting(&[held], &[]);
    let names: Vec<String> = elements(&text).into_iter().map(|(_, name)| name).collect();
    assert_eq!(
        names,
        [
            "message",
            "element",
            "SME_message_list",
            "element",
            "MES_job_number_list",
            "ulong_sublist",
            "ULNG_value",
            "MES_message_number",
            "MES_message",
        ]
    );
}
