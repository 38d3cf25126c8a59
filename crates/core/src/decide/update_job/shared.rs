//! The parts of an update that do not depend on the job, computed once for all jobs of a command: an array may have
//! thousands of tasks with records of their own. Decides nothing of a single job.

use crate::decide::ask::IfImpossible;
use crate::decide::draft::Draft;
use crate::decide::{ask, dependency, resize, submit, target};
use crate::event::{encoded_bytes, spec_bytes};
use crate::state::{AmountsThere, State};
use muster_model::command::JobUpdate;
use muster_model::config::PartitionConfig;
use muster_model::ids::{JobId, NodeIdx};
use muster_model::job::{Job, Phase};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{JobSpec, ResourceAsk};
use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Requests that are remembered with what came of them.
const ASKS_KEPT: usize = 16;
/// Nodes and partitions that one command may have requests compared with, and pieces of text that it may have copied for jobs
/// that differ: about half a second.
const COMPARED_MAX: u64 = 1 << 20;
/// Bytes of a piece of text.
const PIECE_BYTES: u64 = 256;
/// The least that a request counts, however few nodes there are.
const COMPARED_LEAST: u64 = 64;
/// The count of a check of a job's limits: a few maps are searched.
const COMPARED_LIMITS: u64 = 4;

/// A request that was checked.
struct CheckedAsk {
    partitions: Vec<String>,
    before: ResourceAsk,
    impossible: IfImpossible,
    after: Result<ResourceAsk, Refusal>,
}

/// An update, and what follows from it alone.
pub(super) struct SharedUpdate<'a> {
    pub(super) update: &'a JobUpdate,
    of_running: OnceCell<JobUpdate>,
    nodes: OnceCell<Result<Arc<BTreeSet<NodeIdx>>, Refusal>>,
    led_to: OnceCell<BTreeSet<JobId>>,
    licenses: OnceCell<Result<(), Refusal>>,
    compared_ask: RefCell<Option<ResourceAsk>>,
    asks: RefCell<VecDeque<CheckedAsk>>,
    /// The count of each specification that is made by it.
    pieces: OnceCell<u64>,
    there: RefCell<AmountsThere>,
    compared: Cell<u64>,
}

