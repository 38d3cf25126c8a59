//! `--cpu-bind` and `--mem-bind` of srun(1): what the words mean, and the variables that tell tasks of it. Which
//! CPUs that makes for a task is worked out on the node, which knows its sockets.

use crate::cpuset::CpuSet;
use std::fmt;

/// `--cpu-bind` as it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuBind {
    /// `verbose` or `quiet`.
    pub verbose: Option<bool>,
    /// Kind of binding; `None` is the default of the site or of the fit of tasks to CPUs.
    pub kind: Option<CpuBindKind>,
}

/// Ways to bind tasks to CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuBindKind {
    /// Not at all.
    None,
    /// By local number of the task.
    Rank,
    /// To these CPUs.
    Map(Vec<u32>),
    /// To these sets of CPUs.
    Mask(Vec<CpuSet>),
    /// By local number, to NUMA domains.
    RankLdom,
    /// To these NUMA domains.
    MapLdom(Vec<u32>),
    /// To these sets of NUMA domains.
    MaskLdom(Vec<CpuSet>),
    /// To as much as holds the CPUs that a task is given.
    To(Unit),
}

/// Parts of a node that tasks are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Hardware threads.
    Threads,
    /// Cores.
    Cores,
    /// Sockets.
    Sockets,
    /// NUMA domains.
    Ldoms,
}

/// `--mem-bind` as it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemBind {
    /// `verbose` or `quiet`.
    pub verbose: Option<bool>,
    /// `sort` or `nosort`.
    pub sort: Option<bool>,
    /// `prefer`: other domains may be used when these are full.
    pub prefer: bool,
    /// Kind of binding; `None` binds nothing.
    pub kind: Option<MemBindKind>,
}

/// Ways to bind tasks to memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemBindKind {
    /// Not at all.
    None,
    /// Next to the CPU that asks for the memory.
    Local,
    /// The NUMA domain with the task's local number.
    Rank,
    /// These NUMA domains.
    Map(Vec<u32>),
    /// These sets of NUMA domains.
    Mask(Vec<CpuSet>),
}

/// A text that is no binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoBinding {
    option: &'static str,
    fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    Word(String),
    NoList(&'static str),
    Element(String),
}

impl fmt::Display for NoBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = self.option;
        match &self.fault {
            Fault::Word(word) => write!(f, "unrecognized --{option} argument \"{word}\""),
            Fault::NoList(kind) => write!(f, "missing list for \"--{option}={kind}<list>\""),
            Fault::Element(word) => {
                write!(f, "\"{word}\" in the list of --{option} is not a number")
            }
        }
    }
}

/// Kinds that take a list, with whether its elements are masks.
const CPU_LISTS: [(&str, bool); 4] = [
    ("map_cpu:", false),
    ("mask_cpu:", true),
    ("map_ldom:", false),
    ("mask_ldom:", true),
];
const MEM_LISTS: [(&str, bool); 2] = [("map_mem:", false), ("mask_mem:", true)];

impl CpuBind {
    /// Reads the text of the option.
    ///
    /// # Errors
    /// A word that is not known, or a list that is missing or has something else than numbers in it.
    pub fn parse(text: &str) -> Result<CpuBind, NoBinding> {
        let fail = |fault| NoBinding {
            option: "cpu-bind",
            fault,
        };
        let mut out = CpuBind::default();
        let (words, list) = split(text, &CPU_LISTS).map_err(fail)?;
        for word in words {
            out.kind = Some(match word.to_ascii_lowercase().as_str() {
                "q" | "quiet" => {
                    out.verbose = Some(false);
                    continue;
                }
                "v" | "verbose" => {
                    out.verbose = Some(true);
                    continue;
                }
                "n" | "no" | "none" | "off" => CpuBindKind::None,
                "rank" => CpuBindKind::Rank,
                "rank_ldom" => CpuBindKind::RankLdom,
                "socket" | "sockets" => CpuBindKind::To(Unit::Sockets),
                "core" | "cores" => CpuBindKind::To(Unit::Cores),
                "thread" | "threads" => CpuBindKind::To(Unit::Threads),
                "ldom" | "ldoms" => CpuBindKind::To(Unit::Ldoms),
                _ => return Err(fail(Fault::Word(word.to_owned()))),
            });
        }
        match list {
            Some(List {
                kind: "map_cpu:",
                items,
            }) => out.kind = Some(CpuBindKind::Map(numbers(items).map_err(fail)?)),
            Some(List {
                kind: "mask_cpu:",
                items,
            }) => out.kind = Some(CpuBindKind::Mask(masks(items).map_err(fail)?)),
            Some(List {
                kind: "map_ldom:",
                items,
            }) => out.kind = Some(CpuBindKind::MapLdom(numbers(items).map_err(fail)?)),
            Some(List { items, .. }) => {
                out.kind = Some(CpuBindKind::MaskLdom(masks(items).map_err(fail)?))
            }
            None => {}
        }
        Ok(out)
    }

