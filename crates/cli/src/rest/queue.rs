//! The queue in short: what a table or a plan of many jobs shows of each, and how many jobs there are of each kind. `GET jobs` says
//! everything of a job, which is twenty times as much.

use super::call::{Call, CallFailure, Outcome};
use super::jobs::no_job;
use crate::listing::context::{Ctx, uid_of};
use crate::listing::document::Writer;
use crate::listing::job::{JobRow, node_estimate};
use crate::listing::query::{self, Jobs};
use crate::listing::states::{self, JobStateFilter};
use crate::listing::text::collect;
use crate::listing::{job_document, job_names};
use crate::why;
use muster_model::job::Job;
use muster_model::job_counts::{JobCountGroup, ShownCount, ShownJob};
use muster_model::listing_codec::CompactListing;
use muster_model::time::Timestamp;
use muster_proto::client::{JobFilter, StartsProgress};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Parameters of `GET queue`.
pub(super) const PARAMETERS: &[&str] = &["user", "partition", "state", "node", "starts", "limit"];
/// Jobs of an answer, unless the request says how many.
const JOBS_DEFAULT: usize = 10_000;
/// Jobs of an answer at most.
const JOBS_MAX: usize = 20_000;
/// Users that a request may name: each is looked up.
const USERS_MAX: usize = 100;

/// Content of a request.
#[derive(Debug, PartialEq)]
struct QueueRequest {
    filter: JobFilter,
    /// Only jobs that hold this node.
    node: Option<String>,
    limit: usize,
}

/// `GET queue`.
pub(super) fn queue(call: &mut Call<'_>) -> Outcome {
    let QueueRequest {
        filter,
        node,
        limit,
    } = wanted(&call.query)?;
    if limit == 0 && node.is_none() && filter == JobFilter::default() {
        let groups = call.ask(query::job_counts)?;
        // A controller of an earlier version does not count by state and reason.
        if groups.iter().all(|group| !group.shown.is_empty()) {
            return count(call, &groups);
        }
    }
    let mut ctx = call.context();
    let user = call.caller.user.clone();
    let mut jobs = Jobs::default();
    let mut chosen = ChosenJobs::new(limit);
    let mut counts = ListedCounts::default();
    call.ask(|client| {
        let look = |part: CompactListing, _: &mut Jobs, ctx: &Ctx| {
            // Records of one template differ in none of this.
            let is_shown = |job: &Job| {
                let is_hidden = ctx.partition(&job.partition).is_some_and(|p| p.hidden);
                !is_hidden && node.as_ref().is_none_or(|node| holds(job, node))
            };
            let shown: Vec<bool> = part
                .templates
                .iter()
                .map(|(job, _)| is_shown(job))
                .collect();
            for ((job, records), _) in part.templates.iter().zip(&shown).filter(|(_, is)| **is) {
                counts.add(job, *records, &user);
            }
            chosen.add(part, &shown, ctx);
        };
        query::jobs_in_parts(client, &mut ctx, filter, &mut jobs, look)
    })?;
    let (listed, left_out) = chosen.finish();
    let rows: Vec<JobRow<'_>> = listed
        .iter()
        .map(|job| JobRow::new(job, jobs.array_of(job)))
        .collect();
    Ok(call.document(&ctx, |w| {
        w.list("jobs", |w| {
            for row in &rows {
                w.item(|w| write_job(w, row, &ctx));
            }
        });
        w.raw("left_out", left_out);
        counts.write(w);
        write_progress(w, ctx.starts_progress);
        w.raw("now", ctx.now.unix_s());
    }))
}

/// Progress of expected starts: zeros where they were not asked for or there are no results yet.
fn write_progress(w: &mut Writer<'_>, progress: Option<StartsProgress>) {
    let progress = progress.unwrap_or_default();
    w.map("starts", |w| {
        w.raw("time", progress.at.map_or(0, |at| at.unix_s()));
        w.raw("planned", progress.simulated);
        w.raw("estimated", progress.estimated);
        w.truth("in_progress", progress.in_progress);
    });
}

/// The counts of all jobs alone. The controller itself makes them, so that no record is sent.
fn count(call: &mut Call<'_>, groups: &[JobCountGroup]) -> Outcome {
    let ctx = call.context();
    let mut counts = ListedCounts::default();
    let mut left_out = 0;
    for group in groups.iter().filter(|group| !group.hidden) {
        counts.add_group(group, &call.caller.user);
        left_out += group.counts.records;
    }
    Ok(call.document(&ctx, |w| {
        w.list("jobs", |_| {});
        w.raw("left_out", left_out);
        counts.write(w);
        write_progress(w, None);
        w.raw("now", ctx.now.unix_s());
    }))
}

