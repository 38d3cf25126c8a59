//! Steps that wait, in numbers: how many may, and what an event costs others. Looks at waiting steps are counted.

use super::*;
use muster_model::job::Step;
use muster_model::spec::Owner;
use std::sync::Arc;

/// A launch of another job, of this user.
fn launch_of(job: u64, uid: u32) -> JobGrant {
    let owner = Owner {
        uid,
        ..JobSpec::default().owner
    };
    JobGrant {
        job: JobId(job),
        spec: Arc::new(JobSpec {
            owner,
            ..JobSpec::default()
        }),
        ..grant(0)
    }
}

/// A step of this job, with all CPUs of a node.
fn step_of_job(job: u64) -> StepSpec {
    StepSpec {
        job: JobId(job),
        ..step_spec(2)
    }
}

impl Bench {
    fn looks(&self) -> usize {
        self.agent.steps.led.looks()
    }

    fn is_refused(&self, request: RequestId, code: RefusalCode) -> bool {
        matches!(self.replies_to(request)[..], [AgentReply::Refused(why)] if why.code == code)
    }

    /// A job of two nodes, of which a step has the other's CPUs, so that steps of two wait.
    fn launch_busy(&mut self, job: u64, uid: u32) {
        self.order(Order::Launch(Box::new(launch_of(job, uid))));
        let running = step_of_job(job);
        self.create(job << 32, running);
    }
}

/// A frame of 66 bytes made one, and all events went through all of them.
#[test]
fn steps_that_wait_are_bounded_by_job_and_by_user() {
    let mut bench = Bench::with_job(1);
    for job in [20, 21, 22, 23] {
        bench.launch_busy(job, if job == 23 { 2 } else { 1 });
    }
    for (job, most) in [(20, 4096), (21, 4096), (22, 0), (23, 4096)] {
        let mut count = 0;
        let refused = loop {
            let request = bench.create(count, step_of_job(job));
            if !bench.replies_to(request).is_empty() {
                break request;
            }
            count += 1;
        };
        assert!(bench.is_refused(refused, RefusalCode::Busy));
        assert_eq!(count, most, "job {job}");
    }
    // One that goes makes room for another.
    bench.event(Event::ConnClosed(ConnId(4095)));
    let next = bench.create(5000, step_of_job(20));
    assert!(bench.replies_to(next).is_empty());
}

#[test]
fn an_event_looks_only_at_steps_that_it_concerns() {
    let mut bench = Bench::with_job(1);
    bench.launch_busy(20, 1);
    for conn in 0..1000 {
        bench.create(conn, step_of_job(20));
    }
    let before = bench.looks();
    // Another step of that job waits: the first is not laid out again.
    bench.create(1000, step_of_job(20));
    // Steps of another job begin and end, and their clients go.
    for conn in 2000..2010 {
        bench.create(conn, step_spec(1));
        let (stepd, step) = match bench
            .starts
            .iter()
            .position(|(stepd, _)| bench.stepds[stepd].attempt == RUN)
        {
            Some(at) => {
                let (stepd, step) = bench.starts.remove(at);
                bench.starts.insert(0, (stepd, step));
                (bench.start_ready(), step)
            }
            None => {
                let (stepd, step, _) = bench.offered.pop().unwrap();
                (stepd, step)
            }
        };
        bench.stepd_ends(stepd, step.0);
        bench.event(Event::ConnClosed(ConnId(conn)));
    }
    // Clients of waiting steps go, the last first.
    for conn in (900..1000).rev() {
        bench.event(Event::ConnClosed(ConnId(conn)));
    }
    bench.acknowledge();
    let looks = bench.looks() - before;
    assert!(looks < 400, "{looks}");
}

/// Each waiting step had one, and each went through all waiting steps.
#[test]
fn a_connection_has_one_timer_however_many_of_its_steps_wait() {
    let mut bench = Bench::with_job(1);
    bench.launch_busy(20, 1);
    let before = bench.timers_set;
    let requests: Vec<RequestId> = (0..64).map(|_| bench.create(1, step_of_job(20))).collect();
    assert_eq!(bench.timers_set, before + 1);
    bench.timer(Timer::StepQueued(ConnId(1)));
    for request in requests {
        assert!(matches!(
            bench.replies_to(request)[..],
            [AgentReply::Queued(_)]
        ));
    }
    bench.event(Event::ConnClosed(ConnId(1)));
    assert_eq!(bench.requests.len(), 1, "that of the step that runs");
}

