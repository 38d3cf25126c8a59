//! strigger: programs that the controller runs.

use crate::cluster::Cluster;
use crate::slurm_user::is_root;

/// Where a program writes who it is, what it was given and what it finds, a line each time.
const PROGRAM: &str = "\
#!/bin/sh
echo \"$(id -u) $(id -G) $PWD $(env | grep -c ^SLURM_CONF=) $*\" >> RAN
";

fn with_program(c: &Cluster) {
    let ran = c.dir.join("ran").display().to_string();
    c.write("prog", &PROGRAM.replace("RAN", &ran));
    c.write("ran", "");
    c.ok("chmod 755 .. . prog; chmod 666 ran");
}

fn arguments(c: &Cluster) -> String {
    c.ok("cut -d' ' -f5- ran | tr '\\n' ';'")
}

fn ran(c: &Cluster, wanted: &str) {
    c.until(&format!("programs are run: {wanted}"), || {
        arguments(c) == wanted
    });
}

#[test]
fn programs_run_once_for_nodes_and_jobs_and_outlive_the_controller() {
    let c = Cluster::start(3, 2);
    with_program(&c);
    assert_eq!(
        c.ok("strigger --get; strigger --get -v 2>&1"),
        "strigger: Read 0 trigger records"
    );
    c.ok("strigger --set --node --down -p $PWD/prog");
    c.ok("strigger --set -n'n[2-3]' --drained --flags=PERM -p $PWD/prog");
    let twice = c.run("strigger --set --node --down -p $PWD/prog");
    assert_eq!(
        (twice.code, twice.err.as_str()),
        (1, "slurm_set_trigger: Duplicate event trigger\n")
    );
    let job = c.sbatch("-o /dev/null --wrap 'sleep 1000'");
    c.ok(&format!(
        "strigger --set --jobid={job} --fini -p \"$PWD/prog a b\""
    ));
    c.ok("strigger --set --primary_slurmctld_resumed_operation -p $PWD/prog");
    let listed = c.ok("strigger --get");
    let program = c.dir.join("prog").display().to_string();
    let user = c.ok("id -un");
    assert_eq!(
        listed,
        format!(
            "\
TRIG_ID RES_TYPE   RES_ID TYPE                                OFFSET USER     FLAGS PROGRAM
      1 node            * down                                     0 {user:<8}       {program}
      2 node       n[2-3] drained                                  0 {user:<8} PERM  {program}
      3 job       {job:>7} fini                                     0 {user:<8}       {program} a b
      4 slurmctld       * primary_slurmctld_resumed_operation      0 {user:<8}       {program}"
        )
    );
    c.kill(c.controller());
    assert_eq!(c.start_controller().code, 0);
    ran(&c, "primary_slurmctld_resumed_operation;");
    c.ok("scontrol update nodename=n[1-2] state=drain reason=x");
    ran(&c, "primary_slurmctld_resumed_operation;n2;");
    c.ok(&format!("scancel {job}"));
    ran(
        &c,
        &format!("primary_slurmctld_resumed_operation;n2;a b {job};"),
    );
    c.ok("scontrol update nodename=n[2-3] state=down reason=x");
    let all = format!("primary_slurmctld_resumed_operation;n2;a b {job};n[2-3];");
    ran(&c, &all);
    assert_eq!(c.ok("strigger --get -N | awk '{print $1}'"), "2");
    // What was started is not started again.
    c.kill(c.controller());
    assert_eq!(c.start_controller().code, 0);
    c.ok("strigger --clear --id=2");
    let none = c.run("strigger --clear --id=2");
    assert_eq!(
        (none.code, none.err.as_str()),
        (1, "slurm_clear_trigger: No such process\n")
    );
    assert_eq!(c.run("strigger --clear --id=2 -Q").code, 0);
    let first = c.read("ran");
    let mut words = first.lines().next().unwrap().split(' ');
    let own = c.ok("id -u");
    assert_eq!(words.next(), Some(own.as_str()));
    assert!(first.contains(" / 1 "), "{first}");
    assert_eq!(arguments(&c), all);
}