    /// `SLURM_CPU_BIND` and its parts, as tasks see them.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let verbosity = verbosity(self.verbose);
        let (kind, list) = match &self.kind {
            None => ("none", String::new()),
            Some(kind) => kind.texts(),
        };
        vec![
            ("SLURM_CPU_BIND", format!("{verbosity},{kind}{list}")),
            ("SLURM_CPU_BIND_LIST", list),
            ("SLURM_CPU_BIND_TYPE", kind.to_owned()),
            ("SLURM_CPU_BIND_VERBOSE", verbosity.to_owned()),
        ]
    }
}

/// `CpuBind` of a node or a partition: how tasks are bound whose steps do not say.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, minicbor::Encode, minicbor::Decode, crate::validate::Validate,
)]
#[cbor(index_only)]
pub enum BindDefault {
    /// Not at all.
    #[n(0)]
    None,
    /// To sockets.
    #[n(1)]
    Sockets,
    /// To NUMA domains.
    #[n(2)]
    Ldoms,
    /// To cores.
    #[n(3)]
    Cores,
    /// To hardware threads.
    #[n(4)]
    Threads,
}

/// A word that `CpuBind=` does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {}", BindDefault::WORDS)]
pub struct NoBindDefault;

impl BindDefault {
    /// The words of `CpuBind=`, where it sets a default.
    pub const WORDS: &str = "none, socket, ldom, core, thread or off";

    /// `CpuBind=`; nothing for `off`.
    ///
    /// # Errors
    /// It is none of [`BindDefault::WORDS`].
    pub fn parse(word: &str) -> Result<Option<BindDefault>, NoBindDefault> {
        Ok(Some(match word.to_ascii_lowercase().as_str() {
            // A board is all of a node.
            "none" | "board" => BindDefault::None,
            "socket" | "sockets" => BindDefault::Sockets,
            "ldom" | "ldoms" => BindDefault::Ldoms,
            "core" | "cores" => BindDefault::Cores,
            "thread" | "threads" => BindDefault::Threads,
            "off" => return Ok(None),
            _ => return Err(NoBindDefault),
        }))
    }

    /// As scontrol shows it.
    pub fn name(self) -> &'static str {
        match self {
            BindDefault::None => "none",
            BindDefault::Sockets => "sockets",
            BindDefault::Ldoms => "ldoms",
            BindDefault::Cores => "cores",
            BindDefault::Threads => "threads",
        }
    }

    /// Its number in Slurm's JSON.
    pub fn number(self) -> u32 {
        match self {
            BindDefault::Threads => 0x02,
            BindDefault::Cores => 0x04,
            BindDefault::Sockets => 0x08,
            BindDefault::Ldoms => 0x10,
            BindDefault::None => 0x20,
        }
    }
}

impl CpuBindKind {
    /// Its word, without a list.
    pub fn word(&self) -> &'static str {
        self.texts().0
    }

    /// Word and list, in the form of the option.
    fn texts(&self) -> (&'static str, String) {
        match self {
            CpuBindKind::None => ("none", String::new()),
            CpuBindKind::Rank => ("rank", String::new()),
            CpuBindKind::RankLdom => ("rank_ldom", String::new()),
            CpuBindKind::Map(list) => ("map_cpu:", join(list)),
            CpuBindKind::MapLdom(list) => ("map_ldom:", join(list)),
            CpuBindKind::Mask(list) => ("mask_cpu:", join_masks(list)),
            CpuBindKind::MaskLdom(list) => ("mask_ldom:", join_masks(list)),
            CpuBindKind::To(Unit::Threads) => ("threads", String::new()),
            CpuBindKind::To(Unit::Cores) => ("cores", String::new()),
            CpuBindKind::To(Unit::Sockets) => ("sockets", String::new()),
            CpuBindKind::To(Unit::Ldoms) => ("ldoms", String::new()),
        }
    }
}

