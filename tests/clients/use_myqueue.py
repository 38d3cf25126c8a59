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
    mq("submit", "shell:true", "-R", "1:2m")
    mq("submit", "shell:hostname", "-R", "1:2m", "-d", "shell:true")
    until = time.time() + 60
    while (out := mq("list")).count("done") < 2:
        assert time.time() < until and "FAILED" not in out, out
        time.sleep(0.5)
    print(out)


if __name__ == "__main__":
    main()
