//! Job templates: what a program wants of a job, by DRMAA's names, and the submission that comes of it.

use crate::error::{DrmaaErrno, Error};
use crate::time;
use muster_cli::library;
use muster_model::command::UserCommand;
use muster_model::spec::ExecContext;
use std::collections::BTreeMap;

/// Attributes with one value.
pub const SCALARS: [&str; 16] = [
    "drmaa_remote_command",
    "drmaa_js_state",
    "drmaa_wd",
    "drmaa_job_category",
    "drmaa_native_specification",
    "drmaa_block_email",
    "drmaa_start_time",
    "drmaa_job_name",
    "drmaa_input_path",
    "drmaa_output_path",
    "drmaa_error_path",
    "drmaa_join_files",
    "drmaa_deadline_time",
    "drmaa_wct_hlimit",
    "drmaa_wct_slimit",
    "drmaa_duration_hlimit",
];
/// Attributes with a list.
pub const VECTORS: [&str; 3] = ["drmaa_v_argv", "drmaa_v_env", "drmaa_v_email"];
/// Bytes of one value.
const VALUE_BYTES_MAX: usize = 1 << 20;
/// Values of a list.
const VALUES_MAX: usize = 100_000;

/// A job template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    scalars: BTreeMap<&'static str, String>,
    vectors: BTreeMap<&'static str, Vec<String>>,
}

/// Tasks of a bulk job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// The first one.
    pub first: u32,
    /// The last one at most.
    pub last: u32,
    /// From one to the next.
    pub step: u32,
}

