//! Hosts without files of the cluster: they find the controller by DNS or by name, and keep what it gives.

use super::{AS_USER, Auth, Hosts, sh};
use std::fs;

/// Makes a host one that has no files: `/etc` and `/run` are its own, and nothing is in `/etc/slurm`.
fn bare(hosts: &Hosts) -> String {
    let dir = hosts.dir.display();
    format!(
        "mkdir {dir}/own/u {dir}/own/w && mount -t overlay etc -o lowerdir=/etc,upperdir={dir}/own/u,workdir={dir}/own/w /etc && \
         cp {dir}/hosts /etc/hosts && mkdir -p /etc/slurm && rm -f /etc/slurm/*; rm -f /etc/resolv.conf; \
         mount -t tmpfs run /run; mkdir /run/munge; ln -s {dir}/munge/socket /run/munge/munge.socket.2; unset SLURM_CONF"
    )
}

/// Waits in a shell until a command succeeds.
fn until(command: &str) -> String {
    format!("timeout 30 bash -c 'until {command}; do sleep 0.1; done'")
}

#[test]
fn hosts_without_files_find_the_controller_by_dns_and_follow_its_configuration() {
    if !sh("command -v dnsmasq").status.success() {
        eprintln!("no dnsmasq is there: this test looked at nothing");
        return;
    }
    let lines = "SlurmctldParameters=enable_configless\nInclude nodes.conf\n";
    let Some(mut hosts) = Hosts::prepared(Auth::Munge, lines, |dir| {
        let node = "NodeName=n3 NodeAddr=10.91.0.5 CPUs=2 RealMemory=500\n";
        fs::write(dir.join("nodes.conf"), node).unwrap();
    }) else {
        return;
    };
    let own = bare(&hosts);
    // Nobody is asked where no server is named.
    let none = hosts.on("login", &format!("{own}; slurmd -D -N n3"));
    assert!(none.contains("no controller is found by DNS"), "{none}");
    // So many records that the answer does not fit into a datagram; the right one is not the first.
    let others: String = (1..40)
        .map(|n| format!(" --srv-host=_slurmctld._tcp.cluster.test,spare{n}.with.a.long.name.cluster.test,6817,{n},1"))
        .collect();
    let dns = format!(
        "dnsmasq -k --user=root --pid-file= --no-resolv --no-hosts --listen-address=10.91.0.1 --bind-interfaces \
         --except-interface=lo --auth-server= --local=/test/{others} --srv-host=_slurmctld._tcp.cluster.test,ctl,6817,0,1"
    );
    let dns = dns.replace(" --auth-server=", "");
    let daemon = hosts.daemon("ctl", &dns);
    hosts.daemons.push(daemon);
    let own = format!(
        "{own}; printf 'search other.test cluster.test\\nnameserver 10.91.0.1\\n' > /etc/resolv.conf"
    );
    let nodes = hosts.dir.join("nodes.conf");
    let (nodes, changed) = (
        nodes.display(),
        until("grep -q changed /run/slurm/conf/nodes.conf"),
    );
    // A node.
    let said = hosts.on(
        "n3",
        &format!(
            "{own}; slurmd -D -N n3 --conf-user=root & {}; srun -w n3 hostname; kill %1; wait",
            until("sinfo -h -n n3 -o %t | grep -q idle")
        ),
    );
    assert!(said.lines().any(|line| line == "n3"), "{said}");
    // A login host: its commands have no file but what sackd keeps.
    let said = hosts.on(
        "login",
        &format!(
            "{own}; sinfo >/dev/null 2>&1 && echo too early; sackd -D --conf-user=root --refresh 1 & \
             {}; echo known $(sinfo -h -n n3 -o %n); echo '# changed' >> {nodes}; scontrol reconfigure; {changed} && echo followed; \
             kill %1; wait",
            until("sinfo -h >/dev/null 2>&1")
        ),
    );
    assert!(
        said.contains("known n3\n") && said.contains("followed"),
        "{said}"
    );
    assert!(!said.contains("too early"), "{said}");
}

#[test]
fn hosts_with_nothing_but_the_clusters_key_get_its_configuration() {
    let lines = "SlurmctldParameters=enable_configless\n";
    let Some(hosts) = Hosts::prepared(Auth::Slurm, lines, |_| {}) else {
        return;
    };
    let own = bare(&hosts);
    let key = hosts.dir.join("slurm.key");
    let with_key = format!("{own}; cp -p {} /etc/slurm/", key.display());
    let get = "--conf-server ctl --conf-user=daemon";
    let said = hosts.on(
        "n2",
        &format!(
            "{with_key}; slurmd -D -N n2 {get} & {}; srun -w n2 -n1 hostname; kill %1; wait",
            until("sinfo -h -n n2 -o %t | grep -q idle")
        ),
    );
    assert!(said.lines().any(|line| line == "n2"), "{said}");
    let said = hosts.on(
        "login",
        &format!(
            "{with_key}; sackd -D {get} --refresh 1 & {}; {AS_USER} scontrol ping; kill %1; wait",
            until(&format!("{AS_USER} sinfo -h >/dev/null 2>&1"))
        ),
    );
    assert!(said.contains("Slurmctld(primary) at ctl is UP"), "{said}");
    // Who has another key gets nothing.
    let other = hosts.dir.join("others/slurm.key");
    let refused = hosts.on(
        "login",
        &format!(
            "{own}; cp -p {} /etc/slurm/; muster config fetch ctl /run/slurm daemon",
            other.display()
        ),
    );
    assert!(refused.contains("gives no configuration"), "{refused}");
}

/// The configuration that a node has been given since is not one for this host.
#[test]
fn a_node_that_cannot_apply_the_configuration_takes_no_jobs_until_it_can() {
    let lines = "SlurmctldParameters=enable_configless\nInclude nodes.conf\n";
    let Some(hosts) = Hosts::prepared(Auth::Munge, lines, |dir| {
        let node = "NodeName=n3 NodeAddr=10.91.0.5 CPUs=2 RealMemory=500\n";
        fs::write(dir.join("nodes.conf"), node).unwrap();
    }) else {
        return;
    };
    let own = bare(&hosts);
    let nodes = hosts.dir.join("nodes.conf");
    let nodes = nodes.display();
    // For a while /run is full of what is not the configuration.
    let script = format!(
        "{own}; mkdir /run/slurm; mount -t tmpfs -o size=64k small /run/slurm; \
         slurmd -D -N n3 --conf-server ctl --conf-user=root & {idle}; \
         head -c 1000000 /dev/zero > /run/slurm/full; echo '# changed' >> {nodes}; scontrol reconfigure; {drained} && \
         scontrol show node n3 | grep Reason; rm /run/slurm/full; {idle} && grep -c changed /run/slurm/conf/nodes.conf; \
         scontrol update nodename=n3 state=drain reason=mine; scontrol reconfigure; sinfo -h -n n3 -o %t; kill %1; wait",
        idle = until("sinfo -h -n n3 -o %t | grep -q idle"),
        drained = until("sinfo -h -n n3 -o %t | grep -q drain"),
    );
    let said = hosts.on("n3", &script);
    assert!(
        said.contains("Reason=Configuration not applied: "),
        "{said}"
    );
    assert!(said.lines().any(|line| line == "1"), "{said}");
    assert!(said.lines().any(|line| line == "drain"), "{said}");
}
