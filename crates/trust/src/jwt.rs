//! JSON Web Tokens signed with HMAC-SHA256 (RFC 7519, HS256), and no others: a token says by itself how it is signed, and one
//! that says another way, or none, is refused before anything else of it is looked at.

use crate::base64url;
use hmac::{Hmac, Mac as _};
use serde_json::{Map, Value};
use sha2::Sha256;

/// Bytes of a token.
pub const TOKEN_BYTES_MAX: usize = 4 << 10;

/// Why a text is no token that this host takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// It is no token at all.
    #[error("invalid token (JWT): {0}")]
    Malformed(&'static str),
    /// It is signed in another way.
    #[error("the token is signed by '{0}', and only HS256 is accepted")]
    Algorithm(String),
    /// The signature is not of this token and key.
    #[error("the token was made with another key, or was changed")]
    Signature,
    /// It does not say something that it must.
    #[error("the token has no usable '{0}'")]
    Claim(&'static str),
    /// It has expired.
    #[error(
        "the token has expired {0} seconds ago: get a new one; if this one is new, see that the clocks of both hosts are the same"
    )]
    Expired(u64),
    /// It was made in the future.
    #[error(
        "the token was made {0} seconds in the future: see that the clocks of both hosts are the same"
    )]
    Future(u64),
    /// It is not valid yet.
    #[error("the token is not valid before {0} seconds from now (nbf)")]
    Early(u64),
}

/// A token that has been read, and not verified yet.
#[derive(Clone, Debug)]
pub(crate) struct Parsed<'t> {
    /// The name of its key.
    pub(crate) kid: Option<String>,
    /// Claims. Believe nothing of them before [`Parsed::verify`].
    pub(crate) claims: Map<String, Value>,
    /// Signed part: header and claims as they are written.
    signed: &'t [u8],
    signature: &'t [u8],
}

/// Makes a token.
pub(crate) fn sign(key: &[u8], kid: Option<&str>, claims: &Map<String, Value>) -> String {
    let mut header = Map::new();
    header.insert("alg".to_owned(), "HS256".into());
    header.insert("typ".to_owned(), "JWT".into());
    if let Some(kid) = kid {
        header.insert("kid".to_owned(), kid.into());
    }
    let part = |part: &Map<String, Value>| {
        base64url::encode(Value::Object(part.clone()).to_string().as_bytes())
    };
    let signed = format!("{}.{}", part(&header), part(claims));
    let signature = signature(key, signed.as_bytes());
    format!("{signed}.{}", base64url::encode(&signature))
}

/// The signature of header and claims.
pub(crate) fn signature(key: &[u8], signed: &[u8]) -> [u8; 32] {
    keyed(key, signed).finalize().into_bytes().into()
}

fn keyed(key: &[u8], signed: &[u8]) -> Hmac<Sha256> {
    let mut keyed = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    keyed.update(signed);
    keyed
}

impl<'t> Parsed<'t> {
    /// Reads a token.
    ///
    /// # Errors
    /// See [`JwtError`].
    pub(crate) fn of(token: &'t [u8]) -> Result<Parsed<'t>, JwtError> {
        let dot = token.iter().rposition(|c| *c == b'.');
        let dot = dot.ok_or(JwtError::Malformed("it has not three parts"))?;
        let (kid, claims) = read_signed(&token[..dot])?;
        Ok(Parsed {
            kid,
            claims,
            signed: &token[..dot],
            signature: &token[dot + 1..],
        })
    }

    /// Whether it was signed with this key, in a time that does not depend on where signatures differ.
    ///
    /// # Errors
    /// [`JwtError::Signature`].
    pub(crate) fn verify(&self, key: &[u8]) -> Result<(), JwtError> {
        let signature = base64url::decode(self.signature).ok_or(JwtError::Signature)?;
        let fits = keyed(key, self.signed).verify_slice(&signature);
        fits.map_err(|_| JwtError::Signature)
    }
}

/// The key's name and the claims of a token without its signature.
///
/// # Errors
/// See [`JwtError`].
pub(crate) fn read_signed(signed: &[u8]) -> Result<(Option<String>, Map<String, Value>), JwtError> {
    if signed.len() > TOKEN_BYTES_MAX {
        return Err(JwtError::Malformed("it is too long"));
    }
    let mut parts = signed.split(|c| *c == b'.');
    let (Some(header), Some(claims), None) = (parts.next(), parts.next(), parts.next()) else {
        return Err(JwtError::Malformed("it has not three parts"));
    };
    let part = |part: &[u8]| -> Option<Map<String, Value>> {
        match serde_json::from_slice(&base64url::decode(part)?).ok()? {
            Value::Object(map) => Some(map),
            _ => None,
        }
    };
    let header = part(header).ok_or(JwtError::Malformed("its header cannot be read"))?;
    match header.get("alg").and_then(Value::as_str) {
        Some("HS256") => {}
        other => {
            let name: String = other.unwrap_or("none").chars().take(32).collect();
            return Err(JwtError::Algorithm(name.escape_default().to_string()));
        }
    }
    // A header that must be understood (RFC 7515, 4.1.11), and there is none that is.
    if header.contains_key("crit") {
        return Err(JwtError::Malformed("it demands extensions (crit)"));
    }
    let kid = match header.get("kid") {
        None => None,
        Some(Value::String(kid)) => Some(kid.clone()),
        Some(_) => return Err(JwtError::Malformed("its kid is not a string")),
    };
    let claims = part(claims).ok_or(JwtError::Malformed("its claims cannot be read"))?;
    Ok((kid, claims))
}

/// A text that a token says.
pub(crate) fn text<'c>(
    claims: &'c Map<String, Value>,
    name: &'static str,
) -> Result<&'c str, JwtError> {
    let value = claims.get(name).and_then(Value::as_str);
    value.ok_or(JwtError::Claim(name))
}

