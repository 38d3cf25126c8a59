//! `scontrol update JobId=`. What shapes the allocation is changed on a copy of the job's own request, which is sent
//! whole.

use super::Session;
use super::jobs::{ids, uid};
use super::update::Pair;
use crate::connect::ConnectError;
use crate::zone::{self, LocalZone};
use muster_conf::options::job::read_limit;
use muster_conf::options::values::{self, parse_mem_mib, time};
use muster_model::command::{JobTarget, JobUpdate, UserCommand};
use muster_model::job::{Allocation, Job, Phase};
use muster_model::job_env;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{Dependency, MemoryAsk, ResourceAsk, Sharing};
use muster_model::time::{TimeLimit, Timestamp};
use muster_proto::client::JobFilter;

/// The most that `SiteFactor=` adds to a priority or takes from it.
const SITE_FACTOR_MAX: u32 = i32::MAX as u32 - 2;

/// Why a value cannot be read, for what Slurm has a line of its own.
const NO_TIME: &str = "expected a time such as now+1hour or 2030-01-20T12:34:00";
const NO_MAIL_TYPE: &str = "expected types of mail such as END,FAIL";
const NO_NUMBER: &str = "expected a number";

/// Fields that are numbers or sizes, as refusals write them.
const NUMBERS: &str = "ArrayTaskThrottle CoreSpec CPUsPerTask MinCPUsNode MinMemoryCPU MinMemoryNode MinTmpDiskNode \
                       NumTasks ReqCores ReqSockets ReqThreads Requeue TasksPerNode";

