//! Who gets a key, and who does not.

use super::*;
use muster_trust::node_key::{NodeKey, Speaker};

const NOW: u64 = 1_000_000;

struct Place {
    dir: PathBuf,
    trust: NodeTrust,
}

impl Place {
    fn new(name: &str) -> Place {
        let dir = std::env::temp_dir().join(format!("muster-trust-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let trust = Place::open(&dir);
        Place { dir, trust }
    }

    fn open(dir: &Path) -> NodeTrust {
        NodeTrust::open(dir, "c", Keys::from_bytes([5; 64])).unwrap()
    }

    /// As if the controller had been killed and started.
    fn restart(&mut self) {
        self.trust = Place::open(&self.dir);
    }

    fn token(&self, node: Option<&str>, lifespan_s: u32) -> JoinToken {
        let text = self.trust.issue(node, Some(lifespan_s), "root", NOW);
        JoinToken::parse(&text.unwrap()).unwrap()
    }

    fn join(&self, token: &JoinToken, key: &NodeKey, now_s: u64) -> Result<(), String> {
        let offer = JoinOffer::decode(&token.proof(&key.node).unwrap().credential).unwrap();
        self.trust.secret_of_offer(&offer)?;
        let proof = token.prove_possession(key).unwrap();
        let joining = Joining {
            offer: &offer,
            key: &key.public(),
            proof: &proof,
            address: "10.0.0.1".to_owned(),
        };
        self.trust.pin(&joining, now_s)
    }

    fn key(&self, node: &str) -> NodeKey {
        NodeKey::make("c", node, self.trust.0.keys.pair().public()).unwrap()
    }

    /// Whether the controller has the secret by which a node begins a channel.
    fn knows(&self, key: &NodeKey) -> bool {
        let proof = key.proof(Speaker::Agent).unwrap();
        let claim = NodeClaim::decode(&proof.credential).unwrap();
        let own = self.trust.secret_of_claim(&claim, claim.made_s);
        own.is_ok_and(|own| own == proof.secret)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn a_token_is_good_once_for_one_node_and_time() {
    let mut place = Place::new("once");
    let token = place.token(Some("n1"), 60);
    let (key, other) = (place.key("n1"), place.key("n1"));
    assert!(!place.knows(&key));
    let late = place.join(&token, &key, NOW + 60).unwrap_err();
    assert!(late.contains("expired"), "{late}");
    let misused = place.join(&token, &place.key("n2"), NOW).unwrap_err();
    assert!(misused.contains("is for node n1, not for n2"), "{misused}");
    place.restart();
    place.join(&token, &key, NOW).unwrap();
    place.restart();
    assert!(place.knows(&key) && place.trust.is_pinned("n1"));
    let again = place.join(&token, &other, NOW).unwrap_err();
    assert!(again.contains("was used already, for node n1"), "{again}");
    // The answer may have been lost.
    place.join(&token, &key, NOW + 3600).unwrap();
    assert!(!place.knows(&other));
}

#[test]
fn what_is_no_token_of_this_controller_is_none() {
    let place = Place::new("unknown");
    let token = place.token(Some("n1"), 60);
    let public = place.trust.0.keys.pair().public();
    let guessed = JoinToken::make("c", "n1", public).unwrap();
    let unknown = place.join(&guessed, &place.key("n1"), NOW).unwrap_err();
    assert!(unknown.contains("knows no such token"), "{unknown}");
    // Another cluster's controller that somehow has the token.
    let mut other = JoinToken::parse(&token.text()).unwrap();
    other.cluster = "d".to_owned();
    let wrong = place.join(&other, &place.key("n1"), NOW).unwrap_err();
    assert!(wrong.contains("another cluster's"), "{wrong}");
    // A key that somebody else has.
    let offer = JoinOffer::decode(&token.proof("n1").unwrap().credential).unwrap();
    let (own, other) = (place.key("n1"), place.key("n1"));
    let stolen = Joining {
        offer: &offer,
        key: &other.public(),
        proof: &token.prove_possession(&own).unwrap(),
        address: String::new(),
    };
    assert!(place.trust.pin(&stolen, NOW).is_err());
    assert!(!place.trust.is_pinned("n1"));
}

#[test]
fn a_key_is_replaced_by_a_token_for_its_node_and_by_no_other() {
    let place = Place::new("rotate");
    let (first, second) = (place.key("n1"), place.key("n1"));
    place.join(&place.token(None, 60), &first, NOW).unwrap();
    let refused = place.join(&place.token(None, 60), &second, NOW);
    assert!(refused.unwrap_err().contains("node n1 has a key"));
    place
        .join(&place.token(Some("n1"), 60), &second, NOW)
        .unwrap();
    assert!(place.knows(&second) && !place.knows(&first));
    // A node's key is no other node's.
    let other = place.key("n2");
    place
        .join(&place.token(Some("n2"), 60), &other, NOW)
        .unwrap();
    let proof = other.proof(Speaker::Agent).unwrap();
    let mut claim = NodeClaim::decode(&proof.credential).unwrap();
    claim.node = "n1".to_owned();
    let own = place.trust.secret_of_claim(&claim, claim.made_s).unwrap();
    assert_ne!(own, proof.secret);
}

#[test]
fn what_is_forgotten_is_no_longer_believed() {
    let mut place = Place::new("forget");
    let key = place.key("n1");
    let token = place.token(Some("n1"), 600);
    place.join(&token, &key, NOW).unwrap();
    let open = place.token(Some("n1"), 600);
    let both = ["n1".to_owned(), "n7".to_owned()];
    let unknown = place.trust.forget(&both).unwrap_err();
    assert!(unknown.detail.contains("n7 has no key"), "{unknown}");
    assert!(place.knows(&key), "nothing is forgotten by halves");
    place.trust.forget(&both[..1]).unwrap();
    place.restart();
    assert!(!place.knows(&key) && !place.trust.is_pinned("n1"));
    for token in [token, open] {
        let gone = place.join(&token, &key, NOW).unwrap_err();
        assert!(gone.contains("its node was forgotten"), "{gone}");
    }
}

#[test]
fn the_list_has_keys_tokens_and_refusals_and_no_secret() {
    let place = Place::new("list");
    let key = place.key("n1");
    let used = place.token(Some("n1"), 60);
    place.join(&used, &key, NOW).unwrap();
    let open = place.token(Some("n2"), 90);
    for _ in 0..3 {
        place.trust.count_refused("n1");
    }
    let list = place.trust.list(NOW);
    let names: Vec<&str> = list.iter().map(|record| record.node.as_str()).collect();
    assert_eq!(names, ["n1", "n2"]);
    assert_eq!((list[0].refused, list[0].token_expires), (3, None));
    assert_eq!(list[0].key.as_ref().unwrap().to_vec(), key.public());
    let ends = i64::try_from((NOW + 90) * 1000).unwrap();
    assert_eq!(list[1].token_expires, Some(Timestamp(ends)));
    assert_eq!(place.trust.list(NOW + 90).len(), 1, "expired");
    let stored = std::fs::read_to_string(place.dir.join(file::NAME)).unwrap();
    assert!(!stored.contains(&*open.text()) && !stored.contains(&*used.text()));
}

#[test]
fn tokens_are_bounded_in_time_and_what_cannot_be_kept_is_not_given() {
    let place = Place::new("bounds");
    for wrong in [0, LIFESPAN_MAX_S + 1] {
        assert!(place.trust.issue(None, Some(wrong), "root", NOW).is_err());
    }
    std::fs::remove_dir_all(&place.dir).unwrap();
    let refused = place
        .trust
        .issue(Some("n1"), None, "root", NOW)
        .unwrap_err();
    assert!(refused.detail.contains("cannot be written"), "{refused}");
    assert!(!place.trust.is_used());
}

/// The network asked for keys with those who waited for the disk: so did all who connected.
#[test]
fn who_asks_does_not_wait_for_who_writes() {
    let place = Place::new("waits");
    let key = place.key("n1");
    place.join(&place.token(Some("n1"), 60), &key, NOW).unwrap();
    // As long as somebody changes it, until it is durable.
    let turn = place.trust.turn();
    let (trust, other) = (place.trust.clone(), place.trust.clone());
    let asked = std::thread::spawn(move || trust.is_used() && trust.is_pinned("n1"));
    assert!(asked.join().unwrap() && place.knows(&key));
    assert_eq!(place.trust.list(NOW).len(), 1);
    let forgets = std::thread::spawn(move || other.forget(&["n1".to_owned()]));
    assert!(place.trust.is_pinned("n1"), "changes wait for their turn");
    drop(turn);
    forgets.join().unwrap().unwrap();
    assert!(!place.trust.is_pinned("n1"));
}
