//! Reports on the sizes of jobs: how long jobs of each size ran, by account or wckey.

use super::measure::{TRES, has, ran_s};
use super::reports::{ReportData, heading};
use super::{ReportRequest, Settings};
use crate::listing::Failure;
use crate::listing::table::{Cell, Column, Table};
use muster_model::accounts::ROOT;
use muster_proto::acct::AcctJob;
use std::collections::{BTreeMap, BTreeSet};

/// Sizes at which another column begins, where nothing is said.
const SIZES: [u64; 4] = [50, 250, 500, 1000];

/// Makes one.
pub(super) fn make(
    report: &str,
    facts: &ReportData,
    request: &ReportRequest,
    settings: &Settings,
) -> Result<Table, Failure> {
    let tres = match settings.tres.as_deref() {
        None => "cpu",
        Some([one]) if TRES.contains(&one.as_str()) || one.starts_with("gres/") => one,
        Some(_) => {
            return Err(Failure::new(
                "sreport: fatal: job reports are about one TRES",
            ));
        }
    };
    let ran: Vec<(&AcctJob, f64)> = facts
        .jobs
        .iter()
        .map(|job| (job, ran_s(job, facts.period, facts.now)))
        .filter(|(job, ran)| {
            *ran > 0.0 && (request.users.is_empty() || request.users.contains(&job.user))
        })
        .collect();
    let size = |job: &AcctJob| has(job, tres) as u64;
    let sizes = ran.iter().map(|(job, _)| size(job));
    let groups = Groups::of(request, sizes);
    let mut sums: BTreeMap<Vec<String>, Vec<f64>> = BTreeMap::new();
    for (job, ran) in ran {
        for name in names(report, facts, request, job) {
            let of = sums
                .entry(name)
                .or_insert_with(|| vec![0.0; groups.count()]);
            of[groups.place(size(job))] += match request.count_jobs {
                true => 1.0,
                false => ran * has(job, tres),
            };
        }
    }
    let all: f64 = sums.values().flatten().sum();
    let rows = sums.iter().map(|(name, of)| {
        let own: f64 = of.iter().sum();
        let amount = |amount: &f64| match request.count_jobs {
            true => Cell::Amount(format!("{amount:.0}")),
            false => Cell::Amount(settings.time.text(*amount, own)),
        };
        let share = if all > 0.0 { own / all * 100.0 } else { 0.0 };
        [
            Cell::Text(facts.cluster.clone()),
            Cell::Text(name.join(":")),
        ]
        .into_iter()
        .chain(of.iter().map(amount))
        .chain([Cell::Amount(format!("{share:.2}%"))])
        .collect()
    });
    Ok(Table {
        rows: rows.collect(),
        columns: columns(report, &groups, settings),
        title: title(report, facts, tres, request, settings),
    })
}

fn title(
    report: &str,
    facts: &ReportData,
    tres: &str,
    request: &ReportRequest,
    settings: &Settings,
) -> Vec<String> {
    let by_key = report == "SizesByWckey";
    let lines = [
        Some(heading(
            if by_key {
                "Job Sizes by Wckey"
            } else {
                "Job Sizes"
            },
            facts,
            true,
        )),
        settings
            .tres
            .as_ref()
            .map(|_| format!("TRES type is {tres}")),
        Some(match request.count_jobs {
            true => "Units are in number of jobs ran".to_owned(),
            false => format!("Time reported in {}", settings.time.name()),
        }),
    ];
    lines.into_iter().flatten().collect()
}

fn columns(report: &str, groups: &Groups, settings: &Settings) -> Vec<Column> {
    let word = if settings.tres.is_some() {
        "TRES"
    } else {
        "CPUs"
    };
    let wide = if settings.time.is_wide() { 20 } else { 13 };
    let mut columns = vec![Column::new("Cluster", 9)];
    columns.push(match report {
        "SizesByWckey" => Column::new("Wckey", 9),
        "SizesByAccountAndWckey" => Column {
            left: true,
            ..Column::new("Account", 20)
        },
        _ => Column::new("Account", 9),
    });
    columns.extend(
        groups
            .headers(word)
            .into_iter()
            .map(|h| Column::new(h, wide)),
    );
    columns.push(Column::new("% of cluster", 12));
    columns
}

