//! The environment that a job of qsub takes along. Unlike sbatch's it is not the caller's, unless `-V` says so.

use super::request::Request;
use super::{qsub, site};
use crate::options::env;
use crate::people;
use crate::submit::{capture, line};
use muster_model::environment::{self, Environment};
use muster_model::grid_engine::VARIABLES;
use muster_trust::host::short_name;
use std::os::unix::ffi::OsStrExt as _;

/// Where programs are for a job without `-V`.
const PATH: &str = "/usr/local/bin:/bin:/usr/bin";

/// The variables of a job.
pub(super) fn of_job(request: &Request, name: &str) -> Environment {
    let own = capture::own_environment();
    let mut all = match request.all_variables {
        true => {
            // Variables of the job in which qsub may run are not the new job's.
            let others = own
                .iter()
                .filter(|variable| !is_of_a_job(environment::name(variable)));
            others
                .map(|variable| String::from_utf8_lossy(variable).into_owned())
                .collect()
        }
        false => basic(),
    };
    for (name, value) in &request.variables {
        match value {
            Some(value) => all.set(name.as_bytes(), value.as_bytes()),
            None => {
                if let Some(value) = own.value(name.as_bytes()) {
                    all.set(name.as_bytes(), value);
                }
            }
        }
    }
    if let Some(display) = &request.display {
        all.set(b"DISPLAY", display.as_bytes());
    }
    capture::set_submission(&mut all);
    origin(&mut all, request, &own);
    all.set(b"REQUEST", name.as_bytes());
    all
}

fn is_of_a_job(name: &[u8]) -> bool {
    VARIABLES.iter().any(|own| own.as_bytes() == name) || name.starts_with(b"SGE_O_")
}

fn basic() -> Environment {
    let user = people::user_of_uid(nix::unistd::getuid().as_raw());
    let (name, home, shell) = match user {
        Some(user) => (
            user.name,
            user.dir.to_string_lossy().into_owned(),
            user.shell.to_string_lossy().into_owned(),
        ),
        None => (
            nix::unistd::getuid().to_string(),
            "/".to_owned(),
            String::new(),
        ),
    };
    let shell = if shell.is_empty() { "/bin/sh" } else { &shell };
    let all = [
        ("HOME", home.as_str()),
        ("USER", &name),
        ("LOGNAME", &name),
        ("SHELL", shell),
        ("PATH", PATH),
    ];
    all.iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

/// `SGE_O_*` and others that say where the job came from.
fn origin(all: &mut Environment, request: &Request, own: &Environment) {
    let of_caller = [
        ("SGE_O_HOME", "HOME"),
        ("SGE_O_LOGNAME", "LOGNAME"),
        ("SGE_O_MAIL", "MAIL"),
        ("SGE_O_PATH", "PATH"),
        ("SGE_O_SHELL", "SHELL"),
        ("SGE_O_TZ", "TZ"),
    ];
    for (name, source) in of_caller {
        if let Some(value) = own.value(source.as_bytes()) {
            all.set(name.as_bytes(), value);
        }
    }
    all.set(b"SGE_O_HOST", short_name().as_bytes());
    all.set(b"SGE_O_WORKDIR", line::current_dir().as_os_str().as_bytes());
    all.set(
        b"SGE_CWD_PATH",
        qsub::work_dir(request).as_os_str().as_bytes(),
    );
    all.set(
        b"SGE_ACCOUNT",
        request.account.as_deref().unwrap_or("sge").as_bytes(),
    );
    for name in ["SGE_ARCH", "ARC"] {
        all.set(name.as_bytes(), site::ARCH.as_bytes());
    }
    for (name, usual) in [("SGE_ROOT", None), ("SGE_CELL", Some("default"))] {
        if let Some(value) = env(name).or_else(|| usual.map(str::to_owned)) {
            all.set(name.as_bytes(), value.as_bytes());
        }
    }
}
