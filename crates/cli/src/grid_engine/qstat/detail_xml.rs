//! `qstat -j -xml`: all of a job, in the elements of Grid Engine 8.1.9's detailed_job_info.xsd and in their order. Variables that were
//! given to a job by `-v` or `-V` are not among them: the controller keeps them to the owner.

use super::detail::{given_path, has_own_directory, resource_map};
use super::lines::{self, is_pending};
use super::messages::{self, Waits};
use super::queues::Instance;
use super::xml::escaped;
use crate::grid_engine::selection;
use crate::listing::job::Stdio;
use crate::people;
use muster_conf::grid_engine::resources;
use muster_model::grid_engine as marks;
use muster_model::job::{ArrayRole, Job};
use muster_model::spec::JobSpec;
use std::fmt::{Display, Write as _};

const SCHEMAS: &str =
    "http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat";

/// Elements, each on a line and two blanks deeper than its parent.
#[derive(Debug, Default)]
struct Xml {
    text: String,
    depth: usize,
}

impl Xml {
    fn new() -> Xml {
        Xml {
            text: "<?xml version='1.0'?>\n".to_owned(),
            depth: 0,
        }
    }

    /// A root element with its schema.
    fn root(&mut self, name: &str, schema: &str, fill: impl FnOnce(&mut Xml)) {
        let _ = writeln!(self.text, "<{name}  xmlns:xsd=\"{SCHEMAS}/{schema}.xsd\">");
        self.inside(fill);
        let _ = writeln!(self.text, "</{name}>");
    }

    fn element(&mut self, name: &str, fill: impl FnOnce(&mut Xml)) {
        let indent = 2 * self.depth;
        let _ = writeln!(self.text, "{:indent$}<{name}>", "");
        self.inside(fill);
        let _ = writeln!(self.text, "{:indent$}</{name}>", "");
    }

    fn inside(&mut self, fill: impl FnOnce(&mut Xml)) {
        self.depth += 1;
        fill(self);
        self.depth -= 1;
    }

    fn leaf(&mut self, name: &str, value: impl Display) {
        let indent = 2 * self.depth;
        let value = escaped(&value.to_string());
        let _ = writeln!(self.text, "{:indent$}<{name}>{value}</{name}>", "");
    }

    fn leaves(&mut self, all: &[(&str, &str)]) {
        for (name, value) in all {
            self.leaf(name, value);
        }
    }
}

/// Jobs, each with all of its records, and why those wait that do.
pub(super) fn jobs(all: &[Vec<&Job>], queues: &[Instance]) -> String {
    let mut xml = Xml::new();
    xml.root("detailed_job_info", "detailed_job_info", |xml| {
        xml.element("djob_info", |xml| {
            for records in all {
                if let Some(first) = records.first() {
                    xml.element("element", |xml| job(xml, first, records));
                }
            }
        });
        xml.element("messages", |xml| {
            xml.element("element", |xml| {
                let waiting = all.iter().flatten().filter(|job| is_pending(job));
                let own: Vec<WaitMessage> = waiting.map(|job| WaitMessage::of(job)).collect();
                of_jobs(xml, &own);
                of_queues(xml, queues);
            });
        });
    });
    xml.text
}

/// Words that name no job.
pub(super) fn unknown(missing: &[&str]) -> String {
    let mut text = String::from("<?xml version='1.0'?>\n<unknown_jobs >\n");
    for name in missing {
        let _ = writeln!(text, "    <ST_name>{}</ST_name>", escaped(name));
    }
    text + "</unknown_jobs>\n"
}

/// The reasons of all waiting jobs: `-j` without a job.
pub(super) fn waiting(jobs: &[Job], queues: &[Instance]) -> String {
    let mut xml = Xml::new();
    xml.root("message", "message", |xml| {
        xml.element("element", |xml| {
            let groups = messages::groups(jobs);
            let groups: Vec<WaitMessage> = groups
                .into_iter()
                .map(|own| WaitMessage {
                    number: number_of(own.waits),
                    jobs: own.numbers,
                    text: own.text,
                })
                .collect();
            of_jobs(xml, &groups);
            of_queues(xml, queues);
        });
    });
    xml.text
}

