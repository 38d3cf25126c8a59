//! Limits of jobs beside nodes: priorities of many factors, a QOS with limits, licenses. Some clusters have them.

use super::World;
use crate::random::Random;
use muster_model::accounts::Qos;
use muster_model::config::ClusterConfig;
use muster_model::licenses::LicenseCount;
use muster_model::order_config::Multifactor;

/// The QOS that has limits, where there is one.
pub(crate) const CAPPED: &str = "capped";
/// Jobs with that QOS that may run at once, and of each user.
pub(crate) const CAPPED_JOBS: (u32, u32) = (3, 2);
/// The license, and how many there are.
pub(crate) const LICENSE: (&str, u32) = ("foo", 3);

/// Which of these a cluster has.
pub(super) fn draw(random: &mut Random, config: &mut ClusterConfig) {
    if random.one_in(2) {
        config.licenses = vec![LicenseCount::new(LICENSE.0, LICENSE.1)];
    }
    config.order.enforce_limits = random.one_in(2);
    if random.one_in(3) {
        config.order.multifactor = Some(Multifactor {
            weight_age: random.small(0, 1000),
            weight_fair_share: random.small(0, 1000),
            weight_job_size: random.small(0, 1000),
            weight_qos: random.small(0, 1000),
            max_age_s: 600,
            calc_period_s: u64::from(random.small(1, 30)),
            half_life_s: u64::from(random.small(0, 300)),
            fair_tree: random.one_in(2),
            dampening: 1,
            favor_small: random.one_in(2),
            calculate_running: random.one_in(2),
            incr_only: random.one_in(3),
            ..Multifactor::default()
        });
    }
}

/// The QOS, if the cluster keeps limits and has it.
pub(crate) fn capped(world: &World) -> Option<&Qos> {
    let state = world.controller.as_ref()?.writer.state();
    let kept = world.config.order.enforce_limits;
    state.accounts.qos.get(CAPPED).filter(|_| kept)
}
