//! The file by which a step daemon leaves how its step ended, for a launcher that has not received it.

use muster_model::job::StepEnd;
use muster_node_core::messages::KeptEntries;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// What a file says: how a step ended, and what was to be kept of it by a launcher that may not know the step.
pub(crate) fn read(path: &Path) -> Option<(StepEnd, KeptEntries)> {
    let bytes = fs::read(path).ok()?;
    let mut parts = minicbor::Decoder::new(&bytes);
    let end = parts.decode().ok()?;
    Some((end, parts.decode().unwrap_or_default()))
}

/// Writes a file: under another name first, as half a result is none.
pub(crate) fn write(path: &Path, end: &StepEnd, kept: &KeptEntries) -> io::Result<()> {
    let mut bytes = minicbor::to_vec(end).expect("writing to memory cannot fail");
    minicbor::encode(kept, &mut bytes).expect("writing to memory cannot fail");
    let next = path.with_extension("next");
    // One that an earlier life has left may have another mode.
    let _ = fs::remove_file(&next);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&next)?;
    file.write_all(&bytes)?;
    fs::rename(&next, path)
}
