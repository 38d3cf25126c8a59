//! Slurm hostlist expressions: `node[001-100,200]`, `rack[0-3]n[1-4]`, `a,b[1-2]`.
//!
//! Parses an expression into an ordered list of names and folds a list of names back into the
//! expression that Slurm prints for it. Order and duplicates are kept, except by the `_sorted`
//! variant. Knows nothing of which nodes exist: a plain word such as `None` is one host.

use std::cmp::Ordering;
use std::fmt::Write as _;

/// The most names that one expression may stand for unless the caller says otherwise.
pub const MAX_HOSTS: usize = 262_144;

/// The most bytes of one name: host names have at most 253, and names of files 255 (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;

/// The most bytes of all names of an expression together: as many as [`MAX_HOSTS`] have whose length is the most that Linux
/// gives a host name (`HOST_NAME_MAX`). A text of 64 KiB with one range would otherwise stand for gigabytes.
pub const ALL_BYTES_MAX: usize = MAX_HOSTS * 64;

/// The longest run of digits that is read as a number; longer ones stay plain text.
const MAX_DIGITS: usize = 18;

/// An error in an expression, and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("hostlist `{expr}`, character {at}: {kind}")]
pub struct HostlistError {
    /// The whole expression (shortened when it is very long).
    pub expr: String,
    /// Position of the offending character, counted from 1.
    pub at: usize,
    /// The kind of error.
    pub kind: HostlistErrorKind,
}

/// The ways in which an expression can be wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostlistErrorKind {
    /// `[` without its `]`.
    #[error("`[` is never closed")]
    Unclosed,
    /// `]` without its `[`.
    #[error("`]` without `[`")]
    Unopened,
    /// `[` inside `[...]`.
    #[error("brackets cannot be nested")]
    Nested,
    /// `[]`, `[1,,2]`.
    #[error("an empty range")]
    Empty,
    /// `[a-b]`.
    #[error("`{0}` is not a number of at most 18 digits")]
    NotANumber(String),
    /// `[5-1]`.
    #[error("the range `{0}` runs backwards")]
    Backwards(String),
    /// More names than the limit.
    #[error("stands for more than {0} names")]
    TooMany(usize),
    /// A name of more than [`NAME_BYTES_MAX`].
    #[error("a name has more than {0} bytes")]
    LongName(usize),
    /// Names of more bytes together than the limit.
    #[error("the names have more than {0} bytes together")]
    LongNames(usize),
}

/// Expands `expr` into names, in order; at most [`MAX_HOSTS`] of them.
///
/// Commas and white space separate; empty parts are skipped, as in Slurm. Unlike Slurm, text after
/// the last bracket (`n[1-3]-ib`) is accepted.
pub fn parse(expr: &str) -> Result<Vec<String>, HostlistError> {
    parse_limited(expr, MAX_HOSTS)
}

/// [`parse`] with the caller's own limit on the number of names.
pub fn parse_limited(expr: &str, max: usize) -> Result<Vec<String>, HostlistError> {
    Ok(names(expr, max)?.collect())
}

/// The names of `expr` one after another, at most `max` of them, for a caller that looks each up and keeps none. The whole
/// expression is checked first; no name is made before it is asked for.
pub fn names(expr: &str, max: usize) -> Result<Names<'_>, HostlistError> {
    names_within(expr, max, ALL_BYTES_MAX)
}

/// [`names`] with the caller's own limit on the bytes of all names together.
pub fn names_within(expr: &str, max: usize, bytes_max: usize) -> Result<Names<'_>, HostlistError> {
    let parts = split_at_commas(expr)?;
    let (mut count, mut bytes) = (0_u64, 0_u64);
    for &(at, part) in &parts {
        let fail = |kind| error(expr, at, kind);
        let part = HostlistItem::parse(expr, at, part)?;
        let left = (max as u64).saturating_sub(count);
        let own = part.count().filter(|own| *own <= left);
        let own = own.ok_or_else(|| fail(HostlistErrorKind::TooMany(max)))?;
        count += own;
        bytes = bytes.saturating_add(own.saturating_mul(part.longest as u64));
        if bytes > bytes_max as u64 {
            return Err(fail(HostlistErrorKind::LongNames(bytes_max)));
        }
    }
    let parts: Vec<&str> = parts.into_iter().map(|(_, part)| part).collect();
    Ok(Names {
        expr,
        parts: parts.into_iter(),
        current: None,
    })
}

