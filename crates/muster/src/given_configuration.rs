//! The configuration of a host that has no files of its own: a controller gives it (`SlurmctldParameters=enable_configless`), and it is
//! kept in `/run/slurm/conf`, where commands look for it as well. Which version is there is said by one link, so that nobody reads
//! files of two.

use crate::service_records::{self, LookupError};
use anyhow::{Context, Result, anyhow, bail, ensure};
use muster_channel::Purpose;
use muster_conf::{Authentication, DEFAULT_PATH, plain_name};
use muster_proto::configuration::{ConfigurationAnswer, ConfigurationFile};
use muster_proto::frame;
use muster_proto::hello::{ChannelAnswer, ChannelHello};
use muster_proto::version::Versions;
use muster_trust::node_key::{NodeKey, Speaker, USUAL_DIRECTORY};
use muster_trust::proof::{self, ProofRequest};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::User;
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Where it is kept.
const DIRECTORY: &str = "/run/slurm";
/// The link to the version that counts.
const LINK: &str = "conf";
/// Time limit for a server to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Time limit for the controller to verify the credential, and to send each part of the configuration.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Time that a daemon tries to get it.
const TRY_MAX: Duration = Duration::from_secs(60);
/// The first pause between two attempts, which doubles.
const PAUSE: Duration = Duration::from_secs(1);
/// Time that a node waits that could not get it, or not apply it.
const AGAIN: Duration = Duration::from_secs(5);
/// Exit status where the same may succeed later.
const LATER: u8 = 75;
/// `SlurmctldPort` where nothing is said.
const PORT: u16 = 6817;

/// Why there is none.
enum Failure {
    /// Another attempt may succeed later.
    Later(anyhow::Error),
    /// It will not.
    Final(anyhow::Error),
}

/// Stands for the servers that DNS names.
pub(crate) const BY_DNS: &str = "dns";

/// The servers that a daemon asks: those that it is given, else by DNS if this host has no file of its own.
pub(crate) fn servers(named: Option<String>, conf: Option<&Path>) -> Option<String> {
    let by_environment = std::env::var_os("SLURM_CONF").is_some_and(|path| !path.is_empty());
    let has_file = conf.is_some() || by_environment || Path::new(DEFAULT_PATH).exists();
    named.or_else(|| (!has_file).then(|| BY_DNS.to_owned()))
}

/// Gets the configuration from one of these servers, and waits for one for a while. Gives the path of slurm.conf.
///
/// libmunge, which speaks to munged, has no business in a daemon of root's: a process of its own gets it.
///
/// # Errors
/// None gives it.
pub(crate) fn get(servers: &str, user: Option<&str>) -> Result<PathBuf> {
    let directory = directory();
    let until = Instant::now() + TRY_MAX;
    let mut pause = PAUSE;
    loop {
        let mut fetch = Command::new("/proc/self/exe");
        let words = command(servers, user);
        let status = fetch
            .arg0(&words[0])
            .args(&words[1..])
            .env_clear()
            .status()
            .context("cannot start a process")?;
        match status.code() {
            Some(0) => return Ok(directory.join(LINK).join("slurm.conf")),
            Some(code) if code == i32::from(LATER) && Instant::now() + pause < until => {
                complain!("configuration: trying again in {} s", pause.as_secs());
                std::thread::sleep(pause);
                pause *= 2;
            }
            _ if servers == BY_DNS => bail!("there is no configuration"),
            _ => bail!("there is no configuration: {servers} did not give it"),
        }
    }
}

/// A process that gets the configuration again and again, until the one that started it ends.
pub(crate) struct Keeper {
    child: Child,
}

impl Keeper {
    /// Starts it, as the user of this process.
    ///
    /// # Errors
    /// The system refuses a process.
    pub(crate) fn start(servers: &str, user: Option<&str>, every: Duration) -> Result<Keeper> {
        let mut words = command(servers, user);
        words[2] = format!("keep={}", every.as_secs());
        let child = Command::new("/proc/self/exe")
            .arg0(&words[0])
            .args(&words[1..])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start a process")?;
        Ok(Keeper { child })
    }

    /// Ends it.
    ///
    /// # Errors
    /// It had ended by itself.
    pub(crate) fn end(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the process that keeps the configuration has ended: {status}");
        }
        // At the end of its input it ends.
        drop(self.child.stdin.take());
        Ok(())
    }
}

