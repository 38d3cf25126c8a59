//! A program that is to be run, as it waits: it names the job, and becomes arguments and an environment when it begins.

use super::job_mail::{JobMail, env_bytes};
use super::mail_accounting::{JobUse, MailAccounting};
use super::mail_text;
use super::record::ProgramJob;
use super::{Invocation, completion, variable};
use crate::mail_address;
use crate::program_settings::ProgramSettings;
use muster_core::event::spec_bytes;
use muster_model::ids::JobAttempt;
use muster_model::job_env::Variables;
use muster_model::spec::JobSpec;
use muster_model::trigger::TriggerRunId;
use muster_model::visible_text::beginning;
use std::sync::Arc;
use std::time::Duration;

/// Time limit of `MailProg`.
const MAIL_TIME_LIMIT: Duration = Duration::from_secs(120);
/// The memory of a waiting program in any case: its place in the queue and its allocations.
const FIXED_BYTES: usize = 256;
/// Bytes of a variable of which no more is kept where too much of a user's waits.
const CUT_BYTES: usize = 256;

/// Variables that are given whole or not at all: a shortened list would name other nodes.
const NODE_LISTS: [&str; 2] = ["SLURM_JOB_NODELIST", "NODES"];

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct ProgramPlan {
    what: PlannedProgram,
    /// Whether it is run however much waits: there are no more of these than jobs that run, or nodes.
    is_required: bool,
    settings: Arc<ProgramSettings>,
}

#[derive(Clone, Debug)]
enum PlannedProgram {
    /// A program that is no job's, or of which texts were cut.
    Whole(Box<Invocation>),
    /// A program of a trigger.
    Trigger(TriggerRunId, Box<Invocation>),
    /// A mail about a job.
    Mail(Arc<ProgramJob>, JobMail),
    /// A program for a job.
    Job(JobProgram, String, Box<ProgramJob>),
}

/// Programs that are run for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobProgram {
    /// `PrologSlurmctld`, for which this launch waits.
    Prolog(JobAttempt),
    /// `EpilogSlurmctld`.
    Epilog,
    /// `JobCompType=jobcomp/script`.
    Completion,
}

impl ProgramPlan {
    /// A program that is no job's.
    pub(super) fn of_nodes(invocation: Invocation, settings: &Arc<ProgramSettings>) -> ProgramPlan {
        ProgramPlan {
            is_required: true,
            ..ProgramPlan::of(PlannedProgram::Whole(Box::new(invocation)), settings)
        }
    }

    /// A program of a trigger.
    pub(super) fn of_trigger(
        run: TriggerRunId,
        invocation: Invocation,
        settings: &Arc<ProgramSettings>,
    ) -> ProgramPlan {
        ProgramPlan {
            is_required: true,
            ..ProgramPlan::of(PlannedProgram::Trigger(run, Box::new(invocation)), settings)
        }
    }

    pub(super) fn mail(
        record: Arc<ProgramJob>,
        mail: JobMail,
        settings: &Arc<ProgramSettings>,
    ) -> ProgramPlan {
        ProgramPlan::of(PlannedProgram::Mail(record, mail), settings)
    }

    pub(super) fn job(
        kind: JobProgram,
        program: String,
        record: ProgramJob,
        settings: &Arc<ProgramSettings>,
    ) -> ProgramPlan {
        ProgramPlan {
            is_required: matches!(kind, JobProgram::Prolog(_)),
            ..ProgramPlan::of(
                PlannedProgram::Job(kind, program, Box::new(record)),
                settings,
            )
        }
    }

    fn of(what: PlannedProgram, settings: &Arc<ProgramSettings>) -> ProgramPlan {
        ProgramPlan {
            what,
            is_required: false,
            settings: Arc::clone(settings),
        }
    }

    /// Whether it is run however much waits.
    pub(super) fn is_required(&self) -> bool {
        self.is_required
    }

    /// The launch that waits for it, as its prolog.
    pub(super) fn prolog(&self) -> Option<JobAttempt> {
        match self.what {
            PlannedProgram::Job(JobProgram::Prolog(launch), ..) => Some(launch),
            PlannedProgram::Job(..)
            | PlannedProgram::Mail(..)
            | PlannedProgram::Trigger(..)
            | PlannedProgram::Whole(_) => None,
        }
    }

    /// The trigger that fired.
    pub(super) fn trigger(&self) -> Option<TriggerRunId> {
        match &self.what {
            PlannedProgram::Trigger(run, _) => Some(*run),
            PlannedProgram::Job(..) | PlannedProgram::Mail(..) | PlannedProgram::Whole(_) => None,
        }
    }

    /// The specification that it keeps, which others may keep, too.
    pub(super) fn spec(&self) -> Option<&Arc<JobSpec>> {
        match &self.what {
            PlannedProgram::Job(_, _, record) => Some(&record.spec),
            PlannedProgram::Mail(record, _) => Some(&record.spec),
            PlannedProgram::Trigger(..) | PlannedProgram::Whole(_) => None,
        }
    }

