//! sinfo: nodes and partitions, grouped by what the columns tell apart.

mod group;
mod select;

use super::context::Ctx;
use super::document::Dialect;
use super::format::{Column, Complaint, Layout};
use super::node::NodeView;
use super::node_fields::{self, NodeGroup, Nodes};
use super::options::{Opt, Parsed, Value, alias, env, long, opt, parse};
use super::{Failure, failed_call, node_document, print, query};
use crate::connect::Client;
use muster_core::ids::NodeIdx;
use std::collections::HashSet;
use std::time::Duration;

static OPTIONS: &[Opt] = &[
    opt('a', "all", Value::No),
    alias(opt('M', "clusters", Value::Yes), &["cluster"]),
    opt('d', "dead", Value::No),
    opt('e', "exact", Value::No),
    long("federation", Value::No),
    opt('F', "future", Value::No),
    opt('o', "format", Value::Yes),
    opt('O', "Format", Value::Yes),
    long("help", Value::No),
    long("hide", Value::No),
    opt('i', "iterate", Value::Yes),
    long("json", Value::Maybe),
    opt('R', "list-reasons", Value::No),
    long("local", Value::No),
    opt('l', "long", Value::No),
    long("noconvert", Value::No),
    opt('N', "Node", Value::No),
    opt('n', "nodes", Value::Yes),
    opt('h', "noheader", Value::No),
    opt('p', "partition", Value::Yes),
    opt('T', "reservation", Value::No),
    opt('r', "responding", Value::No),
    opt('S', "sort", Value::Yes),
    opt('t', "states", Value::Yes),
    opt('s', "summarize", Value::No),
    long("usage", Value::No),
    opt('v', "verbose", Value::No),
    opt('V', "version", Value::No),
    long("yaml", Value::Maybe),
];

const USAGE: &str = "\
Usage: sinfo [-i seconds] [-n nodes] [-o format] [-O Format] [-p partitions] [-S sort keys] [-t states]
             [--json[=version]] [--yaml[=version]] [-adehlNRrsTvV]
";

const HELP: &str = "\
Usage: sinfo [OPTIONS]
Shows partitions and the states of their nodes.

  -a, --all                 hidden partitions too
  -M, --clusters=NAME       this cluster's name, or 'all'
  -d, --dead                only nodes that do not respond
  -e, --exact               a line for each size of node, instead of the least with a '+'
  -o, --format=FORMAT       columns as %[[.]size]letter, see sinfo(1)
  -O, --Format=LIST         columns as name[:[.]size|:suffix], see sinfo(1)
      --hide                no hidden partitions (the default)
  -i, --iterate=SECONDS     again and again
      --json[=VERSION]      as JSON; --json=list names the versions
  -R, --list-reasons        why nodes are down or drained
  -l, --long                more columns
      --noconvert           no effect: sizes are in megabytes as they are
  -N, --Node                a line for each node and partition
  -n, --nodes=HOSTLIST      these nodes
  -h, --noheader            no line above the columns
  -p, --partition=LIST      these partitions
  -T, --reservation         reservations
  -r, --responding          only nodes that respond
  -S, --sort=KEYS           order by letters of --format, each with + or - in front
  -t, --states=LIST         nodes in any of these states; with & between them, in all of them
  -s, --summarize           a line for each partition
      --usage               the options in short
  -v, --verbose             say what is asked
  -V, --version             the version
      --yaml[=VERSION]      as YAML
      --federation, --local no effect: a cluster here is in no federation
";

/// What is shown.
#[derive(Debug, Default)]
pub(crate) struct Options {
    selection: select::Selection,
    letters: Option<String>,
    names: Option<String>,
    no_header: bool,
    iterate_s: Option<u64>,
    long: bool,
    by_node: bool,
    reasons: bool,
    summary: bool,
    exact: bool,
    reservations: bool,
    sort: Option<String>,
    cluster_line: bool,
    document: Option<Dialect>,
}

