//! Constants of the global `slurm`: results, values that stand for no value, bits.

use crate::fields::{FLAGS, INFINITE, MAILS, NICE_OFFSET, NO_VAL, NO_VAL16};
use mlua::Lua;

/// Results that a script may return, by Slurm's numbers.
const ERRORS: &[(&str, i64)] = &[
    ("ERROR", -1),
    ("FAILURE", -1),
    ("SUCCESS", 0),
    ("ESLURM_INVALID_PARTITION_NAME", 2000),
    ("ESLURM_DEFAULT_PARTITION_NOT_SET", 2001),
    ("ESLURM_ACCESS_DENIED", 2002),
    ("ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP", 2003),
    ("ESLURM_REQUESTED_NODES_NOT_IN_PARTITION", 2004),
    ("ESLURM_TOO_MANY_REQUESTED_CPUS", 2005),
    ("ESLURM_INVALID_NODE_COUNT", 2006),
    ("ESLURM_ERROR_ON_DESC_TO_RECORD_COPY", 2007),
    ("ESLURM_JOB_MISSING_SIZE_SPECIFICATION", 2008),
    ("ESLURM_JOB_SCRIPT_MISSING", 2009),
    ("ESLURM_USER_ID_MISSING", 2010),
    ("ESLURM_PATHNAME_TOO_LONG", 2012),
    ("ESLURM_NOT_TOP_PRIORITY", 2013),
    ("ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", 2014),
    ("ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE", 2015),
    ("ESLURM_NODES_BUSY", 2016),
    ("ESLURM_INVALID_JOB_ID", 2017),
    ("ESLURM_INVALID_NODE_NAME", 2018),
    ("ESLURM_DISABLED", 2037),
    ("ESLURM_NOT_SUPPORTED", 2036),
    ("ESLURM_INVALID_FEATURE", 2029),
    ("ESLURM_DEPENDENCY", 2038),
    ("ESLURM_BATCH_ONLY", 2039),
    ("ESLURM_BAD_TASK_COUNT", 2025),
    ("ESLURM_INVALID_TASK_MEMORY", 2044),
    ("ESLURM_INVALID_ACCOUNT", 2045),
    ("ESLURM_INVALID_LICENSES", 2048),
    ("ESLURM_ACCOUNTING_POLICY", 2050),
    ("ESLURM_INVALID_TIME_LIMIT", 2051),
    ("ESLURM_RESERVATION_ACCESS", 2052),
    ("ESLURM_RESERVATION_INVALID", 2053),
    ("ESLURM_INVALID_WCKEY", 2057),
    ("ESLURM_INVALID_QOS", 2066),
    ("ESLURM_INVALID_CPU_COUNT", 2069),
    ("ESLURM_PARTITION_NOT_AVAIL", 2070),
    ("ESLURM_INVALID_GRES", 2072),
    ("ESLURM_INVALID_ARRAY", 2081),
    ("ESLURM_MISSING_TIME_LIMIT", 8000),
    ("ESLURM_INVALID_KNL", 8001),
];

/// All others.
const NUMBERS: &[(&str, i64)] = &[
    ("NO_VAL", NO_VAL),
    ("NO_VAL8", 0xfe),
    ("NO_VAL16", NO_VAL16),
    ("INFINITE", INFINITE),
    ("INFINITE8", 0xff),
    ("INFINITE16", 0xffff),
    ("NICE_OFFSET", NICE_OFFSET),
    ("ALLOC_SID_ADMIN_HOLD", 0),
    ("ALLOC_SID_USER_HOLD", 1),
    ("JOB_SHARED_NONE", 0),
    ("JOB_SHARED_OK", 1),
    ("JOB_SHARED_USER", 2),
    ("JOB_SHARED_MCS", 3),
    ("SHARED_FORCE", 0x8000),
    ("MAIL_JOB_TIME890", 0x0020),
    ("JOB_PENDING", 0),
    ("JOB_RUNNING", 1),
    ("JOB_SUSPENDED", 2),
    ("JOB_COMPLETE", 3),
    ("JOB_CANCELLED", 4),
    ("JOB_FAILED", 5),
    ("JOB_TIMEOUT", 6),
    ("JOB_NODE_FAIL", 7),
    ("JOB_PREEMPTED", 8),
    ("JOB_BOOT_FAIL", 9),
    ("JOB_DEADLINE", 10),
    ("JOB_OOM", 11),
];

/// Names that Lua 5.1 had, by which Slurm's packages are built: scripts of sites use them.
const OLDER: &str = r"
unpack = unpack or table.unpack
loadstring = loadstring or load
table.getn = table.getn or function(list) return #list end
table.maxn = table.maxn or function(list)
    local most = 0
    for key in pairs(list) do
        if type(key) == 'number' and key > most then most = key end
    end
    return most
end
table.foreach = table.foreach or function(list, call)
    for key, value in pairs(list) do
        local result = call(key, value)
        if result ~= nil then return result end
    end
end
string.gfind = string.gfind or string.gmatch
math.pow = math.pow or function(base, power) return base ^ power end
math.mod = math.mod or math.fmod
";

/// Makes the global `slurm` with its constants.
pub(super) fn set(lua: &Lua, cluster: &str) -> mlua::Result<()> {
    let slurm = lua.create_table()?;
    for (name, number) in ERRORS.iter().chain(NUMBERS) {
        slurm.set(*name, *number)?;
    }
    for (bit, name, _) in MAILS {
        slurm.set(name, bit)?;
    }
    for (bit, name) in FLAGS {
        slurm.set(name, bit)?;
    }
    slurm.set("CLUSTER_NAME", cluster)?;
    // Numbers of Slurm's that are no whole numbers of Lua.
    slurm.set("NO_VAL64", 18_446_744_073_709_551_614.0_f64)?;
    slurm.set("INFINITE64", 18_446_744_073_709_551_615.0_f64)?;
    slurm.set("MEM_PER_CPU", 9_223_372_036_854_775_808.0_f64)?;
    lua.globals().set("slurm", slurm)?;
    lua.load(OLDER).set_name("=names of older Lua").exec()
}