/// The number of a reason in Grid Engine's list; reasons that it does not have are the last, in Muster's words.
fn number_of(waits: Waits) -> u32 {
    match waits {
        Waits::Time => 31,
        Waits::Error => 32,
        Waits::Hold => 33,
        Waits::Predecessors => 35,
        Waits::ArrayLimit => 45,
        Waits::Other => 28,
    }
}

/// Why jobs wait.
struct WaitMessage {
    number: u32,
    jobs: Vec<String>,
    text: String,
}

impl WaitMessage {
    fn of(job: &Job) -> WaitMessage {
        let waits = Waits::of(job);
        WaitMessage {
            number: number_of(waits),
            jobs: vec![selection::number(job).to_string()],
            text: waits.text(job),
        }
    }
}

fn of_jobs(xml: &mut Xml, all: &[WaitMessage]) {
    if all.is_empty() {
        return;
    }
    xml.element("SME_message_list", |xml| {
        for own in all {
            xml.element("element", |xml| {
                xml.element("MES_job_number_list", |xml| {
                    for job in &own.jobs {
                        xml.element("ulong_sublist", |xml| xml.leaf("ULNG_value", job));
                    }
                });
                xml.leaf("MES_message_number", own.number);
                xml.leaf("MES_message", &own.text);
            });
        }
    });
}

/// Why queues take no jobs.
fn of_queues(xml: &mut Xml, queues: &[Instance]) {
    let mut all: Vec<(u32, String)> = Vec::new();
    for queue in queues {
        if let Some(text) = messages::of_queue(queue) {
            let is_full = queue.states.is_empty();
            all.push((if is_full { 37 } else { 39 }, text));
        }
    }
    if messages::all_dropped(queues) {
        all.push((28, messages::ALL_DROPPED.to_owned()));
    }
    if all.is_empty() {
        return;
    }
    xml.element("SME_global_message_list", |xml| {
        for (number, text) in all {
            xml.element("element", |xml| {
                xml.leaf("MES_message_number", number);
                xml.leaf("MES_message", text);
            });
        }
    });
}

/// All of a job but its messages.
fn job(xml: &mut Xml, first: &Job, records: &[&Job]) {
    let spec = &*first.spec;
    let number = selection::number(first);
    let mark = |key| marks::value(spec, key);
    xml.leaf("JB_job_number", number);
    xml.leaf(
        "JB_ar",
        spec.reservation
            .as_deref()
            .and_then(|own| own.parse().ok())
            .unwrap_or(0_u32),
    );
    xml.leaf("JB_exec_file", format!("job_scripts/{number}"));
    xml.leaf("JB_submission_time", first.submit_time.unix_s());
    xml.leaf("JB_owner", &spec.owner.user);
    xml.leaf("JB_uid", spec.owner.uid);
    xml.leaf("JB_group", &spec.owner.group);
    xml.leaf("JB_gid", spec.owner.gid);
    xml.leaf("JB_account", spec.comment.as_deref().unwrap_or("sge"));
    xml.leaf("JB_merge_stderr", mark(marks::MERGE) == Some("y"));
    addressees(xml, spec);
    if let Some(project) = &spec.account {
        xml.leaf("JB_project", project);
    }
    xml.leaf("JB_notify", spec.warn_signal.is_some());
    xml.leaf("JB_job_name", &spec.name);
    path(xml, "JB_stdout_path_list", first, Stdio::Out);
    xml.leaf("JB_jobshare", 0);
    for (name, key) in [
        ("JB_hard_resource_list", marks::HARD),
        ("JB_soft_resource_list", marks::SOFT),
    ] {
        if let Some(list) = mark(key) {
            xml.element(name, |xml| requests(xml, list));
        }
    }
    for (name, key) in [
        ("JB_hard_queue_list", marks::HARD_QUEUES),
        ("JB_soft_queue_list", marks::SOFT_QUEUES),
        ("JB_master_hard_queue_list", marks::MASTER_QUEUES),
    ] {
        if let Some(queues) = mark(key) {
            xml.element(name, |xml| {
                for queue in queues.split(',') {
                    xml.element("destin_ident_list", |xml| xml.leaf("QR_name", queue));
                }
            });
        }
    }
    if let Some(shell) = mark(marks::SHELL) {
        path_list(xml, "JB_shell_list", shell);
    }
    variables(xml, spec);
    if !spec.argv.is_empty() {
        xml.element("JB_job_args", |xml| {
            for word in &spec.argv {
                xml.element("element", |xml| xml.leaf("ST_name", word));
            }
        });
    }
    let script = if spec.command.is_empty() {
        "STDIN"
    } else {
        &spec.command
    };
    xml.leaf("JB_script_file", script);
    if mark(marks::MERGE) != Some("y") {
        path(xml, "JB_stderr_path_list", first, Stdio::Err);
    }
    tasks(xml, records);
    if has_own_directory(spec) {
        xml.leaf("JB_cwd", &spec.work_dir);
    }
    predecessors(xml, records, spec);
    settings(xml, spec, records);
}

