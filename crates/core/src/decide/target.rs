//! From what users write (`123`, `123_4`, `123_[1-3]`, filters) to records.

use super::draft::Draft;
use crate::policy::access;
use crate::state::State;
use muster_model::command::{Identity, JobSelection, JobTarget, Reply};
use muster_model::config::ClusterConfig;
use muster_model::het::HetPlace;
use muster_model::hostlist::{self, Names};
use muster_model::ids::{JobId, NodeIdx};
use muster_model::job::{ArrayRole, Job, JobState};
use muster_model::node::Node;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// One thing to act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// A record: a job, a task, or the tasks that have not left an array.
    Record(JobId),
    /// A task that is still in its array's record.
    Task(JobId, u32),
}

impl Item {
    /// The record that it is in now.
    pub(super) fn record(self) -> JobId {
        match self {
            Item::Record(id) | Item::Task(id, _) => id,
        }
    }

    /// Makes sure that it has a record of its own, and returns its number.
    pub(super) fn own_record(self, draft: &mut Draft<'_>) -> JobId {
        match self {
            Item::Record(id) => id,
            Item::Task(base, index) => draft.split_task(base, index),
        }
    }

    /// Number of jobs, where each task is one.
    pub(super) fn tasks(self, job: &Job) -> u32 {
        match (self, &job.array) {
            (Item::Record(_), ArrayRole::Pending { indices }) => {
                u32::try_from(indices.len()).unwrap_or(u32::MAX)
            }
            (Item::Record(_) | Item::Task(..), _) => 1,
        }
    }

    /// As the user writes it: `123`, `123_4`, `123_[1-3]`.
    pub(super) fn text(self, draft: &Draft<'_>) -> String {
        match self {
            Item::Task(base, index) => format!("{base}_{index}"),
            Item::Record(id) => match draft.job(id).map(|job| &job.array) {
                Some(ArrayRole::Task { base, index }) => format!("{base}_{index}"),
                Some(ArrayRole::Pending { indices }) => format!("{id}_[{}]", ranges(indices)),
                Some(ArrayRole::None) | None => match draft.job(id).and_then(|job| job.het) {
                    Some(part) => part.name(),
                    None => id.to_string(),
                },
            },
        }
    }
}

/// Refusals of one answer that are reported one by one; a frame has room for as many.
const REFUSALS_MAX: usize = 10_000;
/// Bytes of their texts, which may repeat what the request says.
const REFUSALS_BYTES_MAX: usize = 4 << 20;

/// The outcome of a command on several targets.
#[derive(Default)]
pub(super) struct Tally {
    changed: u32,
    refused: Vec<(String, Refusal)>,
    /// Bytes of the texts of `refused`.
    bytes: usize,
}

impl Tally {
    /// One was changed.
    pub(super) fn done(&mut self) {
        self.changed += 1;
    }

    /// One was refused.
    pub(super) fn refuse(&mut self, what: String, refusal: Refusal) {
        if self.refused.len() < REFUSALS_MAX && self.bytes < REFUSALS_BYTES_MAX {
            self.bytes += what.len() + refusal.detail.len();
            self.refused.push((what, refusal));
        }
    }

    /// The answer, job by job.
    pub(super) fn reply(self) -> Reply {
        Reply::Done {
            changed: self.changed,
            refused: self.refused,
        }
    }

    /// The answer to a command on one target: refused as a whole if nothing was done for one reason. Of an array
    /// with tasks left, those that are over are not worth a word.
    pub(super) fn reply_for_target(mut self) -> Result<Option<Reply>, Refusal> {
        if self.changed > 0 {
            self.refused
                .retain(|(_, refusal)| refusal.code != RefusalCode::AlreadyDone);
        }
        let mut reasons = self.refused.iter().map(|(_, refusal)| refusal);
        if let (0, Some(first)) = (self.changed, reasons.next())
            && reasons.all(|other| other.code == first.code)
        {
            return Err(first.clone());
        }
        Ok(Some(self.reply()))
    }
}

/// As users write a target.
pub(super) fn text(target: &JobTarget) -> String {
    match &target.tasks {
        None => match target.component {
            Some(component) => format!("{}+{component}", target.job),
            None => target.job.to_string(),
        },
        Some(tasks) => match (tasks.first(), tasks.last()) {
            (Some(first), Some(last)) if first == last => format!("{}_{first}", target.job),
            _ => format!("{}_[{}]", target.job, ranges(tasks)),
        },
    }
}

