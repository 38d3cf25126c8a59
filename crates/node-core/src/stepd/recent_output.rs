//! The last output of a node's tasks, which a reader that comes later is sent first, as with Slurm. It is no log: older
//! output is gone.

use muster_proto::frame;
use muster_proto::step::FromStepd;
use std::collections::VecDeque;

/// Bytes that are kept: some screens of text.
const BYTES_MAX: usize = 64 << 10;
/// Messages that are kept: as many as Slurm keeps.
const MESSAGES_MAX: usize = 128;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RecentOutput {
    messages: VecDeque<FromStepd>,
    bytes: usize,
}

impl RecentOutput {
    /// Keeps a copy of a message, if it is output.
    pub(super) fn keep(&mut self, message: &FromStepd) {
        let Some(length) = output_length(message) else {
            return;
        };
        if length > BYTES_MAX {
            // A piece without its beginning would be taken for all of it.
            self.messages.clear();
            self.bytes = 0;
            return;
        }
        self.messages.push_back(message.clone());
        self.bytes += length;
        while self.bytes > BYTES_MAX || self.messages.len() > MESSAGES_MAX {
            let oldest = self.messages.pop_front();
            self.bytes -= oldest.as_ref().and_then(output_length).unwrap_or(0);
        }
    }

    /// All that is kept, as frames.
    pub(super) fn frames(&self) -> Vec<u8> {
        self.messages.iter().flat_map(frame::encode).collect()
    }
}

/// Bytes of output in a message; nothing for others, and for the end of a stream.
fn output_length(message: &FromStepd) -> Option<usize> {
    match message {
        FromStepd::Stdout { bytes, .. } | FromStepd::Stderr { bytes, .. } => {
            Some(bytes.len()).filter(|length| *length > 0)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(length: usize) -> FromStepd {
        FromStepd::Stdout {
            task: 0,
            bytes: vec![b'x'; length].into(),
        }
    }

    #[test]
    fn the_last_output_is_kept_within_bounds() {
        let mut recent = RecentOutput::default();
        recent.keep(&output(0));
        assert!(recent.frames().is_empty());
        for _ in 0..200 {
            recent.keep(&output(1));
        }
        assert_eq!((recent.messages.len(), recent.bytes), (128, 128));
        recent.keep(&output(BYTES_MAX));
        assert_eq!((recent.messages.len(), recent.bytes), (1, BYTES_MAX));
        recent.keep(&output(BYTES_MAX + 1));
        assert!(recent.frames().is_empty());
    }
}