impl<'a> SharedUpdate<'a> {
    pub(super) fn new(update: &'a JobUpdate) -> SharedUpdate<'a> {
        SharedUpdate {
            update,
            of_running: OnceCell::new(),
            nodes: OnceCell::new(),
            led_to: OnceCell::new(),
            licenses: OnceCell::new(),
            compared_ask: RefCell::new(update.ask.clone()),
            asks: RefCell::default(),
            pieces: OnceCell::new(),
            there: RefCell::default(),
            compared: Cell::new(0),
        }
    }

    /// The part of it that changes a job: changes of the nodes of a running job are none of its request.
    pub(super) fn about(&self, job: &Job) -> &JobUpdate {
        if job.phase() == Phase::Pending {
            return self.update;
        }
        self.of_running.get_or_init(|| JobUpdate {
            ask: None,
            nodelist: None,
            ..self.update.clone()
        })
    }

    /// The nodes that it lists.
    pub(super) fn listed_nodes(
        &self,
        state: &State,
        list: &str,
    ) -> Result<Arc<BTreeSet<NodeIdx>>, Refusal> {
        let found = self.nodes.get_or_init(|| {
            let nodes = target::listed_nodes(state, list)?;
            let nodes = nodes.map(|node| Ok(node?.idx));
            Ok(Arc::new(nodes.collect::<Result<_, Refusal>>()?))
        });
        found.clone()
    }

    /// Whether it asks for something else than a job does, beside the number of nodes.
    pub(super) fn changes_ask(&self, old: &ResourceAsk) -> bool {
        let mut new = self.compared_ask.borrow_mut();
        new.as_mut()
            .is_some_and(|new| !resize::only_nodes_differ(old, new))
    }

    /// Whether its dependency leads to a job.
    pub(super) fn leads_to(&self, draft: &Draft<'_>, job: JobId) -> bool {
        let found = self.led_to.get_or_init(|| {
            let dependency = self.update.dependency.as_ref();
            dependency::led_to(draft, dependency.map_or(&[], |wanted| &wanted.terms))
        });
        found.contains(&job)
    }

    /// Whether there can be the licenses that it names.
    pub(super) fn check_licenses(&self, state: &State) -> Result<(), Refusal> {
        let named = self.update.licenses.as_deref();
        let checked = || submit::check_licenses(state, named);
        self.licenses.get_or_init(checked).clone()
    }

    /// Counts what a job's request is compared with.
    fn charge(&self, count: u64) -> Result<(), Refusal> {
        let compared = self.compared.get().saturating_add(count);
        self.compared.set(compared);
        if compared <= COMPARED_MAX {
            return Ok(());
        }
        Err(Refusal::new(
            RefusalCode::TooLong,
            "the jobs ask for too many different things; name fewer jobs or tasks at a time",
        ))
    }

    /// Whether it may bring a job under other limits, or over one.
    pub(super) fn changes_limits(&self) -> bool {
        let update = self.update;
        update.account.is_some()
            || update.qos.is_some()
            || update.partitions.is_some()
            || update.ask.is_some()
            || update.time_limit.is_some()
            || update.time_delta_min.is_some()
    }

    /// Counts a look at the limits of a job's account, QOS and partition.
    pub(super) fn charge_limits(&self) -> Result<(), Refusal> {
        self.charge(COMPARED_LIMITS)
    }

    /// The amounts of partitions, for priorities of jobs of these specifications. Counts the work for each partition that they
    /// name; the amounts are computed once for a command.
    pub(super) fn amounts_there(
        &self,
        specs: &[&JobSpec],
    ) -> Result<RefMut<'_, AmountsThere>, Refusal> {
        let named = specs.iter().map(|spec| 1 + spec.partitions.len() as u64);
        self.charge(named.sum())?;
        Ok(self.there.borrow_mut())
    }

    /// Counts a specification that is made of the one of a job, whether or not it is refused then.
    pub(super) fn charge_spec(&self, old: &JobSpec) -> Result<(), Refusal> {
        let update = self.update;
        let partitions = match self.looks_at_partitions() {
            true => update.partitions.as_ref().unwrap_or(&old.partitions).len(),
            false => 0,
        };
        let pieces = || encoded_bytes(update) / PIECE_BYTES;
        self.charge(1 + partitions as u64 + self.pieces.get_or_init(pieces))?;
        self.charge(spec_bytes(old) / PIECE_BYTES)
    }

    /// Whether its values are checked in each partition of a job.
    fn looks_at_partitions(&self) -> bool {
        let update = self.update;
        let accounted = [&update.account, &update.qos, &update.wckey];
        update.partitions.is_some()
            || update.reservation.is_some()
            || update.ask.is_some()
            || accounted.iter().any(|given| given.is_some())
    }

    /// Whether two specifications that are stored apart are equal. Counts the comparison of equal ones; others are made anew,
    /// and counted then.
    pub(super) fn are_equal(&self, known: &JobSpec, other: &JobSpec) -> Result<bool, Refusal> {
        self.charge(0)?;
        let equal = known == other;
        if equal {
            self.charge(1 + spec_bytes(known) / PIECE_BYTES)?;
        }
        Ok(equal)
    }

