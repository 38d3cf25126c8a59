//! The text of mails about jobs, as `MailProg` gets it.

use crate::cluster::Cluster;
use std::os::unix::fs::PermissionsExt;

/// Has mails written to files: `mail.JOB` has the arguments and the text of each mail about a job.
fn write_mails(c: &Cluster) {
    write_mails_with(c, "");
}

/// As above, with further lines of slurm.conf.
fn write_mails_with(c: &Cluster, lines: &str) {
    let (program, mails) = (c.path("mailprog"), c.path("mail"));
    let script = format!(
        "#!/bin/bash\n{{ printf '%s|' \"$@\"; echo; cat; echo END; }} >{0}.$$ && mv {0}.$$ {0}.$SLURM_JOB_ID\n",
        mails.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    let lines = format!("{text}MailProg={}\n{lines}", program.display());
    std::fs::write(&conf, lines).unwrap();
    c.ok("scontrol reconfigure");
}

/// The mail about a job, once it is there.
fn mail_of(c: &Cluster, job: u64) -> String {
    let path = c.path(&format!("mail.{job}"));
    c.until("the mail is there", || path.exists());
    std::fs::read_to_string(&path).unwrap()
}

fn has_line(mail: &str, name: &str, value: &str) -> bool {
    let line = format!("{:15}{value}", format!("{name}:"));
    mail.lines().any(|known| known.starts_with(&line))
}

#[test]
fn a_mail_has_the_end_and_the_efficiency_of_its_job() {
    let c = Cluster::start(1, 2);
    write_mails(&c);
    let failed = c.sbatch("-J calc -t 10 --mail-type=FAIL -o /dev/null --wrap 'exit 3'");
    let mail = mail_of(&c, failed);
    for (name, value) in [
        ("Event", "Failed"),
        ("Job", &failed.to_string()),
        ("Name", "calc"),
        ("State", "FAILED"),
        ("Exit code", "3"),
        ("Reason", "NonZeroExitCode (the script ended"),
        ("Run time", "00:00:0"),
        ("Nodes", "1 (n1)"),
    ] {
        assert!(has_line(&mail, name, value), "{name}: {mail}");
    }
    // By accounting, as seff has it.
    let seff = c.ok(&format!("seff {failed}"));
    for (line, of_seff) in [
        ("CPU use", "CPU Efficiency"),
        ("Memory use", "Memory Efficiency"),
    ] {
        let found = seff.lines().find_map(|line| line.strip_prefix(of_seff));
        let percent = found.unwrap().trim_start_matches(": ").split(' ').next();
        assert!(has_line(&mail, line, percent.unwrap()), "{mail}{seff}");
    }
    let found = seff
        .lines()
        .find_map(|line| line.strip_prefix("Memory Utilized: "));
    assert!(
        mail.contains(&format!("({} of ", found.unwrap())),
        "{mail}{seff}"
    );
    // One that is ended while its script runs: its use comes with the end of that.
    let late = c.sbatch("--mail-type=END -o /dev/null --wrap 'sleep 1000'");
    c.until("it runs", || {
        c.ok(&format!("squeue -h -o %T -j {late}"))
            .contains("RUNNING")
    });
    c.ok(&format!("scancel {late}"));
    let mail = mail_of(&c, late);
    assert!(has_line(&mail, "State", "CANCELLED by uid 0"), "{mail}");
    assert!(has_line(&mail, "CPU use", ""), "{mail}");
}

#[test]
fn no_name_makes_lines_in_a_mail() {
    let c = Cluster::start(1, 2);
    write_mails(&c);
    let job = c.sbatch(
        "-J $'a\\nTo: eve\\n\\nState: COMPLETED' --comment=$'b\\n.\\n' --mail-type=END -o /dev/null --wrap true",
    );
    let mail = mail_of(&c, job);
    let lines: Vec<&str> = mail.lines().collect();
    assert!(lines[0].starts_with("-s|Slurm Job_id="), "{mail}");
    assert!(
        lines[0].contains("Name=a To: eve  State: COMPLETED Ended"),
        "{mail}"
    );
    assert!(has_line(&mail, "Name", "a To: eve"), "{mail}");
    let begins = |text: &str| lines.iter().filter(|line| line.starts_with(text)).count();
    assert_eq!((begins("To:"), begins("State:")), (0, 1), "{mail}");
}

/// Mails of ends whose steps still ran were lost with the controller.
#[test]
fn a_mail_of_an_end_outlives_the_controller() {
    let c = Cluster::start(1, 2);
    // Its script is killed when the controller is there again, not before.
    write_mails_with(&c, "KillWait=600\n");
    let go = c.path("go").display().to_string();
    let job = c.sbatch(&format!(
        "--mail-type=END -o /dev/null --wrap 'trap : TERM; touch {go}.runs; until [ -e {go} ]; do sleep 0.1; done'"
    ));
    c.until("it runs", || c.path("go.runs").exists());
    c.ok(&format!("scancel {job}"));
    c.until_prints(&format!("squeue -h -o %T -j {job}"), "COMPLETING");
    c.kill(c.controller());
    c.start_controller();
    assert!(!c.path(&format!("mail.{job}")).exists());
    std::fs::write(&go, "").unwrap();
    let mail = mail_of(&c, job);
    assert!(has_line(&mail, "State", "CANCELLED by uid 0"), "{mail}");
    assert!(has_line(&mail, "CPU use", ""), "{mail}");
}

/// The lines of a mail after its heading for them.
fn last_lines(mail: &str) -> Option<Vec<&str>> {
    let (_, lines) = mail.split_once("\nLast lines of the script's ")?;
    let (_, lines) = lines.split_once("\n\n")?;
    let lines: Vec<&str> = lines.trim_end_matches("END\n").lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("    ")), "{mail}");
    Some(lines.into_iter().map(str::trim_start).collect())
}

