//! Cross-memory attach: whether a rank may copy directly out of another's memory
//! (process_vm_readv(2)), and whether that is faster on this machine than copying twice through
//! shared memory. MPI libraries assume the former and cannot know the latter, so each node measures
//! both once per boot, as an unprivileged user.

mod probe;

pub(crate) use probe::main;

use crate::role::LAUNCHER_NAME;
use crate::sys;
use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Time limit of a measurement, after which its process ends by itself unless it is stopped.
const PATIENCE: Duration = Duration::from_secs(15);

/// The argument with which the launcher's program measures.
pub(crate) const ARGUMENT: &str = "--cross-memory";

/// The result of the measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrossMemory {
    /// It works.
    Works {
        /// Speed of direct copies, MB/s.
        attach: u32,
        /// Speed of copies between two processes through shared memory, MB/s; 0 if it could not be
        /// measured.
        copy: u32,
    },
    /// It does not work: the reason, and what to do about it.
    Fails(String),
}

impl CrossMemory {
    /// Measures in a separate process, started from this program file.
    ///
    /// # Errors
    /// The process cannot be started, or its answer is invalid.
    pub fn measure(program: &Path) -> io::Result<CrossMemory> {
        CrossMemory::of(&command(program).output()?)
    }

    /// The result of the process.
    fn of(output: &Output) -> io::Result<CrossMemory> {
        let text = String::from_utf8_lossy(&output.stdout);
        CrossMemory::parse(&text).ok_or_else(|| {
            let text = String::from_utf8_lossy(&output.stderr);
            io::Error::other(format!(
                "the probe of cross-memory attach fails: {} ({})",
                text.trim(),
                output.status
            ))
        })
    }

    /// Parses the text of [`std::fmt::Display`].
    pub(crate) fn parse(text: &str) -> Option<CrossMemory> {
        let text = text.trim();
        if let Some(why) = text.strip_prefix("CrossMemoryAttach=NO CrossMemoryReason=") {
            return Some(CrossMemory::Fails(why.to_owned()));
        }
        let rest = text.strip_prefix("CrossMemoryAttach=YES AttachMBps=")?;
        let (attach, copy) = rest.split_once(" CopyMBps=")?;
        Some(CrossMemory::Works {
            attach: attach.parse().ok()?,
            copy: copy.parse().ok()?,
        })
    }

    /// Whether ranks gain by it here. Copying twice must be clearly faster to be preferred, because
    /// it uses the time of two CPUs.
    pub(crate) fn pays(&self) -> bool {
        match self {
            CrossMemory::Works { attach, copy } => {
                attach.saturating_mul(5) >= copy.saturating_mul(4)
            }
            CrossMemory::Fails(_) => false,
        }
    }
}

/// Waits for the process, and kills it if it does not end in time.
fn wait_at_most(mut process: Child, patience: Duration) -> io::Result<Output> {
    let held = sys::pidfd(i32::try_from(process.id()).unwrap_or(0))?;
    let mut fds = [libc::pollfd {
        fd: held.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }];
    let wait = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    if sys::poll(&mut fds, wait).is_err() || fds[0].revents == 0 {
        process.kill()?;
    }
    process.wait_with_output()
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .arg0(LAUNCHER_NAME)
        .arg(ARGUMENT)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .current_dir("/");
    command
}

/// A measurement that runs while the node starts. The result since the machine's boot is stored in
/// a file.
pub(crate) struct Probe {
    file: PathBuf,
    boot_id: String,
    found: io::Result<Running>,
}

enum Running {
    Known(CrossMemory),
    Measured(Child),
}

impl Probe {
    /// Starts the measurement.
    pub(crate) fn start(program: &Path, spool: &Path) -> Probe {
        let file = spool.join("cross-memory");
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let known = fs::read_to_string(&file).unwrap_or_default();
        let known = known.strip_prefix(boot_id.trim());
        let found = match known.and_then(CrossMemory::parse) {
            Some(known) => Ok(Running::Known(known)),
            None => command(program).spawn().map(Running::Measured),
        };
        Probe {
            file,
            boot_id,
            found,
        }
    }

    /// Waits for the result; `None` if there is none.
    pub(crate) fn finish(self) -> Option<CrossMemory> {
        let found = match self.found {
            Ok(Running::Known(known)) => return Some(known),
            Ok(Running::Measured(process)) => {
                wait_at_most(process, PATIENCE).and_then(|output| CrossMemory::of(&output))
            }
            Err(e) => Err(e),
        };
        let remember = |found: &CrossMemory| {
            let text = format!("{} {found}\n", self.boot_id.trim());
            fs::write(&self.file, text)
        };
        match found.and_then(|found| remember(&found).map(|()| found)) {
            Ok(found) => Some(found),
            Err(e) => {
                log::warn!("{e}");
                None
            }
        }
    }
}

/// As `scontrol show node` prints it.
impl std::fmt::Display for CrossMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CrossMemory::Works { attach, copy } => {
                write!(
                    f,
                    "CrossMemoryAttach=YES AttachMBps={attach} CopyMBps={copy}"
                )
            }
            CrossMemory::Fails(why) => write!(f, "CrossMemoryAttach=NO CrossMemoryReason={why}"),
        }
    }
}

/// Variables that tell MPI libraries whether to use it: Open MPI 4 and 5, UCX, MPICH and Intel MPI.
/// Each library reads only its own. A library that detects it by itself needs no variable to use
/// it.
pub(crate) fn switches(on: bool) -> &'static [(&'static str, &'static str)] {
    if on {
        &[
            ("OMPI_MCA_btl_vader_single_copy_mechanism", "cma"),
            ("I_MPI_SHM_CMA", "1"),
        ]
    } else {
        &[
            ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
            ("OMPI_MCA_smsc", "^cma"),
            ("UCX_TLS", "^cma"),
            ("MPIR_CVAR_CH4_CMA_ENABLE", "0"),
            ("I_MPI_SHM_CMA", "0"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        let works = CrossMemory::Works {
            attach: 5800,
            copy: 3300,
        };
        let fails = CrossMemory::Fails("kernel.yama.ptrace_scope is 3".to_owned());
        for found in [works, fails] {
            assert_eq!(CrossMemory::parse(&format!("{found}\n")), Some(found));
        }
        assert_eq!(CrossMemory::parse(""), None);
    }

    /// The process may have been stopped.
    #[test]
    fn a_measurement_that_does_not_end_is_killed() {
        let mut sleeper = Command::new("sleep");
        let sleeper = sleeper.arg("600").stdout(Stdio::piped()).spawn().unwrap();
        let output = wait_at_most(sleeper, Duration::from_millis(20)).unwrap();
        assert!(!output.status.success());
        CrossMemory::of(&output).unwrap_err();
    }

    #[test]
    fn copying_twice_is_preferred_only_where_it_is_clearly_faster() {
        let pays = |attach, copy| CrossMemory::Works { attach, copy }.pays();
        assert!(pays(5000, 3000) && pays(5000, 6000) && pays(5000, 0));
        assert!(!pays(5000, 7000));
        assert!(!CrossMemory::Fails(String::new()).pays());
    }
}
