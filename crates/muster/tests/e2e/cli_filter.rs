//! Filters of the command line, cli_filter.lua and defaults of users, and options of the site's own, in sbatch, srun and salloc.

use crate::cluster::Cluster;

const SCRIPT: &str = r#"
function slurm_cli_setup_defaults(options, early)
    if not early then options["comment"] = "of the site" end
    return slurm.SUCCESS
end
function slurm_cli_pre_submit(options, offset)
    if options["time"] == "unset" then options["time"] = 17 end
    if options["job-name"] == "bad" then
        slurm.log_error("%s of %s is not allowed", options["job-name"], options["type"])
        return slurm.ERROR
    end
    slurm.cli_store(offset, slurm.json_cli_options(options))
    return slurm.SUCCESS
end
function slurm_cli_post_submit(offset, job, step)
    local file = io.open(os.getenv("FILTER_OUT"), "a")
    file:write(job, " ", step, " ", slurm.cli_retrieve(offset), "\n")
    file:close()
    return slurm.SUCCESS
end
"#;

/// A cluster with these filters.
fn cluster(filters: &str) -> Cluster {
    let c = Cluster::start(1, 4);
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, format!("{text}\nCliFilterPlugins={filters}\n")).unwrap();
    c
}

#[test]
fn a_script_and_defaults_of_the_user_change_what_commands_ask_for() {
    let c = cluster("cli_filter/lua,user_defaults");
    std::fs::write(c.path("cli_filter.lua"), SCRIPT).unwrap();
    std::fs::create_dir_all(c.path("home/.slurm")).unwrap();
    let defaults = "# mine\nwckey=own\nsbatch:open-mode=append\nsrun:*:label=set\n";
    std::fs::write(c.path("home/.slurm/defaults"), defaults).unwrap();
    let seen = c.path("seen");
    let set = format!(
        "export HOME={} FILTER_OUT={};",
        c.path("home").display(),
        seen.display()
    );
    let job = c.ok(&format!(
        "{set} sbatch --parsable -H -J one --comment=mine --wrap true"
    ));
    let shown = c.ok(&format!("scontrol show job {job}"));
    for part in ["TimeLimit=00:17:00", "Comment=mine"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(c.ok(&format!("squeue -h -j {job} -o %w")).trim(), "own");
    let ran = c.run(&format!("{set} srun -n2 -t 5 echo x"));
    assert_eq!(ran.out.lines().collect::<Vec<_>>().len(), 2, "{}", ran.out);
    assert!(ran.out.contains("1: x"), "{} {}", ran.out, ran.err);
    let held = c.ok(&format!(
        "{set} salloc -Q sh -c 'scontrol show job $SLURM_JOB_ID'"
    ));
    assert!(held.contains("Comment=of the site"), "{held}");
    let seen = std::fs::read_to_string(seen).unwrap();
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines.len(), 3, "{seen}");
    assert!(
        lines[0].starts_with(&format!("{job} 4294967294 {{")),
        "{seen}"
    );
    assert!(lines[0].contains(r#""comment":"mine""#), "{seen}");
    assert!(lines[1].contains(" 0 {") && lines[1].contains(r#""time":"00:05:00""#));
    for command in ["sbatch --wrap true", "srun true", "salloc true"] {
        let name = command.split(' ').next().unwrap();
        let ran = c.run(&format!("{set} {} ", command.replacen(' ', " -J bad ", 1)));
        assert_eq!(ran.code, 1);
        assert_eq!(
            ran.err,
            format!(
                "{name}: error: lua: bad of {name} is not allowed\n\
                 {name}: error: cli_filter plugin terminated with error\n"
            )
        );
    }
}

#[test]
fn filters_that_cannot_run_are_named() {
    let c = cluster("lua");
    let path = c.path("cli_filter.lua").display().to_string();
    let ran = c.run("sbatch --wrap true");
    assert!(
        ran.code == 1 && ran.err.contains(&format!("{path}: No such file")),
        "{}",
        ran.err
    );
    std::fs::write(&path, "x = = 1\n").unwrap();
    let ran = c.run("srun true");
    assert!(ran.err.contains("cli_filter.lua:1: "), "{}", ran.err);
    let c = cluster("syslog");
    let ran = c.run("sbatch --wrap true");
    assert_eq!(
        ran.err,
        "sbatch: fatal: CliFilterPlugins=syslog is not supported: lua, user_defaults and none are\n"
    );
    assert_eq!(c.ok("squeue -h | wc -l"), "0");
}

#[test]
fn options_of_the_site_are_variables_of_jobs_and_programs() {
    let c = Cluster::start(1, 4);
    let options = "option gpu-mode\nvalues shared,exclusive\nhelp how GPUs are shared\n\
                   option scratch\nnumber 1-500\ndefault 10\nplugin disk\noption quick\n";
    std::fs::write(c.path("site_options.conf"), options).unwrap();
    let (prolog, seen) = (c.path("prolog"), c.path("seen"));
    let script = format!(
        "#!/bin/sh\nenv | grep ^SPANK_ | sort >> {}\n",
        seen.display()
    );
    std::fs::write(&prolog, script).unwrap();
    c.ok(&format!("chmod 755 {}", prolog.display()));
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, format!("{text}\nProlog={}\n", prolog.display())).unwrap();
    c.ok("scontrol reconfigure");
    let help = c.ok("srun --help");
    assert!(help.contains("Options of this site:"), "{help}");
    assert!(help.contains("--gpu-mode=shared|exclusive"), "{help}");
    c.write(
        "job.sh",
        "#!/bin/sh\n#SBATCH --gpu-mode=exclusive -o out\nenv | grep ^_SLURM_SPANK | sort\n",
    );
    let job = c.ok("sbatch --parsable --quick job.sh").trim().to_owned();
    let id: u64 = job.parse().unwrap();
    c.until("the job has run", || c.state(id) == "COMPLETED");
    let variables = [
        "_SLURM_SPANK_OPTION_disk_scratch=10",
        "_SLURM_SPANK_OPTION_site_gpu_mode=exclusive",
        "_SLURM_SPANK_OPTION_site_quick=",
    ];
    assert_eq!(c.read("out").lines().collect::<Vec<_>>(), variables);
    let of_prolog = std::fs::read_to_string(&seen).unwrap();
    assert_eq!(
        of_prolog.lines().collect::<Vec<_>>(),
        variables.map(|line| format!("SPANK_{line}"))
    );
    let text = "site_gpu_mode=exclusive,site_quick,disk_scratch=10";
    let shown = c.ok(&format!("scontrol show job {job}"));
    let options = shown.split("SiteOptions=").nth(1).unwrap_or_default();
    let mut words: Vec<&str> = options
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .split(',')
        .collect();
    words.sort_unstable();
    let mut wanted: Vec<&str> = text.split(',').collect();
    wanted.sort_unstable();
    assert_eq!(words, wanted, "{shown}");
    let accounted = c.ok(&format!("sacct -X -n -P -j {job} -o AdminComment"));
    assert!(accounted.contains("site_gpu_mode=exclusive"), "{accounted}");
    let ran = c.run("srun --scratch=7 sh -c 'echo $_SLURM_SPANK_OPTION_disk_scratch'");
    assert_eq!(ran.out, "7\n", "{}", ran.err);
    for (options, error) in [
        (
            "--gpu-mode=none",
            "--gpu-mode=none: one of shared, exclusive is expected",
        ),
        (
            "--scratch=501",
            "--scratch=501: a number from 1 to 500 is expected",
        ),
    ] {
        let ran = c.run(&format!("sbatch {options} --wrap true"));
        assert!(ran.code == 1 && ran.err.contains(error), "{}", ran.err);
    }
    let inside = c.run("salloc -Q srun --quick true");
    assert!(
        inside.err.contains("--quick is an option of jobs"),
        "{}",
        inside.err
    );
    std::fs::write(c.path("site_options.conf"), "option time\n").unwrap();
    let refused = c.run("scontrol reconfigure");
    assert!(
        refused.err.contains("Slurm has an option --time"),
        "{}",
        refused.err
    );
}
