//! Which users attack.

/// First uid of those who attack.
pub(super) const FIRST_UID: u32 = 2000;
/// Number of them.
pub(super) const USERS: u32 = 2;

/// Whether a user is one of those who attack.
pub(crate) fn is_hostile(uid: u32) -> bool {
    (FIRST_UID..FIRST_UID + USERS).contains(&uid)
}