/// The recipients of mails: the owner where nobody is named.
fn addressees(xml: &mut Xml, spec: &JobSpec) {
    let named = spec.mail.as_ref().map(|mail| mail.user.as_str());
    let named = named.filter(|to| !to.is_empty());
    let own = format!("{}@{}", spec.owner.user, spec.submit_host);
    let item = if named.is_some() {
        "mail_list"
    } else {
        "element"
    };
    xml.element("JB_mail_list", |xml| {
        for address in named.unwrap_or(&own).split(',') {
            let (user, host) = address.split_once('@').unwrap_or((address, ""));
            xml.element(item, |xml| {
                xml.leaf("MR_user", user);
                if !host.is_empty() {
                    xml.leaf("MR_host", host);
                }
            });
        }
    });
}

/// Where a stream goes, if it was said.
fn path(xml: &mut Xml, name: &str, job: &Job, which: Stdio) {
    if let Some(path) = given_path(job, which) {
        path_list(xml, name, &path);
    }
}

fn path_list(xml: &mut Xml, name: &str, path: &str) {
    xml.element(name, |xml| {
        xml.element("path_list", |xml| {
            xml.leaves(&[
                ("PN_path", path),
                ("PN_host", ""),
                ("PN_file_host", ""),
                ("PN_file_staging", "false"),
            ]);
        });
    });
}

/// A complex's type by its number in Grid Engine, and its value as a number.
fn typed(name: &str, value: Option<&str>) -> (u32, f64) {
    const INT: u32 = 1;
    const STRING: u32 = 2;
    const TIME: u32 = 3;
    const MEMORY: u32 = 4;
    const BOOL: u32 = 5;
    const HOST: u32 = 7;
    match name {
        "h_rt" | "s_rt" | "h_cpu" | "s_cpu" | "rt" => {
            let seconds = resources::time(name, value).ok().flatten();
            (TIME, seconds.map_or(f64::MAX, |seconds| seconds as f64))
        }
        "h_vmem" | "s_vmem" | "mem_free" | "virtual_free" | "h_rss" | "mf" | "vf" | "vmem" => {
            let bytes = resources::memory(name, value).unwrap_or(0);
            (MEMORY, bytes as f64)
        }
        "hostname" | "host" | "h" => (HOST, 0.0),
        "arch" | "a" | "qname" | "q" => (STRING, 0.0),
        _ => match value {
            None => (BOOL, 1.0),
            Some(value) if value.eq_ignore_ascii_case("true") => (BOOL, 1.0),
            Some(value) if value.eq_ignore_ascii_case("false") => (BOOL, 0.0),
            Some(value) => value
                .parse::<f64>()
                .map_or((STRING, 0.0), |number| (INT, number)),
        },
    }
}

