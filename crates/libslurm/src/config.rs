//! The configuration of the controller, as `scontrol show config` has it: each key is the member of the same name.

#![allow(unsafe_code)]

use crate::abi::config::SlurmConf;
use crate::abi::members::{CMember as _, OwnedText, OwnedTexts};
use crate::connection::{VERSION, connect};
use crate::error::CallError;
use crate::list::{self, SlurmList};
use crate::memory;
use crate::names;
use crate::update::run;
use libc::{c_char, c_void, time_t};
use muster_cli::library;
use std::collections::BTreeMap;
use std::ptr::null_mut;

/// A key with its value, as `slurm_ctl_conf_2_key_pairs` lists them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct ConfigPair {
    name: OwnedText,
    value: OwnedText,
}

/// Keys and values of the configuration.
fn pairs() -> Result<BTreeMap<String, String>, CallError> {
    let text = run(&["show".to_owned(), "config".to_owned()])?;
    let pair = |line: &str| {
        let (key, value) = line.split_once('=')?;
        Some((key.trim().to_owned(), value.trim().to_owned()))
    };
    Ok(text.lines().filter_map(pair).collect())
}

/// A key as members are written, without marks between words.
fn folded(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// Members that do not have the name of their key.
const OTHER_KEYS: [(&str, &str); 12] = [
    ("acct_gather_energy_type", "AcctGatherEnergyType"),
    ("authalttypes", "AuthAltTypes"),
    ("authinfo", "AuthInfo"),
    ("authtype", "AuthType"),
    ("comm_params", "CommunicationParameters"),
    ("def_mem_per_cpu", "DefMemPerNode"),
    ("max_mem_per_cpu", "MaxMemPerNode"),
    ("prolog_epilog_timeout", "PrologEpilogTimeout"),
    ("sched_params", "SchedulerParameters"),
    ("schedtype", "SchedulerType"),
    ("select_type", "SelectType"),
    ("slurm_conf", "SLURM_CONF"),
];

/// Members that are bits or numbers of words, and are set by hand.
const BY_HAND: [&str; 10] = [
    "private_data",
    "preempt_mode",
    "conf_flags",
    "debug_flags",
    "slurmd_debug",
    "slurmctld_debug",
    "boot_time",
    "version",
    "health_check_node_state",
    "accounting_storage_enforce",
];

fn loaded(keys: &BTreeMap<String, String>) -> SlurmConf {
    let by_name: BTreeMap<String, &String> = keys
        .iter()
        .map(|(key, value)| (folded(key), value))
        .collect();
    let mut own = SlurmConf::empty();
    own.read_members(&|member| {
        if BY_HAND.contains(&member) {
            return None;
        }
        let other = OTHER_KEYS.iter().find(|(name, _)| *name == member);
        let key = folded(other.map_or(member, |(_, key)| key));
        let value = by_name.get(&key)?;
        Some((*value).clone()).filter(|value| !["(null)", "N/A", "none"].contains(&value.as_str()))
    });
    let word = |key: &str| keys.get(key).map_or("", String::as_str);
    own.preempt_mode = match names::preempt_mode(word("PreemptMode")) {
        names::NO_VALUE_16 => 0,
        mode => mode,
    };
    (own.slurm_user_name, own.slurm_user_id) = user(word("SlurmUser"));
    (own.slurmd_user_name, own.slurmd_user_id) = user(word("SlurmdUser"));
    own.boot_time = library::time_of_text(word("BOOT_TIME")).map_or(0, |at| at.unix_s());
    own.hash_val = hash(keys);
    own.private_data = names::private_data(word("PrivateData"));
    own.accounting_storage_enforce = names::enforced(word("AccountingStorageEnforce"));
    own.version = OwnedText::of(&format!(
        "{}.{:02}.{}",
        VERSION >> 16,
        VERSION >> 8 & 0xff,
        VERSION & 0xff
    ));
    let hosts: Vec<String> = (keys.iter())
        .filter(|(key, _)| key.starts_with("SlurmctldHost["))
        .map(|(_, value)| value.split('(').next().unwrap_or_default().to_owned())
        .collect();
    own.control_cnt = u32::try_from(hosts.len()).unwrap_or(0);
    own.control_machine = OwnedTexts::of(&hosts);
    own.control_addr = OwnedTexts::of(&hosts);
    own
}

/// A user as the configuration shows it, such as `root(0)`.
fn user(text: &str) -> (OwnedText, u32) {
    let (name, id) = text.split_once('(').unwrap_or((text, ""));
    let id = id.trim_end_matches(')').parse();
    (OwnedText::of(name), id.unwrap_or(0))
}

/// A number that changes with the settings, and not with times.
fn hash(keys: &BTreeMap<String, String>) -> u32 {
    let settings = keys
        .iter()
        .filter(|(key, _)| !["BOOT_TIME", "NEXT_JOB_ID"].contains(&key.as_str()));
    let bytes =
        settings.flat_map(|(key, value)| [key.as_bytes(), b"=", value.as_bytes(), b"\n"].concat());
    // FNV-1a.
    bytes.fold(0x811c_9dc5, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// The entries of a list of keys and values.
///
/// # Safety
/// `at` is null or a list that `slurm_ctl_conf_2_key_pairs` has made.
unsafe fn listed(at: *mut SlurmList) -> Vec<ConfigPair> {
    // SAFETY: as the caller promises.
    unsafe {
        list::entries(at)
            .iter()
            .map(|item| *item.cast::<ConfigPair>())
            .collect()
    }
}

unsafe extern "C" fn free_pair(at: *mut c_void) {
    // SAFETY: entries of the list were made here.
    unsafe {
        let own = at.cast::<ConfigPair>().read();
        own.name.release();
        own.value.release();
        libc::free(at);
    }
}

status_functions! {
    /// The configuration.
    fn slurm_load_ctl_conf(_since: time_t, at: *mut *mut SlurmConf) {
        let mut own = loaded(&pairs()?);
        let settings = library::settings(&mut connect()?)?;
        own.last_update = 0;
        own.max_job_cnt = settings.max_job_count;
        own.max_array_sz = settings.max_array_size;
        own.min_job_age = settings.min_job_age_s;
        memory::give(at, memory::placed(own));
        Ok(())
    }
}

value_functions! {
    /// Keys of the configuration with their values: a list to be freed by `slurm_list_destroy`. What was loaded is not looked at.
    fn slurm_ctl_conf_2_key_pairs(_own: *mut SlurmConf) -> *mut c_void, else null_mut(), {
        let made = pairs()?.into_iter().map(|(key, value)| {
            let pair = ConfigPair { name: OwnedText::of(&key), value: OwnedText::of(&value) };
            memory::placed(pair).cast()
        });
        Ok(SlurmList::made(Some(free_pair), made.collect()).cast())
    }
}

quiet_functions! {
    /// Frees a configuration.
    fn slurm_free_ctl_conf(at: *mut SlurmConf) {
        crate::abi::release_placed(at);
    }
    /// Writes keys and values.
    fn slurm_print_key_pairs(out: *mut libc::FILE, pairs: *mut c_void, title: *const c_char) {
        let mut text = memory::text(title).unwrap_or_default();
        for pair in listed(pairs.cast()) {
            let of = |own: OwnedText| memory::text(own.0).unwrap_or_default();
            text.push_str(&format!("{:<23} = {}\n", of(pair.name), of(pair.value)));
        }
        crate::print::write(out, &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_the_values_of_their_keys() {
        let keys = [
            ("ClusterName", "c"),
            ("SlurmdPort", "6818"),
            ("KillWait", "30 sec"),
            ("SchedulerType", "sched/backfill"),
            ("MailProg", "(null)"),
            ("PrivateData", "jobs,nodes"),
            ("SlurmctldHost[0]", "h1(10.0.0.1)"),
            ("SlurmUser", "slurm(64030)"),
            ("SlurmdUser", "root(0)"),
            ("BOOT_TIME", "2026-01-02T03:04:05"),
        ];
        let keys = keys
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let keys: BTreeMap<String, String> = keys.collect();
        let own = loaded(&keys);
        // SAFETY: the texts were made just now.
        let text = |own: OwnedText| unsafe { memory::text(own.0) };
        assert_eq!(text(own.cluster_name).as_deref(), Some("c"));
        assert_eq!(
            (own.slurmd_port, own.kill_wait, own.private_data),
            (6818, 30, 3)
        );
        assert_eq!(text(own.schedtype).as_deref(), Some("sched/backfill"));
        assert_eq!((text(own.mail_prog), own.control_cnt), (None, 1));
        assert_eq!(text(own.slurm_user_name).as_deref(), Some("slurm"));
        assert_eq!((own.slurm_user_id, own.slurmd_user_id), (64030, 0));
        assert!(own.boot_time > 1_700_000_000 && own.hash_val != 0);
        let mut later = keys.clone();
        later.insert("BOOT_TIME".to_owned(), "2027-01-02T03:04:05".to_owned());
        assert_eq!(hash(&later), own.hash_val);
        later.insert("KillWait".to_owned(), "31 sec".to_owned());
        assert_ne!(hash(&later), own.hash_val);
        // SAFETY: nothing uses it any more.
        unsafe { own.release() };
    }
}
