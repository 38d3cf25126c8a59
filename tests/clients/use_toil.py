# needs: toil==9.6.0
"""toil: a root job with two children on the slurm batch system."""

from toil.common import Toil
from toil.job import Job


def child(job, x):
    return 2 * x


def root(job):
    return [job.addChildJobFn(child, x, memory="300M", disk="10M").rv() for x in (1, 2)]


def main():
    options = Job.Runner.getDefaultOptions("./store")
    options.batchSystem = "slurm"
    options.slurmPartition = "batch"
    options.slurmTime = "0:300"
    options.clean = "always"
    options.disableCaching = True
    with Toil(options) as toil:
        assert toil.start(Job.wrapJobFn(root, memory="300M", disk="10M")) == [2, 4]


if __name__ == "__main__":
    main()
