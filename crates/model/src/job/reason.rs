//! Why jobs wait, by the names that Slurm gives the reasons.

use minicbor::{Decode, Encode};

/// Why a job waits or ended, as `squeue %r` prints it. Each is a value that the scheduler or the core produced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Reason {
    /// `None`.
    #[default]
    #[n(0)]
    None,
    /// Jobs of higher priority wait for the same resources.
    #[n(1)]
    Priority,
    /// The next in its partition to start when resources are free.
    #[n(2)]
    Resources,
    /// Waits for another job.
    #[n(3)]
    Dependency,
    /// A job it waits for ended in a way that can never satisfy it.
    #[n(4)]
    DependencyNeverSatisfied,
    /// `--begin` is in the future.
    #[n(5)]
    BeginTime,
    /// Held by its owner.
    #[n(6)]
    JobHeldUser,
    /// Held by an administrator.
    #[n(7)]
    JobHeldAdmin,
    /// Requeued and held.
    #[n(8)]
    JobHoldMaxRequeue,
    /// The array's `%limit` is reached.
    #[n(9)]
    JobArrayTaskLimit,
    /// Nodes it asks for are down or drained.
    #[n(10)]
    ReqNodeNotAvail,
    /// Every node that could run it is down, drained or reserved.
    #[n(11)]
    NodesUnavailable,
    /// Partition `State=DOWN`.
    #[n(12)]
    PartitionDown,
    /// Partition `State=INACTIVE`.
    #[n(13)]
    PartitionInactive,
    /// Its node count is outside the partition's limits.
    #[n(14)]
    PartitionNodeLimit,
    /// Its time limit is over the partition's.
    #[n(15)]
    PartitionTimeLimit,
    /// No node of its partition can ever satisfy it.
    #[n(16)]
    BadConstraints,
    /// More is asked for than the partition has (`PartitionConfig`).
    #[n(17)]
    PartitionConfig,
    /// A requeued job waits for its old processes to be gone.
    #[n(18)]
    Cleaning,
    /// Its licenses are in use.
    #[n(19)]
    Licenses,
    /// Its reservation has not begun or does not exist.
    #[n(20)]
    Reservation,
    /// The job's exit code was not zero.
    #[n(21)]
    NonZeroExitCode,
    /// Ended by a signal.
    #[n(22)]
    RaisedSignal,
    /// Ran into its time limit.
    #[n(23)]
    TimeLimit,
    /// A node was lost.
    #[n(24)]
    NodeDown,
    /// The launch failed.
    #[n(25)]
    JobLaunchFailure,
    /// Out of memory.
    #[n(26)]
    OutOfMemory,
    /// Its deadline passed.
    #[n(27)]
    DeadLine,
    /// The holder of an interactive allocation went away.
    #[n(28)]
    InactiveLimit,
    /// Accounting policy refuses (limits come with accounting).
    #[n(29)]
    AssocLimit,
    /// Ended by the system.
    #[n(30)]
    SystemFailure,
    /// Waits until a failed launch may be tried again.
    #[n(31)]
    LaunchBackoff,
    /// Nodes that it needs are reserved for others at a time when it would run.
    #[n(40)]
    NodesReserved,
    /// Nodes reserved for maintenance.
    #[n(41)]
    ReservedForMaintenance,
    /// The reservation that it asked for is gone.
    #[n(42)]
    ReservationDeleted,
    /// `GrpJobs` of its account or one above.
    #[n(220)]
    AssocGrpJobsLimit,
    /// `GrpTRES=cpu`, likewise.
    #[n(221)]
    AssocGrpCpuLimit,
    /// `GrpTRES=mem`, likewise.
    #[n(222)]
    AssocGrpMemLimit,
    /// `GrpTRES=node`, likewise.
    #[n(223)]
    AssocGrpNodeLimit,
    /// `GrpTRES=gres/...`, likewise.
    #[n(224)]
    AssocGrpGRES,
    /// `MaxJobs` of its user in its account.
    #[n(225)]
    AssocMaxJobsLimit,
    /// `MaxTRES=cpu`, likewise.
    #[n(226)]
    AssocMaxCpuPerJobLimit,
    /// `MaxTRES=node`, likewise.
    #[n(227)]
    AssocMaxNodePerJobLimit,
    /// `MaxWall`, likewise.
    #[n(228)]
    AssocMaxWallDurationPerJobLimit,
    /// `GrpJobs` of its QOS.
    #[n(229)]
    QOSGrpJobsLimit,
    /// `GrpTRES=cpu`, likewise.
    #[n(230)]
    QOSGrpCpuLimit,
    /// `GrpTRES=mem`, likewise.
    #[n(231)]
    QOSGrpMemLimit,
    /// `GrpTRES=node`, likewise.
    #[n(232)]
    QOSGrpNodeLimit,
    /// `GrpTRES=gres/...`, likewise.
    #[n(233)]
    QOSGrpGRES,
    /// `MaxJobsPerUser` of its QOS.
    #[n(234)]
    QOSMaxJobsPerUserLimit,
    /// `MaxTRESPerUser=cpu`, likewise.
    #[n(235)]
    QOSMaxCpuPerUserLimit,
    /// `MaxTRESPerUser=node`, likewise.
    #[n(236)]
    QOSMaxNodePerUserLimit,
    /// `MaxTRES=cpu` of its QOS.
    #[n(237)]
    QOSMaxCpuPerJobLimit,
    /// `MaxTRES=node`, likewise.
    #[n(238)]
    QOSMaxNodePerJobLimit,
    /// `MaxWall`, likewise.
    #[n(239)]
    QOSMaxWallDurationPerJobLimit,
    /// `GrpWall` of its association or an account above.
    #[n(240)]
    AssocGrpWallLimit,
    /// `GrpTRESMins=cpu`, likewise.
    #[n(241)]
    AssocGrpCPUMinutesLimit,
    /// `GrpTRESMins=mem`, likewise.
    #[n(242)]
    AssocGrpMemMinutes,
    /// `GrpTRESMins=node`, likewise.
    #[n(243)]
    AssocGrpNodeMinutes,
    /// `GrpTRESMins=gres/...`, likewise.
    #[n(244)]
    AssocGrpGRESMinutes,
    /// `GrpTRESRunMins=cpu`, likewise.
    #[n(245)]
    AssocGrpCPURunMinutesLimit,
    /// `GrpTRESRunMins=mem`, likewise.
    #[n(246)]
    AssocGrpMemRunMinutes,
    /// `GrpTRESRunMins=node`, likewise.
    #[n(247)]
    AssocGrpNodeRunMinutes,
    /// `GrpTRESRunMins=gres/...`, likewise.
    #[n(248)]
    AssocGrpGRESRunMinutes,
    /// `MaxTRES=mem` of its association.
    #[n(249)]
    AssocMaxMemPerJob,
    /// `MaxTRES=gres/...`, likewise.
    #[n(250)]
    AssocMaxGRESPerJob,
    /// `MaxTRESMins=cpu`, likewise.
    #[n(251)]
    AssocMaxCpuMinutesPerJobLimit,
    /// `MaxTRESMins=mem`, likewise.
    #[n(252)]
    AssocMaxMemMinutesPerJob,
    /// `MaxTRESMins=node`, likewise.
    #[n(253)]
    AssocMaxNodeMinutesPerJob,
    /// `MaxTRESMins=gres/...`, likewise.
    #[n(254)]
    AssocMaxGRESMinutesPerJob,
    /// `MaxTRESPerNode=cpu`, likewise.
    #[n(255)]
    AssocMaxCpuPerNode,
    /// `MaxTRESPerNode=mem`, likewise.
    #[n(256)]
    AssocMaxMemPerNode,
    /// `MaxTRESPerNode=gres/...`, likewise.
    #[n(257)]
    AssocMaxGRESPerNode,
    /// `GrpWall` of its QOS.
    #[n(258)]
    QOSGrpWallLimit,
    /// `GrpTRESMins=cpu`, likewise.
    #[n(259)]
    QOSGrpCPUMinutesLimit,
    /// `GrpTRESMins=mem`, likewise.
    #[n(260)]
    QOSGrpMemoryMinutes,
    /// `GrpTRESMins=node`, likewise.
    #[n(261)]
    QOSGrpNodeMinutes,
    /// `GrpTRESMins=gres/...`, likewise.
    #[n(262)]
    QOSGrpGRESMinutes,
    /// `GrpTRESRunMins=cpu`, likewise.
    #[n(263)]
    QOSGrpCPURunMinutesLimit,
    /// `GrpTRESRunMins=mem`, likewise.
    #[n(264)]
    QOSGrpMemoryRunMinutes,
    /// `GrpTRESRunMins=node`, likewise.
    #[n(265)]
    QOSGrpNodeRunMinutes,
    /// `GrpTRESRunMins=gres/...`, likewise.
    #[n(266)]
    QOSGrpGRESRunMinutes,
    /// `MaxTRES=mem` of its QOS.
    #[n(267)]
    QOSMaxMemoryPerJob,
    /// `MaxTRES=gres/...`, likewise.
    #[n(268)]
    QOSMaxGRESPerJob,
    /// `MaxTRESMins=cpu`, likewise.
    #[n(269)]
    QOSMaxCpuMinutesPerJobLimit,
    /// `MaxTRESMins=mem`, likewise.
    #[n(270)]
    QOSMaxMemoryMinutesPerJob,
    /// `MaxTRESMins=node`, likewise.
    #[n(271)]
    QOSMaxNodeMinutesPerJob,
    /// `MaxTRESMins=gres/...`, likewise.
    #[n(272)]
    QOSMaxGRESMinutesPerJob,
    /// `MaxTRESPerNode=cpu`, likewise.
    #[n(273)]
    QOSMaxCpuPerNode,
    /// `MaxTRESPerNode=mem`, likewise.
    #[n(274)]
    QOSMaxMemoryPerNode,
    /// `MaxTRESPerNode=gres/...`, likewise.
    #[n(275)]
    QOSMaxGRESPerNode,
    /// `MaxTRESPerUser=mem`, likewise.
    #[n(276)]
    QOSMaxMemoryPerUser,
    /// `MaxTRESPerUser=gres/...`, likewise.
    #[n(277)]
    QOSMaxGRESPerUser,
    /// `MaxJobsPerAccount`, likewise.
    #[n(278)]
    MaxJobsPerAccount,
    /// `MaxTRESPerAccount=cpu`, likewise.
    #[n(279)]
    MaxCpuPerAccount,
    /// `MaxTRESPerAccount=mem`, likewise.
    #[n(280)]
    MaxMemoryPerAccount,
    /// `MaxTRESPerAccount=node`, likewise.
    #[n(281)]
    MaxNodePerAccount,
    /// `MaxTRESPerAccount=gres/...`, likewise.
    #[n(282)]
    MaxGRESPerAccount,
    /// `MinTRES=cpu`, likewise.
    #[n(283)]
    QOSMinCpuNotSatisfied,
    /// `MinTRES=mem`, likewise.
    #[n(284)]
    QOSMinMemory,
    /// `MinTRES=node`, likewise.
    #[n(285)]
    QOSMinNode,
    /// `MinTRES=gres/...`, likewise.
    #[n(286)]
    QOSMinGRES,
    /// `MaxTRESRunMinsPerUser=cpu`, likewise.
    #[n(287)]
    MaxCpuRunMinsPerUser,
    /// `MaxTRESRunMinsPerUser=mem`, likewise.
    #[n(288)]
    MaxMemoryRunMinsPerUser,
    /// `MaxTRESRunMinsPerUser=node`, likewise.
    #[n(289)]
    MaxNodeRunMinsPerUser,
    /// `MaxTRESRunMinsPerUser=gres/...`, likewise.
    #[n(290)]
    MaxGRESRunMinsPerUser,
    /// `MaxTRESRunMinsPerAccount=cpu`, likewise.
    #[n(291)]
    MaxCpuRunMinsPerAccount,
    /// `MaxTRESRunMinsPerAccount=mem`, likewise.
    #[n(292)]
    MaxMemoryRunMinsPerAccount,
    /// `MaxTRESRunMinsPerAccount=node`, likewise.
    #[n(293)]
    MaxNodeRunMinsPerAccount,
    /// `MaxTRESRunMinsPerAccount=gres/...`, likewise.
    #[n(294)]
    MaxGRESRunMinsPerAccount,
    /// Associations are enforced, and the user has none in the job's account any more.
    #[n(295)]
    InvalidAccount,
    /// QOS are enforced, and the job's is gone or not allowed any more.
    #[n(296)]
    InvalidQOS,
    /// Its memory is over the partition's `MaxMemPerNode` or `MaxMemPerCPU`.
    #[n(297)]
    MaxMemPerLimit,
    /// Its partition is not for its account (`AllowAccounts`, `DenyAccounts`).
    #[n(298)]
    AccountNotAllowed,
    /// Its partition is not for its QOS (`AllowQos`, `DenyQos`).
    #[n(299)]
    QOSNotAllowed,
    /// A `Grp` limit of the association on billing.
    #[n(310)]
    AssocGrpBilling,
    /// A `Grp` limit of the association on billing: minutes used.
    #[n(311)]
    AssocGrpBillingMinutes,
    /// A `Grp` limit of the association on billing: minutes of running jobs.
    #[n(312)]
    AssocGrpBillingRunMinutes,
    /// A `Max` limit of the association on billing.
    #[n(313)]
    AssocMaxBillingPerJob,
    /// A `Max` limit of the association on billing: minutes of a job.
    #[n(314)]
    AssocMaxBillingMinutesPerJob,
    /// A `Max` limit of the association on billing.
    #[n(315)]
    AssocMaxBillingPerNode,
    /// A `Grp` limit of the QOS on billing.
    #[n(316)]
    QOSGrpBilling,
    /// A `Grp` limit of the QOS on billing: minutes used.
    #[n(317)]
    QOSGrpBillingMinutes,
    /// A `Grp` limit of the QOS on billing: minutes of running jobs.
    #[n(318)]
    QOSGrpBillingRunMinutes,
    /// A `Max` limit of the QOS on billing.
    #[n(319)]
    QOSMaxBillingPerJob,
    /// A `Max` limit of the QOS on billing: minutes of a job.
    #[n(320)]
    QOSMaxBillingMinutesPerJob,
    /// A `Max` limit of the QOS on billing.
    #[n(321)]
    QOSMaxBillingPerNode,
    /// A `Max` limit of the QOS on billing.
    #[n(322)]
    QOSMaxBillingPerUser,
    /// A limit of the QOS on billing for each user or account.
    #[n(323)]
    MaxBillingPerAccount,
    /// A `Min` limit of the QOS on billing.
    #[n(324)]
    QOSMinBilling,
    /// A limit of the QOS on billing for each user or account: minutes of running jobs.
    #[n(325)]
    MaxBillingRunMinsPerUser,
    /// A limit of the QOS on billing for each user or account: minutes of running jobs.
    #[n(326)]
    MaxBillingRunMinsPerAccount,
    /// The fair share of its association is below `UsageThreshold` of its QOS.
    #[n(327)]
    QOSUsageThreshold,
    /// A limit of its association on licenses.
    #[n(328)]
    AssocGrpLicense,
    /// A limit of its association on licenses.
    #[n(329)]
    AssocGrpLicenseMinutes,
    /// A limit of its association on licenses.
    #[n(330)]
    AssocGrpLicenseRunMinutes,
    /// A limit of its association on licenses.
    #[n(331)]
    AssocMaxLicensePerJob,
    /// A limit of its association on licenses.
    #[n(332)]
    AssocMaxLicenseMinutesPerJob,
    /// A limit of its QOS on licenses.
    #[n(333)]
    QOSGrpLicense,
    /// A limit of its QOS on licenses.
    #[n(334)]
    QOSGrpLicenseMinutes,
    /// A limit of its QOS on licenses.
    #[n(335)]
    QOSGrpLicenseRunMinutes,
    /// A limit of its QOS on licenses.
    #[n(336)]
    QOSMaxLicensePerJob,
    /// A limit of its QOS on licenses.
    #[n(337)]
    QOSMaxLicensePerUser,
    /// A limit of its QOS on licenses.
    #[n(338)]
    QOSMaxLicenseMinutesPerJob,
    /// A limit of its QOS on licenses.
    #[n(339)]
    QOSMinLicense,
    /// A limit of its QOS on licenses.
    #[n(340)]
    MaxLicensePerAccount,
}

