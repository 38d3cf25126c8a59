//! sshare: shares of the cluster, what has been used of them, and what follows from that.

use crate::clusters::ClusterSelection;
use crate::connect::Client;
use crate::listing::document::{self, Dialect};
use crate::listing::{Failure, complain, failed_call, print, query};
use crate::options::{Arg, HelpForm, Spec, also, flag, opt};
use crate::rest::CommandDocument;
use muster_model::accounts::{PARENT_SHARES, Share};
use muster_proto::client::AccountsAnswer;

/// sshare.
pub(crate) static SPEC: Spec = Spec {
    name: "sshare",
    about: "Shows shares of the cluster and what has been used of them.",
    operands: "",
    form: HelpForm::ValidOptions,
    options: &[
        opt("accounts", "LIST", "these accounts").short('A'),
        flag("all", "all users").short('a'),
        opt("clusters", "NAME", "cluster to ask").short('M'),
        opt("format", "LIST", "columns").short('o'),
        flag("help", "print this help"),
        flag("long", "more columns").short('l'),
        flag("helpformat", "names of the columns").short('e'),
        flag("noheader", "no line above the columns").short('n'),
        also("noheader", "no-header", Arg::None).short('h'),
        flag("parsable", "columns separated by '|', and one at the end").short('p'),
        flag("parsable2", "columns separated by '|'").short('P'),
        flag("partition", "a column for the association's partition")
            .short('m')
            .partly("empty: for fair share a user has one association in an account"),
        flag("usage", "print a short summary"),
        opt("users", "LIST", "these users").short('u'),
        also("users", "uid", Arg::Required),
        flag("Users", "users only").short('U'),
        flag("verbose", "display more information").short('v'),
        flag("version", "print the version").short('V'),
        opt(
            "json",
            "VERSION",
            "as JSON, in this version; list: versions there are",
        )
        .optional(),
        opt("yaml", "VERSION", "as YAML, in this version").optional(),
    ],
    variables: &[],
    notes: "",
};

struct ShareField {
    name: &'static str,
    width: usize,
    left: bool,
    value: fn(&Share) -> String,
}

const fn field(name: &'static str, width: usize, value: fn(&Share) -> String) -> ShareField {
    ShareField {
        name,
        width,
        left: false,
        value,
    }
}

static FIELDS: &[ShareField] = &[
    ShareField {
        left: true,
        ..field("Account", 20, |s| s.account.clone())
    },
    field("User", 10, |s| s.user.clone()),
    field("Partition", 12, |_| String::new()),
    field("RawShares", 10, |s| match s.raw_shares {
        _ if s.depth == 0 => String::new(),
        PARENT_SHARES => "parent".to_owned(),
        shares => shares.to_string(),
    }),
    field("NormShares", 11, |s| format!("{:.6}", s.norm_shares)),
    field("RawUsage", 11, |s| format!("{:.0}", s.raw_usage)),
    field("NormUsage", 11, |s| match s.depth {
        0 => String::new(),
        _ => format!("{:.6}", s.norm_usage),
    }),
    field("EffectvUsage", 13, |s| format!("{:.6}", s.effective_usage)),
    field("FairShare", 10, |s| match s.user.is_empty() {
        true => String::new(),
        false => format!("{:.6}", s.fair_share),
    }),
    field("LevelFS", 10, |s| match s.depth {
        0 => String::new(),
        _ if s.level_fs.is_infinite() => "inf".to_owned(),
        _ => format!("{:.6}", s.level_fs),
    }),
    field("GrpTRESMins", 30, |_| String::new()),
    field("TRESRunMins", 30, |_| String::new()),
];

const NORMAL: &str = "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare";
const LONG: &str = "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,GrpTRESMins,TRESRunMins";

#[derive(Debug, Default)]
struct Options {
    format: Option<String>,
    long: bool,
    all: bool,
    no_header: bool,
    users_only: bool,
    /// `|` between fields, and whether one at the end.
    parsable: Option<bool>,
    partition: bool,
    users: Vec<String>,
    accounts: Vec<String>,
    verbose: bool,
    /// `--json`, `--yaml`.
    dialect: Option<Dialect>,
}

