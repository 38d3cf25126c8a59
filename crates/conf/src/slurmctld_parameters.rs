//! The words of `SlurmctldParameters`: which are known, and the limits on users' requests that some of them set. A word of
//! those limits that would have no effect is an error, since the limit that was meant would not be there; other words that
//! are not known are warned of. Limits nobody: the controller does.

use crate::diagnostic::{Findings, Origin};
use crate::keys::nearest_of;

const KEY: &str = "SlurmctldParameters";

/// Prefix of all words of the limits.
const PREFIX: &str = "rl_";

/// Limits of a user's requests: each takes a token out of the user's bucket, and tokens come back with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// `rl_enable`; without it every request passes.
    pub enabled: bool,
    /// `rl_bucket_size`: the most tokens of a user.
    pub bucket_size: u64,
    /// `rl_refill_rate`: tokens that come back in a period.
    pub refill_rate: u64,
    /// `rl_refill_period`, at least 1.
    pub refill_period_s: u64,
    /// `rl_table_size`: users that are remembered.
    pub table_size: u64,
    /// `rl_log_freq`: how often a user is named in the log; 0 for each time.
    pub log_freq_s: u64,
}

impl Default for RateLimits {
    fn default() -> RateLimits {
        RateLimits {
            enabled: false,
            bucket_size: 30,
            refill_rate: 2,
            refill_period_s: 1,
            table_size: 8192,
            log_freq_s: 0,
        }
    }
}

impl RateLimits {
    /// The number that a word sets, and the least that it may be.
    fn number(&mut self, name: &str) -> Option<(&mut u64, u64)> {
        match name {
            "rl_bucket_size" => Some((&mut self.bucket_size, 1)),
            "rl_refill_rate" => Some((&mut self.refill_rate, 1)),
            "rl_refill_period" => Some((&mut self.refill_period_s, 1)),
            "rl_table_size" => Some((&mut self.table_size, 1)),
            "rl_log_freq" => Some((&mut self.log_freq_s, 0)),
            _ => None,
        }
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), WordError> {
        if name == "rl_enable" {
            self.enabled = true;
            return match value {
                None => Ok(()),
                Some(_) => Err(WordError::HasValue),
            };
        }
        let (number, least) = self.number(name).ok_or(WordError::Unknown)?;
        let given = value.and_then(|text| text.parse().ok());
        *number = given
            .filter(|given| *given >= least)
            .ok_or(WordError::Number(least))?;
        Ok(())
    }
}

/// Why a word of the limits has no effect.
enum WordError {
    Unknown,
    HasValue,
    Number(u64),
}

/// Words that other parts read.
const OTHERS: [&str; 4] = [
    "allow_user_triggers",
    "enable_configless",
    "enable_expedited_requeue",
    "preempt_send_user_signal",
];

/// Reads the words.
pub(crate) fn read(words: &[String], origin: &Origin, findings: &mut Findings) -> RateLimits {
    let mut limits = RateLimits::default();
    let mut unused = None;
    for word in words {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (word.as_str(), None),
        };
        let lower = name.to_ascii_lowercase();
        if lower.starts_with(PREFIX) {
            if lower != "rl_enable" {
                unused = unused.or(Some(name));
            }
            if let Err(wrong) = limits.set(&lower, value) {
                complain(word, &lower, &wrong, origin, findings);
            }
        } else if !OTHERS.contains(&lower.as_str()) {
            let mistyped = nearest_of(&lower, OTHERS.into_iter());
            let (message, help) = match mistyped {
                Some(near) => (
                    format!("{KEY}: `{word}` is not a valid parameter and is ignored"),
                    format!("did you mean `{near}`?"),
                ),
                None => (
                    format!("{KEY}={name} is not implemented yet"),
                    String::new(),
                ),
            };
            findings.warn(origin, KEY, message, &help);
        }
    }
    if let (Some(name), false) = (unused, limits.enabled) {
        let message = format!("{KEY}={name} has no effect without rl_enable");
        let help = "add rl_enable, or remove what begins with rl_";
        findings.warn(origin, KEY, message, help);
    }
    limits
}

