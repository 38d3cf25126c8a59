//! Requests from standard input.

use super::*;

#[test]
fn requests_come_from_standard_input() {
    let c = Cluster::start(1, 1);
    let piped = |request: &str| {
        c.run(&format!(
            "printf '{request}' | SLURMRESTD_SECURITY=disable_user_check timeout 60 slurmrestd"
        ))
    };
    let answered = piped("GET /openapi HTTP/1.1\\r\\nConnection: Close\\r\\n\\r\\n");
    assert!(answered.code == 0 && answered.out.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(answered.out.ends_with('}'));
    let two = "GET /openapi HTTP/1.1\\r\\n\\r\\n".repeat(2);
    assert_eq!(piped(&two).out.matches("HTTP/1.1 200 OK").count(), 2);
    for wrong in [
        "INVALID",
        "INVALID\\r\\n\\r\\n",
        "GET /openapi HTTP/1.1\\r\\nINVALID\\r\\n\\r\\n",
    ] {
        assert_eq!(piped(wrong).code, 1, "{wrong}");
    }
}
