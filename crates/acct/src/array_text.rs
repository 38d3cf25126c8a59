//! The tasks that are left in an array's record as sacct writes them: `[1-3,7%2]`.

use muster_model::hostlist;
use muster_model::index_set::IndexSet;

/// `[1-3]`, `[1-3%2]`, or `[0-12:2]` when they span more than ten and all are the same distance apart.
pub(crate) fn pending_text(indices: &IndexSet, throttle: Option<u32>) -> String {
    let throttle = throttle.filter(|limit| *limit > 0);
    let limit = throttle.map_or_else(String::new, |limit| format!("%{limit}"));
    let all: Vec<u32> = indices.iter().collect();
    let text = match stride(&all) {
        Some(step) => format!("{}-{}:{step}", all[0], all[all.len() - 1]),
        None => hostlist::ranges(&all),
    };
    format!("[{text}{limit}]")
}

/// The distance between neighbours if it is the same everywhere and more than 1.
fn stride(indices: &[u32]) -> Option<u32> {
    let (first, second) = (indices.first()?, indices.get(1)?);
    if indices.last()? - first <= 10 {
        return None;
    }
    let step = second - first;
    let same = indices.windows(2).all(|pair| pair[1] - pair[0] == step);
    (step > 1 && same).then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_written_as_ranges_strides_and_with_their_limit() {
        for (indices, throttle, text) in [
            (&[1, 2, 3][..], None, "[1-3]"),
            (&[1, 2, 3], Some(2), "[1-3%2]"),
            (&[1, 2, 3], Some(0), "[1-3]"),
            (&[5], None, "[5]"),
            (&[1, 3], None, "[1,3]"),
            (&[0, 2, 4, 6], Some(1), "[0,2,4,6%1]"),
            (&[0, 4, 8, 12], Some(1), "[0-12:4%1]"),
            (&[1, 12], None, "[1-12:11]"),
            (&[0, 2, 4, 7], None, "[0,2,4,7]"),
            (&[], None, "[]"),
        ] {
            let mut set = IndexSet::default();
            indices.iter().for_each(|index| set.insert(*index));
            assert_eq!(pending_text(&set, throttle), text);
        }
    }
}
