//! The options of Slurm's manual pages are all known, works or refused by name; none is read and then forgotten.

use crate::catalogue;

/// Commands and the long and short options of their pages, 22.05.
const MANUALS: &[(&str, &str)] = &[
    (
        "squeue",
        "account A all a array r array-unique clusters M federation format o Format O help hide iterate i jobs j json \
         licenses L local long l me name n noconvert nodelist w noheader h partition p priority P qos q reservation R \
         sibling sort S start states t steps s usage user u verbose v version V yaml",
    ),
    (
        "sinfo",
        "all a clusters M dead d exact e federation format o Format O future F help hide iterate i json list-reasons R \
         local long l noconvert Node N nodes n noheader h partition p reservation T responding r sort S states t \
         summarize s usage verbose v version V yaml",
    ),
    (
        "sacct",
        "accounts A allclusters L allocations X allusers a associations x batch-script B brief b clusters M completion \
         c constraints C delimiter duplicates D endtime E env-vars federation file f flags F format o gid g group help \
         h helpformat e jobs j json local long l name nnodes i ncpus I noconvert nodelist N noheader n parsable p \
         parsable2 P partition r qos q reason R starttime S state s timelimit-max K timelimit-min k truncate T uid \
         user u units usage use-local-uid verbose v version V wckeys W whole-hetjob yaml",
    ),
    (
        "scancel",
        "account A batch b clusters M ctld full f help hurry H interactive i jobname name n me nodelist w partition p \
         qos q quiet Q reservation R sibling signal s state t usage user u verbose v version V wckey",
    ),
    (
        "scontrol",
        "all a clusters M details d federation future F help h hide local oneliner o quiet Q sibling uid u verbose v \
         version V",
    ),
    (
        "sdiag",
        "all a cluster M help h reset r sort-by-id i sort-by-time t sort-by-time2 T usage version V",
    ),
    (
        "sprio",
        "clusters M federation format o help jobs j local long l noheader h norm n partition p sibling sort S usage \
         user u verbose v version V weights w",
    ),
    (
        "sreport",
        "all_clusters a cluster M federation help h local noheader n parsable p parsable2 P quiet Q t tres T verbose v \
         version V",
    ),
    (
        "sshare",
        "accounts A all a clusters M format o help long l noheader n parsable p parsable2 P partition m usage users u \
         Users U verbose v version V",
    ),
    (
        "sbcast",
        "compress C exclude fanout F force f help jobid j preserve p send-libs size s timeout t usage verbose v \
         version V",
    ),
    (
        "sattach",
        "error-filter help h input-filter label l layout output-filter pty quiet Q usage u verbose v version V",
    ),
    ("scrontab", "e l r u v"),
    (
        "sgather",
        "compress C fanout F force f help h jobid j keep k preserve p recursive r timeout t usage u verbose v version V",
    ),
    (
        "strigger",
        "backup_slurmctld_assumed_control C backup_slurmctld_failure B backup_slurmctld_resumed_operation c burst_buffer \
         clear clusters M down d drained D draining fail F fini f flags front_end get help id i idle I jobid j node n \
         noheader N offset o primary_database_failure h primary_database_resumed_operation H primary_slurmdbd_failure g \
         primary_slurmdbd_resumed_operation G primary_slurmctld_acct_buffer_full e primary_slurmctld_failure a \
         primary_slurmctld_resumed_control b primary_slurmctld_resumed_operation A program p quiet Q reconfig r resume R \
         set time t up u usage user verbose v version V",
    ),
    ("seff", "help h usage version v"),
    (
        "qstat",
        "ext explain f F g help j l ne ncb pe q qs r s t u U urg pri xml",
    ),
    ("qdel", "f help u t"),
    ("qhold", "h help t u"),
    ("qrls", "h help t u"),
    ("qhost", "F h help j l ncb q u xml"),
    ("qselect", "help l pe q qs s U"),
    ("qquota", "h help l P pe q u xml"),
    (
        "qacct",
        "ar A b d D e E f g h help j l m o u pe P q slots t",
    ),
    ("qmod", "c cj cq d e f help r rj rq s sj sq us usj usq"),
    (
        "qrsh",
        "A b binding clear cwd display hard help inherit l N noshell nostdin now p pe pty P q R soft S v V w wd verbose",
    ),
    (
        "sstat",
        "allsteps a format o fields help h helpformat e jobs j noconvert noheader n parsable p parsable2 P pidformat i \
         usage verbose v version V",
    ),
];

