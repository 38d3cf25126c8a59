# needs: openapi-python-client==0.29.1
"""Clients in Python and Go that are generated from slurmrestd's own description, for several versions: each submits a job, reads it,
nodes, partitions and accounting with the types of the description, and cancels the job. Go comes from the system; without it only
Python is looked at."""

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import urllib.request
from pathlib import Path

VERSIONS = [38, 39, 40, 43, 45]
GENERATOR = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.4.1"
RUNTIME = "github.com/oapi-codegen/runtime@v1.1.1"
LINES = """AuthAltTypes=auth/jwt
AccountingStorageType=accounting_storage/slurmdbd
NodeName=n[1-2] CPUs=4 RealMemory=1000
PartitionName=batch Nodes=ALL Default=YES State=UP DefMemPerCPU=100
"""

# What a Go program does with the client of version V. Members are pointers.
GO = """
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"

	client "generated/vV"
)

func check(err error, body []byte) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err, string(body))
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	signed := client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("X-SLURM-USER-TOKEN", os.Getenv("TOKEN"))
		return nil
	})
	c, err := client.NewClientWithResponses(os.Getenv("ADDRESS"), signed)
	check(err, nil)
	text := func(s string) *interface{} { var i interface{} = s; return &i }
	var path interface{} = []string{"PATH=/bin:/usr/bin"}
	script := "#!/bin/sh\\nsleep 100\\n"
	job := client.V00VJobDescMsg{Name: text("from go"), CurrentWorkingDirectory: text("/tmp"), Environment: &path, StandardOutput: text("/dev/null")}
	made, err := c.SlurmV00VPostJobSubmitWithResponse(ctx, client.V00VJobSubmitReq{Script: &script, Job: &job})
	check(err, nil)
	if made.JSON200 == nil {
		fmt.Fprintln(os.Stderr, string(made.Body))
		os.Exit(1)
	}
	id := strconv.Itoa(*made.JSON200.JobId)
	one, err := c.SlurmV00VGetJobWithResponse(ctx, id, nil)
	check(err, nil)
	name := *(*one.JSON200.Jobs)[0].Name
	nodes, err := c.SlurmV00VGetNodesWithResponse(ctx, nil)
	check(err, nil)
	partitions, err := c.SlurmV00VGetPartitionsWithResponse(ctx, nil)
	check(err, nil)
	kept, err := c.SlurmdbV00VGetJobsWithResponse(ctx, nil)
	check(err, nil)
	accounts, err := c.SlurmdbV00VGetAccountsWithResponse(ctx, nil)
	check(err, nil)
	ended, err := c.SlurmV00VDeleteJobWithResponse(ctx, id, nil)
	check(err, nil)
	fmt.Println(id, name, len(*nodes.JSON200.Nodes), *(*partitions.JSON200.Partitions)[0].Name, kept.StatusCode(), accounts.StatusCode(), ended.StatusCode())
}
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run(*words, env=None, cwd=None):
    done = subprocess.run(words, env=env, cwd=cwd, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]} {done.stderr[-4000:]}"
    return done.stdout.strip()


def start(here):
    """A cluster with slurmrestd: its environment, address, and a token of an ordinary user."""
    here.chmod(0o755)
    env = dict(os.environ, MUSTER_HOME=str(here / "home"))
    for name in ("SLURM_CONF", "SLURM_JWT"):
        env.pop(name, None)
    key = here / "jwt.key"
    key.write_bytes(base64.b64encode(os.urandom(48)))
    key.chmod(0o600)
    conf = here / "given.conf"
    conf.write_text(
        f"ClusterName=c\nSlurmctldHost=localhost\nSlurmctldPort={free_port()}\nAuthAltParameters=jwt_key={key}\n{LINES}"
    )
    run("muster", "up", "-f", str(conf), env=env)
    words = ["bash", "-c", 'eval "$1"; env -0', "env", run("muster", "env", env=env)]
    pairs = subprocess.check_output(words, env=env, text=True).split("\0")
    env = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    address = f"127.0.0.1:{free_port()}"
    nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    daemon = subprocess.Popen([*nobody, "slurmrestd", "-a", "rest_auth/jwt", address], env=env, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while True:
        with socket.socket() as one:
            if one.connect_ex(tuple([address.split(":")[0], int(address.split(":")[1])])) == 0:
                break
        assert time.monotonic() < until, "slurmrestd does not listen"
        time.sleep(0.05)
    token = run("scontrol", "token", "username=daemon", "lifespan=7200", env=env).removeprefix("SLURM_JWT=")
    return env, f"http://{address}", token, daemon


def use_go(here, address, token, version):
    module = here / "go"
    package = module / f"v{version}"
    package.mkdir(parents=True)
    description = here / f"v{version}.json"
    if not (module / "go.mod").exists():
        run("go", "mod", "init", "generated", cwd=module)
    code = run("go", "run", GENERATOR, "-generate", "types,client", "-package", f"v{version}", str(description), cwd=here)
    (package / "client.go").write_text(code + "\n")
    program = module / f"use{version}"
    program.mkdir()
    (program / "main.go").write_text(GO.replace("vV", f"v{version}").replace("V00V", f"V00{version}"))
    if version == VERSIONS[0]:
        run("go", "get", RUNTIME, cwd=module)
    env = dict(os.environ, ADDRESS=address, TOKEN=token)
    words = run("go", "run", f"./use{version}", cwd=module, env=env).split()
    assert words[1:5] == ["from", "go", "2", "batch"], words
    assert words[5:] == ["200", "200", "200"], words


def use_python(here, address, token, version):
    """The client in a process of its own, as a program would use it."""
    tool = Path(sys.executable).parent / "openapi-python-client"
    target = here / f"python{version}"
    config = here / "config.yml"
    config.write_text(f"package_name_override: generated_v{version}\npost_hooks: []\n")
    run(str(tool), "generate", "--path", str(here / f"v{version}.json"), "--output-path", str(target), "--config", str(config))
    name = f"generated_v{version}"
    program = textwrap.dedent(
        f"""
        import importlib, os
        from {name} import Client
        def operation(area, what):
            # Modules are in a directory for each tag.
            for tag in ("slurm", "slurmdb"):
                try:
                    return importlib.import_module(f"{name}.api.{{tag}}.{{area}}_v00{version}_{{what}}")
                except ModuleNotFoundError:
                    pass
            raise ModuleNotFoundError(what)
        client = Client(os.environ["ADDRESS"], headers={{"X-SLURM-USER-TOKEN": os.environ["TOKEN"]}}, raise_on_unexpected_status=True)
        for area, what, member in [("slurm", "get_ping", "pings"), ("slurm", "get_jobs", "jobs"), ("slurm", "get_nodes", "nodes"),
                ("slurm", "get_partitions", "partitions"), ("slurm", "get_licenses", "licenses"), ("slurmdb", "get_jobs", "jobs"),
                ("slurmdb", "get_accounts", "accounts"), ("slurmdb", "get_users", "users"), ("slurmdb", "get_associations", "associations")]:
            answer = operation(area, what).sync(client=client)
            listed = getattr(answer, member)
            assert isinstance(listed, list), (what, answer)
            assert listed or member in ("licenses", "accounts", "users", "associations", "jobs"), what
            assert answer.errors == [], (what, answer.errors)
        print("read")
        """
    )
    env = dict(os.environ, ADDRESS=address, TOKEN=token, PYTHONPATH=str(target))
    assert run(sys.executable, "-c", program, env=env) == "read"


def main():
    if os.getuid() != 0:
        print("skipped: tokens of other users are root's to make")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="muster-generated-") as name:
        here = Path(name)
        env, address, token, daemon = start(here)
        try:
            for version in VERSIONS:
                with urllib.request.urlopen(f"{address}/openapi/v0.0.{version}") as answer:
                    described = json.load(answer)
                (here / f"v{version}.json").write_text(json.dumps(described))
                use_python(here, address, token, version)
                print(f"v0.0.{version}: Python")
                if shutil.which("go"):
                    use_go(here, address, token, version)
                    print(f"v0.0.{version}: Go")
        finally:
            daemon.terminate()
            daemon.wait()
            subprocess.run(["muster", "down", "--purge"], env=env, capture_output=True)


main()
