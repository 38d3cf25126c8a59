//! Submission of jobs and allocations: the options of sbatch for the members of a description, and the answers.

#![allow(unsafe_code)]

use crate::abi::members::{Foreign, OwnedBlock, OwnedText, OwnedTexts};
use crate::abi::release_placed;
use crate::abi::requests::{SlurmAllocation, SlurmJobDesc, SlurmSubmitResponse, SlurmWillRun};
use crate::connection::{connect, job, job_number};
use crate::error::{CallError, INVALID_JOB_ID, NO_SCRIPT};
use crate::jobs::mail_names;
use crate::memory;
use crate::names::{INFINITE, NO_VALUE, NO_VALUE_16, NO_VALUE_64, lasting};
use crate::numbers::{NICE_OFFSET, PER_CPU, short};
use libc::{c_char, c_void, time_t};
use muster_cli::library::{self, GivenOption, JobRequest, JobRequestError};
use muster_model::command::{Reply, UserCommand};
use muster_model::ids::JobId;
use muster_model::job::NodeShare;
use muster_model::spec::JobSpec;
use muster_model::time::Timestamp;
use muster_proto::client::{AllocationInfo, Response};
use std::ptr::null_mut;

impl From<JobRequestError> for CallError {
    fn from(error: JobRequestError) -> CallError {
        match error {
            JobRequestError::Refused(refusal) => refusal.into(),
            JobRequestError::Option(text) => CallError::argument(text),
        }
    }
}

/// Options of sbatch that a description gives.
#[derive(Debug, Default)]
struct OptionList(Vec<GivenOption>);

impl OptionList {
    fn flag(&mut self, name: &'static str, on: bool) {
        if on {
            self.0.push(GivenOption {
                long: name,
                value: None,
            });
        }
    }

    fn put(&mut self, name: &'static str, value: impl Into<Option<String>>) {
        if let Some(value) = value.into() {
            self.0.push(GivenOption {
                long: name,
                value: Some(value),
            });
        }
    }

    fn number(&mut self, name: &'static str, number: u32) {
        if number != NO_VALUE && number != INFINITE {
            self.put(name, number.to_string());
        }
    }

    /// As above; 0 is not given either.
    fn count(&mut self, name: &'static str, number: u32) {
        if number != 0 {
            self.number(name, number);
        }
    }

    fn short(&mut self, name: &'static str, number: u16) {
        if number < NO_VALUE_16 {
            self.put(name, number.to_string());
        }
    }

    fn short_count(&mut self, name: &'static str, number: u16) {
        if number != 0 {
            self.short(name, number);
        }
    }
}

