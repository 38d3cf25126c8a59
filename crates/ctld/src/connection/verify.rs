//! Passes a command to the verifiers of the site before it goes to the writer. Their changes replace the user's values,
//! but for values that only the controller sets (the owner, the origin), and pass the same checks; options that only a
//! site may set are allowed for this one request.

use crate::keys::blob_id;
use crate::reply::Remarks;
use crate::shared::Shared;
use crate::verifier::{Kind, Pool, records};
use log::info;
use minicbor::bytes::ByteVec;
use muster_core::policy::access;
use muster_core::state::State;
use muster_model::command::{Identity, JobTarget, JobUpdate, UserCommand};
use muster_model::granted::GrantedRight;
use muster_model::ids::{BlobId, JobId};
use muster_model::job::Job;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::Role;
use muster_model::spec::{JobSpec, Owner};
use muster_proto::frame;
use muster_verifier::jsv::check_change;
use muster_verifier::message::{ControllerRequest, ProposedChange, Subject, Verdict};
use std::io;
use std::rc::Rc;

/// The text that administrators alone set.
const ADMIN_COMMENT: &str = "admin-comment";

/// The target of a change, if a script sees it.
pub(super) fn seen_change(shared: &Shared, command: &UserCommand) -> Option<JobTarget> {
    let verifiers = shared.verifiers();
    match command {
        UserCommand::UpdateJob { target, .. } => {
            let is_seen = verifiers.iter().any(|pool| pool.settings().sees_changes());
            is_seen.then(|| target.clone())
        }
        _ => None,
    }
}

/// The submission that `target` belongs to (job, array or heterogeneous job); none if the user may change none of its jobs.
pub(super) async fn changed_job(
    shared: &Shared,
    identity: &Identity,
    target: JobTarget,
) -> io::Result<Option<JobId>> {
    let own = identity.clone();
    let look = move |state: &State| {
        let job = target.job;
        let known = state.jobs.get(&job).map_or(job, Job::submitted_as);
        (!records::specs_of(state, &own, &target).is_empty()).then_some(known)
    };
    shared.look(look).await
}

/// Has a command verified, if the site has verifiers and it is one of those that they see. Applies their changes to it;
/// returns their lines for the user.
///
/// # Errors
/// It is refused.
pub(super) async fn verify(
    shared: &Shared,
    identity: &mut Identity,
    command: &mut UserCommand,
) -> Result<Remarks, Refusal> {
    let before = name_of(command);
    check_site_options(shared, command)?;
    // Before the site's programs, which see what the class has made of a job.
    classes(shared, identity, command).await?;
    let pools = shared.verifiers();
    let mut lines = Vec::new();
    for pool in pools.iter() {
        let mut request = Verification {
            shared,
            pool,
            identity,
            lines: &mut lines,
        };
        request.command(command).await?;
    }
    let name = name_of(command).filter(|name| before.as_ref() != Some(name));
    Ok(Remarks { lines, name })
}

/// Checks options of the site's own that jobs have, and adds those that jobs have by default.
///
/// # Errors
/// A job has one that the site does not have, or another value.
fn check_site_options(shared: &Shared, command: &mut UserCommand) -> Result<(), Refusal> {
    let specs = match command {
        UserCommand::Submit { spec, .. } => std::slice::from_mut(&mut **spec),
        UserCommand::SubmitHet { specs, .. } => specs.as_mut_slice(),
        UserCommand::SetCrontab(ask) => ask.jobs.as_mut_slice(),
        _ => return Ok(()),
    };
    let options = shared.site_options();
    for spec in specs {
        let checked = options.apply(&mut spec.shown);
        checked.map_err(|why| Refusal::new(RefusalCode::InvalidValue, why))?;
    }
    Ok(())
}

fn name_of(command: &UserCommand) -> Option<String> {
    match command {
        UserCommand::Submit { spec, .. } => Some(spec.name.clone()),
        _ => None,
    }
}

