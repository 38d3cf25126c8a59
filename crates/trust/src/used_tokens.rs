//! The numbers of tokens that were used and have not expired: none is believed a second time. It is bounded: a user can fill
//! a part of it only, and all users together leave room for root and `SlurmUser`, by whom agents connect.
//!
//! It is in memory only. After a restart, a token that was used before is taken once more; what began with it cannot go on,
//! since the secret is not in it.

use crate::token::{NUMBER, TokenError};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Numbers of tokens kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBounds {
    /// For one user.
    pub(crate) of_uid: usize,
    /// For all users but the trusted.
    pub(crate) users: usize,
    /// In all.
    pub(crate) all: usize,
}

/// Four thousand connections a second of everybody, five hundred of a user, with tokens that are good for a minute: about 30 MB.
pub(crate) const BOUNDS: TokenBounds = TokenBounds {
    of_uid: 32 << 10,
    users: 256 << 10,
    all: 384 << 10,
};

type Number = [u8; NUMBER];

/// Numbers that were used.
pub(crate) struct UsedTokens {
    bounds: TokenBounds,
    numbers: HashSet<Number>,
    /// By when they expire.
    ends: BTreeMap<u64, Vec<(Number, u32)>>,
    of_uid: HashMap<u32, usize>,
    /// Number of tokens of users who are not trusted.
    users: usize,
    /// `SlurmUser`, who is trusted as root is.
    slurm_uid: u32,
}

impl std::fmt::Debug for UsedTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UsedTokens({})", self.numbers.len())
    }
}

impl UsedTokens {
    /// None yet.
    pub(crate) fn new(bounds: TokenBounds, slurm_uid: u32) -> UsedTokens {
        UsedTokens {
            bounds,
            numbers: HashSet::new(),
            ends: BTreeMap::new(),
            of_uid: HashMap::new(),
            users: 0,
            slurm_uid,
        }
    }

    /// Notes that a token of this user is used now.
    ///
    /// # Errors
    /// It was used before, or there is no room to note it.
    pub(crate) fn take(
        &mut self,
        number: Number,
        uid: u32,
        ends_s: u64,
        now_s: u64,
    ) -> Result<(), TokenError> {
        self.forget(now_s);
        if self.numbers.contains(&number) {
            return Err(TokenError::Replayed);
        }
        let of_uid = self.of_uid.get(&uid).copied().unwrap_or(0);
        let is_full = self.numbers.len() >= self.bounds.all
            || !self.is_trusted(uid)
                && (of_uid >= self.bounds.of_uid || self.users >= self.bounds.users);
        if is_full {
            return Err(TokenError::Full(uid));
        }
        self.numbers.insert(number);
        self.ends.entry(ends_s).or_default().push((number, uid));
        if !self.is_trusted(uid) {
            *self.of_uid.entry(uid).or_default() += 1;
            self.users += 1;
        }
        Ok(())
    }

    fn is_trusted(&self, uid: u32) -> bool {
        uid == 0 || uid == self.slurm_uid
    }

    /// Forgets those that are refused as expired in any case.
    fn forget(&mut self, now_s: u64) {
        while let Some(first) = self.ends.first_entry()
            && *first.key() <= now_s
        {
            for (number, uid) in first.remove() {
                self.numbers.remove(&number);
                if self.is_trusted(uid) {
                    continue;
                }
                self.users -= 1;
                if let Some(count) = self.of_uid.get_mut(&uid) {
                    *count -= 1;
                    if *count == 0 {
                        self.of_uid.remove(&uid);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: TokenBounds = TokenBounds {
        of_uid: 2,
        users: 4,
        all: 6,
    };

    fn number(byte: u8) -> Number {
        [byte; NUMBER]
    }

    #[test]
    fn each_is_taken_once_until_it_expires() {
        let mut used = UsedTokens::new(SMALL, 64030);
        assert_eq!(used.take(number(1), 7, 100, 40), Ok(()));
        assert_eq!(used.take(number(1), 7, 100, 99), Err(TokenError::Replayed));
        assert_eq!(used.take(number(1), 8, 100, 99), Err(TokenError::Replayed));
        // It would be refused as expired before it comes here.
        assert_eq!(used.take(number(1), 7, 100, 100), Ok(()));
    }

    #[test]
    fn who_fills_it_keeps_nobody_else_out() {
        let mut used = UsedTokens::new(SMALL, 64030);
        let mut next = 0;
        let mut take = |uid, now_s| {
            next += 1;
            used.take(number(next), uid, 100, now_s)
        };
        assert_eq!([take(7, 0), take(7, 0)], [Ok(()), Ok(())]);
        assert_eq!(take(7, 0), Err(TokenError::Full(7)));
        assert_eq!([take(8, 0), take(9, 0)], [Ok(()), Ok(())]);
        assert_eq!(take(10, 0), Err(TokenError::Full(10)));
        assert_eq!([take(0, 0), take(64030, 0)], [Ok(()), Ok(())]);
        assert_eq!(take(0, 0), Err(TokenError::Full(0)));
        assert_eq!([take(7, 100), take(10, 100)], [Ok(()), Ok(())]);
    }

    proptest! {
        #[test]
        fn counts_are_those_of_what_is_kept(
            taken in prop::collection::vec((0..40_u8, 0..4_u32, 1..20_u64), 0..60),
        ) {
            let mut used = UsedTokens::new(SMALL, 3);
            for (now_s, (byte, uid, life_s)) in (0_u64..).zip(taken) {
                let _ = used.take(number(byte), uid, now_s + life_s, now_s);
                let kept: Vec<_> = used.ends.values().flatten().collect();
                prop_assert_eq!(kept.len(), used.numbers.len());
                prop_assert!(kept.len() <= SMALL.all);
                let users = kept.iter().filter(|(_, uid)| *uid == 1 || *uid == 2).count();
                prop_assert_eq!(users, used.users);
                prop_assert_eq!(used.of_uid.values().sum::<usize>(), users);
                prop_assert!(used.of_uid.values().all(|count| (1..=SMALL.of_uid).contains(count)));
            }
        }
    }
}
