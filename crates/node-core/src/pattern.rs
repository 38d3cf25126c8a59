//! File name patterns of sbatch(1) and srun(1): `slurm-%A_%a.out`, `out_%4t`. Pure.

use muster_model::ids::{JobId, StepNo};
use muster_model::job::ArrayTask;
use muster_model::limits::PATH_BYTES_MAX;

/// The values of a pattern's symbols.
#[derive(Clone, Debug, Default)]
pub struct Symbols<'a> {
    /// `%j`.
    pub job: JobId,
    /// `%A`, `%a` and `%b`; outside an array `%A` is the job and `%a` is 4294967294, as Slurm prints it.
    pub array: Option<ArrayTask>,
    /// `%s`, and the second part of `%J`; absent in a batch script's files.
    pub step: Option<StepNo>,
    /// `%N`.
    pub node: &'a str,
    /// `%n`.
    pub node_position: u32,
    /// `%t`.
    pub task: u32,
    /// `%u`.
    pub user: &'a str,
    /// `%x`.
    pub job_name: &'a str,
}

/// Slurm's NO_VAL, which `%a` prints outside an array.
const NO_INDEX: u32 = u32::MAX - 1;
/// Widths above this are cut to it, as in Slurm.
const WIDTH_MAX: usize = 10;

/// Replaces the symbols of a pattern. A backslash anywhere turns replacement off and is itself removed; unknown
/// symbols stay. The result is cut off above [`PATH_BYTES_MAX`], because a pattern of a few thousand `%x` would
/// expand to as many names of 1 KiB. A file name of that length does not exist (`ENAMETOOLONG`), and with this error
/// the job fails.
pub fn expand(pattern: &str, symbols: &Symbols) -> String {
    if pattern.contains('\\') {
        return pattern.replace('\\', "");
    }
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        if out.len() > PATH_BYTES_MAX {
            return out;
        }
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        let digits = tail.bytes().take_while(u8::is_ascii_digit).count();
        let width = tail[..digits]
            .parse::<usize>()
            .map_or(0, |w| w.min(WIDTH_MAX));
        let Some(letter) = tail[digits..].chars().next() else {
            out.push_str(&rest[at..]);
            return out;
        };
        let end = at + 1 + digits + letter.len_utf8();
        match symbol(letter, symbols) {
            Some(Value::Number(n)) => out.push_str(&format!("{n:0width$}")),
            Some(Value::Text(text)) => out.push_str(&text),
            None => out.push_str(&rest[at..end]),
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

enum Value {
    Number(u64),
    Text(String),
}

fn symbol(letter: char, s: &Symbols) -> Option<Value> {
    Some(match letter {
        '%' => Value::Text("%".to_owned()),
        'A' => Value::Number(s.array.map_or(s.job, |task| task.array).0),
        'a' => Value::Number(s.array.map_or(NO_INDEX, |task| task.index).into()),
        'b' => Value::Number((s.array.map_or(NO_INDEX, |task| task.index) % 10).into()),
        'J' => match s.step {
            Some(step) => Value::Text(format!("{}.{step}", s.job)),
            None => Value::Number(s.job.0),
        },
        'j' => Value::Number(s.job.0),
        's' => match s.step {
            Some(step) => Value::Text(step.to_string()),
            None => Value::Text("batch".to_owned()),
        },
        'N' => Value::Text(s.node.split('.').next().unwrap_or(s.node).to_owned()),
        'n' => Value::Number(s.node_position.into()),
        't' => Value::Number(s.task.into()),
        'u' => Value::Text(s.user.to_owned()),
        'x' => Value::Text(s.job_name.to_owned()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols() -> Symbols<'static> {
        Symbols {
            job: JobId(12),
            array: Some(ArrayTask {
                array: JobId(10),
                index: 3,
            }),
            step: None,
            node: "n1.site",
            node_position: 2,
            task: 7,
            user: "root",
            job_name: "arr.sh",
        }
    }

    #[test]
    fn patterns_of_sbatch() {
        for (pattern, expected) in [
            ("slurm-%j.out", "slurm-12.out"),
            ("slurm-%A_%a.out", "slurm-10_3.out"),
            ("%6j", "000012"),
            ("%J-%4t_%2n", "12-0007_02"),
            ("%N/%u-%x-%%-%q", "n1/root-arr.sh-%-%q"),
            ("a\\%j", "a%j"),
            ("%", "%"),
            ("x%5", "x%5"),
            ("%99j", "0000000012"),
            ("é%jü", "é12ü"),
            ("%b-%2b", "3-03"),
        ] {
            assert_eq!(expand(pattern, &symbols()), expected, "{pattern}");
        }
        let mut single = symbols();
        single.array = None;
        single.step = Some(StepNo(4));
        assert_eq!(expand("%A_%a %J %s", &single), "12_4294967294 12.4 4");
        assert_eq!(expand("%b", &single), "4");
    }

    #[test]
    fn what_is_longer_than_a_path_ends_there() {
        let name = "n".repeat(1024);
        let symbols = Symbols {
            job_name: &name,
            ..symbols()
        };
        let long = expand(&"%x".repeat(30_000), &symbols);
        assert!(long.len() > PATH_BYTES_MAX && long.len() <= PATH_BYTES_MAX + 1024);
        let whole = expand(&"%x".repeat(3), &symbols);
        assert_eq!(whole, name.repeat(3));
    }
}
