//! Output of the tasks, as it reaches srun's own streams or files: whole lines, labelled if asked for.

use muster_model::ids::{JobId, StepNo};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// A task's line may be so long before it is passed on in parts.
const LINE_MAX: usize = 64 << 10;

/// Where a stream ends up.
pub(super) enum Target {
    /// srun's standard output.
    Stdout,
    /// srun's standard error.
    Stderr,
    /// A file.
    File(File),
}

impl Target {
    fn write(&mut self, bytes: &[u8]) {
        // A reader that went away must not end the step.
        let _ = match self {
            Target::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush())
            }
            Target::Stderr => io::stderr().write_all(bytes),
            Target::File(file) => file.write_all(bytes),
        };
    }
}

/// One output stream of all tasks.
pub(super) struct Output {
    target: Target,
    /// Only this task's.
    only: Option<u32>,
    /// Digits of the label; absent without labels.
    label: Option<usize>,
    /// Pass on what comes, without waiting for ends of lines.
    direct: bool,
    /// Beginnings of lines.
    partial: BTreeMap<u32, Vec<u8>>,
}

impl Output {
    /// A stream. `direct` is for a terminal, one task, or `--unbuffered`.
    pub(super) fn new(
        target: Target,
        only: Option<u32>,
        label: Option<usize>,
        direct: bool,
    ) -> Output {
        Output {
            target,
            only,
            label,
            direct: direct && label.is_none(),
            partial: BTreeMap::new(),
        }
    }

    /// Bytes of a task; empty is its end.
    pub(super) fn take(&mut self, task: u32, bytes: &[u8]) {
        if self.only.is_some_and(|only| only != task) {
            return;
        }
        if self.direct {
            self.target.write(bytes);
            return;
        }
        if bytes.is_empty() {
            self.flush(task);
            return;
        }
        let held = self.partial.entry(task).or_default();
        held.extend_from_slice(bytes);
        let end = match held.iter().rposition(|b| *b == b'\n') {
            Some(at) => at + 1,
            None if held.len() > LINE_MAX => held.len(),
            None => return,
        };
        let whole: Vec<u8> = held.drain(..end).collect();
        self.lines(task, &whole);
    }

    /// Writes what a task left without an end of line.
    pub(super) fn flush(&mut self, task: u32) {
        if let Some(mut rest) = self.partial.remove(&task)
            && !rest.is_empty()
        {
            if self.label.is_some() {
                rest.push(b'\n');
            }
            self.lines(task, &rest);
        }
    }

    /// Writes what all tasks left.
    pub(super) fn flush_all(&mut self) {
        let tasks: Vec<u32> = self.partial.keys().copied().collect();
        tasks.into_iter().for_each(|task| self.flush(task));
    }

    fn lines(&mut self, task: u32, bytes: &[u8]) {
        let Some(width) = self.label else {
            self.target.write(bytes);
            return;
        };
        let label = format!("{task:width$}: ");
        let mut out = Vec::with_capacity(bytes.len() + label.len());
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            out.extend_from_slice(label.as_bytes());
            out.extend_from_slice(line);
        }
        self.target.write(&out);
    }
}

/// Digits of the highest task number.
pub(super) fn label_width(ntasks: usize) -> usize {
    ntasks.saturating_sub(1).max(1).to_string().len()
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
            'a' => {
                let index =
                    array("SLURM_ARRAY_TASK_ID").unwrap_or_else(|| (u32::MAX - 1).to_string());
                out.push_str(&format!("{index:0>width$}"));
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
    use std::io::{Read as _, Seek as _};

    fn written(label: Option<usize>, direct: bool, pieces: &[(u32, &str)]) -> String {
        let path = std::env::temp_dir().join(format!(
            "muster-output-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let target = Target::File(file.try_clone().unwrap());
        let mut output = Output::new(target, None, label, direct);
        for (task, text) in pieces {
            output.take(*task, text.as_bytes());
        }
        output.flush_all();
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        std::fs::remove_file(path).unwrap();
        text
    }

    #[test]
    fn lines_of_tasks_do_not_mix() {
        let pieces = [(0, "a"), (1, "x\ny"), (0, "b\n"), (1, ""), (0, "end")];
        assert_eq!(written(None, false, &pieces), "x\nab\nyend");
        assert_eq!(
            written(Some(1), false, &pieces),
            "1: x\n0: ab\n1: y\n0: end\n"
        );
        assert_eq!(written(None, true, &pieces), "ax\nyb\nend");
        assert_eq!(
            written(Some(2), false, &[(3, "a\n"), (12, "b\n")]),
            " 3: a\n12: b\n"
        );
        assert_eq!(
            (label_width(1), label_width(10), label_width(11)),
            (1, 1, 2)
        );
    }

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
    }
}
