//! `sge.conf`, beside slurm.conf: what names of Grid Engine (queues, parallel environments, complexes, projects) stand for here. It
//! is read by user commands, and by the controller for its verifier (`jsv_url`). Nothing here reads a file.

mod calendars;
pub mod edited;
mod host_groups;
mod pattern;
pub mod resources;
pub mod slots;

pub use self::host_groups::{ALL_HOSTS, HostGroup};
pub use self::pattern::fits;
use crate::diagnostic::{Diagnostic, Origin, Severity};
use muster_model::calendar::Calendar;
use muster_model::limits::RESERVATION_USERS_MAX;
use std::sync::Arc;

/// The architecture of hosts, in Grid Engine's words.
pub const ARCH: &str = if cfg!(target_arch = "aarch64") {
    "lx-arm64"
} else {
    "lx-amd64"
};

/// The file's name.
pub const FILE: &str = "sge.conf";

/// Syntax after each keyword, for messages and for the page about the file.
pub const FORMS: [(&str, &str); 12] = [
    ("queue", "NAME PARTITION"),
    ("pe", "NAME $pe_slots|$fill_up|$round_robin|COUNT"),
    (
        "complex",
        "NAME gres:NAME[:TYPE] [host|slot|job] | license:NAME | feature:NAME | memory",
    ),
    ("project", "NAME ACCOUNT"),
    ("hostgroup", "@NAME HOST|@NAME ..."),
    ("calendar", "NAME [year ENTRY ...] [week ENTRY ...]"),
    ("queue_calendar", "QUEUE CALENDAR"),
    ("jsv_url", "[script:]/PATH"),
    ("jsv_allowed_mod", "OPTION[,OPTION...]|none"),
    ("arusers", "USER|@GROUP ..."),
    ("job_tmpdir", "yes|no"),
    ("commands", "gridengine|torque"),
];

/// Options of qalter, without the dash, by which `jsv_allowed_mod` names what may be changed. `qos` and `wckey` are what Slurm has
/// beside them.
const MODIFIABLE: [&str; 40] = [
    "a",
    "ac",
    "A",
    "ar",
    "b",
    "binding",
    "c",
    "ckpt",
    "cwd",
    "display",
    "dl",
    "e",
    "h",
    "hard",
    "hold_jid",
    "hold_jid_ad",
    "i",
    "j",
    "js",
    "l",
    "m",
    "M",
    "masterq",
    "N",
    "notify",
    "now",
    "o",
    "p",
    "P",
    "pe",
    "q",
    "qos",
    "r",
    "R",
    "S",
    "shell",
    "tc",
    "w",
    "wckey",
    "wd",
];

/// Distribution of the slots of a parallel environment to hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationRule {
    /// All on one host.
    PeSlots,
    /// As many as there are on each host.
    FillUp,
    /// One on each host in turn.
    RoundRobin,
    /// So many on each host.
    Fixed(u32),
}

impl AllocationRule {
    /// The rule of a text, as `allocation_rule` has it.
    pub fn parse(text: &str) -> Option<AllocationRule> {
        match text {
            "$pe_slots" => Some(AllocationRule::PeSlots),
            "$fill_up" => Some(AllocationRule::FillUp),
            "$round_robin" => Some(AllocationRule::RoundRobin),
            _ => {
                let count = text.parse().ok().filter(|count| *count > 0);
                count.map(AllocationRule::Fixed)
            }
        }
    }

    /// As `allocation_rule` has it.
    pub fn text(self) -> String {
        match self {
            AllocationRule::PeSlots => "$pe_slots".to_owned(),
            AllocationRule::FillUp => "$fill_up".to_owned(),
            AllocationRule::RoundRobin => "$round_robin".to_owned(),
            AllocationRule::Fixed(count) => count.to_string(),
        }
    }
}

/// Unit for which an amount is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountedPer {
    /// Each host.
    Host,
    /// Each slot.
    Slot,
    /// The whole job.
    Job,
}