/// Refuses callers who may not act on this target at all. Runs before [`resolve`], so that a request without rights costs no
/// work.
pub(super) fn require(
    draft: &Draft<'_>,
    (identity, request): (&Identity, AccessRequest),
    target: &JobTarget,
) -> Result<(), Refusal> {
    match any_record(draft, target.job) {
        Some(job) => access::require_job(draft.state, identity, request, job)
            .map_err(|refusal| of_target(refusal, target)),
        None => Ok(()),
    }
}

/// A refusal about a job that a target names. One that is not there for the user is refused as what he wrote, whatever its number.
pub(super) fn of_target(refusal: Refusal, target: &JobTarget) -> Refusal {
    match refusal.code {
        RefusalCode::InvalidJobId => unknown(target),
        _ => refusal,
    }
}

/// The refusal of a target that is not there, or that the user may not know of.
pub fn unknown(target: &JobTarget) -> Refusal {
    let detail = format!("there is no job {}", text(target));
    Refusal::new(RefusalCode::InvalidJobId, detail)
}

/// A record of a job or array: all of an array have one owner.
pub(super) fn any_record<'d>(draft: &'d Draft<'_>, base: JobId) -> Option<&'d Job> {
    draft.job(base).or_else(|| {
        let array = draft.state.arrays.get(&base)?;
        array.tasks.values().find_map(|id| draft.job(*id))
    })
}

/// The records of a target. An array's number names all of its tasks.
pub(super) fn resolve(draft: &Draft<'_>, target: &JobTarget) -> Result<Vec<Item>, Refusal> {
    let base = target.job;
    let unknown = || unknown(target);
    if let Some(component) = target.component {
        let id = JobId(base.0.saturating_add(u64::from(component)));
        let is_part = |job: &&Job| job.het.is_some_and(|part| part.leader == base);
        let job = draft.job(id).filter(is_part).ok_or_else(unknown)?;
        return Ok(match job.het {
            // The leader stands for all.
            Some(part) if part.leads() => records(named(draft, part)),
            _ => vec![Item::Record(id)],
        });
    }
    let is_array = draft.counts(base).is_some();
    let Some(tasks) = &target.tasks else {
        if !is_array {
            let job = draft.job(base).ok_or_else(unknown)?;
            return Ok(match job.het {
                Some(part) => records(named(draft, part)),
                None => vec![Item::Record(job.id)],
            });
        }
        let mut items: BTreeSet<Item> = draft
            .task_records(base)
            .into_iter()
            .map(|(_, id)| Item::Record(id))
            .collect();
        if draft.pending_indices(base).is_some() {
            items.insert(Item::Record(base));
        }
        return Ok(items.into_iter().collect());
    };
    if !is_array {
        return Err(unknown());
    }
    let mut items = Vec::new();
    if let Some(chosen) = draft.pending_among(base, tasks) {
        let pending = draft.counts(base).map_or(0, |counts| counts.pending);
        if chosen.len() == u64::from(pending) && pending > 0 {
            items.push(Item::Record(base));
        } else {
            items.extend(chosen.iter().map(|index| Item::Task(base, index)));
        }
    }
    let records = draft.records_among(base, tasks).into_iter();
    items.extend(records.map(Item::Record));
    if items.is_empty() {
        return Err(unknown());
    }
    Ok(items)
}

fn records(ids: Vec<JobId>) -> Vec<Item> {
    ids.into_iter().map(Item::Record).collect()
}

