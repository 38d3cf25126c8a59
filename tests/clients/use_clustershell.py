# needs: ClusterShell==1.10.1
"""ClusterShell: the groups that its own slurm.conf example defines, through nodeset."""

import os
import pathlib
import subprocess
import sys


def main():
    example = pathlib.Path(sys.prefix, "etc/clustershell/groups.conf.d/slurm.conf.example")
    os.environ["CLUSTERSHELL_CFGDIR"] = os.getcwd()
    pathlib.Path("groups.conf.d").mkdir()
    pathlib.Path("groups.conf.d/slurm.conf").write_text(example.read_text())
    pathlib.Path("groups.conf").write_text("[Main]\ndefault: slurmpart\nconfdir: groups.conf.d\n")
    submit = ["sbatch", "--parsable", "--mem=100M", "-N2", "-J", "cs", "--wrap", "sleep 1000"]
    job = subprocess.check_output(submit, text=True).strip()
    subprocess.check_call(["scontrol", "wait_job", job])

    def nodeset(*args):
        return subprocess.check_output(["nodeset", *args], text=True).strip()

    assert nodeset("-c", "@slurmpart:batch") == "4"
    assert nodeset("-c", f"@slurmjob:{job}") == "2"
    assert "@slurmjob:" + job in nodeset("-l", "-s", "slurmjob").split()
    nodes = nodeset("-e", f"@slurmjob:{job}").split()
    assert "@slurmpart:batch" in nodeset("-l", "-s", "slurmpart", nodes[0])
    assert nodeset("-ll", "-s", "slurmstate")
    assert nodeset("-l", "-s", "slurmuser")
    subprocess.check_call(["scancel", job])


if __name__ == "__main__":
    main()