/// Function that reads a key.
type Read = fn(&mut JobEdit<'_>, &Pair) -> Result<(), String>;

/// Key in lower case, its least letters, and its function.
const KEYS: &[(&str, usize, Read)] = &[
    ("account", 1, |c, p| set(&mut c.update.account, p)),
    ("admincomment", 3, |c, p| shown(c, "admin-comment", p)),
    ("arraytaskthrottle", 10, |c, p| {
        c.update.array_throttle = Some(number(p)?);
        Ok(())
    }),
    ("comment", 3, |c, p| set(&mut c.update.comment, p)),
    ("contiguous", 10, |c, p| {
        c.ask()?.contiguous = yes(p)?;
        Ok(())
    }),
    ("corespec", 4, |c, p| {
        c.ask()?.core_spec = Some(number(p)?);
        Ok(())
    }),
    ("cpuspertask", 9, |c, p| {
        c.ask()?.cpus_per_task = Some(number(p)?);
        Ok(())
    }),
    ("cpus/task", 9, |c, p| {
        c.ask()?.cpus_per_task = Some(number(p)?);
        Ok(())
    }),
    ("deadline", 3, |c, p| {
        c.update.deadline = Some(point(p)?);
        Ok(())
    }),
    ("dependency", 1, |c, p| {
        c.update.dependency = Some(if p.value.is_empty() {
            Dependency::default()
        } else {
            values::dependency(&p.value).map_err(|r| r.detail)?
        });
        Ok(())
    }),
    ("eligibletime", 8, |c, p| {
        c.update.begin = Some(point(p)?);
        Ok(())
    }),
    ("endtime", 7, end_time),
    ("excnodelist", 3, |c, p| {
        c.ask()?.exclude = text(p);
        Ok(())
    }),
    ("extra", 5, |c, p| shown(c, "extra", p)),
    ("features", 1, |c, p| {
        c.ask()?.constraint = text(p);
        Ok(())
    }),
    ("gres", 2, |c, p| {
        c.ask()?.gres = values::gres(&p.value).ok_or("expected name[:type][:count]")?;
        Ok(())
    }),
    ("licenses", 1, |c, p| set(&mut c.update.licenses, p)),
    ("mailtype", 5, |c, p| {
        if !p.value.is_empty() && !values::mail_type_is_known(&p.value) {
            return Err(NO_MAIL_TYPE.to_owned());
        }
        shown(c, "mail-type", p)
    }),
    ("mailuser", 5, |c, p| shown(c, "mail-user", p)),
    ("mincpusnode", 4, |c, p| {
        c.ask()?.min_cpus_per_node = Some(number(p)?);
        Ok(())
    }),
    ("minmemorycpu", 10, |c, p| {
        c.ask()?.memory = MemoryAsk::PerCpu(memory(p)?);
        Ok(())
    }),
    ("minmemorynode", 10, |c, p| {
        c.ask()?.memory = MemoryAsk::PerNode(memory(p)?);
        Ok(())
    }),
    ("mintmpdisknode", 4, |c, p| {
        c.ask()?.tmp_disk_mib = memory(p)?;
        Ok(())
    }),
    ("nice", 2, |c, p| {
        let value = if p.value.is_empty() {
            "100"
        } else {
            p.value.as_str()
        };
        c.update.nice = Some(value.parse().map_err(|_| NO_NUMBER)?);
        Ok(())
    }),
    ("numcpus", 7, |c, p| {
        c.cpus = Some((cpus(p)?, p.text.clone()));
        Ok(())
    }),
    ("nodelist", 8, nodelist),
    ("numnodes", 7, nodes),
    ("reqnodes", 8, nodes),
    ("numtasks", 8, tasks),
    ("reqprocs", 8, tasks),
    ("oversubscribe", 2, sharing),
    ("shared", 2, sharing),
    ("partition", 2, |c, p| {
        let list = p.value.split(',').filter(|n| !n.is_empty());
        c.update.partitions = Some(list.map(str::to_owned).collect());
        Ok(())
    }),
    ("prefer", 3, |c, p| {
        c.ask()?.prefer = text(p);
        Ok(())
    }),
    ("priority", 2, |c, p| {
        c.update.priority = Some(match p.value.to_ascii_uppercase().as_str() {
            "TOP" => u32::MAX - 1,
            _ => p
                .value
                .parse()
                .map_err(|_| format!("Invalid Priority value: {}", p.value))?,
        });
        Ok(())
    }),
    ("qos", 2, |c, p| set(&mut c.update.qos, p)),
    ("reqcores", 8, |c, p| {
        c.ask()?.cores_per_socket = Some(number(p)?);
        Ok(())
    }),
    ("reqnodelist", 8, |c, p| {
        c.ask()?.nodelist = text(p);
        Ok(())
    }),
    ("reqsockets", 10, |c, p| {
        c.ask()?.sockets_per_node = Some(number(p)?);
        Ok(())
    }),
    ("reqthreads", 10, |c, p| {
        c.ask()?.threads_per_core = Some(number(p)?);
        Ok(())
    }),
    ("requeue", 4, |c, p| {
        c.update.requeue = Some(number(p)? > 0);
        Ok(())
    }),
    ("reservationname", 3, |c, p| {
        set(&mut c.update.reservation, p)
    }),
    ("sitefactor", 4, |c, p| {
        let factor: i32 = p
            .value
            .parse()
            .map_err(|_| "Invalid SiteFactor value".to_owned())?;
        if factor.unsigned_abs() > SITE_FACTOR_MAX {
            return Err("SiteFactor value out of range".to_owned());
        }
        c.update.site_factor = Some(factor);
        Ok(())
    }),
    ("starttime", 2, |c, p| {
        c.update.begin = Some(point(p)?);
        Ok(())
    }),
    ("stderr", 6, |c, p| {
        c.stdio()?.stderr = text(p);
        Ok(())
    }),
    ("stdin", 5, |c, p| {
        c.stdio()?.stdin = text(p);
        Ok(())
    }),
    ("stdout", 6, |c, p| {
        c.stdio()?.stdout = text(p);
        Ok(())
    }),
    ("switches", 5, |c, p| {
        // A count of zero takes the request back.
        let is_none = p.value.split('@').next() == Some("0");
        let switches = || values::switches(&p.value).map_err(|_| "expected count[@time]");
        c.ask()?.switches = if is_none { None } else { Some(switches()?) };
        Ok(())
    }),
    ("taskspernode", 5, |c, p| {
        c.ask()?.ntasks_per_node = Some(number(p)?).filter(|n| *n > 0);
        Ok(())
    }),
    ("timelimit", 5, limit),
    ("timemin", 5, |c, p| {
        c.update.time_min = Some(read_limit(&p.value).map_err(|_| "Invalid TimeMin value")?);
        Ok(())
    }),
    ("wait-for-switch", 5, |c, p| {
        let seconds = u64::from(number(p)?);
        let switches = c.ask()?.switches.as_mut();
        let switches = switches.ok_or("the job does not ask for Switches")?;
        switches.wait_s = Some(seconds);
        Ok(())
    }),
    ("wckey", 1, |c, p| set(&mut c.update.wckey, p)),
    ("workdir", 5, |c, p| set(&mut c.update.work_dir, p)),
];

/// Keys that Slurm knows and that cannot be changed here.
pub(crate) const REFUSED: &[(&str, &str)] = &[
    ("burstbuffer", "there are no burst buffers here"),
    ("clusters", "only this cluster is known"),
    ("clusterfeatures", "this cluster is not in a federation"),
    ("delayboot", "nodes are never rebooted for a job"),
    ("reboot", "nodes are never rebooted for a job"),
    (
        "resetaccruetime",
        "priorities do not grow by a time that could be reset",
    ),
    ("threadspec", "use CoreSpec"),
];

/// Names of the fields that can be changed, in lower case.
pub(crate) fn fields() -> impl Iterator<Item = &'static str> {
    KEYS.iter()
        .map(|(name, ..)| *name)
        .chain(["jobid", "jobname", "userid"])
}

