//! A job as parameters of Grid Engine's verifiers, and what these change of it. Jobs of sbatch, srun and salloc have the
//! parameters that qsub would have had for them. A parameter that is changed and has no meaning here is an error that
//! names it: nothing is dropped silently.

mod allowed;
pub(crate) mod layout;
pub(crate) mod requests;

pub use allowed::check_change;

use crate::message::Subject;
use layout::Layout;
use minicbor::bytes::ByteVec;
use muster_conf::grid_engine::resources::{Resources, split};
use muster_conf::grid_engine::{ComplexTarget, CountedPer, Mapping, slots as pe_slots};
use muster_conf::options::values;
use muster_model::environment::{Environment, split as split_variable};
use muster_model::grid_engine as marks;
use muster_model::index_set::IndexSet;
use muster_model::licenses;
use muster_model::mail::MailOptions;
use muster_model::spec::{
    ArraySpec, DependencyKind, DependencyTerm, ExecContext, GresAsk, JobKind, JobSpec, MemoryAsk,
    Sharing,
};
use muster_model::time::TimeLimit;
use muster_proto::jsv::{JsvRequest, Outcome};
use std::collections::{HashMap, HashSet};

/// The settings of this site that the meaning of a parameter depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    /// sge.conf.
    pub mapping: Mapping,
    /// `GresTypes`.
    pub gres: Vec<String>,
}

type Parameters = Vec<(String, String)>;

/// The parameters of a request for a verifier.
pub fn asked(subject: &Subject, site: &Site) -> JsvRequest {
    let spec = &subject.spec;
    let mut all = Parameters::new();
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            all.push((name.to_owned(), value));
        }
    };
    add("VERSION", "1.0".to_owned());
    add("CONTEXT", "server".to_owned());
    add("CLIENT", "qmaster".to_owned());
    add("USER", spec.owner.user.clone());
    add("GROUP", spec.owner.group.clone());
    let command = match (spec.kind, spec.command.as_str()) {
        (JobKind::Batch, "") => "STDIN".to_owned(),
        (JobKind::Batch, path) => path.to_owned(),
        (JobKind::Allocation, _) => spec.argv.first().cloned().unwrap_or_default(),
    };
    let words = arguments(spec);
    add("CMDNAME", command);
    add("CMDARGS", words.len().to_string());
    for (number, word) in words.iter().enumerate() {
        add(&format!("CMDARG{number}"), word.clone());
    }
    add("ar", text(spec.reservation.as_ref()));
    add("A", text(spec.comment.as_ref()));
    add(
        "b",
        flag(marks::value(spec, marks::BINARY) == Some("y") || spec.kind == JobKind::Allocation),
    );
    add("cwd", spec.work_dir.clone());
    add("e", text(spec.stdio.stderr.as_ref()));
    add(
        "h",
        if spec.hold {
            "u".to_owned()
        } else {
            String::new()
        },
    );
    add("hold_jid", held_by(spec));
    add("i", text(spec.stdio.stdin.as_ref()));
    add(
        "j",
        flag(spec.stdio.stderr.is_none() && spec.kind == JobKind::Batch),
    );
    add(
        "jc",
        spec.class
            .as_ref()
            .map_or_else(String::new, |own| own.name.clone()),
    );
    add("l_hard", hard(spec, site));
    add(
        "l_soft",
        marks::value(spec, marks::SOFT)
            .unwrap_or_default()
            .to_owned(),
    );
    let (events, user) = mail(spec);
    add("m", events);
    add("M", user);
    add("N", spec.name.clone());
    add("o", text(spec.stdio.stdout.as_ref()));
    add(
        "p",
        if spec.nice == 0 {
            String::new()
        } else {
            (-i64::from(spec.nice)).to_string()
        },
    );
    add("P", project(spec, &site.mapping));
    if let Some((name, least, most)) = environment(spec, site) {
        add("pe_name", name);
        add("pe_min", least.to_string());
        add("pe_max", most.to_string());
    }
    let queues = spec.partitions.iter().map(|own| site.mapping.queue_of(own));
    add("q_hard", queues.collect::<Vec<_>>().join(","));
    add("r", flag(spec.requeue == Some(true)));
    if let Some(tasks) = &spec.array {
        if let Some((first, last, step)) = regular(&tasks.indices) {
            add("t_min", first.to_string());
            add("t_max", last.to_string());
            add("t_step", step.to_string());
        }
        add(
            "tc",
            tasks
                .throttle
                .map(|most| most.to_string())
                .unwrap_or_default(),
        );
    }
    JsvRequest {
        parameters: all,
        environment: variables(subject),
    }
}

