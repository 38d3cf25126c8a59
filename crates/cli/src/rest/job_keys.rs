//! Keys of a job in a body, and the option of sbatch that each stands for: what the option's text may be, and what the job becomes
//! by it, is said there.

use super::value::{self, GivenValue};
use crate::zone;
use muster_conf::options::{ChosenOptions, OptionCommand, Source, find};
use muster_model::time::Timestamp;
use serde_json::{Map, Value};

/// Conversion of a key's value to that of an option.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// As it is; lists with commas between.
    Text,
    /// Minutes, or a text such as `1-00:00:00`.
    Minutes,
    /// Seconds since 1970, or a text such as `now+1hour`.
    Time,
    /// A number of MiB, or a text such as `2G`.
    Memory,
    /// A flag: there if true.
    Flag,
    /// A flag: there if false.
    FlagUnless,
    /// `yes` or `no`.
    YesNo,
    /// Devices such as `gres/gpu:2`, of which the option takes the number.
    DeviceCount,
    /// Devices such as `gres/gpu:2,gres/fpga:1`, as `--gres` has them.
    Devices,
    /// Read by another part of the submission, or together with other keys.
    Composed,
    /// A job that asks for it is not accepted, and why.
    Refused(&'static str),
    /// Accepted: asking for nothing, it is what happens anyway.
    Nothing,
}

struct KeyRow {
    name: &'static str,
    option: &'static str,
    form: Form,
}

const fn key(name: &'static str, option: &'static str, form: Form) -> KeyRow {
    KeyRow { name, option, form }
}

const fn refused(name: &'static str, why: &'static str) -> KeyRow {
    key(name, "", Form::Refused(why))
}

const OWNER: &str = "a job belongs to the user who submits it";
const BY_STEP: &str = "how tasks are bound is said of a step, by srun";
const BY_UPDATE: &str = "set it on the job once it is there";

use Form::{
    Composed, DeviceCount, Devices, Flag, FlagUnless, Memory, Minutes, Nothing, Text, Time, YesNo,
};

