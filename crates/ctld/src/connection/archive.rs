//! Archives of accounting, as administrators ask for them.

use super::{Connection, Served};
use muster_proto::archive::ArchiveRequest;
use muster_proto::client::Response;
use muster_proto::frame;
use std::io;
use tokio::sync::oneshot;

pub(super) async fn archive(
    client: &mut Connection,
    request: ArchiveRequest,
) -> io::Result<Served> {
    let entry = match client.may().await? {
        Ok(entry) => entry,
        Err(refusal) => return client.refuse_as(refusal).await,
    };
    let archives = client.shared.archives.clone();
    let conf = client.shared.configuration_path().to_owned();
    // It may take minutes, for which a controller that stops does not wait.
    let (answer, done) = oneshot::channel();
    let work = move || drop(answer.send(archives.run(&conf, request)));
    std::thread::Builder::new()
        .name("archive".to_owned())
        .spawn(work)?;
    match done.await.map_err(io::Error::other)? {
        Ok(lines) => {
            for line in &lines {
                log::info!("sacctmgr archive of {}: {line}", client.identity.user);
            }
            entry.done();
            client
                .send(&frame::encode(&Response::Archived(lines)))
                .await?;
            Ok(Served::Next)
        }
        Err(refusal) => client.refuse_entry(entry, refusal).await,
    }
}
