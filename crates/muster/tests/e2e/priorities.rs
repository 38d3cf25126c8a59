//! `priority/multifactor` and accounts through the commands.

use crate::cluster::Cluster;

const CONF: &str = "\
ClusterName=site
SlurmctldHost=localhost
NodeName=n1 CPUs=2 RealMemory=1000
PartitionName=batch Nodes=n1 Default=YES MaxTime=INFINITE State=UP
AccountingStorageType=accounting_storage/slurmdbd
PriorityType=priority/multifactor
PriorityWeightFairShare=10000
PriorityWeightQOS=1000
PriorityWeightAge=100
PriorityCalcPeriod=0:01
";

#[test]
fn factors_and_shares_are_told() {
    let c = Cluster::from_conf(CONF);
    c.ok("sacctmgr -i add account bio fairshare=5");
    c.ok("sacctmgr -i add user root account=bio");
    c.ok("sacctmgr -i add qos high priority=10");
    assert_eq!(
        c.ok("sacctmgr -n -P show assoc format=account,user,share"),
        "root||1\nroot|root|1\nbio||5\nbio|root|1"
    );
    assert_eq!(
        c.ok("sacctmgr -n -P show qos format=name,priority"),
        "normal|0\nhigh|10"
    );
    let running = c.sbatch("-A bio -n2 -o /dev/null --wrap 'sleep 1000'");
    c.until_prints(
        &format!("squeue -h -j {running},{running} -o %T"),
        "RUNNING",
    );
    let plain = c.sbatch("-A bio -n2 -o /dev/null --wrap 'echo plain >>order'");
    let urgent =
        c.sbatch("-A bio -n2 --qos=high --nice=5 -o /dev/null --wrap 'echo urgent >>order'");
    // Root, who is in the account root too and has used nothing there, comes first.
    c.until("use is counted", || {
        let used = c.ok("sshare -n -P -a -U -o rawusage");
        let counts = |line: &str| line.parse::<u64>().is_ok_and(|n| n > 0);
        used.lines().any(counts)
    });
    assert_eq!(
        c.ok("sprio -h -o '%i %F %Q %N'"),
        format!("{plain} 5000 0 0\n{urgent} 5000 1000 5")
    );
    assert_eq!(c.ok("sprio -h -w -o '%F|%Q|%A'"), "10000|1000|100");
    // The one with the QOS goes first, whatever came first.
    assert_eq!(c.ok("squeue -h -t PD -o %i"), format!("{urgent}\n{plain}"));
    c.ok(&format!("scancel {running}"));
    c.until_prints(
        &format!("sacct -X -n -P -j {plain},{urgent} -o State"),
        "COMPLETED\nCOMPLETED",
    );
    assert_eq!(c.read_if_there("order"), "urgent\nplain\n");
    let limit = c.run("sacctmgr -i modify user root set maxtresrunminspu=cpu=5");
    assert!(
        limit.code == 1 && limit.err.contains("maxtresrunminspu=cpu=5"),
        "{limit:?}"
    );
    c.kill(c.controller());
    c.start_controller();
    c.until("the controller answers", || {
        c.run("scontrol ping").out.contains("UP")
    });
    assert_eq!(
        c.ok("sacctmgr -n -P show user root format=defaultaccount"),
        "root"
    );
}

