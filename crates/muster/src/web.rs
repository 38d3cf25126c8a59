//! `muster web`: the pages of slurmrestd in a browser of this host, for one user. The address that it prints has a token behind
//! the `#`, which browsers send to nobody; the page takes it out of the address at once.

use crate::home::Home;
use anyhow::{Context as _, Result, bail, ensure};
use muster_conf::endpoint;
use nix::unistd::{User, geteuid};
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Port of slurmrestd, as in Slurm; another is taken where this one is in use.
const PORT: u16 = 6820;
/// Seconds for which the user is signed in, unless the site lets tokens live for less time.
const LIFESPAN_S: u32 = 8 * 3600;
/// Bytes of a key.
const KEY_BYTES: usize = 48;

/// Runs slurmrestd in the foreground, for the pages of this user.
///
/// # Errors
/// There is no cluster, or it has no tokens.
pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    let listen = match args {
        [] => None,
        [word, value] if word == "--listen" => Some(value.clone()),
        [word] if word.starts_with("--listen=") => {
            word.split_once('=').map(|(_, value)| value.to_owned())
        }
        _ => {
            bail!("'muster web' takes --listen HOST:PORT or nothing; 'muster web --help' says more")
        }
    };
    let conf = configuration()?;
    let token = token_of_user(&conf)?;
    let place = match listen {
        Some(place) => place,
        None => format!("localhost:{}", free_port(PORT)?),
    };
    let (_, port) = place.rsplit_once(':').context("--listen takes HOST:PORT")?;
    let name = place.strip_suffix(&format!(":{port}")).unwrap_or("");
    let name = if name.is_empty() { "localhost" } else { name };
    say!(
        "The cluster's pages, where you are signed in; the address is yours alone, and good until this ends:\n\n  \
         http://{name}:{port}/#token={token}\n\nCtrl-C ends it.\n"
    );
    let mut daemon = Command::new(std::env::current_exe()?);
    daemon
        .args(["restd", "-a", "rest_auth/jwt", "-f"])
        .arg(&conf);
    // Errors alone: a line for each request would hide the address.
    daemon.env("SLURMRESTD_DEBUG", "2");
    if geteuid().is_root() {
        let nobody = User::from_name("nobody").ok().flatten();
        let nobody = nobody.context("there is no user nobody, as whom the server would run")?;
        daemon.args(["-u", "nobody", "-g", &nobody.gid.to_string()]);
    } else {
        // It answers nobody who has no token, so it does not matter whether this is SlurmUser of a private cluster.
        daemon.env("SLURMRESTD_SECURITY", "disable_user_check");
    }
    Err(daemon.arg(&place).exec()).context("cannot start slurmrestd")
}

/// The slurm.conf of the cluster: of the environment, else that of the user's private one, else the site's.
fn configuration() -> Result<PathBuf> {
    let named = std::env::var_os("SLURM_CONF").filter(|path| !path.is_empty());
    let private = Home::find().ok().map(|home| home.conf());
    let conf = match (named, private) {
        (None, Some(conf)) if conf.exists() => conf,
        _ => endpoint::conf_path(),
    };
    fs::canonicalize(&conf).with_context(|| {
        format!(
            "there is no cluster here ({}): start one with 'muster up --web', or set SLURM_CONF",
            conf.display()
        )
    })
}

/// Has the controller make a token, by the command that users have for it.
fn token_of_user(conf: &Path) -> Result<String> {
    let ask = |word: Option<String>| -> Result<Result<String, String>> {
        let mut scontrol = Command::new(std::env::current_exe()?);
        scontrol.args(["scontrol", "token"]).args(word);
        let output = scontrol
            .env("SLURM_CONF", conf)
            .stdin(Stdio::null())
            .output()
            .context("scontrol token")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Ok(match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        })
    };
    let made = match ask(Some(format!("lifespan={LIFESPAN_S}")))? {
        Err(_) => ask(None)?,
        made => made,
    };
    let made = made.map_err(|why| {
        anyhow::anyhow!(
            "{why}\nThe pages need tokens: a private cluster has them if it is started with 'muster up --web', and docs/rest.md says \
             which two lines a site's slurm.conf needs."
        )
    })?;
    let token = made.strip_prefix("SLURM_JWT=").unwrap_or(&made).to_owned();
    ensure!(!token.is_empty(), "scontrol token printed no token");
    Ok(token)
}

/// This port of the host, or another one where it is in use.
pub(crate) fn free_port(port: u16) -> Result<u16> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    Ok(free.context("there is no free port")?.local_addr()?.port())
}

/// Makes the key of users' tokens where there is none.
pub(crate) fn make_key(path: &Path) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = match options.open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        opened => opened.with_context(|| format!("cannot make {}", path.display()))?,
    };
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(|e| anyhow::anyhow!("no random numbers: {e}"))?;
    file.write_all(&key)?;
    file.sync_all()?;
    Ok(())
}
