//! Job classes: a submission gets what its class says and keeps what the class lets its user say; a change of a job is checked by
//! the rules that the job was submitted with. The controller does this, whatever command asks. Which classes there are, and who may
//! use them, is in `muster_conf::job_classes`.

pub(crate) mod attribute;

use crate::jsv::layout::{self, Layout};
use crate::jsv::requests::Request;
use crate::jsv::{Site, requests};
use minicbor::bytes::ByteVec;
use muster_conf::job_classes::Template;
use muster_conf::job_classes::rule::{Access, AttributeRule, Element};
use muster_model::command::JobUpdate;
use muster_model::environment;
use muster_model::index_set::IndexSet;
use muster_model::job_class::JobClass;
use muster_model::mail::MailOptions;
use muster_model::spec::{ExecContext, JobKind, JobSpec, ResourceAsk};
use muster_model::time::TimeLimit;

/// A submission and its class.
struct Application<'a> {
    template: &'a Template,
    site: &'a Site,
    asked: JobClass,
}

/// Makes a job of a class: puts the class's values where the user gave none, and keeps the rules with the job.
///
/// # Errors
/// What the class does not allow.
pub fn apply(
    spec: &mut JobSpec,
    context: &mut Option<ByteVec>,
    template: &Template,
    site: &Site,
) -> Result<(), String> {
    let asked = spec.class.take().map(|own| *own).unwrap_or_default();
    let application = Application {
        template,
        site,
        asked,
    };
    application.check_cleared()?;
    for (attribute, rule) in &template.rules {
        match (attribute.name, rule) {
            ("l_hard", rule) => application.resources(spec, rule)?,
            ("v", AttributeRule::List { elements, .. }) => {
                application.variables(spec, context, elements)?
            }
            ("pe_name" | "pe_range" | "v", _) => {}
            (name, rule) => application.scalar(spec, name, rule)?,
        }
    }
    application.layout(spec)?;
    spec.class = Some(Box::new(JobClass {
        name: template.name.clone(),
        rules: template.text(),
        ..JobClass::default()
    }));
    Ok(())
}

/// Why a class refuses.
fn refused(template: &Template, what: &str) -> String {
    format!("job class \"{}\" does not allow {what}", template.name)
}

