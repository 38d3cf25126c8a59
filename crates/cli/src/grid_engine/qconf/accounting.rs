//! Changes of lists of users, the share tree and resource quota sets by files and the editor: they are made of what accounting has
//! now, and carried out by sacctmgr, whose rights decide.

use super::change::{CommandLine, account_of, names};
use super::share_tree::ShareTree;
use super::{ClusterData, in_files, run_all, users};
use crate::connect::Client;
use crate::editor;
use crate::grid_engine::{fail, unreachable};
use crate::listing::query;
use crate::say;
use muster_model::accounts::Accounts;
use std::process::ExitCode;

/// Options that are carried out here, and the number of words after each.
const CARRIED_OUT: [(&str, usize); 14] = [
    ("Au", 1),
    ("Mu", 1),
    ("mu", 1),
    ("dul", 1),
    ("aprj", 0),
    ("astree", 0),
    ("Astree", 1),
    ("mstree", 0),
    ("Mstree", 1),
    ("arqs", 0),
    ("Arqs", 1),
    ("mrqs", 0),
    ("Mrqs", 1),
    ("drqs", 1),
];

/// Carries out an option; `None` for other options.
pub(super) fn run(option: &str, values: &[String]) -> Option<Result<ExitCode, ExitCode>> {
    let name = option.strip_prefix('-')?;
    let (_, words) = CARRIED_OUT.iter().find(|(own, _)| *own == name)?;
    // -arqs and -mrqs may name sets, which the editor shows then.
    let may_name = matches!(name, "arqs" | "mrqs") && values.len() == 1;
    if values.len() != *words && !may_name {
        let form = if *words == 0 { "nothing" } else { "one word" };
        let why = format!("qconf: option \"{option}\" is followed by {form}");
        return Some(Err(fail(&why, 1)));
    }
    let value = values.first().map_or("", String::as_str);
    Some(ClusterData::load().and_then(|shown| {
        let mut client = Client::connect().map_err(|e| unreachable(&e))?;
        let accounts = query::accounts(&mut client).map_err(|e| unreachable(&e))?.accounts;
        let lines = lines(name, value, &shown, &accounts).map_err(|why| fail(&why, 1))?;
        if name.ends_with("rqs") && !shown.has_limits() {
            say::stderr("qconf: warning: limits have an effect only where AccountingStorageEnforce of slurm.conf has limits\n");
        }
        if lines.is_empty() {
            say::stdout("nothing has changed\n");
        }
        run_all(&lines)
    }))
}

/// The commands of sacctmgr that an option comes to.
fn lines(
    name: &str,
    value: &str,
    shown: &ClusterData,
    accounts: &Accounts,
) -> Result<Vec<CommandLine>, String> {
    let edited = |what: &str, text: &str| {
        let edited = editor::edit("qconf", what, text)?;
        in_files::text(&edited.path().to_string_lossy())
    };
    let quotas = shown.quota_sets(accounts);
    match name {
        "dul" => {
            let all = value
                .split(',')
                .map(|list| account_of(&shown.mapping, list));
            let all = names(&all.collect::<Vec<_>>().join(","))?;
            Ok(vec![
                ["delete", "account", &format!("name={all}")]
                    .map(str::to_owned)
                    .to_vec(),
            ])
        }
        "Au" | "Mu" => user_list(&in_files::text(value)?, name == "Au", shown, accounts),
        "mu" => {
            let text = users::list(accounts, &shown.mapping.reservation_users, value)?;
            user_list(&edited("user list", &text)?, false, shown, accounts)
        }
        "aprj" => {
            let text = edited(
                "project",
                "name template\noticket 0\nfshare 0\nacl NONE\nxacl NONE\n",
            )?;
            let name =
                account_of(&shown.mapping, &super::change::project_of_text(&text)?).to_owned();
            Ok(vec![
                ["add", "account", &format!("name={name}")]
                    .map(str::to_owned)
                    .to_vec(),
            ])
        }
        "drqs" => quotas.removal(value),
        "Arqs" | "Mrqs" => quotas.commands(&in_files::text(value)?),
        "mrqs" => quotas.commands(&edited("resource quota set", &quotas.text(value)?)?),
        "arqs" => {
            let text = "{\n   name         template\n   description  NONE\n   enabled      TRUE\n   limit        users {*} to slots=0\n}\n";
            quotas.commands(&edited("resource quota set", text)?)
        }
        _ => {
            let tree = ShareTree::of(accounts);
            let text = match name.starts_with(|c: char| c.is_ascii_uppercase()) {
                true => in_files::text(value)?,
                false => {
                    let now = tree.linear();
                    let now = now.unwrap_or_else(|| {
                        "id=0\nname=Root\ntype=0\nshares=1\nchildnodes=NONE\n".to_owned()
                    });
                    edited("share tree", &now)?
                }
            };
            let (lines, lost) = tree.changes(&text, &shown.mapping)?;
            for path in lost {
                say::stderr(&format!(
                    "qconf: warning: {path} keeps its shares: it is an account or a user, and stays in the tree\n"
                ));
            }
            Ok(lines)
        }
    }
}

/// A list of users as a file has it: the account is made if it is new, its users are those of the file.
fn user_list(
    text: &str,
    is_new: bool,
    shown: &ClusterData,
    accounts: &Accounts,
) -> Result<Vec<CommandLine>, String> {
    let rows = in_files::rows_of(text);
    let name = names(in_files::row(&rows, "name")?)?;
    let account = account_of(&shown.mapping, &name).to_owned();
    for (key, value) in &rows {
        match (key.as_str(), value.as_str()) {
            ("name" | "entries", _) | ("type", "ACL") | ("oticket" | "fshare", "0") => {}
            (key, value) => {
                return Err(format!(
                    "denied: {key} {value} of a user list has no effect here; shares are set by -mstnode"
                ));
            }
        }
    }
    let entries = in_files::row(&rows, "entries")?;
    let wanted = entries
        .split([',', ' '])
        .filter(|own| !own.is_empty() && *own != "NONE");
    let wanted: Vec<&str> = wanted.collect();
    if let Some(group) = wanted.iter().find(|own| own.starts_with('@')) {
        return Err(format!(
            "denied: {group}: a list of users is an account, which has users; name them, or use AllowGroups of partitions"
        ));
    }
    let is_there = accounts.accounts.contains_key(&account);
    match (is_new, is_there) {
        (true, true) => return Err(format!("user list \"{name}\" already exists")),
        (false, false) => return Err(format!("user list \"{name}\" does not exist")),
        _ => {}
    }
    let all = accounts.users.values();
    let members = all.filter(|user| user.accounts.contains_key(&account));
    let members: Vec<&str> = members.map(|user| user.name.as_str()).collect();
    let line = |verb: &str, users: &[&str]| -> Result<CommandLine, String> {
        let users = names(&users.join(","))?;
        let words = [verb.to_owned(), "user".to_owned()];
        Ok(words
            .into_iter()
            .chain([format!("name={users}"), format!("account={account}")])
            .collect())
    };
    let mut lines = Vec::new();
    if is_new {
        lines.push(
            ["add", "account", &format!("name={account}")]
                .map(str::to_owned)
                .to_vec(),
        );
    }
    let more: Vec<&str> = wanted
        .iter()
        .filter(|own| !members.contains(own))
        .copied()
        .collect();
    let fewer: Vec<&str> = members
        .iter()
        .filter(|own| !wanted.contains(own))
        .copied()
        .collect();
    for (verb, users) in [("add", more), ("delete", fewer)] {
        if !users.is_empty() {
            lines.push(line(verb, &users)?);
        }
    }
    Ok(lines)
}
