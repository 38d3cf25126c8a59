//! Lines of the audit log for commands: the object and the changed keys with their values, and whether it reaches beyond
//! one's own jobs. Texts of users are cut and escaped, so that none makes a line of its own.

mod changes;

use crate::state::State;
use changes::{Subject, list};
use muster_model::audit::text;
use muster_model::command::{
    AccountsAsk, AccountsEdit, ClusterAsk, Identity, JobSelection, JobTarget, SignalScope,
    UserCommand,
};
use muster_model::hostlist;
use muster_model::ids::JobId;
use muster_model::rights::AccessRequest;
use muster_model::spec::JobSpec;
use muster_model::trigger::{Trigger, TriggerAsk};
use std::fmt::Write as _;

/// Whether a command that is carried out changes something that is not the caller's own.
pub fn beyond_own(state: &State, identity: &Identity, command: &UserCommand) -> bool {
    let foreign = |target: &JobTarget| is_foreign(state, identity, target.job);
    match command {
        UserCommand::Submit { spec, .. } => {
            !spec.owner.user.is_empty() && spec.owner.uid != identity.uid
        }
        UserCommand::SubmitHet { specs, .. } => specs
            .iter()
            .any(|spec| !spec.owner.user.is_empty() && spec.owner.uid != identity.uid),
        UserCommand::SetCrontab(ask) => !ask.owner.user.is_empty() && ask.owner.uid != identity.uid,
        UserCommand::Trigger(ask) => match **ask {
            TriggerAsk::Set { .. } => true,
            TriggerAsk::Clear { id, job, uid } => {
                let triggers = &state.triggers;
                let is_others = |trigger: &Trigger| trigger.uid != identity.uid;
                let of_id = id.and_then(|id| triggers.all().get(&id));
                let of_job = job.into_iter().flat_map(|job| triggers.of_job(job));
                let mut named = of_id.into_iter().chain(of_job);
                uid.is_some_and(|uid| uid != identity.uid) || named.any(is_others)
            }
        },
        UserCommand::Cancel { selection } | UserCommand::Signal { selection, .. } => {
            if selection.targets.is_empty() {
                let own = selection.only_own || selection.uid == Some(identity.uid);
                let known = state.accounts.users.get(&identity.user);
                let reaches = super::may(state, identity, AccessRequest::Cancel)
                    || known.is_some_and(|user| !user.coordinates.is_empty());
                !own && reaches
            } else {
                selection.targets.iter().any(foreign)
            }
        }
        UserCommand::Hold { target, .. }
        | UserCommand::Release { target }
        | UserCommand::Requeue { target, .. }
        | UserCommand::Suspend { target }
        | UserCommand::Resume { target }
        | UserCommand::UpdateJob { target, .. }
        | UserCommand::UpdateStep { target, .. }
        | UserCommand::Top { target }
        | UserCommand::Notify { target, .. } => foreign(target),
        UserCommand::EndAllocation { job, .. } => is_foreign(state, identity, *job),
        UserCommand::UpdateNodes { .. }
        | UserCommand::UpdatePartition { .. }
        | UserCommand::CreatePartition { .. }
        | UserCommand::DeletePartition { .. }
        | UserCommand::CreateNodes { .. }
        | UserCommand::DeleteNodes { .. }
        | UserCommand::TakeNode(_)
        | UserCommand::Reboot { .. }
        | UserCommand::CancelReboot { .. }
        | UserCommand::CreateReservation(_)
        | UserCommand::UpdateReservation(_)
        | UserCommand::DeleteReservation { .. }
        | UserCommand::EditAccounts(_)
        | UserCommand::Reconfigure => true,
    }
}

/// Whether a job, or an array of this number, is there and another user's.
pub fn is_foreign(state: &State, identity: &Identity, id: JobId) -> bool {
    let tasks = state
        .arrays
        .get(&id)
        .into_iter()
        .flat_map(|a| a.tasks.values());
    let mut known = [&id]
        .into_iter()
        .chain(tasks)
        .filter_map(|id| state.jobs.get(id));
    known
        .next()
        .is_some_and(|job| job.spec.owner.uid != identity.uid)
}

/// The subject of a command: object and changed keys.
pub fn subject(state: &State, command: &UserCommand) -> String {
    subject_of(state, command).finish()
}

/// The subject of a submission.
pub fn submission(spec: &JobSpec) -> String {
    submitted(Some(spec)).finish()
}

