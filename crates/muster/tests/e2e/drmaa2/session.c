/* The functions of DRMAA 2, as a program in C calls them. Ends with 0 if each did what the standard says. */
#include "drmaa2.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fail(int line, const char *what) {
  drmaa2_string why = drmaa2_lasterror_text();
  fprintf(stderr, "line %d: not so: %s (error %d: %s)\n", line, what, drmaa2_lasterror(), why);
  exit(1);
}
#define CHECK(holds)                            \
  do {                                          \
    if (!(holds)) fail(__LINE__, #holds);       \
  } while (0)
#define OK(call) CHECK((call) == DRMAA2_SUCCESS)
#define IS(text, wanted) CHECK((text) != NULL && strcmp((text), (wanted)) == 0)

static drmaa2_jsession js;
static char *place;

static void free_copy(void **value) {
  free(*value);
}

static drmaa2_string path(const char *name) {
  char text[4096];
  snprintf(text, sizeof text, "%s/%s", place, name);
  return strdup(text);
}

static drmaa2_jtemplate script(const char *text) {
  drmaa2_jtemplate jt = drmaa2_jtemplate_create();
  CHECK(jt != NULL && jt->minSlots == DRMAA2_UNSET_NUM && jt->startTime == DRMAA2_UNSET_TIME);
  jt->remoteCommand = strdup("/bin/sh");
  jt->args = drmaa2_list_create(DRMAA2_STRINGLIST, free_copy);
  OK(drmaa2_list_add(jt->args, strdup("-c")));
  OK(drmaa2_list_add(jt->args, strdup(text)));
  jt->workingDirectory = strdup(place);
  jt->outputPath = strdup(DRMAA2_WORKING_DIR "/out." DRMAA2_INDEX);
  jt->joinFiles = DRMAA2_TRUE;
  return jt;
}

static drmaa2_j run(const char *text) {
  drmaa2_jtemplate jt = script(text);
  drmaa2_j job = drmaa2_jsession_run_job(js, jt);
  CHECK(job != NULL);
  drmaa2_jtemplate_free(&jt);
  CHECK(jt == NULL);
  return job;
}

static drmaa2_jstate state(drmaa2_j job) {
  return drmaa2_j_get_state(job, NULL);
}

static void library(void) {
  drmaa2_string name = drmaa2_get_drms_name();
  IS(name, "Muster");
  drmaa2_string_free(&name);
  CHECK(name == NULL);
  name = drmaa2_get_drmaa_name();
  CHECK(name != NULL && strncmp(name, "Muster DRMAA ", 13) == 0);
  drmaa2_string_free(&name);
  drmaa2_version version = drmaa2_get_drmaa_version();
  IS(version->major, "2");
  IS(version->minor, "2");
  drmaa2_version_free(&version);
  version = drmaa2_get_drms_version();
  CHECK(version != NULL && version->major != NULL && version->minor != NULL);
  drmaa2_version_free(&version);
  CHECK(drmaa2_supports(DRMAA2_CALLBACK) == DRMAA2_TRUE);
  CHECK(drmaa2_supports(DRMAA2_JT_STAGING) == DRMAA2_FALSE);
  drmaa2_string_list names = drmaa2_jtemplate_impl_spec();
  CHECK(drmaa2_list_size(names) == 1);
  IS((const char *)drmaa2_list_get(names, 0), "muster_jt_options");
  drmaa2_string text = drmaa2_describe_attribute(NULL, drmaa2_list_get(names, 0));
  CHECK(text != NULL && strstr(text, "sbatch") != NULL);
  drmaa2_string_free(&text);
  drmaa2_list_free(&names);
}

static void *has_no_error(void *unused) {
  (void)unused;
  CHECK(drmaa2_lasterror() == DRMAA2_SUCCESS);
  return NULL;
}

static void sessions(void) {
  CHECK(drmaa2_open_jsession("one") == NULL && drmaa2_lasterror() == DRMAA2_INVALID_ARGUMENT);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, has_no_error, NULL) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(drmaa2_create_jsession("one", "nowhere") == NULL && drmaa2_lasterror() == DRMAA2_INVALID_ARGUMENT);
  js = drmaa2_create_jsession("one", NULL);
  CHECK(js != NULL);
  CHECK(drmaa2_create_jsession("one", NULL) == NULL && drmaa2_lasterror() == DRMAA2_INVALID_ARGUMENT);
  drmaa2_jsession other = drmaa2_create_jsession(NULL, NULL);
  CHECK(other != NULL);
  drmaa2_string name = drmaa2_jsession_get_session_name(other);
  CHECK(name != NULL && strlen(name) > 8);
  drmaa2_string_list names = drmaa2_get_jsession_names();
  CHECK(drmaa2_list_size(names) == 2);
  drmaa2_list_free(&names);
  OK(drmaa2_close_jsession(other));
  CHECK(drmaa2_close_jsession(other) == DRMAA2_INVALID_SESSION);
  CHECK(drmaa2_jsession_get_contact(other) == NULL && drmaa2_lasterror() == DRMAA2_INVALID_SESSION);
  drmaa2_jsession_free(&other);
  OK(drmaa2_destroy_jsession(name));
  CHECK(drmaa2_destroy_jsession(name) == DRMAA2_INVALID_ARGUMENT);
  drmaa2_string_free(&name);
  name = drmaa2_jsession_get_contact(js);
  IS(name, getenv("SLURM_CONF"));
  drmaa2_string_free(&name);
  names = drmaa2_jsession_get_job_categories(js);
  CHECK(drmaa2_list_size(names) == 0);
  drmaa2_list_free(&names);
}