    /// Bytes that it keeps beside the specification.
    pub(super) fn bytes(&self) -> usize {
        FIXED_BYTES
            + match &self.what {
                PlannedProgram::Whole(invocation) | PlannedProgram::Trigger(_, invocation) => {
                    invocation.bytes()
                }
                PlannedProgram::Mail(record, mail) => record.bytes() + mail.bytes(),
                PlannedProgram::Job(_, program, record) => program.len() + record.bytes(),
            }
    }

    /// As above, with values of which no more than a few bytes are kept, and without the specification.
    pub(super) fn cut(&self) -> ProgramPlan {
        let mut invocation = self.clone().invocation();
        for (name, value) in &mut invocation.env {
            if NODE_LISTS.contains(&name.as_str()) {
                continue;
            }
            if value.len() > CUT_BYTES {
                *value = beginning(value, CUT_BYTES).to_owned();
            }
        }
        ProgramPlan::of(PlannedProgram::Whole(Box::new(invocation)), &self.settings)
    }

    /// The program with all that it is given; a mail has the use of its job from accounting.
    pub(super) fn invocation_by(self, accounting: &MailAccounting) -> Invocation {
        let used = match &self.what {
            PlannedProgram::Mail(record, mail) => accounting.use_of(record, mail),
            PlannedProgram::Job(..) | PlannedProgram::Trigger(..) | PlannedProgram::Whole(_) => {
                JobUse::None
            }
        };
        self.with_use(used)
    }

    /// The program with all that it is given; a mail without the use of its job.
    pub(super) fn invocation(self) -> Invocation {
        self.with_use(JobUse::None)
    }

    fn with_use(self, used: JobUse) -> Invocation {
        let settings = &*self.settings;
        match self.what {
            PlannedProgram::Whole(invocation) | PlannedProgram::Trigger(_, invocation) => {
                *invocation
            }
            PlannedProgram::Mail(record, mail) => {
                let mut env = record.env(settings);
                let text = mail_text::text(&record, &mail, &settings.cluster, used);
                env.extend(mail.env);
                Invocation {
                    what: "MailProg",
                    program: settings.mail_program.clone(),
                    args: mail_args(&record.spec, mail.subject, settings),
                    env,
                    input: Some(text),
                    file: None,
                    time_limit: Some(MAIL_TIME_LIMIT),
                    owner: None,
                }
            }
            PlannedProgram::Job(kind, program, record) => {
                let mut env = record.env(settings);
                env.extend(kind.env(&record, settings));
                Invocation {
                    what: kind.name(),
                    program,
                    args: Vec::new(),
                    env,
                    input: None,
                    file: None,
                    time_limit: None,
                    owner: None,
                }
            }
        }
    }
}

impl JobProgram {
    fn name(self) -> &'static str {
        match self {
            JobProgram::Prolog(_) => "PrologSlurmctld",
            JobProgram::Epilog => "EpilogSlurmctld",
            JobProgram::Completion => "JobCompLoc",
        }
    }

    /// Variables beside those for all of the controller's programs.
    fn env(self, record: &ProgramJob, settings: &ProgramSettings) -> Variables {
        let context = |name: &str| variable("SLURM_SCRIPT_CONTEXT", name);
        match self {
            JobProgram::Prolog(_) => vec![context("prolog_slurmctld")],
            JobProgram::Epilog => {
                let mut env = vec![context("epilog_slurmctld")];
                env.extend(record.exit_env());
                env
            }
            JobProgram::Completion => completion::script_env(record, &settings.cluster),
        }
    }
}

impl Invocation {
    fn bytes(&self) -> usize {
        let args: usize = self.args.iter().map(|arg| arg.len()).sum();
        let file = self.file.as_ref().map_or(0, |(_, text)| text.len());
        let input = self.input.as_ref().map_or(0, String::len);
        size_of::<Invocation>() + self.program.len() + args + env_bytes(&self.env) + input + file
    }
}

/// The bytes of a specification, which are looked at once for all that keep it.
pub(super) fn bytes_of(spec: &JobSpec) -> usize {
    usize::try_from(spec_bytes(spec)).unwrap_or(usize::MAX)
}

/// The arguments of `MailProg`, as Slurm gives them: `-s`, the subject, the address, which the grammar of addresses keeps
/// from being an option. An address that is none (jobs of older releases were not checked) is replaced by the
/// job's owner.
fn mail_args(spec: &JobSpec, subject: String, settings: &ProgramSettings) -> Vec<String> {
    let named = spec.mail.as_ref().map(|mail| mail.user.as_str());
    let named = named.filter(|user| !user.is_empty() && mail_address::fault(user).is_none());
    let users = named.unwrap_or(&spec.owner.user);
    let domain = settings.mail_domain.as_deref();
    let whole = |user: &str| match domain.filter(|_| !user.contains('@')) {
        Some(domain) => format!("{user}@{domain}"),
        None => user.to_owned(),
    };
    let users: Vec<String> = users.split(',').map(whole).collect();
    vec!["-s".to_owned(), subject, users.join(",")]
}
