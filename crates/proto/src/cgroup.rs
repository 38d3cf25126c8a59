//! Settings of control groups for nodes, from slurm.conf and cgroup.conf(5). Each node derives its own values from them.

use minicbor::{Decode, Encode};
use muster_model::validate::Validate;

/// `ProctrackType`, `TaskPlugin`, `JobAcctGatherType` and cgroup.conf, where one of them asks for control groups. Shares are thousandths
/// of a percent.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub struct CgroupSettings {
    /// `CgroupPlugin`.
    #[n(0)]
    pub version: CgroupVersion,
    /// `CgroupMountpoint`; empty: wherever the kernel says.
    #[n(1)]
    pub mount_point: String,
    /// `ConstrainCores`.
    #[n(2)]
    pub cores: bool,
    /// `ConstrainRAMSpace`.
    #[n(3)]
    pub ram: bool,
    /// `ConstrainSwapSpace`.
    #[n(4)]
    pub swap: bool,
    /// `AllowedRAMSpace`.
    #[n(5)]
    pub allowed_ram: u32,
    /// `AllowedSwapSpace`.
    #[n(6)]
    pub allowed_swap: u32,
    /// `MaxRAMPercent`.
    #[n(7)]
    pub max_ram: u32,
    /// `MaxSwapPercent`.
    #[n(8)]
    pub max_swap: u32,
    /// `MinRAMSpace`, MiB.
    #[n(9)]
    pub min_ram_mib: u64,
    /// `MemorySwappiness`.
    #[n(10)]
    pub swappiness: Option<u32>,
    /// `JobAcctGatherType=jobacct_gather/cgroup`: what steps use is read from their groups.
    #[n(11)]
    pub accounts: bool,
    /// `ConstrainDevices`.
    #[n(12)]
    #[cbor(default)]
    pub devices: bool,
    /// Devices of the node that gets this, where they are to be confined.
    #[n(13)]
    #[cbor(default)]
    pub gres: Vec<DeviceFiles>,
}

/// Files of a kind of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct DeviceFiles {
    /// `gpu`.
    #[n(0)]
    pub name: String,
    /// `a100`.
    #[n(1)]
    pub kind: Option<String>,
    /// Files of each instance; several are parted by commas.
    #[n(2)]
    pub files: Vec<String>,
}

/// Which version of control groups is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
#[cbor(index_only)]
pub enum CgroupVersion {
    /// The version in which the machine has each controller.
    #[default]
    #[n(0)]
    Any,
    /// `cgroup/v1`.
    #[n(1)]
    V1,
    /// `cgroup/v2`.
    #[n(2)]
    V2,
}

/// A whole, in thousandths of a percent.
pub const WHOLE: u32 = 100_000;

impl Default for CgroupSettings {
    /// As an empty cgroup.conf.
    fn default() -> CgroupSettings {
        CgroupSettings {
            version: CgroupVersion::Any,
            mount_point: String::new(),
            cores: false,
            ram: false,
            swap: false,
            allowed_ram: WHOLE,
            allowed_swap: 0,
            max_ram: WHOLE,
            max_swap: WHOLE,
            min_ram_mib: 30,
            swappiness: None,
            accounts: false,
            devices: false,
            gres: Vec::new(),
        }
    }
}
