//! Requests of qsub's options, from command line and script. An option that is given again takes the place of the one
//! before, but for resources and variables, which add up by name.

use super::arguments::TorqueOption;
use super::jobs;
use crate::say;
use crate::zone::{self, LocalZone};
use muster_conf::options::pbs;
use muster_conf::options::torque::{AmountUnits, TorqueResources};
use muster_conf::options::values::time::CivilZone as _;

/// Where standard output and error go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Join {
    /// Into a file each.
    #[default]
    Apart,
    /// Both into that of standard output.
    Output,
    /// Both into that of standard error.
    Error,
}

/// All that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TorqueRequest {
    pub(super) is_command: bool,
    pub(super) begin: Option<String>,
    pub(super) account: Option<String>,
    pub(super) group: Option<String>,
    pub(super) dir: Option<String>,
    pub(super) stdout: Option<String>,
    pub(super) stderr: Option<String>,
    pub(super) join: Join,
    pub(super) fault_tolerant: bool,
    pub(super) arguments: Option<String>,
    pub(super) hold: bool,
    pub(super) tasks: Option<String>,
    pub(super) resources: TorqueResources,
    pub(super) mail: Option<String>,
    pub(super) mail_to: Option<String>,
    pub(super) exclusive: bool,
    pub(super) name: Option<String>,
    pub(super) nice: Option<i64>,
    pub(super) cpus_per_task: Option<u32>,
    pub(super) wckey: Option<String>,
    pub(super) queue: Option<String>,
    pub(super) rerun: Option<bool>,
    pub(super) shell: Option<String>,
    pub(super) variables: Vec<String>,
    pub(super) all_variables: bool,
    pub(super) depend: Option<String>,
    pub(super) umask: Option<u32>,
    pub(super) block: bool,
    pub(super) quiet: bool,
}

impl TorqueRequest {
    /// Adds an option.
    ///
    /// # Errors
    /// Its value is none.
    pub(super) fn take(&mut self, given: &TorqueOption, units: AmountUnits) -> Result<(), String> {
        let value = given.value.as_str();
        let wrong = |why: &str| Err(format!("-{} {value}: {why}", given.name));
        let text = || Some(value.to_owned());
        match given.name {
            "a" => self.begin = Some(begin(value)),
            "A" => self.account = text(),
            "b" => match value {
                "y" | "Y" => self.is_command = true,
                "n" | "N" => self.is_command = false,
                _ if value.parse::<u32>().is_ok() => {}
                _ => return wrong("it is y or n"),
            },
            "c" if value == "n" => {}
            "c" => return wrong("jobs are not checkpointed; n is all there is"),
            "C" | "I" | "x" | "sbatchline" | "version" | "help" | "man" => {}
            "d" | "w" | "wd" => self.dir = text(),
            "e" => self.stderr = Some(path(value)),
            "f" => self.fault_tolerant = true,
            "F" => self.arguments = text(),
            "h" => self.hold = true,
            "j" => {
                self.join = match value {
                    "n" => Join::Apart,
                    _ if value.starts_with('o') => Join::Output,
                    _ if value.starts_with('e') => Join::Error,
                    _ => return wrong("it is oe, eo or n"),
                }
            }
            "J" | "t" => self.tasks = text(),
            "l" => self.resources.add(value, units)?,
            "m" => self.mail = Some(pbs::mail(value).map_err(|why| format!("-m {value}: {why}"))?),
            "M" => self.mail_to = text(),
            "n" => self.exclusive = true,
            "N" if value.is_empty() || value.contains('/') => {
                return wrong("it is no name of a job");
            }
            "N" => self.name = text(),
            "o" => self.stdout = Some(path(value)),
            "p" => match value.parse() {
                Ok(nice) => self.nice = Some(nice),
                Err(_) => return wrong("it is no number"),
            },
            "pe" => self.cpus_per_task = Some(parallel(value)?),
            "P" => self.wckey = text(),
            "q" => self.queue = text().map(|name| queue(&name)),
            // As Slurm's, which leaves out other values.
            "r" => match value {
                "y" => self.rerun = Some(true),
                "n" => self.rerun = Some(false),
                _ => say::stderr(&format!(
                    "qsub: warning: -r {value} has no effect: it is y or n\n"
                )),
            },
            "S" => self.shell = Some(shell(value)),
            "v" => self.variables.push(value.to_owned()),
            "V" => self.all_variables = true,
            "W" => self.attributes(value)?,
            "z" => self.quiet = true,
            other => return Err(format!("-{other} is not known here")),
        }
        Ok(())
    }