/// Makes jobs of their classes, and checks changes of jobs by the rules that these have.
///
/// # Errors
/// A class does not allow it.
async fn classes(
    shared: &Shared,
    identity: &mut Identity,
    command: &mut UserCommand,
) -> Result<(), Refusal> {
    let (specs, blobs) = match command {
        UserCommand::Submit { spec, blobs, .. } => (std::slice::from_mut(&mut **spec), blobs),
        UserCommand::SubmitHet { specs, blobs, .. } => (specs.as_mut_slice(), blobs),
        UserCommand::SetCrontab(ask) => (ask.jobs.as_mut_slice(), &mut ask.blobs),
        // Jobs keep the rules of their class, also when it is no longer in the file.
        UserCommand::UpdateJob { target, update } => {
            let (target, own) = (target.clone(), identity.clone());
            let found = shared.look(move |state| {
                records::require_job(state, &target)?;
                Ok(records::specs_of(state, &own, &target))
            });
            let found: Result<_, Refusal> = found.await.map_err(|_| RefusalCode::Busy)?;
            let found = found?;
            // The writer refuses changes that the user may not make.
            let mut of_classes = found.iter().filter(|spec| spec.class.is_some());
            return of_classes.try_for_each(|spec| check_update(shared, identity, spec, update));
        }
        _ => return Ok(()),
    };
    let classes = shared.classes();
    for (number, spec) in specs.iter_mut().enumerate() {
        let old = (spec.class.is_some() || classes.has_default()).then(|| spec.clone());
        let encoded = blobs.iter().find(|(own, _)| Some(*own) == spec.context);
        let mut context = encoded.map(|(_, bytes)| bytes.clone());
        let before = context.clone();
        classes.apply(identity, spec, &mut context)?;
        if spec.class.is_none() {
            continue;
        }
        if let Some(old) = &old {
            grant(identity, number, old, spec);
        }
        if let (Some(bytes), Some(own)) = (
            context.filter(|own| Some(own) != before.as_ref()),
            &mut spec.context,
        ) {
            *own = blob_id(&bytes);
            blobs.push((*own, bytes));
        }
    }
    keep_named(specs, blobs);
    Ok(())
}

/// Checks a change of a job that has a class.
fn check_update(
    shared: &Shared,
    identity: &Identity,
    spec: &JobSpec,
    update: &JobUpdate,
) -> Result<(), Refusal> {
    let checked = shared.classes().check_update(spec, update);
    checked.map_err(|why| match [0, spec.owner.uid].contains(&identity.uid) {
        true => why,
        // Others may not know the job's class: those who may change it see it in its record.
        false => Refusal::new(why.code, "the job's class does not allow it"),
    })
}

/// Leaves out what no job names any more.
fn keep_named(specs: &[JobSpec], blobs: &mut Blobs) {
    let named = |id: BlobId| {
        specs
            .iter()
            .any(|s| [s.script, s.context].contains(&Some(id)))
    };
    blobs.retain(|(id, _)| named(*id));
}

/// Grants the rights for settings of the job of this number that the site has made and users may not.
fn grant(identity: &mut Identity, number: usize, old: &JobSpec, new: &JobSpec) {
    for part in set_by_site(old, new) {
        identity.granted.insert(number, part);
    }
}

/// Settings of a submission that the site has made. Where the user has asked for a value that users may not have, the result is
/// not the site's alone: a script that adds to a nice value, or to a comment, keeps the user's part.
fn set_by_site(old: &JobSpec, new: &JobSpec) -> Vec<GrantedRight> {
    let comment = |spec: &JobSpec| admin_comment(&spec.shown);
    let is_usual = |priority: Option<u32>| priority.unwrap_or(0) == 0;
    let set = [
        (
            GrantedRight::Priority,
            is_usual(old.priority) && new.priority != old.priority,
        ),
        (
            GrantedRight::NegativeNice,
            old.nice >= 0 && new.nice != old.nice,
        ),
        (
            GrantedRight::SiteFactor,
            old.site_factor == 0 && new.site_factor != 0,
        ),
        (
            GrantedRight::AdminComment,
            comment(old).is_none() && comment(new).is_some(),
        ),
    ];
    let set = set.into_iter().filter(|(_, set)| *set);
    set.map(|(part, _)| part).collect()
}

/// Settings of a change of jobs that the site has made. Whether users may ask for a value depends on each job.
fn changed_by_site(old: &JobUpdate, new: &JobUpdate) -> Vec<GrantedRight> {
    let comment = |update: &JobUpdate| admin_comment(&update.shown);
    let limit = |update: &JobUpdate| (update.time_limit, update.time_delta_min);
    let set = [
        (
            GrantedRight::RaisedPriority,
            old.priority.is_none() && new.priority.is_some(),
        ),
        (
            GrantedRight::LoweredNice,
            old.nice.is_none() && new.nice.is_some(),
        ),
        (
            GrantedRight::SiteFactor,
            old.site_factor.is_none() && new.site_factor.is_some(),
        ),
        (
            GrantedRight::AdminComment,
            comment(old).is_none() && comment(new).is_some(),
        ),
        (
            GrantedRight::RaisedTimeLimit,
            limit(old) == (None, None) && limit(new) != (None, None),
        ),
    ];
    let set = set.into_iter().filter(|(_, set)| *set);
    set.map(|(part, _)| part).collect()
}

