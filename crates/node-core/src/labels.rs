//! Labels of `srun --label`: the number of the task at the beginning of each of its lines.

/// Longest line of a task; longer ones are passed on in parts. In bytes.
pub const LINE_MAX: usize = 64 << 10;

/// Digits of the highest task number of a step with so many tasks.
pub fn width(ntasks: usize) -> usize {
    ntasks.saturating_sub(1).max(1).to_string().len()
}

/// The label of a task, with so many digits.
pub fn label(task: u32, width: usize) -> String {
    format!("{task:width$}: ")
}

/// The lines, each with the label.
pub fn labelled(label: &str, lines: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(lines.len() + label.len());
    for line in lines.split_inclusive(|b| *b == b'\n') {
        out.extend_from_slice(label.as_bytes());
        out.extend_from_slice(line);
    }
    out
}

/// Takes from what a task has written all that can be passed on: whole lines, or the part of one that is too long.
pub fn take_lines(held: &mut Vec<u8>) -> Vec<u8> {
    let end = match held.iter().rposition(|b| *b == b'\n') {
        Some(at) => at + 1,
        None if held.len() > LINE_MAX => held.len(),
        None => 0,
    };
    held.drain(..end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_as_wide_as_the_highest_number() {
        assert_eq!((width(1), width(10), width(11)), (1, 1, 2));
        assert_eq!(label(3, width(11)), " 3: ");
        assert_eq!(labelled("0: ", b"a\n\nb"), b"0: a\n0: \n0: b");
    }

    #[test]
    fn lines_are_taken_whole_unless_they_are_too_long() {
        let mut held = b"one\ntwo\nthr".to_vec();
        assert_eq!(take_lines(&mut held), b"one\ntwo\n");
        assert_eq!((take_lines(&mut held), held), (Vec::new(), b"thr".to_vec()));
        let mut long = vec![b'x'; LINE_MAX + 1];
        assert_eq!((take_lines(&mut long).len(), long.len()), (LINE_MAX + 1, 0));
    }
}
