# needs: dask-jobqueue==0.9.0 parsl==2026.10.26 gridmap==0.15.0 batchspawner==1.3.0 jupyterhub==6.1.1
"""Programs that drive Grid Engine: dask-jobqueue's SGECluster, parsl's GridEngineProvider, batchspawner's spawner, gridmap."""

import asyncio
import getpass
import os
import shutil
import sys
import time
from pathlib import Path


def with_dask():
    from dask.distributed import Client
    from dask_jobqueue import SGECluster

    with SGECluster(
        queue="all.q",
        cores=1,
        processes=1,
        memory="400MB",
        walltime="00:02:00",
        interface="lo",
        log_directory="log",
        job_extra_directives=["-pe smp 1"],
    ) as cluster, Client(cluster) as client:
        cluster.scale(jobs=2)
        client.wait_for_workers(2, timeout=90)
        assert client.gather(client.map(lambda x: x * x, range(5))) == [0, 1, 4, 9, 16]
        cluster.scale(0)


def with_parsl():
    import parsl
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.launchers import SingleNodeLauncher
    from parsl.providers import GridEngineProvider

    @parsl.python_app
    def double(x):
        return 2 * x

    provider = GridEngineProvider(
        init_blocks=2,
        max_blocks=2,
        walltime="00:02:00",
        queue="all.q",
        scheduler_options="#$ -pe smp 1",
        # A job of qsub has the variables of its node.
        worker_init=f"export PATH={os.path.dirname(sys.executable)}:$PATH",
        launcher=SingleNodeLauncher(),
    )
    executor = HighThroughputExecutor(
        max_workers_per_node=1, address="127.0.0.1", loopback_address="127.0.0.1", provider=provider
    )
    with parsl.load(Config(executors=[executor], run_dir="parsl")):
        assert [f.result(timeout=90) for f in [double(i) for i in range(4)]] == [0, 2, 4, 6]


async def with_batchspawner():
    from batchspawner import GridengineSpawner
    from batchspawner.batchspawner import JobStatus
    from jupyterhub import orm
    from jupyterhub.objects import Hub
    from jupyterhub.user import User

    class Spawner(GridengineSpawner):
        # Whoever runs this is whom the server is for.
        exec_prefix = ""
        batchspawner_singleuser_cmd = ""

        def get_env(self):
            kept = {k: v for k, v in os.environ.items() if k.startswith("SLURM") or k in ("PATH", "HOME", "USER")}
            return kept | {"GREETING": "hello"}

        def cmd_formatted_for_batch(self):
            return "bash -c 'echo $GREETING; sleep 1000'"

    session = orm.new_session_factory(url="sqlite:///:memory:")()
    record = orm.User(name=getpass.getuser())
    session.add(record)
    session.commit()
    home = str(Path("spawner").resolve())
    os.makedirs(home, exist_ok=True)
    spawner = Spawner(hub=Hub(), user=User(record, {}), req_homedir=home)
    await spawner.submit_batch_script()
    assert spawner.job_id.isdigit(), spawner.job_id
    until = time.time() + 60
    while await spawner.query_job_status() != JobStatus.RUNNING:
        assert time.time() < until, spawner.job_status
        await asyncio.sleep(0.2)
    assert spawner.state_gethost().startswith("n"), spawner.job_status
    log = Path(home, ".jupyterhub.sge.out")
    while not (log.exists() and "hello" in log.read_text()):
        assert time.time() < until, "the job wrote nothing"
        await asyncio.sleep(0.2)
    await spawner.cancel_batch_job()
    while await spawner.poll() is None:
        assert time.time() < until, spawner.job_status
        await asyncio.sleep(0.2)


def double(x):
    return 2 * x


def with_gridmap():
    muster = Path(os.path.realpath(shutil.which("squeue")))
    roots = [Path(os.environ.get("MUSTER_HOME", "/nowhere")), *muster.parents]
    libraries = [at for root in roots for at in [*root.glob("lib/**/libdrmaa.so*"), *root.glob("libdrmaa.so*")]]
    if not libraries:
        return "no libdrmaa"
    os.environ["DRMAA_LIBRARY_PATH"] = str(libraries[0])
    os.environ |= {"TEMP_DIR": os.getcwd(), "USE_MEM_FREE": "FALSE", "ERROR_MAIL_RECIPIENT": "root@localhost"}
    from gridmap import grid_map

    found = grid_map(double, [1, 2, 3], queue="all.q", temp_dir=os.getcwd(), quiet=False, require_cluster=True)
    assert found == [2, 4, 6], found


def main():
    for name in sys.argv[1:] or ["dask", "parsl", "batchspawner", "gridmap"]:
        work = globals()[f"with_{name}"]
        print(f"{name}: ", flush=True)
        done = asyncio.run(work()) if asyncio.iscoroutinefunction(work) else work()
        print(f"{name}: {done or 'passed'}", flush=True)


if __name__ == "__main__":
    main()
