//! JSON and YAML output: a streaming writer, so that ten thousand jobs never are one value in memory, and the
//! dialects that clients read: Slurm 22.05's (`v0.0.38`), the one since 23.11 with its `set`/`infinite` numbers, and that of
//! 23.02 (`v0.0.39`), which has these numbers, but plain times, states and exit statuses as 22.05.

use super::Failure;
use super::context::Ctx;
use super::text::put;
use crate::SLURM_VERSION;
use crate::options::{Parsed, Spec};
use muster_conf::endpoint;
use muster_model::job::ExitStatus;
use muster_model::time::Timestamp;

/// Which layout, and how it is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// Minor number of the data parser: 38 and later.
    version: u32,
    yaml: bool,
    /// JSON without line breaks and blanks: `SLURM_JSON=compact`.
    is_compact: bool,
}

/// Version that commands write by default.
const NEWEST: u32 = 43;
/// All of them.
pub(crate) const VERSIONS: [u32; 8] = [38, 39, 40, 41, 42, 43, 44, 45];

/// The versions of documents, where the options ask for them.
pub(crate) fn versions(parsed: &Parsed) -> Option<String> {
    let mut asked = parsed.options.iter().filter(|(name, value)| {
        matches!(*name, "json" | "yaml") && value.as_deref() == Some("list")
    });
    asked.next().map(|_| Dialect::list())
}

/// Text that a listing prints instead of itself, where its options ask for that: help, version, versions of documents.
pub(crate) fn information(spec: &Spec, parsed: &Parsed) -> Option<String> {
    parsed.options.iter().find_map(|(name, value)| match *name {
        "help" => Some(spec.help()),
        "usage" => Some(spec.usage()),
        "version" => Some(format!("slurm {SLURM_VERSION}\n")),
        "json" | "yaml" if value.as_deref() == Some("list") => Some(Dialect::list()),
        _ => None,
    })
}

impl Dialect {
    /// The newest.
    pub(crate) fn newest(yaml: bool) -> Dialect {
        Dialect {
            version: NEWEST,
            yaml,
            is_compact: false,
        }
    }

    /// The layout of a version, if there is one.
    pub(crate) fn of_version(version: u32, yaml: bool) -> Option<Dialect> {
        let known = VERSIONS.contains(&version);
        known.then_some(Dialect {
            version,
            ..Dialect::newest(yaml)
        })
    }

    /// Reads the value of `--json` or `--yaml`. Without one, the site's `DataParserParameters` counts, else the newest version.
    pub(crate) fn parse(command: &str, yaml: bool, value: &str) -> Result<Dialect, Failure> {
        let by_site = || endpoint::read(&endpoint::conf_path()).ok()?.data_parser;
        let (asked, setting) = match value {
            "" => (by_site().unwrap_or_default(), "DataParserParameters: "),
            _ => (value.to_owned(), ""),
        };
        let serializer = std::env::var("SLURM_JSON").unwrap_or_default();
        let parsed = Dialect::of_parser(yaml, &asked).ok_or_else(|| {
            Failure::new(format!(
                "{command}: error: {setting}no data parser {asked}; --json=list names those there are"
            ))
        })?;
        Ok(parsed.serialized(&serializer))
    }

    /// The dialect of a parser by its name, with or without the kind of plugin and flags; empty is the newest.
    fn of_parser(yaml: bool, name: &str) -> Option<Dialect> {
        let name = name.strip_prefix("data_parser/").unwrap_or(name);
        let name = name.split('+').next().unwrap_or(name);
        match name {
            "" => Some(Dialect::newest(yaml)),
            _ => Dialect::of_version(name.strip_prefix("v0.0.")?.parse().ok()?, yaml),
        }
    }

    /// As `SLURM_JSON` has it; of its flags, the last of `compact` and `pretty` counts.
    fn serialized(self, flags: &str) -> Dialect {
        let mut known = flags.split(',').map(str::trim);
        let form = known.rfind(|flag| ["compact", "pretty"].contains(flag));
        Dialect {
            is_compact: form == Some("compact") && !self.yaml,
            ..self
        }
    }

