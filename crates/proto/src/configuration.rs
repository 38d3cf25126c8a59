//! The configuration that a controller gives to hosts which have none.

use crate::frame::Message;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::validate::Validate;

/// Files of one configuration.
const FILES_MAX: usize = 2048;
/// Bytes of a file's name.
const NAME_MAX: usize = 4096;

/// A file of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub struct ConfigurationFile {
    /// Its path from the directory of slurm.conf on.
    #[n(0)]
    #[valid(max_bytes = NAME_MAX)]
    pub name: String,
    /// Its contents.
    #[n(1)]
    #[valid(max_bytes = FRAME_BYTES_MAX)]
    pub bytes: ByteVec,
    /// It is a program.
    #[n(2)]
    pub is_program: bool,
}

/// All that the controller says on a channel whose credential is for the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub enum ConfigurationAnswer {
    /// The files, slurm.conf first.
    #[n(0)]
    Files(
        #[n(0)]
        #[valid(max_items = FILES_MAX)]
        Vec<ConfigurationFile>,
    ),
    /// Why there are none.
    #[n(1)]
    Refused(
        #[n(0)]
        #[valid(max_bytes = NAME_MAX)]
        String,
    ),
}

impl Message for ConfigurationAnswer {
    const BYTES_MAX: usize = FRAME_BYTES_MAX;
}
