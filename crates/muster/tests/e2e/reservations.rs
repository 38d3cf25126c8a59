//! Reservations through the commands.

use crate::cluster::Cluster;

#[test]
fn a_reservation_keeps_others_out_and_lets_its_own_in() {
    let c = Cluster::start(2, 2);
    assert_eq!(
        c.ok("scontrol create reservation ReservationName=r StartTime=now Duration=60 Nodes=n1 Users=root"),
        "Reservation created: r"
    );
    let shown = c.ok("scontrol show reservation r");
    assert!(
        shown.contains(
            "Nodes=n1 NodeCnt=1 CoreCnt=2 Features=(null) PartitionName=(null) Flags=SPEC_NODES"
        ) && shown.contains("State=ACTIVE"),
        "{shown}"
    );
    assert!(c.ok("sinfo -T").contains("ACTIVE"));
    assert_eq!(c.ok("sinfo -h -n n1 -o %t"), "resv");
    let kept_out = c.sbatch("-w n1 -t 5 -o /dev/null --wrap true");
    let inside =
        c.sbatch("--reservation=r -t 5 -o in.out --wrap 'hostname; echo $SLURMD_NODENAME'");
    c.until_prints(
        &format!("sacct -X -n -P -j {inside} -o State,NodeList"),
        "COMPLETED|n1",
    );
    assert_eq!(
        c.ok(&format!("squeue -h -j {kept_out},{kept_out} -o %r")),
        "ReqNodeNotAvail, May be reserved for other job"
    );
    let refused = c.run("sbatch --reservation=nosuch --wrap true");
    assert!(
        refused.err.contains("Requested reservation is invalid"),
        "{}",
        refused.err
    );
    c.ok("scontrol update ReservationName=r Flags+=MAINT,IGNORE_JOBS");
    assert_eq!(c.ok("sinfo -h -n n1 -o %t"), "maint");
    // It is there after a restart of the controller.
    c.kill(c.controller());
    c.start_controller();
    c.until("the controller answers", || {
        c.run("scontrol ping").out.contains("UP")
    });
    assert!(
        c.ok("scontrol show reservation")
            .contains("Flags=MAINT,IGNORE_JOBS,SPEC_NODES")
    );
    assert_eq!(c.ok("scontrol delete reservation=r"), "");
    c.until_prints(
        &format!("sacct -X -n -P -j {kept_out} -o State"),
        "COMPLETED",
    );
    assert_eq!(c.ok("sinfo -T"), "No reservations in the system");
}

#[test]
fn refusals_are_slurms() {
    let c = Cluster::start(1, 2);
    for (command, error) in [
        (
            "scontrol create reservationname=x starttime=now duration=120 nodes=n9 users=root",
            "Error creating the reservation: Invalid node name specified",
        ),
        (
            "scontrol create reservationname=x starttime=now duration=120 nodes=n1",
            "scontrol: error: Either Users/Groups and/or Accounts must be specified.  No reservation created.",
        ),
        (
            "scontrol create foo=1",
            "scontrol: error: Invalid creation entity: foo=1",
        ),
        (
            "scontrol delete reservationname=nosuch",
            "delete_reservation reservationname=nosuch: Requested reservation is invalid",
        ),
        (
            "scontrol update reservationname=nosuch duration=5",
            "slurm_update error: Requested reservation is invalid",
        ),
        ("scontrol show res nosuch", ""),
    ] {
        let ran = c.run(command);
        assert_eq!(ran.code, 1, "{command}");
        assert!(ran.err.contains(error), "{command}: {}", ran.err);
    }
}

/// Reports and listings have what is over: a time for each set of nodes, as a real Slurm 22.05 does of the same commands.
#[test]
fn reservations_that_are_over_are_reported_on() {
    let c = Cluster::start(4, 4);
    c.ok("scontrol create reservation reservationname=rr starttime=now duration=10 users=$(id -un) nodes=n1,n2");
    c.ok("scontrol create reservation reservationname=later starttime=now+1hour duration=10 users=$(id -un) nodes=n3");
    c.ok("srun --reservation=rr -n2 sleep 2");
    c.ok("scontrol update reservationname=rr nodes=n1; sleep 1.2");
    c.ok("scontrol delete reservation=rr; scontrol delete reservation=later");
    let window = "start=now-1hour end=now+1hour";
    let report = c.ok(&format!(
        "sreport -nP -t seconds reservation utilization {window}"
    ));
    let rows: Vec<Vec<&str>> = report
        .lines()
        .map(|line| line.split('|').collect())
        .collect();
    assert_eq!(rows.len(), 2, "{report}");
    let number = |text: &str| -> u64 { text.parse().unwrap() };
    for row in &rows {
        assert_eq!((row[1], row[4]), ("rr", "cpu"), "{report}");
    }
    assert!(number(rows[0][5]) >= 4, "{report}");
    assert_eq!(rows[1][5], "0", "{report}");
    assert!(number(rows[1][6]) >= 4, "{report}");
    assert_eq!(
        rows[0][3], rows[1][2],
        "one ends where the other begins: {report}"
    );
    let listed = c.ok("sacctmgr -nP show reservation format=name,tres,nodenames,flags");
    assert_eq!(
        listed.trim(),
        "rr|cpu=8|n[1-2]|SPEC_NODES\nrr|cpu=4|n1|SPEC_NODES"
    );
    assert_eq!(c.ok("sacctmgr -nP show reservation names=other"), "");
    assert_eq!(
        c.ok("sacctmgr -nP show reservation start=now+1hour end=now+2hours"),
        ""
    );
    // After a restart of the controller they are there as they were.
    c.kill(c.controller());
    c.start_controller();
    c.until("it answers", || c.run("scontrol ping").out.contains("UP"));
    let again = c.ok(&format!(
        "sreport -nP -t seconds reservation utilization {window}"
    ));
    assert_eq!(again, report);
}