/// Names of an expression, in order: see [`names`].
#[derive(Debug)]
pub struct Names<'a> {
    expr: &'a str,
    parts: std::vec::IntoIter<&'a str>,
    current: Option<HostlistItem<'a>>,
}

impl Iterator for Names<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        loop {
            if let Some(name) = self.current.as_mut().and_then(HostlistItem::next_name) {
                return Some(name);
            }
            let part = self.parts.next()?;
            // It was checked: where it is does not matter.
            self.current = HostlistItem::parse(self.expr, 0, part).ok();
        }
    }
}

/// Splits `expr` at the commas outside brackets, without expanding: `a[1,2],b` is `a[1,2]` and `b`.
pub fn split(expr: &str) -> Result<Vec<&str>, HostlistError> {
    Ok(split_at_commas(expr)?
        .into_iter()
        .map(|(_, part)| part)
        .collect())
}

/// Folds names into the expression that `scontrol show hostlist` prints: names keep their order,
/// neighbours that count upwards become ranges, neighbours with one prefix share its brackets.
pub fn compress<S: AsRef<str>>(names: &[S]) -> String {
    fold(names.iter().map(|name| Host::of(name.as_ref())))
}

/// [`compress`] after sorting in Slurm's order (`scontrol show hostlistsorted`); duplicates stay.
pub fn compress_sorted<S: AsRef<str>>(names: &[S]) -> String {
    let mut hosts: Vec<Host<'_>> = names.iter().map(|name| Host::of(name.as_ref())).collect();
    hosts.sort_by(Host::order);
    fold(hosts.into_iter())
}

/// The order of names in Slurm's sorted lists: by prefix (numbers inside it by value), then
/// count of digits, then number, so that `n9` comes before `n10`.
pub fn natural_cmp(left: &str, right: &str) -> Ordering {
    Host::of(left).order(&Host::of(right))
}

/// Numbers as Slurm prints array indices and CPU ids: `0-3,5`. Order is kept.
pub fn ranges(numbers: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = numbers;
    while let Some(&first) = rest.first() {
        let mut length = 1;
        while length < rest.len() && rest[length - 1].checked_add(1) == Some(rest[length]) {
            length += 1;
        }
        if !text.is_empty() {
            text.push(',');
        }
        push_fmt(&mut text, format_args!("{first}"));
        if length > 1 {
            push_fmt(&mut text, format_args!("-{}", rest[length - 1]));
        }
        rest = &rest[length..];
    }
    text
}

/// Reads `0-3,5` (with or without brackets around it) into at most `max` numbers.
pub fn parse_ranges(text: &str, max: usize) -> Result<Vec<u32>, HostlistError> {
    let fail = |at, kind| Err(error(text, at, kind));
    let inner = text
        .strip_prefix('[')
        .and_then(|t| t.strip_suffix(']'))
        .unwrap_or(text);
    let mut at = if inner.len() == text.len() { 0 } else { 1 };
    let mut numbers = Vec::new();
    for item in inner.split(',') {
        let range = parse_range(text, at, item.trim())?;
        let (Ok(first), Ok(last)) = (u32::try_from(range.first), u32::try_from(range.last)) else {
            return fail(at, HostlistErrorKind::NotANumber(shortened(item)));
        };
        if (last - first) as usize >= max.saturating_sub(numbers.len()) {
            return fail(at, HostlistErrorKind::TooMany(max));
        }
        numbers.extend(first..=last);
        at += item.len() + 1;
    }
    Ok(numbers)
}

