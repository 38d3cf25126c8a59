//! `l_hard`: all requests of a job, as names and values, from its specification and not from its client's text.

use super::{Site, complex_of, set_mark};
use muster_conf::grid_engine::resources::Resources;
use muster_conf::grid_engine::resources::split;
use muster_conf::grid_engine::{ComplexTarget, CountedPer};
use muster_conf::job_classes::rule::{Access, Element};
use muster_conf::options::values;
use muster_model::grid_engine as marks;
use muster_model::licenses::{self, LicenseCount};
use muster_model::spec::{
    DeviceAsk, DeviceBinding, GresAsk, JobSpec, MemoryAsk, ResourceAsk, Segments, Sharing,
};
use muster_model::time::TimeLimit;
use std::collections::HashMap;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// A name of Grid Engine's, or the option of sbatch.
    pub(crate) key: String,
    /// Its value.
    pub(crate) value: String,
    /// The devices and licenses that it is for, of whatever type and however they are counted.
    pub(crate) things: Vec<Thing>,
}

/// A device or license; requests with different keys may be for the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    Device(String),
    License(String),
}

impl Request {
    /// Whether it is for something that another is for.
    pub(crate) fn shares_with(&self, other: &Request) -> bool {
        self.things.iter().any(|own| other.things.contains(own))
    }
}

/// Requests while they are gathered.
struct Requests<'a> {
    site: &'a Site,
    all: Vec<Request>,
}

impl Requests<'_> {
    fn add(&mut self, key: &str, value: impl ToString) {
        self.all.push(Request {
            key: key.to_owned(),
            value: value.to_string(),
            things: Vec::new(),
        });
    }

    /// Adds a number of things; they are added up where they are named again.
    fn count(&mut self, key: String, count: u64, thing: Thing) {
        let known = self.all.iter_mut().find(|own| own.key == key);
        let before = known.and_then(|own| Some((own.value.parse::<u64>().ok()?, own)));
        match before {
            Some((before, own)) => {
                own.value = before.saturating_add(count).to_string();
                if !own.things.contains(&thing) {
                    own.things.push(thing);
                }
            }
            None => self.all.push(Request {
                key,
                value: count.to_string(),
                things: vec![thing],
            }),
        }
    }

    fn maybe<T: ToString>(&mut self, key: &str, value: Option<T>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }

    /// The name of a complex, or the thing's own.
    fn name(&self, target: &ComplexTarget, own: String) -> String {
        let mut all = self.site.mapping.complexes.iter();
        all.find(|(_, other)| other == target)
            .map_or(own, |(name, _)| name.clone())
    }

    fn devices(&mut self, devices: &DeviceAsk) {
        let DeviceAsk {
            per_job,
            per_socket,
            per_task,
            cpus_per_gpu,
            mib_per_gpu,
            ntasks_per_gpu,
            binding,
        } = devices;
        for (list, per) in [(per_task, CountedPer::Slot), (per_job, CountedPer::Job)] {
            for gres in list {
                let own = complex_of(gres, per, self.site);
                let kind = if per == CountedPer::Slot {
                    "task"
                } else {
                    "job"
                };
                let key = own.unwrap_or_else(|| format!("{}-per-{kind}", full_name(gres)));
                self.count(key, gres.count, Thing::Device(gres.name.clone()));
            }
        }
        for gres in per_socket {
            let key = format!("{}-per-socket", full_name(gres));
            self.count(key, gres.count, Thing::Device(gres.name.clone()));
        }
        self.maybe("cpus-per-gpu", *cpus_per_gpu);
        self.maybe("mem-per-gpu", *mib_per_gpu);
        self.maybe("ntasks-per-gpu", *ntasks_per_gpu);
        if *binding != DeviceBinding::Preferred {
            self.add("gres-flags", "given");
        }
    }

    fn ask(&mut self, ask: &ResourceAsk) {
        // Each field is here or in `layout`.
        let ResourceAsk {
            min_nodes: _,
            max_nodes: _,
            ntasks: _,
            cpus_per_task: _,
            ntasks_per_node: _,
            ntasks_per_socket: _,
            ntasks_per_core: _,
            overcommit: _,
            distribution: _,
            spread: _,
            use_min_nodes: _,
            nodes_set: _,
            contiguous: _,
            task_range: _,
            prefer: _,
            min_cpus_per_node,
            memory,
            tmp_disk_mib,
            gres,
            constraint,
            nodelist,
            exclude,
            sharing,
            sockets_per_node,
            cores_per_socket,
            threads_per_core,
            core_spec,
            switches,
            devices,
            segment,
            segments,
            thread_spec,
            batch,
        } = ask;
        match memory {
            MemoryAsk::Default => {}
            MemoryAsk::PerCpu(mib) => self.add("h_vmem", format!("{mib}M")),
            MemoryAsk::PerNode(mib) => self.add("mem", format!("{mib}M")),
        }
        for own in gres {
            let key = complex_of(own, CountedPer::Host, self.site);
            let key = key.unwrap_or_else(|| full_name(own));
            self.count(key, own.count, Thing::Device(own.name.clone()));
        }
        if let Some(devices) = devices {
            self.devices(devices);
        }
        self.constraint(constraint.as_deref().unwrap_or_default());
        match sharing {
            Sharing::Default => {}
            Sharing::Exclusive => self.add("exclusive", "TRUE"),
            Sharing::ExclusiveUser => self.add("exclusive", "user"),
            Sharing::ExclusiveMcs => self.add("exclusive", "mcs"),
            Sharing::Oversubscribe => self.add("oversubscribe", "TRUE"),
        }
        self.maybe("num_proc", *min_cpus_per_node);
        self.maybe("tmp", Some(*tmp_disk_mib).filter(|mib| *mib > 0));
        self.maybe("nodelist", nodelist.as_ref());
        self.maybe("exclude", exclude.as_ref());
        self.maybe("sockets-per-node", *sockets_per_node);
        self.maybe("cores-per-socket", *cores_per_socket);
        self.maybe("threads-per-core", *threads_per_core);
        self.maybe("core-spec", *core_spec);
        self.maybe("thread-spec", *thread_spec);
        self.maybe("switches", switches.map(|asked| asked.count));
        self.maybe("segment", *segment);
        self.maybe("batch", batch.as_ref());
        if *segments != Segments::Anywhere {
            self.add("segments", "given");
        }
    }

    /// Features that must all be there, one by one; anything else as it is.
    fn constraint(&mut self, text: &str) {
        let is_plain = !text.contains(['|', '*', '[', '(', ',']);
        for feature in text.split('&').filter(|own| is_plain && !own.is_empty()) {
            let feature = feature.trim().to_owned();
            let key = self.name(
                &ComplexTarget::Feature(feature.clone()),
                format!("feature:{feature}"),
            );
            self.add(&key, "TRUE");
        }
        if !is_plain {
            self.add("constraint", text);
        }
    }
}