/// The options of a description.
///
/// # Safety
/// Its pointers are null or lead to what slurm.h says.
unsafe fn options(own: &SlurmJobDesc) -> Result<OptionList, CallError> {
    let mut all = OptionList::default();
    // SAFETY: as the caller promises.
    let text = |at: OwnedText| unsafe { memory::text(at.0) }.filter(|text| !text.is_empty());
    for (name, member) in [
        ("account", own.account),
        ("acctg-freq", own.acctg_freq),
        ("array", own.array_inx),
        ("batch", own.batch_features),
        ("bb", own.burst_buffer),
        ("comment", own.comment),
        ("container", own.container),
        ("dependency", own.dependency),
        ("exclude", own.exc_nodes),
        ("extra", own.extra),
        ("constraint", own.features),
        ("licenses", own.licenses),
        ("mcs-label", own.mcs_label),
        ("job-name", own.name),
        ("network", own.network),
        ("partition", own.partition),
        ("prefer", own.prefer),
        ("qos", own.qos),
        ("nodelist", own.req_nodes),
        ("reservation", own.reservation),
        ("error", own.std_err),
        ("input", own.std_in),
        ("output", own.std_out),
        ("tres-bind", own.tres_bind),
        ("tres-per-task", own.tres_per_task),
        ("wckey", own.wckey),
    ] {
        all.put(name, text(member));
    }
    devices(&mut all, own, &text)?;
    sizes(&mut all, own);
    times(&mut all, own);
    if own.mail_type != NO_VALUE_16 && own.mail_type != 0 {
        all.put("mail-type", mail_names(own.mail_type));
    }
    all.put("mail-user", text(own.mail_user));
    if own.nice != NO_VALUE {
        all.put(
            "nice",
            i64::from(own.nice)
                .wrapping_sub(NICE_OFFSET.into())
                .to_string(),
        );
    }
    match own.priority {
        0 => all.flag("hold", true),
        priority => all.number("priority", priority),
    }
    match own.requeue {
        0 => all.flag("no-requeue", true),
        1 => all.flag("requeue", true),
        _ => {}
    }
    all.flag("no-kill", own.kill_on_node_fail == 0);
    all.flag("contiguous", own.contiguous == 1);
    all.flag("overcommit", own.overcommit == 1);
    all.flag("reboot", own.reboot == 1);
    match own.shared {
        0 => all.flag("exclusive", true),
        1 => all.flag("oversubscribe", true),
        2 => all.put("exclusive", "user".to_owned()),
        3 => all.put("exclusive", "mcs".to_owned()),
        _ => {}
    }
    all.put(
        "open-mode",
        match own.open_mode {
            1 => Some("append".to_owned()),
            2 => Some("truncate".to_owned()),
            _ => None,
        },
    );
    all.put(
        "kill-on-invalid-dep",
        match own.bitflags & 3 {
            1 => Some("yes".to_owned()),
            2 => Some("no".to_owned()),
            _ => None,
        },
    );
    all.flag("spread-job", own.bitflags & 1 << 8 != 0);
    all.flag("use-min-nodes", own.bitflags & 1 << 9 != 0);
    if own.immediate == 1 {
        all.put("immediate", "1".to_owned());
    }
    if own.wait_all_nodes == 1 {
        all.put("wait-all-nodes", "1".to_owned());
    }
    Ok(all)
}

/// Devices as options have them: `gpu:2` for `gres/gpu:2` or `gres:gpu:2`.
fn plain(devices: &str) -> String {
    let each = devices.split(',').map(|own| {
        let own = own
            .strip_prefix("gres/")
            .or_else(|| own.strip_prefix("gres:"));
        own.unwrap_or_default()
    });
    let named: Vec<&str> = each.filter(|own| !own.is_empty()).collect();
    match named.is_empty() {
        true => devices.to_owned(),
        false => named.join(","),
    }
}

/// As above, of GPUs alone, as `--gpus` has them: `2`, `a100:2`.
fn gpus(name: &str, devices: &str) -> Result<String, CallError> {
    let own = plain(devices);
    let count = own.strip_prefix("gpu:").map(str::to_owned);
    let one = || (own == "gpu").then(|| "1".to_owned());
    count.or_else(one).ok_or_else(|| {
        CallError::argument(format!(
            "{name} is \"{devices}\": GPUs are supported there, as gres/gpu:2"
        ))
    })
}

fn devices(
    all: &mut OptionList,
    own: &SlurmJobDesc,
    text: &dyn Fn(OwnedText) -> Option<String>,
) -> Result<(), CallError> {
    all.put("gres", text(own.tres_per_node).map(|text| plain(&text)));
    for (option, name, member) in [
        ("gpus", "tres_per_job", own.tres_per_job),
        ("gpus-per-socket", "tres_per_socket", own.tres_per_socket),
        ("cpus-per-gpu", "cpus_per_tres", own.cpus_per_tres),
        ("mem-per-gpu", "mem_per_tres", own.mem_per_tres),
    ] {
        if let Some(text) = text(member) {
            all.put(option, gpus(name, &text)?);
        }
    }
    all.put(
        "gpu-freq",
        text(own.tres_freq).map(|text| text.trim_start_matches("gpu:").to_owned()),
    );
    Ok(())
}

