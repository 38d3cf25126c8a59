//! Lines about jobs beside those of Grid Engine 8.1.9.

use super::*;
use crate::grid_engine::qstat::usage::StepUsage;
use jiff::tz::TimeZone;
use muster_model::cpuset::CpuSet;
use muster_model::ids::{NodeIdx, StepNo};
use muster_model::job::Allocation;
use muster_model::spec::{JobSpec, Owner};
use muster_model::time::TimeLimit;
use std::sync::Arc;

fn job(name: &str, state: JobState) -> Job {
    let spec = JobSpec {
        name: name.to_owned(),
        owner: Owner {
            user: "geuser".to_owned(),
            ..Owner::default()
        },
        shown: vec![
            (marks::HARD.to_owned(), "h_rt=600,h_vmem=1G".to_owned()),
            (marks::HARD_QUEUES.to_owned(), "all.q".to_owned()),
        ],
        ..JobSpec::default()
    };
    // Sat Nov 21 19:05:05 2026
    let at = Timestamp::from_unix_s(1_795_287_905);
    let mut job = Job::new(JobId(4), Arc::new(spec), TimeLimit::Unlimited, at);
    (job.state, job.priority) = (state, 1_074_342_947);
    job.start_time = (state != JobState::Pending).then_some(at);
    job
}

/// A job of a parallel environment with 3 slots on one host and 2 on another, and a step on each.
fn parallel_job() -> (Job, Measured) {
    let mut job = job("PAR", JobState::Running);
    let share = |(name, tasks): (&str, u32)| NodeShare {
        node: NodeIdx(0),
        name: name.to_owned(),
        cpus: CpuSet::first(tasks),
        memory_mib: 0,
        tasks,
        gres: Vec::new(),
    };
    job.alloc = Some(Arc::new(Allocation {
        nodes: [("vm", 3), ("wm", 2)].map(share).into(),
        ..Allocation::default()
    }));
    job.priority = u32::MAX / 4 * 3 + 1;
    job.partition = "all.q".to_owned();
    let used = |node: &str, step, user_us, bytes| StepUsage {
        node: node.to_owned(),
        step,
        usage: ResourceUsage {
            user_us,
            disk_read_bytes: bytes,
            ..ResourceUsage::default()
        },
    };
    let steps = vec![
        used("vm", StepNo::BATCH, 1_500_000, 816_043),
        used("vm", StepNo(1), 61_000_000, 42_950),
        used("wm", StepNo(1), 90_061_000_000, 0),
    ];
    let measured = Measured::from_steps(job.id, steps, &[]);
    (job, measured)
}

/// Heads of Grid Engine 8.1.9, and how many dashes it has below each.
#[test]
fn options_combine_columns_as_grid_engine_does() {
    let head = |words: &str| {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let mixed = crate::grid_engine::arguments::OperandPosition::Mixed;
        let parsed =
            crate::grid_engine::arguments::parse(&super::super::SPEC, &words, mixed).unwrap();
        let text = super::head(&View::read(&parsed));
        let (head, dashes) = text.trim_end().split_once('\n').unwrap();
        (head.to_owned(), dashes.len())
    };
    for (words, length, dashes) in [
        ("", 114, 113),
        ("-pri", 144, 148),
        ("-ext", 193, 192),
        ("-urg", 178, 177),
        ("-pri -ext", 235, 227),
        ("-ext -urg", 277, 256),
        ("-pri -urg", 200, 212),
        ("-pri -ext -urg", 291, 291),
        ("-t", 168, 167),
        ("-t -pri", 198, 202),
        ("-t -urg", 232, 231),
        ("-t -pri -ext -urg", 345, 345),
        ("-g t -pri", 145, 149),
    ] {
        let (text, below) = head(words);
        assert_eq!((text.len(), below), (length, dashes), "{words}");
    }
    assert_eq!(
        head("-pri -ext -urg").0,
        "job-ID  prior   nurg    npprior ntckts  urg      rrcontr  wtcontr  dlcontr   ppri name       user         project          department state submit/start at      deadline           cpu        mem     io      tckts ovrts otckt ftckt stckt share queue                          slots ja-task-ID "
    );
    let all = View {
        pri: true,
        ext: true,
        urg: true,
        ..View::default()
    };
    let text = lines(&job("BIGGPU", JobState::Pending), &all, "", "");
    assert_eq!(
        text.lines().last().unwrap(),
        "      4 0.25014 0.00000 0.25014 0.00000        0        0        0        0     0 BIGGPU     geuser       NA               defaultdep qw    11/21/2026 19:05:05                                                    0     0     0     0     0 0.00                                     1        "
    );
}

