/*
 * Calls the functions of libslurm that programs use, against a cluster of its own: lists of hosts, listings, a job from its
 * submission to its end, an allocation, changes and refusals.
 */
#include <slurm/slurm.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

static void check_at(int line, int is_true, const char *what)
{
    if (!is_true) {
        fprintf(stderr, "line %d: %s (error %d: %s)\n", line, what, slurm_get_errno(), slurm_strerror(slurm_get_errno()));
        exit(1);
    }
}

#define CHECK(condition) check_at(__LINE__, (condition), #condition)
#define TEXT(own, expected) text_at(__LINE__, (own), (expected))

static void text_at(int line, const char *own, const char *expected)
{
    check_at(line, own && strcmp(own, expected) == 0, own ? own : "null");
}

/* Functions of the library that slurm.h of 22.05 does not declare, and that programs call. */
extern char *slurm_node_state_string(uint32_t state);
extern char *slurm_job_state_string(uint32_t state);
extern char *slurm_job_reason_string(enum job_state_reason reason);
extern void slurm_free_will_run_response_msg(will_run_response_msg_t *answer);

extern char **environ;
static char *here;

static job_desc_msg_t description(char *script)
{
    job_desc_msg_t desc;
    slurm_init_job_desc_msg(&desc);
    desc.script = script;
    desc.environment = environ;
    while (environ[desc.env_size])
        desc.env_size++;
    desc.work_dir = here;
    desc.user_id = getuid();
    desc.group_id = getgid();
    desc.std_out = "job-%j.out";
    desc.num_tasks = 1;
    desc.time_limit = 5;
    return desc;
}

static uint32_t submit(job_desc_msg_t *desc)
{
    submit_response_msg_t *answer = NULL;
    CHECK(slurm_submit_batch_job(desc, &answer) == SLURM_SUCCESS);
    uint32_t id = answer->job_id;
    CHECK(id > 0 && answer->error_code == 0);
    slurm_free_submit_response_response_msg(answer);
    return id;
}

/* The job's record, once its base state is one of two. */
static job_info_msg_t *await(uint32_t id, uint32_t one, uint32_t other)
{
    for (;;) {
        job_info_msg_t *answer = NULL;
        CHECK(slurm_load_job(&answer, id, SHOW_DETAIL) == SLURM_SUCCESS);
        CHECK(answer->record_count == 1);
        uint32_t state = answer->job_array[0].job_state;
        if ((state & JOB_STATE_FLAGS) == 0 && (state == one || state == other))
            return answer;
        CHECK(state < JOB_COMPLETE || (state & JOB_STATE_FLAGS) || one >= JOB_COMPLETE);
        slurm_free_job_info_msg(answer);
        struct timespec moment = {0, 20000000};
        nanosleep(&moment, NULL);
    }
}

static void hosts(void)
{
    hostlist_t list = slurm_hostlist_create("n[3-1],n[1-3],m7");
    CHECK(list == NULL || slurm_hostlist_count(list) > 0);
    slurm_hostlist_destroy(list);
    list = slurm_hostlist_create("n[1-3],m7");
    CHECK(slurm_hostlist_count(list) == 4 && slurm_hostlist_find(list, "m7") == 3);
    CHECK(slurm_hostlist_push(list, "n[2-4]") == 3);
    slurm_hostlist_uniq(list);
    char buffer[64];
    CHECK(slurm_hostlist_ranged_string(list, sizeof buffer, buffer) > 0);
    TEXT(buffer, "m7,n[1-4]");
    CHECK(slurm_hostlist_ranged_string(list, 4, buffer) == -1);
    char *first = slurm_hostlist_shift(list), *rest = slurm_hostlist_ranged_string_malloc(list);
    TEXT(first, "m7");
    TEXT(rest, "n[1-4]");
    free(first);
    free(rest);
    slurm_hostlist_destroy(list);
}

