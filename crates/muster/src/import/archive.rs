//! `muster import archive`: takes back what slurmdbd has purged into files. It becomes `SlurmUser` before it opens anything, and writes
//! into the controller's store beside it.

use crate::conf_owner;
use crate::sackd::{drop_root, user};
use anyhow::{Context as _, Result, bail, ensure};
use muster_acct::{ArchiveReader, Archived, Restored, Restorer};
use muster_conf::endpoint::conf_path;
use nix::sys::prctl;
use nix::unistd::geteuid;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Seek as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(super) const HELP: &str = "\
Usage: muster import archive FILE...
Takes back what slurmdbd has purged into files (ArchiveDir and Archive* of slurmdbd.conf), into the accounting that it was purged from.
The controller runs meanwhile; this is run on its host, by root or SlurmUser, who must be able to read the files. A file is looked
through as a whole before any of it is taken. What is there already stays as it is: a file may be given again.

  -h, --help        print this help

Sums of what was used have purged jobs still: jobs that come back change none. Purge them again, or leave slurmdbd.conf's Purge keys
out meanwhile: what comes back is as old as it was, and slurmdbd purges it at the beginning of the next hour, day or month.
";

/// Rows of one transaction, which the controller's own wait for.
const STEP_ROWS: usize = 500;

/// Runs it.
pub(super) fn main(words: &[String]) -> Result<ExitCode> {
    let files: Vec<PathBuf> = words.iter().skip(1).map(PathBuf::from).collect();
    if let Some(option) = words.iter().skip(1).find(|word| word.starts_with('-')) {
        bail!("there is no option '{option}'; 'muster import archive --help'");
    }
    ensure!(
        !files.is_empty(),
        "which files? 'muster import archive --help'"
    );
    let conf = fs::canonicalize(conf_path())
        .with_context(|| format!("cannot read {}", conf_path().display()))?;
    let (config, _) = conf_owner::load(&conf)?;
    ensure!(
        config.accounting,
        "{} has AccountingStorageType=accounting_storage/none: nothing is kept here",
        conf.display()
    );
    let user = user(&config.slurm_user)?;
    ensure!(
        geteuid().is_root() || geteuid() == user.uid,
        "only root or {} may run this",
        user.name
    );
    if geteuid().is_root() {
        drop_root(&user)?;
    }
    prctl::set_dumpable(false).context("this process cannot be protected from others")?;
    let store = config.paths.state_save_location.join("accounting.db");
    let mut restorer = Restorer::open(&store)?;
    for path in &files {
        let shown = path.display();
        let restored = load(path, &mut restorer).with_context(|| format!("{shown}"))?;
        say!("{shown}: {}\n", text_of(restored));
    }
    Ok(ExitCode::SUCCESS)
}

/// Outcome of a file's rows, as text.
pub(crate) fn text_of(restored: Restored) -> String {
    let Restored {
        added,
        known,
        alone,
    } = restored;
    format!("{added} rows taken back, {known} were there, {alone} are of jobs that are not there")
}

/// Looks a file through, and takes its rows.
pub(crate) fn load(path: &Path, restorer: &mut Restorer) -> Result<Restored> {
    // A pipe is not waited for, and no device is read.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY)
        .open(path)?;
    ensure!(file.metadata()?.is_file(), "this is not a regular file");
    let mut reader = ArchiveReader::begin(BufReader::new(&file))?;
    ensure!(
        reader.header().origin == restorer.origin(),
        "this is of another accounting database, of cluster {}: it is taken back only by the one that it was purged from",
        muster_model::visible_text::visible(&reader.header().cluster)
    );
    while reader.next_row()?.is_some() {}
    take(&file, restorer)
}

fn take(mut file: &File, restorer: &mut Restorer) -> Result<Restored> {
    file.rewind()?;
    let mut reader = ArchiveReader::begin(BufReader::new(file))?;
    let mut all = Restored::default();
    let mut rows: Vec<Archived> = Vec::with_capacity(STEP_ROWS);
    loop {
        let row = reader.next_row()?;
        let is_last = row.is_none();
        rows.extend(row);
        if is_last || rows.len() == STEP_ROWS {
            let part = restorer.write(&rows)?;
            all.added += part.added;
            all.known += part.known;
            all.alone += part.alone;
            rows.clear();
        }
        if is_last {
            return Ok(all);
        }
    }
}
