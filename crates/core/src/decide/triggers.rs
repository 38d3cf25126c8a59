//! Triggers (`strigger`): who may have which, and when they fire. What happens to nodes is recorded and compared with triggers
//! once in a period, as in Slurm, so that a program is run once for all nodes; triggers of jobs fire at once.

use super::draft::Draft;
use crate::event::{Event, TriggerChange};
use crate::policy::access;
use crate::policy::access::privacy::JobScope;
use crate::state::triggers::{after, names, watches_idle};
use muster_model::command::{Identity, Reply};
use muster_model::config::ClusterConfig;
use muster_model::hostlist;
use muster_model::ids::{JobId, NodeIdx};
use muster_model::job::{JobState, Phase};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::{AccessRequest, Role};
use muster_model::time::Timestamp;
use muster_model::trigger::{
    IDLE_TRIGGERS_MAX, TRIGGER_BYTES_MAX, TRIGGER_BYTES_OF_USER_MAX, TRIGGER_NODES_MAX,
    TRIGGER_OFFSET_MAX_S, TRIGGER_RUN_BYTES_OF_USER_MAX, TRIGGER_USER_PART, TRIGGERS_MAX,
    TRIGGERS_OF_USER_MAX, Trigger, TriggerAsk, TriggerEvents, TriggerReport, TriggerRunId,
};
use std::collections::{BTreeMap, BTreeSet};

/// `strigger --set` or `--clear`.
pub(super) fn ask(
    draft: &mut Draft<'_>,
    identity: &Identity,
    ask: &TriggerAsk,
) -> Result<Option<Reply>, Refusal> {
    match ask {
        TriggerAsk::Set { .. } => set(draft, identity, ask),
        TriggerAsk::Clear { id, job, uid } => clear(draft, identity, *id, *job, *uid),
    }
}

fn set(
    draft: &mut Draft<'_>,
    identity: &Identity,
    ask: &TriggerAsk,
) -> Result<Option<Reply>, Refusal> {
    let TriggerAsk::Set {
        events,
        job,
        nodes,
        offset_s,
        program,
        permanent,
    } = ask
    else {
        return Ok(None);
    };
    let trigger = Trigger {
        id: draft.state.triggers.next_id(),
        uid: owner(draft, identity),
        gid: identity.gid,
        events: *events,
        job: *job,
        nodes: match job {
            Some(_) => String::new(),
            None => nodes.clone(),
        },
        offset_s: *offset_s,
        program: program.clone(),
        permanent: *permanent,
        fired: None,
    };
    check(draft, identity, &trigger)?;
    let mut known = draft.state.triggers.all().values();
    if known.any(|other| other.is_same(&trigger)) {
        return Err(Refusal::from(RefusalCode::DuplicateTrigger));
    }
    check_room(draft, identity, &trigger)?;
    change(draft, TriggerChange::Set(Box::new(trigger)));
    Ok(Some(done(1)))
}

/// Owner of the program: a controller that is not root runs root's as SlurmUser.
fn owner(draft: &Draft<'_>, identity: &Identity) -> u32 {
    let config = draft.state.config.as_ref();
    let slurm_user = config.and_then(|config| config.admin_uids.first());
    match (identity.uid, slurm_user) {
        (0, Some(slurm_user)) => *slurm_user,
        (uid, _) => uid,
    }
}

fn invalid(why: String) -> Refusal {
    Refusal::new(RefusalCode::InvalidValue, why)
}

fn check(draft: &Draft<'_>, identity: &Identity, trigger: &Trigger) -> Result<(), Refusal> {
    let known = trigger.events.among(TriggerEvents::ALL);
    let named = known.without(TriggerEvents::FRONT_END);
    if known != trigger.events || named == TriggerEvents::NONE {
        return Err(invalid(format!(
            "there are no events {:#x}",
            trigger.events.0
        )));
    }
    if !trigger.program.starts_with('/') || trigger.program.chars().any(char::is_control) {
        let why = "the program begins with '/' and has no control characters";
        return Err(invalid(why.to_owned()));
    }
    if !(-TRIGGER_OFFSET_MAX_S..=TRIGGER_OFFSET_MAX_S).contains(&trigger.offset_s) {
        let why = format!("the offset is within {TRIGGER_OFFSET_MAX_S} seconds");
        return Err(invalid(why));
    }
    match trigger.job {
        Some(job) => check_job(draft, identity, trigger, job),
        None if trigger.events.meets(TriggerEvents::OF_JOBS) => {
            Err(Refusal::new(RefusalCode::InvalidJobId, "no job is named"))
        }
        None => check_nodes(draft, trigger),
    }
}

