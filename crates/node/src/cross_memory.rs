//! Cross-memory attach: whether a rank may copy straight out of another's memory (process_vm_readv(2)), and whether
//! that is faster on this machine than copying twice through memory that both share. MPI libraries assume the first
//! and cannot know the second, so each node measures both once a boot, as a user without rights.

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

/// How long a measurement may take, after which it ends by itself unless somebody stops it.
const PATIENCE: Duration = Duration::from_secs(15);

/// The argument with which the launcher's program measures instead.
pub(crate) const ARGUMENT: &str = "--cross-memory";

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrossMemory {
    /// It works.
    Works {
        /// How fast, MB/s.
        attach: u32,
        /// How fast two processes copy through memory that they share, MB/s; 0 if that could not be measured.
        copy: u32,
    },
    /// It does not: why, and what to do about it.
    Fails(String),
}

impl CrossMemory {
    /// Measures it in a process of its own, started from this program file.
    ///
    /// # Errors
    /// The process cannot be started, or does not answer as it should.
    pub fn measure(program: &Path) -> io::Result<CrossMemory> {
        CrossMemory::of(&command(program).output()?)
    }

    /// What the process has found.
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

    /// The words of [`std::fmt::Display`].
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

    /// Whether ranks gain by it here. Copying twice has to be clearly faster before it is preferred: it takes the time
    /// of two CPUs.
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

/// A measurement that goes on while the node starts. What was measured since the machine started stands in a file.
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
    /// Begins.
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

    /// Waits for the result; nothing if there is none.
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

/// What tells MPI libraries whether to use it: Open MPI 4 and 5, UCX, MPICH and Intel MPI. Each looks at its own and
/// none minds the others'. A library that finds out by itself needs no word to use it.
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

    /// Somebody may have stopped it.
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
