# needs: psij-python==0.9.11
"""psij-python: a parallel job, one that fails, one that is cancelled."""

import datetime
import pathlib

import psij

PATIENCE = datetime.timedelta(seconds=120)


def main():
    executor = psij.JobExecutor.get_instance("slurm")

    def submit(program, *args, **more):
        spec = psij.JobSpec(
            executable=program,
            arguments=list(args),
            stdout_path=pathlib.Path(f"{pathlib.Path(program).name}.out").absolute(),
            **more,
        )
        spec.attributes = psij.JobAttributes(
            duration=datetime.timedelta(minutes=2), queue_name="batch"
        )
        spec.resources = psij.ResourceSpecV1(node_count=1, processes_per_node=2)
        job = psij.Job(spec)
        executor.submit(job)
        return job

    good = submit("/bin/hostname", launcher="srun")
    bad = submit("/bin/sh", "-c", "exit 3")
    long = submit("/bin/sleep", "1000")
    assert good.wait(timeout=PATIENCE).state == psij.JobState.COMPLETED
    assert len(open("hostname.out").read().split()) == 2
    status = bad.wait(timeout=PATIENCE)
    assert (status.state, status.exit_code) == (psij.JobState.FAILED, 3), status
    long.cancel()
    assert long.wait(timeout=PATIENCE).state == psij.JobState.CANCELED


if __name__ == "__main__":
    main()