static void cluster(void)
{
    CHECK(slurm_ping(0) == SLURM_SUCCESS);
    CHECK(SLURM_VERSION_MAJOR(slurm_api_version()) == 22);
    node_info_msg_t *nodes = NULL;
    CHECK(slurm_load_node(0, &nodes, SHOW_ALL) == SLURM_SUCCESS);
    CHECK(nodes->record_count == 2 && nodes->node_array[0].cpus == 4);
    TEXT(slurm_node_state_string(nodes->node_array[1].node_state), "IDLE");
    uint16_t used = 7;
    CHECK(slurm_get_select_nodeinfo(nodes->node_array[0].select_nodeinfo, SELECT_NODEDATA_SUBCNT, NODE_STATE_ALLOCATED, &used) == 0);
    CHECK(used == 0);
    char *name = strdup(nodes->node_array[1].name);
    slurm_free_node_info_msg(nodes);
    CHECK(slurm_load_node_single(&nodes, name, SHOW_ALL) == SLURM_SUCCESS && nodes->record_count == 1);
    TEXT(nodes->node_array[0].name, name);
    slurm_free_node_info_msg(nodes);
    free(name);
    CHECK(slurm_load_node_single(&nodes, "nosuch", SHOW_ALL) == SLURM_ERROR && slurm_get_errno() == ESLURM_INVALID_NODE_NAME);
    partition_info_msg_t *partitions = NULL;
    CHECK(slurm_load_partitions(0, &partitions, SHOW_ALL) == SLURM_SUCCESS && partitions->record_count > 0);
    partition_info_t *one = partitions->partition_array;
    CHECK(one->total_nodes == 2 && one->total_cpus == 8 && one->state_up == PARTITION_UP);
    CHECK(one->node_inx[0] == 0 && one->node_inx[1] == 1 && one->node_inx[2] == -1);
    slurm_free_partition_info_msg(partitions);
    reserve_info_msg_t *reservations = NULL;
    CHECK(slurm_load_reservations(0, &reservations) == SLURM_SUCCESS && reservations->record_count == 0);
    slurm_free_reservation_info_msg(reservations);
    slurm_conf_t *conf = NULL;
    CHECK(slurm_load_ctl_conf(0, &conf) == SLURM_SUCCESS && conf->cluster_name && conf->slurmd_port > 0);
    slurm_free_ctl_conf(conf);
}

static void batch_job(void)
{
    job_desc_msg_t desc = description("#!/bin/sh\necho ran as $SLURM_JOB_ID\nexit 3\n");
    desc.name = "first";
    uint32_t id = submit(&desc);
    job_info_msg_t *answer = await(id, JOB_FAILED, JOB_COMPLETE);
    slurm_job_info_t *job = answer->job_array;
    TEXT(job->name, "first");
    TEXT(slurm_job_state_string(job->job_state), "FAILED");
    TEXT(job->work_dir, here);
    CHECK(job->user_id == getuid() && job->time_limit == 5 && job->num_tasks == 1 && job->batch_flag == 1);
    CHECK(WEXITSTATUS(job->exit_code) == 3 && job->start_time >= job->submit_time);
    CHECK(slurm_job_cpus_allocated_on_node(job->job_resrcs, job->batch_host) == 1);
    char path[4096];
    slurm_get_job_stdout(path, sizeof path, job);
    FILE *file = fopen(path, "r");
    unsigned ran = 0;
    CHECK(file && fscanf(file, "ran as %u", &ran) == 1 && ran == id);
    fclose(file);
    slurm_free_job_info_msg(answer);
    char text[16];
    snprintf(text, sizeof text, "%u", id);
    CHECK(slurm_xlate_job_id(text) == id);
}

static void held_and_changed(void)
{
    job_desc_msg_t desc = description("#!/bin/sh\nexec sleep 1000\n");
    desc.priority = 0;
    uint32_t id = submit(&desc);
    job_info_msg_t *answer = await(id, JOB_PENDING, JOB_PENDING);
    TEXT(slurm_job_reason_string(answer->job_array[0].state_reason), "JobHeldUser");
    CHECK(answer->job_array[0].priority == 0);
    slurm_free_job_info_msg(answer);
    job_desc_msg_t change;
    slurm_init_job_desc_msg(&change);
    change.job_id = id;
    change.time_limit = 7;
    change.comment = "changed";
    change.priority = INFINITE;
    CHECK(slurm_update_job(&change) == SLURM_SUCCESS);
    answer = await(id, JOB_RUNNING, JOB_RUNNING);
    TEXT(answer->job_array[0].comment, "changed");
    CHECK(answer->job_array[0].time_limit == 7);
    slurm_free_job_info_msg(answer);
    time_t end = 0;
    CHECK(slurm_get_end_time(id, &end) == SLURM_SUCCESS && end > time(NULL));
    long left = slurm_get_rem_time(id);
    CHECK(left > 300 && left <= 420);
    CHECK(slurm_job_node_ready(id) == (READY_NODE_STATE | READY_JOB_STATE | READY_PROLOG_STATE));
    job_step_info_response_msg_t *steps = NULL;
    CHECK(slurm_get_job_steps(0, id, NO_VAL, &steps, SHOW_ALL) == SLURM_SUCCESS && steps->job_step_count == 1);
    CHECK(steps->job_steps[0].step_id.step_id == SLURM_BATCH_SCRIPT);
    slurm_step_id_t step = steps->job_steps[0].step_id;
    slurm_free_job_step_info_response_msg(steps);
    job_step_pids_response_msg_t *processes = NULL;
    CHECK(slurm_job_step_get_pids(&step, NULL, &processes) == SLURM_SUCCESS);
    ListIterator each = slurm_list_iterator_create(processes->pid_list);
    job_step_pids_t *on_node = slurm_list_next(each);
    uint32_t id_of_process = 0;
    CHECK(on_node && on_node->pid_cnt > 0 && !slurm_list_next(each));
    CHECK(slurm_pid2jobid((pid_t)on_node->pid[0], &id_of_process) == SLURM_SUCCESS && id_of_process == id);
    slurm_list_iterator_destroy(each);
    slurm_job_step_pids_response_msg_free(processes);
    CHECK(slurm_kill_job(id, SIGKILL, 0) == SLURM_SUCCESS);
    slurm_free_job_info_msg(await(id, JOB_CANCELLED, JOB_CANCELLED));
    CHECK(slurm_kill_job(id, SIGKILL, 0) == SLURM_ERROR && slurm_get_errno() == ESLURM_ALREADY_DONE);
}

