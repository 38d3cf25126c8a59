//! topology.yaml: several networks in one file, each a tree, blocks or flat, of which partitions name one. The file is
//! read into the lines of topology.conf, which are interpreted there.

use super::{Network, SwitchLine};
use crate::diagnostic::{Findings, Origin};
use muster_model::hostlist;
use muster_model::topology::TopologyKind;
use saphyr_parser::{Event, Parser, Span};
use std::path::Path;
use std::sync::Arc;

/// Lists in lists that the file may have; it needs six.
const DEEPEST: usize = 16;

/// One network of the file.
#[derive(Debug)]
pub(super) struct YamlNetwork {
    pub(super) name: String,
    pub(super) kind: TopologyKind,
    pub(super) cluster_default: bool,
    pub(super) network: Network,
    pub(super) origin: Origin,
}

/// A part of the file, with its place.
#[derive(Debug)]
enum YamlValue {
    Text(String, Origin),
    List(Vec<YamlValue>, Origin),
    Map(Vec<(String, Origin, YamlValue)>, Origin),
}

impl YamlValue {
    fn origin(&self) -> &Origin {
        match self {
            YamlValue::Text(_, origin) | YamlValue::List(_, origin) | YamlValue::Map(_, origin) => {
                origin
            }
        }
    }
}

/// Reads the networks; malformed entries are reported and left out.
pub(super) fn read(path: &Path, text: &str, findings: &mut Findings) -> Vec<YamlNetwork> {
    let file: Arc<str> = path.to_string_lossy().into();
    let whole = Origin {
        file: file.clone(),
        line: 0,
        column: 0,
    };
    let part = match parse(text, &file) {
        Ok(Some(part)) => part,
        Ok(None) => YamlValue::List(Vec::new(), whole),
        Err((origin, why)) => {
            findings.error(&origin, "", format!("invalid YAML: {why}"), "");
            return Vec::new();
        }
    };
    let help = "write `- topology: NAME` for each network";
    let YamlValue::List(list, _) = part else {
        findings.error(part.origin(), "", "a list of networks is expected", help);
        return Vec::new();
    };
    let mut all: Vec<YamlNetwork> = Vec::new();
    for part in list {
        let YamlValue::Map(fields, origin) = part else {
            findings.error(part.origin(), "", "a network is expected", help);
            continue;
        };
        let Some(named) = network(fields, origin, findings) else {
            continue;
        };
        match all.iter().find(|other| other.name == named.name) {
            Some(other) => {
                let message = format!(
                    "topology {} is there already, at {}",
                    named.name, other.origin
                );
                findings.error(&named.origin, "topology", message, "give each its own name");
            }
            None => all.push(named),
        }
    }
    all
}

fn network(
    fields: Vec<(String, Origin, YamlValue)>,
    origin: Origin,
    findings: &mut Findings,
) -> Option<YamlNetwork> {
    let mut named = YamlNetwork {
        name: String::new(),
        kind: TopologyKind::Flat,
        cluster_default: false,
        network: Network::default(),
        origin: origin.clone(),
    };
    let mut kinds = Vec::new();
    for (key, at, part) in fields {
        match key.as_str() {
            "topology" => named.name = text(&part, &key, findings)?,
            "cluster_default" => named.cluster_default = truth(&part, &key, findings),
            "flat" => {
                // `flat: false` is no network at all; a map holds options that placement does not need.
                if matches!(part, YamlValue::Map(..)) || truth(&part, &key, findings) {
                    kinds.push((TopologyKind::Flat, at));
                }
            }
            "tree" => {
                named.network.switches = lines(part, ("switches", "switch"), findings);
                kinds.push((TopologyKind::Tree, at));
            }
            "block" => {
                let sizes = &mut named.network.block_sizes;
                named.network.blocks = blocks(part, sizes, findings);
                kinds.push((TopologyKind::Block, at));
            }
            _ => unknown(&key, &at, findings),
        }
    }
    if named.name.is_empty() {
        let help = "add `topology: NAME` as its first line";
        findings.error(&origin, "topology", "the network has no name", help);
        return None;
    }
    match kinds.as_slice() {
        [(kind, _)] => named.kind = *kind,
        [] => {
            let message = format!("topology {} is neither tree, block nor flat", named.name);
            findings.error(&origin, "topology", message, "add one of the three");
            return None;
        }
        [_, (_, at), ..] => {
            let message = format!(
                "topology {} is of more than one kind; the first counts",
                named.name
            );
            findings.error(at, "topology", message, "remove all but one");
            named.kind = kinds[0].0;
        }
    }
    Some(named)
}

fn blocks(part: YamlValue, sizes: &mut Vec<u32>, findings: &mut Findings) -> Vec<SwitchLine> {
    let YamlValue::Map(fields, origin) = part else {
        findings.error(
            part.origin(),
            "block",
            "block_sizes and blocks are expected",
            "",
        );
        return Vec::new();
    };
    let mut rest = Vec::new();
    for (key, at, part) in fields {
        if key != "block_sizes" {
            rest.push((key, at, part));
            continue;
        }
        let list = match part {
            YamlValue::List(list, _) => list,
            one => vec![one],
        };
        for size in &list {
            let text = text(size, "block_sizes", findings).unwrap_or_default();
            match text.parse() {
                Ok(size) if size > 0 => sizes.push(size),
                _ => {
                    let message = format!("block_sizes: `{text}` is not a number of nodes");
                    findings.error(size.origin(), "block_sizes", message, "");
                }
            }
        }
    }
    lines(YamlValue::Map(rest, origin), ("blocks", "block"), findings)
}