impl MemBind {
    /// Reads the text of the option.
    ///
    /// # Errors
    /// As [`CpuBind::parse`].
    pub fn parse(text: &str) -> Result<MemBind, NoBinding> {
        let fail = |fault| NoBinding {
            option: "mem-bind",
            fault,
        };
        let mut out = MemBind::default();
        let (words, list) = split(text, &MEM_LISTS).map_err(fail)?;
        for word in words {
            match word.to_ascii_lowercase().as_str() {
                "q" | "quiet" => out.verbose = Some(false),
                "v" | "verbose" => out.verbose = Some(true),
                "sort" => out.sort = Some(true),
                "nosort" => out.sort = Some(false),
                "p" | "prefer" => out.prefer = true,
                "n" | "no" | "none" => out.kind = Some(MemBindKind::None),
                "local" => out.kind = Some(MemBindKind::Local),
                "rank" => out.kind = Some(MemBindKind::Rank),
                _ => return Err(fail(Fault::Word(word.to_owned()))),
            }
        }
        match list {
            Some(List {
                kind: "map_mem:",
                items,
            }) => out.kind = Some(MemBindKind::Map(numbers(items).map_err(fail)?)),
            Some(List { items, .. }) => {
                out.kind = Some(MemBindKind::Mask(masks(items).map_err(fail)?))
            }
            None => {}
        }
        Ok(out)
    }

    /// `SLURM_MEM_BIND` and its parts, as tasks see them.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let verbosity = verbosity(self.verbose);
        let (kind, list) = match &self.kind {
            None | Some(MemBindKind::None) => ("none", String::new()),
            Some(MemBindKind::Local) => ("local", String::new()),
            Some(MemBindKind::Rank) => ("rank", String::new()),
            Some(MemBindKind::Map(list)) => ("map_mem:", join(list)),
            Some(MemBindKind::Mask(list)) => ("mask_mem:", join_masks(list)),
        };
        let prefer = if self.prefer { "prefer," } else { "" };
        let mut out = vec![
            (
                "SLURM_MEM_BIND",
                format!("{verbosity},{prefer}{kind}{list}"),
            ),
            ("SLURM_MEM_BIND_LIST", list),
            ("SLURM_MEM_BIND_TYPE", kind.to_owned()),
            ("SLURM_MEM_BIND_VERBOSE", verbosity.to_owned()),
        ];
        if self.prefer {
            out.push(("SLURM_MEM_BIND_PREFER", "prefer".to_owned()));
        }
        if let Some(sort) = self.sort {
            let sort = if sort { "sort" } else { "nosort" };
            out.push(("SLURM_MEM_BIND_SORT", sort.to_owned()));
        }
        out
    }
}

/// A set as `0x` and hexadecimal digits, at least `digits` of them.
pub fn mask_text(set: &CpuSet, digits: usize) -> String {
    let mut nibbles: Vec<u8> = Vec::new();
    for cpu in set.iter() {
        let at = (cpu / 4) as usize;
        if nibbles.len() <= at {
            nibbles.resize(at + 1, 0);
        }
        nibbles[at] |= 1 << (cpu % 4);
    }
    nibbles.resize(nibbles.len().max(digits).max(1), 0);
    let text = nibbles
        .iter()
        .rev()
        .map(|n| format!("{n:X}"))
        .collect::<String>();
    format!("0x{text}")
}

