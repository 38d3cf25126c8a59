"""What programs do with Python's drmaa, which calls the library by its C binding. Prints "done" if each call did what DRMAA 1.0 says."""

import os
import sys
import time

import drmaa

PLACE = os.environ["PLACE"]
FOREVER = drmaa.Session.TIMEOUT_WAIT_FOREVER
NO_WAIT = drmaa.Session.TIMEOUT_NO_WAIT
ALL = [drmaa.Session.JOB_IDS_SESSION_ALL]
ANY = drmaa.Session.JOB_IDS_SESSION_ANY


def fails(error, call, *args):
    try:
        call(*args)
    except error:
        return
    sys.exit(f"{call} with {args} does not fail with {error}")


def script(session, text, *args):
    """A template of a shell script in PLACE."""
    template = session.createJobTemplate()
    template.remoteCommand = "/bin/sh"
    template.args = ["-c", text, "name", *args]
    template.workingDirectory = PLACE
    template.outputPath = ":" + PLACE + "/py.out"
    template.joinFiles = True
    return template


def until(session, job, state):
    while session.jobStatus(job) != state:
        time.sleep(0.05)


def attributes(session):
    template = session.createJobTemplate()
    assert "drmaa_wd" in template.attributeNames, template.attributeNames
    for name, value in [
        ("remoteCommand", "cat"),
        ("jobSubmissionState", drmaa.JobSubmissionState.ACTIVE_STATE),
        ("workingDirectory", drmaa.JobTemplate.HOME_DIRECTORY),
        ("nativeSpecification", "-shell yes"),
        ("blockEmail", False),
        ("jobName", "pippo"),
        ("inputPath", ":" + drmaa.JobTemplate.HOME_DIRECTORY),
        ("outputPath", ":" + drmaa.JobTemplate.HOME_DIRECTORY + "/pippo.out"),
        ("errorPath", ":" + drmaa.JobTemplate.HOME_DIRECTORY + "/pippo.err"),
        ("joinFiles", True),
        ("args", ["10", "de", "arglebargle"]),
        ("email", ["baz@quz.edu", "foo@bar.com"]),
        ("jobEnvironment", {"A": "1", "B": "x=y"}),
    ]:
        setattr(template, name, value)
        got = getattr(template, name)
        assert str(got) == str(value), (name, got)
    session.deleteJobTemplate(template)


def one_job(session):
    template = script(session, 'echo "$FOO $1"; exit 3', "two words")
    template.jobEnvironment = {"FOO": "a,b=c"}
    template.jobName = "py"
    job = session.runJob(template)
    info = session.wait(job, FOREVER)
    assert info.jobId == job and info.hasExited and info.exitStatus == 3, info
    assert not info.hasSignal and not info.wasAborted and not info.hasCoreDump, info
    assert float(info.resourceUsage["end_time"]) > 0, info.resourceUsage
    until(session, job, drmaa.JobState.DONE)
    fails(drmaa.InvalidJobException, session.wait, job, NO_WAIT)
    template.nativeSpecification = "-l nosuch=1"
    fails(drmaa.DeniedByDrmException, session.runJob, template)
    session.deleteJobTemplate(template)


def bulk_jobs(session):
    template = script(session, "exit $SGE_TASK_ID")
    jobs = session.runBulkJobs(template, 1, 5, 2)
    assert len(jobs) == 3, jobs
    session.synchronize(jobs, FOREVER, False)
    statuses = sorted(session.wait(job, FOREVER).exitStatus for job in jobs)
    assert statuses == [1, 3, 5], statuses
    jobs = session.runBulkJobs(template, 1, 2, 1)
    session.synchronize(ALL, FOREVER, True)
    fails(drmaa.InvalidJobException, session.wait, ANY, FOREVER)
    session.deleteJobTemplate(template)


def control(session):
    template = script(session, "exec sleep 1000")
    template.jobSubmissionState = drmaa.JobSubmissionState.HOLD_STATE
    job = session.runJob(template)
    assert session.jobStatus(job) == drmaa.JobState.USER_ON_HOLD
    fails(drmaa.HoldInconsistentStateException, session.control, job, drmaa.JobControlAction.HOLD)
    session.control(job, drmaa.JobControlAction.RELEASE)
    until(session, job, drmaa.JobState.RUNNING)
    fails(drmaa.ExitTimeoutException, session.synchronize, [job], 1, False)
    session.control(job, drmaa.JobControlAction.SUSPEND)
    assert session.jobStatus(job) == drmaa.JobState.USER_SUSPENDED
    session.control(job, drmaa.JobControlAction.RESUME)
    assert session.jobStatus(job) == drmaa.JobState.RUNNING
    session.control(job, drmaa.JobControlAction.TERMINATE)
    info = session.wait(ANY, FOREVER)
    assert info.jobId == job and info.hasSignal, info
    assert info.terminatedSignal.startswith("SIG"), info
    until(session, job, drmaa.JobState.FAILED)
    fails(drmaa.InvalidJobException, session.jobStatus, "99999")
    session.deleteJobTemplate(template)


def main():
    session = drmaa.Session()
    contact = session.contact
    assert str(session.version) == "1.0", session.version
    assert session.drmsInfo and session.drmaaImplementation
    fails(drmaa.NoActiveSessionException, session.createJobTemplate)
    session.initialize(contact)
    fails(drmaa.AlreadyActiveSessionException, session.initialize)
    for part in (attributes, one_job, bulk_jobs, control):
        part(session)
    session.exit()
    fails(drmaa.NoActiveSessionException, session.exit)
    with drmaa.Session() as again:
        assert again.contact == contact
    print("done")


main()
