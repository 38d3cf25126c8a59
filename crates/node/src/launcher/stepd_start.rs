//! Starts step daemons: the launcher's preparation, and the steps of its child up to the exec of
//! this program's own file. The child shares the launcher's memory until then ([`sys::vm_clone`]),
//! so all memory is allocated before. It stays root, and does nothing that a user could delay.

use super::containers::Namespace;
use super::membership::Row;
use crate::cgroup::Entrances;
use crate::role::{self, STEPD_NAME};
use crate::sys::bare::{self, Errno, TextBuffer};
use crate::sys::vm_clone::VmCloneSpawner;
use crate::sys::{self, ExecArguments};
use muster_node_core::messages::FirstOrder;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

/// Starts children that become step daemons.
#[derive(Default)]
pub(super) struct StepdStarter(VmCloneSpawner<StartingStepd>);

/// The data of a child.
struct StartingStepd {
    step: String,
    words: ExecArguments<'static>,
    environment: ExecArguments<'static>,
    /// Inherited descriptors, from number 3 on.
    kept: Vec<RawFd>,
    /// The row in which it records itself.
    row: Row,
    /// Its control groups.
    groups: Entrances,
    /// Its mount namespace.
    namespace: Namespace,
    uid: u32,
}

impl StepdStarter {
    /// Starts a step daemon with these descriptors; returns its process id. `spool` appears in its
    /// command line, for `ps`.
    pub(super) fn start(
        &mut self,
        order: &FirstOrder,
        descriptors: &[RawFd],
        spool: &Path,
        (row, groups, namespace): (Row, Entrances, Namespace),
    ) -> io::Result<i32> {
        let of = &order.step.order;
        let step = format!("{}.{}", of.attempt.job, of.launch.step);
        let bytes = minicbor::to_vec(order).expect("writing to memory cannot fail");
        let file = role::memory_file(&bytes)?;
        let words = [
            STEPD_NAME.as_bytes(),
            spool.as_os_str().as_bytes(),
            step.as_bytes(),
        ];
        // The agent has limited this process's environment to variables that concern the program
        // itself.
        let environment = std::env::vars_os().map(|(name, value)| {
            let mut variable = name.into_vec();
            variable.push(b'=');
            variable.extend(value.into_vec());
            CString::new(variable)
        });
        let stepd = StartingStepd {
            words: ExecArguments::new(
                words
                    .map(CString::new)
                    .into_iter()
                    .collect::<Result<_, _>>()?,
            ),
            environment: ExecArguments::new(environment.collect::<Result<_, _>>()?),
            kept: std::iter::once(file.as_raw_fd())
                .chain(descriptors.iter().copied())
                .collect(),
            row,
            groups,
            namespace,
            uid: of.user.uid,
            step,
        };
        self.0.start(stepd, StartingStepd::run)
    }
}

impl StartingStepd {
    /// In the child.
    fn run(&mut self) -> ! {
        let e = match self.prepare() {
            Ok(()) => sys::exec_bare(role::OWN_FILE, &self.words, &self.environment),
            Err(e) => e,
        };
        let step = &self.step;
        let line =
            TextBuffer::<200>::of(format_args!("step {step}: its daemon cannot start: {e}\n"));
        bare::write(2, line.as_bytes());
        bare::exit(1)
    }

    fn prepare(&mut self) -> Result<(), Errno> {
        // Descendants are found by the sessions that the process begins.
        bare::setsid()?;
        self.groups.join()?;
        self.row.begin_session(self.uid)?;
        self.namespace.join()?;
        bare::keep_only(&mut self.kept)
    }
}