fn subject_of(state: &State, command: &UserCommand) -> Subject {
    match command {
        UserCommand::Submit { spec, .. } => submitted(Some(spec)),
        UserCommand::SubmitHet { specs, .. } => submitted(specs.first()),
        UserCommand::Reconfigure => Subject::new("configuration"),
        UserCommand::SetCrontab(ask) => Subject::new(format!("crontab {}", text(&ask.owner.user)))
            .key("Entries", ask.text.as_ref().map(|_| ask.jobs.len()))
            .word(if ask.text.is_none() { "remove" } else { "" }),
        UserCommand::Trigger(ask) => trigger(ask),
        UserCommand::Cancel { selection } => Subject::new(selected(selection)),
        UserCommand::Signal {
            selection,
            signal,
            scope,
        } => {
            let scope = match scope {
                SignalScope::Steps => "",
                SignalScope::Batch => "batch",
                SignalScope::Full => "full",
            };
            Subject::new(selected(selection))
                .key("Signal", Some(signal))
                .word(scope)
        }
        UserCommand::Hold { target, user } => {
            Subject::new(job_text(target)).word(if *user { "user" } else { "" })
        }
        UserCommand::Requeue {
            target,
            hold,
            special_exit,
            incomplete,
        } => Subject::new(job_text(target))
            .word(if *hold { "hold" } else { "" })
            .word(if *special_exit { "special_exit" } else { "" })
            .word(if *incomplete { "incomplete" } else { "" }),
        UserCommand::Release { target }
        | UserCommand::Suspend { target }
        | UserCommand::Resume { target }
        | UserCommand::Top { target } => Subject::new(job_text(target)),
        UserCommand::UpdateJob { target, update } => {
            let present = state.jobs.get(&target.job).map(|job| &job.spec.ask);
            changes::job(Subject::new(job_text(target)), update, present)
        }
        UserCommand::UpdateStep {
            target,
            step,
            time_limit,
        } => Subject::new(job_text(target))
            .key("Step", *step)
            .key("TimeLimit", Some(changes::limit(*time_limit))),
        UserCommand::Notify { target, text } => {
            Subject::new(job_text(target)).key("Message", Some(text))
        }
        UserCommand::EndAllocation { job, .. } => Subject::new(format!("job {job}")),
        UserCommand::UpdateNodes { nodes, update } => {
            changes::nodes(Subject::new(text(nodes)), update)
        }
        UserCommand::Reboot {
            nodes,
            asap,
            down_after,
            reason,
        } => Subject::new(text(nodes))
            .word(if *asap { "ASAP" } else { "" })
            .key("NextState", down_after.then_some("DOWN"))
            .key("Reason", reason.as_ref()),
        UserCommand::CancelReboot { nodes } | UserCommand::DeleteNodes { nodes } => {
            Subject::new(text(nodes))
        }
        UserCommand::CreateNodes { nodes } => {
            let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
            Subject::new(text(&hostlist::compress(&names)))
        }
        UserCommand::TakeNode(asked) => Subject::new(text(&asked.host.hostname))
            .key("NodeAddr", Some(&asked.host.addr))
            .key("Feature", asked.feature.as_ref()),
        UserCommand::UpdatePartition { name, pairs, .. }
        | UserCommand::CreatePartition { name, pairs } => Subject::new(text(name)).pairs(pairs),
        UserCommand::DeletePartition { name } | UserCommand::DeleteReservation { name } => {
            Subject::new(text(name))
        }
        UserCommand::CreateReservation(ask) | UserCommand::UpdateReservation(ask) => {
            changes::reservation(ask)
        }
        UserCommand::EditAccounts(edit) => edited(edit),
    }
}

/// Subject of a submission: its owner-to-be if that is set; its number is not known yet.
fn submitted(spec: Option<&JobSpec>) -> Subject {
    let Some(spec) = spec else {
        return Subject::default();
    };
    let owner = &spec.owner;
    Subject::default()
        .key("JobName", Some(&spec.name))
        .key("UserId", (!owner.user.is_empty()).then_some(owner.uid))
}

fn trigger(ask: &TriggerAsk) -> Subject {
    match ask {
        TriggerAsk::Set {
            events,
            job,
            nodes,
            program,
            ..
        } => {
            let nodes = (!nodes.is_empty()).then_some(nodes);
            Subject::new("trigger")
                .key("Event", Some(events.word()))
                .key("JobId", *job)
                .key("Nodes", nodes)
                .key("Program", Some(program))
        }
        TriggerAsk::Clear { id, job, uid } => Subject::new("trigger")
            .word("clear")
            .key("Id", *id)
            .key("JobId", *job)
            .key("UserId", *uid),
    }
}

fn edited(edit: &AccountsEdit) -> Subject {
    of_ask(edit).name("Cluster", &edit.cluster)
}

