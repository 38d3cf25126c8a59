//! Reports on a cluster that did not exist all the time.

use super::super::measure::TimeFormat;
use super::*;

/// As Slurm does, for a cluster of 16 CPUs that was made in the middle of an hour.
#[test]
fn a_cluster_reports_nothing_before_it_existed() {
    let at = Timestamp::from_unix_s;
    let report = |start: i64, since: Option<i64>| {
        let facts = ReportData {
            cluster: "peer".to_owned(),
            period: Period {
                start: at(start),
                end: at(start + 3600),
            },
            now: at(900_000),
            jobs: Vec::new(),
            usage: Vec::new(),
            accounts: Accounts::default(),
            reservations: Vec::new(),
            nodes: vec![ReportNode {
                name: "n1".to_owned(),
                cpus: 16,
                memory_mib: 0,
                devices: BTreeMap::new(),
            }],
            licenses: Vec::new(),
            outages: Vec::new(),
            since: since.map(at),
            whole: true,
        };
        let mut settings = Settings {
            style: Default::default(),
            time: TimeFormat::parse("minutes").unwrap(),
            tres: None,
            document: None,
        };
        settings.style.bars = Some(false);
        settings.style.bare = true;
        let table = utilization(&facts, &ReportRequest::default(), &settings).unwrap();
        table.render(settings.style)
    };
    assert_eq!(report(0, Some(3600)), "");
    assert_eq!(report(3600, Some(5400)), "peer|0|0|0|480|0|480\n");
    assert_eq!(report(7200, Some(5400)), "peer|0|0|0|960|0|960\n");
    assert_eq!(report(0, None), "peer|0|0|0|960|0|960\n");
}