/// A request before one verifier.
struct Verification<'a> {
    shared: &'a Shared,
    pool: &'a Rc<Pool>,
    identity: &'a mut Identity,
    lines: &'a mut Vec<String>,
}

type Blobs = Vec<(BlobId, ByteVec)>;

impl Verification<'_> {
    async fn command(&mut self, command: &mut UserCommand) -> Result<(), Refusal> {
        match command {
            UserCommand::Submit { spec, blobs, .. } => {
                let specs = std::slice::from_mut(&mut **spec);
                self.submission(specs, blobs, false).await
            }
            UserCommand::SubmitHet { specs, blobs, .. } => {
                self.submission(specs, blobs, true).await
            }
            UserCommand::SetCrontab(ask) => {
                self.submission(&mut ask.jobs, &mut ask.blobs, false).await
            }
            UserCommand::UpdateJob { target, update } if self.allowed().is_some() => {
                self.check_change(target, Some(update)).await
            }
            UserCommand::Hold { target, .. } | UserCommand::Release { target }
                if self.allowed().is_some() =>
            {
                self.check_change(target, None).await
            }
            // Held, it would be another change of it; as it was, it only runs again.
            UserCommand::Requeue {
                target,
                hold,
                special_exit,
                ..
            } if (*hold || *special_exit) && self.allowed().is_some() => {
                self.check_change(target, None).await
            }
            UserCommand::Top { target } if self.allowed().is_some() => {
                let update = JobUpdate {
                    priority: Some(0),
                    ..JobUpdate::default()
                };
                self.check_change(target, Some(&update)).await
            }
            UserCommand::UpdateJob { target, update } if self.pool.settings().sees_changes() => {
                self.change(target, update).await
            }
            _ => Ok(()),
        }
    }

    /// Options of qalter that users may change where this verifier sees submissions; all if the site does not say.
    fn allowed(&self) -> Option<&[String]> {
        match &self.pool.settings().kind {
            Kind::Jsv(site) => site.mapping.jsv_allowed_mod.as_deref(),
            Kind::Lua => None,
        }
    }

    /// Checks a change of a job, or of its hold, by what the site lets users change. Operators change all.
    async fn check_change(
        &self,
        target: &JobTarget,
        update: Option<&JobUpdate>,
    ) -> Result<(), Refusal> {
        let (own, target) = (self.identity.clone(), target.clone());
        let found = self.shared.look(move |state| {
            if access::role_of(state, &own) >= Role::Operator {
                return Ok(None);
            }
            records::require_job(state, &target)?;
            Ok(Some(records::specs_of(state, &own, &target)))
        });
        let found: Result<_, Refusal> = found.await.map_err(|_| RefusalCode::Busy)?;
        let found = found?;
        let allowed = self.allowed().unwrap_or_default();
        let refused = |option: &str| {
            let detail = format!(
                "the site's verifier sees submissions, so that -{option} cannot be changed (jsv_allowed_mod)"
            );
            Refusal::new(RefusalCode::AccessDenied, detail)
        };
        // The writer refuses changes that the user may not make.
        for spec in found.iter().flatten() {
            match update {
                Some(update) => check_change(spec, update, allowed).map_err(refused)?,
                None if allowed.iter().any(|own| own == "h") => {}
                None => return Err(refused("h")),
            }
        }
        Ok(())
    }

    async fn submission(
        &mut self,
        specs: &mut [JobSpec],
        blobs: &mut Blobs,
        is_het: bool,
    ) -> Result<(), Refusal> {
        for (number, spec) in specs.iter_mut().enumerate() {
            let bytes = |id: Option<BlobId>| {
                let found = blobs.iter().find(|(own, _)| Some(*own) == id);
                found.map(|(_, bytes)| bytes.clone())
            };
            let subject = Subject {
                spec: JobSpec {
                    owner: self.owner(spec),
                    ..spec.clone()
                },
                script: bytes(spec.script),
                context: bytes(spec.context),
                component: u32::try_from(number).ok().filter(|_| is_het),
                ..self.subject()
            };
            let Some(verdict) = self.verdict(subject).await? else {
                continue;
            };
            if let Some(changed) = verdict.spec {
                grant(self.identity, number, spec, &changed);
                put(spec, *changed);
            }
            for (id, bytes) in [
                (&mut spec.script, verdict.script),
                (&mut spec.context, verdict.context),
            ] {
                if let (Some(id), Some(bytes)) = (id, bytes) {
                    *id = blob_id(&bytes);
                    blobs.push((*id, bytes));
                }
            }
        }
        keep_named(specs, blobs);
        Ok(())
    }

    async fn change(
        &mut self,
        target: &JobTarget,
        update: &mut Box<JobUpdate>,
    ) -> Result<(), Refusal> {
        let (own, wanted) = (self.identity.clone(), target.clone());
        let look = move |state: &State| {
            records::require_job(state, &wanted)?;
            records::to_verify(state, &own, &wanted)
        };
        let found = self.shared.look(look).await;
        let found: Result<_, Refusal> = found.map_err(|_| RefusalCode::Busy)?;
        let mut changed: Option<Box<JobUpdate>> = None;
        // The writer refuses changes that the user may not make: no script sees them.
        for (job, spec) in found? {
            let change = ProposedChange {
                update: (**update).clone(),
                job,
            };
            let subject = Subject {
                spec,
                change: Some(Box::new(change)),
                ..self.subject()
            };
            let Some(verdict) = self.verdict(subject).await? else {
                continue;
            };
            let own = verdict.update.unwrap_or_else(|| update.clone());
            match &changed {
                Some(other) if *other != own => return Err(self.refuse_different_changes(target)),
                _ => changed = Some(own),
            }
        }
        if let Some(changed) = changed {
            for part in changed_by_site(update, &changed) {
                self.identity.granted.insert(0, part);
            }
            *update = changed;
        }
        Ok(())
    }

    /// Refuses different changes of one job's tasks.
    fn refuse_different_changes(&self, target: &JobTarget) -> Refusal {
        let detail = format!(
            "{} makes different changes of the tasks of job {}: change those alone that differ",
            self.pool.settings().name(),
            target.job
        );
        Refusal::new(RefusalCode::NotSupported, detail)
    }

    fn subject(&self) -> Subject {
        Subject {
            uid: self.identity.uid,
            user: self.identity.user.clone(),
            spec: JobSpec::default(),
            script: None,
            context: None,
            component: None,
            change: None,
        }
    }

    /// The job's owner. For owners that the writer will refuse, the caller.
    fn owner(&self, spec: &JobSpec) -> Owner {
        let own = Owner {
            uid: self.identity.uid,
            gid: self.identity.gid,
            user: self.identity.user.clone(),
            group: self.identity.group.clone(),
        };
        match self.identity.uid == 0 && !spec.owner.user.is_empty() {
            true => spec.owner.clone(),
            false => own,
        }
    }

    /// The verdict of the verifier; none if it failed and the site lets such requests pass.
    async fn verdict(&mut self, subject: Subject) -> Result<Option<Verdict>, Refusal> {
        let (shared, identity) = (self.shared, self.identity.clone());
        let answer = move |question| {
            let identity = identity.clone();
            // It may be long: the event loop need not encode it.
            shared.look(move |state| {
                frame::encode(&ControllerRequest::Answer(records::answer(
                    state, &identity, &question,
                )))
            })
        };
        let name = self.pool.settings().name();
        let verdict = match self.pool.verify(subject, answer).await {
            Ok(verdict) => verdict,
            Err(why) if self.pool.settings().passes_on_failure => {
                info!("{name}: it passes unverified (OnFailure=accept): {why}");
                return Ok(None);
            }
            Err(why) => {
                let detail = format!("{name} failed, so nothing is submitted or changed: {why}");
                return Err(Refusal::new(RefusalCode::Unspecified, detail));
            }
        };
        self.lines.extend(verdict.lines.iter().cloned());
        match verdict.code {
            0 => Ok(Some(verdict)),
            code => Err(self.refusal(code)),
        }
    }

    fn refusal(&mut self, number: i64) -> Refusal {
        let code = code_of(number);
        let detail = match (code, self.lines.is_empty()) {
            (RefusalCode::Unspecified, true) => {
                format!(
                    "{} refuses it and does not say why",
                    self.pool.settings().name()
                )
            }
            _ => String::new(),
        };
        Refusal {
            lines: std::mem::take(self.lines),
            ..Refusal::new(code, detail)
        }
    }
}

