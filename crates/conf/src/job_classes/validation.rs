//! Whether the values of classes mean something at this site: complexes, parallel environments, numbers.

use super::rule::{AttributeRule, Element};
use super::{DEFAULT, JobClasses, TEMPLATE, Template};
use crate::diagnostic::Diagnostic;
use crate::grid_engine::Mapping;
use crate::grid_engine::resources::Resources;
use crate::options::values;

/// Least and most of a range of slots, `4` or `2-8`.
pub fn slots(text: &str) -> Option<(u32, u32)> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let (least, most) = (least.trim().parse().ok()?, most.trim().parse().ok()?);
    (least > 0 && least <= most).then_some((least, most))
}

impl JobClasses {
    /// Findings about wrong values, in the order of the file. `gres` are the resources of `GresTypes`.
    pub fn check(&self, mapping: &Mapping, gres: &[String]) -> Vec<Diagnostic> {
        let mut findings = Vec::new();
        for class in &self.classes {
            for setting in &class.settings {
                let others = setting.values.of_variants.iter().map(|(_, rule)| rule);
                for rule in setting.values.usual.iter().chain(others) {
                    let name = setting.attribute.name;
                    if let Err(why) = check_rule(name, rule, mapping, gres) {
                        let message = format!("class '{}': {name}: {why}", class.name);
                        findings.push(self.finding(setting.line, name, message, help_of(name)));
                    }
                }
            }
            if class.name == TEMPLATE {
                continue;
            }
            let variants = class.variants.iter().map(String::as_str);
            for variant in [DEFAULT]
                .into_iter()
                .chain(variants.filter(|own| *own != DEFAULT))
            {
                // Circles are found by `check_names`.
                let whole = self.rules_of(class, variant);
                let wrong = match &whole {
                    Ok(template) => check_whole(template, mapping).err(),
                    Err(why) if why.contains("bytes") => Some(why.clone()),
                    Err(_) => None,
                };
                if let Some(why) = wrong {
                    let message = format!("class '{}', variant '{variant}': {why}", class.name);
                    findings.push(self.finding(class.line, "jcname", message, help_of("pe_range")));
                }
            }
        }
        findings
    }
}

fn help_of(name: &str) -> String {
    match name {
        "l_hard" => "complexes are those of sge.conf, GresTypes of slurm.conf, h_rt, h_vmem, mem_free, exclusive, num_proc",
        "pe_name" => "parallel environments are the pe lines of sge.conf",
        "pe_range" => "give pe_name and pe_range together, the latter as N or LEAST-MOST",
        "t" => "write: FIRST-LAST or FIRST-LAST:STEP, or the list that sbatch --array takes",
        _ => "muster class and docs/job-classes.md list the values of attributes",
    }
    .to_owned()
}

fn check_rule(
    name: &str,
    rule: &AttributeRule,
    mapping: &Mapping,
    gres: &[String],
) -> Result<(), String> {
    match (name, rule) {
        ("N" | "cwd" | "v", AttributeRule::Unspecified(access)) if !access.change => {
            Err("it cannot be forbidden, since each job has it".to_owned())
        }
        (_, AttributeRule::Unspecified(_)) => Ok(()),
        ("l_hard", AttributeRule::List { elements, .. }) => elements
            .iter()
            .try_for_each(|element| check_request(element, mapping, gres)),
        ("v", AttributeRule::List { elements, .. }) => {
            match elements.iter().find(|own| own.value.is_none()) {
                Some(element) => Err(format!("variable '{}' has no value", element.key)),
                None => Ok(()),
            }
        }
        ("pe_name", AttributeRule::Value(_, value)) => match mapping.rule(value) {
            Some(_) => Ok(()),
            None => Err(format!("there is no parallel environment '{value:.80}'")),
        },
        ("pe_range", AttributeRule::Value(_, value)) => slots(value)
            .map(|_| ())
            .ok_or_else(|| format!("'{value:.80}' is not a valid range of slots")),
        ("t", AttributeRule::Value(_, value)) => values::array(value)
            .map(|_| ())
            .ok_or_else(|| format!("'{value:.80}' is not a valid list of tasks")),
        ("p", AttributeRule::Value(_, value)) => match value.parse() {
            Ok(-1023..=1024) => Ok(()),
            _ => Err(format!("'{value:.80}' is not a number from -1023 to 1024")),
        },
        ("tc", AttributeRule::Value(_, value)) => value
            .parse::<u32>()
            .map(|_| ())
            .map_err(|_| format!("'{value:.80}' is not a number of tasks")),
        ("m", AttributeRule::Value(_, value)) if value.chars().any(|c| !"beasn".contains(c)) => {
            Err(format!(
                "'{value:.80}' has letters other than b, e, a, s, n"
            ))
        }
        ("cwd" | "i", AttributeRule::Value(_, value)) if !value.starts_with('/') => {
            Err(format!("'{value:.80}' is not an absolute path"))
        }
        ("q_hard", AttributeRule::Value(_, value)) if value.contains(['@', '*', '?', '[']) => {
            Err(format!("'{value:.80}': names of queues are expected"))
        }
        _ => Ok(()),
    }
}

/// A resource of a class asks for something, and for something that a controller can give without knowing nodes.
fn check_request(element: &Element, mapping: &Mapping, gres: &[String]) -> Result<(), String> {
    let mut all = Resources::default();
    all.add((&element.key, element.value.as_deref()), mapping, gres)?;
    if all.hosts.is_some() || all.queue.is_some() || all.warn_after_s.is_some() {
        return Err(format!(
            "{} cannot stand in a class: use q_hard, a feature, or h_rt",
            element.key
        ));
    }
    let has_count = all
        .gres
        .iter()
        .map(|(_, count, _)| *count)
        .chain(all.licenses.iter().map(|(_, count)| *count));
    match has_count.into_iter().any(|count| count == 0) {
        true => Err(format!("{} asks for none", element.key)),
        false => Ok(()),
    }
}

/// Attributes that belong together.
fn check_whole(template: &Template, mapping: &Mapping) -> Result<(), String> {
    let value = |name: &str| match template.rule(name) {
        Some(AttributeRule::Value(_, value)) => Some(value.as_str()),
        _ => None,
    };
    let Some(range) = value("pe_range") else {
        return Ok(());
    };
    let Some(pe) = value("pe_name") else {
        return Err("pe_range without pe_name".to_owned());
    };
    match (mapping.rule(pe), slots(range)) {
        (Some(crate::grid_engine::AllocationRule::Fixed(each)), Some((least, _)))
            if least % each != 0 =>
        {
            Err(format!(
                "{pe} has {each} slots on each host, so {least} slots are not a whole number of hosts"
            ))
        }
        _ => Ok(()),
    }
}
