//! The table of requests. A request that is not here does not compile: the matches from what comes over a socket to its
//! row have no wildcard.

use super::MinimumRole;
use crate::command::{AccountsAsk, TermsAsk, UserCommand};
use crate::trigger::TriggerAsk;

/// Which interface a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Changes the state of the cluster.
    Command,
    /// A part of such a request that has a right of its own.
    Part,
    /// Edits accounting (`sacctmgr`).
    Accounts,
    /// Reads.
    Query,
    /// Waits, holds, and what concerns the controller as a process.
    Connection,
    /// To the agent of a node.
    Agent,
}

macro_rules! requests {
    ($($(#[doc = $doc:literal])* $name:ident = $group:ident, $least:ident, $text:literal;)*) => {
        /// A request, or a part of one that has a right of its own.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum AccessRequest {
            $($(#[doc = $doc])* $name,)*
        }

        impl AccessRequest {
            /// All rows, in the order of the table.
            pub const ALL: &'static [AccessRequest] = &[$(AccessRequest::$name,)*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(AccessRequest::$name => stringify!($name),)* }
            }

            /// The interface that it belongs to.
            pub fn group(self) -> Group {
                match self { $(AccessRequest::$name => Group::$group,)* }
            }

            /// The least that it needs.
            pub fn least(self) -> MinimumRole {
                match self { $(AccessRequest::$name => MinimumRole::$least,)* }
            }

            /// The command or option by which users ask for it.
            pub fn text(self) -> &'static str {
                match self { $(AccessRequest::$name => $text,)* }
            }

            /// The request.
            pub fn about(self) -> &'static str {
                match self { $(AccessRequest::$name => concat!($($doc,)*).trim_ascii(),)* }
            }
        }
    };
}