/// A name, taken apart at its trailing number.
#[derive(Clone, Copy)]
struct Host<'a> {
    prefix: &'a str,
    digits: &'a str,
    number: u64,
}

impl<'a> Host<'a> {
    fn of(name: &'a str) -> Host<'a> {
        let digits_at = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (prefix, digits) = name.split_at(digits_at);
        match digits.parse() {
            Ok(number) if digits.len() <= MAX_DIGITS => Host {
                prefix,
                digits,
                number,
            },
            _ => Host {
                prefix: name,
                digits: "",
                number: 0,
            },
        }
    }

    fn is_numbered(&self) -> bool {
        !self.digits.is_empty()
    }

    fn order(&self, other: &Host<'_>) -> Ordering {
        compare_naturally(self.prefix, other.prefix)
            .then_with(|| self.digits.len().cmp(&other.digits.len()))
            .then_with(|| self.number.cmp(&other.number))
    }
}

/// Compares text with the numbers inside it by value: `b9x` before `b10x`.
fn compare_naturally(left: &str, right: &str) -> Ordering {
    let (mut l, mut r) = (left.as_bytes(), right.as_bytes());
    while let (Some(&a), Some(&b)) = (l.first(), r.first()) {
        if a.is_ascii_digit() && b.is_ascii_digit() {
            let (a_digits, b_digits) = (leading_digits(l), leading_digits(r));
            let order = significant(a_digits)
                .len()
                .cmp(&significant(b_digits).len())
                .then_with(|| significant(a_digits).cmp(significant(b_digits)));
            if order != Ordering::Equal {
                return order;
            }
            l = &l[a_digits.len()..];
            r = &r[b_digits.len()..];
        } else if a != b {
            return a.cmp(&b);
        } else {
            l = &l[1..];
            r = &r[1..];
        }
    }
    l.len().cmp(&r.len()).then_with(|| left.cmp(right))
}

fn leading_digits(text: &[u8]) -> &[u8] {
    &text[..text.iter().take_while(|b| b.is_ascii_digit()).count()]
}

fn significant(digits: &[u8]) -> &[u8] {
    &digits[digits.iter().take_while(|&&b| b == b'0').count()..]
}

/// Consecutive numbers under one prefix; `width` is that of the first, which pads the others.
struct Run {
    first: u64,
    last: u64,
    width: usize,
}

impl Run {
    fn takes(&self, host: &Host<'_>) -> bool {
        let grown = digits_of(host.number).max(self.width);
        self.last.checked_add(1) == Some(host.number) && host.digits.len() == grown
    }

    fn write(&self, text: &mut String) {
        push_fmt(
            text,
            format_args!("{:0width$}", self.first, width = self.width),
        );
        if self.last > self.first {
            push_fmt(
                text,
                format_args!("-{:0width$}", self.last, width = self.width),
            );
        }
    }
}

fn fold<'a>(hosts: impl Iterator<Item = Host<'a>>) -> String {
    let mut text = String::new();
    let mut prefix = "";
    let mut runs: Vec<Run> = Vec::new();
    for host in hosts {
        if host.is_numbered() && host.prefix == prefix && !runs.is_empty() {
            match runs.last_mut() {
                Some(run) if run.takes(&host) => run.last = host.number,
                _ => runs.push(Run::starting(&host)),
            }
            continue;
        }
        flush(&mut text, prefix, &mut runs);
        if host.is_numbered() {
            prefix = host.prefix;
            runs.push(Run::starting(&host));
        } else {
            separate(&mut text);
            text.push_str(host.prefix);
        }
    }
    flush(&mut text, prefix, &mut runs);
    text
}

impl Run {
    fn starting(host: &Host<'_>) -> Run {
        Run {
            first: host.number,
            last: host.number,
            width: host.digits.len(),
        }
    }
}