fn requests(xml: &mut Xml, list: &str) {
    for word in list.split(',').filter(|word| !word.is_empty()) {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let (kind, number) = typed(name, value);
        xml.element("qstat_l_requests", |xml| {
            xml.leaf("CE_name", name);
            xml.leaf("CE_valtype", kind);
            xml.leaf("CE_stringval", value.unwrap_or("TRUE"));
            xml.leaf("CE_doubleval", format!("{number:.6}"));
            xml.leaves(&[
                ("CE_relop", "0"),
                ("CE_consumable", "0"),
                ("CE_dominant", "0"),
                ("CE_pj_doubleval", "0.000000"),
                ("CE_pj_dominant", "0"),
                ("CE_requestable", "0"),
                ("CE_tagged", "0"),
            ]);
        });
    }
}

/// The known variables of the environment in which the job was submitted.
fn variables(xml: &mut Xml, spec: &JobSpec) {
    let user = people::user_of_uid(spec.owner.uid);
    let mut all = Vec::new();
    if let Some(user) = user {
        all.push(("HOME", user.dir.to_string_lossy().into_owned()));
        all.push(("LOGNAME", user.name.clone()));
        all.push(("SHELL", user.shell.to_string_lossy().into_owned()));
    }
    all.push(("HOST", spec.submit_host.clone()));
    if let Some(directory) = marks::value(spec, marks::SUBMIT_DIR) {
        all.push(("WORKDIR", directory.to_owned()));
    }
    xml.element("JB_env_list", |xml| {
        for (name, value) in all {
            xml.element("job_sublist", |xml| {
                xml.leaf("VA_variable", format!("__SGE_PREFIX__O_{name}"));
                xml.leaf("VA_value", value);
            });
        }
    });
}

/// Tasks that run or are in error state.
fn tasks(xml: &mut Xml, records: &[&Job]) {
    let shown: Vec<&&Job> = records
        .iter()
        .filter(|job| !is_pending(job) || lines::is_in_error(job))
        .collect();
    if shown.is_empty() {
        return;
    }
    xml.element("JB_ja_tasks", |xml| {
        for job in shown {
            let indices: Vec<u32> = match &job.array {
                ArrayRole::Pending { indices } => indices.iter().collect(),
                ArrayRole::None | ArrayRole::Task { .. } => vec![selection::task(job).unwrap_or(1)],
            };
            for index in indices {
                xml.element("ulong_sublist", |xml| task(xml, job, index));
            }
        }
    });
}

fn task(xml: &mut Xml, job: &Job, index: u32) {
    // Running, on the way to its hosts, or not there.
    let status = match lines::state(job).as_str() {
        _ if is_pending(job) => 0,
        "t" => 64,
        _ => 128,
    };
    xml.leaf("JAT_status", status);
    xml.leaf("JAT_task_number", index);
    if lines::is_in_error(job) {
        let why = job.reason_detail.as_deref();
        let why = why.unwrap_or("the job asked for it by its exit status");
        xml.element("JAT_message_list", |xml| {
            xml.element("ulong_sublist", |xml| {
                xml.leaf("QIM_type", 1);
                xml.leaf("QIM_message", why);
            });
        });
    }
    let granted = resource_map(job);
    if !granted.is_empty() {
        xml.leaf("JAT_granted_resources_list", granted);
    }
    let start = job.start_time.filter(|_| !is_pending(job));
    xml.leaf("JAT_start_time", start.map_or(0, |at| at.unix_s()));
    xml.leaf("JAT_ntix", "0.000000");
}

fn predecessors(xml: &mut Xml, records: &[&Job], spec: &JobSpec) {
    let mut before: Vec<String> = records
        .iter()
        .flat_map(|job| lines::predecessors(job))
        .collect();
    before.dedup();
    if !before.is_empty() {
        xml.element("JB_jid_predecessor_list", |xml| {
            for number in before {
                xml.element("job_predecessors", |xml| xml.leaf("JRE_job_number", number));
            }
        });
    }
    if let Some(asked) = marks::value(spec, marks::HOLD_JID) {
        xml.element("JB_jid_request_list", |xml| {
            for name in asked.split(',') {
                xml.element("element", |xml| {
                    xml.leaf("JRE_job_number", 0);
                    xml.leaf("JRE_job_name", name);
                });
            }
        });
    }
}

