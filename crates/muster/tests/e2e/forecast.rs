//! Expected starts, before and after submitting, and what `muster why` says.

use crate::cluster::Cluster;

#[test]
fn a_job_that_waits_is_explained() {
    let c = Cluster::start(2, 1);
    let first = c.sbatch("-N1 -t 60 -o /dev/null --wrap 'sleep 1000'");
    let second = c.sbatch("-N1 -t 20 -o /dev/null --wrap 'sleep 1000'");
    c.until_prints(&format!("squeue -h -j {first},{second} -o %t"), "R\nR");
    let tested = c
        .run("sbatch --test-only -N2 -t 30 -o /dev/null --wrap true")
        .err;
    let both = c.sbatch("-N2 -t 30 -o /dev/null --wrap true");
    let late = c.sbatch("-N1 -t 45 -o /dev/null --wrap true");
    // The first ends at its limit: then both nodes are free, and after that it is the last one's turn.
    let limit = c.ok(&format!("squeue -h -j {first} -o %e"));
    assert_eq!(
        c.ok(&format!("squeue -h --start -j {both} -o '%S %Y'")),
        format!("{limit} n[1-2]")
    );
    assert_eq!(
        tested,
        format!(
            "sbatch: Job {both} to start at {limit} using 2 processors on nodes n[1-2] in partition batch\n"
        )
    );
    let shown = c.ok(&format!("scontrol show job {both}"));
    assert!(
        shown.contains(&format!("StartTime={limit}"))
            && shown.contains("NodeList= SchedNodeList=n[1-2]"),
        "{shown}"
    );
    // The scheduler looked at it when the last one came.
    let submitted = c.ok(&format!("squeue -h -j {late} -o %V"));
    let last = |job| c.ok(&format!("squeue -h -j {job} -O LastSchedEval"));
    assert!(
        last(both).trim() >= submitted.as_str() && !shown.contains("LastSchedEval=Unknown"),
        "{shown}"
    );
    let muster = env!("CARGO_BIN_EXE_muster");
    let why = c.ok(&format!("{muster} why {both}"));
    assert!(
        why.starts_with(&format!("Job {both} waits: Resources\n"))
            && why.contains(&format!("Expected start: {limit} (in "))
            && why.contains(") on n[1-2] in partition batch\n  if jobs run as long as predicted")
            && why.contains(&format!("wrap): 1 CPU, runs on n1 until {limit}"))
            && why.contains("It would start sooner:\n  --nodes=1: "),
        "{why}"
    );
    let json = c.ok(&format!("{muster} why --json {late}"));
    assert!(
        json.contains("\"reason\": \"Priority\"") && json.contains("\"change\": \"--time=22\""),
        "{json}"
    );
    assert_eq!(
        c.ok(&format!("{muster} why {first}")),
        format!("Job {first} does not wait in the queue.\n  It runs on n1.")
    );
    let unknown = c.run(&format!("{muster} why 4711")).err;
    assert!(
        unknown.contains(
            "there is no job 4711 in the queue's memory; 'sacct -j 4711' may have its record"
        ),
        "{unknown}"
    );
    // Reasons name the nodes that are meant.
    c.ok("scontrol update nodename=n2 state=drain reason=broken");
    let named = c.sbatch("-w n2 -t 5 -o /dev/null --wrap true");
    let reason = "ReqNodeNotAvail, UnavailableNodes:n2";
    c.until_prints(&format!("squeue -h -j {named} -o %r"), reason);
    let why = c.ok(&format!("{muster} why {named}"));
    assert!(why.contains("Node n2 is drained (broken)."), "{why}");
}