requests! {
    /// Submits a job, or says when it would start.
    Submit = Command, Anyone, "sbatch, salloc, srun";
    /// Submits a heterogeneous job.
    SubmitHet = Command, Anyone, "sbatch, salloc, srun with ':'";
    /// Ends jobs.
    Cancel = Command, Manager, "scancel";
    /// Signals jobs and steps.
    Signal = Command, Manager, "scancel --signal";
    /// Holds a job: for its owner, or, by an operator, so that its owner cannot release it.
    Hold = Command, Manager, "scontrol hold, uhold";
    /// Releases a job.
    Release = Command, Manager, "scontrol release";
    /// Runs a job again.
    Requeue = Command, Manager, "scontrol requeue, requeuehold";
    /// Stops a running job.
    Suspend = Command, Operator, "scontrol suspend";
    /// Lets a stopped job go on.
    Resume = Command, Operator, "scontrol resume";
    /// Changes a job.
    UpdateJob = Command, Manager, "scontrol update JobId=";
    /// Changes the time limit of a step.
    UpdateStep = Command, Manager, "scontrol update StepId=";
    /// Puts a job before others of its owner.
    Top = Command, Manager, "scontrol top";
    /// Writes a line for a job.
    Notify = Command, Owner, "scontrol notify";
    /// Replaces or removes a crontab.
    SetCrontab = Command, Anyone, "scrontab";
    /// Has the controller run a program when something happens; with allow_user_triggers, anyone for own jobs and for nodes.
    SetTrigger = Command, SlurmUser, "strigger --set";
    /// Removes triggers of one's own.
    ClearTrigger = Command, Anyone, "strigger --clear";
    /// Says that an allocation's holder is done.
    EndAllocation = Command, Owner, "end of salloc and srun";
    /// Changes nodes: state, reason, weight, features, power.
    UpdateNodes = Command, Administrator, "scontrol update NodeName=";
    /// Changes a partition.
    UpdatePartition = Command, Administrator, "scontrol update PartitionName=";
    /// Makes a partition.
    CreatePartition = Command, Administrator, "scontrol create PartitionName=";
    /// Removes a partition.
    DeletePartition = Command, Administrator, "scontrol delete PartitionName=";
    /// Makes nodes that no file names.
    CreateNodes = Command, Administrator, "scontrol create NodeName=";
    /// Removes such nodes.
    DeleteNodes = Command, Administrator, "scontrol delete NodeName=";
    /// Takes a node in state FUTURE for a host.
    TakeNode = Command, Administrator, "slurmd -F";
    /// Reboots nodes.
    Reboot = Command, Administrator, "scontrol reboot";
    /// Calls a reboot off.
    CancelReboot = Command, Administrator, "scontrol cancel_reboot";
    /// Makes a reservation; whom `arusers` of sge.conf lets, of cores for oneself.
    CreateReservation = Command, Operator, "scontrol create reservation";
    /// Changes a reservation.
    UpdateReservation = Command, Operator, "scontrol update ReservationName=";
    /// Removes a reservation; whom `arusers` lets, one's own.
    DeleteReservation = Command, Operator, "scontrol delete ReservationName=";
    /// Reads the configuration again.
    Reconfigure = Command, Administrator, "scontrol reconfigure";

    /// Submits for another user; only root does so for root.
    SubmitForOther = Part, SlurmUser, "--uid, --gid";
    /// Replaces or removes the crontab of another user.
    SetCrontabOfOther = Part, SlurmUser, "scrontab -u USER";
    /// Sets a trigger for the job of another user, and removes triggers of others.
    TriggerOfOther = Part, SlurmUser, "strigger --set, --clear";
    /// Asks for a nice value below 0.
    NegativeNice = Part, Operator, "--nice below 0";
    /// Sets a priority that is worked out otherwise, or one above the usual.
    SetPriority = Part, Operator, "--priority";
    /// Sets the site's share of the priority.
    SiteFactor = Part, Operator, "SiteFactor=";
    /// Writes the administrator's comment.
    AdminComment = Part, Operator, "AdminComment=";
    /// Changes Deadline, Contiguous or MinTmpDiskNode of a job.
    AdminFields = Part, Operator, "Deadline=, Contiguous=, MinTmpDiskNode=";
    /// Raises the priority of a job.
    RaisePriority = Part, Operator, "Priority= above the present one";
    /// Lowers the nice value of a job.
    LowerNice = Part, Operator, "Nice= below the present one";
    /// Raises the time limit of a job that has started.
    RaiseTimeLimit = Part, Operator, "TimeLimit= above the present one of a job that has started";
    /// Changes where another user's job runs, and its input and output files, with the rights of that user.
    UpdatePaths = Part, OwnerAlone, "StdIn=, StdOut=, StdErr=, WorkDir=";
    /// Holds a job so that its owner cannot release it; releases such a job.
    HoldAsAdmin = Part, Operator, "scontrol hold and release, as administrator";
    /// Puts a job before others of its owner where SchedulerParameters lacks enable_user_top.
    TopAnyway = Part, Operator, "scontrol top without enable_user_top";
    /// Uses a partition with RootOnly=YES.
    RootOnlyPartition = Part, SlurmUser, "partition with RootOnly=YES";

    /// Has archives of accounting written to a directory, or by a program, that slurmdbd.conf does not name.
    ArchiveToOther = Part, SlurmUser, "sacctmgr archive dump Directory=, Script=";

    /// Adds accounts under another.
    AddAccounts = Accounts, Coordinator, "sacctmgr add account";
    /// Changes description, organization or parent of an account.
    ModifyAccounts = Accounts, Operator, "sacctmgr modify account set Description=, Organization=, Parent=";
    /// Changes shares and limits of an account. A coordinator does so below the account that is his, not of it.
    ModifyAccountTerms = Accounts, Coordinator, "sacctmgr modify account set Fairshare=, limits";
    /// Deletes accounts.
    DeleteAccounts = Accounts, Operator, "sacctmgr delete account";
    /// Adds users to accounts.
    AddUsers = Accounts, Coordinator, "sacctmgr add user";
    /// Changes shares and limits of users in accounts. A coordinator cannot exceed the account's.
    ModifyUserTerms = Accounts, Coordinator, "sacctmgr modify user set Fairshare=, limits";
    /// Sets the association priority.
    AssociationPriority = Accounts, Operator, "sacctmgr set Priority= of an association";
    /// Changes a default account or workload characterization key.
    ModifyUserDefaults = Accounts, Oneself, "sacctmgr modify user set DefaultAccount=, DefaultWCKey=";
    /// Changes the keys that a user has.
    ModifyUserWckeys = Accounts, Operator, "sacctmgr add, modify, delete user WCKeys=";
    /// Makes operators and administrators.
    SetAdminLevel = Accounts, Administrator, "sacctmgr set AdminLevel=";
    /// Removes users from accounts.
    DeleteUsers = Accounts, Coordinator, "sacctmgr delete user";
    /// Makes a user a coordinator.
    AddCoordinators = Accounts, Coordinator, "sacctmgr add coordinator";
    /// Makes a user a coordinator no more.
    DeleteCoordinators = Accounts, Coordinator, "sacctmgr delete coordinator";
    /// Adds, changes and deletes QOS.
    EditQos = Accounts, Administrator, "sacctmgr add, modify, delete qos";
    /// Forgets use.
    ResetUsage = Accounts, Operator, "sacctmgr modify user, account, qos set RawUsage=0";
    /// Changes texts that accounting has of jobs that are over; of others' jobs an operator does.
    NoteJobs = Accounts, Anyone, "sacctmgr modify job";
    /// Records use of a file system by users.
    RecordStorage = Accounts, Administrator, "muster storage scan";
    /// Gives a user of accounting another name; one that has an AdminLevel, an administrator does.
    RenameUser = Accounts, Operator, "sacctmgr modify user set NewName=";
    /// Adds and deletes records of clusters.
    EditClusters = Accounts, Administrator, "sacctmgr add, delete cluster";
    /// Adds, changes and deletes licenses that several clusters share.
    EditResources = Accounts, Administrator, "sacctmgr add, modify, delete resource";
    /// Adds, changes and deletes federations.
    EditFederations = Accounts, Administrator, "sacctmgr add, modify, delete federation";
    /// Sets what associations have that set nothing themselves.
    ModifyClusters = Accounts, Administrator, "sacctmgr modify cluster";

    /// Whether the controller answers.
    Ping = Query, Anyone, "scontrol ping";
    /// Jobs (PrivateData=jobs).
    Jobs = Query, Anyone, "squeue, scontrol show job";
    /// Jobs with partitions and settings (PrivateData=jobs, partitions).
    Listing = Query, Anyone, "squeue";
    /// Nodes and partitions (PrivateData=nodes, partitions, cloud).
    Cluster = Query, Anyone, "sinfo, scontrol show node, partition";
    /// Partitions and settings (PrivateData=partitions).
    Partitions = Query, Anyone, "scontrol show partition";
    /// The configuration.
    Config = Query, Anyone, "scontrol show config";
    /// A job's script.
    Script = Query, Owner, "scontrol write batch_script";
    /// The environment that a job was submitted with.
    Environment = Query, OwnerAlone, "qstat -j";
    /// An allocation with the key to its steps.
    Allocation = Query, OwnerAlone, "srun and sstat with a job's number";
    /// Jobs of accounting (PrivateData=jobs; of sreport usage as well).
    Accounting = Query, Anyone, "sacct, sreport";
    /// A script or an environment of a job of one's own, as accounting keeps it.
    JobText = Query, Anyone, "sacct -B, --env-vars";
    /// Script or environment of a job of another user.
    JobTextOfOther = Query, Administrator, "sacct -B, --env-vars of others' jobs";
    /// Times of reservations, of those that are over as well (PrivateData=reservations).
    ReservationTimes = Query, Anyone, "sreport reservation, sacctmgr show reservation";
    /// Use in a period (PrivateData=jobs, usage, events).
    Usage = Query, Anyone, "sreport";
    /// When nodes were out of service (PrivateData=events).
    NodeEvents = Query, Anyone, "sacctmgr show event";
    /// Changes by sacctmgr and their authors.
    Transactions = Query, Anyone, "sacctmgr show transactions";
    /// Counters.
    Diag = Query, Anyone, "sdiag";
    /// Begins again with the counters.
    ResetDiag = Query, Operator, "sdiag --reset";
    /// Reservations (PrivateData=reservations).
    Reservations = Query, Anyone, "scontrol show reservation, sinfo -T";
    /// The changes that reading the configuration again would make.
    Differences = Query, Administrator, "scontrol reconfigure --dry-run";
    /// Accounts, users, shares (PrivateData=accounts, users, usage).
    Accounts = Query, Anyone, "sacctmgr show, sshare";
    /// Use of file systems by users (PrivateData=usage, users).
    Storage = Query, Anyone, "muster storage";
    /// Other clusters of the database that accounting is copied to.
    KnownClusters = Query, Anyone, "--clusters, sacctmgr show cluster";
    /// Numbers of jobs, for metrics (PrivateData=jobs).
    JobCounts = Query, Anyone, "/metrics";
    /// Changes of jobs, nodes, partitions and reservations (PrivateData=jobs, nodes, partitions, reservations).
    Changes = Query, Anyone, "/muster/v1/events, muster top";
    /// Priorities of jobs that wait (PrivateData=jobs).
    Priorities = Query, Anyone, "sprio";
    /// Licenses.
    Licenses = Query, Anyone, "scontrol show licenses";
    /// Triggers (PrivateData=jobs, nodes).
    Triggers = Query, Anyone, "strigger --get";
    /// The caller's crontab.
    Crontab = Query, Anyone, "scrontab -l, -e";
    /// The crontab of another user.
    CrontabOfOther = Query, Operator, "scrontab -u USER -l";
    /// Why a job waits (PrivateData=jobs).
    Why = Query, Anyone, "muster why";

    /// Waits for a job's start; the answer has the key to its steps.
    WaitStarted = Connection, OwnerAlone, "salloc, srun, scontrol wait_job";
    /// Waits for a job's end (PrivateData=jobs).
    WaitEnded = Connection, Anyone, "sbatch --wait, srun, salloc";
    /// Waits for nodes.
    WaitNodes = Connection, Anyone, "muster up";
    /// Ties an allocation to a connection.
    HoldAllocation = Connection, OwnerAlone, "salloc, srun";
    /// Restricts a connection to a node, for its agent: to the controller, and to other agents.
    ServeNode = Connection, SlurmUser, "slurmd";
    /// Says which version of the protocol the sender speaks, to an agent.
    Greeting = Connection, Anyone, "srun, sstat, scontrol listpids";
    /// Registers a node.
    NodeHello = Connection, SlurmUser, "slurmd";
    /// Stops the controller, and the nodes.
    Shutdown = Connection, Administrator, "scontrol shutdown";
    /// Sets how much is logged.
    SetDebug = Connection, Administrator, "scontrol setdebug";
    /// Makes a token by which commands connect as the caller.
    Token = Connection, Anyone, "scontrol token";
    /// Makes a token by which commands connect as another user.
    TokenOfOther = Connection, SlurmUser, "scontrol token username=";
    /// Makes a token by which a node gets a key of its own; on the controller's host alone.
    NodeToken = Connection, Administrator, "muster node token";
    /// Forgets keys and tokens of nodes; on the controller's host alone.
    ForgetNodeKeys = Connection, Administrator, "muster node forget";
    /// Lists keys and tokens of nodes.
    NodeKeys = Connection, Administrator, "muster node list";
    /// Archives and purges accounting, or takes an archive back.
    Archive = Connection, Administrator, "sacctmgr archive dump, load";
    /// Gets a key of its own for a node.
    JoinNode = Connection, TokenBearer, "muster node join";
    /// Gets the configuration, for a host that has none.
    FetchConfiguration = Connection, SlurmUser, "slurmd and sackd --conf-server";

    /// Makes a step.
    CreateStep = Agent, NodeOwnerOrKey, "srun";
    /// Starts a node's part of a step.
    StartStep = Agent, NodeKey, "agents among themselves";
    /// Reports the end of a node's part of a step.
    StepNodeEnded = Agent, NodeKey, "agents among themselves";
    /// Signals a step.
    SignalStep = Agent, NodeKey, "agents among themselves";
    /// Asks whether a node has its part of a step.
    FindStep = Agent, NodeKey, "agents among themselves";
    /// Lists the processes of a job.
    Inspect = Agent, NodeOwner, "scontrol listpids";
    /// Measures the steps of a job.
    Measure = Agent, NodeOwner, "sstat";
    /// Asks where the tasks of a step run, and for the key to their streams.
    LocateStep = Agent, NodeOwner, "sattach";
    /// Takes the number of a step of a heterogeneous job.
    TakeStepNumber = Agent, NodeOwnerOrKey, "srun of a heterogeneous job";
}