fn check_job(
    draft: &Draft<'_>,
    identity: &Identity,
    trigger: &Trigger,
    id: JobId,
) -> Result<(), Refusal> {
    if trigger.events.resource() != "node" {
        let why = "this event is about no job";
        return Err(Refusal::new(RefusalCode::InvalidNode, why));
    }
    let job = draft.job(id).ok_or_else(|| {
        let why = format!("there is no job {id}");
        Refusal::new(RefusalCode::InvalidJobId, why)
    })?;
    if job.spec.owner.uid != identity.uid {
        access::require_job(draft.state, identity, AccessRequest::TriggerOfOther, job)?;
    }
    match job.phase() {
        Phase::Pending | Phase::Running | Phase::Suspended | Phase::Requeueing => Ok(()),
        Phase::Completing | Phase::Ended | Phase::Gone => {
            let why = format!("job {id} is over");
            Err(Refusal::new(RefusalCode::AlreadyDone, why))
        }
    }
}

/// Names of nodes are of nodes that are there, no more of them than there are.
fn check_nodes(draft: &Draft<'_>, trigger: &Trigger) -> Result<(), Refusal> {
    let unknown = |name: &str| {
        let why = format!("there is no node {name}");
        Refusal::new(RefusalCode::InvalidNode, why)
    };
    let most = draft.state.nodes.len();
    let found = names(trigger, most).ok_or_else(|| unknown(&trigger.nodes))?;
    let mut strange = found
        .iter()
        .filter(|name| draft.state.node_named(name).is_none());
    strange.next().map_or(Ok(()), |name| Err(unknown(name)))
}

fn check_room(draft: &Draft<'_>, identity: &Identity, trigger: &Trigger) -> Result<(), Refusal> {
    let triggers = &draft.state.triggers;
    let full = |why: String| Err(Refusal::new(RefusalCode::TooManyTriggers, why));
    let is_admin = access::role_of(draft.state, identity) >= Role::SlurmUser;
    // Others leave a quarter of everything.
    let part = |all: usize| if is_admin { all } else { all / 4 * 3 };
    let more = names(trigger, draft.state.nodes.len()).map_or(0, |names| names.len());
    if !is_admin {
        check_part_of_user(draft, trigger, more)?;
    }
    if triggers.count() >= part(TRIGGERS_MAX) {
        return full(format!("there may be {TRIGGERS_MAX}"));
    }
    if triggers.bytes() + trigger.bytes() > part(TRIGGER_BYTES_MAX) {
        return full(format!("their texts may have {TRIGGER_BYTES_MAX} bytes"));
    }
    if triggers.node_names() + more > part(TRIGGER_NODES_MAX) {
        return full(format!("they may name {TRIGGER_NODES_MAX} nodes"));
    }
    if watches_idle(trigger) && triggers.idle_count() >= part(IDLE_TRIGGERS_MAX) {
        return full(format!("{IDLE_TRIGGERS_MAX} may be for idle nodes"));
    }
    Ok(())
}

