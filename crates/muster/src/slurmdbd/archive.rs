//! Files of purged rows: written as a whole and on disk before a row goes, with a name that no file has.

use anyhow::{Context as _, Result, ensure};
use muster_acct::{ArchiveHeader, ArchiveWriter, Archived, PurgeKind, Purger, RowKey};
use muster_conf::files::FlatSettings;
use muster_model::time::Timestamp;
use muster_proto::archive::ArchivedKind;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Rows of a file at most, as Slurm has it.
pub(super) const FILE_ROWS: usize = 50_000;
/// Files of one name, each with a number, and as many without one that could be guessed: in a directory where everybody may make
/// files, such as /tmp, somebody may have taken the others.
const SAME_NAME_MAX: u32 = 16;

/// The keys of slurmdbd.conf, what each is about, how Slurm calls that in names of files, and the variables that ArchiveScript gets.
const KEYS: [(&str, PurgeKind, &str, &str, Option<&str>); 7] = [
    (
        "ArchiveEvents",
        PurgeKind::Events,
        "event",
        "SLURM_ARCHIVE_EVENTS",
        Some("SLURM_ARCHIVE_LAST_EVENT"),
    ),
    (
        "ArchiveJobs",
        PurgeKind::Jobs,
        "job",
        "SLURM_ARCHIVE_JOBS",
        Some("SLURM_ARCHIVE_LAST_JOB"),
    ),
    (
        "ArchiveSteps",
        PurgeKind::Steps,
        "step",
        "SLURM_ARCHIVE_STEPS",
        Some("SLURM_ARCHIVE_LAST_STEP"),
    ),
    (
        "ArchiveSuspend",
        PurgeKind::Suspensions,
        "suspend",
        "SLURM_ARCHIVE_SUSPEND",
        Some("SLURM_ARCHIVE_LAST_SUSPEND"),
    ),
    (
        "ArchiveTXN",
        PurgeKind::Transactions,
        "txn",
        "SLURM_ARCHIVE_TXN",
        None,
    ),
    (
        "ArchiveUsage",
        PurgeKind::Usage,
        "usage",
        "SLURM_ARCHIVE_USAGE",
        None,
    ),
    (
        "ArchiveResvs",
        PurgeKind::Reservations,
        "resv",
        "SLURM_ARCHIVE_RESVS",
        Some("SLURM_ARCHIVE_LAST_RESV"),
    ),
];

/// Settings of archives in slurmdbd.conf.
#[derive(Clone, Debug)]
pub(crate) struct ArchiveSettings {
    dir: PathBuf,
    kept: BTreeSet<PurgeKind>,
    /// The site's program that archives.
    script: Option<PathBuf>,
    cluster: String,
}

impl ArchiveSettings {
    /// Reads them.
    pub(crate) fn read(dbd: &FlatSettings, cluster: &str) -> Result<ArchiveSettings> {
        let is_yes = |key: &str| {
            let word = dbd.text(key).unwrap_or_default();
            word.eq_ignore_ascii_case("yes") || word == "1"
        };
        let kept = KEYS.iter().filter(|(key, ..)| is_yes(key));
        let script = dbd.text("ArchiveScript").filter(|text| !text.is_empty());
        ensure!(!cluster.contains('/'), "ClusterName has a '/'");
        Ok(ArchiveSettings {
            dir: dbd.text("ArchiveDir").unwrap_or("/tmp").into(),
            kept: kept.map(|(_, what, ..)| *what).collect(),
            script: script.map(PathBuf::from),
            cluster: cluster.to_owned(),
        })
    }

    /// Has rows of a kind archived.
    pub(crate) fn keep(&mut self, kind: ArchivedKind) {
        self.kept.insert(PurgeKind::from(kind));
    }

    /// Has files written to another directory.
    pub(crate) fn write_to(&mut self, dir: &str) -> Result<()> {
        ensure!(dir.starts_with('/'), "Directory {dir} is no absolute path");
        self.dir = dir.into();
        Ok(())
    }

    /// Has a program archive.
    pub(crate) fn run_script(&mut self, script: &str) -> Result<()> {
        ensure!(
            script.starts_with('/'),
            "Script {script} is no absolute path"
        );
        self.script = Some(script.into());
        Ok(())
    }

    /// Whether rows of a kind go into files here.
    pub(super) fn writes(&self, what: PurgeKind) -> bool {
        self.script.is_none() && self.kept.contains(&what)
    }

    /// Starts the site's program, if it archives any of the rows about to be purged of before these times. It gets no
    /// argument, and no environment but Slurm's variables and the path of programs.
    pub(super) fn start_script(
        &self,
        due: &BTreeMap<PurgeKind, Timestamp>,
    ) -> Result<Option<Child>> {
        let Some(script) = &self.script else {
            return Ok(None);
        };
        if !due.keys().any(|what| self.kept.contains(what)) {
            return Ok(None);
        }
        let shown = script.display();
        let found = fs::metadata(script).with_context(|| format!("ArchiveScript {shown}"))?;
        ensure!(
            found.is_file() && found.permissions().mode() & 0o002 == 0,
            "ArchiveScript {shown} is not a file, or anybody may write it: chmod o-w {shown}"
        );
        let mut command = Command::new(script);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        for (_, what, _, flag, last) in KEYS {
            let before = due.get(&what).filter(|_| self.kept.contains(&what));
            command.env(flag, if before.is_some() { "1" } else { "0" });
            if let (Some(last), Some(before)) = (last, before) {
                command.env(last, before.unix_s().to_string());
            }
        }
        let child = command.spawn();
        child
            .map(Some)
            .with_context(|| format!("ArchiveScript {shown} cannot be started"))
    }