static void job(void) {
  drmaa2_jtemplate jt = script("echo $A; printf '%s\\n' \"$0\"; exit 3");
  OK(drmaa2_list_add(jt->args, strdup("it's two words")));
  jt->jobName = strdup("first");
  jt->jobEnvironment = drmaa2_dict_create(NULL);
  OK(drmaa2_dict_set(jt->jobEnvironment, "A", "a,b c"));
  jt->resourceLimits = drmaa2_dict_create(NULL);
  OK(drmaa2_dict_set(jt->resourceLimits, DRMAA2_WALLCLOCK_TIME, "300"));
  OK(drmaa2_dict_set(jt->resourceLimits, DRMAA2_CORE_FILE_SIZE, "0"));
  jt->minSlots = 2;
  OK(drmaa2_set_instance_value(jt, "muster_jt_options", "--comment='a comment'"));
  drmaa2_j j = drmaa2_jsession_run_job(js, jt);
  CHECK(j != NULL);
  drmaa2_jtemplate_free(&jt);
  OK(drmaa2_j_wait_terminated(j, 60));
  OK(drmaa2_j_wait_started(j, DRMAA2_ZERO_TIME));
  drmaa2_string more = NULL;
  CHECK(drmaa2_j_get_state(j, &more) == DRMAA2_FAILED);
  IS(more, "FAILED");
  drmaa2_string_free(&more);
  drmaa2_string id = drmaa2_j_get_id(j);
  drmaa2_jinfo ji = NULL;
  /* Accounting has it in a moment. */
  for (int i = 0; i < 200 && (ji == NULL || ji->cpuTime == DRMAA2_UNSET_NUM); i++) {
    drmaa2_jinfo_free(&ji);
    ji = drmaa2_j_get_info(j);
    CHECK(ji != NULL);
    usleep(50000);
  }
  IS(ji->jobId, id);
  IS(ji->jobName, "first");
  CHECK(ji->exitStatus == 3 && ji->terminatingSignal == NULL && ji->jobState == DRMAA2_FAILED);
  CHECK(ji->slots >= 2 && ji->jobOwner != NULL && ji->queueName != NULL && ji->submissionMachine != NULL);
  CHECK(ji->cpuTime >= 0 && ji->wallclockTime >= 0 && ji->finishTime >= ji->dispatchTime);
  CHECK(ji->dispatchTime >= ji->submissionTime && ji->submissionTime > 1000000000);
  CHECK(drmaa2_list_size(ji->allocatedMachines) == 1);
  const drmaa2_slotinfo_s *machine = drmaa2_list_get(ji->allocatedMachines, 0);
  CHECK(machine->machineName != NULL && machine->slots >= 2);
  drmaa2_string comment = drmaa2_get_instance_value(ji, "muster_ji_comment");
  IS(comment, "a comment");
  drmaa2_string_free(&comment);
  drmaa2_jinfo_free(&ji);
  /* What it was submitted with. */
  jt = drmaa2_j_get_jtemplate(j);
  IS(jt->remoteCommand, "/bin/sh");
  CHECK(drmaa2_list_size(jt->args) == 3 && jt->minSlots == 2 && jt->maxSlots == DRMAA2_UNSET_NUM);
  IS((const char *)drmaa2_list_get(jt->args, 2), "it's two words");
  IS(drmaa2_dict_get(jt->jobEnvironment, "A"), "a,b c");
  CHECK(jt->joinFiles == DRMAA2_TRUE && jt->rerunnable == DRMAA2_FALSE);
  drmaa2_jtemplate_free(&jt);
  /* Reaped, it is no longer the session's. */
  drmaa2_j_list jobs = drmaa2_jsession_get_jobs(js, NULL);
  CHECK(drmaa2_list_size(jobs) == 1);
  drmaa2_list_free(&jobs);
  OK(drmaa2_j_reap(j));
  CHECK(drmaa2_j_reap(j) == DRMAA2_INVALID_ARGUMENT);
  CHECK(drmaa2_j_get_jtemplate(j) == NULL);
  jobs = drmaa2_jsession_get_jobs(js, NULL);
  CHECK(drmaa2_list_size(jobs) == 0);
  drmaa2_list_free(&jobs);
  drmaa2_string_free(&id);
  drmaa2_j_free(&j);
}

