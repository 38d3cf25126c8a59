//! The decisions of a node's processes and of srun, and the messages between them, without I/O: no sockets, files,
//! clocks or threads. `muster-node` and `muster-cli` execute them.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod agent;
pub mod binding;
pub mod cgroup;
pub mod exit_status;
mod job_container;
pub mod job_view;
pub mod kept;
pub mod labels;
pub mod launcher;
pub mod layout;
pub mod messages;
pub mod now;
pub mod pattern;
pub mod pmix_place;
mod prolog_epilog;
pub mod record;
pub mod signals;
pub mod srun;
pub mod step_bounds;
pub mod step_numbers;
pub mod step_variables;
pub mod stepd;
pub mod stepd_reuse;
pub mod tmp_dir;

pub use job_container::JobContainer;
pub use prolog_epilog::PrologEpilog;
pub use tmp_dir::JobTmpDir;
