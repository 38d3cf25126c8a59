//! Each expected text is what squeue 22.05.8 printed for the same jobs. Rows that no sort key tells apart are in the
//! order of their numbers here; Slurm leaves them in the order of its tables.

use super::*;
use crate::listing::fixture;
use muster_model::job::{Job, JobState, Reason};
use muster_model::listing_codec::{ListingWriter, RowValues, TemplateTable, same_template};
use muster_model::shared_spec::SpecTable;

fn squeue(args: &[&str]) -> String {
    squeue_of(args, &fixture::jobs(), &fixture::ctx())
}

fn squeue_of(args: &[&str], jobs: &Jobs, ctx: &Ctx) -> String {
    let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
    let options = Options::new(SPEC.parse(&args).unwrap()).unwrap();
    if let Some(dialect) = options.document {
        let mut out = String::new();
        job_document::write(&mut out, dialect, &pick::rows(&options, jobs, ctx), ctx);
        return out;
    }
    render(&options, &Layouts::new(&options), jobs, ctx).unwrap()
}

fn refused(args: &[&str]) -> String {
    let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
    let parsed = match SPEC.parse(&args) {
        Ok(parsed) => parsed,
        Err(failure) => return failure.to_string(),
    };
    match Options::new(parsed) {
        Err(failure) => failure.to_string(),
        Ok(options) => {
            let (jobs, ctx) = (fixture::jobs(), fixture::ctx());
            render(&options, &Layouts::new(&options), &jobs, &ctx)
                .unwrap_err()
                .to_string()
        }
    }
}

const DEFAULT: &str = "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
                 5     batch afternok     root PD       0:00      1 (DependencyNeverSatisfied)
      11_[4,6,8%2]     batch arrayrun     root PD       0:00      1 (JobArrayTaskLimit)
                15     batch  pending     root PD       0:00      4 (Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions)
                17     batch   future     root PD       0:00      1 (BeginTime)
                18     batch      dep     root PD       0:00      1 (Dependency)
                16     batch     held     root PD       0:00      1 (JobHeldUser)
                 9     batch  running     root  R       0:11      2 n[1-2]
                10     batch withstep     root  R       0:11      1 n1
              11_0     batch arrayrun     root  R       0:11      1 n1
              11_2     batch arrayrun     root  R       0:11      1 n1
                14     short     full     root PD       0:00      4 (Resources)
";

#[test]
fn default_listing() {
    assert_eq!(squeue(&[]), DEFAULT);
}

#[test]
fn long_listing() {
    let text = squeue(&["-l", "-j", "15,9"]);
    assert_eq!(
        text,
        "Sat Nov 21 20:23:45 2026
             JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES NODELIST(REASON)
                15     batch  pending     root  PENDING       0:00 2-00:00:00      4 (Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions)
                 9     batch  running     root  RUNNING       0:11   1:00:00      2 n[1-2]
"
    );
}

