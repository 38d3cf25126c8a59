//! Verifiers of Grid Engine: that of the site, which sees all submissions, and those that users name.

use crate::cluster::Cluster;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// The folder of the libraries that verifiers source.
fn libraries() -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/gridengine");
    std::fs::canonicalize(root).unwrap().display().to_string()
}

/// Writes a program and gives its path.
fn program(c: &Cluster, name: &str, text: &str) -> String {
    let path = c.path(name);
    let new = c.path(&format!("{name}.new"));
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&new, &path).unwrap();
    path.display().to_string()
}

/// A verifier in the shell, with the library.
fn shell(verify: &str) -> String {
    format!(
        "#!/bin/bash\njsv_on_start() {{ jsv_send_env; }}\njsv_on_verify() {{\n{verify}\n}}\n. {}/jsv_include.sh\njsv_main\n",
        libraries()
    )
}

/// A cluster whose site has such a verifier.
fn cluster(text: &str, bounds: &str) -> Cluster {
    let c = Cluster::start(1, 4);
    let path = program(&c, "jsv", text);
    std::fs::write(c.path("sge.conf"), format!("jsv_url script:{path}\n")).unwrap();
    std::fs::write(c.path("verifier.conf"), bounds).unwrap();
    c.ok("scontrol reconfigure");
    c
}

#[test]
fn the_sites_verifier_sees_and_corrects_what_all_commands_submit() {
    let c = cluster(
        &shell(
            r#"
            case "$(jsv_get_param N)" in
            REJ) jsv_reject "not allowed here"; return ;;
            REJW) jsv_reject_wait "come back later"; return ;;
            ACC) jsv_set_param N other; jsv_accept; return ;;
            esac
            jsv_sub_is_param l_hard h_rt || jsv_sub_add_param l_hard h_rt 120
            jsv_set_param N "CORRECTED"
            jsv_set_param A "from $(jsv_get_param CONTEXT) $(jsv_get_env GIVEN)"
            jsv_add_env JSVVAR "hello world"
            jsv_log_info "seen by jsv"
            jsv_correct changed"#,
        ),
        "",
    );
    let qsub = c.run("echo 'echo $JSVVAR' | qsub -N COR -o out -j y -cwd -v GIVEN=x");
    assert_eq!(qsub.out, "Your job 1 (\"CORRECTED\") has been submitted\n");
    c.until("it has run", || c.state(1) == "COMPLETED");
    assert_eq!(c.read("out"), "hello world\n");
    assert_eq!(
        c.ok("squeue -h -a -t all -j 1 -o '%j %l %k'"),
        "CORRECTED 2:00 from server x"
    );
    let sbatch = c.sbatch("-H -J mine --wrap true");
    let shown = c.ok(&format!("squeue -h -j {sbatch} -o '%j %l'"));
    assert_eq!(shown, "CORRECTED 2:00");
    let own = c.sbatch("-H -J mine -t 7 --wrap true");
    assert_eq!(c.ok(&format!("squeue -h -j {own} -o '%l'")), "7:00");
    c.ok("srun -J ACC true");
    let named = c.ok("squeue -h -a -t all -o %j | grep -c ACC");
    assert_eq!(named, "1", "accepting drops changes");
    for (name, why) in [("REJ", "not allowed here"), ("REJW", "come back later")] {
        let qsub = c.run(&format!("qsub -N {name} -b y true"));
        assert_eq!((qsub.code, qsub.out.as_str()), (1, ""));
        assert_eq!(qsub.err, format!("Unable to run job: {why}\nExiting.\n"));
        let sbatch = c.run(&format!("sbatch -J {name} --wrap true"));
        let failed = "sbatch: error: Batch job submission failed: Unspecified error\n";
        assert_eq!(sbatch.err, format!("sbatch: error: {why}\n{failed}"));
        assert_eq!(c.run(&format!("srun -J {name} true")).code, 1);
    }
    // A new file counts at once.
    program(&c, "jsv", &shell("jsv_reject 'another one'"));
    assert!(c.run("sbatch --wrap true").err.contains("another one"));
    // One that cannot be run changes nothing.
    std::fs::write(c.path("sge.conf"), "jsv_url /nosuch/jsv\n").unwrap();
    let ran = c.run("scontrol reconfigure");
    assert!(ran.err.contains("/nosuch/jsv: No such file"), "{}", ran.err);
    assert!(c.run("sbatch --wrap true").err.contains("another one"));
}

