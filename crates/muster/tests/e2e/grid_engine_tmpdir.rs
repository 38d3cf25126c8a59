//! The temporary directory that each job of the Grid Engine commands has to itself.

use crate::cluster::Cluster;
use std::fs;

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
    let of_node = |node: &str| c.path(&format!("tmp.{node}"));
    let (n1, n2) = (of_node("n1"), of_node("n2"));
    if is_root {
        // Somebody else has guessed the name.
        let guessed = n1.join("1.1.all.q");
        fs::create_dir(&guessed).unwrap();
        std::os::unix::fs::chown(&guessed, Some(65_533), None).unwrap();
    }
    c.write(
        "job.sh",
        "#!/bin/sh\n#$ -cwd -V -j y -N tmp -pe mpi 4\n\
         echo $TMPDIR $TMP; stat -c '%a %u' $TMPDIR; ls -A $TMPDIR; mkdir -p $TMPDIR/a/b; echo text >$TMPDIR/a/b/file\n\
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
        let own = listed.lines().filter(|name| name.contains(".all.q"));
        own.filter(|name| !name.ends_with(".other")).count()
    };
    // The node is released once it is gone.
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
        let out = c.ok(&format!(
            "{variable} sbatch -W -o out --wrap 'echo $TMPDIR,$TMP' >/dev/null; cat out"
        ));
        out
    };
    assert_eq!(wrapped("TMPDIR=/x TMP=/y"), "/x,/y");
    assert_eq!(wrapped("unset TMPDIR TMP;"), "/tmp,");
    c.until("no directory is left", || left() == 0);
}