    /// [`ask::check`], once for jobs that ask for the same in the same partitions.
    pub(super) fn check_ask(
        &self,
        state: &State,
        names: &[String],
        ask: &mut ResourceAsk,
        impossible: IfImpossible,
    ) -> Result<(), Refusal> {
        let mut asks = self.asks.borrow_mut();
        let is_same = |known: &&CheckedAsk| {
            known.partitions == names && known.before == *ask && known.impossible == impossible
        };
        if let Some(known) = asks.iter().find(is_same) {
            *ask = known.after.clone()?;
            return Ok(());
        }
        let nodes = state.nodes.len() as u64 + state.partitions.len() as u64;
        self.charge(nodes.saturating_add(COMPARED_LEAST))?;
        let is_named = |p: &&PartitionConfig| names.contains(&p.name);
        let partitions: Vec<&PartitionConfig> = state.partitions.iter().filter(is_named).collect();
        let before = ask.clone();
        let checked = ask::check(state, &partitions, ask, impossible);
        asks.truncate(ASKS_KEPT - 1);
        asks.push_front(CheckedAsk {
            partitions: names.to_vec(),
            before,
            impossible,
            after: checked.clone().map(|()| ask.clone()),
        });
        checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Progress, changed_spec, update_item};
    use super::*;
    use crate::decide::target::Item;
    use crate::event::{Event, JobChange};
    use muster_model::command::Identity;
    use muster_model::config::ClusterConfig;
    use muster_model::ids::Attempt;
    use muster_model::job::{Allocation, Hold, Reason};
    use muster_model::node::NodeConfig;
    use muster_model::order_config::Multifactor;
    use muster_model::spec::{Dependency, DependencyKind, DependencyTerm};
    use muster_model::time::{TimeLimit, Timestamp};
    use std::ops::RangeInclusive;

    fn after(job: u64) -> Vec<DependencyTerm> {
        vec![DependencyTerm::Job {
            kind: DependencyKind::AfterAny,
            job: JobId(job),
            task: None,
            delay_minutes: 0,
        }]
    }

    /// Jobs of one specification.
    fn submit(state: &mut State, ids: RangeInclusive<u64>, spec: &Arc<JobSpec>) {
        for id in ids {
            state.apply(&Event::JobSubmitted {
                id: JobId(id),
                spec: Arc::clone(spec),
                at: Timestamp(1),
                priority: 1,
                hold: Hold::None,
                time_limit: TimeLimit::Unlimited,
                waiting_on: Vec::new(),
                reason: Reason::None,
                partition: "batch".to_owned(),
                requeueable: true,
                het: None,
            });
        }
    }

    /// A node, and jobs of which each waits for the one before.
    fn chain(jobs: u64) -> State {
        let mut state = State::default();
        let node = NodeConfig {
            name: "n1".to_owned(),
            ..NodeConfig::default()
        };
        state.apply(&Event::Configured {
            config: Arc::new(ClusterConfig {
                nodes: vec![node],
                ..ClusterConfig::default()
            }),
            at: Timestamp(1),
            partitions: None,
        });
        for id in 1..=jobs {
            state.apply(&Event::JobSubmitted {
                id: JobId(id),
                spec: Arc::new(JobSpec::default()),
                at: Timestamp(1),
                priority: 1,
                hold: Hold::None,
                time_limit: TimeLimit::Unlimited,
                waiting_on: if id > 1 { after(id - 1) } else { Vec::new() },
                reason: Reason::None,
                partition: "batch".to_owned(),
                requeueable: true,
                het: None,
            });
        }
        state
    }

    /// Jobs with records of their own, such as tasks of an array, have one specification; a long one is copied and compared once,
    /// also where it stays as it is.
    #[test]
    fn a_specification_that_stays_as_it_is_is_looked_at_once() {
        let mut state = chain(0);
        let spec = Arc::new(JobSpec {
            argv: vec!["x".repeat(1 << 20)],
            partitions: vec!["batch".to_owned()],
            ..JobSpec::default()
        });
        submit(&mut state, 1..=100, &spec);
        let root = Identity {
            user: "root".to_owned(),
            ..Identity::default()
        };
        let limit = JobUpdate {
            time_limit: Some(TimeLimit::Minutes(5)),
            ..JobUpdate::default()
        };
        let comment = JobUpdate {
            comment: Some("y".to_owned()),
            ..JobUpdate::default()
        };
        for update in [limit, comment] {
            let mut draft = Draft::new(&state, Timestamp(2));
            let (shared, mut progress) = (SharedUpdate::new(&update), Progress::default());
            let mut change = |id: u64| {
                let item = Item::Record(JobId(id));
                let done = update_item(&mut draft, &root, item, &shared, &mut progress);
                assert_eq!(done, Ok(()));
                shared.compared.get()
            };
            let once = change(1);
            assert!(once >= (1 << 20) / PIECE_BYTES, "{once}");
            for id in 2..=100 {
                assert_eq!(change(id), once);
            }
            // Equal specifications that are kept apart are compared.
            assert_eq!(shared.are_equal(&spec, &(*spec).clone()), Ok(true));
            let apart = shared.compared.get();
            assert!(apart >= once + (1 << 20) / PIECE_BYTES, "{apart}");
        }
    }

