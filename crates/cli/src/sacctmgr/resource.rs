//! `sacctmgr add`, `modify`, `delete` and `show resource`: licenses of servers, of which clusters may use parts.

use super::book::Book;
use super::edit::{
    NO_CONDITIONS, NOTHING_ADDED, NOTHING_DELETED, NOTHING_MODIFIED, NOTHING_SET, USE_WHERE,
    check_clusters, parts,
};
use super::fields::columns;
use super::row::ListingRow;
use super::session::{Invocation, Verb};
use super::words::Word;
use crate::listing::Failure;
use muster_model::accounts::{RESOURCE_SERVER, ResourceShare, SharedResource};
use muster_model::command::{AccountsAsk, AccountsEdit};
use std::fmt::Write as _;

const SHOWN: &str = "Name,Server,Type,Count,Allocated,ServerType";
const SHOWN_OF_CLUSTERS: &str = ",Cluster,Allowed";
const USE_SET: &str = "\n Use keyword 'set' to modify SLURM_PRINT_VALUE";

/// The only type that there is.
const TYPE: &str = "License";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResourceKey {
    Names,
    Clusters,
    Count,
    Description,
    Flags,
    Ids,
    Format,
    Percent,
    Servers,
    ServerType,
    Type,
    WithClusters,
    WithDeleted,
}

const SETTINGS: &[(&str, usize, ResourceKey)] = &[
    ("Clusters", 2, ResourceKey::Clusters),
    ("Count", 3, ResourceKey::Count),
    ("Descriptions", 1, ResourceKey::Description),
    ("Flags", 2, ResourceKey::Flags),
    ("Names", 1, ResourceKey::Names),
    ("Resources", 1, ResourceKey::Names),
    ("PercentAllowed", 1, ResourceKey::Percent),
    ("ServerType", 7, ResourceKey::ServerType),
    ("Servers", 2, ResourceKey::Servers),
    ("Type", 1, ResourceKey::Type),
];

const CONDITIONS: &[(&str, usize, ResourceKey)] = &[
    ("Clusters", 2, ResourceKey::Clusters),
    ("Descriptions", 1, ResourceKey::Description),
    ("Flags", 2, ResourceKey::Flags),
    ("Format", 1, ResourceKey::Format),
    ("Ids", 1, ResourceKey::Ids),
    ("Names", 1, ResourceKey::Names),
    ("Resources", 1, ResourceKey::Names),
    ("PercentAllowed", 1, ResourceKey::Percent),
    ("ServerType", 7, ResourceKey::ServerType),
    ("Servers", 2, ResourceKey::Servers),
    ("WithClusters", 5, ResourceKey::WithClusters),
    ("WithDeleted", 5, ResourceKey::WithDeleted),
];

/// Settings given for resources, and which clusters they are of.
#[derive(Clone, Debug, Default, PartialEq)]
struct ResourceSettings {
    names: Vec<String>,
    clusters: Vec<String>,
    server: Option<String>,
    count: Option<u32>,
    description: Option<String>,
    server_type: Option<String>,
    percent: Option<u32>,
    is_license: bool,
    /// Mistakes in the words, for standard output.
    wrong: String,
    /// Mistakes, for standard error.
    errors: String,
}

impl ResourceSettings {
    fn read(words: &[String]) -> ResourceSettings {
        let mut settings = ResourceSettings::default();
        for text in words {
            if text.eq_ignore_ascii_case("set") || text.eq_ignore_ascii_case("and") {
                continue;
            }
            settings.take(&Word::new(text));
        }
        settings
    }

    fn take(&mut self, word: &Word) {
        let lower = || {
            word.list()
                .iter()
                .map(|name| name.to_lowercase())
                .collect::<Vec<_>>()
        };
        let number = |errors: &mut String, what: &str| match word.value.parse() {
            Ok(number) => Some(number),
            Err(_) => {
                let _ = writeln!(
                    errors,
                    "sacctmgr: error: Invalid value for {what} ({})",
                    word.value
                );
                None
            }
        };
        match word.key_of(SETTINGS) {
            _ if word.key.is_none() => self.names.extend(lower()),
            Some(ResourceKey::Names) => self.names.extend(lower()),
            Some(ResourceKey::Clusters) => self.clusters.extend(lower()),
            Some(ResourceKey::Count) => self.count = number(&mut self.errors, "count"),
            Some(ResourceKey::Percent) => {
                self.percent = number(&mut self.errors, "PercentAllowed");
            }
            Some(ResourceKey::Description) => self.description = Some(word.value.clone()),
            Some(ResourceKey::ServerType) => self.server_type = Some(word.value.clone()),
            Some(ResourceKey::Servers) => self.server = Some(word.value.to_lowercase()),
            Some(ResourceKey::Type) if super::begins(TYPE, &word.value) => self.is_license = true,
            Some(ResourceKey::Type) => {
                let value = &word.value;
                let _ = writeln!(
                    self.wrong,
                    " Unknown resource type: '{value}'  Valid resources is {TYPE}."
                );
            }
            Some(ResourceKey::Flags) => {
                let value = &word.value;
                let _ = writeln!(
                    self.wrong,
                    " Unknown Server Resource flag used in:\n  '{value}'\n Valid Server Resource flags are\n '(null)'"
                );
            }
            Some(_) | None => {
                let _ = writeln!(self.wrong, " Unknown option: {}{USE_WHERE}", word.text);
            }
        }
    }