/// Slurm's equivalent of a complex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComplexTarget {
    /// A generic resource: `gpu` or `gpu:a100`.
    Gres(String, CountedPer),
    /// A license.
    License(String),
    /// A feature of nodes.
    Feature(String),
    /// Memory of a slot.
    Memory,
}

/// All of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Queue and partition.
    pub queues: Vec<(String, String)>,
    /// Parallel environments.
    pub pes: Vec<(String, AllocationRule)>,
    /// Complexes.
    pub complexes: Vec<(String, ComplexTarget)>,
    /// Project and account.
    pub projects: Vec<(String, String)>,
    /// Groups of hosts.
    pub host_groups: Vec<HostGroup>,
    /// Calendars.
    pub calendars: Vec<Calendar>,
    /// Queue and calendar.
    pub queue_calendars: Vec<(String, String)>,
    /// The program that verifies all submissions.
    pub jsv: Option<String>,
    /// Options of qalter that users may still change where `jsv` verifies submissions; all without the line.
    pub jsv_allowed_mod: Option<Vec<String>>,
    /// Users, and groups with `@` before them, who may reserve cores for themselves.
    pub reservation_users: Vec<String>,
    /// Whether jobs have a temporary directory to themselves in `TmpFS`; yes without the line.
    pub job_tmp_dirs: Option<bool>,
    /// Whether qsub, qstat, qdel, qalter, qhold and qrls are the commands of Torque.
    pub has_torque_commands: bool,
}

/// Whether a line of the file may begin so.
pub(crate) fn is_keyword(word: &str) -> bool {
    FORMS.iter().any(|(name, _)| *name == word)
}

