# needs: simple-slurm==0.3.6
"""simple-slurm: directives padded to columns, the script on stdin, an array, a dependency, squeue and scancel."""

import os
import time

from simple_slurm import Slurm


def main():
    array = Slurm(
        array=range(0, 3),
        mem="100M",
        job_name="simple",
        partition="batch",
        output=f"{Slurm.JOB_ARRAY_MASTER_ID}_{Slurm.JOB_ARRAY_ID}.out",
        time="0:2:0",
    ).sbatch("echo task " + Slurm.SLURM_ARRAY_TASK_ID)
    Slurm(dependency={"afterok": array}, mem="100M", output="after.out").sbatch("echo after")
    until = time.time() + 60
    while not (os.path.exists("after.out") and open("after.out").read() == "after\n"):
        assert time.time() < until, "the dependent job did not run"
        time.sleep(0.1)
    for index in range(3):
        assert open(f"{array}_{index}.out").read() == f"task {index}\n"
    held = Slurm(mem="100M", hold=True)
    number = held.sbatch("sleep 100")
    held.squeue.update_squeue()
    assert number in held.squeue.jobs, held.squeue.jobs
    held.scancel.cancel_job(number)
    assert Slurm(mem="100M").srun("true") == 0


if __name__ == "__main__":
    main()