fn admin_comment(shown: &[(String, String)]) -> Option<String> {
    let found = shown.iter().find(|(key, _)| key == ADMIN_COMMENT);
    found.map(|(_, text)| text.clone())
}

/// Puts a changed specification in place of one, but for what no verifier says.
fn put(spec: &mut JobSpec, changed: JobSpec) {
    let old = std::mem::take(spec);
    *spec = JobSpec {
        owner: old.owner,
        kind: old.kind,
        script: old.script,
        context: old.context,
        command: old.command,
        submit_line: old.submit_line,
        submit_host: old.submit_host,
        submit_sid: old.submit_sid,
        interactive: old.interactive,
        cron: old.cron,
        class: old.class,
        ..changed
    };
}

/// The refusal that a number of Slurm's stands for.
fn code_of(number: i64) -> RefusalCode {
    use RefusalCode as Code;
    match number {
        2000 | 2001 | 2004 => Code::InvalidPartition,
        2002 => Code::AccessDenied,
        2003 => Code::PartitionAccess,
        2005 | 2069 => Code::InvalidCpuCount,
        2006 => Code::InvalidNodeCount,
        2008 => Code::MissingSize,
        2012 => Code::TooLong,
        2013 => Code::NotImmediate,
        2014 | 2015 => Code::NodeConfigUnavailable,
        2016 => Code::NodesBusy,
        2017 => Code::InvalidJobId,
        2018 => Code::InvalidNode,
        2025 => Code::InvalidTaskCount,
        2029 => Code::InvalidFeature,
        2036 => Code::NotSupported,
        2037 => Code::JobNotRunning,
        2038 => Code::InvalidDependency,
        2044 => Code::InvalidMemory,
        2045 => Code::InvalidAccount,
        2048 => Code::InvalidLicense,
        2050 => Code::AccountingPolicy,
        2051 => Code::InvalidTimeLimit,
        2052 => Code::ReservationAccess,
        2053 => Code::InvalidReservation,
        2057 => Code::InvalidWckey,
        2066 => Code::InvalidQos,
        2099 => Code::InvalidMcsLabel,
        2070 => Code::PartitionNotAvailable,
        2072 => Code::InvalidGres,
        2081 => Code::InvalidArray,
        8000 => Code::MissingTimeLimit,
        _ => Code::Unspecified,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::time::TimeLimit;

    fn comment(text: &str) -> Vec<(String, String)> {
        vec![(ADMIN_COMMENT.to_owned(), text.to_owned())]
    }

    /// A script that adds to a user's value (a limit that is cut, a nice value that is raised, a comment with words before it)
    /// made it the site's value, which all users may have.
    #[test]
    fn what_a_site_makes_of_a_users_value_is_not_the_sites() {
        let usual = JobSpec::default();
        let set = JobSpec {
            priority: Some(9),
            nice: -5,
            site_factor: 3,
            shown: comment("of the site"),
            ..JobSpec::default()
        };
        let all = [
            GrantedRight::Priority,
            GrantedRight::NegativeNice,
            GrantedRight::SiteFactor,
            GrantedRight::AdminComment,
        ];
        assert_eq!(set_by_site(&usual, &set), all);
        let asked = JobSpec {
            priority: Some(4_000_000_000),
            nice: -10_000,
            site_factor: 1_000,
            shown: comment("of the user"),
            ..JobSpec::default()
        };
        assert_eq!(set_by_site(&asked, &set), []);
        assert_eq!(set_by_site(&usual, &usual), []);
        let nicer = JobSpec {
            nice: 5,
            ..JobSpec::default()
        };
        assert_eq!(set_by_site(&nicer, &set), all);
    }

    #[test]
    fn what_a_site_makes_of_a_users_change_is_not_the_sites() {
        let minutes = |n| Some(TimeLimit::Minutes(n));
        let cut = JobUpdate {
            time_limit: minutes(10_080),
            ..JobUpdate::default()
        };
        let asked = JobUpdate {
            time_limit: minutes(43_200),
            ..JobUpdate::default()
        };
        let longer = JobUpdate {
            time_delta_min: Some(43_200),
            ..JobUpdate::default()
        };
        let none = JobUpdate::default();
        assert_eq!(
            changed_by_site(&none, &cut),
            [GrantedRight::RaisedTimeLimit]
        );
        assert_eq!(changed_by_site(&asked, &cut), []);
        assert_eq!(changed_by_site(&longer, &cut), []);
        let set = JobUpdate {
            priority: Some(9),
            nice: Some(-5),
            site_factor: Some(3),
            shown: comment("of the site"),
            ..JobUpdate::default()
        };
        let asked = JobUpdate {
            priority: Some(10),
            nice: Some(-6),
            site_factor: Some(4),
            shown: comment("of the user"),
            ..JobUpdate::default()
        };
        assert_eq!(changed_by_site(&asked, &set), []);
        assert_eq!(changed_by_site(&none, &set).len(), 4);
    }
}