fn of_ask(edit: &AccountsEdit) -> Subject {
    let names = || Subject::new(list(edit.names.iter()));
    match &edit.ask {
        AccountsAsk::AddAccounts {
            parent,
            description,
            organization,
            terms,
        }
        | AccountsAsk::ModifyAccounts {
            parent,
            description,
            organization,
            terms,
        } => {
            let subject = names()
                .name("Parent", parent)
                .name("Description", description)
                .name("Organization", organization);
            changes::terms(subject, terms)
        }
        AccountsAsk::AddUsers {
            accounts,
            default_account,
            admin_level,
            terms,
            wckeys,
            partitions,
        }
        | AccountsAsk::ModifyUsers {
            accounts,
            default_account,
            admin_level,
            terms,
            wckeys,
            partitions,
        } => {
            let subject = names()
                .list("Account", accounts)
                .list("Partition", partitions)
                .name("DefaultAccount", default_account)
                .name("AdminLevel", admin_level);
            changes::wckeys(changes::terms(subject, terms), wckeys)
        }
        AccountsAsk::DeleteAccounts => names(),
        AccountsAsk::AddQos(ask) => changes::qos(names().word("add"), ask),
        AccountsAsk::ModifyQos(ask) => changes::qos(names().word("modify"), ask),
        AccountsAsk::DeleteQos => names().word("delete"),
        AccountsAsk::DeleteWckeys(keys) => names().word("delete").list("WCKeys", keys),
        AccountsAsk::DeleteUsers {
            accounts,
            partitions,
        } => names()
            .list("Account", accounts)
            .list("Partition", partitions),
        AccountsAsk::RenameUser { to } => names().key("NewName", Some(to)),
        AccountsAsk::AddClusters(ask) => cluster(names().word("add"), ask),
        AccountsAsk::ModifyClusters(ask) => cluster(names().word("modify"), ask),
        AccountsAsk::DeleteClusters => names().word("delete"),
        AccountsAsk::SetResource(resource) => names()
            .word("set")
            .key("Count", Some(resource.count))
            .key("PercentAllowed", Some(resource.percent_allocated())),
        AccountsAsk::DeleteResources => names().word("delete"),
        AccountsAsk::SetFederation(federation) => {
            let clusters = federation.members.iter().map(|member| &member.cluster);
            let clusters: Vec<String> = clusters.cloned().collect();
            names().word("set").list("Cluster", &clusters)
        }
        AccountsAsk::DeleteFederations => names().word("delete"),
        AccountsAsk::SetFeatures(of) => names().list("Features", &of.features),
        AccountsAsk::SetUsage(all) => {
            let raw = all.iter().map(|one| one.raw).fold(0, u64::saturating_add);
            names().key("RawUsage", Some(raw))
        }
        AccountsAsk::RecordStorage(scan) => names()
            .key("Path", Some(&scan.path))
            .key("Users", Some(scan.users.len())),
        AccountsAsk::ReserveJobIds(last) => names().key("JobIds", Some(last.0)),
        AccountsAsk::NoteJobs(note) => names()
            .key("Comment", note.comment.as_ref())
            .key("AdminComment", note.admin_comment.as_ref())
            .key("NewWCKey", note.wckey.as_ref())
            .key("DerivedExitCode", note.derived_exit),
        AccountsAsk::ResetAccountUsage | AccountsAsk::ResetQosUsage => {
            names().key("RawUsage", Some(0))
        }
        AccountsAsk::ResetUsage { accounts }
        | AccountsAsk::AddCoordinators { accounts }
        | AccountsAsk::DeleteCoordinators { accounts } => names().list("Account", accounts),
    }
}

fn cluster(subject: Subject, ask: &ClusterAsk) -> Subject {
    let subject = subject.key("Classification", ask.classification.as_ref());
    changes::terms(subject, &ask.terms)
}

fn selected(selection: &JobSelection) -> String {
    if !selection.targets.is_empty() {
        let jobs = list(selection.targets.iter().map(job_text));
        return match selection.step {
            Some(step) => format!("{jobs} step {step}"),
            None => jobs,
        };
    }
    let mut out = "jobs".to_owned();
    let words = [
        ("name", &selection.name),
        ("partition", &selection.partition),
        ("account", &selection.account),
        ("qos", &selection.qos),
        ("reservation", &selection.reservation),
        ("wckey", &selection.wckey),
    ];
    if let Some(uid) = selection.uid {
        let _ = write!(out, " of uid {uid}");
    }
    if let Some(state) = selection.state {
        let _ = write!(out, " state {state:?}");
    }
    for (name, word) in words {
        if let Some(word) = word {
            let _ = write!(out, " {name} {}", text(word));
        }
    }
    if !selection.nodes.is_empty() {
        let _ = write!(out, " nodes {}", list(selection.nodes.iter()));
    }
    out
}

/// A job as users write it.
fn job_text(target: &JobTarget) -> String {
    let mut out = format!("job {}", target.job);
    if let Some(component) = target.component {
        let _ = write!(out, "+{component}");
    }
    if let Some(tasks) = &target.tasks {
        let range = |(first, last)| match first == last {
            true => format!("{first}"),
            false => format!("{first}-{last}"),
        };
        let _ = write!(out, "_[{}]", list(tasks.ranges().map(range)));
    }
    out
}

#[cfg(test)]
mod tests;
