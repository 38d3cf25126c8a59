//! job_submit.lua: what a script of the site sees, changes and refuses, and what it cannot do to others.

use crate::cluster::{Cluster, alive};
use std::time::{Duration, Instant};

/// A script whose function for submissions has this body.
fn script(submit: &str, modify: &str) -> String {
    format!(
        "function slurm_job_submit(job_desc, part_list, submit_uid)\n{submit}\nreturn slurm.SUCCESS\nend\n\
         function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)\n{modify}\nreturn slurm.SUCCESS\nend\n"
    )
}

/// Writes a file beside slurm.conf.
fn put(c: &Cluster, name: &str, text: &str) {
    std::fs::write(c.path(name), text).unwrap();
}

/// A cluster with such a script.
fn cluster(submit: &str, modify: &str, bounds: &str) -> Cluster {
    let c = Cluster::start(1, 4);
    put(&c, "job_submit.lua", &script(submit, modify));
    put(&c, "verifier.conf", bounds);
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, format!("{text}\nJobSubmitPlugins=lua\n")).unwrap();
    c.ok("scontrol reconfigure");
    c
}

/// Verifier processes of the cluster's controller.
fn processes(c: &Cluster) -> Vec<i32> {
    let children = format!("/proc/{0}/task/*/children", c.controller());
    let all = c.ok(&format!("cat {children}"));
    let pids = all.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.filter(|pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"muster-verifier")
    })
    .collect()
}