fn complain(word: &str, name: &str, wrong: &WordError, origin: &Origin, findings: &mut Findings) {
    const NAMES: [&str; 6] = [
        "rl_bucket_size",
        "rl_enable",
        "rl_log_freq",
        "rl_refill_period",
        "rl_refill_rate",
        "rl_table_size",
    ];
    let (message, help) = match wrong {
        WordError::Unknown => {
            let help = match nearest_of(name, NAMES.into_iter()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are {}", NAMES.join(", ")),
            };
            (format!("`{word}` is not a valid parameter"), help)
        }
        WordError::HasValue => (
            format!("`{word}`: rl_enable takes no value"),
            "write rl_enable, or leave it out".to_owned(),
        ),
        WordError::Number(least) => (
            format!("`{word}` needs a number of at least {least}"),
            format!("write {name}=NUMBER"),
        ),
    };
    findings.error(origin, KEY, format!("{KEY}: {message}"), help);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;

    /// The limits of these parameters, and how bad each finding is.
    fn parse(text: &str) -> (RateLimits, Vec<(Severity, String)>) {
        let origin = Origin {
            file: "slurm.conf".into(),
            line: 1,
            column: 1,
        };
        let words: Vec<String> = text.split(',').map(|w| w.trim().to_owned()).collect();
        let mut findings = Findings::default();
        let limits = read(&words, &origin, &mut findings);
        let found = findings.list.into_iter();
        let found = found.map(|d| (d.severity, format!("{} {}", d.message, d.help)));
        (limits, found.collect())
    }

    #[test]
    fn each_word_sets_its_number() {
        let (limits, found) = parse(
            "RL_Enable,rl_bucket_size=2,rl_refill_rate=3,rl_refill_period=4,rl_table_size=5,rl_log_freq=0",
        );
        assert_eq!(found, []);
        let expected = RateLimits {
            enabled: true,
            bucket_size: 2,
            refill_rate: 3,
            refill_period_s: 4,
            table_size: 5,
            log_freq_s: 0,
        };
        assert_eq!(limits, expected);
    }

    #[test]
    fn a_limit_without_effect_is_an_error() {
        for (wrong, named) in [
            ("rl_bucket_sise=3", "did you mean `rl_bucket_size`?"),
            ("rl_enabled", "did you mean `rl_enable`?"),
            ("rl_nosuch=1", "not a valid parameter"),
            ("rl_enable=no", "takes no value"),
            ("rl_bucket_size=x", "needs a number of at least 1"),
            ("rl_bucket_size", "write rl_bucket_size=NUMBER"),
            ("rl_refill_period=0", "needs a number of at least 1"),
            ("rl_log_freq=-1", "needs a number of at least 0"),
        ] {
            let (_, found) = parse(&format!("rl_enable,{wrong}"));
            let [(Severity::Error, text)] = found.as_slice() else {
                panic!("{wrong}: {found:?}");
            };
            assert!(text.contains(wrong) && text.contains(named), "{text}");
        }
    }

    #[test]
    fn limits_that_are_off_and_other_words_are_warned_of() {
        for text in ["rl_bucket_size=5", "cloud_dns"] {
            let (limits, found) = parse(text);
            assert!(!limits.enabled);
            assert!(
                matches!(found.as_slice(), [(Severity::Warning, said)] if said.contains(text.split('=').next().unwrap_or(""))),
                "{found:?}"
            );
        }
        let (_, found) = parse("allow_user_trigger");
        assert!(
            matches!(found.as_slice(), [(Severity::Warning, text)] if text.contains("did you mean `allow_user_triggers`?")),
            "{found:?}"
        );
        assert_eq!(
            parse("preempt_send_user_signal,enable_configless,allow_user_triggers,enable_expedited_requeue").1,
            []
        );
    }

    /// An administrator learned of it from users only, whose triggers were refused.
    #[test]
    fn triggers_of_users_without_effect_are_warned_of() {
        for (user, warns) in [
            ("SlurmUser=slurm", true),
            ("SlurmUser=root", false),
            ("", false),
        ] {
            let text = format!("SlurmctldParameters=allow_user_triggers\n{user}\n");
            let (_, findings) = crate::load_text("slurm.conf".as_ref(), &text);
            let mut about = findings
                .iter()
                .filter(|d| d.message.contains("allow_user_triggers"));
            assert_eq!(about.next().is_some(), warns, "{user}: {findings:?}");
        }
    }
}