/// A job being changed.
struct JobEdit<'a> {
    update: JobUpdate,
    /// Loads the job when a change needs its request.
    load: &'a mut dyn FnMut() -> Result<Job, ConnectError>,
    /// Why it could not be loaded.
    failed: Option<ConnectError>,
    /// `NumCPUs=`, as read and as written: it is worked in when all else has been.
    cpus: Option<(u32, String)>,
}

impl JobEdit<'_> {
    /// Gives the tasks the CPUs of `NumCPUs=`: more CPUs for each, or else tasks of one CPU.
    fn settle_cpus(&mut self) -> Result<(), String> {
        let Some((wanted, _)) = self.cpus else {
            return Ok(());
        };
        let ask = self.ask()?;
        let (tasks, each) = (ask.task_count(), ask.cpus_of_task());
        if wanted == tasks.saturating_mul(each) {
            return Ok(());
        }
        if wanted % tasks == 0 {
            ask.cpus_per_task = Some(wanted / tasks);
        } else if each == 1 && wanted >= ask.min_nodes {
            ask.ntasks = Some(wanted);
        } else {
            return Err(format!(
                "{wanted} CPUs cannot be shared by {tasks} tasks on {} nodes; give NumTasks and CPUsPerTask too",
                ask.min_nodes
            ));
        }
        Ok(())
    }

    /// Error of a field: that the job could not be loaded, or the one found.
    fn error(self, pair: Pair, why: String) -> ChangeError {
        match self.failed {
            Some(error) => ChangeError::Load(error),
            None => ChangeError::Value(pair, why),
        }
    }

    fn job(&mut self) -> Result<Job, String> {
        (self.load)().map_err(|e| {
            self.failed = Some(e);
            String::new()
        })
    }

    /// The request to change, at first the job's own.
    fn ask(&mut self) -> Result<&mut ResourceAsk, String> {
        if self.update.ask.is_none() {
            self.update.ask = Some(self.job()?.spec.ask.clone());
        }
        Ok(self.update.ask.as_mut().expect("it was just set"))
    }

    fn stdio(&mut self) -> Result<&mut muster_model::spec::StdioSpec, String> {
        if self.update.stdio.is_none() {
            self.update.stdio = Some(self.job()?.spec.stdio.clone());
        }
        Ok(self.update.stdio.as_mut().expect("it was just set"))
    }
}

fn set(field: &mut Option<String>, pair: &Pair) -> Result<(), String> {
    *field = Some(pair.value.clone());
    Ok(())
}

fn shown(change: &mut JobEdit<'_>, key: &str, pair: &Pair) -> Result<(), String> {
    let value = (key.to_owned(), pair.value.clone());
    change.update.shown.push(value);
    Ok(())
}

fn text(pair: &Pair) -> Option<String> {
    Some(pair.value.clone()).filter(|v| !v.is_empty())
}

fn number(pair: &Pair) -> Result<u32, String> {
    values::count(&pair.value).ok_or_else(|| NO_NUMBER.to_owned())
}

fn memory(pair: &Pair) -> Result<u64, String> {
    parse_mem_mib(&pair.value).map_err(|_| NO_NUMBER.to_owned())
}

fn yes(pair: &Pair) -> Result<bool, String> {
    muster_conf::value::parse_bool(&pair.value).map_err(|e| e.to_string())
}

fn point(pair: &Pair) -> Result<Timestamp, String> {
    let zone = LocalZone::default();
    time::parse(&pair.value, zone::now(), &zone).ok_or_else(|| NO_TIME.to_owned())
}

