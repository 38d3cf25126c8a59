//! What options of a submission make of a job.

use super::*;
use crate::options::getopt::{self, OperandOrder};
use crate::options::values::time::Utc;
use crate::options::{find, table};
use muster_model::spec::{MemoryAsk, ResourceAsk, Segments, Sharing, TASKS_PER_CORE_ANY};

fn chosen(command: OptionCommand, line: &str) -> ChosenOptions {
    let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let rows = table().iter().filter(|r| r.commands.has(command));
    let parsed = getopt::parse(rows, &args, OperandOrder::StopAtWord).unwrap();
    assert!(parsed.words.is_empty(), "{line}");
    let mut chosen = ChosenOptions::new(command);
    for (row, value) in parsed.options {
        chosen.give(row, value, Source::CommandLine);
    }
    chosen
}

fn try_build(line: &str) -> Result<BuiltJob, BuildError> {
    let ambient = SubmitEnvironment {
        now: || Timestamp::from_unix_s(1_795_292_130),
        zone: &Utc,
    };
    build(&chosen(OptionCommand::Sbatch, line), &ambient)
}

fn ask(line: &str) -> ResourceAsk {
    try_build(line).unwrap().spec.ask
}

#[test]
fn nodes_and_tasks() {
    let a = ask("-N2");
    assert_eq!(
        (a.min_nodes, a.max_nodes, a.ntasks, a.nodes_set),
        (2, Some(2), None, true)
    );
    let a = ask("-N2-4 -n8 -c2");
    assert_eq!(
        (a.min_nodes, a.max_nodes, a.ntasks, a.cpus_per_task),
        (2, Some(4), Some(8), Some(2))
    );
    let a = ask("-n5 --tasks-per-node=2");
    assert_eq!(
        (a.min_nodes, a.max_nodes, a.ntasks_per_node),
        (3, None, Some(2))
    );
    let a = ask("-w n[1-3]");
    assert_eq!((a.min_nodes, a.nodelist.as_deref()), (3, Some("n[1-3]")));
    let built = try_build("-N3 -n2").unwrap();
    assert_eq!(
        (built.spec.ask.min_nodes, built.spec.ask.max_nodes),
        (2, Some(2))
    );
    assert_eq!(
        built.warnings,
        ["can't run 2 processes on 3 nodes, setting nnodes to 2"]
    );
    let threads = |line: &str| ask(line).threads_per_core;
    assert_eq!(threads("--threads-per-core=2 -B *:2:1"), Some(1));
    assert_eq!(threads("-B *:2:1 --threads-per-core=2"), Some(2));
    let a = ask("-B 2:4:*");
    assert_eq!(
        (a.sockets_per_node, a.cores_per_socket, a.threads_per_core),
        (Some(2), Some(4), None)
    );
    assert_eq!(a.ntasks, Some(8));
    assert_eq!(ask("-N2 --sockets-per-node=2").ntasks, Some(4));
    let kin = ask("--sockets-per-node=2 --cores-per-socket=4");
    assert_eq!((kin.ntasks, kin.sockets_per_node), (None, Some(2)));
    assert_eq!(ask("--hint=nomultithread").threads_per_core, Some(1));
    let all = ask("--hint=multithread");
    assert_eq!(
        (all.threads_per_core, all.ntasks_per_core),
        (None, Some(TASKS_PER_CORE_ANY))
    );
    assert_eq!(ask("--tres-per-task=cpu=4").cpus_per_task, Some(4));
}

#[test]
fn segments_of_blocks() {
    let a = ask("-N8 --segment=4 --spread-segments");
    assert_eq!((a.segment, a.segments), (Some(4), Segments::Apart));
    assert_eq!(
        ask("--segment=2 --consolidate-segments").segments,
        Segments::Together
    );
    for bad in [
        "--segment=0",
        "--spread-segments",
        "--segment=2 --spread-segments --consolidate-segments",
    ] {
        assert!(try_build(bad).is_err(), "{bad}");
    }
}