fn sizes(all: &mut OptionList, own: &SlurmJobDesc) {
    let given = |number: u32| number != NO_VALUE && number != 0;
    if given(own.min_nodes) {
        let most = given(own.max_nodes) && own.max_nodes != INFINITE;
        all.put(
            "nodes",
            match most {
                true => format!("{}-{}", own.min_nodes, own.max_nodes),
                false => own.min_nodes.to_string(),
            },
        );
    }
    // CPUs are asked for by tasks; a job that says CPUs alone has a task for each.
    let tasks = match (given(own.num_tasks), given(own.min_cpus)) {
        (true, _) => own.num_tasks,
        (false, true) if own.cpus_per_task == NO_VALUE_16 => own.min_cpus,
        (false, true) => own.min_cpus / u32::from(own.cpus_per_task.max(1)),
        (false, false) => NO_VALUE,
    };
    all.count("ntasks", tasks);
    for (name, number) in [
        ("cpus-per-task", own.cpus_per_task),
        ("mincpus", own.pn_min_cpus),
        ("ntasks-per-node", own.ntasks_per_node),
        ("ntasks-per-socket", own.ntasks_per_socket),
        ("ntasks-per-core", own.ntasks_per_core),
        ("ntasks-per-gpu", own.ntasks_per_tres),
        ("sockets-per-node", own.sockets_per_node),
        ("cores-per-socket", own.cores_per_socket),
        ("threads-per-core", own.threads_per_core),
    ] {
        all.short_count(name, number);
    }
    all.short("core-spec", own.core_spec);
    if own.pn_min_memory != NO_VALUE_64 {
        let (name, mib) = match own.pn_min_memory & PER_CPU {
            0 => ("mem", own.pn_min_memory),
            _ => ("mem-per-cpu", own.pn_min_memory & !PER_CPU),
        };
        all.put(name, format!("{mib}M"));
    }
    all.count("tmp", own.pn_min_tmp_disk);
    if given(own.req_switch) {
        let wait = match own.wait4switch {
            0 | NO_VALUE => String::new(),
            seconds => format!("@0:{seconds}"),
        };
        all.put("switches", format!("{}{wait}", own.req_switch));
    }
    if let Some(text) = distribution(own.task_dist, own.plane_size) {
        all.put("distribution", text);
    }
}

/// `block:cyclic` of the numbers of slurm.h.
fn distribution(number: u32, plane: u16) -> Option<String> {
    if number == NO_VALUE || number & 0xffff == 0x2000 || number & 0xf == 0 {
        return None;
    }
    let level = |shift: u32, names: [&'static str; 3]| {
        let at = (number >> shift & 0xf) as usize;
        at.checked_sub(1).and_then(|at| names.get(at).copied())
    };
    match number & 0xf {
        3 => return Some("arbitrary".to_owned()),
        4 => return Some(format!("plane={plane}")),
        _ => {}
    }
    let nodes = level(0, ["cyclic", "block", ""])?;
    let others = [
        level(4, ["cyclic", "block", "fcyclic"]),
        level(8, ["cyclic", "block", "fcyclic"]),
    ];
    let words: Vec<&str> = std::iter::once(nodes)
        .chain(others.into_iter().map_while(|own| own))
        .collect();
    Some(words.join(":"))
}

fn times(all: &mut OptionList, own: &SlurmJobDesc) {
    for (name, number) in [("time", own.time_limit), ("time-min", own.time_min)] {
        match number {
            INFINITE => all.put(name, "UNLIMITED".to_owned()),
            number => all.count(name, number),
        }
    }
    if own.warn_signal != 0 {
        let batch = if own.warn_flags & 1 != 0 { "B:" } else { "" };
        all.put(
            "signal",
            format!("{batch}{}@{}", own.warn_signal, own.warn_time),
        );
    }
}

