//! Values of bodies and queries. Clients of all versions send numbers as numbers, as texts, or as objects that say whether they
//! are set; each of these is taken.

use super::http::{HttpStatus, RestReply};
use serde_json::Value;

/// Members and items of a body. Each takes many times the memory of its text.
pub(super) const PARTS_MAX: usize = 1_000_000;
/// Parts as which a list or an object counts: it takes as much memory, however little is in it.
const PARTS_OF_CONTAINER: usize = 8;

/// Whether a JSON text has no more members and items than are read.
pub(super) fn has_few_parts(json: &[u8]) -> bool {
    let (mut is_in_text, mut is_escaped, mut parts) = (false, false, 0_usize);
    for byte in json {
        match (is_in_text, byte) {
            (true, _) if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (_, b'"') => is_in_text = !is_in_text,
            (false, b',') => parts += 1,
            (false, b'[' | b'{') => parts += PARTS_OF_CONTAINER,
            _ => {}
        }
    }
    parts <= PARTS_MAX
}

/// Value of a member of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GivenValue {
    /// Nothing: null, or a number that is not set.
    Nothing,
    /// There is no limit.
    Infinite,
    /// A text or number, as text.
    Text(String),
    /// True or false.
    Truth(bool),
    /// Several.
    List(Vec<String>),
}

/// Reads a member.
///
/// # Errors
/// It is an object of another kind, or a list of such.
pub(super) fn read(value: &Value) -> Result<GivenValue, &'static str> {
    match value {
        Value::Null => Ok(GivenValue::Nothing),
        Value::Bool(truth) => Ok(GivenValue::Truth(*truth)),
        Value::Number(number) => Ok(GivenValue::Text(number.to_string())),
        Value::String(text) => Ok(GivenValue::Text(text.clone())),
        Value::Array(items) => {
            let texts = items.iter().map(|item| match read(item)? {
                GivenValue::Text(text) => Ok(text),
                _ => Err("expected a list of texts or numbers"),
            });
            Ok(GivenValue::List(texts.collect::<Result<_, _>>()?))
        }
        Value::Object(members) => {
            let is_number = members
                .keys()
                .all(|key| matches!(key.as_str(), "set" | "infinite" | "number"));
            if !is_number || members.is_empty() {
                return Err("expected a text, a number, or an object of set, infinite and number");
            }
            let is = |key| members.get(key).and_then(Value::as_bool);
            match (is("infinite"), is("set"), members.get("number")) {
                (Some(true), _, _) => Ok(GivenValue::Infinite),
                (_, Some(false), _) | (_, _, None) => Ok(GivenValue::Nothing),
                (_, _, Some(number)) => read(number),
            }
        }
    }
}

impl GivenValue {
    /// It as one text, as options have it; a list with commas between.
    pub(super) fn text(self) -> Option<String> {
        match self {
            GivenValue::Nothing => None,
            GivenValue::Infinite => Some("UNLIMITED".to_owned()),
            GivenValue::Text(text) => Some(text),
            GivenValue::Truth(truth) => Some(truth.to_string()),
            GivenValue::List(items) => Some(items.join(",")),
        }
    }

    /// Whether it says nothing: absent, empty, an empty list.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            GivenValue::Nothing => true,
            GivenValue::Text(text) => text.is_empty(),
            GivenValue::List(items) => items.is_empty(),
            GivenValue::Infinite | GivenValue::Truth(_) => false,
        }
    }
}

/// The parameters of a query.
pub(super) fn read_query(query: &str) -> Result<Vec<(String, String)>, RestReply> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    let pairs: Vec<(String, String)> = pairs
        .map(|(key, value)| (key.into_owned(), value.into_owned()))
        .collect();
    let is_control = |text: &str| text.chars().any(char::is_control);
    match pairs.iter().any(|(k, v)| is_control(k) || is_control(v)) {
        true => Err(RestReply::text(
            HttpStatus::BAD_REQUEST,
            "Unable to parse query. It has control characters.",
        )),
        false => Ok(pairs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parts_are_counted_outside_of_texts() {
        let many = ",[".repeat(PARTS_MAX / 9);
        assert!(has_few_parts(many.as_bytes()));
        assert!(!has_few_parts(format!("{many},[").as_bytes()));
        assert!(has_few_parts(",".repeat(PARTS_MAX).as_bytes()));
        assert!(!has_few_parts(r#"{"":"#.repeat(PARTS_MAX / 7).as_bytes()));
        assert!(has_few_parts(format!(r#"["{many}\"{many}",1]"#).as_bytes()));
    }

    #[test]
    fn numbers_come_in_several_shapes() {
        let text = |value| read(&value).unwrap().text();
        let five = Some("5".to_owned());
        assert_eq!(text(json!(5)), five);
        assert_eq!(text(json!("5")), five);
        assert_eq!(
            text(json!({"set": true, "infinite": false, "number": 5})),
            five
        );
        assert_eq!(text(json!({"number": 5})), five);
        assert_eq!(text(json!({"set": false, "number": 5})), None);
        assert_eq!(text(json!(null)), None);
        let unlimited = Some("UNLIMITED".to_owned());
        assert_eq!(
            text(json!({"set": false, "infinite": true, "number": 0})),
            unlimited
        );
        assert_eq!(text(json!(["a", 1])), Some("a,1".to_owned()));
        for bad in [json!({}), json!({"a": 1}), json!([[1]]), json!([null])] {
            assert!(read(&bad).is_err(), "{bad}");
        }
    }
}