/// The requests of a job.
pub(crate) fn of(spec: &JobSpec, site: &Site) -> Vec<Request> {
    let mut requests = Requests {
        site,
        all: Vec::new(),
    };
    let limit = |limit: TimeLimit| {
        limit
            .seconds()
            .map_or("INFINITY".to_owned(), |s| s.to_string())
    };
    requests.maybe("h_rt", spec.time_limit.map(limit));
    requests.maybe("time-min", spec.time_min.map(limit));
    requests.ask(&spec.ask);
    let licenses = spec.licenses.as_deref().unwrap_or_default();
    let Some(counts) = licenses::parse(licenses).filter(|_| !licenses.contains('|')) else {
        // Which of them the job gets is not known.
        let named = licenses.split(['|', ',', ';']).map(|license| {
            let name = license.split([':', '=']).next().unwrap_or_default();
            Thing::License(name.trim().to_owned())
        });
        requests.all.push(Request {
            key: "licenses".to_owned(),
            value: licenses.to_owned(),
            things: named.collect(),
        });
        return requests.all;
    };
    for LicenseCount { name, count } in counts {
        let key = requests.name(
            &ComplexTarget::License(name.clone()),
            format!("license:{name}"),
        );
        requests.count(key, u64::from(count), Thing::License(name));
    }
    requests.all
}

/// The request of an element of a class.
///
/// # Errors
/// No job can ask for it.
pub(crate) fn of_element(element: &Element, site: &Site) -> Result<Request, String> {
    let mut blank = JobSpec::default();
    put(&mut blank, element, site)?;
    let first = of(&blank, site).into_iter().next();
    first.ok_or_else(|| format!("the class asks for no {}", element.key))
}

/// Adds what an element of a class asks for to what a job asks for.
///
/// # Errors
/// No job can ask for it.
pub(crate) fn put(spec: &mut JobSpec, element: &Element, site: &Site) -> Result<(), String> {
    let mut all = Resources::default();
    all.add(
        (&element.key, element.value.as_deref()),
        &site.mapping,
        &site.gres,
    )?;
    let minutes = |s: u64| u32::try_from(s.div_ceil(60).max(1)).unwrap_or(u32::MAX);
    if let Some(seconds) = all.limit_s {
        spec.time_limit = Some(TimeLimit::Minutes(minutes(seconds)));
    } else if ["h_rt", "rt"].contains(&element.key.as_str()) {
        spec.time_limit = Some(TimeLimit::Unlimited);
    }
    let ask = &mut spec.ask;
    if all.slot_bytes > 0 {
        ask.memory = MemoryAsk::PerCpu(all.slot_bytes.div_ceil(1 << 20));
    }
    for (name, count, per) in &all.gres {
        let (name, kind) = name.split_once(':').unwrap_or((name, ""));
        let kind = Some(kind.to_owned()).filter(|kind| !kind.is_empty());
        let devices = match per {
            CountedPer::Host => &mut ask.gres,
            CountedPer::Slot => &mut ask.devices.get_or_insert_default().per_task,
            CountedPer::Job => &mut ask.devices.get_or_insert_default().per_job,
        };
        values::push_gres(devices, name, kind, *count);
    }
    let joined = |old: &Option<String>, new: String, by: &str| match old.as_deref() {
        None | Some("") => Some(new),
        Some(old) if by == "&" && old.contains('|') => Some(format!("({old}){by}{new}")),
        Some(old) => Some(format!("{old}{by}{new}")),
    };
    for (name, count) in &all.licenses {
        spec.licenses = joined(&spec.licenses, format!("{name}:{count}"), ",");
    }
    for feature in &all.features {
        ask.constraint = joined(&ask.constraint, feature.clone(), "&");
    }
    if all.exclusive {
        ask.sharing = Sharing::Exclusive;
    }
    if let Some(count) = all.processors {
        ask.min_cpus_per_node = u32::try_from(count).ok();
    }
    add_mark(spec, &element.text());
    Ok(())
}

