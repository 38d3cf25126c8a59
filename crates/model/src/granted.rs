//! Parts of one request that are allowed for every user, since a verifier of the site has set them. Which requests these are
//! parts of, and that they are allowed, is decided where rights are.

/// What can be granted: it belongs to submissions and changes of jobs alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantedPart {
    /// A priority of a new job.
    Priority,
    /// A nice value below 0.
    NegativeNice,
    /// The site's share of the priority.
    SiteFactor,
    /// The administrator's comment.
    AdminComment,
    /// A higher priority of a job.
    RaisedPriority,
    /// A lower nice value of a job.
    LoweredNice,
    /// A longer time limit of a job.
    RaisedTimeLimit,
}

/// Parts that are granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted(u8);

impl Granted {
    fn bit(part: GrantedPart) -> u8 {
        1 << part as u8
    }

    /// Grants a part.
    pub fn insert(&mut self, part: GrantedPart) {
        self.0 |= Granted::bit(part);
    }

    /// Whether a part was granted.
    pub fn contains(self, part: GrantedPart) -> bool {
        self.0 & Granted::bit(part) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_granted_is_no_more_than_was_said() {
        let mut granted = Granted::default();
        assert!(!granted.contains(GrantedPart::Priority));
        granted.insert(GrantedPart::RaisedTimeLimit);
        assert!(granted.contains(GrantedPart::RaisedTimeLimit));
        assert!(!granted.contains(GrantedPart::AdminComment));
    }
}