/// Runs sshare.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    if let Some(text) = document::information(&SPEC, &parsed) {
        return print_text(&text);
    }
    let mut options = Options::default();
    for (name, value) in &parsed.options {
        let value = value.clone().unwrap_or_default();
        let list = || {
            value
                .split(',')
                .filter(|w| !w.is_empty())
                .map(str::to_owned)
        };
        match *name {
            "clusters" => ClusterSelection::choose_one("sshare", &value)?,
            "format" => options.format = Some(value.clone()),
            "long" => options.long = true,
            "partition" => options.partition = true,
            "helpformat" => return print_text(&help_format()),
            "all" => options.all = true,
            "noheader" => options.no_header = true,
            "Users" => options.users_only = true,
            "parsable" => options.parsable = Some(true),
            "parsable2" => options.parsable = Some(false),
            "verbose" => options.verbose = true,
            "users" => options.users = list().collect(),
            "accounts" => options.accounts = list().collect(),
            "json" | "yaml" => {
                options.dialect = Some(Dialect::parse("sshare", *name == "yaml", &value)?);
            }
            _ => {}
        }
    }
    let failed = failed_call("slurm_associations_get_shares");
    let mut client = Client::connect().map_err(&failed)?;
    if !options.all && options.users.is_empty() {
        let own = crate::people::user_of_uid(nix::unistd::getuid().as_raw());
        options.users.extend(own.map(|u| u.name));
    }
    if options.verbose {
        complain(options.chosen().trim_end());
    }
    if let Some(dialect) = options.dialect {
        return document_of(&options).print(client, dialect);
    }
    let answer = query::accounts(&mut client).map_err(&failed)?;
    print(&render(&options, &answer)?);
    Ok(())
}

impl Options {
    /// Accounts or users of the listing, as `--verbose` prints them.
    fn chosen(&self) -> String {
        let list = |names: &[String]| match names {
            [] => "\t: all\n".to_owned(),
            names => names.iter().map(|name| format!("\t: {name}\n")).collect(),
        };
        let users = match self.all {
            true => list(&[]),
            false => list(&self.users),
        };
        format!(
            "Users requested:\n{users}Accounts requested:\n{}",
            list(&self.accounts)
        )
    }
}

/// Document of slurmrestd for the requested accounts and users.
fn document_of(options: &Options) -> CommandDocument<'static> {
    let lists = [("accounts", &options.accounts), ("users", &options.users)];
    let is_all = |key: &str| key == "users" && options.all;
    let given = lists
        .into_iter()
        .filter(|(key, list)| !list.is_empty() && !is_all(key));
    CommandDocument {
        command: "sshare",
        area: "slurm",
        path: "shares".to_owned(),
        query: given
            .map(|(key, list)| (key.to_owned(), list.join(",")))
            .collect(),
    }
}

fn print_text(text: &str) -> Result<(), Failure> {
    print(text);
    Ok(())
}

/// Names of the columns in order, four in a line.
fn help_format() -> String {
    let mut names: Vec<&str> = FIELDS.iter().map(|f| f.name).collect();
    names.sort_unstable();
    let mut text = String::new();
    for names in names.chunks(4) {
        let names: Vec<String> = names.iter().map(|name| format!("{name:<17}")).collect();
        text.push_str(&names.join(" "));
        text.push('\n');
    }
    text
}

fn render(options: &Options, answer: &AccountsAnswer) -> Result<String, Failure> {
    let format = match (&options.format, options.long) {
        (Some(format), _) => format.as_str(),
        (None, true) => LONG,
        (None, false) => NORMAL,
    };
    let with_partition;
    let format = match options.partition && options.format.is_none() {
        true => {
            with_partition = format.replacen("User,", "User,Partition,", 1);
            &with_partition
        }
        false => format,
    };
    let mut columns: Vec<ShareColumn> = Vec::new();
    for word in format.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        let (name, width) = word.split_once('%').unwrap_or((word, ""));
        let begins = |f: &&ShareField| {
            let start = f.name.get(..name.len());
            start.is_some_and(|s| s.eq_ignore_ascii_case(name))
        };
        let field = FIELDS.iter().find(begins).ok_or_else(|| {
            Failure::new(format!(
                "sshare: error: Invalid field requested: \"{name}\""
            ))
        })?;
        // Classic fair share knows no levels.
        if options.format.is_none() && field.name == "LevelFS" && answer.fair_tree == Some(false) {
            continue;
        }
        let given: Option<i32> = width.parse().ok().filter(|w: &i32| *w != 0);
        columns.push(ShareColumn {
            field,
            width: given.map_or(field.width, |w| w.unsigned_abs() as usize),
            left: given.map_or(field.left, |w| w < 0),
        });
    }
    let mut out = String::new();
    if !options.no_header {
        line(&mut out, &columns, options.parsable, |f| f.name.to_owned());
        if options.parsable.is_none() {
            for column in &columns {
                out.push_str(&"-".repeat(column.width));
                out.push(' ');
            }
            out.push('\n');
        }
    }
    let listed = |list: &[String], name: &str| list.is_empty() || list.iter().any(|n| n == name);
    let is_shown = |share: &&Share| match share.user.is_empty() {
        false => {
            (options.all && options.users.is_empty() || listed(&options.users, &share.user))
                && listed(&options.accounts, &share.account)
        }
        true => !options.users_only && listed(&options.accounts, &share.account),
    };
    let shown: Vec<&Share> = answer.accounts.shares.iter().filter(is_shown).collect();
    // Depths count from the first shown.
    let accounts = shown.iter().filter(|share| share.user.is_empty());
    let least = accounts.map(|share| share.depth).min().unwrap_or(0);
    for share in shown {
        let depth = share.depth.saturating_sub(least);
        line(&mut out, &columns, options.parsable, |f| match f.name {
            "Account" if options.users_only => share.account.clone(),
            "Account" => format!("{}{}", " ".repeat(depth as usize), share.account),
            _ => (f.value)(share),
        });
    }
    Ok(out)
}

