//! The request of a submission, gathered from all places in order, the weakest first.

use super::arguments::OptionArgument;
use super::core_binding;
use muster_conf::grid_engine::{AllocationRule, Mapping, resources};
use muster_model::index_set::IndexSet;

/// Why there is no submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// A line as it is, and the exit status.
    Line(String, u8),
    /// The text behind `Unable to run job:`.
    Job(String),
}

/// Grid Engine's exit status for values that an option cannot have.
const WRONG_VALUE: u8 = 7;

impl Refused {
    fn usage(text: String) -> Refused {
        Refused::Line(format!("qsub: {text}"), WRONG_VALUE)
    }
}

/// Where the job runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum WorkDir {
    /// At the user's home.
    #[default]
    Home,
    /// Where qsub is called.
    Here,
    /// In this directory.
    Named(String),
}

/// A request of `-l`: name and value.
pub(super) type ResourceRequest = (String, Option<String>);

/// All options that were given, weaker ones replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) begin: Option<String>,
    pub(super) reservation: Option<String>,
    pub(super) account: Option<String>,
    pub(super) binary: bool,
    pub(super) work_dir: WorkDir,
    pub(super) stdin: Option<String>,
    pub(super) stdout: Option<String>,
    pub(super) stderr: Option<String>,
    pub(super) merge: bool,
    pub(super) hold: bool,
    pub(super) hold_jid: Vec<String>,
    pub(super) hold_jid_ad: Vec<String>,
    pub(super) hard: Vec<ResourceRequest>,
    pub(super) soft: Vec<ResourceRequest>,
    /// Whether `-soft` was the last of the two.
    pub(super) is_soft: bool,
    pub(super) mail_events: String,
    pub(super) mail_to: Option<String>,
    pub(super) name: Option<String>,
    pub(super) notify: bool,
    pub(super) priority: i32,
    pub(super) pe: Option<(String, Slots)>,
    pub(super) project: Option<String>,
    pub(super) queues: Vec<String>,
    /// `-q` after `-soft`.
    pub(super) soft_queues: Vec<String>,
    /// `-masterq`.
    pub(super) master_queues: Vec<String>,
    /// `-par`, in place of the rule of the parallel environment.
    pub(super) rule: Option<AllocationRule>,
    /// `-mbind`, in the words of `--mem-bind`.
    pub(super) mem_bind: Option<&'static str>,
    /// `-umask`.
    pub(super) umask: Option<u32>,
    pub(super) rerun: Option<bool>,
    pub(super) shell: Option<String>,
    pub(super) without_shell: bool,
    pub(super) sync: bool,
    pub(super) tasks: Option<Tasks>,
    pub(super) task_limit: Option<u32>,
    pub(super) terse: bool,
    pub(super) variables: Vec<(String, Option<String>)>,
    pub(super) all_variables: bool,
    pub(super) display: Option<String>,
    /// `-w`.
    pub(super) verify: Option<char>,
    /// `-verify`: print the job, and submit nothing.
    pub(super) is_shown_only: bool,
    pub(super) now: bool,
    /// `-binding`, as it is shown.
    pub(super) binding: Option<String>,
    /// `-jc`.
    pub(super) class: Option<String>,
    /// `-clearp`, `-clears`.
    pub(super) cleared: Vec<String>,
}

/// Slots of a parallel environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slots {
    /// All numbers that will do, at least one.
    pub(super) all: IndexSet,
    /// The range as Grid Engine writes it: `2,4-6`.
    pub(super) text: String,
}

impl Slots {
    /// These numbers.
    pub(super) fn span(least: u32, most: u32) -> Slots {
        let mut all = IndexSet::default();
        all.insert_range(least, most);
        let text = match least == most {
            true => least.to_string(),
            false => format!("{least}-{most}"),
        };
        Slots { all, text }
    }

    /// The least number that will do.
    pub(super) fn least(&self) -> u32 {
        self.all.first().unwrap_or(1)
    }

