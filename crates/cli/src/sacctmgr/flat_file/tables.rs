//! The tables of what loading a file adds.

use super::plan::Loading;
use crate::listing::Failure;
use crate::sacctmgr::book::{Association, Book};
use crate::sacctmgr::conditions::Conditions;
use crate::sacctmgr::fields::{ListingColumn, columns, table};
use crate::sacctmgr::row::{ListingRow, ShownAssociation, own_raw_qos};
use muster_model::accounts::{AssociationTerms, ROOT};

const ASSOCIATED: &str = "Share,GrpTRESMins,GrpTRESRunMins,GrpTRES,GrpJobs,GrpJobsAccrue,GrpMem,GrpNodes,GrpSubmit,\
     GrpWall,MaxTRESMins,MaxTRES,MaxTRESPerNode,MaxJobs,MaxSubmit,MaxNodes,MaxWall,QOS,DefaultQOS";
const RULE_OF_RECORDS: &str = "---------------------------------------------------\n\n";
const RULE: &str = "--------------------------------------------------------------\n\n";

/// The tables of additions.
pub(super) fn sections(loading: &Loading, book: &Book) -> Result<String, Failure> {
    let mut out = String::new();
    let layout = |format: &str| columns(format, false);
    let associated =
        |rows: &[(String, String, AssociationTerms)], first: &str, headers: [&'static str; 2]| {
            let columns = columns(&format!("{first},{ASSOCIATED}"), false)?;
            let lines = rows.iter().map(|(one, other, terms)| {
                let row = terms_row(book, terms);
                row.with(headers[0], one.clone())
                    .with(headers[1], other.clone())
                    .line(&columns)
            });
            Ok::<String, Failure>(body(&columns, &lines.collect::<Vec<_>>(), RULE))
        };
    if !loading.cluster.is_empty() {
        let rows = loading.cluster.iter();
        let rows: Vec<(String, String, AssociationTerms)> = rows
            .map(|terms| (ROOT.to_owned(), String::new(), terms.clone()))
            .collect();
        out += &associated(&rows, "Account,ParentName", ["Account", "ParentName"])?;
    }
    if !loading.accounts.is_empty() {
        let columns = layout("Name,Description,Organization,QOS")?;
        let lines = loading
            .accounts
            .iter()
            .map(|(name, description, organization)| {
                let row = ListingRow::default().with("Name", name.clone());
                let row = row.with("Descr", description.clone());
                row.with("Org", organization.clone()).line(&columns)
            });
        out.push_str("Accounts\n");
        out += &body(&columns, &lines.collect::<Vec<_>>(), RULE_OF_RECORDS);
    }
    if !loading.account_associations.is_empty() {
        out.push_str("Account Associations\n");
        let rows = &loading.account_associations;
        out += &associated(rows, "Account,ParentName", ["Account", "ParentName"])?;
    }
    if !loading.users.is_empty() {
        let columns = layout("Name,DefaultAccount,DefaultWCKey,QOS,AdminLevel,Coordinators")?;
        let lines = loading.users.iter().map(|(name, account, wckey, level)| {
            let row = ListingRow::default().with("Name", name.clone());
            let row = row
                .with("Def Acct", account.clone())
                .with("Def WCKey", wckey.clone());
            row.with("Admin", level.clone()).line(&columns)
        });
        out.push_str("Users\n");
        out += &body(&columns, &lines.collect::<Vec<_>>(), RULE_OF_RECORDS);
    }
    if !loading.user_associations.is_empty() {
        out.push_str("User Associations\n");
        let rows = &loading.user_associations;
        out += &associated(rows, "User,Account", ["User", "Account"])?;
    }
    Ok(out)
}

/// Cells of the settings of an association that does not exist yet.
fn terms_row<'a>(book: &'a Book, terms: &'a AssociationTerms) -> ListingRow<'a> {
    let at = Association {
        account: "",
        user: "",
        partition: "",
        parent: "",
        own: terms,
        span: (0, 0),
        depth: 0,
    };
    let mut row = ListingRow::default().with("QOS", own_raw_qos(terms));
    let alone = Conditions::alone();
    row.association = Some(ShownAssociation::new(book, &at, &alone));
    if terms.shares.is_none() {
        row = row.with("Share", "");
    }
    row
}

fn body(columns: &[ListingColumn], rows: &[Vec<String>], rule: &str) -> String {
    format!("{}{rule}", table(columns, rows, Default::default()))
}