/// All keys of all versions, in lower case.
#[rustfmt::skip]
const KEYS: &[KeyRow] = &[
    key("account", "account", Text),
    key("account_gather_frequency", "acctg-freq", Text),
    refused("admin_comment", BY_UPDATE),
    refused("allocation_node_list", "it is for allocations, which connections hold"),
    key("allocation_node_port", "", Nothing),
    key("argv", "", Composed),
    key("array", "array", Text),
    key("batch_features", "batch", Text),
    key("begin_time", "begin", Time),
    key("burst_buffer", "bb", Text),
    key("chdir", "", Composed),
    key("class", "class", Text),
    refused("cluster_constraint", "this cluster is not in a federation"),
    refused("clusters", "only this cluster is known"),
    key("comment", "comment", Text),
    key("constraint", "constraint", Text),
    key("constraints", "constraint", Text),
    key("container", "container", Text),
    key("container_id", "container-id", Text),
    key("contiguous", "contiguous", Flag),
    key("core_specification", "core-spec", Text),
    key("cores_per_socket", "cores-per-socket", Text),
    refused("cpu_binding", BY_STEP),
    refused("cpu_binding_flags", BY_STEP),
    key("cpu_binding_hint", "hint", Text),
    key("cpu_frequency", "cpu-freq", Text),
    key("cpus_per_gpu", "cpus-per-gpu", Text),
    key("cpus_per_task", "cpus-per-task", Text),
    key("cpus_per_tres", "cpus-per-gpu", DeviceCount),
    refused("crontab", "crontabs are scrontab's"),
    key("current_working_directory", "", Composed),
    key("cwd", "", Composed),
    key("deadline", "deadline", Time),
    key("delay_boot", "delay-boot", Text),
    key("dependency", "dependency", Text),
    key("distribution", "distribution", Text),
    refused("distribution_plane_size", "say plane=SIZE as distribution"),
    refused("end_time", "say time_limit or deadline"),
    key("environment", "", Composed),
    key("error", "error", Text),
    key("exclude_nodes", "exclude", Text),
    key("excluded_nodes", "exclude", Text),
    key("exclusive", "", Composed),
    key("extra", "extra", Text),
    key("features", "constraint", Text),
    key("flags", "", Composed),
    refused("get_user_environment", "send the variables as environment"),
    key("gpu_binding", "gpu-bind", Text),
    key("gpu_frequency", "gpu-freq", Text),
    key("gpus", "gpus", Text),
    key("gpus_per_node", "gpus-per-node", Text),
    key("gpus_per_socket", "gpus-per-socket", Text),
    key("gpus_per_task", "gpus-per-task", Text),
    key("gres", "gres", Devices),
    key("gres_flags", "gres-flags", Text),
    refused("group_id", OWNER),
    refused("hetjob_group", "submit the components together, as jobs"),
    key("hold", "hold", Flag),
    key("immediate", "", Composed),
    key("input", "input", Text),
    refused("job_id", "jobs are given their numbers"),
    key("job_name", "job-name", Text),
    key("kill_on_invalid_dependency", "kill-on-invalid-dep", YesNo),
    key("kill_on_node_fail", "no-kill", FlagUnless),
    key("kill_warning_delay", "", Composed),
    key("kill_warning_flags", "", Composed),
    key("kill_warning_signal", "", Composed),
    key("license", "licenses", Text),
    key("licenses", "licenses", Text),
    key("mail_lines", "mail-lines", Text),
    key("mail_type", "mail-type", Text),
    key("mail_user", "mail-user", Text),
    refused("maximum_cpus", "say tasks and cpus_per_task"),
    key("maximum_nodes", "", Composed),
    key("mcs_label", "mcs-label", Text),
    key("memory_binding", "mem-bind", Text),
    key("memory_binding_type", "mem-bind", Text),
    key("memory_per_cpu", "mem-per-cpu", Memory),
    key("memory_per_gpu", "mem-per-gpu", Memory),
    key("memory_per_node", "mem", Memory),
    key("memory_per_tres", "mem-per-gpu", DeviceCount),
    refused("minimum_boards_per_node", "nodes have one board"),
    key("minimum_cpus", "", Composed),
    key("minimum_cpus_per_node", "mincpus", Text),
    key("minimum_nodes", "", Composed),
    key("minimum_sockets_per_board", "sockets-per-node", Text),
    key("name", "job-name", Text),
    key("network", "network", Text),
    key("nice", "nice", Text),
    key("no_kill", "no-kill", Flag),
    key("no_requeue", "no-requeue", Flag),
    key("node_list", "nodelist", Text),
    key("nodelist", "nodelist", Text),
    key("nodes", "", Composed),
    key("ntasks", "ntasks", Text),
    key("ntasks_per_core", "ntasks-per-core", Text),
    key("ntasks_per_gpu", "ntasks-per-gpu", Text),
    key("ntasks_per_node", "ntasks-per-node", Text),
    key("ntasks_per_socket", "ntasks-per-socket", Text),
    key("ntasks_per_tres", "ntasks-per-gpu", Text),
    key("oom_kill_step", "oom-kill-step", Text),
    key("open_mode", "open-mode", Text),
    key("output", "output", Text),
    key("overcommit", "overcommit", Flag),
    key("oversubscribe", "oversubscribe", Flag),
    key("partition", "partition", Text),
    refused("power_flags", "power is not managed by job"),
    key("prefer", "prefer", Text),
    key("priority", "priority", Text),
    key("profile", "profile", Text),
    key("qos", "qos", Text),
    key("reboot", "reboot", Flag),
    key("requeue", "", Composed),
    key("required_nodes", "nodelist", Text),
    key("required_switches", "", Composed),
    key("reservation", "reservation", Text),
    key("reserve_ports", "resv-ports", Text),
    key("rlimits", "", Composed),
    key("script", "", Composed),
    key("segment_size", "segment", Text),
    refused("selinux_context", "labels of SELinux are not set"),
    key("shared", "", Composed),
    key("signal", "signal", Text),
    refused("site_factor", "it is set by the site"),
    key("sockets_per_node", "sockets-per-node", Text),
    refused("spank_environment", "there are no SPANK plugins"),
    key("spread_job", "spread-job", Flag),
    key("standard_error", "error", Text),
    key("standard_input", "input", Text),
    key("standard_output", "output", Text),
    key("tasks", "ntasks", Text),
    refused("tasks_per_board", "say tasks_per_node or tasks_per_socket"),
    key("tasks_per_core", "ntasks-per-core", Text),
    key("tasks_per_node", "ntasks-per-node", Text),
    key("tasks_per_socket", "ntasks-per-socket", Text),
    key("temporary_disk_per_node", "tmp", Memory),
    key("test_only", "", Composed),
    key("thread_specification", "thread-spec", Text),
    key("threads_per_core", "threads-per-core", Text),
    key("time_limit", "time", Minutes),
    key("time_minimum", "time-min", Minutes),
    key("tres_bind", "tres-bind", Text),
    key("tres_freq", "gpu-freq", Text),
    key("tres_per_job", "gpus", DeviceCount),
    key("tres_per_node", "gres", Devices),
    key("tres_per_socket", "gpus-per-socket", DeviceCount),
    key("tres_per_task", "tres-per-task", Text),
    key("umask", "", Composed),
    refused("user_id", OWNER),
    key("wait_all_nodes", "", Composed),
    key("wait_for_switch", "", Composed),
    key("wckey", "wckey", Text),
    refused("x11", "X11 is forwarded by srun --x11"),
    refused("x11_magic_cookie", "X11 is forwarded by srun --x11"),
    refused("x11_target_host", "X11 is forwarded by srun --x11"),
    key("x11_target_port", "", Nothing),
];