/// Refuses a trigger with which its user would have more than a part of what there is for all.
fn check_part_of_user(
    draft: &Draft<'_>,
    trigger: &Trigger,
    node_names: usize,
) -> Result<(), Refusal> {
    let own = draft.state.triggers.of_user(trigger.uid);
    let full = |what: &str, most: usize| {
        let why = format!("a user may have {most}{what}");
        Err(Refusal::new(RefusalCode::TooManyTriggers, why))
    };
    let [idle, names] = [IDLE_TRIGGERS_MAX, TRIGGER_NODES_MAX].map(|all| all / TRIGGER_USER_PART);
    if own.count >= TRIGGERS_OF_USER_MAX {
        return full("", TRIGGERS_OF_USER_MAX);
    }
    if watches_idle(trigger) && own.idle >= idle {
        return full(" for idle nodes", idle);
    }
    if own.node_names + node_names > names {
        return full(" names of nodes in them", names);
    }
    if own.bytes + trigger.bytes() > TRIGGER_BYTES_OF_USER_MAX {
        let what = " bytes of their texts, with those of programs that wait";
        return full(what, TRIGGER_BYTES_OF_USER_MAX);
    }
    Ok(())
}

/// Removes triggers. Triggers of jobs hidden from the user count as absent.
fn clear(
    draft: &mut Draft<'_>,
    identity: &Identity,
    id: Option<u32>,
    job: Option<JobId>,
    uid: Option<u32>,
) -> Result<Option<Reply>, Refusal> {
    if id.is_none() && job.is_none() && uid.is_none() {
        return Err(invalid("no trigger is named".to_owned()));
    }
    if uid.is_some_and(|uid| uid != identity.uid) {
        access::require(draft.state, identity, AccessRequest::TriggerOfOther)?;
    }
    let scope = JobScope::of(draft.state, identity);
    let may_all = access::may(draft.state, identity, AccessRequest::TriggerOfOther);
    let is_meant = |trigger: &&Trigger| {
        let by_id = id.is_none_or(|id| trigger.id == id);
        let by_job = job.is_none_or(|job| trigger.job == Some(job));
        let is_seen = trigger
            .job
            .is_none_or(|job| trigger.uid == identity.uid || scope.shows(draft.state, job));
        by_id && by_job && uid.is_none_or(|uid| trigger.uid == uid) && is_seen
    };
    let triggers = &draft.state.triggers;
    let found: Vec<&Trigger> = match (id, job) {
        (Some(id), _) => triggers
            .all()
            .get(&id)
            .filter(is_meant)
            .into_iter()
            .collect(),
        (None, Some(job)) => triggers.of_job(job).filter(is_meant).collect(),
        (None, None) => triggers.all().values().filter(is_meant).collect(),
    };
    if found.is_empty() {
        return Err(Refusal::from(RefusalCode::NoSuchTrigger));
    }
    if !may_all && found.iter().any(|trigger| trigger.uid != identity.uid) {
        let why = "the trigger belongs to another user";
        return Err(Refusal::new(RefusalCode::AccessDenied, why));
    }
    let ids: Vec<u32> = found.iter().map(|trigger| trigger.id).collect();
    let count = u32::try_from(ids.len()).unwrap_or(u32::MAX);
    change(draft, TriggerChange::Removed(ids));
    Ok(Some(done(count)))
}

fn done(changed: u32) -> Reply {
    let refused = Vec::new();
    Reply::Done { changed, refused }
}

fn change(draft: &mut Draft<'_>, change: TriggerChange) {
    let at = draft.now;
    draft.emit(Event::TriggersChanged { change, at });
}

/// Handles a report of the controller.
pub(super) fn report(draft: &mut Draft<'_>, report: TriggerReport) {
    let triggers = &draft.state.triggers;
    match report {
        TriggerReport::Happened(events) if triggers.wants(events) => {
            change(draft, TriggerChange::Happened(events));
        }
        TriggerReport::Happened(_) => {}
        TriggerReport::Started(run) => {
            if triggers.runs().contains_key(&run) {
                change(draft, TriggerChange::Started(run));
            }
        }
    }
}

/// Where the site lets users have none, theirs are removed, and their programs that wait are not run.
pub(super) fn drop_those_of_users(draft: &mut Draft<'_>, config: &ClusterConfig) {
    if config.user_triggers {
        return;
    }
    let triggers = &draft.state.triggers;
    let is_users = |uid: u32| !is_administrator(Some(config), uid);
    let all = triggers.all().values();
    let ids: Vec<u32> = all.filter(|t| is_users(t.uid)).map(|t| t.id).collect();
    if !ids.is_empty() {
        change(draft, TriggerChange::Removed(ids));
    }
    let runs = triggers.runs().values().filter(|run| is_users(run.uid));
    for run in runs {
        change(draft, TriggerChange::Started(run.id));
    }
}

