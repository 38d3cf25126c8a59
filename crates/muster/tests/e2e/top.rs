//! `muster top` on a terminal: a job is seen, and cancelled by keys.

use crate::cluster::Cluster;
use std::io::Write as _;
use std::process::{Child, Stdio};

#[test]
fn a_job_is_seen_and_cancelled_on_a_terminal() {
    let c = Cluster::start(1, 2);
    let top = format!("{} top", env!("CARGO_BIN_EXE_muster"));
    let ran = c.run(&format!("{top} </dev/null"));
    assert!(
        ran.code == 1 && ran.err.contains("not a terminal"),
        "{}",
        ran.err
    );
    let job =
        c.sbatch(r#"-J "$(printf 'evil\033[5mname')" -o out --wrap 'echo written; sleep 300'"#);
    c.until("it runs", || c.read_if_there("out") == "written\n");
    let child = c
        .command(&format!(
            "exec script -qefc 'stty rows 24 cols 80; TERM=xterm exec {top}' screen >/dev/null"
        ))
        .stdin(Stdio::piped())
        .spawn();
    let mut shown = Shown(child.unwrap());
    let mut keys = shown.0.stdin.take().unwrap();
    let screen = || {
        let bytes = std::fs::read(c.dir.join("screen")).unwrap_or_default();
        shown_by(&String::from_utf8_lossy(&bytes))
    };
    c.until("the job is shown", || screen().contains("1 running"));
    keys.write_all(b"l").unwrap();
    c.until("its output is shown", || screen().contains("written"));
    // Another job is shown as soon as it is there, without a key and long before the lists are asked for by the clock.
    keys.write_all(b"q4").unwrap();
    let other = c.sbatch("-H -o /dev/null --wrap true");
    c.until("the change is shown", || screen().contains("submitted"));
    keys.write_all(b"1").unwrap();
    keys.write_all(b"c").unwrap();
    c.until("it asks", || screen().contains("Cancel job"));
    keys.write_all(b"y").unwrap();
    c.until("the job is over", || {
        [job, other]
            .iter()
            .any(|job| c.state(*job).starts_with("CANCELLED"))
    });
    keys.write_all(b"q").unwrap();
    assert_eq!(shown.0.wait().unwrap().code(), Some(0));
    let bytes = std::fs::read(c.dir.join("screen")).unwrap();
    let written = String::from_utf8_lossy(&bytes);
    let is_restored = written.contains("\u{1b}[?1049l");
    assert!(is_restored, "the terminal is not as it was");
    assert!(!written.contains("evil\u{1b}"), "{written:?}");
}

/// The program, which does not outlive the test.
struct Shown(Child);

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a terminal of 80 columns and 24 lines shows after this: top writes what is another than before.
fn shown_by(written: &str) -> String {
    let mut lines = vec![vec![' '; 80]; 24];
    let (mut line, mut column) = (0, 0);
    let mut rest = written;
    while let Some(c) = rest.chars().next() {
        if let Some(control) = rest.strip_prefix("\u{1b}[") {
            let Some(end) = control.find(|c: char| c.is_ascii_alphabetic()) else {
                break;
            };
            match (&control[..end], &control[end..=end]) {
                (place, "H") => {
                    let number = |text: Option<&str>| text.and_then(|text| text.parse().ok());
                    let mut numbers = place.split(';');
                    line = number(numbers.next()).unwrap_or(1) - 1;
                    column = number(numbers.next()).unwrap_or(1) - 1;
                }
                ("?1049", "h") | ("2", "J") => lines.iter_mut().for_each(|line| line.fill(' ')),
                _ => {}
            }
            rest = &control[end + 1..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        if let Some(cell) = lines.get_mut(line).and_then(|line| line.get_mut(column)) {
            *cell = c;
        }
        column += 1;
    }
    let lines = lines.into_iter().map(String::from_iter);
    lines.collect::<Vec<String>>().join("\n")
}
