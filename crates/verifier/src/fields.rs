//! The fields of `job_desc`: how each is read and set. Names and units are Slurm's; a number that was not given is one of
//! the `NO_VAL`s, a text that was not given is absent. What has a meaning here that only one field of Slurm's has is
//! under that name alone.

mod convert;

use self::convert::*;
use crate::description::Description;
use muster_conf::options::values;
use muster_model::mail::MailOptions;
use muster_model::spec::{Dependency, JobKind, MemoryAsk, Sharing};
use muster_model::topology::SwitchAsk;

/// A number that was not given.
pub const NO_VAL: i64 = 0xffff_fffe;
/// `NO_VAL` of fields of 16 bits.
pub const NO_VAL16: i64 = 0xfffe;
/// `NO_VAL` of fields of 64 bits; Slurm's is too large for a whole number of Lua.
pub const NO_VAL64: i64 = i64::MAX;
/// No limit.
pub const INFINITE: i64 = 0xffff_ffff;
/// Marks memory of a CPU. Slurm's is the highest bit.
pub const MEM_PER_CPU: i64 = i64::MIN;
/// The number that is added to `nice`.
pub const NICE_OFFSET: i64 = 0x8000_0000;
/// Why jobs of administrators wait.
const ADMIN_COMMENT: &str = "admin-comment";

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// None.
    Nil,
    /// A number.
    Number(i64),
    /// A text; scripts need not be UTF-8.
    Bytes(Vec<u8>),
    /// A list.
    List(Vec<String>),
}

/// Sets a field, or returns the error of the value.
pub type Set = fn(&mut Description, Value) -> Result<(), String>;

/// A field.
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Reads it.
    pub get: fn(&Description) -> Value,
    /// Sets it, or returns the error of the value. Absent where it cannot be set.
    pub set: Option<Set>,
}

pub use self::convert::{FLAGS, MAILS, dependency_text, gres_text};

/// The field of this name.
pub fn find(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name)
}

/// Rows of the table, by the kinds of fields that there are many of.
macro_rules! row {
    ($name:literal, get $get:expr) => {
        Field { name: $name, get: $get, set: None }
    };
    ($name:literal, get $get:expr, set $set:expr) => {
        Field { name: $name, get: $get, set: Some($set) }
    };
    ($name:literal, text $($path:ident).+) => {
        row!($name, get |d| text(d.$($path).+.as_ref()), set |d, v| { d.$($path).+ = take_text(v)?; Ok(()) })
    };
    ($name:literal, string $($path:ident).+) => {
        row!($name, get |d| plain(&d.$($path).+), set |d, v| { d.$($path).+ = take_text(v)?.unwrap_or_default(); Ok(()) })
    };
    ($name:literal, count $unset:ident $($path:ident).+) => {
        row!($name, get |d| number(d.$($path).+, $unset), set |d, v| { d.$($path).+ = take_count(v)?; Ok(()) })
    };
    ($name:literal, flag $($path:ident).+) => {
        row!($name, get |d| Value::Number(i64::from(d.$($path).+)), set |d, v| {
            d.$($path).+ = take_flag(v)?.unwrap_or(false);
            Ok(())
        })
    };
    ($name:literal, shown $key:literal) => {
        row!($name, get |d| shown(d, $key), set |d, v| set_shown(d, $key, v))
    };
    ($name:literal, devices $field:ident) => {
        row!($name, get |d| plain(&gres_text(&d.spec.ask.devices().$field)), set |d, v| {
            let list = take_gres(v)?;
            devices(d, |all| all.$field = list);
            Ok(())
        })
    };
}

