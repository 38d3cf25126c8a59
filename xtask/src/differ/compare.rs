//! Answers of two clusters as lines that can be compared: ids and host names are replaced, times may be a little apart.

/// Seconds by which two clocks may differ: the clusters are brought into their state one beside the other.
const APART_S: u64 = 45;
/// Jobs have numbers from here (`FirstJobId`) to the other.
const FIRST_ID: u64 = 700_001;
const LAST_ID: u64 = 719_999;
/// Replaces the number of a job that a line submitted.
const NEW_ID: &str = "NEWJOB";

/// Names of a cluster of its own.
#[derive(Default)]
pub(super) struct NamesOfSide {
    /// Job ids, and what to call them. All are as long as an id, so that columns stay.
    pub(super) ids: Vec<JobOfState>,
    /// Texts and what to write instead.
    pub(super) texts: Vec<TextReplacement>,
}

/// A job of the state.
pub(super) struct JobOfState {
    id: u64,
    name: String,
}

/// A text of one cluster, and what replaces it.
pub(super) struct TextReplacement {
    pub(super) from: String,
    pub(super) to: &'static str,
}

impl NamesOfSide {
    /// Reads `name=id` lines.
    pub(super) fn add_ids(&mut self, text: &str) {
        for line in text.lines() {
            if let Some((name, id)) = line.split_once('=')
                && let Ok(id) = id.trim().parse()
            {
                let name = format!("{name:_<6.6}");
                self.ids.push(JobOfState { id, name });
            }
        }
    }

    /// An answer as lines: output, error output, exit status.
    pub(super) fn lines(&self, out: &str, err: &str, status: i32) -> Vec<String> {
        let mut lines: Vec<String> = self.normalised(out).lines().map(str::to_owned).collect();
        let errors = self.normalised(err);
        let errors = errors.lines().filter(|line| !line.trim().is_empty());
        lines.extend(errors.map(|line| format!("! {line}")));
        lines.push(format!("exit {status}"));
        lines
    }

    fn normalised(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for TextReplacement { from, to } in &self.texts {
            text = replace_words(&text, from, to);
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(c) = rest.chars().next() {
            let digits = leading_digits(rest);
            if digits == 0 {
                out.push(c);
                rest = &rest[c.len_utf8()..];
                continue;
            }
            let number = &rest[..digits];
            let id = number.parse::<u64>().ok();
            match id.filter(|id| digits == 6 && (FIRST_ID..=LAST_ID).contains(id)) {
                Some(id) => {
                    let known = self.ids.iter().find(|known| known.id == id);
                    out.push_str(known.map_or(NEW_ID, |known| &known.name));
                }
                None => out.push_str(number),
            }
            rest = &rest[digits..];
        }
        out
    }
}

/// Replaces a text where it is a word, since the name of a host may be short.
fn replace_words(text: &str, from: &str, to: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        let (before, after) = (&rest[..at], &rest[at + from.len()..]);
        let is_inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let last = before.chars().last().or_else(|| out.chars().last());
        let is_word = !is_inside(last) && !is_inside(after.chars().next());
        out.push_str(before);
        out.push_str(if is_word { to } else { from });
        rest = after;
    }
    out + rest
}

fn leading_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Whether two lines say the same. Where a time is longer in one of them, blanks around it do not count.
pub(super) fn is_same(a: &str, b: &str) -> bool {
    a == b || is_near(a, b, false) || is_near(a, b, true)
}

/// With `loose`, runs of blanks are equal, whatever their length, but only where two times had other lengths.
fn is_near(a: &str, b: &str, loose: bool) -> bool {
    let (mut rest_a, mut rest_b) = (a, b);
    let mut before = ' ';
    let mut had_other_length = false;
    while let (Some(x), Some(y)) = (rest_a.chars().next(), rest_b.chars().next()) {
        if !before.is_ascii_digit()
            && let (Some((time_a, len_a)), Some((time_b, len_b))) = (time(rest_a), time(rest_b))
        {
            if time_a.abs_diff(time_b) > APART_S {
                return false;
            }
            had_other_length |= len_a != len_b;
            (rest_a, rest_b, before) = (&rest_a[len_a..], &rest_b[len_b..], '0');
            continue;
        }
        if loose && x == ' ' && y == ' ' {
            rest_a = rest_a.trim_start_matches(' ');
            rest_b = rest_b.trim_start_matches(' ');
        } else if x == y {
            rest_a = &rest_a[x.len_utf8()..];
            rest_b = &rest_b[y.len_utf8()..];
        } else {
            return false;
        }
        before = x;
    }
    let ends = match loose {
        true => rest_a.trim().is_empty() && rest_b.trim().is_empty(),
        false => rest_a.is_empty() && rest_b.is_empty(),
    };
    ends && (!loose || had_other_length)
}

