//! Values of fields: from and to what a specification has.

use super::{INFINITE, MEM_PER_CPU, NO_VAL, NO_VAL16, NO_VAL64, Value};
use crate::description::Description;
use muster_conf::options::job::read_limit;
use muster_conf::options::values;
use muster_model::index_set::IndexSet;
use muster_model::mail::MailOptions;
use muster_model::spec::{
    Dependency, DependencyKind, DependencyTerm, DeviceAsk, DeviceBinding, GresAsk, JobKind,
    MemoryAsk,
};
use muster_model::time::{TimeLimit, Timestamp};

pub(super) fn text(value: Option<&String>) -> Value {
    value.map_or(Value::Nil, |text| Value::Bytes(text.clone().into_bytes()))
}

pub(super) fn plain(value: &str) -> Value {
    match value {
        "" => Value::Nil,
        text => Value::Bytes(text.as_bytes().to_vec()),
    }
}

pub(super) fn number<T: Into<i64>>(value: Option<T>, unset: i64) -> Value {
    Value::Number(value.map_or(unset, Into::into))
}

pub(super) fn take_text(value: Value) -> Result<Option<String>, String> {
    match value {
        Value::Nil => Ok(None),
        Value::Number(number) => Ok(Some(number.to_string())),
        Value::Bytes(bytes) => match String::from_utf8(bytes) {
            Ok(text) if text.contains('\0') => Err("a text has no zero bytes".to_owned()),
            Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
            Err(_) => Err("the text is not UTF-8".to_owned()),
        },
        Value::List(_) => Err("a text is expected, not a table".to_owned()),
    }
}

pub(super) fn take_number(value: Value) -> Result<Option<i64>, String> {
    let number = match value {
        Value::Nil => return Ok(None),
        Value::Number(number) => number,
        Value::Bytes(bytes) => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let parsed = text.trim().parse();
            parsed.map_err(|_| format!("a number is expected, not '{text:.80}'"))?
        }
        Value::List(_) => return Err("a number is expected, not a table".to_owned()),
    };
    let is_unset = [NO_VAL, NO_VAL16, NO_VAL64].contains(&number);
    Ok(Some(number).filter(|_| !is_unset))
}

pub(super) fn take_count(value: Value) -> Result<Option<u32>, String> {
    let narrow = |n: i64| u32::try_from(n).map_err(|_| format!("{n} is out of range"));
    take_number(value)?.map(narrow).transpose()
}

pub(super) fn limit_number(limit: Option<TimeLimit>) -> Value {
    Value::Number(match limit {
        None => NO_VAL,
        Some(TimeLimit::Unlimited) => INFINITE,
        Some(TimeLimit::Minutes(minutes)) => i64::from(minutes),
    })
}

pub(super) fn take_limit(value: Value) -> Result<Option<TimeLimit>, String> {
    if let Value::Bytes(bytes) = &value {
        let text = String::from_utf8_lossy(bytes);
        if text.contains([':', '-']) {
            let limit =
                read_limit(&text).map_err(|_| format!("'{text:.80}' is not a valid time limit"))?;
            return Ok(Some(limit));
        }
    }
    Ok(match take_number(value)? {
        None => None,
        Some(INFINITE) => Some(TimeLimit::Unlimited),
        Some(n) => {
            Some(TimeLimit::Minutes(u32::try_from(n).map_err(|_| {
                format!("{n} minutes is not a valid time limit")
            })?))
        }
    })
}

pub(super) fn time_number(time: Option<Timestamp>) -> Value {
    Value::Number(time.map_or(0, Timestamp::unix_s))
}

pub(super) fn take_time(value: Value) -> Result<Option<Timestamp>, String> {
    let given = take_number(value)?.filter(|n| *n != 0);
    match given {
        Some(n) if !(0..=253_402_300_799).contains(&n) => Err(format!("{n} is not a valid time")),
        given => Ok(given.map(Timestamp::from_unix_s)),
    }
}

pub(super) fn take_flag(value: Value) -> Result<Option<bool>, String> {
    Ok(take_number(value)?.map(|n| n != 0))
}