static void signalled(void)
{
    job_desc_msg_t desc = description("#!/bin/sh\ntrap 'exit 9' USR1\ntouch ready\nwhile :; do sleep 0.05; done\n");
    uint32_t id = submit(&desc);
    slurm_free_job_info_msg(await(id, JOB_RUNNING, JOB_RUNNING));
    while (access("ready", F_OK) != 0)
        usleep(20000);
    CHECK(slurm_kill_job(id, SIGUSR1, KILL_JOB_BATCH) == SLURM_SUCCESS);
    job_info_msg_t *answer = await(id, JOB_FAILED, JOB_FAILED);
    CHECK(WEXITSTATUS(answer->job_array[0].exit_code) == 9);
    slurm_free_job_info_msg(answer);
}

static void allocation(void)
{
    job_desc_msg_t desc = description(NULL);
    desc.min_nodes = 2;
    desc.num_tasks = 2;
    will_run_response_msg_t *expected = NULL;
    CHECK(slurm_job_will_run2(&desc, &expected) == SLURM_SUCCESS && expected->start_time > 0);
    slurm_free_will_run_response_msg(expected);
    resource_allocation_response_msg_t *own = slurm_allocate_resources_blocking(&desc, 60, NULL);
    CHECK(own && own->node_cnt == 2 && own->num_cpu_groups == 1 && own->cpu_count_reps[0] == 2);
    uint32_t id = own->job_id;
    char *nodes = strdup(own->node_list);
    slurm_free_resource_allocation_response_msg(own);
    CHECK(slurm_allocation_lookup(id, &own) == SLURM_SUCCESS);
    TEXT(own->node_list, nodes);
    free(nodes);
    slurm_free_resource_allocation_response_msg(own);
    CHECK(slurm_complete_job(id, 0) == SLURM_SUCCESS);
    slurm_free_job_info_msg(await(id, JOB_COMPLETE, JOB_COMPLETE));
}

static void refusals(void)
{
    job_info_msg_t *answer = NULL;
    CHECK(slurm_load_job(&answer, 999999, 0) == SLURM_ERROR && slurm_get_errno() == ESLURM_INVALID_JOB_ID);
    TEXT(slurm_strerror(ESLURM_INVALID_JOB_ID), "Invalid job id specified");
    CHECK(slurm_kill_job(999999, SIGKILL, 0) == SLURM_ERROR && slurm_get_errno() == ESLURM_INVALID_JOB_ID);
    job_desc_msg_t desc = description("#!/bin/sh\n:\n");
    submit_response_msg_t *none = NULL;
    desc.partition = "nosuch";
    CHECK(slurm_submit_batch_job(&desc, &none) == SLURM_ERROR && slurm_get_errno() == ESLURM_INVALID_PARTITION_NAME);
    desc.partition = NULL;
    desc.script = NULL;
    CHECK(slurm_submit_batch_job(&desc, &none) == SLURM_ERROR && slurm_get_errno() == ESLURM_JOB_SCRIPT_MISSING);
    slurm_init_job_desc_msg(&desc);
    desc.job_id = 999999;
    desc.time_limit = 1;
    CHECK(slurm_update_job(&desc) == SLURM_ERROR && slurm_get_errno() == ESLURM_INVALID_JOB_ID);
    CHECK(slurm_load_jobs(0, NULL, 0) == SLURM_ERROR);
    /* A function that is not implemented is refused by its name, once. */
    for (int again = 0; again < 2; again++)
        CHECK(slurm_set_fs_dampeningfactor(1) == SLURM_ERROR && slurm_get_errno() == ESLURM_NOT_SUPPORTED);
}

int main(void)
{
    here = getcwd(NULL, 0);
    slurm_init(NULL);
    hosts();
    cluster();
    batch_job();
    held_and_changed();
    signalled();
    allocation();
    refusals();
    job_info_msg_t *all = NULL;
    CHECK(slurm_load_jobs(0, &all, SHOW_ALL) == SLURM_SUCCESS && all->record_count == 4);
    slurm_free_job_info_msg(all);
    slurm_fini();
    puts("done");
    return 0;
}
