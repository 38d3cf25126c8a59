//! `job_classes.conf`, beside slurm.conf: templates of jobs in the form in which Grid Engine's `qconf -sjc` prints them, with what
//! users may change of each attribute. What an attribute does to a job is not here (`muster_verifier::job_class`), and
//! nothing here reads a file.

pub mod attributes;
pub mod rule;
mod validation;

use self::attributes::Attribute;
use self::rule::{AttributeRule, Values};
pub use self::validation::slots;
use crate::diagnostic::{Diagnostic, Origin, Severity};
use muster_model::job_class::{CLASS_RULES_BYTES_MAX, NO_CLASS};
use std::fmt::Write as _;
use std::sync::Arc;

/// The file's name.
pub const FILE: &str = "job_classes.conf";
/// The class whose attributes all others inherit, and which no job can have.
pub const TEMPLATE: &str = "template";
/// The variant of a class that is named without one.
pub const DEFAULT: &str = "default";
/// Classes of a file, variants of a class, entries of a list.
const ITEMS_MAX: usize = 1000;
/// Most classes from which one may inherit, through each other.
const DEPTH_MAX: usize = 16;

/// Words that begin a line, and what follows them, for messages and the page about the file.
pub const FORMS: [(&str, &str, &str); 9] = [
    ("jcname", "NAME", "begins a class"),
    (
        "inherits",
        "NAME",
        "what this class says nothing of is as in that one; all inherit from the class template",
    ),
    (
        "variant_list",
        "default,NAME,... or NONE",
        "variants of the class; an attribute has other values in one by [VARIANT=VALUE]",
    ),
    (
        "owner",
        "USER,... or NONE",
        "who may use the class whatever the lists say",
    ),
    (
        "user_lists",
        "LIST,... or NONE",
        "who may use it: names of usersets, users, @GROUP; NONE is everybody",
    ),
    ("xuser_lists", "LIST,... or NONE", "who may not"),
    (
        "userset",
        "NAME ENTRY,...",
        "before all classes: a list of users and @GROUP",
    ),
    (
        "default_jc",
        "NAME or NONE",
        "before all classes: the class of jobs that name none",
    ),
    (
        "enforce_jc",
        "TRUE or FALSE",
        "before all classes: jobs without a class are refused",
    ),
];

/// Values of one attribute in a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Which.
    pub attribute: &'static Attribute,
    /// Its values.
    pub values: Values,
    /// Line of the file.
    pub line: u32,
}

/// A class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// `jcname`.
    pub name: String,
    /// `inherits`.
    pub inherits: Option<String>,
    /// `variant_list`; empty is the default one alone.
    pub variants: Vec<String>,
    /// `owner`.
    pub owner: Vec<String>,
    /// `user_lists`.
    pub user_lists: Vec<String>,
    /// `xuser_lists`.
    pub xuser_lists: Vec<String>,
    /// Attributes, in the order of the file.
    pub settings: Vec<Setting>,
    /// Line of the file.
    pub line: u32,
}

/// All of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobClasses {
    /// `default_jc`.
    pub default: Option<String>,
    /// `enforce_jc`.
    pub enforce: bool,
    /// `userset`: names and entries.
    pub sets: Vec<(String, Vec<String>)>,
    /// Classes, in the order of the file.
    pub classes: Vec<Class>,
    file: String,
}

/// The rules of one variant of a class, inherited ones included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// `NAME`, or `NAME.VARIANT`.
    pub name: String,
    /// Its rules, but for attributes that are free.
    pub rules: Vec<(&'static Attribute, AttributeRule)>,
}

impl Template {
    /// A line for each rule, as jobs keep them.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (attribute, rule) in &self.rules {
            let _ = writeln!(text, "{} {}", attribute.name, rule.text());
        }
        text
    }

    /// The rules that a job has kept. Lines that this release does not know are left out.
    pub fn of_job(name: &str, rules: &str) -> Template {
        let line = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            let attribute = attributes::find(name)?;
            Some((attribute, AttributeRule::parse(attribute, value).ok()?))
        };
        Template {
            name: name.to_owned(),
            rules: rules.lines().filter_map(line).collect(),
        }
    }

    /// Its rule for an attribute; none where that is free.
    pub fn rule(&self, name: &str) -> Option<&AttributeRule> {
        let found = self.rules.iter().find(|(own, _)| own.name == name);
        found.map(|(_, rule)| rule)
    }
}

/// A line of the file, continued ones joined.
struct ClassLine<'a> {
    number: u32,
    word: &'a str,
    rest: &'a str,
}

