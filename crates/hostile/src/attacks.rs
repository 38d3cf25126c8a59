//! Attacks that once worked, each with what must hold. They run one after the other, and after each the cluster is examined
//! ([`crate::health`]).

mod arrays;
mod connections;
mod controller_port;
mod descriptors;
mod expansion;
mod files;
mod identity;
mod layout;
mod mail;
mod memory;
mod node_port;
mod processes;
mod queue;
mod repeats;
mod rest;
mod sack;
mod steps;
mod texts;

use crate::jobs::{
    FIRST_NODE, clear, must_submit, running_job, small_job, state, submitted, victim_works,
};
use crate::outcome::Outcome;
use crate::random::Random;
use crate::roles::{self, coordinator, levels, secrets};
use crate::sys::ATTACKER;
use crate::target::Target;
use muster_model::time::Timestamp;
use std::time::SystemTime;

/// An attack.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// Its name, for the command line.
    pub name: &'static str,
    /// It kills or restarts daemons itself.
    pub restarts: bool,
    /// Carries it out.
    pub run: fn(&Target, &mut Random) -> Outcome,
}

macro_rules! attacks {
    ($($module:ident::$name:ident $(, $restarts:literal)?;)*) => {
        &[$(Attack {
            name: stringify!($name),
            restarts: false $(|| $restarts)?,
            run: $module::$name,
        }),*]
    };
}

/// All of them. The ones that restart daemons come last.
pub const ATTACKS: &[Attack] = attacks![
    identity::foreign_group;
    identity::foreign_blobs;
    identity::own_priority;
    mail::option_in_mail_user;
    arrays::overlapping_array;
    arrays::overlapping_tasks;
    texts::huge_texts;
    texts::largest_request;
    descriptors::lingering_descriptors;
    layout::extreme_step;
    steps::chosen_step_number;
    steps::step_by_key;
    processes::daemon_outlives_job;
    processes::environment_of_another_job;
    processes::environment_without_end;
    memory::memory_of_others;
    memory::half_frames;
    queue::full_queue;
    repeats::repeated_words;
    expansion::long_node_lists;
    expansion::growing_patterns;
    expansion::repeated_bindings;
    roles::every_request;
    levels::requests_of_each_level;
    coordinator::coordinator_beside_own_accounts;
    secrets::secrets_of_others;
    rest::false_tokens;
    rest::what_is_others;
    rest::malformed_requests;
    rest::taken_places;
    connections::many_connections;
    controller_port::requests_by_token;
    node_port::wrong_openings;
    node_port::recorded_channel;
    node_port::jobs_of_others;
    node_port::steps_of_others;
    node_port::crowded_port;
    sack::tokens_of_others;
    sack::crowded_sack;
    files::link_in_spool, true;
    files::fifo_and_lost_shim, true;
];

/// The job that must be there for an attack, or the end of the attack.
macro_rules! or_end {
    ($job:expr, $target:expr, $outcome:expr) => {
        match $job {
            Some(job) => job,
            None => {
                super::clear($target, crate::sys::ATTACKER, &mut $outcome);
                return $outcome;
            }
        }
    };
}
use or_end;

/// The time in this number of seconds.
fn in_seconds(seconds: u64) -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(0));
    Timestamp(now).plus_s(seconds)
}

/// Ends what an attack has left.
fn finished(target: &Target, mut outcome: Outcome) -> Outcome {
    clear(target, ATTACKER, &mut outcome);
    outcome
}
