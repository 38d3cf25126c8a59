# needs: signac-flow==0.29.1 signac==2.4.1
"""signac-flow: an operation submitted for each job of a project, then its status."""

import pathlib
import subprocess
import sys
import time

PROJECT = """
import flow

class Project(flow.FlowProject):
    pass

class Here(flow.environment.DefaultSlurmEnvironment):
    hostname_pattern = ".*"
    template = "slurm.sh"

@Project.post.isfile("done.txt")
@Project.operation
def work(job):
    open(job.fn("done.txt"), "w").close()

if __name__ == "__main__":
    Project().main()
"""


def main():
    import signac

    pathlib.Path("project.py").write_text(PROJECT)
    project = signac.init_project()
    for a in range(2):
        project.open_job({"a": a}).init()

    def run(*args):
        command = [sys.executable, "project.py", *args]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    run("submit")
    until = time.time() + 60
    while not all(job.isfile("done.txt") for job in project):
        assert time.time() < until, run("status", "--detailed")
        time.sleep(0.5)
    print(run("status", "--detailed"))


if __name__ == "__main__":
    main()