    /// The greatest number that will do.
    pub(super) fn most(&self) -> u32 {
        self.all.last().unwrap_or(1)
    }
}

/// `-t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tasks {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) step: u32,
}

impl Tasks {
    /// Whether it has a task.
    pub(super) fn has(self, index: u32) -> bool {
        (self.first..=self.last).contains(&index) && (index - self.first).is_multiple_of(self.step)
    }

    /// `1-5:2`.
    pub(super) fn text(self) -> String {
        format!("{}-{}:{}", self.first, self.last, self.step)
    }
}

impl Request {
    /// The rule of a parallel environment: that of `-par`, or its own. None where there is no such environment.
    pub(super) fn rule_of(&self, pe: &str, mapping: &Mapping) -> Option<AllocationRule> {
        let own = mapping.rule(pe)?;
        Some(self.rule.unwrap_or(own))
    }

    /// Checks options that need others beside them; those of a job class may come later.
    ///
    /// # Errors
    /// One is missing.
    pub(super) fn check_array(&self) -> Result<(), Refused> {
        if self.tasks.is_some() || self.class.is_some() {
            return Ok(());
        }
        if self.task_limit.is_some_and(|limit| limit > 0) {
            let why = "invalid \"task concurrency\" value in job request: -tc needs -t";
            return Err(Refused::Job(why.to_owned()));
        }
        if !self.hold_jid_ad.is_empty() {
            let why =
                "Can only specify \"-hold_jid_ad\" option with an array job (using \"-t\" option)";
            return Err(Refused::Job(why.to_owned()));
        }
        Ok(())
    }

    /// Adds an option.
    ///
    /// # Errors
    /// The value cannot be.
    pub(super) fn take(&mut self, given: &OptionArgument) -> Result<(), Refused> {
        let value = given.value();
        let text = || Some(value.to_owned());
        match given.name {
            "a" => self.begin = Some(date_time(value)?),
            "ar" => self.reservation = text(),
            "A" => self.account = text(),
            "b" => self.binary = yes(given)?,
            "clear" => *self = Request::default(),
            "cwd" => self.work_dir = WorkDir::Here,
            "wd" => self.work_dir = WorkDir::Named(value.to_owned()),
            "display" => self.display = text(),
            "i" => self.stdin = Some(path(given)?),
            "o" => self.stdout = Some(path(given)?),
            "e" => self.stderr = Some(path(given)?),
            "j" => self.merge = yes(given)?,
            "h" => self.hold = true,
            "hard" => self.is_soft = false,
            "soft" => self.is_soft = true,
            "jc" => self.class = Some(class(value)?),
            "clearp" => self.cleared.push(value.to_owned()),
            "clears" => self.cleared.push(given.values.join(" ")),
            "hold_jid" => self.hold_jid = list(given)?,
            "hold_jid_ad" => self.hold_jid_ad = list(given)?,
            "l" => self.requests(value)?,
            "m" => self.mail_events = mail_events(value)?,
            "M" => self.mail_to = list(given)?.into_iter().next(),
            "N" => self.name = Some(job_name(value)?),
            "notify" => self.notify = true,
            "masterq" => self.master_queues = list(given)?,
            "binding" => {
                self.binding = Some(core_binding::strategy(&given.values).map_err(Refused::usage)?)
            }
            "mbind" => self.mem_bind = Some(memory_binding(value)?),
            "now" => self.now = yes(given)?,
            "p" => self.priority = priority(value)?,
            "pe" => self.pe = Some(parallel_environment(&given.values)?),
            "par" => self.rule = Some(allocation_rule(value)?),
            "P" => self.project = Some(object_name(value)?),
            "q" if self.is_soft => self.soft_queues.extend(list(given)?),
            "q" => self.queues.extend(list(given)?),
            "r" => self.rerun = Some(yes(given)?),
            "R" => drop(yes(given)?),
            "S" => self.shell = Some(path(given)?),
            "shell" => self.without_shell = !yes(given)?,
            "sync" => self.sync = waits_for_end(given)?,
            "t" => self.tasks = Some(tasks(value)?),
            "tc" => self.task_limit = Some(task_limit(value)?),
            "terse" => self.terse = true,
            "umask" => self.umask = Some(umask(value)?),
            "verify" => self.is_shown_only = true,
            "v" => self.add_variables(value)?,
            "V" => self.all_variables = true,
            "w" => self.verify = Some(verification(value)?),
            // Options that were handled before: -C, -@, -help.
            _ => {}
        }
        Ok(())
    }