fn text(value: Option<&String>) -> String {
    value.cloned().unwrap_or_default()
}

fn flag(on: bool) -> String {
    if on { "y".to_owned() } else { String::new() }
}

fn arguments(spec: &JobSpec) -> Vec<String> {
    let skipped = usize::from(spec.kind == JobKind::Allocation);
    spec.argv.iter().skip(skipped).cloned().collect()
}

fn variables(subject: &Subject) -> Vec<(String, String)> {
    let context = subject.context.as_ref();
    let context: Option<ExecContext> = context.and_then(|bytes| minicbor::decode(bytes).ok());
    let Some(context) = context else {
        return Vec::new();
    };
    let split = context.environment.iter().filter_map(|variable| {
        let (name, value) = split_variable(variable);
        Some((name.to_owned(), value?.to_owned()))
    });
    split.collect()
}

fn held_by(spec: &JobSpec) -> String {
    if let Some(names) = marks::value(spec, marks::HOLD_JID) {
        return names.to_owned();
    }
    let ids = spec.dependency.terms.iter().filter_map(|term| match term {
        DependencyTerm::Job {
            kind: DependencyKind::AfterAny,
            job,
            ..
        } => Some(job.0.to_string()),
        _ => None,
    });
    ids.collect::<Vec<_>>().join(",")
}

/// Hard requests: those that were given, if they match the job's request, else those that express it. A client may give
/// any.
fn hard(spec: &JobSpec, site: &Site) -> String {
    match marks::value(spec, marks::HARD) {
        Some(given) if requests::are_requests_of(given, spec, site) => given.to_owned(),
        _ => asked_for(spec, site),
    }
}

/// Grid Engine requests equivalent to the job's.
fn asked_for(spec: &JobSpec, site: &Site) -> String {
    let ask = &spec.ask;
    let mut all = Vec::new();
    match spec.time_limit {
        Some(TimeLimit::Minutes(minutes)) => {
            all.push(format!("h_rt={}", u64::from(minutes) * 60));
        }
        Some(TimeLimit::Unlimited) => all.push("h_rt=INFINITY".to_owned()),
        None => {}
    }
    match ask.memory {
        MemoryAsk::PerCpu(mib) => all.push(format!("h_vmem={mib}M")),
        MemoryAsk::PerNode(mib) => {
            let slots = u64::from(ask.min_cpus().max(1));
            let of_job = mib.saturating_mul(u64::from(ask.min_nodes.max(1)));
            all.push(format!("h_vmem={}M", of_job.div_ceil(slots)));
        }
        MemoryAsk::Default => {}
    }
    if matches!(ask.sharing, Sharing::Exclusive) {
        all.push("exclusive=true".to_owned());
    }
    if let Some(count) = ask.min_cpus_per_node {
        all.push(format!("num_proc={count}"));
    }
    let licenses = spec.licenses.as_deref().unwrap_or_default();
    // Alternatives are seen as they are.
    for license in licenses::parse(licenses).unwrap_or_default() {
        let is_it = |target: &ComplexTarget| matches!(target, ComplexTarget::License(own) if *own == license.name);
        if let Some(complex) = complex_for(site, is_it) {
            all.push(format!("{complex}={}", license.count));
        }
    }
    let features = ask.constraint.as_deref().unwrap_or_default().split('&');
    for feature in features.filter(|feature| !feature.is_empty()) {
        let is_it = |target: &ComplexTarget| matches!(target, ComplexTarget::Feature(own) if own == feature);
        if let Some(complex) = complex_for(site, is_it) {
            all.push(format!("{complex}=true"));
        }
    }
    let devices = ask.devices();
    let lists = [
        (&ask.gres, CountedPer::Host),
        (&devices.per_task, CountedPer::Slot),
        (&devices.per_job, CountedPer::Job),
    ];
    // Repeated names are added up.
    let mut counts: Vec<(String, u64)> = Vec::new();
    for (list, per) in lists {
        for gres in list {
            let Some(name) = complex_of(gres, per, site) else {
                continue;
            };
            match counts.iter_mut().find(|(own, _)| *own == name) {
                Some((_, count)) => *count = count.saturating_add(gres.count),
                None => counts.push((name, gres.count)),
            }
        }
    }
    let counts = counts.iter();
    all.extend(counts.map(|(name, count)| format!("{name}={count}")));
    all.extend(requests::unnamed(spec, site));
    all.join(",")
}

