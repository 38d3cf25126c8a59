//! qping: whether the controller answers.

use super::arguments::{self, OperandPosition};
use super::fail;
use crate::connect::{Client, unexpected};
use crate::listing::context::Ctx;
use crate::options::{HelpForm, Spec, flag, opt};
use crate::say;
use crate::zone;
use muster_proto::client::{Query, Response};
use std::process::ExitCode;

/// qping.
pub(crate) static SPEC: Spec = Spec {
    name: "qping",
    about: "Asks the controller whether it is there.",
    operands: "[HOST PORT NAME ID]",
    form: HelpForm::GridEngine,
    options: &[
        flag("info", "what the controller says of itself"),
        flag("f", "as -info").partly("as -info"),
        flag("noalias", "host names as they are").stored("no names are changed"),
        opt("i", "interval", "ask again and again").refused("it asks once; use watch(1)"),
        opt("dump_tag", "tag", "messages of the controller").refused("see sdiag"),
        flag("ssl", "by an encrypted connection").stored("connections to other hosts always are"),
        flag("tcp", "by a connection without encryption")
            .refused("connections to other hosts are encrypted"),
        flag("dump", "messages of the controller").refused("see sdiag"),
        flag("help", "print this help"),
    ],
    variables: &[],
    notes: "The controller is the one of slurm.conf, whatever the operands name. It is asked once.\n",
};

/// Runs qping.
pub(crate) fn main(args: &[String]) -> ExitCode {
    let parsed = match arguments::parse(&SPEC, args, OperandPosition::Mixed) {
        Ok(parsed) => parsed,
        Err(wrong) => return fail(wrong.text(), 1),
    };
    if parsed.has("help") {
        say::stdout(&SPEC.help());
        return ExitCode::SUCCESS;
    }
    let answer = Client::connect().and_then(|mut client| {
        let port = client.endpoint.port;
        match client.query(Query::Ping)? {
            Response::Pong(pong) => Ok((pong, port)),
            other => Err(unexpected(&other)),
        }
    });
    let (pong, port) = match answer {
        Ok(answer) => answer,
        Err(error) => {
            return fail(
                &format!("endpoint {}/1: {error}", parsed.operands.join("/")),
                1,
            );
        }
    };
    let ctx = Ctx::new(&pong.cluster);
    let now = zone::now();
    let stamp = ctx.zoned(now).strftime("%m/%d/%Y %H:%M:%S");
    let run_s = now.since_ms(pong.started) / 1000;
    let host = &pong.hostname;
    if !parsed.has("info") && !parsed.has("f") {
        say::stdout(&format!(
            "{stamp} endpoint {host}/qmaster/1 at port {port} is up since {run_s} seconds\n"
        ));
        return ExitCode::SUCCESS;
    }
    let started = ctx.zoned(pong.started).strftime("%m/%d/%Y %H:%M:%S");
    say::stdout(&format!(
        "{stamp}:\nSIRM version:             0.1\nSIRM message id:          1\n\
         start time:               {started} ({})\nrun time [s]:             {run_s}\n\
         messages in read buffer:  0\nmessages in write buffer: 0\nno. of connected clients: 1\n\
         status:                   0\ninfo:                     muster {} | OK\nMonitor:                  disabled\n",
        pong.started.unix_s(),
        pong.version
    ));
    ExitCode::SUCCESS
}