/// Each event of a job expanded the names that its first waiting step excludes.
#[test]
fn names_of_nodes_are_looked_up_once() {
    let mut bench = Bench::with_job(1);
    bench.launch_busy(20, 1);
    let spec = StepSpec {
        exclude: Some("x[0-65535]".to_owned()),
        ..step_of_job(20)
    };
    let first = bench.create(1, spec);
    let before = crate::layout::look_ups();
    for _ in 0..100 {
        bench.agent.steps.led.retry_waiting(JobAttempt {
            job: JobId(20),
            ..RUN
        });
        bench.event(Event::Idle);
    }
    assert_eq!(crate::layout::look_ups(), before);
    assert!(bench.replies_to(first).is_empty());
    // What cannot be read is refused at once.
    let wrong = StepSpec {
        nodelist: Some("n[1-".to_owned()),
        ..step_of_job(20)
    };
    let wrong = bench.create(2, wrong);
    assert!(bench.is_refused(wrong, RefusalCode::InvalidNode));
}

#[test]
fn one_that_must_start_at_once_is_refused_behind_one_that_waits() {
    let mut bench = Bench::with_job(1);
    bench.launch_busy(20, 1);
    bench.create(1, step_of_job(20));
    let spec = StepSpec {
        immediate: true,
        ..step_of_job(20)
    };
    let refused = bench.create(2, spec.clone());
    assert!(bench.is_refused(refused, RefusalCode::NotImmediate));
    let shares = StepSpec {
        overlap: true,
        ..spec
    };
    let shares = bench.create(3, shares);
    assert!(bench.replies_to(shares).is_empty(), "it starts");
    assert_eq!(bench.starts.len() + bench.asks.len(), 4);
}

/// Only the first was ended: the others ran on without a client.
#[test]
fn all_steps_of_a_connection_end_with_it() {
    let mut bench = Bench::with_job(1);
    let spec = StepSpec {
        overlap: true,
        ..step_spec(1)
    };
    bench.create(1, spec.clone());
    bench.create(1, spec);
    bench.start_ready();
    bench.start_ready();
    bench.event(Event::ConnClosed(ConnId(1)));
    let is_end = |command: &&LauncherCommand| matches!(command, LauncherCommand::EndStep { .. });
    assert_eq!(bench.commands.iter().filter(is_end).count(), 2);
    bench.end_job();
}

/// Anybody may name a job that is not here, with any key. Each waits half a minute.
#[test]
fn requests_for_unknown_jobs_are_bounded_by_user() {
    let mut bench = Bench::with_job(2);
    let spec = |job: u64| StepSpec {
        key: Some(vec![1; 16].into()),
        ..step_of_job(job)
    };
    let mut count = 0;
    let refused = loop {
        let request = bench.create(count, spec(50));
        if !bench.replies_to(request).is_empty() {
            break request;
        }
        count += 1;
    };
    assert!(bench.is_refused(refused, RefusalCode::Busy));
    assert_eq!(count, 1024);
    // They are not what the lead of a step asks for.
    let find = AgentRequest::FindStep {
        job: JobId(50),
        key: KEY.to_vec().into(),
        step: StepNo(0),
    };
    let find = bench.request(AGENT_CONN, find, false);
    assert!(bench.is_refused(find, RefusalCode::JobNotHere));
    for conn in 0..count {
        bench.event(Event::ConnClosed(ConnId(conn)));
    }
    assert!(bench.agent.steps.node_steps.is_quiet());
    let again = bench.create(1, spec(50));
    assert!(bench.replies_to(again).is_empty());
}

/// The job of two nodes is made smaller.
fn small_launch_of(job: u64) -> JobGrant {
    JobGrant {
        resizes: 1,
        alloc: grant_of(1, 0).alloc,
        ..launch_of(job, 1)
    }
}

/// All were laid out and refused in one event: a minute for the most that may wait.
#[test]
fn steps_that_can_never_start_are_refused_a_few_at_a_time() {
    let mut bench = Bench::with_job(1);
    bench.launch_busy(20, 1);
    let requests: Vec<RequestId> = (0..300)
        .map(|conn| bench.create(conn, step_of_job(20)))
        .collect();
    bench.launch_busy(21, 1);
    let waits = bench.create(1000, step_of_job(21));
    bench.event(Event::ConnClosed(ConnId(21 << 32)));
    let count = |bench: &Bench| {
        let refused = requests.iter();
        refused
            .filter(|id| !bench.replies_to(**id).is_empty())
            .count()
    };
    let before = crate::layout::layouts();
    bench.order(Order::Launch(Box::new(small_launch_of(20))));
    assert!(crate::layout::layouts() - before <= 40);
    assert_eq!(count(&bench), 16);
    // Other events bring no more, and one that may start at once does not wait.
    bench.event(Event::ConnClosed(ConnId(0)));
    bench.acknowledge();
    assert_eq!(count(&bench), 16);
    bench.create(2000, step_spec(1));
    assert!(
        bench
            .starts
            .iter()
            .any(|(stepd, _)| bench.stepds[stepd].attempt == RUN)
    );
    // Another step behind them is not the time to refuse them all either.
    bench.create(
        2001,
        StepSpec {
            min_nodes: Some(1),
            max_nodes: Some(1),
            ntasks: Some(1),
            ..step_of_job(20)
        },
    );
    assert_eq!(count(&bench), 16);
    let mut rounds = 0;
    while bench.timers.contains(&Timer::PlaceSteps) {
        let before = crate::layout::layouts();
        bench.timer(Timer::PlaceSteps);
        assert!(crate::layout::layouts() - before <= 40);
        rounds += 1;
    }
    assert!((18..=20).contains(&rounds), "{rounds}");
    assert_eq!(count(&bench), 300);
    assert!(bench.replies_to(waits).is_empty());
}

