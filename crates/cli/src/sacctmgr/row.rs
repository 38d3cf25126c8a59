//! Cells of listings: what each column has of an association, a user, an account, a QOS.

use super::book::{Association, Book};
use super::conditions::{Conditions, Key};
use super::fields::ListingColumn;
use super::{amounts_text, clock, clock_of_minutes};
use muster_model::account_limits::{Limits, TresAmounts};
use muster_model::accounts::{AssociationTerms, PARENT_SHARES, Qos, QosDelta, ROOT, User};

/// A line of a listing, of which any part may be absent.
#[derive(Clone, Debug, Default)]
pub(super) struct ListingRow<'a> {
    /// Cells that are known by their headers.
    pub(super) cells: Vec<(&'static str, String)>,
    /// An association.
    pub(super) association: Option<ShownAssociation<'a>>,
    /// A QOS.
    pub(super) qos: Option<Qos>,
}

/// An association with its shown values.
#[derive(Clone, Debug)]
pub(super) struct ShownAssociation<'a> {
    at: Association<'a>,
    limits: Limits,
    qos: String,
    default_qos: String,
    priority: Option<u32>,
    parent_id: u32,
    cluster: &'a str,
    /// Without settings inherited from accounts above (`WOPInfo`).
    alone: bool,
}

impl<'a> ShownAssociation<'a> {
    pub(super) fn new(
        book: &'a Book,
        at: &Association<'a>,
        conditions: &Conditions,
    ) -> ShownAssociation<'a> {
        let alone = conditions.has(Key::NoParentInfo) || conditions.has(Key::NoParentLimits);
        let chain = match alone {
            true => vec![at.own],
            false => book.chain(at),
        };
        let raw = conditions.has(Key::WithRawQos);
        let id_of = |account: &str| {
            let known = book.all.accounts.get(account);
            known.map_or(1, |account| account.terms.id)
        };
        ShownAssociation {
            limits: book.limits(at, !alone),
            qos: match (raw, alone) {
                (true, _) => raw_qos(&book.chain(at)),
                (false, true) if at.account == ROOT && at.user.is_empty() => raw_qos(&[at.own]),
                (false, true) => own_qos(at.own),
                (false, false) => book.qos(at).join(","),
            },
            default_qos: {
                let found = chain.iter().find_map(|terms| terms.default_qos.clone());
                found.unwrap_or_default()
            },
            priority: chain.iter().find_map(|terms| terms.priority),
            parent_id: match (at.user.is_empty(), at.parent) {
                // The association of a user has that of the account above it, though no name of a parent.
                (false, _) => id_of(at.account),
                (true, "") => 0,
                (true, parent) => id_of(parent),
            },
            at: at.clone(),
            cluster: &book.cluster,
            alone: conditions.has(Key::NoParentInfo),
        }
    }
}

/// QOS of an association itself; those that it takes away from inherited ones are not listed.
fn own_qos(terms: &AssociationTerms) -> String {
    let mut names: Vec<String> = match &terms.qos {
        Some(list) => list.clone(),
        None => terms.qos_delta.more.to_vec(),
    };
    names.sort_unstable();
    names.join(",")
}

/// QOS of an association itself, with their signs; empty if none are set.
pub(super) fn own_raw_qos(terms: &AssociationTerms) -> String {
    let is_set = terms.qos.is_some() || terms.qos_delta != QosDelta::default();
    if is_set {
        raw_qos(&[terms])
    } else {
        String::new()
    }
}

/// QOS set nearest to an association, with their signs.
pub(super) fn raw_qos(chain: &[&AssociationTerms]) -> String {
    for terms in chain {
        if let Some(list) = &terms.qos {
            let mut names = list.clone();
            names.sort_unstable();
            return names.join(",");
        }
        let delta = &terms.qos_delta;
        let more = delta.more.iter().map(|name| format!("+{name}"));
        let less = delta.less.iter().map(|name| format!("-{name}"));
        let mut names: Vec<String> = more.chain(less).collect();
        names.sort_unstable();
        if !names.is_empty() {
            return names.join(",");
        }
    }
    muster_model::accounts::NORMAL.to_owned()
}

impl ListingRow<'_> {
    /// A cell that is known by its header.
    pub(super) fn with(mut self, header: &'static str, text: impl Into<String>) -> Self {
        self.cells.push((header, text.into()));
        self
    }

    /// The cells of all columns.
    pub(super) fn line(&self, columns: &[ListingColumn]) -> Vec<String> {
        columns
            .iter()
            .map(|column| self.cell(column.header))
            .collect()
    }

    fn cell(&self, header: &str) -> String {
        if let Some((_, text)) = self.cells.iter().find(|(own, _)| *own == header) {
            return text.clone();
        }
        let found = self.qos.as_ref().and_then(|qos| of_qos(qos, header));
        let found = found.or_else(|| of_association(self.association.as_ref()?, header));
        let limits = match (&self.qos, &self.association) {
            (Some(qos), _) => Some(&qos.limits),
            (None, Some(shown)) => Some(&shown.limits),
            (None, None) => None,
        };
        found
            .or_else(|| of_limits(limits?, header))
            .unwrap_or_default()
    }
}

fn count(limit: Option<u32>) -> String {
    limit.map_or(String::new(), |n| n.to_string())
}