#[test]
fn jobs_are_chosen_by_the_time_that_they_have_run() {
    let ids = |args: &[&str]| {
        let text = squeue(&[args, &["-h", "-o", "%i", "-S", "i"]].concat());
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let running = "9 10 11_0 11_2";
    assert_eq!(ids(&["--running-over=0:10"]), running);
    assert_eq!(ids(&["--running-over=0:11"]), "");
    assert_eq!(ids(&["--running-under", "0:12"]), running);
    assert_eq!(ids(&["--running-under=1", "--running-over=0"]), running);
    assert_eq!(ids(&["--running-under=0:11"]), "");
    assert_eq!(ids(&["--running-over=1-0"]), "");
    for time in ["", "x", "1:2:3:4", "1-2:3:4:5", "-1", "1-"] {
        let text = refused(&[&format!("--running-over={time}")]);
        assert!(text.contains("Invalid time for --running-over"), "{text}");
    }
}

#[test]
fn tasks_one_by_one() {
    let text = squeue(&["-r"]);
    let line = |n: u32| {
        format!(
            "              11_{n}     batch arrayrun     root PD       0:00      1 (JobArrayTaskLimit)\n"
        )
    };
    assert!(text.contains(&(line(4) + &line(6) + &line(8))), "{text}");
    assert_eq!(text.lines().count(), DEFAULT.lines().count() + 2);
}

#[test]
fn jobs_without_a_list_are_all_jobs() {
    assert_eq!(squeue(&["-j"]), DEFAULT);
}

#[test]
fn a_signal_is_shown_with_its_number_and_name() {
    let mut jobs = fixture::jobs();
    let job = jobs.jobs.iter_mut().find(|j| j.id.0 == 9).unwrap();
    fixture::end(job, JobState::Failed, Reason::RaisedSignal, 1);
    job.exit.signal = 11;
    let text = squeue_of(
        &["-h", "-j", "9", "-t", "F", "-o", "%r %R"],
        &jobs,
        &fixture::ctx(),
    );
    let reason = "RaisedSignal:11(Segmentation_fault)";
    assert_eq!(text, format!("{reason} ({reason})\n"));
}

#[test]
fn sorted_by_id() {
    let text = squeue(&["-S", "-i,P", "-h", "-o", "%i"]);
    assert_eq!(
        text,
        "18\n17\n16\n15\n14\n11_[4,6,8%2]\n11_2\n11_0\n10\n9\n5\n"
    );
}

#[test]
fn with_priority_partitions_count_before_jobs() {
    let sorted = |keys: &str| squeue(&["-P", "-t", "PD", "-S", keys, "-h", "-o", "%i"]);
    // Only job 14 is in the partition with the higher priority.
    assert!(sorted("-p,i").starts_with("14\n"), "{}", sorted("-p,i"));
    assert!(sorted("Q,i").ends_with("\n14\n"), "{}", sorted("Q,i"));
    assert!(!sorted("i").starts_with("14\n"));
}

#[test]
fn expected_starts() {
    assert_eq!(
        squeue(&["--start"]),
        "             JOBID PARTITION     NAME     USER ST          START_TIME  NODES SCHEDNODES           NODELIST(REASON)
                17     batch   future     root PD 2026-11-21T21:23:38      1 (null)               (BeginTime)
                 5     batch afternok     root PD                 N/A      1 (null)               (DependencyNeverSatisfied)
      11_[4,6,8%2]     batch arrayrun     root PD                 N/A      1 (null)               (JobArrayTaskLimit)
                14     short     full     root PD                 N/A      4 (null)               (Resources)
                15     batch  pending     root PD                 N/A      4 (null)               (Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions)
                16     batch     held     root PD                 N/A      1 (null)               (JobHeldUser)
                18     batch      dep     root PD                 N/A      1 (null)               (Dependency)
"
    );
}

#[test]
fn steps() {
    assert_eq!(
        squeue(&["-s"]),
        "         STEPID     NAME PARTITION     USER      TIME NODELIST
        9.batch    batch     batch     root      0:11 n1
           10.0    sleep     batch     root      0:11 n1
       10.batch    batch     batch     root      0:11 n1
     11_0.batch    batch     batch     root      0:11 n1
     11_2.batch    batch     batch     root      0:11 n1
"
    );
    assert_eq!(
        squeue(&["-h", "-s", "10.0"]),
        "           10.0    sleep     batch     root      0:11 n1\n"
    );
    assert_eq!(squeue(&["-h", "-s11_2.batch", "-o", "%i"]), "11_2.batch\n");
    assert_eq!(
        squeue(&["-h", "-s", "-j", "10", "-o", "%i"]),
        "10.0\n10.batch\n"
    );
    assert_eq!(
        refused(&["-s", "2"]),
        "squeue: error: Invalid job_step id: 2.??"
    );
}

#[test]
fn ended_jobs_only_on_request() {
    let text = squeue(&["-t", "all", "-h"]);
    let expected = "                 1     batch  envdump     root CD       0:01      2 n[1-2]
               2_3     batch   arr.sh     root CD       0:00      1 n1
               2_1     batch   arr.sh     root CD       0:00      1 n1
               2_2     batch   arr.sh     root CD       0:00      1 n1
                 8     batch interact     root CD       0:00      1 n1
                 3     batch  failing     root  F       0:00      1 (NonZeroExitCode)
                 4     batch signalle     root  F       0:00      1 (JobLaunchFailure)
";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(
        squeue(&["-h", "-t", "cd,F", "-o", "%A"]),
        "1\n2\n6\n7\n8\n3\n4\n"
    );
    assert!(refused(&["-t", "foo"]).starts_with("squeue: error: Invalid job state specified: foo\nsqueue: error: Valid job states include: PENDING,RUNNING,"));
}