/// Devices as `gres/gpu:a100:2,gres/x:1`.
pub fn gres_text(list: &[GresAsk]) -> String {
    let one = |gres: &GresAsk| match &gres.kind {
        Some(kind) => format!("gres/{}:{kind}:{}", gres.name, gres.count),
        None => format!("gres/{}:{}", gres.name, gres.count),
    };
    list.iter().map(one).collect::<Vec<_>>().join(",")
}

pub(super) fn take_gres(value: Value) -> Result<Vec<GresAsk>, String> {
    let Some(text) = take_text(value)? else {
        return Ok(Vec::new());
    };
    let form = "devices are written as gres/gpu:2 or gres/gpu:TYPE:2, several with commas";
    values::gres(&text).ok_or_else(|| format!("'{text:.200}': {form}"))
}

/// Conditions as `--dependency` has them.
pub fn dependency_text(dependency: &Dependency) -> String {
    let one = |term: &DependencyTerm| match term {
        DependencyTerm::Singleton => "singleton".to_owned(),
        DependencyTerm::Job {
            kind,
            job,
            task,
            delay_minutes,
        } => {
            let kind = match kind {
                DependencyKind::After => "after",
                DependencyKind::AfterAny => "afterany",
                DependencyKind::AfterOk => "afterok",
                DependencyKind::AfterNotOk => "afternotok",
                DependencyKind::AfterCorr => "aftercorr",
            };
            let task = task.map(|task| format!("_{task}")).unwrap_or_default();
            let delay = match delay_minutes {
                0 => String::new(),
                minutes => format!("+{minutes}"),
            };
            format!("{kind}:{}{task}{delay}", job.0)
        }
    };
    let terms: Vec<String> = dependency.terms.iter().map(one).collect();
    terms.join(if dependency.any { "?" } else { "," })
}

pub(super) fn memory_number(memory: MemoryAsk) -> Value {
    let small = |mib: u64| i64::try_from(mib).unwrap_or(i64::MAX);
    Value::Number(match memory {
        MemoryAsk::Default => NO_VAL64,
        MemoryAsk::PerNode(mib) => small(mib),
        MemoryAsk::PerCpu(mib) => small(mib) | MEM_PER_CPU,
    })
}

pub(super) fn take_mib(value: Value) -> Result<Option<u64>, String> {
    let narrow =
        |n: i64| u64::try_from(n).map_err(|_| format!("{n} is not a valid amount of memory"));
    take_number(value)?.map(narrow).transpose()
}

pub(super) fn take_memory(description: &mut Description, value: Value) -> Result<(), String> {
    let given = take_number(value)?;
    description.spec.ask.memory = match given {
        None => MemoryAsk::Default,
        Some(n) if n < 0 => MemoryAsk::PerCpu((n & !MEM_PER_CPU).unsigned_abs()),
        Some(n) => MemoryAsk::PerNode(n.unsigned_abs()),
    };
    Ok(())
}

pub(super) fn shown(description: &Description, name: &str) -> Value {
    let found = description.spec.shown.iter().find(|(key, _)| key == name);
    text(found.map(|(_, value)| value))
}

pub(super) fn set_shown(
    description: &mut Description,
    name: &str,
    value: Value,
) -> Result<(), String> {
    let value = take_text(value)?;
    let list = &mut description.spec.shown;
    // In a change, an empty text clears it.
    let value = value.or_else(|| description.is_change.then(String::new));
    list.retain(|(key, _)| key != name);
    list.extend(value.map(|value| (name.to_owned(), value)));
    Ok(())
}

pub(super) fn devices(description: &mut Description, change: impl FnOnce(&mut DeviceAsk)) {
    let ask = &mut description.spec.ask;
    let mut devices = ask.devices.take().unwrap_or_default();
    change(&mut devices);
    ask.devices = Some(devices).filter(|devices| **devices != DeviceAsk::default());
}

/// Bits of `bitflags`. Their values are not Slurm's: scripts use the names.
pub const FLAGS: [(i64, &str); 6] = [
    (1 << 0, "KILL_INV_DEP"),
    (1 << 1, "NO_KILL_INV_DEP"),
    (1 << 2, "GRES_ENFORCE_BIND"),
    (1 << 3, "GRES_DISABLE_BIND"),
    (1 << 4, "SPREAD_JOB"),
    (1 << 5, "USE_MIN_NODES"),
];

