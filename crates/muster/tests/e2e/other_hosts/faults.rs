//! Faults of the network between hosts: jobs go on, nothing is lost or run twice, and all come back by themselves.

use super::{Auth, Hosts, ok};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long it may take until a host is missed that says nothing.
const MISSED_MAX: Duration = Duration::from_secs(100);

/// Waits for what takes longer than other tests may.
fn eventually(hosts: &Hosts, what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + MISSED_MAX;
    while !holds() {
        if Instant::now() > until {
            hosts.until(what, || false);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A daemon ends, and another begins in its place; the others' places stay.
pub(super) fn restart(hosts: &mut Hosts, at: usize, words: &str) {
    restart_after(
        hosts,
        at,
        &format!("kill {}", hosts.daemons[at].id()),
        words,
    );
}

/// The same after a command that ends it.
pub(super) fn restart_after(hosts: &mut Hosts, at: usize, end: &str, words: &str) {
    let (dir, before) = (hosts.dir.display(), hosts.daemons[at].id());
    let script = format!(
        "export SLURM_CONF={dir}/slurm.conf SLURM_SACK_SOCKET={dir}/own/sack.socket PATH={dir}/bin:$PATH; cd {dir}/tmp; \
         {end}; while kill -0 {before}; do sleep 0.05; done 2>/dev/null; exec {words}"
    );
    let log = fs::File::create(hosts.dir.join(format!("log/again.{at}"))).unwrap();
    let again = Command::new("nsenter")
        .args(["-t", &before.to_string(), "-m", "-n", "-u"])
        .args(["bash", "-c", &script])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    // It is waited for, or it would remain in the table of processes.
    hosts.daemons[at].wait().unwrap();
    hosts.daemons[at] = again;
}

fn state(hosts: &Hosts, node: &str) -> String {
    hosts.on("login", &format!("sinfo -h -n {node} -o %t"))
}

/// n1 is behind a firewall that rejects what it sends, nothing of the controller reaches n2, and n3 gets another address.
#[test]
fn jobs_outlive_firewalls_one_way_links_and_new_addresses() {
    let lines = "NodeName=n3 NodeAddr=n3 CPUs=2 RealMemory=500\n";
    let Some(mut hosts) = Hosts::prepared(Auth::Munge, lines, |_| {}) else {
        return;
    };
    let nodes = ["n1", "n2", "n3"];
    for node in nodes {
        let daemon = hosts.daemon(node, &format!("slurmd -D -N {node}"));
        hosts.daemons.push(daemon);
    }
    hosts.until("all nodes are idle", || {
        hosts.on("login", "sinfo -h -o %D:%t") == "3:idle"
    });
    for node in nodes {
        let job = format!(
            "sbatch -w {node} -o /dev/null --wrap 'echo begin $SLURM_RESTART_COUNT >> notes.{node}; \
             until [ -e go ]; do sleep 0.1; done; echo end >> notes.{node}; exit 3'"
        );
        hosts.on("login", &job);
    }
    hosts.until("all jobs run", || {
        nodes
            .iter()
            .all(|node| hosts.dir.join(format!("tmp/notes.{node}")).exists())
    });
    let tag = hosts.tag.clone();
    let firewall = format!("ip -n {tag}n1 route {{}} prohibit 10.91.0.1/32");
    let one_way = format!("ip -n {tag}ctl route {{}} blackhole 10.91.0.4/32");
    ok(&format!(
        "ip netns exec {tag}ctl sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'; {}; {}",
        firewall.replace("{}", "add"),
        one_way.replace("{}", "add")
    ));
    // A command there says at once that it does not come through.
    let begun = Instant::now();
    let refused = hosts.on("n1", "sinfo");
    assert!(
        refused.contains("Unable to contact slurm controller"),
        "{refused}"
    );
    assert!(begun.elapsed() < Duration::from_secs(8), "{refused}");
    // The name leads to another address from now on.
    let names = fs::read_to_string(hosts.dir.join("hosts")).unwrap();
    let moved = names.replace("10.91.0.5 n3", "10.91.0.9 n3");
    fs::write(hosts.dir.join("hosts"), moved).unwrap();
    ok(&format!(
        "ip -n {tag}n3 addr flush dev eth0; ip -n {tag}n3 addr add 10.91.0.9/24 dev eth0"
    ));
    eventually(&hosts, "both nodes are missed", || {
        ["n1", "n2"]
            .iter()
            .all(|node| state(&hosts, node).ends_with('*'))
    });
    eventually(&hosts, "the third is back", || {
        !state(&hosts, "n3").ends_with('*')
    });
    let shown = hosts.on("login", "squeue -h -o %T | sort | uniq -c");
    assert_eq!(shown.trim(), "3 RUNNING");
    // Jobs end while their nodes do not reach the controller.
    fs::write(hosts.dir.join("tmp/go"), "").unwrap();
    hosts.until("all jobs are over where they run", || {
        nodes.iter().all(|node| {
            let notes = fs::read_to_string(hosts.dir.join(format!("tmp/notes.{node}")));
            notes.is_ok_and(|notes| notes == "begin\nend\n")
        })
    });
    ok(&format!(
        "{}; {}",
        firewall.replace("{}", "del"),
        one_way.replace("{}", "del")
    ));
    eventually(&hosts, "all nodes are back", || {
        hosts.on("login", "sinfo -h -o %D:%t") == "3:idle"
    });
    let ended = hosts.on(
        "login",
        "sacct -X -n -P -o State,ExitCode,Restarts | sort | uniq -c",
    );
    assert_eq!(ended.trim(), "3 FAILED|3:0|0", "{ended}");
    for node in nodes {
        let notes = fs::read_to_string(hosts.dir.join(format!("tmp/notes.{node}"))).unwrap();
        assert_eq!(notes, "begin\nend\n", "{node}");
    }
    let steps = hosts.on("login", "srun -N3 -l hostname | sort");
    assert_eq!(steps, "0: n1\n1: n2\n2: n3");
}

/// The login host is switched off under srun: nobody there says that it is gone.
#[test]
fn what_a_vanished_host_holds_is_given_back() {
    let lines = "CommunicationParameters=keepalivetime=3,keepaliveinterval=1,keepaliveprobes=3\n";
    let Some(mut hosts) = Hosts::prepared(Auth::Munge, lines, |_| {}) else {
        return;
    };
    for node in ["n1", "n2"] {
        let daemon = hosts.daemon(node, &format!("slurmd -D -N {node}"));
        hosts.daemons.push(daemon);
    }
    hosts.until("nodes are idle", || {
        hosts.on("login", "sinfo -h -o %D:%t") == "2:idle"
    });
    let srun = hosts.daemon(
        "login",
        "srun -N1 sh -c 'echo begun > begun; exec sleep 1000'",
    );
    let at = hosts.daemons.len();
    hosts.daemons.push(srun);
    hosts.until("the step runs", || hosts.dir.join("tmp/begun").exists());
    let tag = hosts.tag.clone();
    ok(&format!("ip -n {tag}login link set eth0 down"));
    hosts.until("its allocation is released", || {
        hosts.beside_controller("squeue -h").is_empty()
    });
    let status = hosts.daemons[at].wait().unwrap();
    assert!(!status.success(), "{status}");
    let said = fs::read_to_string(hosts.dir.join("log/login.out")).unwrap();
    assert!(said.contains("srun: error"), "{said}");
    let begun = Instant::now();
    let alone = hosts.on("login", "squeue");
    assert!(
        alone.contains("Unable to contact slurm controller"),
        "{alone}"
    );
    assert!(begun.elapsed() < Duration::from_secs(8), "{alone}");
    ok(&format!("ip -n {tag}login link set eth0 up"));
    hosts.until("the host is served again", || {
        hosts.on("login", "srun -N2 -l hostname | sort") == "0: n1\n1: n2"
    });
}
