//! Nodes in state FUTURE: hosts take them by `slurmd -F`, and give them back.

use super::faults::restart;
use super::{AS_USER, Auth, Hosts, ok};
use std::process::Command;

/// Nodes that are not there yet: two like this machine, and one like none.
fn lines() -> &'static str {
    let machine = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["slurmd", "-C"])
        .output()
        .unwrap();
    let machine = String::from_utf8(machine.stdout).unwrap();
    let (_, pairs) = machine.split_once(' ').unwrap();
    let (shape, _) = pairs.split_once(" RealMemory").unwrap();
    let lines = format!(
        "NodeName=f[1-2] State=FUTURE {shape} RealMemory=400 Feature=big\n\
         NodeName=f3 State=FUTURE Sockets=17 CoresPerSocket=3 ThreadsPerCore=2 Feature=huge\n\
         SlurmctldParameters=enable_configless\n"
    );
    Box::leak(lines.into_boxed_str())
}

/// The controller ends, and another begins where it was.
fn restart_controller(hosts: &mut Hosts) {
    let mut daemons = hosts.daemons.iter();
    let at = daemons.position(|daemon| daemon.id() == hosts.controller);
    let at = at.unwrap();
    restart(hosts, at, "slurmctld -D");
    hosts.controller = hosts.daemons[at].id();
    hosts.until("the controller is up again", || {
        hosts.on("login", "scontrol ping").ends_with("is UP")
    });
}

fn take_and_give_back(auth: Auth) {
    let Some(mut hosts) = Hosts::prepared(auth, lines(), |_| {}) else {
        return;
    };
    let root = |hosts: &Hosts, script: &str| hosts.beside_controller(script);
    // Nobody sees what is not there.
    let seen = hosts.on(
        "login",
        "sinfo -h -N -o %N | sort -u; scontrol show node f1; scontrol -F show node f1 | grep State; sinfo -h -N -F -n f3 -o %N:%t",
    );
    assert_eq!(seen.lines().next(), Some("n1"), "{seen}");
    assert!(seen.contains("Node f1 not found"), "{seen}");
    assert!(seen.contains("State=FUTURE "), "{seen}");
    assert!(seen.contains("f3:futr"), "{seen}");
    assert_eq!(seen.matches("f1").count(), 1, "{seen}");
    // Who is no machine of that kind, no administrator, or of another cluster, gets none.
    let refused = hosts.on(
        "n3",
        "slurmd -D -Fhuge; slurmd -D -F -Z; slurmd -D -F -N f1",
    );
    assert!(
        refused.contains("no node in state FUTURE with the feature huge has Sockets="),
        "{refused}"
    );
    assert_eq!(
        refused.matches("leave out -Z and -N").count(),
        2,
        "{refused}"
    );
    let user = hosts.on(
        "n3",
        &format!("{AS_USER} muster node take $SLURM_CONF || echo status $?"),
    );
    assert!(user.contains("status 1"), "{user}");
    let other = hosts.by("n3", "others/slurm.conf", "slurmd -D -F");
    assert!(other.contains("this host is given no node"), "{other}");
    let strange = hosts.on("n3", "timeout 5 slurmd -D -N f3");
    assert!(!strange.contains("panicked"), "{strange}");
    assert_eq!(
        hosts.on("login", "sinfo -h -N -F -n f[1-3] -o %N:%t | sort -u"),
        "f1:futr\nf2:futr\nf3:futr"
    );
    // One that is gets the first that fits.
    let daemon = hosts.daemon("n3", "slurmd -D -Fbig");
    let first = hosts.daemons.len();
    hosts.daemons.push(daemon);
    let is_idle = |hosts: &Hosts| hosts.on("login", "sinfo -h -n f1 -o %N:%t") == "f1:idle";
    hosts.until("the node is taken", || is_idle(&hosts));
    let shown = hosts.on("login", "scontrol show node f1");
    for text in [
        "State=IDLE+DYNAMIC_FUTURE ",
        "NodeAddr=10.91.0.5 NodeHostName=n3",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let run = "srun -w f1 sh -c 'hostname; echo $SLURMD_NODENAME'";
    assert_eq!(hosts.on("login", run), "n3\nf1");
    // It stays taken over restarts of slurmd and controller.
    restart_controller(&mut hosts);
    hosts.until("the node is back", || is_idle(&hosts));
    root(&hosts, "scontrol reconfigure");
    assert_eq!(hosts.on("login", run), "n3\nf1");
    // No other host takes its place.
    let thief = hosts.on("n2", "hostname n3; timeout 3 slurmd -D -F");
    assert!(
        thief.contains("host n3 is node f1 already, at 10.91.0.5, and its agent is connected"),
        "{thief}"
    );
    let second = hosts.daemon("login", "slurmd -D -F");
    hosts.daemons.push(second);
    hosts.until("the second is taken", || {
        hosts.on("login", "sinfo -h -n f2 -o %N:%t") == "f2:idle"
    });
    let ran = hosts.on("login", "srun -N2 -w f[1-2] -l hostname | sort");
    assert_eq!(ran, "0: n3\n1: login");
    // The host goes, and comes back with another address.
    let tag = hosts.tag.clone();
    hosts.daemons[first].kill().unwrap();
    hosts.daemons[first].wait().unwrap();
    ok(&format!("ip netns pids {tag}n3 | xargs -r kill -9"));
    hosts.until("its agent is missed", || {
        hosts.on("login", "sinfo -h -n f1 -o %t").ends_with('*')
    });
    ok(&format!(
        "ip -n {tag}n3 addr flush dev eth0; ip -n {tag}n3 addr add 10.91.0.9/24 dev eth0"
    ));
    let daemon = hosts.daemon("n3", "slurmd -D -F");
    hosts.daemons.push(daemon);
    hosts.until("it is the same node at another address", || {
        is_idle(&hosts)
            && hosts
                .on("login", "scontrol show node f1")
                .contains("NodeAddr=10.91.0.9 ")
    });
    assert_eq!(hosts.on("login", run), "n3\nf1");
    // It is given back when no job is there, and its slurmd ends.
    let busy = hosts.on(
        "login",
        "srun -w f1 sh -c 'until [ -e end ]; do sleep 0.05; done' > busy 2>&1 & until squeue -h -o %T | grep -q RUNNING; do sleep 0.05; done; \
         true",
    );
    assert_eq!(busy, "");
    let refused = root(&hosts, "scontrol update nodename=f1 state=future");
    assert!(refused.contains("is on node f1"), "{refused}");
    hosts.on(
        "login",
        "touch end; while squeue -h | grep .; do sleep 0.05; done",
    );
    let given = root(&hosts, "scontrol update nodename=f1 state=future");
    assert_eq!(given, "");
    let last = hosts.daemons.len() - 1;
    let status = hosts.daemons[last].wait().unwrap();
    assert!(status.success(), "{status}");
    let shown = hosts.on("login", "scontrol -F show node f1; scontrol show node f1");
    assert!(shown.contains("State=FUTURE "), "{shown}");
    assert!(shown.contains("NodeAddr=f1 NodeHostName=f1"), "{shown}");
    assert!(shown.contains("Node f1 not found"), "{shown}");
}

#[test]
fn hosts_take_future_nodes_and_give_them_back() {
    take_and_give_back(Auth::Munge);
}

#[test]
fn hosts_with_the_key_of_the_cluster_take_future_nodes() {
    take_and_give_back(Auth::Slurm);
}
