//! Accounts, users, associations, QOS and coordinators of the source, as the controller keeps them.

use super::source::{Fields, ImportError, Source};
use muster_model::account_limits::{Limits, TresAmounts};
use muster_model::accounts::{
    Account, AssociationTerms, NORMAL, PARENT_SHARES, Qos, QosDelta, ROOT, User,
};
use std::collections::{BTreeMap, HashMap};

/// `Fairshare=parent`.
const PARENT: i64 = i32::MAX as i64;
/// Entities of one kind that are read.
const ENTITIES_MAX: usize = 1 << 20;

const LIMITS_OF_ASSOCIATION: &[&str] = &[
    "max_jobs",
    "max_jobs_accrue",
    "min_prio_thresh",
    "max_submit_jobs",
    "max_wall_pj",
    "grp_jobs",
    "grp_jobs_accrue",
    "grp_submit_jobs",
    "grp_wall",
    "max_tres_pj",
    "max_tres_pn",
    "max_tres_mins_pj",
    "grp_tres",
    "grp_tres_mins",
    "grp_tres_run_mins",
];
const ASSOCIATION: &[&str] = &[
    "user",
    "acct",
    "partition",
    "parent_acct",
    "is_def",
    "shares",
    "priority",
    "def_qos_id",
    "qos",
    "delta_qos",
    "max_tres_run_mins",
];
const LIMITS_OF_QOS: &[&str] = &[
    "max_jobs_per_user",
    "max_jobs_accrue_pu",
    "min_prio_thresh",
    "max_submit_jobs_per_user",
    "max_wall_duration_per_job",
    "grp_jobs",
    "grp_jobs_accrue",
    "grp_submit_jobs",
    "grp_wall",
    "max_tres_pj",
    "max_tres_pn",
    "max_tres_mins_pj",
    "grp_tres",
    "grp_tres_mins",
    "grp_tres_run_mins",
];
const QOS: &[&str] = &[
    "id",
    "name",
    "description",
    "flags",
    "grace_time",
    "preempt",
    "preempt_mode",
    "preempt_exempt_time",
    "priority",
    "usage_factor",
    "usage_thres",
    "limit_factor",
    "max_jobs_pa",
    "max_jobs_accrue_pa",
    "max_submit_jobs_pa",
    "max_tres_pa",
    "max_tres_pu",
    "max_tres_run_mins_pa",
    "max_tres_run_mins_pu",
    "min_tres_pj",
];
/// Flags of a QOS that are kept.
const QOS_FLAGS: [(u64, &str); 10] = [
    (1, Qos::PARTITION_MIN_NODES),
    (2, Qos::PARTITION_MAX_NODES),
    (4, Qos::PARTITION_TIME_LIMIT),
    (8, Qos::ENFORCE_USAGE_THRESHOLD),
    (16, "NoReserve"),
    (32, Qos::REQUIRES_RESERVATION),
    (64, "DenyOnLimit"),
    (128, Qos::OVER_PART_QOS),
    (256, "NoDecay"),
    (512, Qos::USAGE_FACTOR_SAFE),
];

/// Entities of a cluster's accounting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entities {
    /// QOS by name.
    pub qos: BTreeMap<String, Qos>,
    /// Accounts but `root`, by name.
    pub accounts: BTreeMap<String, Account>,
    /// Terms of `root`.
    pub root: AssociationTerms,
    /// Users by name.
    pub users: BTreeMap<String, User>,
    /// Entities that cannot be kept, in words.
    pub not_kept: Vec<String>,
}

impl Source {
    /// Reads all that the cluster's accounting has.
    ///
    /// # Errors
    /// What the database says.
    pub fn entities(&mut self) -> Result<Entities, ImportError> {
        let mut entities = Entities::default();
        let qos_names = self.read_qos(&mut entities)?;
        let texts = self.read_account_texts()?;
        self.read_associations(&mut entities, &qos_names, &texts)?;
        self.read_users(&mut entities)?;
        Ok(entities)
    }

    fn read_qos(&mut self, into: &mut Entities) -> Result<HashMap<i64, String>, ImportError> {
        let columns: Vec<&str> = QOS.iter().chain(LIMITS_OF_QOS).copied().collect();
        let select = self.select("qos_table", &columns)?;
        let rows = self.rows(
            &format!("{select} WHERE deleted = 0 ORDER BY id LIMIT {ENTITIES_MAX}"),
            (),
        )?;
        let mut names = HashMap::new();
        let mut preempts: Vec<(String, Vec<i64>)> = Vec::new();
        for mut row in rows {
            let id = row.signed().unwrap_or(0);
            let name = row.text();
            names.insert(id, name.clone());
            let (qos, preempt) = self.qos(&mut row, &name, into);
            preempts.push((name.clone(), preempt));
            into.qos.insert(name, qos);
        }
        for (name, ids) in preempts {
            if let Some(qos) = into.qos.get_mut(&name) {
                qos.preempt = ids.iter().filter_map(|id| names.get(id).cloned()).collect();
            }
        }
        Ok(names)
    }

