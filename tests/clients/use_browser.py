# needs: playwright==1.65.2 axe-playwright-python==0.1.8
"""A browser on the pages of slurmrestd, with clusters of its own: every page with nothing, with some of everything (and scripts in
names), and with 1,000 nodes and 10,000 jobs. Nothing may be said on the console, reach the network elsewhere, scroll sideways at 360
pixels, or be found by axe. Chromium comes from the system. What the pages look like is left as PNG files in the working directory.

MUSTER_BROWSER_LARGE=no leaves the large cluster out."""

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
HOSTILE = "<script>window.pwned=1</script>"
# Names of reservations have no equal signs.
RESERVATION = "<script>pwned()</script>"
IMAGE = '"><img src=x onerror=window.pwned=1>'
PAGES = ["overview", "jobs", "plan", "nodes", "topology", "partitions", "reservations", "reports"]
# Bytes of all that a page loads before it asks for data.
PAGE_BYTES_MAX = 150_000
PATIENCE_MS = 60_000


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Site:
    """A cluster whose nodes are emulated, with a slurmrestd."""

    def __init__(self, lines, topology="", run_time=3600):
        self.run_time = run_time
        self.dir = Path(tempfile.mkdtemp(prefix="muster-web-"))
        self.dir.chmod(0o755)
        self.env = dict(os.environ, MUSTER_HOME=str(self.dir / "home"))
        for name in ("SLURM_CONF", "SLURM_JWT"):
            self.env.pop(name, None)
        self.muster = shutil.which("muster")
        key = self.dir / "jwt.key"
        key.write_bytes(base64.b64encode(os.urandom(48)))
        key.chmod(0o600)
        conf = self.dir / "given.conf"
        conf.write_text(
            f"ClusterName=aurora\nSlurmctldHost=localhost\nSlurmctldPort={free_port()}\nAuthAltTypes=auth/jwt\n"
            f"AuthAltParameters=jwt_key={key}\nAccountingStorageType=accounting_storage/slurmdbd\n{lines}"
        )
        if topology:
            (self.dir / "topology.conf").write_text(topology)
        self.daemon = None
        try:
            self.start(conf)
        except BaseException:
            self.stop()
            raise

    def start(self, conf):
        self.command(self.muster, "up", "-f", str(conf), "--emulate", "--run-time", str(self.run_time))
        exports = self.command(self.muster, "env")
        words = ["bash", "-c", 'eval "$1"; env -0', "env", exports]
        pairs = subprocess.check_output(words, env=self.env, text=True).split("\0")
        self.env = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        with open(f"slurmrestd-{port}.log", "w") as log:
            words = [*nobody, "slurmrestd", "-a", "rest_auth/jwt", f"127.0.0.1:{port}"]
            self.daemon = subprocess.Popen(words, env=self.env, stdout=log, stderr=log)
        for _ in range(200):
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("slurmrestd does not listen")

    def command(self, *words):
        return subprocess.check_output(words, env=self.env, text=True, stdin=subprocess.DEVNULL).strip()

    def token(self, user):
        return self.command("scontrol", "token", f"username={user}", "lifespan=7200").removeprefix("SLURM_JWT=")

    def sbatch(self, *words, user=None):
        of = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return self.command(*of, "sbatch", "--parsable", "-D", "/tmp", "-o", "/dev/null", *words, "--wrap", "sleep 1000")

    def stop(self):
        if self.daemon:
            self.daemon.terminate()
            self.daemon.wait()
        subprocess.run([self.muster, "down", "--purge"], env=self.env, capture_output=True)
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class View:
    """A window of the browser at a site, and what went wrong in it."""

    def __init__(self, browser, site, user="root", width=1280, dark=False):
        scheme = "dark" if dark else "light"
        self.name = f"{width}-{scheme}"
        self.site, self.width, self.wrong = site, width, []
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, accept_downloads=True)
        # As if somebody had signed in.
        self.context.add_init_script(f"if (location.protocol === 'http:') sessionStorage.setItem('token', '{site.token(user)}')")
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", lambda message: message.type in ("error", "warning") and self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: request.url.startswith((site.url, "blob:")) or self.wrong.append(request.url))

    def open(self, where, title=None):
        """Opens a page and waits until it shows what it shows."""
        self.page.goto("about:blank")
        began = time.monotonic()
        self.page.goto(f"{self.site.url}/#/{where}")
        heading = self.page.locator("main h1")
        heading.wait_for()
        assert "cannot be shown" not in heading.inner_text(), self.page.locator("main").inner_text()
        assert title is None or title in heading.inner_text(), (where, heading.inner_text())
        return time.monotonic() - began

    def look(self, axe, where, shot):
        """What is asked of every page."""
        took = self.open(where)
        sideways = self.page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth")
        found = axe.run(self.page).response["violations"]
        found = [(one["id"], one["impact"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]
        self.page.screenshot(path=f"{shot}-{re.sub(r'[^a-z0-9]+', '-', where.lower())}-{self.name}.png")
        print(f"{shot} {where} {self.name}: {took:.2f} s")
        assert sideways <= 0, f"{where} at {self.width} pixels scrolls sideways by {sideways}"
        assert not found, (where, self.name, found)
        self.check(where)

    def check(self, where):
        assert not self.wrong, (where, self.name, self.wrong)
        assert self.page.evaluate("window.pwned") is None, where
        strange = "document.querySelectorAll('main script, main img, main iframe, main b, [onerror], [onclick]').length"
        assert self.page.evaluate(strange) == 0, where

    def text(self):
        return self.page.locator("main").inner_text()

    def until(self, what, condition):
        end = time.monotonic() + PATIENCE_MS / 1000
        while not condition():
            assert time.monotonic() < end, f"{what}: {self.text()}"
            self.page.wait_for_timeout(100)


TREE = """SwitchName=leaf1 Nodes=n[01-09]
SwitchName=leaf2 Nodes=n[10-18]
SwitchName=leaf3 Nodes=n[19-27]
SwitchName=spine1 Switches=leaf[1-2]
SwitchName=spine2 Switches=leaf3
SwitchName=core Switches=spine[1-2]
"""
SMALL = """TopologyPlugin=topology/tree
NodeName=n[01-30] CPUs=16 Sockets=2 CoresPerSocket=8 RealMemory=64000
PartitionName=batch Nodes=n[01-26] Default=YES State=UP MaxTime=3-00:00:00 DefaultTime=60
PartitionName=debug Nodes=n[27-30] State=UP MaxTime=60
"""


def fill(site):
    """Some of everything."""
    for number in range(1, 6):
        site.sbatch("-N4", "-n64", "-t", str(60 + 40 * number), "-J", f"lammps-{number}")
    jobs = {"hostile": site.sbatch("-N2", "-n8", "-t", "90", "-J", HOSTILE, f"--comment={HOSTILE}")}
    site.sbatch("-p", "debug", "-n3", "-t", "30", "-J", IMAGE)
    site.sbatch("--array=1-20", "-n12", "-t", "45", "-J", "sweep")
    jobs["waits"] = site.sbatch("-N18", "-t", "60", "-J", "wide", user="daemon")
    jobs["held"] = site.sbatch("-H", "-n1", "-J", "held", user="daemon")
    site.sbatch("-d", f"afterok:{jobs['held']}", "-n1", "-J", "after")
    site.command("scontrol", "update", "nodename=n28", "state=drain", f"reason={HOSTILE} disk")
    site.command("scontrol", "update", "nodename=n30", "state=down", "reason=power supply")
    make = ["scontrol", "create", "reservation", "users=root"]
    site.command(*make, "reservation=maint", "nodes=n[19-26]", "starttime=now+5hours", "duration=240", "flags=maint,ignore_jobs")
    site.command(*make, f"reservation={RESERVATION}", "nodes=n[01-04]", "starttime=now+26hours", "duration=120", "flags=daily")
    return jobs


def nothing_there(browser, axe, site):
    view = View(browser, site)
    for where in PAGES:
        view.look(axe, where, "empty")
    view.open("jobs")
    assert "The queue is empty." in view.text()
    view.open("reservations")
    assert "There are no reservations." in view.text()
    # What a page is made of, before data.
    loaded = "performance.getEntriesByType('resource').filter((one) => one.name.includes('/web/')).reduce((all, one) => all + one.decodedBodySize, 0)"
    # An address of `muster web` signs in, and is not kept.
    other = browser.new_context()
    page = other.new_page()
    page.goto(f"{site.url}/#token={site.token('root')}")
    page.locator("h1", has_text="Overview").wait_for()
    assert page.url.endswith("/#/overview"), page.url
    assert page.locator("#user").inner_text() == "root"
    other.close()
    # Browsers with a window ask for a picture, too.
    picture = view.page.evaluate("fetch('/favicon.ico').then((answer) => answer.status)")
    assert picture == 204, picture
    size = view.page.evaluate(loaded)
    assert 0 < size < PAGE_BYTES_MAX, size
    print(f"files of the pages: {size} bytes")
    view.context.close()


def all_pages(browser, axe, site, jobs):
    hostile = "".join(f"%{byte:02X}" for byte in RESERVATION.encode())
    pages = [*PAGES, "plan/by%3Dpartition", "reservation/maint", f"reservation/{hostile}", "node/n28", "node/n01",
        *(f"job/{number}" for number in jobs.values())]
    for width in (1280, 360):
        for dark in (False, True):
            view = View(browser, site, width=width, dark=dark)
            for where in pages:
                view.look(axe, where, "small")
            view.context.close()


def texts_of_users(browser, site, jobs):
    """Scripts are shown as what they are."""
    view = View(browser, site)
    for where in ("jobs", "overview", "plan", "reservations", "node/n28", f"job/{jobs['hostile']}"):
        view.open(where)
        whole = view.page.evaluate("document.querySelector('main').textContent")
        assert (RESERVATION if where == "reservations" else HOSTILE) in whole, (where, whole)
        view.check(where)
    view.context.close()


def focused(view, attribute="textContent"):
    return view.page.evaluate(f"document.activeElement.{attribute}")


def by_keyboard(browser, site):
    view = View(browser, site)
    keys = view.page.keyboard
    view.open("overview")
    view.page.locator("body > a.skip").focus()
    for link in ("Overview", "Jobs", "Plan"):
        keys.press("Tab")
        assert focused(view) == link, focused(view)
    keys.press("Enter")
    view.page.locator("h1", has_text="Plan").wait_for()
    # The bars of the plan are one stop of the tab key; arrows go on from there, and Enter opens the job.
    view.page.locator(".gantt a").first.focus()
    keys.press("ArrowRight")
    at_right = focused(view, "getAttribute('aria-label')")
    assert at_right and at_right.startswith("Job "), at_right
    keys.press("ArrowDown")
    below = focused(view, "getBoundingClientRect().top")
    keys.press("ArrowUp")
    assert focused(view, "getBoundingClientRect().top") < below
    assert view.page.locator(".gantt a[tabindex='0']").count() == 1
    keys.press("Enter")
    view.page.locator("h1", has_text="Job ").wait_for()
    # A choice keeps the focus.
    view.open("plan")
    view.page.locator("#plan-by").focus()
    view.page.select_option("#plan-by", "partition")
    view.page.locator("svg.use").first.wait_for()
    assert focused(view, "id") == "plan-by"
    # Switches open and close.
    view.open("topology")
    view.page.locator("ul.tree summary").first.focus()
    keys.press("Enter")
    assert not view.page.locator("ul.tree details").first.evaluate("(one) => one.open")
    # The calendar.
    view.open("reservations")
    title = view.page.locator(".bar.month h2").inner_text()
    view.page.locator("#weeks-after").focus()
    keys.press("Enter")
    view.until("the next weeks", lambda: view.page.locator(".bar.month h2").inner_text() != title)
    assert focused(view, "id") == "weeks-after"
    assert view.page.locator(".chip.again").count() > 20, "a daily reservation is there on every day"
    view.check("keyboard")
    view.context.close()


def lists_and_repetitions(browser, site):
    """Lists of nodes are read as the commands read them, and reservations come again on the days that their flags say."""
    view = View(browser, site)
    view.open("overview")
    for text in ("n[1-3,07],login,a[1-2]b[01-02]", "n[098-101]", "one"):
        read = view.page.evaluate("(text) => import('/web/base.js').then((base) => base.names(text))", text)
        assert read == site.command("scontrol", "show", "hostnames", text).split(), (text, read)
    # However long a list is, it ends; what is no list is one name.
    assert len(view.page.evaluate("() => import('/web/base.js').then((base) => base.names('n[1-99999999999]'))")) == 65536
    assert view.page.evaluate("() => import('/web/base.js').then((base) => base.names('n[1'))") == ["n[1"]
    repeat = """(flag) => import('/web/calendar.js').then(({ runs }) => {
        const at = (day, hour) => ({ set: true, number: new Date(2027, 0, day, hour).getTime() / 1000 });
        const all = runs({ flags: [flag], start_time: at(1, 22), end_time: at(2, 2) }, new Date(2027, 0, 15));
        return all.map((run) => `${run.start.getDate()}-${run.end.getDate()}`).join(' ');
    })"""
    # A part of a report ends where the next begins.
    for every, label, until in (("hour", "2026-12-31T23:00", "2027-01-01T00:00"), ("day", "2026-12-31", "2027-01-01"), ("month", "2026-12", "2027-01-01")):
        read = view.page.evaluate("([every, label]) => import('/web/reports.js').then((reports) => reports.within(every, label).endtime)", [every, label])
        assert read == until, (every, label, read)
    # The first of January 2027 is a Friday.
    for flag, days in (
        ("SPEC_NODES", "1-2"),
        ("DAILY", " ".join(f"{day}-{day + 1}" for day in range(1, 15))),
        ("WEEKLY", "1-2 8-9"),
        ("WEEKDAY", "1-2 4-5 5-6 6-7 7-8 8-9 11-12 12-13 13-14 14-15"),
    ):
        found = view.page.evaluate(repeat, flag)
        assert found == days, (flag, found)
    view.context.close()


def what_is_drawn(browser, site, jobs):
    """Drawings have what the listings have."""
    view = View(browser, site)
    view.open("topology")
    cells = view.page.locator(".cell")
    assert cells.count() == 30, cells.count()
    assert "× n30" in view.text() and "– n28" in view.text(), view.text()
    assert view.page.locator("ul.tree summary strong").all_inner_texts() == ["core", "spine1", "leaf1", "leaf2", "spine2", "leaf3", "At no switch"]
    view.open("plan/by%3Dnode")
    running = site.command("squeue", "-h", "-t", "R", "-o", "%D").split()
    assert view.page.locator(".gantt-bar.runs").count() == sum(map(int, running))
    planned = view.page.locator(f".gantt-bar.plan[href='#/job/{jobs['waits']}']")
    assert planned.count() == 18, planned.count()
    start = site.command("squeue", "-h", "--start", "-j", jobs["waits"], "-o", "%S")
    epoch = int(subprocess.check_output(["date", "-d", start, "+%s"], text=True, env=site.env))
    shown = view.page.evaluate(f"() => import('/web/base.js').then((base) => base.minute({epoch}))")
    row = view.page.locator("tr", has_text="wide").first.inner_text()
    assert shown in row, (shown, row)
    assert "JobHeldUser" in view.text()
    assert view.page.locator("a.band").count() >= 8
    view.open(f"job/{jobs['hostile']}")
    assert view.page.locator(".core.held").count() == 8
    view.open("node/n14")
    assert view.page.locator("table", has_text="Jobs on n14").locator("tbody tr").count() == 1
    view.open(f"job/{jobs['waits']}")
    assert "It waits:" in view.text()
    view.until("who is ahead", lambda: "Ahead of it:" in view.text())
    view.check("drawings")
    view.context.close()


def table_and_changes(browser, site, jobs):
    view = View(browser, site)
    view.open("jobs")
    view.page.fill("#job-filter", "lammps")
    rows = view.page.locator("tbody tr")
    assert rows.count() == 5, rows.count()
    view.page.fill("#job-filter", "")
    view.page.locator("th button", has_text="Name").click()
    names = view.page.locator("tbody tr td:nth-child(2)").all_inner_texts()
    assert names == view.page.evaluate("(all) => [...all].sort(new Intl.Collator(undefined, {numeric: true}).compare)", names)
    count = rows.count()
    with view.page.expect_download() as saved:
        view.page.click("#job-save")
    lines = Path(saved.value.path()).read_text().splitlines()
    assert len(lines) == count + 1, (len(lines), count)
    # The file has the rows of the table in their order, and the address has the filter.
    view.page.fill("#job-filter", "lammps")
    with view.page.expect_download() as saved:
        view.page.click("#job-save")
    cells = [line.split(",") for line in Path(saved.value.path()).read_text().splitlines()]
    shown = [row.split("\t")[:2] for row in rows.all_inner_texts()]
    assert [[cell.strip('"') for cell in line[:2]] for line in cells[1:]] == shown, (cells, shown)
    assert "text%3Dlammps" in view.page.url, view.page.url
    view.page.reload()
    view.until("the filter is kept", lambda: rows.count() == 5)
    view.open("jobs")
    view.until("the filter is gone", lambda: rows.count() == count)
    # No cell is a formula, whatever parts cells where the file is read.
    cells = view.page.evaluate("async (all) => { const {csvCell} = await import('/web/base.js'); return all.map(csvCell); }",
                               ["=1", "a;=HYPERLINK(\"x\")", "a\t-1\n +2", "\uff1d1", "a=1-2", 7])
    assert cells == ["\"'=1\"", "\"a;'=HYPERLINK(\"\"x\"\")\"", "\"a\t'-1\n '+2\"", "\"'\uff1d1\"", '"a=1-2"', '"7"'], cells
    # A job is released and cancelled, a node drained and resumed.
    view.open(f"job/{jobs['held']}")
    view.page.click("#job-hold")
    view.until("released", lambda: "JobHeldUser" not in view.text())
    view.page.on("dialog", lambda dialog: dialog.accept())
    view.page.click("#job-cancel")
    view.until("cancelled", lambda: "CANCELLED" in view.text())
    view.open("node/n29")
    view.page.fill("#reason", "by hand")
    view.page.click("#node-drain")
    view.until("drained", lambda: "by hand" in view.text())
    view.page.click("#node-resume")
    view.until("resumed", lambda: "DRAIN" not in view.text())
    view.check("changes")
    view.context.close()
    # Who may not is refused, and reads why.
    stranger = View(browser, site, user="bin")
    stranger.open(f"job/{jobs['waits']}")
    stranger.page.click("#job-hold")
    stranger.until("refused", lambda: stranger.page.locator("#status").inner_text() != "")
    assert "PENDING" in stranger.text()
    stranger.context.close()


def follows(browser, site):
    """What changes is shown without a question."""
    view = View(browser, site)
    view.open("plan/by%3Dnode")
    number = site.sbatch("-p", "debug", "-w", "n29", "-n1", "-t", "20", "-J", "newcomer")
    bar = view.page.locator(f".gantt-bar.runs[href='#/job/{number}']")
    bar.wait_for()
    # Where all is taken it waits, and its expected start comes once it has been worked out.
    waits = site.sbatch("-p", "debug", "-w", "n29", "-n16", "-t", "20", "-J", "next")
    view.page.locator(f".gantt-bar.plan[href='#/job/{waits}']").wait_for()
    site.command("scancel", number, waits)
    bar.wait_for(state="detached")
    view.check("follows")
    view.context.close()


SHORT = """NodeName=n[01-10] CPUs=16 RealMemory=64000
PartitionName=batch Nodes=n[01-10] Default=YES State=UP MaxTime=3-00:00:00 DefaultTime=60
"""


def reports(browser, axe):
    """What has ended, as a table, as a chart and as files, from the hour down to a job."""
    with Site(SHORT, run_time=1) as site:
        for number in range(24):
            site.sbatch("-N1", "-n", str(1 + number % 12), "-J", HOSTILE if number % 3 else "lammps", user=[None, "daemon"][number % 2])
        view = View(browser, site)
        view.open("overview")
        view.until("all have ended", lambda: site.command("squeue", "-h") == "")
        where = "reports/by%3Duser%26every%3Dhour"
        for width, dark in ((1280, True), (360, False)):
            one = View(browser, site, width=width, dark=dark)
            for page in ("reports", where, "reports/by%3Dapplication%26draw%3Druns"):
                one.look(axe, page, "ended")
                assert one.page.locator("svg.chart rect").count() > 1, page
            one.context.close()
        view.open(where)
        document = json.loads(site.command(site.muster, "report", "--by=user", "--every=hour", "--format=json"))
        # Beside it are tables of fair shares and of storage.
        rows = view.page.get_by_role("table", name="Report", exact=True).locator("tbody tr")
        assert rows.count() == len(document["rows"]), (rows.count(), document)
        heads = view.page.get_by_role("table", name="Report", exact=True).locator("th").all_inner_texts()
        assert all(head[0].isupper() or head[0].isdigit() for head in heads) and heads[1].startswith("User"), heads
        for kind, begin in (("svg", b"<svg"), ("png", b"\x89PNG")):
            with view.page.expect_download() as saved:
                view.page.click(f"#report-{kind}")
            assert Path(saved.value.path()).read_bytes().startswith(begin), kind
        runs = sum(int(link.inner_text()) for link in view.page.locator("td a[href^='#/ended']").all())
        assert runs == document["total"]["runs"] == 24, (runs, document)
        assert "Fair share" in view.text()
        # Down to the jobs of a row, and to one of them.
        link = view.page.locator("td a[href^='#/ended']").first
        count = int(link.inner_text())
        link.click()
        view.page.locator("h1", has_text="Jobs that ended").wait_for()
        rows = view.page.locator("tbody tr")
        assert rows.count() == count, (rows.count(), count)
        view.look(axe, view.page.url.split("#/")[1], "ended-jobs")
        view.page.locator("td a[href^='#/job/']").first.click()
        view.page.locator("h1", has_text="Job ").wait_for()
        view.check("reports")
        view.context.close()


LARGE = """TopologyPlugin=topology/tree
MaxJobCount=50000
NodeName=node[0001-1000] CPUs=64 Sockets=2 CoresPerSocket=32 RealMemory=256000
PartitionName=batch Nodes=node[0001-0900] Default=YES State=UP MaxTime=3-00:00:00 DefaultTime=60
PartitionName=gpu Nodes=node[0901-1000] State=UP MaxTime=1-00:00:00
"""


def large(browser, axe):
    leaves = [f"SwitchName=leaf{n + 1:02} Nodes=node[{40 * n + 1:04}-{40 * n + 40:04}]" for n in range(25)]
    tree = "\n".join([*leaves, "SwitchName=core Switches=leaf[01-25]", ""])
    with Site(LARGE, tree) as site:
        kinds = [("1", "32", "120", "4000"), ("1", "4", "60", "3000"), ("4", "128", "240", "1600"), ("16", "1024", "600", "1000"), ("64", "4096", "180", "400")]
        for nodes, tasks, minutes, count in kinds:
            words = ["-N", nodes, "-n", tasks, "-t", minutes, "-J", f"kind-{nodes}-{tasks}", "-o", "/dev/null", "--wrap", "true"]
            site.command(site.muster, "emulate", "jobs", count, "--clients", "4", "--", *words)
        # The first expected starts take their time; pages do not.
        site.command("squeue", "--start", "-h", "-j", "10000")
        for width, dark in ((1280, False), (360, True)):
            view = View(browser, site, width=width, dark=dark)
            for where in [*PAGES[:-1], "plan/by%3Dnode", "plan/by%3Dnode%26page%3D9"]:
                view.look(axe, where, "large")
                if width > 1000:
                    view.page.wait_for_load_state("load")
                    # What is asked for again, as starts are worked out, is the same once more.
                    each = "Object.values(Object.fromEntries(performance.getEntriesByType('resource').map((one) => [one.name, one.encodedBodySize])))"
                    sent = sum(view.page.evaluate(each))
                    print(f"large {where}: {sent} bytes with what it asks for")
                    assert sent < PAGE_BYTES_MAX, (where, sent)
            view.context.close()


def main():
    if os.geteuid() != 0:
        skip("root is needed: slurmrestd and the users of the jobs have users of their own")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        skip(f"there is no browser; install one of {', '.join(BROWSERS)} (Debian: chromium)")
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    axe = Axe()
    with sync_playwright() as playwright:
        # A user namespace for each page is not to be had as root.
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        with Site(SMALL, TREE) as site:
            nothing_there(opened, axe, site)
            jobs = fill(site)
            all_pages(opened, axe, site, jobs)
            texts_of_users(opened, site, jobs)
            by_keyboard(opened, site)
            lists_and_repetitions(opened, site)
            what_is_drawn(opened, site, jobs)
            table_and_changes(opened, site, jobs)
            follows(opened, site)
        reports(opened, axe)
        if os.environ.get("MUSTER_BROWSER_LARGE") != "no":
            large(opened, axe)
        opened.close()


if __name__ == "__main__":
    main()