    /// Fails if there is anything wrong with the words.
    fn check(&self, session: &mut Invocation<'_>) -> Result<(), Failure> {
        if self.wrong.is_empty() {
            return Ok(());
        }
        session.console.say(&self.wrong);
        Err(Failure::new(self.errors.trim_end()))
    }

    fn changes_record(&self) -> bool {
        self.count.is_some() || self.description.is_some() || self.server_type.is_some()
    }

    fn apply(&self, resource: &mut SharedResource) {
        if let Some(count) = self.count {
            resource.count = count;
        }
        if let Some(text) = &self.description {
            resource.description.clone_from(text);
        }
        if let Some(text) = &self.server_type {
            resource.server_type.clone_from(text);
        }
    }

    /// Listing of the settings of an addition.
    fn text(&self, last: Option<&SharedResource>) -> String {
        let mut out = String::from(" Settings\n");
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(out, "  {name:<14} = {value}");
        };
        if let Some(last) = last {
            line("Name", &last.name);
        }
        line("Server", self.server.as_deref().unwrap_or(RESOURCE_SERVER));
        match last {
            Some(last) => line("Description", &last.description),
            None => self
                .description
                .iter()
                .for_each(|text| line("Description", text)),
        }
        self.server_type
            .iter()
            .for_each(|text| line("ServerType", text));
        self.count
            .iter()
            .for_each(|count| line("Count", &count.to_string()));
        line("Type", TYPE);
        out
    }
}

/// Conditions that choose resources, and clusters' parts of them.
#[derive(Clone, Debug, Default, PartialEq)]
struct ResourceConditions {
    names: Vec<String>,
    servers: Vec<String>,
    server_types: Vec<String>,
    descriptions: Vec<String>,
    ids: Vec<String>,
    percents: Vec<String>,
    clusters: Vec<String>,
    format: Option<String>,
    with_clusters: bool,
    is_empty: bool,
}

impl ResourceConditions {
    fn read(words: &[String]) -> Result<ResourceConditions, Failure> {
        let mut all = ResourceConditions {
            is_empty: true,
            ..ResourceConditions::default()
        };
        for text in words
            .iter()
            .filter(|word| !word.eq_ignore_ascii_case("and"))
        {
            let word = Word::new(text);
            let is_flag = |name: &str| text.len() >= 5 && super::begins(name, text);
            if word.key.is_none() && is_flag("withclusters") {
                all.with_clusters = true;
                continue;
            }
            if word.key.is_none() && is_flag("withdeleted") {
                continue;
            }
            let list = word.list().into_iter().map(|name| name.to_lowercase());
            let key = word.key_of(CONDITIONS);
            // Words about the listing choose nothing.
            all.is_empty &= matches!(
                key,
                Some(ResourceKey::Format | ResourceKey::WithClusters | ResourceKey::WithDeleted)
            ) && word.key.is_some();
            match key {
                _ if word.key.is_none() => all.names.extend(list),
                Some(ResourceKey::Names) => all.names.extend(list),
                Some(ResourceKey::Servers) => all.servers.extend(list),
                Some(ResourceKey::ServerType) => all.server_types.extend(list),
                Some(ResourceKey::Description) => all.descriptions.extend(list),
                Some(ResourceKey::Ids) => all.ids.extend(list),
                Some(ResourceKey::Percent) => all.percents.extend(list),
                Some(ResourceKey::Clusters) => all.clusters.extend(list),
                Some(ResourceKey::Format) => all.format = Some(word.value.clone()),
                Some(ResourceKey::WithClusters) => all.with_clusters = true,
                Some(ResourceKey::WithDeleted) => {}
                Some(ResourceKey::Count | ResourceKey::Type | ResourceKey::Flags) | None => {
                    return Err(Failure::new(format!(" Unknown condition: {text}{USE_SET}")));
                }
            }
        }
        Ok(all)
    }

