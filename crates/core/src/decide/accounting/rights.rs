//! The right to each edit of accounting. An operator may make all but those of QOS and of admin levels; a coordinator
//! adds accounts and users below the accounts that are his and sets their shares and limits, within those of the
//! accounts; a user chooses its own defaults. An edit of several entities that a coordinator may not make for one of
//! them is refused for all.

use super::users::{accounts_of, added_to, user};
use super::{Records, parent_or_root};
use crate::policy::access;
use crate::state::State;
use muster_model::account_limits::Limits;
use muster_model::accounts::{AssociationTerms, NORMAL, ROOT, User};
use muster_model::command::{AccountsAsk, AccountsEdit, Identity, TermsAsk};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;

/// Refuses those who may not make the edit.
pub(super) fn check(
    state: &State,
    identity: &Identity,
    edit: &AccountsEdit,
) -> Result<(), Refusal> {
    let asker = Editor { state, identity };
    let records = &Records::own(state);
    let request = AccessRequest::from(&edit.ask);
    // Below, rights are looked at for each that is named. Coordinators of accounts that are named are all of these.
    let is_of_accounts =
        matches!(&edit.ask, AccountsAsk::DeleteCoordinators { accounts } if !accounts.is_empty());
    if edit.names.is_empty() && !is_of_accounts {
        asker.require(request)?;
    }
    match &edit.ask {
        AccountsAsk::AddAccounts { parent, terms, .. } => {
            let parent = parent_or_root(parent);
            asker.require_account(request, parent)?;
            asker.check_terms(parent, terms)
        }
        AccountsAsk::ModifyAccounts {
            parent,
            description,
            organization,
            terms,
        } => {
            let own = [parent, description, organization];
            if *terms == TermsAsk::default() || own.iter().any(|text| !text.is_empty()) {
                asker.require(AccessRequest::ModifyAccounts)?;
            }
            // Its own account's limits are set by who is above.
            edit.names.iter().try_for_each(|name| {
                let above = state.accounts.upwards(name).nth(1);
                match above {
                    Some(above) => asker.require_account(request, above)?,
                    None => asker.require(request)?,
                }
                let above = above.unwrap_or(ROOT);
                asker.check_list_of_account(name, above, terms)?;
                asker.check_terms(above, terms)
            })
        }
        AccountsAsk::AddUsers {
            accounts,
            default_account,
            admin_level,
            terms,
            wckeys,
            partitions,
        } => {
            asker.check_level(admin_level)?;
            if wckeys.keys.is_some() || wckeys.default.is_some() {
                asker.require(AccessRequest::ModifyUserWckeys)?;
            }
            let known = |name: &&String| state.accounts.users.get(*name);
            let moved = |user: &User| user.default_account != *default_account;
            let moves = edit.names.iter().filter_map(|name| known(&name)).any(moved);
            if !default_account.is_empty() && moves {
                asker.require(AccessRequest::ModifyUserDefaults)?;
            }
            let mut new = added_to(accounts, default_account);
            asker.require_terms(AccessRequest::AddUsers, new.clone(), terms)?;
            match asker.is_about_asker(&edit.names) {
                true => new.try_for_each(|account| asker.check_own(account, partitions, terms)),
                false => Ok(()),
            }
        }
        AccountsAsk::ModifyUsers {
            accounts,
            default_account,
            admin_level,
            terms,
            wckeys,
            ..
        } => {
            asker.check_level(admin_level)?;
            if wckeys.keys.is_some() {
                asker.require(AccessRequest::ModifyUserWckeys)?;
            }
            let defaults = !default_account.is_empty() || wckeys.default.is_some();
            if defaults {
                asker.check_defaults(&edit.names, wckeys.default.as_deref())?;
            }
            if *terms == TermsAsk::default() {
                let other = defaults || wckeys.keys.is_some() || !admin_level.is_empty();
                return if other {
                    Ok(())
                } else {
                    asker.require(AccessRequest::ModifyUserTerms)
                };
            }
            // A user without any right to it gets no other refusal, which would reveal others' associations.
            edit.names.iter().try_for_each(|name| {
                let changed: Vec<&String> = accounts_of(records, name, accounts).collect();
                asker.require_accounts(AccessRequest::ModifyUserTerms, changed.into_iter())
            })?;
            super::check_limits_of_users(records.accounts, &edit.names, terms)?;
            edit.names.iter().try_for_each(|name| {
                let mut changed = accounts_of(records, name, accounts);
                changed.try_for_each(|account| asker.check_terms(account, terms))
            })?;
            super::check_terms(records.accounts, terms)?;
            edit.names.iter().try_for_each(|name| {
                let mut changed = accounts_of(records, name, accounts);
                changed.try_for_each(|account| asker.check_qos_left(name, account, terms))
            })
        }
        AccountsAsk::DeleteUsers { accounts, .. } => edit.names.iter().try_for_each(|name| {
            let left: Vec<&String> = accounts_of(records, name, accounts).collect();
            let known = state.accounts.users.get(name);
            // With the record go its level and the accounts that it coordinates.
            if let Some(gone) = known.filter(|user| left.len() == user.account_names().len()) {
                asker.check_level_of(gone)?;
                if !gone.coordinates.is_empty() {
                    let coordinated = gone.coordinates.iter();
                    asker.require_accounts(AccessRequest::DeleteCoordinators, coordinated)?;
                }
            }
            if asker.is_about_asker(std::slice::from_ref(name)) {
                (left.iter()).try_for_each(|account| asker.check_own_left(name, account))?;
            }
            asker.require_accounts(request, left.into_iter())
        }),
        AccountsAsk::AddCoordinators { accounts } => {
            asker.require_accounts(request, accounts.iter())
        }
        AccountsAsk::DeleteCoordinators { accounts } if accounts.is_empty() => {
            edit.names.iter().try_for_each(|name| {
                let known = state.accounts.users.get(name);
                let all = known.iter().flat_map(|user| &user.coordinates);
                asker.require_accounts(request, all)
            })
        }
        AccountsAsk::DeleteCoordinators { accounts } => {
            asker.require_accounts(request, accounts.iter())
        }
        AccountsAsk::RenameUser { .. } => {
            asker.require(request)?;
            // The level goes with the record, to who has the new name.
            let renamed = edit.names.iter();
            let mut known = renamed.filter_map(|name| state.accounts.users.get(name));
            known.try_for_each(|user| asker.check_level_of(user))
        }
        AccountsAsk::DeleteAccounts
        | AccountsAsk::AddQos(_)
        | AccountsAsk::ModifyQos(_)
        | AccountsAsk::DeleteQos
        | AccountsAsk::ResetUsage { .. }
        | AccountsAsk::ResetAccountUsage
        | AccountsAsk::ResetQosUsage
        | AccountsAsk::AddClusters(_)
        | AccountsAsk::ModifyClusters(_)
        | AccountsAsk::DeleteClusters
        | AccountsAsk::SetResource(_)
        | AccountsAsk::DeleteResources
        | AccountsAsk::SetFederation(_)
        | AccountsAsk::DeleteFederations
        | AccountsAsk::SetFeatures(_)
        | AccountsAsk::NoteJobs(_)
        | AccountsAsk::RecordStorage(_)
        | AccountsAsk::ReserveJobIds(_)
        | AccountsAsk::SetUsage(_)
        | AccountsAsk::DeleteWckeys(_) => asker.require(request),
    }
}

