//! A verifier process: it has one Lua machine and a connection to the controller, which is its standard input. It reads an
//! order, carries it out and reports; it ends when the controller closes the connection, or kills it.

use crate::lua::{Host, Script};
use crate::message::{
    ControllerRequest, DataQuery, DataReply, Level, LoadScript, SOURCE_BYTES_MAX, Verdict,
    VerifierReport,
};
use minicbor::bytes::ByteVec;
use muster_proto::frame;
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::rc::Rc;

/// The process's name.
pub const NAME: &str = "muster-verifier";

/// Runs the process.
pub fn main() -> ExitCode {
    let stream = io::stdin().as_fd().try_clone_to_owned();
    let Ok(stream) = stream.map(UnixStream::from) else {
        return ExitCode::FAILURE;
    };
    match serve(stream) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Serves a connection until it is closed.
///
/// # Errors
/// When the connection breaks, or what comes is no order.
pub fn serve(stream: UnixStream) -> io::Result<()> {
    let link = Rc::new(Link {
        stream: RefCell::new(stream),
    });
    let Some(ControllerRequest::Load(load)) = link.next()? else {
        return Err(io::Error::other("the first order says what to load"));
    };
    let mut loaded = Loaded {
        load,
        link: Rc::clone(&link),
        file: None,
        script: None,
    };
    loaded.start()?;
    while let Some(order) = link.next()? {
        let ControllerRequest::Verify(subject) = order else {
            return Err(io::Error::other("no answer was asked for"));
        };
        loaded.look_again()?;
        let verdict = match &loaded.script {
            Some(script) => script.verify(&subject),
            None => Verdict {
                failed: Some(format!("{} has errors", loaded.load.path)),
                ..Verdict::default()
            },
        };
        link.send(&VerifierReport::Verdict(Box::new(verdict)))?;
    }
    Ok(())
}

/// The connection to the controller.
struct Link {
    stream: RefCell<UnixStream>,
}

impl Link {
    fn next(&self) -> io::Result<Option<ControllerRequest>> {
        match frame::read(&mut *self.stream.borrow_mut()) {
            Ok(order) => Ok(Some(order)),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn send(&self, report: &VerifierReport) -> io::Result<()> {
        frame::write(&mut *self.stream.borrow_mut(), report)
    }
}

impl Host for Link {
    fn log(&self, level: Level, text: &str) {
        let text = text.to_owned();
        // A controller that is gone reads no log; the process ends at its next order.
        let _ = self.send(&VerifierReport::Log { level, text });
    }

    fn ask(&self, question: DataQuery) -> Option<DataReply> {
        self.send(&VerifierReport::Question(question)).ok()?;
        match self.next() {
            Ok(Some(ControllerRequest::Answer(answer))) => Some(answer),
            _ => None,
        }
    }

    fn give_up(&self) -> ! {
        std::process::exit(1)
    }
}

/// Which content a file has: it is read again when this changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version(u64, u64, i64, i64);

impl Version {
    fn of(path: &str) -> Option<Version> {
        let meta = fs::metadata(path).ok()?;
        Some(Version(
            meta.ino(),
            meta.len(),
            meta.mtime(),
            meta.mtime_nsec(),
        ))
    }
}

/// The script that runs, and the file that it is from.
struct Loaded {
    load: LoadScript,
    link: Rc<Link>,
    file: Option<Version>,
    script: Option<Script>,
}

impl Loaded {
    /// The file; where it has errors, the text that had none.
    fn start(&mut self) -> io::Result<()> {
        self.file = Version::of(&self.load.path);
        let Err(why) = self.load_file() else {
            return self.said_loaded();
        };
        if let Some(text) = self.load.last_good.clone() {
            self.script = Script::load(&text, &self.load, Rc::clone(&self.link) as _).ok();
        }
        let has_other = self.script.is_some();
        self.link.send(&VerifierReport::Broken { why, has_other })
    }

    fn load_file(&mut self) -> Result<(), String> {
        let path = &self.load.path;
        let cannot = |e: io::Error| format!("{path}: {e}");
        let mut source = Vec::new();
        let most = u64::try_from(SOURCE_BYTES_MAX).unwrap_or(u64::MAX);
        let file = File::open(path).map_err(cannot)?;
        file.take(most + 1)
            .read_to_end(&mut source)
            .map_err(cannot)?;
        if source.len() > SOURCE_BYTES_MAX {
            return Err(format!("{path} has more than {SOURCE_BYTES_MAX} bytes"));
        }
        self.script = Some(Script::load(
            &source,
            &self.load,
            Rc::clone(&self.link) as _,
        )?);
        self.load.last_good = Some(source.into());
        Ok(())
    }

    fn said_loaded(&self) -> io::Result<()> {
        let text = self.load.last_good.clone();
        self.link.send(&VerifierReport::Loaded(
            text.unwrap_or_else(|| ByteVec::from(Vec::new())),
        ))
    }

    /// Loads the file if it has changed. What runs goes on where it has errors.
    fn look_again(&mut self) -> io::Result<()> {
        let version = Version::of(&self.load.path);
        if version == self.file {
            return Ok(());
        }
        self.file = version;
        match self.load_file() {
            Ok(()) => self.said_loaded(),
            Err(why) => {
                let has_other = self.script.is_some();
                self.link.send(&VerifierReport::Broken { why, has_other })
            }
        }
    }
}
