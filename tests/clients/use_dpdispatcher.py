# needs: dpdispatcher==1.1.0
"""dpdispatcher: a submission of two tasks, run until all is finished."""

import pathlib

from dpdispatcher import Machine, Resources, Submission, Task


def main():
    for name in ("a", "b"):
        pathlib.Path("local", name).mkdir(parents=True)
    machine = Machine.load_from_dict(
        {
            "batch_type": "Slurm",
            "context_type": "LocalContext",
            "local_root": "local",
            "remote_root": "remote",
        }
    )
    resources = Resources.load_from_dict(
        {"number_node": 1, "cpu_per_node": 1, "gpu_per_node": 0, "queue_name": "batch", "group_size": 1}
    )
    tasks = [
        Task(command=f"echo {name}", task_work_path=f"{name}/", backward_files=["out"], outlog="out")
        for name in ("a", "b")
    ]
    Submission(
        work_base="./", machine=machine, resources=resources, task_list=tasks
    ).run_submission(check_interval=1)
    for name in ("a", "b"):
        assert pathlib.Path("local", name, "out").read_text() == f"{name}\n"


if __name__ == "__main__":
    main()
