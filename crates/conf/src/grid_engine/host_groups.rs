//! Host groups: names for hosts, which `-q QUEUE@@GROUP` and qconf take.

use super::Mapping;

/// The group of all hosts, which no line defines.
pub const ALL_HOSTS: &str = "@allhosts";

/// A group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostGroup {
    /// Its name, with the `@`.
    pub name: String,
    /// Hosts, and groups with their `@`.
    pub members: Vec<String>,
}

impl Mapping {
    /// Reads the words of a line.
    pub(super) fn take_host_group(&mut self, words: &[&str]) -> Result<(), String> {
        let Some((name, members)) = words.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            return Err("'hostgroup' needs a name and hosts".to_owned());
        };
        let is_name = |name: &str| {
            let is_plain = |c: char| c.is_alphanumeric() || "._-".contains(c);
            !name.is_empty() && name.chars().all(is_plain)
        };
        match name.strip_prefix('@') {
            Some("allhosts") => return Err(format!("'{ALL_HOSTS}' has all hosts by itself")),
            Some(own) if is_name(own) => {}
            _ => {
                return Err(format!(
                    "'{name}' is not a name of a group: it begins with @"
                ));
            }
        }
        let wrong = members
            .iter()
            .find(|own| !is_name(own.strip_prefix('@').unwrap_or(own)));
        if let Some(word) = wrong {
            return Err(format!("'{word}' is neither a host nor a @group"));
        }
        if self.host_groups.iter().any(|own| own.name == *name) {
            return Err(format!("hostgroup '{name}' is defined twice"));
        }
        self.host_groups.push(HostGroup {
            name: (*name).to_owned(),
            members: members.iter().map(|own| (*own).to_owned()).collect(),
        });
        Ok(())
    }

    /// The hosts of a group and of the groups in it, each once; none if there is no such group. `all` are those of [`ALL_HOSTS`].
    pub fn hosts_of_group(&self, name: &str, all: &[String]) -> Option<Vec<String>> {
        if name == ALL_HOSTS {
            return Some(all.to_vec());
        }
        let find = |name: &str| self.host_groups.iter().find(|own| own.name == name);
        let (mut groups, mut hosts, mut at) = (vec![find(name)?], Vec::new(), 0);
        // A group that is in itself has nothing more.
        while let Some(group) = groups.get(at).copied() {
            at += 1;
            for member in &group.members {
                let mut add = |host: &String| {
                    if !hosts.contains(host) {
                        hosts.push(host.clone());
                    }
                };
                match member.strip_prefix('@') {
                    None => add(member),
                    Some(_) if member == ALL_HOSTS => all.iter().for_each(add),
                    Some(_) => {
                        let inner = find(member);
                        let is_new =
                            |own: &&HostGroup| !groups.iter().any(|known| known.name == own.name);
                        groups.extend(inner.filter(is_new));
                    }
                }
            }
        }
        Some(hosts)
    }

    /// Words of a list of hosts with the hosts of each `@group` in its place.
    ///
    /// # Errors
    /// The first group that is not there.
    pub fn expanded_hosts(&self, words: &[&str], all: &[String]) -> Result<Vec<String>, String> {
        let mut hosts = Vec::new();
        for word in words {
            match word.starts_with('@') {
                false => hosts.push((*word).to_owned()),
                true => {
                    let of_group = self.hosts_of_group(word, all);
                    hosts.extend(
                        of_group.ok_or_else(|| format!("host group \"{word}\" does not exist"))?,
                    );
                }
            }
        }
        Ok(hosts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_hosts_and_groups() {
        let conf = "hostgroup @a n1 n2 @b\nhostgroup @b n2 n3 @a\nhostgroup @c @allhosts n9\nhostgroup @d @nosuch\n";
        let (mapping, findings) = Mapping::parse(conf, "f");
        assert_eq!(findings, []);
        let all = ["n1", "n7"].map(str::to_owned);
        let of = |name: &str| Some(mapping.hosts_of_group(name, &all)?.join(" "));
        assert_eq!(of("@a").as_deref(), Some("n1 n2 n3"));
        assert_eq!(of("@c").as_deref(), Some("n1 n7 n9"));
        assert_eq!(of("@allhosts").as_deref(), Some("n1 n7"));
        assert_eq!((of("@d").as_deref(), of("@nosuch")), (Some(""), None));
        assert_eq!(
            mapping
                .expanded_hosts(&["n5", "@a"], &all)
                .unwrap()
                .join(" "),
            "n5 n1 n2 n3"
        );
        mapping.expanded_hosts(&["@nosuch"], &all).unwrap_err();
        for (line, why) in [
            ("hostgroup @a", "'hostgroup' needs a name and hosts"),
            (
                "hostgroup a n1",
                "'a' is not a name of a group: it begins with @",
            ),
            (
                "hostgroup @allhosts n1",
                "'@allhosts' has all hosts by itself",
            ),
            (
                "hostgroup @a n1,n2",
                "'n1,n2' is neither a host nor a @group",
            ),
            (
                "hostgroup @a n1\nhostgroup @a n2",
                "hostgroup '@a' is defined twice",
            ),
        ] {
            let (_, findings) = Mapping::parse(line, "f");
            assert_eq!(findings[0].message, why, "{line}");
        }
    }
}
