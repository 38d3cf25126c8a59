//! Classes of nodes that the alternatives of `--constraint` and `--prefer` admit, and classes for
//! which they count nodes. Alternatives that admit and count the same are stored once, and equal
//! sets of classes share memory. This bounds the memory that a user's option can occupy per lane,
//! and lanes share it (see [`AskCache`]).

use crate::nodes::class::NodeClass;
use crate::nodes::node_ranges::NodeRanges;
use muster_model::features::{self, Alternative, Expr, sum_of_equal};
use muster_model::job::Reason;
use muster_model::limits::CONSTRAINT_ALTERNATIVES_MAX;
use muster_model::spec::ResourceAsk;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// For each class, whether its nodes may be used.
pub(crate) type Classes = Arc<[bool]>;
/// Classes from which a number of nodes must be taken; each node counts once.
pub(crate) type Counts = Vec<(Classes, u32)>;

/// Alternatives of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClassMasks {
    /// For each alternative: the classes whose nodes may be used.
    pub(crate) alternatives: Arc<[Classes]>,
    /// For each alternative: the classes from which a number of nodes must be taken.
    pub(crate) counts: Arc<[Counts]>,
}

/// Masks of the latest requests, so that the lanes of a shape share them and they are computed
/// once. They stay valid as long as nodes keep their classes and numbers, which nodes of a fleet
/// do.
#[derive(Debug, Default)]
pub(crate) struct AskCache {
    masks: RefCell<Option<CachedMasks>>,
    excluded: RefCell<Option<CachedNodes>>,
}

/// The masks of the latest request with a constraint.
#[derive(Debug)]
struct CachedMasks {
    key: MaskKey,
    masks: ClassMasks,
}

/// The nodes of the latest list.
#[derive(Debug)]
struct CachedNodes {
    text: String,
    nodes: Arc<NodeRanges>,
}

/// The parts of a request that its masks depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MaskKey {
    constraint: Option<String>,
    prefer: Option<String>,
    tmp_disk_mib: u64,
    sockets_per_node: Option<u32>,
    cores_per_socket: Option<u32>,
    threads_per_core: Option<u32>,
}

impl MaskKey {
    fn of(ask: &ResourceAsk) -> MaskKey {
        MaskKey {
            constraint: ask.constraint.clone(),
            prefer: ask.prefer.clone(),
            tmp_disk_mib: ask.tmp_disk_mib,
            sockets_per_node: ask.sockets_per_node,
            cores_per_socket: ask.cores_per_socket,
            threads_per_core: ask.threads_per_core,
        }
    }

    fn fits(&self, class: &NodeClass) -> bool {
        class.tmp_mib >= self.tmp_disk_mib
            && class.sockets >= self.sockets_per_node.unwrap_or(0)
            && class.cores_per_socket >= self.cores_per_socket.unwrap_or(0)
            && class.threads_per_core >= self.threads_per_core.unwrap_or(0)
    }
}

impl AskCache {
    /// The masks of a request.
    ///
    /// # Errors
    /// [`Reason::BadConstraints`] if the constraint cannot be parsed.
    pub(crate) fn masks(
        &self,
        ask: &ResourceAsk,
        classes: &[NodeClass],
    ) -> Result<ClassMasks, Reason> {
        let key = MaskKey::of(ask);
        if let Some(last) = &*self.masks.borrow()
            && last.key == key
        {
            return Ok(last.masks.clone());
        }
        let masks = class_masks(&key, classes)?;
        if key.constraint.is_some() || key.prefer.is_some() {
            let masks = masks.clone();
            *self.masks.borrow_mut() = Some(CachedMasks { key, masks });
        }
        Ok(masks)
    }

    /// The nodes of a list; `numbers` converts it.
    pub(crate) fn excluded(
        &self,
        list: Option<&str>,
        numbers: impl FnOnce() -> Vec<u32>,
    ) -> Arc<NodeRanges> {
        let text = list.unwrap_or_default();
        if let Some(last) = &*self.excluded.borrow()
            && last.text == text
        {
            return Arc::clone(&last.nodes);
        }
        let nodes = Arc::new(NodeRanges::new(numbers()));
        if !text.is_empty() {
            let (text, nodes) = (text.to_owned(), Arc::clone(&nodes));
            *self.excluded.borrow_mut() = Some(CachedNodes { text, nodes });
        }
        nodes
    }
}

/// Sets of classes that expressions admit. Each feature is looked up in each class once.
struct ClassSets<'a> {
    classes: &'a [NodeClass],
    fits: Vec<bool>,
    of_features: HashMap<&'a str, Vec<bool>>,
    /// Shares the memory of equal sets.
    known: HashSet<Classes>,
}

impl<'a> ClassSets<'a> {
    fn holds(&mut self, expr: &'a Expr) -> Vec<bool> {
        match expr {
            Expr::Feature(name) => {
                let classes = self.classes;
                let has = |class: &NodeClass| class.features.contains(name);
                let of_feature = self.of_features.entry(name);
                let set = of_feature.or_insert_with(|| classes.iter().map(has).collect());
                set.clone()
            }
            Expr::All(parts) => self.joined(parts, true),
            Expr::Any(parts) => self.joined(parts, false),
            Expr::Count(..) => vec![true; self.classes.len()],
        }
    }

    /// Classes for which all of the expressions hold, or any of them.
    fn joined(&mut self, parts: &'a [Expr], all: bool) -> Vec<bool> {
        let mut set = vec![all; self.classes.len()];
        for part in parts {
            for (joined, holds) in set.iter_mut().zip(self.holds(part)) {
                *joined = if all {
                    *joined && holds
                } else {
                    *joined || holds
                };
            }
        }
        set
    }

