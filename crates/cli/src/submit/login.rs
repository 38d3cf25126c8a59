//! The environment that a user has after logging in, as the login shell itself makes it.

use super::capture::split_environment;
use super::line;
use crate::say::Say;
use muster_model::environment::{self, Environment};
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of a login shell.
const PATIENCE: Duration = Duration::from_secs(8);

/// Asks the user's login shell. When it fails or takes too long the user gets a message, and the job gets the few variables
/// that every login has.
pub(crate) fn environment(say: &Say) -> Environment {
    let uid = nix::unistd::getuid().as_raw().to_string();
    let user = line::user(&uid);
    let (name, home, shell) = match user {
        Some(user) => (
            user.name,
            user.dir.to_string_lossy().into_owned(),
            user.shell.to_string_lossy().into_owned(),
        ),
        None => (uid, "/".to_owned(), "/bin/sh".to_owned()),
    };
    let shell = if shell.is_empty() {
        "/bin/sh".to_owned()
    } else {
        shell
    };
    let basic: Vec<(&str, &str)> = vec![
        ("HOME", &home),
        ("USER", &name),
        ("LOGNAME", &name),
        ("SHELL", &shell),
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ];
    match ask(&shell, &basic) {
        Ok(environment) => environment,
        Err(why) => {
            say.warning(&format!(
                "the login environment could not be read from {shell}: {why}; the job gets HOME, USER, SHELL and PATH"
            ));
            basic.iter().map(|(n, v)| format!("{n}={v}")).collect()
        }
    }
}

fn ask(shell: &str, basic: &[(&str, &str)]) -> Result<Environment, String> {
    // The output of start-up files comes before the mark.
    const MARK: &[u8] = b"\0muster-environment\0";
    let script = r"printf '\0muster-environment\0'; exec env -0";
    let mut child = Command::new(shell)
        .args(["-l", "-c", script])
        .env_clear()
        .envs(basic.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut out = child.stdout.take().expect("its output is a pipe");
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = out.read_to_end(&mut bytes);
        let _ = send.send(read.map(|_| bytes));
    });
    let until = Instant::now() + PATIENCE;
    let answer = receive.recv_timeout(until.saturating_duration_since(Instant::now()));
    if answer.is_err() {
        let _ = child.kill();
    }
    let _ = child.wait();
    let bytes = answer
        .map_err(|_| format!("no answer within {} seconds", PATIENCE.as_secs()))?
        .map_err(|e| e.to_string())?;
    let at = bytes
        .windows(MARK.len())
        .position(|w| w == MARK)
        .ok_or("it printed no environment")?;
    let variables = split_environment(&bytes[at + MARK.len()..]);
    let of_shell: [&[u8]; 4] = [b"_", b"SHLVL", b"PWD", b"OLDPWD"];
    let is_other = |v: &&[u8]| !of_shell.contains(&environment::name(v));
    let environment: Environment = variables.iter().filter(is_other).collect();
    if environment.count() == 0 {
        return Err("it printed no environment".to_owned());
    }
    Ok(environment)
}
