//! Request of `scrontab`.

use crate::ids::BlobId;
use crate::limits::{CRONTAB_BYTES_MAX, CRONTAB_JOBS_MAX, SCRIPT_BYTES_MAX};
use crate::spec::{JobSpec, Owner};
use crate::validate::Validate;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

/// A crontab, and the jobs of its entries.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct CrontabAsk {
    /// Owner of the crontab; empty is the caller.
    #[n(0)]
    pub owner: Owner,
    /// The text; absent removes it.
    #[n(1)]
    #[valid(max_bytes = CRONTAB_BYTES_MAX)]
    pub text: Option<String>,
    /// A job for each entry, in order.
    #[n(2)]
    #[valid(max_items = CRONTAB_JOBS_MAX)]
    pub jobs: Vec<JobSpec>,
    /// Script and context bytes that the jobs name.
    #[n(3)]
    #[valid(max_bytes = SCRIPT_BYTES_MAX, max_items = 2 * CRONTAB_JOBS_MAX)]
    pub blobs: Vec<(BlobId, ByteVec)>,
}
