//! Tokens that no controller is there to confirm.

use super::{ONE_NODE, OWNER, Rest};

/// A token of somebody's own making.
fn forged(rest: &Rest, user: &str) -> String {
    let encode = "base64 -w0 | tr '+/' '-_' | tr -d '='";
    rest.cluster.ok(&format!(
        "printf '%s.%s.AAAA' \"$(printf '{{\"alg\":\"HS256\",\"typ\":\"JWT\"}}' | {encode})\" \
         \"$(printf '{{\"exp\":4000000000,\"iat\":1,\"sun\":\"{user}\"}}' | {encode})\""
    ))
}

#[test]
fn without_a_controller_a_made_up_token_learns_and_does_nothing() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let c = &rest.cluster;
    let names = [OWNER, "root", "nobody-of-this-name"];
    let tokens = names.map(|user| forged(&rest, user));
    let send = |path: &str, token: &str| {
        let header = format!("X-SLURM-USER-TOKEN: {token}\r\n");
        rest.send("GET", path, &header, "")
    };
    let jobs = "/slurm/v0.0.43/jobs";
    for token in &tokens {
        assert_eq!(send(jobs, token).status, 401);
    }
    c.ok("scontrol shutdown slurmctld");
    c.until("the controller is gone", || {
        c.run("scontrol ping").code != 0
    });
    let mut bodies = Vec::new();
    for (token, user) in tokens.iter().zip(names) {
        let listed = send(jobs, token);
        assert_eq!(listed.status, 502, "{listed:?}");
        // The answer has the name that the token claims.
        bodies.push(listed.body.replace(user, "USER"));
        let stream = send("/muster/v1/events", token);
        assert_eq!(stream.status, 503, "{stream:?}");
    }
    // Users of this host cannot be distinguished from others.
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:#?}");
}
