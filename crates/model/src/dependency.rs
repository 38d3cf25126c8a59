//! Conditions of `--dependency`, as they are written on a command line.

use crate::spec::{Dependency, DependencyKind, DependencyTerm};
use std::fmt;

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.any { "?" } else { "," };
        for (position, term) in self.terms.iter().enumerate() {
            f.write_str(if position > 0 { separator } else { "" })?;
            write!(f, "{term}")?;
        }
        Ok(())
    }
}

impl DependencyKind {
    /// Its name in `--dependency`.
    pub fn name(self) -> &'static str {
        match self {
            DependencyKind::After => "after",
            DependencyKind::AfterAny => "afterany",
            DependencyKind::AfterOk => "afterok",
            DependencyKind::AfterNotOk => "afternotok",
            DependencyKind::AfterCorr => "aftercorr",
        }
    }
}

impl fmt::Display for DependencyTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DependencyTerm::Job {
            kind,
            job,
            task,
            delay_minutes,
        } = self
        else {
            return f.write_str("singleton");
        };
        write!(f, "{}:{job}", kind.name())?;
        if let Some(task) = task {
            write!(f, "_{task}")?;
        }
        match delay_minutes {
            0 => Ok(()),
            minutes => write!(f, "+{minutes}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;

    #[test]
    fn conditions_are_written_as_on_a_command_line() {
        let term = |kind, task, delay_minutes| DependencyTerm::Job {
            kind,
            job: JobId(7),
            task,
            delay_minutes,
        };
        let mut dependency = Dependency {
            terms: vec![
                term(DependencyKind::AfterOk, None, 0),
                term(DependencyKind::After, Some(3), 5),
                DependencyTerm::Singleton,
            ],
            any: false,
        };
        assert_eq!(dependency.to_string(), "afterok:7,after:7_3+5,singleton");
        dependency.any = true;
        dependency.terms.truncate(2);
        assert_eq!(dependency.to_string(), "afterok:7?after:7_3+5");
        assert_eq!(Dependency::default().to_string(), "");
    }
}
