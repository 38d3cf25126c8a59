//! Job classes, in the form that they have already, without what has no counterpart.

use super::Made;
use super::dump::Dump;
use muster_conf::Diagnostic;
use muster_conf::grid_engine::Mapping;
use muster_conf::job_classes::rule::FREE;
use muster_conf::job_classes::{FORMS, JobClasses, attributes};
use std::collections::BTreeMap;

/// The file of job classes.
pub(super) fn write(dump: &Dump, made: &mut Made) {
    let mapping = Mapping::parse(&made.sge, "sge.conf").0;
    if dump.classes.is_empty() {
        return;
    }
    let mut text = String::new();
    for key in ["default_jc", "enforce_jc"] {
        if let Some(value) = dump.setting(key) {
            text.push_str(&format!("{key} {value}\n"));
        }
    }
    for set in &dump.usersets {
        let (entries, _) = set.list("entries");
        if !entries.is_empty() {
            text.push_str(&format!("userset {} {}\n", set.name(), entries.join(",")));
        }
    }
    for class in &dump.classes {
        text.push_str(&format!("\njcname {}\n", class.name()));
        for (key, value) in class.lines.iter().skip(1) {
            let is_form = FORMS.iter().any(|(word, ..)| word == key);
            if !is_form && (value == FREE || value.eq_ignore_ascii_case("none")) {
                continue;
            }
            if !is_form && attributes::find(key).is_none() {
                made.note(
                    &format!("job class {}: {key} {value}", class.name()),
                    "there is no such attribute here",
                );
                continue;
            }
            text.push_str(&format!("{key} {value}\n"));
        }
    }
    made.classes = without_errors(text, &mapping, dump, made);
}

/// Most passes that leave out single elements of lists before their lines: each time all of the text is read anew.
const BY_ELEMENT_MAX: usize = 16;

/// Leaves out what means nothing here: all wrong lines of one kind at a time, since one may be another's cause.
fn without_errors(mut text: String, mapping: &Mapping, dump: &Dump, made: &mut Made) -> String {
    let gres: Vec<String> = dump
        .complexes
        .iter()
        .map(|own| own.name.clone())
        .filter(|name| mapping.complex(name).is_some())
        .collect();
    let mut passes = 0;
    loop {
        let (classes, wrong) = JobClasses::parse(&text, "job_classes.conf");
        let wrong_rules = classes.check(mapping, &gres);
        let lines: Vec<&str> = text.lines().collect();
        let edits = edits_of(&lines, &wrong, &wrong_rules, passes < BY_ELEMENT_MAX);
        if edits.is_empty() {
            return text;
        }
        text = edited(&lines, &edits, made);
        passes += 1;
    }
}

/// Edit of a line.
enum Edit<'a> {
    /// It is left out, for a reason.
    Without(&'a str),
    /// An element of its list is left out, for a reason: its name, and the rest.
    WithoutElement(String, String, &'a str),
    /// It goes with the class that it is of.
    WithClass,
}

/// Edits by number of the line, from 0.
type Edits<'a> = BTreeMap<usize, Edit<'a>>;

/// Edits for findings: those of the first kind that there is, since these may be the cause of others.
fn edits_of<'a>(
    lines: &[&str],
    wrong: &'a [Diagnostic],
    wrong_rules: &'a [Diagnostic],
    by_element: bool,
) -> Edits<'a> {
    let at = |finding: &Diagnostic| {
        let number = usize::try_from(finding.origin.line).unwrap_or_default();
        number.checked_sub(1).filter(|at| *at < lines.len())
    };
    let is_class = |at: usize| lines[at].starts_with("jcname ");
    let mut edits = Edits::new();
    // Lines below a name that is none count for another class.
    for finding in wrong.iter().filter(|finding| finding.key == "jcname") {
        at(finding)
            .into_iter()
            .for_each(|at| without_class(lines, at, &finding.message, &mut edits));
    }
    if !edits.is_empty() {
        return edits;
    }
    let all = || wrong.iter().chain(wrong_rules);
    for finding in all() {
        // That of all classes is of no line.
        let line = at(finding).or_else(|| {
            lines
                .iter()
                .position(|line| line.starts_with("default_jc "))
        });
        if let Some(line) = line.filter(|line| !is_class(*line)) {
            let edit = edit_of_line(lines[line], &finding.message, by_element);
            edits.entry(line).or_insert(edit);
        }
    }
    if !edits.is_empty() {
        return edits;
    }
    // Errors of a class as a whole are in its slots, or inherited.
    for key in ["pe_range ", "inherits ", "jcname "] {
        for finding in all() {
            let Some(start) = at(finding).filter(|at| is_class(*at)) else {
                continue;
            };
            match lines[start..class_end(lines, start)]
                .iter()
                .position(|line| line.starts_with(key))
            {
                Some(0) => without_class(lines, start, &finding.message, &mut edits),
                Some(further) => {
                    edits
                        .entry(start + further)
                        .or_insert(Edit::Without(&finding.message));
                }
                None => {}
            }
        }
        if !edits.is_empty() {
            return edits;
        }
    }
    edits
}

