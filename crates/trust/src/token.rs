//! Tokens of `AuthType=auth/slurm`: what a process that has the cluster's key ([`ClusterKeys`]) says of who connects. A token is
//! a signed text (JWT, HS256) that may be seen on the way; the secret of the channel that it begins follows from the token and
//! the key, so that who has the key makes both, gives both to the user, and the receiver works the secret out again.

use crate::base64url;
use crate::jwt::{self, JwtError, Parsed};
use crate::keyed;
use crate::slurm_key::{ClusterKeys, KeyError, NoKey};
use hmac::Mac as _;
use muster_channel::{Purpose, SECRET};
use serde_json::{Map, Value};
use std::time::{SystemTime, UNIX_EPOCH};

/// Lifetime of a token where AuthInfo does not set `ttl=`, seconds; from Slurm.
pub const TTL_S: u32 = 60;
/// Greatest lifetime of a token: its number is kept for this time.
pub(crate) const TTL_MAX_S: u64 = 3600;
/// Purpose in tokens for channels, so that no other token of the same key is one.
const CONTEXT: &str = "muster channel 1";
/// Bytes of a token's number, which is drawn.
pub(crate) const NUMBER: usize = 16;

/// Why a token proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is no token of this key, or too old.
    #[error(transparent)]
    Jwt(#[from] JwtError),
    /// No key belongs to it.
    #[error(transparent)]
    NoKey(#[from] NoKey),
    /// It was made with another key.
    #[error(
        "the token was made with another key of auth/slurm, or was changed: see that slurm.key (or slurm.jwks) is the same on both \
         hosts"
    )]
    Key,
    /// It was made for something else.
    #[error("the token was made for something else ('{0}')")]
    Context(String),
    /// It is for another user.
    #[error(
        "the token is for uid {theirs}, and this is uid {ours}: see that SlurmUser has the same uid on both hosts"
    )]
    Receiver {
        /// As it says.
        theirs: u64,
        /// User of the verifying process.
        ours: u32,
    },
    /// It would be good for too long.
    #[error(
        "the token is good for {0} seconds, more than {TTL_MAX_S}: lower ttl= in AuthInfo on the host that made it"
    )]
    Lifetime(u64),
    /// It was shown before.
    #[error("the token was used before")]
    Replayed,
    /// There is no room to remember that it was used.
    #[error(
        "too many connections of uid {0} within {TTL_MAX_S} seconds: the oldest tokens must expire first; a lower ttl= in AuthInfo helps"
    )]
    Full(u32),
}

/// Claims of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenClaims {
    /// `ClusterName`.
    pub cluster: String,
    /// For whom its user speaks.
    pub purpose: Purpose,
    /// The receiver: `SlurmUser`.
    pub receiver_uid: u32,
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// The host where it was made.
    pub host: String,
}

/// When and how a token is made.
#[derive(Clone, Copy, Debug)]
pub struct TokenRequest {
    /// Now, in seconds since 1970.
    pub now_s: u64,
    /// For how long it is good.
    pub ttl_s: u32,
    /// Nobody can guess it.
    pub number: [u8; NUMBER],
}

impl TokenRequest {
    /// A token that is made now.
    ///
    /// # Errors
    /// There are no random numbers.
    pub(crate) fn now(ttl_s: Option<u32>) -> Result<TokenRequest, getrandom::Error> {
        let mut number = [0; NUMBER];
        getrandom::fill(&mut number)?;
        Ok(TokenRequest {
            now_s: now_s(),
            ttl_s: ttl_s.unwrap_or(TTL_S),
            number,
        })
    }
}

/// Now, in seconds since 1970.
pub fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// A token and the secret that goes with it.
pub struct SignedToken {
    /// The token.
    pub token: String,
    /// The secret.
    pub secret: [u8; SECRET],
}

/// The secret does not reach logs.
impl std::fmt::Debug for SignedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Minted")
    }
}

/// Makes a token.
///
/// # Errors
/// The key has expired.
pub fn mint(
    keys: &ClusterKeys,
    claims: &TokenClaims,
    how: TokenRequest,
) -> Result<SignedToken, KeyError> {
    let key = keys.signing(how.now_s)?;
    let ttl_s = u64::from(how.ttl_s).clamp(1, TTL_MAX_S);
    let said: [(&str, Value); 10] = [
        ("iat", how.now_s.into()),
        ("exp", (how.now_s + ttl_s).into()),
        ("context", CONTEXT.into()),
        ("cluster", claims.cluster.as_str().into()),
        ("purpose", claims.purpose.to_string().into()),
        ("ruid", claims.receiver_uid.into()),
        ("uid", claims.uid.into()),
        ("gid", claims.gid.into()),
        ("host", claims.host.as_str().into()),
        ("jti", base64url::encode(&how.number).into()),
    ];
    let said: Map<String, Value> = said
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let token = jwt::sign(key.bytes(), key.kid(), &said);
    let secret = secret(key.bytes(), token.as_bytes());
    Ok(SignedToken { token, secret })
}

