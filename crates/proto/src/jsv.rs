//! The protocol between a front end or controller and a job submission verifier (jsv(1) of Grid Engine), version 1.0: lines over
//! standard input and output. Here is one verification as a state machine without I/O; it knows parameters as texts, not their
//! meaning. No value makes a line of its own.

use muster_model::visible_text::{is_control, visible};
use std::collections::HashMap;

/// Lines that a verifier may send for one job.
const LINES_MAX: usize = 10_000;
/// Bytes of the longest line that a verifier may send.
pub const LINE_BYTES_MAX: usize = 256 << 10;
/// Parameters that name the request: no verifier changes them.
const FIXED: [&str; 7] = [
    "VERSION", "CONTEXT", "CLIENT", "USER", "GROUP", "JOB_ID", "SCRIPT",
];
/// The last line to a verifier.
pub const QUIT: &str = "QUIT\n";

/// A request to be verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JsvRequest {
    /// Names and values, in order.
    pub parameters: Vec<(String, String)>,
    /// Variables of the job, for verifiers that want them.
    pub environment: Vec<(String, String)>,
}

/// The decision of a verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsvDecision {
    /// The job is as it is; changes are dropped.
    Accept,
    /// The changes count.
    Correct,
    /// The job is refused.
    Reject,
    /// The job is refused for now.
    RejectWait,
}

/// The end of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The decision.
    pub state: JsvDecision,
    /// Why.
    pub message: String,
    /// Parameters with new values, empty ones removed.
    pub parameters: Vec<(String, String)>,
    /// Variables with new values, or removed ones.
    pub environment: Vec<(String, Option<String>)>,
}

/// How important a line of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For the user, too.
    Info,
    /// The same.
    Warning,
    /// The same.
    Error,
}

/// The consequence of a line of the verifier's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsvAction {
    /// Nothing: the next one is waited for.
    Next,
    /// This is written to it.
    Write(String),
    /// A line for the log or the user.
    Log(Level, String),
    /// It is over.
    Ended(Outcome),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsvPhase {
    /// START was sent.
    Started,
    /// BEGIN was sent.
    Begun,
}

/// One verification.
#[derive(Clone, Debug)]
pub struct Verification {
    asked: JsvRequest,
    phase: JsvPhase,
    wants_environment: bool,
    lines: usize,
    changed: Outcome,
    /// Where those that are changed are in the list: a verifier may change thousands.
    parameters: HashMap<String, usize>,
    variables: HashMap<String, usize>,
}

impl Verification {
    /// A verification, and its first line.
    pub fn begin(asked: JsvRequest) -> (Verification, &'static str) {
        let changed = Outcome {
            state: JsvDecision::Accept,
            message: String::new(),
            parameters: Vec::new(),
            environment: Vec::new(),
        };
        let verification = Verification {
            asked,
            phase: JsvPhase::Started,
            wants_environment: false,
            lines: 0,
            changed,
            parameters: HashMap::new(),
            variables: HashMap::new(),
        };
        (verification, "START\n")
    }

