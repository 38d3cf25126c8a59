//! sacctmgr, the little of it that clients read: users and their associations. There is no database of
//! associations here: everyone is in one account that has their own name, as accounting books it. Everything that
//! would change or show more is refused by name.

use super::{Failure, SLURM_VERSION, print};
use crate::connect::ConnectError;
use crate::options::{Spec, flag};

/// What sacctmgr knows.
pub(crate) static SPEC: Spec = Spec {
    name: "sacctmgr",
    about: "Shows users and their associations; nothing can be changed.",
    operands: "show user|association [NAME] [user=NAME,...] [account=NAME,...] [format=FIELD[%WIDTH],...]",
    options: &[
        flag("associations", "with 'show user': associations, too").short('s'),
        flag("help", "print this help"),
        flag("immediate", "commit at once")
            .short('i')
            .stored("nothing is changed"),
        flag("noheader", "no line above the columns").short('n'),
        flag("parsable", "columns separated by '|', and one at the end").short('p'),
        flag("parsable2", "columns separated by '|'").short('P'),
        flag("quiet", "say less")
            .short('Q')
            .stored("little is said"),
        flag("readonly", "refuse changes")
            .short('r')
            .stored("nothing is changed"),
        flag("usage", "print a short summary"),
        flag("version", "print the version").short('V'),
    ],
    variables: &[],
    notes: "There is no database of associations: the account of a user has the user's name.\n",
};

/// A user in the only account that the user has.
struct Row {
    cluster: String,
    user: String,
}

struct Field {
    /// Name in `format=`; any beginning of it will do.
    name: &'static str,
    header: &'static str,
    width: usize,
    value: fn(&Row) -> &str,
}

const fn field(
    name: &'static str,
    header: &'static str,
    width: usize,
    value: fn(&Row) -> &str,
) -> Field {
    Field {
        name,
        header,
        width,
        value,
    }
}

/// Limits are unset, which Slurm shows as nothing.
const fn unset(name: &'static str, width: usize) -> Field {
    field(name, name, width, |_| "")
}

/// Where a beginning fits several, the first is meant.
static FIELDS: &[Field] = &[
    field("Cluster", "Cluster", 10, |r| &r.cluster),
    field("Account", "Account", 10, |r| &r.user),
    field("User", "User", 10, |r| &r.user),
    unset("Partition", 10),
    field("Share", "Share", 9, |_| "1"),
    field("Fairshare", "Share", 9, |_| "1"),
    unset("Priority", 10),
    unset("GrpJobs", 7),
    unset("GrpTRES", 13),
    unset("GrpSubmit", 9),
    unset("GrpWall", 11),
    unset("GrpTRESMins", 13),
    unset("GrpCPUs", 8),
    unset("GrpMem", 7),
    unset("GrpNodes", 8),
    unset("MaxJobs", 7),
    unset("MaxTRES", 13),
    unset("MaxTRESPerNode", 14),
    unset("MaxSubmit", 9),
    unset("MaxWall", 11),
    unset("MaxTRESMins", 13),
    unset("QOS", 20),
    field("DefaultQOS", "Def QOS", 9, |_| ""),
    unset("GrpTRESRunMin", 13),
    field("DefaultAccount", "Def Acct", 10, |r| &r.user),
    field("DefaultWCKey", "Def WCKey", 10, |_| ""),
    field("AdminLevel", "Admin", 9, |r| {
        if r.user == "root" {
            "Administrator"
        } else {
            "None"
        }
    }),
];

const USER: &str = "User,DefaultAccount,AdminLevel";
const USER_ASSOCIATIONS: &str = "User,DefaultAccount,AdminLevel,Cluster,Account,Partition,Share,Priority,MaxJobs,\
     MaxSubmit,MaxTRES,MaxWall,QOS,DefaultQOS";
const ASSOCIATION: &str = "Cluster,Account,User,Partition,Share,Priority,GrpJobs,GrpTRES,GrpSubmit,GrpWall,\
     GrpTRESMins,MaxJobs,MaxTRES,MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefaultQOS,GrpTRESRunMin";

/// How a listing is laid out.
#[derive(Default)]
struct Style {
    no_header: bool,
    /// A `|` between fields, not columns.
    parsable: bool,
    /// And one at the end.
    last: bool,
}

