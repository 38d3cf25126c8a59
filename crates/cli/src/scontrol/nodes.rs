//! `scontrol create NodeName=`: nodes that no file names. The line is read here, as it would be in slurm.conf; the controller checks
//! what comes of it.

use muster_conf::{dynamic_nodes, endpoint, files};
use muster_model::command::UserCommand;
use muster_model::node_state::InitialState;

/// Command that makes the nodes of `NodeName=NAMES Key=Value ...`; the first word may be the entity alone.
///
/// # Errors
/// The error in the line.
pub(crate) fn creation(words: &[String]) -> Result<UserCommand, String> {
    let mut words = words.to_vec();
    if let [entity, name, ..] = words.as_slice()
        && !entity.contains('=')
    {
        // `create node NAME` and `create node nodename=NAME`.
        let named = match name.contains('=') {
            true => name.clone(),
            false => format!("NodeName={name}"),
        };
        words.splice(..2, [named]);
    }
    let conf = endpoint::conf_path();
    let (cluster, _) = muster_conf::load(&conf);
    let gres_conf = conf.with_file_name("gres.conf");
    let gres = match gres_conf.exists() {
        true => files::load_gres(&gres_conf).0,
        false => Vec::new(),
    };
    let nodes = dynamic_nodes(&quoted(&words), &cluster).map_err(|e| e.to_string())?;
    let begins = |state| matches!(state, InitialState::Cloud | InitialState::Future);
    if let Some(node) = nodes.iter().find(|node| !begins(node.state)) {
        return Err(format!(
            "node {}: add State=CLOUD or State=FUTURE; others are made by slurmd -Z on their host",
            node.name
        ));
    }
    let nodes = nodes.iter().map(|node| node.config(&gres)).collect();
    Ok(UserCommand::CreateNodes { nodes })
}

/// The words as a line of slurm.conf.
fn quoted(words: &[String]) -> String {
    let words = words.iter().map(|word| match word.split_once('=') {
        Some((key, value)) if value.contains(char::is_whitespace) => {
            format!("{key}=\"{}\"", value.replace('"', ""))
        }
        _ => word.clone(),
    });
    words.collect::<Vec<_>>().join(" ")
}
