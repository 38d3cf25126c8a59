//! Temporary directories of jobs of the Grid Engine commands: made by the jobs' own processes, and removed by processes of their users.

use super::Test;
use super::cluster::{Dir, JobMaker, Node};
use super::containment::{dir_of_nobody, nobodys, open_fifo, until};
use super::steps::{Srun, spec};
use muster_model::grid_engine::COMMAND;
use muster_model::job::ExitStatus;
use std::fs;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

pub const TESTS: &[Test] = &[
    ("a_job_and_its_tasks_share_a_temporary_directory", shared),
    (
        "what_others_have_under_a_guessed_name_fails_no_job",
        guessed,
    ),
    ("where_no_directory_can_be_made_tmpdir_is_that_of_all", none),
    ("slurms_jobs_have_no_temporary_directory", slurms),
    (
        "a_lost_launcher_leaves_no_temporary_directory",
        lost_launcher,
    ),
    ("a_users_stuck_removal_holds_up_no_other", stuck),
];

const OTHER: u32 = 65_533;

/// A node where jobs of qsub have temporary directories; where those are.
fn node(dir: &Dir) -> (Node, PathBuf) {
    let tmp = dir.path("tmp");
    fs::create_dir(&tmp).unwrap();
    fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777)).unwrap();
    let mut node = Node::start(dir, "n1");
    node.settings.job_tmp_dirs = true;
    node.settings.tmp_fs = tmp.to_string_lossy().into_owned();
    node.configure();
    (node, tmp)
}