#[test]
fn letters() {
    let format = "%i|%P|%j|%u|%T|%t|%M|%l|%D|%R|%Q|%C|%m|%S|%e|%V|%a|%q|%A|%F|%K|%r|%N|%Z|%k|%E";
    let text = squeue(&["-h", "-o", format]);
    for line in [
        "17|batch|future|root|PENDING|PD|0:00|1:00:00|1|(BeginTime)|11000|1|0|2026-11-21T21:23:38|2026-11-21T22:23:38|2026-11-21T20:23:38|root|normal|17|17|N/A|BeginTime||/tmp/peer/slurm/acct/scratch/cap.XZYxPe|(null)|(null)",
        "18|batch|dep|root|PENDING|PD|0:00|1:00:00|1|(Dependency)|11000|1|0|N/A|N/A|2026-11-21T20:23:38|root|normal|18|18|N/A|Dependency||/tmp/peer/slurm/acct/scratch/cap.XZYxPe|(null)|afterany:9(unfulfilled)",
        "11_[4,6,8%2]|batch|arrayrun|root|PENDING|PD|0:00|1:00:00|1|(JobArrayTaskLimit)|11000|1|0|N/A|N/A|2026-11-21T20:23:33|root|normal|11|11|4,6,8%2|JobArrayTaskLimit||/tmp/peer/slurm/acct/scratch/cap.XZYxPe|(null)|(null)",
        "5|batch|afternok|root|PENDING|PD|0:00|1:00:00|1|(DependencyNeverSatisfied)|11000|1|0|N/A|N/A|2026-11-21T20:23:08|root|normal|5|5|N/A|DependencyNeverSatisfied||/tmp/peer/slurm/acct/scratch/cap.XZYxPe|(null)|afterok:3(failed)",
        "16|batch|held|root|PENDING|PD|0:00|1:00:00|1|(JobHeldUser)|0|1|0|N/A|N/A|2026-11-21T20:23:38|root|normal|16|16|N/A|JobHeldUser||/tmp/peer/slurm/acct/scratch/cap.XZYxPe|(null)|(null)",
        "9|batch|running|root|RUNNING|R|0:11|1:00:00|2|n[1-2]|11000|4|0|2026-11-21T20:23:34|2026-11-21T21:23:34|2026-11-21T20:23:33|root|normal|9|9|N/A|None|n[1-2]|/tmp/peer/slurm/acct/scratch/cap.XZYxPe|hello|(null)",
        "10|batch|withstep|root|RUNNING|R|0:11|1:00:00|1|n1|11000|2|50M|2026-11-21T20:23:34|2026-11-21T21:23:34|2026-11-21T20:23:33|root|normal|10|10|N/A|None|n1|/tmp/peer/slurm/acct/scratch/cap.XZYxPe|(null)|(null)",
        "11_2|batch|arrayrun|root|RUNNING|R|0:11|1:00:00|1|n1|11000|1|0|2026-11-21T20:23:34|2026-11-21T21:23:34|2026-11-21T20:23:33|root|normal|13|11|2|None|n1|/tmp/peer/slurm/acct/scratch/cap.XZYxPe|(null)|(null)",
        "14|short|full|root|PENDING|PD|0:00|20:00|4|(Resources)|11000|4|0|N/A|N/A|2026-11-21T20:23:38|root|normal|14|14|N/A|Resources||/tmp/peer/slurm/acct/scratch/cap.XZYxPe|(null)|(null)",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}\nin\n{text}");
    }
}