impl JobClasses {
    /// Reads the text of a file of this name. What is wrong is said and left out.
    pub fn parse(text: &str, file: &str) -> (JobClasses, Vec<Diagnostic>) {
        let (all, mut findings) = JobClasses::read(text, file, |_| ());
        all.check_names(&mut findings);
        (all, findings)
    }

    /// Reads the lines of a text, and gives on each that is accepted.
    fn read(
        text: &str,
        file: &str,
        mut accepted: impl FnMut(&str),
    ) -> (JobClasses, Vec<Diagnostic>) {
        let mut all = JobClasses {
            file: file.to_owned(),
            ..JobClasses::default()
        };
        let mut findings = Vec::new();
        for (number, whole) in joined_lines(text) {
            let line = whole.trim();
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let line = ClassLine {
                number,
                word,
                rest: rest.trim(),
            };
            match all.take(&line) {
                Ok(()) => accepted(&whole),
                Err((message, help)) => findings.push(all.finding(number, word, message, help)),
            }
        }
        (all, findings)
    }

    fn finding(&self, line: u32, key: &str, message: String, help: String) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            origin: Origin {
                file: Arc::from(self.file.as_str()),
                line,
                column: 0,
            },
            key: key.to_owned(),
            message,
            help,
        }
    }

    fn take(&mut self, line: &ClassLine<'_>) -> Result<(), (String, String)> {
        let form = FORMS.iter().find(|(word, ..)| *word == line.word);
        let help = form.map_or_else(String::new, |(word, form, _)| {
            format!("write: {word} {form}")
        });
        let wrong = |message: String| (message, help.clone());
        if form.is_some() && line.rest.is_empty() {
            return Err(wrong(format!("{} has no value", line.word)));
        }
        let many = format!("there are more than {ITEMS_MAX} of them");
        let is_full = self.classes.len() >= ITEMS_MAX;
        match (line.word, self.classes.last_mut()) {
            ("jcname", _) if is_full => Err(wrong(many)),
            ("jcname", _) => {
                let name = object_name(line.rest).map_err(wrong)?;
                if self.classes.iter().any(|class| class.name == name) {
                    return Err(wrong(format!("class '{name}' is defined twice")));
                }
                self.classes.push(Class {
                    name: name.to_owned(),
                    line: line.number,
                    ..Class::default()
                });
                Ok(())
            }
            ("userset", None) if self.sets.len() >= ITEMS_MAX => Err(wrong(many)),
            ("userset", None) => {
                let (name, entries) = line
                    .rest
                    .split_once(char::is_whitespace)
                    .unwrap_or((line.rest, ""));
                let entries = list(entries).map_err(wrong)?;
                if entries.is_empty() || self.sets.iter().any(|(own, _)| own == name) {
                    return Err(wrong(format!("userset '{name}' is empty or defined twice")));
                }
                self.sets.push((name.to_owned(), entries));
                Ok(())
            }
            ("default_jc", None) => {
                self.default = Some(line.rest.to_owned()).filter(|name| !is_none(name));
                Ok(())
            }
            ("enforce_jc", None) => match line.rest.to_ascii_uppercase().as_str() {
                "TRUE" => {
                    self.enforce = true;
                    Ok(())
                }
                "FALSE" => Ok(()),
                other => Err(wrong(format!("'{other}' is not one of TRUE and FALSE"))),
            },
            ("userset" | "default_jc" | "enforce_jc", Some(_)) => Err((
                format!("{} is inside of a class", line.word),
                "put it before the first line jcname".to_owned(),
            )),
            (word, None) => Err((
                format!("'{word}' is outside of a class"),
                "a class begins with: jcname NAME".to_owned(),
            )),
            (_, Some(class)) => class.take(line, &help),
        }
    }

    /// Finds settings with names that do not exist.
    fn check_names(&self, findings: &mut Vec<Diagnostic>) {
        let mut add = |line: u32, key: &str, message: String, help: &str| {
            findings.push(self.finding(line, key, message, help.to_owned()));
        };
        for class in &self.classes {
            if let Err(why) = self.chain(class) {
                add(
                    class.line,
                    "inherits",
                    why,
                    "name a class of this file, and no circle of them",
                );
            }
            for setting in &class.settings {
                for (variant, _) in &setting.values.of_variants {
                    if variant != DEFAULT && !class.variants.contains(variant) {
                        let message =
                            format!("'{variant}' is not a variant of class '{}'", class.name);
                        add(
                            setting.line,
                            setting.attribute.name,
                            message,
                            "name it in variant_list",
                        );
                    }
                }
            }
        }
        if let Some(name) = &self.default
            && self.template(name).is_err()
        {
            let message = format!("default_jc names '{name}', which is not a class");
            add(
                0,
                "default_jc",
                message,
                "name a class of this file, or NONE",
            );
        }
    }

    /// A class and those that it inherits from, nearest first.
    fn chain<'a>(&'a self, class: &'a Class) -> Result<Vec<&'a Class>, String> {
        let mut chain = vec![class];
        let mut next = class.inherits.as_deref();
        while let Some(name) = next {
            let found = self.find(name);
            let found =
                found.ok_or_else(|| format!("'{name}', which is inherited, is not a class"))?;
            if chain.len() > DEPTH_MAX || chain.iter().any(|own| own.name == name) {
                return Err(format!("class '{}' inherits from itself", class.name));
            }
            chain.push(found);
            next = found.inherits.as_deref();
        }
        let is_there = chain.iter().any(|own| own.name == TEMPLATE);
        chain.extend(self.find(TEMPLATE).filter(|_| !is_there));
        Ok(chain)
    }

    /// A class by its name.
    pub fn find(&self, name: &str) -> Option<&Class> {
        self.classes.iter().find(|class| class.name == name)
    }

    /// The rules of `NAME` or `NAME.VARIANT`.
    ///
    /// # Errors
    /// There is no such class or variant.
    pub fn template(&self, name: &str) -> Result<Template, String> {
        let (class, variant) = match (self.find(name), name.rsplit_once('.')) {
            (Some(class), _) => (class, DEFAULT),
            (None, Some((class, variant))) => match self.find(class) {
                Some(class) => (class, variant),
                None => return Err(format!("there is no job class \"{name}\"")),
            },
            (None, None) => return Err(format!("there is no job class \"{name}\"")),
        };
        if class.name == TEMPLATE {
            return Err("no job can have the class \"template\"".to_owned());
        }
        if variant != DEFAULT && !class.variants.iter().any(|own| own == variant) {
            return Err(format!(
                "job class \"{}\" has no variant \"{variant}\"",
                class.name
            ));
        }
        self.rules_of(class, variant)
    }

    /// The rules of a variant.
    fn rules_of(&self, class: &Class, variant: &str) -> Result<Template, String> {
        let chain = self.chain(class)?;
        let rule = |attribute: &'static Attribute| {
            let mut said = chain.iter().filter_map(|own| {
                let found = own
                    .settings
                    .iter()
                    .find(|s| s.attribute.name == attribute.name)?;
                found.values.of(variant)
            });
            said.next().filter(|rule| !rule.is_free()).cloned()
        };
        let all = attributes::ALL.iter();
        let rules = all.filter_map(|attribute| Some((attribute, rule(attribute)?)));
        let template = Template {
            name: match variant {
                DEFAULT => class.name.clone(),
                variant => format!("{}.{variant}", class.name),
            },
            rules: rules.collect(),
        };
        match template.text().len() <= CLASS_RULES_BYTES_MAX {
            true => Ok(template),
            false => Err(format!(
                "the rules of class \"{}\" have more than {CLASS_RULES_BYTES_MAX} bytes",
                template.name
            )),
        }
    }

    /// Whether a user with these groups may use a class.
    pub fn may_use(&self, class: &str, user: &str, groups: &[String]) -> bool {
        let Some(class) = self
            .find(class.split('.').next().unwrap_or(class))
            .or_else(|| self.find(class))
        else {
            return false;
        };
        let is_of = |entry: &String| {
            let set = self.sets.iter().find(|(name, _)| name == entry);
            let one = |entry: &String| match entry.strip_prefix('@') {
                Some(group) => groups.iter().any(|own| own == group),
                None => entry == user,
            };
            set.map_or_else(|| one(entry), |(_, entries)| entries.iter().any(one))
        };
        if class.owner.iter().any(is_of) {
            return true;
        }
        let is_allowed = class.user_lists.is_empty() || class.user_lists.iter().any(is_of);
        is_allowed && !class.xuser_lists.iter().any(is_of)
    }

    /// A class as `qconf -sjc` prints it, with inherited settings.
    pub fn show(&self, name: &str) -> Option<String> {
        let class = self.find(name)?;
        let chain = self.chain(class).ok()?;
        let list = |list: &[String]| match list.is_empty() {
            true => NO_CLASS.to_owned(),
            false => list.join(","),
        };
        let mut text = String::new();
        let mut row = |key: &str, value: &str| {
            let _ = writeln!(text, "{key:<14} {value}");
        };
        row("jcname", &class.name);
        if let Some(parent) = &class.inherits {
            row("inherits", parent);
        }
        row("variant_list", &list(&class.variants));
        row("owner", &list(&class.owner));
        row("user_lists", &list(&class.user_lists));
        row("xuser_lists", &list(&class.xuser_lists));
        for attribute in attributes::ALL {
            let said = chain.iter().find_map(|own| {
                let found = own
                    .settings
                    .iter()
                    .find(|s| s.attribute.name == attribute.name);
                found.map(|setting| setting.values.text())
            });
            row(attribute.name, said.as_deref().unwrap_or(rule::FREE));
        }
        Some(text)
    }
}

