//! The verifiers of a configuration: each is tried before it counts, so that a script with errors stops the start of the
//! controller, and changes nothing when the configuration is read again.

use super::{Pool, Settings, start};
use muster_verifier::message::VerifierReport;
use std::rc::Rc;

/// Processes of new verifiers, one each, and their reports about the files that they have loaded.
pub(crate) struct LoadedVerifiers(Vec<(Settings, super::Worker, VerifierReport)>);

impl LoadedVerifiers {
    /// Starts a process of each verifier. Blocks.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub(crate) fn start(settings: &[Settings]) -> Result<LoadedVerifiers, String> {
        let started = settings.iter().map(|own| {
            let (worker, report) =
                start(own, None).map_err(|why| format!("{}: {why}", own.name()))?;
            Ok((own.clone(), worker, report))
        });
        started.collect::<Result<_, String>>().map(LoadedVerifiers)
    }

    /// Pools with these processes.
    pub(crate) fn pools(self) -> Vec<Rc<Pool>> {
        let pool = |(settings, worker, report)| {
            let source = match report {
                VerifierReport::Loaded(source) => source,
                _ => Vec::new().into(),
            };
            Pool::new(settings, worker, source)
        };
        self.0.into_iter().map(pool).collect()
    }
}