/// Limits are set with sacctmgr, keep jobs back, are told by name and by `muster why`, and let go what they no longer
/// keep.
#[test]
fn limits_keep_jobs_back_and_say_so() {
    let c = Cluster::from_conf(&format!("{CONF}AccountingStorageEnforce=limits,safe\n"));
    c.ok("sacctmgr -i add account bio grptresmins=cpu=100 maxtrespernode=cpu=1");
    c.ok("sacctmgr -i add user root account=bio");
    c.ok("sacctmgr -i add qos tight flags=DenyOnLimit,NoReserve maxtresmins=cpu=5 mintres=cpu=1");
    assert_eq!(
        c.ok("sacctmgr -n -P show assoc format=account,user,grptresmins,maxtrespernode"),
        "root|||\nroot|root||\nbio||cpu=100|cpu=1\nbio|root||cpu=1"
    );
    assert_eq!(
        c.ok("sacctmgr -n -P show qos format=name,flags,maxtresmins,mintres"),
        "normal|||\ntight|DenyOnLimit,NoReserve|cpu=5|cpu=1"
    );
    let wide = c.sbatch("-A bio -n2 -t 10 -o /dev/null --wrap 'sleep 1000'");
    c.until_prints(&format!("squeue -h -j {wide} -o %r"), "AssocMaxCpuPerNode");
    let muster = env!("CARGO_BIN_EXE_muster");
    let why = c.ok(&format!("{muster} why {wide}"));
    assert!(
        why.contains("MaxTRESPerNode=cpu=1 of user root in account bio"),
        "{why}"
    );
    c.ok("sacctmgr -i modify account bio set maxtrespernode=cpu=-1");
    c.until_prints(&format!("squeue -h -j {wide} -o %T"), "RUNNING");
    // 20 of 100 CPU minutes are spoken for.
    let long = c.sbatch("-A bio -n1 -t 90 -o /dev/null --wrap 'sleep 1000'");
    c.until_prints(
        &format!("squeue -h -j {long} -o %r"),
        "AssocGrpCPUMinutesLimit",
    );
    let denied = c.run("sbatch -A bio --qos=tight -t 6 -o /dev/null --wrap 'sleep 1'");
    assert!(
        denied.code == 1 && denied.err.contains("QOSMaxCpuMinutesPerJobLimit"),
        "{denied:?}"
    );
    // One of those that wait gains age, and the next when that one is gone.
    c.ok("sacctmgr -i modify user root where account=bio set grpjobsaccrue=1");
    c.ok("sacctmgr -i modify qos tight set maxjobsaccruepu=3 maxtresrunminspa=cpu=7");
    assert_eq!(
        c.ok("sacctmgr -n -P show qos tight format=maxjobsaccruepu,maxtresrunminspa"),
        "3|cpu=7"
    );
    let next = c.sbatch("-A bio -n1 -t 90 -o /dev/null --wrap 'sleep 1000'");
    assert_eq!(
        c.ok(&format!("squeue -h -j {next} -O accruetime")).trim(),
        "N/A"
    );
    assert!(
        c.ok(&format!("scontrol show job {next}"))
            .contains("AccrueTime=Unknown"),
    );
    c.ok(&format!("scancel {long}"));
    c.until("its turn has come", || {
        c.ok(&format!("squeue -h -j {next} -O accruetime")).trim() != "N/A"
    });
    c.ok(&format!("scancel {wide} {next}"));
}

#[test]
fn reports_events_and_a_file_of_accounts() {
    let c = Cluster::start(2, 2);
    let cluster = c.ok("sacctmgr -n -P show cluster format=cluster");
    c.ok("sbatch -W -n2 -o /dev/null --wrap 'sleep 1'");
    let row = c.ok("sreport -n -P -t Seconds user top start=now-1hour end=now");
    let fields: Vec<&str> = row.split('|').collect();
    assert_eq!((fields[0], fields[1]), (cluster.as_str(), "root"), "{row}");
    assert!(fields[4].parse::<u32>().unwrap() >= 2, "{row}");
    assert_eq!(
        c.ok("sreport -n -P job sizesbyaccount printjobcount grouping=2 start=now-1hour end=now"),
        format!("{cluster}|root|0|1|100.00%")
    );
    // Accounting has the priority that the queue shows, of jobs that wait too.
    let id = c.ok("sbatch --parsable -b now+1hour -o /dev/null --wrap true");
    let shown = c.ok(&format!("squeue -h -j {id} -o %Q"));
    c.until_prints(&format!("sacct -X -n -P -j {id} -o priority"), shown.trim());
    c.ok(&format!("scancel {id}"));
    let head = c.ok("sreport cluster utilization start=now-1hour end=now");
    assert!(
        head.contains("Usage reported in CPU Minutes\n")
            && head
                .contains("\n  Cluster Allocate     Down PLND Dow     Idle  Planned Reported \n"),
        "{head}"
    );
    c.ok("scontrol update nodename=n2 state=drain reason=disk");
    c.until_prints(
        "sacctmgr -n -P show event states=drain format=nodename,state,reason,user,timeend",
        "n2|DRAIN|disk|root(0)|Unknown",
    );
    c.ok("sacctmgr -i add account bio description=people organization=lab fairshare=5 maxjobs=3");
    c.ok("sacctmgr -i add user daemon account=bio");
    let show = "sacctmgr -n -P show assoc account=bio format=account,user,share,maxjobs";
    let before = c.ok(show);
    assert!(before.contains("bio||5|3"), "{before}");
    c.ok(&format!("sacctmgr dump {cluster} file=accounts.cfg"));
    c.ok("sacctmgr -i delete user daemon");
    c.ok("sacctmgr -i delete account bio");
    assert_eq!(c.ok(show), "");
    c.ok("sacctmgr -i load accounts.cfg");
    assert_eq!(c.ok(show), before);
}

