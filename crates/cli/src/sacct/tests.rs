//! Each expected text is what sacct 22.05.8 printed for the same jobs.

use super::*;
use crate::listing::fixture::{at, ctx};
use jiff::tz::TimeZone;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::ArrayTask;
use muster_model::job::{ExitStatus, JobState, ResourceUsage};
use muster_model::spec::StdioSpec;
use muster_model::time::TimeLimit;
use muster_proto::acct::AcctStep;

pub(crate) fn job(id: u64, name: &str, state: JobState, exit: (u32, u32)) -> AcctJob {
    AcctJob {
        id: JobId(id),
        restarts: 0,
        array: None,
        het: None,
        backfilled: false,
        array_pending: None,
        name: name.to_owned(),
        uid: 0,
        gid: 0,
        user: "root".to_owned(),
        group: "root".to_owned(),
        account: "root".to_owned(),
        partition: "batch".to_owned(),
        qos: "normal".to_owned(),
        state,
        cancelled_by: None,
        exit: ExitStatus {
            code: exit.0,
            signal: exit.1,
        },
        derived_exit: ExitStatus::default(),
        submit: at(8),
        eligible: Some(at(8)),
        start: Some(at(11)),
        end: Some(at(12)),
        suspended_ms: 0,
        time_limit: TimeLimit::Minutes(5),
        req_cpus: 1,
        req_nodes: 1,
        req_mem_mib: 8000,
        alloc_cpus: 1,
        alloc_nodes: 1,
        alloc_mem_mib: 0,
        gres: Vec::new(),
        req_gres: Vec::new(),
        grid_engine: Vec::new(),
        mcs_label: String::new(),
        nodelist: "n1".to_owned(),
        work_dir: "/tmp".to_owned(),
        submit_line: format!("sbatch {name}"),
        comment: String::new(),
        admin_comment: String::new(),
        reason: String::new(),
        priority: 11_000,
        wckey: String::new(),
        class: String::new(),
        constraint: String::new(),
        reservation: String::new(),
        ntasks: 1,
        stdio: StdioSpec::default(),
        batch: true,
        steps: Vec::new(),
        submit_host: "vm".to_owned(),
        requeued: false,
        resized: false,
    }
}

pub(crate) fn step(
    step: StepNo,
    name: &str,
    state: JobState,
    exit: (u32, u32),
    cpus: u32,
    cpu_us: u64,
) -> AcctStep {
    AcctStep {
        step,
        name: name.to_owned(),
        state,
        cancelled_by: None,
        exit: ExitStatus {
            code: exit.0,
            signal: exit.1,
        },
        start: at(11),
        end: Some(at(12)),
        nodes: 1,
        tasks: 1,
        cpus,
        mem_mib: 0,
        nodelist: "n1".to_owned(),
        usage: (cpu_us > 0).then(|| ResourceUsage {
            user_us: cpu_us,
            max_rss_kib: 1700,
            total_rss_kib: 1700,
            max_rss_node: "n1".to_owned(),
            tasks: 1,
            ..ResourceUsage::default()
        }),
        submit_line: String::new(),
        distribution: "Block".to_owned(),
        devices: Vec::new(),
    }
}

