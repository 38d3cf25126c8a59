//! A request as a script sees and changes it: the job that is to be submitted, or of a change only the changed
//! fields. A field that a user left out is unset here, whatever its default is.

use crate::message::{ProposedChange, Subject, Verdict};
use minicbor::bytes::ByteVec;
use muster_model::command::JobUpdate;
use muster_model::environment::Environment;
use muster_model::spec::{Dependency, ExecContext, JobSpec, ResourceAsk};
use std::collections::BTreeMap;

/// The request.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// The job; of a change, its changed fields.
    pub spec: JobSpec,
    /// `nice` is given.
    pub nice_given: bool,
    /// `dependency` is given, where it may be empty to clear it.
    pub dependency_given: bool,
    /// `site_factor` is given.
    pub site_factor_given: bool,
    /// The script.
    pub script: Option<Vec<u8>>,
    /// Environment, masks and limits, once something looks at them.
    context: Option<ExecContext>,
    /// The job as it came.
    encoded: Option<ByteVec>,
    /// The environment was changed.
    environment_changed: bool,
    /// Which component of a heterogeneous job it is.
    pub component: Option<u32>,
    /// It is a change of a job.
    pub is_change: bool,
    /// The user that asks.
    pub uid: u32,
    /// The name of that user.
    pub user: String,
}

/// Does the same for each field of a [`ResourceAsk`].
macro_rules! for_each_field {
    ($do:ident!($($argument:tt)*)) => {
        $do!(($($argument)*), min_nodes, max_nodes, ntasks, cpus_per_task, ntasks_per_node, ntasks_per_socket, ntasks_per_core,
            min_cpus_per_node, memory, tmp_disk_mib, gres, constraint, nodelist, exclude, sharing, contiguous, sockets_per_node,
            cores_per_socket, threads_per_core, core_spec, overcommit, distribution, switches, spread, use_min_nodes, nodes_set,
            prefer, devices, segment, segments, thread_spec, batch, task_range)
    };
}

/// The fields of `new` that differ from `old`; all else as in `unset`.
fn difference(new: &ResourceAsk, old: &ResourceAsk, unset: &ResourceAsk) -> ResourceAsk {
    macro_rules! differs {
        (($new:ident, $old:ident, $unset:ident), $($field:ident),*) => {
            ResourceAsk { $($field: match $new.$field == $old.$field {
                true => $unset.$field.clone(),
                false => $new.$field.clone(),
            },)* }
        };
    }
    for_each_field!(differs!(new, old, unset))
}

impl Description {
    /// Description of a subject from the controller.
    pub fn of(subject: &Subject) -> Description {
        let mut made = Description {
            component: subject.component,
            uid: subject.uid,
            user: subject.user.clone(),
            ..Description::default()
        };
        match &subject.change {
            Some(change) => made.show_change(change, &subject.spec.ask),
            None => {
                made.spec = subject.spec.clone();
                made.nice_given = made.spec.nice != 0;
                made.site_factor_given = made.spec.site_factor != 0;
                made.dependency_given = !made.spec.dependency.terms.is_empty();
                made.script = subject.script.as_ref().map(|bytes| bytes.to_vec());
                made.encoded.clone_from(&subject.context);
            }
        }
        made
    }

    fn show_change(&mut self, change: &ProposedChange, ask: &ResourceAsk) {
        self.is_change = true;
        let update = change.update.clone();
        self.nice_given = update.nice.is_some();
        self.dependency_given = update.dependency.is_some();
        self.site_factor_given = update.site_factor.is_some();
        let unset = ResourceAsk::default();
        let wanted = update.ask.as_ref();
        self.spec = JobSpec {
            time_limit: update.time_limit,
            priority: update.priority,
            nice: update.nice.unwrap_or_default(),
            partitions: update.partitions.unwrap_or_default(),
            name: update.name.unwrap_or_default(),
            comment: update.comment,
            account: update.account,
            qos: update.qos,
            dependency: update.dependency.unwrap_or_default(),
            begin: update.begin,
            deadline: update.deadline,
            ask: wanted.map_or_else(ResourceAsk::default, |new| difference(new, ask, &unset)),
            requeue: update.requeue,
            stdio: update.stdio.unwrap_or_default(),
            work_dir: update.work_dir.unwrap_or_default(),
            wckey: update.wckey,
            reservation: update.reservation,
            shown: update.shown,
            time_min: update.time_min,
            site_factor: update.site_factor.unwrap_or_default(),
            licenses: update.licenses,
            ..JobSpec::default()
        };
    }