fn of_association(shown: &ShownAssociation<'_>, header: &str) -> Option<String> {
    let at = &shown.at;
    Some(match header {
        "Cluster" => shown.cluster.to_owned(),
        "Account" => at.account.to_owned(),
        "User" => at.user.to_owned(),
        "Partition" => at.partition.to_owned(),
        "Share" => match at.own.shares {
            Some(PARENT_SHARES) => "parent".to_owned(),
            shares => shares.unwrap_or(1).to_string(),
        },
        "Priority" => count(shown.priority),
        "QOS" => shown.qos.clone(),
        "QOS_RAW" => raw_qos(&[at.own]),
        "Def QOS" => shown.default_qos.clone(),
        "ParentName" if !shown.alone => at.parent.to_owned(),
        "ParentID" if !shown.alone => shown.parent_id.to_string(),
        "ID" if at.own.id > 0 => at.own.id.to_string(),
        "LFT" => at.span.0.to_string(),
        "RGT" => at.span.1.to_string(),
        "MaxJobs" => count(shown.limits.max_jobs),
        "MaxSubmit" => count(shown.limits.max_submit),
        "MaxJobsAccrue" => count(shown.limits.max_jobs_accrue),
        _ => return None,
    })
}

fn of_qos(qos: &Qos, header: &str) -> Option<String> {
    let decimal = |millionths: u64| format!("{:.6}", millionths as f64 / 1e6);
    let l = &qos.limits;
    let mut preempt = qos.preempt.clone();
    preempt.sort_unstable();
    Some(match header {
        "Name" => qos.name.clone(),
        "Descr" => qos.description.clone(),
        "ID" if qos.id > 0 => qos.id.to_string(),
        "Priority" => qos.priority.to_string(),
        "GraceTime" => clock(qos.grace_time_s),
        "Preempt" => preempt.join(","),
        "PreemptExemptTime" => qos.preempt_exempt_s.map_or(String::new(), clock),
        "PreemptMode" => {
            let mode = qos.preempt_mode.as_deref().unwrap_or("cluster");
            mode.to_ascii_lowercase()
        }
        "Flags" => super::settings::flags_text(&qos.flags),
        "UsageThres" => qos
            .usage_threshold_millionths
            .map_or(String::new(), decimal),
        "LimitFactor" => qos.limit_factor_millionths.map_or(String::new(), decimal),
        "UsageFactor" => decimal(qos.usage_factor_millionths.unwrap_or(1_000_000)),
        "MaxJobsPU" => count(l.max_jobs),
        "MaxSubmitPU" => count(l.max_submit),
        "MaxTRESPU" => amounts_text(&l.max_tres_user),
        "MaxCPUsPU" => amount(&l.max_tres_user, "cpu"),
        "MaxNodesPU" => amount(&l.max_tres_user, "node"),
        "MaxTRESPA" => amounts_text(&l.max_tres_account),
        "MaxJobsPA" => count(l.max_jobs_account),
        "MaxSubmitPA" => count(l.max_submit_account),
        "MaxJobsAccruePU" => count(l.max_jobs_accrue),
        "MaxJobsAccruePA" => count(l.max_jobs_accrue_account),
        "MaxTRESRunMinsPU" => amounts_text(&l.max_tres_run_mins_user),
        "MaxTRESRunMinsPA" => amounts_text(&l.max_tres_run_mins_account),
        "MinTRES" => amounts_text(&l.min_tres),
        "MinCPUs" => amount(&l.min_tres, "cpu"),
        _ => return None,
    })
}

fn amount(of: &TresAmounts, name: &str) -> String {
    of.get(name)
        .map_or(String::new(), |amount| amount.to_string())
}

fn of_limits(l: &Limits, header: &str) -> Option<String> {
    Some(match header {
        "GrpJobs" => count(l.grp_jobs),
        "GrpJobsAccrue" => count(l.grp_jobs_accrue),
        "GrpSubmit" => count(l.grp_submit),
        "GrpWall" => l.grp_wall_min.map_or(String::new(), clock_of_minutes),
        "GrpTRES" => amounts_text(&l.grp_tres),
        "GrpCPUs" => amount(&l.grp_tres, "cpu"),
        "GrpMem" => amount(&l.grp_tres, "mem"),
        "GrpNodes" => amount(&l.grp_tres, "node"),
        "GrpTRESMins" => amounts_text(&l.grp_tres_mins),
        "GrpCPUMins" => amount(&l.grp_tres_mins, "cpu"),
        "GrpTRESRunMins" => amounts_text(&l.grp_tres_run_mins),
        "GrpCPURunMins" => amount(&l.grp_tres_run_mins, "cpu"),
        "MaxTRES" => amounts_text(&l.max_tres),
        "MaxCPUs" => amount(&l.max_tres, "cpu"),
        "MaxNodes" => amount(&l.max_tres, "node"),
        "MaxTRESPerNode" => amounts_text(&l.max_tres_node),
        "MaxTRESMins" => amounts_text(&l.max_tres_mins),
        "MaxCPUMins" => amount(&l.max_tres_mins, "cpu"),
        "MaxWall" => l
            .max_wall_min
            .map_or(String::new(), |m| clock_of_minutes(u64::from(m))),
        "MinPrioThres" => count(l.min_priority),
        _ => return None,
    })
}

/// Cells of a user's record.
pub(super) fn user_cells<'a>(
    row: ListingRow<'a>,
    book: &Book,
    user: &User,
    coordinators: bool,
) -> ListingRow<'a> {
    let row = row
        .with("User", user.name.clone())
        .with("Name", user.name.clone())
        .with("Def Acct", user.default_account.clone())
        .with("Def WCKey", user.default_wckey.clone())
        .with("Admin", user.admin_level.clone());
    match coordinators {
        true => row.with("Coord Accounts", book.coordinated(user)),
        false => row,
    }
}