#[test]
fn every_option_of_the_manuals_is_known() {
    let commands = catalogue::commands();
    for (name, words) in MANUALS {
        let command = commands.iter().find(|c| c.name == *name).unwrap();
        for word in words.split_whitespace() {
            let known = command.options.iter().any(|row| {
                row.long == word
                    || row.also.contains(&word)
                    || row
                        .short
                        .is_some_and(|c| word.len() == 1 && word.starts_with(c))
            });
            assert!(known, "{name}: {word}");
        }
    }
}

/// scontrol's commands and the fields that its page says can be updated.
#[test]
fn every_command_and_field_of_scontrol_is_known() {
    let commands = catalogue::commands();
    let scontrol = commands.iter().find(|c| c.name == "scontrol").unwrap();
    let lists = [
        "abort all cancel_reboot cluster completing create delete details errnumstr exit fsdampeningfactor help hide \
         hold holdu listpids local notify oneliner pidinfo ping quiet quit reboot reconfigure release requeue \
         requeuehold resume schedloglevel setdebug setdebugflags show shutdown suspend takeover token top uhold update \
         verbose version wait_job write",
        "aliases assoc_mgr bbstat burstbuffers config daemons dwstat federations frontends hostlist hostlistsorted \
         hostnames jobs licenses nodes partitions reservations slurmd steps topology",
        "account admincomment arraytaskthrottle burstbuffer clusters clusterfeatures comment contiguous corespec \
         cpuspertask deadline delayboot dependency eligibletime excnodelist features gres jobid licenses mailtype \
         mailuser mincpusnode minmemorycpu minmemorynode mintmpdisknode timemin jobname nice nodelist numcpus numnodes \
         numtasks oversubscribe partition prefer priority qos reboot reqcores reqnodelist reqnodes reqprocs reqsockets \
         reqthreads requeue reservationname sitefactor stdout shared starttime switches taskspernode threadspec \
         timelimit userid wckey workdir",
        "nodename activefeatures availablefeatures comment cpubind extra gres nodeaddr nodehostname reason state weight",
        "accounts burstbuffer corecnt duration endtime features flags groups licenses maxstartdelay nodecnt nodes \
         partitionname reservationname skip starttime tres users",
        "any_nodes daily flex first_cores ignore_jobs hourly license_only maintenance magnetic no_hold_jobs_after_end \
         overlap part_nodes purge_comp replace replace_down static_alloc time_float weekday weekend weekly",
        "allocnodes allowaccounts allowgroups allowqos alternate cpubind default defaulttime defmempercpu \
         defmempernode denyaccounts denyqos disablerootjobs exclusiveuser gracetime hidden jobdefaults maxcpuspernode \
         lln maxmempercpu maxmempernode maxnodes maxtime minnodes nodes oversubscribe overtimelimit partitionname \
         preemptmode priority priorityjobfactor prioritytier qos reqresv rootonly shared state tresbillingweights",
    ];
    for (list, words) in scontrol.lists.iter().zip(lists) {
        let known: Vec<String> = list
            .rows
            .iter()
            .map(|(name, ..)| name.split(' ').next().unwrap().to_ascii_lowercase())
            .collect();
        for word in words.split_whitespace() {
            assert!(known.iter().any(|k| k == word), "{}: {word}", list.title);
        }
    }
}

/// Slurm's own tests and completion scripts read usage as groups of options in brackets.
#[test]
fn usage_has_no_brackets_in_brackets() {
    for spec in [
        &crate::squeue::SPEC,
        &crate::sinfo::SPEC,
        &crate::scancel::SPEC,
        &crate::sdiag::SPEC,
    ] {
        let usage = spec.usage();
        let mut options = usage.split(" [-").skip(1);
        let one = |group: &str| {
            let inside = group.trim_end().trim_end_matches(']');
            let inside = inside.split("] [").next().unwrap_or(inside);
            !inside.contains('[')
        };
        assert!(options.all(one), "{usage}");
    }
    assert_eq!(
        crate::sattach::SPEC.usage(),
        "Usage: sattach [options] <jobid.stepid>\n"
    );
    assert!(
        crate::sgather::SPEC
            .help()
            .starts_with("Usage: sgather [-Cf")
    );
    assert!(crate::sstat::SPEC.help().contains("  -j, --jobs: "));
}
