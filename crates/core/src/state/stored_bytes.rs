//! How many bytes the queue keeps of each user: scripts, environments and specifications. What jobs of a user share counts
//! once for that user; that others share it, too, changes nothing.

use super::{Blob, State};
use crate::apply::blobs_of;
use crate::event::{Event, JobChange};
use foldhash::fast::RandomState;
use minicbor::Encoder;
use minicbor::encode::Write;
use muster_model::ids::{BlobId, JobId};
use muster_model::spec::JobSpec;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;

/// Bytes of each user. Every record counts its specification, as long as it is written out: one that is changed may share
/// it no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredBytes {
    of_users: BTreeMap<u32, u64>,
    /// Lengths of the specifications of records: tasks that leave an array have its, which may be long.
    of_specs: HashMap<JobId, u64, RandomState>,
}

impl StoredBytes {
    /// The bytes that a user has.
    pub fn of_user(&self, uid: u32) -> u64 {
        self.of_users.get(&uid).copied().unwrap_or(0)
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

/// How many records of each user name a script or environment, by user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlobOwners(Vec<(u32, u32)>);

impl BlobOwners {
    /// Whether records of the user name it.
    pub(crate) fn has(&self, uid: u32) -> bool {
        self.0.binary_search_by_key(&uid, |(of, _)| *of).is_ok()
    }

    /// A record of the user names it; whether it is the first.
    fn add(&mut self, uid: u32) -> bool {
        match self.0.binary_search_by_key(&uid, |(of, _)| *of) {
            Ok(place) => {
                self.0[place].1 += 1;
                false
            }
            Err(place) => {
                self.0.insert(place, (uid, 1));
                true
            }
        }
    }

    /// A record of the user names it no more; whether it was the last.
    fn remove(&mut self, uid: u32) -> bool {
        let Ok(place) = self.0.binary_search_by_key(&uid, |(of, _)| *of) else {
            return false;
        };
        self.0[place].1 -= 1;
        let is_last = self.0[place].1 == 0;
        if is_last {
            self.0.remove(place);
        }
        is_last
    }
}

impl State {
    /// A record came, whose specification is as long as that of `like`, if one is named.
    pub(crate) fn store_record(&mut self, id: JobId, spec: &JobSpec, like: Option<JobId>) {
        let known = like.and_then(|like| self.stored_bytes.of_specs.get(&like));
        let bytes = known.copied().unwrap_or_else(|| spec_bytes(spec));
        self.stored_bytes.of_specs.insert(id, bytes);
        self.stored_bytes.add(spec.owner.uid, bytes);
        self.use_blobs(spec);
    }

    /// A record has another specification. What both name stays: nobody stores it again.
    pub(crate) fn change_record(&mut self, id: JobId, old: &JobSpec, new: &JobSpec) {
        self.use_blobs(new);
        self.drop_blobs(old);
        let bytes = spec_bytes(new);
        let before = self.stored_bytes.of_specs.insert(id, bytes);
        let before = before.unwrap_or(0);
        self.stored_bytes.subtract(old.owner.uid, before);
        self.stored_bytes.add(new.owner.uid, bytes);
    }

    /// A record went.
    pub(crate) fn drop_record(&mut self, id: JobId, spec: &JobSpec) {
        let bytes = self.stored_bytes.of_specs.remove(&id).unwrap_or(0);
        self.stored_bytes.subtract(spec.owner.uid, bytes);
        self.drop_blobs(spec);
    }

    fn use_blobs(&mut self, spec: &JobSpec) {
        for id in blobs_of(spec) {
            let blob = self
                .blobs
                .get_mut(&id)
                .unwrap_or_else(|| panic!("blob {id:?} of job {:?} was not stored", spec.name));
            blob.users += 1;
            if blob.owners.add(spec.owner.uid) {
                self.stored_bytes.add(spec.owner.uid, blob.len());
            }
        }
    }

    fn drop_blobs(&mut self, spec: &JobSpec) {
        for id in blobs_of(spec) {
            let Some(blob) = self.blobs.get_mut(&id) else {
                continue;
            };
            if blob.owners.remove(spec.owner.uid) {
                self.stored_bytes.subtract(spec.owner.uid, blob.len());
            }
            blob.users = blob.users.saturating_sub(1);
            if blob.users == 0 {
                self.blobs.remove(&id);
            }
        }
    }

    /// Counts all that is stored, for records that came otherwise than by events.
    pub(crate) fn count_stored(&mut self) {
        let (counted, owners) = self.stored();
        self.stored_bytes = counted;
        for (id, blob) in &mut self.blobs {
            blob.owners = owners.get(id).cloned().unwrap_or_default();
        }
    }

    /// What the records make of it.
    pub(crate) fn stored(&self) -> (StoredBytes, BTreeMap<BlobId, BlobOwners>) {
        let mut stored = StoredBytes::default();
        let mut owners: BTreeMap<BlobId, BlobOwners> = BTreeMap::new();
        for (id, job) in self.jobs.iter() {
            let (uid, bytes) = (job.spec.owner.uid, spec_bytes(&job.spec));
            stored.of_specs.insert(*id, bytes);
            stored.add(uid, bytes);
            for blob in blobs_of(&job.spec) {
                let is_first = owners.entry(blob).or_default().add(uid);
                let bytes = self.blobs.get(&blob).map_or(0, Blob::len);
                stored.add(uid, if is_first { bytes } else { 0 });
            }
        }
        (stored, owners)
    }
}

/// The length of a specification as it is written.
pub fn spec_bytes(spec: &JobSpec) -> u64 {
    let mut length = Length(0);
    match Encoder::new(&mut length).encode(spec) {
        Ok(_) => length.0,
        Err(e) => panic!("a length takes all bytes: {e}"),
    }
}

/// Bytes of the scripts, environments and specifications that an event carries.
pub fn carried_bytes(event: &Event) -> u64 {
    match event {
        Event::BlobStored { bytes, .. } => bytes.len() as u64,
        Event::JobSubmitted { spec, .. }
        | Event::JobChanged {
            change: JobChange::Spec(spec) | JobChange::ReservationGone { spec, .. },
            ..
        } => spec_bytes(spec),
        _ => 0,
    }
}

/// Counts what is written to it.
struct Length(u64);

impl Write for Length {
    type Error = Infallible;

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        self.0 += bytes.len() as u64;
        Ok(())
    }
}