/// Switches or blocks: `(list, entry)` names their list and the name of each.
fn lines(part: YamlValue, (list, entry): (&str, &str), findings: &mut Findings) -> Vec<SwitchLine> {
    let YamlValue::Map(fields, _) = part else {
        findings.error(part.origin(), list, format!("`{list}:` is expected"), "");
        return Vec::new();
    };
    let mut out = Vec::new();
    for (key, at, part) in fields {
        match part {
            _ if key != list => unknown(&key, &at, findings),
            YamlValue::List(entries, _) => {
                for part in entries {
                    out.extend(line(part, entry, findings));
                }
            }
            other => {
                let message = format!("{list}: a list is expected");
                findings.error(other.origin(), list, message, "");
            }
        }
    }
    out
}

fn line(part: YamlValue, entry: &str, findings: &mut Findings) -> Option<SwitchLine> {
    let YamlValue::Map(fields, origin) = part else {
        let message = format!("`{entry}: NAME` is expected");
        findings.error(part.origin(), entry, message, "");
        return None;
    };
    let mut line = SwitchLine {
        name: String::new(),
        switches: Vec::new(),
        nodes: Vec::new(),
        link_speed: 1,
        origin,
    };
    for (key, at, part) in fields {
        match key.as_str() {
            "nodes" => line.nodes = hosts(&part, &key, findings),
            "children" if entry == "switch" => line.switches = hosts(&part, &key, findings),
            key if key == entry => line.name = text(&part, key, findings)?,
            _ => unknown(&key, &at, findings),
        }
    }
    if line.name.is_empty() {
        let message = format!("the {entry} has no name");
        findings.error(&line.origin, entry, message, format!("add `{entry}: NAME`"));
        return None;
    }
    Some(line)
}

fn unknown(key: &str, at: &Origin, findings: &mut Findings) {
    let message = format!("{key} is not known in topology.yaml");
    findings.warn(at, key, message, "it is ignored; remove or correct it");
}

fn text(part: &YamlValue, key: &str, findings: &mut Findings) -> Option<String> {
    match part {
        YamlValue::Text(text, _) => Some(text.clone()),
        other => {
            findings.error(
                other.origin(),
                key,
                format!("{key}: a word is expected"),
                "",
            );
            None
        }
    }
}

fn truth(part: &YamlValue, key: &str, findings: &mut Findings) -> bool {
    let word = text(part, key, findings).unwrap_or_default();
    match word.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => true,
        "false" | "no" | "off" => false,
        _ => {
            let message = format!("{key}: `{word}` is neither true nor false");
            findings.error(part.origin(), key, message, "");
            false
        }
    }
}

fn hosts(part: &YamlValue, key: &str, findings: &mut Findings) -> Vec<String> {
    let text = match part {
        // A list of hostlists reads like one.
        YamlValue::List(list, _) => {
            let words = list.iter().filter_map(|part| text(part, key, findings));
            words.collect::<Vec<_>>().join(",")
        }
        part => text(part, key, findings).unwrap_or_default(),
    };
    hostlist::parse(&text).unwrap_or_else(|error| {
        findings.error(part.origin(), key, format!("{key}: {error}"), "");
        Vec::new()
    })
}

/// An open item while events come: a list, or a map with a key that waits for its value.
enum Open {
    List(Vec<YamlValue>, Origin),
    Map(
        Vec<(String, Origin, YamlValue)>,
        Option<(String, Origin)>,
        Origin,
    ),
}

/// The first document of the text, or a syntax error and its place.
fn parse(text: &str, file: &Arc<str>) -> Result<Option<YamlValue>, (Origin, String)> {
    let mut open: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let marker = error.marker();
            let at = place(file, marker.line(), marker.col());
            (at, error.info().to_owned())
        })?;
        let at = origin(file, &span);
        let done = match event {
            Event::Scalar(text, ..) => YamlValue::Text(text.into_owned(), at),
            Event::SequenceStart(..) => {
                open.push(Open::List(Vec::new(), at));
                if open.len() > DEEPEST {
                    return Err((origin(file, &span), "lists are too deep".to_owned()));
                }
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::Map(Vec::new(), None, at));
                if open.len() > DEEPEST {
                    return Err((origin(file, &span), "maps are too deep".to_owned()));
                }
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(list, at)) => YamlValue::List(list, at),
                Some(Open::Map(fields, _, at)) => YamlValue::Map(fields, at),
                None => continue,
            },
            Event::Alias(_) => return Err((at, "aliases are not used here".to_owned())),
            Event::DocumentEnd | Event::StreamEnd => return Ok(None),
            _ => continue,
        };
        match open.last_mut() {
            None => return Ok(Some(done)),
            Some(Open::List(list, _)) => list.push(done),
            Some(Open::Map(fields, waiting, _)) => match (waiting.take(), done) {
                (Some((key, at)), value) => fields.push((key, at, value)),
                (None, YamlValue::Text(key, at)) => *waiting = Some((key, at)),
                (None, other) => {
                    return Err((other.origin().clone(), "a key is a word here".to_owned()));
                }
            },
        }
    }
    Ok(None)
}

fn origin(file: &Arc<str>, span: &Span) -> Origin {
    place(file, span.start.line(), span.start.col())
}

fn place(file: &Arc<str>, line: usize, column: usize) -> Origin {
    Origin {
        file: file.clone(),
        line: u32::try_from(line).unwrap_or(0),
        column: u32::try_from(column + 1).unwrap_or(0),
    }
}
