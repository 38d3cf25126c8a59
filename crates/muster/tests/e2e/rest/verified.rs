//! Submissions by HTTP before job_submit.lua: users are who their tokens say, and get what a script sets for them, not what
//! they ask for themselves.

use super::{ONE_NODE, OWNER, Rest, job};
use serde_json::json;

const SCRIPT: &str = r#"
function slurm_job_submit(job_desc, part_list, submit_uid)
    job_desc.comment = job_desc.user_name .. " " .. submit_uid
    if job_desc.name == "raised" then
        job_desc.nice = -5
        job_desc.admin_comment = "of the site"
    elseif job_desc.name == "refused" then
        slurm.log_user("not today, %s", job_desc.user_name)
        return slurm.ESLURM_ACCOUNTING_POLICY
    end
    return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end
"#;

#[test]
fn submissions_are_verified_and_only_a_script_gives_what_users_may_not_ask_for() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let (c, owner) = (&rest.cluster, rest.of(OWNER));
    std::fs::write(c.path("job_submit.lua"), SCRIPT).unwrap();
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, format!("{text}\nJobSubmitPlugins=lua\n")).unwrap();
    c.ok("scontrol reconfigure");
    let uid = c.ok(&format!("id -u {OWNER}"));
    let id = owner.submit(job(json!({"name": "raised"})));
    let shown = c.ok(&format!("scontrol show job {id}"));
    for part in [
        "Nice=-5",
        "AdminComment=of the site",
        &format!("Comment={OWNER} {uid}"),
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let post = |more| {
        let body = json!({"script": "#!/bin/sh\ntrue\n", "job": job(more)});
        owner.post("/slurm/v0.0.43/job/submit", &body)
    };
    let refused = post(json!({"name": "refused"}));
    assert_eq!(refused.error(), 2050);
    assert!(
        refused.body.contains(&format!("not today, {OWNER}")),
        "{refused:?}"
    );
    assert_eq!(post(json!({"nice": -5})).error(), 2002);
}
