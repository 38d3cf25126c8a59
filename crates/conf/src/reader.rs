//! Typed values of settings that were checked before.

use crate::diagnostic::{Findings, Origin};
use crate::keys::Table;
use crate::model::{MemPer, Setting};
use crate::value;
use std::collections::BTreeMap;

/// Settings of one line or file, by documented key name.
pub(crate) type Settings = BTreeMap<&'static str, Setting>;

/// A node, partition or other line that starts with a name.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    pub(crate) origin: Origin,
}

/// Reads typed values out of settings that were checked before.
pub(crate) struct Reader<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) table: &'static Table,
}

impl<'a> Reader<'a> {
    /// The value as written.
    pub(crate) fn given(&self, key: &str) -> Option<&'a str> {
        self.settings.get(key).map(|setting| setting.value.as_str())
    }

    /// The value as written, else the default.
    pub(crate) fn text(&self, key: &str) -> Option<&'a str> {
        self.given(key)
            .or_else(|| self.table.find(key)?.default)
            .filter(|text| !text.is_empty())
    }

    /// A number; `None` where it is unlimited or not there.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        value::parse_number(self.text(key)?, u64::MAX)
            .ok()
            .flatten()
    }

    pub(crate) fn count(&self, key: &str) -> u32 {
        u32::try_from(self.number(key).unwrap_or(0)).unwrap_or(u32::MAX)
    }

    pub(crate) fn is_set(&self, key: &str) -> bool {
        self.text(key)
            .is_some_and(|text| value::parse_bool(text) == Ok(true))
    }

    pub(crate) fn list(&self, key: &str) -> Vec<String> {
        let words = self.text(key).unwrap_or("").split(',').map(str::trim);
        words
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// `None` for `ALL` or where nothing is written.
    pub(crate) fn allowed(&self, key: &str) -> Option<Vec<String>> {
        let list = self.list(key);
        let all = list.is_empty() || list.iter().any(|word| word.eq_ignore_ascii_case("ALL"));
        (!all).then_some(list)
    }

    /// `PREFIXPerCPU` or `PREFIXPerNode`, whichever is written; 0 and unlimited are `None`.
    pub(crate) fn mem_per(&self, prefix: &str, findings: &mut Findings) -> Option<MemPer> {
        let (cpu, node) = (format!("{prefix}PerCPU"), format!("{prefix}PerNode"));
        let read = |key| {
            value::parse_mem_mib(self.given(key)?)
                .ok()
                .filter(|&mib| mib > 0)
        };
        if let (Some(_), Some(other)) = (self.given(&cpu), self.settings.get(node.as_str())) {
            let message = format!("{cpu} and {node} exclude each other; {cpu} counts");
            findings.warn(&other.origin, &node, message, "remove one of the two");
        }
        match self.given(&cpu) {
            Some(_) => read(&cpu).map(MemPer::Cpu),
            None => read(&node).map(MemPer::Node),
        }
    }

    /// The name of a plugin, without its kind.
    pub(crate) fn plugin(&self, key: &str) -> &'a str {
        let text = self.text(key).unwrap_or("");
        text.split_once('/').map_or(text, |(_, word)| word)
    }
}
