//! What the controller says by HTTP at SlurmctldPort.

use crate::cluster::Cluster;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

/// A cluster that listens at a port of its own, and the port.
fn listening(lines: &str) -> (Cluster, u16) {
    let cluster = Cluster::fresh();
    // Free a moment ago.
    let free = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"));
    let port = free.unwrap().local_addr().unwrap().port();
    let conf = format!(
        "ClusterName=c\nSlurmctldHost=localhost\nSlurmctldPort={port}\n\
         NodeName=n[1-2] CPUs=8 State=UNKNOWN\nPartitionName=batch Nodes=ALL Default=YES\n{lines}"
    );
    cluster.write("given.conf", &conf);
    let file = cluster.dir.join("given.conf");
    cluster.up_again(&["-f", file.to_str().unwrap()]);
    (cluster, port)
}

/// Sends bytes and reads to the end.
fn exchange(port: u16, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // It may answer and close before all has been written.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// Status and body of a page.
fn get(port: u16, path: &str) -> (u16, String) {
    let answer = exchange(
        port,
        format!("GET {path} HTTP/1.1\r\nHost: c\r\n\r\n").as_bytes(),
    );
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    (status.unwrap_or(0), body.to_owned())
}

/// The value of a line of metrics.
fn value(page: &str, name: &str) -> Option<u64> {
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line?.trim().parse().ok()
}

#[test]
fn everybody_gets_metrics_and_hears_whether_the_controller_is_there() {
    let (cluster, port) = listening("MetricsType=metrics/openmetrics\n");
    for path in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(get(port, path), (200, "ok\n".to_owned()), "{path}");
    }
    cluster.ok("sbatch -H -a 0-6 -o /dev/null --wrap true; sbatch -H -o /dev/null --wrap true");
    let held = cluster.ok("sbatch --parsable -o /dev/null --wrap 'sleep 600'");
    cluster.until("the job runs", || {
        cluster.ok(&format!("squeue -h -j {held} -o %T")) == "RUNNING"
    });
    // A page is given again for a second.
    cluster.until("the jobs are counted", || {
        let (status, page) = get(port, "/metrics/jobs");
        assert_eq!(status, 200, "{page}");
        value(&page, "slurm_jobs_running") == Some(1)
    });
    let (_, jobs) = get(port, "/metrics/jobs");
    assert_eq!(value(&jobs, "slurm_jobs_pending"), Some(8), "{jobs}");
    assert_eq!(value(&jobs, "slurm_jobs_hold"), Some(8), "{jobs}");
    let user = cluster.ok("id -un");
    let (_, users) = get(port, "/metrics/jobs-users-accts");
    let name = format!("slurm_user_jobs_pending{{username=\"{user}\"}}");
    assert_eq!(value(&users, &name), Some(8), "{users}");
    for (path, wanted) in [
        ("/metrics/nodes", "slurm_nodes 2"),
        ("/metrics/partitions", "slurm_partitions 1"),
        ("/metrics/scheduler", "slurm_sdiag_jobs_submitted"),
        ("/metrics", "/metrics/jobs"),
    ] {
        let (status, page) = get(port, path);
        assert_eq!(status, 200, "{path}");
        assert!(page.contains(wanted), "{path}: {page}");
    }
    // What is shipped for Prometheus and Grafana asks for nothing else.
    let pages = [
        "jobs",
        "nodes",
        "partitions",
        "scheduler",
        "jobs-users-accts",
    ];
    let pages = pages
        .map(|page| get(port, &format!("/metrics/{page}")).1)
        .concat();
    let shipped = [
        include_str!("../../../../packaging/monitoring/alerts.yml"),
        include_str!("../../../../packaging/monitoring/grafana.json"),
    ];
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let words = shipped.iter().flat_map(|text| text.split(|c| !is_part(c)));
    let names: Vec<&str> = words.filter(|word| word.starts_with("slurm_")).collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        assert!(
            pages.contains(&format!("# TYPE {name} ")),
            "{name} is not there"
        );
    }
    for (path, status) in [
        ("/", 404),
        ("/metrics/none", 404),
        ("/slurm/v0.0.43/jobs", 404),
    ] {
        assert_eq!(get(port, path).0, status, "{path}");
    }
}

#[test]
fn what_is_no_request_ends_and_the_controller_goes_on() {
    let (cluster, port) = listening("MetricsType=metrics/openmetrics\n");
    let head = exchange(port, b"HEAD /livez HTTP/1.1\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let posted = exchange(
        port,
        b"POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
    );
    assert!(posted.starts_with("HTTP/1.1 405 "), "{posted}");
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(1000));
    for bytes in [
        long.as_bytes(),
        many.as_bytes(),
        b"GET \0\xff\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
    ] {
        assert_eq!(exchange(port, bytes), "");
    }
    assert_eq!(get(port, "/readyz").0, 200);
    assert!(cluster.ok("scontrol ping").contains("UP"));
}

#[test]
fn metrics_are_for_who_asks_for_them_and_where_all_may_see_all() {
    let (cluster, port) = listening("MetricsType=metrics/openmetrics\nPrivateData=jobs\n");
    let (status, why) = get(port, "/metrics/jobs");
    assert_eq!(status, 403);
    assert!(why.contains("PrivateData"), "{why}");
    assert_eq!(get(port, "/readyz").0, 200);
    drop(cluster);
    // Without MetricsType the port is there for tokens.
    let fresh = Cluster::fresh();
    fresh.ok("head -c 48 /dev/urandom | base64 > jwt.key; chmod 600 jwt.key");
    let key = fresh.dir.join("jwt.key").display().to_string();
    let (_cluster, port) = listening(&format!(
        "AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={key}\n"
    ));
    let (status, why) = get(port, "/metrics/jobs");
    assert_eq!(status, 404);
    assert!(why.contains("MetricsType=metrics/openmetrics"), "{why}");
    // Nor by other ways to write a path.
    for path in [
        "//metrics/jobs",
        "/%6detrics/jobs",
        "/metrics//jobs",
        "/x/../metrics",
    ] {
        let (status, page) = get(port, path);
        assert_eq!((status, page.contains("slurm_")), (404, false), "{path}");
    }
    assert_eq!(get(port, "/livez").0, 200);
}
