# needs: submitit==1.5.4
"""submitit: a call, an array of calls, a call that raises."""

import submitit


def add(a, b):
    return a + b


def fail():
    raise ValueError("on purpose")


def main():
    executor = submitit.AutoExecutor(folder="log", cluster="slurm")
    executor.update_parameters(
        timeout_min=2, slurm_partition="batch", slurm_mem="200MB", slurm_job_name="sub it"
    )
    assert executor.submit(add, 1, 2).result() == 3
    jobs = executor.map_array(add, [1, 2, 3], [4, 5, 6])
    assert [job.result() for job in jobs] == [5, 7, 9]
    assert "on purpose" in str(executor.submit(fail).exception())


if __name__ == "__main__":
    main()
