//! Commands that take a list of jobs: hold, release, requeue, suspend, resume, top.

use super::{NOT_THIS_USER, Session};
use crate::connect::{ConnectError, unexpected};
use crate::submit::line;
use crate::targets::job_target;
use muster_model::command::{JobTarget, Reply, UserCommand};
use muster_model::job::{ArrayRole, Job};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::client::{JobFilter, Response};

impl Session {
    /// Runs one of them on every job named.
    pub(super) fn jobs(&mut self, name: &'static str, words: &[String]) {
        let (options, words) = match requeue_options(name, words) {
            Ok(read) => read,
            Err(word) => {
                let known = match name {
                    "requeue" => "Incomplete",
                    _ => "Incomplete and State=SpecialExit",
                };
                return self.error(&format!("{word}: the options of {name} are {known}"));
            }
        };
        let mut failed = None;
        for word in words.iter().flat_map(|w| ids(w)) {
            let targets = match self.targets(&word) {
                Ok(targets) => targets,
                Err(error) => {
                    failed = Some(
                        self.job_failed(name, &word, &error)
                            .unwrap_or(RefusalCode::InvalidJobId),
                    );
                    continue;
                }
            };
            for (text, target) in targets {
                let command = request(name, target, options);
                let result = self.client().and_then(|client| client.command(command));
                if let Some(code) = self.job_done(name, &text, result) {
                    failed = Some(code);
                }
            }
        }
        // Slurm says it once more for these, under one name for all of them.
        let again = matches!(name, "hold" | "holdu" | "uhold" | "release");
        if let Some(code) = failed
            && again
        {
            self.complain(&format!("slurm_suspend error: {}", text(name, code)));
        }
    }

    /// Jobs that a word names: a number, or `JobName=`.
    pub(super) fn targets(&mut self, word: &str) -> Result<Vec<(String, JobTarget)>, ConnectError> {
        if let Some((key, name)) = word.split_once('=') {
            match key.to_ascii_lowercase().as_str() {
                "jobname" | "name" => {
                    let name = name.to_owned();
                    let uid =
                        (!nix::unistd::geteuid().is_root()).then(|| nix::unistd::getuid().as_raw());
                    return self.named(&name, uid);
                }
                "jobid" => return self.targets(name),
                _ => {}
            }
        }
        match job_target(word) {
            Some(target) => Ok(vec![(word.to_owned(), target)]),
            None => Err(Refusal::from(RefusalCode::InvalidJobId).into()),
        }
    }

    /// Jobs of a name that are not over.
    pub(super) fn named(
        &mut self,
        name: &str,
        uid: Option<u32>,
    ) -> Result<Vec<(String, JobTarget)>, ConnectError> {
        let filter = JobFilter {
            uids: uid.into_iter().collect(),
            ..JobFilter::default()
        };
        let jobs = self.client()?.query_jobs(filter)?;
        let found: Vec<(String, JobTarget)> = jobs
            .into_iter()
            .filter(|job| job.spec.name == name && !job.state.is_ended())
            .map(|job| {
                let target = JobTarget {
                    job: job.id,
                    tasks: None,
                    component: None,
                };
                (shown_id(&job), target)
            })
            .collect();
        if found.is_empty() {
            let user = uid.map_or_else(String::new, |uid| format!(" of user {uid}"));
            let why = format!("No jobs with name {name}{user}");
            return Err(Refusal::new(RefusalCode::InvalidJobId, why).into());
        }
        Ok(found)
    }

    /// Says what could not be done; the last refusal's code.
    pub(super) fn job_done(
        &mut self,
        name: &str,
        text: &str,
        result: Result<Reply, ConnectError>,
    ) -> Option<RefusalCode> {
        match result {
            Ok(Reply::Done { refused, .. }) => {
                let mut last = None;
                for (id, refusal) in refused {
                    last = Some(refusal.code);
                    self.job_failed(name, &id, &refusal.into());
                }
                last
            }
            Ok(other) => {
                let error = unexpected(&Response::Reply(Box::new(other)));
                self.job_failed(name, text, &error)
            }
            Err(error) => self.job_failed(name, text, &error),
        }
    }

