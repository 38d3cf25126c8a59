# needs: drmaa==0.7.9
"""Python's drmaa package, with the behaviours that its own tests look at, through the library that `muster install` brings."""

import os
import shutil
import subprocess
import tempfile

place = tempfile.mkdtemp()
subprocess.run([shutil.which("muster") or "muster", "install", place], check=True)
library = os.path.join(place, "libdrmaa.so.1.0")
assert os.path.exists(library), "this muster was built without libdrmaa: cargo xtask build"
os.environ["DRMAA_LIBRARY_PATH"] = library

import drmaa  # noqa: E402
from drmaa import JobControlAction, JobState, JobSubmissionState, JobTemplate, Session  # noqa: E402
from drmaa.const import PLACEHOLDER_HD, SUBMISSION_STATE_ACTIVE  # noqa: E402

python = shutil.which("python3")

# What is known without a session.
info = Session()
print(info.contact, info.version, info.drmsInfo, info.drmaaImplementation)

with Session() as s:
    # Attributes come back as they were given.
    jt = s.createJobTemplate()
    for name, value in [
        ("remoteCommand", "cat"),
        ("jobSubmissionState", SUBMISSION_STATE_ACTIVE),
        ("workingDirectory", JobTemplate.HOME_DIRECTORY),
        ("nativeSpecification", "-shell yes"),
        ("blockEmail", False),
        ("jobName", "pippo"),
        ("inputPath", ":%s" % PLACEHOLDER_HD),
        ("outputPath", ":%s/pippo.out" % PLACEHOLDER_HD),
        ("errorPath", ":%s/pippo.out" % PLACEHOLDER_HD),
        ("joinFiles", True),
    ]:
        setattr(jt, name, value)
        assert getattr(jt, name) == value, name
    jt.args = [10, "de", "arglebargle"]
    assert jt.args == ["10", "de", "arglebargle"]
    jt.email = ["baz@quz.edu", "foo@bar.com"]
    assert jt.email == ["baz@quz.edu", "foo@bar.com"]
    jt.jobEnvironment = os.environ
    for name, value in os.environ.items():
        assert value[:1014] == jt.jobEnvironment[name][:1014], name
    assert len(jt.attributeNames) > 0
    for wanted in (True, False):
        jt.blockEmail = wanted
        jt.joinFiles = wanted
        assert (jt.blockEmail, jt.joinFiles) == (wanted, wanted)
    for state in (JobSubmissionState.HOLD_STATE, JobSubmissionState.ACTIVE_STATE):
        jt.jobSubmissionState = state
        assert jt.jobSubmissionState == state
    s.deleteJobTemplate(jt)

    # A job with the whole environment.
    os.environ["PIPPO"] = "aaaa"
    jt = s.createJobTemplate()
    jt.remoteCommand = python
    jt.args = ["-c", "from os import environ as env; assert env['PIPPO'] == 'aaaa'"]
    jt.jobEnvironment = os.environ
    jt.workingDirectory = place
    job = s.runJob(jt)
    ended = s.wait(job)
    assert ended.jobId == job and ended.hasExited is True and ended.exitStatus == 0, ended
    assert ended.hasSignal is False and ended.wasAborted is False and ended.hasCoreDump is False
    assert isinstance(ended.terminatedSignal, str) and isinstance(ended.resourceUsage, dict)
    assert s.jobStatus(job) == JobState.DONE

    # A bulk job, all of it waited for.
    jobs = s.runBulkJobs(jt, 1, 5, 2)
    assert len(jobs) == 3
    s.synchronize(jobs, Session.TIMEOUT_WAIT_FOREVER, False)
    assert all(s.wait(job).exitStatus == 0 for job in jobs)

    # One that is held, released, ended.
    jt.remoteCommand = "/bin/sleep"
    jt.args = ["1000"]
    jt.jobSubmissionState = JobSubmissionState.HOLD_STATE
    job = s.runJob(jt)
    assert s.jobStatus(job) == JobState.USER_ON_HOLD
    s.control(job, JobControlAction.RELEASE)
    try:
        s.wait(job, 1)
        raise AssertionError("it cannot have ended")
    except drmaa.errors.ExitTimeoutException:
        pass
    s.control(job, JobControlAction.TERMINATE)
    s.synchronize([job], Session.TIMEOUT_WAIT_FOREVER, False)
    ended = s.wait(job, Session.TIMEOUT_WAIT_FOREVER)
    assert ended.hasSignal or ended.wasAborted, ended

    # What is refused has the standard's error.
    jt.nativeSpecification = "-l nosuch=1"
    try:
        s.runJob(jt)
        raise AssertionError("there is no such resource")
    except drmaa.errors.DeniedByDrmException as error:
        assert 'unknown resource "nosuch"' in str(error)
    try:
        s.wait("999999")
        raise AssertionError("there is no such job")
    except drmaa.errors.InvalidJobException:
        pass
    s.deleteJobTemplate(jt)
shutil.rmtree(place)
print("done")
