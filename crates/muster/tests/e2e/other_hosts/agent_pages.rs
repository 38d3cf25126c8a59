//! What agents say by HTTP at SlurmdPort.

use super::{Auth, Hosts, PATIENCE};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

impl Hosts {
    /// Status and body of a page of n1, asked from the login node.
    fn page(&self, path: &str) -> (u16, String) {
        let out = format!("curl -s -m 10 -w '\n%{{http_code}}' http://10.91.0.3:6818{path}");
        let printed = self.on("login", &out);
        let (body, status) = printed.rsplit_once('\n').unwrap_or(("", &printed));
        (status.parse().unwrap_or(0), body.trim_end().to_owned())
    }
}

fn value(page: &str, name: &str) -> Option<u64> {
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}{{node=\"n1\"}} ")));
    line?.parse().ok()
}

#[test]
fn agents_give_metrics_to_everybody_where_the_site_wants_that() {
    let lines = "MetricsType=metrics/openmetrics\n";
    let Some(mut hosts) = Hosts::prepared(Auth::Slurm, lines, |_| {}) else {
        return;
    };
    let agent = hosts.daemon("n1", "slurmd -D -N n1");
    hosts.daemons.push(agent);
    hosts.until("n1 is idle", || {
        hosts
            .on("login", "sinfo -h -n n1 -o %D:%t")
            .contains("1:idle")
    });
    assert_eq!(hosts.page("/livez"), (200, "ok".to_owned()));
    assert_eq!(hosts.page("/readyz"), (200, "ok".to_owned()));
    let job = hosts.on(
        "login",
        "sbatch --parsable -w n1 -o /dev/null --wrap 'srun sleep 600'",
    );
    hosts.until("the step is counted", || {
        let (status, page) = hosts.page("/metrics");
        assert_eq!(status, 200, "{page}");
        (
            value(&page, "muster_agent_jobs"),
            value(&page, "muster_agent_steps"),
        ) == (Some(1), Some(1))
    });
    let (_, page) = hosts.page("/metrics");
    assert_eq!(value(&page, "muster_agent_controller_connected"), Some(1));
    assert!(
        value(&page, "muster_agent_memory_bytes") > Some(1 << 20),
        "{page}"
    );
    hosts.on("login", &format!("scancel {job}"));
    hosts.until("the job is gone", || {
        value(&hosts.page("/metrics").1, "muster_agent_jobs") == Some(0)
    });
    for (path, status) in [("/", 404), ("/metrics/jobs", 404), ("/%6detrics", 404)] {
        assert_eq!(hosts.page(path).0, status, "{path}");
    }
    let posted = hosts.on(
        "login",
        "curl -s -o /dev/null -w '%{http_code}' -d x http://10.91.0.3:6818/metrics",
    );
    assert_eq!(posted, "405");
    // What is no request ends, and steps are still reached.
    let name_space = std::fs::File::open(format!("/run/netns/{}login", hosts.tag)).unwrap();
    let attack = move || {
        nix::sched::setns(&name_space, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        for bytes in [
            b"GET \r\n\r\n".to_vec(),
            [b"GET /".to_vec(), vec![b'x'; 64 << 10]].concat(),
            b"GET /metrics HTTP/9\r\n\r\n".to_vec(),
        ] {
            let mut tcp = TcpStream::connect("10.91.0.3:6818").unwrap();
            tcp.set_read_timeout(Some(PATIENCE)).unwrap();
            let _ = tcp.write_all(&bytes);
            let mut answer = Vec::new();
            let _ = tcp.read_to_end(&mut answer);
            assert!(!answer.starts_with(b"HTTP/1.1 200"));
        }
    };
    std::thread::spawn(attack).join().unwrap();
    let printed = hosts.on("login", "srun -w n1 hostname");
    assert_eq!(printed, "n1");
    hosts.until("the controller is missed", || {
        hosts.beside_controller("scontrol shutdown slurmctld");
        hosts.page("/readyz").0 == 503
    });
    assert_eq!(hosts.page("/livez").0, 200);
}
