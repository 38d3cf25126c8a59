//! Messages between the controller and a verifier process. Both are of the same binary: there is one version, and no
//! older one to be read. What a process says is validated like anything from outside.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::command::JobUpdate;
use muster_model::limits::{CONTEXT_BYTES_MAX, NOTE_BYTES_MAX, SCRIPT_BYTES_MAX};
use muster_model::spec::JobSpec;
use muster_model::validate::Validate;
use muster_model::visible_text::beginning;
use muster_proto::frame::Message;

/// Bytes of the longest job_submit.lua.
pub const SOURCE_BYTES_MAX: usize = 4 << 20;
/// Lines for the user that one verification may have; more are left out.
pub const USER_LINES_MAX: usize = 64;
/// Lines for the log that one verification may have; more are left out.
pub const LOG_LINES_MAX: usize = 100;
/// Bytes of a line for the user or for the log.
pub const LINE_BYTES_MAX: usize = 4 << 10;

/// From the controller.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum ControllerRequest {
    /// The first one.
    #[n(0)]
    Load(#[n(0)] LoadScript),
    /// A submission or a change of a job.
    #[n(1)]
    Verify(#[n(0)] Box<Subject>),
    /// The data that the script asked for.
    #[n(2)]
    Answer(#[n(0)] DataReply),
}

/// The program of a process, and its bounds.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct LoadScript {
    /// The script's file.
    #[n(0)]
    pub path: String,
    /// The text to run where the file has errors: the last that had none.
    #[n(1)]
    #[valid(max_bytes = SOURCE_BYTES_MAX)]
    pub last_good: Option<ByteVec>,
    /// Milliseconds that one verification may take.
    #[n(2)]
    pub time_limit_ms: u64,
    /// Bytes that the script may use.
    #[n(3)]
    pub memory_bytes: u64,
    /// `ClusterName`.
    #[n(4)]
    pub cluster: String,
}

/// A request to be verified.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct Subject {
    /// The user that asks.
    #[n(0)]
    pub uid: u32,
    /// The name of that user.
    #[n(1)]
    pub user: String,
    /// The job as it is to be submitted; the job's own where it is changed.
    #[n(2)]
    pub spec: JobSpec,
    /// Its script.
    #[n(3)]
    #[valid(max_bytes = SCRIPT_BYTES_MAX)]
    pub script: Option<ByteVec>,
    /// Its encoded environment.
    #[n(4)]
    #[valid(max_bytes = CONTEXT_BYTES_MAX)]
    pub context: Option<ByteVec>,
    /// Which component of a heterogeneous job it is.
    #[n(5)]
    pub component: Option<u32>,
    /// The change, if it is one of a job that is there.
    #[n(6)]
    pub change: Option<Box<ProposedChange>>,
}

/// A change of a job.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct ProposedChange {
    /// As it was asked for.
    #[n(0)]
    pub update: JobUpdate,
    /// The job as it is.
    #[n(1)]
    pub job: Row,
}

/// A record as Lua sees it: fields that are absent are nil.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct Row {
    /// Its key in the table that it is in.
    #[n(0)]
    pub key: String,
    /// Names and values.
    #[n(1)]
    #[valid(max_bytes = NOTE_BYTES_MAX)]
    pub fields: Vec<(String, Value)>,
}

/// Bytes of a text in a list of all jobs: users choose how long theirs are.
const LISTED_TEXT_MAX: usize = 256;

/// Bytes of rows after which a part of a list ends: a message has a bound, and is made in one piece.
pub const PART_BYTES_MAX: usize = 1 << 20;
/// Bytes of a field beside its text, about.
const FIELD_BYTES: usize = 64;