    /// Writes rows into a file of their own, which is on disk when this returns.
    pub(super) fn write(
        &self,
        purger: &Purger,
        what: PurgeKind,
        keys: &[RowKey],
        before: Timestamp,
    ) -> Result<PathBuf> {
        let dir = self.dir.display();
        let found = fs::metadata(&self.dir).with_context(|| format!("ArchiveDir {dir}"))?;
        let mode = found.permissions().mode();
        ensure!(found.is_dir(), "ArchiveDir {dir} is not a directory");
        ensure!(
            mode & 0o002 == 0 || mode & 0o1000 != 0,
            "anybody may replace files in ArchiveDir {dir}: chmod o-w {dir}"
        );
        let part = PartFile::make(&self.dir)?;
        let header = ArchiveHeader {
            cluster: self.cluster.clone(),
            origin: purger.origin()?,
            what: what.name().to_owned(),
            written: Timestamp(jiff::Timestamp::now().as_millisecond()),
        };
        let mut writer = ArchiveWriter::begin(BufWriter::new(&part.file), &header)?;
        let mut oldest = before;
        for key in keys {
            if let Some(row) = purger.read(*key)? {
                oldest = oldest.min(time_of(&row));
                writer.add(row)?;
            }
        }
        let out = writer.finish()?;
        out.into_inner().map_err(|e| e.into_error())?;
        part.file.sync_all()?;
        let object = KEYS.iter().find(|(_, own, ..)| *own == what);
        let object = object.map_or("row", |(_, _, object, ..)| *object);
        let name = format!(
            "{}_{object}_archive_{}_{}",
            self.cluster,
            stamp(oldest)?,
            stamp(before)?
        );
        let path = part.keep(&self.dir, &name)?;
        File::open(&self.dir)?.sync_all()?;
        Ok(path)
    }
}

/// A file that has no name of its own yet; removed unless it gets one.
struct PartFile {
    file: File,
    path: PathBuf,
}

impl PartFile {
    fn make(dir: &Path) -> Result<PartFile> {
        let random = random()?;
        let path = dir.join(format!(".muster-archive-{random:016x}.part"));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(PartFile { file, path })
    }

    /// Gives it a name: this, or this and a number, or something random. A file that is there is not replaced.
    fn keep(&self, dir: &Path, name: &str) -> Result<PathBuf> {
        for number in 1..=2 * SAME_NAME_MAX {
            let path = match number {
                1 => dir.join(name),
                number if number <= SAME_NAME_MAX => dir.join(format!("{name}.{number}")),
                _ => dir.join(format!("{name}.{:016x}", random()?)),
            };
            match fs::hard_link(&self.path, &path) {
                Ok(()) => return Ok(path),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => {
                    return Err(e).with_context(|| format!("cannot make {}", path.display()));
                }
            }
        }
        anyhow::bail!("there is a file of each name {name} in {}", dir.display())
    }
}

fn random() -> Result<u64> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|e| anyhow::anyhow!("randomness: {e}"))?;
    Ok(u64::from_ne_bytes(random))
}

impl Drop for PartFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A time in the name of a file, UTC.
fn stamp(at: Timestamp) -> Result<String> {
    let at = jiff::Timestamp::from_millisecond(at.0)?;
    Ok(at.strftime("%Y-%m-%dT%H:%M:%S").to_string())
}

/// By what the name of a file says since when it has rows.
fn time_of(row: &Archived) -> Timestamp {
    match row {
        Archived::Event(event) => event.start,
        Archived::Job(job) => job.job.submit,
        Archived::Step { step, .. } => step.start,
        Archived::Suspension { start, .. } => *start,
        Archived::Transaction(logged) => logged.at,
        Archived::Used(sum) => sum.begin,
        Archived::Out { begin, .. } => *begin,
        Archived::Reservation(record) => record.start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user who had taken all numbers stopped purging.
    #[test]
    fn names_that_were_taken_keep_no_archive_from_being_written() {
        let dir = std::env::temp_dir().join(format!("muster-archive.{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let part = PartFile::make(&dir).unwrap();
        let mut made = BTreeSet::new();
        for _ in 0..SAME_NAME_MAX + 5 {
            assert!(made.insert(part.keep(&dir, "c_job_archive").unwrap()));
        }
        let names = made.iter().filter_map(|path| path.extension());
        let lengths: Vec<usize> = names.map(|end| end.len()).collect();
        assert_eq!(lengths.iter().filter(|length| **length == 16).count(), 5);
        fs::remove_dir_all(&dir).unwrap();
    }
}
