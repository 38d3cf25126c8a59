//! Why no job of a shape can run, as its lanes have it. What each lane lacks is found out where they are made and visited.

use super::Queue;
use muster_model::job::Reason;

impl Queue {
    /// The reservation that keeps a shape back everywhere it could run.
    pub(crate) fn cause(&self, shape: u32) -> Option<Reason> {
        let lanes = self.shapes.get(shape).lanes.iter();
        let mut lanes = lanes
            .map(|l| self.lanes.get(*l))
            .filter(|l| l.key.is_some());
        let first = lanes.next()?.cause?;
        lanes.all(|lane| lane.cause.is_some()).then_some(first)
    }

    /// Why no job of the shape can run anywhere, if so.
    pub(crate) fn fatal(&self, shape: u32) -> Option<Reason> {
        let lanes = &self.shapes.get(shape).lanes;
        if lanes.is_empty() && !self.shapes.get(shape).kind.outside {
            return Some(Reason::Reservation);
        }
        let mut reasons = lanes
            .iter()
            .map(|&l| self.lanes.get(l).demand.as_ref().err().copied());
        let first = reasons.next().unwrap_or(Some(Reason::PartitionConfig))?;
        reasons.all(|r| r.is_some()).then_some(first)
    }
}
