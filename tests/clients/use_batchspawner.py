# needs: batchspawner==1.3.0 jupyterhub==6.1.1
"""batchspawner, JupyterHub's way to Slurm: a server's job submitted, asked after, found on its node, cancelled."""

import asyncio
import getpass
import os
import time

from batchspawner import SlurmSpawner
from batchspawner.batchspawner import JobStatus
from jupyterhub import orm
from jupyterhub.objects import Hub
from jupyterhub.user import User


class Spawner(SlurmSpawner):
    # Whoever runs this is whom the server is for.
    exec_prefix = ""
    req_srun = "srun"
    req_partition = "batch"
    req_memory = "100"
    req_runtime = "2"
    batchspawner_singleuser_cmd = ""

    def get_env(self):
        kept = {k: v for k, v in os.environ.items() if k.startswith("SLURM") or k in ("PATH", "HOME", "USER")}
        return kept | {"GREETING": "hello"}

    def cmd_formatted_for_batch(self):
        return "bash -c 'echo $GREETING; sleep 1000'"


async def drive():
    session = orm.new_session_factory(url="sqlite:///:memory:")()
    record = orm.User(name=getpass.getuser())
    session.add(record)
    session.commit()
    spawner = Spawner(hub=Hub(), user=User(record, {}), req_homedir=os.getcwd())
    await spawner.submit_batch_script()
    assert spawner.job_id.isdigit(), spawner.job_id
    until = time.time() + 60
    while await spawner.query_job_status() != JobStatus.RUNNING:
        assert time.time() < until, spawner.job_status
        await asyncio.sleep(0.2)
    assert spawner.state_gethost().startswith("n"), spawner.job_status
    log = f"jupyterhub_slurmspawner_{spawner.job_id}.log"
    while not (os.path.exists(log) and "hello" in open(log).read()):
        assert time.time() < until, "the job wrote nothing"
        await asyncio.sleep(0.2)
    await spawner.cancel_batch_job()
    while await spawner.poll() is None:
        assert time.time() < until, spawner.job_status
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(drive())