/// The name of the complex with such a target.
fn complex_for(site: &Site, is_it: impl Fn(&ComplexTarget) -> bool) -> Option<&str> {
    let mut all = site.mapping.complexes.iter();
    let found = all.find(|(_, target)| is_it(target));
    found.map(|(name, _)| name.as_str())
}

/// The name of a complex that stands for a device.
pub(crate) fn complex_of(gres: &GresAsk, per: CountedPer, site: &Site) -> Option<String> {
    let full = requests::full_name(gres);
    let mapped = site.mapping.complexes.iter().find(|(_, target)| {
        matches!(target, ComplexTarget::Gres(own, counted) if *own == full && *counted == per)
    });
    let plain = || (gres.kind.is_none() && per == CountedPer::Host).then(|| gres.name.clone());
    mapped.map(|(name, _)| name.clone()).or_else(plain)
}

fn mail(spec: &JobSpec) -> (String, String) {
    let Some(MailOptions { types, user, .. }) = &spec.mail else {
        return Default::default();
    };
    let letters = [("BEGIN", 'b'), ("END", 'e'), ("FAIL", 'a')];
    let has = |word: &str| {
        let mut given = types.split(',').map(str::trim);
        given.any(|own| own.eq_ignore_ascii_case(word) || own.eq_ignore_ascii_case("ALL"))
    };
    let set = letters.iter().filter(|(word, _)| has(word));
    (set.map(|(_, letter)| letter).collect(), user.clone())
}

pub(crate) fn project(spec: &JobSpec, mapping: &Mapping) -> String {
    let account = text(spec.account.as_ref());
    let mapped = mapping.projects.iter().find(|(_, own)| *own == account);
    mapped.map_or(account.clone(), |(project, _)| project.clone())
}

/// The parallel environment that a job of qsub asks for, if it is laid out as that says.
fn environment_of_qsub(spec: &JobSpec, site: &Site) -> Option<(String, IndexSet)> {
    match Layout::of(spec, site) {
        Layout::Environment(name, slots) => Some((name, slots)),
        Layout::None | Layout::Slots(_) | Layout::Other(_) => None,
    }
}

/// Parallel environment, least and most slots.
fn environment(spec: &JobSpec, site: &Site) -> Option<(String, u32, u32)> {
    if let Some((name, slots)) = environment_of_qsub(spec, site) {
        return Some((name, slots.first()?, slots.last()?));
    }
    let (least, most) = (spec.ask.min_cpus(), spec.ask.most_cpus());
    let one_host = spec.ask.max_nodes == Some(1) || spec.ask.most_tasks() == 1;
    let name = if one_host { "smp" } else { "mpi" };
    (most > 1).then(|| (name.to_owned(), least, most))
}

pub(crate) fn regular(indices: &IndexSet) -> Option<(u32, u32, u32)> {
    let (first, last) = (indices.first()?, indices.last()?);
    let mut ranges = indices.ranges();
    if ranges.next()? == (first, last) {
        return Some((first, last, 1));
    }
    // Several ranges: single indices at equal distances, or none that a step describes.
    let step = ranges.next()?.0 - first;
    let is_regular = indices.ranges().zip(0..).all(|(range, at)| {
        let index = u64::from(first) + at * u64::from(step);
        (u64::from(range.0), u64::from(range.1)) == (index, index)
    });
    is_regular.then_some((first, last, step))
}

