//! Requests of an administrator to the controller that give it all entities of the source. Further ones of the
//! controller stay.

use super::entities::Entities;
use muster_model::account_limits::{LimitAsk, Limits, TresAmounts, is_tres};
use muster_model::accounts::{Accounts, AssociationTerms, Qos, ROOT, User};
use muster_model::command::ListEdit;
use muster_model::command::{AccountsAsk, AccountsEdit, QosAsk, TermsAsk, WckeysAsk};
use std::collections::{BTreeMap, BTreeSet};

/// Names in one edit: what one answer of the controller may take, and others wait for.
const NAMES_MAX: usize = 500;

/// Edits, in order, that are to be made before one plans anew: some only follow from what these make.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The edits.
    pub edits: Vec<AccountsEdit>,
}

impl Plan {
    fn push(&mut self, names: &[String], ask: &AccountsAsk) {
        for names in names.chunks(NAMES_MAX) {
            self.edits.push(AccountsEdit {
                cluster: String::new(),
                names: names.to_vec(),
                ask: ask.clone(),
            });
        }
    }
}

/// Requests that are still to be made. None when the controller has all.
pub fn plan(wanted: &Entities, known: &Accounts) -> Plan {
    let mut plan = Plan::default();
    plan_qos(wanted, known, &mut plan);
    plan_accounts(wanted, known, &mut plan);
    plan_users(wanted, known, &mut plan);
    plan
}

fn plan_qos(wanted: &Entities, known: &Accounts, plan: &mut Plan) {
    for (name, qos) in &wanted.qos {
        let names = [name.clone()];
        match known.qos(name) {
            // QOS that it may preempt may follow.
            None => plan.push(&names, &AccountsAsk::AddQos(qos_ask(qos, None, false))),
            Some(own) if !same_qos(qos, &own) => {
                let ask = qos_ask(qos, Some(&own.limits), true);
                plan.push(&names, &AccountsAsk::ModifyQos(ask));
            }
            Some(_) => {}
        }
    }
}

fn same_qos(wanted: &Qos, own: &Qos) -> bool {
    let usual = |qos: &Qos| {
        let mut qos = Qos {
            id: 0,
            ..qos.clone()
        };
        qos.usage_factor_millionths = qos.usage_factor_millionths.filter(|f| *f != 1_000_000);
        qos.preempt.sort_unstable();
        sort_limits(&mut qos.limits);
        qos
    };
    usual(wanted) == usual(own)
}

fn qos_ask(qos: &Qos, own: Option<&Limits>, with_preempt: bool) -> QosAsk {
    QosAsk {
        description: Some(qos.description.clone()),
        priority: Some(qos.priority),
        preempt: with_preempt.then(|| ListEdit {
            sign: None,
            names: qos.preempt.clone(),
        }),
        preempt_mode: Some(
            qos.preempt_mode
                .clone()
                .unwrap_or_else(|| "CLUSTER".to_owned()),
        ),
        preempt_exempt_s: Some(qos.preempt_exempt_s),
        grace_time_s: Some(qos.grace_time_s),
        usage_factor_millionths: Some(qos.usage_factor_millionths.unwrap_or(1_000_000)),
        limits: limits_ask(&qos.limits, own, true),
        flags: Some(ListEdit {
            sign: None,
            names: qos.flags.clone(),
        }),
        usage_threshold_millionths: Some(qos.usage_threshold_millionths),
        limit_factor_millionths: Some(qos.limit_factor_millionths),
    }
}

