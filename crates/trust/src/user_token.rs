//! Tokens by which commands connect as a user from anywhere (`AuthAltTypes=auth/jwt`): JWT, HS256, made and verified by
//! slurmctld alone with a key of its own. The bearer of such a token is that user until it expires.
//!
//! A token never travels: only its header and claims are sent, and the secret of the channel follows from its
//! signature, which the controller computes again. So one that was changed, or made with another key, leads to no
//! channel.

use crate::base64url;
use crate::jwt::{self, JwtError};
use crate::keyed;
use crate::slurm_key::{KeyError, read_file};
use crate::token::now_s;
use hmac::Mac as _;
use muster_channel::SECRET;
use muster_conf::UserTokenSettings;
use serde_json::{Map, Value};
use std::path::Path;
use std::sync::{PoisonError, RwLock};
use zeroize::Zeroizing;

/// Lifetime of a token if the request sets none, seconds; from Slurm.
pub const LIFESPAN_S: u32 = 1800;
/// By how much clocks may differ.
const SKEW_S: u64 = 60;
/// Bytes of a key: a shorter one could be guessed.
const KEY_BYTES_MIN: usize = 32;
/// Bytes of a user's name.
const NAME_BYTES_MAX: usize = 256;

/// Why a token is not made, or not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserTokenError {
    /// The text is no token, or too old.
    #[error(transparent)]
    Jwt(#[from] JwtError),
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Keys of others, which this does not read.
    #[error(
        "AuthAltParameters=jwks= is not supported, since only HS256 is: name a key file with jwt_key= and have scontrol make tokens"
    )]
    Jwks,
    /// Longer than the site lets tokens live.
    #[error("lifespan={0} is more than {1} seconds (AuthAltParameters=max_token_lifespan)")]
    Lifespan(u32, u32),
    /// Only root and `SlurmUser` make any.
    #[error("only root and SlurmUser make tokens here (AuthAltParameters=disable_token_creation)")]
    Disabled,
}

/// Makes and verifies tokens.
pub struct UserTokens {
    settings: UserTokenSettings,
    slurm_uid: u32,
    key: RwLock<Zeroizing<Vec<u8>>>,
}

/// The key does not reach logs.
impl std::fmt::Debug for UserTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UserTokens({:?})", self.settings)
    }
}

impl UserTokens {
    /// Reads the key, which is root's or `SlurmUser`'s.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn new(settings: UserTokenSettings, slurm_uid: u32) -> Result<UserTokens, UserTokenError> {
        if settings.has_jwks {
            return Err(UserTokenError::Jwks);
        }
        let key = RwLock::new(read_key(&settings.key, slurm_uid)?);
        Ok(UserTokens {
            settings,
            slurm_uid,
            key,
        })
    }

    /// Reads the key anew. If it cannot be used, the one before it remains.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn reload(&self) -> Result<(), UserTokenError> {
        let key = read_key(&self.settings.key, self.slurm_uid)?;
        *self.key.write().unwrap_or_else(PoisonError::into_inner) = key;
        Ok(())
    }

    /// Makes a token for a user. The requesting user is trusted if that is root or `SlurmUser`, whom the site's limits
    /// do not bind.
    ///
    /// # Errors
    /// The site allows no tokens, or none of this lifetime.
    pub fn make(
        &self,
        user: &str,
        lifespan_s: Option<u32>,
        is_trusted: bool,
    ) -> Result<String, UserTokenError> {
        self.make_at(user, lifespan_s, is_trusted, now_s())
    }

    fn make_at(
        &self,
        user: &str,
        lifespan_s: Option<u32>,
        is_trusted: bool,
        now_s: u64,
    ) -> Result<String, UserTokenError> {
        let most = match (is_trusted, self.settings.max_lifespan_s) {
            (false, Some(most)) => most,
            _ => u32::MAX,
        };
        if self.settings.is_creation_disabled && !is_trusted {
            return Err(UserTokenError::Disabled);
        }
        let lifespan_s = match lifespan_s {
            Some(asked) if asked > most => return Err(UserTokenError::Lifespan(asked, most)),
            Some(asked) => asked,
            None => LIFESPAN_S.min(most),
        };
        let claims: [(&str, Value); 3] = [
            ("iat", now_s.into()),
            ("exp", (now_s + u64::from(lifespan_s)).into()),
            ("sun", user.into()),
        ];
        let claims: Map<String, Value> = claims
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let key = self.key.read().unwrap_or_else(PoisonError::into_inner);
        Ok(jwt::sign(&key, None, &claims))
    }

    /// User of a token, and the secret known to the bearer of all of it. Believe the name only once a channel has begun
    /// with the secret.
    ///
    /// # Errors
    /// It is malformed, or too old.
    pub fn open(&self, signed: &[u8]) -> Result<(String, [u8; SECRET]), UserTokenError> {
        self.open_at(signed, now_s())
    }

    fn open_at(&self, signed: &[u8], now_s: u64) -> Result<(String, [u8; SECRET]), UserTokenError> {
        let (_, claims) = jwt::read_signed(signed)?;
        jwt::times(&claims, now_s, SKEW_S)?;
        // Tokens for something else that a key may have signed say for what.
        if claims.contains_key("context") {
            return Err(JwtError::Claim("sun").into());
        }
        let user = jwt::text(&claims, "sun").or_else(|_| jwt::text(&claims, "username"));
        let user = user.map_err(|_| JwtError::Claim("sun"))?;
        if user.is_empty() || user.len() > NAME_BYTES_MAX || user.contains('\0') {
            return Err(JwtError::Claim("sun").into());
        }
        let key = self.key.read().unwrap_or_else(PoisonError::into_inner);
        let secret = secret(&jwt::signature(&key, signed), signed);
        Ok((user.to_owned(), secret))
    }
}