    /// In the order of [`QOS`] and [`LIMITS_OF_QOS`], after the name; with the numbers of those that it may preempt.
    fn qos(&self, row: &mut Fields, name: &str, into: &mut Entities) -> (Qos, Vec<i64>) {
        let description = row.text();
        let (flags, grace) = (row.number().unwrap_or(0), row.set());
        let (preempt, mode, exempt) = (numbers(&row.text()), row.number().unwrap_or(0), row.set());
        let priority = row.set().unwrap_or(0);
        let millionths = |value: Option<f64>| {
            let value = value.filter(|v| v.is_finite() && *v >= 0.0 && *v < 1e12)?;
            Some((value * 1e6).round() as u64)
        };
        let (factor, threshold, limit_factor) = (
            millionths(row.float()),
            millionths(row.float()),
            millionths(row.float()),
        );
        let mut kept = 0;
        let mut own_flags = Vec::new();
        for (bit, flag) in QOS_FLAGS {
            if flags & bit != 0 {
                kept |= bit;
                own_flags.push(flag.to_owned());
            }
        }
        own_flags.sort_unstable();
        if flags & !kept & 0xffff != 0 {
            let text = format!(
                "QOS {name}: flags {:#x} of slurmdbd's table",
                flags & !kept & 0xffff
            );
            into.not_kept.push(text);
        }
        let mut limits = Limits {
            max_jobs_account: row.set(),
            max_jobs_accrue_account: row.set(),
            max_submit_account: row.set(),
            max_tres_account: self.tres.amounts(&row.text()),
            max_tres_user: self.tres.amounts(&row.text()),
            max_tres_run_mins_account: self.tres.amounts(&row.text()),
            max_tres_run_mins_user: self.tres.amounts(&row.text()),
            min_tres: self.tres.amounts(&row.text()),
            ..Limits::default()
        };
        self.limits(row, &mut limits);
        let qos = Qos {
            name: name.to_owned(),
            description,
            priority,
            preempt_mode: mode_of(mode),
            preempt_exempt_s: exempt,
            grace_time_s: grace.unwrap_or(0),
            usage_factor_millionths: factor.filter(|factor| *factor != 1_000_000),
            usage_threshold_millionths: threshold.filter(|n| *n > 0),
            limit_factor_millionths: limit_factor.filter(|n| *n > 0),
            limits,
            flags: own_flags,
            ..Qos::default()
        };
        (qos, preempt)
    }

    /// In the order of [`LIMITS_OF_ASSOCIATION`] and [`LIMITS_OF_QOS`].
    fn limits(&self, row: &mut Fields, limits: &mut Limits) {
        limits.max_jobs = row.set();
        limits.max_jobs_accrue = row.set();
        limits.min_priority = row.set();
        limits.max_submit = row.set();
        limits.max_wall_min = row.set();
        limits.grp_jobs = row.set();
        limits.grp_jobs_accrue = row.set();
        limits.grp_submit = row.set();
        limits.grp_wall_min = row.set().map(u64::from);
        let mut amounts = || -> TresAmounts { self.tres.amounts(&row.text()) };
        limits.max_tres = amounts();
        limits.max_tres_node = amounts();
        limits.max_tres_mins = amounts();
        limits.grp_tres = amounts();
        limits.grp_tres_mins = amounts();
        limits.grp_tres_run_mins = amounts();
    }

    /// Description and organization of accounts, by name.
    fn read_account_texts(&mut self) -> Result<HashMap<String, [String; 2]>, ImportError> {
        let select = self.select("acct_table", &["name", "description", "organization"])?;
        let rows = self.rows(
            &format!("{select} WHERE deleted = 0 LIMIT {ENTITIES_MAX}"),
            (),
        )?;
        Ok(rows
            .map(|mut row| (row.text(), [row.text(), row.text()]))
            .collect())
    }

    fn read_associations(
        &mut self,
        into: &mut Entities,
        qos: &HashMap<i64, String>,
        texts: &HashMap<String, [String; 2]>,
    ) -> Result<(), ImportError> {
        let table = self.table_name("assoc");
        let columns: Vec<&str> = ASSOCIATION
            .iter()
            .chain(LIMITS_OF_ASSOCIATION)
            .copied()
            .collect();
        let select = self.select(&table, &columns)?;
        let sql = format!("{select} WHERE deleted = 0 ORDER BY id_assoc LIMIT {ENTITIES_MAX}");
        for mut row in self.rows(&sql, ())? {
            let (user, account, partition, parent) =
                (row.text(), row.text(), row.text(), row.text());
            let is_default = row.number() == Some(1);
            let terms = self.terms(&mut row, qos, (&account, &user), into);
            match (user.as_str(), account.as_str()) {
                ("", ROOT) => into.root = terms,
                ("", _) => {
                    let [description, organization] =
                        texts.get(&account).cloned().unwrap_or_default();
                    let name = account.clone();
                    let record = Account {
                        name,
                        parent: if parent.is_empty() {
                            ROOT.to_owned()
                        } else {
                            parent
                        },
                        description,
                        organization,
                        terms,
                    };
                    into.accounts.insert(account, record);
                }
                _ => {
                    let record = into.users.entry(user.clone()).or_insert_with(|| User {
                        name: user.clone(),
                        admin_level: "None".to_owned(),
                        ..User::default()
                    });
                    if is_default {
                        record.default_account.clone_from(&account);
                    }
                    if partition.is_empty() {
                        record.accounts.insert(account, terms);
                    } else {
                        let parts = record.partitions.entry(account).or_default();
                        parts.insert(partition, terms);
                    }
                }
            }
        }
        Ok(())
    }

