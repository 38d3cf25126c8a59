//! The application that a job ran, guessed from several records: no single one says it.

use muster_conf::grid_engine::fits;
use muster_model::ids::StepNo;
use muster_model::visible_text::beginning;
use muster_proto::acct::AcctJob;
use std::fs;
use std::io;
use std::path::Path;

/// Characters of a name.
const NAME_MAX: usize = 64;
/// Bytes of a text that patterns are compared with: users choose how long it is.
const LOOKED_AT: usize = 4 << 10;
/// Bytes of a file of rules.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Field of a job that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleField {
    Name,
    Step,
    Command,
    Comment,
}

/// One rule: the application is so named if the field fits the pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    application: String,
    field: RuleField,
    pattern: String,
}

/// Rules of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules(Vec<Rule>);

impl Rules {
    /// Reads a file; there are none without one.
    ///
    /// # Errors
    /// The text names the line that is no rule.
    pub(crate) fn read(path: &Path) -> Result<Rules, String> {
        match fs::metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Rules::default()),
            Ok(found) if found.len() > FILE_BYTES_MAX => {
                return Err(format!("{}: more than 1 MiB of rules", path.display()));
            }
            _ => {}
        }
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Rules::parse(&text).map_err(|(line, why)| format!("{}:{line}: {why}", path.display()))
    }

    fn parse(text: &str) -> Result<Rules, (usize, String)> {
        let mut rules = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let word = |text: &'_ str| -> (String, String) {
                let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
                (word.to_owned(), rest.trim_start().to_owned())
            };
            let (application, rest) = word(line);
            let (field, pattern) = word(&rest);
            let field = match field.as_str() {
                "name" => RuleField::Name,
                "step" => RuleField::Step,
                "command" => RuleField::Command,
                "comment" => RuleField::Comment,
                other => {
                    let why = format!(
                        "'{other}': write APPLICATION FIELD PATTERN, where FIELD is name, step, command or comment"
                    );
                    return Err((at + 1, why));
                }
            };
            if pattern.is_empty() {
                return Err((at + 1, "the pattern is missing".to_owned()));
            }
            rules.push(Rule {
                application,
                field,
                pattern,
            });
        }
        Ok(Rules(rules))
    }

    /// The application of a job: what its comment says (`app=NAME`), the first rule that fits, the program of its first step, or its
    /// name.
    pub(crate) fn of(&self, job: &AcctJob) -> String {
        let words = job.comment.split([' ', ',', ';']);
        let said = words
            .filter_map(|word| {
                word.strip_prefix("app=")
                    .or(word.strip_prefix("application="))
            })
            .find(|name| !name.is_empty());
        let by_rule = || {
            let rule = self.0.iter().find(|rule| rule.is_of(job));
            rule.map(|rule| rule.application.as_str())
        };
        let first = || steps(job).next();
        let name = said.or_else(by_rule).or_else(first).unwrap_or(&job.name);
        name.chars().take(NAME_MAX).collect()
    }
}

impl Rule {
    fn is_of(&self, job: &AcctJob) -> bool {
        let is_fit = |text: &str| fits(&self.pattern, beginning(text, LOOKED_AT));
        match self.field {
            RuleField::Name => is_fit(&job.name),
            RuleField::Comment => is_fit(&job.comment),
            RuleField::Command => is_fit(&job.submit_line),
            RuleField::Step => steps(job).any(is_fit),
        }
    }
}

/// Names of the steps that programs run in.
fn steps(job: &AcctJob) -> impl Iterator<Item = &str> {
    let own = [StepNo::BATCH, StepNo::EXTERN, StepNo::INTERACTIVE];
    let steps = job
        .steps
        .iter()
        .filter(move |step| !own.contains(&step.step));
    steps.map(|step| step.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_rule_is_named_by_its_line() {
        let rules =
            Rules::parse("# ours\n\ngromacs step gmx*\nvasp  name  vasp_* # all\n").unwrap();
        assert_eq!(rules.0.len(), 2);
        assert_eq!(rules.0[1].pattern, "vasp_*");
        let (line, why) = Rules::parse("a name x\nb colour x\n").unwrap_err();
        assert!(line == 2 && why.contains("'colour'"), "{why}");
        assert_eq!(Rules::parse("a name").unwrap_err().0, 1);
    }
}