/// A trigger fires, unless its last program still waits.
fn fire(draft: &mut Draft<'_>, trigger: &Trigger, argument: &str, due: Timestamp) {
    if draft.state.triggers.has_run(trigger.id) {
        return;
    }
    let id = trigger.id;
    let fired = |argument: &str, due| TriggerChange::Fired {
        trigger: id,
        argument: argument.to_owned(),
        due,
    };
    if takes_room(draft, trigger, argument) {
        return change(draft, fired(argument, due));
    }
    // Its time does not come: nothing begins it, and nothing is left to begin.
    let (now, never) = (draft.now, Timestamp(i64::MAX));
    change(draft, fired("", never));
    change(
        draft,
        TriggerChange::Started(TriggerRunId {
            trigger: id,
            fired: now,
        }),
    );
}

/// Whether there is room for the texts of a program, which are its user's from now on. What a trigger names may be much
/// longer than the trigger.
fn takes_room(draft: &mut Draft<'_>, trigger: &Trigger, argument: &str) -> bool {
    if is_administrator(draft.state.config.as_deref(), trigger.uid) {
        return true;
    }
    let more = trigger.program.len() + argument.len();
    let before = draft.state.triggers.of_user(trigger.uid).bytes;
    let fired = draft.fired_bytes.entry(trigger.uid).or_default();
    let has_room = before + *fired + more <= TRIGGER_RUN_BYTES_OF_USER_MAX;
    *fired += if has_room { more } else { 0 };
    has_room
}

/// Whether triggers of this user are an administrator's: root or SlurmUser.
fn is_administrator(config: Option<&ClusterConfig>, uid: u32) -> bool {
    uid == 0 || config.is_some_and(|config| config.admin_uids.contains(&uid))
}

/// When the program of a trigger is run that fires now.
fn due_after(trigger: &Trigger, at: Timestamp) -> Timestamp {
    after(at, trigger.offset_s.max(0))
}

/// Fires and compares triggers that are due.
pub(super) fn tick(draft: &mut Draft<'_>) {
    let (state, now) = (draft.state, draft.now);
    let triggers = &state.triggers;
    for run in triggers.due_runs(now) {
        change(draft, TriggerChange::Begun(run));
    }
    for id in triggers.due_by_time(now) {
        if let Some((trigger, job)) = triggers.all().get(&id).and_then(|t| Some((t, t.job?))) {
            fire(draft, trigger, &job.to_string(), now);
        }
    }
    for (id, nodes) in triggers.due_idle(now) {
        if let Some(trigger) = triggers.all().get(&id) {
            let argument = list(draft, nodes);
            fire(draft, trigger, &argument, now);
        }
    }
    if triggers.check_due().is_some_and(|due| due <= now) {
        compare(draft);
    }
}