impl Application<'_> {
    fn refused(&self, what: &str) -> String {
        refused(self.template, what)
    }

    fn is_cleared(&self, name: &str) -> bool {
        self.asked.cleared.iter().any(|own| own == name)
    }

    /// A cleared element must be the class's, and removable.
    fn check_cleared(&self) -> Result<(), String> {
        for word in &self.asked.cleared {
            let (name, key) = word.split_once(' ').unwrap_or((word, ""));
            let nothing = || {
                format!(
                    "job class \"{}\" says nothing of {word:.100}",
                    self.template.name
                )
            };
            let access = match (self.template.rule(name).ok_or_else(nothing)?, key) {
                (AttributeRule::Unspecified(_), _) => return Err(nothing()),
                (AttributeRule::Value(access, _), "") => *access,
                (AttributeRule::List { elements, .. }, "") => Access {
                    remove: elements.iter().all(|own| own.access.remove),
                    change: false,
                },
                (AttributeRule::List { elements, .. }, key) => {
                    elements
                        .iter()
                        .find(|own| own.key == key)
                        .ok_or_else(nothing)?
                        .access
                }
                (AttributeRule::Value(..), _) => return Err(nothing()),
            };
            if !access.remove {
                return Err(self.refused(&format!("to clear {word}")));
            }
        }
        Ok(())
    }

    /// An attribute with one value.
    fn scalar(&self, spec: &mut JobSpec, name: &str, rule: &AttributeRule) -> Result<(), String> {
        let own = attribute::value(spec, name, self.site, &self.asked.given);
        match (rule, own) {
            (AttributeRule::Unspecified(access), Some(own)) if !access.change => {
                Err(self.refused(&format!("{name} ({own:.100})")))
            }
            (AttributeRule::Value(access, value), Some(own)) => {
                match attribute::canonical(name, value, self.site)? == own || access.change {
                    true => Ok(()),
                    false => {
                        Err(self.refused(&format!("to change {name} from {value} to {own:.100}")))
                    }
                }
            }
            (AttributeRule::Value(_, value), None) if !self.is_cleared(name) => {
                attribute::set(spec, name, value, self.site)
                    .map_err(|why| format!("job class \"{}\": {name}: {why}", self.template.name))
            }
            _ => Ok(()),
        }
    }

    /// `l_hard`.
    fn resources(&self, spec: &mut JobSpec, rule: &AttributeRule) -> Result<(), String> {
        let asked = requests::of(spec, self.site);
        let (add, elements) = match rule {
            AttributeRule::Unspecified(access) => (access.change, &[][..]),
            AttributeRule::List { add, elements, .. } => (*add, elements.as_slice()),
            AttributeRule::Value(..) => return Ok(()),
        };
        let mut left = asked;
        let mut fixed = Vec::new();
        for element in elements {
            let own = requests::of_element(element, self.site)?;
            let at = left.iter().position(|asked| asked.key == own.key);
            let asked = at.map(|at| left.remove(at));
            match asked {
                Some(asked) if asked.value == own.value || element.access.change => {}
                Some(asked) => {
                    let what = format!("to change l_hard {} to {}", element.text(), asked.value);
                    return Err(self.refused(&what));
                }
                None if self.is_cleared("l_hard") => {}
                None if self.is_cleared(&format!("l_hard {}", element.key)) => {}
                None => requests::put(spec, element, self.site)?,
            }
            // Asked for once more it would come to more than the class says.
            if left.iter().any(|more| more.key == own.key) && !element.access.change {
                let what = format!("to ask for l_hard {} again", element.text());
                return Err(self.refused(&what));
            }
            if !element.access.change {
                fixed.push((own, element));
            }
        }
        // In another way of counting, or as one of alternatives, it would be more, too.
        for more in &left {
            if let Some((_, element)) = fixed.iter().find(|(own, _)| own.shares_with(more)) {
                let what = format!(
                    "{}={:.100} beside l_hard {}",
                    more.key,
                    more.value,
                    element.text()
                );
                return Err(self.refused(&what));
            }
        }
        match left.first() {
            Some(more) if !add => Err(self.refused(&format!(
                "to add {}={:.100} to l_hard",
                more.key, more.value
            ))),
            _ => Ok(()),
        }
    }

    /// `v`: variables of the class; those that may be changed yield to the user's own.
    fn variables(
        &self,
        spec: &JobSpec,
        context: &mut Option<ByteVec>,
        elements: &[Element],
    ) -> Result<(), String> {
        let decoded = context
            .as_ref()
            .and_then(|bytes| minicbor::decode(bytes).ok());
        let Some(mut decoded): Option<ExecContext> = decoded else {
            return match spec.kind {
                JobKind::Allocation => Err(format!(
                    "job class \"{}\" sets variables, which only batch jobs can be given: use sbatch or qsub",
                    self.template.name
                )),
                JobKind::Batch => Ok(()),
            };
        };
        for element in elements {
            let name = element.key.as_bytes();
            let has = decoded
                .environment
                .iter()
                .any(|own| environment::name(own) == name);
            let is_own =
                has && element.access.change || self.is_cleared(&format!("v {}", element.key));
            if !is_own {
                let value = element.value.as_deref().unwrap_or_default();
                decoded.environment.set(name, value.as_bytes());
            }
        }
        *context = Some(decoded.encoded().into());
        Ok(())
    }

    /// `pe_name` and `pe_range`.
    fn layout(&self, spec: &mut JobSpec) -> Result<(), String> {
        let names = ["pe_name", "pe_range"].map(|name| self.template.rule(name));
        if names.iter().all(Option::is_none) {
            return Ok(());
        }
        let own = Layout::of(spec, self.site);
        let class = |rule: Option<&AttributeRule>, name| match rule {
            Some(AttributeRule::Value(_, value)) if !self.is_cleared(name) => Some(value.clone()),
            _ => None,
        };
        let (pe, range) = (class(names[0], "pe_name"), class(names[1], "pe_range"));
        self.check_layout(&own, names)?;
        let slots = own.slots().or_else(|| {
            let (least, most) = muster_conf::job_classes::slots(range.as_deref()?)?;
            let mut slots = IndexSet::default();
            slots.insert_range(least, most);
            Some(slots)
        });
        let slots = slots.unwrap_or_else(|| IndexSet::single(1));
        let name = match &own {
            Layout::Environment(name, _) => Some(name.clone()),
            // A layout of the user's own, which the class lets be.
            Layout::Other(_) => return Ok(()),
            Layout::None | Layout::Slots(_) => pe,
        };
        let Some(name) = name else {
            return Ok(());
        };
        let put = layout::put(spec, &name, &slots, self.site);
        put.map_err(|why| why.replace("the JSV", "the job"))
    }

    fn check_layout(
        &self,
        own: &Layout,
        [name, range]: [Option<&AttributeRule>; 2],
    ) -> Result<(), String> {
        let given = match own {
            Layout::Environment(name, _) => Some(name.as_str()),
            Layout::Other(_) => Some("a layout of nodes and tasks"),
            Layout::None | Layout::Slots(_) => None,
        };
        match (name, given) {
            (Some(AttributeRule::Unspecified(access)), Some(given)) if !access.change => {
                return Err(self.refused(&format!("pe_name ({given})")));
            }
            (Some(AttributeRule::Value(access, value)), Some(given))
                if value != given && !access.change =>
            {
                return Err(self.refused(&format!("to change pe_name from {value} to {given}")));
            }
            _ => {}
        }
        match (range, own.slots()) {
            (Some(AttributeRule::Unspecified(access)), Some(slots)) if !access.change => {
                Err(self.refused(&format!("pe_range ({})", text(&slots))))
            }
            (Some(AttributeRule::Value(access, value)), Some(slots)) if !access.change => {
                let (least, most) = muster_conf::job_classes::slots(value).unwrap_or((1, 1));
                let ends = [slots.first(), slots.last()];
                let is_within = |end: &u32| (least..=most).contains(end);
                match ends.iter().flatten().all(is_within) {
                    true => Ok(()),
                    false => {
                        let slots = text(&slots);
                        Err(self.refused(&format!("to change pe_range from {value} to {slots}")))
                    }
                }
            }
            _ => Ok(()),
        }
    }
}