    /// Output of `--json=list`.
    pub(crate) fn list() -> String {
        let mut text = String::from("Possible data_parser plugins:\n");
        for version in VERSIONS {
            put!(text, "data_parser/v0.0.{version}\n");
        }
        text
    }

    /// Minor number of its version.
    pub(crate) fn number(self) -> u32 {
        self.version
    }

    /// Whether it is written as YAML.
    pub(crate) fn is_yaml(self) -> bool {
        self.yaml
    }

    /// Slurm 22.05's layout.
    pub(crate) fn is_old(self) -> bool {
        self.version < 39
    }
}

/// Writes one document.
pub(crate) struct Writer<'o> {
    out: &'o mut String,
    dialect: Dialect,
    depth: usize,
    /// Something was written at this depth.
    filled: bool,
    /// Takes the text so far, at every record and when it is long; absent where the whole is wanted.
    drain: Option<&'o mut dyn FnMut(&str)>,
}

/// Bytes after which the text so far is handed on.
const DRAIN_BYTES: usize = 1 << 16;
const BLANKS: &str = "                                                                ";

/// The requester, as a document names it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DocumentReader {
    /// Where the request came from; empty for a command.
    pub(crate) source: String,
    /// The user's name.
    pub(crate) user: String,
    /// The user's group.
    pub(crate) group: String,
}

/// Something that went wrong, as a document tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Slurm's number of the error.
    pub(crate) number: i32,
    /// Slurm's text for that number.
    pub(crate) text: String,
    /// Description of the error.
    pub(crate) description: String,
    /// Which part of the request, or which call, it came from.
    pub(crate) source: String,
}

/// Something that a user should know though the request was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remark {
    /// Text of the remark.
    pub(crate) description: String,
    /// Which part of the request it is about.
    pub(crate) source: String,
}

/// Parts of a document beside its main part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Envelope<'a> {
    /// The command that prints it; empty for an answer of slurmrestd.
    pub(crate) command: &'a str,
    /// The requester; the user of this process if absent.
    pub(crate) asker: Option<&'a DocumentReader>,
    /// It comes from accounting.
    pub(crate) is_of_accounting: bool,
    /// Errors.
    pub(crate) errors: &'a [Problem],
    /// Warnings for the user.
    pub(crate) warnings: &'a [Remark],
}