/// Runs sacctmgr.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    let mut style = Style::default();
    let mut associations = false;
    for (name, _) in &parsed.options {
        match *name {
            "version" => return said(&format!("slurm {SLURM_VERSION}\n")),
            "help" => return said(&SPEC.help()),
            "usage" => return said(&SPEC.usage()),
            "noheader" => style.no_header = true,
            "parsable" => (style.parsable, style.last) = (true, true),
            "parsable2" => (style.parsable, style.last) = (true, false),
            "associations" => associations = true,
            // Nothing is asked, and nothing is changed.
            _ => {}
        }
    }
    let question = Question::new(&parsed.operands, associations)?;
    let cluster = muster_conf::endpoint::read(&muster_conf::endpoint::conf_path())
        .map_err(|e| Failure::new(format!("sacctmgr: error: {}", ConnectError::Config(e))))?
        .cluster;
    print(&render(
        &question.columns()?,
        &style,
        &question.rows(&cluster),
    ));
    Ok(())
}

fn said(text: &str) -> Result<(), Failure> {
    print(text);
    Ok(())
}

/// What is to be shown.
#[derive(Debug)]
struct Question {
    format: String,
    users: Option<Vec<String>>,
    accounts: Option<Vec<String>>,
    clusters: Option<Vec<String>>,
}

impl Question {
    fn new(words: &[String], associations: bool) -> Result<Question, Failure> {
        let mut words = words.iter().map(String::as_str);
        let verb = words.next().unwrap_or("");
        if !begins("show", verb) && !begins("list", verb) {
            return Err(Failure::new(format!(
                "sacctmgr: error: '{verb}' is not implemented: there is no database of associations to change; \
                 show user and show association are"
            )));
        }
        let entity = words.next().unwrap_or("");
        let (format, bare) = match entity.strip_suffix('s').unwrap_or(entity) {
            word if begins("user", word) && associations => (USER_ASSOCIATIONS, "user"),
            word if begins("user", word) => (USER, "user"),
            word if begins("association", word) && word.len() > 1 => (ASSOCIATION, ""),
            _ => {
                return Err(Failure::new(format!(
                    "sacctmgr: error: show {entity} is not implemented; user and association are"
                )));
            }
        };
        let mut question = Question {
            format: format.to_owned(),
            users: None,
            accounts: None,
            clusters: None,
        };
        for word in words.filter(|w| !w.eq_ignore_ascii_case("where")) {
            let (key, value) = word.split_once('=').unwrap_or((bare, word));
            question.set(key, value, word)?;
        }
        Ok(question)
    }

    fn set(&mut self, key: &str, value: &str, word: &str) -> Result<(), Failure> {
        let key = key.to_ascii_lowercase();
        let list = || Some(value.split(',').map(str::to_owned).collect());
        match key.strip_suffix('s').unwrap_or(&key) {
            "format" => self.format = value.to_owned(),
            "user" | "name" => self.users = list(),
            "account" | "acct" | "defaultaccount" => self.accounts = list(),
            "cluster" => self.clusters = list(),
            _ => {
                return Err(Failure::new(format!(
                    "sacctmgr: error: Unknown condition: {word}; user=, account=, cluster= and format= are implemented"
                )));
            }
        }
        Ok(())
    }

    fn columns(&self) -> Result<Vec<(&'static Field, usize)>, Failure> {
        let words = self.format.split(',').map(str::trim);
        words.filter(|w| !w.is_empty()).map(column).collect()
    }

    /// The users that are named, or the one who asks.
    fn rows(&self, cluster: &str) -> Vec<Row> {
        let fits = |list: &Option<Vec<String>>, name: &str| {
            list.as_ref().is_none_or(|l| l.iter().any(|n| n == name))
        };
        let own = || nix::unistd::User::from_uid(nix::unistd::getuid());
        let users = match self.users.as_ref().or(self.accounts.as_ref()) {
            Some(names) => names
                .iter()
                .filter_map(|name| nix::unistd::User::from_name(name).ok().flatten())
                .collect(),
            None => Vec::from_iter(own().ok().flatten()),
        };
        users
            .into_iter()
            .map(|user| user.name)
            .filter(|user| fits(&self.accounts, user) && fits(&self.clusters, cluster))
            .map(|user| Row {
                cluster: cluster.to_owned(),
                user,
            })
            .collect()
    }
}

