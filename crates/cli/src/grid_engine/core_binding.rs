//! `-binding`. A job is always bound to the CPUs that it has, so a strategy of binding is checked, kept and shown.

/// Cores that a list names at most.
const CORES_MAX: usize = 1024;

/// The strategy as Grid Engine shows it: `set linear:1`.
///
/// # Errors
/// It is no strategy.
pub(super) fn strategy(values: &[String]) -> Result<String, String> {
    let (who, text) = match values {
        [who, text] => (who.as_str(), text.as_str()),
        [text] => ("set", text.as_str()),
        _ => ("set", ""),
    };
    match is_strategy(text) {
        true => Ok(format!("{who} {text}")),
        false => Err(format!(
            "invalid argument \"{text}\" to -binding: it is linear:CORES[:SOCKET,CORE], striding:CORES:STEP[:SOCKET,CORE] or \
             explicit:SOCKET,CORE[:SOCKET,CORE ...]"
        )),
    }
}

fn is_strategy(text: &str) -> bool {
    let words: Vec<&str> = text.split(':').collect();
    match words.as_slice() {
        ["linear", cores] => is_count(cores),
        ["linear", cores, first] => is_count(cores) && is_core(first),
        ["striding", cores, step] => is_count(cores) && is_count(step),
        ["striding", cores, step, first] => is_count(cores) && is_count(step) && is_core(first),
        ["explicit", first, rest @ ..] => {
            rest.len() < CORES_MAX && is_core(first) && rest.iter().all(|core| is_core(core))
        }
        _ => false,
    }
}

fn is_number(text: &str) -> bool {
    (1..=6).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_count(text: &str) -> bool {
    is_number(text) && text.bytes().any(|b| b != b'0')
}

/// `SOCKET,CORE`.
fn is_core(text: &str) -> bool {
    let pair = text.split_once(',');
    pair.is_some_and(|(socket, core)| is_number(socket) && is_number(core))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_are_shown_as_grid_engine_shows_them() {
        let of = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            strategy(&words).ok()
        };
        for (given, shown) in [
            ("linear:1", "set linear:1"),
            ("env linear:2:0,1", "env linear:2:0,1"),
            ("pe striding:2:1", "pe striding:2:1"),
            ("set striding:2:4:1,0", "set striding:2:4:1,0"),
            ("explicit:0,0:0,1", "set explicit:0,0:0,1"),
        ] {
            assert_eq!(of(given).as_deref(), Some(shown), "{given}");
        }
        for wrong in [
            "",
            "x",
            "linear",
            "linear:",
            "linear:0",
            "linear:-1",
            "linear:1:0",
            "striding:1",
            "striding:1:0",
            "explicit",
            "explicit:1",
            "explicit:0,0:",
            "foo:1",
            "env",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
