//! Nodes that are known by keys of their own.

use super::{AS_USER, Auth, Hosts};
use std::fs;
use std::process::Child;

/// A controller of which hosts get the configuration, and a node may join that no file names.
const LINES: &str = "MaxNodeCount=3\nSlurmctldParameters=enable_configless\n";

/// What a node's processes see that was started by a daemon, which each has files of its own.
fn inside(hosts: &Hosts, of: &Child, script: &str) -> String {
    hosts.in_name_spaces(of.id(), script)
}

fn token(hosts: &Hosts, node: &str) -> String {
    let token = hosts.beside_controller(&format!("muster node token {node}"));
    assert!(token.starts_with("muster-join-"), "{token}");
    token
}

/// A host has neither munge nor a key of the cluster, and says nothing that anybody believes but by its own.
#[test]
fn nodes_with_keys_of_their_own_need_no_key_of_the_cluster() {
    let Some(mut hosts) = Hosts::prepared(Auth::Own, LINES, |_| {}) else {
        return;
    };
    let joined = |token: &str, words: &str| {
        format!("bash -c 'muster node join {token} && exec slurmd -D {words}'")
    };
    let first = token(&hosts, "n1");
    // Another host has got hold of it.
    let refused = hosts.on("n2", &format!("echo {first} | muster node join -"));
    assert!(
        refused.contains("but its NodeAddr is 10.91.0.3"),
        "{refused}"
    );
    let refused = hosts.on("n2", &format!("muster node join {first} -N n2"));
    assert!(refused.contains("is for node n1, not for n2"), "{refused}");
    let none = hosts.on("n1", "timeout 5 slurmd -D -N n1; sinfo");
    assert!(none.contains("auth/none"), "{none}");
    for (node, token) in [("n1", first.clone()), ("n2", token(&hosts, "n2"))] {
        let daemon = hosts.daemon(node, &joined(&token, &format!("-N {node}")));
        hosts.daemons.push(daemon);
    }
    // One that no file names, and that has no file.
    let any = token(&hosts, "");
    let bare = format!(
        "bash -c 'mount -t tmpfs run /run; mount -t tmpfs spool /var/spool; unset SLURM_CONF; \
         muster node join {any} --controller ctl && exec slurmd -D -Z --conf-server ctl --conf \"CPUs=2 RealMemory=500\"'"
    );
    let daemon = hosts.daemon("n3", &bare);
    hosts.daemons.push(daemon);
    hosts.until("all nodes are idle", || {
        hosts.beside_controller("sinfo -h -o %D:%t") == "3:idle"
    });
    let shown = hosts.beside_controller("scontrol show node n1; scontrol show node n3");
    assert_eq!(shown.matches("TrustedBy=its own key").count(), 2, "{shown}");
    // A user's commands on nodes are known by their keys, and root of a node is nobody.
    let own = format!("{}/own/sack.socket", hosts.dir.display());
    let script = format!(
        "rm -f out; {AS_USER} sbatch -W -N3 -o out --wrap 'export SLURM_SACK_SOCKET={own}; squeue -h -o %u; srun -l hostname | sort'; cat out"
    );
    let dir = hosts.dir.join("tmp");
    let ran = hosts.beside_controller(&format!("cd {}; {script}", dir.display()));
    assert!(ran.ends_with("\nnobody\n0: n1\n1: n2\n2: n3"), "{ran}");
    let [.., n1, _, _] = hosts.daemons.as_slice() else {
        unreachable!("three nodes were started");
    };
    let sack = format!("export SLURM_SACK_SOCKET={own}");
    let root = inside(
        &hosts,
        n1,
        &format!("{sack}; scontrol update nodename=n2 state=down reason=x"),
    );
    assert!(
        root.contains("root and SlurmUser of node n1 are nobody here"),
        "{root}"
    );
    // A user of whom a node says who it is has the rights of ordinary ones.
    hosts.beside_controller(
        "sacctmgr -i add account a; sacctmgr -i add user nobody account=a adminlevel=administrator",
    );
    let update = format!("{AS_USER} scontrol update nodename=n2 comment=x");
    let denied = inside(&hosts, n1, &format!("{sack}; {update}"));
    assert!(denied.contains("Invalid user id"), "{denied}");
    assert_eq!(hosts.beside_controller(&update), "");
    let token = inside(&hosts, n1, &format!("{sack}; {AS_USER} scontrol token"));
    assert!(token.contains("gets no tokens for its users"), "{token}");
    // A token is good once, and nobody guesses one.
    let again = hosts.on("n1", &format!("muster node join {first}"));
    assert!(again.contains("was used already, for node n1"), "{again}");
    let elsewhere = hosts.on("n1", "muster node token n1");
    assert!(!elsewhere.contains("muster-join-"), "{elsewhere}");
    let list = hosts.beside_controller("muster node list");
    assert!(list.contains("10.91.0.5"), "{list}");
    let user = hosts.beside_controller("setpriv --reuid=2 --clear-groups muster node token n1");
    assert!(
        user.contains("denied") || user.contains("permission"),
        "{user}"
    );
}

/// The key of munge that all hosts have is not enough for a node that has a key of its own.
#[test]
fn a_node_with_a_key_is_known_by_nothing_else() {
    let Some(mut hosts) = Hosts::prepared(Auth::Munge, "", |_| {}) else {
        return;
    };
    let first = token(&hosts, "n1");
    let words = format!("bash -c 'muster node join {first} && exec slurmd -D -N n1'");
    let daemon = hosts.daemon("n1", &words);
    hosts.daemons.push(daemon);
    let shows =
        |hosts: &Hosts, text: &str| hosts.on("login", "scontrol show node n1").contains(text);
    hosts.until("it is known by its key", || {
        hosts.on("login", "sinfo -h -n n1 -o %t") == "idle"
            && shows(&hosts, "TrustedBy=its own key")
    });
    let mut real = hosts.daemons.pop().unwrap();
    let dir = hosts.dir.display();
    let ended = hosts.in_name_spaces(real.id(), &format!("kill $(cat {dir}/own/slurmd.pid)"));
    assert_eq!(ended, "");
    real.wait().unwrap();
    // Files of this one are its own: it has munge, and no key.
    let daemon = hosts.daemon("n1", "slurmd -D -N n1");
    hosts.daemons.push(daemon);
    hosts.until("it is refused and counted", || {
        let list = hosts.beside_controller("muster node list");
        let line = list.lines().find(|line| line.starts_with("n1 "));
        line.is_some_and(|line| !line.trim_end().ends_with(" 0"))
    });
    let log = fs::read_to_string(hosts.dir.join("log/ctld")).unwrap();
    assert!(
        log.contains("node n1 is known by a key of its own"),
        "{log}"
    );
    // What the administrator forgets is believed as before.
    assert_eq!(hosts.beside_controller("muster node forget n1"), "");
    hosts.until("it is known by munge", || shows(&hosts, "TrustedBy=munge"));
}