static void control(void) {
  drmaa2_jtemplate jt = script("sleep 300");
  jt->submitAsHold = DRMAA2_TRUE;
  drmaa2_j j = drmaa2_jsession_run_job(js, jt);
  drmaa2_jtemplate_free(&jt);
  CHECK(state(j) == DRMAA2_QUEUED_HELD);
  CHECK(drmaa2_j_hold(j) == DRMAA2_INVALID_STATE && drmaa2_j_suspend(j) == DRMAA2_INVALID_STATE);
  CHECK(drmaa2_j_wait_started(j, DRMAA2_ZERO_TIME) == DRMAA2_TIMEOUT);
  CHECK(drmaa2_j_wait_terminated(j, 1) == DRMAA2_TIMEOUT);
  CHECK(drmaa2_j_reap(j) == DRMAA2_INVALID_STATE);
  OK(drmaa2_j_release(j));
  OK(drmaa2_j_wait_started(j, 60));
  CHECK(state(j) == DRMAA2_RUNNING && drmaa2_j_release(j) == DRMAA2_INVALID_STATE);
  OK(drmaa2_j_suspend(j));
  CHECK(state(j) == DRMAA2_SUSPENDED);
  /* Another process finds it suspended, too: a session outlives processes. */
  drmaa2_j_s own = {drmaa2_j_get_id(j), drmaa2_j_get_session_name(j), NULL};
  IS(own.session_name, "one");
  CHECK(state(&own) == DRMAA2_SUSPENDED);
  OK(drmaa2_j_resume(&own));
  CHECK(state(j) == DRMAA2_RUNNING);
  OK(drmaa2_j_terminate(j));
  OK(drmaa2_j_wait_terminated(j, DRMAA2_INFINITE_TIME));
  CHECK(state(j) == DRMAA2_FAILED && drmaa2_j_terminate(j) == DRMAA2_INVALID_STATE);
  drmaa2_jinfo ji = drmaa2_j_get_info(j);
  IS(ji->jobSubState, "CANCELLED");
  CHECK(ji->terminatingSignal != NULL);
  drmaa2_jinfo_free(&ji);
  drmaa2_j_free(&j);
  /* One that ends before it starts can no longer be waited for. */
  jt = script("true");
  jt->startTime = time(NULL) + 100000;
  j = drmaa2_jsession_run_job(js, jt);
  drmaa2_jtemplate_free(&jt);
  CHECK(state(j) == DRMAA2_QUEUED);
  OK(drmaa2_j_terminate(j));
  CHECK(drmaa2_j_wait_started(j, 60) == DRMAA2_INVALID_STATE);
  drmaa2_j_free(&j);
}