/// A job of qsub, as the user nobody.
fn job(id: u64, dir: &Dir, script: &str) -> JobMaker {
    let mut job = nobodys(id, dir, script);
    job.spec.shown.push((COMMAND.to_owned(), "qsub".to_owned()));
    job
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn shared() {
    let dir = dir_of_nobody("tmp-shared");
    let (mut node, tmp) = node(&dir);
    open_fifo(&dir.path("up"));
    let go = dir.path("go");
    open_fifo(&go);
    // The user's mask takes rights from the user.
    let script = "#!/bin/sh\necho $TMPDIR $TMP; stat -c '%u %g %a' $TMPDIR\ncd $TMPDIR; mkdir -p x/y closed; touch x/y/file closed/file\n\
                  ln -s / link; chmod 0 closed; chmod 555 x/y x\ncd - >/dev/null; echo up >up; read x <go\n";
    let mut of = job(1, &dir, script);
    of.cpus = 2;
    node.run(&of);
    assert_eq!(dir.text("up"), "up\n");
    let path = tmp.join("1.1.batch");
    let shown = path.display();
    let mut outs = Vec::new();
    let command = "echo $TMPDIR $TMP; stat -c '%u %g %a' $TMPDIR; ls $TMPDIR";
    for tasks in [1, 2, 1] {
        let mut of = spec(1, &dir, &["sh", "-c", command]);
        of.ntasks = Some(tasks);
        let outcome = Srun::ask(&node, of).connect().finish();
        outs.extend(outcome.out.into_values());
    }
    let of_task = format!("{shown} {shown}\n65534 65534 700\nclosed\nlink\nx\n");
    assert!(
        outs.len() > 1 && outs.iter().all(|out| *out == of_task),
        "{outs:?}"
    );
    fs::write(&go, "x\n").unwrap();
    node.released(1);
    let of_script = format!("{shown} {shown}\n65534 65534 700\n");
    assert_eq!(dir.text("slurm-1.out"), of_script);
    until("the directory is gone", || names(&tmp).is_empty());
}

/// It was made by root, in one of root's: what users had put there before failed the jobs of others, and drained nodes.
fn guessed() {
    let dir = dir_of_nobody("tmp-guessed");
    let (mut node, tmp) = node(&dir);
    let victims = dir.path("victims");
    fs::create_dir(&victims).unwrap();
    chown(&victims, Some(65_534), Some(65_534)).unwrap();
    let usual = |id: u64| tmp.join(format!("{id}.1.batch"));
    fs::create_dir(usual(1)).unwrap();
    chown(usual(1), Some(OTHER), Some(OTHER)).unwrap();
    symlink(&victims, usual(2)).unwrap();
    fs::write(usual(3), "another's").unwrap();
    let before = names(&tmp);
    for id in 1..=3 {
        let script = "#!/bin/sh\necho $TMPDIR; touch $TMPDIR/file; stat -c '%u %a' $TMPDIR\n";
        node.run(&job(id, &dir, script));
        assert_eq!(node.batch_exit(id), ExitStatus::default());
        node.released(id);
        let out = dir.text(&format!("slurm-{id}.out"));
        let (path, rest) = out.split_once('\n').unwrap();
        let suffix = path
            .strip_prefix(&format!("{}.", usual(id).display()))
            .unwrap();
        assert_eq!((suffix.len(), rest), (16, "65534 700\n"), "{out}");
    }
    assert_eq!(names(&victims), Vec::<String>::new());
    // What is not the user's is left alone.
    until("the directories are gone", || names(&tmp) == before);
    assert_eq!(fs::symlink_metadata(usual(1)).unwrap().uid(), OTHER);
}

fn none() {
    let dir = dir_of_nobody("tmp-none");
    let (mut node, tmp) = node(&dir);
    fs::set_permissions(&tmp, fs::Permissions::from_mode(0o755)).unwrap();
    node.run(&job(1, &dir, "#!/bin/sh\necho $TMPDIR $TMP\n"));
    assert_eq!(node.batch_exit(1), ExitStatus::default());
    node.released(1);
    let out = dir.text("slurm-1.out");
    let tmp = tmp.display();
    let (said, rest) = out.split_once('\n').unwrap();
    assert_eq!(rest, format!("{tmp} {tmp}\n"), "{out}");
    assert_eq!(
        said,
        format!(
            "slurmstepd: error: temporary directory {tmp}/1.1.batch cannot be made: Permission denied: TMPDIR is {tmp}"
        )
    );
}

fn slurms() {
    let dir = dir_of_nobody("tmp-slurms");
    let (mut node, tmp) = node(&dir);
    let mut of = nobodys(1, &dir, "#!/bin/sh\necho $TMPDIR,$TMP\n");
    of.env.push("TMP=/y".to_owned());
    node.run(&of);
    of.id = 2;
    of.env.push("TMPDIR=/x".to_owned());
    node.run(&of);
    for (id, said) in [(1, "/tmp,/y\n"), (2, "/x,/y\n")] {
        assert_eq!(node.batch_exit(id), ExitStatus::default());
        node.released(id);
        assert_eq!(dir.text(&format!("slurm-{id}.out")), said);
    }
    assert!(names(&tmp).is_empty());
}

fn lost_launcher() {
    let dir = dir_of_nobody("tmp-lost");
    let (mut node, tmp) = node(&dir);
    open_fifo(&dir.path("up"));
    let go = dir.path("go");
    open_fifo(&go);
    let script = "#!/bin/sh\ntouch $TMPDIR/file\necho up >up\nread x <go\n";
    node.run(&job(1, &dir, script));
    assert_eq!(dir.text("up"), "up\n");
    node.kill_shim();
    assert_eq!(names(&tmp), ["1.1.batch"]);
    fs::write(&go, "x\n").unwrap();
    node.released(1);
    until("the directory is gone", || names(&tmp).is_empty());
}

/// A directory that the kernel keeps locked for a thread that lists it into memory which does not answer, as memory of a user's own file
/// system (FUSE) need not.
struct LockedDir {
    address: usize,
    faults: fs::File,
    lister: Option<std::thread::JoinHandle<()>>,
}

const PAGE: usize = 4096;

#[allow(unsafe_code)]
impl LockedDir {
    /// Of linux/userfaultfd.h.
    const API: [u64; 3] = [0xaa, 0, 0];
    const UFFDIO_API: u64 = 0xc018_aa3f;
    const UFFDIO_REGISTER: u64 = 0xc020_aa00;
    const UFFDIO_UNREGISTER: u64 = 0x8010_aa01;
    const MODE_MISSING: u64 = 1;

    fn new(dir: &Path) -> LockedDir {
        let dir = fs::File::open(dir).unwrap();
        // SAFETY: a new descriptor that nobody else owns, and a new mapping at no given place.
        let (faults, address) = unsafe {
            let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            let (access, kind) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            );
            let address = libc::mmap(std::ptr::null_mut(), PAGE, access, kind, -1, 0);
            assert!(fd >= 0 && address != libc::MAP_FAILED);
            let fd = i32::try_from(fd).unwrap();
            (fs::File::from_raw_fd(fd), address as usize)
        };
        let mut locked = LockedDir {
            address,
            faults,
            lister: None,
        };
        locked.request(Self::UFFDIO_API, &mut Self::API.clone());
        let range = &mut [address as u64, PAGE as u64, Self::MODE_MISSING, 0];
        locked.request(Self::UFFDIO_REGISTER, range);
        locked.lister = Some(std::thread::spawn(move || {
            // SAFETY: the mapping has that many bytes, and stays until this thread has ended.
            unsafe { libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), address, PAGE) };
        }));
        // It is in the kernel, with the lock, once its memory is asked for.
        let mut event = [0; 32];
        std::io::Read::read_exact(&mut &locked.faults, &mut event).unwrap();
        locked
    }

    fn request(&self, number: u64, argument: &mut [u64]) {
        // SAFETY: each request reads and writes as many words as its caller has.
        let done =
            unsafe { libc::ioctl(self.faults.as_raw_fd(), number as _, argument.as_mut_ptr()) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }
}