#[test]
fn names() {
    let text = squeue(&[
        "-O",
        "jobid,jobarrayid,name:20,username,state,reason,timeused,timelimit,numnodes,numcpus,nodelist,starttime,submittime,priority",
    ]);
    for line in [
        "JOBID               JOBID               NAME                USER                STATE               REASON              TIME                TIME_LIMIT          NODES               CPUS                NODELIST            START_TIME          SUBMIT_TIME         PRIORITY            ",
        "15                  15                  pending             root                PENDING             Nodes required for j0:00                2-00:00:00          4                   4                                       N/A                 2026-11-21T20:23:38 0.00000256113708    ",
        "11                  11_[4,6,8%2]        arrayrun            root                PENDING             JobArrayTaskLimit   0:00                1:00:00             1                   1                                       N/A                 2026-11-21T20:23:33 0.00000256113708    ",
        "16                  16                  held                root                PENDING             JobHeldUser         0:00                1:00:00             1                   1                                       N/A                 2026-11-21T20:23:38 0.00000000000000    ",
        "9                   9                   running             root                RUNNING             None                0:11                1:00:00             2                   4                   n[1-2]              2026-11-21T20:23:34 2026-11-21T20:23:33 0.00000256113708    ",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}\nin\n{text}");
    }
    let text = squeue(&[
        "-O",
        "JobID:30,tres-alloc:60,tres-per-node:20,StdOut:40,WorkDir:40",
        "-j",
        "9,15",
    ]);
    assert_eq!(
        text,
        "JOBID                         TRES_ALLOC                                                  TRES_PER_NODE       STDOUT                                  WORK_DIR                                
15                            cpu=4,mem=32000M,node=4,billing=4                           N/A                 /dev/null                               /tmp/peer/slurm/acct/scratch/cap.XZYxPe 
9                             cpu=4,node=2,billing=4                                      N/A                 /dev/null                               /tmp/peer/slurm/acct/scratch/cap.XZYxPe 
"
    );
}

#[test]
fn ids() {
    assert_eq!(squeue(&["-h", "-j", "11_2", "-o", "%i"]), "11_2\n");
    assert_eq!(
        squeue(&["-h", "-j11_4,11_0", "-o", "%i %t"]),
        "11_4 PD\n11_0 R\n"
    );
    assert_eq!(
        squeue(&["-h", "--jobs=11", "-o", "%i"]),
        "11_[4,6,8%2]\n11_0\n11_2\n"
    );
    assert_eq!(
        squeue(&["-h", "-j", "13", "-o", "%i"]),
        "11_2\n",
        "a task's own number"
    );
    assert_eq!(squeue(&["-h", "-j", "11_9", "-o", "%i"]), "");
    assert_eq!(
        squeue(&["-h", "-j", "11_[6-8]", "-o", "%i"]),
        "11_6\n11_8\n"
    );
    assert_eq!(
        refused(&["-j", "abc"]),
        "squeue: error: Invalid job id: abc"
    );
}

#[test]
fn one_unknown_id_is_an_error_and_several_are_not() {
    let conditions = |args: &[&str]| {
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        Options::new(SPEC.parse(&args).unwrap()).unwrap().conditions
    };
    let jobs = Jobs {
        unknown: vec![muster_model::ids::JobId(999)],
        ..Jobs::default()
    };
    let check = |args: &[&str]| conditions(args).check_jobs(&jobs, "slurm_load_jobs");
    assert!(check(&["-j", "999"]).is_err());
    assert!(check(&["-j", "999,999"]).is_ok());
    assert!(check(&["-j", "1"]).is_ok());
}