fn known<const N: usize>(names: [&'static str; N], name: &str) -> Result<&'static str, Error> {
    let found = names.into_iter().find(|own| *own == name);
    found.ok_or_else(|| {
        Error::new(
            DrmaaErrno::InvalidArgument,
            format!("there is no attribute {name:.100}"),
        )
    })
}

impl Template {
    /// Sets an attribute.
    ///
    /// # Errors
    /// There is no such attribute, or it cannot have the value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let name = known(SCALARS, name)?;
        if value.len() > VALUE_BYTES_MAX || value.contains('\0') {
            return Err(Error::new(
                DrmaaErrno::InvalidAttributeValue,
                format!("the value of {name} is too long"),
            ));
        }
        let wrong = |expected: &str| {
            let text = format!("{name} is \"{value:.200}\": {expected} is expected");
            Err(Error::new(DrmaaErrno::InvalidAttributeValue, text))
        };
        match name {
            "drmaa_js_state" if !["drmaa_active", "drmaa_hold"].contains(&value) => {
                return wrong("drmaa_active or drmaa_hold");
            }
            "drmaa_join_files" if !["y", "n"].contains(&value) => return wrong("y or n"),
            "drmaa_block_email" if !["0", "1"].contains(&value) => return wrong("0 or 1"),
            "drmaa_input_path" | "drmaa_output_path" | "drmaa_error_path"
                if !value.contains(':') =>
            {
                let text = format!("{name} is \"{value:.200}\": [HOST]:PATH is expected");
                return Err(Error::new(DrmaaErrno::InvalidAttributeFormat, text));
            }
            "drmaa_start_time" | "drmaa_deadline_time" => {
                time::parse(value)
                    .map_err(|text| Error::new(DrmaaErrno::InvalidAttributeFormat, text))?;
            }
            "drmaa_wct_hlimit" | "drmaa_wct_slimit" | "drmaa_duration_hlimit"
                if time::seconds(value).is_none() =>
            {
                let text =
                    format!("{name} is \"{value:.200}\": [[HOURS:]MINUTES:]SECONDS is expected");
                return Err(Error::new(DrmaaErrno::InvalidAttributeFormat, text));
            }
            _ => {}
        }
        self.scalars.insert(name, value.to_owned());
        Ok(())
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// There is no such attribute, or it was not set.
    pub fn get(&self, name: &str) -> Result<&str, Error> {
        let name = known(SCALARS, name)?;
        let found = self.scalars.get(name);
        let unset = || {
            Error::new(
                DrmaaErrno::InvalidAttributeValue,
                format!("{name} is not set"),
            )
        };
        found.map(String::as_str).ok_or_else(unset)
    }

    /// Sets a list.
    ///
    /// # Errors
    /// There is no such attribute, or it cannot have the values.
    pub fn set_vector(&mut self, name: &str, values: Vec<String>) -> Result<(), Error> {
        let name = known(VECTORS, name)?;
        let too_long =
            values.len() > VALUES_MAX || values.iter().any(|own| own.len() > VALUE_BYTES_MAX);
        if too_long {
            return Err(Error::new(
                DrmaaErrno::InvalidAttributeValue,
                format!("{name} is too long"),
            ));
        }
        let is_wrong = |own: &&String| own.split_once('=').is_none_or(|(name, _)| name.is_empty());
        if let Some(wrong) = values
            .iter()
            .find(|own| name == "drmaa_v_env" && is_wrong(own))
        {
            let text = format!("drmaa_v_env has \"{wrong:.100}\": NAME=VALUE is expected");
            return Err(Error::new(DrmaaErrno::InvalidAttributeFormat, text));
        }
        self.vectors.insert(name, values);
        Ok(())
    }

    /// A list.
    ///
    /// # Errors
    /// There is no such attribute, or it was not set.
    pub fn vector(&self, name: &str) -> Result<&[String], Error> {
        let name = known(VECTORS, name)?;
        let unset = || {
            Error::new(
                DrmaaErrno::InvalidAttributeValue,
                format!("{name} is not set"),
            )
        };
        self.vectors.get(name).map(Vec::as_slice).ok_or_else(unset)
    }

    fn scalar(&self, name: &str) -> Option<&str> {
        self.scalars
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    fn list(&self, name: &str) -> &[String] {
        self.vectors.get(name).map_or(&[], Vec::as_slice)
    }

    /// The request for a job, or for a bulk job.
    ///
    /// # Errors
    /// The attributes make no job.
    pub fn submission(&self, tasks: Option<Tasks>) -> Result<UserCommand, Error> {
        let wrong = |text: String| Error::new(DrmaaErrno::InvalidAttributeValue, text);
        let command = self.scalar("drmaa_remote_command");
        let command = command.ok_or_else(|| wrong("drmaa_remote_command is not set".to_owned()))?;
        let native = self
            .scalar("drmaa_native_specification")
            .unwrap_or_default();
        let native = library::words(native).map_err(wrong)?;
        let arguments = self.list("drmaa_v_argv");
        let made = match native.iter().any(|word| word.starts_with("--")) {
            false => {
                let mut line = self.qsub_options(tasks);
                line.extend(native);
                line.push(command.to_owned());
                line.extend(arguments.iter().cloned());
                library::qsub_submission(&line)
            }
            true => {
                let mut line = self.sbatch(tasks);
                line.extend(native);
                let quoted = |word: &String| format!("'{}'", word.replace('\'', "'\\''"));
                let whole = [command.to_owned()]
                    .iter()
                    .chain(arguments)
                    .map(quoted)
                    .collect::<Vec<_>>();
                line.push(format!("--wrap=exec {}", whole.join(" ")));
                library::sbatch_submission(&line)
            }
        };
        let mut made = made.map_err(|text| Error::new(DrmaaErrno::DeniedByDrm, text))?;
        self.complete(&mut made, command)?;
        Ok(made)
    }

    /// The options of qsub.
    fn qsub_options(&self, tasks: Option<Tasks>) -> Vec<String> {
        let mut line = words_of(["-b", "y", "-shell", "n"]);
        let mut add = |option: &str, value: String| line.extend([option.to_owned(), value]);
        let place = |text: &str| self.placed(text, tasks.map(|_| "$TASK_ID"));
        if let Some(dir) = self.scalar("drmaa_wd") {
            add("-wd", place(dir));
        }
        if let Some(class) = self.scalar("drmaa_job_category") {
            add("-jc", class.to_owned());
        }
        if let Some(name) = self.scalar("drmaa_job_name") {
            add("-N", name.to_owned());
        }
        for (option, name) in [
            ("-i", "drmaa_input_path"),
            ("-o", "drmaa_output_path"),
            ("-e", "drmaa_error_path"),
        ] {
            let path = self.scalar(name).map(|path| place(path_of(path)));
            if let Some(path) = path.filter(|path| !path.is_empty()) {
                add(option, path);
            }
        }
        if self.scalar("drmaa_join_files") == Some("y") {
            add("-j", "y".to_owned());
        }
        if !self.list("drmaa_v_email").is_empty() {
            add("-M", self.list("drmaa_v_email").join(","));
        }
        if self.scalar("drmaa_block_email") == Some("1") {
            add("-m", "n".to_owned());
        }
        let limit = self
            .scalar("drmaa_wct_hlimit")
            .or(self.scalar("drmaa_duration_hlimit"));
        for (name, limit) in [("h_rt", limit), ("s_rt", self.scalar("drmaa_wct_slimit"))] {
            if let Some(limit) = limit {
                add("-l", format!("{name}={limit}"));
            }
        }
        if let Some(tasks) = tasks {
            add(
                "-t",
                format!("{}-{}:{}", tasks.first, tasks.last, tasks.step),
            );
        }
        line
    }

    /// The options of sbatch, where the native specification has such.
    fn sbatch(&self, tasks: Option<Tasks>) -> Vec<String> {
        let mut line = Vec::new();
        let mut add = |option: &str, value: &str| line.push(format!("--{option}={value}"));
        let place = |text: &str| self.placed(text, tasks.map(|_| "%a"));
        for (option, name) in [
            ("job-name", "drmaa_job_name"),
            ("class", "drmaa_job_category"),
        ] {
            if let Some(value) = self.scalar(name) {
                add(option, value);
            }
        }
        if let Some(dir) = self.scalar("drmaa_wd") {
            add("chdir", &place(dir));
        }
        let join = self.scalar("drmaa_join_files") == Some("y");
        for (option, name) in [
            ("input", "drmaa_input_path"),
            ("output", "drmaa_output_path"),
            ("error", "drmaa_error_path"),
        ] {
            let path = self.scalar(name).filter(|_| !(join && option == "error"));
            let path = path.map(|path| place(path_of(path)));
            if let Some(path) = path.filter(|path| !path.is_empty()) {
                add(option, &path);
            }
        }
        if let Some(first) = self.list("drmaa_v_email").first() {
            add("mail-user", first);
        }
        let limit = self
            .scalar("drmaa_wct_hlimit")
            .or(self.scalar("drmaa_duration_hlimit"));
        if let Some(seconds) = limit.and_then(time::seconds) {
            add("time", &seconds.div_ceil(60).max(1).to_string());
        }
        if let Some(tasks) = tasks {
            add(
                "array",
                &format!("{}-{}:{}", tasks.first, tasks.last, tasks.step),
            );
        }
        line
    }

    /// Sets fields that no option sets, or that no option can set to every value.
    fn complete(&self, made: &mut UserCommand, command: &str) -> Result<(), Error> {
        let UserCommand::Submit {
            spec, test_only, ..
        } = made
        else {
            return Err(Error::new(
                DrmaaErrno::InvalidAttributeValue,
                "a job of several components cannot be waited for",
            ));
        };
        if *test_only {
            return Err(Error::new(
                DrmaaErrno::InvalidAttributeValue,
                "the native specification only verifies",
            ));
        }
        let point = |name: &str| self.scalar(name).and_then(|text| time::parse(text).ok());
        spec.begin = point("drmaa_start_time").or(spec.begin);
        spec.deadline = point("drmaa_deadline_time").or(spec.deadline);
        spec.hold |= self.scalar("drmaa_js_state") == Some("drmaa_hold");
        if self.scalar("drmaa_block_email") == Some("1") {
            spec.mail = None;
        }
        spec.submit_line = [command]
            .into_iter()
            .chain(self.list("drmaa_v_argv").iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(" ");
        let variables = self.list("drmaa_v_env");
        if variables.is_empty() {
            return Ok(());
        }
        let change = |context: &mut ExecContext| {
            for (name, value) in variables.iter().filter_map(|own| own.split_once('=')) {
                context.environment.set(name.as_bytes(), value.as_bytes());
            }
        };
        library::change_context(made, change)
            .map_err(|why| Error::new(DrmaaErrno::InternalError, why))
    }

    /// A path with DRMAA's placeholders replaced.
    fn placed(&self, text: &str, task: Option<&str>) -> String {
        let home = || std::env::var("HOME").unwrap_or_else(|_| "/".to_owned());
        let wd = || match self.scalar("drmaa_wd") {
            Some(dir) => dir.replace("$drmaa_hd_ph$", &home()),
            None => ".".to_owned(),
        };
        let mut out = text.to_owned();
        for (name, value) in [
            ("$drmaa_wd_ph$", &wd as &dyn Fn() -> String),
            ("$drmaa_hd_ph$", &home),
            ("$drmaa_incr_ph$", &|| task.unwrap_or("1").to_owned()),
        ] {
            if out.contains(name) {
                out = out.replace(name, &value());
            }
        }
        out
    }
}

/// Path of `[HOST]:PATH`: all hosts of a cluster see the same files.
fn path_of(text: &str) -> &str {
    text.split_once(':').map_or(text, |(_, path)| path)
}

fn words_of<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_when_they_are_set() {
        let mut template = Template::default();
        for (name, value, code) in [
            ("drmaa_nosuch", "x", DrmaaErrno::InvalidArgument),
            ("drmaa_v_argv", "x", DrmaaErrno::InvalidArgument),
            ("drmaa_js_state", "x", DrmaaErrno::InvalidAttributeValue),
            ("drmaa_join_files", "yes", DrmaaErrno::InvalidAttributeValue),
            ("drmaa_block_email", "y", DrmaaErrno::InvalidAttributeValue),
            (
                "drmaa_output_path",
                "out",
                DrmaaErrno::InvalidAttributeFormat,
            ),
            (
                "drmaa_start_time",
                "tomorrow",
                DrmaaErrno::InvalidAttributeFormat,
            ),
            ("drmaa_wct_hlimit", "x", DrmaaErrno::InvalidAttributeFormat),
        ] {
            assert_eq!(template.set(name, value).unwrap_err().code, code, "{name}");
        }
        let env = template.set_vector("drmaa_v_env", vec!["A".to_owned()]);
        assert_eq!(env.unwrap_err().code, DrmaaErrno::InvalidAttributeFormat);
        assert_eq!(
            template.submission(None).unwrap_err().code,
            DrmaaErrno::InvalidAttributeValue
        );
        assert_eq!(
            template.get("drmaa_wd").unwrap_err().code,
            DrmaaErrno::InvalidAttributeValue
        );
    }

    #[test]
    fn attributes_are_options() {
        let mut template = Template::default();
        for (name, value) in [
            ("drmaa_wd", "/w"),
            ("drmaa_job_name", "n"),
            ("drmaa_output_path", "host:$drmaa_wd_ph$/o.$drmaa_incr_ph$"),
            ("drmaa_join_files", "y"),
            ("drmaa_wct_hlimit", "0:10:0"),
        ] {
            template.set(name, value).unwrap();
        }
        let tasks = Tasks {
            first: 1,
            last: 5,
            step: 2,
        };
        let qsub = template.qsub_options(Some(tasks)).join(" ");
        assert_eq!(
            qsub,
            "-b y -shell n -wd /w -N n -o /w/o.$TASK_ID -j y -l h_rt=0:10:0 -t 1-5:2"
        );
        let sbatch = template.sbatch(Some(tasks)).join(" ");
        assert_eq!(
            sbatch,
            "--job-name=n --chdir=/w --output=/w/o.%a --time=10 --array=1-5:2"
        );
    }
}