/// Verifiers in Perl and Tcl of one behaviour, with handlers as their libraries take them.
fn other_languages() -> [(&'static str, String); 2] {
    let lib = libraries();
    let perl = format!(
        r#"#!/usr/bin/perl -w
use strict;
use lib '{lib}';
use JSV qw( :DEFAULT jsv_send_env jsv_log_info );
jsv_on_start(sub {{ jsv_send_env(); }});
jsv_on_verify(sub {{
    my %params = jsv_get_param_hash();
    if ($params{{N}} eq 'REJ') {{ jsv_reject('not allowed here'); return; }}
    if (exists $params{{l_hard}} && exists $params{{l_hard}}{{h_rt}} && $params{{l_hard}}{{h_rt}} > 600) {{
        jsv_sub_add_param('l_hard', 'h_rt', 600);
    }}
    jsv_set_env('JSVVAR', 'hello ' . jsv_get_env('GIVEN'));
    jsv_correct('changed');
}});
jsv_main();
"#
    );
    let tcl = format!(
        r#"#!/usr/bin/tclsh
source {lib}/JSV.tcl
proc jsv_on_start {{}} {{ jsv_send_env }}
proc jsv_on_verify {{}} {{
    if {{[jsv_get_param N] eq "REJ"}} {{ jsv_reject "not allowed here"; return }}
    if {{[jsv_sub_is_param l_hard h_rt] && [jsv_sub_get_param l_hard h_rt] > 600}} {{
        jsv_sub_add_param l_hard h_rt 600
    }}
    jsv_set_env JSVVAR "hello [jsv_get_env GIVEN]"
    jsv_correct changed
}}
jsv_main
"#
    );
    [("/usr/bin/perl", perl), ("/usr/bin/tclsh", tcl)]
}

#[test]
fn verifiers_in_perl_and_tcl_use_the_functions_of_the_manual() {
    let c = cluster(&shell("jsv_accept"), "");
    for (interpreter, text) in other_languages() {
        if !std::path::Path::new(interpreter).exists() {
            eprintln!("{interpreter} is not installed");
            continue;
        }
        program(&c, "jsv", &text);
        let given = "qsub -terse -N COR -o out -j y -cwd -v GIVEN=x -l h_rt=3600";
        let qsub = c.run(&format!("echo 'echo $JSVVAR' | {given}"));
        assert_eq!((qsub.code, qsub.err.as_str()), (0, ""), "{interpreter}");
        let job: u64 = qsub.out.trim().parse().unwrap();
        c.until("it has run", || c.state(job) == "COMPLETED");
        assert_eq!(c.read("out"), "hello x\n", "{interpreter}");
        std::fs::remove_file(c.dir.join("out")).unwrap();
        let limit = c.ok(&format!("squeue -h -a -t all -j {job} -o %l"));
        assert_eq!(limit, "10:00", "{interpreter}");
        let refused = c.run("qsub -N REJ -b y true");
        let text = "Unable to run job: not allowed here\nExiting.\n";
        assert_eq!(refused.err, text, "{interpreter}");
    }
}

#[test]
fn a_verifier_that_misbehaves_harms_its_submission_alone() {
    let c = cluster(
        r#"#!/bin/bash
while read -r word name value; do
    case "$word $name" in
    "START ") echo STARTED ;;
    "PARAM N") job=$value ;;
    "BEGIN ")
        case "$job" in
        hang) sleep 100 ;;
        die) echo PARAM N x; exit 1 ;;
        error) echo ERROR something broke ;;
        nonsense) echo $'\001\377 what' ;;
        flood) yes PARAM N x ;;
        long) head -c 1000000 /dev/zero | tr '\0' x ;;
        user) echo PARAM USER root; echo RESULT STATE CORRECT ;;
        fixed) echo PARAM ckpt x; echo RESULT STATE CORRECT ;;
        wrong) echo PARAM q_hard nosuch.q; echo RESULT STATE CORRECT ;;
        twice) echo RESULT STATE ACCEPT; echo RESULT STATE REJECT late ;;
        *) echo RESULT STATE ACCEPT ;;
        esac ;;
    "QUIT ") exit ;;
    esac