type Lists = [(&'static str, bool)];
/// A list of a binding.
struct List<'a> {
    kind: &'static str,
    items: Vec<&'a str>,
}

/// Words before the list, and the list with its kind: it has commas of its own, so it comes last.
fn split<'a>(text: &'a str, kinds: &Lists) -> Result<(Vec<&'a str>, Option<List<'a>>), Fault> {
    let lower = text.to_ascii_lowercase();
    let found = kinds
        .iter()
        .filter_map(|&(kind, _)| lower.find(kind).map(|at| (at, kind)))
        .min();
    let words = |t: &'a str| t.split(',').filter(|w| !w.is_empty()).collect::<Vec<_>>();
    let Some((at, kind)) = found else {
        return Ok((words(text), None));
    };
    let items = words(&text[at + kind.len()..]);
    if items.is_empty() {
        return Err(Fault::NoList(kind));
    }
    Ok((words(&text[..at]), Some(List { kind, items })))
}

/// Most elements that a list may grow to by repetition.
const LIST_MAX: usize = 65_536;
/// Most bytes that all elements have if each were as long as the longest, which is how they are written: as many as
/// [`LIST_MAX`] masks of 128 CPUs have.
const LIST_BYTES_MAX: usize = LIST_MAX * 16;

/// Elements, each repeated as often as its `*N` says; `size` is that of one, in bytes.
fn elements<T: Clone>(
    items: Vec<&str>,
    read: impl Fn(&str) -> Option<T>,
    size: impl Fn(&T) -> usize,
) -> Result<Vec<T>, Fault> {
    let mut out = Vec::new();
    let mut longest = 0;
    for item in items {
        // The author of the list is shown its beginning.
        let bad = || Fault::Element(item.chars().take(80).collect());
        let (value, times) = match item.split_once('*') {
            Some((value, times)) => (value, times.parse::<usize>().map_err(|_| bad())?),
            None => (item, 1),
        };
        let value = read(value).ok_or_else(bad)?;
        longest = longest.max(size(&value));
        if times == 0
            || times > LIST_MAX - out.len()
            || (out.len() + times) * longest > LIST_BYTES_MAX
        {
            return Err(bad());
        }
        out.extend(std::iter::repeat_n(value, times));
    }
    Ok(out)
}

fn numbers(items: Vec<&str>) -> Result<Vec<u32>, Fault> {
    let read = |text: &str| {
        let number = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        };
        number.filter(|n| *n < crate::limits::NODE_CPUS_MAX)
    };
    elements(items, read, |_| size_of::<u32>())
}

fn masks(items: Vec<&str>) -> Result<Vec<CpuSet>, Fault> {
    let read = |text: &str| {
        let hex = text
            .strip_prefix("0x")
            .or(text.strip_prefix("0X"))
            .unwrap_or(text);
        if hex.is_empty() || hex.len() > crate::limits::NODE_CPUS_MAX as usize / 4 {
            return None;
        }
        let mut set = CpuSet::default();
        for (at, digit) in (0u32..).zip(hex.chars().rev()) {
            let bits = digit.to_digit(16)?;
            (0..4)
                .filter(|bit| bits & (1 << bit) != 0)
                .for_each(|bit| set.insert(at * 4 + bit));
        }
        Some(set)
    };
    let size = |set: &CpuSet| set.iter().last().map_or(0, |cpu| cpu as usize / 8 + 1);
    elements(items, read, size)
}

fn verbosity(verbose: Option<bool>) -> &'static str {
    if verbose == Some(true) {
        "verbose"
    } else {
        "quiet"
    }
}

