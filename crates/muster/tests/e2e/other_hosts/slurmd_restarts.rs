//! slurmd ends on a host and begins again while srun on another host has steps there: streams, signals and exit codes are
//! what they would have been.

use super::faults::restart_after;
use super::{Auth, Hosts, ok};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;

/// Repeats lines until the last one, counts meanwhile until a file is there, and has an exit code of its own.
const ECHO: &str = "trap : USR1\n\
    (trap 'echo signalled' USR1; i=0\n\
     until [ -e stop ]; do echo tick $i; i=$((i + 1)); (trap '' USR1; exec sleep 0.02); done\n\
     echo $i > ticks) &\n\
    line=\n\
    until [ \"$line\" = end ]; do read -r line && echo got $line; done\n\
    wait\n\
    exit 5\n";

/// Starts three steps: one has input and output, one more output than there is room for on the way, over a tree of
/// its nodes, and one is ended from outside.
const LOGIN: &str = "srun -w n1 -n1 --mem=50 -J echo bash echo.sh < input > echoed 2> echo.err & echo=$!\n\
    echo $echo > echo.pid\n\
    srun -l -N2 -n2 --mem=50 -J numbers sh -c 'touch numbers.$SLURM_PROCID; exec seq 1000000' 2> numbers.err |\n\
    (until [ -e drain ]; do sleep 0.1; done\n\
     awk '$2 != ++n[$1] {bad++} END {print n[\"0:\"], n[\"1:\"], bad + 0}' > counted) & numbers=$!\n\
    sh -c 'echo $$ > victim.pid; exec srun -w n2 -n1 --mem=50 -J victim sleep 1000' > victim.err 2>&1\n\
    echo $? > victim.exit\n\
    wait $echo; echo $? > echo.exit\n\
    wait $numbers; touch over\n";

fn read(hosts: &Hosts, name: &str) -> String {
    fs::read_to_string(hosts.dir.join("tmp").join(name)).unwrap_or_default()
}

fn write(hosts: &Hosts, name: &str, text: &str) {
    fs::write(hosts.dir.join("tmp").join(name), text).unwrap();
}

/// What differs between the tests.
struct Variant {
    /// Signal for the process group of slurmd, as timeout(1) and terminals send it.
    end: &'static str,
    /// Command on the login host that ends a step, and the code with which its srun exits.
    cancel: &'static str,
    cancelled: &'static str,
    /// Its rows of accounting.
    rows: &'static str,
    /// Pattern of the processes of a node that are killed at last.
    lost: &'static str,
}

