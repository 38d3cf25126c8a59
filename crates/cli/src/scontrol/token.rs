//! `scontrol token`: the controller makes a token by which commands connect as a user.

use super::Session;
use crate::connect::{TOKEN_VARIABLE, unexpected};
use crate::say;
use muster_proto::client::{RequestBody, Response};

/// `token [username=USER] [lifespan=SECONDS]`.
pub(super) fn print(session: &mut Session, words: &[String]) {
    let request = match request(words) {
        Ok(request) => request,
        Err(why) => return session.error(&why),
    };
    let prefix = "auth_g_token_generate error";
    match session.client().and_then(|c| c.call(request)) {
        Ok(Response::Token(token)) => say::stdout(&format!("{TOKEN_VARIABLE}={token}\n")),
        Ok(other) => session.request_failed(prefix, &unexpected(&other)),
        Err(error) => session.request_failed(prefix, &error),
    }
}

fn request(words: &[String]) -> Result<RequestBody, String> {
    let (mut user, mut lifespan_s) = (None, None);
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key.to_ascii_lowercase().as_str() {
            "username" if !value.is_empty() => user = Some(value.to_owned()),
            "lifespan" => {
                let seconds = value.parse().ok().filter(|seconds| *seconds > 0_u32);
                let wrong = || format!("lifespan={value}: expected a number of seconds");
                lifespan_s = Some(seconds.ok_or_else(wrong)?);
            }
            _ => return Err(format!("Invalid token option: {word}")),
        }
    }
    Ok(RequestBody::Token { user, lifespan_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_token() {
        let request = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            request(&words)
        };
        let token = |user: Option<&str>, lifespan_s| RequestBody::Token {
            user: user.map(str::to_owned),
            lifespan_s,
        };
        assert_eq!(request(&[]), Ok(token(None, None)));
        let both = request(&["UserName=ada", "lifespan=60"]);
        assert_eq!(both, Ok(token(Some("ada"), Some(60))));
        for wrong in ["lifespan=0", "lifespan=x", "lifespan", "username=", "x"] {
            assert!(request(&[wrong]).is_err(), "{wrong}");
        }
    }
}
