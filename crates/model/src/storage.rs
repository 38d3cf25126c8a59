//! Use of file systems by users, as scans find it (`muster storage scan`).

use crate::limits::EDIT_ITEMS_MAX;
use crate::time::Timestamp;
use crate::validate::Validate;
use minicbor::{Decode, Encode};

/// A scan of a file system, or the part of one: a request has at most [`EDIT_ITEMS_MAX`] users, and parts of one scan have the same
/// time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct StorageScan {
    /// When it began.
    #[n(0)]
    pub at: Timestamp,
    /// The scanned directory.
    #[n(1)]
    pub path: String,
    /// Size of the file system, bytes.
    #[n(2)]
    pub size_bytes: u64,
    /// Bytes of it in use, by anybody.
    #[n(3)]
    pub used_bytes: u64,
    /// Use below the directory, by user.
    #[n(4)]
    #[valid(max_items = EDIT_ITEMS_MAX)]
    pub users: Vec<StorageUse>,
}

/// A user's files on a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct StorageUse {
    /// The user's name, or number where there is no name.
    #[n(0)]
    pub user: String,
    /// Allocated bytes, not lengths.
    #[n(1)]
    pub bytes: u64,
    /// Files, directories and links.
    #[n(2)]
    pub files: u64,
}

/// The latest scan of each file system.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct StorageAnswer {
    /// By name.
    #[n(0)]
    pub filesystems: Vec<ScannedFilesystem>,
    /// Use of others is not in it (`PrivateData`).
    #[n(1)]
    pub own_only: bool,
    /// Number of users, those with the least use, for whom an answer has no room.
    #[n(2)]
    pub left_out: u64,
}

/// A file system at its latest scan.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct ScannedFilesystem {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// The scanned directory.
    #[n(1)]
    pub path: String,
    /// When.
    #[n(2)]
    pub at: Timestamp,
    /// Size of the file system, bytes.
    #[n(3)]
    pub size_bytes: u64,
    /// Bytes of it in use.
    #[n(4)]
    pub used_bytes: u64,
    /// Time of the earlier scan, the first of the last 30 days, from which growth is counted; none if there is no other.
    #[n(5)]
    pub since: Option<Timestamp>,
    /// Use by user, the largest first.
    #[n(6)]
    pub users: Vec<UserStorage>,
}

/// A user's files at the latest scan, and before.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct UserStorage {
    /// At the latest scan.
    #[n(0)]
    pub now: StorageUse,
    /// Bytes at [`ScannedFilesystem::since`].
    #[n(1)]
    pub bytes_before: Option<u64>,
}
