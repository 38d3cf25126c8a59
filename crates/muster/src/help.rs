//! Text of `muster help`, and the help of `muster`'s own commands that take few options. Others have theirs beside
//! their options.

/// Text of `muster help`.
pub(crate) const GENERAL: &str = "\
muster: a workload manager that speaks Slurm's language

A cluster on this machine, without any configuration:
  muster up [--nodes N] [--cpus C] [-f slurm.conf]   start it (4 nodes; as many CPUs each as this machine has)
  eval \"$(muster env)\"                               point sbatch, squeue, ... at it
  muster down [--purge]                              stop it (and remove its state)
  MUSTER_HOME=DIR muster up                          another one, beside the first
  muster up --hosts                                  each node is a host: network, name, /tmp of its own (root)
  muster host NODE [COMMAND...]                      run a command on such a host: a node, ctl, login
  muster up -f slurm.conf --emulate [--run-time T]   all its nodes from one process; jobs only take their time

A site's own cluster:
  muster init [OPTIONS]                              write a new cluster's slurm.conf, and say what each host needs
  muster config check FILE                           say what Muster does with each line of a slurm.conf
  muster config fetch SERVER DIR                     get the configuration from a controller that gives it
  muster node token|join|list|forget                 keys of nodes: hosts that need neither munge nor a cluster's key
  muster import sge DIR NEW                          a Grid Engine site's qconf output as a configuration
  muster why JOBID [--json]                          what a job waits for, and what would start it sooner
  muster logs JOBID [--follow]                       what a batch job has written, and what it writes
  muster watch JOBID                                 a job's way until it has ended, with a progress bar
  muster web                                         the cluster in a browser, signed in: queue, plan, nodes, reports
  muster top                                         queue, own jobs, nodes, events on the terminal, as they change
  muster report [--by LIST] [--every month]          how jobs ran and what they used, by user, application, node and so on
  muster storage [scan NAME DIRECTORY]               what users have on file systems
  muster class list|show NAME|check                  job classes: templates of jobs with rules of what users may change
  muster sim TRACE.swf[.gz] [--policy WORD]          replay a recorded workload through the scheduler; 'sim --help'
  muster doctor [--json]                             what this machine can do as a node, and what would help
  muster bench mpi [OPTIONS]                         MPI started by srun and by mpirun: times and rates; '--help'
  muster ctld, muster noded                          the daemons; as links: slurmctld, slurmd
  muster sackd                                       tokens for users of a login host (AuthType=auth/slurm)
  muster dbd                                         copies accounting to MariaDB or PostgreSQL; as a link: slurmdbd
  muster restd                                       HTTP and JSON in front of the controller; as a link: slurmrestd
  muster import archive FILE                         take back what slurmdbd has purged into a file
  muster export archive FILE... [--to DIR]           archives of accounting as Parquet, for other tools
  muster import slurmdbd --conf FILE                 bring a Slurm's accounting here; 'import --help'
  muster emulate nodes [NODELIST]                    speak for nodes without running anything; 'emulate --help'
  muster install DIR                                 the daemons and commands by their names, into DIR
  muster generate man|completion|compat|security DIR write man pages, completion for bash, pages of docs

Commands, each also as a link of that name; 'muster COMMAND --help' says more:
  sbatch srun salloc scancel scontrol squeue sinfo sacct sdiag sprio sreport sshare sstat
  sacctmgr seff sattach sbcast sgather scrontab strigger
and those of Grid Engine:
  qsub qstat qdel qalter qhold qrls qmod qhost qselect qacct qconf qping qquota qsummary qresub
  qrsub qrdel qrstat qrsh qlogin qsh
and those of Torque; where MUSTER_COMMAND_SET=torque or sge.conf says so, without torque- (docs/torque.md):
  torque-qsub torque-qstat torque-qdel torque-qhold torque-qrls torque-qalter qrerun pbsnodes
  mpiexec.slurm generate_pbs_nodefile

  muster help [COMMAND], muster version
";

/// Text of `--help` after each of these commands.
const COMMANDS: [(&str, &str); 12] = [
    ("up", UP),
    ("down", DOWN),
    ("env", ENV),
    ("host", HOST),
    ("config", CONFIG),
    ("export", EXPORT),
    ("import", IMPORT),
    ("install", INSTALL),
    ("generate", GENERATE),
    ("node", NODE),
    ("init", INIT),
    ("web", WEB),
];

const IMPORT: &str = "\
Usage: muster import sge DIR NEW [--controller HOST]
       muster import slurmdbd (--conf FILE | --from URL) [OPTIONS]
       muster import archive FILE...
