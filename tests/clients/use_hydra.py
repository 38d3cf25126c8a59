# needs: hydra-submitit-launcher==1.2.0
"""hydra with its submitit launcher: a sweep over three values."""

import pathlib
import subprocess
import sys

APP = """
import hydra

@hydra.main(config_path=None, version_base=None)
def app(cfg):
    open(f"{hydra.utils.get_original_cwd()}/out{cfg.x}", "w").close()

if __name__ == "__main__":
    app()
"""


def main():
    pathlib.Path("app.py").write_text(APP)
    args = "-m hydra/launcher=submitit_slurm hydra.launcher.partition=batch +x=1,2,3"
    args += " hydra.launcher.mem_gb=1 hydra.launcher.timeout_min=2"
    subprocess.run([sys.executable, "app.py", *args.split()], check=True)
    for x in (1, 2, 3):
        assert pathlib.Path(f"out{x}").exists()


if __name__ == "__main__":
    main()
