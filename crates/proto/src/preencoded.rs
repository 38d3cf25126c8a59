//! Parts of a job's grant that are equal for all of its nodes, encoded once: the allocation and the specification.

use minicbor::decode::Error;
use minicbor::{Decode, Decoder, Encode, Encoder};
use muster_model::job::Allocation;
use muster_model::validate::{Bounds, Invalid, Validate};
use std::cell::RefCell;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// An allocation beside its encoding, which is made where it is first sent. Clones share both.
#[derive(Clone, Debug)]
pub struct PreencodedAllocation(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    alloc: Arc<Allocation>,
    bytes: OnceLock<Box<[u8]>>,
}

thread_local! {
    /// The last one that was decoded. An agent that speaks for several nodes receives a job's allocation once for each.
    static LAST: RefCell<Option<PreencodedAllocation>> = const { RefCell::new(None) };
}

impl PreencodedAllocation {
    fn bytes(&self) -> &[u8] {
        let encode = || minicbor::to_vec(&*self.0.alloc).expect("writing to memory cannot fail");
        self.0.bytes.get_or_init(|| encode().into())
    }
}

impl From<Arc<Allocation>> for PreencodedAllocation {
    fn from(alloc: Arc<Allocation>) -> PreencodedAllocation {
        let bytes = OnceLock::new();
        PreencodedAllocation(Arc::new(Shared { alloc, bytes }))
    }
}

impl From<Allocation> for PreencodedAllocation {
    fn from(alloc: Allocation) -> PreencodedAllocation {
        Arc::new(alloc).into()
    }
}

impl Deref for PreencodedAllocation {
    type Target = Allocation;

    fn deref(&self) -> &Allocation {
        &self.0.alloc
    }
}

impl PartialEq for PreencodedAllocation {
    fn eq(&self, other: &PreencodedAllocation) -> bool {
        self.0.alloc == other.0.alloc
    }
}

impl<C> Encode<C> for PreencodedAllocation {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.bytes(self.bytes())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for PreencodedAllocation {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<PreencodedAllocation, Error> {
        let bytes = d.bytes()?;
        let same = |last: &&PreencodedAllocation| last.bytes() == bytes;
        let known = LAST.with_borrow(|last| last.as_ref().filter(same).cloned());
        if let Some(known) = known {
            return Ok(known);
        }
        let alloc: Allocation = minicbor::decode(bytes)?;
        // Validated here and not with the message: most are found in the cache.
        alloc.validate().map_err(Error::message)?;
        let alloc = Arc::new(alloc);
        let bytes = OnceLock::from(Box::from(bytes));
        let decoded = PreencodedAllocation(Arc::new(Shared { alloc, bytes }));
        LAST.set(Some(decoded.clone()));
        Ok(decoded)
    }
}

/// Decoding has validated it.
impl Validate for PreencodedAllocation {
    fn validate_within(&self, _: &Bounds) -> Result<(), Invalid> {
        Ok(())
    }
}

/// Specification of a job in its grant. The tasks of an array, and equal submissions, have the same: a process that receives
/// their grants one after another keeps one copy.
pub mod spec {
    use minicbor::decode::Error;
    use minicbor::encode::Write;
    use minicbor::{Decode as _, Decoder, Encode as _, Encoder};
    use muster_model::spec::JobSpec;
    use std::cell::RefCell;
    use std::sync::Arc;

    struct Last {
        bytes: Box<[u8]>,
        spec: Arc<JobSpec>,
    }

    thread_local! {
        /// The last one that was decoded, beside its encoding.
        static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
    }

    /// Writes it.
    ///
    /// # Errors
    /// What the writer gives.
    pub fn encode<C, W: Write>(
        spec: &Arc<JobSpec>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        spec.as_ref().encode(e, &mut ())
    }

    /// Decodes it, unless it is encoded as the one before was.
    ///
    /// # Errors
    /// Not a specification.
    pub fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Arc<JobSpec>, Error> {
        let from = d.position();
        d.skip()?;
        let bytes = &d.input()[from..d.position()];
        let same = |last: &Last| (*last.bytes == *bytes).then(|| Arc::clone(&last.spec));
        if let Some(known) = LAST.with_borrow(|last| last.as_ref().and_then(same)) {
            return Ok(known);
        }
        let spec = Arc::new(JobSpec::decode(&mut Decoder::new(bytes), &mut ())?);
        let last = Last {
            bytes: bytes.into(),
            spec: Arc::clone(&spec),
        };
        LAST.set(Some(last));
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(hostlist: &str) -> PreencodedAllocation {
        let hostlist = hostlist.to_owned();
        Allocation {
            hostlist,
            ..Allocation::default()
        }
        .into()
    }

    #[test]
    fn equal_allocations_are_decoded_once() {
        let (a, b) = (named("n[1-2]"), named("n3"));
        let decoded = |sent: &PreencodedAllocation| -> PreencodedAllocation {
            minicbor::decode(&minicbor::to_vec(sent).unwrap()).unwrap()
        };
        let first = decoded(&a);
        assert_eq!(first, a);
        assert!(Arc::ptr_eq(&first.0, &decoded(&a).0));
        assert_eq!(decoded(&b).hostlist, "n3");
        assert_eq!(decoded(&a).hostlist, "n[1-2]");
    }

    #[test]
    fn equal_specifications_are_decoded_once() {
        use muster_model::spec::JobSpec;
        let named = |name: &str| {
            let name = name.to_owned();
            let spec = Arc::new(JobSpec {
                name,
                ..JobSpec::default()
            });
            let mut e = Encoder::new(Vec::new());
            spec::encode(&spec, &mut e, &mut ()).unwrap();
            e.into_writer()
        };
        let read = |bytes: &[u8]| spec::decode(&mut Decoder::new(bytes), &mut ()).unwrap();
        let (a, b) = (named("a"), named("b"));
        let first = read(&a);
        assert!(Arc::ptr_eq(&first, &read(&a)));
        assert_eq!(read(&b).name, "b");
        assert_eq!(read(&a), first);
    }

    #[test]
    fn nonsense_is_refused() {
        let mut e = Encoder::new(Vec::new());
        e.bytes(&[0xff]).unwrap();
        minicbor::decode::<PreencodedAllocation>(&e.into_writer()).unwrap_err();
    }
}