fn join(list: &[u32]) -> String {
    list.iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

fn join_masks(list: &[CpuSet]) -> String {
    let digits = list
        .iter()
        .filter_map(|set| set.iter().last())
        .max()
        .map_or(1, |cpu| (cpu / 4 + 1) as usize);
    let texts: Vec<String> = list.iter().map(|set| mask_text(set, digits)).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[u32]) -> CpuSet {
        cpus.iter().copied().collect()
    }

    #[test]
    fn defaults_of_nodes_and_partitions() {
        for word in ["none", "Socket", "ldom", "CORE", "thread"] {
            let bind = BindDefault::parse(word).unwrap().unwrap();
            assert_eq!(BindDefault::parse(bind.name()), Ok(Some(bind)));
            assert!(bind.name().starts_with(&word.to_lowercase()));
        }
        assert_eq!(BindDefault::parse("off"), Ok(None));
        assert_eq!(BindDefault::parse(""), Err(NoBindDefault));
    }

    #[test]
    fn cpu_bindings() {
        let parse = |t: &str| CpuBind::parse(t).unwrap();
        assert_eq!(
            parse("v"),
            CpuBind {
                verbose: Some(true),
                kind: None
            }
        );
        assert_eq!(parse("Q,Core").kind, Some(CpuBindKind::To(Unit::Cores)));
        assert_eq!(
            parse("map_cpu:1*2,0x5").kind,
            Some(CpuBindKind::Map(vec![1, 1, 5]))
        );
        assert_eq!(
            parse("verbose,mask_cpu:0x3*2,c0").kind,
            Some(CpuBindKind::Mask(vec![
                set(&[0, 1]),
                set(&[0, 1]),
                set(&[6, 7])
            ]))
        );
        let fails = |t: &str| CpuBind::parse(t).unwrap_err().to_string();
        assert_eq!(fails("foo"), "unrecognized --cpu-bind argument \"foo\"");
        assert_eq!(
            fails("q,map_cpu:"),
            "missing list for \"--cpu-bind=map_cpu:<list>\""
        );
        for text in [
            "map_cpu:x",
            "mask_cpu:3*0",
            "map_cpu:1*99999999",
            "mask_cpu:0x",
            "map_cpu:4294967295",
        ] {
            assert!(fails(text).contains("is not a number"), "{text}");
        }
    }

    /// A list is repeated by those who ask for it, and expanded by daemons.
    #[test]
    fn lists_that_are_repeated_have_bounds() {
        let high = format!("0x8{}", "0".repeat(16_383));
        let most = "18446744073709551615";
        for list in [
            format!("{high}*65536"),
            format!("{high},0x1*65535"),
            format!("0x1*65535,{high}"),
            format!("0x1,0x1*{most}"),
            format!("0x1*{most}"),
        ] {
            assert!(CpuBind::parse(&format!("mask_cpu:{list}")).is_err());
            assert!(MemBind::parse(&format!("mask_mem:{list}")).is_err());
        }
        assert!(CpuBind::parse(&format!("map_cpu:1,1*{most}")).is_err());
        let wide = format!("mask_cpu:0x8{}*65536", "0".repeat(31));
        assert!(CpuBind::parse(&wide).is_ok());
        assert!(CpuBind::parse(&format!("mask_cpu:{high}*128")).is_ok());
        assert!(CpuBind::parse("map_cpu:65535*65536").is_ok());
    }

    #[test]
    fn variables_are_those_of_slurm() {
        let show = |v: Vec<(&str, String)>| {
            let parts: Vec<String> = v.into_iter().map(|(n, v)| format!("{n}={v}")).collect();
            parts.join(" ")
        };
        let bind = CpuBind::parse("v,map_cpu:1,0").unwrap();
        assert_eq!(
            show(bind.variables()),
            "SLURM_CPU_BIND=verbose,map_cpu:1,0 SLURM_CPU_BIND_LIST=1,0 SLURM_CPU_BIND_TYPE=map_cpu: \
             SLURM_CPU_BIND_VERBOSE=verbose"
        );
        let bind = CpuBind {
            verbose: None,
            kind: Some(CpuBindKind::Mask(vec![set(&[0]), set(&[8])])),
        };
        assert!(show(bind.variables()).starts_with("SLURM_CPU_BIND=quiet,mask_cpu:0x001,0x100 "));
        let bind = MemBind::parse("v,prefer,map_mem:0").unwrap();
        assert_eq!(
            show(bind.variables()),
            "SLURM_MEM_BIND=verbose,prefer,map_mem:0 SLURM_MEM_BIND_LIST=0 SLURM_MEM_BIND_TYPE=map_mem: \
             SLURM_MEM_BIND_VERBOSE=verbose SLURM_MEM_BIND_PREFER=prefer"
        );
        let bind = MemBind::parse("sort,local").unwrap();
        assert!(show(bind.variables()).ends_with("SLURM_MEM_BIND_SORT=sort"));
        assert!(MemBind::parse("foo").is_err());
    }
}
