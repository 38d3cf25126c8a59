//! The two wire protocols of PMI, as MPICH and its relatives speak them over an inherited socket.
//! Both are text: PMI-1 in lines, PMI-2 after a length of six digits. Both begin with a line that
//! names the protocol.

/// Longest request that is accepted.
const REQUEST_MAX: usize = 64 << 10;
/// Number of digits of a length.
const DIGITS: usize = 6;

/// The protocol that a task speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// PMI-1: lines of words.
    #[default]
    One,
    /// PMI-2: lengths and semicolons.
    Two,
}

/// A command with its keys and values, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Its name.
    pub(crate) cmd: String,
    /// The fields of the request.
    pub(crate) pairs: Vec<(String, String)>,
}

impl Request {
    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    }

    /// The value of a key; `None` if it is absent or empty.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or("")
    }
}

/// The connection of a task: received bytes, and bytes to send.
#[derive(Debug, Default)]
pub(crate) struct TaskConnection {
    dialect: Dialect,
    input: Vec<u8>,
    /// Bytes to write.
    pub(crate) output: Vec<u8>,
}

/// The task speaks neither protocol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownProtocol;

impl TaskConnection {
    /// The protocol of the connection.
    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Switches to this protocol.
    pub(crate) fn speak(&mut self, dialect: Dialect) {
        self.dialect = dialect;
    }

    /// Appends received bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The next request, if it is complete.
    ///
    /// # Errors
    /// The bytes are not the beginning of a request.
    pub(crate) fn take(&mut self) -> Result<Option<Request>, UnknownProtocol> {
        let taken = match self.dialect {
            Dialect::One => self.take_line(),
            Dialect::Two => self.take_counted(),
        };
        if matches!(taken, Ok(None)) && self.input.len() > REQUEST_MAX {
            return Err(UnknownProtocol);
        }
        taken
    }

    fn take_line(&mut self) -> Result<Option<Request>, UnknownProtocol> {
        let Some((line, mut at)) = self.line(0) else {
            return Ok(None);
        };
        let Some(cmd) = line.strip_prefix("mcmd=") else {
            self.input.drain(..at);
            return words(&line).map(Some);
        };
        // A command of several lines, with one pair on each line.
        let mut request = Request {
            cmd: cmd.to_owned(),
            pairs: Vec::new(),
        };
        loop {
            let Some((line, next)) = self.line(at) else {
                return Ok(None);
            };
            at = next;
            if line == "endcmd" {
                break;
            }
            let (key, value) = line.split_once('=').ok_or(UnknownProtocol)?;
            request.pairs.push((key.to_owned(), value.to_owned()));
        }
        self.input.drain(..at);
        Ok(Some(request))
    }

    /// The line that begins at `from`, without its end, and the position of the next line. The
    /// position is counted in bytes, because invalid UTF-8 changes its length when it is converted
    /// to text.
    fn line(&self, from: usize) -> Option<(String, usize)> {
        let rest = self.input.get(from..)?;
        let end = rest.iter().position(|b| *b == b'\n')?;
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        Some((line, from + end + 1))
    }

    fn take_counted(&mut self) -> Result<Option<Request>, UnknownProtocol> {
        let Some(digits) = self.input.get(..DIGITS) else {
            return Ok(None);
        };
        let text = std::str::from_utf8(digits).map_err(|_| UnknownProtocol)?;
        let length: usize = text.trim().parse().map_err(|_| UnknownProtocol)?;
        if length > REQUEST_MAX {
            return Err(UnknownProtocol);
        }
        let Some(body) = self.input.get(DIGITS..DIGITS + length) else {
            return Ok(None);
        };
        let request = pairs(&String::from_utf8_lossy(body));
        self.input.drain(..DIGITS + length);
        request.map(Some)
    }

    /// Answers with a command and its pairs, in the protocol that is spoken.
    pub(crate) fn say(&mut self, cmd: &str, pairs: &[(&str, &str)]) {
        match self.dialect {
            Dialect::One => {
                let words: Vec<String> = pairs.iter().map(|(k, v)| format!(" {k}={v}")).collect();
                let line = format!("cmd={cmd}{}\n", words.concat());
                self.output.extend_from_slice(line.as_bytes());
            }
            Dialect::Two => {
                let quoted: Vec<String> = pairs
                    .iter()
                    .map(|(k, v)| format!("{k}={};", v.replace(';', ";;")))
                    .collect();
                let body = format!("cmd={cmd};{}", quoted.concat());
                let head = format!("{:>DIGITS$}", body.len());
                self.output.extend_from_slice(head.as_bytes());
                self.output.extend_from_slice(body.as_bytes());
            }
        }
    }
}

/// `cmd=put kvsname=a key=b value=c`: words separated by blanks.
fn words(line: &str) -> Result<Request, UnknownProtocol> {
    let pairs = line
        .split_ascii_whitespace()
        .filter_map(|w| w.split_once('='));
    of_pairs(pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
}

/// `cmd=kvs-put;key=b;value=c;`: a semicolon in a value is doubled.
fn pairs(body: &str) -> Result<Request, UnknownProtocol> {
    let mut out = Vec::new();
    let mut rest = body.trim_end_matches('\n');
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=').ok_or(UnknownProtocol)?;
        let mut value = String::new();
        let mut chars = after.char_indices().peekable();
        let mut end = after.len();
        while let Some((at, c)) = chars.next() {
            if c != ';' {
                value.push(c);
            } else if chars.next_if(|(_, next)| *next == ';').is_some() {
                value.push(';');
            } else {
                end = at + 1;
                break;
            }
        }
        out.push((key.to_owned(), value));
        rest = &after[end..];
    }
    of_pairs(out)
}

