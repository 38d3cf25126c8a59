//! The options of the manual pages of Slurm 22.05, and of newer ones, are all known.

use super::*;

const SBATCH: &str = "\
    account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment \
    consolidate-segments constraint container container-id contiguous core-spec cores-per-socket \
    cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution error exclude \
    exclusive export export-file external extra extra-node-info get-user-env gid gpu-bind gpu-freq \
    gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags help hint hold ignore-pbs \
    input job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind \
    mem-per-cpu mem-per-gpu mincpus network nice no-kill no-requeue nodefile nodelist nodes ntasks \
    ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket oom-kill-step open-mode \
    output overcommit oversubscribe parsable partition power prefer priority profile propagate qos \
    quiet reboot requeue reservation segment signal sockets-per-node spread-job spread-segments \
    stepmgr switches test-only thread-spec threads-per-core time time-min tmp tres-bind \
    tres-per-task uid usage use-min-nodes verbose version wait wait-all-nodes wckey wrap";

const SRUN: &str = "\
    accel-bind account acctg-freq argv async bb bbf bcast bcast-exclude begin chdir cluster-constraint \
    clusters comment compress consolidate-segments constraint container container-id contiguous \
    core-spec cores-per-socket cpu-bind cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot \
    dependency disable-status distribution epilog error exact exclude exclusive export external \
    extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task \
    gres gres-flags help het-group hint hold immediate input interactive job-name jobid \
    kill-on-bad-exit label licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu \
    mem-per-gpu mem-update mincpus mpi msg-timeout multi-prog network nice no-allocate no-kill \
    nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node \
    ntasks-per-socket oom-kill-step open-mode output overcommit overlap oversubscribe \
    parsable partition power prefer preserve-env priority profile prolog propagate pty qos quiet quit-on-interrupt \
    reboot relative reservation resv-ports segment send-libs signal slurmd-debug sockets-per-node \
    spread-job spread-segments stepmgr switches task-epilog task-prolog test-only thread-spec \
    threads threads-per-core time time-min tmp treewidth tres-bind tres-per-task uid unbuffered \
    usage use-min-nodes verbose version wait wait-for-children wckey whole x11";

const SALLOC: &str = "\
    account acctg-freq bb bbf begin bell chdir cluster-constraint clusters comment \
    consolidate-segments constraint container container-id contiguous core-spec cores-per-socket \
    cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution exclude \
    exclusive extra extra-node-info get-user-env gid gpu-bind gpu-freq gpus gpus-per-node \
    gpus-per-socket gpus-per-task gres gres-flags help hint hold immediate job-name kill-command \
    licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network \
    nice no-bell no-kill no-shell nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu \
    ntasks-per-node ntasks-per-socket oom-kill-step overcommit oversubscribe partition power \
    prefer priority profile qos quiet reboot reservation segment signal sockets-per-node \
    spread-job spread-segments stepmgr switches thread-spec threads-per-core time time-min tmp \
    tres-bind tres-per-task uid usage use-min-nodes verbose version wait-all-nodes wckey x11";

#[test]
fn every_option_of_the_manuals_has_a_row() {
    for (command, names) in [
        (OptionCommand::Sbatch, SBATCH),
        (OptionCommand::Srun, SRUN),
        (OptionCommand::Salloc, SALLOC),
    ] {
        for name in names.split_whitespace() {
            assert!(
                find(command, name).is_some(),
                "{}: --{name}",
                command.name()
            );
        }
    }
}

#[test]
fn variables_name_their_command() {
    for row in table() {
        for command in OptionCommand::ALL {
            if !row.commands.has(command) {
                continue;
            }
            let own = match command {
                OptionCommand::Sbatch => "SBATCH_",
                OptionCommand::Srun => "SRUN_",
                OptionCommand::Salloc => "SALLOC_",
            };
            for name in row.env_of(command) {
                assert!(
                    name.starts_with(own) || name.starts_with("SLURM_"),
                    "--{}: {name}",
                    row.long
                );
            }
        }
    }
}

/// Both names, of 22.05 and of 25.05.
#[test]
fn variables_of_files_of_srun() {
    for (variable, option) in [
        ("SRUN_INPUT", "input"),
        ("SRUN_OUTPUT", "output"),
        ("SRUN_ERROR", "error"),
        ("SLURM_STDINMODE", "input"),
        ("SLURM_STDOUTMODE", "output"),
        ("SLURM_STDERRMODE", "error"),
    ] {
        let mut chosen = ChosenOptions::new(OptionCommand::Srun);
        environment::read(&mut chosen, |name| {
            (name == variable).then(|| "file".to_owned())
        });
        assert_eq!(chosen.value(option), Some("file"), "{variable}");
    }
}
