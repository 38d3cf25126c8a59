//! `--distribution` of sbatch(1) and srun(1): which node each task goes to, and which of the node's CPUs it gets.
//!
//! `{*|block|cyclic|arbitrary|plane=N}[:{*|block|cyclic|fcyclic}[:...]][,{Pack|NoPack}]`: nodes, sockets, cores. Jobs
//! and steps keep the text; this is its parsed form.

use std::fmt;

/// A distribution that was asked for. What it leaves open has the default of the code that lays tasks out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Over nodes; `None` is `*`, or nothing.
    pub nodes: Option<NodeSpread>,
    /// CPUs for binding, over the sockets of a node.
    pub sockets: Option<CpuSpread>,
    /// Likewise over the cores of a socket.
    pub cores: Option<CpuSpread>,
    /// `Pack`: as few nodes as will do, each filled before the next; `NoPack` is false.
    pub pack: Option<bool>,
    /// Number of levels (nodes, sockets, cores) given, `*` included.
    levels: u8,
}

/// Distribution of tasks to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeSpread {
    /// Neighbours share a node.
    Block,
    /// One after another over all nodes.
    Cyclic,
    /// So many neighbours on a node, then the next node.
    Plane(u32),
    /// As a list of nodes says.
    Arbitrary,
}

/// Distribution of CPUs to tasks within a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuSpread {
    /// One socket (or core) is used up before the next.
    Block,
    /// Each task is on one, the next task on the next.
    Cyclic,
    /// Each CPU of a task is on another.
    FullCyclic,
}

/// Why a text is no distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDistribution {
    /// `plane` without a size, or with something after it.
    PlaneSize,
    /// Anything else.
    Unknown,
}

impl Distribution {
    /// Reads the text of the option.
    ///
    /// # Errors
    /// When it is not in the grammar above; letter case does not matter.
    pub fn parse(text: &str) -> Result<Distribution, NoDistribution> {
        let text = text.to_ascii_lowercase();
        let mut out = Distribution::default();
        let mut parts = text.split(',');
        let levels = parts.next().unwrap_or("");
        let flags = match levels {
            "pack" | "nopack" => [levels].into_iter().chain(parts),
            _ => [""].into_iter().chain(parts),
        };
        for flag in flags.filter(|f| !f.is_empty()) {
            out.pack = Some(match flag {
                "pack" => true,
                "nopack" => false,
                _ => return Err(NoDistribution::Unknown),
            });
        }
        if matches!(levels, "pack" | "nopack") {
            return Ok(out);
        }
        if levels.is_empty() && !text.is_empty() {
            return Err(NoDistribution::Unknown);
        }
        out.levels = match levels {
            "" => 0,
            levels => u8::try_from(levels.split(':').count()).unwrap_or(u8::MAX),
        };
        let mut levels = levels.split(':');
        let first = levels.next().unwrap_or("");
        out.nodes = node_spread(first)?;
        out.sockets = levels.next().map_or(Ok(None), cpu_spread)?;
        out.cores = levels.next().map_or(Ok(None), cpu_spread)?;
        let plane = matches!(out.nodes, Some(NodeSpread::Plane(_)));
        if plane && first.len() < text.len() && text.contains(':') {
            return Err(NoDistribution::PlaneSize);
        }
        match levels.next() {
            Some(_) => Err(NoDistribution::Unknown),
            None => Ok(out),
        }
    }

    /// The text of `SLURM_DISTRIBUTION`; the size of planes has a variable of its own.
    pub fn variable(&self) -> String {
        let nodes = match self.nodes {
            // Only `pack` was said.
            None if self.levels == 0 && self.pack.is_some() => "",
            None | Some(NodeSpread::Block) => "block",
            Some(NodeSpread::Cyclic) => "cyclic",
            Some(NodeSpread::Plane(_)) => "plane",
            Some(NodeSpread::Arbitrary) => "arbitrary",
        };
        // Meaning of `*`: CPUs go to tasks in turn, and to cores as to sockets.
        let sockets = self.sockets.unwrap_or(CpuSpread::Cyclic);
        let cores = self.cores.unwrap_or(sockets);
        let mut text = nodes.to_owned();
        for (level, spread) in [(2, sockets), (3, cores)] {
            if self.levels >= level {
                text.push(':');
                text.push_str(spread.word());
            }
        }
        let pack = match self.pack {
            Some(true) => "pack",
            Some(false) => "nopack",
            None => return text,
        };
        if !text.is_empty() {
            text.push(',');
        }
        text + pack
    }

    /// As listings of steps show it: `Block`, `CFCyclic`, `BBlockCyclic,Pack`.
    pub fn title(&self) -> String {
        let (whole, letter) = match self.nodes {
            None | Some(NodeSpread::Block) => ("Block", "B"),
            Some(NodeSpread::Cyclic) => ("Cyclic", "C"),
            Some(NodeSpread::Plane(_)) => ("Plane", "Plane"),
            Some(NodeSpread::Arbitrary) => ("Arbitrary", "Arbitrary"),
        };
        let mut text = match (self.sockets, self.cores) {
            (None, None) => whole.to_owned(),
            (sockets, cores) => {
                let sockets = sockets.unwrap_or(CpuSpread::Cyclic).title();
                format!("{letter}{sockets}{}", cores.map_or("", CpuSpread::title))
            }
        };
        match self.pack {
            Some(true) => text.push_str(",Pack"),
            Some(false) => text.push_str(",NoPack"),
            None => {}
        }
        text
    }

