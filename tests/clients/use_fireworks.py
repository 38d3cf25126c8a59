# needs: fireworks==2.1.4
"""fireworks, its queue adapter: a script from its template, jobs counted while they wait, one run."""

import getpass
import pathlib
import subprocess
import time

from fireworks.user_objects.queue_adapters.common_adapter import CommonAdapter


def main():
    adapter = CommonAdapter(
        "SLURM",
        queue="batch",
        nodes=1,
        ntasks=1,
        walltime="00:02:00",
        job_name="fw",
        mem="100M",
        pre_rocket="export GREETING=hello",
        rocket_launch="echo $GREETING > done.txt",
    )
    adapter.timeout = 60
    pathlib.Path("fw.sh").write_text(adapter.get_script_str("."))
    before = adapter.get_njobs_in_queue(getpass.getuser())
    held = CommonAdapter("SLURM", queue="batch", job_name="waits", mem="100M", rocket_launch="true")
    text = held.get_script_str(".").replace("#SBATCH --job-name", "#SBATCH --hold\n#SBATCH --job-name", 1)
    pathlib.Path("held.sh").write_text(text)
    waiting = held.submit_to_queue("held.sh")
    assert waiting, "the held job was not submitted"
    assert adapter.get_njobs_in_queue(getpass.getuser()) >= before + 1
    number = adapter.submit_to_queue("fw.sh")
    assert number, "the job was not submitted"
    until = time.time() + 60
    done = pathlib.Path("done.txt")
    while not (done.exists() and done.read_text() == "hello\n"):
        assert time.time() < until, "the job did not run"
        time.sleep(0.1)
    subprocess.run(["scancel", waiting], check=True)
    assert pathlib.Path(f"fw-{number}.out").exists()


if __name__ == "__main__":
    main()