/// Devices and licenses that a job asks for and for which the site has no name of Grid Engine's, as elements of a list: by names of
/// their own.
pub(super) fn unnamed(spec: &JobSpec, site: &Site) -> Vec<String> {
    let of_devices = |list: &[GresAsk], per: CountedPer| -> Vec<GresAsk> {
        let unnamed = |gres: &&GresAsk| complex_of(gres, per, site).is_none();
        list.iter().filter(unnamed).cloned().collect()
    };
    let devices = spec.ask.devices();
    let own = JobSpec {
        licenses: spec.licenses.clone(),
        ask: ResourceAsk {
            gres: of_devices(&spec.ask.gres, CountedPer::Host),
            devices: Some(Box::new(DeviceAsk {
                per_job: of_devices(&devices.per_job, CountedPer::Job),
                per_socket: devices.per_socket.clone(),
                per_task: of_devices(&devices.per_task, CountedPer::Slot),
                ..DeviceAsk::default()
            })),
            ..ResourceAsk::default()
        },
        ..JobSpec::default()
    };
    let mut all = of(&own, site);
    all.retain(|request| site.mapping.complex(&request.key).is_none());
    // These separate elements.
    let plain = |text: &str| text.replace([',', '='], "|");
    all.iter()
        .map(|own| format!("{}={}", plain(&own.key), plain(&own.value)))
        .collect()
}

/// A device's name and type.
pub(super) fn full_name(gres: &GresAsk) -> String {
    match &gres.kind {
        Some(kind) => format!("{}:{kind}", gres.name),
        None => gres.name.clone(),
    }
}

/// Whether a list of requests, as a client says that it was given, is what a job really asks for. Hosts and queues are not
/// compared.
pub(super) fn are_requests_of(list: &str, spec: &JobSpec, site: &Site) -> bool {
    let Ok(words) = split(list) else {
        return false;
    };
    let apart = ["h", "host", "hostname", "q", "qname", "s_rt", "a", "arch"];
    let mut blank = JobSpec::default();
    // One that is there twice with two values, be it by another name, means one of them, and a verifier may read the other.
    let mut seen: HashMap<String, String> = HashMap::new();
    let mut soft = words.iter().filter(|(key, _)| key == "s_rt");
    if let Some((_, first)) = soft.next()
        && soft.any(|(_, value)| value != first)
    {
        return false;
    }
    for (key, value) in words
        .iter()
        .filter(|(key, _)| !apart.contains(&key.as_str()))
    {
        let element = Element {
            access: Access::default(),
            key: key.clone(),
            value: value.clone(),
        };
        if put(&mut blank, &element, site).is_err() {
            return false;
        }
        // An element that asks for nothing has no other name.
        let own = of_element(&element, site).unwrap_or_else(|_| Request {
            key: key.clone(),
            value: value.clone().unwrap_or_default(),
            things: Vec::new(),
        });
        // Counts are added up, also equal ones.
        if let Some(before) = seen.insert(own.key, own.value.clone())
            && (before != own.value || !own.things.is_empty())
        {
            return false;
        }
    }
    for (key, value) in words.iter().filter(|(key, _)| key == "s_rt") {
        let mut soft = Resources::default();
        let added = soft.add((key, value.as_deref()), &site.mapping, &site.gres);
        if added.is_err() {
            return false;
        }
        // From a soft limit alone qsub makes a limit of a minute more.
        if let (Some(s), None) = (soft.warn_after_s, blank.time_limit) {
            let minutes = u32::try_from(s.div_ceil(60).max(1)).unwrap_or(u32::MAX);
            blank.time_limit = Some(TimeLimit::Minutes(minutes.saturating_add(1)));
        }
    }
    let compared = |spec: &JobSpec| {
        let mut all = of(spec, site);
        all.retain(|own| {
            let is_apart = ["nodelist", "exclude"].contains(&own.key.as_str());
            !is_apart && own.value != "0"
        });
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    };
    compared(&blank) == compared(spec)
}

/// Requests of a class, for the marks that listings of Grid Engine show.
fn add_mark(spec: &mut JobSpec, text: &str) {
    if !marks::is_marked(spec) {
        return;
    }
    let list = match marks::value(spec, marks::HARD) {
        Some(own) if !own.is_empty() => format!("{own},{text}"),
        _ => text.to_owned(),
    };
    set_mark(spec, marks::HARD, &list, true);
}
