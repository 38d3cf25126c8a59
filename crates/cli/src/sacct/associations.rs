//! Jobs of associations, by the numbers that sacctmgr shows.

use crate::listing::Failure;
use muster_model::accounts::{Accounts, ROOT, User};
use muster_proto::acct::AcctJob;
use std::collections::BTreeSet;

/// The number of the association of root in the account `root`, which is there without being added.
const OF_ROOT: u32 = 2;

/// Numbers between commas.
pub(super) fn parse(list: &str) -> Result<Vec<u32>, Failure> {
    let words = list.split(',').filter(|word| !word.is_empty());
    let numbers = words.map(|word| {
        let wrong = |_| Failure::new(format!("sacct: error: Invalid association id: {word}"));
        word.parse().map_err(wrong)
    });
    numbers.collect()
}

/// The accounts in which users have these associations.
pub(super) fn accounts_of(all: &Accounts, ids: &[u32]) -> Vec<String> {
    let of_user = |user: &User| -> Vec<String> {
        let own = user.associations();
        let own = own.filter(|(.., terms)| ids.contains(&terms.id));
        own.map(|(account, ..)| account.to_owned()).collect()
    };
    let mut names: BTreeSet<String> = all.users.values().flat_map(of_user).collect();
    if ids.contains(&OF_ROOT) {
        names.insert(ROOT.to_owned());
    }
    names.into_iter().collect()
}

/// Whether a job is of one of these associations: that of its partition, or the one for all.
pub(super) fn is_of(all: &Accounts, ids: &[u32], job: &AcctJob) -> bool {
    let user = all.user(&job.user);
    let own = user.and_then(|user| user.association(&job.account, &job.partition));
    match own {
        Some(terms) => ids.contains(&terms.id),
        None => job.account == ROOT && job.user == ROOT && ids.contains(&OF_ROOT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sacct::tests::job;
    use muster_model::accounts::AssociationTerms;
    use muster_model::job::JobState;

    #[test]
    fn jobs_are_found_by_the_number_of_their_association() {
        let terms = |id| AssociationTerms {
            id,
            ..AssociationTerms::default()
        };
        let ann = User {
            name: "ann".to_owned(),
            accounts: [("chem".to_owned(), terms(7)), ("phys".to_owned(), terms(8))].into(),
            partitions: [("chem".to_owned(), [("short".to_owned(), terms(9))].into())].into(),
            ..User::default()
        };
        let mut all = Accounts::default();
        all.users.insert(ann.name.clone(), ann);
        let of = |ids: &str, account: &str, partition: &str, user: &str| {
            let mut job = job(1, "x", JobState::Completed, (0, 0));
            job.account = account.to_owned();
            job.partition = partition.to_owned();
            job.user = user.to_owned();
            is_of(&all, &parse(ids).unwrap(), &job)
        };
        assert!(of("7", "chem", "batch", "ann"));
        assert!(of("3,8,", "phys", "batch", "ann"));
        assert!(of("9", "chem", "short", "ann") && !of("7", "chem", "short", "ann"));
        assert!(!of("7", "phys", "batch", "ann") && !of("7", "chem", "batch", "ben"));
        assert!(of("2", "root", "batch", "root") && !of("2", "chem", "batch", "root"));
        assert_eq!(accounts_of(&all, &[9, 8]), ["chem", "phys"]);
        assert_eq!(accounts_of(&all, &[2]), ["root"]);
        assert_eq!(accounts_of(&all, &[1]), Vec::<String>::new());
        let error = parse("7,x").unwrap_err().to_string();
        assert_eq!(error, "sacct: error: Invalid association id: x");
    }
}
