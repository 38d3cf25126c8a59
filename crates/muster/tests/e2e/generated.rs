//! Files made from the tables: the committed page is the one that would be made now, man pages render without a
//! warning, completion completes.

use std::path::{Path, PathBuf};
use std::process::Command;

const MUSTER: &str = env!("CARGO_BIN_EXE_muster");

fn generate(what: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(what);
    let _ = std::fs::remove_dir_all(&dir);
    let status = Command::new(MUSTER)
        .args(["generate", what])
        .arg(&dir)
        .status();
    assert!(status.expect("muster runs").success());
    dir
}

#[test]
fn the_compatibility_page_is_up_to_date() {
    let made = std::fs::read_to_string(generate("compat").join("compat.md")).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compat.md");
    let known = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        made == known,
        "docs/compat.md is stale; refresh it with: cargo xtask generate"
    );
}

/// The made part of it; the rest is written by hand.
#[test]
fn the_security_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let known = std::fs::read_to_string(path).unwrap();
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("security");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("security.md"), &known).unwrap();
    let status = Command::new(MUSTER)
        .args(["generate", "security"])
        .arg(&dir)
        .status();
    assert!(status.expect("muster runs").success());
    let made = std::fs::read_to_string(dir.join("security.md")).unwrap();
    assert!(made.contains("| Shutdown |"), "the table is there");
    assert!(
        made == known,
        "docs/security.md is stale; refresh it with: cargo xtask generate"
    );
}

/// Each page by groff, where it is installed, with all warnings on; a warning is a line on standard error.
#[test]
fn man_pages_render_without_warnings() {
    let dir = generate("man");
    let mut pages = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        pages += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\n.SH OPTIONS\n") || text.contains("\n.SH DESCRIPTION\n"));
        let Ok(output) = Command::new("groff")
            .args(["-man", "-ww", "-Tutf8"])
            .arg(&path)
            .output()
        else {
            continue;
        };
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && complaints.is_empty(),
            "{}: {complaints}",
            path.display()
        );
        assert!(output.stdout.len() > 500, "{}", path.display());
    }
    assert_eq!(pages, 64);
}

/// What bash offers for a line.
fn completed(script: &Path, line: &[&str]) -> Vec<String> {
    let program = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _muster \"$1\"; \
                   printf '%s\\n' \"${COMPREPLY[@]}\"";
    let output = Command::new("bash")
        .args(["-c", program, "bash"])
        .arg(script)
        .args(line)
        .output()
        .expect("bash is there");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes() {
    let script = generate("completion").join("muster");
    let offered = completed(&script, &["sbatch", "--nta"]);
    assert!(offered.contains(&"--ntasks=".to_owned()), "{offered:?}");
    assert!(
        offered.iter().all(|word| word.starts_with("--ntasks")),
        "{offered:?}"
    );
    for (line, word) in [
        (&["muster", "sbatch", "--wra"][..], "--wrap="),
        (&["muster", "squ"], "squeue"),
        (&["scontrol", "rec"], "reconfigure"),
        (&["scontrol", "show", "part"], "partitions"),
        (&["slurmctld", "--v"], "--version"),
        (&["muster", "wh"], "why"),
        (&["muster", "why", "--js"], "--json"),
        (&["qsub", "-hold_jid_"], "-hold_jid_ad"),
    ] {
        assert_eq!(completed(&script, line), [word], "{line:?}");
    }
    // What is refused is not offered.
    assert_eq!(completed(&script, &["sbatch", "--rebo"]), [""]);
}

#[test]
fn every_command_has_help() {
    let help_by = |words: &[&str]| {
        let output = Command::new(MUSTER).args(words).output().unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{words:?}: {output:?}"
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let commands = "sbatch srun salloc scancel scontrol squeue sinfo sacct sacctmgr sdiag sprio sreport sshare sstat seff \
                    sbcast strigger \
                    qsub qstat qdel qalter qhold qrls qmod qhost qselect qacct qconf qping qquota qsummary qresub qrsub qrdel qrstat qrsh qlogin qsh \
                    slurmctld slurmd";
    for command in commands.split_whitespace() {
        let text = help_by(&[command, "--help"]);
        assert!(
            text.len() > 100 && text.contains(command),
            "{command}: {text}"
        );
    }
    // Not that of all commands.
    let own =
        "up down env config import install node init generate why class sim doctor bench emulate";
    for command in own.split_whitespace() {
        let text = help_by(&[command, "--help"]);
        let first = text.lines().next().unwrap_or_default();
        let names_it =
            ["muster ", "muster-"].map(|before| first.contains(&format!("{before}{command}")));
        assert!(names_it.contains(&true), "{text}");
        assert_eq!(help_by(&["help", command]), text);
    }
    for command in
        "sbatch srun salloc scancel scontrol squeue sinfo sacct sdiag sprio sreport sshare sstat"
            .split(' ')
    {
        for option in ["--usage", "--usa"] {
            let output = Command::new(MUSTER)
                .args([command, option])
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            // Some print their help for it, as Slurm's do.
            let begins = text.starts_with("Usage: ") || text.starts_with(&format!("{command} ["));
            assert!(output.status.success() && begins, "{command}: {text}");
        }
    }
}