/// They waited behind one that waits, each to be looked at once that is gone.
#[test]
fn what_can_never_start_does_not_wait() {
    let mut bench = Bench::with_job(1);
    bench.launch_busy(20, 1);
    bench.create(1, step_of_job(20));
    let many = StepSpec {
        ntasks: Some(500),
        ..step_of_job(20)
    };
    let refused = bench.create(2, many);
    assert!(bench.is_refused(refused, RefusalCode::TooManyCpus));
}

/// They were expanded, laid out and refused in the event of the controller's orders.
#[test]
fn early_requests_have_turns_a_few_at_a_time() {
    let mut bench = Bench::with_job(1);
    let spec = |job| StepSpec {
        key: Some(KEY.to_vec().into()),
        ntasks: Some(500),
        ..step_of_job(job)
    };
    let of_job = |bench: &mut Bench, job: u64| -> Vec<RequestId> {
        let conns = (0..20).map(|n| job * 100 + n);
        conns.map(|conn| bench.create(conn, spec(job))).collect()
    };
    let requests = [30, 31].map(|job| of_job(&mut bench, job));
    let count = |bench: &Bench, at: usize| {
        let refused = requests[at].iter();
        refused
            .filter(|id| !bench.replies_to(**id).is_empty())
            .count()
    };
    for job in [30, 31] {
        bench.order(Order::Launch(Box::new(launch_of(job, 0))));
    }
    assert_eq!([count(&bench, 0), count(&bench, 1)], [4, 0]);
    bench.timer(Timer::EarlyTurns);
    assert_eq!(
        [count(&bench, 0), count(&bench, 1)],
        [6, 2],
        "jobs take turns"
    );
    let mut rounds = 1;
    while bench.timers.contains(&Timer::EarlyTurns) {
        bench.timer(Timer::EarlyTurns);
        rounds += 1;
    }
    assert_eq!([count(&bench, 0), count(&bench, 1)], [20, 20]);
    assert_eq!(rounds, 10);
    assert!(bench.agent.steps.node_steps.is_quiet());
    // One that waits for a later size of its job has no turn until that comes.
    let later = StepSpec {
        resizes: 7,
        ..spec(30)
    };
    let later = bench.create(1, later);
    assert!(bench.replies_to(later).is_empty());
    assert!(!bench.timers.contains(&Timer::EarlyTurns));
}

/// Requests of another user, with a key that is none, had their turns before the owner's.
#[test]
fn early_requests_of_others_take_no_turns() {
    let mut bench = Bench::with_job(1);
    let spec = |key: &[u8]| StepSpec {
        key: Some(key.to_vec().into()),
        ..step_of_job(30)
    };
    for n in 0..500 {
        let id = RequestId(10_000 + n);
        bench.requests.insert(id);
        bench.with_bytes.insert(id);
        bench.event(Event::Request(ClientRequest {
            id,
            conn: ConnId(n),
            uid: 7,
            is_agent: false,
            body: Box::new(AgentRequest::Create(Box::new(spec(&[1; 16])))),
            stdio: None,
            random: vec![5; 16].into(),
        }));
        assert!(bench.replies_to(id).is_empty());
    }
    bench.create(1000, spec(&KEY));
    assert!(bench.starts.is_empty());
    bench.order(Order::Launch(Box::new(launch_of(30, 1))));
    assert!(bench.is_refused(RequestId(10_000), RefusalCode::AccessDenied));
    assert_eq!(bench.starts.len(), 1, "the owner's step starts at once");
}