/// Numbers of `-m` by which Grid Engine says when mails are sent.
fn mail_options(spec: &JobSpec) -> u32 {
    let events = spec.mail.as_ref().map_or("", |mail| mail.types.as_str());
    let bits = events.split(',').map(|event| match event {
        "FAIL" => 0x4_0000,
        "BEGIN" => 0x8_0000,
        "END" => 0x10_0000,
        "ALL" => 0x1c_0000,
        _ => 0,
    });
    bits.fold(0, |all, bit| all | bit)
}

/// Priority, kind, array, parallel environment, and values that are always the same here.
fn settings(xml: &mut Xml, spec: &JobSpec, records: &[&Job]) {
    let mark = |key| marks::value(spec, key);
    let array = records.iter().find_map(|job| job.spec.array.as_ref());
    xml.leaf("JB_deadline", spec.deadline.map_or(0, |at| at.unix_s()));
    xml.leaf("JB_execution_time", spec.begin.map_or(0, |at| at.unix_s()));
    xml.leaves(&[
        ("JB_checkpoint_attr", "0"),
        ("JB_checkpoint_interval", "0"),
        ("JB_reserve", "false"),
    ]);
    xml.leaf("JB_mail_options", mail_options(spec));
    xml.leaf("JB_priority", 1024_i64 - i64::from(spec.nice));
    xml.leaf(
        "JB_restart",
        spec.requeue.map_or(0, |again| if again { 1 } else { 2 }),
    );
    xml.leaves(&[("JB_verify", "0"), ("JB_script_size", "0")]);
    if let Some((pe, slots)) = marks::parallel_environment(spec) {
        xml.leaf("JB_pe", pe);
        xml.element("JB_pe_range", |xml| {
            for part in slots.split(',') {
                let (least, most) = part.split_once('-').unwrap_or((part, part));
                xml.element("ranges", |xml| {
                    xml.leaves(&[("RN_min", least), ("RN_max", most), ("RN_step", "1")]);
                });
            }
        });
    }
    if let Some(class) = &spec.class {
        xml.leaf("JB_jc", &class.name);
    }
    xml.leaves(&[
        ("JB_verify_suitable_queues", "0"),
        ("JB_soft_wallclock_gmt", "0"),
        ("JB_hard_wallclock_gmt", "0"),
        ("JB_override_tickets", "0"),
        ("JB_version", "0"),
    ]);
    let indices = array.map_or_else(
        || vec![1],
        |array| array.indices.iter().collect::<Vec<u32>>(),
    );
    xml.element("JB_ja_structure", |xml| {
        for range in selection::ranges(indices).split(',') {
            let (span, step) = range.split_once(':').unwrap_or((range, "1"));
            let (first, last) = span.split_once('-').unwrap_or((span, span));
            xml.element("task_id_range", |xml| {
                xml.leaves(&[("RN_min", first), ("RN_max", last), ("RN_step", step)]);
            });
        }
    });
    let is_binary = u32::from(mark(marks::BINARY).is_some());
    let is_array = u32::from(array.is_some());
    xml.leaf("JB_type", 64 * is_binary + 128 * is_array);
    xml.element("JB_binding", |xml| {
        xml.element("element", |xml| {
            xml.leaves(&[
                ("BN_strategy", "no_job_binding"),
                ("BN_type", "0"),
                ("BN_parameter_n", "0"),
                ("BN_parameter_socket_offset", "0"),
                ("BN_parameter_core_offset", "0"),
                ("BN_parameter_striding_step_size", "0"),
                ("BN_parameter_explicit", "no_explicit_binding"),
            ]);
        });
    });
    let limit = array.and_then(|array| array.throttle).unwrap_or(0);
    xml.leaf("JB_ja_task_concurrency", limit);
    xml.leaf("JB_nurg", "0.000000");
}

#[cfg(test)]
mod tests;
