//! What fields of an update change.

use super::*;
use crate::listing::fixture;
use muster_model::job::JobState;

fn pair(text: &str) -> Pair {
    let (key, value) = text.split_once('=').unwrap();
    let sign = key.chars().last().filter(|c| matches!(c, '+' | '-'));
    Pair {
        text: text.to_owned(),
        key: key.trim_end_matches(['+', '-']).to_ascii_lowercase(),
        sign,
        value: value.to_owned(),
    }
}

fn read(texts: &[&str]) -> Result<JobUpdate, String> {
    let mut load =
        || -> Result<Job, ConnectError> { Err(Refusal::from(RefusalCode::InvalidJobId).into()) };
    let mut change = JobEdit {
        update: JobUpdate {
            ask: Some(ResourceAsk::default()),
            ..JobUpdate::default()
        },
        load: &mut load,
        failed: None,
        cpus: None,
    };
    for text in texts {
        let pair = pair(text);
        let (_, _, read) = KEYS
            .iter()
            .find(|(name, letters, _)| pair.is(name, *letters))
            .ok_or("unknown")?;
        read(&mut change, &pair)?;
    }
    change.settle_cpus()?;
    Ok(change.update)
}

#[test]
fn cpus_are_shared_by_tasks() {
    let shape = |texts: &[&str]| {
        read(texts).map(|u| {
            let ask = u.ask.unwrap();
            (ask.task_count(), ask.cpus_of_task())
        })
    };
    assert_eq!(shape(&["NumCPUs=4"]), Ok((1, 4)));
    assert_eq!(shape(&["NumTasks=2", "NumCPUs=8"]), Ok((2, 4)));
    assert_eq!(shape(&["NumCPUs=8-16", "NumTasks=2"]), Ok((2, 4)));
    assert_eq!(shape(&["NumTasks=4", "NumCPUs=2"]), Ok((2, 1)));
    assert_eq!(shape(&["NumTasks=4", "NumCPUs=6"]), Ok((6, 1)));
    assert_eq!(
        shape(&["NumTasks=2", "CPUsPerTask=2", "NumCPUs=4"]),
        Ok((2, 2))
    );
    assert!(shape(&["NumTasks=2", "CPUsPerTask=2", "NumCPUs=5"]).is_err());
    for bad in ["NumCPUs=0", "NumCPUs=8-4", "NumCPUs=x", "NumCPUs="] {
        assert!(shape(&[bad]).is_err(), "{bad}");
    }
}

#[test]
fn nodes_of_a_job_that_waits_are_those_it_asks_for() {
    let given = |job: Job| {
        let mut load = || Ok(job.clone());
        let mut change = JobEdit {
            update: JobUpdate::default(),
            load: &mut load,
            failed: None,
            cpus: None,
        };
        nodelist(&mut change, &pair("NodeList=n1")).unwrap();
        let asked = change.update.ask.and_then(|ask| ask.nodelist);
        (asked, change.update.nodelist)
    };
    let n1 = Some("n1".to_owned());
    assert_eq!(given(fixture::job(7, "x")), (n1.clone(), None));
    let mut running = fixture::job(7, "x");
    running.state = JobState::Running;
    assert_eq!(given(running), (None, n1));
}

#[test]
fn values_of_keys() {
    let u = read(&[
        "TimeLimit=10",
        "NumNodes=2-3",
        "Priority=5",
        "Nice=",
        "Partition=a,b",
        "Gres=gpu:2",
    ])
    .unwrap();
    assert_eq!(u.time_limit, Some(TimeLimit::Minutes(10)));
    let ask = u.ask.unwrap();
    assert_eq!((ask.min_nodes, ask.max_nodes), (2, Some(3)));
    assert_eq!(
        (u.priority, u.nice, ask.gres[0].count),
        (Some(5), Some(100), 2)
    );
    assert_eq!(read(&["TimeLimit=+5"]).unwrap().time_delta_min, Some(5));
    assert_eq!(read(&["TimeLimit-=5"]).unwrap().time_delta_min, Some(-5));
    assert_eq!(
        read(&["timel=1:00:00"]).unwrap().time_limit,
        Some(TimeLimit::Minutes(60))
    );
    assert_eq!(
        read(&["Dependency="]).unwrap().dependency,
        Some(Dependency::default())
    );
    for (factor, why) in [
        ("2147483646", "SiteFactor value out of range"),
        ("-2147483646", "SiteFactor value out of range"),
        ("most", "Invalid SiteFactor value"),
    ] {
        let text = format!("SiteFactor={factor}");
        assert_eq!(read(&[text.as_str()]).unwrap_err(), why);
    }
    assert_eq!(
        read(&["TimeLimit=foo"]).unwrap_err(),
        "Invalid TimeLimit value"
    );
    assert_eq!(
        read(&["Priority=foo"]).unwrap_err(),
        "Invalid Priority value: foo"
    );
    assert_eq!(read(&["nosuch=1"]).unwrap_err(), "unknown");
}
