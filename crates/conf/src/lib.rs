//! Slurm's configuration files: slurm.conf into a typed [`Config`], and every finding about it as
//! a [`Diagnostic`] with its place. Also gres.conf, topology.conf, cgroup.conf, job_container.conf,
//! mpi.conf and slurmdbd.conf, the tables of all their keys, and the rows of `scontrol show config`.

mod authentication;
mod check;
mod cluster;
mod communication;
mod devices;
mod diagnostic;
mod distributed;
mod dynamic;
pub mod endpoint;
pub mod files;
pub mod grid_engine;
pub mod job_classes;
pub mod job_container;
pub mod job_defaults;
pub mod keys;
mod load;
mod model;
mod nodes;
pub mod options;
mod order;
mod partitions;
mod power;
mod reader;
pub mod scheduler_parameters;
mod show;
pub mod site_options;
mod slurmctld_parameters;
mod source;
pub mod topology;
pub mod value;
pub mod verifier;
pub mod webhooks;
mod write;
pub mod zone;

pub use authentication::{AuthMethod, Authentication, UserTokenSettings};
pub use check::{
    CheckReport, DEFAULT_PATH, FindError, check, check_alone, check_with, find_config,
};
pub use communication::Communication;
pub use diagnostic::{Diagnostic, Origin, Severity};
pub use distributed::{DistributedFile, DistributedFiles, plain_name};
pub use dynamic::{DynamicError, dynamic_nodes, hardware_is_given};
pub use load::{load, load_text, load_with};
pub use model::*;
pub use nodes::{MAX_NODES, parse_gres};
pub use show::{ListingContext, format_row, show_config};
pub use slurmctld_parameters::RateLimits;
pub use source::{ReadFile, optional_text, read_from_disk};
pub use write::{PrivateClusterConfig, write_minimal};
