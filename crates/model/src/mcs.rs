//! Labels that keep jobs of different users, groups or accounts on different nodes (`MCSPlugin`, `MCSParameters`). A
//! job's label is among the texts of its specification; its nodes are for jobs of the same label alone where
//! [`McsConfig::keeps_apart`] says so.

use crate::spec::{JobSpec, Sharing};
use minicbor::{Decode, Encode};

/// The option whose text is a job's label.
pub const MCS_LABEL: &str = "mcs-label";

/// The name that labels are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum McsKind {
    /// The job's account.
    #[n(0)]
    Account,
    /// A group of the owner, of those that are configured.
    #[n(1)]
    Group,
    /// The owner.
    #[n(2)]
    User,
}

/// Jobs whose nodes are for their label alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum McsSelect {
    /// `ondemandselect`: with `--exclusive=mcs`.
    #[default]
    #[n(0)]
    OnDemand,
    /// `select`: all that have a label.
    #[n(1)]
    All,
    /// `noselect`: none.
    #[n(2)]
    Never,
}

/// Labels of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct McsConfig {
    /// `MCSPlugin`.
    #[n(0)]
    pub kind: McsKind,
    /// `enforced`: all jobs have a label; else those with `--exclusive=mcs` or `--mcs-label`.
    #[n(1)]
    pub enforced: bool,
    /// Jobs whose nodes are for their label alone.
    #[n(2)]
    pub select: McsSelect,
    /// `privatedata`: with PrivateData=jobs, jobs with one's own label are shown, beside one's own.
    #[n(3)]
    pub private: bool,
    /// Groups that are labels, the first choice first.
    #[n(4)]
    pub groups: Vec<String>,
}

impl McsConfig {
    /// A plugin without parameters.
    pub fn new(kind: McsKind) -> McsConfig {
        McsConfig {
            kind,
            enforced: false,
            select: McsSelect::OnDemand,
            private: false,
            groups: Vec::new(),
        }
    }

    /// Reads `MCSParameters`: words with commas, then the groups after a colon, with bars.
    ///
    /// # Errors
    /// The word that is none, and the reason.
    pub fn parse(kind: McsKind, text: &str) -> Result<McsConfig, String> {
        let mut config = McsConfig::new(kind);
        let (words, groups) = match text.split_once(':') {
            Some((words, groups)) => (words, Some(groups)),
            None => (text, None),
        };
        for word in words.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            match word.to_ascii_lowercase().as_str() {
                "enforced" => config.enforced = true,
                "ondemand" => config.enforced = false,
                "select" => config.select = McsSelect::All,
                "noselect" => config.select = McsSelect::Never,
                "ondemandselect" => config.select = McsSelect::OnDemand,
                "privatedata" => config.private = true,
                _ => {
                    return Err(format!(
                        "'{word}' is not ondemand, enforced, select, noselect, ondemandselect or privatedata"
                    ));
                }
            }
        }
        let groups = groups.into_iter().flat_map(|groups| groups.split('|'));
        let groups = groups.map(str::trim).filter(|name| !name.is_empty());
        config.groups = groups.map(str::to_owned).collect();
        match (kind, config.groups.is_empty()) {
            (McsKind::Group, true) => Err("mcs/group needs groups: select:first|second".to_owned()),
            (McsKind::Account | McsKind::User, false) => {
                Err("groups are labels with mcs/group only".to_owned())
            }
            _ => Ok(config),
        }
    }

    /// Whether the nodes of any job are for its label alone.
    pub fn keeps_any_apart(&self) -> bool {
        self.select != McsSelect::Never
    }

    /// Whether the nodes of a job with a label are for that alone.
    pub fn keeps_apart(&self, spec: &JobSpec) -> bool {
        match self.select {
            McsSelect::All => true,
            McsSelect::OnDemand => spec.ask.sharing == Sharing::ExclusiveMcs,
            McsSelect::Never => false,
        }
    }
}

impl JobSpec {
    /// The job's label.
    pub fn mcs_label(&self) -> Option<&str> {
        let own = self.shown.iter().find(|(key, _)| key == MCS_LABEL);
        own.map(|(_, label)| label.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read() {
        let given = McsConfig::parse(McsKind::Group, "Enforced,noselect,privatedata:bio|phys");
        let expected = McsConfig {
            enforced: true,
            select: McsSelect::Never,
            private: true,
            groups: vec!["bio".into(), "phys".into()],
            ..McsConfig::new(McsKind::Group)
        };
        assert_eq!(given, Ok(expected));
        let plain = McsConfig::parse(McsKind::User, "");
        assert_eq!(plain, Ok(McsConfig::new(McsKind::User)));
        assert!(McsConfig::parse(McsKind::User, "nosuch").is_err());
        assert!(McsConfig::parse(McsKind::User, "select:bio").is_err());
        assert!(McsConfig::parse(McsKind::Group, "select").is_err());
    }
}
