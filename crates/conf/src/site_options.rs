//! `site_options.conf`, beside slurm.conf: options of the site's own that sbatch, srun and salloc have, as SPANK plugins add them.
//! What a user gives becomes a variable of the job and of the programs around it. Nothing here reads a file.

use crate::diagnostic::{Diagnostic, Origin, Severity};
use crate::options::{Arg, OptionCommand, OptionRow, find};
use muster_model::site_option::{COUNT_MAX, PREFIX, VALUE_BYTES_MAX};
use muster_model::visible_text::{is_control, visible};
use std::sync::Arc;

/// The file's name.
pub const FILE: &str = "site_options.conf";

/// Lines of the file, their forms and meanings, for messages and pages about it.
pub const LINES: [(&str, &str, &str); 7] = [
    (
        "option",
        "a name of small letters, digits and -",
        "begins an option: --NAME of sbatch, srun and salloc",
    ),
    (
        "values",
        "WORD,WORD,...",
        "the option has one of these values",
    ),
    (
        "number",
        "LEAST-MOST",
        "the option has a number in this range",
    ),
    (
        "text",
        "1 to 256",
        "the option has a text of at most so many bytes",
    ),
    (
        "default",
        "a value of the option's",
        "what jobs have that do not give it",
    ),
    (
        "plugin",
        "a name of letters, digits and _",
        "the plugin's name in variables (default site)",
    ),
    ("help", "a text", "what --help says of it"),
];

/// Bytes of a name of an option or a plugin.
const NAME_BYTES_MAX: usize = 32;
/// Bytes of a text of `help`.
const HELP_BYTES_MAX: usize = 200;

/// Values that an option can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteValue {
    /// None: it is given or not.
    Flag,
    /// One of these words.
    OneOf(Vec<String>),
    /// A number in this range.
    Number {
        /// The least one.
        least: u64,
        /// The greatest one.
        most: u64,
    },
    /// A text of at most this number of bytes.
    Text(usize),
}

/// An option of the site's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteOption {
    /// Long name, without dashes.
    pub name: String,
    /// Plugin in its variable's name.
    pub plugin: String,
    /// Its values.
    pub value: SiteValue,
    /// Value for jobs that do not give it.
    pub default: Option<String>,
    /// Its text in `--help`.
    pub help: String,
}

/// The options of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteOptions {
    /// In the order of the file.
    pub options: Vec<SiteOption>,
}

impl SiteOption {
    /// The job's variable, by which jobs keep the option, too.
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}_{}", self.plugin, self.name.replace('-', "_"))
    }

    /// Checks a value that a user gave; an option without values has the empty one.
    ///
    /// # Errors
    /// It is none of the option's; the text says which are.
    pub fn check(&self, value: &str) -> Result<(), String> {
        let is_in = match &self.value {
            SiteValue::Flag => value.is_empty(),
            SiteValue::OneOf(words) => words.iter().any(|word| word == value),
            SiteValue::Number { least, most } => {
                let is_plain = value.bytes().all(|b| b.is_ascii_digit());
                let number = value.parse().ok().filter(|_| is_plain);
                number.is_some_and(|n: u64| (*least..=*most).contains(&n))
            }
            SiteValue::Text(most) => {
                // Listings have several in a line, and accounting has them behind the administrators' comment.
                let is_refused = |c: char| is_control(c) || matches!(c, ',' | ';');
                !value.is_empty() && value.len() <= *most && !value.contains(is_refused)
            }
        };
        match is_in {
            true => Ok(()),
            false => Err(format!(
                "--{}={:.80}: {} is expected",
                self.name,
                visible(value),
                self.form()
            )),
        }
    }

    fn form(&self) -> String {
        match &self.value {
            SiteValue::Flag => "no value".to_owned(),
            SiteValue::OneOf(words) => format!("one of {}", words.join(", ")),
            SiteValue::Number { least, most } => format!("a number from {least} to {most}"),
            SiteValue::Text(most) => format!("a text of 1 to {most} bytes without , and ;"),
        }
    }

    /// Its row beside those of Slurm's options. It lives as long as the process, as these do: for commands, which read one file.
    fn row(&self) -> OptionRow {
        let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
        let placeholder = match &self.value {
            SiteValue::Flag => String::new(),
            SiteValue::OneOf(words) => words.join("|"),
            SiteValue::Number { least, most } => format!("{least}-{most}"),
            SiteValue::Text(_) => "text".to_owned(),
        };
        let arg = match self.value {
            SiteValue::Flag => Arg::None,
            _ => Arg::Required,
        };
        let variable: &'static [&'static str] = Box::leak(Box::new([leak(self.variable())]));
        OptionRow::of_site(
            leak(self.name.clone()),
            arg,
            leak(placeholder),
            leak(self.help.clone()),
            variable,
        )
    }
}