fn nodes(change: &mut JobEdit<'_>, pair: &Pair) -> Result<(), String> {
    let (min, max) = values::nodes(&pair.value).map_err(|e| e.lines.join("; "))?;
    if max == 0 {
        return Err("a job has one node at least".to_owned());
    }
    let ask = change.ask()?;
    (ask.min_nodes, ask.max_nodes, ask.nodes_set) = (min, Some(max), true);
    Ok(())
}

/// The least number of a range: more are not given to a job that can do with it.
/// The nodes that a job keeps; as in Slurm, of one that waits it is another name of `ReqNodeList`.
fn nodelist(change: &mut JobEdit<'_>, pair: &Pair) -> Result<(), String> {
    if change.job()?.phase() == Phase::Pending {
        change.ask()?.nodelist = text(pair);
        return Ok(());
    }
    set(&mut change.update.nodelist, pair)
}

fn cpus(pair: &Pair) -> Result<u32, String> {
    let expected = || "expected a number, or two with '-' between them".to_owned();
    let (least, most) = match pair.value.split_once('-') {
        Some((least, most)) => (least, Some(values::count(most).ok_or_else(expected)?)),
        None => (pair.value.as_str(), None),
    };
    let least = values::count(least)
        .filter(|n| *n > 0)
        .ok_or_else(expected)?;
    if most.is_some_and(|most| most < least) {
        return Err(expected());
    }
    Ok(least)
}

fn tasks(change: &mut JobEdit<'_>, pair: &Pair) -> Result<(), String> {
    change.ask()?.ntasks = Some(number(pair)?);
    Ok(())
}

/// When a running job is to end at the latest: a limit that is over then.
fn end_time(change: &mut JobEdit<'_>, pair: &Pair) -> Result<(), String> {
    let end = point(pair)?;
    let job = change.job()?;
    let now = zone::now();
    if job.state.is_ended() || job.start_time.is_none() {
        return Err("the job does not run; set TimeLimit".to_owned());
    }
    if end <= now {
        return Err("that time is past; use scancel".to_owned());
    }
    let left_ms = end.since_ms(now);
    let minutes = (job.run_time_ms(now) + left_ms).div_ceil(60_000);
    let minutes = u32::try_from(minutes).map_err(|_| "that is too late")?;
    change.update.time_limit = Some(TimeLimit::Minutes(minutes));
    Ok(())
}

fn sharing(change: &mut JobEdit<'_>, pair: &Pair) -> Result<(), String> {
    change.ask()?.sharing = match pair.value.to_ascii_lowercase().as_str() {
        "yes" | "1" => Sharing::Oversubscribe,
        "no" | "0" => Sharing::Exclusive,
        "ok" => Sharing::Default,
        _ => return Err("expected yes or no".to_owned()),
    };
    Ok(())
}

fn limit(change: &mut JobEdit<'_>, pair: &Pair) -> Result<(), String> {
    let bad = |_| "Invalid TimeLimit value".to_owned();
    let (sign, value) = match (
        pair.sign,
        pair.value.strip_prefix('+'),
        pair.value.strip_prefix('-'),
    ) {
        (Some(sign), ..) => (Some(sign), pair.value.as_str()),
        (None, Some(rest), _) => (Some('+'), rest),
        (None, None, Some(rest)) if rest != "1" => (Some('-'), rest),
        _ => (None, pair.value.as_str()),
    };
    let limit = read_limit(value).map_err(bad)?;
    match (sign, limit) {
        (None, limit) => change.update.time_limit = Some(limit),
        (Some(sign), TimeLimit::Minutes(minutes)) => {
            let minutes = i64::from(minutes);
            change.update.time_delta_min = Some(if sign == '+' { minutes } else { -minutes });
        }
        (Some(_), TimeLimit::Unlimited) => return Err("Invalid TimeLimit value".to_owned()),
    }
    Ok(())
}

/// Why fields make no change of a job.
#[derive(Debug)]
pub(crate) enum ChangeError {
    /// The job could not be loaded.
    Load(ConnectError),
    /// There is no such field, or it cannot be changed.
    Unknown(Pair),
    /// The value cannot be read, and why.
    Value(Pair, String),
}

/// Why a field that Slurm knows cannot be changed here.
pub(crate) fn refused(pair: &Pair) -> Option<&'static str> {
    let known = REFUSED.iter().find(|(name, _)| pair.is(name, 5));
    known.map(|(_, why)| *why)
}