impl From<&UserCommand> for AccessRequest {
    fn from(command: &UserCommand) -> AccessRequest {
        match command {
            UserCommand::Submit { .. } => AccessRequest::Submit,
            UserCommand::SubmitHet { .. } => AccessRequest::SubmitHet,
            UserCommand::Cancel { .. } => AccessRequest::Cancel,
            UserCommand::Signal { .. } => AccessRequest::Signal,
            UserCommand::Hold { .. } => AccessRequest::Hold,
            UserCommand::Release { .. } => AccessRequest::Release,
            UserCommand::Requeue { .. } => AccessRequest::Requeue,
            UserCommand::Suspend { .. } => AccessRequest::Suspend,
            UserCommand::Resume { .. } => AccessRequest::Resume,
            UserCommand::UpdateJob { .. } => AccessRequest::UpdateJob,
            UserCommand::UpdateStep { .. } => AccessRequest::UpdateStep,
            UserCommand::Top { .. } => AccessRequest::Top,
            UserCommand::Notify { .. } => AccessRequest::Notify,
            UserCommand::SetCrontab(_) => AccessRequest::SetCrontab,
            UserCommand::Trigger(ask) => match **ask {
                TriggerAsk::Set { .. } => AccessRequest::SetTrigger,
                TriggerAsk::Clear { .. } => AccessRequest::ClearTrigger,
            },
            UserCommand::EndAllocation { .. } => AccessRequest::EndAllocation,
            UserCommand::UpdateNodes { .. } => AccessRequest::UpdateNodes,
            UserCommand::UpdatePartition { .. } => AccessRequest::UpdatePartition,
            UserCommand::CreatePartition { .. } => AccessRequest::CreatePartition,
            UserCommand::DeletePartition { .. } => AccessRequest::DeletePartition,
            UserCommand::CreateNodes { .. } => AccessRequest::CreateNodes,
            UserCommand::DeleteNodes { .. } => AccessRequest::DeleteNodes,
            UserCommand::TakeNode(_) => AccessRequest::TakeNode,
            UserCommand::Reboot { .. } => AccessRequest::Reboot,
            UserCommand::CancelReboot { .. } => AccessRequest::CancelReboot,
            UserCommand::CreateReservation(_) => AccessRequest::CreateReservation,
            UserCommand::UpdateReservation(_) => AccessRequest::UpdateReservation,
            UserCommand::DeleteReservation { .. } => AccessRequest::DeleteReservation,
            UserCommand::Reconfigure => AccessRequest::Reconfigure,
            UserCommand::EditAccounts(edit) => AccessRequest::from(&edit.ask),
        }
    }
}