fn flush(text: &mut String, prefix: &str, runs: &mut Vec<Run>) {
    let Some(first) = runs.first() else { return };
    separate(text);
    text.push_str(prefix);
    if runs.len() == 1 && first.first == first.last {
        first.write(text);
    } else {
        for (i, run) in runs.iter().enumerate() {
            text.push(if i == 0 { '[' } else { ',' });
            run.write(text);
        }
        text.push(']');
    }
    runs.clear();
}

fn separate(text: &mut String) {
    if !text.is_empty() {
        text.push(',');
    }
}

fn push_fmt(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("writing to a String cannot fail");
}

fn digits_of(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// The parts between separators with their byte offsets; checks that brackets match.
fn split_at_commas(expr: &str) -> Result<Vec<(usize, &str)>, HostlistError> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut open = None;
    for (at, c) in expr.char_indices() {
        match c {
            '[' if open.is_some() => return Err(error(expr, at, HostlistErrorKind::Nested)),
            '[' => open = Some(at),
            ']' if open.is_none() => return Err(error(expr, at, HostlistErrorKind::Unopened)),
            ']' => open = None,
            c if open.is_none() && (c == ',' || c.is_whitespace()) => {
                if start < at {
                    parts.push((start, &expr[start..at]));
                }
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    if let Some(at) = open {
        return Err(error(expr, at, HostlistErrorKind::Unclosed));
    }
    if start < expr.len() {
        parts.push((start, &expr[start..]));
    }
    Ok(parts)
}

#[derive(Debug)]
struct Range {
    first: u64,
    last: u64,
    width: usize,
}

/// One comma-free part (outside brackets) while it is expanded.
#[derive(Debug)]
struct HostlistItem<'a> {
    brackets: Vec<Bracket<'a>>,
    /// Text after the last bracket.
    tail: &'a str,
    /// Bytes of its longest name.
    longest: usize,
    is_over: bool,
}

/// Numbers in brackets, and the one that the next name has.
#[derive(Debug)]
struct Bracket<'a> {
    /// Text before the bracket.
    before: &'a str,
    ranges: Vec<Range>,
    /// Position of the range.
    range: usize,
    number: u64,
}

impl<'a> HostlistItem<'a> {
    /// Reads a part whose brackets are known to match.
    fn parse(expr: &str, at: usize, part: &'a str) -> Result<HostlistItem<'a>, HostlistError> {
        let mut brackets = Vec::new();
        let mut longest = 0;
        let mut rest = part;
        let check = |longest: usize| match longest <= NAME_BYTES_MAX {
            true => Ok(()),
            false => Err(error(expr, at, HostlistErrorKind::LongName(NAME_BYTES_MAX))),
        };
        while let Some(open) = rest.find('[') {
            let close = open
                + rest[open..]
                    .find(']')
                    .expect("brackets were checked to match");
            let offset = at + (part.len() - rest.len()) + open + 1;
            let ranges = parse_bracket(expr, offset, &rest[open + 1..close])?;
            let digits = ranges.iter().map(|r| digits_of(r.last).max(r.width)).max();
            longest += open + digits.unwrap_or(0);
            check(longest)?;
            brackets.push(Bracket {
                before: &rest[..open],
                range: 0,
                number: ranges.first().map_or(0, |range| range.first),
                ranges,
            });
            rest = &rest[close + 1..];
        }
        longest += rest.len();
        check(longest)?;
        Ok(HostlistItem {
            brackets,
            tail: rest,
            longest,
            is_over: false,
        })
    }

    /// Number of names that it expands to, if that can be counted.
    fn count(&self) -> Option<u64> {
        self.brackets.iter().try_fold(1_u64, |product, bracket| {
            let numbers = bracket.ranges.iter();
            let sum = numbers.map(|range| range.last - range.first + 1);
            let sum = sum.fold(0_u64, u64::saturating_add);
            product.checked_mul(sum)
        })
    }

    fn next_name(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        let mut name = String::with_capacity(self.longest);
        for bracket in &self.brackets {
            let (number, width) = (bracket.number, bracket.ranges[bracket.range].width);
            name.push_str(bracket.before);
            push_fmt(&mut name, format_args!("{number:0width$}"));
        }
        name.push_str(self.tail);
        // The last bracket counts fastest, then the first, the second and so on, as in Slurm.
        self.is_over = match self.brackets.split_last_mut() {
            Some((last, before)) => !last.advance() && !before.iter_mut().any(Bracket::advance),
            None => true,
        };
        Some(name)
    }
}

impl Bracket<'_> {
    /// Goes on to the next number; whether there was one, else it begins again.
    fn advance(&mut self) -> bool {
        if self.number < self.ranges[self.range].last {
            self.number += 1;
            return true;
        }
        self.range = (self.range + 1) % self.ranges.len();
        self.number = self.ranges[self.range].first;
        self.range > 0
    }
}

fn parse_bracket(expr: &str, at: usize, inner: &str) -> Result<Vec<Range>, HostlistError> {
    let mut offset = at;
    let mut found = Vec::new();
    for item in inner.split(',') {
        found.push(parse_range(expr, offset, item)?);
        offset += item.len() + 1;
    }
    Ok(found)
}

fn parse_range(expr: &str, at: usize, item: &str) -> Result<Range, HostlistError> {
    if item.is_empty() {
        return Err(error(expr, at, HostlistErrorKind::Empty));
    }
    let number = |text: &str, offset: usize| match text.parse::<u64>() {
        Ok(n) if text.len() <= MAX_DIGITS && text.bytes().all(|b| b.is_ascii_digit()) => Ok(n),
        _ => Err(error(
            expr,
            at + offset,
            HostlistErrorKind::NotANumber(shortened(text)),
        )),
    };
    let (low, high) = item.split_once('-').unwrap_or((item, item));
    let first = number(low, 0)?;
    let last = number(
        high,
        if item.len() == low.len() {
            0
        } else {
            low.len() + 1
        },
    )?;
    if first > last {
        return Err(error(
            expr,
            at,
            HostlistErrorKind::Backwards(shortened(item)),
        ));
    }
    Ok(Range {
        first,
        last,
        width: low.len(),
    })
}

fn error(expr: &str, at: usize, kind: HostlistErrorKind) -> HostlistError {
    let at = expr.get(..at).map_or(at, |before| before.chars().count()) + 1;
    HostlistError {
        expr: shortened(expr),
        at,
        kind,
    }
}

/// As much of a text as an error says.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(text: &str) -> Vec<String> {
        parse(text).unwrap()
    }

    #[test]
    fn expands_as_scontrol_show_hostnames() {
        for (expr, expected) in [
            ("n[1-3,07-09],x5", "n1 n2 n3 n07 n08 n09 x5"),
            ("node[001-003,200]", "node001 node002 node003 node200"),
            ("rack[0-1]n[1-2]", "rack0n1 rack0n2 rack1n1 rack1n2"),
            ("n[1-2][3-4]", "n13 n14 n23 n24"),
            (
                "a[0-1]b[2-3]c[4-5]",
                "a0b2c4 a0b2c5 a1b2c4 a1b2c5 a0b3c4 a0b3c5 a1b3c4 a1b3c5",
            ),
            ("n[98-102]", "n98 n99 n100 n101 n102"),
            ("n[01-3]", "n01 n02 n03"),
            ("n[1-03]", "n1 n2 n3"),
            ("None", "None"),
            (",,n1,", "n1"),
            ("n1 n2", "n1 n2"),
            ("[1-3]", "1 2 3"),
            ("n[1-2]-ib", "n1-ib n2-ib"),
            ("", ""),
        ] {
            assert_eq!(names(expr).join(" "), expected, "{expr}");
        }
    }

    /// The right-hand sides are what `scontrol show hostlist` of Slurm 22.05.8 prints.
    #[test]
    fn compresses_as_scontrol_show_hostlist() {
        for (list, expected) in [
            ("n1,n2,n3,n5,a01,a02", "n[1-3,5],a[01-02]"),
            ("n1,n2,n3,n4,a01,a02,x5", "n[1-4],a[01-02],x5"),
            ("n1,n2,n4,n3", "n[1-2,4,3]"),
            ("n1,n1,n2", "n[1,1-2]"),
            ("n3,n2,n1", "n[3,2,1]"),
            ("n9,n10,n11", "n[9-11]"),
            ("n09,n10,n11", "n[09-11]"),
            ("n1,n01,n001", "n[1,01,001]"),
            ("n99,n100", "n[99-100]"),
            ("n099,n100,n101", "n[099-101]"),
            ("rack1n1,rack1n2,rack2n1,rack2n2", "rack1n[1-2],rack2n[1-2]"),
            ("a1b,a2b", "a1b,a2b"),
            ("12,13", "[12-13]"),
            ("b2,a10,a9,a1,x,b1", "b2,a[10,9,1],x,b1"),
            ("n1-1,n1-2,n2-1", "n1-[1-2],n2-1"),
            ("None", "None"),
        ] {
            assert_eq!(compress(&names(list)), expected, "{list}");
        }
    }

    /// The right-hand sides are what `scontrol show hostlistsorted` of Slurm 22.05.8 prints.
    #[test]
    fn sorts_as_scontrol_show_hostlistsorted() {
        for (list, expected) in [
            ("n10,n9,n08,n007,n100,n011", "n[9,08,10,007,011,100]"),
            ("b10x1,b9x1,b10x2", "b9x1,b10x[1-2]"),
            ("n2,n1,m3,n1", "m3,n[1,1-2]"),
            ("n,n1,m,n2", "m,n,n[1-2]"),
            ("N1,n2,n1", "N1,n[1-2]"),
            ("n10,n2,n010", "n[2,10,010]"),
            ("b2,a10,a9,a1,x,b1", "a[1,9-10],b[1-2],x"),
        ] {
            assert_eq!(compress_sorted(&names(list)), expected, "{list}");
        }
    }

    #[test]
    fn errors_name_the_place() {
        for (expr, expected) in [
            (
                "n[5-1]",
                "hostlist `n[5-1]`, character 3: the range `5-1` runs backwards",
            ),
            (
                "a,n[1",
                "hostlist `a,n[1`, character 4: `[` is never closed",
            ),
            ("n1]", "hostlist `n1]`, character 3: `]` without `[`"),
            (
                "n[[1]]",
                "hostlist `n[[1]]`, character 3: brackets cannot be nested",
            ),
            ("n[]", "hostlist `n[]`, character 3: an empty range"),
            (
                "n[1,2-x]",
                "hostlist `n[1,2-x]`, character 7: `x` is not a number of at most 18 digits",
            ),
            (
                "n[0-99999999999]",
                "hostlist `n[0-99999999999]`, character 1: stands for more than 262144 names",
            ),
        ] {
            assert_eq!(parse(expr).unwrap_err().to_string(), expected);
        }
        assert!(parse_limited("a,b,c", 2).is_err());
        assert_eq!(parse_limited("a,b", 2).unwrap().len(), 2);
        assert!(parse("n[1-600][1-600]").is_err());
    }

    /// Long prefixes, and long texts whose names are short.
    #[test]
    fn names_have_bounds_one_by_one_and_together() {
        let long = "x".repeat(NAME_BYTES_MAX);
        assert_eq!(parse(&long).unwrap(), std::slice::from_ref(&long));
        let kind = |text: &str| parse(text).unwrap_err().kind;
        let long_name = HostlistErrorKind::LongName(NAME_BYTES_MAX);
        for text in [
            format!("a,{long}x"),
            format!("{long}[1]"),
            format!("[0-19999]{}", "x".repeat(60_000)),
            format!("{}[0-19999]", "x".repeat(60_000)),
            "[1]".repeat(60_000),
        ] {
            assert_eq!(kind(&text), long_name);
        }
        let many = format!("{}[100000-199999]", &long[6..]);
        assert_eq!(kind(&many), HostlistErrorKind::LongNames(ALL_BYTES_MAX));
        let again = format!("{0}[10000-59999],{0}[10000-59999]", &long[50..]);
        assert_eq!(kind(&again), HostlistErrorKind::LongNames(ALL_BYTES_MAX));
        let repeated = format!("x[{}1]", "1,".repeat(100_000));
        let all = parse(&repeated).unwrap();
        assert_eq!(all.len(), 100_001);
        assert!(all.iter().all(|name| name.capacity() <= 8));
        assert!(parse("n[1-262144]").is_ok());
    }

    #[test]
    fn names_are_made_as_they_are_asked_for() {
        let mut some = super::names("a[8-10,1][1-2]b,c", MAX_HOSTS).unwrap();
        assert_eq!(some.next().as_deref(), Some("a81b"));
        let rest: Vec<String> = some.collect();
        assert_eq!(rest.join(" "), "a82b a91b a92b a101b a102b a11b a12b c");
        assert!(super::names("a,b[2-1]", MAX_HOSTS).is_err());
    }

    #[test]
    fn splits_without_expanding() {
        assert_eq!(split("a[1,2],b, c").unwrap(), ["a[1,2]", "b", "c"]);
    }

    #[test]
    fn ranges_of_numbers() {
        assert_eq!(ranges(&[0, 1, 2, 3, 5]), "0-3,5");
        assert_eq!(ranges(&[4, 6, 8]), "4,6,8");
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[u32::MAX]), "4294967295");
        assert_eq!(parse_ranges("0-3,5", 10).unwrap(), [0, 1, 2, 3, 5]);
        assert_eq!(parse_ranges("[4,6]", 10).unwrap(), [4, 6]);
        assert!(parse_ranges("0-3,5", 4).is_err());
        assert!(parse_ranges("", 4).is_err());
    }

    #[test]
    fn ten_thousand_names_fold_into_one_range() {
        let all = names("node[00001-10000]");
        assert_eq!(all.len(), 10_000);
        assert_eq!(compress(&all), "node[00001-10000]");
        let mut reversed = all.clone();
        reversed.reverse();
        assert_eq!(compress_sorted(&reversed), "node[00001-10000]");
    }

    proptest! {
        #[test]
        fn parse_undoes_compress(list in prop::collection::vec("[a-c]{0,2}[0-9]{0,3}(-[0-9]{1,2})?", 0..40)) {
            let list: Vec<String> = list.into_iter().filter(|name| !name.is_empty()).collect();
            prop_assert_eq!(parse(&compress(&list)).unwrap(), list);
        }

        #[test]
        fn parse_undoes_compress_of_long_numbers(list in prop::collection::vec("n[0-9]{15,25}", 0..9)) {
            prop_assert_eq!(parse(&compress(&list)).unwrap(), list);
        }

        #[test]
        fn sorted_holds_the_same_names(mut list in prop::collection::vec("[ab][0-9]{0,3}", 0..40)) {
            let mut back = parse(&compress_sorted(&list)).unwrap();
            back.sort();
            list.sort();
            prop_assert_eq!(back, list);
        }

        #[test]
        fn parse_undoes_ranges(list in prop::collection::vec(any::<u8>(), 1..50)) {
            let list: Vec<u32> = list.into_iter().map(u32::from).collect();
            prop_assert_eq!(parse_ranges(&ranges(&list), 100).unwrap(), list);
        }

        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,40}", tricky in "[n\\[\\],0-9é-]{0,20}") {
            let _ = parse_limited(&text, 1000);
            let _ = parse_limited(&tricky, 1000);
            let _ = parse_ranges(&tricky, 1000);
        }
    }
}
