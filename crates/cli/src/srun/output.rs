//! Where the output of tasks is written: srun's own streams, or files, whose names may have symbols.

use muster_model::ids::{JobId, StepNo};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// Where a stream ends up.
pub(super) enum OutputTarget {
    /// srun's standard output.
    Stdout,
    /// srun's standard error.
    Stderr,
    /// A file.
    File(File),
}

impl OutputTarget {
    /// Writes output of tasks.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        // A reader that went away must not end the step.
        let _ = match self {
            OutputTarget::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush())
            }
            OutputTarget::Stderr => io::stderr().write_all(bytes),
            OutputTarget::File(file) => file.write_all(bytes),
        };
    }
}

/// Values of the symbols in a file's name, for srun.
pub(super) struct Names<'a> {
    /// `%j`, `%A`.
    pub(super) job: JobId,
    /// `%s`.
    pub(super) step: StepNo,
    /// `%u`.
    pub(super) user: fn() -> String,
    /// `%x`.
    pub(super) job_name: &'a str,
}

/// A file's name from its pattern: `%A %a %j %J %s %u %x %%`.
pub(super) fn expand(pattern: &str, names: &Names<'_>) -> String {
    if pattern.contains('\\') {
        return pattern.replace('\\', "");
    }
    let array = |name: &str| std::env::var(name).ok();
    let mut out = String::new();
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        let digits = tail.bytes().take_while(u8::is_ascii_digit).count();
        let width = tail[..digits].parse::<usize>().unwrap_or(0).min(10);
        let Some(letter) = tail[digits..].chars().next() else {
            out.push_str(&rest[at..]);
            return out;
        };
        let job = names.job.0;
        match letter {
            'j' => out.push_str(&format!("{job:0width$}")),
            'A' => match array("SLURM_ARRAY_JOB_ID") {
                Some(id) => out.push_str(&format!("{id:0>width$}")),
                None => out.push_str(&format!("{job:0width$}")),
            },
            'a' | 'b' => {
                let index =
                    array("SLURM_ARRAY_TASK_ID").unwrap_or_else(|| (u32::MAX - 1).to_string());
                // `%b` is the index modulo 10.
                let from = match letter {
                    'b' => index.len().saturating_sub(1),
                    _ => 0,
                };
                out.push_str(&format!("{:0>width$}", &index[from..]));
            }
            'J' => out.push_str(&format!("{job}.{}", names.step)),
            's' => out.push_str(&names.step.to_string()),
            'u' => out.push_str(&(names.user)()),
            'x' => out.push_str(names.job_name),
            '%' => out.push('%'),
            other => {
                out.push('%');
                out.push_str(&tail[..digits]);
                out.push(other);
            }
        }
        rest = &tail[digits + letter.len_utf8()..];
    }
    out.push_str(rest);
    out
}

/// Opens a file for output.
pub(super) fn open(path: &str, append: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).write(true);
    if append {
        options.append(true);
    } else {
        options.truncate(true);
    }
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let names = Names {
            job: JobId(7),
            step: StepNo(2),
            user: || "u".to_owned(),
            job_name: "n",
        };
        assert_eq!(expand("%j-%4j_%J_%s_%u_%x%%", &names), "7-0007_7.2_2_u_n%");
        assert_eq!(expand("%q%", &names), "%q%");
        assert_eq!(expand("\\%j", &names), "%j");
        assert_eq!(expand("%b-%2b", &names), "4-04");
    }
}