impl Mapping {
    /// Reads the text of a file of this name. What is wrong is left out and said.
    pub fn parse(text: &str, file: &str) -> (Mapping, Vec<Diagnostic>) {
        let (mut mapping, mut findings) = (Mapping::default(), Vec::new());
        let file: Arc<str> = file.into();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            let Some((keyword, rest)) = words.split_first() else {
                continue;
            };
            if let Err(message) = mapping.take(keyword, rest) {
                let form = FORMS.iter().find(|(name, _)| name == keyword);
                findings.push(Diagnostic {
                    severity: Severity::Error,
                    origin: Origin {
                        file: Arc::clone(&file),
                        line: number,
                        column: 0,
                    },
                    key: (*keyword).to_owned(),
                    message,
                    help: match form {
                        Some((name, form)) => format!("write: {name} {form}"),
                        None => {
                            "a line begins with queue, pe, complex, project, hostgroup, calendar, queue_calendar, jsv_url, \
                             jsv_allowed_mod, arusers, job_tmpdir or commands"
                                .to_owned()
                        }
                    },
                });
            }
        }
        findings.extend(mapping.calendars_without_definition(&file));
        (mapping, findings)
    }

    fn take(&mut self, keyword: &str, words: &[&str]) -> Result<(), String> {
        let own = |text: &str| text.to_owned();
        let known = FORMS.iter().any(|(name, _)| *name == keyword);
        if keyword == "jsv_url" {
            return self.take_jsv(words);
        }
        if keyword == "jsv_allowed_mod" {
            return self.take_allowed_mod(words);
        }
        if keyword == "hostgroup" {
            return self.take_host_group(words);
        }
        if keyword == "calendar" {
            return self.take_calendar(words);
        }
        if keyword == "queue_calendar" {
            return self.take_queue_calendar(words);
        }
        if keyword == "arusers" {
            return self.take_reservation_users(words);
        }
        if keyword == "job_tmpdir" {
            return self.take_job_tmp_dirs(words);
        }
        if keyword == "commands" {
            return self.take_commands(words);
        }
        let (name, values) = match words.split_first() {
            _ if !known => return Err(format!("there is no keyword '{keyword}'")),
            Some((name, values)) if !values.is_empty() => (*name, values),
            _ => return Err(format!("'{keyword}' needs a name and what it stands for")),
        };
        let is_defined = match keyword {
            "queue" => self.queues.iter().any(|(known, _)| known == name),
            "pe" => self.pes.iter().any(|(known, _)| known == name),
            "complex" => self.complexes.iter().any(|(known, _)| known == name),
            _ => self.projects.iter().any(|(known, _)| known == name),
        };
        if is_defined {
            return Err(format!("{keyword} '{name}' is defined twice"));
        }
        if let (false, Some(word)) = (keyword == "complex", values.get(1)) {
            return Err(format!("'{word}' is one word too many"));
        }
        match keyword {
            "queue" => self.queues.push((own(name), own(values[0]))),
            "project" => self.projects.push((own(name), own(values[0]))),
            "pe" => self.pes.push((own(name), rule(values[0])?)),
            _ => self.complexes.push((own(name), target(values)?)),
        }
        Ok(())
    }

    fn take_jsv(&mut self, words: &[&str]) -> Result<(), String> {
        let [url] = words else {
            return Err("'jsv_url' needs one word".to_owned());
        };
        if self.jsv.is_some() {
            return Err("jsv_url is defined twice".to_owned());
        }
        self.jsv = match url.eq_ignore_ascii_case("none") {
            true => None,
            false => Some(jsv_path(url)?.to_owned()),
        };
        Ok(())
    }

    fn take_allowed_mod(&mut self, words: &[&str]) -> Result<(), String> {
        if words.is_empty() {
            return Err("'jsv_allowed_mod' needs options of qalter, or none".to_owned());
        }
        if self.jsv_allowed_mod.is_some() {
            return Err("jsv_allowed_mod is defined twice".to_owned());
        }
        let all = words.iter().flat_map(|word| word.split(','));
        let all: Vec<&str> = all.filter(|word| !word.is_empty()).collect();
        if let Some(word) = all
            .iter()
            .find(|word| **word != "none" && !MODIFIABLE.contains(word))
        {
            return Err(format!(
                "'{word}' is not an option of qalter that changes a job"
            ));
        }
        let named = all.into_iter().filter(|word| *word != "none");
        self.jsv_allowed_mod = Some(named.map(str::to_owned).collect());
        Ok(())
    }

    fn take_reservation_users(&mut self, words: &[&str]) -> Result<(), String> {
        if words.is_empty() {
            return Err("'arusers' needs names of users, or of groups with @".to_owned());
        }
        if self.reservation_users.len() + words.len() > RESERVATION_USERS_MAX {
            return Err(format!("arusers names more than {RESERVATION_USERS_MAX}"));
        }
        for word in words {
            let name = word.strip_prefix('@').unwrap_or(word);
            if name.is_empty() || name.contains(['@', ',', '*', '?']) {
                return Err(format!("'{word}' is neither a user nor a @group"));
            }
        }
        self.reservation_users
            .extend(words.iter().map(|word| (*word).to_owned()));
        Ok(())
    }

    fn take_commands(&mut self, words: &[&str]) -> Result<(), String> {
        self.has_torque_commands = match words {
            ["torque"] => true,
            ["gridengine"] => false,
            _ => return Err("'commands' needs one word, gridengine or torque".to_owned()),
        };
        Ok(())
    }

    fn take_job_tmp_dirs(&mut self, words: &[&str]) -> Result<(), String> {
        if self.job_tmp_dirs.is_some() {
            return Err("job_tmpdir is defined twice".to_owned());
        }
        self.job_tmp_dirs = match words {
            ["yes"] => Some(true),
            ["no"] => Some(false),
            _ => return Err("'job_tmpdir' needs one word, yes or no".to_owned()),
        };
        Ok(())
    }

    /// The rule of a parallel environment. Where the file names none at all, some usual names have their usual rules.
    pub fn rule(&self, pe: &str) -> Option<AllocationRule> {
        self.environments()
            .into_iter()
            .find(|(name, _)| name == pe)
            .map(|(_, rule)| rule)
    }

    /// All parallel environments that there are.
    pub fn environments(&self) -> Vec<(String, AllocationRule)> {
        if !self.pes.is_empty() {
            return self.pes.clone();
        }
        let one_host =
            ["openmp", "shm", "smp", "threaded"].map(|name| (name, AllocationRule::PeSlots));
        let many = ["make", "mpi", "mpich", "orte"].map(|name| (name, AllocationRule::FillUp));
        let all = one_host.into_iter().chain(many);
        all.map(|(name, rule)| (name.to_owned(), rule)).collect()
    }

    /// Slurm's equivalent of a complex.
    pub fn complex(&self, name: &str) -> Option<&ComplexTarget> {
        let found = self.complexes.iter().find(|(known, _)| known == name);
        found.map(|(_, target)| target)
    }

    /// Findings about queues whose partition is not there.
    pub fn queues_without_partition(
        &self,
        file: &str,
        is_there: impl Fn(&str) -> bool,
    ) -> Vec<Diagnostic> {
        let lost = self
            .queues
            .iter()
            .filter(|(_, partition)| !is_there(partition));
        let finding = |(queue, partition): &(String, String)| Diagnostic {
            severity: Severity::Warning,
            origin: Origin {
                file: file.into(),
                line: 0,
                column: 0,
            },
            key: "queue".to_owned(),
            message: format!("queue '{queue}' stands for '{partition}', which is not a partition"),
            help: "name a partition of slurm.conf".to_owned(),
        };
        lost.map(finding).collect()
    }

    /// The queue by which users know a partition.
    pub fn queue_of<'a>(&'a self, partition: &'a str) -> &'a str {
        let found = self.queues.iter().find(|(_, own)| own == partition);
        found.map_or(partition, |(queue, _)| queue)
    }
}

