//! The changes of a job as options of qalter, so that a site whose verifier sees submissions can say which of them users may
//! still make (`jsv_allowed_mod`).

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
    let all: [(Options, bool); 16] = [
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
        // A priority of 0 holds a job, and any other releases one that is held so.
        (&["h"], priority.is_some()),
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

/// Counts of nodes, tasks and CPUs, and how tasks are spread, are what a parallel environment says; names of nodes are those of
/// a queue's hosts; all else is a request.
fn of_ask(old: &ResourceAsk, new: &ResourceAsk) -> Vec<Options> {
    let with_environment = |of: &ResourceAsk, from: &ResourceAsk| ResourceAsk {
        min_nodes: from.min_nodes,
        max_nodes: from.max_nodes,
        nodes_set: from.nodes_set,
        use_min_nodes: from.use_min_nodes,
        ntasks: from.ntasks,
        ntasks_per_node: from.ntasks_per_node,
        ntasks_per_socket: from.ntasks_per_socket,
        ntasks_per_core: from.ntasks_per_core,
        cpus_per_task: from.cpus_per_task,
        min_cpus_per_node: from.min_cpus_per_node,
        distribution: from.distribution.clone(),
        spread: from.spread,
        task_range: from.task_range.clone(),
        ..of.clone()
    };
    let with_queue = |of: &ResourceAsk, from: &ResourceAsk| ResourceAsk {
        nodelist: from.nodelist.clone(),
        exclude: from.exclude.clone(),
        ..of.clone()
    };
    let rest = with_queue(&with_environment(new, old), old);
    let all: [(Options, bool); 3] = [
        (&["l"], rest != *old),
        (&["q"], with_queue(old, new) != *old),
        (&["pe"], with_environment(old, new) != *old),
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
        _ if [marks::QUEUE, marks::HARD_QUEUES, marks::SOFT_QUEUES].contains(&key) => &["q"],
        _ if key == marks::MASTER_QUEUES => &["masterq"],
        _ if key == marks::PE || key == marks::PE_RANGE => &["pe"],
        _ if key == marks::HOLD_JID => &["hold_jid", "hold_jid_ad"],
        _ if key == marks::MERGE => &["e", "j"],
        _ if key == marks::BINARY => &["b"],
        _ if key == marks::VERIFY => &["w"],
        _ if key == marks::BINDING => &["binding"],
        // No option of qalter changes it, so none that a site may list.
        _ if key == marks::COMMAND || key == marks::SUBMIT_DIR || key == marks::SHELL => {
            &["command"]
        }
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
        assert_eq!(check("p", |u| u.priority = Some(0)), Err("h"));
        assert_eq!(check("p,h", |u| u.priority = Some(0)), Ok(()));
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
        let constraint = ResourceAsk {
            constraint: Some("gpu".into()),
            ..ResourceAsk::default()
        };
        assert_eq!(check("pe", |u| u.ask = Some(constraint)), Err("l"));
        let nodes = ResourceAsk {
            exclude: Some("n1".into()),
            ..ResourceAsk::default()
        };
        assert_eq!(check("pe,l", |u| u.ask = Some(nodes)), Err("q"));
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
        assert_eq!(check("ac", |u| u.shown = shown(marks::PE)), Err("pe"));
        assert_eq!(
            check("ac", |u| u.shown = shown(marks::COMMAND)),
            Err("command")
        );
    }
}