/// Whether a job still holds a node.
fn holds(job: &Job, node: &str) -> bool {
    job.held().any(|(share, _)| share.name == node)
}

fn wanted(query: &[(String, String)]) -> Result<QueueRequest, CallFailure> {
    let mut wanted = QueueRequest {
        filter: JobFilter::default(),
        node: None,
        limit: JOBS_DEFAULT,
    };
    for (name, value) in query {
        let malformed = |why: &str| CallFailure::malformed(name, format!("{name}={value}: {why}"));
        let words = value.split(',').filter(|word| !word.is_empty());
        match name.as_str() {
            "user" => {
                let named: BTreeSet<&str> = words.collect();
                if named.len() > USERS_MAX {
                    let why = format!("{} users are named, of at most {USERS_MAX}", named.len());
                    return Err(CallFailure::malformed(name, format!("{name}: {why}")));
                }
                for word in named {
                    let uid = uid_of(word).ok_or_else(|| malformed("there is no such user"))?;
                    wanted.filter.uids.push(uid);
                }
            }
            "partition" => wanted.filter.partitions.extend(words.map(str::to_owned)),
            "state" => {
                for word in words {
                    let Some(JobStateFilter::Base(state)) = states::parse(word) else {
                        return Err(malformed("it is none of the base states of jobs"));
                    };
                    wanted.filter.states.push(state);
                }
            }
            "node" => wanted.node = Some(value.clone()).filter(|node| !node.is_empty()),
            "starts" => {
                wanted.filter.starts = match value.as_str() {
                    "1" | "true" => true,
                    "0" | "false" => false,
                    _ => return Err(malformed("1 or 0 is expected")),
                };
            }
            "limit" => {
                let number = value.parse().ok().filter(|number| *number <= JOBS_MAX);
                let why = format!("a number up to {JOBS_MAX} is expected");
                wanted.limit = number.ok_or_else(|| malformed(&why))?;
            }
            // A warning says that there is no such parameter.
            _ => {}
        }
    }
    // Counts have no use for when jobs start, which may have to be waited for.
    wanted.filter.starts &= wanted.limit > 0;
    Ok(wanted)
}

/// A job of an answer, and its place among those of which not all fit.
struct RankedJob {
    rank: JobRank,
    job: Box<Job>,
}

/// The jobs of an answer. While they come, not many more are kept than it may have, and records are made of those alone.
struct ChosenJobs {
    limit: usize,
    jobs: Vec<RankedJob>,
    /// The rank of the last one, once some were left out: who comes with no better one is left out, too.
    last: Option<JobRank>,
    left_out: usize,
    /// Records that were made.
    #[cfg(test)]
    made: usize,
}

impl ChosenJobs {
    /// This many more, or twice the limit, are kept before the last of them in order are left out.
    const MORE: usize = 4096;

    fn new(limit: usize) -> ChosenJobs {
        ChosenJobs {
            limit,
            jobs: Vec::new(),
            last: None,
            left_out: 0,
            #[cfg(test)]
            made: 0,
        }
    }

    /// Adds those of a part whose templates are shown.
    fn add(&mut self, part: CompactListing, shown: &[bool], ctx: &Ctx) {
        let CompactListing {
            mut templates,
            records,
        } = part;
        for record in records.iter() {
            let place = record.template as usize;
            if !shown.get(place).copied().unwrap_or(false) {
                continue;
            }
            let Some((template, _)) = templates.get_mut(place) else {
                continue;
            };
            // It is a record of its own until the next one is put into it.
            record.values.put(template);
            let rank = rank(&JobRow::new(template, None), ctx);
            if self.limit == 0 || self.last.is_some_and(|last| rank >= last) {
                self.left_out += 1;
                continue;
            }
            let job = Box::new(template.clone());
            self.jobs.push(RankedJob { rank, job });
            #[cfg(test)]
            {
                self.made += 1;
            }
            if self.jobs.len() >= self.limit + self.limit.max(ChosenJobs::MORE) {
                self.leave_out();
            }
        }
    }

    fn leave_out(&mut self) {
        self.jobs.sort_by_key(|one| one.rank);
        self.left_out += self.jobs.len().saturating_sub(self.limit);
        self.jobs.truncate(self.limit);
        self.last = self.jobs.last().map(|one| one.rank);
    }

    /// The jobs, in order if not all fit, and how many are left out.
    fn finish(mut self) -> (Vec<Job>, usize) {
        if self.left_out > 0 || self.jobs.len() > self.limit {
            self.leave_out();
        }
        let jobs = self.jobs.into_iter().map(|one| *one.job);
        (jobs.collect(), self.left_out)
    }
}

