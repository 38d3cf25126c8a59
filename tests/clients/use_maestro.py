# needs: maestrowf==1.2.1
"""maestro: a study of two steps, the second depends on the first."""

import pathlib
import subprocess

STUDY = """
description:
    name: hello
    description: two steps
batch:
    type: slurm
    host: here
    bank: root
    queue: batch
study:
    - name: first
      description: writes
      run:
          cmd: echo first > out.txt
          nodes: 1
          procs: 1
          walltime: "00:02:00"
    - name: second
      description: reads
      run:
          cmd: cat $(first.workspace)/out.txt > out.txt
          nodes: 1
          procs: 1
          walltime: "00:02:00"
          depends: [first]
"""


def main():
    pathlib.Path("study.yaml").write_text(STUDY)
    subprocess.run("maestro run -fg -y -s 2 -o study study.yaml".split(), check=True)
    assert pathlib.Path("study/second/out.txt").read_text() == "first\n"


if __name__ == "__main__":
    main()
