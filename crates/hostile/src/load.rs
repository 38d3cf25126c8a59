//! Simultaneous loads by many processes of unprivileged users, for a time: floods, parts of frames, wrong values,
//! descriptors. Any answer is right, as long as others are served meanwhile and the daemons stay as they were.

mod bytes;
mod descriptors;
mod network;
mod requests;
mod rest;
mod values;

use crate::outcome::Outcome;
use crate::random::Random;
use crate::sys::{ATTACKER, NAMELESS, User, as_user, raise_descriptors};
use crate::target::Target;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Its name, for the table.
    pub name: &'static str,
    /// It is of a user who has a name, as tokens need one.
    is_named: bool,
    run: fn(&Target, &mut Random, &Budget) -> Outcome,
}

/// Limits of a load.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    until: Instant,
    requests: u64,
}

impl Budget {
    /// Whether there is something left of it.
    fn lasts(&self, outcome: &Outcome) -> bool {
        outcome.sent < self.requests && Instant::now() < self.until && outcome.findings.is_empty()
    }
}

/// All of them.
pub const LOADS: &[Load] = &[
    Load {
        name: "load: submissions",
        is_named: false,
        run: requests::submissions,
    },
    Load {
        name: "load: queries",
        is_named: false,
        run: requests::queries,
    },
    Load {
        name: "load: HTTP",
        is_named: false,
        run: rest::requests,
    },
    Load {
        name: "load: wrong values",
        is_named: false,
        run: values::to_controller,
    },
    Load {
        name: "load: wrong values to an agent",
        is_named: false,
        run: values::to_agent,
    },
    Load {
        name: "load: connections",
        is_named: false,
        run: bytes::connections,
    },
    Load {
        name: "load: parts of frames",
        is_named: false,
        run: bytes::parts,
    },
    Load {
        name: "load: answers that nobody reads",
        is_named: false,
        run: requests::unread,
    },
    Load {
        name: "load: answers of an agent that nobody reads",
        is_named: false,
        run: requests::unread_of_agent,
    },
    Load {
        name: "load: descriptors",
        is_named: false,
        run: descriptors::wrong,
    },
    Load {
        name: "load: steps",
        is_named: false,
        run: requests::steps,
    },
    Load {
        name: "load: wrong values by SlurmctldPort",
        is_named: true,
        run: values::to_controller_port,
    },
    Load {
        name: "load: parts of frames by SlurmctldPort",
        is_named: true,
        run: bytes::parts_by_port,
    },
    Load {
        name: "load: from other hosts",
        is_named: false,
        run: network::from_other_hosts,
    },
];

/// The environment variable by which a process learns that it is to attack, and how.
pub const VARIABLE: &str = "MUSTER_HOSTILE_ATTACKER";

/// Assignment of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Place in [`LOADS`].
    pub load: usize,
    /// Seed of its choices.
    pub seed: u64,
    /// For how long.
    pub time: Duration,
    /// Most requests.
    pub requests: u64,
}

impl Assignment {
    /// Has a process do it: one that calls [`main`].
    pub fn put(&self, target: &Target, command: &mut Command) {
        let Assignment {
            load,
            seed,
            time,
            requests,
        } = self;
        let home = target.home().display();
        let ms = time.as_millis();
        command.env(VARIABLE, format!("{load} {seed} {ms} {requests} {home}"));
    }

    fn read(text: &str) -> Option<(Assignment, Target)> {
        let mut words = text.splitn(5, ' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let task = Assignment {
            load: usize::try_from(number()?).ok()?,
            seed: number()?,
            time: Duration::from_millis(number()?),
            requests: number()?,
        };
        Some((task, Target::new(Path::new(words.next()?))))
    }

    /// The user that a task is carried out as.
    fn user(&self, load: &Load) -> User {
        match self.seed % 3 {
            0 if !load.is_named => NAMELESS,
            _ => ATTACKER,
        }
    }

    /// Carries it out.
    fn run(&self, target: &Target) -> Outcome {
        let Some(load) = LOADS.get(self.load) else {
            return Outcome::default();
        };
        let budget = Budget {
            until: Instant::now() + self.time,
            requests: self.requests,
        };
        as_user(self.user(load), || {
            (load.run)(target, &mut Random::new(self.seed), &budget)
        })
    }
}

/// Does what the environment says, and prints what came of it; whether it says anything.
pub fn main() -> bool {
    let Some(text) = std::env::var(VARIABLE).ok() else {
        return false;
    };
    raise_descriptors();
    if let Some((task, target)) = Assignment::read(&text) {
        // A test program may have begun a line.
        print!("\n{}", task.run(&target).to_lines());
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_comes_over_as_it_was() {
        let task = Assignment {
            load: 3,
            seed: 7,
            time: Duration::from_millis(1500),
            requests: 900,
        };
        let mut command = Command::new("true");
        task.put(&Target::new(Path::new("/tmp/a home")), &mut command);
        let (_, value) = command.get_envs().next().unwrap();
        let (read, target) = Assignment::read(value.unwrap().to_str().unwrap()).unwrap();
        assert_eq!((read, target.home()), (task, Path::new("/tmp/a home")));
    }
}
