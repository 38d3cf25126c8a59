"""What programs call of uge-drmaa2 (the tests of that package do the same), through the library. Prints "done" at the end."""

import os
import time

from drmaa2 import JobInfo, JobSession, JobState, JobTemplate, LibraryManager, MonitoringSession, ReservationSession
from drmaa2 import Capability, Version
from drmaa2.drmaa2_exceptions import Drmaa2Exception, InvalidArgument, InvalidState, TimeoutError, UnsupportedOperation

place = os.environ["PLACE"]
assert LibraryManager.get_drms_name() == "Muster"
assert LibraryManager.get_drmaa_name().startswith("Muster DRMAA ")
assert LibraryManager.drmaa_supports(Capability.JT_EMAIL) and not LibraryManager.drmaa_supports(Capability.JT_STAGING)
version = Version.get_drmaa_version()
assert (version.major, version.minor) == ("2", "2"), version


def raises(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("no %s" % kind.__name__)


def template(text, **more):
    d = {"remote_command": "/bin/sh", "args": ["-c", text], "output_path": "/dev/null", "join_files": True}
    d.update(more)
    return d


# Sessions are there until they are destroyed.
s = JobSession("py", destroy_on_exit=False)
assert JobSession.list_session_names() == ["py"]
s.close()
del s
s = JobSession("py")
assert JobSession.list_session_names() == ["py"]
assert s.contact == os.environ["SLURM_CONF"], s.contact
assert s.get_job_categories() == []

# A job's life.
made = template("echo $A > $PLACE/py.out; exit 3", job_name="first", job_environment={"A": "a,b c", "PLACE": place})
j = s.run_job(made)
assert j.id.isdigit() and j.session_name == "py" and j.job_name == "first", j
j.wait_terminated()
assert j.get_state()[0] == JobState.FAILED
for _ in range(200):
    info = j.get_info()
    if info.cpu_time is not None:
        break
    time.sleep(0.05)
assert (info.job_name, info.exit_status, info.job_state) == ("first", 3, "FAILED"), info
assert info.terminating_signal is None and info.slots >= 1 and len(info.allocated_machines) == 1, info
assert info.implementation_specific["muster_ji_restarts"] == "0", info
assert info.finish_time >= info.dispatch_time >= info.submission_time
had = j.get_template()
assert (had.remote_command, had.args, had.job_name) == ("/bin/sh", made["args"], "first"), had
assert had.job_environment == made["job_environment"] and had.join_files == "TRUE", had
assert open(place + "/py.out").read() == "a,b c\n"
j.reap()
assert s.get_jobs(None) == []

# Control.
j = s.run_job(template("sleep 300", submit_as_hold=True))
assert j.get_state()[0] == JobState.QUEUED_HELD
raises(InvalidState, j.suspend)
j.release()
j.wait_started()
j.suspend()
assert j.get_info().job_state == "SUSPENDED"
j.resume()
assert j.get_info().job_state == "RUNNING"
raises(UnsupportedOperation, lambda: j.suspend(auth={"username": "root"}))
assert [one.id for one in s.get_jobs(JobInfo({"job_id": j.id}))] == [j.id]
assert s.get_jobs(JobInfo({"job_state": JobState.DONE})) == []
raises(TimeoutError, lambda: s.wait_any_terminated([j], 0))
j.terminate()
j.wait_terminated()
assert j.get_info().terminating_signal is not None

# Job arrays.
ja = s.run_bulk_jobs(template("sleep 300", job_name="many"), 1, 10, 5, 2)
ids = [one.id for one in ja.job_list]
assert ids == [ja.id + ".1", ja.id + ".6"], ids
assert sorted(one.id for one in s.wait_all_started(ja.job_list)) == ids
assert s.wait_any_started(ja.job_list).id in ids
assert s.get_job_array(ja.id).id == ja.id and ja.get_template().job_name == "many"
ja.suspend()
assert all(one.get_state()[0] == JobState.SUSPENDED for one in ja.job_list)
ja.resume()
ja.terminate()
assert sorted(one.id for one in s.wait_all_terminated(ja.job_list)) == ids
assert all(one.get_state()[0] == JobState.FAILED for one in ja.job_list)

# Refusals.
assert "maxSlots" in raises(Drmaa2Exception, lambda: s.run_job(template("true", max_slots=9)))
assert "partition" in raises(Drmaa2Exception, lambda: s.run_job(template("true", queue_name="nosuch")))
raises(InvalidArgument, lambda: s.get_job_array("999999"))

# Options of sbatch.
assert JobTemplate.get_implementation_specific_keys() == ["muster_jt_options"]
j = s.run_job(template("sleep 300", implementation_specific={"muster_jt_options": "--comment=own"}))
j.wait_started()

# The cluster.
m = MonitoringSession("any")
machines = m.get_all_machines(None)
assert len(machines) == 2 and all(one.available == "TRUE" and one.machine_os == "LINUX" for one in machines), machines
assert machines[0].phys_memory > 1024 and machines[0].sockets >= 1, machines[0]
assert [one.name for one in m.get_all_machines([machines[1].name])] == [machines[1].name]
assert len(m.get_all_queues(None)) >= 1
assert [one.id for one in m.get_all_jobs(JobInfo({"job_state": JobState.RUNNING}))] == [j.id]
assert j.get_info().implementation_specific["muster_ji_comment"] == "own"
j.terminate()
m.close()

# Reservations.
r = ReservationSession("py")
one = r.request_reservation({"reservation_name": "evening", "duration": 3600})
info = one.get_info()
assert info.reservation_name == "evening" and info.reserved_slots >= 1, info
assert [own.id for own in r.get_reservations()] == [one.id] and r.get_reservation(one.id).id == one.id
assert one.get_template().reservation_name == "evening"
one.terminate()
assert r.get_reservations() == []
r.close()
r.destroy()

s.close()
s.destroy()
assert JobSession.list_session_names() == []
print("done")
