# needs: reportseff==2.10.3
"""reportseff: efficiency of finished jobs, by id and by user."""

import getpass
import subprocess


def report(*args):
    return subprocess.check_output(["reportseff", "--no-color", *args], text=True)


def main():
    submit = "sbatch --parsable --wait --mem=100M -t 2 --wrap".split()
    number = subprocess.check_output(submit + ["python3 -c 'sum(range(10**7))'"], text=True).strip()
    out = report(number)
    assert number in out and "COMPLETED" in out, out
    assert number in report("--user", getpass.getuser(), "--since", "h=1")


if __name__ == "__main__":
    main()