/// `4`, `2-8`: the least and the most.
fn text(slots: &IndexSet) -> String {
    match (slots.first(), slots.last()) {
        (Some(first), Some(last)) if first < last => format!("{first}-{last}"),
        (first, _) => first.unwrap_or(0).to_string(),
    }
}

/// Checks a change of a job by the rules that it was submitted with.
///
/// # Errors
/// What the class does not allow.
pub fn check_update(spec: &JobSpec, update: &JobUpdate, site: &Site) -> Result<(), String> {
    let Some(class) = &spec.class else {
        return Ok(());
    };
    let template = Template::of_job(&class.name, &class.rules);
    let after = updated(spec, update);
    for (attribute, rule) in &template.rules {
        let name = attribute.name;
        match name {
            "l_hard" => check_requests(spec, &after, rule, &template, site)?,
            "pe_name" | "pe_range" => check_slots(spec, &after, name, rule, &template)?,
            "v" => {}
            _ => {
                let given = ["N", "cwd", "o", "e"].map(str::to_owned);
                let value = |spec| attribute::value(spec, name, site, &given);
                let (old, new) = (value(spec), value(&after));
                if old != new {
                    check_value(rule, name, new.as_deref(), &template, site)?;
                }
            }
        }
    }
    Ok(())
}

/// A new value of an attribute, or none.
fn check_value(
    rule: &AttributeRule,
    name: &str,
    new: Option<&str>,
    template: &Template,
    site: &Site,
) -> Result<(), String> {
    let is_allowed = match (rule, new) {
        (AttributeRule::Unspecified(access), Some(_)) => access.change,
        // An attribute that should not be there may go.
        (AttributeRule::Unspecified(_), None) => true,
        (AttributeRule::Value(access, value), Some(new)) => {
            access.change || attribute::canonical(name, value, site).is_ok_and(|own| own == new)
        }
        (AttributeRule::Value(access, _), None) => access.remove,
        (AttributeRule::List { .. }, _) => true,
    };
    match is_allowed {
        true => Ok(()),
        false => Err(refused(
            template,
            &format!("to change {name} to {:.100}", new.unwrap_or("nothing")),
        )),
    }
}