fn plan_accounts(wanted: &Entities, known: &Accounts, plan: &mut Plan) {
    let is_known = |name: &str| name == ROOT || known.accounts.contains_key(name);
    // Parents come first.
    let mut added: BTreeSet<&str> = BTreeSet::new();
    loop {
        let before = added.len();
        for (name, account) in &wanted.accounts {
            let parent = account.parent.as_str();
            let may_follow = is_known(parent) || added.contains(parent);
            if is_known(name) || added.contains(name.as_str()) || !may_follow {
                continue;
            }
            added.insert(name);
            let ask = AccountsAsk::AddAccounts {
                parent: parent.to_owned(),
                description: account.description.clone(),
                organization: account.organization.clone(),
                terms: terms_ask(&account.terms, None),
            };
            plan.push(std::slice::from_ref(name), &ask);
        }
        if added.len() == before {
            break;
        }
    }
    for (name, account) in &wanted.accounts {
        let Some(own) = known.accounts.get(name) else {
            continue;
        };
        let is_same = same_terms(&account.terms, &own.terms)
            && own.parent == account.parent
            && (account.description.is_empty() || own.description == account.description)
            && (account.organization.is_empty() || own.organization == account.organization);
        // An account whose parent is not there yet moves when it is.
        if is_same || !is_known(&account.parent) {
            continue;
        }
        plan_terms(&account.terms, &own.terms, plan, |terms| {
            let ask = AccountsAsk::ModifyAccounts {
                parent: account.parent.clone(),
                description: account.description.clone(),
                organization: account.organization.clone(),
                terms,
            };
            (vec![name.clone()], ask)
        });
    }
    if !same_terms(&wanted.root, &known.root) {
        plan_terms(&wanted.root, &known.root, plan, |terms| {
            let ask = AccountsAsk::ModifyAccounts {
                parent: String::new(),
                description: String::new(),
                organization: String::new(),
                terms,
            };
            (vec![ROOT.to_owned()], ask)
        });
    }
}

/// Users that get an association with the same settings.
struct NewUsers<'a> {
    terms: &'a AssociationTerms,
    names: Vec<String>,
}

fn plan_users(wanted: &Entities, known: &Accounts, plan: &mut Plan) {
    // Associations with equal settings are added together.
    let mut new: BTreeMap<(&str, &str), Vec<NewUsers<'_>>> = BTreeMap::new();
    for (name, user) in &wanted.users {
        let own = known.users.get(name);
        for (account, partition, terms) in user.associations() {
            let own = own.and_then(|own| own_terms(own, account, partition));
            let is_root = name == ROOT && account == ROOT && partition.is_empty();
            match own {
                None if is_root => {}
                None => {
                    let equal = new.entry((account, partition)).or_default();
                    match equal.iter_mut().find(|other| other.terms == terms) {
                        Some(other) => other.names.push(name.clone()),
                        None => equal.push(NewUsers {
                            terms,
                            names: vec![name.clone()],
                        }),
                    }
                }
                Some(own) if !same_terms(terms, own) => plan_terms(terms, own, plan, |terms| {
                    let partitions: Vec<String> = [partition]
                        .into_iter()
                        .filter(|partition| !partition.is_empty())
                        .map(str::to_owned)
                        .collect();
                    let ask = AccountsAsk::ModifyUsers {
                        accounts: vec![account.to_owned()],
                        default_account: String::new(),
                        admin_level: String::new(),
                        terms,
                        wckeys: WckeysAsk::default(),
                        partitions,
                    };
                    (vec![name.clone()], ask)
                }),
                Some(_) => {}
            }
        }
        if let Some(own) = own {
            plan_user(user, own, known, plan);
        }
    }
    for ((account, partition), equal) in new {
        for NewUsers { terms, names } in equal {
            let partitions = Some(partition.to_owned()).filter(|p| !p.is_empty());
            let ask = AccountsAsk::AddUsers {
                accounts: vec![account.to_owned()],
                default_account: String::new(),
                admin_level: String::new(),
                terms: terms_ask(terms, None),
                wckeys: WckeysAsk::default(),
                partitions: partitions.into_iter().collect(),
            };
            plan.push(&names, &ask);
        }
    }
}

fn own_terms<'a>(user: &'a User, account: &str, partition: &str) -> Option<&'a AssociationTerms> {
    match partition {
        "" => user.accounts.get(account),
        _ => user.partitions.get(account)?.get(partition),
    }
}

/// Plans a user's settings beside associations.
fn plan_user(user: &User, own: &User, known: &Accounts, plan: &mut Plan) {
    let name = [user.name.clone()];
    let default = &user.default_account;
    let moves = !default.is_empty() && *default != own.default_account && own.is_in(default);
    let has_keys = user.wckeys.iter().all(|key| own.wckeys.contains(key));
    let same_key = user.default_wckey.is_empty() || user.default_wckey == own.default_wckey;
    let level = Some(&user.admin_level).filter(|level| **level != own.admin_level);
    if moves || !has_keys || !same_key || level.is_some() {
        let ask = AccountsAsk::ModifyUsers {
            accounts: Vec::new(),
            default_account: if moves {
                default.clone()
            } else {
                String::new()
            },
            admin_level: level.cloned().unwrap_or_default(),
            terms: TermsAsk::default(),
            wckeys: WckeysAsk {
                default: (!same_key).then(|| user.default_wckey.clone()),
                keys: (!has_keys).then(|| ListEdit {
                    sign: Some('+'),
                    names: user.wckeys.clone(),
                }),
            },
            partitions: Vec::new(),
        };
        plan.push(&name, &ask);
    }
    let more = user.coordinates.iter().filter(|account| {
        !own.coordinates.contains(account) && known.accounts.contains_key(*account)
    });
    let accounts: Vec<String> = more.cloned().collect();
    if !accounts.is_empty() {
        plan.push(&name, &AccountsAsk::AddCoordinators { accounts });
    }
}