impl Class {
    fn take(&mut self, line: &ClassLine<'_>, help: &str) -> Result<(), (String, String)> {
        let wrong = |message: String| (message, help.to_owned());
        match line.word {
            "inherits" => {
                self.inherits = Some(line.rest.to_owned()).filter(|name| !is_none(name));
            }
            "variant_list" => {
                let names = list(line.rest).map_err(wrong)?;
                if let Some(name) = names
                    .iter()
                    .find(|name| name.contains('.') || object_name(name).is_err())
                {
                    return Err(wrong(format!("'{name}' is not a valid name of a variant")));
                }
                self.variants = names;
            }
            "owner" => self.owner = list(line.rest).map_err(wrong)?,
            "user_lists" => self.user_lists = list(line.rest).map_err(wrong)?,
            "xuser_lists" => self.xuser_lists = list(line.rest).map_err(wrong)?,
            word => {
                let attribute = attributes::find(word).ok_or_else(|| {
                    let names: Vec<&str> = attributes::ALL.iter().map(|own| own.name).collect();
                    (
                        format!("there is no attribute '{word}'"),
                        format!("attributes are {}", names.join(", ")),
                    )
                })?;
                let form = || format!("write: {word} {}", attribute.form());
                if self
                    .settings
                    .iter()
                    .any(|own| own.attribute.name == attribute.name)
                {
                    return Err((
                        format!("{word} is said twice in class '{}'", self.name),
                        form(),
                    ));
                }
                let values = Values::parse(attribute, line.rest).map_err(|why| (why, form()))?;
                self.settings.push(Setting {
                    attribute,
                    values,
                    line: line.number,
                });
            }
        }
        Ok(())
    }
}

