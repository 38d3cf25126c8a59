//! What commands print with `--json` is what slurmrestd answers.

use super::{OWNER, Rest};
use serde_json::{Value, json};

const CONF: &str = "Licenses=matlab:10\nPriorityType=priority/multifactor\nNodeName=n1 CPUs=4 RealMemory=1000\n\
    PartitionName=batch Nodes=n1 Default=YES State=UP\n";

/// A document without what says who asked, and when.
fn main_part(text: &str) -> Value {
    let mut document: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    for key in ["meta", "last_update"] {
        document.as_object_mut().unwrap().remove(key);
    }
    document
}

#[test]
fn commands_print_the_documents_of_slurmrestd() {
    let Some(rest) = Rest::start(CONF) else {
        return;
    };
    let (c, root) = (&rest.cluster, rest.of("root"));
    c.ok(&format!(
        "sacctmgr -i add account physics; sacctmgr -i add qos fast priority=5; \
         sacctmgr -i add user {OWNER} account=physics fairshare=5 wckeys=k"
    ));
    c.ok("scontrol create reservation=r nodes=n1 users=root starttime=now+1hour duration=10");
    for (command, path) in [
        ("sacctmgr show accounts", "/slurmdb/V/accounts"),
        (
            "sacctmgr list account physics",
            "/slurmdb/V/account/physics",
        ),
        (
            "sacctmgr show assoc user=daemon",
            "/slurmdb/V/associations?user=daemon",
        ),
        ("sacctmgr show users", "/slurmdb/V/users"),
        ("sacctmgr show qos fast", "/slurmdb/V/qos/fast"),
        ("sacctmgr show wckeys", "/slurmdb/V/wckeys"),
        ("sacctmgr show clusters", "/slurmdb/V/clusters"),
        ("sacctmgr show tres", "/slurmdb/V/tres"),
        ("sacctmgr show configuration", "/slurmdb/V/config"),
        ("sshare -a", "/slurm/V/shares"),
        (
            "sshare -A physics -u daemon",
            "/slurm/V/shares?accounts=physics&users=daemon",
        ),
        ("scontrol show reservations", "/slurm/V/reservations"),
        ("scontrol show res r", "/slurm/V/reservation/r"),
        ("scontrol show licenses", "/slurm/V/licenses"),
    ] {
        for version in ["v0.0.42", "v0.0.45"] {
            let (name, words) = command.split_once(' ').unwrap();
            let printed = c.ok(&format!("{name} --json={version} {words}"));
            let answered = root.get(&path.replace('V', version));
            answered.ok();
            assert_eq!(main_part(&printed), main_part(&answered.body), "{command}");
        }
    }
    let counters = main_part(&c.ok("sdiag --json"));
    assert!(
        counters["statistics"]["jobs_submitted"].is_u64(),
        "{counters}"
    );
    let old = main_part(&c.ok("sdiag --json=v0.0.38"));
    assert!(old["statistics"].is_object(), "{old}");
    let yaml = c.ok("sacctmgr --yaml show account physics");
    assert!(
        yaml.starts_with("---\n") && yaml.contains("physics"),
        "{yaml}"
    );
    for command in ["sacctmgr", "sshare", "sdiag", "scontrol"] {
        assert!(
            c.ok(&format!("{command} --json=list"))
                .contains("data_parser/v0.0.45")
        );
        let refused = c.run(&format!("{command} --json=v0.0.1 show accounts"));
        assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{refused:?}");
    }
    for words in [
        "show events",
        "add account x",
        "show users adminlevel=None",
        "show account nobody",
    ] {
        let refused = c.run(&format!("sacctmgr --json -i {words}"));
        assert!(
            refused.code != 0 && refused.err.contains("sacctmgr: error:"),
            "{refused:?}"
        );
    }
    assert_eq!(c.run("sshare --json=v0.0.38").code, 1);
    assert_eq!(c.run("scontrol --json show daemons").code, 1);
    let printed = main_part(&c.ok("scontrol show topology --json"));
    let answered = root.get("/muster/v1/topology");
    assert_eq!(printed, main_part(&answered.body));
    assert_eq!(c.run("scontrol show topology s0 --json").code, 1);
    // There is a document of the configuration since v0.0.45, so that is printed for all versions.
    let answered = root.get("/slurm/v0.0.45/conf");
    let answered = main_part(&answered.body);
    for command in ["show config --json", "show config --json=v0.0.45"] {
        let printed = main_part(&c.ok(&format!("scontrol {command}")));
        assert_eq!(printed["slurm_conf"], answered["slurm_conf"], "{command}");
    }
}

