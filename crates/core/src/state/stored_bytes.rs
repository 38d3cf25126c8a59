//! Bytes that the queue keeps of each user: scripts, environments, specifications and steps that run. A part shared by
//! jobs of a user counts once for that user; other users' shares of it change nothing.

use super::Blob;
use super::job_table::JobTable;
use crate::event::{dependency_bytes, spec_bytes, step_bytes};
use foldhash::fast::RandomState;
use muster_model::ids::{BlobId, JobId};
use muster_model::job::Job;
use muster_model::spec::JobSpec;
use std::collections::{BTreeMap, HashMap};

/// Bytes of each user. Every record counts its specification, as long as it is written out: one that is changed may share
/// it no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredBytes {
    of_users: BTreeMap<u32, u64>,
    /// The bytes of each record: tasks that leave an array have its specification, which may be long.
    of_records: HashMap<JobId, RecordBytes, RandomState>,
}

/// Bytes of one record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RecordBytes {
    /// Length of its specification.
    spec: u64,
    /// The bytes of its conditions: those of an array for all of its tasks, since each may leave it and wait on.
    conditions: u64,
    /// The bytes of its running steps.
    steps: u64,
}

impl RecordBytes {
    fn of(spec: &JobSpec, is_task: bool) -> RecordBytes {
        let tasks = spec.array.as_ref().map_or(1, |array| array.indices.len());
        let tasks = if is_task { 1 } else { tasks };
        RecordBytes {
            spec: spec_bytes(spec),
            conditions: dependency_bytes(spec, tasks),
            steps: 0,
        }
    }

    fn total(self) -> u64 {
        let asked = self.spec.saturating_add(self.conditions);
        asked.saturating_add(self.steps)
    }
}

fn steps_bytes(job: &Job) -> u64 {
    job.steps.iter().map(|step| step_bytes(step)).sum()
}

/// Bytes that the record of a new submission counts.
pub(crate) fn record_bytes(spec: &JobSpec) -> u64 {
    RecordBytes::of(spec, false).total()
}

impl StoredBytes {
    /// The bytes that a user has.
    pub fn of_user(&self, uid: u32) -> u64 {
        self.of_users.get(&uid).copied().unwrap_or(0)
    }

    /// Counts what the records make of it, and notes whose the scripts and environments are.
    pub(crate) fn count(jobs: &JobTable, blobs: &mut HashMap<BlobId, Blob>) -> StoredBytes {
        let mut stored = StoredBytes::default();
        blobs.values_mut().for_each(|blob| blob.owners.0.clear());
        for (id, job) in jobs.iter() {
            let is_task = *id != job.submission();
            let (uid, mut bytes) = (job.spec.owner.uid, RecordBytes::of(&job.spec, is_task));
            bytes.steps = steps_bytes(job);
            stored.of_records.insert(*id, bytes);
            stored.add(uid, bytes.total());
            for id in blobs_of(&job.spec) {
                if let Some(blob) = blobs.get_mut(&id)
                    && blob.owners.add(uid)
                {
                    stored.add(uid, blob.len());
                }
            }
        }
        stored
    }

    /// A record came, whose specification is as long as that of `like`, if one is named.
    pub(crate) fn add_record(
        &mut self,
        blobs: &mut HashMap<BlobId, Blob>,
        (id, spec): (JobId, &JobSpec),
        like: Option<JobId>,
    ) {
        let known = like.and_then(|like| self.of_records.get(&like));
        let bytes = match known {
            Some(array) => RecordBytes {
                spec: array.spec,
                conditions: dependency_bytes(spec, 1),
                steps: 0,
            },
            None => RecordBytes::of(spec, false),
        };
        self.of_records.insert(id, bytes);
        self.add(spec.owner.uid, bytes.total());
        self.use_blobs(blobs, spec);
    }

