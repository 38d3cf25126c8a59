//! sinfo: nodes and partitions, grouped by what the columns tell apart.

mod group;
mod select;

use crate::clusters::ClusterSelection;
use crate::connect::Client;
use crate::listing::context::Ctx;
use crate::listing::document::{self, Dialect};
use crate::listing::format::{Complaint, FormatColumn, Layout};
use crate::listing::node::NodeView;
use crate::listing::node_fields::{self, NodeGroup, Nodes};
use crate::listing::{Failure, complain, failed_call, node_document, print, query};
use crate::options::{Arg, HelpForm, Opt, Parsed, Spec, also, env, flag, opt};
use muster_model::ids::NodeIdx;
use muster_model::private_data::PrivateData;
use std::collections::HashSet;
use std::time::Duration;

/// sinfo.
pub(crate) static SPEC: Spec = Spec {
    name: "sinfo",
    about: "Shows partitions and the states of their nodes.",
    operands: "",
    form: HelpForm::Options,
    options: OPTIONS,
    variables: VARIABLES,
    notes: "",
};

const NO_FEDERATION: &str = "a cluster here is in no federation";

static OPTIONS: &[Opt] = &[
    flag("all", "hidden partitions too").short('a'),
    opt(
        "clusters",
        "LIST",
        "of these clusters, or of all that are known",
    )
    .short('M'),
    also("clusters", "cluster", Arg::Required),
    flag("dead", "only nodes that do not respond").short('d'),
    flag(
        "exact",
        "a line for each size of node, instead of the least with a '+'",
    )
    .short('e'),
    flag("federation", "nodes of all clusters of a federation").stored(NO_FEDERATION),
    flag("future", "nodes in state FUTURE too").short('F'),
    opt("format", "FORMAT", "columns as %[[.]size]letter").short('o'),
    opt("Format", "LIST", "columns as name[:[.]size|:suffix]").short('O'),
    flag("help", "print this help"),
    flag("hide", "no hidden partitions (the default)"),
    opt("iterate", "SECONDS", "again and again").short('i'),
    opt("json", "VERSION", "as JSON; --json=list names the versions").optional(),
    flag("list-reasons", "why nodes are down or drained").short('R'),
    flag("local", "nodes of this cluster only").stored(NO_FEDERATION),
    flag("long", "more columns").short('l'),
    flag("noconvert", "sizes always in megabytes").stored("sizes are in megabytes as they are"),
    flag("Node", "a line for each node and partition").short('N'),
    opt("nodes", "HOSTLIST", "these nodes").short('n'),
    flag("noheader", "no line above the columns").short('h'),
    opt("partition", "PARTITION", "these partitions").short('p'),
    flag("reservation", "reservations").short('T'),
    flag("responding", "only nodes that respond").short('r'),
    opt(
        "sort",
        "KEYS",
        "order by letters of --format, each with + or - in front",
    )
    .short('S'),
    opt(
        "states",
        "LIST",
        "nodes in any of these states; with & between them, in all of them",
    )
    .short('t'),
    flag("summarize", "a line for each partition").short('s'),
    flag("usage", "print a short summary"),
    flag("verbose", "say what is asked").short('v'),
    flag("version", "print the version").short('V'),
    opt("yaml", "VERSION", "as YAML").optional(),
];

static VARIABLES: &[(&str, &str)] = &[
    ("SINFO_ALL", "all"),
    ("SINFO_FORMAT", "format"),
    ("SINFO_PARTITION", "partition"),
    ("SINFO_SORT", "sort"),
    ("SLURM_CLUSTERS", "clusters"),
];

/// The options of sinfo.
#[derive(Debug, Default)]
pub(crate) struct Options {
    selection: select::NodeSelection,
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
    clusters: Option<String>,
    is_next_cluster: bool,
    verbose: bool,
    document: Option<Dialect>,
}

/// Runs sinfo.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    if let Some(text) = document::information(&SPEC, &parsed) {
        print(&text);
        return Ok(());
    }
    if parsed.options.iter().any(|(name, _)| *name == "verbose") {
        print(&SPEC.values(&parsed));
    }
    let mut options = Options::new(parsed)?;
    let clusters = ClusterSelection::of_listing(
        "sinfo",
        options.clusters.as_deref(),
        options.document.is_some(),
    )?;
    loop {
        clusters.each(|is_first| {
            options.is_next_cluster = !is_first;
            once(&options)
        })?;
        let Some(seconds) = options.iterate_s else {
            return Ok(());
        };
        print("\n");
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

impl Options {
    fn new(parsed: Parsed) -> Result<Options, Failure> {
        if let Some(operand) = parsed.operands.first() {
            return Err(Failure::new(format!(
                "sinfo: error: Unrecognized option: {operand}\n{}",
                SPEC.usage().trim_end()
            )));
        }
        let mut options = Options::default();
        for (variable, option) in VARIABLES {
            if let Some(value) = env(variable) {
                options.set(option, value)?;
            }
        }
        let is_given = |option: &str| parsed.options.iter().any(|(name, _)| *name == option);
        let is_set = |variable: &str| env(variable).is_some();
        let of_line = is_given("partition") && is_given("all");
        if of_line || is_set("SINFO_PARTITION") && is_set("SINFO_ALL") {
            return Err(Failure::new(
                "sinfo: fatal: Conflicting options, -p and -a specified",
            ));
        }
        if is_given("all") {
            // All partitions, whatever the variable says.
            options.selection.partitions.clear();
        }
        if is_given("long") && (is_given("format") || is_given("Format")) {
            return Err(Failure::new(
                "sinfo: fatal: Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.",
            ));
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
            "clusters" => self.clusters = Some(value),
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
                let names = muster_model::hostlist::parse(&value)
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
            "verbose" => self.verbose = true,
            other => {
                return Err(Failure::new(format!(
                    "sinfo: error: option --{other} is not implemented"
                )));
            }
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
        return crate::listing::reservation::table(options.no_header, options.long);
    }
    let failed = failed_call("slurm_load_partitions");
    let mut client = Client::connect().map_err(&failed)?;
    if options.verbose {
        complain(&format!(
            "sinfo: asking {}",
            client.endpoint.socket.display()
        ));
    }
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    let completing = query::cluster(&mut client, &mut ctx).map_err(&failed)?;
    query::not_withheld(&ctx, PrivateData::PARTITIONS).map_err(&failed)?;
    query::not_withheld(&ctx, PrivateData::NODES).map_err(failed_call("slurm_load_node"))?;
    print(&render(options, &ctx, &completing)?);
    Ok(())
}

/// The listing as text.
fn render(options: &Options, ctx: &Ctx, completing: &[NodeIdx]) -> Result<String, Failure> {
    let completing: HashSet<NodeIdx> = completing.iter().copied().collect();
    let views: Vec<NodeView<'_>> = ctx
        .nodes
        .iter()
        .map(|node| {
            let reserved = ctx.reserved.get(&node.idx).copied();
            NodeView::new(node, completing.contains(&node.idx), reserved)
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
        if options.is_next_cluster {
            out.push('\n');
        }
        if options.clusters.is_some() {
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

/// Whether the row's partition is shown in one of the columns.
fn names_partition(columns: &[FormatColumn<Nodes>]) -> bool {
    columns
        .iter()
        .any(|c| matches!(c.field.names[0], "partition" | "partitionname"))
}

#[cfg(test)]
mod tests;