fn jobs() -> Vec<AcctJob> {
    use JobState::{Cancelled, Completed, Failed, Pending, Running};
    let mut first = job(1, "envdump", Completed, (0, 0));
    (
        first.req_cpus,
        first.alloc_cpus,
        first.req_nodes,
        first.alloc_nodes,
    ) = (8, 8, 2, 2);
    first.req_mem_mib = 200;
    first.nodelist = "n[1-2]".to_owned();
    first.steps = vec![
        step(StepNo::BATCH, "batch", Completed, (0, 0), 4, 30_555),
        step(StepNo(0), "bash", Completed, (0, 0), 8, 15_801),
        step(StepNo(1), "bash", Completed, (0, 0), 4, 7_200),
    ];
    first.steps[1].end = Some(at(11));
    first.steps[1].nodes = 2;
    first.steps[1].nodelist = "n[1-2]".to_owned();
    let mut failing = job(3, "failing", Failed, (7, 0));
    failing.steps = vec![step(StepNo::BATCH, "batch", Failed, (7, 0), 1, 0)];
    let mut signalled = job(4, "signalled", Failed, (0, 9));
    signalled.steps = vec![step(StepNo::BATCH, "batch", Cancelled, (0, 9), 1, 0)];
    let mut task = job(6, "arr.sh", Completed, (0, 0));
    task.array = Some(ArrayTask {
        array: JobId(2),
        index: 1,
    });
    task.steps = vec![step(StepNo::BATCH, "batch", Completed, (0, 0), 1, 0)];
    let mut interactive = job(8, "interactive", Completed, (0, 0));
    interactive.alloc_cpus = 2;
    interactive.batch = false;
    let mut cancelled = job(15, "pending", Cancelled, (0, 0));
    (
        cancelled.req_cpus,
        cancelled.alloc_cpus,
        cancelled.alloc_nodes,
    ) = (4, 0, 0);
    cancelled.cancelled_by = Some(0);
    cancelled.start = None;
    cancelled.nodelist = String::new();
    let mut wide = job(22, "wrap", Pending, (0, 0));
    (
        wide.req_cpus,
        wide.alloc_cpus,
        wide.req_nodes,
        wide.alloc_nodes,
    ) = (99, 0, 99, 0);
    (wide.start, wide.end) = (None, None);
    let mut array = job(40, "arr.sh", Pending, (0, 0));
    array.array_pending = Some("[1-3%2]".to_owned());
    (array.start, array.end, array.alloc_cpus) = (None, None, 0);
    let mut running = job(41, "run", Running, (0, 0));
    running.end = None;
    vec![
        first,
        failing,
        signalled,
        task,
        interactive,
        cancelled,
        wide,
        array,
        running,
    ]
}

fn now() -> Zoned {
    jiff::civil::date(2026, 11, 21)
        .at(20, 23, 45, 0)
        .to_zoned(TimeZone::UTC)
        .unwrap()
}

fn options(args: &[&str]) -> Result<Options, Failure> {
    let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
    Options::new(SPEC.parse(&args).map_err(Failure::new)?)
}

fn sacct(args: &[&str]) -> String {
    let options = options(args).unwrap();
    let columns = options.columns().unwrap();
    options.render(&columns, &jobs(), &ctx(), &now()).unwrap()
}

#[test]
fn default_columns() {
    assert_eq!(
        sacct(&["-j1,3,4,2,8,15,22"]),
        "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode 
------------ ---------- ---------- ---------- ---------- ---------- -------- 
1               envdump      batch       root          8  COMPLETED      0:0 
1.batch           batch                  root          4  COMPLETED      0:0 
1.0                bash                  root          8  COMPLETED      0:0 
1.1                bash                  root          4  COMPLETED      0:0 
3               failing      batch       root          1     FAILED      7:0 
3.batch           batch                  root          1     FAILED      7:0 
4             signalled      batch       root          1     FAILED      0:9 
4.batch           batch                  root          1  CANCELLED      0:9 
2_1              arr.sh      batch       root          1  COMPLETED      0:0 
2_1.batch         batch                  root          1  COMPLETED      0:0 
8            interacti+      batch       root          2  COMPLETED      0:0 
15              pending      batch       root          4 CANCELLED+      0:0 
22                 wrap      batch       root         99    PENDING      0:0 
"
    );
}

#[test]
fn chosen_columns() {
    assert_eq!(
        sacct(&["-j", "1", "-o", "JobID,User,AllocCPUS,Start,End"]),
        "JobID             User  AllocCPUS               Start                 End 
------------ --------- ---------- ------------------- ------------------- 
1                 root          8 2026-11-21T20:23:11 2026-11-21T20:23:12 
1.batch                         4 2026-11-21T20:23:11 2026-11-21T20:23:12 
1.0                             8 2026-11-21T20:23:11 2026-11-21T20:23:11 
1.1                             4 2026-11-21T20:23:11 2026-11-21T20:23:12 
"
    );
    assert_eq!(
        sacct(&["-P", "-j", "1", "-o", "JobID,User,AllocCPUS,Start,End"]),
        "JobID|User|AllocCPUS|Start|End
1|root|8|2026-11-21T20:23:11|2026-11-21T20:23:12
1.batch||4|2026-11-21T20:23:11|2026-11-21T20:23:12
1.0||8|2026-11-21T20:23:11|2026-11-21T20:23:11
1.1||4|2026-11-21T20:23:11|2026-11-21T20:23:12
"
    );
    assert_eq!(
        sacct(&["-X", "-n", "-j", "1"]),
        "1               envdump      batch       root          8  COMPLETED      0:0 \n"
    );
    assert_eq!(
        sacct(&[
            "-j",
            "3,4",
            "-o",
            "JobID,JobName,State,ExitCode,DerivedExitCode"
        ]),
        "JobID           JobName      State ExitCode DerivedExitCode 
------------ ---------- ---------- -------- --------------- 
3               failing     FAILED      7:0             0:0 
3.batch           batch     FAILED      7:0                 
4             signalled     FAILED      0:9             0:0 
4.batch           batch  CANCELLED      0:9                 
"
    );
}

