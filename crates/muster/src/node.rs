//! `muster node`: keys of nodes. An administrator makes a token on the controller's host, and root of the node joins with it: the node
//! makes a pair of keys, the controller pins one half and the node the controller's key. Neither believes anything else from then on.

mod join;

use anyhow::{Context as _, Result, bail, ensure};
use muster_cli::connect::Client;
use muster_model::hostlist;
use muster_model::time::Timestamp;
use muster_proto::client::{RequestBody, Response};
use muster_proto::node_trust::NodeKeyRecord;
use std::process::ExitCode;

/// Nodes of one command.
const NODES_MAX: usize = 8192;

/// Runs it.
pub(crate) fn main(words: &[String]) -> Result<ExitCode> {
    let (verb, rest) = words
        .split_first()
        .context("token, join, list or forget? 'muster node --help' says more")?;
    match verb.as_str() {
        "token" => token(rest),
        "join" => join::main(rest),
        "list" => list(rest),
        "forget" => forget(rest),
        // slurmd -F starts it.
        "take" => crate::slurmd::future::main(rest),
        other => {
            bail!("'{other}' is not a command of 'muster node': 'muster node --help' lists them")
        }
    }
}

/// The words of a command: options with their values, and the others.
struct CommandWords {
    options: Vec<(String, String)>,
    operands: Vec<String>,
}

impl CommandWords {
    /// `known` has the options, each of which has a value; those with one letter are written with one dash.
    fn parse(words: &[String], known: &[&str]) -> Result<CommandWords> {
        let mut parsed = CommandWords {
            options: Vec::new(),
            operands: Vec::new(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "-" || !word.starts_with('-') {
                parsed.operands.push(word.clone());
                continue;
            }
            let name = word.trim_start_matches('-');
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (name, None),
            };
            ensure!(known.contains(&name), "there is no option {word}");
            let value = value.or_else(|| words.next().cloned());
            let value = value.with_context(|| format!("{word} has no value"))?;
            parsed.options.push((name.to_owned(), value));
        }
        Ok(parsed)
    }

    fn option(&self, name: &str) -> Option<&str> {
        let found = self.options.iter().rev().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }
}

fn ask(body: RequestBody) -> Result<Response> {
    let mut client = Client::connect()?;
    Ok(client.call(body)?)
}

/// `token [NODES] [--lifespan SECONDS]`.
fn token(words: &[String]) -> Result<ExitCode> {
    let words = CommandWords::parse(words, &["lifespan"])?;
    let lifespan_s = words.option("lifespan").map(|text| {
        let seconds = text.parse::<u32>().ok().filter(|seconds| *seconds > 0);
        seconds.with_context(|| format!("--lifespan={text}: expected a number of seconds"))
    });
    let lifespan_s = lifespan_s.transpose()?;
    let nodes = match words.operands.as_slice() {
        [] => vec![None],
        [list] => {
            let nodes = hostlist::parse_limited(list, NODES_MAX)
                .with_context(|| format!("'{list}' is not a valid list of nodes"))?;
            nodes.into_iter().map(Some).collect()
        }
        _ => bail!("give one node, or a list like n[1-4]"),
    };
    let has_several = nodes.len() > 1;
    for node in nodes {
        let body = RequestBody::NodeToken {
            node: node.clone(),
            lifespan_s,
        };
        let Response::Token(token) = ask(body)? else {
            bail!("the controller gave another answer than a token");
        };
        match (has_several, node) {
            (true, Some(node)) => say!("{node} {token}\n"),
            _ => say!("{token}\n"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `forget NODES`.
fn forget(words: &[String]) -> Result<ExitCode> {
    let words = CommandWords::parse(words, &[])?;
    let [list] = words.operands.as_slice() else {
        bail!("give the node whose key is to be forgotten, or a list like n[1-4]");
    };
    let nodes = hostlist::parse_limited(list, NODES_MAX)
        .with_context(|| format!("'{list}' is not a valid list of nodes"))?;
    match ask(RequestBody::ForgetNodeKeys(nodes))? {
        Response::Done => Ok(ExitCode::SUCCESS),
        _ => bail!("the controller gave another answer"),
    }
}

/// `list`.
fn list(words: &[String]) -> Result<ExitCode> {
    ensure!(words.is_empty(), "list has no options");
    let Response::NodeKeys(records) = ask(RequestBody::NodeKeys)? else {
        bail!("the controller gave another answer");
    };
    say!("{}", table(&records));
    Ok(ExitCode::SUCCESS)
}

/// A line each.
fn table(records: &[NodeKeyRecord]) -> String {
    let mut text = format!(
        "{:<20} {:<16} {:<19} {:<15} {:<10} {:<19} REFUSED\n",
        "NODE", "KEY", "SINCE", "FROM", "TOKEN_BY", "TOKEN_UNTIL"
    );
    for record in records {
        let node = match record.node.as_str() {
            "" => "(any)",
            node => node,
        };
        let key = record.key.as_ref().map_or_else(
            || "-".to_owned(),
            |key| {
                key.iter()
                    .take(8)
                    .map(|byte| format!("{byte:02x}"))
                    .collect()
            },
        );
        let since = record.key.as_ref().map(|_| record.pinned);
        let or_dash = |text: &str| match text {
            "" => "-".to_owned(),
            text => text.to_owned(),
        };
        text += &format!(
            "{node:<20} {key:<16} {:<19} {:<15} {:<10} {:<19} {}\n",
            shown(since),
            or_dash(&record.address),
            or_dash(&record.by),
            shown(record.token_expires),
            record.refused
        );
    }
    text
}

/// A time as listings print it.
fn shown(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "-".to_owned(), muster_cli::local_time)
}

/// This host's name without its domain.
fn host_name() -> Result<String> {
    let name = nix::unistd::gethostname().context("cannot get this host's name")?;
    let name = name.to_string_lossy();
    Ok(name.split('.').next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_have_values_and_are_known() {
        let parsed =
            CommandWords::parse(&words("- --controller=a:1 -N n1 x"), &["controller", "N"]);
        let parsed = parsed.unwrap();
        assert_eq!(parsed.operands, ["-", "x"]);
        assert_eq!(parsed.option("controller"), Some("a:1"));
        assert_eq!(parsed.option("N"), Some("n1"));
        for wrong in ["--other=1", "-N"] {
            assert!(
                CommandWords::parse(&words(wrong), &["N"]).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_table_has_nodes_with_keys_and_with_tokens() {
        let records = [
            NodeKeyRecord {
                node: "n1".to_owned(),
                key: Some(vec![0xab; 32].into()),
                address: "10.0.0.1".to_owned(),
                by: "root".to_owned(),
                refused: 3,
                ..NodeKeyRecord::default()
            },
            NodeKeyRecord::default(),
        ];
        let text = table(&records);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(
            (lines[1][0], lines[1][1], lines[1][6]),
            ("n1", "abababababababab", "3")
        );
        assert_eq!((lines[2][0], lines[2][1], lines[2][3]), ("(any)", "-", "-"));
    }
}
