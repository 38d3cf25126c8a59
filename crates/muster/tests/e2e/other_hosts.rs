//! A cluster of several hosts: controller, login node and two compute nodes are network name spaces with host names and
//! directories of their own, which share munge's key, or the cluster's own, and nothing else of the cluster.

mod agent_pages;
mod faults;
mod future;
mod given;
mod joining;
mod node_keys;
mod slurmd_restarts;

use muster_channel::{Initiator, SECRET, Scheme};
use muster_model::ids::JobId;
use muster_proto::frame;
use muster_proto::hello::{ChannelHello, JobCredential};
use muster_proto::version::Versions;
use muster_trust::user_token;
use nix::sched::{CloneFlags, setns};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long something may take to happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// The hosts, by their last number in the network.
const HOSTS: [(&str, u8); 5] = [("ctl", 1), ("login", 2), ("n1", 3), ("n2", 4), ("n3", 5)];

/// Clusters of this process so far.
static CLUSTERS: AtomicU32 = AtomicU32::new(0);

/// How hosts know each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Auth {
    /// By munge; `SlurmUser` is root.
    Munge,
    /// By slurm.key, which is an ordinary `SlurmUser`'s.
    Slurm,
    /// The same, with tokens of users.
    SlurmAndTokens,
    /// By keys of nodes, and by nothing else.
    Own,
}

/// An ordinary user's command.
const AS_USER: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

/// All of it, until it is dropped.
struct Hosts {
    auth: Auth,
    /// More lines of slurm.conf.
    lines: &'static str,
    dir: PathBuf,
    /// Begins the names of network name spaces and links.
    tag: String,
    daemons: Vec<Child>,
    /// A process that has the name spaces of the controller.
    controller: u32,
}

fn sh(script: &str) -> Output {
    Command::new("bash").args(["-c", script]).output().unwrap()
}

fn ok(script: &str) {
    let output = sh(script);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {errors}");
}

impl Hosts {
    /// Nothing where this host lacks what that takes.
    fn start(auth: Auth) -> Option<Hosts> {
        let mut hosts = Hosts::prepared(auth, "", |_| {})?;
        for node in ["n1", "n2"] {
            let daemon = hosts.daemon(node, &format!("slurmd -D -N {node}"));
            hosts.daemons.push(daemon);
        }
        hosts.until("nodes are idle", || {
            hosts.on("login", "sinfo -h -o %D:%t").contains("2:idle")
        });
        Some(hosts)
    }

    /// A controller with more lines of slurm.conf, and nodes that are down.
    fn prepared(auth: Auth, lines: &'static str, prepare: impl Fn(&Path)) -> Option<Hosts> {
        let (id, nth) = (std::process::id(), CLUSTERS.fetch_add(1, Ordering::Relaxed));
        let (letter, needed) = match auth {
            Auth::Munge => ("m", "munged"),
            Auth::Slurm => ("s", "setpriv"),
            Auth::SlurmAndTokens => ("j", "setpriv"),
            Auth::Own => ("o", "setpriv"),
        };
        let tag = format!("{letter}{}{nth}", id % 100_000);
        let look = format!("ip netns list && command -v {needed}");
        if !nix::unistd::geteuid().is_root() || !sh(&look).status.success() {
            eprintln!("not root, or no ip or {needed} is there: this test looked at nothing");
            return None;
        }
        let dir = PathBuf::from(format!("/tmp/{tag}"));
        fs::create_dir_all(dir.join("bin")).unwrap();
        ok(&format!(
            "chmod 755 {0}; mkdir -p {0}/own {0}/log {0}/tmp; chmod 1777 {0}/tmp",
            dir.display()
        ));
        ok(&format!(
            "{} install {}/bin",
            env!("CARGO_BIN_EXE_muster"),
            dir.display()
        ));
        let mut hosts = Hosts {
            auth,
            lines,
            dir,
            tag,
            daemons: Vec::new(),
            controller: 0,
        };
        hosts.connect();
        hosts.write_keys(
            "a key that all hosts have, long enough for munge",
            "the key of somebody else's hosts, as long as it must be",
        );
        prepare(&hosts.dir);
        let controller = hosts.daemon("ctl", "slurmctld -D");
        hosts.controller = controller.id();
        hosts.daemons.push(controller);
        hosts.until("the controller is up", || match auth {
            Auth::Own => hosts.beside_controller("scontrol ping").ends_with("is UP"),
            _ => hosts.on("login", "scontrol ping").ends_with("is UP"),
        });
        Some(hosts)
    }