/// Makes the changes of a verifier in a job's specification, and in its environment.
///
/// # Errors
/// A parameter that cannot be changed, or not to this.
pub fn apply(
    spec: &mut JobSpec,
    context: &mut Option<ByteVec>,
    outcome: &Outcome,
    site: &Site,
) -> Result<(), String> {
    for (name, value) in &outcome.parameters {
        change(spec, name, value, site)
            .map_err(|why| format!("the JSV sets {name} to '{value:.200}': {why}"))?;
    }
    slots(spec, outcome, site)?;
    tasks(spec, outcome)?;
    words(spec, outcome)?;
    if outcome.environment.is_empty() {
        return Ok(());
    }
    let decoded = context
        .as_ref()
        .and_then(|bytes| minicbor::decode(bytes).ok());
    let Some(mut decoded): Option<ExecContext> = decoded else {
        return Err("the JSV changes variables of a job that sends none".to_owned());
    };
    decoded.environment = changed(&decoded.environment, &outcome.environment);
    *context = Some(decoded.encoded().into());
    Ok(())
}

/// An environment with changes, each of another variable: made in one go, since both may be long.
fn changed(environment: &Environment, changes: &[(String, Option<String>)]) -> Environment {
    let text = |(name, value): &(String, Option<String>)| {
        let value = value.as_ref()?;
        Some(format!("{name}={value}").into_bytes())
    };
    let new: HashMap<&[u8], Option<Vec<u8>>> = changes
        .iter()
        .map(|change| (change.0.as_bytes(), text(change)))
        .collect();
    let mut there = HashSet::new();
    let mut all: Vec<&[u8]> = Vec::new();
    for own in environment.iter() {
        let name = muster_model::environment::name(own);
        match new.get(name) {
            None => all.push(own),
            Some(Some(other)) if there.insert(name) => all.push(other),
            Some(_) => {}
        }
    }
    let added = changes.iter().filter_map(|(name, _)| {
        let name = name.as_bytes();
        let text = new.get(name)?.as_deref()?;
        (!there.contains(name)).then_some(text)
    });
    all.extend(added);
    all.into_iter().collect()
}

/// Parameters that belong together and are looked at as one.
const TOGETHER: [&str; 6] = ["pe_name", "pe_min", "pe_max", "t_min", "t_max", "t_step"];

