//! Structures of nodes, partitions, reservations, licenses and switches.
//! Members have the names, types and order that programs of Slurm 22.05 are compiled with. Nothing is decided here.

use super::members::{Foreign, OwnedBlock, OwnedList, OwnedText};
use super::parts::SlurmPluginData;

c_structures! {
    /// Energy of a node.
    SlurmEnergy = "acct_gather_energy_t" {
        ave_watts: u32,
        base_consumed_energy: u64,
        consumed_energy: u64,
        current_watts: u32,
        previous_consumed_energy: u64,
        poll_time: i64,
    }
    /// Sensors of a node.
    SlurmSensors = "ext_sensors_data_t" {
        consumed_energy: u64,
        temperature: u32,
        energy_update_time: i64,
        current_watts: u32,
    }
    /// Power of a node.
    SlurmPower = "power_mgmt_data_t" {
        cap_watts: u32,
        current_watts: u32,
        joule_counter: u64,
        new_cap_watts: u32,
        max_watts: u32,
        min_watts: u32,
        new_job_time: i64,
        state: u16,
        time_usec: u64,
    }
    /// A node.
    SlurmNodeInfo = "node_info_t" {
        arch: OwnedText,
        bcast_address: OwnedText,
        boards: u16,
        boot_time: i64,
        cluster_name: OwnedText,
        cores: u16,
        core_spec_cnt: u16,
        cpu_bind: u32,
        cpu_load: u32,
        free_mem: u64,
        cpus: u16,
        cpus_efctv: u16,
        cpu_spec_list: OwnedText,
        energy: *mut SlurmEnergy,
        ext_sensors: *mut SlurmSensors,
        extra: OwnedText,
        power: *mut SlurmPower,
        features: OwnedText,
        features_act: OwnedText,
        gres: OwnedText,
        gres_drain: OwnedText,
        gres_used: OwnedText,
        last_busy: i64,
        mcs_label: OwnedText,
        mem_spec_limit: u64,
        name: OwnedText,
        next_state: u32,
        node_addr: OwnedText,
        node_hostname: OwnedText,
        node_state: u32,
        os: OwnedText,
        owner: u32,
        partitions: OwnedText,
        port: u16,
        real_memory: u64,
        comment: OwnedText,
        reason: OwnedText,
        reason_time: i64,
        reason_uid: u32,
        select_nodeinfo: *mut SlurmPluginData,
        slurmd_start_time: i64,
        sockets: u16,
        threads: u16,
        tmp_disk: u32,
        weight: u32,
        tres_fmt_str: OwnedText,
        version: OwnedText,
    }
    /// Nodes.
    SlurmNodeInfoMsg = "node_info_msg_t" {
        last_update: i64,
        record_count: u32,
        node_array: *mut SlurmNodeInfo,
    }
    /// Changes of nodes.
    SlurmNodeUpdate = "update_node_msg_t" {
        comment: OwnedText,
        cpu_bind: u32,
        extra: OwnedText,
        features: OwnedText,
        features_act: OwnedText,
        gres: OwnedText,
        node_addr: OwnedText,
        node_hostname: OwnedText,
        node_names: OwnedText,
        node_state: u32,
        reason: OwnedText,
        reason_uid: u32,
        weight: u32,
    }
    /// A partition, or changes of one.
    SlurmPartitionInfo = "partition_info_t" {
        allow_alloc_nodes: OwnedText,
        allow_accounts: OwnedText,
        allow_groups: OwnedText,
        allow_qos: OwnedText,
        alternate: OwnedText,
        billing_weights_str: OwnedText,
        cluster_name: OwnedText,
        cr_type: u16,
        cpu_bind: u32,
        def_mem_per_cpu: u64,
        default_time: u32,
        deny_accounts: OwnedText,
        deny_qos: OwnedText,
        flags: u16,
        grace_time: u32,
        job_defaults_list: OwnedList,
        job_defaults_str: OwnedText,
        max_cpus_per_node: u32,
        max_mem_per_cpu: u64,
        max_nodes: u32,
        max_share: u16,
        max_time: u32,
        min_nodes: u32,
        name: OwnedText,
        node_inx: OwnedBlock<i32>,
        nodes: OwnedText,
        nodesets: OwnedText,
        over_time_limit: u16,
        preempt_mode: u16,
        priority_job_factor: u16,
        priority_tier: u16,
        qos_char: OwnedText,
        resume_timeout: u16,
        state_up: u16,
        suspend_time: u32,
        suspend_timeout: u16,
        total_cpus: u32,
        total_nodes: u32,
        tres_fmt_str: OwnedText,
    }
    /// Partitions.
    SlurmPartitionInfoMsg = "partition_info_msg_t" {
        last_update: i64,
        record_count: u32,
        partition_array: *mut SlurmPartitionInfo,
    }
    /// Names a partition.
    SlurmPartitionName = "delete_part_msg_t" {
        name: OwnedText,
    }
    /// Cores of a node that a reservation has.
    SlurmCoreSpec = "resv_core_spec_t" {
        node_name: OwnedText,
        core_id: OwnedText,
    }
    /// A reservation.
    SlurmReservationInfo = "reserve_info_t" {
        accounts: OwnedText,
        burst_buffer: OwnedText,
        core_cnt: u32,
        core_spec_cnt: u32,
        core_spec: *mut SlurmCoreSpec,
        end_time: i64,
        features: OwnedText,
        flags: u64,
        groups: OwnedText,
        licenses: OwnedText,
        max_start_delay: u32,
        name: OwnedText,
        node_cnt: u32,
        node_inx: OwnedBlock<i32>,
        node_list: OwnedText,
        partition: OwnedText,
        purge_comp_time: u32,
        start_time: i64,
        resv_watts: u32,
        tres_str: OwnedText,
        users: OwnedText,
    }
    /// Reservations.
    SlurmReservationInfoMsg = "reserve_info_msg_t" {
        last_update: i64,
        record_count: u32,
        reservation_array: *mut SlurmReservationInfo,
    }
    /// A reservation that is to be made or changed.
    SlurmReservationDesc = "resv_desc_msg_t" {
        accounts: OwnedText,
        burst_buffer: OwnedText,
        core_cnt: OwnedBlock<u32>,
        duration: u32,
        end_time: i64,
        features: OwnedText,
        flags: u64,
        groups: OwnedText,
        licenses: OwnedText,
        max_start_delay: u32,
        name: OwnedText,
        node_cnt: OwnedBlock<u32>,
        node_list: OwnedText,
        partition: OwnedText,
        purge_comp_time: u32,
        start_time: i64,
        resv_watts: u32,
        tres_str: OwnedText,
        users: OwnedText,
    }
    /// Names a reservation.
    SlurmReservationName = "reservation_name_msg_t" {
        name: OwnedText,
    }
    /// A license.
    SlurmLicenseInfo = "slurm_license_info_t" {
        name: OwnedText,
        total: u32,
        in_use: u32,
        available: u32,
        remote: u8,
        reserved: u32,
    }
    /// Licenses.
    SlurmLicenseInfoMsg = "license_info_msg_t" {
        last_update: i64,
        num_lic: u32,
        lic_array: *mut SlurmLicenseInfo,
    }
    /// A switch.
    SlurmTopoInfo = "topo_info_t" {
        level: u16,
        link_speed: u32,
        name: OwnedText,
        nodes: OwnedText,
        switches: OwnedText,
    }
    /// Switches.
    SlurmTopoInfoMsg = "topo_info_response_msg_t" {
        record_count: u32,
        topo_array: *mut SlurmTopoInfo,
    }
    /// Front ends: none.
    SlurmFrontEndInfoMsg = "front_end_info_msg_t" {
        last_update: i64,
        record_count: u32,
        front_end_array: Foreign,
    }
}
