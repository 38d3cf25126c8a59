//! Jobs that ask for scarce resources beside nodes.

use super::accounting::{CAPPED, CAPPED_JOBS, LICENSE, capped};
use super::clients::Users;
use muster_model::account_limits::LimitAsk;
use muster_model::command::{AccountsAsk, AccountsEdit, QosAsk, UserCommand};
use muster_model::spec::JobSpec;

impl Users<'_> {
    /// An administrator makes the QOS with limits; it is never changed, so that nothing that runs can be over them.
    pub(super) fn make_qos(&mut self) {
        let limit = |name: &str, most: u32| LimitAsk::new(name, most.to_string());
        let qos = QosAsk {
            limits: vec![
                limit("grpjobs", CAPPED_JOBS.0),
                limit("maxjobsperuser", CAPPED_JOBS.1),
            ],
            ..QosAsk::default()
        };
        let edit = AccountsEdit {
            cluster: String::new(),
            names: vec![CAPPED.to_owned()],
            ask: AccountsAsk::AddQos(qos),
        };
        self.ask(0, UserCommand::EditAccounts(Box::new(edit)), None);
    }

    /// Sometimes a job asks for the QOS, or for licenses.
    pub(super) fn ask_for_scarce_resources(&mut self, spec: &mut JobSpec) {
        if self.world.random.one_in(4) {
            if capped(self.world).is_some() {
                spec.qos = Some(CAPPED.to_owned());
            } else if self.world.config.order.enforce_limits {
                self.make_qos();
            }
        }
        if !self.world.config.licenses.is_empty() && self.world.random.one_in(3) {
            spec.licenses = Some(format!(
                "{}:{}",
                LICENSE.0,
                self.world.random.small(1, LICENSE.1)
            ));
        }
    }
}
