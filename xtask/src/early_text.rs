//! `cargo xtask early-text`: which functions the user commands run, for the linker to put side by side (see
//! crates/commands/build.rs). It runs them under callgrind in a cluster and writes crates/commands/early_text.txt.

use crate::cluster::{Cluster, target};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIST: &str = "crates/commands/early_text.txt";

const HEAD: &str = "\
# Functions that commands run, by the names of their sections without hashes: first what sbatch and srun both need, then
# sbatch, srun and salloc, squeue, and what is left of the others; small ones first. 'cargo xtask early-text' lists them, and
# build.rs has them linked side by side. A missing one costs a page fault, one that is no more costs nothing.
";

/// What is run, and in which group what it needs belongs; `$RUN NAME` is the command under callgrind.
const SCENE: [(usize, &str); 17] = [
    (0, "$RUN sbatch --hold -o /dev/null job.sh"),
    (
        0,
        "$RUN sbatch -H -J named -n2 --array=1-3 --parsable --wrap true",
    ),
    (
        1,
        "salloc -Q -N2 -n2 $RUN srun -Q -N1 -n1 --exact true </dev/null",
    ),
    (1, "salloc -Q -N2 -n2 $RUN srun true </dev/null"),
    // A third step of a kind, which a daemon takes.
    (
        1,
        "salloc -Q -N1 -n2 bash -c 'srun -n1 --exact true; srun -n1 --exact true; $RUN srun -n1 --exact true' </dev/null",
    ),
    (1, "$RUN srun -N2 hostname </dev/null"),
    (1, "$RUN salloc -N1 true </dev/null"),
    // Enough equal ones for a row template.
    (
        2,
        "for n in 1 2 3 4 5 6 7 8 9; do sbatch -Q --hold -o /dev/null job.sh; done; $RUN squeue",
    ),
    (2, "$RUN squeue --me -h -o '%i %T'"),
    (3, "$RUN sinfo"),
    (3, "$RUN sinfo -N -l"),
    (3, "$RUN scontrol show job"),
    (3, "$RUN scontrol show node"),
    (3, "$RUN sacct"),
    (3, "$RUN sacct -P -X -o JobID,State,Elapsed"),
    (3, "$RUN sdiag"),
    (3, "$RUN scancel --me"),
];

/// What srun runs to look at its program, by parts of names or, of the C library's, by whole ones: it does not where
/// something is loaded into programs beforehand, as valgrind's own library is.
const LOOKS_AT_PROGRAM: [&str; 8] = [
    "4srun6linked",
    "7FileExt7read_at",
    "7FileExt13read_exact_at",
    "_3std3sys2fs8metadata",
    "drop_in_placeNtNtNtCs*_3std2io5error5ErrorECs*_10muster_cli",
    "stat",
    "fstatat",
    "pread",
];

/// A function of the program: where it begins, how long it is, its name.
struct Function {
    start: u64,
    size: u64,
    name: String,
}

/// Writes the list.
pub(crate) fn run() -> Result<()> {
    let commands = crate::build::commands(crate::build::Profile::Release)?
        .context("there are no static commands")?;
    let place = place()?;
    let bin = place.join("bin");
    fs::create_dir_all(&bin)?;
    fs::write(place.join("job.sh"), "#!/bin/sh\ntrue\n")?;
    let cluster = Cluster::up("early-text", &place, &["--nodes", "2", "--cpus", "2"])?;
    let functions = functions(&commands)?;
    let mut groups: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut first: [BTreeSet<usize>; 2] = Default::default();
    for (number, (group, line)) in SCENE.iter().enumerate() {
        let out = place.join(format!("{number}.out"));
        let seen = watch(&cluster, &place, &commands, line, &out)?;
        let seen = functions_at(&functions, &seen);
        println!("{line}: {} functions", seen.len());
        if let Some(first) = first.get_mut(*group) {
            first.extend(&seen);
        }
        groups.entry(*group + 1).or_default().extend(seen);
    }
    let unseen = (0..functions.len()).filter(|at| looks_at_program(&functions[*at].name));
    groups.entry(2).or_default().extend(unseen);
    groups.insert(0, first[0].intersection(&first[1]).copied().collect());
    fs::write(LIST, list(&functions, &groups))?;
    println!("{LIST} is written; build again to have the functions in that order");
    Ok(())
}

fn place() -> Result<PathBuf> {
    let place = target().join("early-text");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place)?;
    Ok(fs::canonicalize(place)?)
}