    /// The result for the specification of the first was taken for the others, which have the same: a task that waits
    /// stayed as it was because one ran, and a limit was checked of one task only.
    #[test]
    fn tasks_of_one_specification_may_differ_in_what_comes_of_it() {
        let mut state = chain(0);
        let spec = Arc::new(JobSpec {
            partitions: vec!["batch".to_owned()],
            ..JobSpec::default()
        });
        submit(&mut state, 1..=3, &spec);
        state.apply(&Event::JobStarted {
            id: JobId(1),
            attempt: Attempt(1),
            at: Timestamp(2),
            alloc: Arc::new(Allocation::default()),
            configuring: false,
            priority: None,
        });
        state.apply(&Event::JobChanged {
            id: JobId(3),
            at: Timestamp(2),
            change: JobChange::TimeLimit(TimeLimit::Minutes(1)),
        });
        let root = Identity {
            user: "root".to_owned(),
            ..Identity::default()
        };
        let draft = Draft::new(&state, Timestamp(3));
        let outcomes = |update: &JobUpdate, jobs: [u64; 2]| {
            let (shared, mut progress) = (SharedUpdate::new(update), Progress::default());
            jobs.map(|id| {
                let job = draft.job(JobId(id)).expect("it is there");
                changed_spec(&draft, &root, job, &shared, None, &mut progress)
            })
        };
        let fewer = JobUpdate {
            ask: Some(ResourceAsk {
                min_nodes: 1,
                max_nodes: Some(1),
                nodes_set: true,
                ..ResourceAsk::default()
            }),
            ..JobUpdate::default()
        };
        let [running, pending] = outcomes(&fewer, [1, 2]);
        assert_eq!(running, Ok(None));
        assert_ne!(pending, Ok(None));
        let [again, running] = outcomes(&fewer, [2, 1]);
        assert_eq!((again, running), (pending, Ok(None)));

        let timed = JobUpdate {
            time_min: Some(TimeLimit::Minutes(10)),
            ..JobUpdate::default()
        };
        let [long, short] = outcomes(&timed, [2, 3]);
        assert!(long.is_ok_and(|spec| spec.is_some()));
        assert!(short.is_err(), "its limit is less");
    }

    /// A limit is changed of many jobs that differ, in as many partitions as they may name.
    #[test]
    fn partitions_count_only_where_they_are_looked_at() {
        let spec = JobSpec {
            partitions: (0..50).map(|n| format!("p{n}")).collect(),
            ..JobSpec::default()
        };
        let limit = JobUpdate {
            time_limit: Some(TimeLimit::Minutes(5)),
            ..JobUpdate::default()
        };
        let shared = SharedUpdate::new(&limit);
        assert!((0..100_000).all(|_| shared.charge_spec(&spec).is_ok()));
        let moved = JobUpdate {
            reservation: Some("r".to_owned()),
            ..JobUpdate::default()
        };
        let shared = SharedUpdate::new(&moved);
        assert!((0..100_000).any(|_| shared.charge_spec(&spec).is_err()));
    }

