//! Each expected text is what sinfo 22.05.8 printed for the same nodes.

use super::*;
use crate::listing::fixture::{self, at};
use crate::members::{self, Correspondence};
use muster_model::config::PartitionState;
use muster_model::node::{NodeLink, NodeReason};
use std::collections::BTreeSet;

fn sinfo(args: &[&str]) -> String {
    sinfo_of(args, &fixture::ctx())
}

fn sinfo_of(args: &[&str], ctx: &Ctx) -> String {
    let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
    let options = Options::new(SPEC.parse(&args).unwrap()).unwrap();
    render(&options, ctx, &[]).unwrap()
}

#[test]
fn default_listing() {
    assert_eq!(
        sinfo(&[]),
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
batch*       up   infinite      2    mix n[1-2]
batch*       up   infinite      2   idle n[3-4]
short        up      30:00      2    mix n[1-2]
short        up      30:00      2   idle n[3-4]
"
    );
}

#[test]
fn long_listing() {
    assert_eq!(
        sinfo(&["-l"]),
        "Sat Nov 21 20:23:45 2026
PARTITION AVAIL  TIMELIMIT   JOB_SIZE ROOT OVERSUBS     GROUPS  NODES       STATE NODELIST
batch*       up   infinite 1-infinite   no       NO        all      2       mixed n[1-2]
batch*       up   infinite 1-infinite   no       NO        all      2        idle n[3-4]
short        up      30:00 1-infinite   no       NO        all      2       mixed n[1-2]
short        up      30:00 1-infinite   no       NO        all      2        idle n[3-4]
"
    );
}

#[test]
fn summary() {
    assert_eq!(
        sinfo(&["-s"]),
        "PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST
batch*       up   infinite          2/2/0/4 n[1-4]
short        up      30:00          2/2/0/4 n[1-4]
"
    );
}

#[test]
fn by_node() {
    assert_eq!(
        sinfo(&["-N", "-l"]),
        "Sat Nov 21 20:23:45 2026
NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON              
n1             1    batch*       mixed 16     1:16:1   8000        0      1   (null) none                
n1             1     short       mixed 16     1:16:1   8000        0      1   (null) none                
n2             1    batch*       mixed 16     1:16:1   8000        0      1   (null) none                
n2             1     short       mixed 16     1:16:1   8000        0      1   (null) none                
n3             1    batch*        idle 16     1:16:1   8000        0      1   (null) none                
n3             1     short        idle 16     1:16:1   8000        0      1   (null) none                
n4             1    batch*        idle 16     1:16:1   8000        0      1   (null) none                
n4             1     short        idle 16     1:16:1   8000        0      1   (null) none                
"
    );
    let text = sinfo(&[
        "-N",
        "-O",
        "NodeList,AllocMem,Memory,CPUsState,StateLong",
        "-h",
    ]);
    assert_eq!(text.lines().count(), 8, "a row for each node and partition");
    assert!(text.starts_with("n1                  0                   8000                7/9/0/16            mixed               \nn1  "), "{text}");
}

#[test]
fn letters() {
    assert_eq!(
        sinfo(&["-h", "-o", "%P|%a|%l|%D|%t|%N|%C|%m|%G|%f|%c|%z|%O|%e"]),
        "batch*|up|infinite|2|mix|n[1-2]|8/24/0/32|8000|(null)|(null)|16|1:16:1|11.10|20766-20767
batch*|up|infinite|2|idle|n[3-4]|0/32/0/32|8000|(null)|(null)|16|1:16:1|11.10|20765
short|up|30:00|2|mix|n[1-2]|8/24/0/32|8000|(null)|(null)|16|1:16:1|11.10|20766-20767
short|up|30:00|2|idle|n[3-4]|0/32/0/32|8000|(null)|(null)|16|1:16:1|11.10|20765
"
    );
    assert_eq!(
        sinfo(&["-o", "%D,%T", "-h"]),
        "2,mixed\n2,idle\n",
        "a node counts once"
    );
    assert_eq!(sinfo(&["-o", "%N|%5N", "-h"]), "n[1-4]|n[1-4\n");
    assert_eq!(
        sinfo(&["-o", "%R", "-h", "-N", "-n", "n2"]),
        "batch\nshort\n"
    );
    assert_eq!(
        sinfo(&["-o", "%P %I %p %L %s %S %M %B %g", "-h"]),
        "batch* 1 1 1:00:00 1-infinite all OFF UNLIMITED all\nshort 1 10 n/a 1-infinite all OFF UNLIMITED all\n"
    );
}

