//! Resource lists of Torque and PBS, `-l nodes=2:ppn=4,walltime=1:00:00`, as options of sbatch. The commands of Torque read them, and
//! sbatch in lines that begin with `#PBS`. Amounts without a unit mean different things in the two; nothing here reads a file.

mod amounts;
mod chunks;

use super::row::OptionStatus;
use amounts::{memory, time_limit};
use chunks::{NodeChunks, nodes, select};

/// Units of amounts without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmountUnits {
    /// Seconds and bytes, as on Torque's command line.
    Torque,
    /// Minutes and megabytes, as sbatch reads `#PBS` lines.
    Slurm,
}

/// An option of sbatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SbatchOption {
    /// Its long name.
    pub long: &'static str,
    /// Its value, if it has one.
    pub value: Option<String>,
}

/// Command whose options are made of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceReader {
    /// Options of Torque's qsub, which refuses unknown requests, and has `ppn` tasks on each node.
    Qsub,
    /// Options of sbatch, which ignores unknown requests, and lays tasks out freely.
    Sbatch,
}

/// Requested resources, by name. A later request of a name takes the place of an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TorqueResources(Vec<TorqueResource>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct TorqueResource {
    name: String,
    value: String,
    units: AmountUnits,
}

/// Options of sbatch for a list of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SbatchResources {
    /// Options of sbatch.
    pub options: Vec<SbatchOption>,
    /// Requests that change nothing, and why.
    pub without_effect: Vec<(String, &'static str)>,
}

