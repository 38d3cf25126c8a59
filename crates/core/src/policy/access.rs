//! Whether the user who asks has the right to a request. The role of that user is worked out from the state for each
//! request, so that a change of `AdminLevel` or of a coordinator counts at once. What of others is shown to whom
//! (`PrivateData`) is in [`privacy`], what the audit log says of a command in [`audit`].

pub mod audit;
pub mod privacy;

use self::privacy::JobScope;
use crate::state::State;
use muster_model::command::Identity;
use muster_model::granted::GrantedRight;
use muster_model::job::Job;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::{AccessRequest, MinimumRole, Role, coordinates, denied};

/// All of them, from least to most.
pub const ALL: [Role; 5] = [
    Role::User,
    Role::Operator,
    Role::Administrator,
    Role::SlurmUser,
    Role::Root,
];

/// The role of the user who asks, as of this state.
pub fn role_of(state: &State, identity: &Identity) -> Role {
    if identity.is_ordinary {
        return Role::User;
    }
    if identity.uid == 0 {
        return Role::Root;
    }
    let config = state.config.as_ref();
    if config.is_some_and(|config| config.admin_uids.contains(&identity.uid)) {
        return Role::SlurmUser;
    }
    let user = state.accounts.users.get(&identity.user);
    match user.map_or("", |user| user.admin_level.as_str()) {
        "Administrator" => Role::Administrator,
        "Operator" => Role::Operator,
        _ => Role::User,
    }
}

/// Whether the role of the user who asks suffices for a request, whatever it is about.
pub fn may(state: &State, identity: &Identity, request: AccessRequest) -> bool {
    if granted_part(request).is_some_and(|part| identity.granted.contains(part)) {
        return true;
    }
    if matches!(
        request,
        AccessRequest::CreateReservation | AccessRequest::DeleteReservation
    ) && may_reserve(state, identity)
    {
        return true;
    }
    if request == AccessRequest::SetTrigger && may_trigger(state, identity) {
        return true;
    }
    let least = request.least().role();
    least.is_some_and(|least| role_of(state, identity) >= least)
}

/// Whether the site lets the user reserve cores. What such a reservation may be, and whose may be deleted, is decided where it is
/// made and deleted.
fn may_reserve(state: &State, identity: &Identity) -> bool {
    let config = state.config.as_ref();
    let listed = config.map_or(&[][..], |config| config.reservation_users.as_slice());
    let is_meant = |name: &String| match name.strip_prefix('@') {
        Some(group) => identity.group == group || identity.groups.iter().any(|own| own == group),
        None => *name == identity.user,
    };
    !identity.is_ordinary && listed.iter().any(is_meant)
}

/// Whether the site lets users have triggers, whose programs the controller's host runs as them.
fn may_trigger(state: &State, identity: &Identity) -> bool {
    let config = state.config.as_ref();
    !identity.is_ordinary && config.is_some_and(|config| config.user_triggers)
}

/// The part of a submission or of a change that a request is the right to, if a verifier of the site may grant it.
fn granted_part(request: AccessRequest) -> Option<GrantedRight> {
    Some(match request {
        AccessRequest::SetPriority => GrantedRight::Priority,
        AccessRequest::NegativeNice => GrantedRight::NegativeNice,
        AccessRequest::SiteFactor => GrantedRight::SiteFactor,
        AccessRequest::AdminComment => GrantedRight::AdminComment,
        AccessRequest::RaisePriority => GrantedRight::RaisedPriority,
        AccessRequest::LowerNice => GrantedRight::LoweredNice,
        AccessRequest::RaiseTimeLimit => GrantedRight::RaisedTimeLimit,
        _ => return None,
    })
}

/// Whether someone may make a request about a job.
pub fn may_job(state: &State, identity: &Identity, request: AccessRequest, job: &Job) -> bool {
    let spec = &job.spec;
    let owns = || identity.uid == spec.owner.uid;
    let coordinates = || coordinates(&state.accounts, &identity.user, spec.account_name());
    let by_object = match request.least() {
        MinimumRole::Owner
        | MinimumRole::OwnerAlone
        | MinimumRole::NodeOwner
        | MinimumRole::NodeOwnerOrKey => owns(),
        MinimumRole::Manager => owns() || coordinates(),
        MinimumRole::Coordinator => coordinates(),
        MinimumRole::Anyone
        | MinimumRole::Oneself
        | MinimumRole::Operator
        | MinimumRole::Administrator
        | MinimumRole::SlurmUser
        | MinimumRole::TokenBearer
        | MinimumRole::NodeKey => false,
    };
    by_object || may(state, identity, request)
}

/// Whether someone may make a request about an account.
pub fn may_account(
    state: &State,
    identity: &Identity,
    request: AccessRequest,
    account: &str,
) -> bool {
    let coordinator = request.least() == MinimumRole::Coordinator
        && coordinates(&state.accounts, &identity.user, account);
    coordinator || may(state, identity, request)
}

/// Refuses those whose role does not suffice for a request.
///
/// # Errors
/// `AccessDenied`, with the least role.
pub fn require(state: &State, identity: &Identity, request: AccessRequest) -> Result<(), Refusal> {
    match may(state, identity, request) {
        true => Ok(()),
        false => Err(denied(request)),
    }
}

/// Refuses those who may not make a request about a job. Who does not see it, since jobs are private, does not learn that it is there.
///
/// # Errors
/// `AccessDenied`, with the owner; `InvalidJobId` as for a job that is not known.
pub fn require_job(
    state: &State,
    identity: &Identity,
    request: AccessRequest,
    job: &Job,
) -> Result<(), Refusal> {
    if may_job(state, identity, request, job) {
        return Ok(());
    }
    if !JobScope::of(state, identity).has(job) {
        let detail = format!("there is no job {}", job.id);
        return Err(Refusal::new(RefusalCode::InvalidJobId, detail));
    }
    let detail = format!("job {} belongs to {}", job.id, job.spec.owner.user);
    Err(Refusal::new(RefusalCode::AccessDenied, detail))
}