/// Sets what an association is to have. A list of QOS that was set is cleared before the association has others beside those
/// of the account above.
fn plan_terms(
    wanted: &AssociationTerms,
    own: &AssociationTerms,
    plan: &mut Plan,
    edit: impl Fn(TermsAsk) -> (Vec<String>, AccountsAsk),
) {
    let (is_list, was_list) = (wanted.qos.is_some(), own.qos.is_some());
    let is_other = wanted.qos_delta != own.qos_delta;
    if !is_list && (was_list || is_other) {
        let clear = TermsAsk {
            qos: Some(ListEdit {
                sign: None,
                names: Vec::new(),
            }),
            ..TermsAsk::default()
        };
        let (names, ask) = edit(clear);
        plan.push(&names, &ask);
    }
    let (names, ask) = edit(terms_ask(wanted, Some(own)));
    plan.push(&names, &ask);
}

fn terms_ask(terms: &AssociationTerms, own: Option<&AssociationTerms>) -> TermsAsk {
    let delta = &terms.qos_delta;
    TermsAsk {
        shares: Some(terms.shares),
        priority: Some(terms.priority),
        default_qos: Some(terms.default_qos.clone().unwrap_or_default()),
        qos: match &terms.qos {
            Some(list) => Some(ListEdit {
                sign: None,
                names: list.clone(),
            }),
            None if delta.more.is_empty() => None,
            None => Some(ListEdit {
                sign: Some('+'),
                names: delta.more.clone(),
            }),
        },
        limits: limits_ask(&terms.limits, own.map(|own| &own.limits), false),
        qos_less: delta.less.clone(),
    }
}

fn sort_limits(limits: &mut Limits) {
    let all = [
        &mut limits.grp_tres,
        &mut limits.max_tres,
        &mut limits.max_tres_user,
        &mut limits.grp_tres_mins,
        &mut limits.grp_tres_run_mins,
        &mut limits.max_tres_mins,
        &mut limits.max_tres_node,
        &mut limits.max_tres_account,
        &mut limits.min_tres,
        &mut limits.max_tres_run_mins_user,
        &mut limits.max_tres_run_mins_account,
    ];
    all.into_iter().for_each(|amounts| amounts.sort());
}

/// Whether settings are equal, however they are written: one share is that of an association without shares.
fn same_terms(one: &AssociationTerms, other: &AssociationTerms) -> bool {
    let usual = |terms: &AssociationTerms| {
        let mut terms = AssociationTerms {
            shares: Some(terms.shares.unwrap_or(1)),
            id: 0,
            ..terms.clone()
        };
        terms.qos.iter_mut().for_each(|list| list.sort_unstable());
        terms.qos_delta.more.sort_unstable();
        terms.qos_delta.less.sort_unstable();
        sort_limits(&mut terms.limits);
        terms
    };
    usual(one) == usual(other)
}

/// Limits as sacctmgr sets them, and clears those that are set now and are not to be.
fn limits_ask(wanted: &Limits, own: Option<&Limits>, is_qos: bool) -> Vec<LimitAsk> {
    let none = Limits::default();
    let own = own.unwrap_or(&none);
    let mut asks = Vec::new();
    let (of_wanted, of_own) = (counts(wanted, is_qos), counts(own, is_qos));
    for ((name, wanted), (_, own)) in of_wanted.iter().zip(&of_own) {
        if wanted != own {
            let value = wanted.map_or("-1".to_owned(), |count| count.to_string());
            asks.push(LimitAsk::new(*name, value));
        }
    }
    let (of_wanted, of_own) = (amounts(wanted, is_qos), amounts(own, is_qos));
    for ((name, wanted), (_, own)) in of_wanted.iter().zip(&of_own) {
        let gone = own.iter().filter(|tres| wanted.get(&tres.name).is_none());
        let gone = gone.map(|tres| format!("{}=-1", tres.name));
        // Amounts of TRES that there are not would be refused.
        let set = wanted.iter().filter(|tres| is_tres(&tres.name));
        let set = set.map(|tres| format!("{}={}", tres.name, tres.amount));
        let words: Vec<String> = set.chain(gone).collect();
        if wanted != own && !words.is_empty() {
            asks.push(LimitAsk::new(*name, words.join(",")));
        }
    }
    asks
}