/// The change that fields ask for; those that say which job is meant are left out. `load` gives the job, whose own request is
/// changed where only a part of it is given.
///
/// # Errors
/// The first field that is unknown or malformed; the job could not be loaded.
pub(crate) fn changes(
    pairs: &[Pair],
    load: &mut dyn FnMut() -> Result<Job, ConnectError>,
) -> Result<JobUpdate, ChangeError> {
    let mut change = JobEdit {
        update: JobUpdate::default(),
        load,
        failed: None,
        cpus: None,
    };
    for pair in pairs.iter().filter(|p| !is_selector(p)) {
        let known = KEYS
            .iter()
            .find(|(name, letters, _)| pair.is(name, *letters));
        let Some((_, _, read)) = known else {
            return Err(ChangeError::Unknown(pair.clone()));
        };
        if let Err(why) = read(&mut change, pair) {
            return Err(change.error(pair.clone(), why));
        }
    }
    if let Err(why) = change.settle_cpus() {
        let written = change.cpus.as_ref().map(|(_, text)| text.clone());
        let pair = pairs.iter().find(|p| Some(&p.text) == written.as_ref());
        let pair = pair.cloned().unwrap_or_default();
        return Err(change.error(pair, why));
    }
    // `Name=` beside an id is the new name.
    let by_id = pairs.iter().any(|p| p.is("jobid", 4) || p.key == "job");
    if let Some(pair) = pairs.iter().find(|p| is_name(p)).filter(|_| by_id) {
        change.update.name = Some(pair.value.clone());
    }
    Ok(change.update)
}

impl Session {
    /// Changes the jobs that the specification names.
    pub(super) fn update_job(&mut self, pairs: &[Pair]) {
        let named = match self.named_jobs(pairs) {
            Ok(named) => named,
            Err((text, error)) => {
                let of_name = matches!(&error, ConnectError::Refused(refusal) if refusal.detail.starts_with("No jobs with name"));
                match of_name {
                    true => self.error(&format!("No jobs with name '{text}'")),
                    false => drop(self.job_done("update", &text, Err(error))),
                }
                return;
            }
        };
        let first = named.first().map(|(_, target)| target.job);
        let mut client = self.client.take();
        let mut load = || -> Result<Job, ConnectError> {
            let client = match &mut client {
                Some(client) => client,
                none => none.insert(crate::connect::Client::connect_patiently(
                    crate::submit::line::PATIENCE,
                )?),
            };
            let filter = JobFilter {
                ids: first.into_iter().collect(),
                ..JobFilter::default()
            };
            let job = client.query_jobs(filter)?.into_iter().next();
            job.ok_or_else(|| Refusal::from(RefusalCode::InvalidJobId).into())
        };
        let read = changes(pairs, &mut load);
        self.client = client;
        match read {
            Err(ChangeError::Load(error)) => {
                let text = named.first().map_or_else(String::new, |(t, _)| t.clone());
                self.job_done("update", &text, Err(error));
            }
            Err(ChangeError::Unknown(pair)) => self.not_supported(&pair, refused(&pair)),
            Err(ChangeError::Value(_, why))
                if why.starts_with("Invalid") || why.ends_with("out of range") =>
            {
                self.error(&why);
            }
            Err(ChangeError::Value(pair, why)) if why == NO_TIME => {
                self.complain(&format!(
                    "Invalid time specification (pos=0): {}",
                    pair.value
                ));
            }
            Err(ChangeError::Value(pair, why)) if why == NO_MAIL_TYPE => {
                self.complain(&format!("Invalid MailType: {}", pair.value));
            }
            Err(ChangeError::Value(pair, why)) if why == NO_NUMBER => {
                let mut names = NUMBERS.split_whitespace();
                let name = names.find(|name| pair.is_named(name, 5));
                let name = name.unwrap_or(&pair.key);
                self.error(&format!("Invalid {name} value: {}", pair.value));
            }
            Err(ChangeError::Value(pair, why)) => {
                self.error(&format!("Invalid value in {}: {why}", pair.text))
            }
            Ok(update) if update == JobUpdate::default() => self.complain("No changes specified"),
            Ok(update) => self.send_job_update(&named, &update),
        }
    }

    fn send_job_update(&mut self, named: &[(String, JobTarget)], update: &JobUpdate) {
        for (text, target) in named {
            let command = UserCommand::UpdateJob {
                target: target.clone(),
                update: Box::new(update.clone()),
            };
            let result = self.client().and_then(|c| c.command(command));
            let done = result.is_ok();
            if self.job_done("update", text, result).is_none() && done && changes_nodes(update) {
                self.write_size(target);
            }
        }
    }