    /// `TEXT for job ID`, with the detail before it if there is more to know.
    fn job_failed(&mut self, name: &str, id: &str, error: &ConnectError) -> Option<RefusalCode> {
        match error {
            ConnectError::Refused(refusal) => {
                // In one piece, so that a program that looks for Slurm's words is not stopped by the detail before them.
                let mut lines = refusal.lines.clone();
                if !refusal.detail.is_empty() && refusal.code != RefusalCode::InvalidJobId {
                    lines.insert(0, format!("scontrol: error: {}", refusal.detail));
                }
                let owned = name == "update"
                    && refusal.code == RefusalCode::AccessDenied
                    && refusal.detail.contains(" belongs to ");
                let text = match owned {
                    true => NOT_THIS_USER,
                    false => text(name, refusal.code),
                };
                // Slurm asks for tasks in another way, and says so.
                lines.push(match name == "update" && id.contains('_') {
                    true => format!("{id}: {text}"),
                    false => format!("{text} for job {id}"),
                });
                self.complain(&lines.join("\n"));
                Some(refusal.code)
            }
            other => {
                self.request_failed("slurm_update error", other);
                None
            }
        }
    }
}

/// A refusal in Slurm's words, which has some of its own for changes that come too late.
fn text(name: &str, code: RefusalCode) -> &'static str {
    match code {
        RefusalCode::AccessDenied if matches!(name, "hold" | "holdu" | "uhold" | "release") => {
            NOT_THIS_USER
        }
        RefusalCode::AlreadyDone => "Job has already finished",
        other => other.text(),
    }
}

/// The number as users know it.
fn shown_id(job: &Job) -> String {
    match &job.array {
        ArrayRole::Task { base, index } => format!("{base}_{index}"),
        ArrayRole::None | ArrayRole::Pending { .. } => job.id.to_string(),
    }
}

/// Options before the jobs of `requeue` and `requeuehold`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Options {
    special_exit: bool,
    incomplete: bool,
}

/// `requeue incomplete ...`, `requeuehold State=SpecialExit ...`. Gives the word that is wrong, if one is.
fn requeue_options<'a>(
    name: &str,
    words: &'a [String],
) -> Result<(Options, &'a [String]), &'a String> {
    let mut options = Options::default();
    let mut rest = words;
    if !name.starts_with("requeue") {
        return Ok((options, rest));
    }
    while let Some((first, others)) = rest.split_first() {
        let lower = first.to_ascii_lowercase();
        if let Some(state) = lower.strip_prefix("state=") {
            if name != "requeuehold" || !is_start_of(state, "specialexit") {
                return Err(first);
            }
            options.special_exit = true;
        } else if is_start_of(&lower, "incomplete") && !others.is_empty() {
            options.incomplete = true;
        } else {
            break;
        }
        rest = others;
    }
    Ok((options, rest))
}

fn is_start_of(word: &str, whole: &str) -> bool {
    !word.is_empty() && whole.starts_with(word)
}

fn request(name: &str, target: JobTarget, options: Options) -> UserCommand {
    let Options {
        special_exit,
        incomplete,
    } = options;
    match name {
        "hold" => UserCommand::Hold {
            target,
            user: false,
        },
        "holdu" | "uhold" => UserCommand::Hold { target, user: true },
        "release" => UserCommand::Release { target },
        "requeue" => UserCommand::Requeue {
            target,
            hold: false,
            special_exit,
            incomplete,
        },
        "requeuehold" => UserCommand::Requeue {
            target,
            hold: true,
            special_exit,
            incomplete,
        },
        "suspend" => UserCommand::Suspend { target },
        "resume" => UserCommand::Resume { target },
        _ => UserCommand::Top { target },
    }
}

/// Splits a list at commas outside brackets.
pub(super) fn ids(word: &str) -> Vec<String> {
    let mut depth = 0;
    word.split(move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        depth <= 0 && c == ','
    })
    .filter(|part| !part.is_empty())
    .map(str::to_owned)
    .collect()
}

/// A user's number, by name or number.
pub(super) fn uid(text: &str) -> Option<u32> {
    line::user(text)
        .map(|u| u.uid.as_raw())
        .or_else(|| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_before_the_jobs() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let read = |name: &str, text: &str| {
            let words = words(text);
            requeue_options(name, &words)
                .map(|(options, rest)| (options.special_exit, options.incomplete, rest.join(" ")))
                .map_err(Clone::clone)
        };
        let got = |special, incomplete, rest: &str| Ok((special, incomplete, rest.to_owned()));
        assert_eq!(read("requeue", "1,2"), got(false, false, "1,2"));
        assert_eq!(read("requeue", "Incomplete 1 2"), got(false, true, "1 2"));
        assert_eq!(
            read("requeuehold", "State=SpecialExit inc 7"),
            got(true, true, "7")
        );
        assert_eq!(
            read("requeue", "state=specialexit 7"),
            Err("state=specialexit".to_owned())
        );
        assert_eq!(
            read("requeuehold", "state=odd 7"),
            Err("state=odd".to_owned())
        );
        assert_eq!(read("hold", "incomplete"), got(false, false, "incomplete"));
    }
}
