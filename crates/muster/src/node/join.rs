//! `muster node join`: root of a node has it known by a key of its own. The channel to the controller begins with the
//! token, which shows each side who the other is; an attacker between them can neither read nor change any message.

use super::{CommandWords, host_name};
use crate::given_configuration;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use muster_conf::{Config, DEFAULT_PATH, expand_path};
use muster_proto::frame;
use muster_proto::hello::ChannelAnswer;
use muster_proto::node_trust::{JoinAnswer, JoinHello};
use muster_proto::version::Versions;
use muster_trust::join::JoinToken;
use muster_trust::node_key::{FILE, NodeKey, USUAL_DIRECTORY};
use nix::unistd::geteuid;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use zeroize::Zeroizing;

/// Time limit for the controller to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Time limit for its answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Bytes of a token that is read from standard input.
const TOKEN_BYTES_MAX: u64 = 4096;

/// `join TOKEN|- --controller HOST[:PORT] [-N NODE] [--spool DIRECTORY]`.
pub(super) fn main(words: &[String]) -> Result<ExitCode> {
    let words = CommandWords::parse(words, &["controller", "N", "spool"])?;
    let [text] = words.operands.as_slice() else {
        bail!(
            "give the token that 'muster node token' has printed, or - and write it to standard input"
        );
    };
    let text = match text.as_str() {
        "-" => read_token()?,
        text => Zeroizing::new(text.to_owned()),
    };
    let token = JoinToken::parse(&text)?;
    let conf = local_configuration();
    let node = node_name(&token, words.option("N"))?;
    let server = match (words.option("controller"), &conf) {
        (Some(server), _) => server.to_owned(),
        (None, Some(config)) => controller_of(config)?,
        (None, None) => bail!("--controller says on which host the controller is"),
    };
    let spool = match words.option("spool") {
        Some(spool) => std::path::absolute(spool)?,
        None => spool_of(conf.as_ref(), &node)?,
    };
    make_own(&spool)?;
    let key = key_for(&token, &node, &spool)?;
    join(&server, &token, &key)?;
    let path = NodeKey::keep_pending(&spool)?;
    muster_node::pin_controller(&spool, &token.cluster, &token.controller)
        .with_context(|| format!("the controller's key is not kept in {}", spool.display()))?;
    say!(
        "node {node} of cluster {} is known by its own key, {}: start slurmd, or start it again\n",
        token.cluster,
        path.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Reads a token that others on this host cannot see on a command line.
fn read_token() -> Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    io::stdin()
        .take(TOKEN_BYTES_MAX)
        .read_to_string(&mut text)
        .context("no token came by standard input")?;
    Ok(text)
}

/// slurm.conf of this host, if it has one of its own.
fn local_configuration() -> Option<Config> {
    let named = std::env::var_os("SLURM_CONF").filter(|path| !path.is_empty());
    let path = named.map_or_else(|| PathBuf::from(DEFAULT_PATH), PathBuf::from);
    path.exists().then(|| muster_conf::load(&path).0)
}

fn node_name(token: &JoinToken, said: Option<&str>) -> Result<String> {
    match (token.node.as_str(), said) {
        ("", Some(said)) => Ok(said.to_owned()),
        ("", None) => host_name(),
        (own, Some(said)) if own != said => bail!("the token is for node {own}, not for {said}"),
        (own, _) => Ok(own.to_owned()),
    }
}

/// Where slurm.conf says that the controller is.
fn controller_of(config: &Config) -> Result<String> {
    let host = config
        .slurmctld
        .first()
        .context("slurm.conf names no SlurmctldHost")?;
    let address = config.slurmctld_addr.as_deref().unwrap_or(host.address());
    let port = *config.slurmctld_ports.start();
    Ok(match address.contains(':') {
        true => format!("[{address}]:{port}"),
        false => format!("{address}:{port}"),
    })
}

/// `SlurmdSpoolDir` of the node; what a host uses that gets its configuration from the controller, if it has none.
fn spool_of(conf: Option<&Config>, node: &str) -> Result<PathBuf> {
    let Some(config) = conf else {
        return Ok(USUAL_DIRECTORY.into());
    };
    let host = match config.node(node) {
        Some(named) => named.hostname.clone(),
        None => host_name()?,
    };
    Ok(expand_path(&config.paths.slurmd_spool_dir, node, &host))
}

/// Makes a directory in which nobody else puts anything, and to which only root leads.
fn make_own(spool: &Path) -> Result<()> {
    let shown = spool.display();
    muster_node::make_spool(spool)?;
    let found = fs::symlink_metadata(spool).with_context(|| shown.to_string())?;
    ensure!(
        found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0,
        "{shown} must be a directory of slurmd's user, root, in which nobody else can write"
    );
    Ok(())
}

/// The key that is to be pinned: a new one, or one that a join has left whose answer was lost.
fn key_for(token: &JoinToken, node: &str, spool: &Path) -> Result<NodeKey> {
    let pending = NodeKey::pending_path(spool);
    if let Ok(key) = NodeKey::read(&pending)
        && key.controller == token.controller
        && key.check(&token.cluster, node, &pending).is_ok()
    {
        return Ok(key);
    }
    if let Some(old) = NodeKey::find(spool).ok().flatten()
        && old.controller != token.controller
    {
        complain!(
            "muster: {} was for another controller, and is replaced",
            spool.join(FILE).display()
        );
    }
    let key = NodeKey::make(&token.cluster, node, token.controller)?;
    key.write(&pending)?;
    Ok(key)
}

/// Has the controller pin the key.
fn join(server: &str, token: &JoinToken, key: &NodeKey) -> Result<()> {
    let (host, port) = given_configuration::place(server)
        .with_context(|| format!("'{server}' is not of the form HOST[:PORT]"))?;
    let tcp = muster_channel::dial((host, port), CONNECT_MAX)
        .with_context(|| format!("cannot reach {server}"))?;
    let proof = token.proof(&key.node)?;
    let hello = frame::encode(&JoinHello {
        greeting: Versions::CLUSTER.greeting(),
        key: key.public().to_vec().into(),
        proof: token.prove_possession(key)?.to_vec().into(),
    });
    let hello = hello.get(4..).unwrap_or_default();
    let parts = (proof.scheme, proof.credential.as_slice(), &proof.secret);
    let connected = muster_channel::connect(tcp, parts, hello, ANSWER_MAX)
        .map_err(|e| anyhow!(e).context(format!("{server} does not take the token")))?;
    let answer: ChannelAnswer = frame::decode(&connected.answer)
        .map_err(|e| anyhow!("{server}: its greeting cannot be read: {e}"))?;
    Versions::CLUSTER
        .check(&answer.greeting, "slurmctld", "this program")
        .map_err(|refusal| anyhow!("{server}: {}", refusal.detail))?;
    let mut stream = connected.stream;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    match frame::read(&mut stream) {
        Ok(JoinAnswer::Joined) => Ok(()),
        Ok(JoinAnswer::Refused(why)) => bail!("{server} refuses: {why}"),
        Err(e) => Err(anyhow!(e).context(format!(
            "{server} did not say whether it took the key: run the same command again"
        ))),
    }
}