#[test]
fn listings_without_a_path_have_documents_too() {
    let Some(rest) = Rest::start(CONF) else {
        return;
    };
    let c = &rest.cluster;
    let running = c.ok("sbatch --parsable -n 2 -o /dev/null --wrap 'sleep 300'");
    let waiting = c.ok("sbatch --parsable -n 4 -o /dev/null --wrap 'sleep 300'");
    c.until_prints("squeue -h -t running -o %A", running.trim());
    let id = |text: &str| text.trim().parse::<u64>().unwrap();
    let priorities = main_part(&c.ok("sprio --json"));
    let job = &priorities["jobs"][0];
    assert_eq!(job["job_id"], id(&waiting), "{priorities}");
    assert_eq!(job["priority"].to_string(), c.ok("sprio -h -o %Y").trim());
    let measured = main_part(&c.ok(&format!("sstat --json -a -j {}", running.trim())));
    let job = &measured["jobs"][0];
    assert_eq!(job["job_id"], id(&running), "{measured}");
    assert_eq!(job["steps"][0]["step"]["name"], "batch", "{measured}");
    assert!(
        job["steps"][0]["tres"]["consumed"].is_object(),
        "{measured}"
    );
    let report = "cluster utilization start=now-2hours end=now+1hour -t Seconds -T cpu";
    let table = c.ok(&format!("sreport -nP {report}"));
    let document = main_part(&c.ok(&format!("sreport --json {report}")));
    let row = &document["report"]["rows"][0];
    assert_eq!(row["Cluster"], "c", "{document}");
    assert!(
        row["Allocated"].is_u64() && table.starts_with("c|"),
        "{row} {table}"
    );
    for command in ["sprio", "sstat", "sreport"] {
        assert!(
            c.ok(&format!("{command} --json=list"))
                .contains("data_parser/v0.0.45")
        );
        assert!(c.run(&format!("{command} --json=v0.0.1")).code != 0);
    }
}

#[test]
fn jobs_and_ping_are_printed_as_slurmrestd_answers() {
    let Some(rest) = Rest::start(&format!(
        "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n{CONF}"
    )) else {
        return;
    };
    let (c, root) = (&rest.cluster, rest.of("root"));
    // Each CPU of the node is a socket: a document made without the nodes would show other cores.
    let sleep = "-o /dev/null --wrap 'sleep 300'";
    c.ok(&format!("sbatch -n 1 {sleep}; sbatch -n 2 {sleep}"));
    c.until_prints("squeue -h -t running -o %A | wc -l", "2");
    for version in ["v0.0.38", "v0.0.42", "v0.0.45"] {
        let answered = root.get(&format!("/slurm/{version}/jobs"));
        answered.ok();
        for command in ["squeue --json", "scontrol show jobs --json"] {
            let printed = c.ok(&format!("{command}={version}"));
            assert_eq!(main_part(&printed), main_part(&answered.body), "{command}");
        }
    }
    let jobs = root.get("/slurmdb/v0.0.42/jobs").ok();
    assert_eq!(jobs["jobs"][0]["cluster"], "c");
    let ping = main_part(&c.ok("scontrol ping --json=v0.0.42"));
    assert_eq!(ping["pings"][0]["pinged"], "UP");
    c.ok("scontrol shutdown slurmctld");
    c.until("the controller is gone", || {
        c.run("scontrol ping").code != 0
    });
    let down = c.run("scontrol ping --json=v0.0.42");
    assert_eq!(down.code, 1, "{down:?}");
    assert_eq!(main_part(&down.out)["pings"][0]["pinged"], "DOWN");
}

#[test]
fn accounting_has_clusters_tres_and_statistics_of_its_own() {
    let Some(rest) = Rest::start(CONF) else {
        return;
    };
    let root = rest.of("root");
    let at = |version: u32, path: &str| root.get(&format!("/slurmdb/v0.0.{version}/{path}"));
    for (version, tres) in [(38, "TRES"), (42, "tres")] {
        let config = at(version, "config").ok();
        assert_eq!(config["clusters"], at(version, "clusters").ok()["clusters"]);
        assert_eq!(config["clusters"][0]["name"], "c");
        assert_eq!(config[tres], at(version, "tres").ok()[tres]);
        let counters = at(version, "diag").ok();
        let counters = &counters["statistics"];
        assert!(counters["time_start"].as_i64().unwrap() > 0, "{counters}");
        assert!(counters["RPCs"][0]["time"]["total"].is_u64(), "{counters}");
        let users = counters["users"].as_array().unwrap();
        assert!(
            users.iter().any(|user| user["user"] == "root"),
            "{counters}"
        );
        match version {
            38 => assert_eq!(counters["rollups"], json!([])),
            _ => assert_eq!(counters["rollups"]["daily"]["count"], 0),
        }
    }
    rest.cluster.ok(&format!(
        "sacctmgr -i add account a; sacctmgr -i add user {OWNER} account=a wckeys=k"
    ));
    let key = "/slurmdb/v0.0.42/wckey/k";
    root.delete(key).ok();
    assert_eq!(root.delete(key).error(), 9003);
}
