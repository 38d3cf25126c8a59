# needs: jobflow-remote==1.0.1
"""jobflow-remote, its queue layer: a job submitted through a host, watched, and one cancelled."""

import pathlib
import time

from jobflow_remote.remote.host import LocalHost
from jobflow_remote.remote.queue import QueueManager, set_name_out
from qtoolkit.core.data_objects import CancelStatus, QResources, QState
from qtoolkit.io.slurm import SlurmIO


def resources(name):
    wanted = QResources(
        queue_name="batch", nodes=1, processes_per_node=1, time_limit=120, memory_per_thread=100
    )
    set_name_out(wanted, name)
    return wanted


def main():
    queue = QueueManager(SlurmIO(), LocalHost())
    work = pathlib.Path("run").absolute()
    submitted = queue.submit(
        ["echo $GREETING"],
        options=resources("a job"),
        work_dir=work,
        export={"GREETING": "hello"},
        create_submit_dir=True,
    )
    assert submitted.job_id, submitted
    until = time.time() + 60
    while queue.get_job(submitted.job_id).state != QState.DONE:
        assert time.time() < until, "the job does not end"
        time.sleep(0.5)
    assert (work / "queue.out").read_text() == "hello\n"
    long = queue.submit(["sleep 1000"], options=resources("long"), work_dir=work).job_id
    while queue.get_job(long).state != QState.RUNNING:
        assert time.time() < until, "the job does not run"
        time.sleep(0.5)
    assert long in [job.job_id for job in queue.get_jobs_list(jobs=[long, "99999999"])]
    assert queue.cancel(long).status == CancelStatus.SUCCESSFUL


if __name__ == "__main__":
    main()
