//! Which hosts are controllers, by DNS: the records `_slurmctld._tcp` of the host's domains (SRV, RFC 2782). Messages are made and read
//! by a library; here are the questions, by /etc/resolv.conf, and what counts of the answers. Who answers is not believed for that:
//! a controller proves itself by the credential that only it can read.

use anyhow::{Context as _, Result, bail, ensure};
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, RCODE, TYPE};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// The service, before the domain.
const SERVICE: &str = "_slurmctld._tcp";
/// Time limit for a server's answer, and number of questions to each (resolv.conf(5)'s are 5 s and 2).
const ANSWER_MAX: Duration = Duration::from_secs(3);
const ROUNDS: usize = 2;
/// Servers and domains that are looked at, as by the C library.
const SERVERS_MAX: usize = 3;
const DOMAINS_MAX: usize = 6;
/// Records that count.
const RECORDS_MAX: usize = 16;
/// DNS's port.
const PORT: u16 = 53;

/// Why no controller is known.
#[derive(Debug)]
pub(crate) enum LookupError {
    /// Nobody answered: the same may succeed later.
    Silent(anyhow::Error),
    /// There is no such record.
    Absent(String),
}

/// Settings of /etc/resolv.conf.
#[derive(Debug, Default, PartialEq, Eq)]
struct Resolver {
    servers: Vec<SocketAddr>,
    domains: Vec<String>,
}

/// A record of a service.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    priority: u16,
    weight: u16,
    port: u16,
    target: String,
}

/// The controllers, as `--conf-server` would name them, the first to ask first.
///
/// # Errors
/// There are none, or nobody says so.
pub(crate) fn controllers() -> Result<String, LookupError> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let host = nix::unistd::gethostname().unwrap_or_default();
    let resolver = Resolver::parse(&text, &host.to_string_lossy());
    if resolver.servers.is_empty() || resolver.domains.is_empty() {
        let why = "/etc/resolv.conf names no server, or no domain";
        return Err(LookupError::Absent(why.to_owned()));
    }
    for domain in &resolver.domains {
        let name = format!("{SERVICE}.{domain}");
        let records = resolver.ask(&name).map_err(LookupError::Silent)?;
        if !records.is_empty() {
            return Ok(in_order(records));
        }
    }
    let domains = resolver.domains.join(", ");
    Err(LookupError::Absent(format!(
        "no domain of this host ({domains}) has a record {SERVICE} (SRV)"
    )))
}

/// The lowest priority first; of equal ones those with the greatest weight.
fn in_order(mut records: Vec<Record>) -> String {
    records.sort_by_key(|r| (r.priority, u16::MAX - r.weight));
    let servers = records
        .iter()
        .take(RECORDS_MAX)
        .map(|r| format!("{}:{}", r.target, r.port));
    servers.collect::<Vec<_>>().join(",")
}

impl Resolver {
    fn parse(text: &str, host: &str) -> Resolver {
        let mut found = Resolver::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    let server = address.map(|address| SocketAddr::from((address, PORT)));
                    found.servers.extend(server);
                }
                // The last of these lines counts.
                Some("search" | "domain") => {
                    let domains = words.map(|word| word.trim_end_matches('.').to_owned());
                    found.domains = domains.filter(|word| !word.is_empty()).collect();
                }
                _ => {}
            }
        }
        if found.domains.is_empty() {
            let own = host.split_once('.').map(|(_, domain)| domain.to_owned());
            found.domains.extend(own);
        }
        found.servers.truncate(SERVERS_MAX);
        found.domains.truncate(DOMAINS_MAX);
        found
    }

    /// The records of a name; none if there are none.
    fn ask(&self, name: &str) -> Result<Vec<Record>> {
        let mut failed = anyhow::anyhow!("no server is named");
        for server in self
            .servers
            .iter()
            .cycle()
            .take(self.servers.len() * ROUNDS)
        {
            match ask_server(*server, name) {
                Ok(records) => return Ok(records),
                Err(e) => failed = e.context(format!("{server} does not say what {name} is")),
            }
        }
        Err(failed)
    }
}

fn ask_server(server: SocketAddr, name: &str) -> Result<Vec<Record>> {
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(|e| anyhow::anyhow!("no random numbers: {e}"))?;
    let id = u16::from_ne_bytes(id);
    let mut question = Packet::new_query(id);
    question.set_flags(PacketFlag::RECURSION_DESIRED);
    let wanted = Name::new(name).context("invalid DNS name")?;
    let asked = Question::new(wanted, TYPE::SRV.into(), CLASS::IN.into(), false);
    question.questions.push(asked);
    let question = question.build_bytes_vec()?;
    let answer = ask_by_udp(server, &question, id)?;
    let is_cut = Packet::parse(&answer).is_ok_and(|p| p.has_flags(PacketFlag::TRUNCATION));
    match is_cut {
        true => read_answer(&ask_by_tcp(server, &question)?, id, name),
        false => read_answer(&answer, id, name),
    }
}