/// Slurm here had no MaxRSS; otherwise the rows are the same.
#[test]
fn parsable() {
    assert_eq!(
        sacct(&["-p", "-j", "1", "-o", "JobID,JobName%30,Partition,Account,AllocTRES,ReqTRES,TotalCPU,NodeList,ExitCode,State,Timelimit,Submit,Elapsed,ElapsedRaw"]),
        "JobID|JobName|Partition|Account|AllocTRES|ReqTRES|TotalCPU|NodeList|ExitCode|State|Timelimit|Submit|Elapsed|ElapsedRaw|
1|envdump|batch|root|billing=8,cpu=8,node=2|billing=8,cpu=8,mem=200M,node=2|00:00.053|n[1-2]|0:0|COMPLETED|00:05:00|2026-11-21T20:23:08|00:00:01|1|
1.batch|batch||root|cpu=4,mem=0,node=1||00:00.030|n1|0:0|COMPLETED||2026-11-21T20:23:11|00:00:01|1|
1.0|bash||root|cpu=8,mem=0,node=2||00:00.015|n[1-2]|0:0|COMPLETED||2026-11-21T20:23:11|00:00:00|0|
1.1|bash||root|cpu=4,mem=0,node=1||00:00.007|n1|0:0|COMPLETED||2026-11-21T20:23:11|00:00:01|1|
"
    );
    assert_eq!(
        sacct(&[
            "--parsable2",
            "--delimiter=;|;",
            "-n",
            "-X",
            "-o",
            "jobidraw,state,maxrss,end",
            "-j2_1,41,15"
        ]),
        "6;|;COMPLETED;|;;|;2026-11-21T20:23:12\n15;|;CANCELLED by 0;|;;|;2026-11-21T20:23:12\n41;|;RUNNING;|;;|;Unknown\n"
    );
}

/// Each job had the number of `normal`.
#[test]
fn numbers_of_qos() {
    let mut ctx = ctx();
    ctx.qos_ids = [("high".to_owned(), 4)].into();
    let mut jobs = ["normal", "high", "gone"].map(|_| jobs().swap_remove(0));
    for (job, qos) in jobs.iter_mut().zip(["normal", "high", "gone"]) {
        qos.clone_into(&mut job.qos);
    }
    let options = options(&["-nXP", "-o", "qosraw,qos"]).unwrap();
    let columns = options.columns().unwrap();
    let text = options.render(&columns, &jobs, &ctx, &now()).unwrap();
    assert_eq!(text, "1|normal\n4|high\n0|gone\n");
}

#[test]
fn tasks_of_an_array_stand_together() {
    let task = |id: u64, base: u64, index: u32| AcctJob {
        array: Some(ArrayTask {
            array: JobId(base),
            index,
        }),
        ..job(id, "a", JobState::Completed, (0, 0))
    };
    let mut jobs = vec![
        AcctJob {
            array_pending: Some("[4-9]".to_owned()),
            ..job(7, "a", JobState::Pending, (0, 0))
        },
        job(8, "b", JobState::Completed, (0, 0)),
        task(9, 7, 2),
        task(10, 7, 1),
        job(11, "c", JobState::Completed, (0, 0)),
    ];
    in_order(&mut jobs);
    let ids: Vec<u64> = jobs.iter().map(|job| job.id.0).collect();
    assert_eq!(ids, [10, 9, 7, 8, 11]);
}

