//! Answers in short for clients that take gzip: a list of jobs takes a twentieth of its bytes.

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::Bytes;
use muster_cli::rest::{HttpStatus, RestReply};
use std::io::Write as _;

/// Answers that are shorter are sent as they are.
const PACKED_FROM_BYTES: usize = 8 << 10;

/// An answer that is packed.
#[derive(Clone)]
pub(crate) struct PackedReply {
    pub(crate) status: HttpStatus,
    pub(crate) media_type: &'static str,
    pub(crate) bytes: Bytes,
}

impl PackedReply {
    /// Packs an answer that is long enough to gain by it; gives another one back.
    pub(crate) fn of(answer: RestReply) -> Result<PackedReply, RestReply> {
        if answer.body.len() < PACKED_FROM_BYTES {
            return Err(answer);
        }
        let mut packer = Packer::new();
        let mut bytes = packer.pack(&answer.body).to_vec();
        bytes.extend_from_slice(&packer.finish());
        Ok(PackedReply {
            status: answer.status,
            media_type: answer.media_type,
            bytes: bytes.into(),
        })
    }
}

/// Packs one answer, part by part.
pub(crate) struct Packer(GzEncoder<Vec<u8>>);

impl Packer {
    pub(crate) fn new() -> Packer {
        // The fastest level: lists of records have much in common.
        Packer(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// Takes a part. Gives the bytes that are ready, which may be none.
    pub(crate) fn pack(&mut self, part: &str) -> Bytes {
        let written = self.0.write_all(part.as_bytes());
        written.expect("writing to memory cannot fail");
        std::mem::take(self.0.get_mut()).into()
    }

    /// The bytes that are left.
    pub(crate) fn finish(&mut self) -> Bytes {
        self.0.try_finish().expect("writing to memory cannot fail");
        std::mem::take(self.0.get_mut()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::borrow::Cow;
    use std::io::Read as _;

    fn unpacked(bytes: &[u8]) -> String {
        let mut text = String::new();
        GzDecoder::new(bytes).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn parts_together_are_the_answer() {
        let parts: Vec<String> = (0..2000).map(|n| format!("job {n}, ")).collect();
        let mut packer = Packer::new();
        let mut packed = Vec::new();
        for part in &parts {
            packed.extend_from_slice(&packer.pack(part));
        }
        packed.extend_from_slice(&packer.finish());
        assert_eq!(unpacked(&packed), parts.concat());
        assert!(packed.len() < parts.concat().len() / 2);
    }

    #[test]
    fn short_answers_stay_as_they_are() {
        let answer = |body: String| RestReply {
            status: HttpStatus::OK,
            media_type: "text/plain",
            body: Cow::Owned(body),
        };
        let short = answer("x".repeat(PACKED_FROM_BYTES - 1));
        assert!(PackedReply::of(short).is_err());
        let long = "x".repeat(PACKED_FROM_BYTES);
        let packed = PackedReply::of(answer(long.clone()));
        let Ok(packed) = packed else {
            panic!("it is not packed");
        };
        assert_eq!(unpacked(&packed.bytes), long);
    }
}