fn check_requests(
    before: &JobSpec,
    after: &JobSpec,
    rule: &AttributeRule,
    template: &Template,
    site: &Site,
) -> Result<(), String> {
    let (old, new) = (requests::of(before, site), requests::of(after, site));
    let (add, elements) = match rule {
        AttributeRule::Unspecified(access) => (access.change, &[][..]),
        AttributeRule::List { add, elements, .. } => (*add, elements.as_slice()),
        AttributeRule::Value(..) => return Ok(()),
    };
    let own: Vec<_> = elements
        .iter()
        .filter_map(|element| Some((requests::of_element(element, site).ok()?, element)))
        .collect();
    let element = |key: &str| own.iter().find(|(own, _)| own.key == key);
    let is_fixed = |request: &Request| {
        let mut fixed = own.iter().filter(|(_, element)| !element.access.change);
        fixed.any(|(own, _)| own.shares_with(request))
    };
    let times = |all: &[Request], one: &Request| all.iter().filter(|own| *own == one).count();
    // A request that is there once more than before comes to more.
    let is_more = |request: &&Request| times(&new, request) > times(&old, request);
    for request in new.iter().filter(is_more) {
        let is_allowed = match element(&request.key) {
            Some((class, element)) => {
                let is_alone = new.iter().filter(|own| own.key == request.key).count() == 1;
                element.access.change || class.value == request.value && is_alone
            }
            None => add && !is_fixed(request),
        };
        if !is_allowed {
            let what = format!("to change l_hard {} to {:.100}", request.key, request.value);
            return Err(refused(template, &what));
        }
    }
    let gone = old
        .iter()
        .filter(|own| !new.iter().any(|other| other.key == own.key));
    for request in gone {
        if element(&request.key).is_some_and(|(_, element)| !element.access.remove) {
            return Err(refused(
                template,
                &format!("to remove {} from l_hard", request.key),
            ));
        }
    }
    Ok(())
}

fn check_slots(
    before: &JobSpec,
    after: &JobSpec,
    name: &str,
    rule: &AttributeRule,
    template: &Template,
) -> Result<(), String> {
    let is_free = match rule {
        AttributeRule::Unspecified(access) | AttributeRule::Value(access, _) => access.change,
        AttributeRule::List { .. } => true,
    };
    let changes = match name {
        "pe_name" => {
            let is_on_one = |ask: &ResourceAsk| ask.max_nodes == Some(1);
            let leaves_host = is_on_one(&before.ask) && !is_on_one(&after.ask);
            // One with a fixed number of slots on each host has as many hosts as it takes.
            let leaves_host = leaves_host && before.ask.ntasks_per_node.is_none();
            leaves_host || layout::shape(&before.ask) != layout::shape(&after.ask)
        }
        _ => layout::of_ask(&before.ask) != layout::of_ask(&after.ask),
    };
    match is_free || !changes {
        true => Ok(()),
        false => Err(refused(template, &format!("to change {name}"))),
    }
}

/// A job as it will be.
fn updated(spec: &JobSpec, update: &JobUpdate) -> JobSpec {
    let mut after = spec.clone();
    // Each field is an attribute of classes or belongs to administrators.
    let JobUpdate {
        time_limit,
        time_delta_min,
        priority,
        nice,
        partitions,
        name,
        comment,
        account,
        qos,
        dependency,
        begin,
        deadline,
        ask,
        array_throttle,
        requeue,
        stdio,
        work_dir,
        wckey,
        reservation,
        shown,
        time_min,
        site_factor: _,
        nodelist: _,
        licenses,
    } = update;
    macro_rules! take {
        ($($field:ident),*) => { $(if $field.is_some() { after.$field.clone_from($field); })* };
    }
    macro_rules! put {
        ($($field:ident),*) => { $(if let Some(new) = $field { after.$field.clone_from(new); })* };
    }
    take!(
        time_limit,
        priority,
        comment,
        account,
        qos,
        begin,
        deadline,
        requeue,
        wckey,
        reservation,
        time_min,
        licenses
    );
    put!(nice, partitions, name, dependency, ask, stdio, work_dir);
    if time_delta_min.is_some_and(|minutes| minutes != 0) {
        // Another limit, whatever it comes to.
        let minutes = |limit: TimeLimit| limit.seconds().map_or(0, |s| s / 60);
        let old = spec.time_limit.map_or(0, minutes);
        let delta = time_delta_min.unwrap_or_default();
        let new = u32::try_from(old.saturating_add_signed(delta).max(1)).unwrap_or(u32::MAX);
        after.time_limit = Some(TimeLimit::Minutes(new));
    }
    if let (Some(throttle), Some(array)) = (array_throttle, &mut after.array) {
        array.throttle = Some(*throttle).filter(|most| *most > 0);
    }
    for (key, value) in shown {
        let mail = after.mail.get_or_insert_default();
        match key.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
            "mailuser" => mail.user.clone_from(value),
            "mailtype" => mail.types.clone_from(value),
            _ => {}
        }
    }
    after.mail = MailOptions::changed(after.mail, |_| {});
    after
}

#[cfg(test)]
mod tests;
