# needs: executorlib[cluster]==1.11.0
"""executorlib: a call as a job of its own, submitted and watched by pysqa."""

from executorlib import SlurmClusterExecutor


def main():
    resources = {"cores": 1, "partition": "batch"}
    with SlurmClusterExecutor(cache_directory="cache", resource_dict=resources) as executor:
        assert executor.submit(sum, [1, 2]).result(timeout=100) == 3


if __name__ == "__main__":
    main()
