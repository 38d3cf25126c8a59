//! Columns of `format=`: the words that name them, how short each may be, and what stands above.

use crate::listing::Failure;

/// A column: its word, the fewest letters of it that will do, its header and its width.
type KnownColumn = (&'static str, usize, &'static str, usize);

const COLUMNS: &[KnownColumn] = &[
    ("Account", 3, "Account", 10),
    ("Acct", 3, "Account", 10),
    ("Action", 4, "Action", 20),
    ("Actor", 4, "Actor", 10),
    ("AdminLevel", 2, "Admin", 9),
    ("Allocated", 7, "% Allocated", 11),
    ("Allowed", 5, "% Allowed", 10),
    ("Assoc", 2, "Assocs", 10),
    ("Associations", 2, "Assocs", 10),
    ("Classification", 3, "Class", 9),
    ("Cluster", 2, "Cluster", 10),
    ("Clusters", 2, "Cluster", 10),
    ("ClusterNodes", 8, "Cluster Nodes", 20),
    ("Coordinators", 2, "Coord Accounts", 20),
    ("CPUCount", 2, "CPU Cnt", 7),
    ("ControlHost", 8, "ControlHost", 15),
    ("ControlPort", 8, "ControlPort", 12),
    ("Count", 3, "Count", 6),
    ("CountAllowed", 6, "# Allowed", 10),
    ("CountUsed", 6, "# Used", 10),
    ("DefaultAccount", 8, "Def Acct", 10),
    ("DefaultQOS", 8, "Def QOS", 9),
    ("DefaultWCKey", 8, "Def WCKey", 10),
    ("Description", 3, "Descr", 20),
    ("Descr", 3, "Descr", 20),
    ("Duration", 2, "Duration", 13),
    ("End", 2, "TimeEnd", 19),
    ("Event", 2, "Event", 7),
    ("EventRaw", 6, "EventRaw", 8),
    ("Fairshare", 2, "Share", 9),
    ("Features", 3, "Features", 20),
    ("Federation", 3, "Federation", 10),
    ("FedState", 4, "FedState", 12),
    ("FedStateRaw", 9, "FedStateRaw", 11),
    ("Flags", 2, "Flags", 20),
    ("GraceTime", 3, "GraceTime", 10),
    ("GrpCPUs", 6, "GrpCPUs", 8),
    ("GrpCPUMins", 7, "GrpCPUMins", 11),
    ("GrpCPURunMins", 7, "GrpCPURunMins", 13),
    ("GrpJobs", 4, "GrpJobs", 7),
    ("GrpJobsAccrue", 8, "GrpJobsAccrue", 13),
    ("GrpMemory", 4, "GrpMem", 7),
    ("GrpNodes", 4, "GrpNodes", 8),
    ("GrpSubmitJobs", 4, "GrpSubmit", 9),
    ("GrpTRES", 7, "GrpTRES", 13),
    ("GrpTRESMins", 8, "GrpTRESMins", 13),
    ("GrpTRESRunMins", 8, "GrpTRESRunMins", 13),
    ("GrpWall", 4, "GrpWall", 11),
    ("ID", 2, "ID", 6),
    ("Info", 2, "Info", 20),
    ("LFT", 1, "LFT", 6),
    ("LimitFactor", 6, "LimitFactor", 11),
    ("MaxCPUs", 7, "MaxCPUs", 8),
    ("MaxCPUMins", 7, "MaxCPUMins", 11),
    ("MaxCPUMinsPerJob", 7, "MaxCPUMins", 11),
    ("MaxCPUsPerJob", 7, "MaxCPUs", 8),
    ("MaxCPUsPerUser", 11, "MaxCPUsPU", 9),
    ("MaxJobs", 4, "MaxJobs", 7),
    ("MaxJobsAccrue", 8, "MaxJobsAccrue", 13),
    ("MaxJobsAccruePerAccount", 17, "MaxJobsAccruePA", 15),
    ("MaxJobsAccruePerUser", 17, "MaxJobsAccruePU", 15),
    ("MaxJobsAccruePA", 15, "MaxJobsAccruePA", 15),
    ("MaxJobsAccruePU", 15, "MaxJobsAccruePU", 15),
    ("MaxJobsPerAccount", 11, "MaxJobsPA", 9),
    ("MaxJobsPerUser", 11, "MaxJobsPU", 9),
    ("MaxJobsPA", 9, "MaxJobsPA", 9),
    ("MaxJobsPU", 9, "MaxJobsPU", 9),
    ("MaxNodes", 4, "MaxNodes", 8),
    ("MaxNodesPerJob", 4, "MaxNodes", 8),
    ("MaxNodesPerUser", 12, "MaxNodesPU", 10),
    ("MaxSubmitJobs", 4, "MaxSubmit", 9),
    ("MaxSubmitJobsPerAccount", 17, "MaxSubmitPA", 11),
    ("MaxSubmitJobsPerUser", 14, "MaxSubmitPU", 11),
    ("MaxSubmitJobsPA", 15, "MaxSubmitPA", 11),
    ("MaxSubmitJobsPU", 15, "MaxSubmitPU", 11),
    ("MaxSubmitPA", 11, "MaxSubmitPA", 11),
    ("MaxSubmitPU", 10, "MaxSubmitPU", 11),
    ("MaxTRES", 7, "MaxTRES", 13),
    ("MaxTRESMins", 8, "MaxTRESMins", 13),
    ("MaxTRESMinsPerJob", 8, "MaxTRESMins", 13),
    ("MaxTRESPerAccount", 11, "MaxTRESPA", 13),
    ("MaxTRESPerJob", 7, "MaxTRES", 13),
    ("MaxTRESPerNode", 11, "MaxTRESPerNode", 14),
    ("MaxTRESPerUser", 11, "MaxTRESPU", 13),
    ("MaxTRESPA", 9, "MaxTRESPA", 13),
    ("MaxTRESPJ", 9, "MaxTRES", 13),
    ("MaxTRESPU", 9, "MaxTRESPU", 13),
    ("MaxTRESRunMins", 8, "MaxTRESRunMinsPU", 15),
    ("MaxTRESRunMinsPerAccount", 15, "MaxTRESRunMinsPA", 15),
    ("MaxTRESRunMinsPerUser", 8, "MaxTRESRunMinsPU", 15),
    ("MaxTRESRunMinsPA", 15, "MaxTRESRunMinsPA", 15),
    ("MaxTRESRunMinsPU", 8, "MaxTRESRunMinsPU", 15),
    ("MaxWall", 4, "MaxWall", 11),
    ("MaxWallDurationPerJob", 4, "MaxWall", 11),
    ("MinCPUs", 7, "MinCPUs", 8),
    ("MinCPUsPerJob", 7, "MinCPUs", 8),
    ("MinPrioThreshold", 4, "MinPrioThres", 12),
    ("MinPrioThresh", 4, "MinPrioThres", 12),
    ("MinTRES", 7, "MinTRES", 13),
    ("MinTRESPerJob", 7, "MinTRES", 13),
    ("Name", 2, "Name", 10),
    ("NodeCount", 5, "NodeCount", 9),
    ("NodeInx", 5, "NodeInx", 9),
    ("NodeName", 5, "NodeName", 15),
    ("NodeNames", 5, "NodeName", 15),
    ("Organization", 1, "Org", 20),
    ("ParentID", 7, "ParentID", 8),
    ("ParentName", 7, "ParentName", 10),
    ("Partition", 4, "Partition", 10),
    ("PluginIDSelect", 2, "PluginIDSelect", 14),
    ("Preempt", 7, "Preempt", 10),
    ("PreemptExemptTime", 8, "PreemptExemptTime", 19),
    ("PreemptMode", 8, "PreemptMode", 11),
    ("Priority", 3, "Priority", 10),
    ("Problem", 1, "Problem", 40),
    ("QOS", 3, "QOS", 20),
    ("QOSLevel", 3, "QOS", 20),
    ("QOSRAW", 4, "QOS_RAW", 10),
    ("Reason", 1, "Reason", 30),
    ("RGT", 2, "RGT", 6),
    ("RPC", 2, "RPC", 5),
    ("Server", 3, "Server", 10),
    ("ServerType", 10, "ServerType", 10),
    ("Share", 1, "Share", 9),
    ("Start", 4, "TimeStart", 19),
    ("State", 2, "State", 6),
    ("StateRaw", 6, "StateRaw", 8),
    ("TimeEnd", 6, "TimeEnd", 19),
    ("TimeStamp", 2, "Time", 19),
    ("TimeStart", 8, "TimeStart", 19),
    ("Time", 2, "Time", 19),
    ("TRES", 2, "TRES", 20),
    ("Type", 2, "Type", 8),
    ("UnusedWall", 2, "UnusedWall", 10),
    ("UsageFactor", 6, "UsageFactor", 11),
    ("UsageThreshold", 6, "UsageThres", 10),
    ("User", 1, "User", 10),
    ("WCKey", 2, "WCKeys", 20),
    ("WCKeys", 2, "WCKeys", 20),
    ("Where", 2, "Where", 20),
];