#[test]
fn a_script_changes_what_all_commands_submit_and_says_so() {
    let c = cluster(
        r#"
        slurm.log_info("job %s of %d", job_desc.name, submit_uid)
        if job_desc.time_limit == slurm.NO_VAL then
            job_desc.time_limit = 17
            slurm.log_user("the limit is %d minutes", 17)
        end
        job_desc.comment = "seen"
        job_desc.admin_comment = "of the site"
        for name, partition in pairs(part_list) do job_desc.wckey = name end
        if job_desc.script then
            job_desc.environment["ADDED"] = job_desc.environment["GIVEN"] or "none"
            job_desc.script = job_desc.script .. "\necho last $ADDED\n"
        end"#,
        r#"
        if job_desc.time_limit ~= slurm.NO_VAL and job_desc.time_limit > 30 then
            slurm.log_user("%s is not over 30 minutes", job_rec.name)
            return slurm.ESLURM_INVALID_TIME_LIMIT
        end
        job_desc.comment = "changed " .. job_rec.job_id"#,
        "",
    );
    let ran = c.run("GIVEN=x sbatch -J one -o out --wrap 'echo first'");
    assert_eq!(ran.out, "Submitted batch job 1\n");
    assert_eq!(ran.err, "sbatch: the limit is 17 minutes\n");
    c.until("the job has run", || c.state(1) == "COMPLETED");
    assert_eq!(c.read("out"), "first\nlast x\n");
    let shown = c.ok("scontrol show job 1");
    for part in [
        "TimeLimit=00:17:00",
        "Comment=seen",
        "AdminComment=of the site",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let srun = c.run("srun -J two hostname >/dev/null");
    assert_eq!(srun.err, "srun: the limit is 17 minutes\n");
    let salloc = c.run("salloc -J three true");
    assert!(
        salloc.err.contains("salloc: the limit is 17 minutes\n"),
        "{}",
        salloc.err
    );
    let qsub = c.run("echo true | qsub -N four -o /dev/null -j y");
    assert_eq!(
        qsub.out,
        "the limit is 17 minutes\nYour job 4 (\"four\") has been submitted\n"
    );
    // Components of a job, each.
    let het = c.run("salloc -J five -n1 : -n1 true");
    assert_eq!(
        het.err.matches("the limit is 17 minutes").count(),
        2,
        "{}",
        het.err
    );
    assert_eq!(c.ok("squeue -h -a -t all -o %k | sort -u"), "seen");
    let log = c.ok(&format!(
        "grep -c 'job_submit/lua: job' {}",
        c.path("log/ctld.log").display()
    ));
    assert_ne!(log, "0");
    // Changes.
    let held = c.sbatch("-H -J held --wrap true");
    let denied = c.run(&format!("scontrol update jobid={held} timelimit=40"));
    assert_eq!(denied.code, 1);
    assert!(
        denied.err.contains("held is not over 30 minutes")
            && denied.err.contains("Requested time limit is invalid"),
        "{}",
        denied.err
    );
    c.ok(&format!("scontrol update jobid={held} timelimit=20"));
    let shown = c.ok(&format!("scontrol show job {held}"));
    assert!(
        shown.contains(&format!("Comment=changed {held}")),
        "{shown}"
    );
    assert!(shown.contains("TimeLimit=00:20:00"), "{shown}");
}

#[test]
fn the_scripts_process_has_its_connection_only() {
    let c = cluster("", "", "");
    // Who starts the controller has something open.
    c.kill(c.controller());
    c.ok("exec 200</dev/zero; slurmctld; until scontrol ping | grep -q UP; do sleep 0.05; done");
    for pid in processes(&c) {
        let open = c.ok(&format!("ls -l /proc/{pid}/fd"));
        assert!(!open.contains("/dev/zero"), "{open}");
    }
    assert!(!processes(&c).is_empty());
}

#[test]
fn nobody_hears_of_others_jobs_by_the_script() {
    let c = cluster(
        "",
        r#"slurm.log_user("%s of %s is not changed", job_rec.name, tostring(job_rec.user_id)) do return slurm.ERROR end"#,
        "",
    );
    let job = c.sbatch("-H -J secret --wrap true");
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    for id in [job.to_string(), "4711".to_owned()] {
        let ran = c.run(&format!("{nobody} scontrol update jobid={id} comment=x"));
        assert_eq!(ran.code, 1);
        assert!(
            !ran.err.contains("secret") && !ran.err.contains("changed"),
            "{}",
            ran.err
        );
    }
    let own = c.run(&format!("scontrol update jobid={job} comment=x"));
    assert!(
        own.err.contains("secret of 0 is not changed"),
        "{}",
        own.err
    );
}

#[test]
fn refusals_have_slurms_words_and_the_scripts_lines() {
    let c = cluster(
        r#"
        if job_desc.name == "code" then return slurm.ESLURM_INVALID_ACCOUNT end
        if job_desc.name == "line" then slurm.log_user("ask %s\nfirst", job_desc.user_name) return slurm.ERROR end
        if job_desc.name == "loop" then while true do pcall(function() while true do end end) end end
        if job_desc.name == "full" then string.rep("x", 1 << 30) end
        if job_desc.name == "exit" then os.exit(0) end
        if job_desc.name == "none" then return nil end
        if job_desc.name == "wrong" then job_desc.partition = "nosuch" end
        if job_desc.name == "sleep" then os.execute("sleep 100") end
        if job_desc.name == "break" then local x = nil; x.y = 1 end"#,
        "",
        "TimeLimit=1\nProcesses=4\n",
    );
    let refused = |name: &str| {
        let ran = c.run(&format!("sbatch -J {name} --wrap true"));
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{name}");
        ran.err
    };
    let failed = "sbatch: error: Batch job submission failed: ";
    assert_eq!(
        refused("code"),
        format!("{failed}Invalid account or account/partition combination specified\n")
    );
    assert_eq!(
        refused("line"),
        format!("sbatch: error: ask root\nsbatch: error: first\n{failed}Unspecified error\n")
    );
    for (name, part) in [
        ("loop", "it did not end in 1"),
        ("sleep", "it did not end in 1"),
        ("full", "memory"),
        ("exit", "its process ended"),
        ("none", "it returned nil in place of a number"),
        ("break", "job_submit.lua:11: attempt to index a nil value"),
        ("wrong", "nosuch"),
    ] {
        let text = refused(name);
        assert!(text.contains(part), "{name}: {text}");
    }
    // What loops delays nobody else.
    let mut looping = c
        .command("sbatch -J loop --wrap true 2>/dev/null")
        .spawn()
        .unwrap();
    let begun = Instant::now();
    c.ok("sbatch -J other -o /dev/null --wrap true");
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    looping.wait().unwrap();
    // Bytes of users are theirs alone.
    let odd = "printf '#!/bin/sh\\n\\377\\000' >/dev/null; sbatch -J \"$(printf 'a\\nreturn 1\\033[2J\\377')\" -o /dev/null --comment=\"$(printf 'x\\nPARAM y')\" --wrap true";
    c.ok(odd);
}

#[test]
fn a_file_with_errors_changes_nothing_and_one_that_is_right_counts_at_once() {
    let c = cluster("job_desc.comment = 'first'", "", "Processes=2\n");
    let comment = |c: &Cluster| {
        let job = c.sbatch("-H --wrap true");
        c.ok(&format!("squeue -h -j {job} -o %k"))
    };
    assert_eq!(comment(&c), "first");
    // A broken file: what was good goes on, also in processes that are started later.
    put(&c, "job_submit.lua", "function slurm_job_submit(");
    assert_eq!(comment(&c), "first");
    for pid in processes(&c) {
        c.kill(pid);
        c.until("it is gone", || !alive(pid));
    }
    let ran = c.run("sbatch -H --wrap true; sbatch -H --wrap true");
    assert!(ran.out.contains("Submitted"), "{} {}", ran.out, ran.err);
    assert_eq!(comment(&c), "first");
    let reconfigured = c.run("scontrol reconfigure");
    assert_eq!(reconfigured.code, 1);
    assert!(
        reconfigured.err.contains("job_submit.lua:1:"),
        "{}",
        reconfigured.err
    );
    assert_eq!(comment(&c), "first");
    put(
        &c,
        "job_submit.lua",
        &script("job_desc.comment = 'second'", ""),
    );
    assert_eq!(comment(&c), "second");
    // Without the plugin nothing is run.
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, text.replace("JobSubmitPlugins=lua", "")).unwrap();
    c.ok("scontrol reconfigure");
    assert_eq!(comment(&c), "(null)");
    c.until("its processes are gone", || processes(&c).is_empty());
    // A controller does not start with such a file.
    std::fs::write(
        &conf,
        format!(
            "{}\nJobSubmitPlugins=lua\n",
            std::fs::read_to_string(&conf).unwrap()
        ),
    )
    .unwrap();
    put(&c, "job_submit.lua", "error('not yet')");
    let controller = c.controller();
    c.kill(controller);
    let ran = c.start_controller();
    assert_ne!(ran.code, 0, "{} {}", ran.out, ran.err);
    put(&c, "job_submit.lua", &script("", ""));
    assert_eq!(c.start_controller().code, 0);
}

#[test]
fn a_site_may_let_pass_what_is_not_verified() {
    let c = cluster("error('always')", "", "OnFailure=accept\nTimeLimit=1\n");
    c.sbatch("-H --wrap true");
}

#[test]
fn crontabs_are_verified_entry_by_entry() {
    let c = cluster(
        "if job_desc.name == 'bad' then slurm.log_user('no bad ones') return slurm.ERROR end\n\
         job_desc.comment = 'seen'",
        "",
        "",
    );
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, format!("{text}\nScronParameters=enable\n")).unwrap();
    c.ok("scontrol reconfigure");
    c.ok("printf '#SCRON -J one\\n@yearly true\\n@daily true\\n' | scrontab");
    assert_eq!(c.ok("squeue -h -o %k"), "seen\nseen");
    let bad = c.run("printf '@daily true\\n#SCRON -J bad\\n@yearly true\\n' | scrontab");
    assert_ne!(bad.code, 0);
    assert!(bad.err.contains("no bad ones"), "{}", bad.err);
    assert_eq!(
        c.ok("squeue -h -o %k"),
        "seen\nseen",
        "what was there stays"
    );
}