#[test]
fn selection() {
    assert_eq!(squeue(&["-h", "-p", "short", "-o", "%i"]), "14\n");
    assert_eq!(squeue(&["-h", "-n", "held,dep", "-o", "%i"]), "18\n16\n");
    assert_eq!(squeue(&["-h", "-w", "n2", "-o", "%i"]), "9\n");
    assert_eq!(squeue(&["-h", "-A", "nosuch"]), "");
    assert_eq!(squeue(&["-h", "-u", "nosuchuser-there"]), "");
    assert_eq!(
        squeue(&["-h", "-t", "R", "-u", "0", "-o", "%A"]),
        "9\n10\n12\n13\n"
    );
}

#[test]
fn words_that_cannot_be() {
    assert_eq!(
        refused(&["--foo"]),
        "squeue: unrecognized option '--foo'\nTry \"squeue --help\" for more information"
    );
    assert_eq!(refused(&["-i", "0"]), "squeue: error: --iterate=0\n");
    assert!(refused(&["xx"]).starts_with("squeue: error: Unrecognized option: xx\nUsage: squeue "));
    // Keys are letters, with or without commas between them.
    assert_eq!(
        refused(&["-S", "u?"]),
        "squeue: error: Invalid sort specification: u?"
    );
    for (keys, unknown) in [("bogus", "s"), ("Z", "Z"), ("sZ", "Z"), ("u,w,i", "w")] {
        assert_eq!(
            refused(&["-S", keys]),
            format!("squeue: error: Invalid sort specification: {unknown}")
        );
    }
    assert!(squeue(&["-S", "ui"]) == squeue(&["-S", "u,i"]));
    let long = refused(&["-l", "-o", "%i"]);
    assert!(long.ends_with("are mutually exclusive. Please remove one and retry."));
}

