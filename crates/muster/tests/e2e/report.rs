//! `muster report` over what real jobs have left in accounting.

use crate::cluster::Cluster;
use serde_json::Value;

/// A report as JSON.
#[track_caller]
fn report(cluster: &Cluster, options: &str) -> Value {
    let text = cluster.ok(&format!("muster report --format=json {options}"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// The row whose word of a column is given.
#[track_caller]
fn row<'a>(report: &'a Value, column: &str, word: &str) -> &'a Value {
    let rows = report["rows"].as_array().unwrap();
    let found = rows.iter().find(|row| row[column] == word);
    found.unwrap_or_else(|| panic!("no {column} {word}: {report}"))
}

/// Jobs of several kinds that have ended.
fn with_jobs() -> Cluster {
    let cluster = Cluster::start(2, 8);
    cluster.ok("sbatch -J good -n2 -o /dev/null --wrap 'srun sleep 1.2'
         sbatch -J bad -o /dev/null --wrap 'exit 3'
         sbatch -J said --comment='app=solver;run=7' -o /dev/null --wrap true
         sbatch -J wide -N2 -o /dev/null --wrap 'sleep 1.1'
         scancel $(sbatch --parsable -J never -o /dev/null --wrap 'sleep 600')");
    cluster.until("all jobs have ended", || {
        let states = cluster.ok("sacct -X -n -P -o State");
        let is_over = |state: &str| !matches!(state, "PENDING" | "RUNNING");
        states.lines().count() == 5 && states.lines().all(is_over)
    });
    cluster
}

#[test]
fn jobs_are_counted_by_what_is_asked_for_and_use_is_what_sreport_shows() {
    let cluster = with_jobs();
    let user = cluster.ok("id -un");
    let by_user = report(&cluster, "--columns=all");
    let own = row(&by_user, "user", &user);
    for (name, count) in [
        ("runs", 5),
        ("completed", 3),
        ("failed", 1),
        ("cancelled", 1),
        ("timeout", 0),
    ] {
        assert_eq!(own[name], count, "{name}: {own}");
        assert_eq!(by_user["total"][name], count, "{name}");
    }
    assert!(
        own["longest_s"].as_f64().unwrap() >= 1.0 && own["median_s"].as_f64().is_some(),
        "{own}"
    );
    let used = |report: &Value| report["total"]["cpu_s"].as_f64().unwrap();
    // Whole hours, as sreport has them.
    let hours = "start=$(date -d '-1 hour' +%Y-%m-%dT%H:00:00); end=$(date -d '+1 hour' +%Y-%m-%dT%H:00:00)";
    let theirs = cluster.ok(&format!(
        "{hours}; sreport -n -P -t seconds user topusage start=$start end=$end format=used | head -1"
    ));
    let ours = cluster.ok(&format!(
        "{hours}; muster report --format=json -S $start -E $end --every hour"
    ));
    let ours: Value = serde_json::from_str(&ours).unwrap();
    let theirs: f64 = theirs.trim().parse().unwrap();
    assert!(
        (used(&ours) - theirs).abs() <= 1.0,
        "{} and {theirs}",
        used(&ours)
    );
    let sum = |rows: &Value| -> f64 {
        rows["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["cpu_s"].as_f64().unwrap())
            .sum()
    };
    assert!((sum(&ours) - used(&ours)).abs() < 0.01, "{ours}");
    let shares = report(&cluster, "--by user,account -o runs,wait_p95_s,fair_share");
    let own = row(&shares, "user", &user);
    let share = cluster.ok("sshare -nP -U -o fairshare | head -1");
    match share.parse::<f64>() {
        Ok(share) => assert!(
            (own["fair_share"].as_f64().unwrap() - share).abs() < 0.01,
            "{own}"
        ),
        Err(_) => assert!(own["fair_share"].is_null(), "{own}"),
    }
    assert!(own["wait_p95_s"].is_number(), "{own}");
    // A job over two nodes is one of each, and what it used is shared.
    let by_node = report(&cluster, "--by node");
    assert!((sum(&by_node) - used(&by_node)).abs() < 0.01, "{by_node}");
    let wide = report(&cluster, "--by nodes");
    assert_eq!(row(&wide, "nodes", "2")["runs"], 1);
}

#[test]
fn applications_are_known_by_comment_rule_step_and_name() {
    let cluster = with_jobs();
    let named = |report: &Value| -> Vec<String> {
        let rows = report["rows"].as_array().unwrap();
        rows.iter()
            .map(|row| row["application"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = report(&cluster, "--by application");
    assert_eq!(
        named(&all),
        ["bad", "never", "sleep", "solver", "wide"],
        "{all}"
    );
    cluster.ok("printf '# ours\\nmesher name w*\\n' >$(dirname $SLURM_CONF)/applications.conf");
    let ruled = report(&cluster, "--by application --sort runs -a mesher,solver");
    assert_eq!(named(&ruled), ["mesher", "solver"]);
    assert_eq!(ruled["total"]["runs"], 2);
    cluster.ok("echo 'mesher colour w*' >$(dirname $SLURM_CONF)/applications.conf");
    let wrong = cluster.run("muster report --by application");
    assert!(
        wrong.code == 1 && wrong.err.contains("applications.conf:1: 'colour'"),
        "{}",
        wrong.err
    );
}

#[test]
fn reports_are_tables_csv_and_pictures_and_wrong_words_are_named() {
    let cluster = with_jobs();
    let table = cluster.ok("muster report --by state --columns runs,mean_s");
    assert!(
        table.contains("COMPLETED") && table.contains("total"),
        "{table}"
    );
    let csv =
        cluster.ok("muster report --by state --columns runs --format csv --sort runs --top 1");
    assert_eq!(
        csv.lines().map(str::trim).collect::<Vec<_>>(),
        ["state,runs", "COMPLETED,3"]
    );
    let svg = cluster.ok("muster report --by state --format svg");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"), "{svg}");
    for (options, wanted) in [
        (
            "--by colour",
            "--by=colour: 'colour': expected user, account",
        ),
        ("--columns runs,none", "'none': expected runs"),
        ("--every week", "--every=week: expected hour, day or month"),
        ("--format pdf", "expected table, csv, json or svg"),
        ("--top many", "--top=many: expected a number"),
        ("-S yesteryear", "'yesteryear' is not a valid time"),
        ("-S tomorrow", "the end is not after the start"),
        ("-S 2000-01-01 --every hour", "more than 8784 hours"),
        ("user", "'user': only options are taken"),
    ] {
        let ran = cluster.run(&format!("muster report {options}"));
        assert!(
            ran.code != 0 && ran.err.contains(wanted),
            "{options}: {}",
            ran.err
        );
    }
}

#[test]
fn a_report_of_a_month_is_sent_by_the_mail_program() {
    let cluster = with_jobs();
    cluster.write(
        "mail",
        "#!/bin/sh\nfor word; do echo \"$word\"; done >mailed; cat >>mailed; exit 0\n",
    );
    cluster.ok("chmod 755 mail");
    let conf = cluster.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    let mail = cluster.dir.join("mail");
    std::fs::write(&conf, format!("{text}\nMailProg={}\n", mail.display())).unwrap();
    let printed = cluster
        .ok("muster report --by state --columns runs --month=this --mail root,ada@example.org");
    assert_eq!(printed, "");
    let mailed = cluster.read("mailed");
    let lines: Vec<&str> = mailed.lines().collect();
    assert_eq!(lines[0], "-s");
    let month = cluster.ok("date +%Y-%m-01T00:00:00");
    assert!(lines[1].contains(&month), "{mailed}");
    assert_eq!(lines[2..4], ["root", "ada@example.org"]);
    assert!(
        mailed.contains("COMPLETED") && mailed.contains("total"),
        "{mailed}"
    );
    // Nothing has ended in the month before.
    let last = cluster.ok("muster report --by state --columns runs --month=last --format csv");
    assert_eq!(last.trim(), "state,runs");
    cluster.write("mail", "#!/bin/sh\nexit 4\n");
    for options in [
        "--mail root",
        "--mail -froot",
        "--mail ''",
        "--month=soon",
        "--month=2026-13",
    ] {
        let refused = cluster.run(&format!("muster report {options}"));
        assert!(refused.code != 0 && refused.out.is_empty(), "{refused:?}");
    }
}