/// All fields, by name.
pub static FIELDS: &[Field] = &[
    row!("account", text spec.account),
    row!("acctg_freq", shown "acctg-freq"),
    row!(
        "admin_comment",
        get | d | shown(d, ADMIN_COMMENT),
        set | d,
        v | set_shown(d, ADMIN_COMMENT, v)
    ),
    row!("alloc_node", get | d | plain(&d.spec.submit_host)),
    row!(
        "alloc_sid",
        get | d | Value::Number(i64::from(d.spec.submit_sid))
    ),
    row!(
        "argc",
        get | d | Value::Number(i64::try_from(arguments(d).len()).unwrap_or(i64::MAX))
    ),
    row!(
        "argv",
        get | d | Value::List(arguments(d)),
        set | d,
        v | {
            let Value::List(list) = v else {
                return Err("a table of texts is expected".to_owned());
            };
            d.spec.argv = list
                .into_iter()
                .skip(usize::from(d.spec.kind == JobKind::Batch))
                .collect();
            Ok(())
        }
    ),
    row!(
        "array_inx",
        get | d
            | d.spec.array.as_ref().map_or(Value::Nil, |array| {
                let throttle = array
                    .throttle
                    .map(|most| format!("%{most}"))
                    .unwrap_or_default();
                Value::Bytes(format!("{}{throttle}", index_text(&array.indices)).into_bytes())
            }),
        set | d,
        v | {
            d.spec.array = match take_text(v)? {
                None => None,
                Some(list) => Some(
                    values::array(&list)
                        .ok_or_else(|| format!("'{list:.80}' is not a valid list of tasks"))?,
                ),
            };
            Ok(())
        }
    ),
    row!("batch_features", text spec.ask.batch),
    row!(
        "begin_time",
        get | d | time_number(d.spec.begin),
        set | d,
        v | {
            d.spec.begin = take_time(v)?;
            Ok(())
        }
    ),
    row!("bitflags", get |d| Value::Number(flags(d)), set set_flags),
    row!("comment", text spec.comment),
    row!("contiguous", flag spec.ask.contiguous),
    row!("core_spec", count NO_VAL16 spec.ask.core_spec),
    row!("cores_per_socket", count NO_VAL16 spec.ask.cores_per_socket),
    row!("cpus_per_task", count NO_VAL16 spec.ask.cpus_per_task),
    row!(
        "cpus_per_tres",
        get | d
            | d.spec.ask.devices().cpus_per_gpu.map_or(Value::Nil, |n| {
                Value::Bytes(format!("gres/gpu:{n}").into_bytes())
            }),
        set | d,
        v | {
            let count = one_gpu_count(v)?.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
            devices(d, |all| all.cpus_per_gpu = count);
            Ok(())
        }
    ),
    row!(
        "deadline",
        get | d | time_number(d.spec.deadline),
        set | d,
        v | {
            d.spec.deadline = take_time(v)?;
            Ok(())
        }
    ),
    row!(
        "dependency",
        get | d | plain(&dependency_text(&d.spec.dependency)),
        set | d,
        v | {
            d.spec.dependency = match take_text(v)? {
                None => Dependency::default(),
                Some(list) => values::dependency(&list).map_err(|refusal| refusal.detail)?,
            };
            d.dependency_given = true;
            Ok(())
        }
    ),
    row!(
        "end_time",
        get | d | time_number(d.spec.deadline),
        set | d,
        v | {
            d.spec.deadline = take_time(v)?;
            Ok(())
        }
    ),
    row!("exc_nodes", text spec.ask.exclude),
    row!("extra", shown "extra"),
    row!("features", text spec.ask.constraint),
    row!(
        "gres",
        get | d | plain(&gres_text(&d.spec.ask.gres)),
        set | d,
        v | {
            d.spec.ask.gres = take_gres(v)?;
            Ok(())
        }
    ),
    row!(
        "group_id",
        get | d | Value::Number(i64::from(d.spec.owner.gid))
    ),
    row!("het_job_offset", get | d | number(d.component, NO_VAL)),
    row!("hold", flag spec.hold),
    row!(
        "immediate",
        get | d | Value::Number(i64::from(d.spec.immediate_s.is_some())),
        set | d,
        v | {
            d.spec.immediate_s = take_flag(v)?
                .filter(|on| *on)
                .map(|_| d.spec.immediate_s.unwrap_or(1));
            Ok(())
        }
    ),
    row!("licenses", text spec.licenses),
    row!("mail_type", get |d| Value::Number(mail_mask(d)), set set_mail_mask),
    row!(
        "mail_user",
        get | d
            | d.spec
                .mail
                .as_ref()
                .map_or(Value::Nil, |mail| plain(&mail.user)),
        set | d,
        v | {
            let user = take_text(v)?.unwrap_or_default();
            d.spec.mail = MailOptions::changed(d.spec.mail.take(), |mail| mail.user = user);
            Ok(())
        }
    ),
    row!("max_nodes", count NO_VAL spec.ask.max_nodes),
    row!("mcs_label", shown "mcs-label"),
    row!("mem_bind", shown "mem-bind"),
    row!(
        "mem_per_tres",
        get | d
            | d.spec.ask.devices().mib_per_gpu.map_or(Value::Nil, |n| {
                Value::Bytes(format!("gres/gpu:{n}").into_bytes())
            }),
        set | d,
        v | {
            let count = one_gpu_count(v)?;
            devices(d, |all| all.mib_per_gpu = count);
            Ok(())
        }
    ),
    row!(
        "max_cpus",
        get | d
            | match &d.spec.ask.task_range {
                None => Value::Number(NO_VAL),
                Some(_) => Value::Number(i64::from(d.spec.ask.most_cpus())),
            }
    ),
    row!(
        "min_cpus",
        get | d
            | match d.spec.ask.ntasks.or(d.spec.ask.cpus_per_task) {
                None => Value::Number(NO_VAL),
                Some(_) => Value::Number(i64::from(d.spec.ask.min_cpus())),
            },
        set | d,
        v | {
            let each = d.spec.ask.cpus_of_task();
            d.spec.ask.ntasks = take_count(v)?.map(|cpus| cpus.div_ceil(each).max(1));
            d.spec.ask.task_range = None;
            Ok(())
        }
    ),
    row!(
        "min_mem_per_cpu",
        get | d
            | match d.spec.ask.memory {
                MemoryAsk::PerCpu(mib) => Value::Number(i64::try_from(mib).unwrap_or(i64::MAX)),
                MemoryAsk::Default | MemoryAsk::PerNode(_) => Value::Nil,
            },
        set | d,
        v | {
            d.spec.ask.memory = take_mib(v)?.map_or(MemoryAsk::Default, MemoryAsk::PerCpu);
            Ok(())
        }
    ),
    row!(
        "min_mem_per_node",
        get | d
            | match d.spec.ask.memory {
                MemoryAsk::PerNode(mib) => Value::Number(i64::try_from(mib).unwrap_or(i64::MAX)),
                MemoryAsk::Default | MemoryAsk::PerCpu(_) => Value::Nil,
            },
        set | d,
        v | {
            d.spec.ask.memory = take_mib(v)?.map_or(MemoryAsk::Default, MemoryAsk::PerNode);
            Ok(())
        }
    ),
    row!(
        "min_nodes",
        get | d | {
            let given = d.spec.ask.nodes_set || (d.is_change && d.spec.ask.min_nodes != 1);
            Value::Number(if given {
                i64::from(d.spec.ask.min_nodes)
            } else {
                NO_VAL
            })
        },
        set | d,
        v | {
            let count = take_count(v)?;
            d.spec.ask.nodes_set = count.is_some();
            d.spec.ask.min_nodes = count.unwrap_or(1).max(1);
            Ok(())
        }
    ),
    row!("name", string spec.name),
    row!("network", shown "network"),
    row!(
        "nice",
        get | d
            | match d.nice_given {
                true => Value::Number(NICE_OFFSET + i64::from(d.spec.nice)),
                false => Value::Number(NO_VAL),
            },
        set | d,
        v | {
            let given = take_number(v)?;
            // With or without what Slurm adds.
            let nice = given.map(|n| {
                if n > NICE_OFFSET / 2 {
                    n - NICE_OFFSET
                } else {
                    n
                }
            });
            d.nice_given = nice.is_some();
            d.spec.nice = nice
                .map_or(Ok(0), i32::try_from)
                .map_err(|_| "the value is out of range".to_owned())?;
            Ok(())
        }
    ),
    row!("ntasks_per_core", count NO_VAL16 spec.ask.ntasks_per_core),
    row!(
        "ntasks_per_gpu",
        get | d | number(d.spec.ask.devices().ntasks_per_gpu, NO_VAL16)
    ),
    row!("ntasks_per_node", count NO_VAL16 spec.ask.ntasks_per_node),
    row!("ntasks_per_socket", count NO_VAL16 spec.ask.ntasks_per_socket),
    row!(
        "num_tasks",
        get | d | number(d.spec.ask.ntasks, NO_VAL),
        set | d,
        v | {
            d.spec.ask.ntasks = take_count(v)?;
            d.spec.ask.task_range = None;
            Ok(())
        }
    ),
    row!("overcommit", flag spec.ask.overcommit),
    row!(
        "partition",
        get | d | plain(&d.spec.partitions.join(",")),
        set | d,
        v | {
            let names = take_text(v)?.unwrap_or_default();
            d.spec.partitions = names
                .split(',')
                .map(str::trim)
                .filter(|n| !n.is_empty())
                .map(str::to_owned)
                .collect();
            Ok(())
        }
    ),
    row!("pn_min_cpus", count NO_VAL16 spec.ask.min_cpus_per_node),
    row!("pn_min_memory", get |d| memory_number(d.spec.ask.memory), set take_memory),
    row!(
        "pn_min_tmp_disk",
        get | d
            | Value::Number(match d.spec.ask.tmp_disk_mib {
                0 => NO_VAL,
                mib => i64::try_from(mib).unwrap_or(i64::MAX),
            }),
        set | d,
        v | {
            d.spec.ask.tmp_disk_mib = take_mib(v)?.unwrap_or_default();
            Ok(())
        }
    ),
    row!("power_flags", shown "power"),
    row!("prefer", text spec.ask.prefer),
    row!(
        "priority",
        get | d
            | match d.spec.hold {
                true => Value::Number(0),
                false => number(d.spec.priority, NO_VAL),
            },
        set | d,
        v | {
            let priority = take_count(v)?;
            d.spec.hold = priority == Some(0) && !d.is_change;
            d.spec.priority = priority.filter(|_| !d.spec.hold);
            Ok(())
        }
    ),
    row!("profile", shown "profile"),
    row!("qos", text spec.qos),
    row!("req_nodes", text spec.ask.nodelist),
    row!(
        "req_switch",
        get | d | number(d.spec.ask.switches.map(|asked| asked.count), NO_VAL),
        set | d,
        v | {
            let wait_s = d.spec.ask.switches.and_then(|asked| asked.wait_s);
            d.spec.ask.switches = take_count(v)?.map(|count| SwitchAsk { count, wait_s });
            Ok(())
        }
    ),
    row!(
        "requeue",
        get | d | number(d.spec.requeue, NO_VAL16),
        set | d,
        v | {
            d.spec.requeue = take_flag(v)?;
            Ok(())
        }
    ),
    row!("reservation", text spec.reservation),
    row!(
        "script",
        get | d | d.script.clone().map_or(Value::Nil, Value::Bytes),
        set | d,
        v | {
            match v {
                _ if d.script.is_none() => Err("the job has no script".to_owned()),
                Value::Bytes(bytes) => {
                    d.script = Some(bytes);
                    Ok(())
                }
                Value::Nil | Value::Number(_) | Value::List(_) => {
                    Err("a text is expected".to_owned())
                }
            }
        }
    ),
    row!("segment_size", count NO_VAL16 spec.ask.segment),
    row!(
        "shared",
        get | d
            | Value::Number(match d.spec.ask.sharing {
                Sharing::Default => NO_VAL16,
                Sharing::Exclusive => 0,
                Sharing::Oversubscribe => 1,
                Sharing::ExclusiveUser => 2,
                Sharing::ExclusiveMcs => 3,
            }),
        set | d,
        v | {
            d.spec.ask.sharing = match take_number(v)? {
                None => Sharing::Default,
                Some(0) => Sharing::Exclusive,
                Some(1) => Sharing::Oversubscribe,
                Some(2) => Sharing::ExclusiveUser,
                Some(3) => Sharing::ExclusiveMcs,
                Some(n) => {
                    return Err(format!(
                        "{n} is not one of slurm.JOB_SHARED_NONE, _OK, _USER and _MCS"
                    ));
                }
            };
            Ok(())
        }
    ),
    row!(
        "site_factor",
        get | d
            | match d.site_factor_given {
                true => Value::Number(NICE_OFFSET + i64::from(d.spec.site_factor)),
                false => Value::Number(NO_VAL),
            },
        set | d,
        v | {
            let given = take_number(v)?.map(|n| {
                if n > NICE_OFFSET / 2 {
                    n - NICE_OFFSET
                } else {
                    n
                }
            });
            d.site_factor_given = given.is_some();
            d.spec.site_factor = given
                .map_or(Ok(0), i32::try_from)
                .map_err(|_| "the value is out of range".to_owned())?;
            Ok(())
        }
    ),
    row!("sockets_per_node", count NO_VAL16 spec.ask.sockets_per_node),
    row!("spread_job", flag spec.ask.spread),
    row!("std_err", text spec.stdio.stderr),
    row!("std_in", text spec.stdio.stdin),
    row!("std_out", text spec.stdio.stdout),
    row!("submit_line", get | d | plain(&d.spec.submit_line)),
    row!("threads_per_core", count NO_VAL16 spec.ask.threads_per_core),
    row!(
        "time_limit",
        get | d | limit_number(d.spec.time_limit),
        set | d,
        v | {
            d.spec.time_limit = take_limit(v)?;
            Ok(())
        }
    ),
    row!(
        "time_min",
        get | d | limit_number(d.spec.time_min),
        set | d,
        v | {
            d.spec.time_min = take_limit(v)?;
            Ok(())
        }
    ),
    row!("tres_bind", shown "tres-bind"),
    row!("tres_per_job", devices per_job),
    row!(
        "tres_per_node",
        get | d | plain(&gres_text(&d.spec.ask.gres)),
        set | d,
        v | {
            d.spec.ask.gres = take_gres(v)?;
            Ok(())
        }
    ),
    row!("tres_per_socket", devices per_socket),
    row!("tres_per_task", devices per_task),
    row!("user_id", get | d | Value::Number(i64::from(d.uid))),
    row!("user_name", get | d | plain(&d.user)),
    row!(
        "wait4switch",
        get | d | {
            let wait = d.spec.ask.switches.and_then(|asked| asked.wait_s);
            Value::Number(wait.map_or(NO_VAL, |s| i64::try_from(s).unwrap_or(i64::MAX)))
        }
    ),
    row!("wait_all_nodes", flag spec.wait_all_nodes),
    row!("wckey", text spec.wckey),
    row!("work_dir", string spec.work_dir),
];