/// Lines that say something, with the number of their first part: a line that ends in `\` goes on in the next.
fn joined_lines(text: &str) -> Vec<(u32, String)> {
    let mut lines: Vec<(u32, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if !goes_on && (line.is_empty() || line.starts_with('#')) {
            continue;
        }
        let (part, more) = line
            .strip_suffix('\\')
            .map_or((line, false), |part| (part, true));
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, whole)) => whole.push_str(part.trim()),
            None => lines.push((number, part.to_owned())),
        }
        goes_on = more;
    }
    lines
}

/// The lines of a file that are accepted, which have the same classes: those who use them need neither comments nor wrong lines,
/// which only the file's author may know.
pub fn accepted_text(text: &str) -> String {
    let mut out = String::new();
    JobClasses::read(text, FILE, |line| {
        out.push_str(line);
        // It is no sign that it goes on.
        if line.ends_with('\\') {
            out.push_str("\\\n");
        }
        out.push('\n');
    });
    out
}

fn is_none(word: &str) -> bool {
    word.eq_ignore_ascii_case(NO_CLASS)
}

fn list(text: &str) -> Result<Vec<String>, String> {
    if is_none(text.trim()) {
        return Ok(Vec::new());
    }
    let words = text.split(|c: char| c == ',' || c.is_whitespace());
    let all: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    if let Some(word) = all.iter().find(|word| word.starts_with('#')) {
        return Err(format!(
            "the list has '{word:.80}': a comment is a line of its own"
        ));
    }
    match all.len() <= ITEMS_MAX {
        true => Ok(all),
        false => Err(format!("the list has more than {ITEMS_MAX} entries")),
    }
}

fn object_name(name: &str) -> Result<&str, String> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let reserved = ["none", "any"].contains(&name.to_ascii_lowercase().as_str());
    match starts && !reserved && name.len() <= 100 && name.chars().all(is_fit) {
        true => Ok(name),
        false => Err(format!(
            "'{name:.100}' is not a valid name: letters, digits, '_', '-' and '.' after a letter"
        )),
    }
}

#[cfg(test)]
mod tests;
