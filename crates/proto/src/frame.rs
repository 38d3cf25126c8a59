//! Frames over blocking streams; daemons do the same over their asynchronous ones with [`encode`] and [`Frames`].

use minicbor::{Decode, Encode};
use muster_core::limits::FRAME_BYTES_MAX;
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

/// A message of about so many bytes as a frame.
pub fn encode_sized<T: Encode<()>>(message: &T, bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes);
    encode_into(message, &mut out);
    out
}

/// Appends a message as a frame to what is there, so that many leave in one write.
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

/// The length that a frame's first four bytes announce.
///
/// # Errors
/// `InvalidData` when it is over [`FRAME_BYTES_MAX`], which no peer of ours sends.
pub fn length(header: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_be_bytes(header) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "a frame of {length} bytes was announced; at most {FRAME_BYTES_MAX} are allowed"
            ),
        ));
    }
    Ok(length)
}

/// Decodes the body of a frame.
///
/// # Errors
/// `InvalidData` when it is not the CBOR that the type expects.
pub fn decode<'b, T: Decode<'b, ()>>(body: &'b [u8]) -> io::Result<T> {
    decode_in(body, &mut ())
}

/// Decodes the body of a frame in a context.
///
/// # Errors
/// See [`decode`].
pub fn decode_in<'b, C, T: Decode<'b, C>>(body: &'b [u8], context: &mut C) -> io::Result<T> {
    minicbor::decode_with(body, context)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))
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
pub fn read<T: for<'b> Decode<'b, ()>>(stream: &mut impl Read) -> io::Result<T> {
    let mut header = [0; 4];
    stream.read_exact(&mut header)?;
    let mut body = vec![0; length(header)?];
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
    /// Adds what was read.
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
    /// As [`length`] and [`decode`].
    pub fn take<T: for<'b> Decode<'b, ()>>(&mut self) -> io::Result<Option<T>> {
        let rest = &self.bytes[self.at..];
        let Some(header) = rest.first_chunk::<4>() else {
            return Ok(None);
        };
        let end = 4 + length(*header)?;
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
