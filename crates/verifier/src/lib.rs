//! Verifiers: programs of a site's that see each submission and each change of a job before the controller does, and accept,
//! change or refuse it. This crate runs job_submit.lua in a process of its own ([`process`]), and has the messages between that
//! and the controller ([`message`]), jobs as parameters of Grid Engine's verifiers ([`jsv`]), and the fields of a job by Slurm's
//! names ([`fields`]). Rights are not checked here: the controller checks a verifier's changes like a user's request.

pub mod description;
pub mod fields;
pub mod job_class;
pub mod jsv;
mod lua;
pub mod message;
pub mod process;

pub use lua::{Host, Script, load_cli_filter};