type Counts = Vec<(&'static str, Option<u64>)>;

fn counts(limits: &Limits, is_qos: bool) -> Counts {
    let all = [
        ("grpjobs", limits.grp_jobs),
        ("grpsubmitjobs", limits.grp_submit),
        ("grpjobsaccrue", limits.grp_jobs_accrue),
        ("minpriothreshold", limits.min_priority),
        ("maxwall", limits.max_wall_min),
    ];
    let own = match is_qos {
        true => vec![
            ("maxjobsperuser", limits.max_jobs),
            ("maxsubmitjobsperuser", limits.max_submit),
            ("maxjobsaccrueperuser", limits.max_jobs_accrue),
            ("maxjobsperaccount", limits.max_jobs_account),
            ("maxsubmitjobsperaccount", limits.max_submit_account),
            ("maxjobsaccrueperaccount", limits.max_jobs_accrue_account),
        ],
        false => vec![
            ("maxjobs", limits.max_jobs),
            ("maxsubmitjobs", limits.max_submit),
            ("maxjobsaccrue", limits.max_jobs_accrue),
        ],
    };
    let all = all.into_iter().chain(own);
    let all = all.map(|(name, count)| (name, count.map(u64::from)));
    all.chain([("grpwall", limits.grp_wall_min)]).collect()
}

fn amounts(limits: &Limits, is_qos: bool) -> Vec<(&'static str, &TresAmounts)> {
    let mut all = vec![
        ("grptres", &limits.grp_tres),
        ("grptresmins", &limits.grp_tres_mins),
        ("grptresrunmins", &limits.grp_tres_run_mins),
        ("maxtres", &limits.max_tres),
        ("maxtresmins", &limits.max_tres_mins),
        ("maxtrespernode", &limits.max_tres_node),
    ];
    if is_qos {
        all.extend([
            ("maxtresperuser", &limits.max_tres_user),
            ("maxtresperaccount", &limits.max_tres_account),
            ("mintresperjob", &limits.min_tres),
            ("maxtresrunminsperuser", &limits.max_tres_run_mins_user),
            (
                "maxtresrunminsperaccount",
                &limits.max_tres_run_mins_account,
            ),
        ]);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::decide::decide;
    use muster_core::state::State;
    use muster_model::accounts::{Account, PARENT_SHARES, QosDelta};
    use muster_model::command::{Command, Identity, Reply, UserCommand};
    use muster_model::time::Timestamp;

    fn make(state: &mut State, edit: AccountsEdit) {
        let identity = Identity {
            uid: 0,
            gid: 0,
            user: "root".to_owned(),
            group: "root".to_owned(),
            groups: Vec::new(),
            gids: Vec::new(),
            host: None,
            granted: Default::default(),
            is_ordinary: false,
        };
        let command = UserCommand::EditAccounts(Box::new(edit.clone()));
        let decision = decide(
            state,
            &Command::User(identity, command),
            Timestamp(1_000_000),
        );
        assert!(
            matches!(decision.reply, Some(Reply::Done { .. })),
            "{edit:?}: {:?}",
            decision.reply
        );
        for event in &decision.events {
            state.apply(event);
        }
    }

    /// Plans and edits until nothing is left.
    fn settle(state: &mut State, wanted: &Entities) -> usize {
        for round in 0..5 {
            let plan = plan(wanted, &state.accounts);
            if plan.edits.is_empty() {
                return round;
            }
            for edit in plan.edits {
                make(state, edit);
            }
        }
        panic!("{:?}", plan(wanted, &state.accounts));
    }

    fn limits() -> Limits {
        let amounts = |n| TresAmounts::from_iter([("cpu", n), ("gres/gpu", 1)]);
        Limits {
            grp_jobs: Some(1),
            grp_submit: Some(2),
            grp_tres: amounts(3),
            max_jobs: Some(4),
            max_submit: Some(5),
            max_tres: amounts(6),
            max_wall_min: Some(7),
            grp_wall_min: Some(8),
            grp_tres_mins: amounts(9),
            grp_tres_run_mins: amounts(10),
            max_tres_mins: amounts(11),
            max_tres_node: amounts(12),
            min_priority: Some(13),
            grp_jobs_accrue: Some(14),
            max_jobs_accrue: Some(15),
            ..Limits::default()
        }
    }

    fn wanted() -> Entities {
        let mut wanted = Entities::default();
        for (name, preempt) in [("high", vec!["low".to_owned()]), ("low", Vec::new())] {
            let qos = Qos {
                name: name.to_owned(),
                description: "text".to_owned(),
                preempt,
                preempt_mode: Some("REQUEUE".to_owned()),
                flags: vec!["DenyOnLimit".to_owned()],
                limits: Limits {
                    max_tres_user: TresAmounts::from_iter([("cpu", 3)]),
                    max_jobs_account: Some(4),
                    min_tres: TresAmounts::from_iter([("mem", 100)]),
                    ..limits()
                },
                usage_factor_millionths: Some(500_000),
                ..Qos::default()
            };
            wanted.qos.insert(name.to_owned(), qos);
        }
        let terms = AssociationTerms {
            shares: Some(PARENT_SHARES),
            priority: Some(3),
            default_qos: Some("low".to_owned()),
            qos: Some(vec!["high".to_owned(), "low".to_owned()]),
            limits: limits(),
            ..AssociationTerms::default()
        };
        // By name a child comes before its parent.
        for (name, parent) in [("a", "z"), ("z", "root")] {
            let account = Account {
                name: name.to_owned(),
                parent: parent.to_owned(),
                description: name.to_owned(),
                organization: "uni".to_owned(),
                terms: terms.clone(),
            };
            wanted.accounts.insert(name.to_owned(), account);
        }
        let beside = AssociationTerms {
            qos: None,
            qos_delta: QosDelta {
                more: vec!["high".to_owned()],
                less: vec!["low".to_owned()],
            },
            ..terms.clone()
        };
        let user = User {
            name: "amy".to_owned(),
            default_account: "z".to_owned(),
            admin_level: "Operator".to_owned(),
            accounts: [
                ("a".to_owned(), beside),
                ("z".to_owned(), AssociationTerms::default()),
            ]
            .into(),
            wckeys: vec!["k1".to_owned(), "k2".to_owned()],
            default_wckey: "k2".to_owned(),
            coordinates: vec!["a".to_owned()],
            partitions: [("a".to_owned(), [("p".to_owned(), terms)].into())].into(),
        };
        wanted.users.insert("amy".to_owned(), user);
        wanted
    }

    #[test]
    fn the_controller_gets_all_that_the_source_has_and_what_changes_there() {
        let mut state = State::default();
        let mut source = wanted();
        settle(&mut state, &source);
        let amy = &state.accounts.users["amy"];
        assert_eq!(
            (amy.default_account.as_str(), amy.default_wckey.as_str()),
            ("z", "k2")
        );
        assert_eq!(amy.coordinates, ["a"]);
        assert_eq!(state.accounts.qos["high"].preempt, ["low"]);
        assert_eq!(settle(&mut state, &source), 0);
        // Limits go and come, lists of QOS become others, an account moves.
        let user = source.users.get_mut("amy").unwrap();
        user.accounts
            .insert("a".to_owned(), AssociationTerms::default());
        user.default_account = "a".to_owned();
        let account = source.accounts.get_mut("a").unwrap();
        account.parent = "root".to_owned();
        account.terms.limits = Limits {
            max_tres: TresAmounts::from_iter([("node", 2)]),
            ..Limits::default()
        };
        account.terms.qos = None;
        account.terms.qos_delta.more = vec!["high".to_owned()];
        source.qos.get_mut("low").unwrap().limits = Limits::default();
        settle(&mut state, &source);
        let a = &state.accounts.accounts["a"];
        assert_eq!(a.parent, "root");
        assert_eq!(
            a.terms.limits.max_tres,
            TresAmounts::from_iter([("node", 2)])
        );
        assert_eq!((&a.terms.qos, a.terms.limits.grp_jobs), (&None, None));
    }
}
