# needs: dask-jobqueue==0.9.0
"""dask-jobqueue: workers as jobs, work on them, scaled down again."""

from dask.distributed import Client
from dask_jobqueue import SLURMCluster


def main():
    with SLURMCluster(
        queue="batch",
        cores=1,
        processes=1,
        memory="400MB",
        walltime="00:02:00",
        interface="lo",
        log_directory="log",
    ) as cluster, Client(cluster) as client:
        cluster.scale(jobs=2)
        client.wait_for_workers(2, timeout=90)
        assert client.gather(client.map(lambda x: x * x, range(5))) == [0, 1, 4, 9, 16]
        cluster.scale(0)


if __name__ == "__main__":
    main()
