//! Parts of one request that are allowed for every user, since a verifier of the site has set them. Which requests these are
//! parts of, and that they are allowed, is decided where rights are.

/// A right that can be granted: it belongs to submissions and changes of jobs alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantedRight {
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

/// Parts that are granted, by the number of the job in the request: the component of a heterogeneous job, the entry of a
/// crontab. What was set for one of them says nothing of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted(Vec<u8>);

impl Granted {
    fn bit(part: GrantedRight) -> u8 {
        1 << part as u8
    }

    /// Grants a part to the job of that number.
    pub fn insert(&mut self, number: usize, part: GrantedRight) {
        if self.0.len() <= number {
            self.0.resize(number + 1, 0);
        }
        if let Some(parts) = self.0.get_mut(number) {
            *parts |= Granted::bit(part);
        }
    }

    /// Whether a part was granted to the only job of a request, or the first.
    pub fn contains(&self, part: GrantedRight) -> bool {
        self.0
            .first()
            .is_some_and(|parts| parts & Granted::bit(part) != 0)
    }

    /// The grants of the job of that number, as in a request about that job alone.
    #[must_use]
    pub fn of(&self, number: usize) -> Granted {
        Granted(self.0.get(number).map_or(Vec::new(), |parts| vec![*parts]))
    }

    /// Whether nothing was.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_granted_is_no_more_than_was_said() {
        let mut granted = Granted::default();
        assert!(!granted.contains(GrantedRight::Priority));
        granted.insert(0, GrantedRight::RaisedTimeLimit);
        assert!(granted.contains(GrantedRight::RaisedTimeLimit));
        assert!(!granted.contains(GrantedRight::AdminComment));
        granted.insert(2, GrantedRight::NegativeNice);
        assert!(!granted.contains(GrantedRight::NegativeNice));
        assert!(granted.of(2).contains(GrantedRight::NegativeNice));
        assert!(!granted.of(2).contains(GrantedRight::RaisedTimeLimit));
        assert_eq!(
            [granted.of(1), granted.of(9)].map(|g| g.contains(GrantedRight::NegativeNice)),
            [false; 2]
        );
    }
}
