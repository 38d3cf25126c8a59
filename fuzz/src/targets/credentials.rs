//! Tokens: of hosts (auth/slurm), of users (auth/jwt), and the files that keys are in.

use muster_channel::Scheme;
use muster_conf::{AuthMethod, Authentication, UserTokenSettings};
use muster_trust::join::{JoinOffer, JoinToken};
use muster_trust::node_key::NodeClaim;
use muster_trust::proof::ProofVerifier;
use muster_trust::slurm_key::{ClusterKeys, KeyFiles};
use muster_trust::user_token::{self, UserTokens};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Keys of this process.
struct Keys {
    dir: PathBuf,
    hosts: ProofVerifier,
    users: UserTokens,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("fuzz-credentials.{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory for keys");
    write_key(&dir.join("slurm.key"), &[5; 64]);
    write_key(&dir.join("jwt_hs256.key"), &[6; 64]);
    let uid = nix::unistd::geteuid().as_raw();
    let authentication = Authentication {
        method: AuthMethod::Slurm,
        socket: None,
        ttl_s: None,
        cred_expire_s: None,
        key_dir: dir.clone(),
    };
    let settings = UserTokenSettings {
        key: dir.join("jwt_hs256.key"),
        ..UserTokenSettings::default()
    };
    let changed = dir.join("changed");
    fs::create_dir_all(&changed).expect("a directory for changed keys");
    Keys {
        hosts: ProofVerifier::new(&authentication, "c").expect("keys of hosts"),
        users: UserTokens::new(settings, uid).expect("a key of users"),
        dir: changed,
    }
});

fn write_key(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("a key");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("a key's mode");
}

pub(super) fn run(data: &[u8]) {
    let Some((&kind, data)) = data.split_first() else {
        return;
    };
    match kind % 4 {
        0 => {
            let verified = KEYS.hosts.verify(Scheme::Slurm, data);
            assert!(verified.is_err(), "a token was made without the key");
        }
        1 => {
            // Anybody can write what a token says: only the secret shows that it was made here.
            let _ = KEYS.users.open(data);
        }
        2 => {
            let text = String::from_utf8_lossy(data);
            let _ = user_token::show(&text);
            assert!(JoinToken::parse(&text).is_err(), "a token was guessed");
            let _ = JoinOffer::decode(data);
            if let Ok(claim) = NodeClaim::decode(data) {
                let again = NodeClaim::decode(&claim.encode());
                assert_eq!(again.as_ref(), Ok(&claim), "a claim has two texts");
            }
        }
        _ => {
            write_key(&KEYS.dir.join("slurm.jwks"), data);
            let uid = nix::unistd::geteuid().as_raw();
            let _ = ClusterKeys::read(&KeyFiles::of_directory(&KEYS.dir), uid);
        }
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let token = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
                 eyJleHAiOjQwMDAwMDAwMDAsImlhdCI6MTgwMDAwMDAwMCwic3VuIjoicm9vdCJ9";
    let whole = format!("{token}.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let keys = r#"{"keys":[{"kty":"oct","kid":"a","alg":"HS256","k":"BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU","use":"default","exp":4000000000}]}"#;
    [
        (0, whole.as_str()),
        (1, token),
        (2, &whole),
        (3, keys),
        (0, "eyJhbGciOiJub25lIn0.e30."),
    ]
    .map(|(kind, text)| [&[kind], text.as_bytes()].concat())
    .to_vec()
}