    /// Within the job whose size was changed: files that bring its environment up to date. A job that waits has none.
    fn write_size(&mut self, target: &JobTarget) {
        let own = std::env::var("SLURM_JOB_ID").or_else(|_| std::env::var("SLURM_JOBID"));
        if own.as_deref() != Ok(target.job.to_string().as_str()) {
            return;
        }
        let filter = JobFilter {
            ids: vec![target.job],
            ..JobFilter::default()
        };
        let job = match self.client().and_then(|c| c.query_jobs(filter)) {
            Ok(jobs) => jobs.into_iter().next(),
            Err(error) => return self.error(&error.to_string()),
        };
        let Some((job, alloc)) = job.as_ref().and_then(|j| Some((j, j.alloc.as_deref()?))) else {
            return;
        };
        let (bourne, csh) = size_scripts(alloc, job.resizes);
        let name = format!("slurm_job_{}_resize", target.job);
        for (end, text) in [("sh", bourne), ("csh", csh)] {
            let path = format!("{name}.{end}");
            if let Err(error) = write_script(&path, &text) {
                return self.error(&format!("cannot write {path}: {error}"));
            }
        }
        crate::say::stdout(&format!(
            "To reset Slurm environment variables, execute\n\
             \x20 For bash or sh shells:  . ./{name}.sh\n\
             \x20 For csh shells:         source ./{name}.csh\n"
        ));
    }

    /// `JobId=`, or `JobName=` with `UserID=`.
    fn named_jobs(
        &mut self,
        pairs: &[Pair],
    ) -> Result<Vec<(String, JobTarget)>, (String, ConnectError)> {
        let mut named = Vec::new();
        for pair in pairs.iter().filter(|p| p.is("jobid", 4) || p.key == "job") {
            for id in ids(&pair.value) {
                named.extend(self.targets(&id).map_err(|e| (id, e))?);
            }
        }
        if !named.is_empty() {
            return Ok(named);
        }
        let owner = pairs.iter().find(|p| p.is("userid", 3));
        let owner = match owner {
            Some(pair) => Some(uid(&pair.value).ok_or_else(|| {
                let refusal =
                    Refusal::new(RefusalCode::InvalidValue, format!("no user {}", pair.value));
                (pair.value.clone(), ConnectError::Refused(refusal))
            })?),
            None => (!nix::unistd::geteuid().is_root()).then(|| nix::unistd::getuid().as_raw()),
        };
        let name = pairs
            .iter()
            .find(|p| is_name(p))
            .map_or("", |p| p.value.as_str());
        self.named(name, owner).map_err(|e| (name.to_owned(), e))
    }
}

fn changes_nodes(update: &JobUpdate) -> bool {
    update.nodelist.is_some() || update.ask.is_some()
}

/// Variables for a shell, and a C shell, after the job became smaller.
fn size_scripts(alloc: &Allocation, resizes: u32) -> (String, String) {
    let (mut bourne, mut csh) = (String::new(), String::new());
    let resizes = resizes.to_string();
    let count = alloc.nodes.len().to_string();
    let cpus = job_env::per_node_text(alloc.nodes.iter().map(|share| share.cpus.len()));
    for (name, value, quoted) in [
        ("SLURM_NODELIST", &alloc.hostlist, true),
        ("SLURM_JOB_NODELIST", &alloc.hostlist, true),
        ("SLURM_NNODES", &count, false),
        ("SLURM_JOB_NUM_NODES", &count, false),
        ("SLURM_JOB_CPUS_PER_NODE", &cpus, true),
        // srun may learn of it before the nodes do.
        (job_env::RESIZES, &resizes, false),
    ] {
        let quote = if quoted { "\"" } else { "" };
        bourne += &format!("export {name}={quote}{value}{quote}\n");
        csh += &format!("setenv {name} {quote}{value}{quote}\n");
    }
    for name in ["SLURM_NPROCS", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE"] {
        bourne += &format!("unset {name}\n");
        csh += &format!("unsetenv {name}\n");
    }
    (bourne, csh)
}

fn write_script(path: &str, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o700)
        .open(path)?;
    file.write_all(text.as_bytes())
}

fn is_name(pair: &Pair) -> bool {
    pair.is("jobname", 4) || pair.key == "name"
}

/// Whether a pair says which jobs are meant.
fn is_selector(pair: &Pair) -> bool {
    pair.is("jobid", 4) || pair.key == "job" || is_name(pair) || pair.is("userid", 3)
}

#[cfg(test)]
mod tests;