/// Why the keys of a body make no options.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeyError {
    /// The key, as it was sent.
    pub(super) key: String,
    /// Its error.
    pub(super) why: String,
}

fn wrong(key: &str, why: impl Into<String>) -> KeyError {
    KeyError {
        key: key.to_owned(),
        why: why.into(),
    }
}

/// Most keys without a meaning that are returned, and characters of each; lists made of them name no more.
const UNKNOWN_MAX: usize = 100;
const KEY_CHARS_MAX: usize = 256;

/// The options of a body, and the first of the keys that mean nothing.
///
/// # Errors
/// A key whose value is malformed, or that asks for what there is not.
pub(super) fn options(body: &Map<String, Value>) -> Result<(ChosenOptions, Vec<String>), KeyError> {
    let mut chosen = ChosenOptions::new(OptionCommand::Sbatch);
    let mut unknown = Vec::new();
    for (name, value) in body {
        let lower = name.to_ascii_lowercase();
        let Ok(at) = KEYS.binary_search_by(|key| key.name.cmp(&lower)) else {
            if unknown.len() < UNKNOWN_MAX {
                unknown.push(name.chars().take(KEY_CHARS_MAX).collect());
            }
            continue;
        };
        let row = &KEYS[at];
        if matches!(row.form, Composed | Nothing) {
            continue;
        }
        let given = value::read(value).map_err(|why| wrong(name, why))?;
        // Generated clients send empty objects for members that were not set.
        if given.is_empty() {
            continue;
        }
        give(&mut chosen, name, row, given)?;
    }
    together(&mut chosen, body)?;
    Ok((chosen, unknown))
}

fn set(chosen: &mut ChosenOptions, option: &'static str, value: Option<String>) {
    if let Some(row) = find(OptionCommand::Sbatch, option) {
        chosen.give(row, value, Source::CommandLine);
    }
}

fn give(
    chosen: &mut ChosenOptions,
    name: &str,
    row: &KeyRow,
    given: GivenValue,
) -> Result<(), KeyError> {
    let truth = |given: &GivenValue| match given {
        GivenValue::Truth(truth) => Ok(*truth),
        GivenValue::Text(text) => {
            muster_conf::value::parse_bool(text).map_err(|_| wrong(name, "expected true or false"))
        }
        _ => Err(wrong(name, "expected true or false")),
    };
    let text = match row.form {
        Form::Refused(why) => {
            // A key that asks for nothing is not refused.
            let asks = match &given {
                GivenValue::Truth(truth) => *truth,
                GivenValue::List(words) => {
                    words.iter().any(|word| !word.eq_ignore_ascii_case("none"))
                }
                _ => true,
            };
            return match asks {
                true => Err(wrong(name, format!("it is not taken: {why}"))),
                false => Ok(()),
            };
        }
        Composed | Nothing => return Ok(()),
        Flag | FlagUnless => {
            if truth(&given)? == matches!(row.form, Flag) {
                set(chosen, row.option, None);
            }
            return Ok(());
        }
        YesNo => Some(if truth(&given)? { "yes" } else { "no" }.to_owned()),
        Time => given.text().map(|text| point(&text)),
        Minutes | Text => given.text().map(|text| worded(row.name, &text)),
        Memory => match given {
            GivenValue::Infinite => Some("0".to_owned()),
            other => other.text(),
        },
        DeviceCount => given
            .text()
            .map(|text| device_count(name, &text))
            .transpose()?,
        Devices => given.text().map(|text| devices(&text)),
    };
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        if text.contains('\0') {
            return Err(wrong(name, "it has a zero byte"));
        }
        set(chosen, row.option, Some(text));
    }
    Ok(())
}

