//! Attributes of classes that have one value: what a job has of each, and how it gets it.

use crate::jsv::{self, Site};
use muster_conf::options::values;
use muster_model::grid_engine as marks;
use muster_model::mail::MailOptions;
use muster_model::spec::{JobKind, JobSpec, WarnSignal};

/// SIGUSR2, a minute before the end, as `-notify` has it.
const NOTIFY: WarnSignal = WarnSignal {
    signal: 12,
    before_s: 60,
    batch_only: true,
};

/// A job's value of an attribute; none where its user gave none. `given` names attributes that the user named among those that
/// each job has.
pub(crate) fn value(spec: &JobSpec, name: &str, site: &Site, given: &[String]) -> Option<String> {
    let is_given = given.iter().any(|own| own == name);
    let flag = |on: bool| Some(if on { "y" } else { "n" }.to_owned());
    let there = |is_there: bool| is_there.then(|| "given".to_owned());
    match name {
        "A" => spec.comment.clone(),
        "a" => there(spec.begin.is_some()),
        "ar" => spec.reservation.clone(),
        "cwd" => is_given.then(|| spec.work_dir.clone()),
        "dl" => there(spec.deadline.is_some()),
        "e" => file(spec, spec.stdio.stderr.as_ref(), is_given),
        "o" => file(spec, spec.stdio.stdout.as_ref(), is_given),
        "i" => spec.stdio.stdin.clone(),
        "j" => match file(spec, spec.stdio.stderr.as_ref(), is_given) {
            Some(_) => flag(false),
            None => (is_given && spec.stdio.stderr.is_none()).then(|| "y".to_owned()),
        },
        "h" => (spec.hold || spec.priority == Some(0)).then(|| "y".to_owned()),
        "hold_jid" => there(!spec.dependency.terms.is_empty()),
        "l_soft" => spec.ask.prefer.clone(),
        "m" => mail(spec)
            .map(|(kinds, _)| kinds)
            .filter(|kinds| !kinds.is_empty()),
        "M" => mail(spec)
            .map(|(_, user)| user)
            .filter(|user| !user.is_empty()),
        "N" => is_given.then(|| spec.name.clone()),
        "notify" => spec
            .warn_signal
            .map(|signal| if signal == NOTIFY { "y" } else { "a signal" }.to_owned()),
        "P" => spec
            .account
            .as_ref()
            .map(|_| jsv::project(spec, &site.mapping)),
        "p" => match (spec.priority.filter(|priority| *priority > 0), spec.nice) {
            (Some(priority), _) => Some(format!("a priority of {priority}")),
            (None, 0) => None,
            (None, nice) => Some((-i64::from(nice)).to_string()),
        },
        "q_hard" => {
            let queues = spec.partitions.iter().map(|own| site.mapping.queue_of(own));
            Some(queues.collect::<Vec<_>>().join(",")).filter(|list| !list.is_empty())
        }
        "qos" => spec.qos.clone(),
        "r" => spec.requeue.and_then(flag),
        "t" => spec
            .array
            .as_ref()
            .map(|array| match jsv::regular(&array.indices) {
                Some((first, last, step)) => format!("{first}-{last}:{step}"),
                None => {
                    // By ranges: a few bytes of a request may name billions of tasks.
                    let all = array.indices.ranges();
                    all.map(|(first, last)| format!("{first}-{last}"))
                        .collect::<Vec<_>>()
                        .join(",")
                }
            }),
        "tc" => spec
            .array
            .as_ref()
            .and_then(|array| array.throttle)
            .map(|most| most.to_string()),
        "wckey" => spec.wckey.clone(),
        _ => None,
    }
}

/// A file of a job's. Jobs of qsub always name one, the usual one where the user said nothing.
fn file(spec: &JobSpec, pattern: Option<&String>, is_given: bool) -> Option<String> {
    let usual = ["%x.o%j", "%x.e%j", "%x.o%A.%a", "%x.e%A.%a"];
    let is_usual = |own: &&String| usual.contains(&own.as_str());
    let is_own = |own: &&String| is_given || !marks::is_marked(spec) || !is_usual(own);
    pattern.filter(is_own).cloned()
}

fn mail(spec: &JobSpec) -> Option<(String, String)> {
    let MailOptions { types, user, .. } = spec.mail.as_ref()?;
    let letters = [("BEGIN", 'b'), ("END", 'e'), ("FAIL", 'a')];
    let words: Vec<String> = types
        .split(',')
        .map(|word| word.trim().to_ascii_uppercase())
        .collect();
    let letter = |word: &String| {
        letters
            .iter()
            .find(|(own, _)| own == word)
            .map(|(_, letter)| *letter)
    };
    let all: Option<Vec<char>> = words
        .iter()
        .filter(|word| !word.is_empty())
        .map(letter)
        .collect();
    let kinds = match all {
        Some(mut all) => {
            all.sort_unstable();
            all.into_iter().collect()
        }
        // A kind without a letter is seen all the same.
        None => types.clone(),
    };
    Some((kinds, user.clone()))
}

/// A value of a class as a job has it.
///
/// # Errors
/// No job can have it.
pub(super) fn canonical(name: &str, value: &str, site: &Site) -> Result<String, String> {
    let mut blank = JobSpec::default();
    set(&mut blank, name, value, site)?;
    let given = [name.to_owned()];
    Ok(self::value(&blank, name, site, &given).unwrap_or_else(|| value.to_owned()))
}

/// Gives a job a value.
///
/// # Errors
/// No job can have it.
pub(super) fn set(spec: &mut JobSpec, name: &str, value: &str, site: &Site) -> Result<(), String> {
    match name {
        "e" => spec.stdio.stderr = Some(pattern(spec, value)),
        "o" => spec.stdio.stdout = Some(pattern(spec, value)),
        "i" => spec.stdio.stdin = Some(pattern(spec, value)),
        "j" if value == "n" => {
            // Without a name, sbatch would put both into one file.
            if spec.stdio.stderr.is_none() && spec.kind == JobKind::Batch {
                let id = if spec.array.is_some() { "%A.%a" } else { "%j" };
                spec.stdio.stderr = Some(format!("%x.e{id}"));
            }
        }
        "notify" => spec.warn_signal = (value == "y").then_some(NOTIFY),
        "qos" => spec.qos = Some(value.to_owned()),
        "wckey" => spec.wckey = Some(value.to_owned()),
        "t" => {
            let throttle = spec.array.as_ref().and_then(|array| array.throttle);
            let mut array = values::array(value).ok_or("tasks are expected")?;
            array.throttle = array.throttle.or(throttle);
            spec.array = Some(array);
        }
        // It means nothing for a job without tasks.
        "tc" if spec.array.is_none() => {}
        _ => jsv::change(spec, name, value, site)?,
    }
    Ok(())
}

/// A file's pattern: pseudo variables of Grid Engine become those of sbatch, which may be used as well.
fn pattern(spec: &JobSpec, value: &str) -> String {
    let task = if spec.array.is_some() {
        "%a"
    } else {
        "undefined"
    };
    let names = [
        ("$JOB_NAME", "%x"),
        ("$JOB_ID", "%A"),
        ("$TASK_ID", task),
        ("$HOSTNAME", "%N"),
        ("$USER", "%u"),
    ];
    let all = names
        .iter()
        .fold(value.to_owned(), |text, (name, pattern)| {
            text.replace(name, pattern)
        });
    match all.ends_with('/') {
        true => format!("{all}%x.o%A"),
        false => all,
    }
}