    fn fits(&self, resource: &SharedResource) -> bool {
        let id = resource.id.to_string();
        let in_clusters =
            !self.choose_shares() || resource.shares.iter().any(|share| self.fits_share(share));
        let among = [
            (&self.names, &resource.name),
            (&self.servers, &resource.server),
            (&self.server_types, &resource.server_type),
            (&self.descriptions, &resource.description),
            (&self.ids, &id),
        ];
        in_clusters && among.iter().all(|(names, name)| fits(names, name))
    }

    /// Whether parts of clusters are meant, and resources by these.
    fn choose_shares(&self) -> bool {
        !self.clusters.is_empty() || !self.percents.is_empty()
    }

    fn fits_share(&self, share: &ResourceShare) -> bool {
        fits(&self.clusters, &share.cluster) && fits(&self.percents, &share.percent.to_string())
    }
}

fn fits(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|own| own.eq_ignore_ascii_case(name))
}

pub(super) fn edit(
    session: &mut Invocation<'_>,
    verb: Verb,
    words: &[String],
) -> Result<(), Failure> {
    match verb {
        Verb::Add => add(session, words),
        Verb::Modify => modify(session, words),
        Verb::Delete => delete(session, words),
    }
}

/// The resources in the order of their numbers.
fn by_number(book: &Book) -> Vec<&SharedResource> {
    let mut all: Vec<&SharedResource> = book.all.resources.values().collect();
    all.sort_by_key(|resource| resource.id);
    all
}

fn set(resource: SharedResource) -> AccountsEdit {
    Invocation::edit_of(&[resource.key()], AccountsAsk::SetResource(resource))
}

fn add(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let settings = ResourceSettings::read(words);
    let book = session.book()?;
    if !settings.wrong.is_empty() {
        session.console.say(&settings.wrong);
        return match check_clusters(&settings.clusters, &book) {
            Ok(()) => Err(Failure::silent()),
            Err(failure) => Err(failure),
        };
    }
    if settings.names.is_empty() {
        return Err(Failure::new(" Need name of resource to add."));
    }
    check_clusters(&settings.clusters, &book)?;
    let server = settings.server.as_deref().unwrap_or(RESOURCE_SERVER);
    let percent = settings.percent.unwrap_or(0);
    let (mut text, mut edits) = (String::from(" Adding Resource(s)\n"), Vec::new());
    let mut newest = None;
    for name in &settings.names {
        let known = book.all.resources.get(&format!("{name}@{server}"));
        if known.is_none() && !settings.is_license {
            return Err(Failure::new(format!(
                "{} Need to designate a resource type to initially add '{name}'.",
                settings.errors
            )));
        }
        let mut resource = known.cloned().unwrap_or_else(|| {
            let mut new = SharedResource {
                name: name.clone(),
                server: server.to_owned(),
                description: name.clone(),
                ..SharedResource::default()
            };
            settings.apply(&mut new);
            new
        });
        let clusters = settings.clusters.iter();
        let new: Vec<&String> = clusters
            .filter(|cluster| resource.percent_of(cluster).is_none())
            .collect();
        if known.is_some() && new.is_empty() {
            continue;
        }
        let before = resource.percent_allocated();
        let count = u32::try_from(new.len()).unwrap_or(u32::MAX);
        if before.saturating_add(count.saturating_mul(percent)) > 100 {
            session.console.say(&format!(
                " Adding this {count} clusters to resource {} at {percent}% each , with {before}% already used,  would go over 100%.  Please redo your math and resubmit.\n",
                resource.key()
            ));
            return Err(Failure::silent());
        }
        let _ = writeln!(text, "  {}", resource.key());
        for cluster in new {
            let _ = writeln!(text, "   Cluster - {cluster}\t{percent}%");
            resource.shares.push(ResourceShare {
                cluster: cluster.clone(),
                percent,
            });
        }
        if known.is_none() {
            newest = Some(resource.clone());
        }
        edits.push(set(resource));
    }
    if edits.is_empty() {
        session.console.say(NOTHING_ADDED);
        return Err(Failure::silent());
    }
    text += &settings.text(newest.as_ref());
    session.add(&text, "resources", edits)
}