done
"#,
        "TimeLimit=1\n",
    );
    for (name, part) in [
        ("hang", "it did not end in 1 s"),
        ("die", "its process ended"),
        ("error", "master got unknown command from JSV: \"ERROR\""),
        ("nonsense", "master got unknown command from JSV"),
        ("flood", "the JSV says more than one job can need"),
        ("long", "it says a line without an end"),
        ("user", "the JSV changes USER"),
        ("fixed", "the JSV sets ckpt to 'x'"),
        ("wrong", "nosuch.q"),
    ] {
        let ran = c.run(&format!("sbatch -J {name} --wrap true"));
        assert_eq!(ran.code, 1, "{name}");
        assert!(ran.err.contains(part), "{name}: {}", ran.err);
        c.sbatch("-H -J good --wrap true");
    }
    for _ in 0..6 {
        c.sbatch("-H -J twice --wrap true");
    }
    let mut hanging = c
        .command("sbatch -J hang --wrap true 2>/dev/null")
        .spawn()
        .unwrap();
    let begun = Instant::now();
    c.sbatch("-H -J good --wrap true");
    assert!(begun.elapsed() < Duration::from_secs(1));
    hanging.wait().unwrap();
    // Names and variables make no lines.
    let odd = "export ODD=$'a\\nPARAM N hang\\nRESULT STATE REJECT'; sbatch -H -J $'x\\nPARAM N hang' --comment=$'a\\rb' --wrap true";
    assert!(c.run(odd).out.contains("Submitted"));
}

#[test]
fn verifiers_of_users_change_what_qsub_sends() {
    let c = Cluster::start(1, 4);
    let jsv = program(
        &c,
        "mine",
        &shell(
            r#"
            if [ "$(jsv_get_param N)" = REJ ]; then jsv_reject "not by me"; return; fi
            if [ "$(jsv_get_param N)" = ERR ]; then jsv_send_command ERROR something broke; fi
            jsv_set_param pe_name smp; jsv_set_param pe_min 2; jsv_set_param pe_max 2
            jsv_sub_add_param l_hard h_rt "0:3:0"
            jsv_set_param N "${1:-CORRECTED}"
            [ "$(jsv_get_param CMDARGS)" != 2 ] || jsv_set_param CMDARG1 "$(jsv_get_param CMDARGS) $(jsv_get_env A)"
            jsv_add_env JSVVAR yes
            jsv_log_info "corrected by jsv"
            jsv_correct"#,
        ),
    );
    c.write("job.sh", "#!/bin/sh\necho $1 $2 $JSVVAR $NSLOTS\n");
    let ran = c.run(&format!(
        "qsub -jsv {jsv} -cwd -o out -j y -v A=b job.sh 1 'two words'"
    ));
    assert_eq!(
        ran.out, "corrected by jsv\nYour job 1 (\"CORRECTED\") has been submitted\n",
        "{}",
        ran.err
    );
    c.until("it has run", || c.state(1) == "COMPLETED");
    assert_eq!(c.read("out"), "1 2 b yes 2\n");
    assert_eq!(c.ok("squeue -h -a -t all -j 1 -o %l"), "3:00");
    let ran = c.run(&format!("qsub -jsv script:{jsv} -N REJ -b y true"));
    assert_eq!(ran.err, "Unable to run job: not by me\nExiting.\n");
    let ran = c.run(&format!("qsub -jsv {jsv} -N ERR -b y true"));
    assert!(
        ran.err
            .contains("master got unknown command from JSV: \"ERROR\""),
        "{}",
        ran.err
    );
    let slow = program(&c, "slow", "#!/bin/sh\nsleep 100\n");
    let ran = c.run(&format!("SGE_JSV_TIMEOUT=1 qsub -jsv {slow} -b y true"));
    assert!(ran.err.contains("it did not answer in 1 s"), "{}", ran.err);
    let crashed = program(&c, "crashed", "#!/bin/sh\nexit 3\n");
    let ran = c.run(&format!("qsub -jsv {crashed} -b y true"));
    assert!(
        ran.err.contains("it ended without an answer"),
        "{}",
        ran.err
    );
    let ran = c.run("qsub -jsv nobody@/x/y -b y true");
    assert!(ran.err.contains("names a user"), "{}", ran.err);
    let ran = c.run("qsub -jsv /nosuch -b y true");
    assert!(ran.err.contains("/nosuch: No such file"), "{}", ran.err);
    // Files name verifiers, too, and each sees what the one before has changed.
    c.write(".sge_request", &format!("-jsv {jsv}\n"));
    let perl = program(
        &c,
        "perl",
        &format!(
            "#!/usr/bin/perl\nuse lib '{}'; use JSV;\njsv_on_start(sub {{ jsv_send_env() }});\n\
             jsv_on_verify(sub {{ my %all = jsv_get_param_hash(); jsv_set_param('A', \"perl $all{{N}}$all{{l_hard}}{{h_rt}}\"); \
             jsv_correct() }});\njsv_main();\n",
            libraries()
        ),
    );
    let python = program(
        &c,
        "python",
        &format!(
            "#!/usr/bin/python3\nimport sys\nsys.path.insert(0, '{}')\nsys.dont_write_bytecode = True\nimport jsv\n\n\
             class Site(jsv.Verifier):\n    wants_environment = True\n\n    def verify(self, job):\n        \
             job.add('l_hard', 'h_rt', 60 * len(job.list('l_hard')))\n        job.set('A', 'python ' + job.env['B'])\n        \
             job.correct()\n\nSite().main()\n",
            libraries()
        ),
    );
    let ran = c.run(&format!(
        "qsub -h -jsv {perl} -l h_rt=60 -N first -o /dev/null -b y true"
    ));
    assert!(
        ran.out
            .ends_with("Your job 2 (\"CORRECTED\") has been submitted\n"),
        "{} {}",
        ran.out,
        ran.err
    );
    assert_eq!(c.ok("squeue -h -j 2 -o '%k %C'"), "perl first60 2");
    let ran = c.run(&format!(
        "rm .sge_request; qsub -h -jsv {python} -v B=x -l gpu=0,h_rt=1:0:0 -o /dev/null -b y true"
    ));
    assert!(ran.out.starts_with("Your job 3"), "{} {}", ran.out, ran.err);
    assert_eq!(c.ok("squeue -h -j 3 -o '%k %l'"), "python x 2:00");
}

