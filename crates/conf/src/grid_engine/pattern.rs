//! Patterns of names.

/// Whether a text fits a pattern of `*`, `?`, `[...]` and, in Grid Engine, alternatives between `|`.
pub fn fits(pattern: &str, text: &str) -> bool {
    pattern
        .split('|')
        .any(|one| glob(&Vec::from_iter(one.chars()), &Vec::from_iter(text.chars())))
}

fn glob(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['*', rest @ ..] => (0..=text.len()).any(|at| glob(rest, &text[at..])),
        ['?', rest @ ..] => !text.is_empty() && glob(rest, &text[1..]),
        ['[', rest @ ..] => match (rest.iter().position(|c| *c == ']'), text.split_first()) {
            (Some(end), Some((first, others))) => {
                in_class(&rest[..end], *first) && glob(&rest[end + 1..], others)
            }
            (Some(_), None) => false,
            (None, _) => text.first() == Some(&'[') && glob(rest, &text[1..]),
        },
        [c, rest @ ..] => text.first() == Some(c) && glob(rest, &text[1..]),
    }
}

fn in_class(class: &[char], c: char) -> bool {
    let (negated, class) = match class {
        ['!' | '^', rest @ ..] => (true, rest),
        _ => (false, class),
    };
    let mut at = 0;
    let mut found = false;
    while at < class.len() {
        match class.get(at..at + 3) {
            Some([first, '-', last]) => {
                found |= (*first..=*last).contains(&c);
                at += 3;
            }
            _ => {
                found |= class[at] == c;
                at += 1;
            }
        }
    }
    found != negated
}