pub(crate) fn change(
    spec: &mut JobSpec,
    name: &str,
    value: &str,
    site: &Site,
) -> Result<(), String> {
    let given = Some(value.to_owned()).filter(|value| !value.is_empty());
    let is_grid_engine = marks::is_marked(spec);
    match name {
        _ if TOGETHER.contains(&name) || name.starts_with("CMDARG") => {}
        "ar" => spec.reservation = given,
        "A" => spec.comment = given,
        "N" => spec.name = value.to_owned(),
        "P" => {
            let mapped = site.mapping.projects.iter().find(|(own, _)| own == value);
            spec.account = given.map(|own| mapped.map_or(own, |(_, account)| account.clone()));
        }
        "cwd" | "wd" => spec.work_dir = given.ok_or("a directory is expected")?,
        "o" => spec.stdio.stdout = given,
        "e" => spec.stdio.stderr = given,
        "i" => spec.stdio.stdin = given,
        "j" => match yes(value)? {
            true => spec.stdio.stderr = None,
            false => return Err("name a file with e".to_owned()),
        },
        "h" => match value {
            "" | "n" => spec.hold = false,
            _ => spec.hold = true,
        },
        "r" => spec.requeue = given.map(|_| yes(value)).transpose()?,
        "p" => {
            let wrong = || "a number from -1023 to 1024 is expected".to_owned();
            let number = given.map_or(Ok(0), |own| own.parse().map_err(|_| wrong()))?;
            spec.nice = match number {
                -1023..=1024 => -number,
                _ => return Err(wrong()),
            };
        }
        "m" | "M" => set_mail(spec, name, value)?,
        "tc" => {
            let most = given.map(|own| own.parse()).transpose();
            let most = most.map_err(|_| "a number is expected".to_owned())?;
            spec.array.as_mut().ok_or("the job has no tasks")?.throttle = most;
        }
        "hold_jid" => {
            let list = value.replace(',', ":");
            let terms = match list.as_str() {
                "" => Vec::new(),
                list => {
                    values::dependency(&format!("afterany:{list}"))
                        .map_err(|e| e.detail)?
                        .terms
                }
            };
            let is_other = |term: &DependencyTerm| {
                !matches!(
                    term,
                    DependencyTerm::Job {
                        kind: DependencyKind::AfterAny,
                        ..
                    }
                )
            };
            spec.dependency.terms.retain(is_other);
            spec.dependency.terms.extend(terms);
            set_mark(spec, marks::HOLD_JID, value, is_grid_engine);
        }
        "q_hard" | "global_q_hard" => {
            let partition = |queue: &str| {
                let queue = queue.split('@').next().unwrap_or_default();
                let mapped = site.mapping.queues.iter().find(|(own, _)| own == queue);
                mapped.map_or(queue, |(_, partition)| partition).to_owned()
            };
            if value.contains(['@', '*', '?', '[']) {
                return Err("names of queues are expected".to_owned());
            }
            let named = value
                .split(',')
                .filter(|own| !own.is_empty() && *own != "all.q");
            spec.partitions = named.map(partition).collect();
            let mut named = value.split(',').filter(|own| !own.is_empty());
            let queue = match spec.partitions.len() {
                0 | 1 => named.next().unwrap_or_default().to_owned(),
                // As `marks::queue_in` reads them.
                _ => {
                    let each = named.map(|own| format!("{own}:{}", partition(own)));
                    each.collect::<Vec<_>>().join(",")
                }
            };
            set_mark(spec, marks::QUEUE, &queue, is_grid_engine);
            set_mark(spec, marks::HARD_QUEUES, value, is_grid_engine);
        }
        "l_hard" | "global_l_hard" => {
            requests(spec, value, site)?;
            set_mark(spec, marks::HARD, value, is_grid_engine);
        }
        "l_soft" | "global_l_soft" if value.is_empty() => {
            spec.ask.prefer = None;
            set_mark(spec, marks::SOFT, "", is_grid_engine);
        }
        _ => return Err("no verifier can change it here".to_owned()),
    }
    Ok(())
}

fn yes(value: &str) -> Result<bool, String> {
    match value {
        "y" | "yes" => Ok(true),
        "n" | "no" => Ok(false),
        _ => Err("y or n is expected".to_owned()),
    }
}

pub(crate) fn set_mark(spec: &mut JobSpec, key: &str, value: &str, is_grid_engine: bool) {
    if is_grid_engine {
        spec.shown.retain(|(own, _)| own != key);
        if !value.is_empty() {
            spec.shown.push((key.to_owned(), value.to_owned()));
        }
    }
}

fn set_mail(spec: &mut JobSpec, name: &str, value: &str) -> Result<(), String> {
    let mut types = None;
    if name != "M" {
        let word = |letter| match letter {
            'b' => Ok("BEGIN"),
            'e' => Ok("END"),
            'a' => Ok("FAIL"),
            'n' | 's' => Ok(""),
            _ => Err("letters of b, e, a, s and n are expected".to_owned()),
        };
        let words: Vec<&str> = value.chars().map(word).collect::<Result<_, String>>()?;
        let words = words.into_iter().filter(|word| !word.is_empty());
        types = Some(words.collect::<Vec<_>>().join(","));
    }
    spec.mail = MailOptions::changed(spec.mail.take(), |mail| match types {
        Some(types) => mail.types = types,
        None => mail.user = value.to_owned(),
    });
    Ok(())
}

fn resources(list: &str, site: &Site) -> Result<Resources, String> {
    let mut all = Resources::default();
    if !list.is_empty() {
        for (name, value) in split(list)? {
            all.add((&name, value.as_deref()), &site.mapping, &site.gres)?;
        }
    }
    Ok(all)
}

