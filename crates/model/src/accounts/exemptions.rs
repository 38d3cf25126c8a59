//! Limits of partitions that do not hold for jobs of a QOS, as its flags say.

use super::Qos;
use crate::config::PartitionConfig;
use crate::time::TimeLimit;

/// The limits of a partition that a job may be beyond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PartitionExemptions {
    /// Flag `PartitionMaxNodes`.
    pub max_nodes: bool,
    /// Flag `PartitionMinNodes`.
    pub min_nodes: bool,
    /// Flag `PartitionTimeLimit`.
    pub max_time: bool,
}

impl PartitionExemptions {
    /// The exemptions of a QOS' jobs.
    pub fn of(qos: &Qos) -> PartitionExemptions {
        PartitionExemptions {
            max_nodes: qos.has(Qos::PARTITION_MAX_NODES),
            min_nodes: qos.has(Qos::PARTITION_MIN_NODES),
            max_time: qos.has(Qos::PARTITION_TIME_LIMIT),
        }
    }

    /// The most nodes of a job in a partition.
    pub fn max_nodes_in(self, partition: &PartitionConfig) -> Option<u32> {
        partition.max_nodes.filter(|_| !self.max_nodes)
    }

    /// The fewest nodes of a job in a partition.
    pub fn min_nodes_in(self, partition: &PartitionConfig) -> u32 {
        match self.min_nodes {
            true => 0,
            false => partition.min_nodes,
        }
    }

    /// The longest time limit of a job in a partition.
    pub fn max_time_in(self, partition: &PartitionConfig) -> TimeLimit {
        match self.max_time {
            true => TimeLimit::Unlimited,
            false => partition.max_time,
        }
    }
}