/// Strings of which there are that many.
///
/// # Safety
/// `at` is null or leads to as many strings.
unsafe fn strings(at: Foreign, count: u32) -> Vec<Vec<u8>> {
    let at: *mut *mut c_char = at.0.cast();
    if at.is_null() {
        return Vec::new();
    }
    // SAFETY: as the caller promises.
    let one = |place: usize| unsafe { memory::raw(*at.add(place)) }.map(<[u8]>::to_vec);
    (0..count as usize).filter_map(one).collect()
}

/// The file mode mask of a job: `SLURM_UMASK` of its variables in octal, else this process's.
fn umask(environment: &[Vec<u8>]) -> u32 {
    let given = environment
        .iter()
        .find_map(|variable| variable.strip_prefix(b"SLURM_UMASK="));
    let given = given.and_then(|text| std::str::from_utf8(text).ok());
    let given = given.and_then(|text| u32::from_str_radix(text, 8).ok());
    given.unwrap_or_else(own_umask) & 0o777
}

/// The mask of this process. umask(2) would change it for a moment, in which other threads of the program may make files.
fn own_umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = mask.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    mask.unwrap_or_else(|| {
        let mask = nix::sys::stat::umask(nix::sys::stat::Mode::empty());
        nix::sys::stat::umask(mask);
        mask.bits()
    })
}

/// The request for a job; for an allocation where it has no script.
///
/// # Safety
/// `at` is null or a description whose pointers are null or lead to what slurm.h says.
pub unsafe fn request(at: *const SlurmJobDesc, is_batch: bool) -> Result<UserCommand, CallError> {
    // SAFETY: as the caller promises.
    unsafe {
        let own = at
            .as_ref()
            .ok_or_else(|| CallError::argument("the description is null"))?;
        let uid = nix::unistd::geteuid().as_raw();
        if ![NO_VALUE, uid].contains(&own.user_id) && uid != 0 {
            return Err(CallError::new(
                2010,
                "a job belongs to the user who submits it",
            ));
        }
        let script = memory::raw(own.script.0).map(<[u8]>::to_vec);
        if is_batch && script.is_none() {
            return Err(CallError::new(NO_SCRIPT, "the description has no script"));
        }
        let argv = strings(own.argv, own.argc);
        let argv = argv
            .iter()
            .map(|word| String::from_utf8_lossy(word).into_owned());
        let here = std::env::current_dir().unwrap_or_default();
        let environment = strings(own.environment, own.env_size);
        let asked = JobRequest {
            options: options(own)?.0,
            script: script.filter(|_| is_batch),
            argv: argv.collect(),
            umask: umask(&environment),
            environment,
            work_dir: memory::text(own.work_dir.0)
                .unwrap_or_else(|| here.to_string_lossy().into_owned()),
            submit_line: memory::text(own.submit_line.0).unwrap_or_default(),
            submit_host: memory::text(own.alloc_node.0).unwrap_or_default(),
            test_only: false,
        };
        let mut made = library::job_request(asked)?;
        if let UserCommand::Submit { spec, .. } = &mut made {
            complete(spec, own, uid);
        }
        Ok(made)
    }
}

/// Fields that no option sets, or that options have as texts.
fn complete(spec: &mut JobSpec, own: &SlurmJobDesc, uid: u32) {
    let point = |at: time_t| (at > 0).then(|| Timestamp::from_unix_s(at));
    spec.begin = point(own.begin_time).or(spec.begin);
    spec.deadline = point(own.deadline).or(spec.deadline);
    spec.owner.uid = match own.user_id {
        NO_VALUE => uid,
        other => other,
    };
    if own.alloc_sid != NO_VALUE {
        spec.submit_sid = own.alloc_sid;
    }
    if spec.name.is_empty() {
        "libslurm".clone_into(&mut spec.name);
    }
}

/// A job that was submitted, with lines for its user.
struct SubmittedJob {
    job: JobId,
    message: OwnedText,
}

fn submit(made: UserCommand) -> Result<SubmittedJob, CallError> {
    match connect()?.command(made)? {
        Reply::Submitted { id, lines, .. } => Ok(SubmittedJob {
            job: id,
            message: OwnedText::or_null(&lines.join("\n")),
        }),
        other => Err(CallError::unexpected(&other)),
    }
}