/// The secret of a channel that begins with this token.
fn secret(key: &[u8], token: &[u8]) -> [u8; SECRET] {
    let mut derived = keyed(key);
    derived.update(b"muster: secret of a channel by token, 1\0");
    derived.update(token);
    derived.finalize().into_bytes().into()
}

/// A token that is believed, unless it was used before.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) claims: TokenClaims,
    pub(crate) secret: [u8; SECRET],
    pub(crate) number: [u8; NUMBER],
    pub(crate) ends_s: u64,
}

/// The secret does not reach logs.
impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opened({:?})", self.claims)
    }
}

/// Verifies a token which `own_uid` reads. Clocks of hosts may differ by the life of a token.
///
/// # Errors
/// See [`TokenError`].
pub(crate) fn open(
    keys: &ClusterKeys,
    token: &[u8],
    now_s: u64,
    own_uid: u32,
) -> Result<Opened, TokenError> {
    let parsed = Parsed::of(token)?;
    let key = keys.verifying(parsed.kid.as_deref(), now_s)?;
    parsed.verify(key.bytes()).map_err(|_| TokenError::Key)?;
    let said = &parsed.claims;
    let context = said.get("context").and_then(Value::as_str);
    if context != Some(CONTEXT) {
        let context: String = context.unwrap_or("").chars().take(32).collect();
        return Err(TokenError::Context(context.escape_default().to_string()));
    }
    let (made_s, ends_s) = jwt::times(said, now_s, u64::from(TTL_S))?;
    let life_s = ends_s.saturating_sub(made_s);
    if life_s > TTL_MAX_S {
        return Err(TokenError::Lifetime(life_s));
    }
    let receiver = jwt::number(said, "ruid")?;
    if receiver != u64::from(own_uid) {
        return Err(TokenError::Receiver {
            theirs: receiver,
            ours: own_uid,
        });
    }
    let id = |name| {
        let number = jwt::number(said, name)?;
        u32::try_from(number).map_err(|_| JwtError::Claim(name))
    };
    let purpose = Purpose::of_text(jwt::text(said, "purpose")?);
    let number = base64url::decode(jwt::text(said, "jti")?.as_bytes());
    let number = number.and_then(|bytes| bytes.try_into().ok());
    Ok(Opened {
        claims: TokenClaims {
            cluster: jwt::text(said, "cluster")?.to_owned(),
            purpose: purpose.ok_or(JwtError::Claim("purpose"))?,
            receiver_uid: own_uid,
            uid: id("uid")?,
            gid: id("gid")?,
            host: jwt::text(said, "host")?.to_owned(),
        },
        secret: secret(key.bytes(), token),
        number: number.ok_or(JwtError::Claim("jti"))?,
        ends_s,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;
    use zeroize::Zeroizing;

    const NOW_S: u64 = 1_800_000_000;

    pub(crate) fn keys(byte: u8) -> ClusterKeys {
        ClusterKeys::of_one(Path::new("slurm.key"), Zeroizing::new(vec![byte; 32])).unwrap()
    }

    fn claims() -> TokenClaims {
        TokenClaims {
            cluster: "c".to_owned(),
            purpose: Purpose::User,
            receiver_uid: 64030,
            uid: 1000,
            gid: 100,
            host: "login".to_owned(),
        }
    }

    fn how() -> TokenRequest {
        TokenRequest {
            now_s: NOW_S,
            ttl_s: TTL_S,
            number: [3; NUMBER],
        }
    }

    fn minted(keys: &ClusterKeys) -> SignedToken {
        mint(keys, &claims(), how()).unwrap()
    }

    fn refusal(token: &str, now_s: u64, own_uid: u32) -> TokenError {
        open(&keys(1), token.as_bytes(), now_s, own_uid).unwrap_err()
    }

    #[test]
    fn who_has_the_key_knows_what_it_says_and_the_secret() {
        let minted = minted(&keys(1));
        let opened = open(&keys(1), minted.token.as_bytes(), NOW_S, 64030).unwrap();
        assert_eq!(opened.claims, claims());
        assert_eq!(opened.secret, minted.secret);
        assert_eq!(opened.number, [3; NUMBER]);
        assert_eq!(opened.ends_s, NOW_S + 60);
        let longest = TokenRequest {
            ttl_s: u32::MAX,
            ..how()
        };
        let longest = mint(&keys(1), &claims(), longest).unwrap();
        assert!(open(&keys(1), longest.token.as_bytes(), NOW_S, 64030).is_ok());
        // The number alone makes it another secret.
        let other = TokenRequest {
            number: [4; NUMBER],
            ..how()
        };
        let other = mint(&keys(1), &claims(), other).unwrap();
        assert_ne!(other.secret, minted.secret);
    }

    #[test]
    fn each_reason_to_refuse_one_is_named() {
        let token = minted(&keys(1)).token;
        assert_eq!(
            refusal(&token, NOW_S + 61, 64030),
            JwtError::Expired(1).into()
        );
        assert_eq!(
            refusal(&token, NOW_S - 61, 64030),
            JwtError::Future(61).into()
        );
        let receiver = TokenError::Receiver {
            theirs: 64030,
            ours: 0,
        };
        assert_eq!(refusal(&token, NOW_S, 0), receiver);
        assert_eq!(
            refusal(&minted(&keys(2)).token, NOW_S, 64030),
            TokenError::Key
        );
        assert!(matches!(
            refusal("a.b", NOW_S, 0),
            TokenError::Jwt(JwtError::Malformed(_))
        ));
        let of_list = |name: &str| {
            let key = format!(
                r#"{{"alg":"HS256","kty":"oct","kid":"{name}","k":"{}"}}"#,
                "ab".repeat(20)
            );
            ClusterKeys::of_list(
                Path::new("slurm.jwks"),
                format!(r#"{{"keys":[{key}]}}"#).as_bytes(),
            )
        };
        let token = minted(&of_list("new").unwrap()).token;
        let unknown = open(&of_list("old").unwrap(), token.as_bytes(), NOW_S, 64030);
        assert_eq!(unknown, Err(NoKey::Unknown("new".to_owned()).into()));
    }

    /// Tokens for users, of the same key by an administrator's choice, or of another version.
    #[test]
    fn what_the_key_has_signed_for_something_else_is_refused() {
        let sign = |change: &dyn Fn(&mut Map<String, Value>)| {
            let minted = minted(&keys(1));
            let mut said = Parsed::of(minted.token.as_bytes()).unwrap().claims;
            change(&mut said);
            let token = jwt::sign(&[1; 32], None, &said);
            open(&keys(1), token.as_bytes(), NOW_S, 64030)
        };
        assert!(sign(&|_| {}).is_ok());
        let context = sign(&|said| drop(said.remove("context")));
        assert_eq!(context, Err(TokenError::Context(String::new())));
        let context = sign(&|said| drop(said.insert("context".into(), "sack\n".into())));
        assert_eq!(context, Err(TokenError::Context("sack\\n".to_owned())));
        let life = sign(&|said| drop(said.insert("exp".into(), (NOW_S + 3601).into())));
        assert_eq!(life, Err(TokenError::Lifetime(3601)));
        for (name, wrong) in [
            ("uid", Value::from(u64::from(u32::MAX) + 1)),
            ("uid", "0".into()),
            ("gid", (-1).into()),
            ("purpose", "root".into()),
            ("purpose", "node ".into()),
            ("jti", "AAAA".into()),
            ("cluster", 1.into()),
            ("host", Value::Null),
        ] {
            let refused = sign(&|said| drop(said.insert(name.into(), wrong.clone())));
            assert_eq!(refused, Err(JwtError::Claim(name).into()), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_token_says_what_it_was_made_for(
            cluster in "[a-z0-9_]{1,40}", node in prop::option::of("[a-z0-9-]{1,60}"),
            uid: u32, gid: u32, receiver_uid: u32, host in ".{0,64}",
            ttl_s in 1..3600_u32, age_s in 0..3600_u64, number: [u8; NUMBER],
        ) {
            let purpose = node.map_or(Purpose::User, Purpose::Node);
            let claims = TokenClaims { cluster, purpose, receiver_uid, uid, gid, host };
            let minted = mint(&keys(1), &claims, TokenRequest { now_s: NOW_S, ttl_s, number }).unwrap();
            prop_assert!(minted.token.len() <= muster_channel::CREDENTIAL_BYTES_MAX);
            let opened = open(&keys(1), minted.token.as_bytes(), NOW_S + age_s, receiver_uid);
            match opened {
                Ok(opened) => {
                    prop_assert!(age_s < u64::from(ttl_s));
                    prop_assert_eq!(opened.claims, claims);
                    prop_assert_eq!(opened.secret, minted.secret);
                }
                Err(e) => {
                    let expired = JwtError::Expired(age_s.saturating_sub(u64::from(ttl_s)));
                    prop_assert_eq!(e, expired.into());
                }
            }
        }

        #[test]
        fn a_changed_token_proves_nothing(at in any::<prop::sample::Index>(), to: u8) {
            let token = minted(&keys(1)).token.into_bytes();
            let mut changed = token.clone();
            let at = at.index(changed.len());
            changed[at] = to;
            let opened = open(&keys(1), &changed, NOW_S, 64030);
            prop_assert_eq!(opened.is_ok(), changed == token);
        }
    }
}