#[test]
fn names() {
    assert_eq!(
        sinfo(&["-O", "partition,available,time,nodes,statelong,nodelist,cpusstate,memory,gres:20,features:20,freemem,allocmem"]),
        "PARTITION           AVAIL               TIMELIMIT           NODES               STATE               NODELIST            CPUS(A/I/O/T)       MEMORY              GRES                AVAIL_FEATURES      FREE_MEM            ALLOCMEM            
batch*              up                  infinite            2                   mixed               n[1-2]              8/24/0/32           8000                (null)              (null)              20766-20767         0                   
batch*              up                  infinite            2                   idle                n[3-4]              0/32/0/32           8000                (null)              (null)              20765               0                   
short               up                  30:00               2                   mixed               n[1-2]              8/24/0/32           8000                (null)              (null)              20766-20767         0                   
short               up                  30:00               2                   idle                n[3-4]              0/32/0/32           8000                (null)              (null)              20765               0                   
"
    );
}

/// n1 idle, n2 mixed and failing, n3 full and draining, n4 idle and silent.
fn troubled() -> Ctx {
    let mut ctx = fixture::ctx();
    let reason = |text: &str| {
        Some(NodeReason {
            text: text.to_owned(),
            uid: 0,
            since: at(60),
        })
    };
    ctx.nodes = vec![
        fixture::node(1, 0, 100, 0),
        fixture::node(2, 3, 100, 0),
        fixture::node(3, 16, 100, 0),
        fixture::node(4, 0, 100, 0),
    ];
    ctx.nodes[1].fail = true;
    ctx.nodes[1].reason = reason("b");
    ctx.nodes[2].drain = true;
    ctx.nodes[2].reason = reason("b");
    ctx.nodes[3].link = NodeLink::Lost(at(0));
    ctx
}

#[test]
fn states_and_their_order() {
    let ctx = troubled();
    assert_eq!(
        sinfo_of(&["-p", "batch"], &ctx),
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
batch*       up   infinite      1   fail n2
batch*       up   infinite      1  idle* n4
batch*       up   infinite      1   drng n3
batch*       up   infinite      1   idle n1
"
    );
    assert_eq!(
        sinfo_of(
            &[
                "-h",
                "-O",
                "StateCompact:8,StateLong:10,StateComplete:20,CPUsState:12,NodeAIOT:8"
            ],
            &ctx
        ),
        "fail    fail      mixed+fail          3/13/0/16   1/0/0/1 
idle*   idle*     idle+not_responding 0/16/0/16   0/1/0/1 
drng    draining  allocated+drain     16/0/0/16   1/0/0/1 
idle    idle      idle                0/16/0/16   0/1/0/1 
"
    );
    assert_eq!(
        sinfo_of(&["-o", "%A|%F|%C|%D"], &ctx),
        "NODES(A/I)|NODES(A/I/O/T)|CPUS(A/I/O/T)|NODES\n2/2|2/2/0/4|19/45/0/64|4\n"
    );
    for (states, nodes) in [
        ("drain", "n3:drng"),
        ("drained", ""),
        ("draining", "n3:drng"),
        ("fail", "n2:fail"),
        ("alloc", "n2:fail n3:drng"),
        ("idle", "n4:idle* n1:idle"),
        ("MIX", "n2:fail"),
        ("down", ""),
        ("no_respond", "n4:idle*"),
        ("idle&no_respond", "n4:idle*"),
    ] {
        let text = sinfo_of(&["-h", "-t", states, "-o", "%N:%t"], &ctx);
        assert_eq!(
            text.split_whitespace().collect::<Vec<_>>().join(" "),
            nodes,
            "{states}"
        );
    }
    assert_eq!(
        sinfo_of(&["-R"], &ctx),
        "REASON               USER      TIMESTAMP           NODELIST
b                    root      2026-11-21T20:24:00 n[2-3]
"
    );
    assert!(
        sinfo_of(&["-d", "-h"], &ctx)
            .starts_with("batch*       up   infinite      1  idle* n4\nshort")
    );
}

#[test]
fn down_drained_and_missing() {
    let mut ctx = fixture::ctx();
    ctx.nodes[3].drain = true;
    ctx.nodes[3].down = true;
    ctx.nodes[2].down = true;
    ctx.nodes[2].link = NodeLink::Never;
    ctx.partitions[1].state = PartitionState::Inactive;
    ctx.partitions[1].min_nodes = 2;
    ctx.partitions[1].max_nodes = Some(3);
    assert_eq!(
        sinfo_of(&["-h", "-p", "batch", "-o", "%t %N"], &ctx),
        "down* n3\ndrain n4\nmix n[1-2]\n"
    );
    assert_eq!(
        sinfo_of(&["-h", "-o", "%C %F"], &ctx),
        "8/24/32/64 2/0/2/4\n"
    );
    assert_eq!(
        sinfo_of(&["-h", "-o", "%P %a %s"], &ctx),
        "batch* up 1-infinite\nshort inact 2-3\n"
    );
    assert_eq!(
        sinfo_of(&["-n", "nosuch", "-p", "batch"], &ctx),
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\nbatch*       up   infinite      0    n/a \n"
    );
}