/// Keys of users have columns of their own.
const OF_WCKEYS: &[KnownColumn] = &[
    ("WCKeys", 1, "WCKey", 10),
    ("Names", 1, "WCKey", 10),
    ("Clusters", 2, "Cluster", 10),
    ("IDs", 1, "ID", 6),
    ("Users", 1, "User", 10),
];

/// A column as it is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListingColumn {
    /// Text above the column; it names the kind of the cells, too.
    pub(super) header: &'static str,
    /// Characters.
    pub(super) width: usize,
    /// Words begin at the left edge.
    pub(super) left: bool,
    /// Whether a width was given.
    pub(super) has_width: bool,
}

/// The columns of a format.
pub(super) fn columns(format: &str, of_wckeys: bool) -> Result<Vec<ListingColumn>, Failure> {
    let known = if of_wckeys { OF_WCKEYS } else { COLUMNS };
    format.split(',').map(|word| column(word, known)).collect()
}

fn column(word: &str, known: &[KnownColumn]) -> Result<ListingColumn, Failure> {
    let (name, width) = word.split_once('%').unwrap_or((word, ""));
    let found = known
        .iter()
        .find(|(own, least, ..)| name.len() >= *least && super::begins(own, name));
    let Some((_, _, header, usual)) = found else {
        return Err(Failure::new(format!("Unknown field '{name}'")));
    };
    let digits = width.trim().trim_start_matches('-');
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    let width_given = digits
        .parse()
        .ok()
        .filter(|width| (1..=65_535).contains(width));
    Ok(ListingColumn {
        header,
        width: width_given.unwrap_or(*usual),
        left: width.starts_with('-') || *header == "NodeName",
        has_width: width_given.is_some(),
    })
}