    fn attributes(&mut self, text: &str) -> Result<(), String> {
        for (name, value) in pbs::attributes(text) {
            let wrong = |why: &str| Err(format!("-W {name}={value}: {why}"));
            match name.as_str() {
                "depend" => self.depend = Some(dependency(&value)?),
                "group_list" => self.group = Some(value.split('@').next().unwrap_or("").to_owned()),
                "umask" => match u32::from_str_radix(&value, 8) {
                    Ok(mask) if mask <= 0o777 => self.umask = Some(mask),
                    _ => return wrong("it is no file mode mask in octal digits"),
                },
                "block" => self.block = is_true(&value),
                "fault_tolerant" => self.fault_tolerant = is_true(&value),
                "x" | "X" if value.eq_ignore_ascii_case("naccesspolicy:singlejob") => {
                    self.exclusive = true;
                }
                "stagein" | "stageout" => {
                    return wrong("files are not staged; copy them in the script or use sbcast");
                }
                _ => return wrong("there is no such attribute here"),
            }
        }
        Ok(())
    }

    /// Value of `--export`; nothing where sbatch's default will do.
    pub(super) fn export(&self) -> Option<String> {
        let named = self.variables.join(",");
        match (self.all_variables, named.is_empty()) {
            (true, true) => Some("all".to_owned()),
            (true, false) => Some(format!("all,{named}")),
            (false, true) => None,
            (false, false) => Some(format!("none,{named}")),
        }
    }
}

fn is_true(value: &str) -> bool {
    ["true", "t", "1", "y"].contains(&value.to_ascii_lowercase().as_str())
}

/// A file without the host that it is on: all hosts have the same files.
fn path(value: &str) -> String {
    match value.split_once(':') {
        Some((host, path)) if !host.contains('/') => path.to_owned(),
        _ => value.to_owned(),
    }
}

/// The first of `PATH[@HOST],...`.
fn shell(value: &str) -> String {
    let first = value.split(',').next().unwrap_or_default();
    first.split('@').next().unwrap_or_default().to_owned()
}

/// `QUEUE@SERVER` without the server.
fn queue(value: &str) -> String {
    value.split('@').next().unwrap_or_default().to_owned()
}

fn parallel(value: &str) -> Result<u32, String> {
    let words: Vec<&str> = value.split_whitespace().collect();
    let count = match words.as_slice() {
        ["shm", count] => count.parse().ok(),
        _ => None,
    };
    count.ok_or_else(|| format!("-pe {value}: it is shm and a number of CPUs"))
}

/// A dependency in Slurm's words.
fn dependency(text: &str) -> Result<String, String> {
    let mut terms = Vec::new();
    for term in text.split(',').filter(|term| !term.is_empty()) {
        let (kind, jobs) = term.split_once(':').unwrap_or((term, ""));
        let known = match kind {
            "after" | "afterstartarray" => "after",
            "afterok" | "afterokarray" => "afterok",
            "afternotok" | "afternotokarray" => "afternotok",
            "afterany" | "afteranyarray" => "afterany",
            "singleton" => "singleton",
            "before" | "beforeok" | "beforenotok" | "beforeany" | "on" | "synccount"
            | "syncwith" => {
                return Err(format!(
                    "-W depend={term}: jobs that wait name those before them; use after, afterok, afternotok, afterany"
                ));
            }
            _ => return Err(format!("-W depend={term}: there is no such dependency")),
        };
        let jobs: Vec<String> = jobs
            .split(':')
            .filter(|job| !job.is_empty())
            .map(jobs::of_slurm)
            .collect();
        match (known, jobs.is_empty()) {
            ("singleton", _) => terms.push(known.to_owned()),
            (_, true) => return Err(format!("-W depend={term}: it names no job")),
            (_, false) => terms.push(format!("{known}:{}", jobs.join(":"))),
        }
    }
    Ok(terms.join(","))
}

