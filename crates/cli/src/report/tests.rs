//! Bounds of a report: users choose what it has rows and columns for, and have jobs with names of their own.

use super::*;
use crate::sacct::tests::job;
use muster_model::job::JobState;

fn request(pairs: &[(&str, &str)]) -> Result<Request, String> {
    let mut request = Request::default();
    for (name, value) in pairs {
        request.set(name, value)?;
    }
    Ok(request)
}

#[test]
fn each_row_and_column_is_named_once() {
    assert_eq!(request(&[("by", "user,node")]).unwrap().by.len(), 2);
    for (name, value, why) in [
        ("by", "user,node,user", "'user' is there twice"),
        ("columns", "runs,cpu_s,runs", "'runs' is there twice"),
    ] {
        assert_eq!(request(&[(name, value)]).err().as_deref(), Some(why));
    }
}

#[test]
fn rows_are_kept_up_to_a_bound() {
    let mut request = request(&[("by", "application"), ("starttime", "1970-01-01")]).unwrap();
    request.row_bytes_max = 1 << 20;
    let plan = request.plan(Path::new("/nonexistent/slurm.conf")).unwrap();
    let made = |names: u64| {
        let mut work = Work::new(&plan, "c");
        for id in 0..names {
            let job = job(
                id,
                &format!("application {id}"),
                JobState::Completed,
                (0, 0),
            );
            // All others are of the same application as one before.
            work.add(&job, Timestamp(100_000));
            work.add(&job, Timestamp(100_000));
        }
        let kept = work.rows.len();
        (kept, work.report().map(|report| report.rows.len()))
    };
    assert_eq!(made(1000), (1000, Ok(1000)));
    let (kept, report) = made(5000);
    assert!(kept < 2048, "{kept}");
    assert!(report.unwrap_err().contains("more than 1 MiB of rows"));
}

#[test]
fn rows_that_name_a_user_have_its_fair_share() {
    let shares = [("a", "ann", 0.25), ("b", "ann", 0.75), ("a", "", 0.9)];
    let factors = |by: &str| {
        let request = request(&[("by", by), ("starttime", "1970-01-01")]).unwrap();
        let plan = request.plan(Path::new("/nonexistent/slurm.conf")).unwrap();
        let mut work = Work::new(&plan, "c");
        work.shares = (shares.iter())
            .map(|(account, user, fair_share)| Share {
                account: (*account).to_owned(),
                user: (*user).to_owned(),
                fair_share: *fair_share,
                ..Share::default()
            })
            .collect();
        let mut job = job(7, "x", JobState::Completed, (0, 0));
        (job.user, job.account) = ("ann".to_owned(), "a".to_owned());
        work.add(&job, Timestamp(100_000));
        let report = work.report().unwrap();
        report.rows[0].1.fair_share
    };
    assert_eq!(factors("user"), Some(0.75));
    assert_eq!(factors("user,account"), Some(0.25));
    assert_eq!(factors("account"), None);
}
