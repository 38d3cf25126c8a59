//! Archives of accounting, as administrators ask for them.

use super::{Connection, Served};
use muster_proto::archive::ArchiveRequest;
use muster_proto::client::Response;
use muster_proto::frame;
use std::io;
use tokio::sync::oneshot;

impl Connection {
    pub(super) async fn archive(&mut self, request: ArchiveRequest) -> io::Result<Served> {
        let entry = match self.may().await? {
            Ok(entry) => entry,
            Err(refusal) => return self.refuse_as(refusal).await,
        };
        let archives = self.shared.archives.clone();
        let conf = self.shared.configuration_path().to_owned();
        // It may take minutes, for which a controller that stops does not wait.
        let (answer, done) = oneshot::channel();
        let work = move || drop(answer.send(archives.run(&conf, &request)));
        std::thread::Builder::new()
            .name("archive".to_owned())
            .spawn(work)?;
        match done.await.map_err(io::Error::other)? {
            Ok(lines) => {
                for line in &lines {
                    log::info!("sacctmgr archive of {}: {line}", self.identity.user);
                }
                entry.done();
                self.send(&frame::encode(&Response::Archived(lines)))
                    .await?;
                Ok(Served::Next)
            }
            Err(refusal) => self.refuse_entry(entry, refusal).await,
        }
    }
}
