//! `GET conf`: the configuration in force, with the types that the description of v0.0.45 gives its keys.

use super::call::{Call, Outcome};
use crate::SLURM_VERSION;
use crate::listing::document::Writer;
use crate::listing::query;
use muster_proto::client::ConfigAnswer;

/// Keys whose values are numbers; `scontrol show config` writes units behind some.
#[rustfmt::skip]
const NUMBERS: &[&str] = &[
    "AccountingStoragePort", "AcctGatherNodeFreq", "BatchStartTimeout", "CompleteWait", "EioTimeout", "EpilogMsgTime",
    "FairShareDampeningFactor", "FirstJobId", "GetNameInfoCacheTimeout", "GroupUpdateTime", "HealthCheckInterval", "HealthCheckTimeout",
    "HostUnreachRetryCount", "InactiveLimit", "JobCompPort", "KeepaliveInterval", "KeepaliveProbes", "KeepaliveTime", "KillWait",
    "MaxArraySize", "MaxBatchRequeue", "MaxDBDMsgs", "MaxJobCount", "MaxJobId", "MaxNodeCount", "MaxStepCount", "MaxTasksPerNode",
    "MessageTimeout", "MinJobAge", "OverTimeLimit", "PriorityWeightAge", "PriorityWeightAssoc", "PriorityWeightFairshare",
    "PriorityWeightJobSize", "PriorityWeightPartition", "PriorityWeightQOS", "ResumeRate", "ResumeTimeout", "ResvOverRun",
    "SchedulerTimeSlice", "SlurmSchedLogLevel", "SlurmctldPort", "SlurmctldTimeout", "SlurmdPort", "SlurmdTimeout", "SuspendRate",
    "SuspendTimeout", "TCPTimeout", "TreeWidth", "UnkillableStepTimeout", "VSizeFactor", "WaitTime",
];

/// Keys whose values may be unset or infinite.
const LIMITS: &[&str] = &[
    "DefMemPerCPU",
    "EpilogTimeout",
    "MaxMemPerCPU",
    "PreemptExemptTime",
    "PrologTimeout",
    "SuspendTime",
];

const TRUTHS: &[&str] = &[
    "GroupUpdateForce",
    "JobAcctOomKill",
    "JobFileAppend",
    "JobRequeue",
    "KillOnBadExit",
    "PriorityFavorSmall",
];

/// Keys whose values are lists.
#[rustfmt::skip]
const LISTS: &[&str] = &[
    "AccountingStorageEnforce", "AccountingStorageParameters", "AccountingStorageTRES", "AccountingStoreFlags", "AcctGatherEnergyType",
    "AuthAltTypes", "BcastExclude", "BcastParameters", "CertgenParameters", "CliFilterParameters", "CliFilterPlugins",
    "CommunicationParameters", "ConfFlags", "CpuFreqGovernors", "DebugFlags", "DependencyParameters", "EnforcePartLimits", "Epilog",
    "EpilogSlurmctld", "FederationParameters", "GresTypes", "HealthCheckNodeState", "JobAcctGatherFrequency", "JobAcctGatherParams",
    "JobSubmitPlugins", "LaunchParameters", "LicenseParameters", "Licenses", "MCSParameters", "MetricsAuthUsers", "MetricsParameters",
    "MpiParams", "NodeFeaturesPlugins", "PrEpPlugins", "PreemptMode", "PreemptParameters", "PriorityFlags", "PrivateData", "Prolog",
    "PrologFlags", "PrologSlurmctld", "PropagateResourceLimits", "PropagateResourceLimitsExcept", "ReconfigFlags", "RequeueExit",
    "RequeueExitHold", "SchedulerParameters", "ScronParameters", "SelectTypeParameters", "SlurmctldParameters", "SlurmdParameters",
    "SuspendExcNodes", "SuspendExcParts", "SuspendExcStates", "SwitchParameters", "TLSParameters", "TaskPlugin", "TaskPluginParam",
    "TopologyParam", "X11Parameters",
];

/// Keys that say which controller it is: they are in `slurm_conf_meta`.
const OF_CONTROLLER: [&str; 5] = [
    "BOOT_TIME",
    "HASH_VAL",
    "NEXT_JOB_ID",
    "SLURM_CONF",
    "SLURM_VERSION",
];

/// `GET conf`.
pub(super) fn show(call: &mut Call<'_>) -> Outcome {
    let config = call.ask(query::config)?;
    let ctx = call.context();
    Ok(call.document(&ctx, |w| {
        w.map("slurm_conf_meta", |w| meta(w, &config));
        w.map("slurm_conf", |w| {
            for (key, text) in &config.pairs {
                if !OF_CONTROLLER.contains(&key.as_str()) {
                    value(w, key, text);
                }
            }
            w.list("controllers", |w| {
                for host in &config.hosts {
                    w.item(|w| w.text("machine", host));
                }
            });
        });
    }))
}

fn meta(w: &mut Writer<'_>, config: &ConfigAnswer) {
    w.raw("BOOT_TIME", config.started.unix_s());
    w.raw("LastUpdate", config.read_at.unix_s());
    let next = config.pairs.iter().find(|(key, _)| key == "NEXT_JOB_ID");
    let next = next.and_then(|(_, text)| text.parse().ok());
    w.limit("NEXT_JOB_ID", next, false);
    w.text("SLURM_CONF", &config.path);
    w.text("SLURM_VERSION", SLURM_VERSION);
}

/// A value that is none; Slurm writes it in several ways.
fn is_none(text: &str) -> bool {
    matches!(
        text,
        "" | "(null)" | "(null type)" | "n/a" | "N/A" | "none" | "(none)"
    )
}

fn port_range(w: &mut Writer<'_>, key: &str, text: &str) {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let (least, most) = (least.trim().parse::<u16>(), most.trim().parse::<u16>());
    w.map(key, |w| {
        w.raw("minimum", least.as_ref().copied().unwrap_or(0));
        w.raw("maximum", most.as_ref().copied().unwrap_or(0));
        w.truth("set", least.is_ok() && most.is_ok());
    });
}

fn value(w: &mut Writer<'_>, key: &str, text: &str) {
    match key {
        "SrunPortRange" => return port_range(w, key, text),
        // Here partitions have these alone.
        "JobDefaults" => return w.list(key, |_| {}),
        _ => {}
    }
    let key = match key {
        "PriorityWeightFairShare" => "PriorityWeightFairshare",
        key => key,
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: Option<u64> = text[..digits].parse().ok();
    if NUMBERS.contains(&key) {
        w.raw(key, number.unwrap_or(0));
    } else if LIMITS.contains(&key) {
        let infinite = text.eq_ignore_ascii_case("infinite") || text.starts_with("UNLIMITED");
        w.limit(key, number, infinite);
    } else if TRUTHS.contains(&key) {
        w.truth(key, matches!(text, "1" | "yes" | "Yes" | "YES" | "true"));
    } else if LISTS.contains(&key) {
        let words = text.split([',', ';']).map(str::trim);
        let words = words.map(|word| match (key, word) {
            ("PreemptMode", "OFF") => "DISABLED",
            (_, word) => word,
        });
        w.texts(key, words.filter(|word| !is_none(word)));
    } else {
        w.text(key, if is_none(text) { "" } else { text });
    }
}
