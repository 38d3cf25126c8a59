//! Addresses that mails go to (`--mail-user`). They become an argument of `MailProg`, and mail programs take arguments for
//! more than addresses: options, files, commands. So only plain user names and addresses are accepted.

use muster_model::command::UserCommand;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::JobSpec;

/// Bytes of one address (RFC 5321).
const ADDRESS_MAX: usize = 254;
/// Addresses, separated by commas.
const ADDRESSES_MAX: usize = 16;

/// Why a text is no list of addresses; an empty one is the owner's.
pub(crate) fn fault(text: &str) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    if text.split(',').count() > ADDRESSES_MAX {
        return Some(format!("at most {ADDRESSES_MAX} addresses may be named"));
    }
    text.split(',').find_map(|address| {
        let why = fault_of_one(address)?;
        Some(format!("'{}': {why}", address.escape_debug()))
    })
}

fn fault_of_one(address: &str) -> Option<&'static str> {
    if address.len() > ADDRESS_MAX {
        return Some("this is too long for a mail address");
    }
    let (user, domain) = match address.split_once('@') {
        Some((user, domain)) => (user, Some(domain)),
        None => (address, None),
    };
    let begins_well =
        |text: &str| text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let user_char = |c: char| c.is_ascii_alphanumeric() || "._+-=".contains(c);
    let domain_char = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
    if !begins_well(user) {
        return Some("a mail address begins with a letter, a digit or '_'");
    }
    if !user.chars().all(user_char) {
        return Some("a user's name in a mail address has letters, digits and '._+-=' only");
    }
    let domain = domain?;
    if !begins_well(domain) || !domain.chars().all(domain_char) {
        return Some("a domain in a mail address has letters, digits, '.' and '-' only");
    }
    None
}

/// Why a command is refused: it names no address where one belongs.
pub(crate) fn refusal(command: &UserCommand) -> Option<Refusal> {
    let of_spec = |spec: &JobSpec| spec.mail.as_ref().and_then(|mail| fault(&mail.user));
    let why = match command {
        UserCommand::Submit { spec, .. } => of_spec(spec),
        UserCommand::SubmitHet { specs, .. } => specs.iter().find_map(of_spec),
        UserCommand::SetCrontab(ask) => ask.jobs.iter().find_map(of_spec),
        UserCommand::UpdateJob { update, .. } => {
            let mut shown = update.shown.iter().filter(|(key, _)| key == "mail-user");
            shown.find_map(|(_, value)| fault(value))
        }
        _ => None,
    };
    let why = why?;
    Some(Refusal::new(
        RefusalCode::InvalidValue,
        format!("--mail-user: {why}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_taken() {
        for good in [
            "",
            "bob",
            "bob@example.org",
            "b.o-b+x@mail-1.example.org",
            "a,b@c",
            "u_1",
            "_x",
        ] {
            assert_eq!(fault(good), None, "{good}");
        }
    }

    #[test]
    fn what_a_mail_program_may_take_for_something_else_is_refused() {
        let long = "x".repeat(300);
        let many = vec!["x"; 17].join(",");
        let bad = [
            "-Ssendmail=EVIL",
            "--",
            "|sh",
            "/etc/passwd",
            "+folder",
            "a b",
            "a\nb",
            "a;b",
            "$(id)",
            "a@-x",
            "a@b@c",
            "a,",
            ",a",
            "a@",
            "~x",
            "!x",
            "\u{e9}",
            &long,
            &many,
        ];
        for bad in bad {
            assert!(fault(bad).is_some(), "{bad}");
        }
    }
}