#[test]
fn memory_and_sharing() {
    assert_eq!(ask("--mem=1g").memory, MemoryAsk::PerNode(1024));
    assert_eq!(ask("--mem-per-cpu=100M").memory, MemoryAsk::PerCpu(100));
    assert_eq!(ask("--exclusive").sharing, Sharing::Exclusive);
    assert_eq!(ask("--exclusive=user").sharing, Sharing::ExclusiveUser);
    assert_eq!(ask("-s").sharing, Sharing::Oversubscribe);
    let mut c = chosen(OptionCommand::Sbatch, "--mem-per-cpu=5");
    let row = find(OptionCommand::Sbatch, "mem").unwrap();
    c.give(row, Some("7".into()), Source::Environment);
    assert_eq!(memory(&c).unwrap(), MemoryAsk::PerCpu(5));
}

#[test]
fn gpus_are_counted_by_what_they_are_asked_by() {
    let listed = |list: &[muster_model::spec::GresAsk]| -> Vec<(String, u64)> {
        let text = |g: &muster_model::spec::GresAsk| match &g.kind {
            Some(kind) => format!("{}:{kind}", g.name),
            None => g.name.clone(),
        };
        list.iter().map(|g| (text(g), g.count)).collect()
    };
    let gpu = |n| vec![("gpu".to_owned(), n)];
    assert_eq!(listed(&ask("--gres=gpu:2").gres), gpu(2));
    assert_eq!(
        listed(&ask("--gpus-per-node=a100:2").gres),
        [("gpu:a100".to_owned(), 2)]
    );
    let a = ask("-G3 -N2");
    assert_eq!((listed(&a.devices().per_job), a.gres.len()), (gpu(3), 0));
    let a = ask("-G3 -N1-8");
    assert_eq!((a.min_nodes, a.max_nodes), (1, Some(3)));
    let a = ask("-G8 --gpus-per-node=2");
    assert_eq!((a.min_nodes, a.max_nodes), (4, Some(4)));
    let a = ask("--gpus-per-task=1 -n4 -N2");
    assert_eq!(
        (listed(&a.devices().per_task), a.max_nodes),
        (gpu(1), Some(2))
    );
    assert_eq!(ask("-G6 --gpus-per-task=2").ntasks, Some(3));
    let a = ask("--gpus-per-task=2 --gpus-per-node=4 -n4");
    assert_eq!(a.ntasks_per_node, Some(2));
    let a = ask("--gpus-per-socket=2 --sockets-per-node=2");
    assert_eq!(listed(&a.devices().per_socket), gpu(2));
    let a = ask("--gpus-per-node=2 --cpus-per-gpu=3 --mem-per-gpu=10G");
    assert_eq!(
        (a.devices().cpus_per_gpu, a.devices().mib_per_gpu, a.memory),
        (Some(3), Some(10 * 1024), MemoryAsk::Default)
    );
    assert_eq!(a.min_cpus(), 6);
    assert_eq!(ask("-G2 --ntasks-per-gpu=3").ntasks, Some(6));
    assert_eq!(ask("-G2 --ntasks-per-tres=3").ntasks, Some(6));
    let a = ask("-n6 --ntasks-per-gpu=3");
    assert_eq!(listed(&a.devices().per_job), gpu(2));
    let a = ask("-N2 --gpus-per-node=2 --ntasks-per-gpu=3");
    assert_eq!((a.ntasks, a.ntasks_per_node), (Some(12), Some(6)));
}

