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
    let (is_up, said) = up();
    assert!(is_up, "{said}");
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