static void wait_any(void) {
  drmaa2_j_list list = drmaa2_list_create(DRMAA2_JOBLIST, DRMAA2_UNSET_CALLBACK);
  CHECK(drmaa2_jsession_wait_any_started(js, list, 1) == NULL && drmaa2_lasterror() == DRMAA2_INVALID_ARGUMENT);
  drmaa2_j slow = run("sleep 300"), quick = run("exit 0");
  OK(drmaa2_list_add(list, slow));
  OK(drmaa2_list_add(list, quick));
  drmaa2_j one = drmaa2_jsession_wait_any_started(js, list, 60);
  CHECK(one != NULL);
  drmaa2_j_free(&one);
  one = drmaa2_jsession_wait_any_terminated(js, list, 60);
  CHECK(one != NULL);
  IS(one->id, quick->id);
  CHECK(state(one) == DRMAA2_DONE);
  drmaa2_j_free(&one);
  OK(drmaa2_list_del(list, 1));
  CHECK(drmaa2_jsession_wait_any_terminated(js, list, DRMAA2_ZERO_TIME) == NULL);
  CHECK(drmaa2_lasterror() == DRMAA2_TIMEOUT);
  OK(drmaa2_j_terminate(slow));
  drmaa2_list_free(&list);
  drmaa2_j_free(&slow);
  drmaa2_j_free(&quick);
}

static void array(void) {
  drmaa2_jtemplate jt = script("echo $SLURM_ARRAY_TASK_ID; sleep 300");
  jt->jobName = strdup("many");
  CHECK(drmaa2_jsession_run_bulk_jobs(js, jt, 0, 3, 1, 0) == NULL && drmaa2_lasterror() == DRMAA2_INVALID_ARGUMENT);
  drmaa2_jarray ja = drmaa2_jsession_run_bulk_jobs(js, jt, 1, 5, 2, 2);
  drmaa2_jtemplate_free(&jt);
  CHECK(ja != NULL);
  drmaa2_string id = drmaa2_jarray_get_id(ja);
  drmaa2_j_list jobs = drmaa2_jarray_get_jobs(ja);
  CHECK(drmaa2_list_size(jobs) == 3);
  drmaa2_j first = (drmaa2_j)drmaa2_list_get(jobs, 0), last = (drmaa2_j)drmaa2_list_get(jobs, 2);
  CHECK(strstr(last->id, ".5") != NULL);
  OK(drmaa2_j_wait_started(first, 60));
  usleep(300000);
  CHECK(state(last) == DRMAA2_QUEUED);
  OK(drmaa2_jarray_hold(ja));
  CHECK(state(last) == DRMAA2_QUEUED_HELD);
  CHECK(drmaa2_jarray_hold(ja) == DRMAA2_INVALID_STATE);
  OK(drmaa2_jarray_release(ja));
  OK(drmaa2_jarray_suspend(ja));
  CHECK(state(first) == DRMAA2_SUSPENDED);
  OK(drmaa2_jarray_resume(ja));
  CHECK(state(first) == DRMAA2_RUNNING);
  drmaa2_jarray same = drmaa2_jsession_get_job_array(js, id);
  CHECK(same != NULL && drmaa2_list_size(same->job_list) == 3);
  drmaa2_jarray_free(&same);
  CHECK(drmaa2_jsession_get_job_array(js, "999999") == NULL);
  drmaa2_jtemplate had = drmaa2_jarray_get_jtemplate(ja);
  IS(had->jobName, "many");
  drmaa2_jtemplate_free(&had);
  OK(drmaa2_jarray_terminate(ja));
  for (int i = 0; i < 3; i++) OK(drmaa2_j_wait_terminated((drmaa2_j)drmaa2_list_get(jobs, i), 60));
  OK(drmaa2_jarray_reap(ja));
  drmaa2_list_free(&jobs);
  drmaa2_string_free(&id);
  drmaa2_jarray_free(&ja);
  CHECK(ja == NULL);
}