/// Gets it every so often, until the end of standard input.
fn keep_getting(servers: &str, directory: &Path, user: Option<&str>, every: Duration) -> ExitCode {
    let every = i32::try_from(every.as_millis()).unwrap_or(i32::MAX);
    let wait = PollTimeout::try_from(every).unwrap_or(PollTimeout::MAX);
    let stdin = io::stdin();
    let mut last = String::new();
    loop {
        let mut input = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        match poll(&mut input, wait) {
            Ok(0) => {}
            Err(Errno::EINTR) => continue,
            _ => return ExitCode::SUCCESS,
        }
        let said = match fetch(servers, directory, user) {
            Ok(()) => String::new(),
            Err(Failure::Later(e) | Failure::Final(e)) => format!("{e:#}"),
        };
        // Each is said once.
        if said != last && !said.is_empty() {
            complain!("muster: the configuration is not the newest: {said}");
        }
        last = said;
    }
}

/// The command line, its name first, by which this program gets it.
pub(crate) fn command(servers: &str, user: Option<&str>) -> Vec<String> {
    let directory = directory().display().to_string();
    let words = ["muster", "config", "fetch", servers, &directory];
    let words = words.into_iter().chain(user);
    words.map(str::to_owned).collect()
}

fn directory() -> PathBuf {
    // systemd's RuntimeDirectory= may name several.
    let named = std::env::var("RUNTIME_DIRECTORY").unwrap_or_default();
    match named.split(':').next() {
        Some(first) if first.starts_with('/') => PathBuf::from(first),
        _ => PathBuf::from(DIRECTORY),
    }
}

/// `muster config fetch SERVER[,...] DIRECTORY [USER]`. A daemon starts it with `keep=SECONDS` as well.
pub(crate) fn main(verb: &str, args: &[String]) -> ExitCode {
    let (servers, directory, user) = match args {
        [servers, directory] => (servers, directory, None),
        [servers, directory, user] => (servers, directory, Some(user.as_str())),
        _ => {
            complain!("usage: muster config fetch HOST[:PORT][,...] DIRECTORY [USER]");
            return ExitCode::from(1);
        }
    };
    if let Some(Ok(seconds)) = verb.strip_prefix("keep=").map(str::parse) {
        let every = Duration::from_secs(seconds);
        return keep_getting(servers, Path::new(directory), user, every);
    }
    if verb == muster_node::FETCH_LATER {
        std::thread::sleep(AGAIN);
    }
    match fetch(servers, Path::new(directory), user) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Later(e)) => {
            complain!("muster: {e:#}");
            ExitCode::from(LATER)
        }
        Err(Failure::Final(e)) => {
            complain!("muster: {e:#}");
            ExitCode::from(1)
        }
    }
}

fn fetch(servers: &str, directory: &Path, user: Option<&str>) -> Result<(), Failure> {
    let receiver = receiver(user).map_err(Failure::Final)?;
    let mut last = Failure::Final(anyhow!("no server is named"));
    let by_dns = match servers {
        BY_DNS => Some(found_by_dns()?),
        _ => None,
    };
    let servers = by_dns.as_deref().unwrap_or(servers);
    for server in servers.split(',').map(str::trim).filter(|s| !s.is_empty()) {
        match ask(server, &receiver) {
            Ok(files) => return keep(directory, &files, &receiver).map_err(Failure::Final),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

fn found_by_dns() -> Result<String, Failure> {
    service_records::controllers().map_err(|e| match e {
        LookupError::Silent(why) => Failure::Later(why.context("no controller is found by DNS")),
        LookupError::Absent(why) => Failure::Final(anyhow!(
            "there is no {DEFAULT_PATH}, and no controller is found by DNS: {why}; name it by --conf-server"
        )),
    })
}

/// The controller's user, for whom the credential is: nobody else can read it, and answer in the controller's place.
fn receiver(name: Option<&str>) -> Result<User> {
    let find = |name: &str| match name.parse() {
        Ok(uid) => User::from_uid(nix::unistd::Uid::from_raw(uid)),
        Err(_) => User::from_name(name),
    };
    let found = match name {
        Some(name) => find(name).context("accounts cannot be looked up")?,
        None => find("slurm").ok().flatten().or(find("root")?),
    };
    found.with_context(|| format!("this host has no account '{}'", name.unwrap_or("root")))
}

/// A server as it is written: `host`, `host:port`, `[address]:port`, or an address of IPv6.
pub(crate) fn place(server: &str) -> Result<(&str, u16)> {
    let (host, port) = match server.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').context("']' is missing")?;
            (host, port.strip_prefix(':'))
        }
        None => match server.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (server, None),
        },
    };
    let port = port.map_or(Ok(PORT), str::parse);
    Ok((host, port.context("the port is not a number")?))
}