    fn has_ipv6_only(&self) -> bool {
        self.lines.contains("DisableIPv4")
    }

    /// A host's address.
    fn address(&self, last: u8) -> String {
        match self.has_ipv6_only() {
            true => format!("fd91::{last}"),
            false => format!("10.91.0.{last}"),
        }
    }

    /// A bridge, and a link from it to each host.
    fn connect(&self) {
        let tag = &self.tag;
        ok(&format!(
            "ip link add {tag}b type bridge && ip link set {tag}b up"
        ));
        let names: String = HOSTS
            .iter()
            .map(|(host, last)| format!("{} {host}\n", self.address(*last)))
            .collect();
        fs::write(
            self.dir.join("hosts"),
            format!("127.0.0.1 localhost\n{names}"),
        )
        .unwrap();
        for (host, last) in HOSTS {
            ok(&format!(
                "ip netns add {tag}{host} && \
                 ip link add {tag}{host} type veth peer name eth0 netns {tag}{host} && \
                 ip link set {tag}{host} master {tag}b up && \
                 ip -n {tag}{host} addr add {}/{} dev eth0 {} && \
                 ip -n {tag}{host} link set eth0 up && ip -n {tag}{host} link set lo up",
                self.address(last),
                if self.has_ipv6_only() { 64 } else { 24 },
                if self.has_ipv6_only() { "nodad" } else { "" },
            ));
        }
    }

    /// Gives hosts the key of their slurm.conf, and that of others for other.conf.
    fn write_keys(&mut self, own: &str, other: &str) {
        let jwt = self.dir.join("jwt.key");
        let tokens = match self.auth {
            Auth::SlurmAndTokens => format!(
                "AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={},max_token_lifespan=3600\n",
                jwt.display()
            ),
            _ => String::new(),
        };
        let key = format!("AuthType=auth/slurm\nSlurmUser=daemon\n{tokens}");
        let socket = |name| {
            let dir = self.dir.display();
            format!("AuthType=auth/munge\nAuthInfo=socket={dir}/{name}/socket\nSlurmUser=root\n")
        };
        let (here, there) = match self.auth {
            Auth::Munge => (socket("munge"), socket("other")),
            Auth::Slurm | Auth::SlurmAndTokens => (key.clone(), key),
            Auth::Own => {
                let none = "AuthType=auth/none\nSlurmUser=daemon\n".to_owned();
                (none.clone(), none)
            }
        };
        ok(&format!("mkdir {}/others", self.dir.display()));
        self.write_conf("slurm.conf", &here);
        self.write_conf("others/slurm.conf", &there);
        match self.auth {
            Auth::Munge => {
                self.munged("munge", own);
                self.munged("other", other);
            }
            Auth::Slurm | Auth::SlurmAndTokens => {
                self.write_key("slurm.key", own);
                self.write_key(
                    "jwt.key",
                    "a key for tokens of users, with which slurmctld signs",
                );
                self.write_key("others/slurm.key", other);
            }
            Auth::Own => {}
        }
    }

    /// A file that only `SlurmUser` can read.
    fn write_key(&self, name: &str, text: &str) {
        let path = self.dir.join(name);
        let new = self.dir.join("new.key");
        fs::write(&new, text).unwrap();
        ok(&format!("chmod 600 {0} && chown daemon {0}", new.display()));
        fs::rename(new, path).unwrap();
    }