static void refusals(void) {
  drmaa2_jtemplate jt = drmaa2_jtemplate_create();
  CHECK(drmaa2_jsession_run_job(js, jt) == NULL && drmaa2_lasterror() == DRMAA2_INVALID_ARGUMENT);
  CHECK(drmaa2_jsession_run_job(js, NULL) == NULL && drmaa2_lasterror() == DRMAA2_INVALID_ARGUMENT);
  CHECK(drmaa2_jsession_run_job(NULL, jt) == NULL && drmaa2_lasterror() == DRMAA2_INVALID_SESSION);
  jt->remoteCommand = strdup("/bin/true");
  jt->maxSlots = 7;
  CHECK(drmaa2_jsession_run_job(js, jt) == NULL && drmaa2_lasterror() == DRMAA2_UNSUPPORTED_ATTRIBUTE);
  jt->maxSlots = DRMAA2_UNSET_NUM;
  jt->queueName = strdup("nosuch");
  CHECK(drmaa2_jsession_run_job(js, jt) == NULL && drmaa2_lasterror() == DRMAA2_DENIED_BY_DRMS);
  drmaa2_string why = drmaa2_lasterror_text();
  CHECK(strstr(why, "partition") != NULL);
  drmaa2_string_free(&why);
  drmaa2_string_free(&jt->queueName);
  jt->candidateMachines = drmaa2_list_create(DRMAA2_STRINGLIST, NULL);
  OK(drmaa2_list_add(jt->candidateMachines, "nosuch"));
  CHECK(drmaa2_jsession_run_job(js, jt) == NULL && drmaa2_lasterror() == DRMAA2_INVALID_ARGUMENT);
  drmaa2_jtemplate_free(&jt);
  drmaa2_j_s none = {"987654", NULL, NULL}, wrong = {"x", NULL, NULL}, empty = {NULL, NULL, NULL};
  CHECK(state(&none) == DRMAA2_UNSET_JSTATE && drmaa2_lasterror() == DRMAA2_INVALID_ARGUMENT);
  CHECK(drmaa2_j_terminate(&wrong) == DRMAA2_INVALID_ARGUMENT);
  CHECK(drmaa2_j_get_info(&empty) == NULL && drmaa2_j_suspend(NULL) == DRMAA2_INVALID_ARGUMENT);
}