/// Whether a word is the beginning of a name, in any case.
fn begins(name: &str, word: &str) -> bool {
    let start = name.get(..word.len());
    !word.is_empty() && start.is_some_and(|s| s.eq_ignore_ascii_case(word))
}

/// A field of `format=` and its width.
fn column(word: &str) -> Result<(&'static Field, usize), Failure> {
    let (name, width) = word.split_once('%').unwrap_or((word, ""));
    let field = FIELDS
        .iter()
        .find(|f| f.name.eq_ignore_ascii_case(name))
        .or_else(|| FIELDS.iter().find(|f| begins(f.name, name)))
        .ok_or_else(|| {
            let names: Vec<&str> = FIELDS.iter().map(|f| f.name).collect();
            Failure::new(format!(
                "sacctmgr: error: Unknown field '{name}'; these exist: {}",
                names.join(", ")
            ))
        })?;
    match width {
        "" => Ok((field, field.width)),
        digits => match digits.parse() {
            Ok(width) if width <= usize::from(u16::MAX) => Ok((field, width)),
            _ => Err(Failure::new(format!(
                "sacctmgr: error: '{word}': the width of a column is a number, such as {name}%20"
            ))),
        },
    }
}

fn render(columns: &[(&'static Field, usize)], style: &Style, rows: &[Row]) -> String {
    let mut out = String::new();
    if !style.no_header {
        line(&mut out, columns, style, |f| f.header);
        if !style.parsable {
            for (_, width) in columns {
                out.extend(std::iter::repeat_n('-', *width));
                out.push(' ');
            }
            out.push('\n');
        }
    }
    for row in rows {
        line(&mut out, columns, style, |f| (f.value)(row));
    }
    out
}

fn line<'a>(
    out: &mut String,
    columns: &[(&'static Field, usize)],
    style: &Style,
    cell: impl Fn(&'static Field) -> &'a str,
) {
    for (i, (field, width)) in columns.iter().enumerate() {
        let text = cell(field);
        if style.parsable {
            out.push_str(if i > 0 && !style.last { "|" } else { "" });
            out.push_str(text);
            out.push_str(if style.last { "|" } else { "" });
        } else if text.chars().count() > *width {
            out.extend(text.chars().take(width.saturating_sub(1)));
            out.push_str("+ ");
        } else {
            out.push_str(&format!("{text:>width$} "));
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: &str, style: &Style) -> Result<String, String> {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let question = Question::new(&words, false).map_err(|e| e.to_string())?;
        let columns = question.columns().map_err(|e| e.to_string())?;
        Ok(render(&columns, style, &question.rows("site")))
    }

    const BARE: Style = Style {
        no_header: true,
        parsable: true,
        last: false,
    };

    #[test]
    fn what_clients_ask() {
        for words in [
            "show user root format=defaultaccount",
            "list Association format=account user=root",
            "show assoc where users=root cluster=site format=Acc",
        ] {
            assert_eq!(shown(words, &BARE).unwrap(), "root\n", "{words}");
        }
        let limits = "show assoc user=root format=User,Account,GrpCPU,GrpMem,GrpJobs,GrpSubmit";
        assert_eq!(shown(limits, &BARE).unwrap(), "root|root||||\n");
        assert_eq!(shown("show user no.such.user", &BARE).unwrap(), "");
    }

    #[test]
    fn columns_are_slurms() {
        assert_eq!(
            shown("show user root", &Style::default()).unwrap(),
            "      User   Def Acct     Admin \n\
             ---------- ---------- --------- \n\
             \u{20}     root       root Administ+ \n"
        );
        assert_eq!(
            shown("list user root format=account%12", &Style::default()).unwrap(),
            "     Account \n------------ \n        root \n"
        );
    }

    #[test]
    fn the_rest_is_refused_by_name() {
        for (words, name) in [
            ("add user root", "'add'"),
            ("show qos", "show qos"),
            ("show user state=x", "state=x"),
            ("show user format=nosuch", "'nosuch'"),
            ("show user format=user%x", "'user%x'"),
        ] {
            let error = shown(words, &BARE).unwrap_err();
            assert!(error.contains(name), "{words}: {error}");
        }
    }
}