fn ask_by_udp(server: SocketAddr, question: &[u8], id: u16) -> Result<Vec<u8>> {
    let any: IpAddr = match server.is_ipv4() {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Its port is drawn by the kernel, and datagrams of others are not received.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    socket.send(question)?;
    let until = Instant::now() + ANSWER_MAX;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "no answer in {} s", ANSWER_MAX.as_secs());
        socket.set_read_timeout(Some(left))?;
        let count = socket.recv(&mut buffer)?;
        // An answer to another question is a guess.
        if buffer[..count].starts_with(&id.to_be_bytes()) {
            buffer.truncate(count);
            return Ok(buffer);
        }
    }
}

fn ask_by_tcp(server: SocketAddr, question: &[u8]) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    let length = u16::try_from(question.len()).context("the question is too long")?;
    stream.write_all(&[&length.to_be_bytes(), question].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// The records of an answer to that question.
fn read_answer(bytes: &[u8], id: u16, name: &str) -> Result<Vec<Record>> {
    let answer = Packet::parse(bytes).context("the answer cannot be read")?;
    ensure!(
        answer.id() == id && answer.has_flags(PacketFlag::RESPONSE),
        "this does not answer the question"
    );
    match answer.rcode() {
        RCODE::NoError => {}
        RCODE::NameError => return Ok(Vec::new()),
        other => bail!("the server says {other:?}"),
    }
    let mut records = Vec::new();
    for answer in &answer.answers {
        let RData::SRV(record) = &answer.rdata else {
            continue;
        };
        let target = record.target.to_string();
        let target = target.trim_end_matches('.');
        let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let is_name = |name: &str| !name.is_empty() && name.chars().all(is_host);
        // `.` says that there is no such service.
        if answer.name.to_string().eq_ignore_ascii_case(name) && is_name(target) && record.port != 0
        {
            records.push(Record {
                priority: record.priority,
                weight: record.weight,
                port: record.port,
                target: target.to_owned(),
            });
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use simple_dns::ResourceRecord;
    use simple_dns::rdata::SRV;

    #[test]
    fn servers_and_domains_are_those_of_resolv_conf() {
        let text = "# by hand\ndomain old\nsearch a.example. b.example\nnameserver 10.0.0.1\n\
                    nameserver fd00::1\nnameserver x\noptions timeout:1\n";
        let found = Resolver::parse(text, "host.c.example");
        assert_eq!(found.domains, ["a.example", "b.example"]);
        let servers: Vec<String> = found.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["10.0.0.1:53", "[fd00::1]:53"]);
        assert_eq!(Resolver::parse("", "host.c.example").domains, ["c.example"]);
        assert_eq!(Resolver::parse("", "host"), Resolver::default());
    }

    fn answer(id: u16, records: &[(u16, u16, u16, &str)]) -> Vec<u8> {
        let mut packet = Packet::new_reply(id);
        for &(priority, weight, port, target) in records {
            let target = Name::new(target).unwrap();
            let data = RData::SRV(SRV {
                priority,
                weight,
                port,
                target,
            });
            let name = Name::new("_slurmctld._tcp.example").unwrap();
            packet
                .answers
                .push(ResourceRecord::new(name, CLASS::IN, 60, data));
        }
        packet.build_bytes_vec().unwrap()
    }

    #[test]
    fn the_lowest_priority_is_asked_first() {
        let name = "_slurmctld._tcp.example";
        let bytes = answer(
            7,
            &[
                (20, 1, 6817, "c"),
                (10, 1, 7000, "b"),
                (10, 9, 6817, "a.example"),
            ],
        );
        let records = read_answer(&bytes, 7, name).unwrap();
        assert_eq!(in_order(records), "a.example:6817,b:7000,c:6817");
    }

    #[test]
    fn what_is_no_answer_is_no_record() {
        let name = "_slurmctld._tcp.example";
        let bytes = answer(7, &[(1, 1, 6817, "a")]);
        assert!(read_answer(&bytes, 8, name).is_err());
        assert!(
            read_answer(&bytes, 7, "_slurmctld._tcp.other")
                .unwrap()
                .is_empty()
        );
        for length in 0..bytes.len() {
            // Any error will do, as long as it is one.
            let cut = read_answer(&bytes[..length], 7, name);
            assert!(cut.is_err() || cut.unwrap().is_empty(), "{length}");
        }
        let odd = answer(
            7,
            &[(1, 1, 0, "a"), (1, 1, 6817, "a b"), (1, 1, 6817, "a,b")],
        );
        assert!(read_answer(&odd, 7, name).unwrap().is_empty());
    }
}