/// The source of the QOS that the user who asks for an edit may give.
#[derive(Clone, Copy)]
enum QosSource {
    /// An association of its own gets none from itself: a list of one partition may be shorter than that of all.
    Nobody,
    /// The account's list, as others who are added to the account have it.
    Coordinator,
    /// The QOS of its own associations.
    Associations,
}

/// The user who asks for the edit.
struct Editor<'a> {
    state: &'a State,
    identity: &'a Identity,
}

impl<'a> Editor<'a> {
    fn require(&self, request: AccessRequest) -> Result<(), Refusal> {
        access::require(self.state, self.identity, request)
    }

    fn require_account(&self, request: AccessRequest, account: &str) -> Result<(), Refusal> {
        if access::may_account(self.state, self.identity, request, account) {
            return Ok(());
        }
        Err(Refusal::new(
            RefusalCode::AccessDenied,
            format!(
                "{} is not a coordinator of account {account}",
                self.identity.user
            ),
        ))
    }

    /// All of them, and where there are none, the role.
    fn require_accounts(
        &self,
        request: AccessRequest,
        accounts: impl Iterator<Item = &'a String>,
    ) -> Result<(), Refusal> {
        let mut accounts = accounts.peekable();
        if accounts.peek().is_none() {
            return self.require(request);
        }
        let mut each = accounts;
        each.try_for_each(|account| self.require_account(request, account))
    }

