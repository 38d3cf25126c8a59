//! Priorities of many jobs in one pass. What several jobs or partitions have in common is worked out once: a user may have
//! thousands of jobs that name hundreds of partitions each, and everybody's listings show their priorities.

use super::scale::PartitionFactors;
use super::{Scale, State};
use foldhash::fast::RandomState;
use muster_model::config::PartitionConfig;
use muster_model::factors::Factors;
use muster_model::job::Job;
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use std::collections::HashMap;
use std::sync::Arc;

/// Jobs that have the same factors but age: those of one specification, for which the same partition names the QOS, and
/// which have the same time limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SpecFactorsKey<'s> {
    spec: *const JobSpec,
    partition: &'s str,
    time_limit: TimeLimit,
}

/// Key of factors in one partition.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PartitionFactorsKey<'s> {
    spec: SpecFactorsKey<'s>,
    partition: &'s str,
}

impl<'s> SpecFactorsKey<'s> {
    fn of(job: &'s Job) -> SpecFactorsKey<'s> {
        SpecFactorsKey {
            spec: Arc::as_ptr(&job.spec),
            partition: &job.partition,
            time_limit: job.time_limit,
        }
    }
}

/// Priorities as of one state.
pub struct Priorities<'s> {
    state: &'s State,
    scale: &'s Scale,
    /// Positions of partitions, by name.
    places: HashMap<&'s str, usize, RandomState>,
    /// The amounts of each partition of resources that have a weight, once they were computed.
    there: Vec<Option<Vec<f64>>>,
    /// Priorities of associations by partition, by account and user.
    assoc: HashMap<(&'s str, &'s str), Vec<Option<u32>>, RandomState>,
    /// The highest sum of all factors but age; none in no partition.
    best: HashMap<SpecFactorsKey<'s>, Option<f64>, RandomState>,
    /// Sum of factors in one of the partitions; none where that is gone.
    here: HashMap<PartitionFactorsKey<'s>, Option<f64>, RandomState>,
    worked_out: u64,
}

impl<'s> Priorities<'s> {
    /// As the state has them; `None` if priority is first come, first served.
    pub fn new(state: &'s State) -> Option<Priorities<'s>> {
        let scale = state.scale.as_ref()?;
        Some(Priorities::by(state, scale))
    }

    /// By a scale that is the state's or was.
    pub(crate) fn by(state: &'s State, scale: &'s Scale) -> Priorities<'s> {
        let mut places = HashMap::default();
        for (place, partition) in state.partitions.iter().enumerate() {
            places.entry(partition.name.as_str()).or_insert(place);
        }
        Priorities {
            state,
            scale,
            places,
            there: vec![None; state.partitions.len()],
            assoc: HashMap::default(),
            best: HashMap::default(),
            here: HashMap::default(),
            worked_out: 0,
        }
    }

