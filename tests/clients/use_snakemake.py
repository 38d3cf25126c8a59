# needs: snakemake==9.27.1 snakemake-executor-plugin-slurm==2.8.0
"""snakemake with its slurm executor: two jobs of one rule and a rule that needs them."""

import pathlib
import subprocess

RULES = """
rule all:
    input: "all.txt"
rule part:
    output: "part{n}.txt"
    shell: "echo {wildcards.n} > {output}"
rule join:
    input: expand("part{n}.txt", n=[1, 2])
    output: "all.txt"
    shell: "cat {input} > {output}"
"""


def main():
    pathlib.Path("Snakefile").write_text(RULES)
    command = "snakemake --executor slurm --jobs 3 --latency-wait 10"
    command += " --slurm-init-seconds-before-status-checks 1"
    command += " --default-resources slurm_partition=batch mem_mb=200 runtime=2"
    subprocess.run(command.split(), check=True)
    assert pathlib.Path("all.txt").read_text().split() == ["1", "2"]


if __name__ == "__main__":
    main()
