//! The file by which a step daemon leaves how its step ended, for a launcher that has not received it.

use muster_model::job::StepEnd;
use muster_node_core::launcher::StepResult;
use muster_node_core::messages::KeptEntries;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Reads a result file.
pub(crate) fn read(path: &Path) -> Option<StepResult> {
    let bytes = fs::read(path).ok()?;
    let mut parts = minicbor::Decoder::new(&bytes);
    let end = parts.decode().ok()?;
    let kept = parts.decode().unwrap_or_default();
    Some(StepResult { end, kept })
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

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::job::{ExitStatus, JobState, ResourceUsage};
    use muster_model::time::Timestamp;
    use muster_node_core::messages::KeptEntry;

    /// The result file of a step daemon of the first version with such files.
    const RESULT: &str = "8505820300058b05060700600000000000001903e8818207420102";

    fn end() -> StepEnd {
        StepEnd {
            end_time: Timestamp(5),
            exit: ExitStatus { code: 3, signal: 0 },
            state: JobState::Failed,
            usage: ResourceUsage {
                user_us: 5,
                system_us: 6,
                max_rss_kib: 7,
                ..ResourceUsage::default()
            },
            cancelled_by: Some(1000),
            last_lines: None,
        }
    }

    /// Step daemons outlive updates: a launcher reads results of those before it.
    #[test]
    fn a_result_of_an_earlier_version_is_read() {
        let bytes = vec![1, 2].into();
        let kept: KeptEntries = vec![KeptEntry { key: 7, bytes }];
        let path = std::env::temp_dir().join(format!("step-result-{}", std::process::id()));
        write(&path, &end(), &kept).unwrap();
        let written = fs::read(&path).unwrap();
        let result = StepResult { end: end(), kept };
        assert_eq!(read(&path), Some(result.clone()));
        let hex: String = written.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex, RESULT,
            "written as before; later versions may add to it"
        );
        let pairs = RESULT.as_bytes().chunks(2);
        let bytes = pairs.map(|pair| {
            let pair = std::str::from_utf8(pair).unwrap();
            u8::from_str_radix(pair, 16).unwrap()
        });
        fs::write(&path, bytes.collect::<Vec<u8>>()).unwrap();
        assert_eq!(read(&path), Some(result));
        fs::remove_file(&path).unwrap();
    }
}