/// What Slurm 22.05.8 says to the same options.
#[test]
fn counts_of_gpus_that_contradict_each_other() {
    for (line, why) in [
        ("-G3 -N4", "Failed to validate job spec, --gpus < -N"),
        (
            "--gpus-per-task=1",
            "Failed to validate job spec. --gpus-per-task used without either --gpus or -n/--ntasks is not allowed.",
        ),
        (
            "-G3 --gpus-per-task=2",
            "Failed to validate job spec, --gpus not multiple of --gpus-per-task",
        ),
        (
            "-G4 -n3 --gpus-per-task=1",
            "Failed to validate job spec. Based on --gpus and --gpus-per-task number of requested tasks differ from \
             -n/--ntasks.",
        ),
        (
            "-G3 --gpus-per-node=2",
            "Failed to validate job spec, --gpus is not multiple of --gres=gpu/--gpus-per-node",
        ),
        (
            "-G4 --gpus-per-node=2 -N3",
            "Failed to validate job spec. Based on --gpu and --gres=gpu/--gpus-per-node required nodes (2) doesn't \
             fall between min_nodes (3) and max_nodes (3) boundaries.",
        ),
        (
            "--gpus-per-socket=1",
            "--gpus-per-socket option requires --sockets-per-node specification",
        ),
        (
            "--gres=gpu:2 -G1",
            "Failed to ensure --gpus >= --gres=gpu/--gpus-per-node >= --gpus-per-socket",
        ),
        (
            "-G1 --gpus-per-socket=2 --sockets-per-node=1",
            "Failed to ensure --gpus >= --gres=gpu/--gpus-per-node >= --gpus-per-socket",
        ),
        (
            "--gpus-per-node=1 --gpus-per-task=2",
            "Failed to ensure --gpus >= --gpus-per-task",
        ),
        (
            "--gres=gpu:2 --gpus-per-socket=1 --sockets-per-node=1",
            "Failed to validate job spec. Based on --gres=gpu/--gpus-per-node and --gpus-per-socket required number of \
             sockets differ from --sockets-per-node.",
        ),
        (
            "--gpus-per-node=2 --gpus-per-task=1 --ntasks-per-node=1",
            "Failed to validate job spec. Based on --gres=gpu/--gpus-per-node and --gpus-per-task requested number of \
             tasks per node differ from --ntasks-per-node.",
        ),
        (
            "--gpus-per-node=3 --gpus-per-task=2 --ntasks-per-node=1",
            "Failed to validate job spec, --gres=gpu/--gpus-per-node not multiple of --gpus-per-task.",
        ),
        (
            "--gpus-per-task=1 --cpus-per-gpu=1 -c2",
            "--cpus-per-gpu is mutually exclusive with --cpus-per-task",
        ),
        (
            "-G1 --cpus-per-gpu=2 -c2",
            "--cpus-per-gpu is mutually exclusive with --cpus-per-task",
        ),
        (
            "--mem-per-gpu=1G",
            "Requested mem_per_tres=gres:gpu:1024 but did not request any GPU.",
        ),
        (
            "-n3 --ntasks-per-gpu=2",
            "Failed to validate job spec, -n/--ntasks has to be a multiple of --ntasks-per-gpu.",
        ),
        (
            "-G2 --ntasks-per-gpu=2 --gpus-per-task=1",
            "--gpus-per-task is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU",
        ),
        (
            "-G2 --ntasks-per-gpu=2 --ntasks-per-tres=2",
            "--ntasks-per-gpu is mutually exclusive with --ntasks-per-tres and SLURM_NTASKS_PER_TRES",
        ),
        (
            "--cpus-per-gpu=2",
            "--cpus-per-gpu needs GPUs; give --gpus, --gpus-per-node or --gres=gpu",
        ),
    ] {
        match try_build(line).unwrap_err() {
            BuildError::Option(error) => assert_eq!(error.lines[0], why, "{line}"),
            BuildError::Refused(refusal) => panic!("{line}: {refusal}"),
        }
    }
    assert!(try_build("--ntasks-per-gpu=1").is_err());
    // A number of nodes is one of tasks to srun; a step has the tasks of its job.
    let of_srun = |line: &str| {
        let ambient = SubmitEnvironment {
            now: || Timestamp::from_unix_s(1_795_292_130),
            zone: &Utc,
        };
        build(&chosen(OptionCommand::Srun, line), &ambient).is_ok()
    };
    assert!(!of_srun("--gpus-per-task=1"));
    assert!(of_srun("--signal=USR1@60") && !of_srun("--signal=B:USR1@60"));
    for line in ["-N1", "-n1", "--jobid=7"] {
        assert!(of_srun(&format!("--gpus-per-task=1 {line}")), "{line}");
    }
    assert!(try_build("--gres-flags=near").is_err());
}

#[test]
fn times_and_the_rest() {
    let spec = try_build(
        "-t 0:300 --time-min=1 -b now+60 --signal=B:USR2@30 -a 0-3%2 -d afterok:7 --no-requeue --nice \
         --open-mode=append -p a,b -H -k --mail-type=none --kill-on-invalid-dep=yes --extra=x",
    )
    .unwrap()
    .spec;
    assert_eq!(spec.time_limit, Some(TimeLimit::Minutes(5)));
    assert_eq!(spec.begin, Some(Timestamp::from_unix_s(1_795_292_190)));
    assert_eq!(spec.array.unwrap().throttle, Some(2));
    assert_eq!(spec.dependency.terms.len(), 1);
    assert_eq!(
        (spec.requeue, spec.nice, spec.stdio.append),
        (Some(false), 100, Some(true))
    );
    assert_eq!(spec.partitions, ["a", "b"]);
    assert!(spec.hold && spec.no_kill && spec.warn_signal.unwrap().batch_only);
    assert_eq!(spec.kill_on_invalid_dep, Some(true));
    assert_eq!(spec.shown, [("extra".to_owned(), "x".to_owned())]);
}

