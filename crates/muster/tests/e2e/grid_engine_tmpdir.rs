//! The temporary directory that each job of the Grid Engine commands has to itself.

use crate::cluster::Cluster;
use std::fs;
use std::path::Path;

/// What is in a directory.
fn names(c: &Cluster, dir: &Path) -> Vec<String> {
    let listed = c.ok(&format!("ls -A {}", dir.display()));
    listed.lines().map(str::to_owned).collect()
}

#[test]
fn a_job_has_a_temporary_directory_on_each_node_that_goes_with_it() {
    let c = Cluster::start(2, 2);
    let is_root = c.ok("id -u") == "0";
    let as_user = match is_root {
        true => "setpriv --reuid=65534 --regid=65534 --clear-groups ",
        false => "",
    };
    c.ok("chmod 1777 .");
    let uid = c.ok(&format!("{as_user}id -u"));
    let [n1, n2] = ["tmp.n1", "tmp.n2"].map(|name| c.path(name));
    c.write(
        "job.sh",
        "#!/bin/sh\n#$ -cwd -V -j y -N tmp -pe mpi 4\n\
         echo $TMPDIR $TMP; stat -c '%a %u' $TMPDIR; ls -A $TMPDIR; mkdir -p $TMPDIR/a/b; echo text >$TMPDIR/a/b/file\n\
         mkdir -p $TMPDIR/none/x/y $TMPDIR/x/read-only/z; touch $TMPDIR/x/read-only/z/file; chmod 0 $TMPDIR/none/x $TMPDIR/none\n\
         chmod 555 $TMPDIR/x/read-only/z $TMPDIR/x/read-only $TMPDIR/x\n\
         srun -l -N 2 --ntasks-per-node=1 sh -c 'stat -c \"%a %u %n\" $TMPDIR; touch $TMPDIR/of-task' | sort\n",
    );
    // What the caller has does not count.
    let ran = c.run(&format!(
        "{as_user}env TMPDIR=/nowhere TMP=/nowhere qsub -sync y job.sh"
    ));
    assert_eq!(ran.code, 0, "{ran:?}");
    let (first, second) = (n1.display(), n2.display());
    assert_eq!(
        c.read("tmp.o1"),
        format!(
            "{first}/1.1.all.q {first}/1.1.all.q\n700 {uid}\n0: 700 {uid} {first}/1.1.all.q\n1: 700 {uid} {second}/1.1.all.q\n"
        )
    );
    let left = || names(&c, &n1).len() + names(&c, &n2).len();
    // Also what its user may not read or change at first.
    c.until("the directories are gone", || left() == 0);
    // Tasks of an array have one each, sessions one, jobs of sbatch what the submitter says.
    c.write(
        "array.sh",
        "#!/bin/sh\n#$ -cwd -j y -N array -t 3-4\necho $TMPDIR\n",
    );
    c.ok(&format!("{as_user}qsub -sync y array.sh"));
    let tasks = c.ok("cat array.o2.3 array.o2.4 | sed 's|.*/||'");
    assert_eq!(tasks, "2.3.all.q\n2.4.all.q");
    let session = c.ok(&format!(
        "{as_user}qrsh -now n 'test -d $TMPDIR && echo ${{TMPDIR##*/}} ${{TMP##*/}}'"
    ));
    let (job, rest) = session.split_once('.').unwrap();
    assert_eq!(rest, format!("1.all.q {job}.1.all.q"));
    let wrapped = |variable: &str| {
        c.ok(&format!(
            "{variable} sbatch -W -o out --wrap 'echo $TMPDIR,$TMP' >/dev/null; cat out"
        ))
    };
    assert_eq!(wrapped("TMPDIR=/x TMP=/y"), "/x,/y");
    assert_eq!(wrapped("unset TMPDIR TMP;"), "/tmp,");
    c.until("no directory is left", || left() == 0);
}

/// Names of directories can be guessed: what others had put there failed jobs and drained nodes.
#[test]
fn what_another_user_has_put_under_a_jobs_name_does_not_fail_it() {
    let c = Cluster::start(1, 1);
    if c.ok("id -u") != "0" {
        eprintln!("not root, who alone is two users: this test looked at nothing");
        return;
    }
    c.ok("chmod 1777 .");
    let tmp = c.path("tmp.n1");
    let usual = tmp.join("1.1.all.q");
    fs::create_dir(&usual).unwrap();
    std::os::unix::fs::chown(&usual, Some(65_533), None).unwrap();
    c.write(
        "job.sh",
        "#!/bin/sh\n#$ -cwd -V -j y -N guessed\nd=$TMPDIR; stat -c '%a %u' $d; echo ${d##*/}\nsrun sh -c 'echo ${TMPDIR##*/} ${TMP##*/}'\n",
    );
    c.ok("setpriv --reuid=65534 --regid=65534 --clear-groups qsub -sync y job.sh");
    let said = c.read("guessed.o1");
    let lines: Vec<&str> = said.lines().collect();
    let [owner, name, both] = lines[..] else {
        panic!("{said}")
    };
    assert_eq!(owner, "700 65534");
    assert!(name.starts_with("1.1.all.q.") && name.len() == 26, "{said}");
    assert_eq!(both, format!("{name} {name}"));
    c.until("the job's is gone", || names(&c, &tmp) == ["1.1.all.q"]);
    assert_eq!(c.ok("sinfo -h -o %T"), "idle");
}

#[test]
fn a_job_has_no_temporary_directory_of_its_own_where_the_site_wants_none() {
    let c = Cluster::start(1, 1);
    c.ok("echo 'job_tmpdir no' >\"$(dirname $SLURM_CONF)/sge.conf\"; scontrol reconfigure");
    c.write(
        "job.sh",
        "#!/bin/sh\n#$ -cwd -V -j y -N alone\necho $TMPDIR $TMP; srun sh -c 'echo $TMPDIR $TMP'\n",
    );
    c.ok("TMPDIR=/nowhere TMP=/nowhere qsub -sync y job.sh");
    let tmp = c.path("tmp.n1");
    let both = format!("{0} {0}\n", tmp.display());
    assert_eq!(c.read("alone.o1"), both.repeat(2));
    assert!(names(&c, &tmp).is_empty());
}