/// Runs sinfo.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = parse("sinfo", OPTIONS, args)?;
    if let Some(text) = information(&parsed) {
        print(&text);
        return Ok(());
    }
    let options = Options::new(parsed)?;
    loop {
        once(&options)?;
        let Some(seconds) = options.iterate_s else {
            return Ok(());
        };
        print("\n");
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

fn information(parsed: &Parsed) -> Option<String> {
    parsed.options.iter().find_map(|(name, value)| match *name {
        "help" => Some(HELP.to_owned()),
        "usage" => Some(USAGE.to_owned()),
        "version" => Some(format!("slurm {}\n", super::SLURM_VERSION)),
        "json" | "yaml" if value.as_deref() == Some("list") => Some(Dialect::list()),
        _ => None,
    })
}

impl Options {
    fn new(parsed: Parsed) -> Result<Options, Failure> {
        if let Some(operand) = parsed.operands.first() {
            return Err(Failure::new(format!(
                "sinfo: error: Unrecognized option: {operand}\n{}",
                USAGE.trim_end()
            )));
        }
        let mut options = Options::default();
        for (variable, option) in [
            ("SINFO_ALL", "all"),
            ("SINFO_FORMAT", "format"),
            ("SINFO_PARTITION", "partition"),
            ("SINFO_SORT", "sort"),
            ("SLURM_CLUSTERS", "clusters"),
        ] {
            if let Some(value) = env(variable) {
                options.set(option, value)?;
            }
        }
        for (name, value) in parsed.options {
            options.set(name, value.unwrap_or_default())?;
        }
        Ok(options)
    }

    fn set(&mut self, name: &'static str, value: String) -> Result<(), Failure> {
        match name {
            "all" => self.selection.hidden = true,
            "hide" => self.selection.hidden = false,
            "clusters" => self.cluster_line = super::this_cluster("sinfo", &value)?,
            "dead" => self.selection.dead = true,
            "responding" => self.selection.responding = true,
            "future" => self.selection.future = true,
            "exact" => self.exact = true,
            "format" => (self.letters, self.names) = (Some(value), None),
            "Format" => (self.names, self.letters) = (Some(value), None),
            "iterate" => {
                self.iterate_s = Some(value.parse().ok().filter(|s| *s > 0).ok_or_else(|| {
                    Failure::new(format!(
                        "sinfo: error: Error: invalid entry for --iterate={value}"
                    ))
                })?);
            }
            "json" | "yaml" => {
                self.document = Some(Dialect::parse("sinfo", name == "yaml", &value)?)
            }
            "list-reasons" => self.reasons = true,
            "long" => self.long = true,
            "Node" => self.by_node = true,
            "nodes" => {
                let names = muster_core::hostlist::parse(&value)
                    .map_err(|e| Failure::new(format!("sinfo: error: {e}")))?;
                self.selection.nodes = Some(names.into_iter().collect());
            }
            "noheader" => self.no_header = true,
            "partition" => {
                self.selection.partitions = value
                    .split(',')
                    .filter(|w| !w.is_empty())
                    .map(str::to_owned)
                    .collect();
            }
            "reservation" => self.reservations = true,
            "sort" => self.sort = Some(value),
            "states" => self.selection.states = select::parse_states(&value)?,
            "summarize" => self.summary = true,
            // A cluster here is in no federation; sizes are never converted.
            _ => {}
        }
        Ok(())
    }

    fn default_format(&self, widest_partition: usize, widest_node: usize) -> String {
        let (p, n) = (widest_partition.max(9), widest_node.max(9));
        match (self.summary, self.by_node, self.reasons, self.long) {
            (true, ..) => format!("%{p}P %.5a %.10l %.16F %N"),
            (_, _, true, false) => "%20E %9u %19H %N".to_owned(),
            (_, _, true, true) => "%20E %12U %19H %6t %N".to_owned(),
            (_, true, _, false) => format!("%{n}N %.6D %.{p}P %6t"),
            (_, true, _, true) => {
                format!("%{n}N %.6D %.{p}P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E")
            }
            (_, _, _, true) => format!("%{p}P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"),
            _ => format!("%{p}P %.5a %.10l %.6D %.6t %N"),
        }
    }
}

fn once(options: &Options) -> Result<(), Failure> {
    if options.reservations {
        print("No reservations in the system\n");
        return Ok(());
    }
    let failed = failed_call("slurm_load_partitions");
    let mut client = Client::connect().map_err(&failed)?;
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    let completing = query::cluster(&mut client, &mut ctx).map_err(&failed)?;
    print(&render(options, &ctx, &completing)?);
    Ok(())
}

/// The listing as text.
fn render(options: &Options, ctx: &Ctx, completing: &[NodeIdx]) -> Result<String, Failure> {
    let completing: HashSet<NodeIdx> = completing.iter().copied().collect();
    let views: Vec<NodeView<'_>> = ctx
        .nodes
        .iter()
        .map(|node| NodeView {
            node,
            completing: completing.contains(&node.idx),
        })
        .collect();
    let mut out = String::with_capacity(4096);
    let layout = layout(options, ctx);
    let rows = group::rows(options, &layout, &views, ctx);
    let rows = group::sort(rows, options, ctx)?;
    match options.document {
        Some(dialect) if dialect.is_old() => {
            node_document::write_nodes(&mut out, dialect, &views, ctx);
            return Ok(out);
        }
        Some(dialect) => {
            node_document::write_groups(&mut out, dialect, &rows, ctx);
            return Ok(out);
        }
        None => {}
    }
    if !options.no_header {
        if options.long || options.iterate_s.is_some() {
            out.push_str(&ctx.stamp());
            out.push('\n');
        }
        if options.cluster_line {
            out.push_str(&format!("CLUSTER: {}\n", ctx.cluster));
        }
        layout.header(&mut out);
    }
    rows.iter()
        .for_each(|row: &NodeGroup<'_>| layout.row(&mut out, row, ctx));
    Ok(out)
}

fn layout(options: &Options, ctx: &Ctx) -> Layout<Nodes> {
    let complaint = Complaint {
        letter: "Invalid node format specification: ",
        name: "sinfo: error: Invalid job format specification: ",
    };
    if let Some(names) = &options.names {
        return Layout::names(names, node_fields::FIELDS, &complaint);
    }
    let default;
    let format = match &options.letters {
        Some(letters) => letters.as_str(),
        None => {
            let partitions = ctx
                .partitions
                .iter()
                .map(|p| p.name.len() + usize::from(p.default));
            let nodes = ctx.nodes.iter().map(|n| n.config.name.len());
            default =
                options.default_format(partitions.max().unwrap_or(0), nodes.max().unwrap_or(0));
            &default
        }
    };
    Layout::letters(format, node_fields::FIELDS, &complaint)
}

/// Whether the row's partition is told by one of the columns.
fn names_partition(columns: &[Column<Nodes>]) -> bool {
    columns
        .iter()
        .any(|c| matches!(c.field.names[0], "partition" | "partitionname"))
}

#[cfg(test)]
#[path = "sinfo_tests.rs"]
mod tests;
