# needs: parsl==2026.10.26
"""parsl: a block of workers on two nodes, functions on them, a bash app."""

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SrunLauncher
from parsl.providers import SlurmProvider


@parsl.python_app
def double(x):
    return 2 * x


@parsl.bash_app
def words(stdout=None):
    return "echo from a job; test -n \"$SLURM_JOB_ID\""


def main():
    provider = SlurmProvider(
        partition="batch",
        nodes_per_block=2,
        init_blocks=1,
        max_blocks=1,
        walltime="00:02:00",
        mem_per_node=1,
        exclusive=False,
        launcher=SrunLauncher(),
    )
    executor = HighThroughputExecutor(
        max_workers_per_node=1, address="127.0.0.1", loopback_address="127.0.0.1", provider=provider
    )
    with parsl.load(Config(executors=[executor], run_dir="parsl")):
        assert [f.result(timeout=90) for f in [double(i) for i in range(4)]] == [0, 2, 4, 6]
        assert words(stdout="words").result(timeout=90) == 0


if __name__ == "__main__":
    main()