    fn munged(&mut self, name: &str, key: &str) {
        let at = |end: &str| self.dir.join(format!("{name}.{end}")).display().to_string();
        let dir = self.dir.join(name);
        fs::create_dir(&dir).unwrap();
        fs::write(at("key"), key).unwrap();
        ok(&format!(
            "chmod 600 {}; chmod 755 {}",
            at("key"),
            dir.display()
        ));
        let socket = dir.join("socket");
        let child = Command::new("munged")
            .args(["--foreground", "--force"])
            .arg(format!("--key-file={}", at("key")))
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", at("pid")))
            .arg(format!("--seed-file={}", at("seed")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.daemons.push(child);
        self.until("munged listens", || socket.exists());
    }

    /// Each host has a directory `own` that no other sees: sockets and spool directories are there.
    fn write_conf(&self, name: &str, auth: &str) {
        let dir = self.dir.display();
        let text = format!(
            "ClusterName=hosts\nSlurmctldHost=ctl({})\n{auth}\
             StateSaveLocation={dir}/own/state\n\
             SlurmdSpoolDir={dir}/own/spool\nSlurmctldPidFile={dir}/own/ctld.pid\n\
             SlurmdPidFile={dir}/own/slurmd.pid\nSlurmctldLogFile={dir}/log/ctld\n\
             SlurmdLogFile={dir}/log/%n\nAccountingStorageType=accounting_storage/slurmdbd\n\
             NodeName=n1 NodeAddr={} CPUs=2 RealMemory=500\n\
             NodeName=n2 NodeAddr={} CPUs=2 RealMemory=500\n\
             PartitionName=batch Nodes=ALL Default=YES\n{}",
            self.address(1),
            self.address(3),
            self.address(4),
            self.lines
        );
        fs::write(self.dir.join(name), text).unwrap();
    }

    /// A command on a host.
    fn command(&self, host: &str, conf: &str, script: &str) -> Command {
        let (dir, tag) = (self.dir.display(), &self.tag);
        // Where tokens are made is a host's own; processes of the login host have a common directory for it.
        let sack = match host {
            "login" => "login",
            _ => "own",
        };
        let inside = format!(
            "hostname {host}; export SLURM_SACK_SOCKET={dir}/{sack}/sack.socket; mount -t tmpfs own {dir}/own; mount --bind {dir}/hosts /etc/hosts; \
             export SLURM_CONF={dir}/{conf} PATH={dir}/bin:$PATH; cd {dir}/tmp; exec timeout 300 bash -c \"$0\""
        );
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &format!("{tag}{host}")])
            .args(["unshare", "-u", "-m", "bash", "-c", &inside, script]);
        command
    }

    /// A daemon, which nothing ends but what `drop` does.
    fn daemon(&self, host: &str, words: &str) -> Child {
        let log = fs::File::create(self.dir.join(format!("log/{host}.out"))).unwrap();
        let mut command = self.command(host, "slurm.conf", &format!("exec {words}"));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        command.spawn().unwrap()
    }

    /// What a script prints on a host, errors included.
    fn on(&self, host: &str, script: &str) -> String {
        self.by(host, "slurm.conf", script)
    }

    /// The same on the controller's host, where it has the sockets that the controller made.
    fn beside_controller(&self, script: &str) -> String {
        self.in_name_spaces(self.controller, script)
    }

    /// The same where a process is.
    fn in_name_spaces(&self, pid: u32, script: &str) -> String {
        let dir = self.dir.display();
        let inside = format!("export SLURM_CONF={dir}/slurm.conf PATH={dir}/bin:$PATH; {script}");
        let mut command = Command::new("nsenter");
        command.args([
            "-t",
            &pid.to_string(),
            "-m",
            "-n",
            "-u",
            "bash",
            "-c",
            &inside,
        ]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).trim().to_owned()
    }