/// Steps outlive the end of slurmd on their nodes.
fn have_steps_go_on(variant: &Variant) {
    let Some(mut hosts) = Hosts::prepared(Auth::Munge, "TreeWidth=1\n", |_| {}) else {
        return;
    };
    let first = hosts.daemons.len();
    for node in ["n1", "n2"] {
        let daemon = hosts.daemon(node, &format!("slurmd -D -N {node}"));
        hosts.daemons.push(daemon);
    }
    let are_idle = |hosts: &Hosts| hosts.on("login", "sinfo -h -o %D:%t") == "2:idle";
    hosts.until("nodes are idle", || are_idle(&hosts));
    write(&hosts, "echo.sh", ECHO);
    write(&hosts, "login.sh", LOGIN);
    assert_eq!(hosts.on("login", "mkfifo input"), "");
    let login = hosts.daemon("login", "bash login.sh");
    hosts.daemons.push(login);
    let input = hosts.dir.join("tmp/input");
    let mut input = OpenOptions::new().write(true).open(input).unwrap();
    say(&hosts, &mut input, "first");
    hosts.until("all steps run", || {
        let begun = ["numbers.0", "numbers.1"].map(|name| hosts.dir.join("tmp").join(name));
        let steps = hosts.on("login", "squeue -h -s -o %j");
        begun.iter().all(|file| file.exists()) && steps.contains("victim")
    });
    for (at, node) in [(first, "n1"), (first + 1, "n2")] {
        let end = format!("kill {} -- -{}", variant.end, hosts.daemons[at].id());
        restart_after(&mut hosts, at, &end, &format!("slurmd -D -N {node}"));
        say(&hosts, &mut input, node);
    }
    hosts.until("both nodes are back", || {
        hosts.on("login", "sinfo -h -o %D:%t") == "2:alloc"
    });
    let signalled = "kill -USR1 $(cat echo.pid)";
    assert_eq!(hosts.on("login", signalled), "");
    hosts.until("the signal is there", || {
        read(&hosts, "echoed").contains("signalled\n")
    });
    assert_eq!(hosts.on("login", variant.cancel), "");
    hosts.until("the cancelled step is over", || {
        !read(&hosts, "victim.exit").is_empty()
    });
    write(&hosts, "drain", "");
    write(&hosts, "stop", "");
    say(&hosts, &mut input, "end");
    hosts.until("all steps are over", || hosts.dir.join("tmp/over").exists());
    assert_eq!(read(&hosts, "counted"), "1000000 1000000 0\n");
    assert_eq!(read(&hosts, "numbers.err"), "");
    assert_eq!(read(&hosts, "victim.exit").trim(), variant.cancelled);
    let echoed = read(&hosts, "echoed");
    let count = read(&hosts, "ticks").trim().parse().unwrap();
    let expected: Vec<String> = (0..count).map(|i| format!("tick {i}")).collect();
    let ticks: Vec<&str> = echoed.lines().filter(|l| l.starts_with("tick")).collect();
    assert_eq!(ticks, expected);
    let others: Vec<&str> = echoed.lines().filter(|l| !l.starts_with("tick")).collect();
    let said = ["got first", "got n1", "got n2", "signalled", "got end"];
    assert_eq!(others, said);
    assert_eq!(read(&hosts, "echo.exit"), "5\n");
    let errors = read(&hosts, "echo.err");
    assert_eq!(errors, "srun: error: n1: task 0: Exited with exit code 5\n");
    hosts.until("no job is left", || are_idle(&hosts));
    let ended = hosts.on("login", "sacct -n -P -o JobName,State,ExitCode | sort");
    let rows = "echo|FAILED|5:0\necho|FAILED|5:0\nnumbers|COMPLETED|0:0\nnumbers|COMPLETED|0:0\n";
    assert_eq!(ended, format!("{rows}{}", variant.rows));
    // A node that is gone, or what carries its streams, is no restart.
    let lost = "bash -c 'srun -w n2 -J lost sleep 1000 > lost 2>&1; echo $? > lost.exit'";
    let login = hosts.daemon("login", lost);
    hosts.daemons.push(login);
    hosts.until("the step runs", || {
        hosts.on("login", "squeue -h -s -o %j") == "lost"
    });
    ok(&format!(
        "for p in $(ip netns pids {}n2); do grep -q '{}' /proc/$p/cmdline && kill -9 $p; done; true",
        hosts.tag, variant.lost
    ));
    hosts.until("srun is over", || !read(&hosts, "lost.exit").is_empty());
    assert_eq!(read(&hosts, "lost.exit"), "1\n");
    let errors = read(&hosts, "lost");
    assert!(errors.contains("Node failure on n2"), "{errors}");
}

fn say(hosts: &Hosts, input: &mut File, line: &str) {
    writeln!(input, "{line}").unwrap();
    let got = format!("got {line}");
    hosts.until(&got, || read(hosts, "echoed").lines().any(|l| l == got));
}

#[test]
fn steps_of_other_hosts_outlive_the_restart_of_slurmd() {
    have_steps_go_on(&Variant {
        end: "-TERM",
        cancel: "scancel -n victim",
        cancelled: "143",
        rows: "victim|CANCELLED by 0|0:0\nvictim|CANCELLED|0:15",
        lost: "muster-relay",
    });
}

#[test]
fn steps_of_other_hosts_outlive_a_killed_slurmd() {
    have_steps_go_on(&Variant {
        end: "-KILL",
        cancel: "p=$(cat victim.pid); kill -INT $p; sleep 0.2; kill -INT $p",
        cancelled: "130",
        rows: "victim|CANCELLED|0:2\nvictim|FAILED|0:2",
        lost: "",
    });
}