/// Gives each record of `target` that `identity` may act upon to `act`; returns the number of those.
pub(super) fn for_each(
    draft: &mut Draft<'_>,
    caller: (&Identity, AccessRequest),
    target: &JobTarget,
    act: impl FnMut(&mut Draft<'_>, Item) -> Result<(), Refusal>,
) -> Result<Tally, Refusal> {
    require(draft, caller, target)?;
    for_each_of_any(draft, target, act)
}

/// As above, for requests that are not about the owner of the named jobs.
pub(super) fn for_each_of_any(
    draft: &mut Draft<'_>,
    target: &JobTarget,
    act: impl FnMut(&mut Draft<'_>, Item) -> Result<(), Refusal>,
) -> Result<Tally, Refusal> {
    let items = resolve(draft, target)?;
    Ok(for_items(draft, items, act))
}

/// As above, for changes of whole jobs only: the leader of a heterogeneous job represents all.
pub(super) fn for_each_whole(
    draft: &mut Draft<'_>,
    caller: (&Identity, AccessRequest),
    target: &JobTarget,
    act: impl FnMut(&mut Draft<'_>, Item) -> Result<(), Refusal>,
) -> Result<Tally, Refusal> {
    require(draft, caller, target)?;
    require_whole(draft, target)?;
    let mut items = resolve(draft, target)?;
    items.retain(|item| {
        let part = draft.job(item.record()).and_then(|job| job.het);
        part.is_none_or(|part| part.leads())
    });
    Ok(for_items(draft, items, act))
}

fn for_items(
    draft: &mut Draft<'_>,
    items: Vec<Item>,
    mut act: impl FnMut(&mut Draft<'_>, Item) -> Result<(), Refusal>,
) -> Tally {
    let mut tally = Tally::default();
    for item in items {
        if draft.is_full() {
            break;
        }
        match act(draft, item) {
            Ok(()) => tally.done(),
            Err(refusal) => {
                let what = item.text(draft);
                tally.refuse(what, refusal);
            }
        }
    }
    tally
}

/// A selection whose filters are asked of many records.
pub(super) struct Filter<'a> {
    selection: &'a JobSelection,
    nodes: BTreeSet<&'a str>,
}

impl<'a> Filter<'a> {
    /// Prepares the filters.
    pub(super) fn new(selection: &'a JobSelection) -> Filter<'a> {
        let nodes = selection.nodes.iter().map(String::as_str).collect();
        Filter { selection, nodes }
    }
}

/// Whether a record passes the filters of a selection.
pub(super) fn matches(draft: &Draft<'_>, job: &Job, filter: &Filter<'_>) -> bool {
    let (spec, selection) = (&job.spec, filter.selection);
    let same = |wanted: &Option<String>, has: &Option<String>| {
        wanted.is_none() || wanted.as_deref() == has.as_deref()
    };
    let on_nodes = || {
        let names = job.alloc.iter().flat_map(|alloc| &alloc.nodes);
        names
            .zip(0u32..)
            .filter(|(_, position)| job.nodes_held.contains(*position))
            .any(|(share, _)| filter.nodes.contains(share.name.as_str()))
    };
    selection.uid.is_none_or(|uid| uid == spec.owner.uid)
        && selection.name.as_ref().is_none_or(|n| *n == spec.name)
        && selection.state.is_none_or(|state| state == job.state)
        && selection.partition.as_ref().is_none_or(|p| {
            *p == job.partition || (job.state == JobState::Pending && spec.partitions.contains(p))
        })
        && selection
            .account
            .as_deref()
            .is_none_or(|a| a == spec.account_name())
        && selection
            .qos
            .as_deref()
            .is_none_or(|q| q == spec.qos_name())
        && same(&selection.reservation, &spec.reservation)
        && same(&selection.wckey, &spec.wckey)
        && (selection.nodes.is_empty() || on_nodes())
        && draft.job(job.id).is_some()
}

/// Records that are not over, pass the filters, and are the caller's to end. Ordinary users have only their own looked at.
pub(super) fn by_filter(
    draft: &Draft<'_>,
    identity: &Identity,
    request: AccessRequest,
    selection: &JobSelection,
) -> Vec<Item> {
    let state = draft.state;
    let all = access::may(state, identity, request);
    let known = state.accounts.users.get(&identity.user);
    let coordinates = known.is_some_and(|user| !user.coordinates.is_empty());
    let own_only = selection.only_own || !(all || coordinates);
    let uid = selection.uid.or(own_only.then_some(identity.uid));
    if own_only && uid != Some(identity.uid) {
        return Vec::new();
    }
    let filter = Filter::new(selection);
    let candidates: BTreeSet<JobId> = match uid {
        Some(uid) => state
            .by_owner
            .get(&uid)
            .into_iter()
            .flatten()
            .filter(|(name, _)| selection.name.as_ref().is_none_or(|n| n == *name))
            .flat_map(|(_, records)| records.iter().map(|(_, id)| *id))
            .collect(),
        // A node may be named again and again.
        None if !selection.nodes.is_empty() => filter
            .nodes
            .iter()
            .filter_map(|name| state.node_named(name))
            .flat_map(|node| node.jobs.iter().copied())
            .collect(),
        None => state.pending.union(&state.active).copied().collect(),
    };
    candidates
        .into_iter()
        .filter(|id| {
            draft
                .job(*id)
                .filter(|job| !job.is_over() && matches(draft, job, &filter))
                .is_some_and(|job| all || access::may_job(state, identity, request, job))
        })
        .map(Item::Record)
        .collect()
}

fn ranges(indices: &muster_model::index_set::IndexSet) -> String {
    if indices.ranges().nth(64).is_some() {
        return "...".to_owned();
    }
    let parts = indices.ranges().map(|(first, last)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    });
    parts.collect::<Vec<_>>().join(",")
}

/// Most names in a list of nodes, for this number of nodes: one may be named again. A short text can name a million.
pub(super) fn most_names(nodes: usize) -> usize {
    nodes.saturating_mul(2).max(1024)
}

/// Node names of a hostlist, of which there are no more than `most`.
pub(super) fn node_names(hostlist: &str, most: usize) -> Result<Names<'_>, Refusal> {
    hostlist::names(hostlist, most)
        .map_err(|e| Refusal::new(RefusalCode::InvalidNode, e.to_string()))
}

/// The nodes of a hostlist, each looked up as its name is expanded, or that there is none of a name.
pub(super) fn listed_nodes<'a>(
    state: &'a State,
    list: &str,
) -> Result<impl Iterator<Item = Result<&'a Node, Refusal>>, Refusal> {
    let names = node_names(list, most_names(state.nodes.len()))?;
    let mut hosts = None;
    Ok(names.map(move |name| {
        let node = state.node_named(&name).or_else(|| {
            let by_host = hosts.get_or_insert_with(|| first_of_hosts(state));
            by_host.get(&*name).copied()
        });
        node.ok_or_else(|| {
            Refusal::new(
                RefusalCode::InvalidNode,
                format!("node {name} is not in the configuration"),
            )
        })
    }))
}

