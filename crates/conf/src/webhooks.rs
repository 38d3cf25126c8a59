//! `webhooks.conf`, beside slurm.conf: addresses that the controller sends notices of jobs and nodes to. It is an administrator's file:
//! no user names an address. Nothing here reads a file.

use crate::diagnostic::{Diagnostic, Origin, Severity};
use muster_model::visible_text::is_control;
use std::path::PathBuf;
use std::sync::Arc;

/// The file's name.
pub const FILE: &str = "webhooks.conf";

/// Lines of the file, their forms and meanings, for messages and pages about it.
pub const LINES: [(&str, &str, &str); 7] = [
    (
        "webhook",
        "a name of letters, digits, - and _",
        "begins a webhook",
    ),
    (
        "url",
        "http://HOST/... or https://HOST/...",
        "where notices are sent",
    ),
    (
        "key",
        "an absolute path",
        "the file with the key that signs them, which only the controller's user and root may read",
    ),
    (
        "format",
        "notices or otlp",
        "notices (default), or traces of jobs as OpenTelemetry has them, which need no key",
    ),
    (
        "events",
        "EVENT,EVENT,...",
        "which notices are sent (default job_started,job_ended,node_down,node_drain,node_up)",
    ),
    (
        "partitions",
        "NAME,NAME,...",
        "only jobs in these (default all)",
    ),
    ("users", "NAME,NAME,...", "only jobs of these (default all)"),
];

/// Notices by their names.
pub const EVENTS: [&str; 11] = [
    "job_submitted",
    "job_updated",
    "job_started",
    "job_ending",
    "job_ended",
    "job_requeued",
    "job_suspended",
    "job_resumed",
    "node_down",
    "node_drain",
    "node_up",
];

/// Notices of which traces are made.
const TRACED: [&str; 2] = ["job_started", "job_ended"];

const USUAL: [&str; 5] = [
    "job_started",
    "job_ended",
    "node_down",
    "node_drain",
    "node_up",
];

/// Webhooks of a cluster: each has a thread and files of its own.
pub const WEBHOOKS_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 32;
const URL_BYTES_MAX: usize = 2048;
const NAMES_MAX: usize = 1000;

/// Form of the data sent to an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WebhookFormat {
    /// Notices.
    #[default]
    Notices,
    /// Spans of jobs that have started or are over, as JSON of OTLP (OpenTelemetry).
    Traces,
}

/// An address that notices are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    /// Its name, which its files have too.
    pub name: String,
    /// Where notices are sent.
    pub url: String,
    /// The file with the key that signs them.
    pub key: PathBuf,
    /// Form of its data.
    pub format: WebhookFormat,
    /// Names of notices.
    pub events: Vec<String>,
    /// Partitions of jobs; empty is all.
    pub partitions: Vec<String>,
    /// Owners of jobs; empty is all.
    pub users: Vec<String>,
}

impl WebhookSettings {
    /// Whether it is sent notices of this name.
    pub fn wants(&self, event: &str) -> bool {
        match self.format {
            WebhookFormat::Notices => self.events.iter().any(|own| own == event),
            WebhookFormat::Traces => TRACED.contains(&event),
        }
    }

    fn read(&mut self, key: &str, value: &str) -> Result<(), String> {
        let Some((_, form, _)) = LINES.iter().find(|(name, ..)| *name == key) else {
            return Err(format!("there is no line '{key}'"));
        };
        let wrong = || format!("{key} {value:.80}: {form} is expected");
        match key {
            "url" => {
                let host = ["http://", "https://"]
                    .iter()
                    .find_map(|scheme| value.strip_prefix(scheme));
                let is_plain = |b: u8| b.is_ascii_graphic();
                // A name and password there would be in logs; a # part is not sent.
                let is_url = host.is_some_and(|rest| {
                    let authority = rest.split(['/', '?']).next().unwrap_or_default();
                    !authority.is_empty() && !authority.contains('@') && !rest.contains('#')
                });
                if !is_url || value.len() > URL_BYTES_MAX || !value.bytes().all(is_plain) {
                    return Err(wrong());
                }
                value.clone_into(&mut self.url);
            }
            "key" => {
                if !value.starts_with('/') || value.contains(is_control) {
                    return Err(wrong());
                }
                self.key = PathBuf::from(value);
            }
            "format" => {
                self.format = match value {
                    "notices" => WebhookFormat::Notices,
                    "otlp" => WebhookFormat::Traces,
                    _ => return Err(wrong()),
                }
            }
            "events" => {
                self.events = names(value).ok_or_else(wrong)?;
                let unknown = |name: &&String| !EVENTS.contains(&name.as_str());
                if let Some(name) = self.events.iter().find(unknown) {
                    return Err(format!(
                        "events: there is no '{name:.40}'; there are {}",
                        EVENTS.join(", ")
                    ));
                }
            }
            "partitions" => self.partitions = names(value).ok_or_else(wrong)?,
            _ => self.users = names(value).ok_or_else(wrong)?,
        }
        Ok(())
    }
}

