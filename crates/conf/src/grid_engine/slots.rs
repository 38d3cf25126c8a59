//! Slots of a parallel environment as tasks on nodes: a number, or several of which the greatest is taken that can be had.

use super::AllocationRule;
use muster_model::index_set::IndexSet;
use muster_model::limits::TASKS_MAX;
use muster_model::task_range::TaskRange;

impl AllocationRule {
    /// Of several numbers of slots the least that hosts can have by this rule, and all of them if there are more. `None` if
    /// there is none.
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
}

/// Least and most slots where a verifier sets one of them or both, and what they were before.
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
}
