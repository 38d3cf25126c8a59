//! Encoding of shared values: `#[cbor(with = "crate::cbor::arc")]` writes an `Arc<T>` as its `T`.

/// `Arc<T>` as `T`.
pub mod arc {
    use minicbor::{Decode, Decoder, Encode, Encoder};
    use std::sync::Arc;

    /// Writes the value inside.
    ///
    /// # Errors
    /// An error of the writer.
    pub fn encode<C, T: Encode<C>, W: minicbor::encode::Write>(
        value: &Arc<T>,
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        value.as_ref().encode(e, ctx)
    }

    /// Reads the value and wraps it.
    ///
    /// # Errors
    /// An error of the decoder.
    pub fn decode<'b, C, T: Decode<'b, C>>(
        d: &mut Decoder<'b>,
        ctx: &mut C,
    ) -> Result<Arc<T>, minicbor::decode::Error> {
        T::decode(d, ctx).map(Arc::new)
    }
}

/// `Vec<Arc<T>>` as `Vec<T>`.
pub mod arcs {
    use minicbor::{Decode, Decoder, Encode, Encoder};
    use std::sync::Arc;

    /// Writes the values inside.
    ///
    /// # Errors
    /// An error of the writer.
    pub fn encode<C, T: Encode<C>, W: minicbor::encode::Write>(
        values: &[Arc<T>],
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.array(values.len() as u64)?;
        values.iter().try_for_each(|v| v.as_ref().encode(e, ctx))
    }

    /// Reads the values and wraps each.
    ///
    /// # Errors
    /// An error of the decoder.
    pub fn decode<'b, C, T: Decode<'b, C>>(
        d: &mut Decoder<'b>,
        ctx: &mut C,
    ) -> Result<Vec<Arc<T>>, minicbor::decode::Error> {
        let values = Vec::<T>::decode(d, ctx)?;
        Ok(values.into_iter().map(Arc::new).collect())
    }
}

/// `Option<Arc<T>>` as `Option<T>`.
pub mod opt_arc {
    use minicbor::{Decode, Decoder, Encode, Encoder};
    use std::sync::Arc;

    /// Writes the value inside, or null.
    ///
    /// # Errors
    /// An error of the writer.
    pub fn encode<C, T: Encode<C>, W: minicbor::encode::Write>(
        value: &Option<Arc<T>>,
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        match value {
            Some(v) => v.as_ref().encode(e, ctx),
            None => e.null()?.ok(),
        }
    }

    /// Reads the value, if it is not null.
    ///
    /// # Errors
    /// An error of the decoder.
    pub fn decode<'b, C, T: Decode<'b, C>>(
        d: &mut Decoder<'b>,
        ctx: &mut C,
    ) -> Result<Option<Arc<T>>, minicbor::decode::Error> {
        Ok(Option::<T>::decode(d, ctx)?.map(Arc::new))
    }
}

/// `Option<Option<T>>`, a value to set: null for no change, an empty list to clear, else the value. Without this module
/// null would be both of the former.
pub mod clearable {
    use minicbor::data::Type;
    use minicbor::{Decode, Decoder, Encode, Encoder};

    /// Writes the value inside, an empty list, or null.
    ///
    /// # Errors
    /// An error of the writer.
    pub fn encode<C, T: Encode<C>, W: minicbor::encode::Write>(
        value: &Option<Option<T>>,
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        match value {
            Some(Some(value)) => value.encode(e, ctx),
            Some(None) => e.array(0)?.ok(),
            None => e.null()?.ok(),
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// An error of the decoder.
    pub fn decode<'b, C, T: Decode<'b, C>>(
        d: &mut Decoder<'b>,
        ctx: &mut C,
    ) -> Result<Option<Option<T>>, minicbor::decode::Error> {
        match d.datatype()? {
            Type::Null => d.null().map(|()| None),
            Type::Array => match d.array()? {
                Some(0) => Ok(Some(None)),
                _ => Err(minicbor::decode::Error::message("expected an empty list")),
            },
            _ => T::decode(d, ctx).map(|value| Some(Some(value))),
        }
    }
}
