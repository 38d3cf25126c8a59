//! Structures that others have as members.
//! Members have the names, types and order that programs of Slurm 22.05 are compiled with. Nothing is decided here.

use super::members::Foreign;

c_structures! {
    /// Names a step.
    SlurmStepId = "slurm_step_id_t" {
        job_id: u32,
        step_het_comp: u32,
        step_id: u32,
    }
    /// Data of a plugin: none here.
    SlurmPluginData = "dynamic_plugin_data_t" {
        data: Foreign,
        plugin_id: u32,
    }
}
