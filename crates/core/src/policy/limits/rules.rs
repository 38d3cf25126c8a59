//! Kinds of limits: the names that sacctmgr has for them, and the reasons of jobs that wait for them.

use muster_model::job::Reason;

/// The limited quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LimitRule {
    GrpJobs,
    GrpTres,
    GrpMins,
    GrpRunMins,
    GrpWall,
    MaxJobs,
    MaxWall,
    MaxTres,
    MaxMins,
    PerNode,
    PerUser,
    JobsPerAccount,
    PerAccount,
    RunMinsPerUser,
    RunMinsPerAccount,
    MinTres,
}

/// The limited number of jobs that are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SubmitRule {
    /// `GrpSubmitJobs`.
    Group,
    /// `MaxSubmitJobs`, `MaxSubmitJobsPerUser`.
    User,
    /// `MaxSubmitJobsPerAccount`.
    Account,
}

/// Slurm's word for a limit on submitted jobs that is reached.
pub(super) fn submit_reason(rule: SubmitRule, of_qos: bool) -> &'static str {
    match (rule, of_qos) {
        (SubmitRule::Group, false) => "AssocGrpSubmitJobsLimit",
        (SubmitRule::Group, true) => "QOSGrpSubmitJobsLimit",
        (SubmitRule::User, false) => "AssocMaxSubmitJobLimit",
        (SubmitRule::User, true) => "QOSMaxSubmitJobPerUserLimit",
        (SubmitRule::Account, _) => "MaxSubmitJobsPerAccount",
    }
}

/// sacctmgr's name of it.
pub(super) fn written(rule: LimitRule) -> &'static str {
    match rule {
        LimitRule::GrpJobs => "GrpJobs",
        LimitRule::GrpTres => "GrpTRES",
        LimitRule::GrpMins => "GrpTRESMins",
        LimitRule::GrpRunMins => "GrpTRESRunMins",
        LimitRule::GrpWall => "GrpWall",
        LimitRule::MaxJobs => "MaxJobs",
        LimitRule::MaxWall => "MaxWall",
        LimitRule::MaxTres => "MaxTRES",
        LimitRule::MaxMins => "MaxTRESMins",
        LimitRule::PerNode => "MaxTRESPerNode",
        LimitRule::PerUser => "MaxTRESPerUser",
        LimitRule::JobsPerAccount => "MaxJobsPerAccount",
        LimitRule::PerAccount => "MaxTRESPerAccount",
        LimitRule::MinTres => "MinTRES",
        LimitRule::RunMinsPerUser => "MaxTRESRunMinsPerUser",
        LimitRule::RunMinsPerAccount => "MaxTRESRunMinsPerAccount",
    }
}