/// An allocation as programs get it, once there is one.
fn allocation(info: &AllocationInfo) -> SlurmAllocation {
    let (job, spec) = (&info.job, &info.job.spec);
    let nodes: &[NodeShare] = job.alloc.as_ref().map_or(&[], |alloc| &alloc.nodes);
    let mut groups: Vec<(u16, u32)> = Vec::new();
    for share in nodes {
        let cpus = short(share.cpus.len());
        match groups.last_mut().filter(|(own, _)| *own == cpus) {
            Some((_, count)) => *count += 1,
            None => groups.push((cpus, 1)),
        }
    }
    let mut own = SlurmAllocation::empty();
    own.account = OwnedText::of(spec.account_name());
    own.job_id = job_number(job.id);
    own.batch_host = OwnedText::some(nodes.first().map(|share| share.name.as_str()));
    (own.cpu_freq_min, own.cpu_freq_max, own.cpu_freq_gov) = (NO_VALUE, NO_VALUE, NO_VALUE);
    let cpus: Vec<u16> = groups.iter().map(|(cpus, _)| *cpus).collect();
    let counts: Vec<u32> = groups.iter().map(|(_, count)| *count).collect();
    own.cpus_per_node = OwnedBlock::of(&cpus);
    own.cpu_count_reps = OwnedBlock::of(&counts);
    own.num_cpu_groups = u32::try_from(groups.len()).unwrap_or(0);
    let variables: Vec<String> = Vec::new();
    own.environment = OwnedTexts::of(&variables);
    own.node_cnt = u32::try_from(nodes.len()).unwrap_or(0);
    own.node_list = OwnedText::some(job.alloc.as_ref().map(|alloc| alloc.hostlist.as_str()));
    (own.ntasks_per_board, own.ntasks_per_core) = (NO_VALUE_16, NO_VALUE_16);
    (own.ntasks_per_tres, own.ntasks_per_socket) = (NO_VALUE_16, NO_VALUE_16);
    own.partition = OwnedText::of(&job.partition);
    own.pn_min_memory = nodes.first().map_or(0, |share| share.memory_mib);
    own.qos = OwnedText::of(spec.qos_name());
    own.resv_name = OwnedText::some(spec.reservation.as_deref());
    own
}

/// Asks for an allocation, and waits until it is granted or the time is over: then it is a job that waits.
///
/// # Safety
/// As of [`request`].
unsafe fn allocate(
    at: *const SlurmJobDesc,
    patience: Option<time_t>,
    pending: Option<unsafe extern "C" fn(u32)>,
) -> Result<SlurmAllocation, CallError> {
    // SAFETY: as the caller promises.
    let submitted = submit(unsafe { request(at, false) }?)?;
    let id = job_number(submitted.job);
    let deadline = patience.filter(|seconds| *seconds > 0);
    let mut polls = library::JobPoller::until(deadline.and_then(|seconds| {
        let seconds = std::time::Duration::from_secs(u64::try_from(seconds).ok()?);
        std::time::Instant::now().checked_add(seconds)
    }));
    let mut is_announced = false;
    loop {
        match library::allocation_info(&mut connect()?, submitted.job) {
            Ok(info) => {
                return Ok(SlurmAllocation {
                    job_submit_user_msg: submitted.message,
                    ..allocation(&info)
                });
            }
            Err(error) => {
                let error = CallError::from(error);
                if !is_pending(submitted.job)? {
                    return Err(error);
                }
            }
        }
        if patience.is_none() {
            let mut own = SlurmAllocation::empty();
            (own.job_id, own.job_submit_user_msg) = (id, submitted.message);
            return Ok(own);
        }
        if let Some(pending) = pending.filter(|_| !std::mem::replace(&mut is_announced, true)) {
            // SAFETY: the program gave the function for this.
            unsafe { pending(id) };
        }
        if !polls.wait() {
            crate::control::cancel(id)?;
            return Err(CallError::new(
                libc::ETIMEDOUT,
                "the allocation was not granted in time",
            ));
        }
    }
}

