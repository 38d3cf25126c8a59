//! Actions of users and administrators about several jobs or a time to come: heterogeneous jobs and reservations.

use super::clients::Users;
use super::submission::Submission;
use muster_model::command::{NameList, ReservationAsk, UserCommand};
use muster_model::reservation::Flags;
use muster_model::spec::{Dependency, JobKind, JobSpec};
use muster_model::time::TimeLimit;

/// Names of the reservations that come and go.
const NAMES: [&str; 3] = ["r0", "r1", "r2"];

impl Users<'_> {
    /// A user submits a job of two or three components.
    pub(super) fn submit_het(&mut self) {
        let name = self.world.clients.next_name();
        let uid = 1000 + self.world.random.small(0, 2);
        let count = self.world.random.small(2, 3);
        let mut specs: Vec<JobSpec> = Vec::new();
        for offset in 0..count {
            let own = match offset {
                0 => name.clone(),
                _ => format!("{name}+{offset}"),
            };
            let mut spec = self.make_spec(&own);
            spec.array = None;
            if let Some(first) = specs.first() {
                spec.kind = JobKind::Allocation;
                spec.script = None;
                (spec.interactive, spec.hold) = (first.interactive, first.hold);
                (spec.requeue, spec.begin) = (first.requeue, first.begin);
                spec.dependency = Dependency::default();
            }
            specs.push(spec);
        }
        for spec in &specs {
            self.world.clients.remember(Submission::of(spec, uid));
        }
        let blobs = (specs[0].script)
            .map(|id| (id, b"#!/bin/sh\nexit\n".to_vec().into()))
            .into_iter()
            .collect();
        let leader = Submission::of(&specs[0], uid);
        let command = UserCommand::SubmitHet {
            specs,
            blobs,
            test_only: false,
        };
        self.ask(uid, command, Some(leader));
    }

    /// An administrator makes, changes or deletes a reservation.
    pub(super) fn reserve(&mut self) {
        let name = (*self.world.random.pick(&NAMES)).to_owned();
        if self.world.random.one_in(4) {
            return self.ask(0, UserCommand::DeleteReservation { name }, None);
        }
        let random = &mut self.world.random;
        let count = self.world.config.nodes.len();
        let first = random.below(count as u64) as usize;
        let last = first + random.below((count - first) as u64) as usize;
        let nodes: Vec<&str> = (self.world.config.nodes[first..=last].iter())
            .map(|node| node.name.as_str())
            .collect();
        let drawn = [
            Flags::DAILY,
            Flags::HOURLY,
            Flags::MAINT,
            Flags::OVERLAP,
            Flags::FLEX,
            Flags::MAGNETIC,
            Flags::IGNORE_JOBS,
            Flags::NO_HOLD_JOBS_AFTER,
            Flags::PURGE_COMP,
        ];
        let mut flags = Flags::default();
        for flag in drawn {
            if random.one_in(5) {
                flags = flags.with(flag);
            }
        }
        let users = match random.small(0, 2) {
            0 => NameList::AllBut(vec!["u1000".to_owned()]),
            1 => NameList::Only(vec!["u1000".to_owned()]),
            _ => NameList::Only(vec!["u1001".to_owned(), "u1002".to_owned()]),
        };
        let by_core = random.one_in(3);
        let ask = ReservationAsk {
            name: Some(name),
            start: Some(
                self.world
                    .wall()
                    .plus_s(u64::from(self.world.random.small(0, 90))),
            ),
            duration: Some(TimeLimit::Minutes(self.world.random.small(1, 6))),
            core_counts: match by_core {
                true => vec![1; nodes.len()],
                false => Vec::new(),
            },
            nodes: Some(nodes.join(",")),
            users: Some(users),
            flags,
            ..ReservationAsk::default()
        };
        let command = match self.world.random.one_in(3) {
            true => UserCommand::UpdateReservation(Box::new(ask)),
            false => UserCommand::CreateReservation(Box::new(ask)),
        };
        self.ask(0, command, None);
    }

    /// Reservations that a new job may run in: one of those that there may be, now and then.
    pub(super) fn requested_reservation(&mut self) -> Option<String> {
        let some = self.world.random.one_in(6);
        some.then(|| (*self.world.random.pick(&NAMES)).to_owned())
    }

    /// Actions of an administrator at the end so that nobody waits for a reservation.
    pub(super) fn end_reservations(&self, commands: &mut Vec<UserCommand>) {
        let Some(controller) = &self.world.controller else {
            return;
        };
        let all = controller.writer.state().reservations.iter();
        commands.extend(all.map(|r| UserCommand::DeleteReservation {
            name: r.name.clone(),
        }));
    }
}