/// Meaning of a name.
enum ResourceKind {
    Nodes,
    Select,
    /// The job's limit.
    TimeLimit,
    /// The job's limit where there is no `walltime`.
    CpuTime,
    /// Memory of each node.
    NodeMemory,
    /// Memory of each process.
    TaskMemory,
    /// Memory of each process, in megabytes without a unit.
    Megabytes,
    /// Space for files of the job.
    Disk,
    /// A number, the value of the option.
    Number(&'static str),
    /// A text, the value of the option.
    Text(&'static str),
    /// GPUs of each node.
    Gpus,
    /// One GPU of each node, if it is `true`.
    Gpu,
    Place,
    AccessPolicy,
    /// It changes nothing.
    WithoutEffect(&'static str),
    Refused(&'static str),
}

const OF_SITE: &str = "features distinguish nodes; ask for one in nodes=N:FEATURE";

/// The names, those that Slurm's commands know first.
const NAMES: [(&str, ResourceKind); 46] = [
    ("nodes", ResourceKind::Nodes),
    ("select", ResourceKind::Select),
    ("walltime", ResourceKind::TimeLimit),
    ("h_rt", ResourceKind::TimeLimit),
    ("cput", ResourceKind::CpuTime),
    ("mem", ResourceKind::NodeMemory),
    ("vmem", ResourceKind::NodeMemory),
    ("h_vmem", ResourceKind::Megabytes),
    ("pmem", ResourceKind::TaskMemory),
    ("pvmem", ResourceKind::TaskMemory),
    ("mppmem", ResourceKind::TaskMemory),
    ("file", ResourceKind::Disk),
    ("ncpus", ResourceKind::Number("mincpus")),
    ("procs", ResourceKind::Number("ntasks")),
    ("nice", ResourceKind::Number("nice")),
    ("mppwidth", ResourceKind::Number("ntasks")),
    ("mppnppn", ResourceKind::Number("ntasks-per-node")),
    ("mppdepth", ResourceKind::Number("cpus-per-task")),
    ("ompthreads", ResourceKind::Number("cpus-per-task")),
    ("mppnodes", ResourceKind::Text("nodelist")),
    ("host", ResourceKind::Text("nodelist")),
    ("vnode", ResourceKind::Text("nodelist")),
    ("proc", ResourceKind::Text("constraint")),
    ("feature", ResourceKind::Text("constraint")),
    ("partition", ResourceKind::Text("partition")),
    ("qos", ResourceKind::Text("qos")),
    ("advres", ResourceKind::Text("reservation")),
    ("reservation", ResourceKind::Text("reservation")),
    ("gpus", ResourceKind::Gpus),
    ("ngpus", ResourceKind::Gpus),
    ("naccelerators", ResourceKind::Gpus),
    ("accelerator", ResourceKind::Gpu),
    ("place", ResourceKind::Place),
    ("naccesspolicy", ResourceKind::AccessPolicy),
    (
        "pcput",
        ResourceKind::WithoutEffect(
            "CPU time of a process is not limited; set a limit by ulimit -t",
        ),
    ),
    ("arch", ResourceKind::WithoutEffect(OF_SITE)),
    ("opsys", ResourceKind::WithoutEffect(OF_SITE)),
    ("other", ResourceKind::WithoutEffect(OF_SITE)),
    (
        "size",
        ResourceKind::WithoutEffect("ask for nodes=N or procs=N"),
    ),
    (
        "software",
        ResourceKind::WithoutEffect("licenses are asked for by #SBATCH --licenses=NAME:COUNT"),
    ),
    (
        "neednodes",
        ResourceKind::WithoutEffect("it is what the scheduler of Torque writes; ask for nodes"),
    ),
    (
        "nodect",
        ResourceKind::WithoutEffect("it is counted from nodes or select"),
    ),
    (
        "mics",
        ResourceKind::Refused("there are no such devices; ask for gpus"),
    ),
    (
        "prologue",
        ResourceKind::Refused("only the site's programs run before jobs"),
    ),
    (
        "epilogue",
        ResourceKind::Refused("only the site's programs run after jobs"),
    ),
    (
        "gres",
        ResourceKind::Refused("write #SBATCH --gres or #SBATCH --licenses"),
    ),
];

/// The names, and what becomes of a request.
pub fn statuses() -> impl Iterator<Item = (&'static str, OptionStatus)> {
    NAMES.iter().map(|(name, kind)| {
        let status = match kind {
            ResourceKind::WithoutEffect(why) => OptionStatus::StoredOnly { why, warn: true },
            ResourceKind::Refused(why) => OptionStatus::Refused(why),
            _ => OptionStatus::Works,
        };
        (*name, status)
    })
}

impl TorqueResources {
    /// Adds a list. Commas separate requests.
    ///
    /// # Errors
    /// A request without a name.
    pub fn add(&mut self, list: &str, units: AmountUnits) -> Result<(), String> {
        for word in list.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            if name.is_empty() {
                return Err(format!("\"{list}\" has a request without a name"));
            }
            self.0.retain(|own| own.name != name);
            self.0.push(TorqueResource {
                name: name.to_owned(),
                value: value.to_owned(),
                units,
            });
        }
        Ok(())
    }

    /// Whether a name was requested.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|own| own.name == name)
    }

    /// The options that the requests mean.
    ///
    /// # Errors
    /// A request that is malformed, or that is refused.
    pub fn translated(&self, reader: ResourceReader) -> Result<SbatchResources, String> {
        let mut out = SbatchResources::default();
        for request in &self.0 {
            let (name, value) = (&request.name, &request.value);
            let known = NAMES.iter().find(|(own, _)| own == name);
            match (known, reader) {
                (Some((_, kind)), _) => self
                    .take(kind, request, reader, &mut out)
                    .map_err(|why| format!("-l {name}={value}: {why}"))?,
                (None, ResourceReader::Qsub) => {
                    return Err(format!("-l {name}: there is no such resource"));
                }
                (None, ResourceReader::Sbatch) => {
                    out.ignored(name, "there is no such resource");
                }
            }
        }
        Ok(out)
    }

    fn take(
        &self,
        kind: &ResourceKind,
        request: &TorqueResource,
        reader: ResourceReader,
        out: &mut SbatchResources,
    ) -> Result<(), String> {
        let (value, units) = (request.value.as_str(), request.units);
        let wrong = |what: &str| Err(format!("it is {what}"));
        match kind {
            ResourceKind::Nodes => out.chunks(&nodes(value)?, reader),
            ResourceKind::Select => out.chunks(&select(value)?, reader),
            ResourceKind::TimeLimit => out.set("time", time_limit(value, units)?),
            ResourceKind::CpuTime if self.has("walltime") => {
                out.ignored(&request.name, "walltime is the job's limit");
            }
            ResourceKind::CpuTime => out.set("time", time_limit(value, units)?),
            ResourceKind::NodeMemory if request.name != "mem" && self.has("mem") => {
                out.ignored(&request.name, "mem is the job's limit");
            }
            ResourceKind::NodeMemory => out.set("mem", format!("{}M", memory(value, units)?)),
            ResourceKind::Megabytes => {
                out.set("mem", format!("{}M", memory(value, AmountUnits::Slurm)?))
            }
            ResourceKind::TaskMemory
                if self.has("mem") || request.name != "pmem" && self.has("pmem") =>
            {
                let which = if self.has("mem") {
                    "mem is the job's limit"
                } else {
                    "pmem is the limit of its processes"
                };
                out.ignored(&request.name, which);
            }
            ResourceKind::TaskMemory => {
                out.set("mem-per-cpu", format!("{}M", memory(value, units)?))
            }
            ResourceKind::Disk => out.set("tmp", format!("{}M", memory(value, units)?)),
            ResourceKind::Number("ntasks") if request.name == "procs" && self.has("nodes") => {
                out.ignored("procs", "nodes=N:ppn=M says how many there are");
            }
            ResourceKind::Number(long) => match value.parse::<i64>() {
                Ok(number) => out.set(long, number.to_string()),
                Err(_) => return wrong("no number"),
            },
            ResourceKind::Text(_) if value.is_empty() => return wrong("empty"),
            ResourceKind::Text(long) => out.set(long, value.replace('+', ",")),
            ResourceKind::Gpus => match value.parse::<u32>() {
                Ok(count) => out.set("gres", format!("gpu:{count}")),
                Err(_) => return wrong("no number"),
            },
            ResourceKind::Gpu if value.eq_ignore_ascii_case("true") => {
                out.set("gres", "gpu:1".to_owned());
            }
            ResourceKind::Gpu => {}
            ResourceKind::Place => place(value, out)?,
            ResourceKind::AccessPolicy => match value.to_ascii_lowercase().as_str() {
                "singlejob" | "singletask" => out.flag("exclusive"),
                "singleuser" | "uniqueuser" => out.set("exclusive", "user".to_owned()),
                "shared" => {}
                _ => return wrong("not one of singlejob, singleuser, shared"),
            },
            ResourceKind::WithoutEffect(why) => out.ignored(&request.name, why),
            ResourceKind::Refused(why) => return Err((*why).to_owned()),
        }
        Ok(())
    }
}

/// `place=scatter:excl`.
fn place(value: &str, out: &mut SbatchResources) -> Result<(), String> {
    for word in value.split(':') {
        match word {
            "free" | "scatter" | "vscatter" | "shared" => {}
            "excl" | "exclhost" => out.flag("exclusive"),
            "pack" => out.ignored("place=pack", "each chunk of select is a node of its own"),
            other => {
                return Err(format!(
                    "'{other}' is not one of free, scatter, pack, shared, excl, exclhost"
                ));
            }
        }
    }
    Ok(())
}

impl SbatchResources {
    fn set(&mut self, long: &'static str, value: String) {
        self.put(long, Some(value));
    }

    fn flag(&mut self, long: &'static str) {
        self.put(long, None);
    }

    fn put(&mut self, long: &'static str, value: Option<String>) {
        self.options.retain(|own| own.long != long);
        self.options.push(SbatchOption { long, value });
    }

    fn ignored(&mut self, name: &str, why: &'static str) {
        self.without_effect.push((format!("-l {name}"), why));
    }

    fn chunks(&mut self, chunks: &NodeChunks, reader: ResourceReader) {
        self.set("nodes", chunks.nodes.to_string());
        if let Some(tasks) = chunks.tasks {
            self.set("ntasks", tasks.to_string());
        }
        let each = chunks.tasks_of_each;
        let each = each.filter(|_| reader == ResourceReader::Qsub || chunks.of_select);
        if let Some(each) = each {
            self.set("ntasks-per-node", each.to_string());
        }
        if let Some(cpus) = chunks.cpus {
            self.set("mincpus", cpus.to_string());
        }
        if let Some(cpus) = chunks.cpus_of_task {
            self.set("cpus-per-task", cpus.to_string());
        }
        if let Some(mib) = chunks.mib {
            self.set("mem", format!("{mib}M"));
        }
        if let Some(gpus) = chunks.gpus {
            self.set("gpus-per-node", gpus.to_string());
        }
        if !chunks.hosts.is_empty() {
            self.set("nodelist", chunks.hosts.join(","));
        }
        if !chunks.features.is_empty() {
            self.set("constraint", chunks.features.join("&"));
        }
    }

    /// The options as words of a command line.
    pub fn words(&self) -> Vec<String> {
        let word = |own: &SbatchOption| match &own.value {
            Some(value) => format!("--{}={value}", own.long),
            None => format!("--{}", own.long),
        };
        self.options.iter().map(word).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(list: &str, units: AmountUnits) -> Result<String, String> {
        let mut all = TorqueResources::default();
        all.add(list, units)?;
        let reader = match units {
            AmountUnits::Torque => ResourceReader::Qsub,
            AmountUnits::Slurm => ResourceReader::Sbatch,
        };
        Ok(all.translated(reader)?.words().join(" "))
    }

    /// Options in Slurm 22.05 for the lists, but for tasks of each node.
    #[test]
    fn lists_mean_options_of_sbatch() {
        for (list, want) in [
            ("nodes=2", "--nodes=2"),
            ("nodes=2:ppn=3", "--nodes=2 --ntasks=6 --ntasks-per-node=3"),
            ("nodes=2+ppn=3", "--nodes=2 --ntasks=6 --ntasks-per-node=3"),
            (
                "nodes=1:ppn=2:gpus=1",
                "--nodes=1 --ntasks=2 --ntasks-per-node=2 --gpus-per-node=1",
            ),
            (
                "nodes=n1:ppn=2+n2:ppn=3",
                "--nodes=2 --ntasks=5 --nodelist=n1,n2",
            ),
            (
                "nodes=1:bigmem:ppn=2",
                "--nodes=1 --ntasks=2 --ntasks-per-node=2 --constraint=bigmem",
            ),
            ("walltime=90", "--time=2"),
            ("walltime=1:30", "--time=2"),
            ("walltime=1:00:30", "--time=61"),
            ("walltime=2:00:00:00", "--time=2880"),
            ("walltime=5,walltime=600", "--time=10"),
            ("cput=1:00:00", "--time=60"),
            ("mem=1gb", "--mem=1024M"),
            ("mem=2048", "--mem=1M"),
            ("mem=500kb", "--mem=1M"),
            ("mem=1tb", "--mem=1048576M"),
            ("mem=100mw", "--mem=800M"),
            ("pmem=3gb,pvmem=4gb", "--mem-per-cpu=3072M"),
            ("h_rt=300,h_vmem=3000", "--time=5 --mem=3000M"),
            (
                "ncpus=4,nice=3,file=10gb",
                "--mincpus=4 --nice=3 --tmp=10240M",
            ),
            ("procs=5", "--ntasks=5"),
            (
                "select=2:ncpus=4:mpiprocs=2:mem=3gb",
                "--nodes=2 --ntasks=4 --ntasks-per-node=2 --mincpus=4 --cpus-per-task=2 --mem=3072M",
            ),
            ("select=2", "--nodes=2 --ntasks=2 --ntasks-per-node=1"),
            (
                "select=1:ncpus=2+1:ncpus=2,place=scatter:excl",
                "--nodes=2 --ntasks=2 --ntasks-per-node=1 --mincpus=2 --cpus-per-task=2 --exclusive",
            ),
            ("naccelerators=2", "--gres=gpu:2"),
            ("accelerator=true", "--gres=gpu:1"),
            (
                "mppwidth=8,mppnppn=4,mppdepth=2",
                "--ntasks=8 --ntasks-per-node=4 --cpus-per-task=2",
            ),
            ("host=n2", "--nodelist=n2"),
        ] {
            assert_eq!(of(list, AmountUnits::Torque), Ok(want.to_owned()), "{list}");
        }
        for (list, want) in [
            ("nodes=2:ppn=3", "--nodes=2 --ntasks=6"),
            ("walltime=5", "--time=5"),
            ("walltime=1:00:00", "--time=1:00:00"),
            ("mem=2048", "--mem=2048M"),
            ("nosuch=1,mem=1gb", "--mem=1024M"),
        ] {
            assert_eq!(of(list, AmountUnits::Slurm), Ok(want.to_owned()), "{list}");
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (list, want) in [
            ("nosuch=1", "-l nosuch: there is no such resource"),
            ("=5", "\"=5\" has a request without a name"),
            ("ncpus=many", "-l ncpus=many: it is no number"),
            (
                "walltime=soon",
                "-l walltime=soon: it is no time: [[[DAYS:]HOURS:]MINUTES:]SECONDS",
            ),
            (
                "mem=1xb",
                "-l mem=1xb: it is no amount of memory: a number with b, kb, mb, gb, tb or kw, mw, gw",
            ),
            ("nodes=0", "-l nodes=0: there are no nodes in it"),
            ("nodes=2:ppn=x", "-l nodes=2:ppn=x: ppn is no number"),
            (
                "nodes=1:fat+1:thin",
                "-l nodes=1:fat+1:thin: all nodes of a job have the same features; use #SBATCH hetjob",
            ),
            (
                "select=1:ncpus=2+1:ncpus=4",
                "-l select=1:ncpus=2+1:ncpus=4: all chunks of a job are the same; use #SBATCH hetjob",
            ),
            (
                "gres=matlab",
                "-l gres=matlab: write #SBATCH --gres or #SBATCH --licenses",
            ),
            (
                "place=here",
                "-l place=here: 'here' is not one of free, scatter, pack, shared, excl, exclhost",
            ),
        ] {
            assert_eq!(
                of(list, AmountUnits::Torque),
                Err(want.to_owned()),
                "{list}"
            );
        }
    }

    #[test]
    fn requests_without_effect_are_listed() {
        let mut all = TorqueResources::default();
        all.add("arch=x,nosuch=1,mem=1gb,pmem=1gb", AmountUnits::Slurm)
            .unwrap();
        let named: Vec<String> = all
            .translated(ResourceReader::Sbatch)
            .unwrap()
            .without_effect
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(named, ["-l arch", "-l nosuch", "-l pmem"]);
    }

    proptest! {
        #[test]
        fn never_panics(list in "((nodes|select|walltime|mem|place|ncpus)=)?[0-9a-z:+=,]{0,24}") {
            let _ = of(&list, AmountUnits::Torque);
            let _ = of(&list, AmountUnits::Slurm);
        }
    }
}