/// The lines that a job counts in.
fn names(
    report: &str,
    facts: &ReportData,
    request: &ReportRequest,
    job: &AcctJob,
) -> Vec<Vec<String>> {
    let key = || job.wckey.clone();
    if report == "SizesByWckey" {
        let chosen = request.wckeys.is_empty() || request.wckeys.contains(&job.wckey);
        return if chosen && !job.wckey.is_empty() {
            vec![vec![key()]]
        } else {
            Vec::new()
        };
    }
    let line = facts.line_of(&job.account);
    let tops: Vec<&str> = match request.accounts.is_empty() {
        true => vec![ROOT],
        false => request.accounts.iter().map(String::as_str).collect(),
    };
    let accounts: Vec<String> = match (request.flat, request.as_parent) {
        (true, _) if request.accounts.is_empty() || request.accounts.contains(&job.account) => {
            vec![job.account.clone()]
        }
        (true, _) => Vec::new(),
        (false, false) => tops
            .into_iter()
            .filter(|t| line.contains(t))
            .map(str::to_owned)
            .collect(),
        // The account that is next below, on the way to the job's own.
        (false, true) => tops
            .into_iter()
            .filter_map(|top| {
                let at = line.iter().position(|name| *name == top)?;
                Some((*line.get(at.checked_sub(1)?)?).to_owned())
            })
            .collect(),
    };
    match report {
        "SizesByAccountAndWckey" if job.wckey.is_empty() => Vec::new(),
        "SizesByAccountAndWckey" => accounts.into_iter().map(|a| vec![a, key()]).collect(),
        _ => accounts.into_iter().map(|a| vec![a]).collect(),
    }
}

enum Groups {
    /// The least size of each column but the first.
    Bounds(Vec<u64>),
    /// The size of each column.
    Each(Vec<u64>),
}

impl Groups {
    /// The requested groups, for jobs of these sizes.
    fn of(request: &ReportRequest, sizes: impl Iterator<Item = u64>) -> Groups {
        match &request.grouping {
            None => Groups::Bounds(SIZES.to_vec()),
            Some(bounds) if bounds.is_empty() => {
                let sizes: BTreeSet<u64> = sizes.collect();
                Groups::Each(sizes.into_iter().collect())
            }
            Some(bounds) => Groups::Bounds(bounds.clone()),
        }
    }

    fn count(&self) -> usize {
        match self {
            Groups::Bounds(bounds) => bounds.len() + 1,
            Groups::Each(sizes) => sizes.len(),
        }
    }

    fn place(&self, size: u64) -> usize {
        match self {
            Groups::Bounds(bounds) => bounds.partition_point(|bound| *bound <= size),
            Groups::Each(sizes) => sizes.partition_point(|own| *own < size),
        }
    }

    fn headers(&self, word: &str) -> Vec<String> {
        match self {
            Groups::Each(sizes) => sizes.iter().map(|size| format!("{size} {word}")).collect(),
            Groups::Bounds(bounds) => {
                let starts = std::iter::once(0).chain(bounds.iter().copied());
                let ends = bounds.iter().map(|end| end - 1);
                let ranges = starts
                    .zip(ends)
                    .map(|(start, end)| format!("{start}-{end} {word}"));
                let last = bounds.last().map(|last| format!(">= {last} {word}"));
                ranges.chain(last).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fall_into_groups() {
        let groups = Groups::Bounds(vec![2, 8]);
        assert_eq!(
            groups.headers("CPUs"),
            ["0-1 CPUs", "2-7 CPUs", ">= 8 CPUs"]
        );
        let places: Vec<usize> = [0, 1, 2, 7, 8, 100].map(|size| groups.place(size)).to_vec();
        assert_eq!(places, [0, 0, 1, 1, 2, 2]);
        let each = Groups::Each(vec![1, 4]);
        assert_eq!((each.place(1), each.place(4), each.count()), (0, 1, 2));
    }
}