fn names(value: &str) -> Option<Vec<String>> {
    let names: Vec<String> = value
        .split(',')
        .map(|name| name.trim().to_owned())
        .collect();
    let is_name = |name: &String| !name.is_empty() && !name.contains(is_control);
    (names.len() <= NAMES_MAX && names.iter().all(is_name)).then_some(names)
}

/// Parses the text of a file of this name, with findings.
pub fn parse(text: &str, file: &str) -> (Vec<WebhookSettings>, Vec<Diagnostic>) {
    let (mut made, mut findings) = (Vec::new(), Vec::new());
    let file: Arc<str> = file.into();
    let mut at = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let value = value.trim();
        let read = match (key, made.last_mut()) {
            ("webhook", _) => begin(&mut made, value).inspect(|()| at.push(number)),
            (_, Some(webhook)) => webhook.read(key, value),
            (_, None) => Err(format!("'{key}' is before the first webhook")),
        };
        if let Err(message) = read {
            findings.push(finding(&file, number, key, message));
        }
    }
    for (webhook, line) in made.iter().zip(at) {
        for (key, is_absent) in [
            ("url", webhook.url.is_empty()),
            (
                "key",
                webhook.key.as_os_str().is_empty() && webhook.format == WebhookFormat::Notices,
            ),
        ] {
            if is_absent {
                let text = format!("webhook {} has no {key}", webhook.name);
                findings.push(finding(&file, line, key, text));
            }
        }
    }
    (made, findings)
}

fn begin(made: &mut Vec<WebhookSettings>, name: &str) -> Result<(), String> {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_name) {
        return Err(format!(
            "webhook {name:.80}: a name of at most {NAME_BYTES_MAX} letters, digits, - and _ is expected"
        ));
    }
    if made.iter().any(|webhook| webhook.name == name) {
        return Err(format!("webhook {name} is there already"));
    }
    if made.len() >= WEBHOOKS_MAX {
        return Err(format!(
            "webhook {name}: there are {WEBHOOKS_MAX} webhooks already"
        ));
    }
    made.push(WebhookSettings {
        name: name.to_owned(),
        url: String::new(),
        key: PathBuf::new(),
        format: WebhookFormat::default(),
        events: USUAL.map(str::to_owned).to_vec(),
        partitions: Vec::new(),
        users: Vec::new(),
    });
    Ok(())
}

fn finding(file: &Arc<str>, line: u32, key: &str, message: String) -> Diagnostic {
    let names: Vec<&str> = LINES.iter().map(|(name, ..)| *name).collect();
    Diagnostic {
        severity: Severity::Error,
        origin: Origin {
            file: Arc::clone(file),
            line,
            column: 0,
        },
        key: key.to_owned(),
        message,
        help: format!("lines are {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_have_an_address_a_key_and_conditions() {
        let text = "# ours\nwebhook chat\nurl https://chat.example/hooks/1?x=2\nkey /etc/slurm/chat.key\nusers ada, bob\n\n\
                    webhook ops\nurl http://[::1]:8080\nkey /k\nevents node_down,job_ended\npartitions gpu\n";
        let (webhooks, findings) = parse(text, FILE);
        assert!(findings.is_empty(), "{findings:?}");
        let [chat, ops] = webhooks.as_slice() else {
            panic!("{webhooks:?}");
        };
        assert!(chat.wants("job_started") && !chat.wants("job_updated"));
        assert_eq!(chat.users, ["ada", "bob"]);
        assert!(ops.wants("node_down") && !ops.wants("node_up"));
        assert_eq!(ops.partitions, ["gpu"]);
    }

    #[test]
    fn traces_are_of_jobs_and_need_no_key() {
        let text =
            "webhook traces\nurl http://otel:4318/v1/traces\nformat otlp\nevents node_down\n";
        let (webhooks, findings) = parse(text, FILE);
        assert!(findings.is_empty(), "{findings:?}");
        assert!(webhooks[0].wants("job_started") && !webhooks[0].wants("node_down"));
        let (_, findings) = parse(&text.replace("otlp", "xml"), FILE);
        assert_eq!(findings.len(), 2, "{findings:?}");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let text = "url http://x\nwebhook a/b\nwebhook a\nurl ftp://x\nurl http://\nurl http://ada:secret@x/\nurl http://x/\u{7}\n\
                    key relative\nevents job_ended,lunch\nwebhook a\nnone x\nusers a,,b\n";
        let (_, findings) = parse(text, FILE);
        let lines: Vec<u32> = findings.iter().map(|finding| finding.origin.line).collect();
        assert_eq!(lines, [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 3, 3]);
        assert_eq!(findings[11].message, "webhook a has no url");
        let many: String = (0..20)
            .map(|n| format!("webhook w{n}\nurl http://x\nkey /k\n"))
            .collect();
        let (webhooks, findings) = parse(&many, FILE);
        assert_eq!(webhooks.len(), WEBHOOKS_MAX);
        assert!(!findings.is_empty());
    }
}