Brings a site's configuration or accounting here.

  sge DIR NEW       what qconf printed of a Grid Engine cell becomes a configuration in a new directory
  slurmdbd          the accounting of a Slurm becomes this cluster's
  -h, --help        print this help; 'muster import sge --help' and 'muster import slurmdbd --help' say more
";

const EXPORT: &str = "\
Usage: muster export archive FILE... [--to DIR]
Writes what slurmdbd has purged into files (ArchiveDir of slurmdbd.conf) as Parquet, which other tools read.

      --to DIR      the directory of the new files (default: the current one)
  -h, --help        print this help

Of a FILE there are FILE.job.parquet, FILE.step.parquet and so on, for each kind of its rows, with the columns that
the copy in MariaDB or PostgreSQL has (docs/accounting.md); times are timestamps. The new files are the caller's
alone, and none is replaced. Scripts and environments of jobs are left out. FILE stays as it is.
";

const UP: &str = "\
Usage: muster up [OPTIONS]
Starts a private cluster on this machine, or what of it does not run, and waits until all its nodes are up.

  -n, --nodes N     N nodes, named n1, n2, ... (default: those of the slurm.conf that is there, or 4)
  -c, --cpus C      C CPUs each (default: likewise, or as many as this machine has)
  -f, --file FILE   the cluster of this slurm.conf instead. Host, ports, accounts and paths become this cluster's own,
                    but SlurmUser and SlurmdUser are kept where root starts it and this host has the account.
                    gres.conf, topology.conf, mpi.conf, webhooks.conf and others beside FILE come along
  --hosts           each node is a small host with network, name, processes, /tmp, /dev/shm, /run and /etc
                    of its own; the controller is one (ctl), and one is for users (login). Needs root, munge, iproute2
  --web             users have tokens, so that 'muster web' can show the cluster in a browser
  --emulate         one process speaks for all nodes; jobs only take their time
  --run-time T      with --emulate, which it implies: how long jobs run; 'muster emulate --help' has the forms
  --numa N[:L,S,R]  with --emulate: NUMA domains of each node
  -h, --help        print this help

A slurm.conf that is there, and may have been edited, is kept; only -f puts another in its place, while nothing runs.
The cluster lives in $MUSTER_HOME: slurm.conf, logs, state, commands. By default that is /var/lib/muster for root and
~/.local/state/muster for others. 'muster env' says how to use it, 'muster down' stops it.
";

const WEB: &str = "\
Usage: muster web [--listen HOST:PORT]
Shows the cluster in a browser: serves the pages of slurmrestd and prints an address where you are signed in.

  --listen HOST:PORT  where to listen (default: localhost:6820, or a free port of localhost)
  -h, --help          print this help

The cluster is that of $SLURM_CONF, else the private one of 'muster up --web', else the site's. It needs tokens
(docs/rest.md). The address has one behind the #, which browsers send to nobody: it is yours for 8 hours, or as long as
the site allows. On another host than that of your browser, 'ssh -L 6820:localhost:6820 HOST' brings the pages to it.
";

const DOWN: &str = "\
Usage: muster down [--purge]
Stops the private cluster in $MUSTER_HOME: its daemons and all processes of its jobs. 'muster up' starts it again.

  --purge      remove its state, its logs and its slurm.conf, too
  -h, --help   print this help

Daemons that a site has started itself are not stopped by this but by 'scontrol shutdown', which leaves jobs alone.
";

const ENV: &str = "\
Usage: muster env
Prints what leads a shell to the private cluster in $MUSTER_HOME: variables, and the directory of its commands.

  eval \"$(muster env)\"

  -h, --help   print this help
";

const HOST: &str = "\
Usage: muster host NODE [COMMAND...]
Runs a command (default: a shell) on a host of the private cluster in $MUSTER_HOME that 'muster up --hosts' has made:
a node, the controller's host ctl, or the login host login. It sees the files of this machine but for /tmp, /dev/shm,
/run and /etc; the cluster's own directory is there in any case.

  muster host login srun -N3 hostname

  -h, --help   print this help
";

const CONFIG: &str = "\
Usage: muster config check FILE
       muster config fetch HOST[:PORT][,...] DIRECTORY [USER]
Says what Muster does with each line of a slurm.conf and of the gres.conf, topology.conf, topology.yaml, cgroup.conf,
mpi.conf, sge.conf and job_classes.conf beside it. Nothing needs to run, and nothing is changed.

  -h, --help   print this help

The exit status is 1 if there are errors: the controller would not start with this file, nor read it again.

