//! Job classes, in the form that they have already, without what has no counterpart.

use super::Made;
use super::dump::Dump;
use muster_conf::grid_engine::Mapping;
use muster_conf::job_classes::rule::FREE;
use muster_conf::job_classes::{FORMS, JobClasses, attributes};

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

/// Leaves out lines that mean nothing here, one after the other, since one may be another's cause.
fn without_errors(text: String, mapping: &Mapping, dump: &Dump, made: &mut Made) -> String {
    let mut text = text;
    let gres: Vec<String> = dump
        .complexes
        .iter()
        .map(|own| own.name.clone())
        .filter(|name| mapping.complex(name).is_some())
        .collect();
    loop {
        let (classes, mut findings) = JobClasses::parse(&text, "job_classes.conf");
        findings.extend(classes.check(mapping, &gres));
        let Some(finding) = findings.first() else {
            return text;
        };
        let number = usize::try_from(finding.origin.line).unwrap_or_default();
        let line = text
            .lines()
            .nth(number.saturating_sub(1))
            .unwrap_or_default()
            .to_owned();
        if let Some(name) = unknown_resource(&finding.message)
            && let Some(rest) = without_element(&line, &name)
        {
            made.note(&format!("job classes: {name} of {line}"), &finding.message);
            text = (1..)
                .zip(text.lines())
                .map(|(at, own)| {
                    if at == number {
                        format!("{rest}\n")
                    } else {
                        format!("{own}\n")
                    }
                })
                .collect();
            continue;
        }
        // What is wrong with a class as a whole is its slots.
        let (wrong, shown) = match line.starts_with("jcname") || number == 0 {
            false => (number, line),
            true => match text
                .lines()
                .skip(number)
                .position(|own| own.starts_with("pe_range") || own.starts_with("inherits"))
            {
                Some(further) => (
                    number + further + 1,
                    text.lines()
                        .nth(number + further)
                        .unwrap_or_default()
                        .to_owned(),
                ),
                None => {
                    made.note("job classes", &finding.to_string());
                    return String::new();
                }
            },
        };
        made.note(&format!("job classes: {shown}"), &finding.message);
        text = (1..)
            .zip(text.lines())
            .filter(|(at, _)| *at != wrong)
            .map(|(_, line)| format!("{line}\n"))
            .collect();
    }
}

/// The resource that a list names and that there is not.
fn unknown_resource(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("unknown resource \"")?;
    Some(rest.split('"').next()?.to_owned())
}

/// A list without what it asks for of a resource, in its variants, too; nothing if that is not in it.
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
