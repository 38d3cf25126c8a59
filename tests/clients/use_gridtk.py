# needs: gridtk==4.0.0
"""gridtk: an array with arguments after the script, list, report, resubmit."""

import pathlib
import subprocess
import time


def gridtk(*args):
    return subprocess.check_output(["gridtk", *args], text=True)


def main():
    pathlib.Path("job.sh").write_text("#!/bin/sh\necho grid $SLURM_ARRAY_TASK_ID $1\n")
    gridtk("submit", "--job-name", "grid", "--array", "0-2", "--mem", "100M", "job.sh", "word")
    until = time.time() + 60
    while "COMPLETED" not in (out := gridtk("list")):
        assert time.time() < until, out
        time.sleep(0.5)
    assert "grid" in gridtk("report")
    gridtk("delete")


if __name__ == "__main__":
    main()