'fetch' gets the configuration from a controller whose slurm.conf has SlurmctldParameters=enable_configless, as
'slurmd --conf-server' does, and keeps it in DIRECTORY/conf. USER is that controller's SlurmUser (default: slurm, if
there is such an account, else root). The exit status is 75 if the same may succeed later.
";

const INIT: &str = "\
Usage: muster init --cluster NAME --controller HOST (--node-from FILE | --ssh HOSTS) [OPTIONS]
Writes the configuration of a new cluster on the controller's host, checks it as 'muster config check' does, and prints
what is to be run on each host. At a terminal it asks for what is missing; without one it names that and ends.

  --cluster NAME        name of the cluster
  --controller HOST     the controller's host
  --user NAME           account of the controller, SlurmUser (default: slurm)
  --node-from FILE      what 'slurmd -C' has printed on the nodes, one after the other; - is standard input
  --ssh HOSTS           run 'slurmd -C' on these hosts by ssh, such as n[1-4]
  --partition NAME      the partition with all nodes (default: main)
  --auth KIND           how nodes are known: keys (each by its own, the default), munge, or slurm (slurm.key)
  --accounting yes|no   keep accounting (default: yes)
  --cgroups yes|no      hold jobs by control groups, cgroup.conf (default: yes)
  --dir DIR             where it is written (default: /etc/slurm)
  --force               replace slurm.conf and cgroup.conf that are there; a key is never replaced
  -h, --help            print this help
";

const NODE: &str = "\
Usage: muster node token [NODES] [--lifespan SECONDS]
       muster node join TOKEN|- [--controller HOST[:PORT]] [-N NODE] [--spool DIR]
       muster node list
       muster node forget NODES
Has nodes known by keys of their own, so that their hosts need neither munge nor a key of the cluster.

  token       on the controller's host, an administrator: prints a token that is good once, for this node (of a list,
              a line for each; without NODES, for any node that has no key), and for an hour, or --lifespan
              (at most a week)
  join        on the node, root: makes a key in SlurmdSpoolDir and has the controller keep the public half; the node
              keeps the controller's. - reads the token from standard input, where no other user of the host sees it
  list        nodes with keys or tokens, and how many connections in their names were refused
  forget      from now on the node is believed as those without a key, and its tokens are good for nothing
  --controller  where it is (default: as slurm.conf of this host says)
  -N NODE       the node's name, if the token names none (default: this host's)
  --spool DIR   in place of SlurmdSpoolDir (default without a slurm.conf: /var/spool/slurmd)
  -h, --help    print this help

A node with a key is known by nothing else. Another token for it, and 'join', put another key in its place.
";

const INSTALL: &str = "\
Usage: muster install DIR
Puts this program into DIR as 'muster', with a hard link for each daemon and each of Slurm's commands, and
DRMAA's libraries and headers (libdrmaa.so.1.0, drmaa.h; libdrmaa2.so, drmaa2.h) and Slurm's (libslurm.so.38,
slurm/slurm.h), where this build has them.
'muster' there is a hard link to this program's file, or a copy of the caller's own if it is on another file
system or anybody but the caller and root can write to it.

  -h, --help   print this help
";

const GENERATE: &str = "\
Usage: muster generate man|completion|compat|security DIR
Writes files into DIR that are made from the tables that the commands run on.

  man          man pages of all daemons and commands
  completion   completion for bash: 'muster', to be sourced or put where bash-completion looks
  compat       compat.md: what works of each command, option and key
  security     security.md: the table of requests in it; the rest of the page stays as it is

  -h, --help   print this help
";

/// The help of one of our own commands, if it is here.
pub(crate) fn of_command(command: &str) -> Option<&'static str> {
    let found = COMMANDS.iter().find(|(name, _)| *name == command);
    found.map(|(_, text)| *text)
}

/// Whether one of our own commands has this name: each of them has help, here or beside its options.
pub(crate) fn is_own(command: &str) -> bool {
    of_command(command).is_some()
        || [
            "sim", "doctor", "bench", "why", "logs", "watch", "top", "class", "report", "storage",
            "emulate",
        ]
        .contains(&command)
}

/// Whether a command line asks for help.
pub(crate) fn is_wanted(words: &[String]) -> bool {
    words.iter().any(|word| word == "--help" || word == "-h")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_begins_with_its_own_command_which_the_general_one_lists() {
        for (command, text) in COMMANDS {
            assert!(
                text.starts_with(&format!("Usage: muster {command}")),
                "{text}"
            );
            assert!(GENERAL.contains(&format!("muster {command}")), "{command}");
            assert!(text.lines().all(|line| line.len() <= 120), "{text}");
        }
    }
}