    #[test]
    fn what_an_update_says_is_worked_out_once_for_all_jobs() {
        let state = chain(500);
        let draft = Draft::new(&state, Timestamp(2));
        let update = JobUpdate {
            dependency: Some(Dependency {
                terms: after(500),
                ..Dependency::default()
            }),
            ask: Some(ResourceAsk::default()),
            ..JobUpdate::default()
        };
        let shared = SharedUpdate::new(&update);
        for id in 1..=1000 {
            assert_eq!(shared.leads_to(&draft, JobId(id)), id <= 500);
        }
        assert!(draft.looked_at() < 1100, "{}", draft.looked_at());

        let first = shared.listed_nodes(&state, "n1").expect("it is known");
        for _ in 0..10 {
            let again = shared.listed_nodes(&state, "n1").expect("it is known");
            assert!(Arc::ptr_eq(&first, &again), "it is parsed once");
        }

        let ask = |cpus: u32| ResourceAsk {
            cpus_per_task: Some(cpus),
            ..ResourceAsk::default()
        };
        let names = ["batch".to_owned()];
        let check = |cpus| shared.check_ask(&state, &names, &mut ask(cpus), IfImpossible::Refuse);
        let first = check(1);
        let once = shared.compared.get();
        for _ in 0..1000 {
            assert_eq!(check(1), first);
        }
        assert_eq!(shared.compared.get(), once);
        let whole = SharedUpdate::new(&update);
        let spec = JobSpec::default();
        assert!((0..100_000).all(|_| whole.charge_spec(&spec).is_ok()));
        let whole = SharedUpdate::new(&update);
        assert!((0..200_000).all(|_| whole.charge_limits().is_ok()));
        let long = JobUpdate {
            comment: Some("x".repeat(60_000)),
            ..update.clone()
        };
        let long = SharedUpdate::new(&long);
        let made = (0..100_000).take_while(|_| long.charge_spec(&spec).is_ok());
        assert!(made.count() < 20_000);
        // Where all differ, there is an end.
        let refusals = (2..100_000).map(check);
        let mut codes = refusals.map(|checked| checked.err().map(|refusal| refusal.code));
        assert!(codes.any(|code| code == Some(RefusalCode::TooLong)));
        assert!(shared.compared.get() <= COMPARED_MAX + once);
    }

    /// Priorities of jobs were worked out for each job of a command with all nodes of all of its partitions, uncounted.
    #[test]
    fn what_partitions_have_is_worked_out_once_for_priorities() {
        let mut state = State::default();
        let names: Vec<String> = (0..50).map(|n| format!("p{n}")).collect();
        let node = |n| NodeConfig {
            name: format!("n{n}"),
            ..NodeConfig::default()
        };
        let partition = |name: &String| PartitionConfig {
            nodes: (0..100).map(|n| format!("n{n}")).collect(),
            ..PartitionConfig::named(name)
        };
        let mut config = ClusterConfig {
            nodes: (0..100).map(node).collect(),
            partitions: names.iter().map(partition).collect(),
            ..ClusterConfig::default()
        };
        config.order.multifactor = Some(Multifactor {
            weight_tres: vec![("CPU".to_owned(), 1000.0)],
            incr_only: true,
            ..Multifactor::default()
        });
        state.apply(&Event::Configured {
            config: Arc::new(config),
            at: Timestamp(1),
            partitions: None,
        });
        let mut spec = JobSpec {
            partitions: names.clone(),
            ..JobSpec::default()
        };
        spec.owner.uid = 1000;
        let spec = Arc::new(spec);
        submit(&mut state, 1..=10, &spec);
        let owner = Identity {
            uid: 1000,
            user: "u".to_owned(),
            ..Identity::default()
        };
        let update = JobUpdate {
            priority: Some(1),
            time_limit: Some(TimeLimit::Minutes(5)),
            ..JobUpdate::default()
        };
        let mut draft = Draft::new(&state, Timestamp(2));
        let (shared, mut progress) = (SharedUpdate::new(&update), Progress::default());
        let mut counts = (1..=10).map(|id| {
            let before = shared.compared.get();
            let item = Item::Record(JobId(id));
            let done = update_item(&mut draft, &owner, item, &shared, &mut progress);
            assert_eq!(done, Ok(()));
            shared.compared.get() - before
        });
        // Once for the fields to set, twice for those to take off.
        assert!(counts.all(|count| count >= 3 * 50));
        assert_eq!(shared.there.borrow().looked_at(), 50);
        let refused = (0..COMPARED_MAX).any(|_| shared.amounts_there(&[&spec]).is_err());
        assert!(refused);
    }
}
