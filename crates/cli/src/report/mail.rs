//! `muster report --mail`: the report goes to addresses by the site's mail program, as the user who asks for it.

use muster_conf::endpoint::conf_path;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// Addresses of one report.
const ADDRESSES_MAX: usize = 100;
const ADDRESS_BYTES_MAX: usize = 254;
/// Programs that systems have for mails.
const USUAL: [&str; 2] = ["/bin/mail", "/usr/bin/mail"];

/// The addresses of a list.
///
/// # Errors
/// One is none.
pub(super) fn addresses(list: &str) -> Result<Vec<String>, String> {
    let all: Vec<String> = list.split(',').map(|word| word.trim().to_owned()).collect();
    // One that begins with - would be an option of the program.
    let is_address = |word: &String| {
        !word.is_empty()
            && word.len() <= ADDRESS_BYTES_MAX
            && !word.starts_with('-')
            && word.bytes().all(|b| b.is_ascii_graphic())
    };
    if let Some(word) = all.iter().find(|word| !is_address(word)) {
        return Err(format!("'{word:.80}' is no address"));
    }
    match all.len() {
        0..=ADDRESSES_MAX => Ok(all),
        _ => Err(format!("at most {ADDRESSES_MAX} addresses are taken")),
    }
}

/// Sends a text.
///
/// # Errors
/// The mail program cannot be run, or does not take it.
pub(super) fn send(addresses: &[String], subject: &str, text: &str) -> Result<(), String> {
    let (config, _) = muster_conf::load(&conf_path());
    let given = config
        .raw
        .get("MailProg")
        .map(|setting| setting.value.clone());
    let program = given.unwrap_or_else(|| {
        let found = USUAL.iter().find(|path| Path::new(path).exists());
        (*found.unwrap_or(&USUAL[0])).to_owned()
    });
    let wrong = |e: io::Error| format!("{program}: {e}");
    let mut child = Command::new(&program)
        .args(["-s", subject])
        .args(addresses)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(wrong)?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(text.as_bytes()) {
            // It needs no more of it; its status counts.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            written => written.map_err(wrong)?,
        }
    }
    let status = child.wait().map_err(wrong)?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_no_options() {
        assert_eq!(
            addresses("a@b.c, root"),
            Ok(vec!["a@b.c".to_owned(), "root".to_owned()])
        );
        for wrong in ["", "a,,b", "-s", "a b", "a\tb", "\u{e4}@b"] {
            assert!(addresses(wrong).is_err(), "{wrong:?}");
        }
        assert!(addresses(&vec!["a"; 101].join(",")).is_err());
    }
}
