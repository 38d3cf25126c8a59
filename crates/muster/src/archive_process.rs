//! The process that carries out `sacctmgr archive`: the controller starts it, as its own user, and writes the request to its standard
//! input. What was done goes to standard output, a line each; why not, to standard error.

use crate::conf_owner;
use crate::import::archive::load;
use crate::slurmdbd::archive::ArchiveSettings;
use crate::slurmdbd::purge::{self, PurgeSettings};
use anyhow::{Context as _, Result, bail, ensure};
use muster_acct::Restorer;
use muster_conf::Severity;
use muster_conf::endpoint::conf_path;
use muster_conf::files::{FlatSettings, PlainFile, load_flat};
use muster_proto::archive::{ArchiveDump, ArchiveRequest};
use muster_proto::client::{Request, RequestBody};
use muster_proto::frame;
use nix::sys::prctl;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

/// Runs it.
pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    ensure!(args.is_empty(), "the controller alone runs this");
    prctl::set_dumpable(false).context("this process cannot be protected from others")?;
    let Request { body, .. } = frame::read(&mut std::io::stdin().lock())?;
    let RequestBody::Archive(request) = body else {
        bail!("the controller alone runs this");
    };
    let conf = conf_path();
    let (config, _) = conf_owner::load(&conf)?;
    ensure!(
        config.accounting,
        "AccountingStorageType is accounting_storage/none: nothing is kept that could be archived"
    );
    let dbd = read_file(&conf.with_file_name("slurmdbd.conf"))?;
    ensure!(
        !is_yes(&dbd, "DisableArchiveCommands"),
        "DisableArchiveCommands is set in slurmdbd.conf"
    );
    let file = config.paths.state_save_location.join("accounting.db");
    let lines = match request {
        ArchiveRequest::Dump(dump) => {
            let archive = ArchiveSettings::read(&dbd, &config.cluster_name)?;
            let min_job_age_s = config.timeouts.min_job_age_s;
            let settings = PurgeSettings::read(&dbd, file, min_job_age_s, archive)?;
            purge::once(with(settings, &dump)?)?
        }
        ArchiveRequest::Load { file: archive } => vec![take_back(Path::new(&archive), &file)?],
    };
    for line in lines {
        say!("{line}\n");
    }
    Ok(ExitCode::SUCCESS)
}

fn is_yes(dbd: &FlatSettings, key: &str) -> bool {
    let word = dbd.text(key).unwrap_or_default();
    word.eq_ignore_ascii_case("yes") || word == "1"
}

/// Settings of slurmdbd.conf; the defaults where there is none.
fn read_file(path: &Path) -> Result<FlatSettings> {
    let shown = path.display();
    match std::fs::File::open(path) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Ok(FlatSettings::defaults(PlainFile::Slurmdbd));
        }
        Err(e) => {
            return Err(e).with_context(|| {
                format!("{shown} says what is archived, and SlurmUser cannot read it: chown it to SlurmUser")
            });
        }
    }
    let (dbd, findings) = load_flat(PlainFile::Slurmdbd, path);
    match findings.iter().find(|f| f.severity == Severity::Error) {
        Some(error) => bail!("{error}"),
        None => Ok(dbd),
    }
}

/// The settings, replaced by those that the command names.
fn with(mut settings: PurgeSettings, dump: &ArchiveDump) -> Result<PurgeSettings> {
    for age in &dump.ages {
        settings.set_age(*age)?;
    }
    let archive = settings.archive_mut();
    for kind in &dump.kept {
        archive.keep(*kind);
    }
    if let Some(dir) = &dump.dir {
        archive.write_to(dir)?;
    }
    if let Some(script) = &dump.script {
        archive.run_script(script)?;
    }
    Ok(settings)
}

/// Takes the rows of a file back. One whose rows are all there is refused, as Slurm has it.
fn take_back(path: &Path, store: &Path) -> Result<String> {
    ensure!(path.is_absolute(), "{} is no absolute path", path.display());
    let mut restorer = Restorer::open(store)?;
    let restored = load(path, &mut restorer).with_context(|| path.display().to_string())?;
    ensure!(
        restored.added > 0 || restored.known == 0,
        "{}: its rows are there already",
        path.display()
    );
    Ok(format!(
        "{}: {}",
        path.display(),
        crate::import::archive::text_of(restored)
    ))
}
