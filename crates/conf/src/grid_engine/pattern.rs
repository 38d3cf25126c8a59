//! Patterns of names.

/// Whether a text fits a pattern of `*`, `?`, `[...]` and, in Grid Engine, alternatives between `|`.
pub fn fits(pattern: &str, text: &str) -> bool {
    pattern
        .split('|')
        .any(|one| glob(&Vec::from_iter(one.chars()), &Vec::from_iter(text.chars())))
}

/// Takes time by the product of both lengths at most: only the part after the last `*` is tried at further places,
/// since the places of earlier parts stay valid.
fn glob(pattern: &[char], text: &[char]) -> bool {
    let (mut of_pattern, mut of_text) = (0, 0);
    // Behind the last star, and where in the text it is to end.
    let mut star = None;
    while of_text < text.len() {
        let rest = pattern.get(of_pattern..).unwrap_or_default();
        let next = text.get(of_text).and_then(|c| take_one(rest, *c));
        if rest.first() == Some(&'*') {
            of_pattern += 1;
            star = Some((of_pattern, of_text));
        } else if let Some(length) = next {
            of_pattern += length;
            of_text += 1;
        } else if let Some((behind, end)) = star {
            star = Some((behind, end + 1));
            (of_pattern, of_text) = (behind, end + 1);
        } else {
            return false;
        }
    }
    let rest = pattern.get(of_pattern..).unwrap_or_default();
    rest.iter().all(|c| *c == '*')
}

/// Length of the beginning of the pattern, which is no star, that matches this character; none if it does not match.
fn take_one(pattern: &[char], c: char) -> Option<usize> {
    match pattern {
        [] => None,
        ['?', ..] => Some(1),
        ['[', rest @ ..] => match rest.iter().position(|c| *c == ']') {
            Some(end) => in_class(&rest[..end], c).then_some(end + 2),
            None => (c == '[').then_some(1),
        },
        [own, ..] => (*own == c).then_some(1),
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whether a pattern matches, by the definition: takes unbounded time.
    fn means(pattern: &[char], text: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['*', rest @ ..] => (0..=text.len()).any(|at| means(rest, &text[at..])),
            _ => text.split_first().is_some_and(|(first, others)| {
                take_one(pattern, *first).is_some_and(|taken| means(&pattern[taken..], others))
            }),
        }
    }

    #[test]
    fn patterns_fit_what_they_mean() {
        for (pattern, text, does) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abb", false),
            ("a?c|x", "abc", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[ab", "[ab", true),
            ("*gmx*mdrun*", "/usr/bin/gmx mdrun -v", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(fits(pattern, text), does, "{pattern} {text}");
        }
    }

    /// A user's command line kept a report busy for minutes.
    #[test]
    fn many_stars_and_a_long_text_take_no_time() {
        let text = "gmx mdru ".repeat(2000);
        assert!(!fits("*gmx*mdrun*gmx*mdrun*", &text));
        assert!(!fits(&"*a".repeat(50), &"a".repeat(49)));
    }

    proptest! {
        #[test]
        fn the_quick_way_finds_the_same(pattern in "[ab*?\\[\\]]{0,8}", text in "[ab\\[]{0,10}") {
            let (pattern, text) = (Vec::from_iter(pattern.chars()), Vec::from_iter(text.chars()));
            prop_assert_eq!(glob(&pattern, &text), means(&pattern, &text));
        }
    }
}