fn shown(view: &View) -> Vec<String> {
    let (job, measured) = parallel_job();
    let (ctx, mapping) = (Ctx::bare("c", TimeZone::UTC), Mapping::default());
    let source = EntrySource {
        ctx: &ctx,
        mapping: &mapping,
        view,
        measured: &measured,
    };
    let entries = Entry::of(&job, state(&job), source);
    let text = table(&entries, view);
    text.lines().map(str::to_owned).collect()
}

/// The order of columns is from Grid Engine 8.1.9, whose memory here is what tasks had at most.
#[test]
fn each_slot_has_a_line_with_what_runs_there() {
    let slots = View {
        each_slot: true,
        ..View::default()
    };
    let master = "      4 0.75000 PAR        geuser       r     11/21/2026 19:05:05 all.q@vm                       MASTER        ";
    let slave = "                                                                  all.q@vm                       SLAVE         ";
    let other = "      4 0.75000 PAR        geuser       r     11/21/2026 19:05:05 all.q@wm                       SLAVE         ";
    let last = "                                                                  all.q@wm                       SLAVE         ";
    assert_eq!(shown(&slots)[2..], [master, slave, slave, other, last]);
    let with_steps = View {
        steps: true,
        ..slots
    };
    assert_eq!(
        shown(&with_steps),
        [
            "job-ID  prior   name       user         state submit/start at     queue                          master ja-task-ID task-ID state cpu        mem     io      stat failed ",
            "-----------------------------------------------------------------------------------------------------------------------------------------------------------------------",
            "      4 0.75000 PAR        geuser       r     11/21/2026 19:05:05 all.q@vm                       MASTER                        r     00:00:01 0.00000 0.00076 ",
            "                                                                  all.q@vm                       SLAVE            1.vm         r     00:01:01 0.00000 0.00004 ",
            slave,
            "      4 0.75000 PAR        geuser       r     11/21/2026 19:05:05 all.q@wm                       SLAVE            1.wm         r     25:01:01 0.00000 0.00000 ",
            last,
        ]
    );
    let pri = View { pri: true, ..slots };
    let blanks = shown(&pri)[3].chars().take_while(|c| *c == ' ').count();
    assert_eq!(blanks, 108);
}

/// It had one for each slot, however many were asked for: qstat took all memory.
#[test]
fn a_job_that_overcommits_has_a_line_for_each_cpu() {
    let mut job = job("OVER", JobState::Running);
    let share = NodeShare {
        node: NodeIdx(0),
        name: "vm".to_owned(),
        cpus: CpuSet::first(2),
        memory_mib: 0,
        tasks: 1 << 20,
        gres: Vec::new(),
    };
    Arc::make_mut(&mut job.spec).ask.cpus_per_task = Some(1 << 20);
    job.alloc = Some(Arc::new(Allocation {
        nodes: vec![share],
        ..Allocation::default()
    }));
    let step = |number| StepUsage {
        node: "vm".to_owned(),
        step: StepNo(number),
        usage: ResourceUsage::default(),
    };
    let view = View {
        each_slot: true,
        ..View::default()
    };
    let count = |steps: u32| {
        let steps = (0..steps).map(step).collect();
        let measured = Measured::from_steps(job.id, steps, &[]);
        let source = EntrySource {
            ctx: &Ctx::bare("c", TimeZone::UTC),
            mapping: &Mapping::default(),
            view: &view,
            measured: &measured,
        };
        Entry::of(&job, state(&job), source).len()
    };
    assert_eq!((count(0), count(5), count(9999)), (2, 6, 1001));
}

#[test]
fn what_jobs_use_is_among_the_further_columns() {
    let ext = View {
        ext: true,
        ..View::default()
    };
    assert_eq!(
        shown(&ext)[2],
        "      4 0.75000 0.00000 PAR        geuser       NA               defaultdep r     1:01:02:03 0.00000 0.00080     0     0     0     0     0 0.00  all.q@vm                           1        "
    );
    let with_steps = View {
        steps: true,
        each_slot: true,
        ..ext
    };
    let lines = shown(&with_steps);
    assert_eq!(
        lines[0],
        "job-ID  prior   ntckts  name       user         project          department state submit/start at     cpu        mem     io      tckts ovrts otckt ftckt stckt share queue                          master ja-task-ID task-ID state cpu        mem     io      stat failed "
    );
    assert_eq!(
        lines[3],
        "                                                                                                      0:00:01:01 0.00000 0.00004     0     0     0     0     0 0.00  all.q@vm                       SLAVE            1.vm         r     00:01:01 0.00000 0.00004 "
    );
    assert_eq!(
        lines[4],
        "                                                                                                      NA         NA      NA          0     0     0     0     0 0.00  all.q@vm                       SLAVE         "
    );
}