/// `[[[[CC]YY]MM]DD]hhmm[.SS]` as sbatch reads times. Others are sbatch's own.
pub(super) fn begin(text: &str) -> String {
    let now = zone::now().unix_s();
    let here = LocalZone::default();
    let today = here.civil(now);
    let (digits, seconds) = text.split_once('.').unwrap_or((text, "00"));
    let is_plain = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if digits.is_empty() || !is_plain(digits) || !is_plain(seconds) || seconds.len() != 2 {
        return text.to_owned();
    }
    let (year, month) = (today.year, today.month);
    let at = |from: usize| digits.get(from..from + 2).unwrap_or("00").to_owned();
    let (date, clock) = match digits.len() {
        // The next time that the clock shows it.
        4 => return format!("{}:{}:{seconds}", at(0), at(2)),
        6 => (format!("{year:04}-{month:02}-{}", at(0)), 2),
        8 => (format!("{year:04}-{}-{}", at(0), at(2)), 4),
        10 => {
            let century = if at(0).as_str() < "70" { "20" } else { "19" };
            (format!("{century}{}-{}-{}", at(0), at(2), at(4)), 6)
        }
        12 => (format!("{}{}-{}-{}", at(0), at(2), at(4), at(6)), 8),
        _ => return text.to_owned(),
    };
    format!("{date}T{}:{}:{seconds}", at(clock), at(clock + 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torque::arguments::{WordPlaces, parse};
    use crate::torque::qsub::SPEC;

    fn of(text: &str) -> Result<TorqueRequest, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let mut request = TorqueRequest::default();
        for given in &parse(&SPEC, &words, WordPlaces::End)?.options {
            request.take(given, AmountUnits::Torque)?;
        }
        Ok(request)
    }

    #[test]
    fn options_replace_or_add_up() {
        let r = of("-N a -N b -l nodes=1 -l walltime=60,nodes=2 -v A=1 -v B -q long@srv").unwrap();
        assert_eq!(r.name.as_deref(), Some("b"));
        let found = r
            .resources
            .translated(muster_conf::options::torque::ResourceReader::Qsub);
        let words = found.unwrap().words().join(" ");
        assert_eq!(words, "--time=1 --nodes=2");
        assert_eq!(r.export().as_deref(), Some("none,A=1,B"));
        assert_eq!(
            of("-V -v A=1").unwrap().export().as_deref(),
            Some("all,A=1")
        );
        assert_eq!(of("-h").unwrap().export(), None);
        assert_eq!(r.queue.as_deref(), Some("long"));
        let r = of("-o host:/x -e /tmp/a:b -j eo -S /bin/ksh@n1,/bin/sh").unwrap();
        assert_eq!(r.stdout.as_deref(), Some("/x"));
        assert_eq!(r.stderr.as_deref(), Some("/tmp/a:b"));
        assert_eq!(
            (r.join, r.shell.as_deref()),
            (Join::Error, Some("/bin/ksh"))
        );
        let r = of("-W depend=afterokarray:3[].srv:4[2],afterany:5,umask=027,block=true").unwrap();
        assert_eq!(r.depend.as_deref(), Some("afterok:3:4_2,afterany:5"));
        assert_eq!((r.umask, r.block), (Some(0o27), true));
        assert_eq!(of("-r nosuch").unwrap().rerun, None);
    }

    #[test]
    fn dates() {
        for (text, want) in [
            ("203012312359", "2030-12-31T23:59:00"),
            ("203012312359.30", "2030-12-31T23:59:30"),
            ("3012312359", "2030-12-31T23:59:00"),
            ("2330", "23:30:00"),
            ("12:30", "12:30"),
            ("now+1hour", "now+1hour"),
        ] {
            assert_eq!(begin(text), want);
        }
        assert!(begin("12312359.07").ends_with("-12-31T23:59:07"));
        assert!(begin("312359").ends_with("-31T23:59:00"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            ("-N a/b", "-N a/b: it is no name of a job"),
            ("-p high", "-p high: it is no number"),
            ("-j x", "-j x: it is oe, eo or n"),
            ("-m x", "-m x: 'x' is not one of a, b, e, n"),
            ("-b maybe", "-b maybe: it is y or n"),
            ("-c s", "-c s: jobs are not checkpointed; n is all there is"),
            ("-pe mpi 4", "-pe mpi 4: it is shm and a number of CPUs"),
            (
                "-W stagein=a@b:c",
                "-W stagein=a@b:c: files are not staged; copy them in the script or use sbcast",
            ),
            (
                "-W nosuch=1",
                "-W nosuch=1: there is no such attribute here",
            ),
            (
                "-W umask=9",
                "-W umask=9: it is no file mode mask in octal digits",
            ),
            ("-W depend=afterok", "-W depend=afterok: it names no job"),
            (
                "-W depend=on:2",
                "-W depend=on:2: jobs that wait name those before them; use after, afterok, afternotok, afterany",
            ),
        ] {
            assert_eq!(of(text), Err(why.to_owned()), "{text}");
        }
    }
}
