//! The query of qacct to accounting: as much of its options as the controller can decide. Patterns, and fields that only the
//! commands of Grid Engine know, are checked in the answer.

use super::{COLUMNS, DEPARTMENT, Owner, Window};
use crate::grid_engine::{fits, is_pattern, selection, site};
use muster_conf::grid_engine::Mapping;
use muster_model::config::PartitionConfig;
use muster_proto::acct::AcctQuery;

/// Queries that together find all jobs that fit. There are two where jobs are named by number and by name, and none where no job fits.
pub(super) fn queries(
    parsed: &super::Parsed,
    named: &[selection::JobOperand],
    window: Window,
    mapping: &Mapping,
    partitions: &[PartitionConfig],
) -> Vec<AcctQuery> {
    let value = |option: &str| {
        let column = COLUMNS.iter().find(|own| own.options.contains(&option));
        column.and_then(|own| own.pattern(parsed))
    };
    let plain = |option: &str| value(option).filter(|pattern| !is_pattern(pattern));
    if value("D").is_some_and(|pattern| !fits(pattern, DEPARTMENT)) {
        return Vec::new();
    }
    // A job that started or ended within a window was there within it.
    let mut query = AcctQuery {
        start: window.0,
        end: window.1,
        ..AcctQuery::default()
    };
    match Owner::read(parsed) {
        Owner::Any => {}
        Owner::Uid(uid) => query.uids.push(uid),
        Owner::Named(name) => {
            query
                .users
                .extend(Some(name).filter(|n| !is_pattern(n)).map(str::to_owned));
        }
    }
    query.groups.extend(plain("g").map(str::to_owned));
    // `NONE` is how what has none is shown.
    let known = |option: &str| plain(option).filter(|name| *name != "NONE");
    query.accounts.extend(known("P").map(str::to_owned));
    let queue = value("q").map(|text| text.split_once('@').unwrap_or((text, "*")));
    if let Some((queue, _)) = queue.filter(|(queue, _)| !is_pattern(queue)) {
        query.partitions = partitions_of(queue, mapping, partitions);
    }
    let at = queue.map(|(_, at)| at);
    let at = at.filter(|at| !is_pattern(at) && *at != "NONE");
    query.nodes.extend(known("h").or(at).map(str::to_owned));
    by_job(named, query)
}

/// Partitions that a queue may be of: those that there are, and those that are gone.
fn partitions_of(queue: &str, mapping: &Mapping, partitions: &[PartitionConfig]) -> Vec<String> {
    let there = partitions.iter().map(|partition| &partition.name);
    let there = there.filter(|name| site::queue_of(mapping, partitions, name) == queue);
    let mapped = mapping.queues.iter().filter(|(own, _)| own == queue);
    let mut names: Vec<String> = there.chain(mapped.map(|(_, to)| to)).cloned().collect();
    names.push(queue.to_owned());
    names.sort_unstable();
    names.dedup();
    names
}

/// The query for the jobs that are named, by number or by name.
fn by_job(named: &[selection::JobOperand], query: AcctQuery) -> Vec<AcctQuery> {
    let (numbers, names): (Vec<_>, Vec<_>) = named.iter().partition(|one| one.job.is_some());
    if named.is_empty() || names.iter().any(|one| is_pattern(&one.text)) {
        return vec![query];
    }
    let mut queries = Vec::new();
    if !numbers.is_empty() {
        let jobs = numbers.iter().filter_map(|one| Some((one.job?, None)));
        queries.push(AcctQuery {
            jobs: jobs.collect(),
            ..query.clone()
        });
    }
    if !names.is_empty() {
        queries.push(AcctQuery {
            names: names.iter().map(|one| one.text.clone()).collect(),
            ..query
        });
    }
    queries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid_engine::arguments::{self, OperandPosition};
    use muster_model::ids::JobId;
    use muster_model::time::Timestamp;

    fn asked(line: &str) -> Vec<AcctQuery> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let parsed = arguments::parse(&super::super::SPEC, &words, OperandPosition::Mixed).unwrap();
        let named = selection::named(parsed.last("j").unwrap_or_default()).unwrap();
        let mapping = Mapping {
            queues: vec![("long.q".to_owned(), "long".to_owned())],
            ..Mapping::default()
        };
        let partitions = [
            PartitionConfig {
                default: true,
                ..PartitionConfig::named("debug")
            },
            PartitionConfig::named("long"),
        ];
        let window = (Some(Timestamp(1)), Some(Timestamp(9)));
        queries(&parsed, &named, window, &mapping, &partitions)
    }

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    /// All of accounting was read for a user whom the system does not know, for a project and for a queue, and then looked at.
    #[test]
    fn the_controller_is_asked_for_the_jobs_that_fit() {
        let base = AcctQuery {
            start: Some(Timestamp(1)),
            end: Some(Timestamp(9)),
            ..AcctQuery::default()
        };
        let line = "-o nosuchusername -g staff -P bio -q all.q@n2";
        let of = AcctQuery {
            users: texts(&["nosuchusername"]),
            groups: texts(&["staff"]),
            accounts: texts(&["bio"]),
            partitions: texts(&["all.q", "debug"]),
            nodes: texts(&["n2"]),
            ..base.clone()
        };
        assert_eq!(asked(line), [of]);
        let of = AcctQuery {
            uids: vec![0],
            partitions: texts(&["long", "long.q"]),
            nodes: texts(&["n1"]),
            ..base.clone()
        };
        assert_eq!(asked("-o root -q long.q -h n1"), [of]);
        // Patterns, selections that match nothing, and options without a value.
        for line in ["", "-o ge*", "-g * -P NONE -q l*@n* -h NONE", "-o -g -P"] {
            assert_eq!(asked(line), std::slice::from_ref(&base), "{line}");
        }
        assert_eq!(asked("-D physics"), []);
        assert_eq!(asked("-D default*"), [base]);
    }

    /// A name beside a number found nothing.
    #[test]
    fn jobs_are_named_by_number_and_by_name() {
        let found = |line: &str| -> Vec<(Vec<u64>, Vec<String>)> {
            let all = asked(line).into_iter();
            let of = |(JobId(job), _): (JobId, Option<u32>)| job;
            all.map(|query| (query.jobs.into_iter().map(of).collect(), query.names))
                .collect()
        };
        assert_eq!(found("-j 5,7"), [(vec![5, 7], vec![])]);
        assert_eq!(found("-j x"), [(vec![], texts(&["x"]))]);
        assert_eq!(
            found("-j 5,x,y"),
            [(vec![5], vec![]), (vec![], texts(&["x", "y"]))]
        );
        assert_eq!(found("-j 5,x*"), [(vec![], vec![])]);
    }
}