/// Words of enumerations that options have by another name.
fn worded(name: &str, text: &str) -> String {
    let of = |word: &str| -> Option<String> {
        let upper = word.to_ascii_uppercase();
        Some(match (name, upper.as_str()) {
            ("mail_type", "TIME=100%") => "TIME_LIMIT".to_owned(),
            ("mail_type", "TIME=90%") => "TIME_LIMIT_90".to_owned(),
            ("mail_type", "TIME=80%") => "TIME_LIMIT_80".to_owned(),
            ("mail_type", "TIME=50%") => "TIME_LIMIT_50".to_owned(),
            ("mail_type", "INVALID_DEPENDENCY") => "INVALID_DEPEND".to_owned(),
            ("profile", "NOT_SET" | "NONE") => return None,
            ("memory_binding_type", "NONE") => return None,
            _ => word.to_owned(),
        })
    };
    match name {
        "mail_type" | "profile" | "memory_binding_type" => {
            let words: Vec<String> = text.split(',').filter_map(of).collect();
            words.join(",")
        }
        _ => text.to_owned(),
    }
}

/// A point in time as options have it.
fn point(text: &str) -> String {
    match text.parse::<i64>() {
        Ok(unix_s) if unix_s > 0 => zone::show(Timestamp::from_unix_s(unix_s)),
        // 0 is at once.
        Ok(_) => String::new(),
        Err(_) => text.to_owned(),
    }
}

/// `gres/gpu:a100:2` as the options for GPUs have it.
fn device_count(name: &str, text: &str) -> Result<String, KeyError> {
    let mut counts = Vec::new();
    for part in text.split(',') {
        let device = part.strip_prefix("gres/").unwrap_or(part);
        let device = device.strip_prefix("gres:").unwrap_or(device);
        let rest = device
            .strip_prefix("gpu")
            .filter(|r| r.starts_with([':', '=']) || r.is_empty());
        match rest {
            Some("") => counts.push("1".to_owned()),
            Some(rest) => counts.push(rest[1..].replace('=', ":")),
            None => {
                return Err(wrong(
                    name,
                    format!(
                        "'{part}': expected gres/gpu:NUMBER; other devices are asked for as tres_per_node"
                    ),
                ));
            }
        }
    }
    Ok(counts.join(","))
}

/// `gres/gpu:2,gres/fpga=1` as `--gres` has it.
fn devices(text: &str) -> String {
    let parts = text.split(',').map(|part| {
        let part = part.strip_prefix("gres/").unwrap_or(part);
        part.strip_prefix("gres:").unwrap_or(part).replace('=', ":")
    });
    parts.collect::<Vec<_>>().join(",")
}

/// A member, whatever the case of its key.
pub(super) fn member<'a>(body: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    body.get(name).or_else(|| {
        let found = body.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    })
}

/// A member as text, if it says anything.
pub(super) fn text_of(body: &Map<String, Value>, name: &str) -> Result<Option<String>, KeyError> {
    let Some(value) = member(body, name) else {
        return Ok(None);
    };
    let given = value::read(value).map_err(|why| wrong(name, why))?;
    match given.is_empty() {
        true => Ok(None),
        false => Ok(given.text()),
    }
}