#[test]
fn a_job_may_ask_to_be_requeued_before_others() {
    let of = |line: &str| {
        let spec = try_build(line).unwrap().spec;
        (spec.requeue, spec.expedite)
    };
    assert_eq!(of("--requeue"), (Some(true), false));
    assert_eq!(of("--requeue=expedite"), (Some(true), true));
    assert_eq!(of("--requeue=Expedite --no-requeue"), (Some(false), false));
    assert!(try_build("--requeue=soon").is_err());
    for (value, wanted) in [
        ("", (Some(true), false)),
        ("1", (Some(true), false)),
        ("0", (None, false)),
        ("expedite", (Some(true), true)),
    ] {
        let mut chosen = ChosenOptions::new(OptionCommand::Sbatch);
        environment::read(&mut chosen, |name| {
            (name == "SBATCH_REQUEUE").then(|| value.to_owned())
        });
        let ambient = SubmitEnvironment {
            now: || Timestamp::from_unix_s(1_795_292_130),
            zone: &Utc,
        };
        let spec = build(&chosen, &ambient).unwrap().spec;
        assert_eq!((spec.requeue, spec.expedite), wanted, "{value}");
    }
}

#[test]
fn complaints_are_slurms() {
    for (line, text, exit) in [
        ("-t abc", "Invalid --time specification", 255),
        ("--mem=12Q", "Invalid --mem specification", 255),
        ("-n 0", "Invalid numeric value \"0\" for --ntasks.", 1),
        (
            "-c x",
            "Invalid numeric value \"x\" for --cpus-per-task.",
            1,
        ),
        ("--signal=foo", "Invalid --signal specification", 255),
        ("-m foo", "Invalid --distribution specification", 255),
        (
            "-m arbitrary -n2",
            "an arbitrary distribution takes its nodes from --nodelist or --nodefile; give one of them",
            1,
        ),
        ("--mail-type=foo", "Invalid --mail-type specification", 255),
        ("--open-mode=foo", "Invalid --open-mode specification", 255),
        ("--exclusive=foo", "Invalid --exclusive specification", 255),
        (
            "--hint=foo",
            "unrecognized --hint argument \"foo\", see --hint=help",
            1,
        ),
        (
            "-B foo",
            "Invalid numeric value \"foo\" for first arg of -B.",
            1,
        ),
        (
            "--switches=foo",
            "Invalid numeric value \"foo\" for --switches.",
            1,
        ),
        ("--tmp=foo", "Invalid --tmp specification", 255),
        ("--no-kill=foo", "Invalid --no-kill specification", 255),
        (
            "--gres=gpu::",
            "Invalid generic resource (gres) specification",
            1,
        ),
        (
            "--mem=1 --mem-per-cpu=1",
            "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.",
            1,
        ),
        ("--begin=foo", "Invalid --begin specification", 255),
    ] {
        match try_build(line).map(|b| b.spec) {
            Err(BuildError::Option(error)) => {
                assert_eq!(error.lines.last().map(String::as_str), Some(text), "{line}");
                assert_eq!(error.exit, exit, "{line}");
            }
            other => panic!("{line}: {other:?}"),
        }
    }
    assert_eq!(try_build("--array=").unwrap().spec.array, None);
    match try_build("--array=5-1").map(|b| b.spec) {
        Err(BuildError::Refused(r)) => assert_eq!(r.code, RefusalCode::InvalidArray),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_be_honoured_is_refused_or_said() {
    match try_build("--container=x").map(|b| b.spec) {
        Err(BuildError::Option(e)) => {
            assert!(e.lines[0].starts_with("--container is not supported: "))
        }
        other => panic!("{other:?}"),
    }
    let warnings = try_build("--cpu-freq=low --mem-bind=none --delay-boot=5")
        .unwrap()
        .warnings;
    assert_eq!(
        warnings,
        ["--cpu-freq has no effect: CPU frequencies are left as they are"]
    );
}