/// A column as it was asked for.
struct ShareColumn {
    field: &'static ShareField,
    width: usize,
    left: bool,
}

fn line(
    out: &mut String,
    columns: &[ShareColumn],
    parsable: Option<bool>,
    cell: impl Fn(&ShareField) -> String,
) {
    for (i, column) in columns.iter().enumerate() {
        let (text, width) = (cell(column.field), column.width);
        match parsable {
            Some(last) => {
                out.push_str(if i > 0 && !last { "|" } else { "" });
                out.push_str(&text);
                out.push_str(if last { "|" } else { "" });
            }
            None if text.chars().count() > width => {
                out.extend(text.chars().take(width.saturating_sub(1)));
                out.push_str("+ ");
            }
            None if column.left => out.push_str(&format!("{text:<width$} ")),
            None => out.push_str(&format!("{text:>width$} ")),
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbose_says_whose_shares_are_asked_for() {
        let mut options = Options {
            users: vec!["ann".to_owned(), "ben".to_owned()],
            ..Options::default()
        };
        assert_eq!(
            options.chosen(),
            "Users requested:\n\t: ann\n\t: ben\nAccounts requested:\n\t: all\n"
        );
        options.all = true;
        options.accounts = vec!["a".to_owned()];
        assert_eq!(
            options.chosen(),
            "Users requested:\n\t: all\nAccounts requested:\n\t: a\n"
        );
    }

    /// As Slurm 22.05.8 printed it.
    #[test]
    fn captured() {
        let share = |account: &str, user: &str, depth, raw_shares, norm_shares, fair_share| Share {
            account: account.into(),
            user: user.into(),
            depth,
            raw_shares,
            norm_shares,
            fair_share,
            level_fs: f64::INFINITY,
            ..Share::default()
        };
        let mut answer = AccountsAnswer::default();
        answer.accounts.shares = vec![
            Share {
                effective_usage: 1.0,
                ..share("root", "", 0, 0, 0.0, 0.0)
            },
            share("root", "root", 1, 1, 0.5, 1.0),
            share("bench", "", 1, 1, 0.5, 0.0),
            share("bench", "root", 2, 1, 1.0, 1.0),
        ];
        let options = Options {
            all: true,
            ..Options::default()
        };
        let expected = "\
Account                    User  RawShares  NormShares    RawUsage  EffectvUsage  FairShare \n\
-------------------- ---------- ---------- ----------- ----------- ------------- ---------- \n\
root                                          0.000000           0      1.000000            \n\
\u{20}root                      root          1    0.500000           0      0.000000   1.000000 \n\
\u{20}bench                                   1    0.500000           0      0.000000            \n\
\u{20} bench                    root          1    1.000000           0      0.000000   1.000000 \n";
        assert_eq!(render(&options, &answer).unwrap_or_default(), expected);
        let one = Options {
            all: true,
            no_header: true,
            accounts: vec!["bench".into()],
            format: Some("account%8,user%-6".into()),
            ..Options::default()
        };
        // Depths count from the first shown; given widths set where a column begins.
        assert_eq!(
            render(&one, &answer).unwrap_or_default(),
            "   bench        \n   bench root   \n"
        );
        let short = Options {
            all: true,
            no_header: true,
            parsable: Some(false),
            users_only: true,
            format: Some("account,user,fairshare".into()),
            ..Options::default()
        };
        assert_eq!(
            render(&short, &answer).unwrap_or_default(),
            "root|root|1.000000\nbench|root|1.000000\n"
        );
    }
}
