//! Amounts of counted resources (TRES) under the names that limits have.

use crate::validate::Validate;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// An amount of one counted resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode, Validate)]
pub struct TresAmount {
    /// `cpu`, `mem` (in MiB), `node`, `billing`, `gres/NAME`, `gres/NAME:TYPE`, `license/NAME`; `energy`, `vmem`, `pages`,
    /// `fs/disk` and those of older records have no effect.
    #[n(0)]
    pub name: String,
    /// In units of the resource.
    #[n(1)]
    pub amount: u64,
}

impl TresAmount {
    /// The amount of the resource of that name.
    pub fn new(name: impl Into<String>, amount: u64) -> TresAmount {
        let name = name.into();
        TresAmount { name, amount }
    }
}

/// Amounts of several resources, at most one of each name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct TresAmounts(#[n(0)] Vec<TresAmount>);

impl TresAmounts {
    /// No amounts.
    pub const fn new() -> TresAmounts {
        TresAmounts(Vec::new())
    }

    /// The amount of a resource, if there is one.
    pub fn get(&self, name: &str) -> Option<u64> {
        let found = self.0.iter().find(|tres| tres.name == name);
        found.map(|tres| tres.amount)
    }

    /// Multiplies each amount by a factor in millionths.
    pub fn multiply(&mut self, millionths: u64) {
        for tres in &mut self.0 {
            let product = u128::from(tres.amount) * u128::from(millionths) / 1_000_000;
            tres.amount = u64::try_from(product).unwrap_or(u64::MAX);
        }
    }

    /// Adds an amount behind the others. There must be none of that name.
    pub fn push(&mut self, name: impl Into<String>, amount: u64) {
        self.0.push(TresAmount::new(name, amount));
    }

    /// Sets amounts, or removes those of which there is none any more, one after another, and sorts all by name.
    pub fn set_each(&mut self, changes: impl IntoIterator<Item = (String, Option<u64>)>) {
        let before = std::mem::take(&mut self.0).into_iter();
        let mut all: BTreeMap<String, u64> = before.map(|tres| (tres.name, tres.amount)).collect();
        for (name, amount) in changes {
            match amount {
                Some(amount) => all.insert(name, amount),
                None => all.remove(&name),
            };
        }
        *self = all.into_iter().collect();
    }

    /// Takes over amounts of resources that have none here.
    pub fn inherit(&mut self, above: &TresAmounts) {
        if above.is_empty() {
            return;
        }
        let own = std::mem::take(&mut self.0).into_iter();
        let above = above.iter().map(|tres| (tres.name.clone(), tres.amount));
        let all: BTreeMap<String, u64> = (above)
            .chain(own.map(|tres| (tres.name, tres.amount)))
            .collect();
        *self = all.into_iter().collect();
    }

    /// Number of TRES.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Sorts them by name.
    pub fn sort(&mut self) {
        self.0.sort();
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All in their order.
    pub fn iter(&self) -> std::slice::Iter<'_, TresAmount> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a TresAmounts {
    type Item = &'a TresAmount;
    type IntoIter = std::slice::Iter<'a, TresAmount>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Collects names and amounts.
impl<N: Into<String>> FromIterator<(N, u64)> for TresAmounts {
    fn from_iter<I: IntoIterator<Item = (N, u64)>>(all: I) -> TresAmounts {
        let all = all.into_iter();
        TresAmounts(all.map(|(name, n)| TresAmount::new(name, n)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_encoded_as_pairs() {
        let mut amounts = TresAmounts::new();
        let changes = [("node", Some(4)), ("cpu", Some(1)), ("mem", Some(3))];
        let changes = changes.into_iter().chain([("cpu", Some(2)), ("mem", None)]);
        amounts.set_each(changes.map(|(name, amount)| (name.to_owned(), amount)));
        let pairs = vec![("cpu".to_owned(), 2_u64), ("node".to_owned(), 4)];
        let bytes = minicbor::to_vec(&pairs).unwrap();
        assert_eq!(minicbor::to_vec(&amounts).unwrap(), bytes);
        assert_eq!(minicbor::decode::<TresAmounts>(&bytes).unwrap(), amounts);
        assert_eq!((amounts.get("cpu"), amounts.get("mem")), (Some(2), None));
        let mut own: TresAmounts = [("mem", 5), ("cpu", 3)].into_iter().collect();
        own.inherit(&amounts);
        assert_eq!(
            own,
            [("cpu", 3), ("mem", 5), ("node", 4)].into_iter().collect()
        );
    }
}