fn edit_of_line<'a>(line: &str, why: &'a str, by_element: bool) -> Edit<'a> {
    let name = unknown_resource(why).filter(|_| by_element);
    let rest = name.and_then(|name| Some((without_element(line, &name)?, name)));
    match rest {
        Some((rest, name)) => Edit::WithoutElement(name, rest, why),
        None => Edit::Without(why),
    }
}

/// The line after those of a class.
fn class_end(lines: &[&str], start: usize) -> usize {
    let next = lines[start + 1..]
        .iter()
        .position(|line| line.starts_with("jcname "));
    next.map_or(lines.len(), |next| start + 1 + next)
}

fn without_class<'a>(lines: &[&str], start: usize, why: &'a str, edits: &mut Edits<'a>) {
    edits.entry(start).or_insert(Edit::Without(why));
    for line in start + 1..class_end(lines, start) {
        edits.insert(line, Edit::WithClass);
    }
}

/// The text of edited lines. What is left out is noted.
fn edited(lines: &[&str], edits: &Edits<'_>, made: &mut Made) -> String {
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        let kept = match edits.get(&at) {
            None => *line,
            Some(Edit::WithoutElement(name, rest, why)) => {
                made.note(&format!("job classes: {name} of {line}"), why);
                rest.as_str()
            }
            Some(Edit::Without(why)) => {
                made.note(&format!("job classes: {line}"), why);
                continue;
            }
            Some(Edit::WithClass) => continue,
        };
        text.push_str(kept);
        text.push('\n');
    }
    text
}

/// The resource that a list names and that there is not.
fn unknown_resource(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("unknown resource \"")?;
    Some(rest.split('"').next()?.to_owned())
}

/// A list without its request for a resource, in its variants, too; nothing if that is not in it.
fn without_element(line: &str, name: &str) -> Option<String> {
    let is_it = |word: &str| {
        let word = word.rsplit(['}', ' ']).next().unwrap_or(word);
        word == name
            || word
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('='))
    };
    let mut parts = line.split(',').map(str::to_owned).collect::<Vec<_>>();
    let at = parts
        .iter()
        .position(|part| is_it(part.split(']').next().unwrap_or(part)))?;
    // The end of a variant's list stays.
    let end = parts[at].find(']').map(|end| parts[at][end..].to_owned());
    let key = parts[at]
        .starts_with("l_hard")
        .then(|| "l_hard ".to_owned());
    parts.remove(at);
    match (end, key, at) {
        (Some(end), _, 1..) => parts[at - 1].push_str(&end),
        (None, Some(key), _) if !parts.is_empty() => parts[0].insert_str(0, &key),
        (None, None, _) => {}
        _ => return None,
    }
    Some(parts.join(","))
}