/// See [`rank`]: the least comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct JobRank {
    class: u8,
    at_ms: i64,
    priority: Reverse<u32>,
}

/// The order of jobs of which not all fit: those that run, those that start soonest, those that ended last.
fn rank(row: &JobRow<'_>, ctx: &Ctx) -> JobRank {
    let ms = |at: Option<Timestamp>| at.map_or(i64::MAX, |at| at.0);
    let is_over = row.job.state.is_ended() && !row.job.completing;
    let (class, at_ms) = match (row.is_pending(), is_over) {
        (true, _) => (1, ms(row.job.expected_start)),
        (false, false) => (0, ms(row.start(ctx))),
        (false, true) => (2, ms(row.job.end_time).saturating_neg()),
    };
    JobRank {
        class,
        at_ms,
        priority: Reverse(row.job.priority),
    }
}

/// The job, `0` for a time that there is not.
fn write_job(w: &mut Writer<'_>, row: &JobRow<'_>, ctx: &Ctx) {
    let (job, spec) = (row.job, &row.job.spec);
    let seconds = |at: Option<Timestamp>| at.map_or(0, |at| at.unix_s().max(0));
    w.raw("job_id", job.id.0);
    w.text("job", &collect(|o| row.write_id(o, ctx)));
    w.raw("jobs", row.job.tasks());
    w.text("name", &spec.name);
    w.text("user", &spec.owner.user);
    w.text("account", spec.account_name());
    w.text("partition", &collect(|o| row.write_partition(o)));
    w.text("qos", spec.qos_name());
    w.texts("state", job_document::states(row));
    w.text("reason", &row.reason());
    w.raw("submit", seconds(Some(job.submit_time)));
    w.raw("start", seconds(row.start(ctx)));
    w.raw("end", seconds(row.end(ctx)));
    w.raw("predicted_end", seconds(predicted_end(row, ctx)));
    w.raw("run_time", row.run_time_s(ctx).max(0));
    w.text("expected", expected(row, ctx));
    w.raw("cpus", row.cpus());
    w.raw("node_count", node_estimate(row, ctx));
    let nodes = row.nodes();
    w.text("nodes", row.sched_nodes(ctx).unwrap_or(&nodes));
}

/// When it ends if it runs as long as its owner's earlier jobs did; none if that is not known, or is past.
fn predicted_end(row: &JobRow<'_>, ctx: &Ctx) -> Option<Timestamp> {
    if row.job.state.is_ended() {
        return None;
    }
    let start = row.start(ctx)?;
    let end = start.plus_s(row.job.predicted_s?.into());
    let limit = row.end(ctx);
    (end > ctx.now && limit.is_none_or(|limit| end < limit)).then_some(end)
}

