//! The temporary directory that each job of the Grid Engine commands has to itself.

use crate::cluster::Cluster;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

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
    let cluster = c.ok("scontrol show config | sed -n 's/^ClusterName *= *//p'");
    let of_node = |node: &str| c.path(&format!("tmp.{node}/muster.{cluster}.{node}"));
    let (n1, n2) = (of_node("n1"), of_node("n2"));
    c.ok("echo 'job_tmpdir yes' >\"$(dirname $SLURM_CONF)/sge.conf\"; scontrol reconfigure");
    c.until("the directories above are there", || {
        n1.exists() && n2.exists()
    });
    // Others list no names in it, and make none.
    let made = fs::symlink_metadata(&n1).unwrap();
    assert_eq!(made.mode() & 0o7777, 0o711);
    c.write(
        "job.sh",
        "#!/bin/sh\n#$ -cwd -V -j y -N tmp -pe mpi 4\n\
         echo $TMPDIR $TMP; stat -c '%a %u' $TMPDIR; ls -A $TMPDIR; mkdir -p $TMPDIR/a/b; echo text >$TMPDIR/a/b/file\n\
         mkdir -p $TMPDIR/none/x/y $TMPDIR/x/read-only/z; touch $TMPDIR/x/read-only/z/file; chmod 0 $TMPDIR/none/x $TMPDIR/none\n\
         chmod 555 $TMPDIR/x/read-only/z $TMPDIR/x/read-only $TMPDIR/x\n\
         srun -l -N 2 --ntasks-per-node=1 sh -c 'stat -c \"%u %n\" $TMPDIR; touch $TMPDIR/of-task' | sort\n",
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
            "{first}/1.1.all.q {first}/1.1.all.q\n700 {uid}\n0: {uid} {first}/1.1.all.q\n1: {uid} {second}/1.1.all.q\n"
        )
    );
    let left = || {
        let listed = [&n1, &n2].map(|dir| c.ok(&format!("ls -A {}", dir.display())));
        let listed = listed.join("\n");
        listed.lines().filter(|name| !name.is_empty()).count()
    };
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

/// What users do to a directory of their own can hold up others' (security.md): there is none unless the site wants it.
#[test]
fn a_job_has_no_temporary_directory_of_its_own_where_the_site_says_nothing() {
    let c = Cluster::start(1, 1);
    c.write(
        "job.sh",
        "#!/bin/sh\n#$ -cwd -V -j y -N alone\necho $TMPDIR $TMP; srun sh -c 'echo $TMPDIR $TMP'\n",
    );
    c.ok("TMPDIR=/nowhere TMP=/nowhere qsub -sync y job.sh");
    let tmp = c.path("tmp.n1");
    let both = format!("{0} {0}\n", tmp.display());
    assert_eq!(c.read("alone.o1"), both.repeat(2));
    let above = c.ok(&format!(
        "ls -A {} | grep -c ^muster. || true",
        tmp.display()
    ));
    assert_eq!(above, "0");
}

/// Where others than root may replace what is in `TmpFS`, jobs failed or nodes were drained.
#[test]
fn a_job_runs_without_where_others_may_replace_it() {
    let c = Cluster::start(1, 1);
    let open = c.path("open");
    fs::create_dir(&open).unwrap();
    c.ok(&format!(
        "chmod 777 {0}; echo 'job_tmpdir yes' >\"$(dirname $SLURM_CONF)/sge.conf\"; sed -i '/^TmpFS=/d' {1}; echo TmpFS={0} >>{1}; scontrol reconfigure",
        open.display(),
        c.path("slurm.conf").display()
    ));
    c.write(
        "job.sh",
        "#!/bin/sh\n#$ -cwd -V -j y -N open\necho $TMPDIR $TMP; srun sh -c 'echo $TMPDIR $TMP'\n",
    );
    c.ok("qsub -sync y job.sh");
    let both = format!("{0} {0}\n", open.display());
    assert_eq!(c.read("open.o1"), both.repeat(2));
    assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
    assert_eq!(c.ok("sinfo -h -o %T"), "idle");
}