/// Runs a line of the scene; gives the addresses of all instructions that the command under callgrind has run.
fn watch(
    cluster: &Cluster,
    place: &Path,
    commands: &Path,
    line: &str,
    out: &Path,
) -> Result<BTreeSet<u64>> {
    let (_, words) = line.split_once("$RUN ").context("nothing is run")?;
    let name = words.split(' ').next().unwrap_or_default();
    let link = place.join("bin").join(name);
    let _ = fs::remove_file(&link);
    symlink(commands, &link)?;
    let valgrind = format!(
        "valgrind -q --tool=callgrind --dump-instr=yes --compress-pos=no --callgrind-out-file={} {}/bin/",
        out.display(),
        place.display()
    );
    let script = format!("{}\n{}", cluster.env, line.replace("$RUN ", &valgrind));
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(place)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "'{line}' failed: {said}");
    let text = fs::read_to_string(out).with_context(|| out.display().to_string())?;
    Ok(text.lines().filter_map(address_of).collect())
}

/// The address at the beginning of a line of callgrind's, where it is one of costs.
fn address_of(line: &str) -> Option<u64> {
    let word = line.strip_prefix("0x")?.split(' ').next()?;
    u64::from_str_radix(word, 16).ok()
}

/// All functions of a program, by address.
fn functions(program: &Path) -> Result<Vec<Function>> {
    let words = ["--defined-only", "--print-size", "--numeric-sort"];
    let output = Command::new("nm").args(words).arg(program).output()?;
    ensure!(output.status.success(), "nm failed");
    let text = String::from_utf8(output.stdout)?;
    let function = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [start, size, "T" | "t" | "W" | "w", name] = words[..] else {
            return None;
        };
        Some(Function {
            start: u64::from_str_radix(start, 16).ok()?,
            size: u64::from_str_radix(size, 16).ok()?,
            name: name.to_owned(),
        })
    };
    Ok(text.lines().filter_map(function).collect())
}

/// The functions, by their numbers, in which these addresses are. One may have several names.
fn functions_at(functions: &[Function], addresses: &BTreeSet<u64>) -> BTreeSet<usize> {
    let at = |address: &u64| {
        let after = functions.partition_point(|f| f.start <= *address);
        let start = functions[..after].last().map_or(0, |f| f.start);
        let first = functions.partition_point(|f| f.start < start);
        let address = *address;
        (first..after).filter(move |at| address < start + functions[*at].size)
    };
    addresses.iter().flat_map(at).collect()
}

fn looks_at_program(name: &str) -> bool {
    let name = section(name);
    let is_part = |part: &str| part.contains('_') || part.starts_with('4');
    let mut all = LOOKS_AT_PROGRAM.iter();
    all.any(|part| name == **part || (is_part(part) && name.contains(part)))
}

/// The file: each function once, in the first group that has it.
fn list(functions: &[Function], groups: &BTreeMap<usize, BTreeSet<usize>>) -> String {
    let mut text = HEAD.to_owned();
    let mut listed = BTreeSet::new();
    for group in groups.values() {
        let mut of_group: Vec<&Function> = group.iter().map(|at| &functions[*at]).collect();
        of_group.sort_by_key(|f| (f.size, &f.name));
        for function in of_group {
            let name = section(&function.name);
            if listed.insert(name.clone()) {
                text += &name;
                text.push('\n');
            }
        }
    }
    text
}

/// A function's name without what differs from build to build: the hashes of crates, and what the compiler appends to the
/// names of functions that it calls from other files.
fn section(name: &str) -> String {
    let name = name.split(".llvm.").next().unwrap_or(name);
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("Cs") {
        let (before, from) = rest.split_at(at + 2);
        out += before;
        let hash = from.find(|c: char| !c.is_ascii_alphanumeric());
        match hash.map(|end| from.split_at(end)) {
            // A digit follows: the length of the crate's name.
            Some((_, after)) if after.starts_with('_') && is_digit(after, 1) => {
                out.push('*');
                rest = after;
            }
            _ => rest = from,
        }
    }
    out + rest
}

fn is_digit(text: &str, at: usize) -> bool {
    text.as_bytes().get(at).is_some_and(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_hashes() {
        for (name, without) in [
            ("_start", "_start"),
            (
                "_RNvNtNtCslzkV35BUMuB_10muster_cli6submit4main",
                "_RNvNtNtCs*_10muster_cli6submit4main",
            ),
            (
                "_RNvNtCs1_4core3fmtCs2_3std.llvm.3178915271588207870",
                "_RNvNtCs*_4core3fmtCs*_3std",
            ),
            ("_RNvC7Cs_main", "_RNvC7Cs_main"),
        ] {
            assert_eq!(section(name), without);
        }
    }
}
