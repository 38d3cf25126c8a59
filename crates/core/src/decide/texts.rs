//! Texts that users give: how long they may be, and of what.

use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::visible_text::{is_control, visible};

/// Refuses a text that is longer than it may be, or has characters that would make a line of their own where it is printed.
pub(super) fn one_line(what: &str, text: &str, most: usize) -> Result<(), Refusal> {
    too_long(what, text, most)?;
    match text.contains(is_control) {
        false => Ok(()),
        true => Err(Refusal::new(
            RefusalCode::InvalidValue,
            format!("{what} has a control character: {:.80}", visible(text)),
        )),
    }
}

/// Refuses a text that is longer than it may be.
pub(super) fn too_long(what: &str, text: &str, most: usize) -> Result<(), Refusal> {
    if text.len() <= most {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalCode::TooLong,
        format!("{what} has {} bytes, the limit is {most}", text.len()),
    ))
}