impl<'a> Envelope<'a> {
    /// Envelope of a command.
    pub(crate) fn of_command(command: &'a str) -> Envelope<'a> {
        Envelope {
            command,
            is_of_accounting: command == "sacct",
            ..Envelope::default()
        }
    }
}

/// Prints a document part by part: ten thousand jobs are as many pages of memory as ten.
pub(crate) fn print_document(
    dialect: Dialect,
    command: &str,
    ctx: &Ctx,
    body: impl FnOnce(&mut Writer<'_>),
) {
    let mut out = String::with_capacity(DRAIN_BYTES + (1 << 14));
    let envelope = Envelope::of_command(command);
    let mut print = super::print;
    write_document(&mut out, Some(&mut print), dialect, &envelope, ctx, body);
    super::print(&out);
}

/// Writes a document whose main part is `body`, with the parts that every answer has.
pub(crate) fn document(
    out: &mut String,
    dialect: Dialect,
    command: &str,
    ctx: &Ctx,
    body: impl FnOnce(&mut Writer<'_>),
) {
    enveloped(out, dialect, &Envelope::of_command(command), ctx, body);
}

/// As above, with a given envelope instead of the command's.
pub(crate) fn enveloped(
    out: &mut String,
    dialect: Dialect,
    envelope: &Envelope<'_>,
    ctx: &Ctx,
    body: impl FnOnce(&mut Writer<'_>),
) {
    write_document(out, None, dialect, envelope, ctx, body);
}

/// As above, handed on in parts while it is written. The rest stays in `out`.
pub(crate) fn enveloped_in_parts(
    out: &mut String,
    drain: &mut dyn FnMut(&str),
    dialect: Dialect,
    envelope: &Envelope<'_>,
    ctx: &Ctx,
    body: impl FnOnce(&mut Writer<'_>),
) {
    write_document(out, Some(drain), dialect, envelope, ctx, body);
}

fn write_document<'o>(
    out: &'o mut String,
    drain: Option<&'o mut (dyn FnMut(&str) + 'o)>,
    dialect: Dialect,
    envelope: &Envelope<'_>,
    ctx: &Ctx,
    body: impl FnOnce(&mut Writer<'_>),
) {
    if dialect.yaml {
        out.push_str("---\n");
    }
    let mut w = Writer {
        out,
        dialect,
        depth: 0,
        filled: false,
        drain,
    };
    w.open('{');
    if dialect.is_old() {
        old_meta(&mut w, envelope);
        errors(&mut w, envelope.errors);
        body(&mut w);
    } else {
        body(&mut w);
        new_meta(&mut w, envelope, ctx);
        errors(&mut w, envelope.errors);
        w.list("warnings", |w| {
            for remark in envelope.warnings {
                w.item(|w| {
                    w.text("description", &remark.description);
                    w.text("source", &remark.source);
                });
            }
        });
    }
    w.close('}');
    w.out.push('\n');
}

fn release() -> [&'static str; 3] {
    let mut parts = SLURM_VERSION.split('.').map(|p| p.trim_start_matches('0'));
    [(); 3].map(|()| parts.next().unwrap_or("0"))
}

fn errors(w: &mut Writer<'_>, problems: &[Problem]) {
    w.list("errors", |w| {
        for problem in problems {
            w.item(|w| {
                w.text("description", &problem.description);
                w.raw("error_number", problem.number);
                if w.is_old() {
                    // Answers of 22.05 have it by this name, too.
                    w.raw("error_code", problem.number);
                }
                w.text("error", &problem.text);
                w.text("source", &problem.source);
            });
        }
    });
}

fn old_meta(w: &mut Writer<'_>, envelope: &Envelope<'_>) {
    let (kind, name) = if envelope.is_of_accounting {
        ("openapi/dbv0.0.38", "Slurm OpenAPI DB v0.0.38")
    } else {
        ("openapi/v0.0.38", "Slurm OpenAPI v0.0.38")
    };
    w.map("meta", |w| {
        w.map("plugin", |w| {
            w.text("type", kind);
            w.text("name", name);
        });
        w.map("Slurm", |w| {
            w.map("version", |w| {
                let [major, minor, micro] = release();
                w.raw("major", major);
                w.raw("micro", micro);
                w.raw("minor", minor);
            });
            w.text("release", SLURM_VERSION);
        });
    });
}

fn new_meta(w: &mut Writer<'_>, envelope: &Envelope<'_>, ctx: &Ctx) {
    let version = w.dialect.version;
    let plugin = match (envelope.command.is_empty(), envelope.is_of_accounting) {
        (false, _) => ("", "", ""),
        (true, false) => ("openapi/slurmctld", "Slurm OpenAPI slurmctld", ""),
        (true, true) => (
            "openapi/slurmdbd",
            "Slurm OpenAPI slurmdbd",
            "accounting_storage/slurmdbd",
        ),
    };
    w.map("meta", |w| {
        w.map("plugin", |w| {
            w.text("type", plugin.0);
            w.text("name", plugin.1);
            w.text("data_parser", &format!("data_parser/v0.0.{version}"));
            w.text("accounting_storage", plugin.2);
        });
        w.map("client", |w| match envelope.asker {
            Some(asker) => {
                w.text("source", &asker.source);
                w.text("user", &asker.user);
                w.text("group", &asker.group);
            }
            None => {
                let (uid, gid) = (
                    nix::unistd::getuid().as_raw(),
                    nix::unistd::getgid().as_raw(),
                );
                w.text("source", "");
                w.text("user", &ctx.user_name(uid));
                w.text("group", &super::context::group_name(gid));
            }
        });
        w.list("command", |w| {
            if !envelope.command.is_empty() {
                w.item_text(envelope.command);
            }
        });
        w.map("slurm", |w| {
            w.map("version", |w| {
                let [major, minor, micro] = release();
                w.text("major", major);
                w.text("micro", micro);
                w.text("minor", minor);
            });
            w.text("release", SLURM_VERSION);
            w.text("cluster", &ctx.cluster);
        });
    });
}

impl Writer<'_> {
    /// The layout.
    pub(crate) fn is_old(&self) -> bool {
        self.dialect.is_old()
    }

    /// Minor number of the data parser.
    pub(crate) fn version(&self) -> u32 {
        self.dialect.version
    }

    /// Whether times and states are plain values, as before v0.0.40.
    pub(crate) fn has_plain_states(&self) -> bool {
        self.version() < 40
    }

    fn open(&mut self, bracket: char) {
        if !self.dialect.yaml {
            self.out.push(bracket);
        }
        self.depth += 1;
        self.filled = false;
    }

    fn close(&mut self, bracket: char) {
        self.depth -= 1;
        if self.dialect.yaml {
            if !self.filled {
                self.out
                    .push_str(if bracket == '}' { " {}" } else { " []" });
            }
        } else {
            self.new_line();
            self.out.push(bracket);
        }
        self.filled = true;
    }

    fn new_line(&mut self) {
        if self.dialect.is_compact {
            return;
        }
        self.out.push('\n');
        let depth = if self.dialect.yaml {
            self.depth.saturating_sub(1)
        } else {
            self.depth
        };
        self.out.push_str(&BLANKS[..(2 * depth).min(BLANKS.len())]);
    }

    /// Begins a member or an item.
    fn next(&mut self) {
        if self.dialect.yaml {
            // The first line of the document follows the mark that begins it.
            if !self.out.ends_with("---\n") {
                self.new_line();
            }
        } else {
            if self.filled {
                self.out.push(',');
            }
            self.new_line();
        }
        self.filled = true;
    }

    fn key(&mut self, key: &str) {
        self.next();
        if self.dialect.yaml {
            self.out.push_str(key);
            self.out.push(':');
        } else {
            self.out.push('"');
            self.out.push_str(key);
            self.out.push_str(match self.dialect.is_compact {
                true => "\":",
                false => "\": ",
            });
        }
    }

    fn blank(&mut self) {
        if self.dialect.yaml {
            self.out.push(' ');
        }
    }

    /// A member that is a map.
    pub(crate) fn map(&mut self, key: &str, body: impl FnOnce(&mut Self)) {
        self.key(key);
        self.open('{');
        body(self);
        self.close('}');
    }

    /// A member that is a list.
    pub(crate) fn list(&mut self, key: &str, body: impl FnOnce(&mut Self)) {
        self.key(key);
        self.open('[');
        body(self);
        self.close(']');
    }

    /// An item that is a map.
    pub(crate) fn item(&mut self, body: impl FnOnce(&mut Self)) {
        self.next();
        if self.dialect.yaml {
            self.out.push('-');
        }
        self.open('{');
        body(self);
        self.close('}');
        if let Some(drain) = &mut self.drain
            && self.out.len() >= DRAIN_BYTES
        {
            drain(self.out);
            self.out.clear();
        }
    }

    /// An item that is a list.
    pub(crate) fn item_list(&mut self, body: impl FnOnce(&mut Self)) {
        self.next();
        if self.dialect.yaml {
            self.out.push('-');
        }
        self.open('[');
        body(self);
        self.close(']');
    }

    /// An item that is a text.
    pub(crate) fn item_text(&mut self, text: &str) {
        self.next();
        if self.dialect.yaml {
            self.out.push_str("- ");
        }
        self.quoted(text);
    }

    /// A member that is a text.
    pub(crate) fn text(&mut self, key: &str, text: &str) {
        self.key(key);
        self.blank();
        self.quoted(text);
    }

    /// A member that is a text or absent, which is an empty text.
    pub(crate) fn text_or_empty(&mut self, key: &str, text: Option<&str>) {
        self.text(key, text.unwrap_or(""));
    }

    /// A member whose value is written as it is: a number, `true`, `null`.
    pub(crate) fn raw(&mut self, key: &str, value: impl std::fmt::Display) {
        self.key(key);
        self.blank();
        put!(self.out, "{value}");
    }

    /// A member that is true or false.
    pub(crate) fn truth(&mut self, key: &str, value: bool) {
        self.key(key);
        self.blank();
        self.out.push_str(if value { "true" } else { "false" });
    }

    /// A member that is a number.
    fn count(&mut self, key: &str, number: u64) {
        self.key(key);
        self.blank();
        match u8::try_from(number) {
            // Most are of one digit.
            Ok(digit @ 0..=9) => self.out.push(char::from(b'0' + digit)),
            _ => put!(self.out, "{number}"),
        }
    }

    /// A list of texts.
    pub(crate) fn texts<S: AsRef<str>>(&mut self, key: &str, texts: impl IntoIterator<Item = S>) {
        self.list(key, |w| {
            texts.into_iter().for_each(|t| w.item_text(t.as_ref()))
        });
    }

    /// A number that may be unset: an object in the new layout; in the old one the number, or `none` without one.
    pub(crate) fn number(&mut self, key: &str, value: Option<u64>, none: &str) {
        if !self.is_old() {
            return self.limit(key, value, false);
        }
        match value {
            Some(number) => self.count(key, number),
            None => self.raw(key, none),
        }
    }

    /// The new layout's object for numbers.
    pub(crate) fn limit(&mut self, key: &str, value: Option<u64>, infinite: bool) {
        self.map(key, |w| {
            w.truth("set", value.is_some());
            w.truth("infinite", infinite);
            w.count("number", value.unwrap_or(0));
        });
    }

    /// A time in seconds since 1970; 0 without one.
    pub(crate) fn time(&mut self, key: &str, at: Option<Timestamp>) {
        let seconds = at.map_or(0, |t| u64::try_from(t.unix_s()).unwrap_or(0));
        if self.has_plain_states() {
            self.count(key, seconds);
        } else {
            self.limit(key, Some(seconds), false);
        }
    }

    /// An exit status; `pending` if there is none yet.
    pub(crate) fn exit(&mut self, key: &str, exit: ExitStatus, pending: bool) {
        let status = if pending {
            "PENDING"
        } else if exit.signal > 0 {
            "SIGNALED"
        } else if exit.code > 0 {
            "ERROR"
        } else {
            "SUCCESS"
        };
        self.map(key, |w| {
            if w.has_plain_states() {
                w.text("status", status);
                w.raw("return_code", exit.code);
                if exit.signal > 0 {
                    w.map("signal", |w| {
                        w.raw("signal_id", exit.signal);
                        w.text("name", signal_name(exit.signal));
                    });
                }
                return;
            }
            w.texts("status", [status]);
            w.limit("return_code", Some(u64::from(exit.code)), false);
            w.map("signal", |w| {
                let id = Some(u64::from(exit.signal)).filter(|s| *s > 0);
                w.limit("id", id, false);
                w.text("name", signal_name(exit.signal));
            });
        });
    }

    fn quoted(&mut self, text: &str) {
        self.out.push('"');
        let mut rest = text;
        // Most texts have nothing to escape and are copied in one piece.
        let special = |b: u8| matches!(b, b'"' | b'\\' | b'/') || b < b' ';
        while let Some(at) = rest.bytes().position(special) {
            self.out.push_str(&rest[..at]);
            let mut chars = rest[at..].chars();
            match chars.next() {
                Some('\n') => self.out.push_str("\\n"),
                Some('\t') => self.out.push_str("\\t"),
                Some('\r') => self.out.push_str("\\r"),
                // Slurm's JSON has a backslash there; YAML knows it too.
                Some(c @ ('"' | '\\' | '/')) => {
                    self.out.push('\\');
                    self.out.push(c);
                }
                Some(c) => put!(self.out, "\\u{:04x}", u32::from(c)),
                None => {}
            }
            rest = chars.as_str();
        }
        self.out.push_str(rest);
        self.out.push('"');
    }
}

fn signal_name(number: u32) -> &'static str {
    i32::try_from(number)
        .ok()
        .and_then(|n| nix::sys::signal::Signal::try_from(n).ok())
        .map_or("", |s| s.as_str().trim_start_matches("SIG"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;

    fn show(dialect: Dialect) -> String {
        let mut out = String::new();
        document(
            &mut out,
            dialect,
            "squeue",
            &Ctx::bare("c", TimeZone::UTC),
            |w| {
                w.list("jobs", |w| {
                    w.item(|w| {
                        w.text("name", "a\"b/\n");
                        w.number("array_task_id", None, "null");
                        w.list("flags", |_| {});
                    });
                    w.item(|w| w.raw("nice", 5));
                });
            },
        );
        out
    }

    #[test]
    fn old_layout_is_json_as_slurm_writes_it() {
        let text = show(Dialect::parse("squeue", false, "v0.0.38").unwrap());
        assert!(
            text.starts_with(
                "{\n  \"meta\": {\n    \"plugin\": {\n      \"type\": \"openapi\\/v0.0.38\",\n"
            ),
            "{text}"
        );
        assert!(text.contains("  \"errors\": [\n  ],\n  \"jobs\": [\n    {\n      \"name\": \"a\\\"b\\/\\n\",\n      \"array_task_id\": null,\n      \"flags\": [\n      ]\n    },\n    {\n"), "{text}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
    }

    #[test]
    fn new_layout_has_objects_for_numbers() {
        let value: serde_json::Value = serde_json::from_str(&show(Dialect::newest(false))).unwrap();
        assert_eq!(value["jobs"][0]["array_task_id"]["set"], false);
        assert_eq!(value["meta"]["slurm"]["release"], SLURM_VERSION);
        assert_eq!(
            value["meta"]["plugin"]["data_parser"],
            "data_parser/v0.0.43"
        );
    }

    #[test]
    fn yaml_is_indented_blocks() {
        let text = show(Dialect::newest(true));
        assert!(text.starts_with("---\njobs:\n  -\n    name: \"a\\\"b\\/\\n\"\n    array_task_id:\n      set: false\n"), "{text}");
        assert!(
            text.contains("\n    flags: []\n  -\n    nice: 5\nmeta:\n"),
            "{text}"
        );
    }

    #[test]
    fn json_is_compact_where_the_environment_says_so() {
        let newest = Dialect::newest(false);
        let pretty = show(newest);
        for flags in ["", "pretty", "compact,pretty", "other"] {
            assert_eq!(show(newest.serialized(flags)), pretty, "{flags}");
        }
        let compact = show(newest.serialized("pretty, compact"));
        assert!(
            compact.starts_with(
                "{\"jobs\":[{\"name\":\"a\\\"b\\/\\n\",\"array_task_id\":{\"set\":false,"
            ),
            "{compact}"
        );
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&compact), value(&pretty));
        assert_eq!(compact.lines().count(), 1);
        let yaml = Dialect::newest(true);
        assert_eq!(show(yaml.serialized("compact")), show(yaml));
    }

    #[test]
    fn unknown_parsers_are_refused() {
        assert!(Dialect::parse("squeue", false, "v0.0.99").is_err());
        assert!(Dialect::parse("squeue", false, "data_parser/v0.0.41+fast").is_ok());
    }
}