/// Names of Slurm's that nothing here has: they read as if they were not given, and setting them is an error that the log
/// has.
pub const ABSENT: [&str; 27] = [
    "boards_per_node",
    "burst_buffer",
    "clusters",
    "container",
    "container_id",
    "cpu_freq_gov",
    "cpu_freq_max",
    "cpu_freq_min",
    "cron_job",
    "delay_boot",
    "job_id",
    "ntasks_per_board",
    "ntasks_per_tres",
    "oom_kill_step",
    "origin_cluster",
    "pack_job_offset",
    "plane_size",
    "reboot",
    "resv_port_cnt",
    "selinux_context",
    "sockets_per_board",
    "spank_job_env",
    "spank_job_env_size",
    "task_dist",
    "tres_freq",
    "x11",
    "req_context",
];

/// The value of a field of [`ABSENT`].
pub fn absent(name: &str) -> Option<Value> {
    if !ABSENT.contains(&name) {
        return None;
    }
    Some(match name {
        "boards_per_node" | "ntasks_per_board" | "ntasks_per_tres" | "oom_kill_step"
        | "plane_size" | "reboot" | "resv_port_cnt" | "sockets_per_board" => {
            Value::Number(NO_VAL16)
        }
        "cpu_freq_gov" | "cpu_freq_max" | "cpu_freq_min" | "delay_boot" | "job_id"
        | "pack_job_offset" => Value::Number(NO_VAL),
        "spank_job_env_size" | "task_dist" | "x11" => Value::Number(0),
        _ => Value::Nil,
    })
}
