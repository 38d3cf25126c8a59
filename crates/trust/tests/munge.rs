//! Proofs by real munged, which the tests start.
#![allow(clippy::unwrap_used)]

use muster_channel::{Purpose, SECRET, Scheme};
use muster_conf::{AuthMethod, Authentication};
use muster_trust::munge::{Munge, MungeError};
use muster_trust::proof::{self, Proof, ProofError, ProofRequest, ProofVerifier};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long something of munged's may take.
const PATIENCE: Duration = Duration::from_secs(20);
const KEY: &str = "a key that is as long as munge wants keys to be";

/// A munged with a key of its own.
struct Munged {
    dir: PathBuf,
    child: Child,
}

impl Munged {
    /// None where munge is not installed; CI installs it.
    fn start(name: &str, key: &str) -> Option<Munged> {
        let dir = std::env::temp_dir().join(format!("muster-munge-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("run")).unwrap();
        let mode = |path: PathBuf, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(dir.join("run"), 0o755);
        fs::write(dir.join("key"), key).unwrap();
        mode(dir.join("key"), 0o600);
        let at = |end: &str| dir.join(end).display().to_string();
        let child = Command::new("munged")
            .args(["--foreground", "--force"])
            .arg(format!("--key-file={}", at("key")))
            .arg(format!("--socket={}", at("run/socket")))
            .arg(format!("--pid-file={}", at("pid")))
            .arg(format!("--seed-file={}", at("seed")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            eprintln!("munged is not installed: this test looked at nothing");
            return None;
        };
        let munged = Munged { dir, child };
        let until = Instant::now() + PATIENCE;
        while munged.munge().encode(b"", 0).is_err() {
            assert!(Instant::now() < until, "munged does not listen");
        }
        Some(munged)
    }

    fn authentication(&self, ttl_s: Option<u32>) -> Authentication {
        Authentication {
            method: AuthMethod::Munge,
            socket: Some(self.dir.join("run/socket")),
            ttl_s,
            ..Authentication::default()
        }
    }

    fn munge(&self) -> Munge {
        Munge::open(Some(&self.dir.join("run/socket")), None).unwrap()
    }

    fn make(&self, cluster: &str, receiver_uid: u32, ttl_s: Option<u32>) -> Proof {
        let ask = ProofRequest {
            cluster,
            purpose: Purpose::Node("n1".to_owned()),
            receiver_uid,
        };
        proof::make(&self.authentication(ttl_s), &ask).unwrap()
    }

    fn verifier(&self) -> ProofVerifier {
        ProofVerifier::new(&self.authentication(None), "c").unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }
}

impl Drop for Munged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn own_uid() -> u32 {
    geteuid().as_raw()
}

#[test]
fn a_proof_says_who_made_it_for_what_and_is_believed_once() {
    let Some(munged) = Munged::start("good", KEY) else {
        return;
    };
    let (proof, verifier) = (munged.make("c", own_uid(), None), munged.verifier());
    let verified = verifier.verify(proof.scheme, &proof.credential).unwrap();
    assert_eq!(verified.uid, own_uid());
    assert_eq!(verified.statement.purpose, Purpose::Node("n1".to_owned()));
    assert_eq!(verified.statement.secret, proof.secret);
    assert_ne!(proof.secret, [0; SECRET]);
    let again = verifier.verify(proof.scheme, &proof.credential);
    assert_eq!(again, Err(MungeError::Replayed.into()));
}

#[test]
fn what_is_not_for_this_cluster_or_receiver_is_refused_by_name() {
    let Some(munged) = Munged::start("own", KEY) else {
        return;
    };
    let other_key = "the key of hosts that are somebody else's";
    let stranger = Munged::start("stranger", other_key).unwrap();
    let verifier = munged.verifier();
    let refusal = |proof: &Proof| {
        let refused = verifier.verify(proof.scheme, &proof.credential);
        refused.unwrap_err()
    };
    let foreign = refusal(&munged.make("another", own_uid(), None));
    assert!(
        foreign.to_string().contains("cluster 'another'"),
        "{foreign}"
    );
    let others = refusal(&munged.make("c", own_uid() + 1, None));
    assert_eq!(others, MungeError::Receiver(own_uid()).into());
    let of_stranger = refusal(&stranger.make("c", own_uid(), None));
    assert_eq!(of_stranger, MungeError::Invalid.into());
    let mut changed = munged.make("c", own_uid(), None);
    let middle = changed.credential.len() / 2;
    let byte = &mut changed.credential[middle];
    *byte = if *byte == b'A' { b'B' } else { b'A' };
    assert_eq!(refusal(&changed), MungeError::Invalid.into());
    for nonsense in [&b"MUNGE:"[..], b"", b"MUNGE:\xff:", b"a\0b"] {
        let refused = verifier.verify(Scheme::Munge, nonsense);
        assert!(refused.is_err(), "{nonsense:?}");
    }
    let of_job = verifier.verify(Scheme::Job, b"");
    assert_eq!(of_job, Err(ProofError::Scheme(Scheme::Job)));
    let plain = munged.munge().encode(b"something else", own_uid());
    let refused = verifier.verify(Scheme::Munge, &plain.unwrap());
    assert!(
        matches!(refused, Err(ProofError::Statement(_))),
        "{refused:?}"
    );
}

#[test]
fn what_is_too_old_is_refused() {
    let Some(munged) = Munged::start("old", KEY) else {
        return;
    };
    let (proof, verifier) = (munged.make("c", own_uid(), Some(1)), munged.verifier());
    let began = Instant::now();
    // Nothing but the time makes it old; until then it is one that was used.
    loop {
        match verifier.verify(proof.scheme, &proof.credential) {
            Err(ProofError::Munge(MungeError::Expired)) => break,
            Ok(_) | Err(ProofError::Munge(MungeError::Replayed)) => {}
            Err(other) => panic!("{other}"),
        }
        assert!(began.elapsed() < PATIENCE, "it does not expire");
    }
}

#[test]
fn a_munged_that_is_gone_or_hangs_is_an_error_that_names_it() {
    let Some(munged) = Munged::start("hangs", KEY) else {
        return;
    };
    let absent = Authentication {
        socket: Some(munged.dir.join("run/none")),
        ..munged.authentication(None)
    };
    let why = ProofVerifier::new(&absent, "c").unwrap_err();
    assert!(why.to_string().contains("munged does not answer"), "{why}");
    let munge = munged.munge();
    munged.signal(Signal::SIGSTOP);
    let began = Instant::now();
    let hung = munge.encode(b"", own_uid());
    munged.signal(Signal::SIGCONT);
    assert!(matches!(hung, Err(MungeError::Daemon(_))), "{hung:?}");
    assert!(began.elapsed() < 2 * PATIENCE, "{:?}", began.elapsed());
    assert!(munge.encode(b"", own_uid()).is_ok(), "it goes on");
}

#[test]
fn threads_use_it_at_the_same_time() {
    let Some(munged) = Munged::start("threads", KEY) else {
        return;
    };
    let verifier = munged.verifier();
    let make_and_verify = || {
        for _ in 0..20 {
            let proof = munged.make("c", own_uid(), None);
            let verified = verifier.verify(proof.scheme, &proof.credential);
            assert_eq!(verified.unwrap().statement.secret, proof.secret);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(make_and_verify);
        }
    });
}