fn read_key(path: &Path, slurm_uid: u32) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let key = read_file(path, slurm_uid)?;
    match key.len() < KEY_BYTES_MIN {
        true => Err(KeyError::Short(path.display().to_string(), key.len())),
        false => Ok(key),
    }
}

/// The secret of a channel that begins with a token.
fn secret(signature: &[u8], signed: &[u8]) -> [u8; SECRET] {
    let mut derived = keyed(signature);
    derived.update(b"muster: secret of a channel by the token of a user, 1\0");
    derived.update(signed);
    derived.finalize().into_bytes().into()
}

/// Claims of a token, before anyone has verified it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserClaims {
    /// The user's name.
    pub user: String,
}

/// Reads what a token says. The controller alone can tell whether that is true, and does when a channel begins; one that has
/// expired is refused here, too, since a channel that began before would go on.
///
/// # Errors
/// It is no token, or too old.
pub fn claims(token: &str) -> Result<UserClaims, JwtError> {
    claims_at(token, now_s())
}

fn claims_at(token: &str, now_s: u64) -> Result<UserClaims, JwtError> {
    let parts = token.trim().rsplit_once('.');
    let (signed, _) = parts.ok_or(JwtError::Malformed("it has not three parts"))?;
    let (_, claims) = jwt::read_signed(signed.as_bytes())?;
    jwt::times(&claims, now_s, SKEW_S)?;
    let user = jwt::text(&claims, "sun").or_else(|_| jwt::text(&claims, "username"));
    let user = user.map_err(|_| JwtError::Claim("sun"))?;
    let is_name = !user.is_empty() && user.len() <= NAME_BYTES_MAX && !user.contains('\0');
    match is_name {
        true => Ok(UserClaims {
            user: user.to_owned(),
        }),
        false => Err(JwtError::Claim("sun")),
    }
}