#[test]
fn arrays_and_steps_by_name() {
    assert_eq!(
        sacct(&[
            "-j",
            "2_1",
            "-o",
            "JobID,JobIDRaw,State,ExitCode,Elapsed",
            "-n"
        ]),
        "2_1          6             COMPLETED      0:0   00:00:01 \n2_1.batch    6.batch       COMPLETED      0:0   00:00:01 \n"
    );
    assert_eq!(
        sacct(&["-nPj", "40", "-o", "jobid,alloccpus"]),
        "40_[1-3%2]|1\n"
    );
    assert_eq!(sacct(&["-nPj", "40_3", "-o", "jobid"]), "40_[1-3%2]\n");
    assert_eq!(sacct(&["-nPj", "40_4", "-o", "jobid"]), "");
    assert_eq!(sacct(&["-nPj", "1.0", "-o", "jobid"]), "1.0\n");
    assert_eq!(
        sacct(&["-nPj", "1.batch", "-j", "3.batch", "-o", "jobid"]),
        "1.batch\n3.batch\n"
    );
    assert_eq!(
        sacct(&["-j", "999999"]).lines().count(),
        2,
        "the header alone"
    );
}

#[test]
fn widths_and_units() {
    assert_eq!(
        sacct(&["-nXj", "15", "-o", "state%20,jobid%4,jobname%-10"]),
        "      CANCELLED by 0   15 pending    \n"
    );
    assert_eq!(
        sacct(&["-nPj", "1", "-o", "reqmem,maxrss"]),
        "200M|\n|1700K\n|1700K\n|1700K\n"
    );
    assert_eq!(
        sacct(&[
            "-nPj",
            "1.0",
            "-o",
            "maxrss,reqtres,maxrssnode",
            "--units=M"
        ]),
        "1.66M||n1\n"
    );
    assert_eq!(
        sacct(&[
            "-nPXj",
            "3",
            "-o",
            "reqmem,timelimitraw,cputime,ncpus,nnodes"
        ]),
        "8000M|5|00:00:01|1|1\n"
    );
    assert_eq!(
        sacct(&[
            "-nPXj",
            "22",
            "-o",
            "nodelist,start,elapsed,allocnodes,alloctres,user"
        ]),
        "n1|Unknown|00:00:00|0||root\n"
    );
    assert_eq!(sacct(&["-nPXj", "15", "-o", "nodelist"]), "None assigned\n");
}

/// Every name that `--helpformat` gives is taken back, however a client joins the names.
#[test]
fn advertised_names() {
    let help = help_format();
    assert_eq!(help, include_str!("expected/sacct_helpformat.out"));
    let joined = help
        .split_whitespace()
        .fold(String::new(), |all, name| all + name + ",");
    let text = sacct(&["--parsable", "-j1", "--format", &joined]);
    assert_eq!(
        text.lines().next().unwrap().split('|').count(),
        help.split_whitespace().count() + 1
    );
    let text = sacct(&["--parsable", "-j1", "--long"]);
    assert!(
        text.starts_with("JobID|JobIDRaw|JobName|Partition|MaxVMSize|"),
        "{text}"
    );
}

#[test]
fn refusals() {
    let refused = |args: &[&str]| {
        let options = match options(args) {
            Ok(options) => options,
            Err(failure) => return failure.to_string(),
        };
        options
            .columns()
            .err()
            .map(|f| f.to_string())
            .unwrap_or_default()
    };
    assert_eq!(
        refused(&["-o", "NoSuchField"]),
        "sacct: error: Invalid field requested: \"NoSuchField\""
    );
    assert_eq!(
        refused(&["-u", "nosuchuser"]),
        "sacct: error: Invalid user id: nosuchuser"
    );
    assert_eq!(refused(&["-c"]), "Slurm job completion is disabled");
    assert!(refused(&["-s", "foo"]).contains("unrecognized job state value"));
    assert!(refused(&["-B"]).contains("with the '-j' option"));
    assert_eq!(refused(&["-o", "JobID%30,,state%-20,"]), "");
}