/// A number that a token says. Times may have fractions (RFC 7519, 2), which are cut.
pub(crate) fn number(claims: &Map<String, Value>, name: &'static str) -> Result<u64, JwtError> {
    let value = claims.get(name).ok_or(JwtError::Claim(name))?;
    let whole = value.as_u64();
    let cut = value.as_f64().filter(|n| (0.0..1e15).contains(n));
    whole.or(cut.map(|n| n as u64)).ok_or(JwtError::Claim(name))
}

/// When a token was made, and when it ends, if that is now true of clocks that differ by no more than `skew_s`.
pub(crate) fn times(
    claims: &Map<String, Value>,
    now_s: u64,
    skew_s: u64,
) -> Result<(u64, u64), JwtError> {
    let (made, ends) = (number(claims, "iat")?, number(claims, "exp")?);
    if made > now_s.saturating_add(skew_s) {
        return Err(JwtError::Future(made - now_s));
    }
    if claims.contains_key("nbf") {
        let begins = number(claims, "nbf")?;
        if begins > now_s.saturating_add(skew_s) {
            return Err(JwtError::Early(begins - now_s));
        }
    }
    if ends <= now_s {
        return Err(JwtError::Expired(now_s - ends));
    }
    Ok((made, ends))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claims(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    /// The first example of RFC 7515, appendix A.1.
    #[test]
    fn the_token_of_the_standard_is_believed() {
        let key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
        let key = base64url::decode(key.as_bytes()).unwrap();
        let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let parsed = Parsed::of(token.as_bytes()).unwrap();
        assert_eq!(parsed.verify(&key), Ok(()));
        assert_eq!(parsed.verify(b"another"), Err(JwtError::Signature));
        assert_eq!(number(&parsed.claims, "exp"), Ok(1_300_819_380));
    }

    #[test]
    fn another_way_to_sign_is_refused_by_name() {
        for (header, name) in [
            (r#"{"alg":"none"}"#, "none"),
            (r#"{"typ":"JWT"}"#, "none"),
            (r#"{"alg":"RS256"}"#, "RS256"),
            (r#"{"alg":"hs256"}"#, "hs256"),
            (r#"{"alg":["HS256"]}"#, "none"),
        ] {
            let header = base64url::encode(header.as_bytes());
            let token = format!("{header}.{}.", base64url::encode(b"{}"));
            let refused = Parsed::of(token.as_bytes()).map(|_| ());
            assert_eq!(refused, Err(JwtError::Algorithm(name.to_owned())));
        }
        let header = base64url::encode(br#"{"alg":"HS256","crit":["x"]}"#);
        let token = format!("{header}.{}.", base64url::encode(b"{}"));
        assert!(Parsed::of(token.as_bytes()).is_err());
    }

    #[test]
    fn times_are_those_of_clocks_that_differ_a_little() {
        let token = claims(r#"{"iat":100.5,"exp":160}"#);
        assert_eq!(times(&token, 159, 60), Ok((100, 160)));
        assert_eq!(times(&token, 40, 60), Ok((100, 160)));
        assert_eq!(times(&token, 39, 60), Err(JwtError::Future(61)));
        assert_eq!(times(&token, 170, 60), Err(JwtError::Expired(10)));
        let later = claims(r#"{"iat":100,"nbf":150,"exp":300}"#);
        assert_eq!(times(&later, 89, 60), Err(JwtError::Early(61)));
        assert_eq!(times(&later, 90, 60), Ok((100, 300)));
        for wrong in [
            r#"{"iat":1,"nbf":"1","exp":9}"#,
            r#"{"iat":1}"#,
            r#"{"exp":9}"#,
            r#"{"iat":-1,"exp":9}"#,
            r#"{"iat":"1","exp":9}"#,
        ] {
            let refused = times(&claims(wrong), 5, 60);
            assert!(matches!(refused, Err(JwtError::Claim(_))), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_changed_token_is_refused(
            key in prop::collection::vec(any::<u8>(), 16..40),
            sub in ".{0,20}",
            at in any::<prop::sample::Index>(),
            to in any::<u8>(),
        ) {
            let mut said = Map::new();
            said.insert("sub".to_owned(), sub.into());
            let token = sign(&key, Some("k"), &said).into_bytes();
            let parsed = Parsed::of(&token).unwrap();
            prop_assert_eq!(parsed.verify(&key), Ok(()));
            prop_assert_eq!(parsed.kid.as_deref(), Some("k"));
            prop_assert_eq!(&parsed.claims, &said);
            let mut changed = token.clone();
            let at = at.index(changed.len());
            changed[at] = to;
            if changed != token {
                let refused = Parsed::of(&changed).and_then(|parsed| parsed.verify(&key));
                prop_assert!(refused.is_err());
            }
        }

        #[test]
        fn whatever_comes_is_understood_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Parsed::of(&bytes).map(|_| ());
        }
    }
}
