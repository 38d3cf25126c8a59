//! The record file and the settings file. Their contents are defined by
//! [`muster_node_core::launcher::LauncherRecords`].

use muster_proto::node::NodeSettings;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Name of the record file in the spool directory.
const RECORDS: &str = "attempts";
/// Name of the settings.
const SETTINGS: &str = "settings";

/// The record file, open for appending.
#[derive(Debug)]
pub(super) struct RecordFile {
    path: PathBuf,
    file: File,
    size: u64,
}

impl RecordFile {
    /// The contents of the file in a spool directory.
    pub(super) fn read(spool: &Path) -> io::Result<String> {
        match fs::read(spool.join(RECORDS)) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(e) => Err(e),
        }
    }

    /// Creates the file in a spool directory with exactly these contents.
    pub(super) fn create(spool: &Path, all: &[u8]) -> io::Result<RecordFile> {
        let path = spool.join(RECORDS);
        let file = replace(&path, all)?;
        let size = all.len() as u64;
        Ok(RecordFile { path, file, size })
    }

    pub(super) fn rewrite(&mut self, all: &[u8]) -> io::Result<()> {
        self.file = replace(&self.path, all)?;
        self.size = all.len() as u64;
        Ok(())
    }

    /// Appends lines. A partial write is undone, because the next line would be joined to an
    /// incomplete one.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.append_by(lines.len(), |mut file| file.write_all(lines))
    }

    fn append_by(
        &mut self,
        bytes: usize,
        write: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        write(&self.file).inspect_err(|_| {
            if let Err(e) = self.file.set_len(self.size) {
                eprintln!("attempts: cannot cut off a torn line: {e}");
            }
        })?;
        self.size += bytes as u64;
        Ok(())
    }
}

fn replace(path: &Path, all: &[u8]) -> io::Result<File> {
    let next = path.with_extension("next");
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&next)?;
    file.set_len(0)?;
    // A file left by an earlier launcher keeps its old mode.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(all)?;
    fs::rename(&next, path)?;
    Ok(file)
}

/// Stores the settings for a launcher that starts without the controller.
pub(super) fn keep_settings(spool: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = spool.join(SETTINGS);
    let next = path.with_extension("next");
    let _ = fs::remove_file(&next);
    let options = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&next);
    options?.write_all(bytes)?;
    fs::rename(next, path)
}

/// The settings that an earlier launcher has stored.
pub(super) fn read_settings(spool: &Path) -> Option<NodeSettings> {
    let bytes = fs::read(spool.join(SETTINGS)).ok()?;
    minicbor::decode(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(name: &str) -> PathBuf {
        let name = format!("muster-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        dir
    }

    #[test]
    fn a_line_that_a_full_disk_has_torn_does_not_spoil_the_next() {
        let dir = dir("torn");
        let mut file = RecordFile::create(&dir, b"B boot\n").unwrap();
        file.append(b"first\n").unwrap();
        // A line that was cut off because the disk was full.
        let torn = file.append_by(9, |mut file| {
            file.write_all(b"L 2 1 10")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert!(torn.is_err());
        file.append(b"third\n").unwrap();
        assert_eq!(RecordFile::read(&dir).unwrap(), "B boot\nfirst\nthird\n");
        file.rewrite(b"B boot\n").unwrap();
        file.append(b"fourth\n").unwrap();
        assert_eq!(RecordFile::read(&dir).unwrap(), "B boot\nfourth\n");
        let mode = fs::metadata(dir.join(RECORDS)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn settings_outlive_the_launcher() {
        let dir = dir("settings");
        assert_eq!(read_settings(&dir), None);
        let settings = NodeSettings {
            kill_wait_s: 7,
            max_step_count: 5,
            ..NodeSettings::default()
        };
        let bytes = minicbor::to_vec(&settings).unwrap();
        keep_settings(&dir, &bytes).unwrap();
        keep_settings(&dir, &bytes).unwrap();
        assert_eq!(read_settings(&dir), Some(settings));
        let mode = fs::metadata(dir.join(SETTINGS)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        fs::remove_dir_all(&dir).unwrap();
    }
}