/// Where the start of a job that waits comes from: it was played through to there, or it is estimated from the work ahead.
fn expected(row: &JobRow<'_>, ctx: &Ctx) -> &'static str {
    match ctx.starts.get(&row.job.id).filter(|_| row.is_pending()) {
        Some(start) if start.estimate => "estimate",
        Some(_) => "plan",
        None => "",
    }
}

/// Numbers of running and pending jobs of a partition.
#[derive(Debug, Default, PartialEq)]
struct PartitionJobs {
    running: u64,
    pending: u64,
}

/// Numbers of the jobs that the filter chooses, whether they fit or not.
#[derive(Debug, Default, PartialEq)]
struct ListedCounts {
    states: BTreeMap<String, u64>,
    /// Why jobs wait.
    reasons: BTreeMap<&'static str, u64>,
    partitions: BTreeMap<String, PartitionJobs>,
    /// Jobs of the user who asks that have not ended.
    own: u64,
}

impl ListedCounts {
    /// Adds so many records that are like this one.
    fn add(&mut self, job: &Job, records: u32, user: &str) {
        let shown = ShownJob::of(job);
        let count = ShownCount {
            state: shown.state.to_owned(),
            reason: shown.reason,
            is_over: shown.is_over,
            jobs: u64::from(job.tasks()) * u64::from(records),
        };
        self.add_count(&count, &job.partition, job.spec.owner.user == user);
    }

    /// The jobs of a user, an account and a partition.
    fn add_group(&mut self, group: &JobCountGroup, user: &str) {
        for count in &group.shown {
            self.add_count(count, &group.partition, group.user == user);
        }
    }

    fn add_count(&mut self, count: &ShownCount, partition: &str, own: bool) {
        *self.states.entry(count.state.clone()).or_default() += count.jobs;
        if count.is_over {
            return;
        }
        if own {
            self.own += count.jobs;
        }
        let of_partition = self.partitions.entry(partition.to_owned()).or_default();
        match count.reason {
            Some(reason) => {
                *self.reasons.entry(reason.name()).or_default() += count.jobs;
                of_partition.pending += count.jobs;
            }
            None => of_partition.running += count.jobs,
        }
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.list("states", |w| {
            for (state, jobs) in &self.states {
                w.item(|w| {
                    w.text("state", state);
                    w.raw("jobs", jobs);
                });
            }
        });
        w.list("reasons", |w| {
            for (reason, jobs) in &self.reasons {
                w.item(|w| {
                    w.text("reason", reason);
                    w.raw("jobs", jobs);
                });
            }
        });
        w.list("partitions", |w| {
            for (partition, jobs) in &self.partitions {
                w.item(|w| {
                    w.text("partition", partition);
                    w.raw("running", jobs.running);
                    w.raw("pending", jobs.pending);
                });
            }
        });
        w.raw("own", self.own);
    }
}

/// `GET why/{job_id}`: what `muster why --json` prints.
pub(super) fn explain(call: &mut Call<'_>) -> Outcome {
    let name = call.name().to_owned();
    let (id, _) = job_names::parse_job(&name).ok_or_else(|| no_job(&name))?;
    let explanation = call.ask(|client| why::ask(client, id))?;
    let mut ctx = call.context();
    ctx.now = explanation.now;
    let document = why::document(&explanation);
    Ok(call.document(&ctx, |w| w.raw("why", document)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::fixture;
    use muster_model::explain::ExpectedStart;
    use muster_model::job::JobState;

    fn query(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn parameters_choose_jobs_and_bound_the_answer() {
        let none = wanted(&[]).unwrap();
        assert_eq!(
            (none.limit, none.filter),
            (JOBS_DEFAULT, JobFilter::default())
        );
        let pairs = [
            ("user", "root,root,0,root"),
            ("partition", "batch,long"),
            ("state", "PD,running"),
            ("starts", "1"),
            ("limit", "0"),
        ];
        let some = wanted(&query(&pairs)).unwrap();
        assert_eq!(some.limit, 0);
        assert_eq!(some.filter.uids, [0, 0]);
        assert_eq!(some.filter.partitions, ["batch", "long"]);
        assert_eq!(some.filter.states, [JobState::Pending, JobState::Running]);
        assert!(!some.filter.starts, "counts have no starts");
        assert!(wanted(&query(&[("starts", "1")])).unwrap().filter.starts);
        let of_node = wanted(&query(&[("node", "n[1-2]")])).unwrap();
        assert_eq!(of_node.node.as_deref(), Some("n[1-2]"));
        for (name, value) in [
            ("user", "no such user"),
            ("state", "COMPLETING"),
            ("starts", "maybe"),
            ("limit", "20001"),
            ("limit", "-1"),
        ] {
            let failure = wanted(&query(&[(name, value)])).unwrap_err();
            let said = failure.problem.description;
            assert!(said.starts_with(&format!("{name}={value}: ")), "{said}");
        }
        let many: Vec<String> = (0..=USERS_MAX).map(|uid| uid.to_string()).collect();
        let failure = wanted(&query(&[("user", &many.join(","))])).unwrap_err();
        let said = failure.problem.description;
        assert_eq!(said, "user: 101 users are named, of at most 100");
    }

    #[test]
    fn those_that_run_come_first_and_then_those_that_start_soonest() {
        let mut ctx = fixture::ctx();
        let mut running = fixture::job(1, "running");
        fixture::start(&mut running, "n1", &[&[0]]);
        let mut late = fixture::job(2, "late");
        late.expected_start = Some(fixture::at(900));
        let mut soon = fixture::job(3, "soon");
        soon.expected_start = Some(fixture::at(90));
        let unknown = fixture::job(4, "unknown");
        let mut over = fixture::job(5, "over");
        over.state = JobState::Completed;
        over.end_time = Some(fixture::at(60));
        ctx.now = fixture::at(100);
        let mut rows: Vec<JobRow<'_>> = [&over, &unknown, &late, &soon, &running]
            .map(|job| JobRow::new(job, None))
            .to_vec();
        rows.sort_by_cached_key(|row| rank(row, &ctx));
        let ids: Vec<u64> = rows.iter().map(|row| row.job.id.0).collect();
        assert_eq!(ids, [1, 3, 2, 4, 5]);
    }

    /// All of the queue was kept, whatever the answer was to have of it.
    #[test]
    fn not_many_more_jobs_are_kept_than_an_answer_has() {
        let ctx = fixture::ctx();
        let number: u32 = 30_000;
        // The last to come start first.
        let jobs = (0..number).map(|n| {
            let mut job = fixture::job(n.into(), "waits");
            job.expected_start = Some(fixture::at((number - n).into()));
            job
        });
        let add = |chosen: &mut ChosenJobs, job: Job| {
            chosen.add(CompactListing::from(vec![job]), &[true], &ctx);
        };
        let mut none = ChosenJobs::new(0);
        let mut some = ChosenJobs::new(3);
        let mut most = 0;
        for job in jobs {
            add(&mut none, job.clone());
            add(&mut some, job);
            most = most.max(none.jobs.len() + some.jobs.len());
        }
        assert!(most <= 3 + ChosenJobs::MORE, "{most}");
        assert_eq!((none.made, none.finish()), (0, (Vec::new(), 30_000)));
        let (jobs, left_out) = some.finish();
        let ids: Vec<u64> = jobs.iter().map(|job| job.id.0).collect();
        assert_eq!((ids, left_out), (vec![29_999, 29_998, 29_997], 29_997));
        // Where all fit they stay in the order in which they came.
        let mut all = ChosenJobs::new(2);
        let two = [fixture::job(9, "a"), fixture::job(7, "b")];
        two.iter().for_each(|job| add(&mut all, job.clone()));
        assert_eq!(all.finish(), (two.to_vec(), 0));
    }

    /// A record was made of each of 100,000 jobs for an answer with 200.
    #[test]
    fn records_are_made_of_jobs_that_an_answer_may_have() {
        let ctx = fixture::ctx();
        let jobs: Vec<Job> = (0..30_000).map(|n| fixture::job(n, "waits")).collect();
        let mut chosen = ChosenJobs::new(200);
        for part in jobs.chunks(1000) {
            let shown = vec![true; part.len()];
            chosen.add(CompactListing::from(part.to_vec()), &shown, &ctx);
        }
        assert!(chosen.made <= 200 + ChosenJobs::MORE, "{}", chosen.made);
        let (listed, left_out) = chosen.finish();
        assert_eq!((listed.len(), left_out), (200, 29_800));
        assert_eq!(listed, jobs[..200], "who came first is first");
        let mut hidden = ChosenJobs::new(200);
        hidden.add(CompactListing::from(jobs), &vec![false; 30_000], &ctx);
        assert_eq!(hidden.finish(), (Vec::new(), 0));
    }

    #[test]
    fn tasks_of_arrays_count_each() {
        let jobs = fixture::jobs();
        let rows: Vec<JobRow<'_>> = jobs
            .jobs
            .iter()
            .map(|job| JobRow::new(job, jobs.array_of(job)))
            .collect();
        let of = |user: &str| {
            let mut counts = ListedCounts::default();
            rows.iter().for_each(|row| counts.add(row.job, 1, user));
            counts
        };
        let counts = of("root");
        let waiting: u64 = counts.reasons.values().sum();
        assert_eq!(counts.states["PENDING"], waiting);
        let records = rows.iter().filter(|row| row.is_pending()).count() as u64;
        assert!(waiting > records, "{counts:?}");
        let of_partitions: u64 = counts.partitions.values().map(|jobs| jobs.pending).sum();
        assert_eq!(of_partitions, waiting);
        let nobody = of("nobody");
        assert!(counts.own > waiting && nobody.own == 0, "{counts:?}");
    }

    #[test]
    fn a_start_says_where_it_comes_from() {
        let mut ctx = fixture::ctx();
        let mut waits = fixture::job(7, "waits");
        let start = ExpectedStart {
            at: fixture::at(600),
            nodes: "n[1-2]".into(),
            cpus: 2,
            partition: "batch".into(),
            estimate: false,
            tasks: None,
        };
        waits.expected_start = Some(start.at);
        waits.predicted_s = Some(60);
        ctx.now = fixture::at(100);
        assert_eq!(expected(&JobRow::new(&waits, None), &ctx), "");
        ctx.starts.insert(waits.id, start.clone());
        let row = JobRow::new(&waits, None);
        assert_eq!(expected(&row, &ctx), "plan");
        assert_eq!(predicted_end(&row, &ctx), Some(fixture::at(660)));
        let estimate = ExpectedStart {
            estimate: true,
            ..start
        };
        ctx.starts.insert(waits.id, estimate);
        assert_eq!(expected(&row, &ctx), "estimate");
        // A past time is no prediction any more.
        ctx.now = fixture::at(661);
        assert_eq!(predicted_end(&row, &ctx), None);
    }
}