    /// The given classes that satisfy all of these expressions.
    fn set(&mut self, exprs: impl Iterator<Item = &'a Expr>) -> Classes {
        let mut set = self.fits.clone();
        for expr in exprs {
            let holds = self.holds(expr);
            set.iter_mut().zip(holds).for_each(|(s, h)| *s &= h);
        }
        if let Some(known) = self.known.get(set.as_slice()) {
            return Arc::clone(known);
        }
        let set: Classes = set.into();
        self.known.insert(Arc::clone(&set));
        set
    }
}

/// The classes that may be used, by alternative of the constraint with the preferred ones first,
/// and the counts of nodes that must be taken.
fn class_masks(key: &MaskKey, classes: &[NodeClass]) -> Result<ClassMasks, Reason> {
    let parsed = |text: &Option<String>| match text.as_deref().filter(|t| !t.is_empty()) {
        Some(text) => features::alternatives(text).ok_or(Reason::BadConstraints),
        None => Ok(Vec::new()),
    };
    let (constraint, prefer) = (parsed(&key.constraint)?, parsed(&key.prefer)?);
    let unbound = [None];
    let required: Vec<Option<&Alternative>> = match constraint.is_empty() {
        true => unbound.to_vec(),
        false => constraint.iter().map(Some).collect(),
    };
    let preferred = (prefer.iter())
        .flat_map(|p| required.iter().map(move |r| (Some(p), *r)))
        // Submissions with more alternatives are refused; preferred ones are optional.
        .take(CONSTRAINT_ALTERNATIVES_MAX);
    let mut sets = ClassSets {
        classes,
        fits: classes.iter().map(|class| key.fits(class)).collect(),
        of_features: HashMap::new(),
        known: HashSet::new(),
    };
    let (mut alternatives, mut counts) = (Vec::new(), Vec::new());
    let mut seen: HashSet<(Classes, Counts)> = HashSet::new();
    for (prefer, required) in preferred.chain(required.iter().map(|r| (None, *r))) {
        let both = || prefer.into_iter().chain(required);
        let mask = sets.set(both().map(|a| &a.each));
        let counted = both().flat_map(|a| &a.counts);
        let counted = counted.map(|(expr, count)| (sets.set(std::iter::once(expr)), *count));
        let counted: Counts = sum_of_equal(counted.collect());
        let mut sorted = counted.clone();
        sorted.sort_unstable();
        if seen.insert((Arc::clone(&mask), sorted)) {
            alternatives.push(mask);
            counts.push(counted);
        }
    }
    Ok(ClassMasks {
        alternatives: alternatives.into(),
        counts: counts.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masks(constraint: &str, prefer: &str) -> ClassMasks {
        let class = |features: &[&str]| NodeClass {
            features: features.iter().map(|f| (*f).to_owned()).collect(),
            ..NodeClass::default()
        };
        let ask = ResourceAsk {
            constraint: Some(constraint.into()),
            prefer: Some(prefer.into()),
            ..ResourceAsk::default()
        };
        let classes = [class(&["f"]), class(&["f", "g"]), class(&[])];
        AskCache::default().masks(&ask, &classes).expect("read")
    }

    /// A few hundred bytes of options occupy no more memory than their different sets need.
    #[test]
    fn equal_alternatives_and_counts_are_there_once() {
        let text = format!("[{}]&{}", ["f"; 64].join("|"), ["f*1"; 40].join("&"));
        let one = masks(&text, &text);
        // The preferred alternative counts twice as many nodes.
        assert_eq!(one.alternatives.len(), 2);
        let counts: Vec<Vec<u32>> = (one.counts.iter())
            .map(|counts| counts.iter().map(|(_, n)| *n).collect())
            .collect();
        assert_eq!(counts, [[80], [40]]);
        assert!(Arc::ptr_eq(&one.alternatives[0], &one.counts[1][0].0));
        // Different expressions that admit the same classes.
        assert_eq!(masks("[f|f&f|(f|g)|g]", "").alternatives.len(), 2);
    }

    /// Jobs from an older journal may name more alternatives than a submission may now.
    #[test]
    fn what_is_preferred_multiplies_to_a_bounded_number() {
        let features: Vec<String> = (0..64).map(|n| format!("f{n}")).collect();
        let text = format!("[{}]", features.join("|"));
        let class = |name: &String| NodeClass {
            features: vec![name.clone(), "g".into()],
            ..NodeClass::default()
        };
        let classes: Vec<NodeClass> = features.iter().map(class).collect();
        let ask = ResourceAsk {
            constraint: Some(text.clone()),
            prefer: Some(text),
            ..ResourceAsk::default()
        };
        let cache = AskCache::default();
        let all = cache.masks(&ask, &classes).expect("read");
        assert!(all.alternatives.len() <= 2 * CONSTRAINT_ALTERNATIVES_MAX);
        let again = cache.masks(&ask, &classes).expect("read");
        assert!(
            Arc::ptr_eq(&all.alternatives, &again.alternatives),
            "lanes share them"
        );
    }

    #[test]
    fn lanes_share_the_nodes_that_are_left_out() {
        let cache = AskCache::default();
        let first = cache.excluded(Some("n[0-3]"), || vec![0, 1, 2, 3]);
        let again = cache.excluded(Some("n[0-3]"), || panic!("worked out again"));
        assert!(Arc::ptr_eq(&first, &again));
        assert!(!cache.excluded(None, Vec::new).contains(0));
    }
}