/// A time at the begin of a text, in seconds, and its length: `2026-11-29T17:00:00`, `1-02:03:04`, `5:07`, `00:01.250`, or
/// seconds since 1970.
fn time(text: &str) -> Option<(u64, usize)> {
    let digits = leading_digits(text);
    if digits == 10 && text.starts_with('1') {
        return Some((text[..10].parse().ok()?, 10));
    }
    date(text).or_else(|| duration(text))
}

fn date(text: &str) -> Option<(u64, usize)> {
    let part = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    if text.get(4..5)? != "-" || text.get(7..8)? != "-" || text.get(10..11)? != "T" {
        return None;
    }
    let (of_day, length) = duration(text.get(11..)?)?;
    // Months of one length: only neighbouring times are compared.
    Some((
        (year * 372 + month * 31 + day) * 86_400 + of_day,
        11 + length,
    ))
}

fn duration(text: &str) -> Option<(u64, usize)> {
    let mut at = 0;
    let mut days = 0;
    let first = leading_digits(text);
    if first > 0 && text[first..].starts_with('-') {
        days = text[..first].parse().ok()?;
        at = first + 1;
    }
    let (mut seconds, mut parts) = (0, 0);
    loop {
        let digits = leading_digits(&text[at..]);
        if digits == 0 || digits > 4 || (parts > 0 && digits != 2) {
            return None;
        }
        seconds = seconds * 60 + text[at..at + digits].parse::<u64>().ok()?;
        at += digits;
        parts += 1;
        let continues = text[at..].starts_with(':') && leading_digits(&text[at + 1..]) == 2;
        if !continues || parts == 3 {
            break;
        }
        at += 1;
    }
    if parts < 2 {
        return None;
    }
    if text[at..].starts_with('.') {
        at += 1 + leading_digits(&text[at + 1..]);
    }
    Some((days * 86_400 + seconds, at))
}

/// The lines that only one side has: `-` before those of the first, `+` before the second's.
pub(super) fn changes(a: &[String], b: &[String]) -> Vec<String> {
    // Lengths of the longest common parts from each place to the ends.
    let mut common = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = match is_same(&a[i], &b[j]) {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut changes) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && is_same(&a[i], &b[j]) {
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && common[i + 1][j] >= common[i][j + 1]) {
            changes.push(format!("- {}", a[i]));
            i += 1;
        } else {
            changes.push(format!("+ {}", b[j]));
            j += 1;
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> NamesOfSide {
        let mut names = NamesOfSide::default();
        names.add_ids("held=700009\narry=700010\n");
        names.texts = [("/tmp/x/slurm", "DIR"), ("box", "HOST")]
            .map(|(from, to)| TextReplacement {
                from: from.to_owned(),
                to,
            })
            .into();
        names
    }

    #[test]
    fn ids_have_names_of_the_same_length() {
        let lines = names().lines(" 700009 R\n700010_3 700033 17000099 box\n", "", 0);
        assert_eq!(
            lines,
            [" held__ R", "arry___3 NEWJOB 17000099 HOST", "exit 0"]
        );
    }

    #[test]
    fn host_names_are_words() {
        assert_eq!(
            replace_words("vm,maxvmsize vm", "vm", "HOST"),
            "HOST,maxvmsize HOST"
        );
    }

    #[test]
    fn errors_and_status_are_lines() {
        let lines = names().lines("", "sbatch: error: /tmp/x/slurm/a\n", 1);
        assert_eq!(lines, ["! sbatch: error: DIR/a", "exit 1"]);
    }

    #[test]
    fn times_may_be_a_little_apart() {
        assert!(is_same(
            "StartTime=2026-11-29T17:00:59 x",
            "StartTime=2026-11-29T17:01:02 x"
        ));
        assert!(!is_same("2026-11-29T17:00:00", "2026-11-29T18:00:00"));
        assert!(is_same("a   9:58 b", "a  10:02 b"));
        assert!(is_same("1795972815", "1795972817"));
        assert!(!is_same("TimeLimit=00:01:00", "TimeLimit=00:02:00"));
        assert!(!is_same("CPUs=8", "CPUs=9"));
    }

    #[test]
    fn blanks_count_where_times_do_not_move_them() {
        assert!(!is_same("a  b", "a b"));
        assert!(!is_same("0:05  b", "0:06 b"));
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let (a, b) = (["x", "y", "z"], ["x", "q", "z", "w"]);
        let a: Vec<String> = a.map(str::to_owned).to_vec();
        let b: Vec<String> = b.map(str::to_owned).to_vec();
        assert_eq!(changes(&a, &b), ["- y", "+ q", "+ w"]);
        assert!(changes(&a, &a).is_empty());
    }
}