impl Row {
    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        let field = |(name, value): &(String, Value)| {
            let text = match value {
                Value::Number(_) => 0,
                Value::Text(text) => text.len(),
            };
            name.len() + text + FIELD_BYTES
        };
        self.key.len() + self.fields.iter().map(field).sum::<usize>()
    }

    /// The row in a list that may have very many.
    #[must_use]
    pub fn shortened(mut self) -> Row {
        for (_, value) in &mut self.fields {
            if let Value::Text(text) = value {
                text.truncate(beginning(text, LISTED_TEXT_MAX).len());
                text.shrink_to_fit();
            }
        }
        self
    }
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum Value {
    /// A number.
    #[n(0)]
    Number(#[n(0)] i64),
    /// A text.
    #[n(1)]
    Text(
        #[n(0)]
        #[valid(max_bytes = NOTE_BYTES_MAX)]
        String,
    ),
}

/// The data that a script reads besides the job, when it does.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum DataQuery {
    /// The partitions that the user may use.
    #[n(0)]
    Partitions,
    /// Jobs from this number on (`slurm.jobs`), a part of them.
    #[n(5)]
    JobsFrom(#[n(0)] u64),
    /// All reservations (`slurm.reservations`).
    #[n(2)]
    Reservations,
    /// The user's default account and QOS, and what else accounting says of the job's association.
    #[n(3)]
    Association {
        /// The account; the default one if empty.
        #[n(0)]
        account: String,
        /// The partition.
        #[n(1)]
        partition: String,
    },
    /// The priority of a QOS.
    #[n(4)]
    QosPriority(#[n(0)] String),
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum DataReply {
    /// Records.
    #[n(0)]
    Rows(#[n(0)] Vec<Row>),
    /// A number, if there is one.
    #[n(1)]
    Number(#[n(0)] Option<i64>),
    /// A part of very many records, and the number from which on there are more.
    #[n(2)]
    Part(#[n(0)] Vec<Row>, #[n(1)] Option<u64>),
}

/// Importance of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Validate)]
#[cbor(index_only)]
pub enum Level {
    /// `slurm.log_error`.
    #[n(0)]
    Error,
    /// `slurm.log_info`.
    #[n(1)]
    Info,
    /// `slurm.log_verbose`, `slurm.log_debug`.
    #[n(2)]
    Debug,
    /// `slurm.log_debug2` and above.
    #[n(3)]
    Trace,
}

/// From a process.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum VerifierReport {
    /// The script is loaded: its text. The answer to [`ControllerRequest::Load`], and whenever the file has changed.
    #[n(0)]
    Loaded(
        #[n(0)]
        #[valid(max_bytes = SOURCE_BYTES_MAX)]
        ByteVec,
    ),
    /// The file cannot be run, and why; the text that was good before is run, if there is one.
    #[n(1)]
    Broken {
        /// Why.
        #[n(0)]
        why: String,
        /// Whether there is another text to run.
        #[n(1)]
        has_other: bool,
    },
    /// A line of the log.
    #[n(2)]
    Log {
        /// Importance.
        #[n(0)]
        level: Level,
        /// The line.
        #[n(1)]
        text: String,
    },
    /// It waits for an answer.
    #[n(3)]
    Question(#[n(0)] DataQuery),
    /// The end of a verification.
    #[n(4)]
    Verdict(#[n(0)] Box<Verdict>),
}

/// A verifier's answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct Verdict {
    /// Why it did not come to an end: the script has an error, or took too long.
    #[n(0)]
    pub failed: Option<String>,
    /// The value that the function returned: 0 accepts.
    #[n(1)]
    pub code: i64,
    /// Lines for the user.
    #[n(2)]
    #[valid(max_items = USER_LINES_MAX + 1)]
    pub lines: Vec<String>,
    /// The job, if it was changed.
    #[n(3)]
    pub spec: Option<Box<JobSpec>>,
    /// The script, if it was changed.
    #[n(4)]
    #[valid(max_bytes = SCRIPT_BYTES_MAX)]
    pub script: Option<ByteVec>,
    /// The environment, if it was changed.
    #[n(5)]
    #[valid(max_bytes = CONTEXT_BYTES_MAX)]
    pub context: Option<ByteVec>,
    /// The change of a job, if that was changed.
    #[n(6)]
    pub update: Option<Box<JobUpdate>>,
}

impl Message for ControllerRequest {}
impl Message for VerifierReport {}
