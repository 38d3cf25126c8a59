# needs: ert==23.0.1
"""ert, its driver for Slurm: realizations that succeed, fail and are killed, and how it learns of each."""

import asyncio
import pathlib

from ert.scheduler.event import FinishedEvent, StartedEvent
from ert.scheduler.slurm_driver import SlurmDriver


async def events(driver, count):
    found = []
    while len(found) < count:
        event = await asyncio.wait_for(driver.event_queue.get(), 120)
        if isinstance(event, FinishedEvent):
            found.append((event.iens, event.returncode))
    return sorted(found)


async def drive():
    driver = SlurmDriver(queue_name="batch", max_runtime=60, poll_period=0.5)
    polling = asyncio.create_task(driver.poll())
    here = pathlib.Path.cwd()
    for iens, script in enumerate(["echo $0 >&2", "exit 7"]):
        path = here / f"real-{iens}"
        path.mkdir()
        await driver.submit(iens, "sh", "-c", script, name=f"r{iens}", runpath=path, realization_memory=100 << 20)
    finished = await events(driver, 2)
    assert finished == [(0, 0), (1, 7)], finished
    assert (here / "real-0" / "r0.stdout").exists()
    await driver.submit(2, "sleep", "1000", name="r2", runpath=here)
    while not isinstance(await asyncio.wait_for(driver.event_queue.get(), 120), StartedEvent):
        pass
    await driver.kill([2])
    ((iens, code),) = await events(driver, 1)
    assert iens == 2, (iens, code)
    polling.cancel()


if __name__ == "__main__":
    asyncio.run(drive())