static void monitor(void) {
  drmaa2_msession ms = drmaa2_open_msession(NULL);
  CHECK(ms != NULL);
  drmaa2_machineinfo_list machines = drmaa2_msession_get_all_machines(ms, NULL);
  CHECK(drmaa2_list_size(machines) == 2);
  drmaa2_machineinfo machine = (drmaa2_machineinfo)drmaa2_list_get(machines, 1);
  CHECK(machine->available == DRMAA2_TRUE && machine->sockets >= 1 && machine->coresPerSocket >= 1);
  CHECK(machine->physMemory > 1024 && machine->load >= 0 && machine->machineOS == DRMAA2_LINUX);
  CHECK(machine->machineArch >= DRMAA2_OTHER_CPU && atoi(machine->machineOSVersion->major) > 2);
  /* A job on one machine of two. */
  drmaa2_jtemplate jt = script("sleep 300");
  jt->candidateMachines = drmaa2_list_create(DRMAA2_STRINGLIST, NULL);
  OK(drmaa2_list_add(jt->candidateMachines, machine->name));
  jt->machineArch = machine->machineArch;
  drmaa2_j j = drmaa2_jsession_run_job(js, jt);
  CHECK(j != NULL);
  drmaa2_list_free(&jt->candidateMachines);
  drmaa2_jtemplate_free(&jt);
  OK(drmaa2_j_wait_started(j, 60));
  drmaa2_jinfo ji = drmaa2_j_get_info(j);
  IS(((const drmaa2_slotinfo_s *)drmaa2_list_get(ji->allocatedMachines, 0))->machineName, machine->name);
  drmaa2_jinfo_free(&ji);
  ji = drmaa2_jinfo_create();
  ji->jobState = DRMAA2_RUNNING;
  ji->allocatedMachines = drmaa2_list_create(DRMAA2_STRINGLIST, NULL);
  OK(drmaa2_list_add(ji->allocatedMachines, machine->name));
  drmaa2_j_list jobs = drmaa2_msession_get_all_jobs(ms, ji);
  CHECK(drmaa2_list_size(jobs) == 1);
  IS(((drmaa2_j)drmaa2_list_get(jobs, 0))->id, j->id);
  drmaa2_list_free(&jobs);
  ji->jobState = DRMAA2_QUEUED;
  jobs = drmaa2_msession_get_all_jobs(ms, ji);
  CHECK(jobs != NULL && drmaa2_list_size(jobs) == 0);
  drmaa2_list_free(&jobs);
  drmaa2_jinfo_free(&ji);
  OK(drmaa2_j_terminate(j));
  drmaa2_j_free(&j);
  drmaa2_list_free(&machines);
  drmaa2_string_list names = drmaa2_list_create(DRMAA2_STRINGLIST, NULL);
  OK(drmaa2_list_add(names, "nosuch"));
  machines = drmaa2_msession_get_all_machines(ms, names);
  CHECK(drmaa2_list_size(machines) == 0);
  drmaa2_list_free(&machines);
  drmaa2_list_free(&names);
  drmaa2_queueinfo_list queues = drmaa2_msession_get_all_queues(ms, NULL);
  CHECK(drmaa2_list_size(queues) >= 1);
  CHECK(((drmaa2_queueinfo)drmaa2_list_get(queues, 0))->name != NULL);
  drmaa2_list_free(&queues);
  OK(drmaa2_close_msession(ms));
  CHECK(drmaa2_msession_get_all_queues(ms, NULL) == NULL && drmaa2_lasterror() == DRMAA2_INVALID_SESSION);
  drmaa2_msession_free(&ms);
}

