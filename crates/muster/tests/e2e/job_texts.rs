//! `AccountingStoreFlags`: scripts and environments of jobs that the controller has forgotten, for their owner and administrators.

use crate::cluster::Cluster;
use crate::rights::as_user;

const CONF: &str = "ClusterName=texts\nSlurmctldHost=localhost\nAccountingStorageType=accounting_storage/slurmdbd\n\
    AccountingStoreFlags=job_comment,job_script,job_env\nMinJobAge=2\n\
    NodeName=n1 CPUs=4 State=UNKNOWN\nPartitionName=batch Nodes=ALL Default=YES State=UP\n";

const OWNER: &str = "daemon";
const STRANGER: &str = "bin";

const RULE: &str =
    "--------------------------------------------------------------------------------\n";

#[test]
fn scripts_and_environments_outlive_their_jobs() {
    let c = Cluster::from_conf(CONF);
    if c.ok("id -u").trim() != "0" {
        eprintln!("not root: there is only one user; this test looked at nothing");
        return;
    }
    c.ok("chmod 1777 . && chmod 755 ..");
    let script = "#!/bin/sh\n#SBATCH -o /dev/null\ntrue\n";
    c.write("s.sh", script);
    c.ok("chmod 644 s.sh");
    let submit = |line: &str| -> u64 {
        let ran = as_user(&c, OWNER, line);
        assert_eq!(ran.code, 0, "{ran:?}");
        let number = ran.out.trim().rsplit(' ').next();
        number.and_then(|number| number.parse().ok()).unwrap()
    };
    let job = submit("A=1 B='two words' sbatch --export=A,B --comment=hello s.sh");
    let array = submit("sbatch --export=NONE -a 1-2 s.sh");
    let other = submit("sbatch -o /dev/null --wrap 'srun true'");
    let step_only = submit("srun -n1 sh -c 'echo $SLURM_JOB_ID'");
    c.until("all are forgotten", || {
        let known = format!(
            "scontrol show job {job} || scontrol show job {array} || scontrol show job {other}"
        );
        c.ok("squeue -h").is_empty() && c.run(&known).code != 0
    });
    let as_owner = |line: &str| as_user(&c, OWNER, line).out;
    let shown = format!("Batch Script for {job}\n{RULE}{script}\n");
    assert_eq!(as_owner(&format!("sacct -B -j {job}")), shown);
    assert_eq!(as_owner(&format!("sacct -B -X -j {job}.batch")), shown);
    let env = as_owner(&format!("sacct --env-vars -j {job}"));
    let head = format!("Environment used for {job} (must be batch to display)\n{RULE}");
    assert!(env.starts_with(&head) && env.ends_with("\n\n"), "{env}");
    assert!(
        env.contains("\nA=1\n") && env.contains("\nB=two words\n"),
        "{env}"
    );
    let tasks = as_owner(&format!("sacct -B -j {array}"));
    assert_eq!(tasks.matches(script).count(), 2, "{tasks}");
    let none = as_owner(&format!(
        "sacct -B -j {step_only}; sacct --env-vars -j {step_only}"
    ));
    assert_eq!(none.matches("NONE\n").count(), 2, "{none}");
    assert_eq!(
        as_owner(&format!("sacct -nPX -j {job} -o comment")).trim(),
        "hello"
    );
    // Of others' jobs, nobody but administrators reads them.
    let ask = |user: &str| {
        let line = format!("sacct -a -B -j {job}; sacct -a --env-vars -j {job}");
        as_user(&c, user, &line).out
    };
    let strangers = ask(STRANGER);
    assert!(
        !strangers.contains("SBATCH") && !strangers.contains("two words"),
        "{strangers}"
    );
    assert_eq!(strangers.matches("NONE\n").count(), 2, "{strangers}");
    assert!(ask("root").contains(script) && ask("root").contains("B=two words\n"));
    c.ok(&format!("sacctmgr -i add account people; sacctmgr -i add user {STRANGER} account=people adminlevel=administrator"));
    assert!(ask(STRANGER).contains(script));
    for (line, text) in [
        (
            "sacct -B",
            "When requesting job scripts you must also request specific jobs with the '-j' option.",
        ),
        (
            "sacct --env-vars",
            "When requesting job environment you must also request specific jobs with the '-j' option.",
        ),
        (
            "sacct -B --env-vars -j 1",
            "Options --batch-script and --env-vars are mutually exclusive",
        ),
    ] {
        let refused = c.run(line);
        assert!(
            refused.code == 1 && refused.err.contains(text),
            "{refused:?}"
        );
    }
}