impl From<&AccountsAsk> for AccessRequest {
    /// The row of the edit, or of the part of it that needs most.
    fn from(ask: &AccountsAsk) -> AccessRequest {
        match ask {
            AccountsAsk::AddAccounts { .. } => AccessRequest::AddAccounts,
            AccountsAsk::ModifyAccounts { .. } => AccessRequest::ModifyAccountTerms,
            AccountsAsk::DeleteAccounts => AccessRequest::DeleteAccounts,
            AccountsAsk::AddUsers { admin_level, .. } if !admin_level.is_empty() => {
                AccessRequest::SetAdminLevel
            }
            AccountsAsk::AddUsers { .. } => AccessRequest::AddUsers,
            AccountsAsk::ModifyUsers {
                default_account,
                admin_level,
                terms,
                wckeys,
                ..
            } => {
                let defaults = !default_account.is_empty() || wckeys.default.is_some();
                match (wckeys.keys.is_some(), defaults) {
                    _ if !admin_level.is_empty() => AccessRequest::SetAdminLevel,
                    (true, _) => AccessRequest::ModifyUserWckeys,
                    (false, true) if *terms == TermsAsk::default() => {
                        AccessRequest::ModifyUserDefaults
                    }
                    (false, _) => AccessRequest::ModifyUserTerms,
                }
            }
            AccountsAsk::DeleteUsers { .. } => AccessRequest::DeleteUsers,
            AccountsAsk::AddQos(_) | AccountsAsk::ModifyQos(_) | AccountsAsk::DeleteQos => {
                AccessRequest::EditQos
            }
            AccountsAsk::ResetUsage { .. }
            | AccountsAsk::ResetAccountUsage
            | AccountsAsk::ResetQosUsage
            | AccountsAsk::SetUsage(_) => AccessRequest::ResetUsage,
            AccountsAsk::RenameUser { .. } => AccessRequest::RenameUser,
            AccountsAsk::NoteJobs(_) => AccessRequest::NoteJobs,
            AccountsAsk::RecordStorage(_) => AccessRequest::RecordStorage,
            AccountsAsk::AddClusters(_)
            | AccountsAsk::DeleteClusters
            | AccountsAsk::ReserveJobIds(_) => AccessRequest::EditClusters,
            AccountsAsk::ModifyClusters(_) => AccessRequest::ModifyClusters,
            AccountsAsk::SetResource(_) | AccountsAsk::DeleteResources => {
                AccessRequest::EditResources
            }
            AccountsAsk::SetFederation(_)
            | AccountsAsk::DeleteFederations
            | AccountsAsk::SetFeatures(_) => AccessRequest::EditFederations,
            AccountsAsk::DeleteWckeys(_) => AccessRequest::ModifyUserWckeys,
            AccountsAsk::AddCoordinators { .. } => AccessRequest::AddCoordinators,
            AccountsAsk::DeleteCoordinators { .. } => AccessRequest::DeleteCoordinators,
        }
    }
}