/// Layout of a listing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListingStyle {
    /// No line above the columns.
    pub(super) no_header: bool,
    /// Bars between fields, and whether one at the end.
    pub(super) bars: Option<bool>,
}

/// The text of a listing.
pub(super) fn table(
    columns: &[ListingColumn],
    rows: &[Vec<String>],
    style: ListingStyle,
) -> String {
    let mut out = String::new();
    if !style.no_header {
        let names = columns.iter().map(|column| column.header.to_owned());
        line(&mut out, columns, &names.collect::<Vec<_>>(), style, false);
        if style.bars.is_none() {
            for column in columns {
                out.extend(std::iter::repeat_n('-', column.width));
                out.push(' ');
            }
            out.push('\n');
        }
    }
    for row in rows {
        line(&mut out, columns, row, style, true);
    }
    out
}

/// A line; longer cells are cut, in the lines of a listing with a plus.
fn line(
    out: &mut String,
    columns: &[ListingColumn],
    cells: &[String],
    style: ListingStyle,
    marked: bool,
) {
    for (at, (column, cell)) in columns.iter().zip(cells).enumerate() {
        let width = column.width;
        match style.bars {
            Some(last) => {
                out.push_str(if at > 0 && !last { "|" } else { "" });
                out.push_str(cell);
                out.push_str(if last { "|" } else { "" });
            }
            None if cell.chars().count() > width => {
                let kept = if marked { width - 1 } else { width };
                out.extend(cell.chars().take(kept));
                out.push_str(if marked { "+ " } else { " " });
            }
            None if column.left => out.push_str(&format!("{cell:<width$} ")),
            None => out.push_str(&format!("{cell:>width$} ")),
        }
    }
    out.push('\n');
}