/// A list of hard requests without those elements, each once, and how many of them it has.
fn without(list: &str, elements: &[String]) -> (String, usize) {
    let mut left = elements.to_vec();
    let mut words: Vec<&str> = list.split(',').collect();
    words.retain(|word| match left.iter().position(|own| own == word) {
        Some(at) => {
            left.remove(at);
            false
        }
        None => true,
    });
    (words.join(","), elements.len() - left.len())
}

/// A new list of hard requests: its differences from the one before become the job's.
fn requests(spec: &mut JobSpec, list: &str, site: &Site) -> Result<(), String> {
    let unnamed = requests::unnamed(spec, site);
    let before = without(&hard(spec, site), &unnamed).0;
    let before = resources(&before, site).unwrap_or_default();
    let (list, kept) = without(list, &unnamed);
    if kept < unnamed.len() {
        return Err(format!(
            "a verifier cannot change {} here, for which sge.conf has no complex",
            unnamed.join(",")
        ));
    }
    let now = resources(&list, site)?;
    if now.limit_s != before.limit_s {
        let minutes = |s: u64| u32::try_from(s.div_ceil(60).max(1)).unwrap_or(u32::MAX);
        spec.time_limit = now.limit_s.map(|s| TimeLimit::Minutes(minutes(s)));
    }
    if now.slot_bytes != before.slot_bytes {
        spec.ask.memory = match now.slot_bytes.div_ceil(1 << 20) {
            0 => MemoryAsk::Default,
            mib => MemoryAsk::PerCpu(mib),
        };
    }
    if now.gres != before.gres {
        let of = |per: CountedPer| {
            let mut list = Vec::new();
            for (name, count, _) in now.gres.iter().filter(|(.., own)| *own == per) {
                let (name, kind) = name.split_once(':').unwrap_or((name, ""));
                let kind = Some(kind.to_owned()).filter(|kind| !kind.is_empty());
                values::push_gres(&mut list, name, kind, *count);
            }
            list
        };
        // A request that a list names by another name stays.
        let with_unnamed = |old: &[GresAsk], per: CountedPer| {
            let unnamed = |gres: &&GresAsk| complex_of(gres, per, site).is_none();
            let mut all = of(per);
            all.extend(old.iter().filter(unnamed).cloned());
            all
        };
        spec.ask.gres = with_unnamed(&spec.ask.gres, CountedPer::Host);
        let mut devices = spec.ask.devices.take().unwrap_or_default();
        devices.per_task = with_unnamed(&devices.per_task, CountedPer::Slot);
        devices.per_job = with_unnamed(&devices.per_job, CountedPer::Job);
        spec.ask.devices = Some(devices).filter(|own| **own != Default::default());
    }
    if now.licenses != before.licenses {
        let old = spec.licenses.take().unwrap_or_default();
        if old.contains('|') {
            return Err("a verifier cannot add to alternatives of licenses".to_owned());
        }
        let is_named = |license: &&str| {
            let name = license.trim().split([':', '=']).next();
            let is_it = |target: &ComplexTarget| matches!(target, ComplexTarget::License(own) if Some(own.as_str()) == name);
            complex_for(site, is_it).is_some()
        };
        let unnamed = old.split([',', ';']).filter(|own| !is_named(own));
        let unnamed = unnamed.map(|own| own.trim().to_owned());
        let all = now.licenses.iter();
        let all = all.map(|(name, count)| format!("{name}:{count}"));
        let all: Vec<String> = all.chain(unnamed.filter(|own| !own.is_empty())).collect();
        spec.licenses = Some(all.join(",")).filter(|all| !all.is_empty());
    }
    if now.features != before.features {
        spec.ask.constraint = Some(now.features.join("&")).filter(|all| !all.is_empty());
    }
    if now.exclusive != before.exclusive {
        spec.ask.sharing = match now.exclusive {
            true => Sharing::Exclusive,
            false => Sharing::Default,
        };
    }
    if now.processors != before.processors {
        spec.ask.min_cpus_per_node = now.processors.and_then(|n| u32::try_from(n).ok());
    }
    let fixed = |all: &Resources| (all.hosts.clone(), all.queue.clone(), all.warn_after_s);
    match fixed(&now) == fixed(&before) {
        true => Ok(()),
        false => Err("a verifier cannot change hostname, qname and s_rt here".to_owned()),
    }
}