fn modify(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let (conditions, given) = parts(words);
    let conditions = ResourceConditions::read(&conditions)?;
    let settings = ResourceSettings::read(&given);
    settings.check(session)?;
    if !settings.changes_record() && settings.percent.is_none() {
        return Err(Failure::new(NOTHING_SET));
    }
    let book = session.book()?;
    let (mut text, mut edits) = (String::from(" Modified server resource ...\n"), Vec::new());
    for known in by_number(&book)
        .into_iter()
        .filter(|one| conditions.fits(one))
    {
        let mut resource = known.clone();
        settings.apply(&mut resource);
        if settings.changes_record() {
            let _ = writeln!(text, "  {}", known.key());
        }
        if let Some(percent) = settings.percent {
            let own = resource.shares.iter_mut();
            own.filter(|share| conditions.fits_share(share))
                .for_each(|share| share.percent = percent);
        }
        if resource.percent_allocated() > 100 {
            return Err(over(&resource));
        }
        // With the number of all the number of each cluster changes.
        let concerned = |share: &&ResourceShare| {
            (settings.count.is_some() || settings.percent.is_some()) && conditions.fits_share(share)
                || settings.percent == Some(share.percent)
                    && fits(&conditions.clusters, &share.cluster)
        };
        for share in resource.shares.iter().filter(concerned) {
            let _ = writeln!(text, "  Cluster - {}\t- {}", share.cluster, known.key());
        }
        edits.push(set(resource));
    }
    if edits.is_empty() {
        session.console.say(NOTHING_MODIFIED);
        return Err(Failure::silent());
    }
    session.make(&text, NOTHING_MODIFIED, edits)
}

/// The refusal of parts of more than all.
fn over(resource: &SharedResource) -> Failure {
    let mut out = format!(
        "sacctmgr: error: You can not allocate more than 100% of a resource\n If change was accepted it would look like this...\n  {}\n",
        resource.key()
    );
    for share in &resource.shares {
        let _ = writeln!(out, "   Cluster - {}\t {}%", share.cluster, share.percent);
    }
    let _ = write!(out, "   total\t\t{}%", resource.percent_allocated());
    Failure::new(out)
}

fn delete(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let words: Vec<String> = {
        let is_where = |word: &&String| word.len() >= 3 && super::begins("where", word);
        words
            .iter()
            .filter(|word| !is_where(word))
            .cloned()
            .collect()
    };
    let conditions = ResourceConditions::read(&words)?;
    if conditions.is_empty {
        return Err(Failure::new(NO_CONDITIONS));
    }
    let book = session.book()?;
    let (mut text, mut edits) = (String::from(" Deleting resource(s)...\n"), Vec::new());
    for known in by_number(&book)
        .into_iter()
        .filter(|one| conditions.fits(one))
    {
        if !conditions.choose_shares() {
            let _ = writeln!(text, "  {}", known.key());
            edits.push(Invocation::edit_of(
                &[known.key()],
                AccountsAsk::DeleteResources,
            ));
            continue;
        }
        let mut resource = known.clone();
        for share in known
            .shares
            .iter()
            .filter(|share| conditions.fits_share(share))
        {
            let _ = writeln!(text, "  Cluster - {}\t- {}", share.cluster, known.key());
            resource.shares.retain(|own| own.cluster != share.cluster);
        }
        edits.push(set(resource));
    }
    if edits.is_empty() {
        session.console.say(NOTHING_DELETED);
        return Err(Failure::silent());
    }
    session.make(&text, NOTHING_DELETED, edits)
}

/// Resources, with the parts of clusters if those are asked for.
pub(super) fn show(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = ResourceConditions::read(words)?;
    let usual = match conditions.with_clusters {
        true => format!("{SHOWN}{SHOWN_OF_CLUSTERS}"),
        false => SHOWN.to_owned(),
    };
    let columns = columns(conditions.format.as_deref().unwrap_or(&usual), false)?;
    let book = session.book()?;
    let mut rows = Vec::new();
    for resource in by_number(&book)
        .into_iter()
        .filter(|one| conditions.fits(one))
    {
        let row = || {
            ListingRow::default()
                .with("Name", resource.name.clone())
                .with("Server", resource.server.clone())
                .with("Type", TYPE)
                .with("Count", resource.count.to_string())
                .with("% Allocated", resource.percent_allocated().to_string())
                .with("ServerType", resource.server_type.clone())
                .with("Descr", resource.description.clone())
                .with("ID", resource.id.to_string())
        };
        let shares = resource.shares.iter();
        let mut shares = shares
            .filter(|share| conditions.fits_share(share))
            .peekable();
        if !conditions.with_clusters || shares.peek().is_none() {
            rows.push(row().line(&columns));
            continue;
        }
        rows.extend(shares.map(|share| {
            let row = row().with("Cluster", share.cluster.clone());
            let row = row.with("% Allowed", share.percent.to_string());
            let count = resource.count_of(&share.cluster).unwrap_or(0);
            row.with("# Allowed", count.to_string()).line(&columns)
        }));
    }
    session.print(&columns, &rows);
    Ok(())
}