    fn require_terms(
        &self,
        request: AccessRequest,
        accounts: impl Iterator<Item = &'a String> + Clone,
        terms: &TermsAsk,
    ) -> Result<(), Refusal> {
        self.require_accounts(request, accounts.clone())?;
        let mut each = accounts;
        each.try_for_each(|account| self.check_terms(account, terms))
    }

    fn check_level(&self, level: &str) -> Result<(), Refusal> {
        match level {
            "" => Ok(()),
            _ => self.require(AccessRequest::SetAdminLevel),
        }
    }

    /// Giving or taking a record that has a level is giving or taking the level.
    fn check_level_of(&self, user: &User) -> Result<(), Refusal> {
        match user.admin_level.as_str() {
            "" | "None" => Ok(()),
            _ => self.require(AccessRequest::SetAdminLevel),
        }
    }

    /// One's own defaults are one's own to choose, of what one has.
    fn check_defaults(&self, names: &[String], wckey: Option<&str>) -> Result<(), Refusal> {
        if names.iter().any(|name| *name != self.identity.user) {
            return self.require(AccessRequest::ModifyUserDefaults);
        }
        let own = user(&Records::own(self.state), &self.identity.user)?;
        match wckey {
            Some(key) if !key.is_empty() && own.wckeys.iter().all(|known| known != key) => {
                self.require(AccessRequest::ModifyUserWckeys)
            }
            _ => Ok(()),
        }
    }

    /// A list that a change empties is the account's: it gives nothing that a coordinator could not give by name.
    fn check_qos_left(&self, user: &str, account: &str, ask: &TermsAsk) -> Result<(), Refusal> {
        let changes = ask.qos.is_some() || !ask.qos_less.is_empty();
        if !changes || access::may(self.state, self.identity, AccessRequest::ModifyUserTerms) {
            return Ok(());
        }
        let all = &self.state.accounts;
        let Some(known) = all.user(user) else {
            return Ok(());
        };
        let of_partitions = known.partitions.get(account);
        let of_partitions = of_partitions.into_iter().flat_map(|parts| parts.values());
        let source = match self.is_about_asker(std::slice::from_ref(&known.name)) {
            true => QosSource::Nobody,
            false => QosSource::Coordinator,
        };
        for before in known.accounts.get(account).into_iter().chain(of_partitions) {
            let mut after = before.clone();
            super::set_terms(&mut after, ask)?;
            self.check_gain(user, account, source, before, &after)?;
        }
        Ok(())
    }

    /// Whether one of the names is that of the user who asks.
    fn is_about_asker(&self, names: &[String]) -> bool {
        let own = self.identity.user.to_lowercase();
        names.iter().any(|name| name.to_lowercase() == own)
    }

    /// Whether the user who asks may have a QOS in an account: as each of its associations with the nearest account upwards says
    /// that the user is in. One for a partition may have fewer, or more, than the one for all.
    fn has(&self, account: &str, qos: &str) -> bool {
        let (all, own) = (&self.state.accounts, self.identity.user.as_str());
        let known = all.user(own);
        let is_in = |name: &&str| known.is_some_and(|user| user.is_in(name));
        let nearest = all.upwards(account).find(is_in).unwrap_or(account);
        let allows = |partition: &str| all.allows_qos(nearest, own, partition, qos);
        let parts = known.and_then(|user| user.partitions.get(nearest));
        let mut names = parts.into_iter().flat_map(|parts| parts.keys());
        let is_in_all = known.is_none_or(|user| user.accounts.contains_key(nearest));
        let is_only_in_parts = !is_in_all && parts.is_some_and(|parts| !parts.is_empty());
        (is_only_in_parts || allows("")) && names.all(|partition| allows(partition))
    }

    /// Refuses a change of what an association or an account under `account` says of QOS, if it adds one that the user who asks does not
    /// have to give.
    fn check_gain(
        &self,
        who: &str,
        account: &str,
        source: QosSource,
        before: &AssociationTerms,
        after: &AssociationTerms,
    ) -> Result<(), Refusal> {
        let all = &self.state.accounts;
        let inherited = all.qos_list_of_account(account);
        let allows = |terms: &AssociationTerms, qos: &String| match (&terms.qos, &inherited) {
            (Some(list), _) => list.contains(qos),
            (None, _) if terms.qos_delta.more.contains(qos) => true,
            (None, _) if terms.qos_delta.less.contains(qos) => false,
            (None, Some(list)) => list.contains(qos),
            // Where nothing is set, `normal` alone may be had.
            (None, None) => qos == NORMAL,
        };
        let is_gained = |qos: &&String| allows(after, qos) && !allows(before, qos);
        let own = self.identity.user.as_str();
        let gives = |qos: &str| match source {
            QosSource::Nobody => false,
            QosSource::Coordinator => all.allows_qos(account, own, "", qos),
            QosSource::Associations => self.has(account, qos),
        };
        let beyond = |qos: &&String| is_gained(qos) && !gives(qos);
        match all.qos.keys().find(beyond) {
            None => Ok(()),
            Some(qos) => Err(Refusal::new(
                RefusalCode::AccessDenied,
                format!(
                    "{who} would get QOS {qos} of account {account}, which {own} does not have to give"
                ),
            )),
        }
    }

