//! In which account a user's use counts, and what fair share follows from it.

use super::{Accounts, ROOT};

impl Accounts {
    /// Whether a user has a share in an account: there is one, and the user has an association in it.
    pub fn has_share(&self, account: &str, user: &str) -> bool {
        let is_known = account == ROOT || self.accounts.contains_key(account);
        is_known && self.has_association(account, user)
    }

    /// The account and user under which the use of a job counts. Where associations are not enforced jobs may name accounts in which the
    /// user has none, or that there are not: that use is of the default account, or another of the user's; of who has none, it is in
    /// an account of the own name, which is there for this alone. A user's name is as it is kept, whatever letters the host has it in.
    pub fn share_key(&self, account: &str, user: &str) -> (String, String) {
        let known = self.user(user);
        let name = known.map_or(user, |known| known.name.as_str());
        if self.has_share(account, user) {
            return (account.to_owned(), name.to_owned());
        }
        let own = known.into_iter().flat_map(|known| {
            let others = known.account_names();
            std::iter::once(known.default_account.as_str()).chain(others)
        });
        let mut own = own.filter(|account| self.has_share(account, user));
        let account = own.next().unwrap_or(name);
        (account.to_owned(), name.to_owned())
    }

    /// Fair share of a user's jobs in an account, 0 to 1.
    pub fn fair_share(&self, account: &str, user: &str) -> f64 {
        let of =
            |account: &str, user: &str| self.fair.get(account).and_then(|users| users.get(user));
        let known = of(account, user).or_else(|| {
            let (account, user) = self.share_key(account, user);
            of(&account, &user)
        });
        // A user without runs who is in no list has used nothing.
        known.copied().unwrap_or(1.0)
    }
}