#[test]
fn a_users_verifier_sees_what_qrsh_asks_for() {
    let c = Cluster::start(1, 4);
    let path = program(
        &c,
        "mine",
        &shell(
            r#"
            test "$(jsv_get_param CLIENT)" = qrsh || { jsv_reject "not for $(jsv_get_param CLIENT)"; return; }
            jsv_set_param N checked
            jsv_set_param CMDARG0 "$(jsv_get_param CMDNAME) of $(jsv_get_param CMDARG0)"
            jsv_correct changed"#,
        ),
    );
    let ran = c.run(&format!("qrsh -jsv {path} echo mine"));
    assert_eq!(ran.out, "echo of mine\n", "{}", ran.err);
    assert_eq!(c.ok("squeue -h -t all -o %j"), "checked");
    let refused = c.run(&format!("qlogin -jsv {path}"));
    assert_eq!(refused.code, 1);
    assert!(
        refused.err.contains("Unable to run job: not for qlogin"),
        "{}",
        refused.err
    );
}

#[test]
fn what_users_change_is_what_the_site_lists() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let c = cluster(&shell("jsv_accept"), "");
    let as_nobody =
        |command: &str| format!("setpriv --reuid=65534 --regid=65534 --clear-groups {command}");
    c.ok(&as_nobody("qsub -h -terse -o /dev/null -j y -b y true"));
    c.ok(&as_nobody("qalter -p -7 1"));
    c.ok("echo 'jsv_allowed_mod N,o,h' >>\"$(dirname $SLURM_CONF)/sge.conf\"");
    c.ok("scontrol reconfigure");
    c.ok(&as_nobody("qalter -N new 1"));
    for (command, why) in [
        ("qalter -p -8 1", "-p cannot be changed"),
        ("scontrol update JobId=1 Nice=9", "-p cannot be changed"),
        (
            "scontrol update JobId=1 Features=big",
            "-l cannot be changed",
        ),
        (
            "scontrol update JobId=1 ExcNodeList=n1",
            "-q cannot be changed",
        ),
        ("scontrol update JobId=2 Nice=9", "Invalid job id"),
    ] {
        let refused = c.run(&as_nobody(command));
        assert_ne!(refused.code, 0, "{command}");
        assert!(refused.err.contains(why), "{command}: {refused:?}");
    }
    assert_eq!(c.ok("squeue -h -j 1 -O name:5,nice:5").trim(), "new  7");
    // Operators are not bound by it, and what holds a job is listed.
    c.ok("qalter -p -9 1");
    c.ok(&as_nobody("qrls 1"));
    // Another hold is a change, too.
    c.ok("sed -i 's/N,o,h/N,o/' \"$(dirname $SLURM_CONF)/sge.conf\" && scontrol reconfigure");
    let refused = c.run(&as_nobody("scontrol requeuehold 1"));
    assert!(refused.err.contains("-h cannot be changed"), "{refused:?}");
    // A line that is wrong is not passed over: everything could be changed then.
    c.ok("sed -i 's/N,o/N,dc/' \"$(dirname $SLURM_CONF)/sge.conf\"");
    let refused = c.run("scontrol reconfigure");
    assert!(refused.err.contains("'dc' is not an option"), "{refused:?}");
}