impl Reason {
    /// Whether a limit of its association or QOS keeps the job back.
    pub fn is_limit(self) -> bool {
        let name = self.name();
        match self {
            Reason::InvalidAccount | Reason::InvalidQOS => return true,
            // It is the partition that keeps the job back.
            Reason::QOSNotAllowed => return false,
            _ => {}
        }
        ["QOS", "AssocGrp", "AssocMax"]
            .iter()
            .any(|word| name.starts_with(word))
            || name.ends_with("PerAccount")
            || name.ends_with("PerUser")
    }

    /// The word that `squeue %r` prints.
    pub fn name(self) -> &'static str {
        match self {
            Reason::None => "None",
            Reason::Priority => "Priority",
            Reason::Resources => "Resources",
            Reason::Dependency => "Dependency",
            Reason::DependencyNeverSatisfied => "DependencyNeverSatisfied",
            Reason::BeginTime | Reason::LaunchBackoff => "BeginTime",
            Reason::JobHeldUser => "JobHeldUser",
            Reason::JobHeldAdmin => "JobHeldAdmin",
            Reason::JobHoldMaxRequeue => "JobHoldMaxRequeue",
            Reason::JobArrayTaskLimit => "JobArrayTaskLimit",
            Reason::ReqNodeNotAvail => "ReqNodeNotAvail",
            Reason::NodesUnavailable => {
                "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
            }
            Reason::PartitionDown => "PartitionDown",
            Reason::PartitionInactive => "PartitionInactive",
            Reason::PartitionNodeLimit => "PartitionNodeLimit",
            Reason::PartitionTimeLimit => "PartitionTimeLimit",
            Reason::BadConstraints => "BadConstraints",
            Reason::PartitionConfig => "PartitionConfig",
            Reason::Cleaning => "Cleaning",
            Reason::Licenses => "Licenses",
            Reason::Reservation => "Reservation",
            Reason::NodesReserved => "ReqNodeNotAvail, May be reserved for other job",
            Reason::ReservedForMaintenance => "ReqNodeNotAvail, Reserved for maintenance",
            Reason::ReservationDeleted => "ReservationDeleted",
            Reason::NonZeroExitCode => "NonZeroExitCode",
            Reason::RaisedSignal => "RaisedSignal",
            Reason::TimeLimit => "TimeLimit",
            Reason::NodeDown => "NodeDown",
            Reason::JobLaunchFailure => "JobLaunchFailure",
            Reason::OutOfMemory => "OutOfMemory",
            Reason::DeadLine => "DeadLine",
            Reason::InactiveLimit => "InactiveLimit",
            Reason::AssocLimit => "AssocGrpJobsLimit",
            Reason::SystemFailure => "SystemFailure",
            Reason::AssocGrpJobsLimit => "AssocGrpJobsLimit",
            Reason::AssocGrpCpuLimit => "AssocGrpCpuLimit",
            Reason::AssocGrpMemLimit => "AssocGrpMemLimit",
            Reason::AssocGrpNodeLimit => "AssocGrpNodeLimit",
            Reason::AssocGrpGRES => "AssocGrpGRES",
            Reason::AssocMaxJobsLimit => "AssocMaxJobsLimit",
            Reason::AssocMaxCpuPerJobLimit => "AssocMaxCpuPerJobLimit",
            Reason::AssocMaxNodePerJobLimit => "AssocMaxNodePerJobLimit",
            Reason::AssocMaxWallDurationPerJobLimit => "AssocMaxWallDurationPerJobLimit",
            Reason::QOSGrpJobsLimit => "QOSGrpJobsLimit",
            Reason::QOSGrpCpuLimit => "QOSGrpCpuLimit",
            Reason::QOSGrpMemLimit => "QOSGrpMemLimit",
            Reason::QOSGrpNodeLimit => "QOSGrpNodeLimit",
            Reason::QOSGrpGRES => "QOSGrpGRES",
            Reason::QOSMaxJobsPerUserLimit => "QOSMaxJobsPerUserLimit",
            Reason::QOSMaxCpuPerUserLimit => "QOSMaxCpuPerUserLimit",
            Reason::QOSMaxNodePerUserLimit => "QOSMaxNodePerUserLimit",
            Reason::QOSMaxCpuPerJobLimit => "QOSMaxCpuPerJobLimit",
            Reason::QOSMaxNodePerJobLimit => "QOSMaxNodePerJobLimit",
            Reason::QOSMaxWallDurationPerJobLimit => "QOSMaxWallDurationPerJobLimit",
            Reason::AssocGrpWallLimit => "AssocGrpWallLimit",
            Reason::AssocGrpCPUMinutesLimit => "AssocGrpCPUMinutesLimit",
            Reason::AssocGrpMemMinutes => "AssocGrpMemMinutes",
            Reason::AssocGrpNodeMinutes => "AssocGrpNodeMinutes",
            Reason::AssocGrpGRESMinutes => "AssocGrpGRESMinutes",
            Reason::AssocGrpCPURunMinutesLimit => "AssocGrpCPURunMinutesLimit",
            Reason::AssocGrpMemRunMinutes => "AssocGrpMemRunMinutes",
            Reason::AssocGrpNodeRunMinutes => "AssocGrpNodeRunMinutes",
            Reason::AssocGrpGRESRunMinutes => "AssocGrpGRESRunMinutes",
            Reason::AssocMaxMemPerJob => "AssocMaxMemPerJob",
            Reason::AssocMaxGRESPerJob => "AssocMaxGRESPerJob",
            Reason::AssocMaxCpuMinutesPerJobLimit => "AssocMaxCpuMinutesPerJobLimit",
            Reason::AssocMaxMemMinutesPerJob => "AssocMaxMemMinutesPerJob",
            Reason::AssocMaxNodeMinutesPerJob => "AssocMaxNodeMinutesPerJob",
            Reason::AssocMaxGRESMinutesPerJob => "AssocMaxGRESMinutesPerJob",
            Reason::AssocMaxCpuPerNode => "AssocMaxCpuPerNode",
            Reason::AssocMaxMemPerNode => "AssocMaxMemPerNode",
            Reason::AssocMaxGRESPerNode => "AssocMaxGRESPerNode",
            Reason::QOSGrpWallLimit => "QOSGrpWallLimit",
            Reason::QOSGrpCPUMinutesLimit => "QOSGrpCPUMinutesLimit",
            Reason::QOSGrpMemoryMinutes => "QOSGrpMemoryMinutes",
            Reason::QOSGrpNodeMinutes => "QOSGrpNodeMinutes",
            Reason::QOSGrpGRESMinutes => "QOSGrpGRESMinutes",
            Reason::QOSGrpCPURunMinutesLimit => "QOSGrpCPURunMinutesLimit",
            Reason::QOSGrpMemoryRunMinutes => "QOSGrpMemoryRunMinutes",
            Reason::QOSGrpNodeRunMinutes => "QOSGrpNodeRunMinutes",
            Reason::QOSGrpGRESRunMinutes => "QOSGrpGRESRunMinutes",
            Reason::QOSMaxMemoryPerJob => "QOSMaxMemoryPerJob",
            Reason::QOSMaxGRESPerJob => "QOSMaxGRESPerJob",
            Reason::QOSMaxCpuMinutesPerJobLimit => "QOSMaxCpuMinutesPerJobLimit",
            Reason::QOSMaxMemoryMinutesPerJob => "QOSMaxMemoryMinutesPerJob",
            Reason::QOSMaxNodeMinutesPerJob => "QOSMaxNodeMinutesPerJob",
            Reason::QOSMaxGRESMinutesPerJob => "QOSMaxGRESMinutesPerJob",
            Reason::QOSMaxCpuPerNode => "QOSMaxCpuPerNode",
            Reason::QOSMaxMemoryPerNode => "QOSMaxMemoryPerNode",
            Reason::QOSMaxGRESPerNode => "QOSMaxGRESPerNode",
            Reason::QOSMaxMemoryPerUser => "QOSMaxMemoryPerUser",
            Reason::QOSMaxGRESPerUser => "QOSMaxGRESPerUser",
            Reason::MaxJobsPerAccount => "MaxJobsPerAccount",
            Reason::MaxCpuPerAccount => "MaxCpuPerAccount",
            Reason::MaxMemoryPerAccount => "MaxMemoryPerAccount",
            Reason::MaxNodePerAccount => "MaxNodePerAccount",
            Reason::MaxGRESPerAccount => "MaxGRESPerAccount",
            Reason::QOSMinCpuNotSatisfied => "QOSMinCpuNotSatisfied",
            Reason::QOSMinMemory => "QOSMinMemory",
            Reason::QOSMinNode => "QOSMinNode",
            Reason::QOSMinGRES => "QOSMinGRES",
            Reason::MaxCpuRunMinsPerUser => "MaxCpuRunMinsPerUser",
            Reason::MaxMemoryRunMinsPerUser => "MaxMemoryRunMinsPerUser",
            Reason::MaxNodeRunMinsPerUser => "MaxNodeRunMinsPerUser",
            Reason::MaxGRESRunMinsPerUser => "MaxGRESRunMinsPerUser",
            Reason::MaxCpuRunMinsPerAccount => "MaxCpuRunMinsPerAccount",
            Reason::MaxMemoryRunMinsPerAccount => "MaxMemoryRunMinsPerAccount",
            Reason::MaxNodeRunMinsPerAccount => "MaxNodeRunMinsPerAccount",
            Reason::MaxGRESRunMinsPerAccount => "MaxGRESRunMinsPerAccount",
            Reason::InvalidAccount => "InvalidAccount",
            Reason::InvalidQOS => "InvalidQOS",
            Reason::MaxMemPerLimit => "MaxMemPerLimit",
            Reason::AccountNotAllowed => "AccountNotAllowed",
            Reason::QOSNotAllowed => "QOSNotAllowed",
            Reason::AssocGrpBilling => "AssocGrpBilling",
            Reason::AssocGrpBillingMinutes => "AssocGrpBillingMinutes",
            Reason::AssocGrpBillingRunMinutes => "AssocGrpBillingRunMinutes",
            Reason::AssocMaxBillingPerJob => "AssocMaxBillingPerJob",
            Reason::AssocMaxBillingMinutesPerJob => "AssocMaxBillingMinutesPerJob",
            Reason::AssocMaxBillingPerNode => "AssocMaxBillingPerNode",
            Reason::QOSGrpBilling => "QOSGrpBilling",
            Reason::QOSGrpBillingMinutes => "QOSGrpBillingMinutes",
            Reason::QOSGrpBillingRunMinutes => "QOSGrpBillingRunMinutes",
            Reason::QOSMaxBillingPerJob => "QOSMaxBillingPerJob",
            Reason::QOSMaxBillingMinutesPerJob => "QOSMaxBillingMinutesPerJob",
            Reason::QOSMaxBillingPerNode => "QOSMaxBillingPerNode",
            Reason::QOSMaxBillingPerUser => "QOSMaxBillingPerUser",
            Reason::MaxBillingPerAccount => "MaxBillingPerAccount",
            Reason::QOSMinBilling => "QOSMinBilling",
            Reason::MaxBillingRunMinsPerUser => "MaxBillingRunMinsPerUser",
            Reason::MaxBillingRunMinsPerAccount => "MaxBillingRunMinsPerAccount",
            Reason::QOSUsageThreshold => "QOSUsageThreshold",
            Reason::AssocGrpLicense => "AssocGrpLicense",
            Reason::AssocGrpLicenseMinutes => "AssocGrpLicenseMinutes",
            Reason::AssocGrpLicenseRunMinutes => "AssocGrpLicenseRunMinutes",
            Reason::AssocMaxLicensePerJob => "AssocMaxLicensePerJob",
            Reason::AssocMaxLicenseMinutesPerJob => "AssocMaxLicenseMinutesPerJob",
            Reason::QOSGrpLicense => "QOSGrpLicense",
            Reason::QOSGrpLicenseMinutes => "QOSGrpLicenseMinutes",
            Reason::QOSGrpLicenseRunMinutes => "QOSGrpLicenseRunMinutes",
            Reason::QOSMaxLicensePerJob => "QOSMaxLicensePerJob",
            Reason::QOSMaxLicensePerUser => "QOSMaxLicensePerUser",
            Reason::QOSMaxLicenseMinutesPerJob => "QOSMaxLicenseMinutesPerJob",
            Reason::QOSMinLicense => "QOSMinLicense",
            Reason::MaxLicensePerAccount => "MaxLicensePerAccount",
        }
    }
}