/// Returns the part of its token that a command sends, and the secret of the channel.
///
/// # Errors
/// It is no token for a controller.
pub fn show(token: &str) -> Result<(Vec<u8>, [u8; SECRET]), JwtError> {
    let parts = token.trim().rsplit_once('.');
    let (signed, signature) = parts.ok_or(JwtError::Malformed("it has not three parts"))?;
    jwt::read_signed(signed.as_bytes())?;
    let signature = base64url::decode(signature.as_bytes());
    let signature = signature.filter(|bytes| bytes.len() == SECRET);
    let signature = signature.ok_or(JwtError::Malformed("its signature cannot be read"))?;
    let secret = secret(&signature, signed.as_bytes());
    Ok((signed.as_bytes().to_vec(), secret))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW_S: u64 = 1_800_000_000;

    fn tokens(byte: u8) -> UserTokens {
        UserTokens {
            settings: UserTokenSettings::default(),
            slurm_uid: 0,
            key: RwLock::new(Zeroizing::new(vec![byte; 32])),
        }
    }

    fn limited() -> UserTokens {
        let settings = UserTokenSettings {
            max_lifespan_s: Some(600),
            ..UserTokenSettings::default()
        };
        UserTokens {
            settings,
            ..tokens(1)
        }
    }

    fn ends(token: &str) -> u64 {
        let parsed = jwt::Parsed::of(token.as_bytes()).unwrap();
        jwt::number(&parsed.claims, "exp").unwrap() - NOW_S
    }

    #[test]
    fn who_has_a_token_is_its_user_and_does_not_send_it() {
        let token = tokens(1).make_at("ada", None, false, NOW_S).unwrap();
        assert_eq!(ends(&token), 1800);
        let (sent, secret) = show(&format!(" {token}\n")).unwrap();
        assert!(sent.len() < token.len() - 40, "the signature is not sent");
        let opened = tokens(1).open_at(&sent, NOW_S + 1799);
        assert_eq!(opened, Ok(("ada".to_owned(), secret)));
        // A token of another key leads to no channel.
        assert_ne!(tokens(2).open_at(&sent, NOW_S).unwrap().1, secret);
        let expired = tokens(1).open_at(&sent, NOW_S + 1800);
        assert_eq!(expired, Err(JwtError::Expired(0).into()));
        let future = tokens(1).open_at(&sent, NOW_S - 61);
        assert_eq!(future, Err(JwtError::Future(61).into()));
    }

    #[test]
    fn what_a_token_says_is_read_without_the_key_while_it_lasts() {
        let token = tokens(1).make_at("ada", None, false, NOW_S).unwrap();
        let user = "ada".to_owned();
        assert_eq!(claims_at(&token, NOW_S + 1799), Ok(UserClaims { user }));
        let expired = Err(JwtError::Expired(0));
        assert_eq!(claims_at(&token, NOW_S + 1800), expired);
        assert!(claims_at("a.b", NOW_S).is_err());
    }

    #[test]
    fn limits_of_the_site_bind_users_and_not_root() {
        let limited = limited();
        let make = |lifespan_s, trusted| limited.make_at("ada", lifespan_s, trusted, NOW_S);
        assert_eq!(ends(&make(None, false).unwrap()), 600);
        assert_eq!(
            make(Some(601), false),
            Err(UserTokenError::Lifespan(601, 600))
        );
        assert_eq!(ends(&make(Some(601), true).unwrap()), 601);
        let settings = UserTokenSettings {
            is_creation_disabled: true,
            ..UserTokenSettings::default()
        };
        let disabled = UserTokens {
            settings,
            ..tokens(1)
        };
        let made = disabled.make_at("ada", None, false, NOW_S);
        assert_eq!(made, Err(UserTokenError::Disabled));
        assert!(disabled.make_at("ada", None, true, NOW_S).is_ok());
    }

    #[test]
    fn what_is_not_for_a_user_is_refused() {
        let open = |claims: &str| {
            let claims = serde_json::from_str(claims).unwrap();
            let token = jwt::sign(&[1; 32], None, &claims);
            let (sent, _) = show(&token).unwrap();
            tokens(1).open_at(&sent, 5).map(|(user, _)| user)
        };
        let no_user = Err(JwtError::Claim("sun").into());
        assert_eq!(open(r#"{"iat":1,"exp":9,"sun":"a"}"#), Ok("a".to_owned()));
        assert_eq!(
            open(r#"{"iat":1,"exp":9,"username":"a"}"#),
            Ok("a".to_owned())
        );
        assert_eq!(open(r#"{"iat":1,"exp":9}"#), no_user);
        assert_eq!(open(r#"{"iat":1,"exp":9,"sun":""}"#), no_user);
        assert_eq!(
            open(r#"{"iat":1,"exp":9,"sun":"a","context":"x"}"#),
            no_user
        );
        assert_eq!(
            open(r#"{"exp":9,"sun":"a"}"#),
            Err(JwtError::Claim("iat").into())
        );
        assert_eq!(
            open(r#"{"iat":1,"sun":"a"}"#),
            Err(JwtError::Claim("exp").into())
        );
        for text in ["", "a.b", "a.b.c"] {
            assert!(show(text).is_err(), "{text}");
        }
        let none = base64url::encode(br#"{"alg":"none"}"#);
        let none = show(&format!("{none}.{}.", base64url::encode(b"{}")));
        assert_eq!(none, Err(JwtError::Algorithm("none".to_owned())));
    }

    proptest! {
        #[test]
        fn a_changed_token_leads_to_no_channel(at in any::<prop::sample::Index>(), to in "[A-Za-z0-9_.-]") {
            let token = tokens(1).make_at("ada", None, false, NOW_S).unwrap();
            let mut changed = token.clone();
            let at = at.index(changed.len());
            changed.replace_range(at..=at, &to);
            if changed != token && let Ok((sent, secret)) = show(&changed) {
                let opened = tokens(1).open_at(&sent, NOW_S);
                prop_assert!(opened.is_err() || opened.is_ok_and(|(_, other)| other != secret));
            }
        }
    }
}
