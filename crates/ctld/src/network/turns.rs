//! Turns of work that may wait for others, such as munged, or the name service: a limited number at a time in all, and
//! fewer for one host. A turn lasts as long as the work, also where the requester is gone.

use muster_channel::admission::HostAddress;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// At the same time.
pub(super) const TURNS_MAX: usize = 8;
/// Verifications of one address.
const OF_ADDRESS_MAX: usize = 4;
/// Verifications of one network of IPv6 (64 bits), in which there may be one host with all addresses or a cluster.
const OF_NETWORK_MAX: usize = 6;

/// See the module.
#[derive(Debug)]
pub(super) struct LookupPermits {
    all: Arc<Semaphore>,
    of_address: RefCell<HashMap<IpAddr, Arc<Semaphore>>>,
    semaphore_of_network: RefCell<HashMap<HostAddress, Arc<Semaphore>>>,
    /// Addresses from which on those without work are forgotten.
    addresses_max: usize,
}

impl LookupPermits {
    pub(super) fn new(addresses_max: usize) -> LookupPermits {
        LookupPermits {
            all: Arc::new(Semaphore::new(TURNS_MAX)),
            of_address: RefCell::default(),
            semaphore_of_network: RefCell::default(),
            addresses_max,
        }
    }

    /// Does work on another thread, after others of the same address and in turn with those of other addresses.
    ///
    /// # Errors
    /// The work's, and that it panicked.
    pub(super) async fn run<A: Send + 'static>(
        &self,
        from: IpAddr,
        work: impl FnOnce() -> Result<A, String> + Send + 'static,
    ) -> Result<A, String> {
        let own = self.of_address(from).acquire_owned().await;
        let network = self.semaphore_of_network(from).acquire_owned().await;
        let all = Arc::clone(&self.all).acquire_owned().await;
        let working = tokio::task::spawn_blocking(move || {
            let _turn = (own, network, all);
            work()
        });
        working.await.map_err(|e| e.to_string())?
    }

    fn of_address(&self, from: IpAddr) -> Arc<Semaphore> {
        let mut all = self.of_address.borrow_mut();
        if all.len() > self.addresses_max {
            all.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        let turns = all
            .entry(from.to_canonical())
            .or_insert_with(|| Arc::new(Semaphore::new(OF_ADDRESS_MAX)));
        Arc::clone(turns)
    }

    fn semaphore_of_network(&self, from: IpAddr) -> Arc<Semaphore> {
        let mut all = self.semaphore_of_network.borrow_mut();
        if all.len() > self.addresses_max {
            all.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        let turns = all
            .entry(HostAddress::of(from))
            .or_insert_with(|| Arc::new(Semaphore::new(OF_NETWORK_MAX)));
        Arc::clone(turns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[tokio::test]
    async fn a_turn_lasts_as_long_as_its_work() {
        let turns = LookupPermits::new(16);
        let from = IpAddr::from([10, 0, 0, 1]);
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (end, may_end) = mpsc::channel::<()>();
        {
            let asked = turns.run(from, move || {
                let _ = begun.send(());
                may_end.recv().map_err(|e| e.to_string())
            });
            tokio::pin!(asked);
            tokio::select! {
                _ = &mut asked => panic!("it waits"),
                _ = has_begun => {}
            }
            // The client is gone.
        }
        let left = || turns.of_address(from).available_permits();
        assert_eq!((left(), turns.all.available_permits()), (3, 7));
        end.send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(20), async {
            while left() < 4 {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        assert_eq!(turns.run(from, || Ok(1)).await, Ok(1));
        let [first, second] = [1, 2].map(|n| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, n]));
        let (one, other) = (turns.of_address(first), turns.of_address(second));
        assert!(
            !Arc::ptr_eq(&one, &other),
            "a cluster may be in one network"
        );
        let (one, same) = (
            turns.semaphore_of_network(first),
            turns.semaphore_of_network(second),
        );
        assert!(Arc::ptr_eq(&one, &same), "a host has many addresses");
    }
}
