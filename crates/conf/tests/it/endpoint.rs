//! What commands read of slurm.conf themselves.

use muster_conf::endpoint;

#[test]
fn blanks_around_the_sign_and_comments_do_not_matter() {
    let path = std::env::temp_dir().join(format!("muster-endpoint-{}", std::process::id()));
    let text = "ClusterName = blue # a comment\nslurmctldhost=\thead\nMailDomain = example.org\n";
    std::fs::write(&path, text).unwrap();
    let read = endpoint::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read.cluster, "blue");
    assert_eq!(read.hosts, ["head"]);
    assert_eq!(read.mail_domain.as_deref(), Some("example.org"));
}