/// The first node of each host (`NodeHostname`), which may be named instead.
fn first_of_hosts(state: &State) -> HashMap<&str, &Node> {
    let nodes = state.nodes.iter().rev();
    let named = nodes.filter(|node| !node.removed && !node.config.hostname.is_empty());
    named
        .map(|node| (node.config.hostname.as_str(), node))
        .collect()
}

/// The components that a number without an offset names: all by the leader's, or by any with
/// `SchedulerParameters=whole_hetjob`.
pub(super) fn named(draft: &Draft<'_>, place: HetPlace) -> Vec<JobId> {
    let known = |id: &JobId| draft.job(*id).is_some();
    if means_all_components(draft.state, place) {
        place.ids().filter(known).collect()
    } else {
        vec![JobId(place.leader.0 + u64::from(place.offset))]
    }
}

/// Whether the number of this component means all of its heterogeneous job: the leader's does, and with
/// `SchedulerParameters=whole_hetjob` each.
pub fn means_all_components(state: &State, place: HetPlace) -> bool {
    let config = state.config.as_ref();
    let whole =
        |c: &&Arc<ClusterConfig>| c.scheduler_parameters.iter().any(|p| p == "whole_hetjob");
    place.leads() || config.filter(whole).is_some()
}

/// Refuses a target that is one component, for changes of the whole job only.
pub(super) fn require_whole(draft: &Draft<'_>, target: &JobTarget) -> Result<(), Refusal> {
    let place = draft.job(target.job).and_then(|job| job.het);
    let one = target.component.unwrap_or(place.map_or(0, |p| p.offset)) > 0;
    if place.is_some() && one {
        return Err(not_whole(place));
    }
    Ok(())
}

pub(super) fn not_whole(place: Option<HetPlace>) -> Refusal {
    let detail = place.map_or_else(String::new, |place| {
        format!("name the whole job, {}", place.leader)
    });
    Refusal::new(RefusalCode::HetComponent, detail)
}

/// The nodes that a hostlist or ALL names.
pub(super) fn known_nodes(draft: &Draft<'_>, nodes: &str) -> Result<Vec<NodeIdx>, Refusal> {
    if nodes.eq_ignore_ascii_case("ALL") {
        let all = draft.state.nodes.iter().filter(|node| !node.removed);
        return Ok(all.map(|node| node.idx).collect());
    }
    let found = listed_nodes(draft.state, nodes)?.map(|node| Ok(node?.idx));
    let found = found.collect::<Result<Vec<NodeIdx>, Refusal>>()?;
    match found.is_empty() {
        true => Err(RefusalCode::InvalidNode.into()),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of an array's tasks could be refused in a text as long as the request.
    #[test]
    fn texts_of_refusals_have_a_bound_together() {
        let mut tally = Tally::default();
        let refusal = Refusal::new(RefusalCode::InvalidLicense, "x".repeat(60_000));
        for id in 0..1000 {
            tally.refuse(format!("1_{id}"), refusal.clone());
        }
        let Reply::Done { refused, .. } = tally.reply() else {
            panic!("an answer");
        };
        assert!(refused.len() < 100, "{} are kept", refused.len());
    }
}