fn ask(server: &str, receiver: &User) -> Result<Vec<ConfigurationFile>, Failure> {
    let (host, port) = place(server)
        .with_context(|| format!("'{server}' is not of the form HOST[:PORT]"))
        .map_err(Failure::Final)?;
    let tcp = muster_channel::dial((host, port), CONNECT_MAX)
        .with_context(|| format!("cannot reach {server}"))
        .map_err(Failure::Later)?;
    let proof = match own_key().map_err(Failure::Final)? {
        Some(key) => key
            .proof(Speaker::Configuration)
            .context("the node's key cannot be used"),
        None => proof::make(
            &authentication(),
            &ProofRequest {
                cluster: "",
                purpose: Purpose::Configuration,
                receiver_uid: receiver.uid.as_raw(),
            },
        )
        .context("no credential could be made"),
    };
    let proof = proof.map_err(Failure::Later)?;
    let host = nix::unistd::gethostname().unwrap_or_default();
    let hello = frame::encode(&ChannelHello {
        greeting: Versions::CLUSTER.greeting(),
        host: host.to_string_lossy().into_owned(),
    });
    let hello = hello.get(4..).unwrap_or_default();
    let parts = (proof.scheme, proof.credential.as_slice(), &proof.secret);
    let connected = muster_channel::connect(tcp, parts, hello, ANSWER_MAX).map_err(|e| {
        let is_refusal = e.kind() == io::ErrorKind::PermissionDenied;
        let name = &receiver.name;
        let why = anyhow!(e).context(format!(
            "{server} gives no configuration (its SlurmUser is taken to be {name}; --conf-user names another)"
        ));
        match is_refusal {
            true => Failure::Final(why),
            false => Failure::Later(why),
        }
    })?;
    let answer: ChannelAnswer = frame::decode(&connected.answer)
        .map_err(|e| Failure::Final(anyhow!("{server}: its greeting cannot be read: {e}")))?;
    Versions::CLUSTER
        .check(&answer.greeting, "slurmctld", "this program")
        .map_err(|refusal| Failure::Final(anyhow!("{server}: {}", refusal.detail)))?;
    let mut stream = connected.stream;
    let read = stream
        .set_read_timeout(Some(ANSWER_MAX))
        .and_then(|()| frame::read(&mut stream));
    match read {
        Ok(ConfigurationAnswer::Files(files)) => Ok(files),
        Ok(ConfigurationAnswer::Refused(why)) => Err(Failure::Final(anyhow!("{server}: {why}"))),
        Err(e) => Err(Failure::Later(
            anyhow!(e).context(format!("{server} did not say its configuration")),
        )),
    }
}

/// The key of this host's node, if 'muster node join' has made one here.
fn own_key() -> Result<Option<NodeKey>> {
    Ok(NodeKey::find(Path::new(USUAL_DIRECTORY))?)
}

/// Other proof of this host's identity: by the key of auth/slurm if it has one, else by munge.
fn authentication() -> Authentication {
    let usual = Path::new(DEFAULT_PATH).parent();
    authentication_by(usual.unwrap_or(Path::new("/")))
}

/// As above, with keys in this directory.
fn authentication_by(key_dir: &Path) -> Authentication {
    let has = |name: &str| key_dir.join(name).exists();
    let has_key = has("slurm.jwks") || has("slurm.key");
    Authentication::parse(has_key.then_some("auth/slurm"), None, key_dir)
}