#[test]
fn sizes_that_differ() {
    let mut ctx = fixture::ctx();
    ctx.nodes[1].config.memory_mib = 4000;
    assert_eq!(
        sinfo_of(&["-h", "-p", "batch", "-t", "mix", "-o", "%N %m %c"], &ctx),
        "n[1-2] 4000+ 16\n"
    );
    assert_eq!(
        sinfo_of(
            &[
                "-h", "-e", "-p", "batch", "-t", "mix", "-o", "%N %m", "-S", "m"
            ],
            &ctx
        ),
        "n2 4000\nn1 8000\n"
    );
}

#[test]
fn json_of_both_layouts() {
    let old: serde_json::Value = serde_json::from_str(&sinfo(&["--json=v0.0.38"])).unwrap();
    let node = &old["nodes"][0];
    let keys: Vec<&str> = node
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        keys.join(" "),
        "architecture burstbuffer_network_address boards boot_time comment cores cpu_binding cpu_load extra free_memory \
         cpus last_busy features active_features gres gres_drained gres_used mcs_label name next_state_after_reboot \
         address hostname state state_flags next_state_after_reboot_flags operating_system owner partitions port \
         real_memory reason reason_changed_at reason_set_by_user slurmd_start_time sockets threads temporary_disk \
         weight tres slurmd_version alloc_memory alloc_cpus idle_cpus tres_used tres_weighted"
    );
    assert_eq!(
        (&node["state"], &node["tres_used"]),
        (&"mixed".into(), &"cpu=7".into())
    );
    let new: serde_json::Value = serde_json::from_str(&sinfo(&["--json"])).unwrap();
    let rows = new["sinfo"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[0]["nodes"]["nodes"][1], "n2");
    assert_eq!(rows[0]["cpus"]["allocated"], 8);
    assert_eq!(rows[0]["node"]["state"][0], "MIXED");
}

#[test]
fn every_option_that_works_is_accepted() {
    use crate::options::OptionStatus;
    let informs = ["help", "usage", "version", "helpformat"];
    for row in OPTIONS
        .iter()
        .filter(|o| !o.is_alias() && !informs.contains(&o.name))
    {
        if matches!(row.status, OptionStatus::Works | OptionStatus::Partly(_)) {
            let set = Options::default().set(row.name, "1".to_owned());
            let text = set.err().map(|e| e.to_string()).unwrap_or_default();
            assert!(!text.contains("is not implemented"), "{text}");
        }
    }
}

const COLUMNS: Correspondence = Correspondence {
    columns: "
        available partition.partition.state\n features_act features.active\n cpus cpus.maximum cpus.minimum cpus.per_node
        disk disk\n freemem memory.free\n features features.total\n groups partition.groups.allowed
        oversubscribe partition.maximums.oversubscribe\n time partition.maximums.time\n memory memory.maximum memory.minimum
        nodehost nodes.hostnames\n nodeaddr nodes.addresses\n prioritytier partition.priority.tier
        size partition.maximums.nodes partition.minimums.nodes\n statecompact node.state\n user reason.user\n weight weight
        socketcorethread sockets cores threads\n nodeai nodes.allocated nodes.idle
        maxcpuspernode partition.maximums.cpus_per_node
        cpusstate cpus.allocated cpus.idle cpus.other cpus.total\n nodes nodes.total\n reason reason.description
        nodeaiot nodes.allocated nodes.idle nodes.other nodes.total\n gres gres.total\n timestamp reason.time
        priorityjobfactor partition.priority.job_factor\n defaulttime partition.defaults.time\n nodelist nodes.nodes
        cpusload cpus.load\n partition partition.name\n partitionname partition.name
        allocnodes partition.nodes.allowed_allocation\n statelong node.state\n userlong reason.user\n cluster cluster
        sockets sockets\n cores cores\n threads threads\n allocmem memory.allocated\n comment comment\n extra extra
        gresused gres.used\n port port\n statecomplete node.state",
    without_member: &[(
        "Slurm's document has none of it",
        "root version preemptmode",
    )],
    without_column: &[(
        "Slurm's sinfo has no column of it",
        "partition.accounts partition.alternate partition.cluster partition.cpus partition.defaults partition.grace_time \
         partition.maximums partition.node_sets partition.nodes partition.qos partition.select_type partition.suspend_time \
         partition.timeouts partition.topology partition.tres reservation",
    )],
};

#[test]
fn columns_have_members_and_members_columns() {
    let document: serde_json::Value = serde_json::from_str(&sinfo(&["--json"])).unwrap();
    let mut found = BTreeSet::new();
    for group in document["sinfo"].as_array().unwrap() {
        members::of_document(group, "", &mut found);
    }
    let columns: Vec<&str> = node_fields::FIELDS
        .iter()
        .map(|field| field.names[0])
        .collect();
    let findings = COLUMNS.findings(&columns, &found);
    assert!(findings.is_empty(), "{findings:#?}");
}
