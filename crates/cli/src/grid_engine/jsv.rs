//! Verifiers that users name (`-jsv`, sge_request files): programs that see a submission before it is sent, as its user. What
//! they change is as if it had been an option.

use super::arguments::OptionArgument;
use super::qsub::Program;
use super::request::{Request, Slots, WorkDir};
use super::submission::joined;
use super::{qsub, unable_to_run};
use crate::options::env;
use crate::people;
use crate::say;
use muster_conf::grid_engine::{jsv_path, slots};
use muster_proto::jsv::{JsvAction, JsvDecision, JsvRequest, Level, Outcome, QUIT, Verification};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Time limit of a verifier, unless `SGE_JSV_TIMEOUT` sets another.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Where the libraries that verifiers source are, unless the environment says otherwise.
const SGE_ROOT: &str = "/usr/share/muster/gridengine";
/// Bytes that one may say at most.
const OUTPUT_MAX: usize = 4 << 20;

/// Has a submission verified by each of these programs in turn.
///
/// # Errors
/// One of them refuses it or failed; that was printed.
pub(super) fn verify(
    urls: &[String],
    client: &str,
    request: &mut Request,
    program: &mut Program,
) -> Result<(), ExitCode> {
    for url in urls {
        one(url, client, request, program).map_err(|why| unable_to_run(&why))?;
    }
    Ok(())
}

fn one(
    url: &str,
    client: &str,
    request: &mut Request,
    program: &mut Program,
) -> Result<(), String> {
    let path = url.strip_prefix("script:").unwrap_or(url);
    let here;
    let has_type = path
        .split_once(':')
        .is_some_and(|(kind, _)| !kind.contains('/'));
    let is_whole = path.starts_with('/') || path.contains('@') || has_type;
    let path = match path.contains('/') && !is_whole {
        true => {
            here = crate::submit::line::current_dir().join(path);
            here.to_str().ok_or("the path of the JSV is not UTF-8")?
        }
        false => jsv_path(url)?,
    };
    let asked = asked(client, request, program);
    let outcome = talk(path, asked).map_err(|why| format!("JSV {path}: {why}"))?;
    match outcome.state {
        JsvDecision::Accept => Ok(()),
        JsvDecision::Correct => apply(&outcome, request, program),
        JsvDecision::Reject | JsvDecision::RejectWait if outcome.message.is_empty() => {
            Err(format!("the job was rejected by JSV {path}"))
        }
        JsvDecision::Reject | JsvDecision::RejectWait => Err(outcome.message),
    }
}

/// A program, killed when it is no longer needed.
struct Running(Child, UnixStream);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.1.write_all(QUIT.as_bytes());
        let _ = self.1.shutdown(std::net::Shutdown::Both);
        // With its child processes.
        if let Ok(group) = i32::try_from(self.0.id()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}

