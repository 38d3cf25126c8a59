# needs: myqueue==26.8.1
"""myqueue: a task and one that depends on it, then the list."""

import pathlib
import subprocess
import time


def mq(*args):
    return subprocess.run(["mq", *args], check=True, capture_output=True, text=True).stdout


def main():
    pathlib.Path(".myqueue").mkdir()
    pathlib.Path(".myqueue/config.py").write_text(
        "config = {'scheduler': 'slurm', 'nodes': [('batch', {'cores': 4, 'memory': '4G'})]}\n"
    )
    # A task that has ended before myqueue has written down its number stays "queued" there for ever: it takes the
    # task's change files for those of an unknown one and removes them.
    mq("submit", "shell:sleep 1", "-R", "1:2m")
    mq("submit", "shell:sleep 2", "-R", "1:2m", "-d", "shell:sleep+1")
    until = time.time() + 60
    while "done: 2" not in (out := mq("list")):
        assert time.time() < until and "FAILED" not in out, out
        time.sleep(0.5)
    print(out)


if __name__ == "__main__":
    main()
