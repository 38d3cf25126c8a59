//! The options of qconf, a row for each.

use crate::options::{Opt, flag, opt};

const ATTRIBUTES: &str = "hostlist, slots, h_rt, calendar, user_lists, projects and xprojects of queues; allocation_rule of pe, hostlist of hostgroup";
const QUOTAS: &str = "limits of slots, h_vmem, gpu, jobs and complexes of sge.conf for {*} users or projects, by name, of all, and of the \
                      QOS of a queue; hosts, pes, !, lists together and limits with $ are refused";
const HOSTS: &str = "hosts are NodeName lines of slurm.conf, then scontrol reconfigure";

pub(super) static OPTIONS: &[Opt] = &[
    flag("sc", "complexes"),
    flag("sql", "queues"),
    opt("sq", "queues", "a queue").optional(),
    flag("spl", "parallel environments"),
    opt("sp", "name", "a parallel environment"),
    flag("sel", "hosts that run jobs"),
    opt("se", "host", "a host that runs jobs"),
    flag("sep", "hosts and their processors"),
    flag("sh", "hosts for administration"),
    flag("ss", "hosts for submission")
        .partly("the hosts of the controller; any host that has the cluster's key will do"),
    flag("sm", "managers"),
    flag("so", "operators"),
    flag("sul", "lists of users"),
    opt("su", "lists", "lists of users, which are accounts"),
    flag("suserl", "users"),
    opt("suser", "users", "users"),
    flag("sprjl", "projects"),
    opt("sprj", "name", "a project"),
    opt("scal", "name", "a calendar"),
    flag("scall", "calendars"),
    opt("sckpt", "name", "a checkpointing environment").partly("there are none"),
    flag("sckptl", "checkpointing environments").partly("there are none"),
    opt(
        "srqs",
        "names",
        "resource quota sets, which are limits of accounts, users and QOS",
    )
    .optional(),
    flag("srqsl", "names of resource quota sets"),
    opt("shgrp", "group", "a host group"),
    opt("shgrp_tree", "group", "a host group as a tree"),
    opt("shgrp_resolved", "group", "the hosts of a host group"),
    flag("shgrpl", "host groups"),
    opt("sjc", "class", "a job class"),
    flag("sjcl", "job classes"),
    flag("ssconf", "configuration of the scheduler").partly("what slurm.conf has of it"),
    opt("sconf", "hosts", "configuration")
        .optional()
        .partly("what slurm.conf and sge.conf have of it; hosts have none of their own"),
    flag("sconfl", "hosts with a configuration of their own"),
    flag("sstree", "share tree"),
    flag("secl", "event clients").partly("the scheduler"),
    flag("sss", "host of the scheduler"),
    flag("sds", "detached settings")
        .partly("there are none: hosts of a queue have no values of their own"),
    opt(
        "sobjl",
        "object attribute value",
        "objects with that attribute",
    )
    .refused("use qconf -sq, -se, -sp or scontrol show"),
    flag("sst", "share tree, indented"),
    opt("sstnode", "paths", "nodes of the share tree"),
    flag("stl", "threads of the controller").refused("use sdiag"),
    flag("tsm", "have the scheduler say what it does").refused("use sdiag, or muster why JOB"),
    opt("aq", "queue", "add a queue, with the editor").optional(),
    opt("Aq", "file", "add the queue of a file"),
    opt("mq", "queue", "change a queue, with the editor"),
    opt("Mq", "file", "change a queue to what a file says"),
    opt("dq", "queues", "delete queues"),
    opt(
        "mattr",
        "object attribute value names",
        "change an attribute; of a list, add to it",
    )
    .partly(ATTRIBUTES),
    opt(
        "aattr",
        "object attribute value names",
        "add to a list of an attribute",
    )
    .partly(ATTRIBUTES),
    opt(
        "dattr",
        "object attribute value names",
        "take from a list of an attribute",
    )
    .partly(ATTRIBUTES),
    opt(
        "rattr",
        "object attribute value names",
        "put a value in place of another",
    )
    .partly(ATTRIBUTES),
    opt(
        "Mattr",
        "object file names",
        "as -mattr, with attributes of a file",
    )
    .partly(ATTRIBUTES),
    opt(
        "Aattr",
        "object file names",
        "as -aattr, with attributes of a file",
    )
    .partly(ATTRIBUTES),
    opt(
        "Dattr",
        "object file names",
        "as -dattr, with attributes of a file",
    )
    .partly(ATTRIBUTES),
    opt(
        "Rattr",
        "object file names",
        "as -rattr, with attributes of a file",
    )
    .partly(ATTRIBUTES),
    opt(
        "am",
        "users",
        "make users managers (AdminLevel=Administrator)",
    ),
    opt("ao", "users", "make users operators (AdminLevel=Operator)"),
    opt("dm", "users", "take that back from managers"),
    opt("do", "users", "take that back from operators"),
    opt(
        "au",
        "users lists",
        "add users to lists, which are accounts",
    ),
    opt("du", "users lists", "take users off lists"),
    opt("duser", "users", "delete users"),
    opt(
        "Aprj",
        "file",
        "add the project of a file, which is an account",
    ),
    opt("dprj", "projects", "delete projects"),
    opt(
        "astnode",
        "path=shares",
        "set shares of accounts or users; a user is user:NAME",
    ),
    opt(
        "mstnode",
        "path=shares",
        "set shares of accounts or users; a user is user:NAME",
    ),
    opt("clearusage", "users", "forget what users have used"),
    opt("ap", "name", "add a parallel environment, with the editor"),
    opt("Ap", "file", "add the parallel environment of a file"),
    opt(
        "mp",
        "name",
        "change a parallel environment, with the editor",
    ),
    opt(
        "Mp",
        "file",
        "change a parallel environment to that of a file",
    ),
    opt("dp", "name", "delete a parallel environment"),
    flag("mc", "change complexes, with the editor")
        .partly("types, relations and defaults are fixed"),
    opt("Mc", "file", "change complexes to those of a file")
        .partly("types, relations and defaults are fixed"),
    opt("ahgrp", "group", "add a host group, with the editor"),
    opt("Ahgrp", "file", "add the host group of a file"),
    opt("mhgrp", "group", "change a host group, with the editor"),
    opt("Mhgrp", "file", "change a host group to that of a file"),
    opt("dhgrp", "group", "delete a host group"),
    flag("mconf", "change the configuration, with the editor")
        .partly("jsv_url and jsv_allowed_mod"),
    opt(
        "Mconf",
        "file",
        "change the configuration to that of a file",
    )
    .partly("jsv_url and jsv_allowed_mod"),
    opt("ajc", "class", "add a job class, with the editor"),
    opt("Ajc", "file", "add the job class of a file"),
    opt("mjc", "class", "change a job class, with the editor"),
    opt("Mjc", "file", "change a job class to that of a file"),
    opt("djc", "class", "delete a job class"),
    opt("Au", "file", "add the list of users of a file"),
    opt("mu", "list", "change a list of users, with the editor"),
    opt("Mu", "file", "change a list of users to that of a file"),
    opt("dul", "lists", "delete lists of users"),
    flag("aprj", "add a project, with the editor"),
    flag("astree", "change shares of the share tree, with the editor")
        .partly("of accounts and users that are there"),
    opt("Astree", "file", "change shares to those of a file")
        .partly("of accounts and users that are there"),
    flag("mstree", "as -astree").partly("of accounts and users that are there"),
    opt("Mstree", "file", "as -Astree").partly("of accounts and users that are there"),
    opt("arqs", "names", "add resource quota sets, with the editor")
        .optional()
        .partly(QUOTAS),
    opt("Arqs", "file", "add the resource quota sets of a file").partly(QUOTAS),
    opt(
        "mrqs",
        "names",
        "change resource quota sets, with the editor",
    )
    .optional()
    .partly(QUOTAS),
    opt(
        "Mrqs",
        "file",
        "change resource quota sets to those of a file",
    )
    .partly(QUOTAS),
    opt("drqs", "names", "delete resource quota sets"),
    opt("acal", "calendar", "add a calendar"),
    opt("Acal", "file", "add the calendar of a file"),
    opt("mcal", "calendar", "change a calendar"),
    opt("Mcal", "file", "change a calendar to that of a file"),
    opt("dcal", "calendar", "delete a calendar"),
    opt("ae", "host", "add a host that runs jobs")
        .optional()
        .refused(HOSTS),
    opt("Ae", "file", "add the host of a file").refused(HOSTS),
    opt("me", "host", "change a host that runs jobs").refused(HOSTS),
    opt("Me", "file", "change a host to that of a file").refused(HOSTS),
    opt("de", "hosts", "delete hosts that run jobs").refused(HOSTS),
    flag("help", "print this help"),
];