impl SiteOptions {
    /// Parses the text of a file of this name, with findings.
    pub fn parse(text: &str, file: &str) -> (SiteOptions, Vec<Diagnostic>) {
        let (mut made, mut findings) = (SiteOptions::default(), Vec::new());
        let file: Arc<str> = file.into();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (key, value) = line.split_once([' ', '\t']).unwrap_or((line, ""));
            if let Err(message) = made.read(key, value.trim()) {
                findings.push(finding(&file, number, key, message));
            }
        }
        for (at, option) in made.options.iter().enumerate() {
            let same = |other: &&SiteOption| other.variable() == option.variable();
            if let Some(other) = made.options[..at].iter().find(same) {
                let text = format!(
                    "options {} and {} have the same variable: give one another plugin",
                    other.name, option.name
                );
                findings.push(finding(&file, 0, "plugin", text));
            }
            let wrong = option.default.as_deref().map(|own| option.check(own));
            if let Some(Err(why)) = wrong {
                findings.push(finding(&file, 0, "default", format!("default: {why}")));
            }
        }
        (made, findings)
    }

    fn read(&mut self, key: &str, value: &str) -> Result<(), String> {
        if key == "option" {
            return self.begin(value);
        }
        let Some((_, form, _)) = LINES.iter().find(|(name, ..)| *name == key) else {
            return Err(format!("there is no line '{key}'"));
        };
        let Some(option) = self.options.last_mut() else {
            return Err(format!("'{key}' is before the first option"));
        };
        let wrong = || format!("{key} {value:.80}: {form} is expected");
        match key {
            "values" => {
                let words: Vec<String> = value.split(',').map(|w| w.trim().to_owned()).collect();
                let is_word = |w: &String| {
                    !w.is_empty() && w.len() <= NAME_BYTES_MAX && !w.contains(is_control)
                };
                if !words.iter().all(is_word) || words.len() > VALUE_BYTES_MAX {
                    return Err(wrong());
                }
                option.value = SiteValue::OneOf(words);
            }
            "number" => {
                let range = value.split_once('-');
                let range =
                    range.and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
                let (least, most) = range.filter(|(a, b)| a <= b).ok_or_else(wrong)?;
                option.value = SiteValue::Number { least, most };
            }
            "text" => {
                let most = value.parse().ok();
                let most = most.filter(|n| (1..=VALUE_BYTES_MAX).contains(n));
                option.value = SiteValue::Text(most.ok_or_else(wrong)?);
            }
            "default" => option.default = Some(value.to_owned()),
            "plugin" => {
                let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
                if value.is_empty() || value.len() > NAME_BYTES_MAX || !value.bytes().all(is_name) {
                    return Err(wrong());
                }
                value.clone_into(&mut option.plugin);
            }
            _ => {
                if value.len() > HELP_BYTES_MAX || value.contains(is_control) {
                    return Err(format!(
                        "help has more than {HELP_BYTES_MAX} bytes, or a control character"
                    ));
                }
                value.clone_into(&mut option.help);
            }
        }
        Ok(())
    }

    fn begin(&mut self, name: &str) -> Result<(), String> {
        let is_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if name.len() > NAME_BYTES_MAX
            || !name.starts_with(|c: char| c.is_ascii_lowercase())
            || !name.bytes().all(is_name)
        {
            return Err(format!(
                "option {name:.80}: a name of at most {NAME_BYTES_MAX} small letters, digits and - is expected"
            ));
        }
        if OptionCommand::ALL.iter().any(|c| find(*c, name).is_some()) {
            return Err(format!("option {name}: Slurm has an option --{name}"));
        }
        if self.options.iter().any(|option| option.name == name) {
            return Err(format!("option {name} is there already"));
        }
        if self.options.len() >= COUNT_MAX {
            return Err(format!(
                "option {name}: there are {COUNT_MAX} options already"
            ));
        }
        self.options.push(SiteOption {
            name: name.to_owned(),
            plugin: "site".to_owned(),
            value: SiteValue::Flag,
            default: None,
            help: "option of this site".to_owned(),
        });
        Ok(())
    }

    /// Rows of the options for commands. Memory for them is never given back.
    pub fn rows(&self) -> &'static [OptionRow] {
        let rows: Vec<OptionRow> = self.options.iter().map(SiteOption::row).collect();
        Box::leak(rows.into_boxed_slice())
    }

    /// Checks a job's options, and adds the defaults.
    ///
    /// # Errors
    /// The job has an unknown option, or a value that the option does not take.
    pub fn apply(&self, shown: &mut Vec<(String, String)>) -> Result<(), String> {
        let given = || shown.iter().filter(|(key, _)| key.starts_with(PREFIX));
        if given().nth(COUNT_MAX).is_some() {
            return Err(format!("a job has at most {COUNT_MAX} options of the site"));
        }
        let variables: Vec<String> = self.options.iter().map(SiteOption::variable).collect();
        let option_of = |key: &str| {
            let at = variables.iter().position(|own| own == key)?;
            self.options.get(at)
        };
        for (key, value) in given() {
            match option_of(key) {
                Some(option) => option.check(value)?,
                None => {
                    let name = key.strip_prefix(PREFIX).unwrap_or_default();
                    return Err(format!(
                        "the site has no option {:.80} ({FILE} of the controller)",
                        visible(name)
                    ));
                }
            }
        }
        for (option, key) in self.options.iter().zip(variables) {
            if let Some(default) = &option.default
                && !shown.iter().any(|(own, _)| *own == key)
            {
                shown.push((key, default.clone()));
            }
        }
        Ok(())
    }
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

    const TEXT: &str = "# ours\noption gpu-mode\nvalues shared,exclusive\ndefault shared\n\
                        help how GPUs are shared\n\noption scratch\nnumber 1-500\nplugin disk\n\
                        option note\ntext 8\noption quick\n";

    #[test]
    fn options_have_names_values_and_variables() {
        let (options, findings) = SiteOptions::parse(TEXT, FILE);
        assert!(findings.is_empty(), "{findings:?}");
        let mut shown = vec![
            ("extra".to_owned(), "x".to_owned()),
            (format!("{PREFIX}disk_scratch"), "500".to_owned()),
            (format!("{PREFIX}site_quick"), String::new()),
        ];
        options.apply(&mut shown).unwrap();
        assert_eq!(
            shown.last().unwrap(),
            &(format!("{PREFIX}site_gpu_mode"), "shared".to_owned())
        );
        options.apply(&mut shown).unwrap();
        assert_eq!(shown.len(), 4);
        for (key, value, error) in [
            (
                "disk_scratch",
                "501",
                "--scratch=501: a number from 1 to 500 is expected",
            ),
            (
                "disk_scratch",
                "+1",
                "--scratch=+1: a number from 1 to 500 is expected",
            ),
            (
                "site_gpu_mode",
                "",
                "--gpu-mode=: one of shared, exclusive is expected",
            ),
            (
                "site_note",
                "a\nb",
                "--note=a b: a text of 1 to 8 bytes without , and ; is expected",
            ),
            ("site_quick", "1", "--quick=1: no value is expected"),
            (
                "site_other",
                "1",
                "the site has no option site_other (site_options.conf of the controller)",
            ),
        ] {
            let mut shown = vec![(format!("{PREFIX}{key}"), value.to_owned())];
            let refused = options.apply(&mut shown).unwrap_err();
            assert_eq!(refused, error);
        }
        let rows = options.rows();
        assert_eq!(rows[1].placeholder, "1-500");
        assert_eq!(
            rows[1].env_of(OptionCommand::Srun),
            ["_SLURM_SPANK_OPTION_disk_scratch"]
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let text = "values a\noption Time\noption time\noption a\nnumber 5-1\ntext 0\nnone x\noption a\n\
                    option b\nvalues x,y\ndefault z\n";
        let (_, findings) = SiteOptions::parse(text, FILE);
        let lines: Vec<u32> = findings.iter().map(|finding| finding.origin.line).collect();
        assert_eq!(lines, [1, 2, 3, 5, 6, 7, 8, 0]);
        assert_eq!(
            findings[2].message,
            "option time: Slurm has an option --time"
        );
        assert_eq!(
            findings[7].message,
            "default: --b=z: one of x, y is expected"
        );
    }

    #[test]
    fn two_options_have_no_variable_in_common() {
        let text = "option y-z\nplugin x\noption z\nplugin x_y\n";
        let (_, findings) = SiteOptions::parse(text, FILE);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].message.contains("y-z and z"), "{findings:?}");
    }

    #[test]
    fn more_options_than_a_site_has_are_not_looked_at() {
        let (options, _) = SiteOptions::parse(TEXT, FILE);
        let one = (format!("{PREFIX}site_quick"), String::new());
        let refused = options.apply(&mut vec![one; 1 << 20]).unwrap_err();
        assert!(refused.contains("at most 32"), "{refused}");
    }
}
