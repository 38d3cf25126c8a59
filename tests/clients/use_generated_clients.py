# needs: openapi-python-client==0.29.1
"""Clients in Python and Go that are generated from slurmrestd's own description, for several versions: each submits a job, reads it,
nodes, partitions and accounting with the types of the description, and cancels the job. Go comes from the system; without it only
Python is looked at. Where Slurm's own slurmrestd is installed (and munged, which it needs), so is a client in Python of the description
that it gives of itself."""

import base64
import http.client
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


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket of this host."""

    def __init__(self, path):
        super().__init__("localhost", timeout=10)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def until_there(path):
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end, f"{path} does not come"
        time.sleep(0.05)


def own_description(here):
    """What Slurm's slurmrestd says of itself, or nothing where there is none: its version, and the document."""
    program, munged = "/usr/sbin/slurmrestd", shutil.which("munged", path=os.environ["PATH"] + ":/usr/sbin")
    if not (munged and os.path.exists(program)):
        return None
    version = subprocess.run([program, "-V"], text=True, capture_output=True).stdout.split()
    if "slurm-wlm" not in version and not (version[1:2] and version[1].startswith("22.05")):
        return None
    place, key = here / "own", here / "munge.key"
    place.mkdir()
    place.chmod(0o1777)
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    munge = here / "munge"
    munge.mkdir(mode=0o755)
    files = [f"--{name}={munge / name.split('-')[0]}" for name in ("socket", "pid-file", "log-file", "seed-file")]
    (place / "slurm.conf").write_text(
        f"ClusterName=own\nSlurmctldHost=localhost\nSlurmUser=root\nNodeName=n1\nPartitionName=p Nodes=n1\n"
        f"AuthInfo=socket={munge / 'socket'}\nAccountingStorageType=accounting_storage/slurmdbd\n"
    )
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    daemons = [subprocess.Popen([munged, "--force", "--foreground", f"--key-file={key}", *files], **quiet)]
    try:
        until_there(munge / "socket")
        words = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", program, "-a", "rest_auth/local"]
        env = dict(os.environ, SLURM_CONF=str(place / "slurm.conf"))
        plugins = ["-s", "openapi/v0.0.38,openapi/dbv0.0.38", f"unix:{place / 'rest'}"]
        daemons.append(subprocess.Popen([*words, *plugins], env=env, **quiet))
        until_there(place / "rest")
        asked = UnixConnection(place / "rest")
        asked.request("GET", "/openapi/v3")
        answer = asked.getresponse()
        return json.loads(answer.read()) if answer.status == 200 else None
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()


OWN = """
import importlib, os
from own import Client
from own.models import V0038JobProperties, V0038JobSubmission, V0038JobPropertiesEnvironment
client = Client(os.environ["ADDRESS"], headers={"X-SLURM-USER-TOKEN": os.environ["TOKEN"], "X-SLURM-USER-NAME": "daemon"},
    raise_on_unexpected_status=True)
def call(name, **words):
    answer = importlib.import_module(f"own.api.slurm.{name}").sync(client=client, **words)
    assert answer is not None, name
    assert not getattr(answer, "errors", None), (name, answer.errors)
    return answer
environment = V0038JobPropertiesEnvironment.from_dict({"PATH": "/bin:/usr/bin"})
job = V0038JobProperties(environment=environment, name="own", current_working_directory="/tmp", standard_output="/dev/null")
made = call("slurm_v0_0_38_submit_job", body=V0038JobSubmission(script="#!/bin/sh\\nsleep 100\\n", job=job))
number = str(made.job_id)
assert call("slurm_v0_0_38_ping").pings
assert [one.name for one in call("slurm_v0_0_38_get_job", job_id=number).jobs] == ["own"]
assert number in [str(one.job_id) for one in call("slurm_v0_0_38_get_jobs").jobs]
assert len(call("slurm_v0_0_38_get_nodes").nodes) == 2
assert [one.name for one in call("slurm_v0_0_38_get_partitions").partitions] == ["batch"]
for name in ("diag", "get_reservations", "slurmctld_get_licenses"):
    call(f"slurm_v0_0_38_{name}")
for name in ("diag", "get_jobs", "get_users", "get_accounts", "get_associations", "get_qos", "get_clusters", "get_tres", "get_wckeys"):
    call(f"slurmdb_v0_0_38_{name}")
importlib.import_module("own.api.slurm.slurm_v0_0_38_cancel_job").sync_detailed(client=client, job_id=number)
state = call("slurm_v0_0_38_get_job", job_id=number).jobs[0].job_state
assert state in ("CANCELLED", "COMPLETING"), state
print("done")
"""


def use_own(here, address, token, description):
    """A client of Slurm's own description."""
    tool = Path(sys.executable).parent / "openapi-python-client"
    (here / "own.json").write_text(json.dumps(description))
    config = here / "own.yml"
    config.write_text("package_name_override: own\npost_hooks: []\n")
    run(str(tool), "generate", "--path", str(here / "own.json"), "--output-path", str(here / "python-own"), "--config", str(config))
    env = dict(os.environ, ADDRESS=address, TOKEN=token, PYTHONPATH=str(here / "python-own"))
    assert run(sys.executable, "-c", OWN, env=env) == "done"


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
            own = own_description(here)
            if own is None:
                print("Slurm's own slurmrestd is not installed: no client of its description")
            else:
                use_own(here, address, token, own)
                print("v0.0.38 as Slurm describes it: Python")
        finally:
            daemon.terminate()
            daemon.wait()
            subprocess.run(["muster", "down", "--purge"], env=env, capture_output=True)


main()