/// The defaults of sacct(1) "DEFAULT TIME WINDOW".
#[test]
fn windows() {
    let window = |args: &[&str]| options(args).unwrap().conditions.window(&now()).unwrap();
    let (today, current) = (at(-(20 * 3600 + 23 * 60)), at(45));
    assert_eq!(window(&[]), (today, current));
    assert_eq!(
        window(&["-j", "1"]),
        (muster_model::time::Timestamp(0), current)
    );
    assert_eq!(window(&["-s", "R"]), (current, current));
    assert_eq!(
        window(&["-s", "R", "-S", "20:00"]),
        (at(-23 * 60), at(-23 * 60))
    );
    assert_eq!(
        window(&["-s", "F", "-S", "now-1hour", "-E", "now"]),
        (at(45 - 3600), current)
    );
    assert_eq!(window(&["-S", "20:00"]), (at(-23 * 60), current));
    let wrong = options(&["-S", "soon"])
        .unwrap()
        .conditions
        .window(&now())
        .unwrap_err();
    assert!(
        wrong
            .to_string()
            .starts_with("Invalid time specification (pos=0): ")
    );
    let query = options(&["-j", "5,6_1"])
        .unwrap()
        .conditions
        .to_query(&now(), 1000)
        .unwrap();
    assert_eq!(query.jobs, [(JobId(5), None), (JobId(6), Some(1))]);
    assert!(query.uids.is_empty(), "jobs by number are anyone's");
    assert_eq!(
        options(&[])
            .unwrap()
            .conditions
            .to_query(&now(), 1000)
            .unwrap()
            .uids,
        [1000]
    );
    assert!(
        options(&["-a"])
            .unwrap()
            .conditions
            .to_query(&now(), 1000)
            .unwrap()
            .uids
            .is_empty()
    );
}

#[test]
fn json_of_both_layouts() {
    let old: serde_json::Value =
        serde_json::from_str(&sacct(&["--json=v0.0.38", "-j", "1,15"])).unwrap();
    let first = &old["jobs"][0];
    assert_eq!(old["meta"]["plugin"]["type"], "openapi/dbv0.0.38");
    let keys: Vec<&str> = first
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        keys.join(" "),
        "account comment allocation_nodes array association cluster constraints container derived_exit_code time \
         exit_code flags group het job_id name mcs nodes partition priority qos required kill_request_user reservation \
         state steps tres user wckey working_directory"
    );
    assert_eq!(
        (&first["state"]["current"], &first["time"]["limit"]),
        (&"COMPLETED".into(), &5.into())
    );
    assert_eq!(first["steps"][0]["step"]["id"], "batch");
    assert_eq!(first["steps"][1]["time"]["total"]["microseconds"], 15_801);
    assert_eq!(first["steps"][1]["nodes"]["list"][1], "n2");
    let new: serde_json::Value = serde_json::from_str(&sacct(&["--json", "-j", "3"])).unwrap();
    let job = &new["jobs"][0];
    assert_eq!(job["exit_code"]["return_code"]["number"], 7);
    assert_eq!(job["derived_exit_code"]["return_code"]["number"], 0);
    assert_eq!(job["state"]["current"][0], "FAILED");
    assert_eq!(job["steps"][0]["step"]["id"], "3.batch");
}

/// All of it was under `consumed`, and disks were missing; Slurm has only output there.
#[test]
fn what_steps_used_is_where_slurm_has_it() {
    let document: serde_json::Value = serde_json::from_str(&sacct(&["--json", "-j", "1"])).unwrap();
    let tres = &document["jobs"][0]["steps"][1]["tres"];
    let kinds = |part: &str, list: &str| -> Vec<String> {
        let all = tres[part][list].as_array().unwrap().iter();
        let word = |one: &serde_json::Value| one["type"].as_str().unwrap().to_owned();
        all.map(word).collect()
    };
    assert_eq!(kinds("requested", "total"), ["cpu", "mem", "fs", "pages"]);
    assert_eq!(kinds("requested", "average"), ["cpu", "mem", "fs", "pages"]);
    assert_eq!(kinds("requested", "max")[0], "mem");
    assert_eq!(kinds("requested", "min"), ["cpu"]);
    assert_eq!(kinds("consumed", "total"), ["fs"]);
    assert_eq!(tres["consumed"]["total"][0]["name"], "disk");
    assert!(tres["requested"]["max"][0]["node"].is_string());
}

#[test]
fn every_option_that_works_is_accepted() {
    use crate::options::OptionStatus;
    let informs = ["help", "usage", "version", "helpformat"];
    for row in OPTIONS
        .iter()
        .filter(|o| !o.is_alias() && !informs.contains(&o.name))
    {
        if matches!(row.status, OptionStatus::Works | OptionStatus::Partly(_)) {
            let set = Options::default().set(row.name, "1".to_owned());
            let text = set.err().map(|e| e.to_string()).unwrap_or_default();
            assert!(!text.contains("is not implemented"), "{text}");
        }
    }
}
