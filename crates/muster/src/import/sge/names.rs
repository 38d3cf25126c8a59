//! Names become words of lines, and parts of them, in all files that are written: what Grid Engine itself takes for no name would
//! become settings there.

use super::dump::{Dump, Object};
use anyhow::{Result, ensure};

/// Characters, besides spaces, that no name has.
const NONE_HAS: &str = "'\"\\=#:,;[]{}()|";

/// Refuses a dump with names that are none.
///
/// # Errors
/// Of the first such name, with what has it.
pub(super) fn check(dump: &Dump) -> Result<()> {
    let objects = [
        &dump.queues,
        &dump.environments,
        &dump.hosts,
        &dump.projects,
        &dump.users,
        &dump.usersets,
        &dump.classes,
    ];
    for object in objects.into_iter().flatten() {
        check_name(object.name(), &object.kind)?;
    }
    for host in &dump.admin_hosts {
        check_name(host, "admin_hosts")?;
    }
    check_lists(&dump.queues, &["projects", "xprojects"])?;
    check_lists(&dump.usersets, &["entries"])?;
    for user in &dump.users {
        let project = user.get("default_project").unwrap_or_default();
        check_name(project, &format!("default_project of user {}", user.name()))?;
    }
    Ok(())
}

fn check_lists(objects: &[Object], keys: &[&str]) -> Result<()> {
    for object in objects {
        for key in keys {
            for word in object.list(key).0 {
                check_name(&word, &format!("{key} of {}", object.what))?;
            }
        }
    }
    Ok(())
}

fn check_name(name: &str, of: &str) -> Result<()> {
    let is_wrong = |c: &char| c.is_whitespace() || c.is_control() || NONE_HAS.contains(*c);
    let wrong = name.chars().find(is_wrong);
    ensure!(
        wrong.is_none(),
        "{of}: {name:?} is no name of Grid Engine's, which have no {:?}: correct it in the file, or leave it out",
        wrong.unwrap_or_default()
    );
    Ok(())
}
