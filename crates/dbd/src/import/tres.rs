//! Resources as slurmdbd writes them: `1=4,2=800,1001=2`, numbers of tres_table and counts.

use muster_model::account_limits::TresAmounts;
use std::collections::HashMap;

/// Counts that mean "not set" and "no limit".
const NOT_SET: u64 = u64::MAX - 1;
/// Numbers that each database gives the same resources.
pub(super) const CPU: u32 = 1;
pub(super) const MEMORY: u32 = 2;
pub(super) const NODES: u32 = 4;
pub(super) const DISK: u32 = 6;
pub(super) const VIRTUAL_MEMORY: u32 = 7;
pub(super) const PAGES: u32 = 8;

/// Names of resources by their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct TresNames {
    names: HashMap<u32, String>,
}

impl TresNames {
    /// The rows of tres_table: number, type, name.
    pub(super) fn of(rows: impl Iterator<Item = (u32, String, String)>) -> TresNames {
        let names = rows.map(|(id, kind, name)| match name.is_empty() {
            true => (id, kind),
            false => (id, format!("{kind}/{name}")),
        });
        TresNames {
            names: names.collect(),
        }
    }

    /// Amounts by name; those of resources that the table does not have are left out.
    pub(super) fn amounts(&self, text: &str) -> TresAmounts {
        let named = pairs(text).filter_map(|(id, count)| {
            let name = self.names.get(&id)?;
            Some((name.clone(), count))
        });
        let mut amounts: TresAmounts = named.collect();
        amounts.sort();
        amounts
    }
}

/// Numbers and counts; those that are not set are left out.
pub(super) fn pairs(text: &str) -> impl Iterator<Item = (u32, u64)> {
    text.split(',').filter_map(|pair| {
        let (id, count) = pair.split_once('=')?;
        let count: u64 = count.parse().ok()?;
        (count < NOT_SET).then_some((id.parse().ok()?, count))
    })
}

/// The count of one resource.
pub(super) fn count(text: &str, wanted: u32) -> Option<u64> {
    pairs(text)
        .find(|(id, _)| *id == wanted)
        .map(|(_, count)| count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_read_by_number() {
        let rows = [
            (1, "cpu", ""),
            (1001, "gres", "gpu"),
            (1002, "gres", "gpu:a100"),
        ];
        let rows = rows.map(|(id, kind, name)| (id, kind.to_owned(), name.to_owned()));
        let names = TresNames::of(rows.into_iter());
        let text = "1=4,2=800,3=18446744073709551614,1001=2,1002=1,x,9=";
        let expected = [("cpu", 4), ("gres/gpu", 2), ("gres/gpu:a100", 1)];
        assert_eq!(names.amounts(text), TresAmounts::from_iter(expected));
        assert_eq!((count(text, MEMORY), count(text, 3)), (Some(800), None));
    }
}
