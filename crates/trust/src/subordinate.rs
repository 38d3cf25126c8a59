//! Uids that users have beside their own (subuid(5)): within a user namespace, one user can be thousands of them
//! (newuidmap(1)). What each user may have of a daemon at a time, all uids of a range have together.
//!
//! Ranges may have been given out where accounts are as well, of a directory service for instance. So who is of a range is not
//! refused for that, and a range is one more user, not its owner.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Where ranges are listed.
const FILE: &str = "/etc/subuid";
/// Bytes of the file that are read: a hundred thousand users.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Interval of checks whether the file has changed.
const LOOKED_EVERY: Duration = Duration::from_secs(1);

/// Attributes in which two states of the file differ.
#[derive(Debug, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    bytes: u64,
    modified_s: i64,
    modified_ns: i64,
}

/// The ranges of this host.
#[derive(Debug)]
pub struct SubordinateUids {
    path: PathBuf,
    stamp: Option<FileStamp>,
    looked_at: Option<Instant>,
    /// First and last uid of each, in order; those that touch or overlap are one.
    ranges: Vec<(u32, u32)>,
}

impl Default for SubordinateUids {
    fn default() -> SubordinateUids {
        SubordinateUids::of_file(FILE.into())
    }
}

impl SubordinateUids {
    fn of_file(path: PathBuf) -> SubordinateUids {
        SubordinateUids {
            path,
            stamp: None,
            looked_at: None,
            ranges: Vec::new(),
        }
    }

    /// The uid whose share a uid uses: the first of its range, or itself.
    pub fn charged(&mut self, uid: u32) -> u32 {
        self.refresh();
        self.range_of(uid).map_or(uid, |(first, _)| first)
    }

    /// Whether a uid is in a range.
    pub fn contains(&mut self, uid: u32) -> bool {
        self.refresh();
        self.range_of(uid).is_some()
    }

    fn range_of(&self, uid: u32) -> Option<(u32, u32)> {
        let after = self.ranges.partition_point(|(first, _)| *first <= uid);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        (uid <= range.1).then_some(*range)
    }

    fn refresh(&mut self) {
        if self.looked_at.is_some_and(|at| at.elapsed() < LOOKED_EVERY) {
            return;
        }
        self.looked_at = Some(Instant::now());
        let found = fs::metadata(&self.path).ok();
        let stamp = found.map(|file| FileStamp {
            inode: file.ino(),
            bytes: file.len(),
            modified_s: file.mtime(),
            modified_ns: file.mtime_nsec(),
        });
        if stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        let mut text = Vec::new();
        if let Ok(file) = File::open(&self.path) {
            // An unreadable file has no ranges: a user without one is charged for himself.
            let _ = file.take(FILE_BYTES_MAX).read_to_end(&mut text);
        }
        self.ranges = parse(&String::from_utf8_lossy(&text));
    }
}

/// Lines `user:first:count`; others are passed over, as newuidmap does.
fn parse(text: &str) -> Vec<(u32, u32)> {
    let range = |line: &str| {
        let mut parts = line.trim().split(':').skip(1);
        let first: u32 = parts.next()?.parse().ok()?;
        let count: u32 = parts.next()?.parse().ok()?;
        let last = first.checked_add(count.checked_sub(1)?)?;
        (first > 0).then_some((first, last))
    };
    let mut ranges: Vec<(u32, u32)> = text.lines().filter_map(range).collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, before| {
        let overlap = next.0 <= before.1;
        if overlap {
            before.1 = before.1.max(next.1);
        }
        overlap
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A user with a range had the share of 65,536.
    #[test]
    fn all_uids_of_a_range_are_charged_to_one() {
        let file = std::env::temp_dir().join(format!("subuid.{}", std::process::id()));
        fs::write(
            &file,
            "ann:100000:65536\nbob:165536:65536\n# no line\nbad:x:1\nroot:0:7\neve:5:0\n",
        )
        .unwrap();
        let mut uids = SubordinateUids::of_file(file.clone());
        for (uid, charged) in [
            (0, 0),
            (5, 5),
            (99_999, 99_999),
            (100_000, 100_000),
            (165_535, 100_000),
            (165_536, 165_536),
            (200_000, 165_536),
            (231_072, 231_072),
            (u32::MAX, u32::MAX),
        ] {
            assert_eq!(uids.charged(uid), charged, "{uid}");
        }
        assert!(uids.contains(131_072) && !uids.contains(1000));
        // It is read anew.
        fs::write(&file, "ann:100000:2\n").unwrap();
        uids.looked_at = None;
        assert_eq!(uids.charged(100_001), 100_000);
        assert_eq!(uids.charged(100_002), 100_002);
        fs::remove_file(&file).unwrap();
        uids.looked_at = None;
        assert_eq!(uids.charged(100_001), 100_001);
    }

    proptest! {
        #[test]
        fn whatever_the_file_says_ranges_are_disjoint(text in "([a-z]{0,3}:[0-9]{1,10}:[0-9]{1,10}\n){0,8}", uid: u32) {
            let uids = SubordinateUids {
                ranges: parse(&text),
                ..SubordinateUids::of_file(PathBuf::new())
            };
            prop_assert!(uids.ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
            let range = uids.range_of(uid);
            prop_assert!(range.is_none_or(|(first, last)| first <= uid && uid <= last));
        }
    }
}