    /// A record has another specification. What both name stays: nobody stores it again.
    pub(crate) fn change_record(
        &mut self,
        blobs: &mut HashMap<BlobId, Blob>,
        id: JobId,
        (old, new): (&JobSpec, &JobSpec),
        is_task: bool,
    ) {
        self.use_blobs(blobs, new);
        self.drop_blobs(blobs, old);
        let before = self.of_records.get(&id).copied().unwrap_or_default();
        let bytes = RecordBytes {
            steps: before.steps,
            ..RecordBytes::of(new, is_task)
        };
        self.of_records.insert(id, bytes);
        self.subtract(old.owner.uid, before.total());
        self.add(new.owner.uid, bytes.total());
    }

    /// Steps of a record have begun or ended.
    pub(crate) fn change_steps(&mut self, job: &Job) {
        let Some(bytes) = self.of_records.get_mut(&job.id) else {
            return;
        };
        let after = steps_bytes(job);
        let before = std::mem::replace(&mut bytes.steps, after);
        let uid = job.spec.owner.uid;
        self.subtract(uid, before);
        self.add(uid, after);
    }

    /// A record went.
    pub(crate) fn remove_record(
        &mut self,
        blobs: &mut HashMap<BlobId, Blob>,
        id: JobId,
        spec: &JobSpec,
    ) {
        let bytes = self.of_records.remove(&id).unwrap_or_default();
        self.subtract(spec.owner.uid, bytes.total());
        self.drop_blobs(blobs, spec);
    }

    fn use_blobs(&mut self, blobs: &mut HashMap<BlobId, Blob>, spec: &JobSpec) {
        for id in blobs_of(spec) {
            let blob = blobs
                .get_mut(&id)
                .unwrap_or_else(|| panic!("blob {id:?} of job {:?} was not stored", spec.name));
            blob.users += 1;
            if blob.owners.add(spec.owner.uid) {
                self.add(spec.owner.uid, blob.len());
            }
        }
    }

    fn drop_blobs(&mut self, blobs: &mut HashMap<BlobId, Blob>, spec: &JobSpec) {
        for id in blobs_of(spec) {
            let Some(blob) = blobs.get_mut(&id) else {
                continue;
            };
            if blob.owners.remove(spec.owner.uid) {
                self.subtract(spec.owner.uid, blob.len());
            }
            blob.users = blob.users.saturating_sub(1);
            if blob.users == 0 {
                blobs.remove(&id);
            }
        }
    }

    fn add(&mut self, uid: u32, bytes: u64) {
        let own = self.of_users.entry(uid).or_default();
        *own = own.saturating_add(bytes);
    }

    fn subtract(&mut self, uid: u32, bytes: u64) {
        let Some(own) = self.of_users.get_mut(&uid) else {
            return;
        };
        *own = own.saturating_sub(bytes);
        if *own == 0 {
            self.of_users.remove(&uid);
        }
    }
}

/// Numbers of records that name a script or environment, by user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlobOwners(Vec<BlobOwner>);

/// A user, some of whose records name a script or environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlobOwner {
    uid: u32,
    records: u32,
}

impl BlobOwners {
    /// Whether records of the user name it.
    pub(crate) fn has(&self, uid: u32) -> bool {
        self.0.binary_search_by_key(&uid, |owner| owner.uid).is_ok()
    }

    /// A record of the user names it; whether it is the first.
    fn add(&mut self, uid: u32) -> bool {
        match self.0.binary_search_by_key(&uid, |owner| owner.uid) {
            Ok(place) => {
                self.0[place].records += 1;
                false
            }
            Err(place) => {
                self.0.insert(place, BlobOwner { uid, records: 1 });
                true
            }
        }
    }

    /// A record of the user names it no more; whether it was the last.
    fn remove(&mut self, uid: u32) -> bool {
        let Ok(place) = self.0.binary_search_by_key(&uid, |owner| owner.uid) else {
            return false;
        };
        self.0[place].records -= 1;
        let is_last = self.0[place].records == 0;
        if is_last {
            self.0.remove(place);
        }
        is_last
    }
}

/// The scripts and environments that a specification names.
pub(crate) fn blobs_of(spec: &JobSpec) -> impl Iterator<Item = BlobId> {
    spec.script.into_iter().chain(spec.context)
}