    /// In the order of [`ASSOCIATION`] after `is_def`, and [`LIMITS_OF_ASSOCIATION`].
    fn terms(
        &self,
        row: &mut Fields,
        qos: &HashMap<i64, String>,
        (account, user): (&str, &str),
        into: &mut Entities,
    ) -> AssociationTerms {
        let shares = row.signed().unwrap_or(1);
        let priority = row.set();
        let default_qos = row.signed().and_then(|id| qos.get(&id).cloned());
        let list = numbers(&row.text());
        let delta = row.text();
        let run_minutes = row.text();
        if !self.tres.amounts(&run_minutes).is_empty() {
            let text = format!("MaxTRESRunMins of account {account} {user}: there is one of QOS");
            into.not_kept.push(text.trim_end().to_owned());
        }
        let mut limits = Limits::default();
        self.limits(row, &mut limits);
        let named = |ids: Vec<i64>| -> Vec<String> {
            let mut names: Vec<String> = ids.iter().filter_map(|id| qos.get(id).cloned()).collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        let list = Some(named(list)).filter(|list| !list.is_empty());
        let of_sign = |sign: char| -> Vec<i64> {
            let parts = delta.split(',').filter_map(|part| part.strip_prefix(sign));
            parts.filter_map(|id| id.parse().ok()).collect()
        };
        let qos_delta = match &list {
            Some(_) => QosDelta::default(),
            None => QosDelta {
                more: named(of_sign('+')),
                less: named(of_sign('-')),
            },
        };
        AssociationTerms {
            shares: match shares {
                PARENT => Some(PARENT_SHARES),
                1 => None,
                shares => u32::try_from(shares).ok(),
            },
            priority,
            default_qos,
            // The cluster's row has the QOS that everybody has anyway.
            qos: list.filter(|list| account != ROOT || !user.is_empty() || *list != [NORMAL]),
            limits,
            id: 0,
            qos_delta,
        }
    }

    fn read_users(&mut self, into: &mut Entities) -> Result<(), ImportError> {
        let rows = self.rows(
            "SELECT name, admin_level FROM user_table WHERE deleted = 0",
            (),
        )?;
        for mut row in rows {
            let (name, level) = (row.text(), row.number().unwrap_or(0));
            let level = match level {
                2 => "Operator",
                3 => "Administrator",
                _ => "None",
            };
            if let Some(user) = into.users.get_mut(&name) {
                level.clone_into(&mut user.admin_level);
            }
        }
        let table = self.table_name("wckey");
        let rows = self.rows(
            &format!(
                "SELECT user, wckey_name, is_def FROM `{table}` WHERE deleted = 0 AND wckey_name <> ''
                 AND wckey_name NOT LIKE '*%' ORDER BY id_wckey"
            ),
            (),
        )?;
        for mut row in rows {
            let (name, key, is_default) = (row.text(), row.text(), row.number() == Some(1));
            let Some(user) = into.users.get_mut(&name) else {
                continue;
            };
            if is_default {
                user.default_wckey.clone_from(&key);
            }
            user.wckeys.push(key);
        }
        let rows = self.rows(
            "SELECT user, acct FROM acct_coord_table WHERE deleted = 0 ORDER BY acct",
            (),
        )?;
        for mut row in rows {
            let (name, account) = (row.text(), row.text());
            let is_here = into.accounts.contains_key(&account);
            if let (Some(user), true) = (into.users.get_mut(&name), is_here) {
                user.coordinates.push(account);
            }
        }
        Ok(())
    }
}

/// Numbers of a list `,1,2,`.
fn numbers(text: &str) -> Vec<i64> {
    text.split(',').filter_map(|id| id.parse().ok()).collect()
}

/// `PreemptMode` of a number; none is the cluster's.
fn mode_of(number: u64) -> Option<String> {
    let mode = match number & 0xff {
        1 => "SUSPEND",
        2 => "REQUEUE",
        8 => "CANCEL",
        _ => return None,
    };
    Some(match number & 0x4000 {
        0 => mode.to_owned(),
        _ => format!("{mode},WITHIN"),
    })
}
