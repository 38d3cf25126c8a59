//! Text without memory of its own.

use core::fmt;

/// Text in a buffer of this size; the rest is cut off.
pub struct TextBuffer<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> TextBuffer<N> {
    /// The text of `args`.
    pub fn of(args: fmt::Arguments<'_>) -> TextBuffer<N> {
        let mut line = TextBuffer {
            bytes: [0; N],
            len: 0,
        };
        // It ends where the buffer does.
        let _ = fmt::write(&mut line, args);
        line
    }

    /// The bytes written so far.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl<const N: usize> fmt::Write for TextBuffer<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.len..).unwrap_or_default();
        let len = text.len().min(room.len());
        room.iter_mut()
            .zip(text.bytes())
            .for_each(|(to, from)| *to = from);
        self.len += len;
        if len < text.len() {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}
