//! Headers of a request: whose it is, and in which form its answer is to be.

use crate::identity::Credentials;
use hyper::header::{self, HeaderMap};

/// Whether the client takes an answer that is packed with gzip.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter();
    let accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let is_gzip = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let weight = parts.find_map(|part| part.strip_prefix("q="));
        let weight = weight.map_or(Some(1.0), |weight| weight.parse::<f32>().ok());
        is_gzip && weight.is_some_and(|weight| weight > 0.0)
    })
}

/// Whether the answer is to be YAML; absent if it is to be what there is not.
pub(crate) fn wants_yaml(headers: &HeaderMap) -> Option<bool> {
    let mut accepted = headers.get_all(header::ACCEPT).iter().peekable();
    if accepted.peek().is_none() {
        return Some(false);
    }
    let mut best: Option<(u32, bool)> = None;
    for item in accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|v| v.split(','))
    {
        let mut parts = item.split(';').map(str::trim);
        let yaml = match parts.next().unwrap_or("").to_ascii_lowercase().as_str() {
            "application/json" | "application/*" | "*/*" => false,
            "application/yaml" | "application/x-yaml" | "text/yaml" => true,
            _ => continue,
        };
        let weight = parts
            .find_map(|part| part.strip_prefix("q="))
            .and_then(|q| q.parse::<f32>().ok());
        // A weight from 0 to 1, in thousandths as RFC 9110 has them.
        let weight = (weight.unwrap_or(1.0).clamp(0.0, 1.0) * 1000.0) as u32;
        if weight > 0 && best.is_none_or(|(most, _)| weight > most) {
            best = Some((weight, yaml));
        }
    }
    best.map(|(_, yaml)| yaml)
}

/// Whether a body is JSON, or is not said to be another thing.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return true;
    };
    let media_type = value
        .to_str()
        .unwrap_or("")
        .split(';')
        .next()
        .unwrap_or("")
        .trim();
    media_type.is_empty() || media_type.eq_ignore_ascii_case("application/json")
}

/// The headers that say whose a request is.
///
/// # Errors
/// They contradict each other, or are no text.
pub(crate) fn credentials(headers: &HeaderMap) -> Result<Credentials, &'static str> {
    let text = |name: &str| -> Result<Option<String>, &'static str> {
        let mut values = headers.get_all(name).iter();
        let first = values.next();
        if values.next().is_some() {
            return Err("Authentication failure: a header is there twice");
        }
        let text = first.map(|value| value.to_str().map(|text| text.trim().to_owned()));
        let text = text
            .transpose()
            .map_err(|_| "Authentication failure: a header is not text")?;
        Ok(text.filter(|text| !text.is_empty()))
    };
    let user = text("x-slurm-user-name")?;
    let token = text("x-slurm-user-token")?;
    let bearer = match text("authorization")? {
        Some(value) => match value.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
                Some(token.trim().to_owned())
            }
            _ => return Err("Authentication failure: Authorization has no bearer"),
        },
        None => None,
    };
    match (token, bearer) {
        (Some(_), Some(_)) => Err("Authentication failure: a token and a bearer were both sent"),
        (token, bearer) => Ok(Credentials {
            user,
            token: token.or(bearer),
        }),
    }
}
