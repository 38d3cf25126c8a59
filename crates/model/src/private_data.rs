//! `PrivateData`: what of others is not shown to ordinary users.

use minicbor::{Decode, Encode};

/// The words of `PrivateData`, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct PrivateData(#[n(0)] u32);

impl PrivateData {
    /// `accounts`.
    pub const ACCOUNTS: PrivateData = PrivateData(1);
    /// `cloud`: nodes of a cloud that are powered down are shown.
    pub const CLOUD: PrivateData = PrivateData(1 << 1);
    /// `events`.
    pub const EVENTS: PrivateData = PrivateData(1 << 2);
    /// `jobs`.
    pub const JOBS: PrivateData = PrivateData(1 << 3);
    /// `nodes`.
    pub const NODES: PrivateData = PrivateData(1 << 4);
    /// `partitions`.
    pub const PARTITIONS: PrivateData = PrivateData(1 << 5);
    /// `reservations`.
    pub const RESERVATIONS: PrivateData = PrivateData(1 << 6);
    /// `usage`.
    pub const USAGE: PrivateData = PrivateData(1 << 7);
    /// `users`.
    pub const USERS: PrivateData = PrivateData(1 << 8);

    const WORDS: [(&'static str, PrivateData); 9] = [
        ("accounts", PrivateData::ACCOUNTS),
        ("cloud", PrivateData::CLOUD),
        ("events", PrivateData::EVENTS),
        ("jobs", PrivateData::JOBS),
        ("nodes", PrivateData::NODES),
        ("partitions", PrivateData::PARTITIONS),
        ("reservations", PrivateData::RESERVATIONS),
        ("usage", PrivateData::USAGE),
        ("users", PrivateData::USERS),
    ];

    /// Reads `PrivateData=`: words with commas, in any case. Words that are none are passed over; the configuration's
    /// reader has reported them.
    pub fn parse(text: &str) -> PrivateData {
        let named = |word: &str| {
            let same = |(name, _): &&(&str, PrivateData)| name.eq_ignore_ascii_case(word.trim());
            PrivateData::WORDS.iter().find(same)
        };
        let words = text.split(',').filter_map(named);
        words.fold(PrivateData::default(), |all, (_, word)| all.with(*word))
    }

    /// Both.
    pub const fn with(self, other: PrivateData) -> PrivateData {
        PrivateData(self.0 | other.0)
    }

    /// Whether it has any of these words.
    pub const fn has(self, words: PrivateData) -> bool {
        self.0 & words.0 != 0
    }
}