static void reservations(void) {
  drmaa2_rsession rs = drmaa2_create_rsession("two", "");
  CHECK(rs != NULL);
  drmaa2_rtemplate rt = drmaa2_rtemplate_create();
  CHECK(drmaa2_rsession_request_reservation(rs, rt) == NULL && drmaa2_lasterror() == DRMAA2_INVALID_ARGUMENT);
  rt->reservationName = strdup("evening");
  rt->startTime = DRMAA2_NOW;
  rt->duration = 3600;
  rt->minSlots = 1;
  drmaa2_r r = drmaa2_rsession_request_reservation(rs, rt);
  CHECK(r != NULL);
  drmaa2_rtemplate_free(&rt);
  drmaa2_rinfo ri = drmaa2_r_get_info(r);
  IS(ri->reservationName, "evening");
  CHECK(ri->reservedEndTime - ri->reservedStartTime == 3600 && ri->reservedSlots >= 1);
  CHECK(drmaa2_list_size(ri->usersACL) == 1 && drmaa2_list_size(ri->reservedMachines) == 1);
  /* A job in it. */
  drmaa2_jtemplate jt = script("exit 0");
  jt->reservationId = strdup(ri->reservationId);
  drmaa2_j j = drmaa2_jsession_run_job(js, jt);
  CHECK(j != NULL);
  drmaa2_jtemplate_free(&jt);
  OK(drmaa2_j_wait_terminated(j, 60));
  CHECK(state(j) == DRMAA2_DONE);
  drmaa2_j_free(&j);
  drmaa2_r_list all = drmaa2_rsession_get_reservations(rs);
  CHECK(drmaa2_list_size(all) == 1);
  drmaa2_list_free(&all);
  drmaa2_msession ms = drmaa2_open_msession("any");
  all = drmaa2_msession_get_all_reservations(ms);
  CHECK(drmaa2_list_size(all) == 1);
  drmaa2_list_free(&all);
  OK(drmaa2_close_msession(ms));
  drmaa2_msession_free(&ms);
  drmaa2_r same = drmaa2_rsession_get_reservation(rs, ri->reservationId);
  CHECK(same != NULL);
  drmaa2_rtemplate had = drmaa2_r_get_reservation_template(same);
  CHECK(had->duration == 3600 && had->startTime == DRMAA2_NOW);
  drmaa2_rtemplate_free(&had);
  drmaa2_r_free(&same);
  drmaa2_rinfo_free(&ri);
  OK(drmaa2_r_terminate(r));
  CHECK(drmaa2_r_terminate(r) == DRMAA2_INVALID_STATE);
  CHECK(drmaa2_rsession_get_reservation(rs, r->id) == NULL);
  drmaa2_r_free(&r);
  OK(drmaa2_close_rsession(rs));
  drmaa2_rsession_free(&rs);
  OK(drmaa2_destroy_rsession("two"));
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char watched[64];
static int seen[9];

static void event(drmaa2_notification *n) {
  pthread_mutex_lock(&lock);
  if ((*n)->event == DRMAA2_NEW_STATE && strcmp((*n)->jobId, watched) == 0 && strcmp((*n)->sessionName, "one") == 0)
    seen[(*n)->jobState]++;
  pthread_mutex_unlock(&lock);
  drmaa2_notification_free(n);
}

static int count(drmaa2_jstate which) {
  pthread_mutex_lock(&lock);
  int own = seen[which];
  pthread_mutex_unlock(&lock);
  return own;
}

static void events(void) {
  drmaa2_jtemplate jt = script("exit 0");
  jt->submitAsHold = DRMAA2_TRUE;
  drmaa2_j j = drmaa2_jsession_run_job(js, jt);
  drmaa2_jtemplate_free(&jt);
  pthread_mutex_lock(&lock);
  snprintf(watched, sizeof watched, "%s", j->id);
  pthread_mutex_unlock(&lock);
  OK(drmaa2_register_event_notification(event));
  for (int i = 0; i < 600 && count(DRMAA2_QUEUED_HELD) == 0; i++) usleep(50000);
  OK(drmaa2_j_release(j));
  for (int i = 0; i < 600 && count(DRMAA2_DONE) == 0; i++) usleep(50000);
  OK(drmaa2_register_event_notification(DRMAA2_UNSET_CALLBACK));
  CHECK(count(DRMAA2_QUEUED_HELD) == 1 && count(DRMAA2_DONE) == 1);
  drmaa2_j_free(&j);
}

int main(int count, char **words) {
  place = getenv("PLACE");
  if (count > 1) {
    /* A session that another process made. */
    js = drmaa2_open_jsession("one");
    CHECK(js != NULL);
    drmaa2_j_list jobs = drmaa2_jsession_get_jobs(js, NULL);
    printf("%ld\n", drmaa2_list_size(jobs));
    drmaa2_list_free(&jobs);
    OK(drmaa2_close_jsession(js));
    drmaa2_jsession_free(&js);
    OK(drmaa2_destroy_jsession(words[1]));
    return 0;
  }
  library();
  sessions();
  job();
  control();
  wait_any();
  array();
  refusals();
  monitor();
  reservations();
  events();
  OK(drmaa2_close_jsession(js));
  drmaa2_jsession_free(&js);
  drmaa2_string unused = path("x");
  drmaa2_string_free(&unused);
  puts("done");
  return 0;
}
