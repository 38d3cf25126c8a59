//! Fuzz targets: every decoder of bytes that other processes send, and decisions on these messages. The targets are
//! functions of bytes that must not panic; an ordinary test runs them on the corpus.

#[path = "targets/channel.rs"]
mod channel;
#[path = "targets/configuration.rs"]
mod configuration;
#[path = "targets/credentials.rs"]
mod credentials;
#[path = "targets/decisions.rs"]
mod decisions;
#[path = "targets/journal.rs"]
mod journal;
#[path = "targets/messages.rs"]
mod messages;
#[path = "targets/pmix.rs"]
mod pmix;
#[path = "targets/rest.rs"]
mod rest;
#[path = "targets/steps.rs"]
mod steps;
#[path = "targets/texts.rs"]
mod texts;
#[path = "targets/verifiers.rs"]
mod verifiers;

/// Form of an input, for the mutator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Anything.
    Bytes,
    /// One CBOR value after so many bytes.
    Cbor {
        /// How many.
        #[allow(dead_code, reason = "the engine asks, the test does not")]
        head: usize,
    },
}

/// A target.
pub(crate) struct Target {
    /// Its name, and that of its directory in the corpus.
    pub(crate) name: &'static str,
    /// Form of its inputs.
    #[allow(dead_code, reason = "the engine asks, the test does not")]
    pub(crate) form: Form,
    /// Runs it on an input.
    pub(crate) run: fn(&[u8]),
    /// Inputs to begin with.
    pub(crate) seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub(crate) const TARGETS: &[Target] = &[
    Target {
        name: "messages",
        form: Form::Cbor { head: 1 },
        run: messages::of_protocol,
        seeds: messages::seeds_of_protocol,
    },
    Target {
        name: "greetings",
        form: Form::Cbor { head: 1 },
        run: messages::of_greetings,
        seeds: messages::seeds_of_greetings,
    },
    Target {
        name: "pmix",
        form: Form::Bytes,
        run: pmix::run,
        seeds: pmix::seeds,
    },
    Target {
        name: "shim_messages",
        form: Form::Cbor { head: 1 },
        run: messages::of_node,
        seeds: messages::seeds_of_node,
    },
    Target {
        name: "records",
        form: Form::Cbor { head: 1 },
        run: messages::of_journal,
        seeds: messages::seeds_of_journal,
    },
    Target {
        name: "decisions",
        form: Form::Cbor { head: 0 },
        run: decisions::run,
        seeds: decisions::seeds,
    },
    Target {
        name: "step_layout",
        form: Form::Cbor { head: 3 },
        run: steps::run,
        seeds: steps::seeds,
    },
    Target {
        name: "hostlists",
        form: Form::Bytes,
        run: texts::hostlists,
        seeds: texts::seeds_of_hostlists,
    },
    Target {
        name: "texts",
        form: Form::Bytes,
        run: texts::options,
        seeds: texts::seeds_of_options,
    },
    Target {
        name: "configuration",
        form: Form::Bytes,
        run: configuration::run,
        seeds: configuration::seeds,
    },
    Target {
        name: "journal",
        form: Form::Bytes,
        run: journal::run,
        seeds: journal::seeds,
    },
    Target {
        name: "channel",
        form: Form::Bytes,
        run: channel::run,
        seeds: channel::seeds,
    },
    Target {
        name: "credentials",
        form: Form::Bytes,
        run: credentials::run,
        seeds: credentials::seeds,
    },
    Target {
        name: "verifiers",
        form: Form::Cbor { head: 1 },
        run: verifiers::messages,
        seeds: verifiers::seeds_of_messages,
    },
    Target {
        name: "jsv",
        form: Form::Bytes,
        run: verifiers::lines,
        seeds: verifiers::seeds_of_lines,
    },
    Target {
        name: "rest",
        form: Form::Bytes,
        run: rest::run,
        seeds: rest::seeds,
    },
];

/// An input that begins with a byte, and goes on with a CBOR value.
fn headed(head: &[u8], value: &muster_hostile::cbor::Value) -> Vec<u8> {
    [head, &value.encode()].concat()
}
