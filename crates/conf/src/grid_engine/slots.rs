//! Slots of a parallel environment as tasks on nodes: a number, or several of which the greatest is taken that can be had.

use super::AllocationRule;
use muster_model::index_set::IndexSet;
use muster_model::limits::TASKS_MAX;
use muster_model::spec::ResourceAsk;
use muster_model::task_range::TaskRange;

impl AllocationRule {
    /// From several numbers of slots, the least that hosts can have by this rule, and all of them if there are more.
    /// `None` if there is none.
    pub fn tasks_of(self, slots: &IndexSet) -> Option<(u32, Option<TaskRange>)> {
        let each = match self {
            AllocationRule::Fixed(each) => Some(each.max(1)),
            AllocationRule::PeSlots | AllocationRule::FillUp | AllocationRule::RoundRobin => None,
        };
        let unit = each.unwrap_or(1);
        let mut counts = IndexSet::default();
        for (first, last) in slots.ranges() {
            counts.insert_range(first.div_ceil(unit), last.min(TASKS_MAX) / unit);
        }
        let first = counts.first().filter(|first| *first > 0)?;
        let range = (counts.len() > 1).then_some(TaskRange {
            counts,
            tasks_of_node: each,
        });
        Some((first.checked_mul(unit)?, range))
    }

    /// Lays a request out with one of several numbers of slots, in place of the layout that it has. Gives the least of them that hosts
    /// can have; `None`, and nothing changed, if there is none.
    pub fn lay_out(self, ask: &mut ResourceAsk, slots: &IndexSet) -> Option<u32> {
        let (count, range) = self.tasks_of(slots)?;
        let was_round_robin = ask.spread && ask.distribution.as_deref() == Some(CYCLIC);
        if was_round_robin {
            (ask.distribution, ask.spread) = (None, false);
        }
        ask.ntasks = Some(count);
        (ask.min_nodes, ask.max_nodes) = (1, None);
        (ask.nodes_set, ask.ntasks_per_node) = (false, None);
        match self {
            AllocationRule::FillUp => {}
            AllocationRule::PeSlots => (ask.max_nodes, ask.nodes_set) = (Some(1), true),
            AllocationRule::RoundRobin => {
                (ask.distribution, ask.spread) = (Some(CYCLIC.to_owned()), true);
            }
            AllocationRule::Fixed(each) => {
                let nodes = count / each.max(1);
                (ask.min_nodes, ask.max_nodes) = (nodes, Some(nodes));
                (ask.nodes_set, ask.ntasks_per_node) = (true, Some(each));
            }
        }
        ask.task_range = range.map(Box::new);
        Some(count)
    }
}

/// The distribution of tasks to hosts in turn.
const CYCLIC: &str = "cyclic";

/// Least and most slots where a verifier sets one of them or both, given the former ones.
///
/// # Errors
/// A text is no number, or the most is less than the least.
pub fn changed_span(
    [least, most]: [Option<&str>; 2],
    before: Option<(u32, u32)>,
) -> Result<(u32, u32), String> {
    let number = |text: &str| {
        let number = text.parse().ok().filter(|n: &u32| *n > 0);
        number.ok_or_else(|| format!("the JSV sets slots to '{text:.80}': a number is expected"))
    };
    let [least, most] = [
        least.map(number).transpose()?,
        most.map(number).transpose()?,
    ];
    let (old_least, old_most) = before.unwrap_or((1, 1));
    let was_range = old_least != old_most;
    match (least, most) {
        (None, None) => Ok((old_least, old_most)),
        (Some(least), None) if was_range => Ok((least, old_most.max(least))),
        (None, Some(most)) if was_range => Ok((old_least.min(most), most)),
        (Some(count), None) | (None, Some(count)) => Ok((count, count)),
        (Some(least), Some(most)) if least <= most => Ok((least, most)),
        (Some(least), Some(most)) => Err(format!(
            "the JSV sets pe_min to {least}, which is more than pe_max, {most}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_fixed_numbers_have_multiples() {
        let of = |rule: AllocationRule, parts: &[(u32, u32)]| {
            let mut slots = IndexSet::default();
            for (first, last) in parts {
                slots.insert_range(*first, *last);
            }
            let (least, range) = rule.tasks_of(&slots)?;
            let counts = range.map(|range| {
                let parts: Vec<(u32, u32)> = range.counts.ranges().collect();
                (parts, range.tasks_of_node)
            });
            Some((least, counts))
        };
        let fixed = AllocationRule::Fixed(4);
        assert_eq!(of(fixed, &[(8, 8)]), Some((8, None)));
        assert_eq!(of(fixed, &[(6, 7)]), None);
        assert_eq!(of(fixed, &[(6, 9)]), Some((8, None)));
        let nodes = (vec![(1, 1), (3, 4)], Some(4));
        assert_eq!(of(fixed, &[(2, 5), (11, 17)]), Some((4, Some(nodes))));
        let slots = (vec![(2, 2), (4, TASKS_MAX)], None);
        let open = [(2, 2), (4, u32::MAX)];
        assert_eq!(of(AllocationRule::FillUp, &open), Some((2, Some(slots))));
    }

    #[test]
    fn a_layout_takes_the_place_of_another() {
        let mut slots = IndexSet::default();
        slots.insert_range(4, 9);
        let all = [
            AllocationRule::PeSlots,
            AllocationRule::FillUp,
            AllocationRule::RoundRobin,
            AllocationRule::Fixed(2),
        ];
        for before in all {
            for rule in all {
                let (mut ask, mut new) = (ResourceAsk::default(), ResourceAsk::default());
                before.lay_out(&mut ask, &IndexSet::single(2));
                assert_eq!(rule.lay_out(&mut ask, &slots), Some(4));
                rule.lay_out(&mut new, &slots);
                assert_eq!(ask, new, "{before:?} {rule:?}");
                let kept = ask.clone();
                let three = AllocationRule::Fixed(3);
                assert_eq!(three.lay_out(&mut ask, &IndexSet::single(4)), None);
                assert_eq!(ask, kept);
            }
        }
    }
}