    /// The environment, where the job has one.
    pub fn environment(&mut self) -> Option<&mut Environment> {
        if self.context.is_none() {
            self.context = minicbor::decode(self.encoded.as_ref()?).ok();
        }
        self.context
            .as_mut()
            .map(|context| &mut context.environment)
    }

    /// Sets a variable of the job, or removes it; whether there is an environment to change.
    pub fn set_variable(&mut self, name: &[u8], value: Option<&[u8]>) -> bool {
        let Some(environment) = self.environment() else {
            return false;
        };
        match value {
            Some(value) => environment.set(name, value),
            None => {
                let own = |variable: &&[u8]| muster_model::environment::name(variable) != name;
                *environment = environment.iter().filter(own).collect();
            }
        }
        self.environment_changed = true;
        true
    }

    /// As above, for many variables, which are gone through once.
    pub fn set_variables(&mut self, variables: BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> bool {
        let Some(environment) = self.environment() else {
            return false;
        };
        let mut left: BTreeMap<&[u8], &Option<Vec<u8>>> =
            (variables.iter().map(|(name, value)| (&**name, value))).collect();
        let mut new = Environment::default();
        for variable in environment.iter() {
            let name = muster_model::environment::name(variable);
            match (variables.get(name), left.remove(name)) {
                (Some(Some(value)), Some(_)) => new.push(&[name, b"=", value]),
                (Some(None), _) => {}
                // One that is there again stays, as where each is set alone.
                (None, _) | (Some(Some(_)), None) => new.push(&[variable]),
            }
        }
        for (name, value) in left {
            if let Some(value) = value {
                new.push(&[name, b"=", value]);
            }
        }
        *environment = new;
        self.environment_changed = true;
        true
    }

    /// The changes since `before`, as the answer to `subject`.
    pub fn verdict(self, before: &Description, subject: &Subject) -> Verdict {
        let mut verdict = Verdict::default();
        if self.spec != before.spec
            || self.dependency_given != before.dependency_given
            || self.nice_given != before.nice_given
        {
            match &subject.change {
                Some(change) => {
                    verdict.update = Some(Box::new(self.update(before, change, subject)));
                }
                None => verdict.spec = Some(Box::new(self.spec.clone())),
            }
        }
        if self.script != before.script {
            verdict.script = self.script.map(ByteVec::from);
        }
        if self.environment_changed {
            verdict.context = self.context.map(|context| context.encoded().into());
        }
        verdict
    }

    /// The change that is asked for now.
    fn update(
        &self,
        before: &Description,
        change: &ProposedChange,
        subject: &Subject,
    ) -> JobUpdate {
        let mut update = change.update.clone();
        let (new, old) = (&self.spec, &before.spec);
        macro_rules! take {
            ($($field:ident),*) => { $(if new.$field != old.$field { update.$field.clone_from(&new.$field); })* };
        }
        take!(
            time_limit, priority, comment, account, qos, begin, deadline, requeue
        );
        take!(wckey, reservation, time_min, licenses, shown);
        macro_rules! give {
            ($($field:ident => $to:ident),*) => { $(if new.$field != old.$field { update.$to = Some(new.$field.clone()); })* };
        }
        give!(nice => nice, partitions => partitions, name => name, stdio => stdio, work_dir => work_dir);
        give!(site_factor => site_factor, dependency => dependency);
        if new.time_limit != old.time_limit {
            update.time_delta_min = None;
        }
        if self.dependency_given && !before.dependency_given && update.dependency.is_none() {
            update.dependency = Some(Dependency::default());
        }
        if new.ask != old.ask {
            let base = update
                .ask
                .take()
                .unwrap_or_else(|| subject.spec.ask.clone());
            update.ask = Some(difference(&new.ask, &old.ask, &base));
        }
        update
    }
}
