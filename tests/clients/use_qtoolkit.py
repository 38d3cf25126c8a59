# needs: qtoolkit==0.1.7
"""qtoolkit, the scheduler layer of jobflow-remote: submit, ask by id and by user, cancel."""

import getpass
import pathlib
import subprocess
import time

from qtoolkit.core.data_objects import QResources, QState
from qtoolkit.io.slurm import SlurmIO


def run(command):
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def main():
    io = SlurmIO()
    resources = QResources(
        queue_name="batch",
        job_name="qtk",
        nodes=1,
        processes_per_node=1,
        time_limit=120,
        memory_per_thread=100,
        output_filepath="out",
        error_filepath="err",
    )
    pathlib.Path("job.sh").write_text(io.get_submission_script("sleep 1000", resources))
    number = io.parse_submit_output(*run(io.get_submit_cmd("job.sh"))).job_id
    until = time.time() + 60
    while True:
        job = io.parse_job_output(*run(io.get_job_cmd(number)))
        if job and job.state == QState.RUNNING:
            break
        assert time.time() < until, job
    assert (job.name, job.info.nodes) == ("qtk", 1), job

    def listed(**what):
        out = run(io.get_jobs_list_cmd(**({"jobs": None, "user": None} | what)))
        return [job.job_id for job in io.parse_jobs_list_output(*out)]

    assert number in listed(user=getpass.getuser())
    assert listed(jobs=[number, "99999999"]) == [number]
    assert listed(jobs=["99999999"]) == []
    assert io.parse_cancel_output(*run(io.get_cancel_cmd(number))).job_id == number


if __name__ == "__main__":
    main()