fn talk(path: &str, asked: JsvRequest) -> Result<Outcome, String> {
    let seconds = env("SGE_JSV_TIMEOUT").and_then(|text| text.parse().ok());
    let limit = seconds.map_or(TIME_LIMIT, Duration::from_secs);
    let end = Instant::now() + limit;
    let text = |e: io::Error| match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("it did not answer in {} s", limit.as_secs())
        }
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            "it ended without an answer".to_owned()
        }
        _ => super::reason(&e),
    };
    let (own, theirs) = UnixStream::pair().map_err(text)?;
    let root = env("SGE_ROOT").unwrap_or_else(|| SGE_ROOT.to_owned());
    let output = theirs.try_clone().map_err(text)?;
    let child = Command::new(path)
        .process_group(0)
        .env("SGE_ROOT", root)
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .stdout(Stdio::from(std::os::fd::OwnedFd::from(output)))
        .spawn()
        .map_err(text)?;
    // One that does not read leaves a large environment unsent.
    own.set_write_timeout(Some(limit.max(Duration::from_millis(1))))
        .map_err(text)?;
    let mut running = Running(child, own);
    let (mut verification, first) = Verification::begin(asked);
    running.1.write_all(first.as_bytes()).map_err(text)?;
    let (mut received, mut taken) = (Vec::new(), 0);
    loop {
        while let Some(length) = received[taken..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&received[taken..taken + length]).into_owned();
            taken += length + 1;
            match verification.take(&line)? {
                JsvAction::Next => {}
                JsvAction::Write(question) => {
                    running.1.write_all(question.as_bytes()).map_err(text)?
                }
                JsvAction::Log(Level::Info | Level::Warning, line) => {
                    say::stdout(&format!("{line}\n"))
                }
                JsvAction::Log(Level::Error, line) => say::stderr(&format!("{line}\n")),
                JsvAction::Ended(outcome) => return Ok(outcome),
            }
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(text(io::ErrorKind::TimedOut.into()));
        }
        running.1.set_read_timeout(Some(left)).map_err(text)?;
        let mut bytes = [0; 4096];
        match running.1.read(&mut bytes).map_err(text)? {
            0 => return Err("it ended without an answer".to_owned()),
            count => received.extend_from_slice(&bytes[..count]),
        }
        if received.len() > OUTPUT_MAX {
            return Err("it says more than one job can need".to_owned());
        }
    }
}

/// The parameters of a submission, in Grid Engine's order.
fn asked(client: &str, request: &Request, program: &Program) -> JsvRequest {
    let user = people::user_of_uid(nix::unistd::getuid().as_raw());
    let group = nix::unistd::Group::from_gid(nix::unistd::getgid());
    let mut all = Vec::new();
    let mut add = |name: &str, value: &str| all.push((name.to_owned(), value.to_owned()));
    add("VERSION", "1.0");
    add("CONTEXT", "client");
    add("CLIENT", client);
    add("USER", &user.map(|user| user.name).unwrap_or_default());
    let group = group.ok().flatten().map(|group| group.name);
    add("GROUP", &group.unwrap_or_default());
    let name = match program.path.as_str() {
        "" => "STDIN",
        path => path,
    };
    add("CMDNAME", name);
    add("CMDARGS", &program.args.len().to_string());
    for (number, word) in program.args.iter().enumerate() {
        add(&format!("CMDARG{number}"), word);
    }
    let texts = |add: &mut dyn FnMut(&str, &str), list: &[(&str, Option<&String>)]| {
        for (name, value) in list {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                add(name, value);
            }
        }
    };
    let flags = |add: &mut dyn FnMut(&str, &str), list: &[(&str, bool)]| {
        let set = list.iter().filter(|(_, set)| *set);
        set.for_each(|(name, _)| add(name, "y"));
    };
    texts(
        &mut add,
        &[
            ("a", request.begin.as_ref()),
            ("ar", request.reservation.as_ref()),
        ],
    );
    texts(&mut add, &[("A", request.account.as_ref())]);
    flags(&mut add, &[("b", request.binary)]);
    if request.work_dir != WorkDir::Home {
        add("cwd", &qsub::work_dir(request).to_string_lossy());
    }
    texts(
        &mut add,
        &[
            ("display", request.display.as_ref()),
            ("e", request.stderr.as_ref()),
        ],
    );
    if request.hold {
        add("h", "u");
    }
    let lists = [
        ("hold_jid", &request.hold_jid),
        ("hold_jid_ad", &request.hold_jid_ad),
    ];
    for (name, list) in lists.iter().filter(|(_, list)| !list.is_empty()) {
        add(name, &list.join(","));
    }
    texts(&mut add, &[("i", request.stdin.as_ref())]);
    flags(&mut add, &[("j", request.merge)]);
    for (name, list) in [("l_hard", &request.hard), ("l_soft", &request.soft)] {
        if !list.is_empty() {
            add(name, &joined(list));
        }
    }
    texts(
        &mut add,
        &[
            ("m", Some(&request.mail_events)),
            ("M", request.mail_to.as_ref()),
        ],
    );
    let name = request.name.clone().unwrap_or_else(|| program.name.clone());
    add("N", &name);
    flags(
        &mut add,
        &[("notify", request.notify), ("now", request.now)],
    );
    texts(
        &mut add,
        &[
            ("o", request.stdout.as_ref()),
            ("P", request.project.as_ref()),
        ],
    );
    if request.priority != 0 {
        add("p", &request.priority.to_string());
    }
    if let Some((name, slots)) = &request.pe {
        add("pe_name", name);
        add("pe_min", &slots.least().to_string());
        add("pe_max", &slots.most().to_string());
    }
    for (name, queues) in [
        ("masterq", &request.master_queues),
        ("q_hard", &request.queues),
        ("q_soft", &request.soft_queues),
    ] {
        if !queues.is_empty() {
            add(name, &queues.join(","));
        }
    }
    flags(&mut add, &[("r", request.rerun == Some(true))]);
    texts(&mut add, &[("S", request.shell.as_ref())]);
    if request.without_shell {
        add("shell", "n");
    }
    if let Some(tasks) = request.tasks {
        let numbers = [
            ("t_min", tasks.first),
            ("t_max", tasks.last),
            ("t_step", tasks.step),
        ];
        numbers
            .iter()
            .for_each(|(name, n)| add(name, &n.to_string()));
    }
    if let Some(most) = request.task_limit {
        add("tc", &most.to_string());
    }
    JsvRequest {
        parameters: all,
        environment: variables(request),
    }
}