fn parameter<'a>(outcome: &'a Outcome, name: &str) -> Option<&'a str> {
    let found = outcome.parameters.iter().find(|(own, _)| own == name);
    found.map(|(_, value)| value.as_str())
}

/// Parallel environment and slots, as qsub has them.
pub(crate) fn slots(spec: &mut JobSpec, outcome: &Outcome, site: &Site) -> Result<(), String> {
    let [name, least, most] = ["pe_name", "pe_min", "pe_max"].map(|own| parameter(outcome, own));
    if name.is_none() && least.is_none() && most.is_none() {
        return Ok(());
    }
    let is_grid_engine = marks::is_marked(spec);
    let before = environment(spec, site);
    let name = match name {
        Some("") => {
            spec.ask.ntasks = Some(1);
            spec.ask.cpus_per_task = None;
            spec.ask.task_range = None;
            set_mark(spec, marks::PE, "", is_grid_engine);
            set_mark(spec, marks::PE_RANGE, "", is_grid_engine);
            return Ok(());
        }
        Some(name) => name.to_owned(),
        None => before
            .as_ref()
            .map(|(name, ..)| name.clone())
            .ok_or("the JSV sets slots of a job without pe_name")?,
    };
    let given = [least, most];
    let span = pe_slots::changed_span(given, before.map(|(_, least, most)| (least, most)))?;
    let slots = match environment_of_qsub(spec, site) {
        // A list keeps its gaps.
        Some((_, slots)) if given.iter().all(Option::is_none) => slots,
        Some(_) | None => {
            let mut slots = IndexSet::default();
            slots.insert_range(span.0, span.1);
            slots
        }
    };
    layout::put(spec, &name, &slots, site)
}

fn tasks(spec: &mut JobSpec, outcome: &Outcome) -> Result<(), String> {
    let given = ["t_min", "t_max", "t_step"].map(|own| parameter(outcome, own));
    if given.iter().all(Option::is_none) {
        return Ok(());
    }
    let before = spec
        .array
        .as_ref()
        .and_then(|array| regular(&array.indices));
    let (first, last, step) = before.unwrap_or((1, 1, 1));
    let mut numbers = [first, last, step];
    for (number, text) in numbers.iter_mut().zip(given) {
        if let Some(text) = text {
            *number = text
                .parse()
                .map_err(|_| format!("the JSV sets tasks to '{text:.80}'"))?;
        }
    }
    let list = format!("{}-{}:{}", numbers[0], numbers[1], numbers[2]);
    let indices = values::indices(&list);
    let indices =
        indices.ok_or_else(|| format!("the JSV sets tasks {list}, which there cannot be"))?;
    let throttle = spec.array.as_ref().and_then(|array| array.throttle);
    spec.array = Some(ArraySpec { indices, throttle });
    Ok(())
}

/// Arguments of the script.
fn words(spec: &mut JobSpec, outcome: &Outcome) -> Result<(), String> {
    let own = |name: &str| name.strip_prefix("CMDARG").map(str::to_owned);
    let given: Vec<(String, &String)> = outcome
        .parameters
        .iter()
        .filter_map(|(name, value)| Some((own(name)?, value)))
        .collect();
    if given.is_empty() {
        return Ok(());
    }
    if spec.kind == JobKind::Allocation {
        return Err("the JSV changes the command of a job that its client runs".to_owned());
    }
    let wrong = |text: &str| format!("the JSV sets CMDARG{text:.80}, which there cannot be");
    let mut all = arguments(spec);
    if let Some((_, count)) = given.iter().find(|(name, _)| name == "S") {
        let count = count.parse().ok().filter(|count| *count <= 10_000);
        all.resize(count.ok_or_else(|| wrong("S"))?, String::new());
    }
    for (name, value) in given.iter().filter(|(name, _)| name != "S") {
        let at: usize = name.parse().map_err(|_| wrong(name))?;
        *all.get_mut(at).ok_or_else(|| wrong(name))? = (*value).clone();
    }
    spec.argv = all;
    Ok(())
}

#[cfg(test)]
mod tests;