fn lines(job: &Job, view: &View, queue: &str, tasks: &str) -> String {
    let ctx = Ctx::bare("c", TimeZone::UTC);
    let mapping = Mapping::default();
    let measured = Measured::default();
    let source = EntrySource {
        ctx: &ctx,
        mapping: &mapping,
        view,
        measured: &measured,
    };
    let mut entries = Entry::of(job, state(job), source);
    for entry in &mut entries {
        (entry.queue, entry.tasks) = (queue.to_owned(), tasks.to_owned());
    }
    table(&entries, view)
}

/// The lines that Grid Engine 8.1.9 printed, blanks at the end included.
#[test]
fn columns_are_where_grid_engine_has_them() {
    let running = job("HELLO", JobState::Running);
    let text = lines(&running, &View::default(), "all.q@vm", "");
    assert_eq!(
        text,
        "job-ID  prior   name       user         state submit/start at     queue                          slots ja-task-ID \n\
         -----------------------------------------------------------------------------------------------------------------\n      \
         4 0.25014 HELLO      geuser       r     11/21/2026 19:05:05 all.q@vm                           1        \n"
    );
    let mut held = job("a name that is long", JobState::Pending);
    held.hold = Hold::User;
    let text = lines(&held, &View::default(), "", "1-5:2");
    assert_eq!(
        text.lines().last().unwrap(),
        "      4 0.00000 a name tha geuser       hqw   11/21/2026 19:05:05                                    1 1-5:2"
    );
    let ext = View {
        ext: true,
        ..View::default()
    };
    let text = lines(&running, &ext, "all.q@vm", "");
    assert_eq!(
        text.lines().last().unwrap(),
        "      4 0.25014 0.00000 HELLO      geuser       NA               defaultdep r     NA         NA      NA          0     0     0     0     0 0.00  all.q@vm                           1        "
    );
    let hosts = View {
        each_slot: true,
        ..View::default()
    };
    let text = lines(&job("PE", JobState::Pending), &hosts, "", "");
    assert!(text.starts_with("job-ID  prior   name       user         state submit/start at     queue                          master ja-task-ID \n"));
    assert_eq!(
        text.lines().last().unwrap(),
        "      4 0.25014 PE         geuser       qw    11/21/2026 19:05:05                                              "
    );
}

/// Grid Engine 8.1.9 has jobs that ended without a queue, tasks of an array together.
#[test]
fn jobs_that_ended_have_a_line_each() {
    let task = |index| {
        let mut job = job("Z", JobState::Completed);
        (job.id, job.end_time) = (JobId(4 + u64::from(index)), job.start_time);
        job.array = ArrayRole::Task {
            base: JobId(4),
            index,
        };
        job
    };
    let (ctx, mapping) = (Ctx::bare("c", TimeZone::UTC), Mapping::default());
    let (view, measured) = (View::default(), Measured::default());
    let source = EntrySource {
        ctx: &ctx,
        mapping: &mapping,
        view: &view,
        measured: &measured,
    };
    let jobs = [task(3), task(1), task(2)];
    let each = jobs
        .iter()
        .flat_map(|job| Entry::of(job, state(job), source));
    let mut entries: Vec<Entry> = each.collect();
    merge_ended(&mut entries);
    let line = "      4 0.00000 Z          geuser       z     11/21/2026 19:05:05                                    1 1-3:1";
    let text = table(&entries, &view);
    assert_eq!(text.lines().skip(2).collect::<Vec<_>>(), [line]);
    let text = super::super::xml::jobs(&entries, &view);
    let (running, others) = text.split_once("  <job_info>").unwrap();
    assert!(!running.contains("job_list"), "{text}");
    assert!(others.contains("<job_list state=\"zombie\">"), "{text}");
    assert!(others.contains("<JB_submission_time>"), "{text}");
}

#[test]
fn requests_of_a_job() {
    let view = View {
        requests: true,
        ..View::default()
    };
    let text = lines(&job("BIN", JobState::Pending), &view, "", "");
    let own: Vec<&str> = text.lines().skip(3).collect();
    assert_eq!(
        own,
        [
            "       Full jobname:     BIN",
            "       Hard Resources:   h_rt=600 (0.000000)",
            "                         h_vmem=1G (0.000000)",
            "       Soft Resources:   ",
            "       Hard requested queues: all.q",
            "       Binding:          NONE",
        ]
    );
}

#[test]
fn states_in_letters() {
    for (state_now, want) in [
        (JobState::Pending, "qw"),
        (JobState::Running, "r"),
        (JobState::Suspended, "s"),
        (JobState::Completed, "z"),
    ] {
        assert_eq!(state(&job("x", state_now)), want);
    }
    let mut ending = job("x", JobState::Cancelled);
    (ending.completing, ending.cancelled_by) = (true, Some(0));
    assert_eq!(state(&ending), "dr");
    let mut again = job("x", JobState::Pending);
    again.restarts = 1;
    assert_eq!(state(&again), "Rq");
    again.special_exit = true;
    assert_eq!(state(&again), "Eqw");
}