    /// Takes a line, without its end.
    ///
    /// # Errors
    /// It is none of the protocol, or comes too early.
    pub fn take(&mut self, line: &str) -> Result<JsvAction, String> {
        self.lines += 1;
        if self.lines > LINES_MAX || line.len() > LINE_BYTES_MAX {
            return Err("the JSV says more than one job can need".to_owned());
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (self.phase, word) {
            (_, "") => Ok(JsvAction::Next),
            (_, "LOG") => log(rest),
            (JsvPhase::Started, "SEND") if rest.trim() == "ENV" => {
                self.wants_environment = true;
                Ok(JsvAction::Next)
            }
            (JsvPhase::Started, "STARTED") => {
                self.phase = JsvPhase::Begun;
                Ok(JsvAction::Write(self.question()))
            }
            (JsvPhase::Begun, "PARAM") => self.parameter(rest),
            (JsvPhase::Begun, "ENV") => self.variable(rest),
            (JsvPhase::Begun, "RESULT") => self.result(rest),
            _ => Err(unknown(line)),
        }
    }

    fn question(&mut self) -> String {
        let mut text = String::new();
        for (name, value) in &self.asked.parameters {
            let value = match name.is_empty() || name.contains(|c: char| c == ' ' || is_control(c))
            {
                true => continue,
                false => visible(value),
            };
            text.push_str(&format!("PARAM {name} {value}\n"));
        }
        let wanted = self
            .asked
            .environment
            .iter()
            .filter(|_| self.wants_environment);
        for (name, value) in wanted {
            if name.is_empty() || name.contains(|c: char| c == ' ' || is_control(c)) {
                continue;
            }
            // As Grid Engine writes line ends of variables.
            let value = value.replace('\n', "\\n");
            text.push_str(&format!("ENV ADD {name} {}\n", visible(&value)));
        }
        text.push_str("BEGIN\n");
        text
    }

    fn parameter(&mut self, rest: &str) -> Result<JsvAction, String> {
        let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
        if FIXED.contains(&name) {
            return Err(format!(
                "the JSV changes {name}, which says what is verified"
            ));
        }
        if name.is_empty() || value.contains(is_control) {
            return Err(unknown(rest));
        }
        let list = &mut self.changed.parameters;
        match self.parameters.get(name).and_then(|at| list.get_mut(*at)) {
            Some(known) => value.clone_into(&mut known.1),
            None => {
                self.parameters.insert(name.to_owned(), list.len());
                list.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(JsvAction::Next)
    }

    fn variable(&mut self, rest: &str) -> Result<JsvAction, String> {
        let mut words = rest.splitn(3, ' ');
        let (what, name) = (words.next(), words.next().unwrap_or_default());
        let value = words.next().unwrap_or_default();
        let value = match what {
            Some("ADD" | "MOD") => Some(value.to_owned()),
            Some("DEL") => None,
            _ => return Err(unknown(rest)),
        };
        if name.is_empty() || name.contains(['=', '\0']) || value.iter().any(|v| v.contains('\0')) {
            return Err(unknown(rest));
        }
        let list = &mut self.changed.environment;
        match self.variables.get(name).and_then(|at| list.get_mut(*at)) {
            Some(known) => known.1 = value,
            None => {
                self.variables.insert(name.to_owned(), list.len());
                list.push((name.to_owned(), value));
            }
        }
        Ok(JsvAction::Next)
    }

    fn result(&mut self, rest: &str) -> Result<JsvAction, String> {
        let rest = rest.strip_prefix("STATE ").ok_or_else(|| unknown(rest))?;
        let (word, message) = rest.split_once(' ').unwrap_or((rest, ""));
        let state = match word {
            "ACCEPT" => JsvDecision::Accept,
            "CORRECT" => JsvDecision::Correct,
            "REJECT" => JsvDecision::Reject,
            "REJECT_WAIT" => JsvDecision::RejectWait,
            _ => return Err(unknown(rest)),
        };
        let nothing = Outcome {
            state,
            message: visible(message).into_owned(),
            parameters: Vec::new(),
            environment: Vec::new(),
        };
        let changed = std::mem::replace(&mut self.changed, nothing.clone());
        Ok(JsvAction::Ended(match state {
            JsvDecision::Correct => Outcome {
                parameters: changed.parameters,
                environment: changed.environment,
                ..nothing
            },
            JsvDecision::Accept | JsvDecision::Reject | JsvDecision::RejectWait => nothing,
        }))
    }
}

fn log(rest: &str) -> Result<JsvAction, String> {
    let (word, text) = rest.split_once(' ').unwrap_or((rest, ""));
    let level = match word {
        "INFO" => Level::Info,
        "WARNING" => Level::Warning,
        "ERROR" => Level::Error,
        _ => return Err(unknown(&format!("LOG {rest}"))),
    };
    Ok(JsvAction::Log(level, visible(text).into_owned()))
}

/// In Grid Engine's words.
fn unknown(line: &str) -> String {
    let word = line.split(' ').next().unwrap_or_default();
    format!(
        "master got unknown command from JSV: \"{:.80}\"",
        visible(word)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> JsvRequest {
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        JsvRequest {
            parameters: [("VERSION", "1.0"), ("N", "a\nPARAM P root"), ("b d", "x")]
                .map(pair)
                .into(),
            environment: [("FOO", "bar"), ("LONG", "a\nENV ADD X y"), ("N\nM", "x")]
                .map(pair)
                .into(),
        }
    }

    /// Answers to lines of a verifier's, and its outcome.
    fn run(lines: &[&str]) -> (Vec<String>, Result<Outcome, String>) {
        let (mut verification, first) = Verification::begin(asked());
        let mut said = vec![first.to_owned()];
        for line in lines {
            match verification.take(line) {
                Ok(JsvAction::Next) => {}
                Ok(JsvAction::Write(text)) => said.push(text),
                Ok(JsvAction::Log(_, text)) => said.push(format!("log {text}")),
                Ok(JsvAction::Ended(outcome)) => return (said, Ok(outcome)),
                Err(why) => return (said, Err(why)),
            }
        }
        (said, Err("it goes on".to_owned()))
    }

    #[test]
    fn values_of_users_make_no_lines() {
        let (said, _) = run(&["SEND ENV", "STARTED"]);
        let text = "PARAM VERSION 1.0\nPARAM N a PARAM P root\nENV ADD FOO bar\nENV ADD LONG a\\nENV ADD X y\nBEGIN\n";
        assert_eq!(said, ["START\n", text]);
        let (said, _) = run(&["STARTED"]);
        assert_eq!(
            said[1],
            "PARAM VERSION 1.0\nPARAM N a PARAM P root\nBEGIN\n"
        );
    }

    #[test]
    fn changes_count_where_they_are_meant() {
        let changes = [
            "STARTED",
            "PARAM N x",
            "PARAM N new name",
            "PARAM P",
            "ENV DEL FOO",
            "ENV ADD A 1 2",
        ];
        let end = |state: &str| {
            let lines: Vec<&str> = changes.into_iter().chain([state]).collect();
            run(&lines).1.unwrap()
        };
        let outcome = end("RESULT STATE CORRECT for you");
        assert_eq!(
            (outcome.state, outcome.message.as_str()),
            (JsvDecision::Correct, "for you")
        );
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        assert_eq!(outcome.parameters, [("N", "new name"), ("P", "")].map(pair));
        let removed = ("FOO".to_owned(), None);
        assert_eq!(
            outcome.environment,
            [removed, ("A".to_owned(), Some("1 2".to_owned()))]
        );
        assert_eq!(end("RESULT STATE ACCEPT").parameters, []);
        assert_eq!(
            end("RESULT STATE REJECT_WAIT later").state,
            JsvDecision::RejectWait
        );
    }

    #[test]
    fn what_is_not_the_protocols_is_an_error_that_names_it() {
        for lines in [
            &["ERROR something broke"][..],
            &["STARTED", "ERROR x"],
            &["PARAM N early"],
            &["STARTED", "STARTED"],
            &["STARTED", "RESULT STATE MAYBE"],
            &["STARTED", "RESULT ACCEPT"],
            &["STARTED", "ENV SET A b"],
            &["STARTED", "ENV ADD A=B c"],
            &["STARTED", "PARAM"],
            &["STARTED", "LOG LOUD x"],
            &["STARTED", "PARAM USER root"],
            &["\u{1b}[2J"],
        ] {
            let why = run(lines).1.unwrap_err();
            assert!(why.contains("JSV"), "{lines:?}: {why}");
        }
        let many = vec!["LOG INFO x"; LINES_MAX + 1];
        assert!(run(&many).1.unwrap_err().contains("more than one job"));
    }
}