/// Writes the files into a directory of their own, checks them, and has the link lead there.
fn keep(directory: &Path, files: &[ConfigurationFile], receiver: &User) -> Result<()> {
    let mut digest = Sha256::new();
    for file in files {
        digest.update((file.name.len() as u64).to_be_bytes());
        digest.update(&file.name);
        digest.update((file.bytes.len() as u64).to_be_bytes());
        digest.update(file.bytes.as_slice());
        digest.update([u8::from(file.is_program)]);
    }
    let digest = digest.finalize();
    let version: String = digest[..8].iter().map(|b| format!("{b:02x}")).collect();
    let name = format!("{LINK}.{version}");
    let target = directory.join(&name);
    make_directory(directory)?;
    let before = fs::read_link(directory.join(LINK)).ok();
    if before.as_deref() == Some(Path::new(&name)) {
        return Ok(());
    }
    // Files of an attempt that was cut off.
    let _ = fs::remove_dir_all(&target);
    for file in files {
        write(&target, file).with_context(|| format!("{} cannot be kept", file.name))?;
    }
    check(&target.join("slurm.conf"), receiver).inspect_err(|_| {
        let _ = fs::remove_dir_all(&target);
    })?;
    let new = directory.join("conf.new");
    let _ = fs::remove_file(&new);
    symlink(&name, &new)?;
    fs::rename(&new, directory.join(LINK))
        .with_context(|| format!("{} is not a link", directory.join(LINK).display()))?;
    // A program that reads the version before goes on.
    for entry in fs::read_dir(directory)?.flatten() {
        let old = entry.file_name();
        let is_version = old.as_encoded_bytes().starts_with(b"conf.");
        if is_version && *old != *name && before.as_deref() != Some(Path::new(&old)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

/// The receiver of the credential could answer: a configuration of another is refused.
fn check(conf: &Path, receiver: &User) -> Result<()> {
    ensure!(conf.exists(), "there is no slurm.conf in the answer");
    if own_key()?.is_some() {
        // The answering process has the controller's key, whatever account SlurmUser is.
        return Ok(());
    }
    let (config, _) = muster_conf::load(conf);
    let name = &config.slurm_user;
    let user = User::from_name(name).ok().flatten();
    let uid = user.map(|user| user.uid.as_raw()).or(name.parse().ok());
    ensure!(
        uid == Some(receiver.uid.as_raw()),
        "the configuration has SlurmUser={name}, and was asked for from {}: see that the account is the same on this host, and \
         give --conf-user={name}",
        receiver.name
    );
    Ok(())
}

fn make_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o755).create(path)
}

fn write(target: &Path, file: &ConfigurationFile) -> Result<()> {
    let name = plain_name(Path::new(&file.name)).context("its name leads out of the directory")?;
    let path = target.join(name);
    make_directory(path.parent().unwrap_or(target))?;
    let mode = if file.is_program { 0o755 } else { 0o644 };
    let mut open = OpenOptions::new();
    let mut written = open.write(true).create_new(true).mode(mode).open(&path)?;
    written.write_all(file.bytes.as_slice())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_conf::AuthMethod;

    #[test]
    fn a_host_with_the_key_of_the_cluster_uses_it() {
        let dir = std::env::temp_dir().join(format!("muster-given-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        assert_eq!(authentication_by(&dir).method, AuthMethod::Munge);
        fs::write(dir.join("slurm.key"), [1; 32]).unwrap();
        let found = authentication_by(&dir);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!((found.method, found.key_dir), (AuthMethod::Slurm, dir));
    }

    #[test]
    fn a_server_is_a_host_with_a_port() {
        for (text, host, port) in [
            ("ctl", "ctl", PORT),
            ("ctl:7000", "ctl", 7000),
            ("10.0.0.1:7000", "10.0.0.1", 7000),
            ("[fd00::1]:7000", "fd00::1", 7000),
            ("[fd00::1]", "fd00::1", PORT),
            ("fd00::1", "fd00::1", PORT),
        ] {
            assert_eq!(place(text).unwrap(), (host, port), "{text}");
        }
        for text in ["ctl:x", "[fd00::1", "ctl:70000"] {
            assert!(place(text).is_err(), "{text}");
        }
    }

    #[test]
    fn one_version_counts_and_the_one_before_stays() {
        let dir = std::env::temp_dir().join(format!("muster-given.{}", std::process::id()));
        let own = User::from_uid(nix::unistd::geteuid()).unwrap().unwrap();
        let file = |name: &str, text: String| ConfigurationFile {
            name: name.to_owned(),
            bytes: text.into_bytes().into(),
            is_program: false,
        };
        let conf = |cluster: &str| {
            let user = &own.name;
            file(
                "slurm.conf",
                format!("ClusterName={cluster}\nSlurmUser={user}\n"),
            )
        };
        for cluster in ["a", "b", "b", "c"] {
            keep(
                &dir,
                &[conf(cluster), file("x/y.conf", String::new())],
                &own,
            )
            .unwrap();
            let text = fs::read_to_string(dir.join("conf/slurm.conf")).unwrap();
            assert!(text.contains(&format!("ClusterName={cluster}\n")));
            assert!(dir.join("conf/x/y.conf").exists());
        }
        // The link, and two versions.
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 3);
        let other = file("slurm.conf", "SlurmUser=54321\n".to_owned());
        let refused = keep(&dir, &[other], &own).unwrap_err().to_string();
        assert!(refused.contains("SlurmUser=54321"), "{refused}");
        let out = file("../slurm.conf", String::new());
        assert!(keep(&dir, &[out], &own).is_err());
        assert!(
            fs::read_to_string(dir.join("conf/slurm.conf"))
                .unwrap()
                .contains("=c\n")
        );
        fs::remove_dir_all(&dir).unwrap();
    }
}
