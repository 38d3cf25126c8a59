//! `--bcast`: the program is copied to the nodes of the allocation before the step begins, by a step of sbcast's.

use super::allocation;
use super::line::SubmitLine;
use crate::sbcast;
use crate::sbcast::libraries::{self, CopyDefaults};
use muster_conf::endpoint;
use muster_conf::options::OptionError;
use muster_proto::client::AllocationInfo;
use muster_proto::step::StepSpec;
use nix::unistd::{AccessFlags, access};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Refuses what goes with no copy.
pub(super) fn check(line: &SubmitLine) -> Result<(), OptionError> {
    let chosen = &line.chosen;
    if !chosen.has("bcast") {
        return Ok(());
    }
    let refused = |text: &str| Err(OptionError::fatal(text));
    if chosen.has("multi-prog") {
        return refused("--bcast copies one program, and --multi-prog names several");
    }
    let wanted = chosen.get("send-libs");
    let wanted = wanted.map(|given| libraries::are_wanted(given.value.as_deref()));
    let excluded = CopyDefaults::default().excluded(chosen.value("bcast-exclude"));
    match (wanted.transpose(), excluded) {
        (Err(text), _) | (_, Err(text)) => refused(&text),
        (Ok(_), Ok(_)) => Ok(()),
    }
}

/// Directories whose libraries are not sent; absent if none are sent.
fn excluded(line: &SubmitLine, site: &CopyDefaults) -> Result<Option<Vec<String>>, ExitCode> {
    let chosen = &line.chosen;
    let given = chosen.get("send-libs");
    let wanted = given.map(|given| libraries::are_wanted(given.value.as_deref()));
    let wanted = wanted.unwrap_or(Ok(site.sends_libraries));
    let excluded = wanted.and_then(|wanted| {
        let excluded = wanted.then(|| site.excluded(chosen.value("bcast-exclude")));
        excluded.transpose()
    });
    excluded.map_err(|text| line.say.fatal(&text))
}

/// Copies the program, and has the step run the copy.
pub(super) fn copy(
    line: &SubmitLine,
    spec: &mut StepSpec,
    info: Option<&AllocationInfo>,
) -> Result<(), ExitCode> {
    let Some(given) = line.chosen.get("bcast") else {
        return Ok(());
    };
    let say = line.say;
    let asked;
    let info = match info {
        Some(info) => info,
        None => {
            asked = allocation(spec.job)
                .map_err(|e| say.connect_error("Unable to copy the program", &e))?;
            &asked
        }
    };
    let Some(program) = spec.argv.first() else {
        return Ok(());
    };
    let source = find(program, Path::new(&spec.work_dir)).ok_or_else(|| {
        say.error(&format!("--bcast: there is no program {program} here"));
        say.failed()
    })?;
    let site = endpoint::read(&endpoint::conf_path()).ok();
    let site = CopyDefaults::of_site(site.as_ref());
    let asked = given.value.as_deref().filter(|path| !path.is_empty());
    let of_site = site.dest_dir.as_ref().map(|dir| format!("{dir}/"));
    let dest = dest(asked.or(of_site.as_deref()), spec);
    let source = source.to_string_lossy();
    let excluded = excluded(line, &site)?;
    if sbcast::copy_program(&source, &dest, excluded.as_deref(), info, say)? {
        add_library_path(spec, &libraries::directory(&dest));
    }
    spec.argv[0] = dest;
    spec.program_file = None;
    Ok(())
}

/// The tasks find libraries in this directory first.
fn add_library_path(spec: &mut StepSpec, directory: &str) {
    const NAME: &[u8] = b"LD_LIBRARY_PATH";
    let environment = &mut spec.context.environment;
    let mut path = directory.as_bytes().to_vec();
    if let Some(others) = environment.value(NAME).filter(|others| !others.is_empty()) {
        path.push(b':');
        path.extend_from_slice(others);
    }
    environment.set(NAME, &path);
}

/// With `SLURM_TEST_EXEC`, refuses a program that srun does not find here, or that may not be executed.
pub(super) fn test_program(line: &SubmitLine) -> Result<(), ExitCode> {
    let names_several = line.chosen.has("multi-prog");
    let Some(program) = line.words.first().filter(|_| !names_several) else {
        return Ok(());
    };
    let dir = line.chosen.value("chdir").unwrap_or(".");
    let found = find(program, Path::new(dir));
    let is_executable = |path: &PathBuf| access(path, AccessFlags::X_OK).is_ok();
    match found.as_ref().is_some_and(is_executable) {
        true => Ok(()),
        false => Err(line.say.fatal(&format!("Can not execute {program}"))),
    }
}

/// The program, found as the tasks would find it.
fn find(program: &str, work_dir: &Path) -> Option<PathBuf> {
    if program.contains('/') {
        let path = work_dir.join(program);
        return path.is_file().then_some(path);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}

/// Path of the copy: the requested one, or a name that is made up in a directory.
fn dest(asked: Option<&str>, spec: &StepSpec) -> String {
    let name = || format!("slurm_bcast_{}.{}", spec.job, std::process::id());
    let in_work_dir = |path: &str| {
        let path = Path::new(&spec.work_dir).join(path);
        path.to_string_lossy().into_owned()
    };
    match asked {
        None | Some("") => in_work_dir(&name()),
        Some(directory) if directory.ends_with('/') => {
            in_work_dir(&(directory.to_owned() + &name()))
        }
        Some(path) => in_work_dir(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::JobId;

    #[test]
    fn a_copy_is_where_it_was_asked_for() {
        let spec = StepSpec {
            job: JobId(7),
            work_dir: "/home/u".to_owned(),
            ..StepSpec::default()
        };
        assert_eq!(dest(Some("/tmp/mine"), &spec), "/tmp/mine");
        assert_eq!(dest(Some("mine"), &spec), "/home/u/mine");
        let name = format!("slurm_bcast_7.{}", std::process::id());
        assert_eq!(dest(Some("/tmp/"), &spec), format!("/tmp/{name}"));
        assert_eq!(dest(None, &spec), format!("/home/u/{name}"));
    }

    #[test]
    fn libraries_of_the_copy_come_first() {
        let mut spec = StepSpec::default();
        add_library_path(&mut spec, "/a_libs");
        add_library_path(&mut spec, "/b_libs");
        let value = spec.context.environment.value(b"LD_LIBRARY_PATH");
        assert_eq!(value, Some(&b"/b_libs:/a_libs"[..]));
    }

    #[test]
    fn the_program_is_found_here() {
        let here = Path::new("/bin");
        assert_eq!(find("./sh", here), Some(PathBuf::from("/bin/./sh")));
        assert!(find("sh", here).is_some());
        assert_eq!(find("./nosuch", here), None);
        assert_eq!(find("nosuchprogram", here), None);
    }
}
