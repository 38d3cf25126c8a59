//! What the audit log says of a command: what it is about, and whether it reaches beyond one's own jobs. Texts of users
//! are cut and escaped, so that none makes a line of its own.

use crate::state::State;
use muster_model::command::{AccountsAsk, Identity, JobSelection, JobTarget, UserCommand};
use muster_model::ids::JobId;
use muster_model::rights::Request;
use std::fmt::Write as _;

/// Bytes of a text of users in a line.
const TEXT_MAX: usize = 160;
/// Names and numbers of a list in a line.
const LIST_MAX: usize = 8;

/// Whether a command that is carried out changes something that is not the caller's own.
pub fn beyond_own(state: &State, identity: &Identity, command: &UserCommand) -> bool {
    let foreign = |target: &JobTarget| is_foreign(state, identity, target.job);
    match command {
        UserCommand::Submit { spec, .. } => {
            !spec.owner.user.is_empty() && spec.owner.uid != identity.uid
        }
        UserCommand::SubmitHet { specs, .. } => specs
            .iter()
            .any(|spec| !spec.owner.user.is_empty() && spec.owner.uid != identity.uid),
        UserCommand::Cancel { selection } | UserCommand::Signal { selection, .. } => {
            if selection.targets.is_empty() {
                let own = selection.only_own || selection.uid == Some(identity.uid);
                let known = state.accounts.users.get(&identity.user);
                let reaches = super::may(state, identity, Request::Cancel)
                    || known.is_some_and(|user| !user.coordinates.is_empty());
                !own && reaches
            } else {
                selection.targets.iter().any(foreign)
            }
        }
        UserCommand::Hold { target, .. }
        | UserCommand::Release { target }
        | UserCommand::Requeue { target, .. }
        | UserCommand::Suspend { target }
        | UserCommand::Resume { target }
        | UserCommand::UpdateJob { target, .. }
        | UserCommand::UpdateStep { target, .. }
        | UserCommand::Top { target }
        | UserCommand::Notify { target, .. } => foreign(target),
        UserCommand::EndAllocation { job, .. } => is_foreign(state, identity, *job),
        UserCommand::UpdateNodes { .. }
        | UserCommand::UpdatePartition { .. }
        | UserCommand::CreatePartition { .. }
        | UserCommand::DeletePartition { .. }
        | UserCommand::Reboot { .. }
        | UserCommand::CancelReboot { .. }
        | UserCommand::CreateReservation(_)
        | UserCommand::UpdateReservation(_)
        | UserCommand::DeleteReservation { .. }
        | UserCommand::EditAccounts(_)
        | UserCommand::Reconfigure => true,
    }
}

fn is_foreign(state: &State, identity: &Identity, id: JobId) -> bool {
    let tasks = state
        .arrays
        .get(&id)
        .into_iter()
        .flat_map(|a| a.tasks.values());
    let mut known = [&id]
        .into_iter()
        .chain(tasks)
        .filter_map(|id| state.jobs.get(id));
    known
        .next()
        .is_some_and(|job| job.spec.owner.uid != identity.uid)
}

/// The subject of a command, in few words.
pub fn target(command: &UserCommand) -> String {
    match command {
        UserCommand::Submit { .. } | UserCommand::SubmitHet { .. } | UserCommand::Reconfigure => {
            String::new()
        }
        UserCommand::Cancel { selection } | UserCommand::Signal { selection, .. } => {
            selected(selection)
        }
        UserCommand::Hold { target, .. }
        | UserCommand::Release { target }
        | UserCommand::Requeue { target, .. }
        | UserCommand::Suspend { target }
        | UserCommand::Resume { target }
        | UserCommand::UpdateJob { target, .. }
        | UserCommand::UpdateStep { target, .. }
        | UserCommand::Top { target }
        | UserCommand::Notify { target, .. } => job_text(target),
        UserCommand::EndAllocation { job, .. } => format!("job {job}"),
        UserCommand::UpdateNodes { nodes, update } => match &update.state {
            Some(state) => format!("{} state {}", text(nodes), text(state)),
            None => text(nodes),
        },
        UserCommand::Reboot { nodes, .. } | UserCommand::CancelReboot { nodes } => text(nodes),
        UserCommand::UpdatePartition { name, .. }
        | UserCommand::CreatePartition { name, .. }
        | UserCommand::DeletePartition { name }
        | UserCommand::DeleteReservation { name } => text(name),
        UserCommand::CreateReservation(ask) | UserCommand::UpdateReservation(ask) => {
            text(ask.name.as_deref().unwrap_or(""))
        }
        UserCommand::EditAccounts(edit) => {
            let names = list(edit.names.iter());
            match &edit.ask {
                AccountsAsk::AddUsers { admin_level, .. }
                | AccountsAsk::ModifyUsers { admin_level, .. }
                    if !admin_level.is_empty() =>
                {
                    format!("{names} level {}", text(admin_level))
                }
                AccountsAsk::AddCoordinators { accounts }
                | AccountsAsk::DeleteCoordinators { accounts } => {
                    format!("{names} of {}", list(accounts.iter()))
                }
                _ => names,
            }
        }
    }
}

fn selected(selection: &JobSelection) -> String {
    if !selection.targets.is_empty() {
        return list(selection.targets.iter().map(job_text));
    }
    let mut out = "jobs".to_owned();
    let words = [
        ("name", &selection.name),
        ("partition", &selection.partition),
        ("account", &selection.account),
        ("qos", &selection.qos),
        ("reservation", &selection.reservation),
        ("wckey", &selection.wckey),
    ];
    if let Some(uid) = selection.uid {
        let _ = write!(out, " of uid {uid}");
    }
    for (name, word) in words {
        if let Some(word) = word {
            let _ = write!(out, " {name} {}", text(word));
        }
    }
    out
}

fn job_text(target: &JobTarget) -> String {
    let tasks = if target.tasks.is_some() { " tasks" } else { "" };
    format!("job {}{tasks}", target.job)
}

fn list(words: impl Iterator<Item = impl AsRef<str>>) -> String {
    let mut out = String::new();
    for (n, word) in words.enumerate() {
        if n == LIST_MAX {
            out.push_str(",...");
            break;
        }
        if n > 0 {
            out.push(',');
        }
        out.push_str(&text(word.as_ref()));
    }
    out
}

/// A text of users as it stands in a line: cut, without quotes and control characters.
pub fn text(words: &str) -> String {
    let mut out = String::new();
    for c in words.chars() {
        if out.len() >= TEXT_MAX {
            out.push_str("...");
            break;
        }
        match c {
            '"' | '\\' => out.extend(c.escape_default()),
            ' '..='~' => out.push(c),
            c if c.is_alphanumeric() => out.push(c),
            c => out.extend(c.escape_unicode()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_users_make_no_lines_and_end() {
        assert_eq!(text("n[1-4]"), "n[1-4]");
        assert_eq!(
            text("a\nb\u{1b}[2J\u{202e}\"\\"),
            "a\\u{a}b\\u{1b}[2J\\u{202e}\\\"\\\\"
        );
        assert!(text(&"x".repeat(1 << 20)).len() < TEXT_MAX + 8);
        let many = vec![text(&"n".repeat(1000)); 1000];
        assert!(list(many.iter()).len() < LIST_MAX * (TEXT_MAX + 16));
        let nodes = UserCommand::Reboot {
            nodes: "\r\n".repeat(1 << 20),
            asap: false,
            down_after: false,
            reason: None,
        };
        let said = target(&nodes);
        assert!(said.len() < TEXT_MAX + 16 && !said.contains(['\r', '\n']));
    }
}
