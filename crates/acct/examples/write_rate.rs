//! How many job lives (submission, start, script, end) the store takes per second, and what a job costs on disk.
//!
//! `cargo run --release -p muster-acct --example write_rate [jobs] [changes per transaction]`

use muster_acct::{AccountingChange, History, JobRow, RunKey, SqliteStore, Store};
use muster_model::cpuset::CpuSet;
use muster_model::ids::{JobId, NodeIdx, StepNo};
use muster_model::job::{
    Allocation, ExitStatus, JobState, NodeShare, Reason, ResourceUsage, Step, StepEnd,
};
use muster_model::spec::{JobSpec, Owner, StdioSpec};
use muster_model::time::{TimeLimit, Timestamp};
use muster_proto::acct::AcctQuery;
use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

const START: i64 = 1_780_000_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let jobs: u64 = args.next().map_or(Ok(200_000), |text| text.parse())?;
    let group: usize = args.next().map_or(Ok(4096), |text| text.parse())?;
    let directory = std::env::temp_dir().join(format!("muster-write-rate-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let path = directory.join("acct.db");
    for (name, lag) in [
        ("whole lives in a transaction", 1),
        ("each part in its own", 20_000),
    ] {
        let _ = std::fs::remove_file(&path);
        let mut store = SqliteStore::open(&path)?;
        let changes = lives(jobs, lag);
        let began = Instant::now();
        let mut position = 0;
        for part in changes.chunks(group) {
            position += part.len() as u64;
            store.write(part, position)?;
        }
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{name}: {:.0} jobs/s, {:.0} changes/s",
            jobs as f64 / seconds,
            position as f64 / seconds
        );
        read(&store)?;
        drop(store);
        println!("  {} bytes per job", std::fs::metadata(&path)?.len() / jobs);
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

fn read(store: &SqliteStore) -> Result<(), Box<dyn Error>> {
    let one = AcctQuery {
        jobs: vec![(JobId(4711), None)],
        ..AcctQuery::default()
    };
    let own = AcctQuery {
        uids: vec![1003],
        start: Some(Timestamp(START)),
        allocations_only: true,
        ..AcctQuery::default()
    };
    let all = AcctQuery {
        start: Some(Timestamp(START)),
        ..AcctQuery::default()
    };
    let mut reader = store.reader()?;
    for (name, query) in [("one job", one), ("a user's jobs", own), ("all jobs", all)] {
        let began = Instant::now();
        let mut count = 0;
        reader.query(&query, 1000, &mut |page| {
            count += page.len();
            ControlFlow::Continue(())
        })?;
        println!("  {name}: {count} in {:?}", began.elapsed());
    }
    Ok(())
}

/// Lives of jobs of which `lag` run at any time.
fn lives(jobs: u64, lag: u64) -> Vec<AccountingChange> {
    let specs: Vec<Arc<JobSpec>> = (0..jobs).map(spec).collect();
    let mut changes = Vec::new();
    for now in 0..jobs + 2 * lag {
        if now < jobs {
            changes.push(AccountingChange::Job(Box::new(row(
                now,
                &specs,
                JobState::Pending,
            ))));
        }
        if let Some(n) = now.checked_sub(lag).filter(|n| *n < jobs) {
            changes.push(AccountingChange::Run(Box::new(row(
                n,
                &specs,
                JobState::Running,
            ))));
            changes.push(script(n));
        }
        if let Some(n) = now.checked_sub(2 * lag).filter(|n| *n < jobs) {
            changes.push(script_end(n));
            changes.push(AccountingChange::Run(Box::new(row(
                n,
                &specs,
                JobState::Completed,
            ))));
        }
    }
    changes
}

fn key(n: u64) -> RunKey {
    RunKey {
        job: JobId(n + 1),
        number: 0,
    }
}

fn spec(n: u64) -> Arc<JobSpec> {
    let user = n % 40;
    Arc::new(JobSpec {
        name: format!("align-{}", n % 1000),
        owner: Owner {
            uid: 1000 + u32::try_from(user).unwrap_or(0),
            gid: 100,
            user: format!("user{user}"),
            group: "users".to_owned(),
        },
        partitions: vec!["batch".to_owned()],
        work_dir: format!("/home/user{user}/project"),
        submit_line: format!("sbatch --mem=2G align.sh sample{n}"),
        submit_host: "login1".to_owned(),
        command: "align.sh".to_owned(),
        stdio: StdioSpec::default(),
        ..JobSpec::default()
    })
}

fn row(n: u64, specs: &[Arc<JobSpec>], state: JobState) -> JobRow {
    let at = Timestamp(START).plus_ms(n);
    let started = state != JobState::Pending;
    let node = format!("node{:04}", n % 1000);
    let cpus: CpuSet = (0..4).collect();
    let alloc = Allocation {
        nodes: vec![NodeShare {
            node: NodeIdx(0),
            name: node.clone(),
            cpus,
            memory_mib: 2048,
            tasks: 1,
            gres: Vec::new(),
        }],
        partition: "batch".to_owned(),
        hostlist: node,
        ntasks: 1,
        ..Allocation::default()
    };
    JobRow {
        key: key(n),
        spec: specs[usize::try_from(n).unwrap_or(0)].clone(),
        array: None,
        het: None,
        array_record: false,
        state,
        requeued: false,
        cancelled_by: None,
        exit: ExitStatus::default(),
        derived_exit: ExitStatus::default(),
        submit: at,
        eligible: Some(at),
        start: started.then(|| at.plus_s(7)),
        end: state.is_ended().then(|| at.plus_s(60)),
        suspended_ms: 0,
        time_limit: TimeLimit::Minutes(60),
        req_mem_mib: 2048,
        req_licenses: Vec::new(),
        licenses: Vec::new(),
        alloc: started.then(|| Arc::new(alloc)),
        partition: "batch".to_owned(),
        reason: Reason::None,
        priority: 1000,
    }
}

fn script(n: u64) -> AccountingChange {
    AccountingChange::StepStarted {
        run: key(n),
        step: Arc::new(Step {
            step: StepNo::BATCH,
            name: "batch".to_owned(),
            hostlist: format!("node{:04}", n % 1000),
            nodes: 1,
            tasks: 1,
            cpus: 4,
            memory_mib: 2048,
            start_time: Timestamp(START).plus_ms(n).plus_s(7),
            stdio: StdioSpec::default(),
            submit_line: String::new(),
            time_limit: None,
            distribution: None,
            maker: None,
            devices: Vec::new(),
            device_ask: None,
        }),
    }
}

fn script_end(n: u64) -> AccountingChange {
    AccountingChange::StepEnded {
        run: key(n),
        step: StepNo::BATCH,
        end: Box::new(StepEnd {
            end_time: Timestamp(START).plus_ms(n).plus_s(60),
            exit: ExitStatus::default(),
            state: JobState::Completed,
            usage: ResourceUsage {
                user_us: 50_000_000 + n,
                system_us: 100_000,
                max_rss_kib: 1_000_000,
                tasks: 1,
                ..ResourceUsage::default()
            },
            cancelled_by: None,
            last_lines: None,
        }),
        derived_exit: None,
    }
}