/// The program of a JSV's URL, `[type:][user@]path`.
///
/// # Errors
/// It is of another kind, or would run as another user.
pub fn jsv_path(url: &str) -> Result<&str, String> {
    let path = match url.split_once(':') {
        Some(("script", path)) => path,
        Some((kind, _)) if !kind.contains('/') => {
            return Err(format!("'{kind}' is not a type of JSV: the type is script"));
        }
        _ => url,
    };
    match path {
        _ if path.starts_with('/') => Ok(path),
        _ if path.contains("@/") => Err(format!(
            "'{path}' names a user: a JSV runs as the user who submits, that of sge.conf as SlurmUser"
        )),
        _ => Err(format!("'{path}' is not an absolute path of a program")),
    }
}

fn rule(text: &str) -> Result<AllocationRule, String> {
    AllocationRule::parse(text).ok_or_else(|| format!("'{text}' is not a valid allocation rule"))
}

fn target(words: &[&str]) -> Result<ComplexTarget, String> {
    let per = match words.get(1) {
        None | Some(&"host") => CountedPer::Host,
        Some(&"slot") => CountedPer::Slot,
        Some(&"job") => CountedPer::Job,
        Some(word) => return Err(format!("'{word}' is not one of host, slot and job")),
    };
    let is_gres = words[0].starts_with("gres:");
    if let Some(word) = words.get(if is_gres { 2 } else { 1 }) {
        return Err(format!("'{word}' is one word too many"));
    }
    match words[0].split_once(':') {
        Some((_, "")) => Err(format!("'{}' names nothing", words[0])),
        Some(("gres", name)) => Ok(ComplexTarget::Gres(name.to_owned(), per)),
        Some(("license", name)) => Ok(ComplexTarget::License(name.to_owned())),
        Some(("feature", name)) => Ok(ComplexTarget::Feature(name.to_owned())),
        None if words[0] == "memory" => Ok(ComplexTarget::Memory),
        _ => Err(format!(
            "'{}' is not one of gres:, license:, feature: and memory",
            words[0]
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of_tmp_dirs(job_tmp_dirs: bool) -> Mapping {
        Mapping {
            job_tmp_dirs: Some(job_tmp_dirs),
            ..Mapping::default()
        }
    }

    #[test]
    fn a_file() {
        let text = "# site\nqueue all.q debug\nqueue long.q long # nights\npe smp $pe_slots\npe mpi16 16\n\
                    complex gpu gres:gpu slot\ncomplex lic license:matlab\ncomplex big feature:bigmem\n\
                    complex ram memory\nproject p1 physics\narusers ada @courses\n";
        let (mapping, findings) = Mapping::parse(text, "sge.conf");
        assert_eq!(findings, []);
        assert_eq!(mapping.jsv_allowed_mod, None);
        let none = Mapping::parse("jsv_allowed_mod none\n", "f").0;
        assert_eq!(none.jsv_allowed_mod, Some(vec![]));
        let some = Mapping::parse("jsv_allowed_mod h,N p\n", "f").0;
        assert_eq!(some.jsv_allowed_mod.unwrap(), ["h", "N", "p"]);
        assert_eq!(mapping.reservation_users, ["ada", "@courses"]);
        assert_eq!(mapping.job_tmp_dirs, None);
        let with = |word: &str| Mapping::parse(&format!("job_tmpdir {word}\n"), "f");
        assert_eq!(with("yes"), (of_tmp_dirs(true), vec![]));
        assert_eq!(with("no"), (of_tmp_dirs(false), vec![]));
        for wrong in ["", "maybe", "yes no", "yes\njob_tmpdir yes"] {
            assert_eq!(with(wrong).1.len(), 1, "{wrong}");
        }
        for (words, has_torque, findings) in [
            ("torque", true, 0),
            ("gridengine", false, 0),
            ("both", false, 1),
            ("", false, 1),
        ] {
            let (own, found) = Mapping::parse(&format!("commands {words}\n"), "f");
            let of_line = (own.has_torque_commands, found.len());
            assert_eq!(of_line, (has_torque, findings), "{words}");
        }
        assert_eq!(mapping.queue_of("long"), "long.q");
        assert_eq!(mapping.queue_of("other"), "other");
        assert_eq!(mapping.rule("mpi16"), Some(AllocationRule::Fixed(16)));
        assert_eq!(mapping.rule("mpi"), None, "the file names its own");
        let gpu = ComplexTarget::Gres("gpu".to_owned(), CountedPer::Slot);
        assert_eq!(mapping.complex("gpu"), Some(&gpu));
        assert_eq!(Mapping::default().rule("mpi"), Some(AllocationRule::FillUp));
    }

    #[test]
    fn findings_name_file_line_and_way_out() {
        for (line, message) in [
            ("qeue a b", "there is no keyword 'qeue'"),
            ("queue a", "'queue' needs a name and what it stands for"),
            ("queue a b c", "'c' is one word too many"),
            ("pe x $pe_slot", "'$pe_slot' is not a valid allocation rule"),
            ("pe x 0", "'0' is not a valid allocation rule"),
            ("complex g gres:", "'gres:' names nothing"),
            (
                "complex g gpu",
                "'gpu' is not one of gres:, license:, feature: and memory",
            ),
            (
                "complex g gres:gpu core",
                "'core' is not one of host, slot and job",
            ),
            ("complex g license:a slot", "'slot' is one word too many"),
            (
                "arusers",
                "'arusers' needs names of users, or of groups with @",
            ),
            (
                "jsv_allowed_mod N,zz",
                "'zz' is not an option of qalter that changes a job",
            ),
            ("arusers a,b", "'a,b' is neither a user nor a @group"),
            ("arusers @", "'@' is neither a user nor a @group"),
            ("project p", "'project' needs a name and what it stands for"),
        ] {
            let (_, findings) = Mapping::parse(&format!("\n{line}\n"), "/etc/slurm/sge.conf");
            assert_eq!(findings.len(), 1, "{line}");
            assert_eq!(findings[0].message, message);
            assert!(!findings[0].help.is_empty());
            assert!(
                findings[0]
                    .to_string()
                    .starts_with("/etc/slurm/sge.conf:2: error: "),
                "{}",
                findings[0]
            );
        }
        let (mapping, findings) = Mapping::parse("pe a 1\npe a 2\n", "f");
        assert_eq!(findings[0].message, "pe 'a' is defined twice");
        assert_eq!(mapping.rule("a"), Some(AllocationRule::Fixed(1)));
    }

    proptest! {
        #[test]
        fn never_panics(text in "((queue|pe|complex|project)?[ a-z:$0-9#]{0,30}\n){0,5}") {
            let _ = Mapping::parse(&text, "f");
        }
    }
}