fn is_pending(id: JobId) -> Result<bool, CallError> {
    let found = library::jobs(&mut connect()?, vec![id])?;
    let state = found.first().map(|job| job.state);
    Ok(state == Some(muster_model::job::JobState::Pending))
}

fn lookup(id: u32) -> Result<SlurmAllocation, CallError> {
    match library::allocation_info(&mut connect()?, job(id)) {
        Ok(info) => Ok(allocation(&info)),
        Err(error) => Err(match is_pending(job(id)) {
            Ok(true) => CallError::new(2024, "the job waits"),
            _ => error.into(),
        }),
    }
}

/// When and where a job would start.
///
/// # Safety
/// As of [`request`].
unsafe fn forecast(at: *const SlurmJobDesc) -> Result<SlurmWillRun, CallError> {
    // SAFETY: as the caller promises.
    let is_batch = unsafe { at.as_ref() }.is_some_and(|own| !own.script.0.is_null());
    // SAFETY: as the caller promises.
    let mut made = unsafe { request(at, is_batch) }?;
    if let UserCommand::Submit { test_only, .. } = &mut made {
        *test_only = true;
    }
    match connect()?.command(made)? {
        Reply::WouldStart {
            at,
            cpus,
            nodes,
            partition,
            id,
        } => {
            let mut own = SlurmWillRun::empty();
            own.job_id = job_number(id);
            own.node_list = OwnedText::of(&nodes);
            own.part_name = OwnedText::of(&partition);
            own.proc_cnt = u32::try_from(cpus).unwrap_or(u32::MAX);
            own.start_time = at.unix_s();
            Ok(own)
        }
        other => Err(CallError::unexpected(&other)),
    }
}

status_functions! {
    /// Submits a batch job.
    fn slurm_submit_batch_job(description: *mut SlurmJobDesc, at: *mut *mut SlurmSubmitResponse) {
        let submitted = submit(request(description, true)?)?;
        memory::give(at, memory::placed(SlurmSubmitResponse {
            job_id: job_number(submitted.job),
            step_id: 0xffff_fffb,
            error_code: 0,
            job_submit_user_msg: submitted.message,
        }));
        Ok(())
    }
    /// Asks for an allocation. If it is not granted at once, the answer has the job's number and no nodes.
    fn slurm_allocate_resources(description: *mut SlurmJobDesc, at: *mut *mut SlurmAllocation) {
        memory::give(at, memory::placed(allocate(description, None, None)?));
        Ok(())
    }
    /// The allocation of a job.
    fn slurm_allocation_lookup(id: u32, at: *mut *mut SlurmAllocation) {
        memory::give(at, memory::placed(lookup(id)?));
        Ok(())
    }
    /// When and where a job would start.
    fn slurm_job_will_run2(description: *mut SlurmJobDesc, at: *mut *mut SlurmWillRun) {
        memory::give(at, memory::placed(forecast(description)?));
        Ok(())
    }
    /// Whether a job could run; a line on standard error says when and where.
    fn slurm_job_will_run(description: *mut SlurmJobDesc) {
        let found = forecast(description)?;
        let nodes = memory::text(found.node_list.0).unwrap_or_default();
        crate::error::complain(&format!(
            "Job {} to start at {} using {} processors on nodes {nodes}",
            found.job_id,
            crate::times::text_of(found.start_time),
            found.proc_cnt
        ));
        use crate::abi::members::CMember as _;
        found.release();
        Ok(())
    }
    /// Writes a job's batch script.
    fn slurm_job_batch_script(out: *mut libc::FILE, id: *const c_char) {
        let id = memory::text(id).and_then(|text| text.parse().ok());
        let id = id.ok_or_else(|| CallError::new(INVALID_JOB_ID, "no number of a job"))?;
        match connect()?.query(muster_proto::client::Query::Script(job(id)))? {
            Response::Script(script) => {
                libc::fwrite(script.as_ptr().cast(), 1, script.len(), out);
                Ok(())
            }
            other => Err(CallError::unexpected(&other)),
        }
    }
    /// Ends an allocation, with an exit status as wait(2) has it.
    fn slurm_complete_job(id: u32, status: u32) {
        crate::connection::change(UserCommand::EndAllocation {
            job: job(id),
            exit: muster_model::job::ExitStatus { code: status >> 8 & 0xff, signal: status & 0x7f },
        })
    }
}