/// Options that several keys make.
fn together(chosen: &mut ChosenOptions, body: &Map<String, Value>) -> Result<(), KeyError> {
    nodes(chosen, body)?;
    if let Some(text) = text_of(body, "minimum_cpus")?
        && !chosen.has("ntasks")
        && !chosen.has("cpus-per-task")
    {
        set(chosen, "ntasks", Some(text));
    }
    if let Some(name) = text_of(body, "kill_warning_signal")? {
        let flags = text_of(body, "kill_warning_flags")?.unwrap_or_default();
        let mark = match flags.as_str() {
            "" => "",
            "BATCH_JOB" => "B:",
            "RESERVATION" => "R:",
            _ => {
                return Err(wrong(
                    "kill_warning_flags",
                    "expected BATCH_JOB or RESERVATION",
                ));
            }
        };
        let delay = text_of(body, "kill_warning_delay")?.unwrap_or("60".to_owned());
        set(chosen, "signal", Some(format!("{mark}{name}@{delay}")));
    }
    if let Some(count) = text_of(body, "required_switches")? {
        let wait = text_of(body, "wait_for_switch")?.filter(|s| s != "0");
        let wait = wait.map_or_else(String::new, |seconds| {
            let seconds: u64 = seconds.parse().unwrap_or(0);
            format!("@{}:{:02}", seconds / 60, seconds % 60)
        });
        set(chosen, "switches", Some(format!("{count}{wait}")));
    }
    match member(body, "requeue").and_then(Value::as_bool) {
        Some(true) => set(chosen, "requeue", None),
        Some(false) => set(chosen, "no-requeue", None),
        None => {}
    }
    if member(body, "wait_all_nodes").and_then(Value::as_bool) == Some(true) {
        set(chosen, "wait-all-nodes", Some("1".to_owned()));
    }
    if member(body, "immediate").and_then(Value::as_bool) == Some(true) {
        return Err(wrong("immediate", "a batch job waits for its turn"));
    }
    sharing(chosen, body)?;
    flags(chosen, body)
}

/// `nodes`, `minimum_nodes`, `maximum_nodes`.
fn nodes(chosen: &mut ChosenOptions, body: &Map<String, Value>) -> Result<(), KeyError> {
    let mut least = match member(body, "nodes") {
        // Two numbers are the least and the most.
        Some(Value::Array(items)) => {
            let items: Vec<String> = items.iter().map(Value::to_string).collect();
            Some(items.join("-")).filter(|text| !text.is_empty())
        }
        _ => text_of(body, "nodes")?,
    };
    match member(body, "minimum_nodes") {
        // In v0.0.38: the number of nodes is to be as small as can be.
        Some(Value::Bool(true)) => set(chosen, "use-min-nodes", None),
        Some(Value::Bool(false)) => {}
        _ => least = least.or(text_of(body, "minimum_nodes")?),
    }
    let most = text_of(body, "maximum_nodes")?;
    let text = match (least, most) {
        (None, None) => return Ok(()),
        (Some(range), Some(_)) if range.contains('-') => range,
        (Some(least), Some(most)) => format!("{least}-{most}"),
        (Some(least), None) => least,
        (None, Some(most)) => format!("1-{most}"),
    };
    set(chosen, "nodes", Some(text));
    Ok(())
}

/// `shared`, and `exclusive` as it was before.
fn sharing(chosen: &mut ChosenOptions, body: &Map<String, Value>) -> Result<(), KeyError> {
    for name in ["exclusive", "shared"] {
        let Some(text) = text_of(body, name)? else {
            continue;
        };
        for word in text.split(',') {
            match word.to_ascii_lowercase().as_str() {
                "true" | "none" => set(chosen, "exclusive", None),
                "false" => {}
                "user" => set(chosen, "exclusive", Some("user".to_owned())),
                "mcs" => set(chosen, "exclusive", Some("mcs".to_owned())),
                "topo" => set(chosen, "exclusive", Some("topo".to_owned())),
                "oversubscribe" => set(chosen, "oversubscribe", None),
                _ => {
                    let expected = "expected none, user, mcs, topo or oversubscribe";
                    return Err(wrong(name, expected));
                }
            }
        }
    }
    Ok(())
}

fn flags(chosen: &mut ChosenOptions, body: &Map<String, Value>) -> Result<(), KeyError> {
    let Some(text) = text_of(body, "flags")? else {
        return Ok(());
    };
    for word in text.split(',') {
        let option = match word.to_ascii_uppercase().as_str() {
            "KILL_INVALID_DEPENDENCY" => {
                set(chosen, "kill-on-invalid-dep", Some("yes".to_owned()));
                continue;
            }
            "NO_KILL_INVALID_DEPENDENCY" => {
                set(chosen, "kill-on-invalid-dep", Some("no".to_owned()));
                continue;
            }
            "SPREAD_JOB" => "spread-job",
            "USE_MIN_NODES" | "PREFER_MINIMUM_NODE_COUNT" => "use-min-nodes",
            "STEPMGR_ENABLED" => "stepmgr",
            "JOB_WAS_RUNNING"
            | "EXACT_TASK_COUNT_REQUESTED"
            | "EXACT_CPU_COUNT_REQUESTED"
            | "EXACT_MEMORY_REQUESTED" => continue,
            _ => return Err(wrong("flags", format!("'{word}' cannot be asked for"))),
        };
        set(chosen, option, None);
    }
    Ok(())
}