#[test]
fn a_mail_has_the_last_lines_of_standard_error() {
    let c = Cluster::start(1, 2);
    write_mails(&c);
    let submit = |options: &str, script: &str| {
        let dir = c.path("").display().to_string();
        let job = c.sbatch(&format!(
            "-D {dir} --mail-type=END,FAIL {options} -o /dev/null --wrap '{script}'"
        ));
        mail_of(&c, job)
    };
    let mail = submit(
        "--mail-lines=2 -e err.%j",
        "for n in 1 2 3; do echo line $n >&2; done; exit 1",
    );
    assert!(has_line(&mail, "State", "FAILED"), "{mail}");
    assert!(
        mail.contains("\nLast lines of the script's standard error:\n"),
        "{mail}"
    );
    assert_eq!(last_lines(&mail), Some(vec!["line 2", "line 3"]));
    let mail = submit("-e err.%j", "echo nobody asked >&2");
    assert_eq!(last_lines(&mail), None, "{mail}");
    let mail = submit("--mail-lines=3 -e err.%j", "true");
    assert_eq!(last_lines(&mail), None, "it wrote nothing: {mail}");
    // One that is ended by others, and whose file is that of standard output.
    let job = c.sbatch(&format!(
        "--mail-type=END --mail-lines=9 -o {} --wrap 'echo begun; exec sleep 1000'",
        c.path("out").display()
    ));
    c.until("it runs", || {
        std::fs::read_to_string(c.path("out")).is_ok_and(|text| text == "begun\n")
    });
    c.ok(&format!("scancel {job}"));
    let mail = mail_of(&c, job);
    let lines = last_lines(&mail).unwrap();
    assert_eq!(lines[0], "begun");
    assert!(lines[1].contains("CANCELLED"), "{mail}");
    // As a line of the script.
    let script = c.path("script");
    let text = "#!/bin/sh\n#SBATCH --mail-type=END --mail-lines=1 -o own.%j\necho one; echo two\n";
    std::fs::write(&script, text).unwrap();
    let dir = c.path("").display().to_string();
    let job = c.sbatch(&format!("-D {dir} {}", script.display()));
    assert_eq!(last_lines(&mail_of(&c, job)), Some(vec!["two"]));
    let refused = c.run("sbatch --mail-lines=3 --wrap true").err;
    assert!(
        refused.contains("--mail-lines needs --mail-type"),
        "{refused}"
    );
    let refused = c
        .run("sbatch --mail-type=END --mail-lines=101 --wrap true")
        .err;
    assert!(refused.contains("--mail-lines"), "{refused}");
}

/// Jobs put other things where their standard error was; nothing of these is read, and nothing is waited for.
#[test]
fn a_mail_has_no_lines_of_other_files() {
    let c = Cluster::start(1, 2);
    write_mails(&c);
    let dir = c.path("").display().to_string();
    std::fs::write(c.path("secret"), "secret\n").unwrap();
    let of = |name: &str, command: &str| {
        let job = c.sbatch(&format!(
            "-D {dir} --mail-type=END --mail-lines=5 -o /dev/null -e {name} --wrap '{command}'"
        ));
        mail_of(&c, job)
    };
    for (name, command) in [
        ("fifo", "rm fifo; mkfifo fifo"),
        ("link", "rm link; ln -s secret link"),
        ("shadow", "rm shadow; ln -s /etc/shadow shadow"),
        ("dir", "rm dir; mkdir dir"),
        ("gone", "rm gone"),
        ("/dev/zero", "true"),
    ] {
        let mail = of(name, command);
        assert!(has_line(&mail, "State", "COMPLETED"), "{mail}");
        assert_eq!(last_lines(&mail), None, "{name}: {mail}");
    }
    let mail = of("holes", "truncate -s 10G holes; echo last >>holes");
    let lines = last_lines(&mail).unwrap();
    assert_eq!(lines.len(), 1, "{mail}");
    assert!(mail.len() < 8 << 10, "{}", mail.len());
    let mail = of(
        "binary",
        "printf \"a\\n.\\nTo: eve\\r\\n\\033[2J\\377\\000\\n\" >&2",
    );
    let lines = last_lines(&mail).unwrap();
    assert_eq!(lines, ["a", ".", "To: eve", "?[2J\u{fffd}?"], "{mail}");
}