    fn requests(&mut self, text: &str) -> Result<(), Refused> {
        let wrong = |why| Refused::Job(format!("invalid -l request: {why}"));
        let requests = if self.is_soft {
            &mut self.soft
        } else {
            &mut self.hard
        };
        for (name, value) in resources::split(text).map_err(wrong)? {
            requests.retain(|(known, _)| *known != name);
            requests.push((name, value));
        }
        Ok(())
    }

    fn add_variables(&mut self, text: &str) -> Result<(), Refused> {
        for word in text.split(',') {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word, None),
            };
            if name.is_empty() || name.contains(char::is_whitespace) {
                let why =
                    format!("invalid argument \"{text}\" to -v: \"{word}\" names no variable");
                return Err(Refused::usage(why));
            }
            self.variables.retain(|(known, _)| known != name);
            self.variables.push((name.to_owned(), value));
        }
        Ok(())
    }
}

fn yes(given: &OptionArgument) -> Result<bool, Refused> {
    match given.value() {
        "y" | "yes" => Ok(true),
        "n" | "no" => Ok(false),
        other => Err(Refused::usage(format!(
            "invalid argument \"{other}\" to -{}: it is y[es] or n[o]",
            given.name
        ))),
    }
}

/// Whether `-sync` waits for the end: `y`, or `x` as newer releases have it.
fn waits_for_end(given: &OptionArgument) -> Result<bool, Refused> {
    match given.value() {
        "x" => Ok(true),
        "r" | "rx" => Err(Refused::usage(
            "-sync r is not supported: use -sync x, or ask qstat for the state".to_owned(),
        )),
        _ => yes(given),
    }
}

/// The first of a list of `[host:]path`; those for other hosts are no use in a cluster that shares its files.
fn path(given: &OptionArgument) -> Result<String, Refused> {
    let first = given.value().split(',').next().unwrap_or_default();
    let path = match first.split_once(':') {
        Some((host, path)) if !host.contains('/') => path,
        _ => first,
    };
    match path {
        "" => {
            let (name, value) = (given.name, given.value());
            let why = format!("invalid argument \"{value}\" to -{name}: there is no path in it");
            Err(Refused::usage(why))
        }
        path => Ok(path.to_owned()),
    }
}

fn list(given: &OptionArgument) -> Result<Vec<String>, Refused> {
    let words = given.value().split(',');
    let all: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    match all.is_empty() {
        true => Err(Refused::usage(format!(
            "invalid argument \"{}\" to -{}: the list is empty",
            given.value(),
            given.name
        ))),
        false => Ok(all),
    }
}

fn job_name(text: &str) -> Result<String, Refused> {
    if text.contains('/') {
        return Err(Refused::Line(
            "qsub: argument to -N option must not contain / ".to_owned(),
            2,
        ));
    }
    object_name(text)
}

/// The name of a parallel environment, or a pattern of names.
fn environment_name(text: &str) -> Result<String, Refused> {
    let plain: String = text.chars().filter(|c| !"*?[]|".contains(*c)).collect();
    if super::is_pattern(text) && plain.is_empty() {
        return Ok(text.to_owned());
    }
    object_name(&plain).map(|_| text.to_owned())
}