/// The variables that `-v` and `-V` give the job.
fn variables(request: &Request) -> Vec<(String, String)> {
    let mut all = Vec::new();
    if request.all_variables {
        let own = std::env::vars_os();
        all.extend(own.filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))));
    }
    for (name, value) in &request.variables {
        all.retain(|(own, _)| own != name);
        let value = value.clone().or_else(|| env(name));
        all.extend(value.map(|value| (name.clone(), value)));
    }
    all
}

/// Makes the changes of a verifier.
fn apply(outcome: &Outcome, request: &mut Request, program: &mut Program) -> Result<(), String> {
    for (name, value) in &outcome.parameters {
        change(name, value, request, program)
            .map_err(|why| format!("the JSV sets {name} to '{value:.200}': {why}"))?;
    }
    together(outcome, request)?;
    for (name, value) in &outcome.environment {
        request.variables.retain(|(own, _)| own != name);
        match value {
            Some(value) => request.variables.push((name.clone(), Some(value.clone()))),
            None if request.all_variables => {
                return Err(format!(
                    "the JSV removes variable {name} beside -V, which it cannot"
                ));
            }
            None => {}
        }
    }
    Ok(())
}

/// Parameters that are options of the same name and form.
const OPTIONS: [&str; 23] = [
    "a",
    "ar",
    "A",
    "display",
    "e",
    "hold_jid",
    "hold_jid_ad",
    "i",
    "j",
    "m",
    "M",
    "masterq",
    "N",
    "notify",
    "now",
    "o",
    "p",
    "P",
    "r",
    "S",
    "shell",
    "tc",
    "b",
];