    /// A coordinator's new association, for another partition or under another account, has no more QOS than the one that the
    /// coordinator has.
    fn check_own(
        &self,
        account: &str,
        partitions: &[String],
        ask: &TermsAsk,
    ) -> Result<(), Refusal> {
        let own = self.identity.user.as_str();
        let known = self.state.accounts.user(own);
        let is_there = known.is_some_and(|user| user.accounts.contains_key(account));
        if access::may(self.state, self.identity, AccessRequest::ModifyUserTerms)
            || partitions.is_empty() && is_there
        {
            return Ok(());
        }
        let none = AssociationTerms {
            qos: Some(Vec::new()),
            ..AssociationTerms::default()
        };
        let mut after = AssociationTerms::default();
        super::set_terms(&mut after, ask)?;
        self.check_gain(own, account, QosSource::Associations, &none, &after)
    }

    /// A coordinator keeps associations of its own that have fewer QOS than their account, to which it could come back with all.
    fn check_own_left(&self, user: &str, account: &str) -> Result<(), Refusal> {
        if access::may(self.state, self.identity, AccessRequest::ModifyUserTerms) {
            return Ok(());
        }
        let Some(known) = self.state.accounts.user(user) else {
            return Ok(());
        };
        let of_partitions = known.partitions.get(account);
        let of_partitions = of_partitions.into_iter().flat_map(|parts| parts.values());
        let mut each = known.accounts.get(account).into_iter().chain(of_partitions);
        each.try_for_each(|before| {
            self.check_gain(
                user,
                account,
                QosSource::Nobody,
                before,
                &AssociationTerms::default(),
            )
        })
    }

    /// The list of an account that a change empties is that of the one above.
    fn check_list_of_account(
        &self,
        account: &str,
        above: &str,
        ask: &TermsAsk,
    ) -> Result<(), Refusal> {
        if access::may(self.state, self.identity, AccessRequest::ModifyUserTerms) {
            return Ok(());
        }
        let Some(known) = self.state.accounts.accounts.get(account) else {
            return Ok(());
        };
        let mut after = known.terms.clone();
        super::set_terms(&mut after, ask)?;
        self.check_gain(
            account,
            above,
            QosSource::Associations,
            &known.terms,
            &after,
        )
    }

    /// A coordinator's terms for an association of this account, or of an account under it, are within the account's
    /// own.
    fn check_terms(&self, account: &str, terms: &TermsAsk) -> Result<(), Refusal> {
        if access::may(self.state, self.identity, AccessRequest::ModifyUserTerms) {
            return Ok(());
        }
        if terms.priority.is_some() {
            self.require(AccessRequest::AssociationPriority)?;
        }
        let all = &self.state.accounts;
        let listed = terms.qos.iter().flat_map(|edit| &edit.names);
        let default = terms.default_qos.iter().filter(|name| !name.is_empty());
        let own = self.identity.user.as_str();
        let beyond = |name: &&String| !all.allows_qos(account, own, "", name);
        if let Some(qos) = listed.chain(default).find(beyond) {
            return Err(Refusal::new(
                RefusalCode::AccessDenied,
                format!("{own} has no QOS {qos} in account {account} to give"),
            ));
        }
        let mut asked = Limits::default();
        for ask in &terms.limits {
            // They are checked as limits in `account_limits::edit`.
            let _ = asked.set(ask, false);
        }
        let above = all
            .upwards(account)
            .filter_map(|name| all.accounts.get(name));
        let above: Vec<&Limits> = above.map(|account| &account.terms.limits).collect();
        match asked.exceeds(&above) {
            None => Ok(()),
            Some(name) => Err(Refusal::new(
                RefusalCode::AccessDenied,
                format!("{name} would be above what account {account} may have"),
            )),
        }
    }
}
