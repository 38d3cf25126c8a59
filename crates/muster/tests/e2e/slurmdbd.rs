//! `slurmdbd` with real databases: what sacct prints is what they have, whichever process was killed meanwhile.

use crate::cluster::{Cluster, alive};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const CONF: &str = "ClusterName=db\nSlurmctldHost=localhost\nAccountingStorageType=accounting_storage/slurmdbd\n\
    NodeName=n[1-2] CPUs=4 State=UNKNOWN\nPartitionName=p Nodes=ALL Default=YES State=UP\n";

/// A database of the test's own.
pub(crate) struct Server {
    is_mariadb: bool,
    pub(crate) dir: PathBuf,
    process: Option<Child>,
    /// TCP port, where connections are encrypted and both sides show certificates.
    port: Option<u16>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Server {
    /// Makes and starts one; none where it is not installed.
    pub(crate) fn start(is_mariadb: bool) -> Option<Server> {
        let found = match is_mariadb {
            true => Path::new("/usr/sbin/mariadbd").exists(),
            false => postgres("initdb").is_some(),
        };
        let uid = Command::new("id").arg("-u").output().unwrap().stdout;
        if !found || uid != b"0\n" {
            eprintln!("this database is not installed, or this is not root: nothing was looked at");
            return None;
        }
        let name = if is_mariadb { "maria" } else { "pg" };
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let dir = format!("muster-{name}-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let mut server = Server {
            is_mariadb,
            dir,
            process: None,
            port: None,
        };
        let data = server.dir.join("data").display().to_string();
        match is_mariadb {
            true => shell(&format!(
                "mariadb-install-db --no-defaults --user=root --datadir={data} --skip-test-db \
                 --auth-root-authentication-method=normal >/dev/null"
            )),
            false => shell(&format!(
                "chown 65534 {dir} && cd / && setpriv --reuid=65534 --clear-groups {initdb} -D {data} -A trust -U root \
                 -E UTF8 --locale=C --no-sync >/dev/null",
                dir = server.dir.display(),
                initdb = postgres("initdb").unwrap(),
            )),
        }
        server.run();
        match is_mariadb {
            true => {
                server.sql("CREATE DATABASE acct");
                server.sql(
                    "CREATE USER slurm IDENTIFIED BY 'pass-word'; GRANT ALL ON acct.* TO slurm",
                );
            }
            false => {
                server.sql("CREATE USER slurm");
                server.sql("CREATE DATABASE acct OWNER slurm");
            }
        }
        Some(server)
    }

    fn run(&mut self) {
        let dir = self.dir.display();
        let command = match self.is_mariadb {
            true => format!(
                "exec mariadbd --no-defaults --user=root --datadir={dir}/data --socket={dir}/socket --skip-networking \
                 --pid-file={dir}/pid"
            ),
            false => format!(
                "cd / && exec setpriv --reuid=65534 --clear-groups {} -D {dir}/data -k {dir} -c listen_addresses=",
                postgres("postgres").unwrap()
            ),
        };
        let options = self.tls_options();
        let mut process = Command::new("bash");
        process.args(["-c", &format!("{command} {options}")]);
        let log = std::fs::File::create(self.dir.join("log")).unwrap();
        self.process = Some(process.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while self.try_sql("SELECT 1", "").is_none() {
            assert!(std::time::Instant::now() < until, "it does not answer");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// Options that come after those of all servers.
    fn tls_options(&self) -> String {
        let Some(port) = self.port else {
            return String::new();
        };
        let dir = self.dir.display();
        match self.is_mariadb {
            true => format!(
                "--skip-networking=0 --bind-address=127.0.0.1 --port={port} --ssl-ca={dir}/ca.pem --ssl-cert={dir}/server.pem \
                 --ssl-key={dir}/server.key"
            ),
            false => format!(
                "-c listen_addresses=127.0.0.1 -p {port} -c ssl=on -c ssl_ca_file={dir}/ca.pem -c ssl_cert_file={dir}/server.pem \
                 -c ssl_key_file={dir}/server.key"
            ),
        }
    }

    /// Serves on a TCP port, and lets the user in only with a certificate.
    fn encrypt(&mut self) {
        let dir = self.dir.display();
        shell(&format!(
            "cd {dir} && for ca in ca other; do openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
               -subj /CN=$ca -keyout $ca.key -out $ca.pem; done 2>/dev/null; \
             for name in server slurm; do \
               openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=$name -keyout $name.key -out $name.csr; \
               printf 'subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n' | openssl x509 -req -in $name.csr -CA ca.pem \
                 -CAkey ca.key -CAcreateserial -days 2 -extfile /dev/stdin -out $name.pem; \
             done 2>/dev/null; chmod 600 server.key"
        ));
        match self.is_mariadb {
            true => {
                self.sql("ALTER USER slurm REQUIRE X509");
            }
            false => shell(&format!(
                "chown 65534 {dir}/server.key && printf 'local all all trust\nhostssl all slurm 127.0.0.1/32 cert\n' \
                 > {dir}/data/pg_hba.conf"
            )),
        }
        self.kill();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        self.port = Some(free.local_addr().unwrap().port());
        drop(free);
        self.run();
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // PostgreSQL's children end with it.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub(crate) fn try_sql(&self, sql: &str, database: &str) -> Option<String> {
        let dir = self.dir.display();
        let mut command = match self.is_mariadb {
            true => {
                let mut command = Command::new("mariadb");
                command.args([
                    "--no-defaults",
                    "-uroot",
                    "-N",
                    "-B",
                    "-r",
                    "--default-character-set=utf8mb4",
                ]);
                command.args([&format!("--socket={dir}/socket"), "-e", sql]);
                command.args([database].iter().filter(|d| !d.is_empty()));
                command
            }
            false => {
                let database = if database.is_empty() {
                    "postgres"
                } else {
                    database
                };
                let mut command = Command::new("psql");
                command.args(["-X", "-At", "-F\t", "-Uroot", "-h"]);
                let port = self.port.unwrap_or(5432).to_string();
                command
                    .arg(&self.dir)
                    .args(["-p", &port])
                    .args(["-d", database, "-c", sql]);
                command
            }
        };
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        output.status.success().then(|| text.trim_end().to_owned())
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        self.try_sql(sql, "").unwrap_or_else(|| panic!("{sql}"))
    }

    /// What a question to the copy gives; nothing while there are no tables.
    fn ask(&self, sql: &str) -> String {
        self.try_sql(sql, "acct").unwrap_or_default()
    }

    pub(crate) fn conf(&self) -> String {
        let (kind, host) = match self.is_mariadb {
            true => ("mysql", self.dir.join("socket")),
            false => ("postgresql", self.dir.clone()),
        };
        let place = match self.port {
            Some(port) => format!("localhost\nStoragePort={port}"),
            None => host.display().to_string(),
        };
        format!(
            "StorageType=accounting_storage/{kind}\nStorageHost={place}\nStorageUser=slurm\nStoragePass=pass-word\nStorageLoc=acct\n"
        )
    }
}

/// A program of PostgreSQL's, whichever version is installed.
fn postgres(name: &str) -> Option<String> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let files = versions.map(|version| version.path().join("bin").join(name));
    let found = files.filter(|file| file.exists()).max()?;
    Some(found.display().to_string())
}

fn shell(script: &str) {
    let status = Command::new("bash").args(["-c", script]).status().unwrap();
    assert!(status.success(), "{script}");
}

/// The service of a cluster.
struct Service<'a> {
    cluster: &'a Cluster,
}

impl Service<'_> {
    fn start(&self) {
        self.cluster.ok("slurmdbd");
    }

    fn pid(&self) -> i32 {
        self.cluster.read("../run/dbd.pid").trim().parse().unwrap()
    }

    /// The copy has what sacct prints, of jobs and steps. It has jobs that never could run as well, which sacct leaves out.
    fn is_complete(&self, server: &Server) {
        let jobs = "SELECT job_id, restarts, state, exit_code, exit_signal, name FROM muster_job \
            WHERE eligible_ms IS NOT NULL ORDER BY run";
        let steps = "SELECT j.job_id, s.step_id, s.state, s.exit_code, s.tasks FROM muster_step s, muster_job j \
            WHERE s.run = j.run AND s.origin = j.origin ORDER BY s.run, s.place";
        let c = self.cluster;
        let mut last = (String::new(), String::new());
        c.until("the copy has all that sacct prints", || {
            let printed = c
                .ok("sacct -D -X -n -P -S 2020-01-01 -o jobidraw,state,exitcode,jobname | sort -n");
            let copied = server.ask(jobs);
            let copied = copied.lines().map(|line| {
                let [id, _, state, code, signal, name] = fields(line);
                let state = if state == "PENDING" {
                    "REQUEUED"
                } else {
                    state
                };
                format!("{id}|{state}|{code}:{signal}|{name}")
            });
            last = (printed, copied.collect::<Vec<_>>().join("\n"));
            last.0 == last.1
        });
        c.until("the copy has the steps", || {
            let printed = c
                .ok("sacct -D -n -P -S 2020-01-01 -o jobidraw,state,ntasks | grep '\\.' | sort -n");
            let copied = server.ask(steps);
            let copied = copied.lines().map(|line| {
                let [id, step, state, _, tasks] = fields(line);
                format!("{id}.{step}|{state}|{tasks}")
            });
            let mut copied: Vec<String> = copied.collect();
            copied.sort();
            let mut printed: Vec<&str> = printed.lines().collect();
            printed.sort_unstable();
            printed == copied
        });
    }
}

fn fields<const N: usize>(line: &str) -> [&str; N] {
    let found: Vec<&str> = line.split('\t').collect();
    found.try_into().unwrap_or_else(|found| panic!("{found:?}"))
}

fn copies(is_mariadb: bool) {
    let Some(mut server) = Server::start(is_mariadb) else {
        return;
    };
    let c = Cluster::from_conf(CONF);
    let service = Service { cluster: &c };
    c.ok("sbatch -W -o /dev/null -J \"it's a \\\\ job 💥\" --wrap 'srun -n2 true; exit 3' || true");
    c.ok("sbatch -W -o /dev/null --array=1-30 --wrap true");
    let conf = format!(
        "{}LogFile={log}\nPidFile={pid}\n",
        server.conf(),
        log = c.path("log/dbd.log").display(),
        pid = c.path("run/dbd.pid").display()
    );
    c.write("../slurmdbd.conf", &conf);
    let open = c.run("slurmdbd");
    assert!(open.err.contains("chmod 600"), "{open:?}");
    c.ok("chmod 600 ../slurmdbd.conf");
    // First what is there, then what comes.
    service.start();
    service.is_complete(&server);
    let requeued = c.sbatch("-o /dev/null --wrap 'sleep 1000'");
    c.until("it runs", || c.state(requeued) == "RUNNING");
    c.ok(&format!("scontrol requeuehold {requeued}"));
    c.until("it is held", || c.state(requeued) == "PENDING");
    c.ok(&format!("scancel {requeued}"));
    c.ok("scontrol update nodename=n2 state=drain reason=\"it's tried\"");
    c.ok("sacctmgr -i add account bio");
    service.is_complete(&server);
    c.until("events and transactions are there", || {
        server
            .ask("SELECT node, reason, end_ms FROM muster_node_event WHERE is_drained = 1")
            .starts_with("n2\tit's tried")
            && server.ask("SELECT count(*) FROM muster_transaction WHERE target LIKE '%bio%'")
                != "0"
    });
    // The database goes, and comes back.
    server.kill();
    c.ok("sbatch -W -o /dev/null --array=1-20 --wrap true");
    c.until("it is said", || {
        c.read("../log/dbd.log").contains("nothing is lost")
    });
    server.run();
    service.is_complete(&server);
    assert!(!c.read("../log/dbd.log").contains("pass-word"), "a secret");
    // So do slurmdbd and the controller, in the middle of it.
    for round in 0..4 {
        c.ok("sbatch -o /dev/null --array=1-10 --wrap 'srun true'");
        match round % 2 {
            0 => {
                let pid = service.pid();
                c.kill(pid);
                c.until("it is gone", || !alive(pid));
                service.start();
            }
            _ => {
                let controller = c.controller();
                c.kill(controller);
                c.until("it is gone", || !alive(controller));
                // slurmdbd's clients find their cluster, and no controller.
                let shown =
                    c.ok("sacctmgr -nP show cluster format=cluster,controlhost,controlport");
                assert_eq!(shown, "db||0");
                c.start_controller();
                c.until("it answers", || c.run("scontrol ping").out.contains("UP"));
            }
        }
    }
    c.until("all is over", || c.ok("squeue -h").is_empty());
    service.is_complete(&server);
    let twice = "SELECT count(*), count(DISTINCT job_id, restarts) FROM muster_job";
    let twice = match is_mariadb {
        true => server.ask(twice),
        false => server.ask(&twice.replace("job_id, restarts", "(job_id, restarts)")),
    };
    let [all, different] = fields(&twice);
    assert_eq!(all, different);
    // Another that writes the same is found out, and this one ends when it is asked to.
    server.ask("UPDATE muster_copy SET turn = turn + 1");
    c.ok("sbatch -W -o /dev/null --wrap true");
    c.until("it is said", || {
        c.read("../log/dbd.log").contains("another slurmdbd")
    });
    let pid = service.pid();
    c.ok(&format!("kill {pid}"));
    c.until("it ends", || !alive(pid));
}

/// The database proves itself to slurmdbd, and slurmdbd to it.
fn encrypts(is_mariadb: bool) {
    let Some(mut server) = Server::start(is_mariadb) else {
        return;
    };
    server.encrypt();
    let dir = server.dir.display().to_string();
    let c = Cluster::from_conf(CONF);
    c.ok("sbatch -W -o /dev/null --array=1-3 --wrap 'srun true'");
    let service = Service { cluster: &c };
    let write = |tls: &str| {
        let (log, pid) = (c.path("log/dbd.log"), c.path("run/dbd.pid"));
        let files = format!("LogFile={}\nPidFile={}\n", log.display(), pid.display());
        c.write(
            "../slurmdbd.conf",
            &format!("{}{files}{tls}\n", server.conf()),
        );
        c.ok("chmod 600 ../slurmdbd.conf; rm -f ../log/dbd.log");
    };
    let begin = |tls: &str| {
        write(tls);
        service.start();
        service.pid()
    };
    let own = format!("SSL_CERT={dir}/slurm.pem,SSL_KEY={dir}/slurm.key");
    for (tls, why) in [
        // Neither a connection that is not encrypted, nor one without a certificate.
        (
            String::new(),
            if is_mariadb {
                "Access denied"
            } else {
                "pg_hba.conf"
            },
        ),
        (
            format!("StorageParameters=SSL_CA={dir}/ca.pem"),
            if is_mariadb {
                "Access denied"
            } else {
                "certificate"
            },
        ),
        // A database whose authority is another.
        (
            format!("StorageParameters=SSL_CA={dir}/other.pem,{own}"),
            "UnknownIssuer",
        ),
    ] {
        let pid = begin(&tls);
        c.until("the log says why it waits", || {
            std::fs::read_to_string(c.path("log/dbd.log")).is_ok_and(|log| log.contains(why))
        });
        c.ok(&format!("kill {pid}"));
        c.until("it ends", || !alive(pid));
    }
    // A file that is not there is an error at once.
    write("StorageParameters=SSL_CA=/absent");
    let refused = c.run("slurmdbd");
    assert!(
        refused.code != 0 && refused.err.contains("StorageParameters: /absent"),
        "{refused:?}"
    );
    begin(&format!("StorageParameters=SSL_CA={dir}/ca.pem,{own}"));
    service.is_complete(&server);
    c.ok("sbatch -W -o /dev/null --wrap true");
    service.is_complete(&server);
}

#[test]
fn mariadb_is_reached_by_tls() {
    encrypts(true);
}

#[test]
fn postgresql_is_reached_by_tls() {
    encrypts(false);
}

#[test]
fn mariadb_has_what_sacct_prints() {
    copies(true);
}

#[test]
fn postgresql_has_what_sacct_prints() {
    copies(false);
}

/// It starts from slurm.conf's directory and goes into the background; `sacctmgr shutdown` ends it, and nothing else.
#[test]
fn the_daemon_starts_in_the_background_and_is_stopped_by_sacctmgr() {
    let c = Cluster::start(1, 1);
    let none = c.run("sacctmgr shutdown");
    assert!(
        none.code == 1 && none.err.contains("no slurmdbd.conf"),
        "{}",
        none.err
    );
    let (pid, log) = (c.path("dbd.pid"), c.path("dbd.log"));
    c.write(
        "../slurmdbd.conf",
        &format!("PidFile={}\nLogFile={}\n", pid.display(), log.display()),
    );
    c.ok("chmod 600 ../slurmdbd.conf");
    let absent = c.run("sacctmgr shutdown");
    assert!(
        absent.code == 1 && absent.err.contains("no slurmdbd runs here"),
        "{}",
        absent.err
    );
    c.ok("slurmdbd");
    let daemon: i32 = c.ok("cat ../dbd.pid").parse().unwrap();
    assert_eq!(
        c.ok(&format!("basename $(readlink /proc/{daemon}/exe)")),
        "slurmdbd"
    );
    assert_eq!(c.ok("sacctmgr shutdown"), "");
    c.until("slurmdbd has ended", || !alive(daemon));
    assert_eq!(c.run("sacctmgr shutdown").code, 1);
    c.ok("squeue; sacct");
}
