//! What a change of a job changes, as options of qalter, so that a site whose verifier sees submissions can say which of them
//! users may still change (`jsv_allowed_mod`).

use muster_model::command::JobUpdate;
use muster_model::grid_engine as marks;
use muster_model::spec::{JobSpec, ResourceAsk, StdioSpec};

/// Options that stand for something that is changed; if a site allows one of them, the change is allowed.
type Options = &'static [&'static str];

/// Checks a change of a job.
///
/// # Errors
/// The option that the site does not list.
pub fn check_change(
    job: &JobSpec,
    update: &JobUpdate,
    allowed: &[String],
) -> Result<(), &'static str> {
    let is_allowed = |options: &Options| {
        options
            .iter()
            .any(|own| allowed.iter().any(|listed| listed == own))
    };
    let wrong = changed(job, update)
        .into_iter()
        .find(|options| !is_allowed(options));
    match wrong.and_then(|options| options.first()) {
        Some(option) => Err(option),
        None => Ok(()),
    }
}

fn changed(job: &JobSpec, update: &JobUpdate) -> Vec<Options> {
    let JobUpdate {
        time_limit,
        time_delta_min,
        priority,
        nice,
        partitions,
        name,
        comment,
        account,
        qos,
        dependency,
        begin,
        deadline,
        ask,
        array_throttle,
        requeue,
        stdio,
        work_dir,
        wckey,
        reservation,
        shown,
        time_min,
        site_factor,
        nodelist,
        licenses,
    } = update;
    let all: [(Options, bool); 15] = [
        (
            &["l"],
            time_limit.is_some()
                || time_delta_min.is_some()
                || time_min.is_some()
                || licenses.is_some(),
        ),
        (
            &["p"],
            priority.is_some() || nice.is_some() || site_factor.is_some(),
        ),
        (&["q"], partitions.is_some() || nodelist.is_some()),
        (&["N"], name.is_some()),
        (&["A"], comment.is_some()),
        (&["P"], account.is_some()),
        (&["qos"], qos.is_some()),
        (&["hold_jid", "hold_jid_ad"], dependency.is_some()),
        (&["a"], begin.is_some()),
        (&["dl"], deadline.is_some()),
        (&["tc"], array_throttle.is_some()),
        (&["r"], requeue.is_some()),
        (&["cwd", "wd"], work_dir.is_some()),
        (&["wckey"], wckey.is_some()),
        (&["ar"], reservation.is_some()),
    ];
    let mut found: Vec<Options> = all
        .into_iter()
        .filter(|(_, is_changed)| *is_changed)
        .map(|(options, _)| options)
        .collect();
    found.extend(ask.iter().flat_map(|ask| of_ask(&job.ask, ask)));
    found.extend(stdio.iter().flat_map(|stdio| of_stdio(&job.stdio, stdio)));
    found.extend(shown.iter().map(|(key, _)| of_shown(key)));
    found
}

/// Memory is a request; all else of it is what a parallel environment says.
fn of_ask(old: &ResourceAsk, new: &ResourceAsk) -> Vec<Options> {
    let with_memory_of_old = ResourceAsk {
        memory: old.memory,
        ..new.clone()
    };
    let all: [(Options, bool); 2] = [
        (&["l"], old.memory != new.memory),
        (&["pe"], with_memory_of_old != *old),
    ];
    let given = all.into_iter().filter(|(_, is_changed)| *is_changed);
    given.map(|(options, _)| options).collect()
}

fn of_stdio(old: &StdioSpec, new: &StdioSpec) -> Vec<Options> {
    let all: [(Options, bool); 3] = [
        (&["i"], old.stdin != new.stdin),
        (&["o"], old.stdout != new.stdout),
        (&["e", "j"], old.stderr != new.stderr),
    ];
    let given = all.into_iter().filter(|(_, is_changed)| *is_changed);
    let mut found: Vec<Options> = given.map(|(options, _)| options).collect();
    let rest = StdioSpec {
        stdin: old.stdin.clone(),
        stdout: old.stdout.clone(),
        stderr: old.stderr.clone(),
        ..new.clone()
    };
    if rest != *old {
        found.push(&["o"]);
    }
    found
}

fn of_shown(key: &str) -> Options {
    match key.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
        "mailuser" => &["M"],
        "mailtype" => &["m"],
        _ if key == marks::HARD || key == marks::SOFT => &["l"],
        _ if key == marks::QUEUE || key == marks::HARD_QUEUES => &["q"],
        _ => &["ac"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::spec::MemoryAsk;

    fn check(allowed: &str, change: impl FnOnce(&mut JobUpdate)) -> Result<(), &'static str> {
        let mut update = JobUpdate::default();
        change(&mut update);
        let allowed: Vec<String> = allowed.split(',').map(str::to_owned).collect();
        check_change(&JobSpec::default(), &update, &allowed)
    }

    #[test]
    fn each_change_is_an_option() {
        assert_eq!(check("N,p", |u| u.name = Some("x".into())), Ok(()));
        assert_eq!(check("p", |u| u.name = Some("x".into())), Err("N"));
        assert_eq!(check("N", |u| u.nice = Some(5)), Err("p"));
        assert_eq!(check("N", |u| u.priority = Some(5)), Err("p"));
        assert_eq!(check("N", |u| u.time_delta_min = Some(5)), Err("l"));
        assert_eq!(check("N", |u| u.licenses = Some("a".into())), Err("l"));
        assert_eq!(check("N", |u| u.nodelist = Some("n1".into())), Err("q"));
        assert_eq!(check("wd", |u| u.work_dir = Some("/x".into())), Ok(()));
        assert_eq!(check("N", |_| {}), Ok(()));
    }

    #[test]
    fn parts_of_a_job_are_compared_with_what_it_has() {
        let memory = ResourceAsk {
            memory: MemoryAsk::PerCpu(7),
            ..ResourceAsk::default()
        };
        assert_eq!(check("pe", |u| u.ask = Some(memory.clone())), Err("l"));
        assert_eq!(check("l", |u| u.ask = Some(memory.clone())), Ok(()));
        let tasks = ResourceAsk {
            ntasks: Some(9),
            ..memory
        };
        assert_eq!(check("l", |u| u.ask = Some(tasks)), Err("pe"));
        let stderr = StdioSpec {
            stderr: Some("e".into()),
            ..StdioSpec::default()
        };
        assert_eq!(check("o", |u| u.stdio = Some(stderr.clone())), Err("e"));
        assert_eq!(check("j", |u| u.stdio = Some(stderr)), Ok(()));
        let shown = |key: &str| vec![(key.to_owned(), "x".to_owned())];
        assert_eq!(check("l", |u| u.shown = shown(marks::HARD)), Ok(()));
        assert_eq!(check("l", |u| u.shown = shown("MailUser")), Err("M"));
        assert_eq!(check("l", |u| u.shown = shown("extra")), Err("ac"));
    }
}