#[test]
fn json_of_both_layouts_parses() {
    let old: serde_json::Value = serde_json::from_str(&squeue(&["--json=v0.0.38"])).unwrap();
    let jobs = old["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 18, "every job, whatever its state");
    let by_id = |id: u64| jobs.iter().find(|j| j["job_id"] == id).unwrap();
    assert_eq!(by_id(9)["job_state"], "RUNNING");
    assert_eq!(by_id(9)["tres_alloc_str"], "cpu=4,node=2,billing=4");
    assert_eq!(by_id(13)["array_job_id"], 11);
    assert_eq!(by_id(13)["array_task_id"], 2);
    assert_eq!(by_id(3)["exit_code"], 7 << 8);
    assert_eq!(by_id(11)["array_task_string"], "4,6,8%2");
    assert_eq!(
        by_id(1)["job_resources"]["allocated_nodes"][0]["sockets"]["0"]["cores"]["3"],
        "allocated"
    );
    let new: serde_json::Value = serde_json::from_str(&squeue(&["--json", "-j", "3"])).unwrap();
    let job = &new["jobs"][0];
    assert_eq!(new["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(job["job_state"][0], "FAILED");
    assert_eq!(job["exit_code"]["return_code"]["number"], 7);
    assert_eq!(job["exit_code"]["status"][0], "ERROR");
    assert_eq!(job["time_limit"]["number"], 60);
}

/// The old layout has the members of Slurm 22.05's, in its order.
#[test]
fn old_layout_has_slurms_members() {
    let text = squeue(&["--json=v0.0.38", "-j", "1", "-t", "all"]);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let keys: Vec<&str> = value["jobs"][0]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let expected = "account accrue_time admin_comment array_job_id array_task_id array_max_tasks array_task_string \
        association_id batch_features batch_flag batch_host flags burst_buffer burst_buffer_state cluster \
        cluster_features command comment container contiguous core_spec thread_spec cores_per_socket billable_tres \
        cpus_per_task cpu_frequency_minimum cpu_frequency_maximum cpu_frequency_governor cpus_per_tres deadline \
        delay_boot dependency derived_exit_code eligible_time end_time excluded_nodes exit_code features \
        federation_origin federation_siblings_active federation_siblings_viable gres_detail group_id group_name job_id \
        job_resources job_state last_sched_evaluation licenses max_cpus max_nodes mcs_label memory_per_tres name nodes \
        nice tasks_per_core tasks_per_node tasks_per_socket tasks_per_board cpus node_count tasks het_job_id \
        het_job_id_set het_job_offset partition prefer memory_per_node memory_per_cpu minimum_cpus_per_node \
        minimum_tmp_disk_per_node preempt_time pre_sus_time priority profile qos reboot required_nodes requeue \
        resize_time restart_cnt resv_name shared show_flags sockets_per_board sockets_per_node start_time \
        state_description state_reason standard_error standard_input standard_output submit_time suspend_time \
        system_comment time_limit time_minimum threads_per_core tres_bind tres_freq tres_per_job tres_per_node \
        tres_per_socket tres_per_task tres_req_str tres_alloc_str user_id user_name wckey current_working_directory";
    let expected: Vec<&str> = expected.split_whitespace().collect();
    assert_eq!(keys, expected);
}

/// Array expressions as `squeue -o %K` of 22.05.8 printed them.
#[test]
fn array_expressions() {
    use crate::listing::job::index_text;
    use muster_model::index_set::IndexSet;
    let show = |list: &[(u32, u32, usize)], max: usize| {
        let mut set = IndexSet::default();
        for (first, last, step) in list {
            (*first..=*last).step_by(*step).for_each(|i| set.insert(i));
        }
        let mut out = String::new();
        index_text(&mut out, &set, max);
        out
    };
    assert_eq!(show(&[(0, 8, 2)], 64), "0,2,4,6,8");
    assert_eq!(show(&[(1, 200, 3)], 64), "1-199:3");
    assert_eq!(show(&[(1, 3, 1), (7, 9, 1)], 64), "1-3,7-9");
    let odd = [
        1, 2, 5, 9, 11, 15, 16, 17, 19, 22, 25, 27, 33, 39, 45, 55, 66, 77, 88, 99, 101, 103, 107,
        109,
    ];
    let odd: Vec<(u32, u32, usize)> = odd.iter().map(|i| (*i, *i, 1)).collect();
    assert_eq!(
        show(&odd, 64),
        "1-2,5,9,11,15-17,19,22,25,27,33,39,45,55,66,77,88,99,101,103..."
    );
    assert_eq!(show(&odd, 20), "1-2,5,9,11,15-17...");
    // As Slurm 22.05.8 printed them.
    assert_eq!(show(&odd, 8), "1-2,...");
    assert_eq!(show(&odd, 21), "1-2,5,9,11,15-17,...");
    assert_eq!(show(&odd, 22), "1-2,5,9,11,15-17,1...");
    assert_eq!(show(&[(0, 9, 3)], 8), "0,3,...");
    assert_eq!(
        show(&odd, 0),
        "1-2,5,9,11,15-17,19,22,25,27,33,39,45,55,66,77,88,99,101,103,107,109"
    );
    assert_eq!(show(&[(0, 1_000_000, 1)], 64), "0-1000000");
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

/// Many records of a few templates, as users submit them: each of these jobs again and again, with other numbers.
fn many() -> (Jobs, Ctx) {
    let (fixture, ctx) = (fixture::jobs(), fixture::ctx());
    let mut all = Vec::new();
    for round in 0_u32..20 {
        for job in fixture.jobs.iter() {
            let mut job = job.clone();
            let n = i64::from(round) * 7 % 20;
            job.id.0 += 100 * u64::from(round);
            job.priority = job.priority.saturating_sub(u32::try_from(n).unwrap() / 3);
            job.submit_time.0 += 61_000 * n;
            job.eligible_time = job.eligible_time.map(|at| at.plus_s(n.cast_unsigned()));
            job.last_sched_eval = job.last_sched_eval.map(|at| at.plus_s(round.into()));
            all.push(job);
        }
    }
    let jobs = Jobs {
        jobs: all.into(),
        ..fixture
    };
    (jobs, ctx)
}

/// The records as a part of an answer brings them.
fn listed(jobs: &[Job]) -> CompactListing {
    let (mut writer, mut templates) = (ListingWriter::default(), TemplateTable::default());
    let mut specs = SpecTable::default();
    for job in jobs {
        let template = templates.of(job, &mut writer, &mut specs);
        writer.record(template, &RowValues::of(job));
    }
    let bytes = minicbor::to_vec(&writer).unwrap();
    minicbor::decode_with(&bytes, &mut SpecTable::default()).unwrap()
}

/// Every field, by letters and by names.
fn every_field() -> [String; 2] {
    let names = job_fields::FIELDS.iter().map(|field| field.names[0]);
    ["%all".to_owned(), names.collect::<Vec<_>>().join(",")]
}

#[test]
fn jobs_of_one_template_are_shown_as_each_of_them_alone() {
    let (mut jobs, ctx) = many();
    let [letters, names] = every_field();
    let formats: [&[&str]; 6] = [
        &[],
        &["-l"],
        &["-o", &letters],
        &["-O", &names],
        &["-h", "-o", "%.3i|%V %Q x %18i"],
        &["-u", "root", "-p", "batch", "-t", "PD,R"],
    ];
    let sorts = ["", "P,t,-p", "i", "-i", "p", "t,-V,j", "-P,u,Q", "e,S", "u"];
    for format in formats {
        for sort in sorts {
            let args = [format, &["-S", sort]].concat();
            let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
            let options = Options::new(SPEC.parse(&args).unwrap()).unwrap();
            let layouts = Layouts::new(&options);
            let expected = render(&options, &layouts, &jobs, &ctx).unwrap();
            let mut builder = ListingBuilder::new(&options, &layouts).unwrap();
            let all: Vec<Job> = jobs.jobs.iter().cloned().collect();
            // Parts of any length.
            for part in all.chunks(250) {
                builder.add(listed(part), &mut jobs, &ctx);
            }
            assert!(
                builder.templates() < all.len() / 2,
                "{} templates",
                builder.templates()
            );
            let mut text = String::new();
            builder.write(&ctx, |chunk| text.push_str(chunk));
            assert_eq!(text, expected, "{args:?}");
        }
    }
}

#[test]
fn fields_that_are_not_of_numbers_are_the_same_for_all_of_a_form() {
    let (jobs, mut ctx) = many();
    let fields = job_fields::FIELDS.iter();
    let fields: Vec<_> = fields.filter(|f| !job_fields::is_of_numbers(f)).collect();
    let mut compared = 0;
    let mut pending = jobs.jobs.iter();
    ctx.now = ctx.now.plus_s(10_000);
    while let Some(like) = pending.next().filter(|job| job.id.0 < 100) {
        for job in jobs.jobs.iter().filter(|job| same_template(job, like)) {
            for field in &fields {
                let text = |job| {
                    let row = JobRow::new(job, jobs.array_of(like));
                    crate::listing::text::collect(|out| (field.render)(&row, &ctx, out))
                };
                assert_eq!(text(like), text(job), "{}", field.names[0]);
                compared += 1;
            }
        }
    }
    assert!(compared > 20 * fields.len(), "{compared} compared");
}

#[test]
fn what_is_kept_of_a_job_among_many_is_its_number() {
    let (_, ctx) = many();
    let first = fixture::jobs()
        .jobs
        .iter()
        .find(|job| job.id.0 == 15)
        .cloned()
        .unwrap();
    let numbered = |n| {
        let mut job = first.clone();
        job.id.0 += n;
        job
    };
    let all: Vec<Job> = (0..10_000).map(numbered).collect();
    let options = Options::new(SPEC.parse(&[]).unwrap()).unwrap();
    let layouts = Layouts::new(&options);
    let mut builder = ListingBuilder::new(&options, &layouts).unwrap();
    builder.add(listed(&all), &mut Jobs::default(), &ctx);
    assert_eq!(builder.templates(), 1);
    let mut chunks = Vec::new();
    builder.write(&ctx, |chunk| chunks.push(chunk.len()));
    assert!(chunks.iter().all(|chunk| *chunk < 20_000), "{chunks:?}");
}
