//! Whether the queue has room for new jobs: `MaxJobCount`, and room beyond it for users with few jobs; and for their bytes.

use crate::policy::access::role_of;
use crate::state::State;
use crate::state::stored_bytes::{blobs_of, record_bytes};
use minicbor::bytes::ByteVec;
use muster_model::command::Identity;
use muster_model::config::ClusterConfig;
use muster_model::ids::BlobId;
use muster_model::job::Job;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::Role;

/// A full queue takes one part in this many of `MaxJobCount` more, from users who have no more jobs than are left of that part, so
/// that nobody, nor two or three, can fill the queue for all others. Who has more finds it full where Slurm's is. Beyond that
/// administrators and operators have the same once more.
const BEYOND: u64 = 8;
/// Bytes that the queue keeps of each user at least, whatever `MaxJobCount` is: a hundred submissions of the largest scripts
/// that there are by default fit.
const USER_BYTES: u64 = 512 << 20;
/// Bytes of a user for each job of `MaxJobCount`, so that a user who may fill the queue can do so with ordinary jobs,
/// each of which has a script and an environment of its own.
const USER_BYTES_PER_JOB: u64 = 16 << 10;

/// Refuses jobs for which the queue has no room. Each task of an array counts as one job, whether it has a record of its own
/// already or not: it can get one at any time.
///
/// # Errors
/// [`RefusalCode::ArrayTooLarge`] where they would not fit into an empty queue, else [`RefusalCode::TooManyJobs`].
pub(super) fn check(
    state: &State,
    config: &ClusterConfig,
    (identity, owner): (&Identity, u32),
    jobs: u64,
) -> Result<(), Refusal> {
    let most = u64::from(config.max_job_count);
    if jobs > most {
        return Err(Refusal::new(
            RefusalCode::ArrayTooLarge,
            format!("{jobs} tasks are more than MaxJobCount={most}"),
        ));
    }
    let total = state.queue_size.total().saturating_add(jobs);
    let own = state.queue_size.of_user(owner).saturating_add(jobs);
    let part = most / BEYOND;
    let (shared, reserved) = (most.saturating_add(part), most.saturating_add(2 * part));
    let is_in_share = total <= shared && own <= shared - total;
    let is_reserved = || total <= reserved && role_of(state, identity) >= Role::Operator;
    let has_room = total <= most || is_in_share || is_reserved();
    match has_room {
        true => Ok(()),
        false => Err(Refusal::new(
            RefusalCode::TooManyJobs,
            format!("the queue holds MaxJobCount={most} jobs"),
        )),
    }
}

/// Refuses what would make the queue keep too many bytes of a user: scripts, environments and specifications. Root and SlurmUser
/// have no such limit, nor have jobs that they submit.
///
/// # Errors
/// [`RefusalCode::StorageFull`], with the user's name for it.
pub(super) fn check_bytes(
    state: &State,
    identity: &Identity,
    owner: u32,
    bytes: u64,
) -> Result<(), Refusal> {
    let Some(config) = state.config.as_deref() else {
        return Ok(());
    };
    if bytes == 0 || identity.uid == 0 || config.admin_uids.contains(&identity.uid) {
        return Ok(());
    }
    let by_jobs = u64::from(config.max_job_count).saturating_mul(USER_BYTES_PER_JOB);
    let most = USER_BYTES.max(by_jobs);
    let own = state.stored_bytes.of_user(owner);
    if own.saturating_add(bytes) <= most {
        return Ok(());
    }
    let text = format!(
        "scripts, environments and options of the user's jobs in the queue, and their steps, have {} MiB, and the limit is {} MiB for each \
         user; wait until some of them have ended, or submit smaller ones",
        own >> 20,
        most >> 20,
    );
    Err(Refusal::new(RefusalCode::StorageFull, text))
}

/// Bytes that new jobs of a user add to those that the queue keeps of the user.
pub(super) fn bytes_of(state: &State, jobs: &[&Job], blobs: &[(BlobId, ByteVec)]) -> u64 {
    let specs: u64 = jobs.iter().map(|job| record_bytes(&job.spec)).sum();
    let is_new = |(id, _): &&(BlobId, ByteVec)| {
        let named = |job: &&Job| {
            let known = state.blobs.get(id);
            let has = known.is_some_and(|blob| blob.owners.has(job.spec.owner.uid));
            !has && blobs_of(&job.spec).any(|named| named == *id)
        };
        jobs.iter().any(named)
    };
    let new = blobs.iter().filter(is_new);
    new.map(|(_, bytes)| bytes.len() as u64).sum::<u64>() + specs
}
