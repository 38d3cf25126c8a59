//! A process of a job, as launcher and agent name it, and as an agent names it to commands.

use minicbor::decode::{self, Decoder};
use minicbor::encode::{self, Encoder, Write};
use minicbor::{Decode, Encode};
use muster_model::ids::StepNo;
use muster_model::validate::Validate;

/// A process of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Validate)]
pub struct Process {
    /// The process id on the node.
    pub pid: u32,
    /// The step of the process.
    pub step: StepNo,
    /// For a task, its numbers.
    pub task: Option<TaskNumbers>,
}

/// The numbers of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub struct TaskNumbers {
    /// Among those of the step on its node.
    #[n(0)]
    pub local: u32,
    /// Among all of the step.
    #[n(1)]
    pub global: u32,
}

/// An array of three, also where the last is absent: a derived one would leave that out, and the two sides may be of two
/// versions.
impl<C> Encode<C> for Process {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        (self.pid, self.step, self.task).encode(encoder, context)
    }
}

impl<'b, C> Decode<'b, C> for Process {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Process, decode::Error> {
        let (pid, step, task) = Decode::decode(decoder, context)?;
        Ok(Process { pid, step, task })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In versions of agents and launchers that may still run, this type was a tuple.
    #[test]
    fn processes_are_encoded_as_arrays() {
        for task in [None, Some((2, 9))] {
            let step = StepNo(3);
            let process = Process {
                pid: 44,
                step,
                task: task.map(|(local, global)| TaskNumbers { local, global }),
            };
            let bytes = minicbor::to_vec(process).unwrap();
            assert_eq!(bytes, minicbor::to_vec((44_u32, 3_u32, task)).unwrap());
            assert_eq!(minicbor::decode::<Process>(&bytes).unwrap(), process);
        }
    }
}
