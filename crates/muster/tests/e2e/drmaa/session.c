/* All functions of DRMAA 1.0, as a program in C calls them. Ends with 0 if each did what the standard says. */
#include "drmaa.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char why[DRMAA_ERROR_STRING_BUFFER];
#define WHY why, sizeof why
#define EXPECT(call, code)                                                                 \
  do {                                                                                     \
    int got = (call);                                                                      \
    if (got != (code)) {                                                                   \
      fprintf(stderr, "line %d: %s gives %d, not %s: %s\n", __LINE__, #call, got, #code, why); \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)
#define OK(call) EXPECT(call, DRMAA_ERRNO_SUCCESS)
#define CHECK(holds)                                                  \
  do {                                                                \
    if (!(holds)) {                                                   \
      fprintf(stderr, "line %d: not so: %s\n", __LINE__, #holds);     \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

static drmaa_job_template_t *script(const char *text) {
  drmaa_job_template_t *jt = NULL;
  const char *args[] = {"-c", text, "name", "two words", NULL};
  OK(drmaa_allocate_job_template(&jt, WHY));
  OK(drmaa_set_attribute(jt, DRMAA_REMOTE_COMMAND, "/bin/sh", WHY));
  OK(drmaa_set_vector_attribute(jt, DRMAA_V_ARGV, args, WHY));
  OK(drmaa_set_attribute(jt, DRMAA_WD, getenv("PLACE"), WHY));
  OK(drmaa_set_attribute(jt, DRMAA_OUTPUT_PATH, ":$drmaa_wd_ph$/out.$drmaa_incr_ph$", WHY));
  OK(drmaa_set_attribute(jt, DRMAA_JOIN_FILES, "y", WHY));
  return jt;
}

static void until(const char *job, int wanted) {
  int ps = -1;
  for (int i = 0; i < 2400 && ps != wanted; i++) {
    OK(drmaa_job_ps(job, &ps, WHY));
    nanosleep(&(struct timespec){0, 50000000}, NULL);
  }
  CHECK(ps == wanted);
}

static void templates(void) {
  drmaa_job_template_t *jt = NULL;
  drmaa_attr_names_t *names = NULL;
  drmaa_attr_values_t *values = NULL;
  char text[DRMAA_ATTR_BUFFER];
  size_t count = 0;
  OK(drmaa_allocate_job_template(&jt, WHY));
  OK(drmaa_get_attribute_names(&names, WHY));
  OK(drmaa_get_num_attr_names(names, &count));
  CHECK(count >= 12);
  while (drmaa_get_next_attr_name(names, text, sizeof text) == DRMAA_ERRNO_SUCCESS) count--;
  CHECK(count == 0);
  drmaa_release_attr_names(names);
  OK(drmaa_get_vector_attribute_names(&names, WHY));
  drmaa_release_attr_names(names);
  OK(drmaa_set_attribute(jt, DRMAA_JOB_NAME, "pippo", WHY));
  OK(drmaa_get_attribute(jt, DRMAA_JOB_NAME, text, sizeof text, WHY));
  CHECK(!strcmp(text, "pippo"));
  OK(drmaa_get_attribute(jt, DRMAA_JOB_NAME, text, 3, WHY));
  CHECK(!strcmp(text, "pi"));
  const char *mail[] = {"a@b", "c@d", NULL};
  OK(drmaa_set_vector_attribute(jt, DRMAA_V_EMAIL, mail, WHY));
  OK(drmaa_get_vector_attribute(jt, DRMAA_V_EMAIL, &values, WHY));
  OK(drmaa_get_num_attr_values(values, &count));
  CHECK(count == 2);
  OK(drmaa_get_next_attr_value(values, text, sizeof text));
  OK(drmaa_get_next_attr_value(values, text, sizeof text));
  CHECK(!strcmp(text, "c@d"));
  EXPECT(drmaa_get_next_attr_value(values, text, sizeof text), DRMAA_ERRNO_NO_MORE_ELEMENTS);
  drmaa_release_attr_values(values);
  EXPECT(drmaa_set_attribute(jt, "drmaa_nosuch", "x", WHY), DRMAA_ERRNO_INVALID_ARGUMENT);
  EXPECT(drmaa_set_attribute(jt, DRMAA_JS_STATE, "x", WHY), DRMAA_ERRNO_INVALID_ATTRIBUTE_VALUE);
  EXPECT(drmaa_set_attribute(jt, DRMAA_OUTPUT_PATH, "x", WHY), DRMAA_ERRNO_INVALID_ATTRIBUTE_FORMAT);
  EXPECT(drmaa_set_attribute(jt, DRMAA_START_TIME, "x", WHY), DRMAA_ERRNO_INVALID_ATTRIBUTE_FORMAT);
  EXPECT(drmaa_set_attribute(jt, NULL, "x", WHY), DRMAA_ERRNO_INVALID_ARGUMENT);
  EXPECT(drmaa_set_attribute((void *)4096, DRMAA_WD, "/", WHY), DRMAA_ERRNO_INVALID_ARGUMENT);
  EXPECT(drmaa_run_job(text, sizeof text, jt, WHY), DRMAA_ERRNO_INVALID_ATTRIBUTE_VALUE);
  OK(drmaa_delete_job_template(jt, WHY));
  EXPECT(drmaa_delete_job_template(jt, WHY), DRMAA_ERRNO_INVALID_ARGUMENT);
}

static void one_job(void) {
  char job[DRMAA_JOBNAME_BUFFER], other[DRMAA_JOBNAME_BUFFER];
  int stat = 0, yes = 0, status = 0;
  drmaa_attr_values_t *usage = NULL;
  size_t count = 0;
  drmaa_job_template_t *jt = script("[ \"$FOO $1\" = 'a,b=c two words' ] && exit 3");
  const char *environment[] = {"FOO=a,b=c", "B=1", NULL};
  OK(drmaa_set_vector_attribute(jt, DRMAA_V_ENV, environment, WHY));
  OK(drmaa_set_attribute(jt, DRMAA_NATIVE_SPECIFICATION, "-l h_rt=0:5:0 -p -3", WHY));
  OK(drmaa_run_job(job, sizeof job, jt, WHY));
  OK(drmaa_wait(job, other, sizeof other, &stat, DRMAA_TIMEOUT_WAIT_FOREVER, &usage, WHY));
  CHECK(!strcmp(job, other));
  OK(drmaa_wifexited(&yes, stat, WHY));
  OK(drmaa_wexitstatus(&status, stat, WHY));
  CHECK(yes && status == 3);
  OK(drmaa_wifsignaled(&yes, stat, WHY));
  CHECK(!yes);
  OK(drmaa_wifaborted(&yes, stat, WHY));
  CHECK(!yes);
  OK(drmaa_wcoredump(&yes, stat, WHY));
  CHECK(!yes);
  OK(drmaa_get_num_attr_values(usage, &count));
  CHECK(count > 5);
  drmaa_release_attr_values(usage);
  until(job, DRMAA_PS_DONE);
  EXPECT(drmaa_wait(job, NULL, 0, NULL, DRMAA_TIMEOUT_NO_WAIT, NULL, WHY), DRMAA_ERRNO_INVALID_JOB);
  /* The words of sbatch, and a job that is refused. */
  OK(drmaa_set_attribute(jt, DRMAA_NATIVE_SPECIFICATION, "--ntasks=2 --comment='x y'", WHY));
  const char *args[] = {"-c", "exit $SLURM_NTASKS", NULL};
  OK(drmaa_set_vector_attribute(jt, DRMAA_V_ARGV, args, WHY));
  OK(drmaa_run_job(job, sizeof job, jt, WHY));
  OK(drmaa_wait(job, NULL, 0, &stat, DRMAA_TIMEOUT_WAIT_FOREVER, NULL, WHY));
  OK(drmaa_wexitstatus(&status, stat, WHY));
  CHECK(status == 2);
  OK(drmaa_set_attribute(jt, DRMAA_NATIVE_SPECIFICATION, "-l nosuch=1", WHY));
  EXPECT(drmaa_run_job(job, sizeof job, jt, WHY), DRMAA_ERRNO_DENIED_BY_DRM);
  CHECK(strstr(why, "unknown resource \"nosuch\""));
  OK(drmaa_set_attribute(jt, DRMAA_NATIVE_SPECIFICATION, "--partition=nosuch", WHY));
  EXPECT(drmaa_run_job(job, sizeof job, jt, WHY), DRMAA_ERRNO_DENIED_BY_DRM);
  CHECK(strstr(why, "nvalid partition"));
  OK(drmaa_delete_job_template(jt, WHY));
}

static void bulk_job(void) {
  drmaa_job_ids_t *jobs = NULL;
  size_t count = 0;
  int stat = 0, status = 0, sum = 0;
  char all[3][DRMAA_JOBNAME_BUFFER];
  drmaa_job_template_t *jt = script("echo $SGE_TASK_ID; exit $SGE_TASK_ID");
  EXPECT(drmaa_run_bulk_jobs(&jobs, jt, 3, 1, 1, WHY), DRMAA_ERRNO_INVALID_ARGUMENT);
  OK(drmaa_run_bulk_jobs(&jobs, jt, 1, 5, 2, WHY));
  OK(drmaa_get_num_job_ids(jobs, &count));
  CHECK(count == 3);
  for (int i = 0; i < 3; i++) OK(drmaa_get_next_job_id(jobs, all[i], sizeof all[i]));
  drmaa_release_job_ids(jobs);
  const char *list[] = {all[0], all[1], all[2], NULL};
  OK(drmaa_synchronize(list, DRMAA_TIMEOUT_WAIT_FOREVER, 0, WHY));
  for (int i = 0; i < 3; i++) {
    OK(drmaa_wait(DRMAA_JOB_IDS_SESSION_ANY, NULL, 0, &stat, DRMAA_TIMEOUT_WAIT_FOREVER, NULL, WHY));
    OK(drmaa_wexitstatus(&status, stat, WHY));
    sum += status;
  }
  CHECK(sum == 1 + 3 + 5);
  EXPECT(drmaa_wait(DRMAA_JOB_IDS_SESSION_ANY, NULL, 0, &stat, 0, NULL, WHY), DRMAA_ERRNO_INVALID_JOB);
  OK(drmaa_delete_job_template(jt, WHY));
}

static void control(void) {
  char job[DRMAA_JOBNAME_BUFFER], signal[DRMAA_SIGNAL_BUFFER];
  int stat = 0, yes = 0;
  drmaa_job_template_t *jt = script("exec sleep 1000");
  const char *all[] = {DRMAA_JOB_IDS_SESSION_ALL, NULL};
  OK(drmaa_set_attribute(jt, DRMAA_JS_STATE, DRMAA_SUBMISSION_STATE_HOLD, WHY));
  OK(drmaa_run_job(job, sizeof job, jt, WHY));
  until(job, DRMAA_PS_USER_ON_HOLD);
  EXPECT(drmaa_control(job, DRMAA_CONTROL_HOLD, WHY), DRMAA_ERRNO_HOLD_INCONSISTENT_STATE);
  EXPECT(drmaa_control(job, DRMAA_CONTROL_SUSPEND, WHY), DRMAA_ERRNO_SUSPEND_INCONSISTENT_STATE);
  OK(drmaa_control(job, DRMAA_CONTROL_RELEASE, WHY));
  until(job, DRMAA_PS_RUNNING);
  EXPECT(drmaa_control(job, DRMAA_CONTROL_RELEASE, WHY), DRMAA_ERRNO_RELEASE_INCONSISTENT_STATE);
  EXPECT(drmaa_control(job, DRMAA_CONTROL_RESUME, WHY), DRMAA_ERRNO_RESUME_INCONSISTENT_STATE);
  EXPECT(drmaa_control(job, 7, WHY), DRMAA_ERRNO_INVALID_ARGUMENT);
  OK(drmaa_control(job, DRMAA_CONTROL_SUSPEND, WHY));
  until(job, DRMAA_PS_USER_SUSPENDED);
  OK(drmaa_control(job, DRMAA_CONTROL_RESUME, WHY));
  until(job, DRMAA_PS_RUNNING);
  EXPECT(drmaa_wait(job, NULL, 0, &stat, 1, NULL, WHY), DRMAA_ERRNO_EXIT_TIMEOUT);
  EXPECT(drmaa_synchronize(all, DRMAA_TIMEOUT_NO_WAIT, 0, WHY), DRMAA_ERRNO_EXIT_TIMEOUT);
  OK(drmaa_control(DRMAA_JOB_IDS_SESSION_ALL, DRMAA_CONTROL_TERMINATE, WHY));
  OK(drmaa_wait(job, NULL, 0, &stat, DRMAA_TIMEOUT_WAIT_FOREVER, NULL, WHY));
  OK(drmaa_wifsignaled(&yes, stat, WHY));
  CHECK(yes);
  OK(drmaa_wtermsig(signal, sizeof signal, stat, WHY));
  CHECK(!strncmp(signal, "SIG", 3));
  until(job, DRMAA_PS_FAILED);
  /* One that never ran. */
  OK(drmaa_run_job(job, sizeof job, jt, WHY));
  OK(drmaa_control(job, DRMAA_CONTROL_TERMINATE, WHY));
  OK(drmaa_wait(job, NULL, 0, &stat, DRMAA_TIMEOUT_WAIT_FOREVER, NULL, WHY));
  OK(drmaa_wifaborted(&yes, stat, WHY));
  CHECK(yes);
  OK(drmaa_synchronize(all, DRMAA_TIMEOUT_WAIT_FOREVER, 1, WHY));
  EXPECT(drmaa_job_ps("99999", &stat, WHY), DRMAA_ERRNO_INVALID_JOB);
  EXPECT(drmaa_job_ps("x", &stat, WHY), DRMAA_ERRNO_INVALID_JOB);
  OK(drmaa_delete_job_template(jt, WHY));
}

int main(void) {
  char text[DRMAA_CONTACT_BUFFER];
  unsigned int major = 0, minor = 9;
  drmaa_job_template_t *jt = NULL;
  OK(drmaa_version(&major, &minor, WHY));
  CHECK(major == 1 && minor == 0);
  OK(drmaa_get_DRM_system(text, sizeof text, WHY));
  OK(drmaa_get_DRMAA_implementation(text, sizeof text, WHY));
  OK(drmaa_get_contact(text, sizeof text, WHY));
  CHECK(strstr(drmaa_strerror(DRMAA_ERRNO_INVALID_JOB), "job") && drmaa_strerror(-1));
  EXPECT(drmaa_allocate_job_template(&jt, WHY), DRMAA_ERRNO_NO_ACTIVE_SESSION);
  EXPECT(drmaa_exit(WHY), DRMAA_ERRNO_NO_ACTIVE_SESSION);
  EXPECT(drmaa_init("/nosuch", WHY), DRMAA_ERRNO_INVALID_CONTACT_STRING);
  OK(drmaa_init(text, WHY));
  EXPECT(drmaa_init("", WHY), DRMAA_ERRNO_ALREADY_ACTIVE_SESSION);
  templates();
  one_job();
  bulk_job();
  control();
  OK(drmaa_exit(WHY));
  OK(drmaa_init(NULL, WHY));
  OK(drmaa_exit(WHY));
  puts("done");
  return 0;
}
