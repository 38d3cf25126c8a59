# needs: ReFrame-HPC==4.10.4
"""ReFrame: a check on the squeue and on the sacct backend, with a node selection."""

import pathlib
import subprocess

SITE = """
site_configuration = {
    "systems": [{
        "name": "site", "hostnames": [".*"],
        "partitions": [
            {"name": name, "scheduler": name, "launcher": "srun", "environs": ["builtin"],
             "access": ["-p batch", "--mem=100M"], "max_jobs": 4}
            for name in ("slurm", "squeue")
        ],
    }],
}
"""

CHECK = """
import reframe as rfm
import reframe.utility.sanity as sn

@rfm.simple_test
class Host(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "hostname"
    num_tasks = 2
    num_tasks_per_node = 1
    time_limit = "2m"

    @sanity_function
    def two_lines(self):
        return sn.assert_eq(sn.count(sn.findall(r"(?m)^\\S+$", self.stdout)), 2)

@rfm.simple_test
class AllNodes(Host):
    num_tasks = 0

    @sanity_function
    def four_lines(self):
        return sn.assert_eq(self.num_tasks, 4)
"""


def main():
    pathlib.Path("site.py").write_text(SITE)
    pathlib.Path("check.py").write_text(CHECK)
    subprocess.run("reframe -C site.py -c check.py -r --flex-alloc-nodes=all".split(), check=True)


if __name__ == "__main__":
    main()
