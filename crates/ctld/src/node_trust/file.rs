//! The file with keys and tokens of nodes: a line each.

use super::{IssuedToken, PinnedKey, TrustRecords};
use anyhow::{Context as _, Result, ensure};
use muster_trust::node_key::{hex, key_of_hex};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Its name in `StateSaveLocation`.
pub(super) const NAME: &str = "node_keys";
/// The first line.
const KIND: &str = "muster node keys 1";
/// The word of an empty field.
const NONE: &str = "-";

/// A text as it is one word of a line.
pub(super) fn word(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    let word: String = text.chars().take(256).map(plain).collect();
    match word.is_empty() {
        true => NONE.to_owned(),
        false => word,
    }
}

/// Reads it; nothing if there is none.
pub(super) fn read(path: &Path) -> Result<TrustRecords> {
    match fs::read_to_string(path) {
        Ok(text) => parse(&text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(TrustRecords::default()),
        Err(e) => Err(e.into()),
    }
}

fn parse(text: &str) -> Result<TrustRecords> {
    let mut lines = text.lines();
    ensure!(
        lines.next() == Some(KIND),
        "it is not a file of this version: restore it, or move it away, and give all nodes tokens again"
    );
    let mut kept = TrustRecords::default();
    for (number, line) in lines.enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        take(&mut kept, &words).with_context(|| format!("line {} is damaged", number + 2))?;
    }
    Ok(kept)
}

/// Takes a line; nothing if it is none.
fn take(kept: &mut TrustRecords, words: &[&str]) -> Option<()> {
    match words {
        ["node", name, key, at, address, by] => {
            let pinned = PinnedKey {
                key: key_of_hex(key)?,
                at_s: at.parse().ok()?,
                address: (*address).to_owned(),
                by: (*by).to_owned(),
            };
            let before = kept.pinned.insert((*name).to_owned(), pinned);
            before.is_none().then_some(())
        }
        ["token", public, node, expires, by, used, used_by] => {
            let used = match (*used, *used_by) {
                (NONE, NONE) => None,
                (key, node) => Some((key_of_hex(key)?, node.to_owned())),
            };
            kept.tokens.push(IssuedToken {
                public: key_of_hex(public)?,
                node: Some(*node)
                    .filter(|node| *node != NONE)
                    .unwrap_or_default()
                    .to_owned(),
                expires_s: expires.parse().ok()?,
                by: (*by).to_owned(),
                used,
            });
            Some(())
        }
        _ => None,
    }
}

fn text(kept: &TrustRecords) -> String {
    let mut text = format!("{KIND}\n");
    for (name, pinned) in &kept.pinned {
        let PinnedKey {
            key,
            at_s,
            address,
            by,
        } = pinned;
        let _ = writeln!(text, "node {name} {} {at_s} {address} {by}", hex(key));
    }
    for token in &kept.tokens {
        let IssuedToken {
            public,
            node,
            expires_s,
            by,
            used,
        } = token;
        let node = if node.is_empty() { NONE } else { node };
        let (used, used_by) = match used {
            Some((key, node)) => (hex(key), node.as_str()),
            None => (NONE.to_owned(), NONE),
        };
        let _ = writeln!(
            text,
            "token {} {node} {expires_s} {by} {used} {used_by}",
            hex(public)
        );
    }
    text
}

/// Writes it: whole, and durable when this returns.
pub(super) fn write(path: &Path, kept: &TrustRecords) -> io::Result<()> {
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text(kept).as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_what_is_damaged_is_not() {
        let mut kept = TrustRecords::default();
        let pinned = PinnedKey {
            key: [1; 32],
            at_s: 5,
            address: "10.0.0.1".to_owned(),
            by: "root".to_owned(),
        };
        kept.pinned.insert("n1".to_owned(), pinned);
        for (node, used) in [
            ("n1", Some(([2; 32], "n1".to_owned()))),
            ("", None),
            ("n2", None),
        ] {
            kept.tokens.push(IssuedToken {
                public: [3; 32],
                node: node.to_owned(),
                expires_s: 9,
                by: word("a b\n"),
                used,
            });
        }
        let written = text(&kept);
        assert_eq!(parse(&written).unwrap(), kept);
        for damaged in [
            "",
            "muster node keys 2\n",
            "muster node keys 1\nnode n1 00 5 a root\n",
            "muster node keys 1\ntoken\n",
            &written.replace("node n1", "node n1 n1"),
            &format!("{written}node n1 {} 5 a root\n", hex(&[4; 32])),
        ] {
            assert!(parse(damaged).is_err(), "{damaged}");
        }
    }
}