#[test]
fn accounting_that_cannot_write_fires() {
    let c = Cluster::start(1, 1);
    with_program(&c);
    c.ok("strigger --set --primary_database_failure -p \"$PWD/prog failed\"");
    c.ok("strigger --set --primary_slurmdbd_resumed_operation -p \"$PWD/prog back\"");
    c.write(
        "lock.py",
        "import sqlite3, sys, os, time\n\
         c = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)\n\
         c.execute('BEGIN IMMEDIATE')\n\
         open('locked', 'w').close()\n\
         while not os.path.exists('free'): time.sleep(0.05)\n",
    );
    c.ok("python3 lock.py ../state/accounting.db >/dev/null 2>&1 & while [ ! -e locked ]; do sleep 0.05; done");
    c.sbatch("-o /dev/null --wrap true");
    ran(&c, "failed primary_database_failure;");
    c.ok("touch free");
    ran(
        &c,
        "failed primary_database_failure;back primary_slurmdbd_resumed_operation;",
    );
}

const USERS: &str =
    "NodeName=n1 CPUs=2 State=UNKNOWN\nPartitionName=p Nodes=ALL Default=YES State=UP\n";

#[test]
fn a_users_program_runs_as_the_user() {
    if !is_root() {
        return;
    }
    let c = Cluster::from_conf(&format!(
        "ClusterName=c\nSlurmctldHost=h\nSlurmUser=root\nSlurmctldParameters=allow_user_triggers\n{USERS}"
    ));
    with_program(&c);
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let job = c.ok(&format!(
        "{nobody} sbatch --parsable -D / -o /dev/null --wrap 'sleep 1000'"
    ));
    c.ok(&format!(
        "{nobody} strigger --set --jobid={job} --fini -p $PWD/prog"
    ));
    let own = c.sbatch("-H -o /dev/null --wrap true");
    let others = c.run(&format!(
        "{nobody} strigger --set --jobid={own} --fini -p $PWD/prog"
    ));
    assert_eq!(
        (others.code, others.err.as_str()),
        (
            1,
            "strigger: error: job 2 belongs to root\n\
             slurm_set_trigger: Access/permission denied\n"
        )
    );
    c.ok(&format!("scancel {job}"));
    ran(&c, &format!("{job};"));
    assert_eq!(c.read("ran"), format!("65534 65534 / 1 {job}\n"));
    // It is in no session of root's, whose terminal it could write to, and starts no processes without a bound.
    let ran_in = c.dir.join("ran").display().to_string();
    let text = "#!/bin/sh\necho $(($(cut -d' ' -f6 /proc/$$/stat) - $$)) $(awk '/^Max processes/ {print $4}' /proc/$$/limits) >> RAN\n";
    c.write("prog", &text.replace("RAN", &ran_in));
    c.write("ran", "");
    c.ok("chmod 666 ran");
    c.ok(&format!("{nobody} strigger --set --drained -p $PWD/prog"));
    c.ok("scontrol update nodename=n1 state=drain reason=x");
    c.until("the program has run", || !c.read("ran").is_empty());
    assert_eq!(c.read("ran"), "0 4096\n");
    c.ok("scontrol update nodename=n1 state=resume");
    // Nobody who is not let has one.
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(
        &conf,
        text.replace("allow_user_triggers", "enable_configless"),
    )
    .unwrap();
    c.ok("scontrol reconfigure");
    let refused = c.run(&format!("{nobody} strigger --set --down -p $PWD/prog"));
    assert_eq!(
        (refused.code, refused.err.as_str()),
        (
            1,
            "strigger: error: strigger --set: allowed to SlurmUser only\n\
             slurm_set_trigger: Access/permission denied\n"
        )
    );
}

#[test]
fn a_controller_that_is_not_root_runs_programs_as_slurm_user() {
    if !is_root() {
        return;
    }
    let c = Cluster::from_conf(&format!(
        "ClusterName=c\nSlurmctldHost=h\nSlurmUser=daemon\n{USERS}"
    ));
    with_program(&c);
    c.ok("strigger --set --drained -p $PWD/prog");
    assert_eq!(c.ok("strigger --get -N | awk '{print $6}'"), "daemon");
    c.ok("scontrol update nodename=n1 state=drain reason=x");
    ran(&c, "n1;");
    assert!(c.read("ran").starts_with("1 1 / 1 "), "{}", c.read("ran"));
}
