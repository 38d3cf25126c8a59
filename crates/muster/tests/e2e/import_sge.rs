//! `muster import sge`: what is written is a configuration that can be used.

use crate::cluster::Cluster;

const FILES: [(&str, &str); 11] = [
    (
        "centry",
        "#name shortcut type relop requestable consumable default urgency\n\
         gpu gpu RSMAP <= YES YES 0 0\nlic lic INT <= YES JOB 0 0\n",
    ),
    (
        "execution/n1",
        "hostname n1\ncomplex_values gpu=2(0 1)\nload_values num_proc=4,mem_total=4G\nprocessors 4\n",
    ),
    (
        "execution/n2",
        "hostname n2\ncomplex_values NONE\nload_values num_proc=4,mem_total=4G\nprocessors 4\n",
    ),
    (
        "execution/global",
        "hostname global\ncomplex_values lic=3\n",
    ),
    (
        "cqueues/all.q",
        "qname all.q\nhostlist n1 n2\nslots 4\nh_rt 2:00:00\ncalendar night\n",
    ),
    (
        "calendars/night",
        "calendar_name night\nyear NONE\nweek mon-fri=6-20\n",
    ),
    ("ckpt", "ckpt_name restart\ninterface userdefined\n"),
    ("pe/smp", "pe_name smp\nallocation_rule $pe_slots\n"),
    (
        "usersets/staff",
        "name staff\ntype ACL\nentries alice,root\n",
    ),
    (
        "projects/P1",
        "name P1\noticket 0\nfshare 3\nacl staff\nxacl NONE\n",
    ),
    (
        "jobclasses/fast",
        "jcname fast\nuser_lists staff\nl_hard {~}h_rt=600,{-}lic=1\npe_name smp\npe_range 2\n",
    ),
];

#[test]
fn a_dumped_site_comes_up_with_its_accounts_and_classes() {
    let c = Cluster::start(1, 4);
    for (name, text) in FILES {
        let file = c.dir.join("site").join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    let said = c.ok("muster import sge site new --controller ctl");
    assert!(
        said.contains("new: 2 hosts, 1 queues; NOTES lists 1 things"),
        "{said}"
    );
    assert!(
        c.read("new/NOTES")
            .contains("there are no checkpointing environments")
    );
    assert!(
        c.read("new/sge.conf")
            .contains("calendar night year NONE week mon-fri=6-20\n")
    );
    assert!(
        c.read("new/sge.conf")
            .contains("queue_calendar all.q night\n")
    );
    let checked = c.ok("SLURM_CONF=$PWD/new/slurm.conf muster config check new/slurm.conf");
    assert!(
        checked.contains("2 nodes, 1 partition, 0 errors, 0 warnings"),
        "{checked}"
    );
    assert_eq!(
        c.ok("SLURM_CONF=$PWD/new/slurm.conf muster class check"),
        "1 classes, nothing is wrong"
    );
    let again = c.run("muster import sge site new");
    assert!(
        again.code == 1 && again.err.contains("which must be new"),
        "{again:?}"
    );
    assert!(
        c.run("mkdir e && muster import sge e other")
            .err
            .contains("has no queue")
    );
    // The accounts are those of another cluster's name here.
    c.ok("name=$(scontrol show config | awk '$1 == \"ClusterName\" {print $3}'); \
          sed \"s/^Cluster - 'sge'/Cluster - '$name'/\" new/accounts.dump >accounts; sacctmgr -i load file=accounts");
    let shares = c.ok("sacctmgr -nP show assoc format=account,user,fairshare");
    assert!(
        shares.contains("p1||3") && shares.contains("p1|alice|"),
        "{shares}"
    );
    // Queues, environments, complexes and classes count in a cluster with these nodes.
    let conf = std::fs::read_to_string(c.path("slurm.conf")).unwrap();
    std::fs::write(c.path("slurm.conf"), conf + "\nLicenses=lic:3\n").unwrap();
    for name in ["sge.conf", "job_classes.conf"] {
        let text = c
            .read(&format!("new/{name}"))
            .replace("queue all.q all\n", "")
            .replace("week mon-fri=6-20", "week off");
        std::fs::write(c.path(name), text).unwrap();
    }
    c.ok("scontrol reconfigure");
    let state = c.ok("qstat -f -q all.q@n1 | awk '/^all.q@n1/ {print $NF}'");
    assert_eq!(state, "D");
    let job = c.ok("qsub -terse -h -jc fast -b y true");
    let shown = c.ok(&format!("scontrol show job {job}"));
    for part in [
        "JobClass=fast",
        "TimeLimit=00:10:00",
        "NumTasks=2",
        "Licenses=lic:1",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}