/// The rules for names of jobs and projects.
pub(super) fn object_name(text: &str) -> Result<String, Refused> {
    let job = |why: String| Err(Refused::Job(why));
    if text.is_empty() {
        return job("job rejected cause there is no job_name in the request".to_owned());
    }
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return job(format!(
            "denied: \"{text}\" is not a valid object name (cannot start with a digit)"
        ));
    }
    if text.contains(':') {
        return job("Colon (':') not allowed in objectname".to_owned());
    }
    if ["none", "all", "template"].contains(&text.to_ascii_lowercase().as_str()) {
        let word = text.to_ascii_uppercase();
        return job(format!("Keyword (\"{word}\") not allowed as objectname"));
    }
    if let Some(c) = text
        .chars()
        .find(|c| c.is_control() || "@\\*?\"'".contains(*c))
    {
        return job(format!(
            "denied: \"{}\" is not a valid object name (character {c:?})",
            text.escape_default()
        ));
    }
    Ok(text.to_owned())
}

/// The name of a job class.
fn class(text: &str) -> Result<String, Refused> {
    match text {
        "ANY" => Err(Refused::usage(
            "-jc ANY is not supported: name a class; qconf -sjcl lists them".to_owned(),
        )),
        "" => Err(Refused::usage("invalid argument \"\" to -jc".to_owned())),
        name => Ok(name.to_owned()),
    }
}

fn priority(text: &str) -> Result<i32, Refused> {
    let number = text.parse().ok().filter(|p| (-1023..=1024).contains(p));
    number.ok_or_else(|| {
        let why = format!("invalid priority \"{text}\".  Must be an integer from -1023 to 1024");
        Refused::usage(why)
    })
}

fn mail_events(text: &str) -> Result<String, Refused> {
    match text.chars().find(|c| !"beasn".contains(*c)) {
        Some(c) => Err(Refused::usage(format!(
            "invalid argument \"{text}\" to -m: '{c}' is not one of b, e, a, s, n"
        ))),
        None if text.is_empty() => Err(Refused::usage("invalid argument \"\" to -m".to_owned())),
        None => Ok(text.to_owned()),
    }
}

fn verification(text: &str) -> Result<char, Refused> {
    match text.chars().next() {
        Some(level @ ('e' | 'w' | 'n' | 'v' | 'p')) if text.len() == 1 => Ok(level),
        _ => Err(Refused::usage(format!(
            "invalid argument \"{text}\" to -w: it is one of e, w, n, p, v"
        ))),
    }
}

/// `N`, `FIRST-LAST`, `FIRST-LAST:STEP`. The two ends may be in either order.
pub(super) fn tasks(text: &str) -> Result<Tasks, Refused> {
    let wrong = || {
        Refused::usage(format!(
            "invalid task range \"{text}\": it is first[-last[:step]]"
        ))
    };
    let number = |text: &str| plain_number(text).ok_or_else(wrong);
    let (range, step) = match text.split_once(':') {
        Some((range, step)) => (range, number(step)?),
        None => (text, 1),
    };
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        // One task alone: 1-N would be another thing.
        None => (number(range)?, number(range)?),
    };
    if first == 0 || last == 0 {
        return Err(Refused::Job(
            "job rejected: 0 is an invalid task id".to_owned(),
        ));
    }
    if step == 0 {
        return Err(wrong());
    }
    let (first, last) = (first.min(last), first.max(last));
    Ok(Tasks { first, last, step })
}

/// A number of digits alone, without a sign.
fn plain_number(text: &str) -> Option<u32> {
    let has_digits_alone = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| has_digits_alone)
}

/// The rule of `-par`, as `allocation_rule` of a parallel environment has it.
fn allocation_rule(text: &str) -> Result<AllocationRule, Refused> {
    AllocationRule::parse(text).ok_or_else(|| {
        Refused::usage(format!(
            "invalid argument \"{text}\" to -par: it is $pe_slots, $fill_up, $round_robin or a number of slots on each host"
        ))
    })
}