#[allow(unsafe_code)]
impl Drop for LockedDir {
    fn drop(&mut self) {
        self.request(
            Self::UFFDIO_UNREGISTER,
            &mut [self.address as u64, PAGE as u64],
        );
        self.lister.take().unwrap().join().unwrap();
        // SAFETY: nobody uses the mapping any more.
        unsafe { libc::munmap(self.address as *mut _, PAGE) };
    }
}

/// Root had removed it, in a directory of root's that the kernel kept locked meanwhile: those of others were neither made nor removed.
fn stuck() {
    let dir = dir_of_nobody("tmp-stuck");
    let (mut node, tmp) = node(&dir);
    let kept = tmp.join("1.1.batch/kept");
    open_fifo(&dir.path("up"));
    let go = dir.path("go");
    open_fifo(&go);
    let script =
        "#!/bin/sh\nmkdir $TMPDIR/kept; touch $TMPDIR/kept/file\necho up >up\nread x <go\n";
    node.run(&job(1, &dir, script));
    assert_eq!(dir.text("up"), "up\n");
    let locked = LockedDir::new(&kept);
    fs::write(&go, "x\n").unwrap();
    // Nothing of the job's end waits for that.
    assert_eq!(node.batch_exit(1), ExitStatus::default());
    node.released(1);
    let mut others = job(2, &dir, "#!/bin/sh\ntouch $TMPDIR/file\n");
    others.spec.owner.uid = OTHER;
    others.spec.owner.gid = OTHER;
    others.spec.stdio.stdout = Some("/dev/null".to_owned());
    node.run(&others);
    assert_eq!(node.batch_exit(2), ExitStatus::default());
    node.released(2);
    until("the other's directory is gone", || {
        !tmp.join("2.1.batch").exists()
    });
    assert!(kept.join("file").exists());
    // No more than one process of the user's waits, and its others wait for it.
    node.run(&job(3, &dir, "#!/bin/sh\ntouch $TMPDIR/file\n"));
    assert_eq!(node.batch_exit(3), ExitStatus::default());
    node.released(3);
    // One that is due later is gone.
    others.id = 4;
    node.run(&others);
    assert_eq!(node.batch_exit(4), ExitStatus::default());
    node.released(4);
    until("the other's next directory is gone", || {
        !tmp.join("4.1.batch").exists()
    });
    assert!(tmp.join("3.1.batch/file").exists());
    drop(locked);
    until("all directories are gone", || names(&tmp).is_empty());
}
