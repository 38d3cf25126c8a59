# needs: slurm2sql==0.9.9
"""slurm2sql: sacct's records as a database."""

import sqlite3
import subprocess


def main():
    submit = "sbatch --parsable --wait --mem=100M -J".split() + ["a b", "--wrap", "exit 3"]
    number = subprocess.run(submit, capture_output=True, text=True).stdout.strip()
    subprocess.run(["slurm2sql", "jobs.db", "--", "-S", "now-1hours", "-a"], check=True)
    rows = sqlite3.connect("jobs.db").execute(
        "select JobName, State, ExitCode, NNodes from slurm where JobID = ?", (number,)
    )
    row = rows.fetchall()
    assert row == [("a b", "FAILED", 3, 1)], row


if __name__ == "__main__":
    main()