/// `-mbind`. The memory of a task is that of the CPUs which it is bound to.
fn memory_binding(text: &str) -> Result<&'static str, Refused> {
    match text {
        "cores:strict" | "nlocal:strict" => Ok("local"),
        "cores" | "nlocal" => Ok("prefer,local"),
        "round_robin" | "round_robin:strict" => Err(Refused::Line(
            "qsub: -mbind round_robin is not supported: have the script start the program by numactl --interleave=all".to_owned(),
            1,
        )),
        _ => Err(Refused::usage(format!(
            "invalid argument \"{text}\" to -mbind: it is cores or nlocal, with or without :strict"
        ))),
    }
}

/// A file mode creation mask, in octal.
fn umask(text: &str) -> Result<u32, Refused> {
    let has_digits_alone = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let mask = u32::from_str_radix(text, 8).ok();
    let mask = mask.filter(|mask| has_digits_alone && *mask <= 0o777);
    mask.ok_or_else(|| {
        Refused::usage(format!(
            "invalid argument \"{text}\" to -umask: it is an octal number from 0 to 777"
        ))
    })
}

fn task_limit(text: &str) -> Result<u32, Refused> {
    let wrong = || {
        Refused::usage(format!(
            "invalid argument \"{text}\" to -tc: it is a number"
        ))
    };
    plain_number(text).ok_or_else(wrong)
}

/// Grid Engine's end of a range without one.
const SLOTS_MAX: u32 = 9_999_999;

/// `N`, `N-M`, `N-`, `-M`, and lists of them.
fn parallel_environment(values: &[String]) -> Result<(String, Slots), Refused> {
    let [name, range] = values else {
        return Err(Refused::usage(
            "option \"-pe\" needs a name and slots".to_owned(),
        ));
    };
    let wrong = || Refused::Job(format!("invalid slot range \"{range}\" of -pe {name}"));
    let zero = || Refused::Job("\"job\" rejected: pe range must be greater than zero".to_owned());
    let number = |text: &str| match plain_number(text) {
        Some(0) => Err(zero()),
        Some(number) => Ok(number),
        None => Err(wrong()),
    };
    let mut all = IndexSet::default();
    let mut texts = Vec::new();
    for part in range.split(',') {
        let (first, last) = match part.split_once('-') {
            None => (number(part)?, number(part)?),
            Some(("", "")) => return Err(wrong()),
            Some(("", last)) => (1, number(last)?),
            Some((first, "")) => (number(first)?, SLOTS_MAX),
            Some((first, last)) => (number(first)?, number(last)?),
        };
        let (first, last) = (first.min(last), first.max(last));
        all.insert_range(first, last);
        texts.push(match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        });
    }
    let text = texts.join(",");
    Ok((environment_name(name)?, Slots { all, text }))
}

