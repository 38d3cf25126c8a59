//! The process of a slurmdbd, as /proc shows it.

/// Name of the process.
pub(super) const NAME: &str = "slurmdbd";

/// Whether /proc/PID/status is of a slurmdbd that runs, with this user as the real, effective and saved one. One that has ended
/// stays in /proc where nobody reaps it, as in a container whose first process does not.
pub(super) fn is_slurmdbd(status: &str, owner: u32) -> bool {
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
    let users = value("Uid:")
        .into_iter()
        .flat_map(str::split_whitespace)
        .take(3);
    let users: Vec<Option<u32>> = users.map(|uid| uid.parse().ok()).collect();
    let has_ended = value("State:").is_some_and(|state| state.trim().starts_with('Z'));
    value("Name:").map(str::trim) == Some(NAME) && users == [Some(owner); 3] && !has_ended
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By a PID file of SlurmUser's, root would have ended any process.
    #[test]
    fn a_process_of_another_name_or_user_or_an_ended_one_is_not_signalled() {
        let status = |name: &str, state: &str, uids: &str| {
            format!("Name:\t{name}\nUmask:\t0022\nState:\t{state}\nUid:\t{uids}\n")
        };
        let owned = "64\t64\t64\t64";
        assert!(is_slurmdbd(&status("slurmdbd", "S (sleeping)", owned), 64));
        for (name, state, uids) in [
            ("slurmdbd", "S (sleeping)", "0\t0\t0\t0"),
            ("slurmdbd", "S (sleeping)", "64\t0\t64\t64"),
            ("slurmdbd", "S (sleeping)", "64\t64\t0\t64"),
            ("slurmdbd", "S (sleeping)", ""),
            ("slurmdbd", "Z (zombie)", owned),
            ("sshd", "S (sleeping)", owned),
        ] {
            assert!(
                !is_slurmdbd(&status(name, state, uids), 64),
                "{name} {state} {uids}"
            );
        }
        assert!(!is_slurmdbd("", 0));
    }
}