value_functions! {
    /// Asks for an allocation, and waits for it: for ever where the time is 0. `pending` is called once if it waits.
    fn slurm_allocate_resources_blocking(
        description: *const SlurmJobDesc,
        patience: time_t,
        pending: Option<unsafe extern "C" fn(u32)>,
    ) -> *mut SlurmAllocation, else null_mut(), {
        Ok(memory::placed(allocate(description, Some(patience), pending)?))
    }
    /// A thread for messages of the controller to the holder of an allocation: there are none, and nothing has to be listened for.
    fn slurm_allocation_msg_thr_create(port: *mut u16, _callbacks: *const c_void) -> *mut c_void, else null_mut(), {
        memory::give(port, 0);
        Ok(lasting("no thread").cast())
    }
}

quiet_functions! {
    /// Ends such a thread.
    fn slurm_allocation_msg_thr_destroy(_thread: *mut c_void) {}
    /// Frees an allocation.
    fn slurm_free_resource_allocation_response_msg(at: *mut SlurmAllocation) {
        release_placed(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_become_options() {
        let mut own = crate::descriptions::job();
        (own.min_nodes, own.max_nodes, own.num_tasks) = (2, 4, 8);
        (own.time_limit, own.priority, own.shared) = (INFINITE, 0, 0);
        own.pn_min_memory = 100 | PER_CPU;
        own.nice = NICE_OFFSET - 5;
        // SAFETY: all pointers are null.
        let made = unsafe { options(&own) }.unwrap().0;
        let has = |name: &str| {
            let found = made.iter().find(|own| own.long == name);
            found.map(|own| own.value.clone().unwrap_or_default())
        };
        assert_eq!(has("nodes").as_deref(), Some("2-4"));
        assert_eq!(has("ntasks").as_deref(), Some("8"));
        assert_eq!(has("time").as_deref(), Some("UNLIMITED"));
        assert_eq!(has("mem-per-cpu").as_deref(), Some("100M"));
        assert_eq!(has("nice").as_deref(), Some("-5"));
        assert!(has("hold").is_some() && has("exclusive").is_some());
        assert!(has("requeue").is_none() && has("mem").is_none());
    }

    #[test]
    fn the_mask_is_of_the_variables_or_of_the_process() {
        let of = |variables: &[&str]| {
            let all: Vec<Vec<u8>> = variables.iter().map(|own| (*own).into()).collect();
            umask(&all)
        };
        assert_eq!(of(&["A=1", "SLURM_UMASK=0077"]), 0o077);
        assert_eq!(of(&["SLURM_UMASK=10027"]), 0o027);
        let before = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o137));
        let own = [of(&["A=1"]), of(&["SLURM_UMASK=no"])];
        nix::sys::stat::umask(before);
        assert_eq!(own, [0o137, 0o137]);
    }

    #[test]
    fn devices_and_distributions_are_written_as_options_have_them() {
        assert_eq!(plain("gres/gpu:2,gres:fpga:1"), "gpu:2,fpga:1");
        assert_eq!(gpus("tres_per_job", "gres:gpu:a100:2").unwrap(), "a100:2");
        assert!(gpus("tres_per_job", "license/x:1").is_err());
        assert_eq!(distribution(0x21, 0).as_deref(), Some("cyclic:block"));
        assert_eq!(distribution(4, 3).as_deref(), Some("plane=3"));
        assert_eq!(distribution(NO_VALUE, 0), None);
    }
}