/// The names of all keys, for the description of the API.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|key| key.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: Value) -> Result<Vec<String>, KeyError> {
        let (chosen, unknown) = options(body.as_object().unwrap())?;
        let mut texts: Vec<String> = chosen
            .iter()
            .map(|given| match &given.value {
                Some(value) => format!("{}={value}", given.row.long),
                None => given.row.long.to_owned(),
            })
            .collect();
        texts.extend(unknown.into_iter().map(|key| format!("?{key}")));
        Ok(texts)
    }

    #[test]
    fn keys_are_sorted_and_name_options() {
        assert!(KEYS.is_sorted_by_key(|key| key.name));
        let mut missing = Vec::new();
        for key in KEYS {
            let is_there =
                key.option.is_empty() || find(OptionCommand::Sbatch, key.option).is_some();
            if !is_there {
                missing.push((key.name, key.option));
            }
        }
        assert_eq!(missing, []);
    }

    #[test]
    fn keys_of_all_versions_become_options() {
        let of = |body| read(body).unwrap();
        assert_eq!(
            of(
                json!({"name": "a", "Account": "x", "partition": ["p", "q"], "tasks": 4, "hold": false})
            ),
            ["job-name=a", "account=x", "partition=p,q", "ntasks=4"]
        );
        assert_eq!(
            of(
                json!({"time_limit": {"set": true, "number": 5}, "memory_per_node": {"set": false}, "nodes": "2-3"})
            ),
            ["time=5", "nodes=2-3"]
        );
        assert_eq!(
            of(
                json!({"nodes": [1, 2], "exclusive": "user", "requeue": false, "signal": "USR1@60"})
            ),
            [
                "signal=USR1@60",
                "nodes=1-2",
                "no-requeue",
                "exclusive=user"
            ]
        );
        assert_eq!(
            of(
                json!({"minimum_nodes": 2, "maximum_nodes": 4, "shared": ["none"], "required_nodes": ["n1", "n2"]})
            ),
            ["nodelist=n1,n2", "nodes=2-4", "exclusive"]
        );
        assert_eq!(
            of(
                json!({"tres_per_node": "gres/gpu:2,gres/fpga=1", "tres_per_job": "gres/gpu:a100:4"})
            ),
            ["gres=gpu:2,fpga:1", "gpus=a100:4"]
        );
        assert_eq!(
            of(
                json!({"kill_warning_signal": "USR1", "kill_warning_delay": {"set": true, "number": 30}, "kill_warning_flags": ["BATCH_JOB"]})
            ),
            ["signal=B:USR1@30"]
        );
        assert_eq!(
            of(json!({"mail_type": ["END", "TIME=90%"], "profile": ["NOT_SET"]})),
            ["mail-type=END,TIME_LIMIT_90"]
        );
        assert_eq!(of(json!({"class": "gpu.long"})), ["class=gpu.long"]);
        assert_eq!(of(json!({"mail_lines": 5})), ["mail-lines=5"]);
        assert_eq!(
            of(json!({"colour": 1, "minimum_nodes": true})),
            ["use-min-nodes", "?colour"]
        );
    }

    #[test]
    fn what_cannot_be_is_named() {
        let key = |body| read(body).unwrap_err().key;
        assert_eq!(key(json!({"user_id": 0})), "user_id");
        assert_eq!(key(json!({"time_limit": [[1]]})), "time_limit");
        assert_eq!(key(json!({"hold": [true]})), "hold");
        assert_eq!(key(json!({"class": {"name": "gpu"}})), "class");
        assert_eq!(key(json!({"shared": ["all"]})), "shared");
        assert_eq!(key(json!({"flags": ["NOSUCH"]})), "flags");
        assert_eq!(key(json!({"tres_per_job": "license/x:1"})), "tres_per_job");
        assert_eq!(key(json!({"comment": "a\u{0}b"})), "comment");
        // Members that say that nothing is wanted ask for nothing.
        assert!(
            read(json!({"user_id": null, "x11": [], "immediate": false}))
                .unwrap()
                .is_empty()
        );
    }
}
