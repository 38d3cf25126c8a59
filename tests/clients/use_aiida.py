# needs: aiida-core==2.9.4
"""AiiDA's SLURM scheduler, over its local transport: submit, the joblist by id and by user, details, kill."""

import getpass
import pathlib
import time

from aiida.common.datastructures import CodeRunMode
from aiida.schedulers.datastructures import JobState, JobTemplate, JobTemplateCodeInfo
from aiida.schedulers.plugins.slurm import SlurmScheduler
from aiida.transports.plugins.local import LocalTransport


def template(*command):
    job = JobTemplate()
    job.shebang = "#!/bin/bash"
    job.job_name = "aiida"
    job.queue_name = "batch"
    job.job_resource = SlurmScheduler.create_job_resource(
        num_machines=1, num_mpiprocs_per_machine=1
    )
    job.max_wallclock_seconds = 120
    job.max_memory_kb = 100 * 1024
    job.sched_output_path, job.sched_error_path = "out", "err"
    info = JobTemplateCodeInfo()
    info.prepend_cmdline_params = list(command)
    job.codes_info, job.codes_run_mode = [info], CodeRunMode.SERIAL
    return job


def main():
    scheduler = SlurmScheduler()
    with LocalTransport() as transport:
        scheduler.set_transport(transport)

        def submit(name, *command):
            pathlib.Path(name).write_text(scheduler.get_submit_script(template(*command)))
            return scheduler.submit_job(".", name)

        number = submit("job.sh", "sleep", "1000")
        until = time.time() + 60
        while True:
            jobs = scheduler.get_jobs(jobs=[number], as_dict=True)
            if jobs[number].job_state == JobState.RUNNING:
                break
            assert time.time() < until, jobs
        assert jobs[number].num_machines == 1 and jobs[number].requested_wallclock_time_seconds == 120
        assert number in scheduler.get_jobs(user=getpass.getuser(), as_dict=True)
        assert scheduler.get_jobs(jobs=["99999999"]) == []
        assert scheduler.kill_job(number)
        while scheduler.get_jobs(jobs=[number]):
            assert time.time() < until
        details = scheduler.get_detailed_job_info(number)
        assert details["retval"] == 0 and "CANCELLED" in details["stdout"], details


if __name__ == "__main__":
    main()