fn of_pairs(mut pairs: Vec<(String, String)>) -> Result<Request, UnknownProtocol> {
    match pairs.first() {
        Some((key, _)) if key == "cmd" => {
            let (_, cmd) = pairs.remove(0);
            Ok(Request { cmd, pairs })
        }
        _ => Err(UnknownProtocol),
    }
}

/// `PMI_process_mapping`: the node of each rank, as blocks of (first node, nodes, ranks on each
/// node).
pub(crate) fn mapping(tasks: &[Vec<u32>]) -> String {
    let total: usize = tasks.iter().map(Vec::len).sum();
    let mut node_of = vec![0; total];
    for (node, ranks) in tasks.iter().enumerate() {
        for rank in ranks {
            if let Some(slot) = node_of.get_mut(*rank as usize) {
                *slot = node;
            }
        }
    }
    let mut blocks: Vec<(usize, usize, usize)> = Vec::new();
    let mut rest = node_of.as_slice();
    while let Some(&node) = rest.first() {
        let run = rest.iter().take_while(|n| **n == node).count();
        rest = &rest[run..];
        match blocks.last_mut() {
            Some((first, nodes, each)) if *each == run && node == *first + *nodes => *nodes += 1,
            _ => blocks.push((node, 1, run)),
        }
    }
    let texts: Vec<String> = blocks
        .iter()
        .map(|(a, b, c)| format!(",({a},{b},{c})"))
        .collect();
    format!("(vector{})", texts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(cmd: &str, pairs: &[(&str, &str)]) -> Request {
        let pairs = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Request {
            cmd: cmd.to_owned(),
            pairs: pairs.collect(),
        }
    }

    #[test]
    fn what_is_no_text_is_taken_as_long_as_it_is() {
        for line in [&b"cmd=\xff\xff\n"[..], b"\xff\n", b"mcmd=\xff\nendcmd\n"] {
            let mut talk = TaskConnection::default();
            talk.push(line);
            let _ = talk.take();
            talk.push(b"cmd=get_maxes\n");
            assert_eq!(talk.take(), Ok(Some(request("get_maxes", &[]))));
        }
    }

    #[test]
    fn lines_come_in_pieces() {
        let mut talk = TaskConnection::default();
        talk.push(b"cmd=init pmi_version=1 ");
        assert_eq!(talk.take(), Ok(None));
        talk.push(b"pmi_subversion=1\ncmd=get_maxes\nmcmd=spawn\nnprocs=2\n");
        assert_eq!(
            talk.take(),
            Ok(Some(request(
                "init",
                &[("pmi_version", "1"), ("pmi_subversion", "1")]
            )))
        );
        assert_eq!(talk.take(), Ok(Some(request("get_maxes", &[]))));
        assert_eq!(talk.take(), Ok(None));
        talk.push(b"execname=a b=c\nendcmd\n");
        assert_eq!(
            talk.take(),
            Ok(Some(request(
                "spawn",
                &[("nprocs", "2"), ("execname", "a b=c")]
            )))
        );
        talk.say("maxes", &[("kvsname_max", "256")]);
        assert_eq!(talk.output, b"cmd=maxes kvsname_max=256\n");
    }

    #[test]
    fn counted_requests_double_their_semicolons() {
        let mut talk = TaskConnection::default();
        talk.speak(Dialect::Two);
        talk.say("kvs-put", &[("key", "a"), ("value", "x;y=z")]);
        assert_eq!(talk.output, b"    31cmd=kvs-put;key=a;value=x;;y=z;");
        let sent = std::mem::take(&mut talk.output);
        talk.push(&sent[..20]);
        assert_eq!(talk.take(), Ok(None));
        talk.push(&sent[20..]);
        assert_eq!(
            talk.take(),
            Ok(Some(request(
                "kvs-put",
                &[("key", "a"), ("value", "x;y=z")]
            )))
        );
    }

    #[test]
    fn other_messages_are_no_requests() {
        let mut talk = TaskConnection::default();
        talk.push(b"GET / HTTP/1.0\n");
        assert_eq!(talk.take(), Err(UnknownProtocol));
        let mut talk = TaskConnection::default();
        talk.push(&vec![b'x'; REQUEST_MAX + 1]);
        assert_eq!(talk.take(), Err(UnknownProtocol));
        let mut talk = TaskConnection::default();
        talk.speak(Dialect::Two);
        talk.push(b"999999cmd=x;");
        assert_eq!(talk.take(), Err(UnknownProtocol));
    }

    #[test]
    fn mappings_are_as_short_as_they_can_be() {
        assert_eq!(mapping(&[vec![0, 1], vec![2, 3]]), "(vector,(0,2,2))");
        assert_eq!(
            mapping(&[vec![0, 1, 2], vec![3]]),
            "(vector,(0,1,3),(1,1,1))"
        );
        assert_eq!(
            mapping(&[vec![0, 3], vec![1, 4], vec![2]]),
            "(vector,(0,3,1),(0,2,1))"
        );
        assert_eq!(mapping(&[vec![0]]), "(vector,(0,1,1))");
    }
}