pub(super) fn flags(description: &Description) -> i64 {
    let spec = &description.spec;
    let binding = spec.ask.devices().binding;
    let set = [
        spec.kill_on_invalid_dep == Some(true),
        spec.kill_on_invalid_dep == Some(false),
        binding == DeviceBinding::Enforced,
        binding == DeviceBinding::Disabled,
        spec.ask.spread,
        spec.ask.use_min_nodes,
    ];
    let bits = FLAGS.iter().zip(set).filter(|(_, set)| *set);
    bits.fold(0, |all, ((bit, _), _)| all | bit)
}

pub(super) fn set_flags(description: &mut Description, value: Value) -> Result<(), String> {
    let bits = take_number(value)?.unwrap_or_default();
    let [kill, keep, enforce, disable, spread, few] = FLAGS.map(|(bit, _)| bits & bit != 0);
    description.spec.kill_on_invalid_dep = (kill || keep).then_some(kill);
    description.spec.ask.spread = spread;
    description.spec.ask.use_min_nodes = few;
    devices(description, |all| {
        all.binding = match (enforce, disable) {
            (true, _) => DeviceBinding::Enforced,
            (false, true) => DeviceBinding::Disabled,
            (false, false) => DeviceBinding::Preferred,
        };
    });
    Ok(())
}

pub(super) fn index_text(indices: &IndexSet) -> String {
    let range = |(first, last): (u32, u32)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    indices.ranges().map(range).collect::<Vec<_>>().join(",")
}

pub(super) fn arguments(description: &Description) -> Vec<String> {
    let spec = &description.spec;
    let first = (spec.kind == JobKind::Batch).then(|| match spec.command.as_str() {
        "" => spec.name.clone(),
        path => path.to_owned(),
    });
    first.into_iter().chain(spec.argv.iter().cloned()).collect()
}

pub(super) fn one_gpu_count(value: Value) -> Result<Option<u64>, String> {
    match take_gres(value)?.as_slice() {
        [] => Ok(None),
        [one] if one.name == "gpu" && one.kind.is_none() => Ok(Some(one.count)),
        _ => Err("gres/gpu:COUNT is expected".to_owned()),
    }
}

/// Bits of `mail_type`, and the words of `--mail-type` for them.
pub const MAILS: [(i64, &str, &str); 12] = [
    (0x0001, "MAIL_JOB_BEGIN", "BEGIN"),
    (0x0002, "MAIL_JOB_END", "END"),
    (0x0004, "MAIL_JOB_FAIL", "FAIL"),
    (0x0008, "MAIL_JOB_REQUEUE", "REQUEUE"),
    (0x0010, "MAIL_JOB_TIME100", "TIME_LIMIT"),
    (0x0020, "MAIL_JOB_TIME90", "TIME_LIMIT_90"),
    (0x0040, "MAIL_JOB_TIME80", "TIME_LIMIT_80"),
    (0x0080, "MAIL_JOB_TIME50", "TIME_LIMIT_50"),
    (0x0100, "MAIL_JOB_STAGE_OUT", "STAGE_OUT"),
    (0x0200, "MAIL_ARRAY_TASKS", "ARRAY_TASKS"),
    (0x0400, "MAIL_INVALID_DEPEND", "INVALID_DEPEND"),
    (0x0000, "MAIL_NONE", "NONE"),
];

pub(super) fn mail_mask(description: &Description) -> i64 {
    let kinds = description
        .spec
        .mail
        .as_ref()
        .map_or("", |mail| &mail.types);
    let bit = |word: &str| {
        if word.eq_ignore_ascii_case("ALL") {
            return 0x050f;
        }
        let known = MAILS
            .iter()
            .find(|(.., name)| word.eq_ignore_ascii_case(name));
        known.map_or(0, |(bit, ..)| *bit)
    };
    kinds
        .split(',')
        .map(|word| bit(word.trim()))
        .fold(0, |mask, bit| mask | bit)
}

pub(super) fn set_mail_mask(description: &mut Description, value: Value) -> Result<(), String> {
    let mask = take_number(value)?.unwrap_or_default();
    let set = MAILS.iter().filter(|(bit, ..)| mask & bit != 0);
    let types = set.map(|(.., word)| *word).collect::<Vec<_>>().join(",");
    let mail = description.spec.mail.take();
    description.spec.mail = MailOptions::changed(mail, |mail| mail.types = types);
    Ok(())
}