/// Sixteen lists of so many names were looked up in one event, whatever that took.
#[test]
fn steps_with_many_names_are_looked_at_one_at_a_time() {
    let mut bench = Bench::of_node(1);
    bench.connect_launcher(Vec::new());
    bench.connect_controller();
    bench.order(Order::Launch(Box::new(grant_of(300, 0))));
    bench.create(1, step_spec(300));
    let many = StepSpec {
        nodelist: Some(vec!["n[1-100]"; 700].join(",")),
        ..step_spec(300)
    };
    for conn in 2..20 {
        let request = bench.create(conn, many.clone());
        assert!(bench.replies_to(request).is_empty());
    }
    let smaller = |nodes| JobGrant {
        resizes: 1,
        ..grant_of(nodes, 0)
    };
    let before = crate::layout::look_ups();
    bench.order(Order::Launch(Box::new(smaller(200))));
    let first = crate::layout::look_ups() - before;
    assert!(first <= 2, "{first}");
    while bench.timers.contains(&Timer::PlaceSteps) {
        let before = crate::layout::look_ups();
        bench.timer(Timer::PlaceSteps);
        let looks = crate::layout::look_ups() - before;
        assert!(looks <= 2, "{looks}");
    }
    assert_eq!(crate::layout::look_ups() - before, 18);
}

/// Each left one behind when its client went.
#[test]
fn early_requests_have_one_timer() {
    let mut bench = Bench::with_job(2);
    let spec = StepSpec {
        key: Some(vec![1; 16].into()),
        ..step_of_job(50)
    };
    let before = bench.timers_set;
    for conn in 0..100 {
        bench.create(conn, spec.clone());
        bench.event(Event::ConnClosed(ConnId(conn)));
    }
    bench.now.mono_ms += 20_000;
    let last = bench.create(100, spec);
    assert_eq!(bench.timers_set, before + 1);
    // It has not waited long enough when that is due.
    bench.now.mono_ms += 10_000;
    assert!(bench.timers.remove(&Timer::Grant));
    bench.event(Event::TimerDue(Timer::Grant));
    assert!(bench.replies_to(last).is_empty());
    bench.timer(Timer::Grant);
    assert!(bench.is_refused(last, RefusalCode::JobNotHere));
    assert!(!bench.timers.contains(&Timer::Grant));
    assert_eq!(bench.timers_set, before + 2);
}

/// A list of 65,536 names of 255 bytes each took 20 ms.
#[test]
fn names_of_a_list_are_bounded_in_bytes() {
    let mut bench = Bench::with_job(1);
    let spec = StepSpec {
        exclude: Some(format!("{}[00000-65535]", "x".repeat(249))),
        ..step_spec(1)
    };
    let refused = bench.create(1, spec);
    assert!(bench.is_refused(refused, RefusalCode::InvalidNode));
}

/// Positions of many were put back when they were looked up again.
#[test]
fn many_names_are_not_kept() {
    let mut bench = Bench::of_node(1);
    bench.connect_launcher(Vec::new());
    bench.connect_controller();
    bench.order(Order::Launch(Box::new(grant_of(300, 0))));
    let spec = StepSpec {
        nodelist: Some("n[1-300]".to_owned()),
        ..step_spec(300)
    };
    bench.create(1, spec.clone());
    bench.create(2, spec);
    let before = crate::layout::look_ups();
    for _ in 0..3 {
        bench.agent.steps.led.retry_waiting(RUN);
        bench.event(Event::Idle);
    }
    // Before daemons are read, and after.
    assert_eq!(crate::layout::look_ups() - before, 6);
}

impl Bench {
    /// More is not acknowledged than a user may have.
    fn report_too_much(&mut self) {
        let step = Step {
            step: StepNo(1000),
            name: "true".to_owned(),
            hostlist: "n1".to_owned(),
            submit_line: "y".repeat(17 << 20),
            nodes: 1,
            tasks: 1,
            cpus: 1,
            memory_mib: 0,
            start_time: Timestamp(1),
            stdio: Default::default(),
            time_limit: None,
            distribution: None,
            maker: None,
            devices: Vec::new(),
            device_ask: None,
        };
        let report = Report::StepStarted(Box::new(step));
        let reports = &mut self.agent.state.reports;
        reports.push(RUN.job, RUN.attempt, report);
    }
}

/// It was refused, though nothing of its job was in its way.
#[test]
fn one_that_must_start_at_once_waits_for_the_controller() {
    let mut bench = Bench::with_job(1);
    let spec = |nodes: u32| StepSpec {
        immediate: true,
        ..step_spec(nodes)
    };
    bench.report_too_much();
    let waits = bench.create(1, spec(1));
    assert!(bench.replies_to(waits).is_empty() && bench.starts.is_empty());
    bench.acknowledge();
    assert_eq!(bench.starts.len(), 1);
    // What is in its way then decides.
    bench.report_too_much();
    let refused = bench.create(2, spec(2));
    assert!(bench.replies_to(refused).is_empty());
    bench.acknowledge();
    assert!(bench.is_refused(refused, RefusalCode::NotImmediate));
}
