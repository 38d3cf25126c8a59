//! `muster top` on a terminal: a job is seen, and cancelled by keys.

use crate::cluster::Cluster;
use std::io::Write as _;
use std::process::Stdio;

#[test]
fn a_job_is_seen_and_cancelled_on_a_terminal() {
    let c = Cluster::start(1, 2);
    let top = format!("{} top", env!("CARGO_BIN_EXE_muster"));
    let ran = c.run(&format!("{top} </dev/null"));
    assert!(
        ran.code == 1 && ran.err.contains("no terminal"),
        "{}",
        ran.err
    );
    let job =
        c.sbatch(r#"-J "$(printf 'evil\033[5mname')" -o out --wrap 'echo written; sleep 300'"#);
    c.until("it runs", || c.read_if_there("out") == "written\n");
    let mut shown = c
        .command(&format!(
            "script -qefc 'stty rows 24 cols 80; TERM=xterm {top}' screen >/dev/null"
        ))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = shown.stdin.take().unwrap();
    let screen = || {
        let bytes = std::fs::read(c.dir.join("screen")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
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
    assert_eq!(shown.wait().unwrap().code(), Some(0));
    let screen = screen();
    assert!(
        screen.contains("\u{1b}[?1049l"),
        "the terminal is as it was"
    );
    assert!(!screen.contains("evil\u{1b}"), "{screen:?}");
}
