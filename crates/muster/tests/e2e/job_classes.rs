//! Job classes: what jobs get of them, what users may change, and that nobody gets round them.

use crate::cluster::Cluster;

const CLASSES: &str = "\
userset     nobodies nobody
jcname      template
A           {+}UNSPECIFIED
jcname      fixed
l_hard      h_rt=600,{~}h_vmem=100M,{-}matlab=1
pe_name     smp
pe_range    2
N           named
o           out.$JOB_ID
j           y
v           FROM=class
variant_list default,long
p           UNSPECIFIED
jcname      derived
inherits    fixed
l_hard      {...}h_rt=1200,[long={~}h_rt=3600]
variant_list default,long
owner       root
jcname      plain
N           plain
jcname      closed
user_lists  nobodies
";

fn cluster() -> Cluster {
    let c = Cluster::start(1, 4);
    let conf = std::fs::read_to_string(c.path("slurm.conf")).unwrap();
    std::fs::write(c.path("slurm.conf"), conf + "\nLicenses=matlab:5\n").unwrap();
    std::fs::write(c.path("sge.conf"), "complex matlab license:matlab\n").unwrap();
    std::fs::write(c.path("job_classes.conf"), CLASSES).unwrap();
    c.ok("scontrol reconfigure");
    c
}

#[test]
fn a_class_is_the_same_for_all_commands_and_nobody_gets_round_it() {
    let c = cluster();
    // qsub: values of the class, and what may be changed.
    let qsub = c.run("echo 'echo $FROM $NSLOTS' | qsub -cwd -jc fixed -l h_vmem=50M");
    assert_eq!(
        qsub.out, "Your job 1 (\"named\") has been submitted\n",
        "{}",
        qsub.err
    );
    c.until("it has run", || c.state(1) == "COMPLETED");
    assert_eq!(c.read("out.1"), "class 2\n");
    let shown = c.ok("scontrol show job 1");
    for part in [
        "JobClass=fixed",
        "JobName=named",
        "TimeLimit=00:10:00",
        "NumTasks=2",
        "MinMemoryCPU=50M",
        "Licenses=matlab:1",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // sbatch and srun, and what they may not.
    let job = c.sbatch("-H --class=derived.long --wrap true");
    assert_eq!(
        c.ok(&format!("squeue -h -j {job} -o '%l %C %j'")),
        "1:00:00 2 named"
    );
    let shown = c.ok(&format!("qstat -j {job}"));
    assert!(
        shown.contains("job class:                  derived.long"),
        "{shown}"
    );
    assert_eq!(
        c.ok("srun --class=closed true; squeue -h -a -t all -o %i | wc -l"),
        "3"
    );
    for (command, why) in [
        (
            "qsub -jc fixed -b y -l h_rt=60 true",
            "job class \"fixed\" does not allow to change l_hard h_rt=600 to 60",
        ),
        (
            "qsub -jc fixed -N other -b y true",
            "to change N from named to other",
        ),
        (
            "qsub -jc fixed -b y -pe smp 3 true",
            "to change pe_range from 2 to 3",
        ),
        ("qsub -jc fixed -b y -p -3 true", "does not allow p (-3)"),
        (
            "qsub -jc fixed -clears l_hard h_rt -b y true",
            "to clear l_hard h_rt",
        ),
        (
            "sbatch --class=fixed -t 5 --wrap true",
            "to change l_hard h_rt=600 to 300",
        ),
        (
            "sbatch --class=fixed --exclusive --wrap true",
            "to add exclusive=TRUE to l_hard",
        ),
        (
            "sbatch --class=fixed -w n1 --wrap true",
            "to add nodelist=n1 to l_hard",
        ),
        ("salloc --class=fixed true", "only batch jobs can be given"),
        (
            "sbatch --class=fixed -n 3 --wrap true",
            "to change pe_range from 2 to 3",
        ),
        (
            "sbatch --class=nosuch --wrap true",
            "there is no job class \"nosuch\"",
        ),
        (
            "sbatch --class=fixed.short --wrap true",
            "has no variant \"short\"",
        ),
        (
            "sbatch --class=template --wrap true",
            "no job can have the class",
        ),
    ] {
        let ran = c.run(command);
        assert!(ran.code == 1 && ran.err.contains(why), "{command}: {ran:?}");
    }
    let job = c.ok("qsub -terse -h -jc fixed -clears l_hard matlab -b y true");
    assert!(!c.ok(&format!("scontrol show job {job}")).contains("matlab"));
    // A component of a heterogeneous job has a class of its own.
    let het = c.sbatch("-H -n 1 : --class=closed -n 1 --wrap true");
    assert!(
        c.ok(&format!("scontrol show job {het}+1"))
            .contains("JobClass=closed")
    );
    let fixed = c.sbatch("-H -n 1 : --class=plain --wrap true");
    for target in [
        fixed.to_string(),
        format!("{fixed}+1"),
        (fixed + 1).to_string(),
    ] {
        let ran = c.run(&format!("scontrol update job {target} name=other"));
        assert!(
            ran.code == 1 && ran.err.contains("job class \"plain\" does not allow"),
            "{target}: {ran:?}"
        );
    }
    // Changes follow the rules of the submission, whatever has become of the class.
    std::fs::write(
        c.path("job_classes.conf"),
        "default_jc other\njcname other\nqos normal\n",
    )
    .unwrap();
    c.ok("scontrol reconfigure");
    let ran = c.run(&format!("scontrol update job {job} timelimit=1"));
    assert!(
        ran.code == 1 && ran.err.contains("job class \"fixed\" does not allow"),
        "{ran:?}"
    );
    let ran = c.run(&format!("qalter -p -7 {job}"));
    assert!(
        ran.code == 1 && ran.err.contains("to change p to -7"),
        "{ran:?}"
    );
    c.ok(&format!("scontrol update job {job} comment=free"));
    let of_site = c.sbatch("-H --wrap true");
    assert!(
        c.ok(&format!("scontrol show job {of_site}"))
            .contains("JobClass=other")
    );
    let without = c.sbatch("-H --class=NONE --wrap true");
    assert!(
        !c.ok(&format!("scontrol show job {without}"))
            .contains("JobClass")
    );
    // A file with errors changes nothing.
    std::fs::write(c.path("job_classes.conf"), "jcname a\nl_hard nosuch=1\n").unwrap();
    let ran = c.run("scontrol reconfigure");
    assert!(
        ran.code == 1
            && ran
                .err
                .contains("job_classes.conf:2: error: class 'a': l_hard"),
        "{ran:?}"
    );
    assert!(
        c.run("muster class check")
            .err
            .contains("unknown resource \"nosuch\"")
    );
    // Accounting has the class.
    c.until("accounting has it", || {
        c.ok("sacct -n -X -j 1 -o JobClass").trim() == "fixed"
    });
    let report = c.ok("muster report --by class --format csv");
    assert!(report.contains("fixed"), "{report}");
}

#[test]
fn lists_of_users_count_and_classes_are_shown() {
    let c = cluster();
    assert_eq!(
        c.ok("qconf -sjcl"),
        "template\nfixed\nderived\nplain\nclosed"
    );
    assert!(
        c.ok("qconf -sjc derived")
            .contains("l_hard         {...}h_rt=1200,[long={~}h_rt=3600]")
    );
    assert!(
        c.ok("muster class list")
            .contains(" derived.long                   everybody")
    );
    assert!(
        c.ok("muster class show derived.long")
            .contains("l_hard {~}h_rt=3600\n")
    );
    assert_eq!(c.ok("muster class check"), "5 classes, nothing is wrong");
    // A host without the file asks the controller.
    let host = "mkdir -p host; cp $SLURM_CONF host; export SLURM_CONF=$PWD/host/slurm.conf";
    assert_eq!(
        c.ok(&format!(
            "{host}; qconf -sjcl; muster class show derived.long | grep l_hard; muster class check"
        )),
        "template\nfixed\nderived\nplain\nclosed\nl_hard {~}h_rt=3600\n0 classes, nothing is wrong"
    );
    let unknown = c.run(&format!("{host}; sbatch --class=nosuch --wrap true"));
    assert!(unknown.err.contains("nosuch"), "{unknown:?}");
    assert!(
        c.ok(&format!("{host}; sbatch --class=plain -H --wrap true"))
            .starts_with("Submitted batch job")
    );
    assert_eq!(
        c.run("qconf -sjc nosuch").err,
        "Job class \"nosuch\" does not exist\n"
    );
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can submit as others");
        return;
    }
    let ran = c.run(
        "setpriv --reuid=1 --regid=1 --clear-groups sbatch --chdir=/ --class=closed --wrap true",
    );
    assert!(
        ran.code == 1
            && ran
                .err
                .contains("user daemon may not use job class \"closed\""),
        "{ran:?}"
    );
    let nobody = c.ok("id -u nobody");
    c.ok(&format!(
        "setpriv --reuid={nobody} --regid={nobody} --clear-groups sbatch -H --chdir=/ --class=closed --wrap true"
    ));
}
