# needs: cylc-flow==8.5.4
"""cylc: a workflow of two tasks on a slurm platform, run to its end."""

import os
import pathlib
import shutil
import subprocess
import sys

PLATFORM = """
[platforms]
    [[here]]
        hosts = localhost
        job runner = slurm
        install target = localhost
        submission polling intervals = PT2S
        execution polling intervals = PT2S
"""

FLOW = """
[scheduling]
    [[graph]]
        R1 = first => second
[runtime]
    [[root]]
        platform = here
        script = echo hello
        [[[directives]]]
            --mem = 100M
            --partition = batch
            --time = 2
    [[first, second]]
"""


def main():
    if not shutil.which("rsync"):
        print("cylc needs rsync")
        sys.exit(77)
    os.environ["CYLC_CONF_PATH"] = os.getcwd()
    pathlib.Path("global.cylc").write_text(PLATFORM)
    pathlib.Path("src/hello").mkdir(parents=True)
    pathlib.Path("src/hello/flow.cylc").write_text(FLOW)
    subprocess.run(["cylc", "vip", "--no-detach", "./src/hello"], check=True)
    log = pathlib.Path("cylc-run/hello/runN/log/job/1/second/NN/job.out").read_text()
    assert "hello" in log, log


if __name__ == "__main__":
    main()
