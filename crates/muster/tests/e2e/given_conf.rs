//! `muster up -f FILE`: what it says of a site's files, and what it keeps of them.

use crate::cluster::Cluster;

const SITE: &str = "# Ours\nSlurmctldHost=elsewhere\nClusterName=c\nSlurmUser=no-such-account\nInclude nodes.conf\n\
                    StateSaveLocation=/nonexistent\nPartitionName=p Nodes=ALL Default=YES State=UP\n";

#[test]
fn errors_and_warnings_name_the_sites_files_and_lines() {
    let c = Cluster::fresh();
    let file = c.dir.join("site.conf");
    let up = || {
        let output = c.muster("up", &["-f", file.to_str().unwrap()]);
        (
            output.status.success(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    c.write("site.conf", &format!("{SITE}NoSuchKey=1\n"));
    c.write("nodes.conf", "NodeName=n1 CPUs=2\nNodeName=n2 CPUs=many\n");
    c.write("gres.conf", "# Devices\nNoSuchKey=1\n");
    let (is_up, said) = up();
    assert!(!is_up);
    for place in ["site.conf:8", "nodes.conf:2", "gres.conf:2"] {
        let place = c.dir.join(place).display().to_string();
        assert!(said.contains(&place), "{place}: {said}");
    }
    let copy = c.path("slurm.conf").display().to_string();
    assert!(!said.contains(&copy), "{said}");
    c.write("site.conf", SITE);
    c.write("nodes.conf", "NodeName=n1 CPUs=2\nNodeName=n2 CPUs=2\n");
    c.write("gres.conf", "");
    let hook = "webhook traces\nurl http://127.0.0.1:9/v1/traces\nformat otlp\n";
    c.write("webhooks.conf", hook);
    let (is_up, said) = up();
    assert!(is_up, "{said}");
    assert_eq!(
        c.ok("cat $(dirname $SLURM_CONF)/webhooks.conf"),
        hook.trim_end()
    );
    let place = format!("{}:4", file.display());
    assert!(
        said.contains(&place) && said.contains("SlurmUser=no-such-account is not kept"),
        "{said}"
    );
    assert_eq!(c.ok("sinfo -h -o '%R %D'"), "p 2");
    // By their numbers, lines are the site's.
    assert_eq!(
        c.ok("sed -n '3p;7p' $SLURM_CONF"),
        "ClusterName=c\nPartitionName=p Nodes=ALL Default=YES State=UP"
    );
}

/// What `muster up` says on standard error when it fails.
fn refused(c: &Cluster, args: &[&str]) -> String {
    let output = c.muster("up", args);
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_configuration_that_is_there_is_kept() {
    let c = Cluster::start(2, 2);
    c.ok("echo PrivateData=jobs >> $SLURM_CONF");
    let edited = c.ok("cat $SLURM_CONF");
    let said = refused(&c, &["-n", "3"]);
    assert!(said.contains("a cluster of 2 nodes"), "{said}");
    c.write(
        "other.conf",
        "ClusterName=other\nNodeName=m1 CPUs=2\nPartitionName=p Nodes=ALL\n",
    );
    let other = c.dir.join("other.conf");
    let said = refused(&c, &["-f", other.to_str().unwrap()]);
    assert!(said.contains("'muster down'"), "{said}");
    c.kill(c.controller());
    c.up_again(&["-n", "2"]);
    assert_eq!(c.ok("cat $SLURM_CONF"), edited);
    assert!(
        c.ok("scontrol show config | grep PrivateData")
            .ends_with("= jobs")
    );
    assert!(c.muster("down", &[]).status.success());
    let said = refused(&c, &["-n", "3"]);
    assert!(said.contains("was edited"), "{said}");
    let said = refused(&c, &["-f", other.to_str().unwrap()]);
    assert!(said.contains("the state of cluster 'muster'"), "{said}");
    c.up_again(&[]);
    assert_eq!(c.ok("cat $SLURM_CONF"), edited);
    assert_eq!(c.ok("sinfo -h -o %D"), "2");
}

#[test]
fn nodes_that_the_configuration_has_no_more_are_stopped_too() {
    let c = Cluster::start(2, 2);
    let launcher: i32 = c
        .read_if_there("../spool.n2/shim.pid")
        .trim()
        .parse()
        .unwrap();
    let agent = c.agent("n2");
    c.ok("sed -i 's/NodeName=n.1-2./NodeName=n1/; s/Nodes=n.1-2./Nodes=n1/' $SLURM_CONF");
    assert!(c.muster("down", &[]).status.success());
    for pid in [agent, launcher] {
        c.until("the node's daemons are gone", || {
            !crate::cluster::alive(pid)
        });
    }
}

#[test]
fn the_configuration_in_force_is_written_as_a_file() {
    let c = Cluster::start(2, 2);
    c.ok("scontrol update partition=$(sinfo -h -o %R) maxtime=77");
    let said = c.ok("scontrol write config written");
    let path = said.strip_prefix("Slurm config saved to ").unwrap();
    assert!(path.starts_with("written.20"), "{said}");
    let text = c.read(path);
    let has = |line: &str| text.lines().any(|own| own.starts_with(line));
    assert!(
        has("ClusterName=") && has("KillWait=") && has("NodeName=n2 "),
        "{text}"
    );
    assert!(text.contains(" MaxTime=01:17:00 "), "{text}");
    // The whole of it is a configuration.
    let check = c.run(&format!("muster config check {path}"));
    assert_eq!(check.code, 0, "{check:?}");
}

/// Each key of slurmdbd.conf was taken for one of slurm.conf.
#[test]
fn files_with_keys_of_their_own_are_checked_as_such() {
    let c = Cluster::start(1, 1);
    c.write(
        "slurmdbd.conf",
        "DbdHost=h\nStorageType=accounting_storage/mysql\nStorageLoc=db\n",
    );
    let check = c.run("muster config check slurmdbd.conf");
    assert_eq!(check.code, 0, "{check:?}");
    assert!(check.out.contains("slurmdbd.conf: errors 0"), "{check:?}");
    c.write("cgroup.conf", "ConstrainCores=perhaps\n");
    let check = c.run("muster config check cgroup.conf");
    assert_eq!(check.code, 1, "{check:?}");
    assert!(check.out.contains("ConstrainCores"), "{check:?}");
    // One that is read with slurm.conf is checked without it, too.
    c.write("gres.conf", "NodeName=n1 Name=gpu Fiel=/dev/nvidia0\n");
    let check = c.run("muster config check gres.conf");
    assert_eq!(check.code, 1, "{check:?}");
    assert!(check.out.contains("`Fiel` in gres.conf"), "{check:?}");
}
