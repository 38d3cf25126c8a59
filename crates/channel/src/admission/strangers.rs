//! Connections of which it is not known yet who is at the other end. There is a bound to them, in all and from one address. One
//! that comes beyond it is taken in all the same, in place of the oldest of those from the address that has most: who has a
//! credential shows it at once, so that the oldest are those that say nothing. Those that have shown one, and are not known yet,
//! go last.

use super::HostAddress;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

/// Names a connection; later ones have greater numbers.
pub type StrangerId = u64;

/// The bounds.
#[derive(Clone, Copy, Debug)]
pub struct StrangerBounds {
    /// Strangers in all.
    pub all: usize,
    /// Strangers from one address. A network of IPv6 (64 bits), of which a host may have all addresses, has three
    /// quarters of all.
    pub of_address: usize,
}

impl StrangerBounds {
    fn of_network(&self) -> usize {
        self.of_address.max(self.all * 3 / 4)
    }
}

/// All of them.
#[derive(Debug)]
pub struct Strangers {
    bounds: StrangerBounds,
    last: StrangerId,
    addresses: HashMap<StrangerId, IpAddr>,
    /// Strangers by address, in the order in which they came.
    of_address: HashMap<IpAddr, BTreeMap<StrangerId, ()>>,
    /// Number of strangers by network.
    of_network: HashMap<HostAddress, usize>,
    /// Connections that have shown a credential.
    credible: HashSet<StrangerId>,
}

impl Strangers {
    /// None, with these bounds.
    pub fn new(bounds: StrangerBounds) -> Strangers {
        Strangers {
            bounds,
            last: 0,
            addresses: HashMap::new(),
            of_address: HashMap::new(),
            of_network: HashMap::new(),
            credible: HashSet::new(),
        }
    }

    /// Takes one in: its number, and that of the one that has to go for it.
    pub fn admit(&mut self, from: IpAddr) -> (StrangerId, Option<StrangerId>) {
        let (from, network) = (from.to_canonical(), HostAddress::of(from));
        self.last += 1;
        let own = self.of_address.get(&from).map_or(0, BTreeMap::len);
        let of_network = self.of_network.get(&network).copied().unwrap_or(0);
        let crowded = if own >= self.bounds.of_address {
            Some(from)
        } else if of_network >= self.bounds.of_network() {
            self.most_of(network)
        } else if self.addresses.len() >= self.bounds.all {
            let most = self.of_network.iter().max_by_key(|(_, count)| **count);
            most.and_then(|(network, _)| self.most_of(*network))
        } else {
            None
        };
        let gone = crowded.and_then(|address| {
            let all = self.of_address.get(&address)?;
            let mut silent = all.keys().filter(|id| !self.credible.contains(id));
            let oldest = *silent.next().or_else(|| all.keys().next())?;
            self.leave(oldest);
            Some(oldest)
        });
        self.addresses.insert(self.last, from);
        *self.of_network.entry(network).or_default() += 1;
        self.of_address
            .entry(from)
            .or_default()
            .insert(self.last, ());
        (self.last, gone)
    }

    /// The address of a network that has most connections; of several, the one whose oldest is the oldest.
    fn most_of(&self, network: HostAddress) -> Option<IpAddr> {
        let all = self.of_address.iter();
        let own = all.filter(|(address, _)| HostAddress::of(**address) == network);
        let rank = |ids: &BTreeMap<StrangerId, ()>| {
            let oldest = ids.first_key_value().map(|(id, ())| *id);
            (ids.len(), Reverse(oldest))
        };
        own.max_by_key(|(_, ids)| rank(ids))
            .map(|(address, _)| *address)
    }

    /// One has shown a credential: others from its address go before it.
    pub fn set_credible(&mut self, id: StrangerId) {
        if self.addresses.contains_key(&id) {
            self.credible.insert(id);
        }
    }

    /// One is known now, or gone.
    pub fn leave(&mut self, id: StrangerId) {
        self.credible.remove(&id);
        let Some(address) = self.addresses.remove(&id) else {
            return;
        };
        let network = HostAddress::of(address);
        if let Some(count) = self.of_network.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.of_network.remove(&network);
            }
        }
        if let Some(ids) = self.of_address.get_mut(&address) {
            ids.remove(&id);
            if ids.is_empty() {
                self.of_address.remove(&address);
            }
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.addresses.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    const BOUNDS: StrangerBounds = StrangerBounds {
        all: 8,
        of_address: 5,
    };

    #[test]
    fn the_oldest_of_the_most_makes_room() {
        let mut strangers = Strangers::new(BOUNDS);
        let crowd: Vec<_> = (0..5).map(|_| strangers.admit(address(1)).0).collect();
        let (sixth, gone) = strangers.admit(address(1));
        assert_eq!(gone, Some(crowd[0]), "of its own address");
        let (other, none) = strangers.admit(address(2));
        assert_eq!(none, None);
        strangers.admit(address(2));
        strangers.admit(address(3));
        let (_, gone) = strangers.admit(address(4));
        assert_eq!(gone, Some(crowd[1]), "of the address that has most");
        strangers.leave(other);
        strangers.leave(sixth);
        assert_eq!(strangers.len(), 6);
    }

    /// However many others come from its address, one that has shown a credential has the time to be known.
    #[test]
    fn who_has_shown_a_credential_goes_last() {
        let mut strangers = Strangers::new(BOUNDS);
        let (shown, _) = strangers.admit(address(1));
        strangers.set_credible(shown);
        for _ in 0..100 {
            let (_, gone) = strangers.admit(address(1));
            assert_ne!(gone, Some(shown));
        }
        let last = strangers.last;
        (last - 4..=last).for_each(|id| strangers.set_credible(id));
        assert_eq!(strangers.admit(address(1)).1, Some(shown), "all have");
        (0..=last + 1).for_each(|id| strangers.leave(id));
        assert_eq!((strangers.len(), strangers.credible.len()), (0, 0));
    }

    /// One host of IPv6 could have the place of everybody, with an address for each connection.
    #[test]
    fn addresses_of_one_host_count_together() {
        let mut strangers = Strangers::new(BOUNDS);
        let of = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        let (other, _) = strangers.admit(address(1));
        let gone: Vec<_> = (0..20).filter_map(|n| strangers.admit(of(n)).1).collect();
        assert_eq!((gone.len(), gone.contains(&other)), (14, false));
        // Among hosts of one network that have one each, those that wait longest go.
        let (next, _) = strangers.admit(of(100));
        let (_, gone) = strangers.admit(of(101));
        assert!(gone.is_some_and(|gone| gone < next));
    }

    proptest! {
        #[test]
        fn there_are_never_more_than_may_be(steps in prop::collection::vec((0..6u8, any::<bool>()), 0..200)) {
            let mut strangers = Strangers::new(BOUNDS);
            let mut here: Vec<(StrangerId, u8)> = Vec::new();
            for (from, leaves) in steps {
                if leaves && !here.is_empty() {
                    let (id, _) = here.remove(usize::from(from) % here.len());
                    strangers.leave(id);
                } else {
                    let (id, gone) = strangers.admit(address(from));
                    here.push((id, from));
                    here.retain(|(id, _)| Some(*id) != gone);
                }
                prop_assert_eq!(strangers.len(), here.len());
                prop_assert!(here.len() <= BOUNDS.all);
                for from in 0..6 {
                    let of_address = here.iter().filter(|(_, address)| *address == from).count();
                    prop_assert!(of_address <= BOUNDS.of_address);
                }
            }
        }
    }
}
