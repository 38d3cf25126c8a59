//! qconf on a real cluster.

use crate::cluster::Cluster;

#[test]
fn settings_are_shown_in_the_rows_of_grid_engine() {
    let c = Cluster::start(1, 2);
    let scheduler = c.ok("qconf -ssconf");
    assert!(
        scheduler.starts_with(
            "algorithm                         default\nschedule_interval                 0:0:0\nmaxujobs                          0\n"
        ) && scheduler.lines().count() == 35,
        "{scheduler}"
    );
    let global = c.ok("qconf -sconf");
    assert!(
        global.starts_with("#global:\nexecd_spool_dir              /")
            && global.lines().count() == 49,
        "{global}"
    );
    assert!(
        global.contains("\nprolog                       none\n"),
        "{global}"
    );
    for (command, line) in [
        ("qconf -sconf n1", "configuration n1 not defined\n"),
        (
            "qconf -sconf nosuch",
            "can't resolve hostname \"nosuch\": can't resolve host name\n",
        ),
        ("qconf -scal x", "x is not a calendar\n"),
        ("qconf -sprj x", "x is not known as a project\n"),
    ] {
        let ran = c.run(command);
        assert_eq!((ran.code, ran.err.as_str()), (1, line), "{command}");
    }
    assert!(
        c.run("qconf -secl").out.starts_with(
            "      ID NAME            HOST                     \n--------------------------------------------------\n       1 scheduler       "
        )
    );
}

#[test]
fn qconf_changes_users_lists_projects_and_shares() {
    let c = Cluster::start(1, 2);
    c.write("sge_conf", "project p12 physics\n");
    c.ok("cp sge_conf \"$(dirname $SLURM_CONF)/sge.conf\"");
    c.write(
        "project",
        "name p12\noticket 0\nfshare 0\nacl NONE\nxacl NONE\n",
    );
    c.ok("qconf -Aprj project");
    c.ok("qconf -au nobody p12");
    c.ok("qconf -ao nobody");
    c.ok("qconf -mstnode /p12=30,/p12/user:nobody=5");
    assert_eq!(
        c.ok("sacctmgr -n -P show assoc where account=physics format=account,user,share"),
        "physics||30\nphysics|nobody|5"
    );
    let level = "sacctmgr -n -P show user nobody format=adminlevel";
    assert_eq!(c.ok(level), "Operator");
    c.ok("qconf -do nobody");
    assert_eq!(c.ok(level), "None");
    c.ok("qconf -du nobody p12");
    c.ok("qconf -dprj p12");
    assert_eq!(
        c.ok("sacctmgr -n -P show assoc where account=physics format=account"),
        ""
    );
    let unknown = c.run("qconf -am nosuchuser");
    assert_ne!(unknown.code, 0, "{unknown:?}");
    let malformed = c.run("qconf -am 'a b'");
    assert_eq!(
        malformed.err,
        "qconf: \"a b\" is not a valid list of names\n"
    );
    let in_file = c.run("qconf -aq new.q");
    assert!(
        in_file.err.contains("PartitionName lines of slurm.conf"),
        "{in_file:?}"
    );
}
