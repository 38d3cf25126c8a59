//! Profile-guided optimisation: Muster is built once with counters, runs typical work, and is built again by the
//! counts. Where code that runs together lies together, the processor waits less for it: the scheduler's passes and the
//! controller's turns are bound by that, not by their computations.

use crate::build::{self, GIVEN, Profile, built, target, with_flag};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Work that shows which code matters: the scheduler with a model's workload, real jobs and steps on two nodes, and
/// bursts on emulated nodes with a user who looks.
const TRAINING: &str = r#"
set -eu
$MUSTER sim --generate lublin --jobs 4000 --policy default --json >/dev/null
$MUSTER sim --generate lublin --jobs 4000 --policy easy --json >/dev/null
$MUSTER up --nodes 2 >/dev/null
eval "$($MUSTER env)"
sbatch --wait --array=1-200 -o /dev/null --wrap true >/dev/null
for i in 1 2 3 4 5 6 7 8 9 10; do sbatch -o /dev/null --wrap true >/dev/null; srun -n2 true; done
salloc -Q -n2 bash -c 'for i in 1 2 3 4 5 6 7 8 9 10; do srun true; done'
squeue >/dev/null; sinfo >/dev/null; sacct -X >/dev/null
$MUSTER down --purge >/dev/null
$MUSTER up -f "$PLACE/slurm.conf" --emulate >/dev/null
eval "$($MUSTER env)"
sbatch -H --array=1-1000 -o /dev/null --wrap true >/dev/null
for i in $(seq 200); do sbatch -H -N$((i % 7 + 1)) -t$((i % 11 + 1)) -o /dev/null --wrap true >/dev/null; done
sbatch --wait --array=1-100000 -o /dev/null --wrap true >/dev/null
for i in $(seq 300); do sbatch -t$((i % 11 + 1)) -o /dev/null --wrap true >/dev/null; done
for i in 1 2 3 4 5; do squeue >/dev/null; squeue --me --json >/dev/null; done
scontrol release $(squeue -h -t PD -o %A | sort -u | paste -sd,)
sacct -X -n >/dev/null
$MUSTER down --purge >/dev/null
"#;

/// The cluster of the bursts.
const EMULATED: &str = "ClusterName=profile\nAccountingStorageType=accounting_storage/slurmdbd\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n\
    MaxArraySize=1000001\nMaxJobCount=1000000\nNodeName=n[1-200] CPUs=64 RealMemory=64000\n\
    PartitionName=all Nodes=ALL Default=YES\n";

/// The flag by which the compiler uses a profile of the present code; `None`, after a word why, where there can be none.
///
/// # Errors
/// The build with counters fails, or its work does.
pub(crate) fn flag(triple: &str, commands: Option<&Path>) -> Result<Option<String>> {
    if let Some(name) = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"]
        .into_iter()
        .find(|name| std::env::var_os(name).is_some())
    {
        eprintln!("{name} is set: Muster is built by it, without a profile.");
        return Ok(None);
    }
    let Some(merge) = merge_program()? else {
        eprintln!(
            "The toolchain has no llvm-profdata: Muster is built without a profile, and schedules more slowly. \
             'rustup component add llvm-tools' gets it."
        );
        return Ok(None);
    };
    let place = target().join("profile");
    fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    let place = fs::canonicalize(place)?;
    let (raw, merged) = (place.join("raw"), place.join("muster.profdata"));
    eprintln!("Muster is built with counters, to learn which of its code runs most.");
    let generate = format!("-Cprofile-generate={}", raw.display());
    let counting = with_flag(triple, &generate, commands)?;
    if is_older(&merged, &counting) {
        eprintln!("Muster does what it is for, and counts.");
        train(&counting, &place, &raw)?;
        combine(&merge, &raw, &merged)?;
    }
    Ok(Some(format!("-Cprofile-use={}", merged.display())))
}

fn is_older(file: &Path, than: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
    time(file).is_none_or(|file| time(than).is_none_or(|than| file < than))
}

fn train(counting: &Path, place: &Path, raw: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(raw);
    fs::write(place.join("slurm.conf"), EMULATED)?;
    // Sockets lie in it, and their names must be short.
    let home = std::env::temp_dir().join(format!("muster-profile-{}", std::process::id()));
    let down = [&*counting.to_string_lossy(), "down", "--purge"];
    let _guard =
        crate::guard::Guard::new(&down, &[("MUSTER_HOME", &*home.to_string_lossy())], None)?;
    let mut bash = Command::new("bash");
    bash.args(["-c", TRAINING]).stdin(Stdio::null());
    bash.env("MUSTER", counting).env("MUSTER_HOME", &home);
    bash.env("PLACE", place);
    ensure!(bash.status()?.success(), "Muster with counters fails");
    Ok(())
}

fn combine(program: &Path, raw: &Path, merged: &Path) -> Result<()> {
    let mut merge = Command::new(program);
    merge.args(["merge", "-o"]).arg(merged).arg(raw);
    ensure!(merge.status()?.success(), "llvm-profdata merge failed");
    let _ = fs::remove_dir_all(raw);
    Ok(())
}

/// The program that puts counts together: the toolchain's own, since their form changes with its version.
fn merge_program() -> Result<Option<PathBuf>> {
    let out = Command::new("rustc")
        .args(["--print", "target-libdir"])
        .output()?;
    let lib = PathBuf::from(String::from_utf8(out.stdout)?.trim());
    let program = lib.with_file_name("bin").join("llvm-profdata");
    if !program.exists() {
        let mut rustup = Command::new("rustup");
        rustup.args(["component", "add", "llvm-tools"]);
        let _ = rustup.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    Ok(Some(program).filter(|program| program.exists()))
}

/// Builds a release, by a profile of its work where the toolchain can do that, and prints its place. Its symbols lie
/// beside it, where debuggers and its own backtraces find them.
pub(crate) fn profiled() -> Result<PathBuf> {
    if let Some(given) = GIVEN.get() {
        return Ok(given.clone());
    }
    let commands = build::commands(Profile::Release)?;
    let triple = build::host()?;
    let Some(flag) = flag(&triple, commands.as_deref())? else {
        return build::muster(Profile::Release);
    };
    let program = with_flag(&triple, &flag, commands.as_deref())?;
    let file = built(&target(), Profile::Release).join("muster");
    fs::create_dir_all(built(&target(), Profile::Release))?;
    // A link would change when the next build with counters writes its program.
    let beside = file.with_extension("new");
    fs::copy(&program, &beside)?;
    split_symbols(&beside, &file.with_extension("debug"))?;
    fs::rename(&beside, &file)?;
    Ok(fs::canonicalize(file)?)
}

/// Moves a program's symbols into a file of their own, which it then names. They are nine tenths of it.
fn split_symbols(program: &Path, symbols: &Path) -> Result<()> {
    // Strings, so that the name in the program is the file's alone.
    let link = format!("--add-gnu-debuglink={}", symbols.display());
    let (program, symbols) = (program.as_os_str(), symbols.as_os_str());
    for words in [
        &["--only-keep-debug".as_ref(), program, symbols][..],
        &["--strip-all".as_ref(), link.as_ref(), program],
    ] {
        match Command::new("objcopy").args(words).status() {
            Ok(status) => ensure!(status.success(), "objcopy {words:?} failed"),
            Err(error) => {
                eprintln!("Symbols stay in the program: objcopy does not start ({error}).");
                return Ok(());
            }
        }
    }
    Ok(())
}