    /// Applies the default of a step of these tasks and nodes if nothing is said of nodes: with no more tasks than
    /// nodes each has its own.
    pub fn with_default(mut self, tasks: u32, nodes: u32) -> Distribution {
        if self.levels > 0 || self.pack.is_some() {
            return self;
        }
        self.nodes.get_or_insert(if tasks <= nodes {
            NodeSpread::Cyclic
        } else {
            NodeSpread::Block
        });
        self
    }
}

fn node_spread(word: &str) -> Result<Option<NodeSpread>, NoDistribution> {
    Ok(Some(match word {
        "*" | "" => return Ok(None),
        "block" => NodeSpread::Block,
        "cyclic" => NodeSpread::Cyclic,
        "arbitrary" => NodeSpread::Arbitrary,
        "plane" => return Err(NoDistribution::PlaneSize),
        _ => {
            let size = word.strip_prefix("plane=").ok_or(NoDistribution::Unknown)?;
            match size.parse() {
                Ok(size) if size > 0 => NodeSpread::Plane(size),
                _ => return Err(NoDistribution::PlaneSize),
            }
        }
    }))
}

fn cpu_spread(word: &str) -> Result<Option<CpuSpread>, NoDistribution> {
    Ok(Some(match word {
        "*" => return Ok(None),
        "block" => CpuSpread::Block,
        "cyclic" => CpuSpread::Cyclic,
        "fcyclic" => CpuSpread::FullCyclic,
        _ => return Err(NoDistribution::Unknown),
    }))
}

impl CpuSpread {
    fn word(self) -> &'static str {
        match self {
            CpuSpread::Block => "block",
            CpuSpread::Cyclic => "cyclic",
            CpuSpread::FullCyclic => "fcyclic",
        }
    }

    fn title(self) -> &'static str {
        match self {
            CpuSpread::Block => "Block",
            CpuSpread::Cyclic => "Cyclic",
            CpuSpread::FullCyclic => "FCyclic",
        }
    }
}

impl fmt::Display for NoDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoDistribution::PlaneSize => {
                "a plane needs a size and nothing after it: plane=2, or plane with SLURM_DIST_PLANESIZE"
            }
            NoDistribution::Unknown => "it is block, cyclic, plane=SIZE or arbitrary, for example block:cyclic",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_what_they_mean() {
        let parse = |t: &str| Distribution::parse(t).unwrap();
        assert_eq!(
            (parse("*").nodes, parse("")),
            (None, Distribution::default())
        );
        assert_eq!(parse("Plane=3").nodes, Some(NodeSpread::Plane(3)));
        assert_eq!(parse("NoPack").pack, Some(false));
        let all = parse("Cyclic:*:fcyclic,Pack");
        assert_eq!(
            (all.nodes, all.sockets, all.cores, all.pack),
            (
                Some(NodeSpread::Cyclic),
                None,
                Some(CpuSpread::FullCyclic),
                Some(true)
            )
        );
        for (text, variable) in [
            ("plane=2", "plane"),
            ("*:block", "block:block"),
            ("block:block:cyclic,Pack", "block:block:cyclic,pack"),
            ("cyclic:fcyclic", "cyclic:fcyclic"),
            ("arbitrary", "arbitrary"),
            ("cyclic:*:block", "cyclic:cyclic:block"),
            ("*", "block"),
            ("*:*:*", "block:cyclic:cyclic"),
            ("*:block:*", "block:block:block"),
            ("*,NoPack", "block,nopack"),
            ("pack", "pack"),
        ] {
            assert_eq!(parse(text).variable(), variable);
        }
        for (text, title) in [
            ("", "Block"),
            ("plane=2", "Plane"),
            ("cyclic:fcyclic", "CFCyclic"),
            ("cyclic:block:cyclic", "CBlockCyclic"),
            ("*:*:fcyclic", "BCyclicFCyclic"),
            ("block:block,pack", "BBlock,Pack"),
        ] {
            assert_eq!(parse(text).title(), title);
        }
        for text in [
            "foo",
            "block:foo",
            "block:block:block:block",
            "block,foo",
            ",",
            ",pack",
            "arbitrary=2",
        ] {
            assert_eq!(
                Distribution::parse(text),
                Err(NoDistribution::Unknown),
                "{text}"
            );
        }
        for text in ["plane", "plane=0", "plane=x", "plane=2:block"] {
            assert_eq!(
                Distribution::parse(text),
                Err(NoDistribution::PlaneSize),
                "{text}"
            );
        }
        assert_eq!(parse("").with_default(3, 3).variable(), "cyclic");
        assert_eq!(parse("*").with_default(3, 3).variable(), "block");
        assert_eq!(
            parse("*:block").with_default(4, 3).variable(),
            "block:block"
        );
        assert_eq!(parse("plane=2").with_default(1, 3).variable(), "plane");
    }
}