/// Compares the recorded events with triggers.
fn compare(draft: &mut Draft<'_>) {
    let state = draft.state;
    let (triggers, recorded) = (&state.triggers, state.triggers.recorded());
    let mut general: BTreeSet<u32> = BTreeSet::new();
    let mut of_nodes: BTreeMap<u32, BTreeSet<NodeIdx>> = BTreeMap::new();
    for (event, nodes) in &recorded.nodes {
        general.extend(triggers.general(*event).map(|trigger| trigger.id));
        for idx in nodes {
            let name = state.node(*idx).map_or("", |node| &node.config.name);
            for trigger in triggers.of_node(*event, name) {
                of_nodes.entry(trigger.id).or_default().insert(*idx);
            }
        }
    }
    // Triggers for the same events are given the same list.
    let mut lists: BTreeMap<TriggerEvents, String> = BTreeMap::new();
    let mut fired: BTreeSet<u32> = BTreeSet::new();
    let all = |ids: &BTreeSet<u32>| {
        let known = ids.iter().filter_map(|id| triggers.all().get(id));
        known.collect::<Vec<&Trigger>>()
    };
    for trigger in all(&general) {
        let events = trigger.events.among(TriggerEvents::OF_NODES);
        let argument = lists.entry(events).or_insert_with(|| {
            let of_events = events.each().filter_map(|e| recorded.nodes.get(&e));
            list(draft, of_events.flatten().copied())
        });
        fired.insert(trigger.id);
        fire(draft, trigger, argument, due_after(trigger, draft.now));
    }
    for (id, nodes) in of_nodes {
        let Some(trigger) = triggers.all().get(&id) else {
            continue;
        };
        let argument = list(draft, nodes);
        fired.insert(id);
        fire(draft, trigger, &argument, due_after(trigger, draft.now));
    }
    for event in recorded.others.each() {
        let known: BTreeSet<u32> = triggers.general(event).map(|trigger| trigger.id).collect();
        let named = known.into_iter().chain(triggers.naming(event));
        for id in named {
            if let Some(trigger) = triggers.all().get(&id).filter(|_| fired.insert(id)) {
                fire(draft, trigger, event.word(), due_after(trigger, draft.now));
            }
        }
    }
    for (job, event) in &recorded.jobs {
        let meant = triggers.of_job(*job);
        let meant: Vec<&Trigger> = meant.filter(|t| t.events.meets(*event)).collect();
        for trigger in meant.into_iter().filter(|trigger| fired.insert(trigger.id)) {
            let due = due_after(trigger, draft.now);
            fire(draft, trigger, &job.to_string(), due);
        }
    }
    let ended = triggers.ended_jobs().flat_map(|job| triggers.of_job(job));
    let ended: Vec<u32> = ended.map(|trigger| trigger.id).collect();
    if !ended.is_empty() {
        change(draft, TriggerChange::Removed(ended));
    }
    change(draft, TriggerChange::Checked);
}

/// Names of nodes, as the argument of a program.
fn list(draft: &Draft<'_>, nodes: impl IntoIterator<Item = NodeIdx>) -> String {
    let nodes: BTreeSet<NodeIdx> = nodes.into_iter().collect();
    let names = nodes.iter().filter_map(|idx| draft.state.node(*idx));
    let names: Vec<&str> = names.map(|node| node.config.name.as_str()).collect();
    hostlist::compress_sorted(&names)
}

/// Triggers of jobs that came to their end in this decision.
pub(super) fn follow(draft: &mut Draft<'_>) {
    let triggers = &draft.state.triggers;
    if !triggers.concerns_jobs() {
        return;
    }
    let touched = draft.events.iter().flat_map(Event::jobs);
    let touched: BTreeSet<JobId> = touched
        .copied()
        .filter(|id| triggers.concerns(*id))
        .collect();
    for id in touched {
        end_of_job(draft, id);
    }
}

fn end_of_job(draft: &mut Draft<'_>, id: JobId) {
    let triggers = &draft.state.triggers;
    let Some(job) = draft.job(id).filter(|job| job.phase() == Phase::Ended) else {
        return;
    };
    let limit = job.time_limit_end();
    let limit = limit.filter(|_| job.state == JobState::Timeout);
    let start = job.start_time;
    let mut gone = Vec::new();
    for trigger in triggers.of_job(id) {
        if trigger.events.meets(TriggerEvents::FINI) {
            fire(
                draft,
                trigger,
                &id.to_string(),
                due_after(trigger, draft.now),
            );
            gone.extend(trigger.permanent.then_some(trigger.id));
            continue;
        }
        if trigger.events.meets(TriggerEvents::TIME) {
            let has_fired = trigger.fired.is_some_and(|fired| Some(fired) >= start);
            match limit.filter(|_| !has_fired) {
                Some(limit) => {
                    let due = after(limit, trigger.offset_s).max(draft.now);
                    fire(draft, trigger, &id.to_string(), due);
                    gone.extend(trigger.permanent.then_some(trigger.id));
                }
                None => gone.push(trigger.id),
            }
        }
    }
    if !gone.is_empty() {
        change(draft, TriggerChange::Removed(gone));
    }
}
