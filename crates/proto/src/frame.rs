//! Frames over blocking streams; daemons do the same over their asynchronous ones with [`encode`] and [`Frames`].

use crate::shape::{self, ShapeError};
use minicbor::{Decode, Encode};
use muster_model::limits::{FRAME_BYTES_MAX, FRAME_ITEMS_MAX};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::validate::{Fault, Invalid, Validate};
use std::io::{self, Read, Write};

/// A message as a frame: length and CBOR.
///
/// # Panics
/// Never: encoding into memory cannot fail.
pub fn encode<T: Encode<()>>(message: &T) -> Vec<u8> {
    let mut out = vec![0; 4];
    append(message, &mut out, 0);
    out
}

/// A message of about `bytes` bytes as a frame.
pub fn encode_sized<T: Encode<()>>(message: &T, bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes);
    encode_into(message, &mut out);
    out
}

/// Appends a message as a frame to earlier ones, so that many leave in one write.
pub fn encode_into<T: Encode<()>>(message: &T, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    append(message, out, at);
}

fn append<T: Encode<()>>(message: &T, out: &mut Vec<u8>, at: usize) {
    minicbor::encode(message, &mut *out).expect("writing to memory cannot fail");
    let length = u32::try_from(out.len() - at - 4).expect("a frame is far below 4 GiB");
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// A message that travels in frames of its own. Every daemon decodes with [`decode`], which takes nothing else, so no
/// message reaches one that was not validated.
pub trait Message: Validate {
    /// Bytes of the longest frame.
    const BYTES_MAX: usize = FRAME_BYTES_MAX;
    /// CBOR items of the largest frame.
    const ITEMS_MAX: usize = FRAME_ITEMS_MAX;
}

/// Why a frame was refused. The I/O errors of this module carry it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It is longer than a message of its type may be.
    #[error("a frame of {bytes} bytes was announced; at most {most} are allowed")]
    TooLong {
        /// As announced.
        bytes: usize,
        /// The longest.
        most: usize,
    },
    /// Its form is not that of any message.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// It is no message of the type.
    #[error("{0}")]
    Malformed(String),
    /// It is one, but a value in it is out of bounds.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl FrameError {
    /// The error of this module that an I/O error carries.
    pub fn of(error: &io::Error) -> Option<&FrameError> {
        error.get_ref()?.downcast_ref()
    }

    /// The answer to a message for which [`decode`] gave this error.
    pub fn refusal_of(error: &io::Error) -> Refusal {
        match FrameError::of(error) {
            Some(why) => why.refusal(),
            None => Refusal::new(RefusalCode::ProtocolError, error.to_string()),
        }
    }

    fn refusal(&self) -> Refusal {
        let (code, detail) = match self {
            FrameError::Invalid(invalid) => {
                let code = match invalid.fault {
                    Fault::TooLong { .. } | Fault::TooMany { .. } => RefusalCode::TooLong,
                    Fault::Nul | Fault::OutOfRange { .. } | Fault::Malformed(_) => {
                        RefusalCode::InvalidValue
                    }
                };
                (code, invalid.to_string())
            }
            FrameError::TooLong { .. } => (RefusalCode::TooLong, self.to_string()),
            FrameError::Shape(_) | FrameError::Malformed(_) => (
                RefusalCode::ProtocolError,
                format!("the request cannot be understood: {self}"),
            ),
        };
        Refusal::new(code, detail)
    }
}

impl From<FrameError> for io::Error {
    fn from(error: FrameError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

/// The length that the first four bytes of a message's frame announce.
///
/// # Errors
/// `InvalidData` when it is over [`Message::BYTES_MAX`]: nothing of it need be read.
pub fn length_of<T: Message>(header: [u8; 4]) -> io::Result<usize> {
    length_within(header, T::BYTES_MAX)
}

/// The length that a frame's first four bytes announce, whatever message it is.
///
/// # Errors
/// `InvalidData` when it is over [`FRAME_BYTES_MAX`], which no peer of ours sends.
pub fn length(header: [u8; 4]) -> io::Result<usize> {
    length_within(header, FRAME_BYTES_MAX)
}

fn length_within(header: [u8; 4], most: usize) -> io::Result<usize> {
    let bytes = u32::from_be_bytes(header) as usize;
    if bytes > most {
        return Err(FrameError::TooLong { bytes, most }.into());
    }
    Ok(bytes)
}

/// Decodes the body of a frame and validates it.
///
/// # Errors
/// `InvalidData` with a [`FrameError`].
pub fn decode<'b, T: Decode<'b, ()> + Message>(body: &'b [u8]) -> io::Result<T> {
    Ok(decode_message(body)?)
}

fn decode_message<'b, T: Decode<'b, ()> + Message>(body: &'b [u8]) -> Result<T, FrameError> {
    if body.len() > T::BYTES_MAX {
        let (bytes, most) = (body.len(), T::BYTES_MAX);
        return Err(FrameError::TooLong { bytes, most });
    }
    // Decoding follows the nesting with its stack, and makes room for each item.
    shape::check(body, T::ITEMS_MAX)?;
    let malformed = |e: minicbor::decode::Error| FrameError::Malformed(e.to_string());
    let message: T = minicbor::decode(body).map_err(malformed)?;
    message.validate()?;
    Ok(message)
}

/// Writes one message.
///
/// # Errors
/// What the stream gives.
pub fn write<T: Encode<()>>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    stream.write_all(&encode(message))
}

/// Reads one message.
///
/// # Errors
/// `UnexpectedEof` when the peer closed; `InvalidData` when the frame is not the type; what the stream gives.
pub fn read<T: for<'b> Decode<'b, ()> + Message>(stream: &mut impl Read) -> io::Result<T> {
    let mut header = [0; 4];
    stream.read_exact(&mut header)?;
    let mut body = vec![0; length_of::<T>(header)?];
    stream.read_exact(&mut body)?;
    decode(&body)
}

/// Bytes that have come, and how far they were taken.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    at: usize,
}

impl Frames {
    /// Adds bytes that were read.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        } else if self.at > self.bytes.len() / 2 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole frame, if it has come.
    ///
    /// # Errors
    /// As [`length_of`] and [`decode`].
    pub fn take<T: for<'b> Decode<'b, ()> + Message>(&mut self) -> io::Result<Option<T>> {
        let rest = &self.bytes[self.at..];
        let Some(header) = rest.first_chunk::<4>() else {
            return Ok(None);
        };
        let end = 4 + length_of::<T>(*header)?;
        let Some(body) = rest.get(4..end) else {
            return Ok(None);
        };
        let message = decode(body)?;
        self.at += end;
        Ok(Some(message))
    }

    /// Takes the next whole frame as it came, to be passed on.
    ///
    /// # Errors
    /// As [`length`].
    pub fn take_whole(&mut self) -> io::Result<Option<&[u8]>> {
        let rest = &self.bytes[self.at..];
        let Some(header) = rest.first_chunk::<4>() else {
            return Ok(None);
        };
        let end = 4 + length(*header)?;
        let Some(frame) = rest.get(..end) else {
            return Ok(None);
        };
        self.at += end;
        Ok(Some(frame))
    }
}
