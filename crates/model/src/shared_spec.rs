//! Specifications that are equal are one. Users submit the same job many times over; the state keeps one
//! specification for all of them, and an answer or a snapshot writes it once.

use crate::spec::JobSpec;
use minicbor::data::Type;
use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder};
use std::collections::HashMap;
use std::sync::Arc;

/// Encoding of the specification of a [`crate::job::Job`]: the context of its codec.
pub trait SpecCodec {
    /// Writes a specification.
    ///
    /// # Errors
    /// An error of the writer.
    fn write<W: Write>(
        &mut self,
        spec: &Arc<JobSpec>,
        e: &mut Encoder<W>,
    ) -> Result<(), minicbor::encode::Error<W::Error>>;

    /// Reads a specification.
    ///
    /// # Errors
    /// Not a specification.
    fn read(&mut self, d: &mut Decoder<'_>) -> Result<Arc<JobSpec>, minicbor::decode::Error>;
}

/// Every job carries its own.
impl SpecCodec for () {
    fn write<W: Write>(
        &mut self,
        spec: &Arc<JobSpec>,
        e: &mut Encoder<W>,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        spec.as_ref().encode(e, &mut ())
    }

    fn read(&mut self, d: &mut Decoder<'_>) -> Result<Arc<JobSpec>, minicbor::decode::Error> {
        JobSpec::decode(d, &mut ()).map(Arc::new)
    }
}

/// A specification is written in full where it comes first and as its place among those written so far after that.
/// What was written without sharing is read as well.
#[derive(Debug, Default)]
pub struct SpecTable {
    /// Keeps what `places` tells by address.
    specs: Vec<Arc<JobSpec>>,
    places: HashMap<usize, u32>,
    /// Written without the ids of script and environment.
    hides_blobs: bool,
}

impl SpecTable {
    /// For listings. An id of a script or an environment is of its content, and of no use to the reader of a listing but
    /// to find out whether others have submitted the same.
    pub fn of_listing() -> SpecTable {
        SpecTable {
            hides_blobs: true,
            ..SpecTable::default()
        }
    }

    /// The place among those written so far of a specification that was.
    fn place(&self, spec: &Arc<JobSpec>) -> Option<u32> {
        let address = Arc::as_ptr(spec) as usize;
        self.places.get(&address).copied()
    }

    /// The specification at a place among those read so far.
    fn at(&self, place: u32) -> Option<Arc<JobSpec>> {
        self.specs.get(place as usize).cloned()
    }
}

impl SpecCodec for SpecTable {
    fn write<W: Write>(
        &mut self,
        spec: &Arc<JobSpec>,
        e: &mut Encoder<W>,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        if let Some(place) = self.place(spec) {
            return e.u32(place)?.ok();
        }
        let place = u32::try_from(self.specs.len()).unwrap_or(u32::MAX);
        self.places.insert(Arc::as_ptr(spec) as usize, place);
        self.specs.push(Arc::clone(spec));
        if self.hides_blobs && (spec.script.is_some() || spec.context.is_some()) {
            let mut shown = JobSpec::clone(spec);
            (shown.script, shown.context) = (None, None);
            return shown.encode(e, &mut ());
        }
        spec.as_ref().encode(e, &mut ())
    }

    fn read(&mut self, d: &mut Decoder<'_>) -> Result<Arc<JobSpec>, minicbor::decode::Error> {
        if matches!(d.datatype()?, Type::U8 | Type::U16 | Type::U32) {
            let place = d.u32()?;
            return self.at(place).ok_or_else(|| {
                minicbor::decode::Error::message(format!(
                    "specification {place} is named before it is given"
                ))
            });
        }
        let spec = Arc::new(JobSpec::decode(d, &mut ())?);
        self.specs.push(Arc::clone(&spec));
        Ok(spec)
    }
}

/// For `#[cbor(with)]` on the field.
pub(crate) mod field {
    use super::{Arc, Decoder, Encoder, JobSpec, SpecCodec, Write};

    pub(crate) fn encode<C: SpecCodec, W: Write>(
        spec: &Arc<JobSpec>,
        e: &mut Encoder<W>,
        codec: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        codec.write(spec, e)
    }

    pub(crate) fn decode<C: SpecCodec>(
        d: &mut Decoder<'_>,
        codec: &mut C,
    ) -> Result<Arc<JobSpec>, minicbor::decode::Error> {
        codec.read(d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> Arc<JobSpec> {
        Arc::new(JobSpec {
            name: name.to_owned(),
            ..JobSpec::default()
        })
    }

    #[test]
    fn a_spec_is_written_once() {
        let (a, b) = (spec("a"), spec("b"));
        let (mut out, mut table) = (Vec::new(), SpecTable::default());
        let mut e = Encoder::new(&mut out);
        for spec in [&a, &a, &b, &a, &b] {
            table.write(spec, &mut e).unwrap();
        }
        let mut once = Vec::new();
        minicbor::encode(&*a, &mut once).unwrap();
        assert_eq!(out.len(), 2 * once.len() + 3);

        let (mut d, mut table) = (Decoder::new(&out), SpecTable::default());
        let read: Vec<_> = (0..5).map(|_| table.read(&mut d).unwrap()).collect();
        let names: Vec<_> = read.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["a", "a", "b", "a", "b"]);
        assert!(Arc::ptr_eq(&read[0], &read[3]) && Arc::ptr_eq(&read[2], &read[4]));
    }

    #[test]
    fn a_listing_does_not_tell_what_is_stored() {
        let id = Some(crate::ids::BlobId([3; 32]));
        let spec = Arc::new(JobSpec {
            name: "j".to_owned(),
            script: id,
            context: id,
            ..JobSpec::default()
        });
        let written = |mut table: SpecTable| {
            let mut out = Vec::new();
            table.write(&spec, &mut Encoder::new(&mut out)).unwrap();
            let mut d = Decoder::new(&out);
            SpecTable::default().read(&mut d).unwrap()
        };
        assert_eq!(written(SpecTable::default()), spec);
        let listed = written(SpecTable::of_listing());
        assert_eq!((listed.script, listed.context), (None, None));
        assert_eq!(listed.name, "j");
    }

    #[test]
    fn a_place_that_was_not_given_is_an_error() {
        let error = SpecTable::default()
            .read(&mut Decoder::new(&[7]))
            .unwrap_err();
        assert!(error.to_string().contains("specification 7"), "{error}");
    }
}