/// Keys that are enforced, steps that are not accounted for, and times of day that have passed are tomorrow's.
#[test]
fn keys_are_enforced_and_steps_not_accounted_for() {
    let c = Cluster::from_conf(&format!("{CONF}AccountingStorageEnforce=wckeys,nosteps\n"));
    c.ok("sacctmgr -i add account bio");
    c.ok("sacctmgr -i add user root account=bio wckeys=k,l defaultwckey=k");
    assert_eq!(
        c.ok("sacctmgr -n -P show wckey format=wckey,user"),
        "k|root\nl|root"
    );
    let refused = c.run("sbatch -A bio --wckey=m -o /dev/null --wrap true");
    assert!(
        refused.code == 1 && refused.err.contains("Invalid wckey specification"),
        "{refused:?}"
    );
    c.ok("sacctmgr -i modify user root set wckeys+=m");
    let deleted = c.ok("sacctmgr -i delete user root wckeys=m");
    assert!(
        deleted.starts_with("Deleting user WCKeys...") && deleted.contains("W = m "),
        "{deleted}"
    );
    let none = c.run("sacctmgr -i delete user wckeys=m");
    assert_eq!((none.code, none.out.trim()), (1, "Nothing deleted"));
    let plain = c.sbatch("-A bio -o /dev/null --wrap true");
    let named = c.sbatch("-A bio --wckey=l -o /dev/null --wrap true");
    // No row of the script or of a step.
    c.until_prints(
        &format!("sacct -n -P -j {plain},{named} -o jobid,state,wckey"),
        &format!("{plain}|COMPLETED|*k\n{named}|COMPLETED|l"),
    );
    let held = c.sbatch("-A bio --begin=4PM -o /dev/null --wrap true");
    c.until_prints(&format!("squeue -h -j {held} -o %r"), "BeginTime");
    c.ok(&format!("scancel {held}"));
    c.ok("scontrol create reservation=r starttime=midnight duration=10 nodes=n1 users=root");
    c.ok("scontrol update reservation=r duration+=5");
    let told = c.ok("scontrol -o show reservation r");
    assert!(told.contains("Duration=00:15:00"), "{told}");
}

/// Who changed what is listed with its author; texts of jobs that are over are changed in the store; commands come from a
/// file.
#[test]
fn changes_of_accounting_are_listed_and_jobs_that_are_over_noted() {
    let c = Cluster::start(1, 2);
    c.ok("sacctmgr -i add account bio fairshare=5");
    c.ok("sacctmgr -i add user daemon account=bio");
    c.ok("sacctmgr -i modify user daemon set maxjobs=4 priority=7");
    c.ok("sacctmgr -i modify user daemon set priority=-1");
    assert_eq!(
        c.ok("sacctmgr -nP show assoc user=daemon format=maxjobs,priority"),
        "4|"
    );
    assert_eq!(
        c.ok("sacctmgr -nP show transactions format=action,actor,where"),
        "Add Accounts|root|bio\nAdd Users|root|daemon\nModify Associations|root|daemon\n\
         Modify Associations|root|daemon"
    );
    assert_eq!(
        c.ok("sacctmgr -nP show transactions user=daemon action='Add Users' format=info"),
        "Account=bio"
    );
    let id = c.sbatch("-o /dev/null --wait --wrap 'exit 0'");
    let said = c.ok(&format!(
        "sacctmgr -i modify job where jobid={id} set DerivedExitCode=9 Comment='looked into'"
    ));
    assert!(
        said.starts_with(&format!("Modified jobs...\n  {id} submitted at ")),
        "{said}"
    );
    assert_eq!(
        c.ok(&format!("sacct -nPX -j {id} -o derivedexitcode,comment")),
        "0:9|looked into"
    );
    let none = c.run("sacctmgr -i modify job where jobid=99999 set comment=x");
    assert_eq!((none.code, none.out.trim()), (1, "Nothing modified"));
    let prompted = c.ok(
        "printf 'add account chem\\ny\\nlist account chem format=account\\nquit\\n' | sacctmgr",
    );
    assert!(
        prompted.contains("Would you like to commit changes?")
            && prompted.ends_with("sacctmgr: quit"),
        "{prompted}"
    );
    assert_eq!(
        c.ok("sacctmgr -nP show account chem format=account"),
        "chem"
    );
}

/// A job that waits is held back when its account goes, and goes on when that comes back.
#[test]
fn a_job_whose_account_goes_waits_for_it() {
    let c = Cluster::from_conf(&format!("{CONF}AccountingStorageEnforce=associations\n"));
    let add = "sacctmgr -i add account bio && sacctmgr -i add user root account=bio";
    c.ok(add);
    let busy = c.sbatch("-A root --exclusive -o /dev/null --wrap 'sleep 1000'");
    c.until_prints(&format!("squeue -h -j {busy} -o %T"), "RUNNING");
    let waits = c.sbatch("-A BIO -o /dev/null --wrap true");
    assert_eq!(c.ok(&format!("squeue -h -j {waits} -o %a")), "bio");
    c.ok("sacctmgr -i delete account bio");
    c.ok(&format!("scancel {busy}"));
    c.until_prints(
        &format!("squeue -h -j {waits} -o '%T %r'"),
        "PENDING InvalidAccount",
    );
    let refused = c.run("sbatch -A bio -o /dev/null --wrap true");
    assert!(refused.err.contains("Invalid account"), "{refused:?}");
    c.ok(add);
    c.until_prints(&format!("sacct -X -n -P -j {waits} -o State"), "COMPLETED");
}