fn change(
    name: &str,
    value: &str,
    request: &mut Request,
    program: &mut Program,
) -> Result<(), String> {
    let refused = |refused| match refused {
        super::request::Refused::Line(text, _) | super::request::Refused::Job(text) => text,
    };
    match name {
        "pe_name" | "pe_min" | "pe_max" | "t_min" | "t_max" | "t_step" => {}
        "CMDARGS" => {
            let count = value.parse().ok().filter(|count| *count <= 10_000);
            let count = count.ok_or("a number of arguments is expected")?;
            program.args.resize(count, String::new());
        }
        _ if name.starts_with("CMDARG") => {
            let at: Option<usize> = name["CMDARG".len()..].parse().ok();
            let word = at.and_then(|at| program.args.get_mut(at));
            *word.ok_or("there is no such argument; set CMDARGS first")? = value.to_owned();
        }
        "cwd" | "wd" => {
            request.work_dir = match value {
                "" => WorkDir::Home,
                dir => WorkDir::Named(dir.to_owned()),
            };
        }
        "h" => request.hold = !matches!(value, "" | "n"),
        "l_hard" | "global_l_hard" | "l_soft" | "global_l_soft" => {
            request.is_soft = name.ends_with("soft");
            match request.is_soft {
                true => request.soft.clear(),
                false => request.hard.clear(),
            }
            if !value.is_empty() {
                give("l", value, request).map_err(refused)?;
            }
        }
        "q_hard" | "global_q_hard" | "q_soft" | "global_q_soft" => {
            request.is_soft = name.ends_with("soft");
            match request.is_soft {
                true => request.soft_queues.clear(),
                false => request.queues.clear(),
            }
            if !value.is_empty() {
                give("q", value, request).map_err(refused)?;
            }
        }
        _ => {
            let known = OPTIONS.iter().find(|own| **own == name);
            let known = known.ok_or("no verifier can change it here")?;
            match value {
                "" => clear(known, request)?,
                value => give(known, value, request).map_err(refused)?,
            }
        }
    }
    Ok(())
}

fn give(
    name: &'static str,
    value: &str,
    request: &mut Request,
) -> Result<(), super::request::Refused> {
    request.take(&OptionArgument {
        name,
        values: vec![value.to_owned()],
    })
}

/// An empty value removes an option.
fn clear(name: &str, request: &mut Request) -> Result<(), String> {
    match name {
        "a" => request.begin = None,
        "ar" => request.reservation = None,
        "A" => request.account = None,
        "display" => request.display = None,
        "e" => request.stderr = None,
        "hold_jid" => request.hold_jid.clear(),
        "hold_jid_ad" => request.hold_jid_ad.clear(),
        "i" => request.stdin = None,
        "m" => request.mail_events.clear(),
        "M" => request.mail_to = None,
        "masterq" => request.master_queues.clear(),
        "N" => request.name = None,
        "o" => request.stdout = None,
        "p" => request.priority = 0,
        "P" => request.project = None,
        "S" => request.shell = None,
        "tc" => request.task_limit = None,
        _ => return Err("y or n is expected".to_owned()),
    }
    Ok(())
}

/// Slots and tasks, which are several parameters each.
fn together(outcome: &Outcome, request: &mut Request) -> Result<(), String> {
    let of = |name: &str| {
        let found = outcome.parameters.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    };
    let number = |text: &str| {
        let number = text.parse().ok().filter(|n: &u32| *n > 0);
        number.ok_or_else(|| format!("the JSV says '{text:.80}' where a number is expected"))
    };
    let [name, least, most] = ["pe_name", "pe_min", "pe_max"].map(of);
    if name == Some("") {
        request.pe = None;
    } else if name.is_some() || least.is_some() || most.is_some() {
        let before = request.pe.take();
        let own = before.as_ref().map(|(name, _)| name.clone());
        let name = name
            .map(str::to_owned)
            .or(own)
            .ok_or("the JSV sets slots without pe_name")?;
        let span = before.as_ref().map(|(_, own)| (own.least(), own.most()));
        let (first, last) = slots::changed_span([least, most], span)?;
        // A list keeps its gaps.
        let own = before.filter(|_| least.is_none() && most.is_none());
        let slots = own.map_or_else(|| Slots::span(first, last), |(_, own)| own);
        request.pe = Some((name, slots));
    }
    let given = ["t_min", "t_max", "t_step"].map(of);
    if given.iter().any(Option::is_some) {
        let before = request
            .tasks
            .map_or([1; 3], |tasks| [tasks.first, tasks.last, tasks.step]);
        let mut numbers = before;
        for (own, text) in numbers.iter_mut().zip(given) {
            if let Some(text) = text {
                *own = number(text)?;
            }
        }
        let [first, last, step] = numbers;
        request.tasks = Some(super::request::Tasks { first, last, step });
    }
    Ok(())
}