/// `[[CC]YY]MMDDhhmm[.SS]` as `YYYY-MM-DDThh:mm:ss`. Without a year it is this one, so the year is left to the caller as `0000`.
pub(super) fn date_time(text: &str) -> Result<String, Refused> {
    let wrong = || {
        Refused::usage(format!(
            "invalid date \"{text}\": it is [[CC]YY]MMDDhhmm[.SS]"
        ))
    };
    let (digits, seconds) = text.split_once('.').unwrap_or((text, "00"));
    let plain = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if !plain(digits) || !plain(seconds) || seconds.len() != 2 {
        return Err(wrong());
    }
    let (year, rest) = match digits.len() {
        8 => ("0000".to_owned(), digits),
        10 => {
            let century = if &digits[..2] < "70" { "20" } else { "19" };
            (format!("{century}{}", &digits[..2]), &digits[2..])
        }
        12 => (digits[..4].to_owned(), &digits[4..]),
        _ => return Err(wrong()),
    };
    let part = |at: usize| rest[at..at + 2].parse::<u32>().unwrap_or(u32::MAX);
    let (month, day, hour, minute) = (part(0), part(2), part(4), part(6));
    if !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || seconds > "59"
    {
        return Err(wrong());
    }
    Ok(format!(
        "{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{seconds}"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::arguments::{OperandPosition, parse};
    use super::super::submit_options::QSUB;
    use super::*;

    fn request(line: &str) -> Result<Request, Refused> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let parsed = parse(&QSUB, &words, OperandPosition::End).unwrap();
        let mut request = Request::default();
        for given in &parsed.options {
            request.take(given)?;
        }
        Ok(request)
    }

    #[test]
    fn options_of_arrays_need_an_array() {
        for (line, why) in [
            (
                "-tc 2",
                Some("invalid \"task concurrency\" value in job request: -tc needs -t"),
            ),
            (
                "-hold_jid_ad 5",
                Some(
                    "Can only specify \"-hold_jid_ad\" option with an array job (using \"-t\" option)",
                ),
            ),
            ("-tc 0", None),
            ("-tc 2 -t 1-3", None),
            ("-tc 2 -jc class", None),
            ("-t 1-3 -hold_jid_ad 5", None),
        ] {
            let found = request(line).unwrap().check_array().err();
            assert_eq!(found, why.map(|why| Refused::Job(why.to_owned())), "{line}");
        }
    }

    #[test]
    fn options_add_up_or_replace() {
        let r = request("-N a -N b -l h_rt=5 -l gpu=1,h_rt=6 -v A=1,B -v A=2 -q x -q y -soft -l big -hard -l q=z").unwrap();
        assert_eq!(r.name.as_deref(), Some("b"));
        let names: Vec<&str> = r.hard.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["gpu", "h_rt", "q"]);
        assert_eq!(r.soft, [("big".to_owned(), None)]);
        assert_eq!(r.variables.len(), 2);
        assert_eq!(r.queues, ["x", "y"]);
        let r = request("-N a -l gpu=1 -clear -j y").unwrap();
        assert_eq!((r.name, r.hard.len(), r.merge), (None, 0, true));
        assert_eq!(request("-t 5-3").unwrap().tasks.unwrap().text(), "3-5:1");
        assert!(request("-sync x").unwrap().sync && !request("-sync n").unwrap().sync);
        assert_eq!(request("-t 7").unwrap().tasks.unwrap().text(), "7-7:1");
        let pe = |line: &str| request(line).unwrap().pe.unwrap().1;
        for (given, text, least, most, count) in [
            ("4", "4", 4, 4, 1),
            ("8-2", "2-8", 2, 8, 7),
            ("-4", "1-4", 1, 4, 4),
            ("4-", "4-9999999", 4, SLOTS_MAX, 9_999_996),
            ("4,16", "4,16", 4, 16, 2),
            ("12-16,2,4-8", "12-16,2,4-8", 2, 16, 11),
        ] {
            let slots = pe(&format!("-pe smp {given}"));
            assert_eq!(
                (&*slots.text, slots.least(), slots.most(), slots.all.len()),
                (text, least, most, count)
            );
        }
        assert_eq!(
            request("-o host:/x/y").unwrap().stdout.as_deref(),
            Some("/x/y")
        );
        assert_eq!(date_time("203012312359").unwrap(), "2030-12-31T23:59:00");
        assert_eq!(date_time("12312359.07").unwrap(), "0000-12-31T23:59:07");
    }

    #[test]
    fn patterns_of_environments_are_names() {
        let (mapping, _) = Mapping::parse("pe mpi16 16\npe mpi4 4\npe smp $pe_slots\n", "sge.conf");
        for (given, chosen) in [
            ("mpi* 4", "mpi4"),
            ("mpi* 32", "mpi16"),
            ("mpi* 5", "mpi16"),
            ("s?p 5", "smp"),
            ("lam* 5", "lam*"),
            ("mpi4 16", "mpi4"),
        ] {
            let mut asked = request(&format!("-pe {given}")).unwrap();
            asked.choose_environment(&mapping);
            assert_eq!(asked.pe.unwrap().0, chosen, "{given}");
        }
    }

    #[test]
    fn malformed_options_are_named() {
        let job = |text: &str| Refused::Job(text.to_owned());
        let line = |text: &str| Refused::Line(format!("qsub: {text}"), WRONG_VALUE);
        for (options, why) in [
            (
                "-N 1bad",
                job("denied: \"1bad\" is not a valid object name (cannot start with a digit)"),
            ),
            (
                "-N a/b",
                Refused::Line(
                    "qsub: argument to -N option must not contain / ".to_owned(),
                    2,
                ),
            ),
            ("-N a:b", job("Colon (':') not allowed in objectname")),
            (
                "-P none",
                job("Keyword (\"NONE\") not allowed as objectname"),
            ),
            (
                "-p 2000",
                line("invalid priority \"2000\".  Must be an integer from -1023 to 1024"),
            ),
            (
                "-p high",
                line("invalid priority \"high\".  Must be an integer from -1023 to 1024"),
            ),
            ("-t 0-3", job("job rejected: 0 is an invalid task id")),
            (
                "-t 1-",
                line("invalid task range \"1-\": it is first[-last[:step]]"),
            ),
            (
                "-t 1-4:0",
                line("invalid task range \"1-4:0\": it is first[-last[:step]]"),
            ),
            (
                "-t a",
                line("invalid task range \"a\": it is first[-last[:step]]"),
            ),
            (
                "-tc x",
                line("invalid argument \"x\" to -tc: it is a number"),
            ),
            (
                "-pe smp 0",
                job("\"job\" rejected: pe range must be greater than zero"),
            ),
            (
                "-pe smp 0-4",
                job("\"job\" rejected: pe range must be greater than zero"),
            ),
            ("-pe smp x", job("invalid slot range \"x\" of -pe smp")),
            ("-pe smp -", job("invalid slot range \"-\" of -pe smp")),
            (
                "-pe smp 1-2-3",
                job("invalid slot range \"1-2-3\" of -pe smp"),
            ),
            ("-pe 2 smp", job("invalid slot range \"smp\" of -pe 2")),
            (
                "-b maybe",
                line("invalid argument \"maybe\" to -b: it is y[es] or n[o]"),
            ),
            (
                "-j 1",
                line("invalid argument \"1\" to -j: it is y[es] or n[o]"),
            ),
            (
                "-sync r",
                line("-sync r is not supported: use -sync x, or ask qstat for the state"),
            ),
            (
                "-m bx",
                line("invalid argument \"bx\" to -m: 'x' is not one of b, e, a, s, n"),
            ),
            (
                "-w x",
                line("invalid argument \"x\" to -w: it is one of e, w, n, p, v"),
            ),
            (
                "-w ee",
                line("invalid argument \"ee\" to -w: it is one of e, w, n, p, v"),
            ),
            (
                "-a tomorrow",
                line("invalid date \"tomorrow\": it is [[CC]YY]MMDDhhmm[.SS]"),
            ),
            (
                "-a 13312359",
                line("invalid date \"13312359\": it is [[CC]YY]MMDDhhmm[.SS]"),
            ),
            (
                "-v =1",
                line("invalid argument \"=1\" to -v: \"=1\" names no variable"),
            ),
            (
                "-v A,,B",
                line("invalid argument \"A,,B\" to -v: \"\" names no variable"),
            ),
            (
                "-l =5",
                job("invalid -l request: \"=5\" has a request without a name"),
            ),
            (
                "-l gpu=1,",
                job("invalid -l request: \"gpu=1,\" has a request without a name"),
            ),
            (
                "-o host:",
                line("invalid argument \"host:\" to -o: there is no path in it"),
            ),
            (
                "-q ,",
                line("invalid argument \",\" to -q: the list is empty"),
            ),
            (
                "-hold_jid ,",
                line("invalid argument \",\" to -hold_jid: the list is empty"),
            ),
        ] {
            assert_eq!(request(options), Err(why), "{options}");
        }
    }
}