    /// The divisors of the factors.
    pub fn scale(&self) -> &'s Scale {
        self.scale
    }

    /// Number of times that factors were computed for a job in a partition.
    pub fn worked_out(&self) -> u64 {
        self.worked_out
    }

    /// As [`State::priority_of`].
    pub fn of(&mut self, job: &'s Job) -> u32 {
        if !self.scale.works_out(job) {
            return job.priority;
        }
        let best = self.best_of(job);
        best.map_or(job.priority, |best| self.scale.kept(job, best))
    }

    /// As [`Scale::priority_in`].
    pub fn of_in(&mut self, job: &'s Job, partition: &str) -> u32 {
        let scale = self.scale;
        if !scale.works_out(job) {
            return job.priority;
        }
        let Some(partition) = self.state.partition(partition) else {
            return self.of(job);
        };
        let name = partition.name.as_str();
        let key = PartitionFactorsKey {
            spec: SpecFactorsKey::of(job),
            partition: name,
        };
        let sum = match self.here.get(&key) {
            Some(known) => *known,
            None => {
                let mut sum = None;
                self.factors(job, std::iter::once(name), |_, factors| {
                    sum = Some(factors.without_age());
                });
                self.here.insert(key, sum);
                sum
            }
        };
        let Some(sum) = sum else {
            return self.of(job);
        };
        let here = Factors::total(self.age_of(job), sum);
        scale.kept_in(job, here, || self.best_of(job).unwrap_or(here))
    }

    /// The weighted age factor.
    fn age_of(&self, job: &Job) -> f64 {
        self.scale.age(self.scale.ages_since(job))
    }

    /// The computed priority of a job in the partition where it is highest.
    fn best_of(&mut self, job: &'s Job) -> Option<u32> {
        // A higher sum is the higher priority, whatever age adds.
        let sum = self.best_without_age_of(job);
        sum.map(|sum| Factors::total(self.age_of(job), sum))
    }

    /// The order of jobs, in thousandths: the sum of the factors, which may be far below the lowest priority.
    pub(crate) fn thousandths_of(&mut self, job: &'s Job) -> i64 {
        let sum = match self.scale.works_out(job) {
            true => self.best_without_age_of(job),
            false => None,
        };
        let Some(sum) = sum else {
            return i64::from(job.priority) * 1000;
        };
        let least = i64::from(self.scale.kept(job, 0)) * 1000;
        let sum = ((self.age_of(job) + sum) * 1000.0).floor() as i64;
        if least > 0 { sum.max(least) } else { sum }
    }

    /// The highest sum of all factors but age.
    fn best_without_age_of(&mut self, job: &'s Job) -> Option<f64> {
        let key = SpecFactorsKey::of(job);
        match self.best.get(&key) {
            Some(known) => *known,
            None => {
                let best = self.best_without_age(job);
                self.best.insert(key, best);
                best
            }
        }
    }

    /// The factors of a job in each of these partitions that there are.
    pub fn factors(
        &mut self,
        job: &'s Job,
        names: impl Iterator<Item = &'s str>,
        mut take: impl FnMut(&'s PartitionConfig, &Factors),
    ) {
        let (state, scale) = (self.state, self.scale);
        let mut common = scale.common(state, job);
        let (account, user) = (job.spec.account_name(), job.spec.owner.user.as_str());
        let count = state.partitions.len();
        let of_partitions = self.assoc.entry((account, user));
        let of_partitions = of_partitions.or_insert_with(|| vec![None; count]);
        for place in names.filter_map(|name| self.places.get(name).copied()) {
            let partition = &state.partitions[place];
            let name = partition.name.as_str();
            let there =
                self.there[place].get_or_insert_with(|| scale.partition_amounts(state, partition));
            let assoc = of_partitions[place].get_or_insert_with(|| {
                let accounts = &state.accounts;
                accounts.association_priority(account, user, name)
            });
            let place = PartitionFactors {
                assoc: *assoc,
                partition,
                there,
            };
            scale.complete(&mut common, &place);
            self.worked_out += 1;
            take(partition, &common.factors);
        }
    }

    fn best_without_age(&mut self, job: &'s Job) -> Option<f64> {
        let mut best: Option<f64> = None;
        let names = job.spec.partitions.iter().map(String::as_str);
        self.factors(job, names, |_, factors| {
            let sum = factors.without_age();
            best = Some(best.map_or(sum, |best| best.max(sum)));
        });
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::decide;
    use muster_model::accounts::Qos;
    use muster_model::command::{Command, KeptPartitions};
    use muster_model::config::ClusterConfig;
    use muster_model::ids::JobId;
    use muster_model::node::NodeConfig;
    use muster_model::order_config::Multifactor;
    use muster_model::spec::Owner;
    use muster_model::time::Timestamp;

    const PARTITIONS: usize = 50;

    fn state(incr_only: bool) -> State {
        let node = |n| NodeConfig {
            name: format!("n{n}"),
            cpus: n % 7 + 1,
            memory_mib: 1000,
            ..NodeConfig::default()
        };
        let partition = |n: usize| PartitionConfig {
            nodes: (n..n + 3).map(|n| format!("n{n}")).collect(),
            priority_job_factor: u32::try_from(n * 37 % 50).unwrap(),
            ..PartitionConfig::named(&format!("p{n}"))
        };
        let mut config = ClusterConfig {
            nodes: (0..60u32).map(node).collect(),
            partitions: (0..PARTITIONS).map(partition).collect(),
            ..ClusterConfig::default()
        };
        config.order.multifactor = Some(Multifactor {
            weight_age: 1000,
            max_age_s: 10_000,
            weight_fair_share: 500,
            weight_job_size: 700,
            weight_partition: 3000,
            weight_qos: 100,
            weight_tres: vec![("CPU".to_owned(), 321.5), ("Mem".to_owned(), 77.25)],
            small_relative_to_time: true,
            incr_only,
            ..Multifactor::default()
        });
        let mut state = State::default();
        let configure = Command::Configure {
            config: Arc::new(config),
            keep: KeptPartitions::File,
        };
        for event in &decide(&state, &configure, Timestamp(1)).events {
            state.apply(event);
        }
        let high = Qos {
            name: "high".to_owned(),
            priority: 9,
            ..Qos::default()
        };
        state.accounts.qos.insert("high".to_owned(), high);
        state.scale = Scale::work_out(&state, false).map(|mut scale| {
            scale.calculate_at(Timestamp(9_000_000));
            scale
        });
        state
    }

    /// Jobs of some specifications, which differ in age and time limit.
    fn add_jobs(state: &mut State, specs: u64, jobs_of_each: u64) {
        for s in 0..specs {
            let first = s as usize % 7;
            let mut spec = JobSpec {
                partitions: (first..PARTITIONS).map(|n| format!("p{n}")).collect(),
                owner: Owner {
                    user: format!("u{}", s % 3),
                    ..Owner::default()
                },
                qos: (s % 2 == 0).then(|| "high".to_owned()),
                nice: i32::try_from(s * 11).unwrap(),
                ..JobSpec::default()
            };
            spec.ask.min_nodes = u32::try_from(s % 4 + 1).unwrap();
            let spec = Arc::new(spec);
            for n in 0..jobs_of_each {
                let id = JobId(s * jobs_of_each + n + 1);
                let at = Timestamp(1_000_000 + i64::try_from(n).unwrap() * 77_777);
                let limit = TimeLimit::Minutes(60 + 10 * u32::try_from(n % 2).unwrap());
                let mut job = Job::new(id, Arc::clone(&spec), limit, at);
                (job.priority, job.eligible_time) = (1, Some(at));
                state.jobs.insert(id, job);
                state.pending.insert(id);
            }
        }
    }

    /// Each partition of each job was looked for and its factors worked out anew for each line of each listing.
    #[test]
    fn priorities_of_jobs_of_one_specification_are_worked_out_once() {
        let mut state = state(false);
        add_jobs(&mut state, 10, 20);
        let mut priorities = Priorities::new(&state).unwrap();
        let scale = state.scale.clone();
        let mut seen = std::collections::BTreeSet::new();
        for job in state.jobs.values() {
            let expected = state.priority_of(scale.as_ref(), job);
            assert_eq!(priorities.of(job), expected, "{:?}", job.id);
            seen.insert(expected);
        }
        assert!(seen.len() > 50, "{seen:?}");
        // Ten specifications with two time limits each; a listing of 200 jobs had 10,000 looks.
        let most = 10 * 2 * PARTITIONS as u64;
        assert!(
            priorities.worked_out() <= most,
            "{}",
            priorities.worked_out()
        );
        let looked = priorities.there.iter().filter(|there| there.is_some());
        assert_eq!(looked.count(), PARTITIONS);
    }

    /// As above, for values listed by partition.
    #[test]
    fn factors_in_each_partition_are_those_of_the_job() {
        let mut state = state(false);
        add_jobs(&mut state, 5, 2);
        let mut priorities = Priorities::new(&state).unwrap();
        let scale = priorities.scale();
        for job in state.jobs.values() {
            let names = job.spec.partitions.iter().map(String::as_str);
            let mut found = Vec::new();
            priorities.factors(job, names.chain(["gone"]), |partition, factors| {
                assert_eq!(*factors, scale.factors(&state, job, partition));
                found.push(partition.name.as_str());
            });
            assert_eq!(found, job.spec.partitions);
        }
    }

    /// In each partition, whatever others are named beside it.
    #[test]
    fn priorities_in_a_partition_are_worked_out_once() {
        for incr_only in [false, true] {
            let mut state = state(incr_only);
            add_jobs(&mut state, 5, 10);
            for id in state.pending.clone() {
                let job = state.jobs.get_mut(&id).unwrap();
                job.priority_least = 2000;
            }
            let mut priorities = Priorities::new(&state).unwrap();
            let scale = priorities.scale();
            for name in ["p7", "p30", "gone"] {
                for job in state.jobs.values() {
                    let expected = scale.priority_in(&state, job, name);
                    assert_eq!(priorities.of_in(job, name), expected, "{name}");
                    assert!(expected <= priorities.of(job));
                }
            }
            let most = 5 * 2 * (PARTITIONS as u64 + 2);
            assert!(
                priorities.worked_out() <= most,
                "{}",
                priorities.worked_out()
            );
        }
    }

    /// Where priorities do not go down they were computed again for all waiting jobs at each change of a factor.
    #[test]
    fn priorities_that_do_not_go_down_are_kept_in_one_pass() {
        let mut state = state(true);
        add_jobs(&mut state, 10, 20);
        let scale = state.scale.clone();
        let expected: Vec<u32> = (state.jobs.values())
            .map(|job| state.priority_of(scale.as_ref(), job))
            .collect();
        state.keep_priorities();
        let kept = state.jobs.values().map(|job| job.priority_least);
        assert_eq!(kept.collect::<Vec<_>>(), expected);
        assert_eq!(state.scale, scale);
    }
}