    fn by(&self, host: &str, conf: &str, script: &str) -> String {
        let output = self
            .command(host, conf, script)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).trim().to_owned()
    }

    /// Connects to n1 with a credential for a job and without its key; how often that was refused.
    fn show_wrong_keys(&self, host: &str, job: u64, count: u32) -> u32 {
        let name_space = fs::File::open(format!("/run/netns/{}{host}", self.tag)).unwrap();
        let credential = frame::encode(&JobCredential::Owner(JobId(job)));
        let connect = move || {
            setns(&name_space, CloneFlags::CLONE_NEWNET).unwrap();
            let attempts = (0..count).filter(|_| {
                let tcp = TcpStream::connect("10.91.0.3:6818").unwrap();
                let proof = (Scheme::Job, &credential[4..], &[0; SECRET]);
                muster_channel::connect(tcp, proof, b"", PATIENCE).is_err()
            });
            u32::try_from(attempts.count()).unwrap()
        };
        std::thread::spawn(connect).join().unwrap()
    }

    /// Sends slurmctld all that a command with this token says, and again by another connection what it said then. Whether the
    /// first was served, and the second.
    fn repeat_opening(&self, host: &str, token: &str) -> (bool, bool) {
        let name_space = fs::File::open(format!("/run/netns/{}{host}", self.tag)).unwrap();
        let token = token.strip_prefix("SLURM_JWT=").unwrap();
        let (credential, secret) = user_token::show(token).unwrap();
        let hello = frame::encode(&ChannelHello {
            greeting: Versions::CLUSTER.greeting(),
            host: host.to_owned(),
        });
        let attack = move || {
            setns(&name_space, CloneFlags::CLONE_NEWNET).unwrap();
            let begun = Initiator::begin(Scheme::Jwt, &credential, &secret, &hello[4..]);
            let (mut client, opening) = begun.unwrap();
            let mut chunk = [0; 2048];
            let mut first = TcpStream::connect("10.91.0.1:6817").unwrap();
            first.write_all(&opening).unwrap();
            let count = first.read(&mut chunk).unwrap();
            let mut begun = client.finish(&chunk[..count]).unwrap().unwrap();
            let mut said = begun.confirmation;
            // A frame that is no request is answered.
            let no_request = [0, 0, 0, 1, 0xff];
            let sealed = begun.channel.sealer.seal(&no_request, &mut said);
            sealed.unwrap();
            first.write_all(&said).unwrap();
            let mut second = TcpStream::connect("10.91.0.1:6817").unwrap();
            second.write_all(&opening).unwrap();
            assert!(second.read(&mut chunk).unwrap() > 0, "it is not answered");
            second.write_all(&said).unwrap();
            let served = |mut tcp: TcpStream| {
                tcp.set_read_timeout(Some(PATIENCE)).unwrap();
                matches!(tcp.read(&mut [0; 64]), Ok(1..))
            };
            (served(first), served(second))
        };
        std::thread::spawn(attack).join().unwrap()
    }

    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds() {
            if Instant::now() > until {
                let logs = sh(&format!("tail -n 20 {}/log/*", self.dir.display()));
                eprintln!("{}", String::from_utf8_lossy(&logs.stdout));
                panic!("{what}: not within {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let (dir, tag) = (&self.dir, &self.tag);
        for (host, _) in HOSTS {
            // All of a host's processes: name spaces go with the last.
            sh(&format!(
                "ip netns pids {tag}{host} | xargs -r kill -9; ip netns del {tag}{host}"
            ));
        }
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        sh(&format!("ip link del {tag}b"));
        let _ = fs::remove_dir_all(Path::new(dir));
    }
}

#[test]
fn jobs_and_steps_run_on_other_hosts_for_who_proves_who_he_is() {
    let Some(hosts) = Hosts::start(Auth::Munge) else {
        return;
    };
    assert_eq!(
        hosts.on("login", "scontrol ping"),
        "Slurmctld(primary) at ctl is UP"
    );
    // A job knows where it was submitted, and runs where it should.
    hosts.on(
        "login",
        "sbatch -W -N2 -o out --wrap 'hostname; srun -l hostname | sort'",
    );
    let out = fs::read_to_string(hosts.dir.join("tmp/out")).unwrap();
    assert_eq!(out, "n1\n0: n1\n1: n2\n");
    let shown = hosts.on("login", "scontrol show job 1");
    assert!(shown.contains("AllocNode:Sid=login:"), "{shown}");
    // Streams of steps go both ways between hosts.
    let steps = hosts.on(
        "login",
        "srun -N2 -l hostname | sort; echo text | srun -n1 cat; srun -n1 false; echo $?",
    );
    assert!(steps.starts_with("0: n1\n1: n2\ntext\n1\n"), "{steps}");
    let bytes = hosts.on("login", "head -c 30000000 /dev/zero | srun -n1 cat | wc -c");
    assert_eq!(bytes, "30000000");
    // Hosts of another key are nobody's.
    let refused = hosts.by("login", "others/slurm.conf", "squeue");
    assert!(refused.contains("another munge key"), "{refused}");
    hosts.until("the refusal is logged", || {
        let log = fs::read_to_string(hosts.dir.join("log/ctld"));
        log.is_ok_and(|log| {
            log.contains("connection from 10.91.0.2:") && log.contains("another munge key")
        })
    });
    // Without the key of a job nobody reaches a node.
    let stranger = "exec 3<>/dev/tcp/10.91.0.3/6818; printf 'EHLO login\\r\\n\\r\\n' >&3; timeout 5 cat <&3 | wc -c";
    assert_eq!(hosts.on("login", stranger), "0");
    // Who does not have the key, however often he tries, keeps nobody out.
    hosts.on(
        "login",
        "sbatch -w n1 --mem=50 -o /dev/null --wrap 'sleep 1000'",
    );
    hosts.until("the job runs", || {
        hosts.on("login", "squeue -h -o %T").contains("RUNNING")
    });
    let job = hosts.on("login", "squeue -h -o %i").parse().unwrap();
    let refused = hosts.show_wrong_keys("login", job, 2100);
    assert_eq!(refused, 2100);
    assert_eq!(hosts.on("login", "srun -w n1 -n1 --mem=50 hostname"), "n1");
}

/// A host without any file of the cluster: the controller gives it the configuration, and commands there find it.
#[test]
fn a_host_without_files_gets_the_configuration_from_the_controller() {
    let lines = "SlurmctldParameters=enable_configless\nProlog=prolog.sh\nInclude nodes.conf\n";
    let Some(hosts) = Hosts::prepared(Auth::Munge, lines, |dir| {
        let node = "NodeName=n3 NodeAddr=10.91.0.5 CPUs=2 RealMemory=500\n";
        fs::write(dir.join("nodes.conf"), node).unwrap();
        let prolog = format!("#!/bin/sh\nhostname >> {}/log/prolog\n", dir.display());
        fs::write(dir.join("prolog.sh"), prolog).unwrap();
        ok(&format!("chmod 755 {}/prolog.sh", dir.display()));
    }) else {
        return;
    };
    // On this host there is only munge's socket, and the address of the controller.
    let own = format!(
        "mount -t tmpfs run /run; mkdir /run/munge; ln -s {}/munge/socket /run/munge/munge.socket.2; unset SLURM_CONF",
        hosts.dir.display()
    );
    let stranger = format!("{own}; setpriv --reuid 65534 muster config fetch n1:6817,ctl tmp root");
    let refused = hosts.on("n3", &stranger);
    assert!(
        refused.contains("may not have the configuration"),
        "{refused}"
    );
    let nodes = hosts.dir.join("nodes.conf");
    let script = format!(
        "{own}; slurmd -D -N n3 --conf-server n1:6817,ctl --conf-user=root & \
         timeout 30 bash -c 'until sinfo -h -n n3 -o %t | grep -q idle; do sleep 0.1; done'; \
         echo '# changed' >> {nodes}; scontrol reconfigure; timeout 30 bash -c 'until grep -q changed /run/slurm/conf/nodes.conf; do sleep 0.1; done'; \
         ls -L /run/slurm/conf; srun -w n3 bash -c 'hostname; echo $SLURM_CONF'; kill %1; wait",
        nodes = nodes.display()
    );
    let said = hosts.on("n3", &script);
    for line in [
        "nodes.conf",
        "prolog.sh",
        "slurm.conf",
        "n3",
        "/run/slurm/conf/slurm.conf",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
    let prolog = fs::read_to_string(hosts.dir.join("log/prolog")).unwrap();
    assert_eq!(prolog, "n3\n");
}

#[test]
fn users_of_other_hosts_are_who_the_process_with_the_key_says() {
    let Some(mut hosts) = Hosts::start(Auth::Slurm) else {
        return;
    };
    let as_user = |hosts: &Hosts, host: &str, script: &str| {
        hosts.on(host, &format!("{AS_USER} bash -c '{script}'"))
    };
    // Root has the key, and a user cannot read it.
    let without = as_user(&hosts, "login", "sinfo");
    assert!(without.contains("start sackd here"), "{without}");
    let sackd = hosts.daemon("login", "sackd -D");
    hosts.daemons.push(sackd);
    let is_served = |hosts: &Hosts| {
        hosts.until("a user is served", || {
            as_user(hosts, "login", "sinfo -h -o %D:%t").contains("2:idle")
        });
    };
    is_served(&hosts);
    let second = hosts.on("login", "sackd -D");
    assert!(second.contains("another process makes tokens"), "{second}");
    let none = as_user(&hosts, "login", "scontrol token");
    assert!(none.contains("AuthAltTypes=auth/jwt"), "{none}");
    // On nodes, slurmd has tokens made.
    let own = format!("{}/own/sack.socket", hosts.dir.display());
    let ask = "squeue -h -u nobody -o %u";
    let run_job = |ask: &str| {
        let script = format!(
            "sbatch -W -N2 -o out --wrap \"id -u; export SLURM_SACK_SOCKET={own}; {ask}; srun -l hostname | sort\""
        );
        let submitted = as_user(&hosts, "login", &format!("rm -f out; {script}"));
        let out = fs::read_to_string(hosts.dir.join("tmp/out")).unwrap_or(submitted);
        assert_eq!(out, "65534\nnobody\n0: n1\n1: n2\n");
    };
    run_job(ask);
    let steps = as_user(
        &hosts,
        "login",
        "srun -N2 -l hostname | sort; echo text | srun -n1 cat; srun -n1 false; echo $?",
    );
    assert!(steps.starts_with("0: n1\n1: n2\ntext\n1\n"), "{steps}");
    // A user is no other.
    let held = hosts.on("login", "sbatch -H -o /dev/null --wrap true");
    let job = held.rsplit(' ').next().unwrap();
    let refused = as_user(&hosts, "login", &format!("scancel {job}"));
    assert!(refused.contains("Access"), "{refused}");
    // Hosts of another key are nobody's.
    let refused = hosts.by("login", "others/slurm.conf", "squeue");
    assert!(refused.contains("another key of auth/slurm"), "{refused}");
    hosts.until("the refusal is logged", || {
        let log = fs::read_to_string(hosts.dir.join("log/ctld"));
        log.is_ok_and(|log| log.contains("another key of auth/slurm"))
    });
    // The key is replaced while all go on: first both are known, then the new one is used.
    let key = |kid: &str, letter: &str| {
        let k = letter.repeat(40);
        format!(r#"{{"alg":"HS256","kty":"oct","kid":"{kid}","k":"{k}"}}"#)
    };
    hosts.write_key(
        "slurm.jwks",
        &format!("{{\"keys\":[{},{}]}}", key("a", "a"), key("b", "b")),
    );
    assert_eq!(hosts.beside_controller("scontrol reconfigure"), "");
    is_served(&hosts);
    hosts.write_key("slurm.jwks", &format!("{{\"keys\":[{}]}}", key("b", "b")));
    is_served(&hosts);
    assert_eq!(hosts.on("login", "scontrol reconfigure"), "");
    is_served(&hosts);
    run_job(ask);
    let log = fs::read_to_string(hosts.dir.join("log/n1")).unwrap();
    assert!(
        log.contains("muster-sack: the key of the cluster was read anew"),
        "{log}"
    );
    // The process of the node is started again.
    ok(&format!(
        "for p in $(ip netns pids {}n1); do grep -q '^muster-sack' /proc/$p/cmdline && kill -9 $p && exit; done; exit 1",
        hosts.tag
    ));
    run_job(&format!("until {ask} 2>/dev/null; do sleep 0.1; done"));
    // What cannot be used changes nothing, and says so.
    hosts.write_key("slurm.jwks", "{}");
    let refused = hosts.beside_controller("scontrol reconfigure");
    assert!(refused.contains("slurm.jwks"), "{refused}");
    is_served(&hosts);
}

#[test]
fn who_has_a_token_is_its_user_on_any_host() {
    let Some(hosts) = Hosts::start(Auth::SlurmAndTokens) else {
        return;
    };
    let token = hosts.beside_controller("scontrol token username=nobody");
    assert!(token.starts_with("SLURM_JWT=ey"), "{token}");
    let by = |token: &str, script: &str| hosts.on("login", &format!("export {token}; {script}"));
    // There is no sackd, and the command is root's.
    assert_eq!(
        by(
            &token,
            "sbatch -W -o out --wrap \"id -u; echo x\\$SLURM_JWT\"; cat out"
        ),
        "Submitted batch job 1\n65534\nx"
    );
    let held = hosts.on("login", "sbatch -H -o /dev/null --wrap true");
    let job = held.rsplit(' ').next().unwrap();
    let refused = by(&token, &format!("scancel {job}; squeue -h -o %u"));
    assert!(
        refused.starts_with("root\n") && refused.contains("Access"),
        "{refused}"
    );
    let refused = by(&token, "srun true");
    assert!(refused.contains("unset it"), "{refused}");
    // Also beside the controller, where the socket says something else.
    let refused = hosts.beside_controller(&format!("export {token}; scancel {job}"));
    assert!(refused.contains("Access"), "{refused}");
    // For oneself, and for nobody else.
    let own = by(&token, "scontrol token lifespan=60");
    assert!(own.starts_with("SLURM_JWT=ey"), "{own}");
    assert_eq!(by(&own, "squeue -h -o %u"), "root");
    let others = by(&token, "scontrol token username=root");
    assert!(others.contains("allowed to SlurmUser only"), "{others}");
    let long = by(&token, "scontrol token lifespan=3601");
    assert!(long.contains("max_token_lifespan"), "{long}");
    // Who has recorded what a command sent is nobody.
    assert_eq!(hosts.repeat_opening("login", &token), (true, false));
    // What was not made here is nobody's.
    let (whole, signature) = token.rsplit_once('.').unwrap();
    let other = signature.replace(|c: char| c.is_ascii_lowercase(), "Q");
    let changed = by(&format!("{whole}.{other}"), "squeue");
    assert!(
        changed.contains("made with another key, or was changed"),
        "{changed}"
    );
    let none = by("SLURM_JWT=eyJhbGciOiJub25lIn0.e30.", "squeue");
    assert!(none.contains("only HS256"), "{none}");
    let short = hosts.beside_controller("scontrol token username=nobody lifespan=1");
    hosts.until("it expires", || by(&short, "squeue").contains("expired"));
    // A new key ends all tokens.
    hosts.write_key(
        "jwt.key",
        "another key for tokens of users, with which slurmctld signs",
    );
    assert_eq!(hosts.beside_controller("scontrol reconfigure"), "");
    let old = by(&token, "squeue");
    assert!(old.contains("made with another key"), "{old}");
}