/// Slurm's word for a limit that is broken.
pub(super) fn reason(rule: LimitRule, name: &str, qos: bool) -> Reason {
    use Reason as R;
    // Reasons of an association, and of a QOS, each by resource: CPUs, memory, nodes, devices, billing.
    let by = |assoc: [R; 5], of_qos: [R; 5]| {
        let list = if qos { of_qos } else { assoc };
        match name {
            "cpu" => list[0],
            "mem" => list[1],
            "node" => list[2],
            "billing" => list[4],
            _ => list[3],
        }
    };
    if name.starts_with("license/")
        && let Some(reason) = license_reason(rule, qos)
    {
        return reason;
    }
    let either = |assoc: R, of_qos: R| if qos { of_qos } else { assoc };
    match rule {
        LimitRule::GrpJobs => either(R::AssocGrpJobsLimit, R::QOSGrpJobsLimit),
        LimitRule::GrpWall => either(R::AssocGrpWallLimit, R::QOSGrpWallLimit),
        LimitRule::MaxJobs => either(R::AssocMaxJobsLimit, R::QOSMaxJobsPerUserLimit),
        LimitRule::MaxWall => either(
            R::AssocMaxWallDurationPerJobLimit,
            R::QOSMaxWallDurationPerJobLimit,
        ),
        LimitRule::JobsPerAccount => R::MaxJobsPerAccount,
        LimitRule::GrpTres => by(
            [
                R::AssocGrpCpuLimit,
                R::AssocGrpMemLimit,
                R::AssocGrpNodeLimit,
                R::AssocGrpGRES,
                R::AssocGrpBilling,
            ],
            [
                R::QOSGrpCpuLimit,
                R::QOSGrpMemLimit,
                R::QOSGrpNodeLimit,
                R::QOSGrpGRES,
                R::QOSGrpBilling,
            ],
        ),
        LimitRule::GrpMins => by(
            [
                R::AssocGrpCPUMinutesLimit,
                R::AssocGrpMemMinutes,
                R::AssocGrpNodeMinutes,
                R::AssocGrpGRESMinutes,
                R::AssocGrpBillingMinutes,
            ],
            [
                R::QOSGrpCPUMinutesLimit,
                R::QOSGrpMemoryMinutes,
                R::QOSGrpNodeMinutes,
                R::QOSGrpGRESMinutes,
                R::QOSGrpBillingMinutes,
            ],
        ),
        LimitRule::GrpRunMins => by(
            [
                R::AssocGrpCPURunMinutesLimit,
                R::AssocGrpMemRunMinutes,
                R::AssocGrpNodeRunMinutes,
                R::AssocGrpGRESRunMinutes,
                R::AssocGrpBillingRunMinutes,
            ],
            [
                R::QOSGrpCPURunMinutesLimit,
                R::QOSGrpMemoryRunMinutes,
                R::QOSGrpNodeRunMinutes,
                R::QOSGrpGRESRunMinutes,
                R::QOSGrpBillingRunMinutes,
            ],
        ),
        LimitRule::MaxTres => by(
            [
                R::AssocMaxCpuPerJobLimit,
                R::AssocMaxMemPerJob,
                R::AssocMaxNodePerJobLimit,
                R::AssocMaxGRESPerJob,
                R::AssocMaxBillingPerJob,
            ],
            [
                R::QOSMaxCpuPerJobLimit,
                R::QOSMaxMemoryPerJob,
                R::QOSMaxNodePerJobLimit,
                R::QOSMaxGRESPerJob,
                R::QOSMaxBillingPerJob,
            ],
        ),
        LimitRule::MaxMins => by(
            [
                R::AssocMaxCpuMinutesPerJobLimit,
                R::AssocMaxMemMinutesPerJob,
                R::AssocMaxNodeMinutesPerJob,
                R::AssocMaxGRESMinutesPerJob,
                R::AssocMaxBillingMinutesPerJob,
            ],
            [
                R::QOSMaxCpuMinutesPerJobLimit,
                R::QOSMaxMemoryMinutesPerJob,
                R::QOSMaxNodeMinutesPerJob,
                R::QOSMaxGRESMinutesPerJob,
                R::QOSMaxBillingMinutesPerJob,
            ],
        ),
        LimitRule::PerNode => by(
            [
                R::AssocMaxCpuPerNode,
                R::AssocMaxMemPerNode,
                R::AssocMaxNodePerJobLimit,
                R::AssocMaxGRESPerNode,
                R::AssocMaxBillingPerNode,
            ],
            [
                R::QOSMaxCpuPerNode,
                R::QOSMaxMemoryPerNode,
                R::QOSMaxNodePerJobLimit,
                R::QOSMaxGRESPerNode,
                R::QOSMaxBillingPerNode,
            ],
        ),
        LimitRule::PerUser => by(
            [R::QOSMaxCpuPerUserLimit; 5],
            [
                R::QOSMaxCpuPerUserLimit,
                R::QOSMaxMemoryPerUser,
                R::QOSMaxNodePerUserLimit,
                R::QOSMaxGRESPerUser,
                R::QOSMaxBillingPerUser,
            ],
        ),
        LimitRule::PerAccount => by(
            [R::MaxCpuPerAccount; 5],
            [
                R::MaxCpuPerAccount,
                R::MaxMemoryPerAccount,
                R::MaxNodePerAccount,
                R::MaxGRESPerAccount,
                R::MaxBillingPerAccount,
            ],
        ),
        LimitRule::RunMinsPerUser => by(
            [R::MaxCpuRunMinsPerUser; 5],
            [
                R::MaxCpuRunMinsPerUser,
                R::MaxMemoryRunMinsPerUser,
                R::MaxNodeRunMinsPerUser,
                R::MaxGRESRunMinsPerUser,
                R::MaxBillingRunMinsPerUser,
            ],
        ),
        LimitRule::RunMinsPerAccount => by(
            [R::MaxCpuRunMinsPerAccount; 5],
            [
                R::MaxCpuRunMinsPerAccount,
                R::MaxMemoryRunMinsPerAccount,
                R::MaxNodeRunMinsPerAccount,
                R::MaxGRESRunMinsPerAccount,
                R::MaxBillingRunMinsPerAccount,
            ],
        ),
        LimitRule::MinTres => by(
            [R::QOSMinCpuNotSatisfied; 5],
            [
                R::QOSMinCpuNotSatisfied,
                R::QOSMinMemory,
                R::QOSMinNode,
                R::QOSMinGRES,
                R::QOSMinBilling,
            ],
        ),
    }
}

/// Slurm's word for a limit on a license, where it has one.
fn license_reason(rule: LimitRule, of_qos: bool) -> Option<Reason> {
    use Reason as R;
    let either = |assoc: R, qos: R| Some(if of_qos { qos } else { assoc });
    match rule {
        LimitRule::GrpTres => either(R::AssocGrpLicense, R::QOSGrpLicense),
        LimitRule::GrpMins => either(R::AssocGrpLicenseMinutes, R::QOSGrpLicenseMinutes),
        LimitRule::GrpRunMins => either(R::AssocGrpLicenseRunMinutes, R::QOSGrpLicenseRunMinutes),
        LimitRule::MaxTres => either(R::AssocMaxLicensePerJob, R::QOSMaxLicensePerJob),
        LimitRule::MaxMins => either(
            R::AssocMaxLicenseMinutesPerJob,
            R::QOSMaxLicenseMinutesPerJob,
        ),
        LimitRule::PerUser => Some(R::QOSMaxLicensePerUser),
        LimitRule::PerAccount => Some(R::MaxLicensePerAccount),
        LimitRule::MinTres => Some(R::QOSMinLicense),
        LimitRule::GrpJobs
        | LimitRule::GrpWall
        | LimitRule::MaxJobs
        | LimitRule::MaxWall
        | LimitRule::PerNode
        | LimitRule::JobsPerAccount
        | LimitRule::RunMinsPerUser
        | LimitRule::RunMinsPerAccount => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jobs over a limit on licenses had the reason of devices.
    #[test]
    fn limits_on_licenses_have_reasons_of_their_own() {
        let of = |rule, of_qos| reason(rule, "license/matlab", of_qos);
        assert_eq!(of(LimitRule::GrpTres, false), Reason::AssocGrpLicense);
        assert_eq!(of(LimitRule::GrpTres, true), Reason::QOSGrpLicense);
        assert_eq!(of(LimitRule::MaxTres, true), Reason::QOSMaxLicensePerJob);
        assert_eq!(of(LimitRule::PerUser, true), Reason::QOSMaxLicensePerUser);
        assert_eq!(of(LimitRule::PerNode, true), Reason::QOSMaxGRESPerNode);
    }
}
