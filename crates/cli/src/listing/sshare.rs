//! sshare: the tree of accounts, in which nobody has used anything of a share, since shares are not kept. Monitors that
//! run it get rows of the form that they read.

use super::sacct::cell;
use super::{Failure, print};
use crate::SLURM_VERSION;
use crate::options::{Arg, Opt, Spec, also, flag, opt};

/// sshare.
pub(crate) static SPEC: Spec = Spec {
    name: "sshare",
    about: "Shows accounts and users with equal shares of which nothing is used: shares are not kept.",
    operands: "",
    options: OPTIONS,
    variables: &[],
    notes: "sacct -o Account,CPUTime shows usage.\n",
};

static OPTIONS: &[Opt] = &[
    opt("accounts", "LIST", "these accounts").short('A'),
    flag("all", "all users")
        .short('a')
        .partly("users are known by name only: those of -u, -A, and the one who asks"),
    opt("clusters", "NAME", "this cluster's name, or 'all'").short('M'),
    also("clusters", "cluster", Arg::Required),
    opt("format", "LIST", "these columns; name%20 sets a width").short('o'),
    flag("help", "print this help"),
    flag("long", "more columns")
        .short('l')
        .refused("accounts have no limits here; leave it out"),
    flag("noheader", "no line above the columns").short('n'),
    flag("parsable", "columns separated by '|', and one at the end").short('p'),
    flag("parsable2", "columns separated by '|'").short('P'),
    flag("partition", "shares of partitions")
        .short('m')
        .stored("no share is a partition's"),
    flag("usage", "print a short summary"),
    opt("users", "LIST", "these users").short('u'),
    also("users", "uid", Arg::Required),
    flag("Users", "users only").short('U'),
    flag("verbose", "say more")
        .short('v')
        .stored("nothing more is known"),
    flag("version", "print the version").short('V'),
    opt("json", "VERSION", "as JSON")
        .optional()
        .refused("the tree is printed as text only"),
    opt("yaml", "VERSION", "as YAML")
        .optional()
        .refused("the tree is printed as text only"),
];

/// Columns and their widths, as sshare prints them.
const COLUMNS: [(&str, i32); 7] = [
    ("Account", -20),
    ("User", 10),
    ("RawShares", 10),
    ("NormShares", 11),
    ("RawUsage", 11),
    ("EffectvUsage", 13),
    ("FairShare", 10),
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Separation {
    #[default]
    Widths,
    WithLast,
    Between,
}

#[derive(Debug, Default)]
struct Options {
    users: Vec<String>,
    format: Option<String>,
    users_only: bool,
    no_header: bool,
    separation: Separation,
}

/// Runs sshare.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    let mut options = Options::default();
    for (name, value) in parsed.options {
        let value = value.unwrap_or_default();
        match name {
            "clusters" => drop(super::this_cluster("sshare", &value)?),
            "format" => options.format = Some(value),
            "accounts" | "users" => {
                let names = value.split(',').filter(|n| !n.is_empty());
                options.users.extend(names.map(str::to_owned));
            }
            "Users" => options.users_only = true,
            "noheader" => options.no_header = true,
            "parsable" => options.separation = Separation::WithLast,
            "parsable2" => options.separation = Separation::Between,
            "help" => return told(&SPEC.help()),
            "usage" => return told(&SPEC.usage()),
            "version" => return told(&format!("slurm {SLURM_VERSION}\n")),
            _ => {}
        }
    }
    let own = nix::unistd::User::from_uid(nix::unistd::getuid());
    let own = own.ok().flatten().map(|user| user.name);
    told(&options.render(own)?)
}

fn told(text: &str) -> Result<(), Failure> {
    print(text);
    Ok(())
}

impl Options {
    fn render(&self, own: Option<String>) -> Result<String, Failure> {
        let columns = self.columns()?;
        let mut users = self.users.clone();
        if users.is_empty() {
            users.extend(own);
        }
        users.sort();
        users.dedup();
        let mut out = String::new();
        if !self.no_header {
            self.line(&mut out, &columns, str::to_owned);
            if self.separation == Separation::Widths {
                for (_, width) in &columns {
                    out.extend(std::iter::repeat_n('-', width.unsigned_abs() as usize));
                    out.push(' ');
                }
                out.push('\n');
            }
        }
        if !self.users_only {
            self.line(&mut out, &columns, |name| {
                let value = match name {
                    "Account" => "root",
                    "NormShares" => "0.000000",
                    "RawUsage" => "0",
                    "EffectvUsage" => "1.000000",
                    _ => "",
                };
                value.to_owned()
            });
        }
        let share = 1.0 / f64::from(u32::try_from(users.len()).unwrap_or(u32::MAX).max(1));
        for user in &users {
            self.line(&mut out, &columns, |name| match name {
                "Account" => format!(" {user}"),
                "User" => user.clone(),
                "RawShares" => "1".to_owned(),
                "NormShares" => format!("{share:.6}"),
                "RawUsage" => "0".to_owned(),
                "EffectvUsage" => "0.000000".to_owned(),
                _ => "1.000000".to_owned(),
            });
        }
        Ok(out)
    }

    fn columns(&self) -> Result<Vec<(&'static str, i32)>, Failure> {
        let Some(format) = &self.format else {
            return Ok(COLUMNS.to_vec());
        };
        let words = format.split(',').map(str::trim).filter(|w| !w.is_empty());
        words
            .map(|word| {
                let (name, width) = word.split_once('%').unwrap_or((word, ""));
                let known = COLUMNS.iter().find(|(known, _)| {
                    let start = known.get(..name.len());
                    start.is_some_and(|start| start.eq_ignore_ascii_case(name))
                });
                let invalid = || {
                    Failure::new(format!(
                        "sshare: error: Invalid field requested: \"{word}\""
                    ))
                };
                let (name, usual) = *known.ok_or_else(invalid)?;
                match width {
                    "" => Ok((name, usual)),
                    width => width.parse().map(|w| (name, w)).map_err(|_| invalid()),
                }
            })
            .collect()
    }

    fn line(
        &self,
        out: &mut String,
        columns: &[(&'static str, i32)],
        value: impl Fn(&str) -> String,
    ) {
        for (i, (name, width)) in columns.iter().enumerate() {
            if self.separation == Separation::Between && i > 0 {
                out.push('|');
            }
            let start = out.len();
            out.push_str(&value(name));
            match self.separation {
                Separation::Widths => {
                    cell(out, start, *width);
                    out.push(' ');
                }
                Separation::WithLast => out.push('|'),
                Separation::Between => {}
            }
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_of_slurms_form() {
        let shown = Options::default().render(Some("root".to_owned())).unwrap();
        assert_eq!(
            shown,
            "Account                    User  RawShares  NormShares    RawUsage  EffectvUsage  FairShare \n\
             -------------------- ---------- ---------- ----------- ----------- ------------- ---------- \n\
             root                                          0.000000           0      1.000000            \n\
             \u{20}root                      root          1    1.000000           0      0.000000   1.000000 \n"
        );
        let bare = Options {
            format: Some("account,fairshare".to_owned()),
            no_header: true,
            separation: Separation::Between,
            users: vec!["b".to_owned(), "a".to_owned()],
            ..Options::default()
        };
        assert_eq!(
            bare.render(None).unwrap(),
            "root|\n a|1.000000\n b|1.000000\n"
        );
        let wrong = Options {
            format: Some("nosuch".to_owned()),
            ..Options::default()
        };
        assert!(wrong.render(None).is_err());
    }
}
