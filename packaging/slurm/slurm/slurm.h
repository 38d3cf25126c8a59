/*
 * The C interface of libslurm, binary compatible with that of Slurm 22.05: constants, structures, functions.
 * docs/libslurm.md says which functions work and which are refused by name.
 *
 * Members that are numbers mean "not given" by NO_VAL, and "no limit" by INFINITE, each in the width of the member.
 * Answers are freed by the function of their type (slurm_free_...), and by no other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef _SLURM_H
#define _SLURM_H

#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>

#include <inttypes.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef HOST_NAME_MAX
#define HOST_NAME_MAX 64
#endif

#define SYSTEM_DIMENSIONS  1
#define HIGHEST_DIMENSIONS 5
#define INFINITE8          (0xff)
#define INFINITE16         (0xffff)
#define INFINITE           (0xffffffff)
#define INFINITE64         (0xffffffffffffffff)

#define NO_VAL8          (0xfe)
#define NO_VAL16         (0xfffe)
#define NO_VAL           (0xfffffffe)
#define NO_VAL64         (0xfffffffffffffffe)
#define NO_CONSUME_VAL64 (0xfffffffffffffffd)

#define MAX_TASKS_PER_NODE 512
#define MAX_JOB_ID         (0x03FFFFFF)
#define MAX_FED_CLUSTERS   63

#define SLURM_MAX_NORMAL_STEP_ID (0xfffffff0)
#define SLURM_PENDING_STEP       (0xfffffffd)
#define SLURM_EXTERN_CONT        (0xfffffffc)
#define SLURM_BATCH_SCRIPT       (0xfffffffb)
#define SLURM_INTERACTIVE_STEP   (0xfffffffa)

#define DEFAULT_EIO_SHUTDOWN_WAIT      60
#define SLURM_ID_HASH(_jobid, _stepid) (uint64_t)(((uint64_t)_stepid << 32) + _jobid)
#define SLURM_ID_HASH_JOB_ID(hash_id)  (uint32_t)(hash_id & 0x00000000FFFFFFFF)
#define SLURM_ID_HASH_STEP_ID(hash_id) (uint32_t)(hash_id >> 32)
#define SLURM_ID_HASH_LEGACY(hash_id)  ((hash_id >> 32) * 10000000000 + (hash_id & 0x00000000FFFFFFFF))
#define SLURM_BIT(offset)              ((uint64_t)1 << offset)

#define JOB_STATE_BASE    0x000000ff
#define JOB_STATE_FLAGS   0xffffff00
#define JOB_LAUNCH_FAILED SLURM_BIT(8)
#define JOB_UPDATE_DB     SLURM_BIT(9)
#define JOB_REQUEUE       SLURM_BIT(10)
#define JOB_REQUEUE_HOLD  SLURM_BIT(11)
#define JOB_SPECIAL_EXIT  SLURM_BIT(12)
#define JOB_RESIZING      SLURM_BIT(13)
#define JOB_CONFIGURING   SLURM_BIT(14)
#define JOB_COMPLETING    SLURM_BIT(15)
#define JOB_STOPPED       SLURM_BIT(16)
#define JOB_RECONFIG_FAIL SLURM_BIT(17)
#define JOB_POWER_UP_NODE SLURM_BIT(18)
#define JOB_REVOKED       SLURM_BIT(19)
#define JOB_REQUEUE_FED   SLURM_BIT(20)
#define JOB_RESV_DEL_HOLD SLURM_BIT(21)
#define JOB_SIGNALING     SLURM_BIT(22)
#define JOB_STAGE_OUT     SLURM_BIT(23)

#define READY_JOB_FATAL    -2
#define READY_JOB_ERROR    -1
#define READY_NODE_STATE   SLURM_BIT(0)
#define READY_JOB_STATE    SLURM_BIT(1)
#define READY_PROLOG_STATE SLURM_BIT(2)

#define MAIL_JOB_BEGIN      SLURM_BIT(0)
#define MAIL_JOB_END        SLURM_BIT(1)
#define MAIL_JOB_FAIL       SLURM_BIT(2)
#define MAIL_JOB_REQUEUE    SLURM_BIT(3)
#define MAIL_JOB_TIME100    SLURM_BIT(4)
#define MAIL_JOB_TIME90     SLURM_BIT(5)
#define MAIL_JOB_TIME80     SLURM_BIT(6)
#define MAIL_JOB_TIME50     SLURM_BIT(7)
#define MAIL_JOB_STAGE_OUT  SLURM_BIT(8)
#define MAIL_ARRAY_TASKS    SLURM_BIT(9)
#define MAIL_INVALID_DEPEND SLURM_BIT(10)

#define ARRAY_TASK_REQUEUED    0x0001
#define NICE_OFFSET            0x80000000
#define PARTITION_SUBMIT       0x01
#define PARTITION_SCHED        0x02
#define PARTITION_DOWN         (PARTITION_SUBMIT)
#define PARTITION_UP           (PARTITION_SUBMIT | PARTITION_SCHED)
#define PARTITION_DRAIN        (PARTITION_SCHED)
#define PARTITION_INACTIVE     0x00
#define PARTITION_ENFORCE_NONE 0
#define PARTITION_ENFORCE_ALL  1
#define PARTITION_ENFORCE_ANY  2

#define ACCT_GATHER_PROFILE_NOT_SET 0x00000000
#define ACCT_GATHER_PROFILE_NONE    0x00000001
#define ACCT_GATHER_PROFILE_ENERGY  0x00000002
#define ACCT_GATHER_PROFILE_TASK    0x00000004
#define ACCT_GATHER_PROFILE_LUSTRE  0x00000008
#define ACCT_GATHER_PROFILE_NETWORK 0x00000010
#define ACCT_GATHER_PROFILE_ALL     0xffffffff

#define SLURM_DIST_STATE_BASE    0x00FFFF
#define SLURM_DIST_STATE_FLAGS   0xFF0000
#define SLURM_DIST_PACK_NODES    0x800000
#define SLURM_DIST_NO_PACK_NODES 0x400000
#define SLURM_DIST_NODEMASK      0xF00F
#define SLURM_DIST_SOCKMASK      0xF0F0
#define SLURM_DIST_COREMASK      0xFF00
#define SLURM_DIST_NODESOCKMASK  0xF0FF

#define OPEN_MODE_APPEND      1
#define OPEN_MODE_TRUNCATE    2
#define CPU_FREQ_RANGE_FLAG   0x80000000
#define CPU_FREQ_LOW          0x80000001
#define CPU_FREQ_MEDIUM       0x80000002
#define CPU_FREQ_HIGH         0x80000003
#define CPU_FREQ_HIGHM1       0x80000004
#define CPU_FREQ_CONSERVATIVE 0x88000000
#define CPU_FREQ_ONDEMAND     0x84000000
#define CPU_FREQ_PERFORMANCE  0x82000000
#define CPU_FREQ_POWERSAVE    0x81000000
#define CPU_FREQ_USERSPACE    0x80800000
#define CPU_FREQ_SCHEDUTIL    0x80400000
#define CPU_FREQ_GOV_MASK     0x8ff00000

#define NODE_STATE_BASE             0x0000000f
#define NODE_STATE_FLAGS            0xfffffff0
#define NODE_STATE_NET              SLURM_BIT(4)
#define NODE_STATE_RES              SLURM_BIT(5)
#define NODE_STATE_UNDRAIN          SLURM_BIT(6)
#define NODE_STATE_CLOUD            SLURM_BIT(7)
#define NODE_RESUME                 SLURM_BIT(8)
#define NODE_STATE_DRAIN            SLURM_BIT(9)
#define NODE_STATE_COMPLETING       SLURM_BIT(10)
#define NODE_STATE_NO_RESPOND       SLURM_BIT(11)
#define NODE_STATE_POWERED_DOWN     SLURM_BIT(12)
#define NODE_STATE_FAIL             SLURM_BIT(13)
#define NODE_STATE_POWERING_UP      SLURM_BIT(14)
#define NODE_STATE_MAINT            SLURM_BIT(15)
#define NODE_STATE_REBOOT_REQUESTED SLURM_BIT(16)
#define NODE_STATE_REBOOT_CANCEL    SLURM_BIT(17)
#define NODE_STATE_POWERING_DOWN    SLURM_BIT(18)
#define NODE_STATE_DYNAMIC_FUTURE   SLURM_BIT(19)
#define NODE_STATE_REBOOT_ISSUED    SLURM_BIT(20)
#define NODE_STATE_PLANNED          SLURM_BIT(21)
#define NODE_STATE_INVALID_REG      SLURM_BIT(22)
#define NODE_STATE_POWER_DOWN       SLURM_BIT(23)
#define NODE_STATE_POWER_UP         SLURM_BIT(24)
#define NODE_STATE_POWER_DRAIN      SLURM_BIT(25)
#define NODE_STATE_DYNAMIC_NORM     SLURM_BIT(26)

#define SLURM_SSL_SIGNATURE_LENGTH 128
#define SHOW_ALL                   0x0001
#define SHOW_DETAIL                0x0002
#define SHOW_MIXED                 0x0008
#define SHOW_LOCAL                 0x0010
#define SHOW_SIBLING               0x0020
#define SHOW_FEDERATION            0x0040
#define SHOW_FUTURE                0x0080

#define CR_CPU                     0x0001
#define CR_SOCKET                  0x0002
#define CR_CORE                    0x0004
#define CR_BOARD                   0x0008
#define CR_MEMORY                  0x0010
#define CR_OTHER_CONS_RES          0x0020
#define CR_ONE_TASK_PER_CORE       0x0100
#define CR_PACK_NODES              0x0200
#define CR_OTHER_CONS_TRES         0x0800
#define CR_CORE_DEFAULT_DIST_BLOCK 0x1000
#define CR_LLN                     0x4000

#define MEM_PER_CPU               0x8000000000000000
#define SHARED_FORCE              0x8000
#define PRIVATE_DATA_JOBS         SLURM_BIT(0)
#define PRIVATE_DATA_NODES        SLURM_BIT(1)
#define PRIVATE_DATA_PARTITIONS   SLURM_BIT(2)
#define PRIVATE_DATA_USAGE        SLURM_BIT(3)
#define PRIVATE_DATA_USERS        SLURM_BIT(4)
#define PRIVATE_DATA_ACCOUNTS     SLURM_BIT(5)
#define PRIVATE_DATA_RESERVATIONS SLURM_BIT(6)
#define PRIVATE_CLOUD_NODES       SLURM_BIT(7)
#define PRIVATE_DATA_EVENTS       SLURM_BIT(8)

#define PRIORITY_RESET_NONE      0x0000
#define PRIORITY_RESET_NOW       0x0001
#define PRIORITY_RESET_DAILY     0x0002
#define PRIORITY_RESET_WEEKLY    0x0003
#define PRIORITY_RESET_MONTHLY   0x0004
#define PRIORITY_RESET_QUARTERLY 0x0005
#define PRIORITY_RESET_YEARLY    0x0006

#define PROP_PRIO_OFF   0x0000
#define PROP_PRIO_ON    0x0001
#define PROP_PRIO_NICER 0x0002

#define PRIORITY_FLAGS_ACCRUE_ALWAYS     SLURM_BIT(0)
#define PRIORITY_FLAGS_MAX_TRES          SLURM_BIT(1)
#define PRIORITY_FLAGS_SIZE_RELATIVE     SLURM_BIT(2)
#define PRIORITY_FLAGS_DEPTH_OBLIVIOUS   SLURM_BIT(3)
#define PRIORITY_FLAGS_CALCULATE_RUNNING SLURM_BIT(4)
#define PRIORITY_FLAGS_FAIR_TREE         SLURM_BIT(5)
#define PRIORITY_FLAGS_INCR_ONLY         SLURM_BIT(6)
#define PRIORITY_FLAGS_NO_NORMAL_ASSOC   SLURM_BIT(7)
#define PRIORITY_FLAGS_NO_NORMAL_PART    SLURM_BIT(8)
#define PRIORITY_FLAGS_NO_NORMAL_QOS     SLURM_BIT(9)
#define PRIORITY_FLAGS_NO_NORMAL_TRES    SLURM_BIT(10)

#define KILL_INV_DEP    SLURM_BIT(0)
#define NO_KILL_INV_DEP SLURM_BIT(1)
#define HAS_STATE_DIR   SLURM_BIT(2)

#define BACKFILL_TEST     SLURM_BIT(3)
#define GRES_ENFORCE_BIND SLURM_BIT(4)
#define TEST_NOW_ONLY     SLURM_BIT(5)

#define JOB_SEND_ENV  SLURM_BIT(6)
#define SPREAD_JOB    SLURM_BIT(8)
#define USE_MIN_NODES SLURM_BIT(9)

#define JOB_KILL_HURRY SLURM_BIT(10)
#define TRES_STR_CALC  SLURM_BIT(11)
#define SIB_JOB_FLUSH  SLURM_BIT(12)

#define HET_JOB_FLAG   SLURM_BIT(13)
#define JOB_NTASKS_SET SLURM_BIT(14)
#define JOB_CPUS_SET   SLURM_BIT(15)

#define BF_WHOLE_NODE_TEST SLURM_BIT(16)
#define TOP_PRIO_TMP       SLURM_BIT(17)
#define JOB_ACCRUE_OVER    SLURM_BIT(18)

#define GRES_DISABLE_BIND SLURM_BIT(19)
#define JOB_WAS_RUNNING   SLURM_BIT(20)
#define RESET_ACCRUE_TIME SLURM_BIT(21)

#define CRON_JOB    SLURM_BIT(22)
#define JOB_MEM_SET SLURM_BIT(23)
#define JOB_RESIZED SLURM_BIT(24)

#define USE_DEFAULT_ACCT  SLURM_BIT(25)
#define USE_DEFAULT_PART  SLURM_BIT(26)
#define USE_DEFAULT_QOS   SLURM_BIT(27)
#define USE_DEFAULT_WCKEY SLURM_BIT(28)

#define JOB_DEPENDENT     SLURM_BIT(29)
#define JOB_MAGNETIC      SLURM_BIT(30)
#define JOB_PART_ASSIGNED SLURM_BIT(31)

#define BACKFILL_SCHED  SLURM_BIT(32)
#define BACKFILL_LAST   SLURM_BIT(33)
#define JOB_SEND_SCRIPT SLURM_BIT(35)

#define X11_FORWARD_ALL   0x0001
#define X11_FORWARD_BATCH 0x0002
#define X11_FORWARD_FIRST 0x0004
#define X11_FORWARD_LAST  0x0008

#define ALLOC_SID_ADMIN_HOLD 0x00000001
#define ALLOC_SID_USER_HOLD  0x00000002
#define JOB_SHARED_NONE      0x0000
#define JOB_SHARED_OK        0x0001
#define JOB_SHARED_USER      0x0002
#define JOB_SHARED_MCS       0x0003

#define SLURM_POWER_FLAGS_LEVEL       0x0001
#define CORE_SPEC_THREAD              0x8000
#define SLURM_STEP_IO_FDS_INITIALIZER {{0, (uint32_t)-1, (uint32_t)-1}, {1, (uint32_t)-1, (uint32_t)-1}, {2, (uint32_t)-1, (uint32_t)-1}}

#define JOB_DEF_CPU_PER_GPU      0x0001
#define JOB_DEF_MEM_PER_GPU      0x0002
#define PART_FLAG_DEFAULT        0x0001
#define PART_FLAG_HIDDEN         0x0002
#define PART_FLAG_NO_ROOT        0x0004
#define PART_FLAG_ROOT_ONLY      0x0008
#define PART_FLAG_REQ_RESV       0x0010
#define PART_FLAG_LLN            0x0020
#define PART_FLAG_EXCLUSIVE_USER 0x0040
#define PART_FLAG_DEFAULT_CLR    0x0100
#define PART_FLAG_HIDDEN_CLR     0x0200
#define PART_FLAG_NO_ROOT_CLR    0x0400
#define PART_FLAG_ROOT_ONLY_CLR  0x0800
#define PART_FLAG_REQ_RESV_CLR   0x1000
#define PART_FLAG_LLN_CLR        0x2000
#define PART_FLAG_EXC_USER_CLR   0x4000

#define RESERVE_FLAG_MAINT         SLURM_BIT(0)
#define RESERVE_FLAG_NO_MAINT      SLURM_BIT(1)
#define RESERVE_FLAG_DAILY         SLURM_BIT(2)
#define RESERVE_FLAG_NO_DAILY      SLURM_BIT(3)
#define RESERVE_FLAG_WEEKLY        SLURM_BIT(4)
#define RESERVE_FLAG_NO_WEEKLY     SLURM_BIT(5)
#define RESERVE_FLAG_IGN_JOBS      SLURM_BIT(6)
#define RESERVE_FLAG_NO_IGN_JOB    SLURM_BIT(7)
#define RESERVE_FLAG_ANY_NODES     SLURM_BIT(8)
#define RESERVE_FLAG_NO_ANY_NODES  SLURM_BIT(9)
#define RESERVE_FLAG_STATIC        SLURM_BIT(10)
#define RESERVE_FLAG_NO_STATIC     SLURM_BIT(11)
#define RESERVE_FLAG_PART_NODES    SLURM_BIT(12)
#define RESERVE_FLAG_NO_PART_NODES SLURM_BIT(13)
#define RESERVE_FLAG_OVERLAP       SLURM_BIT(14)
#define RESERVE_FLAG_SPEC_NODES    SLURM_BIT(15)
#define RESERVE_FLAG_FIRST_CORES   SLURM_BIT(16)
#define RESERVE_FLAG_TIME_FLOAT    SLURM_BIT(17)
#define RESERVE_FLAG_REPLACE       SLURM_BIT(18)
#define RESERVE_FLAG_ALL_NODES     SLURM_BIT(19)
#define RESERVE_FLAG_PURGE_COMP    SLURM_BIT(20)
#define RESERVE_FLAG_WEEKDAY       SLURM_BIT(21)
#define RESERVE_FLAG_NO_WEEKDAY    SLURM_BIT(22)
#define RESERVE_FLAG_WEEKEND       SLURM_BIT(23)
#define RESERVE_FLAG_NO_WEEKEND    SLURM_BIT(24)
#define RESERVE_FLAG_FLEX          SLURM_BIT(25)
#define RESERVE_FLAG_NO_FLEX       SLURM_BIT(26)
#define RESERVE_FLAG_DUR_PLUS      SLURM_BIT(27)
#define RESERVE_FLAG_DUR_MINUS     SLURM_BIT(28)
#define RESERVE_FLAG_NO_HOLD_JOBS  SLURM_BIT(29)
#define RESERVE_FLAG_REPLACE_DOWN  SLURM_BIT(30)
#define RESERVE_FLAG_NO_PURGE_COMP SLURM_BIT(31)
#define RESERVE_FLAG_MAGNETIC      SLURM_BIT(32)
#define RESERVE_FLAG_NO_MAGNETIC   SLURM_BIT(33)
#define RESERVE_FLAG_SKIP          SLURM_BIT(34)
#define RESERVE_FLAG_HOURLY        SLURM_BIT(35)
#define RESERVE_FLAG_NO_HOURLY     SLURM_BIT(36)
#define RESERVE_REOCCURING         (RESERVE_FLAG_HOURLY | RESERVE_FLAG_DAILY | RESERVE_FLAG_WEEKLY | RESERVE_FLAG_WEEKDAY | RESERVE_FLAG_WEEKEND)

#define DEBUG_FLAG_SELECT_TYPE   SLURM_BIT(0)
#define DEBUG_FLAG_STEPS         SLURM_BIT(1)
#define DEBUG_FLAG_TRIGGERS      SLURM_BIT(2)
#define DEBUG_FLAG_CPU_BIND      SLURM_BIT(3)
#define DEBUG_FLAG_NET_RAW       SLURM_BIT(4)
#define DEBUG_FLAG_NO_CONF_HASH  SLURM_BIT(5)
#define DEBUG_FLAG_GRES          SLURM_BIT(6)
#define DEBUG_FLAG_MPI           SLURM_BIT(7)
#define DEBUG_FLAG_DATA          SLURM_BIT(8)
#define DEBUG_FLAG_WORKQ         SLURM_BIT(9)
#define DEBUG_FLAG_NET           SLURM_BIT(10)
#define DEBUG_FLAG_PRIO          SLURM_BIT(11)
#define DEBUG_FLAG_BACKFILL      SLURM_BIT(12)
#define DEBUG_FLAG_GANG          SLURM_BIT(13)
#define DEBUG_FLAG_RESERVATION   SLURM_BIT(14)
#define DEBUG_FLAG_FRONT_END     SLURM_BIT(15)
#define DEBUG_FLAG_SWITCH        SLURM_BIT(17)
#define DEBUG_FLAG_ENERGY        SLURM_BIT(18)
#define DEBUG_FLAG_EXT_SENSORS   SLURM_BIT(19)
#define DEBUG_FLAG_LICENSE       SLURM_BIT(20)
#define DEBUG_FLAG_PROFILE       SLURM_BIT(21)
#define DEBUG_FLAG_INTERCONNECT  SLURM_BIT(22)
#define DEBUG_FLAG_JOB_CONT      SLURM_BIT(24)
#define DEBUG_FLAG_PROTOCOL      SLURM_BIT(26)
#define DEBUG_FLAG_BACKFILL_MAP  SLURM_BIT(27)
#define DEBUG_FLAG_TRACE_JOBS    SLURM_BIT(28)
#define DEBUG_FLAG_ROUTE         SLURM_BIT(29)
#define DEBUG_FLAG_DB_ASSOC      SLURM_BIT(30)
#define DEBUG_FLAG_DB_EVENT      SLURM_BIT(31)
#define DEBUG_FLAG_DB_JOB        SLURM_BIT(32)
#define DEBUG_FLAG_DB_QOS        SLURM_BIT(33)
#define DEBUG_FLAG_DB_QUERY      SLURM_BIT(34)
#define DEBUG_FLAG_DB_RESV       SLURM_BIT(35)
#define DEBUG_FLAG_DB_RES        SLURM_BIT(36)
#define DEBUG_FLAG_DB_STEP       SLURM_BIT(37)
#define DEBUG_FLAG_DB_USAGE      SLURM_BIT(38)
#define DEBUG_FLAG_DB_WCKEY      SLURM_BIT(39)
#define DEBUG_FLAG_BURST_BUF     SLURM_BIT(40)
#define DEBUG_FLAG_CPU_FREQ      SLURM_BIT(41)
#define DEBUG_FLAG_POWER         SLURM_BIT(42)
#define DEBUG_FLAG_TIME_CRAY     SLURM_BIT(43)
#define DEBUG_FLAG_DB_ARCHIVE    SLURM_BIT(44)
#define DEBUG_FLAG_DB_TRES       SLURM_BIT(45)
#define DEBUG_FLAG_ESEARCH       SLURM_BIT(46)
#define DEBUG_FLAG_NODE_FEATURES SLURM_BIT(47)
#define DEBUG_FLAG_FEDR          SLURM_BIT(48)
#define DEBUG_FLAG_HETJOB        SLURM_BIT(49)
#define DEBUG_FLAG_ACCRUE        SLURM_BIT(50)
#define DEBUG_FLAG_AGENT         SLURM_BIT(52)
#define DEBUG_FLAG_DEPENDENCY    SLURM_BIT(53)
#define DEBUG_FLAG_JAG           SLURM_BIT(54)
#define DEBUG_FLAG_CGROUP        SLURM_BIT(55)
#define DEBUG_FLAG_SCRIPT        SLURM_BIT(56)

#define PREEMPT_MODE_OFF      0x0000
#define PREEMPT_MODE_SUSPEND  0x0001
#define PREEMPT_MODE_REQUEUE  0x0002
#define PREEMPT_MODE_CANCEL   0x0008
#define PREEMPT_MODE_COND_OFF 0x0010
#define PREEMPT_MODE_WITHIN   0x4000
#define PREEMPT_MODE_GANG     0x8000

#define RECONFIG_KEEP_PART_INFO 0x0001
#define RECONFIG_KEEP_PART_STAT 0x0002
#define HEALTH_CHECK_NODE_IDLE  0x0001
#define HEALTH_CHECK_NODE_ALLOC 0x0002
#define HEALTH_CHECK_NODE_MIXED 0x0004
#define HEALTH_CHECK_CYCLE      0x8000
#define HEALTH_CHECK_NODE_ANY   0x000f

#define PROLOG_FLAG_ALLOC       0x0001
#define PROLOG_FLAG_NOHOLD      0x0002
#define PROLOG_FLAG_CONTAIN     0x0004
#define PROLOG_FLAG_SERIAL      0x0008
#define PROLOG_FLAG_X11         0x0010
#define PROLOG_FLAG_DEFER_BATCH 0x0020

#define CTL_CONF_OR           SLURM_BIT(0)
#define CTL_CONF_SJC          SLURM_BIT(1)
#define CTL_CONF_DRJ          SLURM_BIT(2)
#define CTL_CONF_ASRU         SLURM_BIT(3)
#define CTL_CONF_PAM          SLURM_BIT(4)
#define CTL_CONF_WCKEY        SLURM_BIT(5)
#define CTL_CONF_IPV4_ENABLED SLURM_BIT(6)
#define CTL_CONF_IPV6_ENABLED SLURM_BIT(7)
#define CTL_CONF_SJS          SLURM_BIT(9)
#define CTL_CONF_SJE          SLURM_BIT(10)

#define LOG_FMT_ISO8601_MS 0
#define LOG_FMT_ISO8601    1
#define LOG_FMT_RFC5424_MS 2
#define LOG_FMT_RFC5424    3
#define LOG_FMT_CLOCK      4
#define LOG_FMT_SHORT      5
#define LOG_FMT_THREAD_ID  6

#define STAT_COMMAND_RESET              0x0000
#define STAT_COMMAND_GET                0x0001
#define TRIGGER_FLAG_PERM               0x0001
#define TRIGGER_RES_TYPE_JOB            0x0001
#define TRIGGER_RES_TYPE_NODE           0x0002
#define TRIGGER_RES_TYPE_SLURMCTLD      0x0003
#define TRIGGER_RES_TYPE_SLURMDBD       0x0004
#define TRIGGER_RES_TYPE_DATABASE       0x0005
#define TRIGGER_RES_TYPE_FRONT_END      0x0006
#define TRIGGER_RES_TYPE_OTHER          0x0007
#define TRIGGER_TYPE_UP                 SLURM_BIT(0)
#define TRIGGER_TYPE_DOWN               SLURM_BIT(1)
#define TRIGGER_TYPE_FAIL               SLURM_BIT(2)
#define TRIGGER_TYPE_TIME               SLURM_BIT(3)
#define TRIGGER_TYPE_FINI               SLURM_BIT(4)
#define TRIGGER_TYPE_RECONFIG           SLURM_BIT(5)
#define TRIGGER_TYPE_IDLE               SLURM_BIT(7)
#define TRIGGER_TYPE_DRAINED            SLURM_BIT(8)
#define TRIGGER_TYPE_PRI_CTLD_FAIL      SLURM_BIT(9)
#define TRIGGER_TYPE_PRI_CTLD_RES_OP    SLURM_BIT(10)
#define TRIGGER_TYPE_PRI_CTLD_RES_CTRL  SLURM_BIT(11)
#define TRIGGER_TYPE_PRI_CTLD_ACCT_FULL SLURM_BIT(12)
#define TRIGGER_TYPE_BU_CTLD_FAIL       SLURM_BIT(13)
#define TRIGGER_TYPE_BU_CTLD_RES_OP     SLURM_BIT(14)
#define TRIGGER_TYPE_BU_CTLD_AS_CTRL    SLURM_BIT(15)
#define TRIGGER_TYPE_PRI_DBD_FAIL       SLURM_BIT(16)
#define TRIGGER_TYPE_PRI_DBD_RES_OP     SLURM_BIT(17)
#define TRIGGER_TYPE_PRI_DB_FAIL        SLURM_BIT(18)
#define TRIGGER_TYPE_PRI_DB_RES_OP      SLURM_BIT(19)
#define TRIGGER_TYPE_BURST_BUFFER       SLURM_BIT(20)

#define ASSOC_MGR_INFO_FLAG_ASSOC 0x00000001
#define ASSOC_MGR_INFO_FLAG_USERS 0x00000002
#define ASSOC_MGR_INFO_FLAG_QOS   0x00000004

#define KILL_JOB_BATCH   SLURM_BIT(0)
#define KILL_JOB_ARRAY   SLURM_BIT(1)
#define KILL_STEPS_ONLY  SLURM_BIT(2)
#define KILL_FULL_JOB    SLURM_BIT(3)
#define KILL_FED_REQUEUE SLURM_BIT(4)
#define KILL_HURRY       SLURM_BIT(5)
#define KILL_OOM         SLURM_BIT(6)
#define KILL_NO_SIBS     SLURM_BIT(7)
#define KILL_JOB_RESV    SLURM_BIT(8)

#define WARN_SENT                  SLURM_BIT(15)
#define BB_FLAG_DISABLE_PERSISTENT 0x0001
#define BB_FLAG_ENABLE_PERSISTENT  0x0002
#define BB_FLAG_EMULATE_CRAY       0x0004
#define BB_FLAG_PRIVATE_DATA       0x0008
#define BB_FLAG_TEARDOWN_FAILURE   0x0010
#define BB_SIZE_IN_NODES           0x8000000000000000
#define BB_STATE_PENDING           0x0000
#define BB_STATE_ALLOCATING        0x0001
#define BB_STATE_ALLOCATED         0x0002
#define BB_STATE_DELETING          0x0005
#define BB_STATE_DELETED           0x0006
#define BB_STATE_STAGING_IN        0x0011
#define BB_STATE_STAGED_IN         0x0012
#define BB_STATE_PRE_RUN           0x0018
#define BB_STATE_ALLOC_REVOKE      0x001a
#define BB_STATE_RUNNING           0x0021
#define BB_STATE_SUSPEND           0x0022
#define BB_STATE_POST_RUN          0x0029
#define BB_STATE_STAGING_OUT       0x0031
#define BB_STATE_STAGED_OUT        0x0032
#define BB_STATE_TEARDOWN          0x0041
#define BB_STATE_TEARDOWN_FAIL     0x0043
#define BB_STATE_COMPLETE          0x0045

typedef struct sockaddr_storage slurm_addr_t;
#ifndef __slurmdb_cluster_rec_t_defined
#define __slurmdb_cluster_rec_t_defined

typedef struct slurmdb_cluster_rec slurmdb_cluster_rec_t;
#endif
#ifndef __slurm_cred_t_defined
#define __slurm_cred_t_defined

typedef struct slurm_job_credential slurm_cred_t;
#endif
#ifndef __switch_jobinfo_t_defined
#define __switch_jobinfo_t_defined

typedef struct switch_jobinfo switch_jobinfo_t;
#endif
#ifndef __job_resources_t_defined
#define __job_resources_t_defined

typedef struct job_resources job_resources_t;
#endif
#ifndef __select_jobinfo_t_defined
#define __select_jobinfo_t_defined

typedef struct select_jobinfo select_jobinfo_t;
typedef struct select_nodeinfo select_nodeinfo_t;
#endif
#ifndef __jobacctinfo_t_defined
#define __jobacctinfo_t_defined

typedef struct jobacctinfo jobacctinfo_t;
#endif
#ifndef __allocation_msg_thread_t_defined
#define __allocation_msg_thread_t_defined

typedef struct allocation_msg_thread allocation_msg_thread_t;
#endif
#ifndef __sbcast_cred_t_defined
#define __sbcast_cred_t_defined

typedef struct sbcast_cred sbcast_cred_t;
#endif
typedef struct {
    unsigned char type;
    unsigned char hash[32];
} slurm_hash_t;

/* Base states of jobs. */
enum job_states {
    JOB_PENDING,
    JOB_RUNNING,
    JOB_SUSPENDED,
    JOB_COMPLETE,
    JOB_CANCELLED,
    JOB_FAILED,
    JOB_TIMEOUT,
    JOB_NODE_FAIL,
    JOB_PREEMPTED,
    JOB_BOOT_FAIL,
    JOB_DEADLINE,
    JOB_OOM,
    JOB_END
};

/* Why a job waits, or why it ended. */
enum job_state_reason {
    WAIT_NO_REASON = 0,
    WAIT_PRIORITY,
    WAIT_DEPENDENCY,
    WAIT_RESOURCES,
    WAIT_PART_NODE_LIMIT,
    WAIT_PART_TIME_LIMIT,
    WAIT_PART_DOWN,
    WAIT_PART_INACTIVE,
    WAIT_HELD,
    WAIT_TIME,
    WAIT_LICENSES,
    WAIT_ASSOC_JOB_LIMIT,
    WAIT_ASSOC_RESOURCE_LIMIT,
    WAIT_ASSOC_TIME_LIMIT,
    WAIT_RESERVATION,
    WAIT_NODE_NOT_AVAIL,
    WAIT_HELD_USER,
    WAIT_FRONT_END,
    FAIL_DEFER,
    FAIL_DOWN_PARTITION,
    FAIL_DOWN_NODE,
    FAIL_BAD_CONSTRAINTS,
    FAIL_SYSTEM,
    FAIL_LAUNCH,
    FAIL_EXIT_CODE,
    FAIL_TIMEOUT,
    FAIL_INACTIVE_LIMIT,
    FAIL_ACCOUNT,
    FAIL_QOS,
    WAIT_QOS_THRES,
    WAIT_QOS_JOB_LIMIT,
    WAIT_QOS_RESOURCE_LIMIT,
    WAIT_QOS_TIME_LIMIT,
    WAIT_BLOCK_MAX_ERR,
    WAIT_BLOCK_D_ACTION,
    WAIT_CLEANING,
    WAIT_PROLOG,
    WAIT_QOS,
    WAIT_ACCOUNT,
    WAIT_DEP_INVALID,
    WAIT_QOS_GRP_CPU,
    WAIT_QOS_GRP_CPU_MIN,
    WAIT_QOS_GRP_CPU_RUN_MIN,
    WAIT_QOS_GRP_JOB,
    WAIT_QOS_GRP_MEM,
    WAIT_QOS_GRP_NODE,
    WAIT_QOS_GRP_SUB_JOB,
    WAIT_QOS_GRP_WALL,
    WAIT_QOS_MAX_CPU_PER_JOB,
    WAIT_QOS_MAX_CPU_MINS_PER_JOB,
    WAIT_QOS_MAX_NODE_PER_JOB,
    WAIT_QOS_MAX_WALL_PER_JOB,
    WAIT_QOS_MAX_CPU_PER_USER,
    WAIT_QOS_MAX_JOB_PER_USER,
    WAIT_QOS_MAX_NODE_PER_USER,
    WAIT_QOS_MAX_SUB_JOB,
    WAIT_QOS_MIN_CPU,
    WAIT_ASSOC_GRP_CPU,
    WAIT_ASSOC_GRP_CPU_MIN,
    WAIT_ASSOC_GRP_CPU_RUN_MIN,
    WAIT_ASSOC_GRP_JOB,
    WAIT_ASSOC_GRP_MEM,
    WAIT_ASSOC_GRP_NODE,
    WAIT_ASSOC_GRP_SUB_JOB,
    WAIT_ASSOC_GRP_WALL,
    WAIT_ASSOC_MAX_JOBS,
    WAIT_ASSOC_MAX_CPU_PER_JOB,
    WAIT_ASSOC_MAX_CPU_MINS_PER_JOB,
    WAIT_ASSOC_MAX_NODE_PER_JOB,
    WAIT_ASSOC_MAX_WALL_PER_JOB,
    WAIT_ASSOC_MAX_SUB_JOB,
    WAIT_MAX_REQUEUE,
    WAIT_ARRAY_TASK_LIMIT,
    WAIT_BURST_BUFFER_RESOURCE,
    WAIT_BURST_BUFFER_STAGING,
    FAIL_BURST_BUFFER_OP,
    WAIT_POWER_NOT_AVAIL,
    WAIT_POWER_RESERVED,
    WAIT_ASSOC_GRP_UNK,
    WAIT_ASSOC_GRP_UNK_MIN,
    WAIT_ASSOC_GRP_UNK_RUN_MIN,
    WAIT_ASSOC_MAX_UNK_PER_JOB,
    WAIT_ASSOC_MAX_UNK_PER_NODE,
    WAIT_ASSOC_MAX_UNK_MINS_PER_JOB,
    WAIT_ASSOC_MAX_CPU_PER_NODE,
    WAIT_ASSOC_GRP_MEM_MIN,
    WAIT_ASSOC_GRP_MEM_RUN_MIN,
    WAIT_ASSOC_MAX_MEM_PER_JOB,
    WAIT_ASSOC_MAX_MEM_PER_NODE,
    WAIT_ASSOC_MAX_MEM_MINS_PER_JOB,
    WAIT_ASSOC_GRP_NODE_MIN,
    WAIT_ASSOC_GRP_NODE_RUN_MIN,
    WAIT_ASSOC_MAX_NODE_MINS_PER_JOB,
    WAIT_ASSOC_GRP_ENERGY,
    WAIT_ASSOC_GRP_ENERGY_MIN,
    WAIT_ASSOC_GRP_ENERGY_RUN_MIN,
    WAIT_ASSOC_MAX_ENERGY_PER_JOB,
    WAIT_ASSOC_MAX_ENERGY_PER_NODE,
    WAIT_ASSOC_MAX_ENERGY_MINS_PER_JOB,
    WAIT_ASSOC_GRP_GRES,
    WAIT_ASSOC_GRP_GRES_MIN,
    WAIT_ASSOC_GRP_GRES_RUN_MIN,
    WAIT_ASSOC_MAX_GRES_PER_JOB,
    WAIT_ASSOC_MAX_GRES_PER_NODE,
    WAIT_ASSOC_MAX_GRES_MINS_PER_JOB,
    WAIT_ASSOC_GRP_LIC,
    WAIT_ASSOC_GRP_LIC_MIN,
    WAIT_ASSOC_GRP_LIC_RUN_MIN,
    WAIT_ASSOC_MAX_LIC_PER_JOB,
    WAIT_ASSOC_MAX_LIC_MINS_PER_JOB,
    WAIT_ASSOC_GRP_BB,
    WAIT_ASSOC_GRP_BB_MIN,
    WAIT_ASSOC_GRP_BB_RUN_MIN,
    WAIT_ASSOC_MAX_BB_PER_JOB,
    WAIT_ASSOC_MAX_BB_PER_NODE,
    WAIT_ASSOC_MAX_BB_MINS_PER_JOB,
    WAIT_QOS_GRP_UNK,
    WAIT_QOS_GRP_UNK_MIN,
    WAIT_QOS_GRP_UNK_RUN_MIN,
    WAIT_QOS_MAX_UNK_PER_JOB,
    WAIT_QOS_MAX_UNK_PER_NODE,
    WAIT_QOS_MAX_UNK_PER_USER,
    WAIT_QOS_MAX_UNK_MINS_PER_JOB,
    WAIT_QOS_MIN_UNK,
    WAIT_QOS_MAX_CPU_PER_NODE,
    WAIT_QOS_GRP_MEM_MIN,
    WAIT_QOS_GRP_MEM_RUN_MIN,
    WAIT_QOS_MAX_MEM_MINS_PER_JOB,
    WAIT_QOS_MAX_MEM_PER_JOB,
    WAIT_QOS_MAX_MEM_PER_NODE,
    WAIT_QOS_MAX_MEM_PER_USER,
    WAIT_QOS_MIN_MEM,
    WAIT_QOS_GRP_ENERGY,
    WAIT_QOS_GRP_ENERGY_MIN,
    WAIT_QOS_GRP_ENERGY_RUN_MIN,
    WAIT_QOS_MAX_ENERGY_PER_JOB,
    WAIT_QOS_MAX_ENERGY_PER_NODE,
    WAIT_QOS_MAX_ENERGY_PER_USER,
    WAIT_QOS_MAX_ENERGY_MINS_PER_JOB,
    WAIT_QOS_MIN_ENERGY,
    WAIT_QOS_GRP_NODE_MIN,
    WAIT_QOS_GRP_NODE_RUN_MIN,
    WAIT_QOS_MAX_NODE_MINS_PER_JOB,
    WAIT_QOS_MIN_NODE,
    WAIT_QOS_GRP_GRES,
    WAIT_QOS_GRP_GRES_MIN,
    WAIT_QOS_GRP_GRES_RUN_MIN,
    WAIT_QOS_MAX_GRES_PER_JOB,
    WAIT_QOS_MAX_GRES_PER_NODE,
    WAIT_QOS_MAX_GRES_PER_USER,
    WAIT_QOS_MAX_GRES_MINS_PER_JOB,
    WAIT_QOS_MIN_GRES,
    WAIT_QOS_GRP_LIC,
    WAIT_QOS_GRP_LIC_MIN,
    WAIT_QOS_GRP_LIC_RUN_MIN,
    WAIT_QOS_MAX_LIC_PER_JOB,
    WAIT_QOS_MAX_LIC_PER_USER,
    WAIT_QOS_MAX_LIC_MINS_PER_JOB,
    WAIT_QOS_MIN_LIC,
    WAIT_QOS_GRP_BB,
    WAIT_QOS_GRP_BB_MIN,
    WAIT_QOS_GRP_BB_RUN_MIN,
    WAIT_QOS_MAX_BB_PER_JOB,
    WAIT_QOS_MAX_BB_PER_NODE,
    WAIT_QOS_MAX_BB_PER_USER,
    WAIT_QOS_MAX_BB_MINS_PER_JOB,
    WAIT_QOS_MIN_BB,
    FAIL_DEADLINE,
    WAIT_QOS_MAX_BB_PER_ACCT,
    WAIT_QOS_MAX_CPU_PER_ACCT,
    WAIT_QOS_MAX_ENERGY_PER_ACCT,
    WAIT_QOS_MAX_GRES_PER_ACCT,
    WAIT_QOS_MAX_NODE_PER_ACCT,
    WAIT_QOS_MAX_LIC_PER_ACCT,
    WAIT_QOS_MAX_MEM_PER_ACCT,
    WAIT_QOS_MAX_UNK_PER_ACCT,
    WAIT_QOS_MAX_JOB_PER_ACCT,
    WAIT_QOS_MAX_SUB_JOB_PER_ACCT,
    WAIT_PART_CONFIG,
    WAIT_ACCOUNT_POLICY,
    WAIT_FED_JOB_LOCK,
    FAIL_OOM,
    WAIT_PN_MEM_LIMIT,
    WAIT_ASSOC_GRP_BILLING,
    WAIT_ASSOC_GRP_BILLING_MIN,
    WAIT_ASSOC_GRP_BILLING_RUN_MIN,
    WAIT_ASSOC_MAX_BILLING_PER_JOB,
    WAIT_ASSOC_MAX_BILLING_PER_NODE,
    WAIT_ASSOC_MAX_BILLING_MINS_PER_JOB,
    WAIT_QOS_GRP_BILLING,
    WAIT_QOS_GRP_BILLING_MIN,
    WAIT_QOS_GRP_BILLING_RUN_MIN,
    WAIT_QOS_MAX_BILLING_PER_JOB,
    WAIT_QOS_MAX_BILLING_PER_NODE,
    WAIT_QOS_MAX_BILLING_PER_USER,
    WAIT_QOS_MAX_BILLING_MINS_PER_JOB,
    WAIT_QOS_MAX_BILLING_PER_ACCT,
    WAIT_QOS_MIN_BILLING,
    WAIT_RESV_DELETED
};

enum job_acct_types {
    JOB_START,
    JOB_STEP,
    JOB_SUSPEND,
    JOB_TERMINATED
};

enum auth_plugin_type {
    AUTH_PLUGIN_NONE = 100,
    AUTH_PLUGIN_MUNGE = 101,
    AUTH_PLUGIN_JWT = 102
};

enum hash_plugin_type {
    HASH_PLUGIN_DEFAULT = 0,
    HASH_PLUGIN_NONE,
    HASH_PLUGIN_K12,
    HASH_PLUGIN_SHA256,
    HASH_PLUGIN_CNT
};

enum select_plugin_type {
    SELECT_PLUGIN_CONS_RES = 101,
    SELECT_PLUGIN_LINEAR = 102,
    SELECT_PLUGIN_SERIAL = 106,
    SELECT_PLUGIN_CRAY_LINEAR = 107,
    SELECT_PLUGIN_CRAY_CONS_RES = 108,
    SELECT_PLUGIN_CONS_TRES = 109,
    SELECT_PLUGIN_CRAY_CONS_TRES = 110
};

enum switch_plugin_type {
    SWITCH_PLUGIN_NONE = 100,
    SWITCH_PLUGIN_GENERIC = 101,
    SWITCH_PLUGIN_CRAY = 102,
    SWITCH_PLUGIN_SLINGSHOT = 104
};

enum select_jobdata_type {
    SELECT_JOBDATA_PAGG_ID = 14,
    SELECT_JOBDATA_PTR = 15,
    SELECT_JOBDATA_CLEANING = 22,
    SELECT_JOBDATA_NETWORK = 23,
    SELECT_JOBDATA_RELEASED = 24
};

enum select_nodedata_type {
    SELECT_NODEDATA_SUBCNT = 2,
    SELECT_NODEDATA_PTR = 5,
    SELECT_NODEDATA_MEM_ALLOC = 8,
    SELECT_NODEDATA_TRES_ALLOC_FMT_STR = 9,
    SELECT_NODEDATA_TRES_ALLOC_WEIGHTED = 10
};

enum select_print_mode {
    SELECT_PRINT_HEAD,
    SELECT_PRINT_DATA,
    SELECT_PRINT_MIXED,
    SELECT_PRINT_MIXED_SHORT,
    SELECT_PRINT_BG_ID,
    SELECT_PRINT_NODES,
    SELECT_PRINT_CONNECTION,
    SELECT_PRINT_ROTATE,
    SELECT_PRINT_GEOMETRY,
    SELECT_PRINT_START,
    SELECT_PRINT_BLRTS_IMAGE,
    SELECT_PRINT_LINUX_IMAGE,
    SELECT_PRINT_MLOADER_IMAGE,
    SELECT_PRINT_RAMDISK_IMAGE,
    SELECT_PRINT_REBOOT,
    SELECT_PRINT_RESV_ID,
    SELECT_PRINT_START_LOC
};

enum select_node_cnt {
    SELECT_GET_NODE_SCALING,
    SELECT_GET_NODE_CPU_CNT,
    SELECT_GET_MP_CPU_CNT,
    SELECT_APPLY_NODE_MIN_OFFSET,
    SELECT_APPLY_NODE_MAX_OFFSET,
    SELECT_SET_NODE_CNT,
    SELECT_SET_MP_CNT
};

enum acct_gather_profile_info {
    ACCT_GATHER_PROFILE_DIR,
    ACCT_GATHER_PROFILE_DEFAULT,
    ACCT_GATHER_PROFILE_RUNNING
};

enum jobacct_data_type {
    JOBACCT_DATA_TOTAL,
    JOBACCT_DATA_PIPE,
    JOBACCT_DATA_RUSAGE,
    JOBACCT_DATA_TOT_VSIZE = 5,
    JOBACCT_DATA_TOT_RSS = 8
};

enum acct_energy_type {
    ENERGY_DATA_JOULES_TASK,
    ENERGY_DATA_STRUCT,
    ENERGY_DATA_RECONFIG,
    ENERGY_DATA_PROFILE,
    ENERGY_DATA_LAST_POLL,
    ENERGY_DATA_SENSOR_CNT,
    ENERGY_DATA_NODE_ENERGY,
    ENERGY_DATA_NODE_ENERGY_UP,
    ENERGY_DATA_STEP_PTR
};

typedef enum task_dist_states {
    SLURM_DIST_CYCLIC = 0x0001,
    SLURM_DIST_BLOCK = 0x0002,
    SLURM_DIST_ARBITRARY = 0x0003,
    SLURM_DIST_PLANE = 0x0004,
    SLURM_DIST_CYCLIC_CYCLIC = 0x0011,
    SLURM_DIST_CYCLIC_BLOCK = 0x0021,
    SLURM_DIST_CYCLIC_CFULL = 0x0031,
    SLURM_DIST_BLOCK_CYCLIC = 0x0012,
    SLURM_DIST_BLOCK_BLOCK = 0x0022,
    SLURM_DIST_BLOCK_CFULL = 0x0032,
    SLURM_DIST_CYCLIC_CYCLIC_CYCLIC = 0x0111,
    SLURM_DIST_CYCLIC_CYCLIC_BLOCK = 0x0211,
    SLURM_DIST_CYCLIC_CYCLIC_CFULL = 0x0311,
    SLURM_DIST_CYCLIC_BLOCK_CYCLIC = 0x0121,
    SLURM_DIST_CYCLIC_BLOCK_BLOCK = 0x0221,
    SLURM_DIST_CYCLIC_BLOCK_CFULL = 0x0321,
    SLURM_DIST_CYCLIC_CFULL_CYCLIC = 0x0131,
    SLURM_DIST_CYCLIC_CFULL_BLOCK = 0x0231,
    SLURM_DIST_CYCLIC_CFULL_CFULL = 0x0331,
    SLURM_DIST_BLOCK_CYCLIC_CYCLIC = 0x0112,
    SLURM_DIST_BLOCK_CYCLIC_BLOCK = 0x0212,
    SLURM_DIST_BLOCK_CYCLIC_CFULL = 0x0312,
    SLURM_DIST_BLOCK_BLOCK_CYCLIC = 0x0122,
    SLURM_DIST_BLOCK_BLOCK_BLOCK = 0x0222,
    SLURM_DIST_BLOCK_BLOCK_CFULL = 0x0322,
    SLURM_DIST_BLOCK_CFULL_CYCLIC = 0x0132,
    SLURM_DIST_BLOCK_CFULL_BLOCK = 0x0232,
    SLURM_DIST_BLOCK_CFULL_CFULL = 0x0332,
    SLURM_DIST_NODECYCLIC = 0x0001,
    SLURM_DIST_NODEBLOCK = 0x0002,
    SLURM_DIST_SOCKCYCLIC = 0x0010,
    SLURM_DIST_SOCKBLOCK = 0x0020,
    SLURM_DIST_SOCKCFULL = 0x0030,
    SLURM_DIST_CORECYCLIC = 0x0100,
    SLURM_DIST_COREBLOCK = 0x0200,
    SLURM_DIST_CORECFULL = 0x0300,
    SLURM_DIST_UNKNOWN = 0x2000
} task_dist_states_t;

typedef enum cpu_bind_type {
    CPU_BIND_VERBOSE = 0x0001,
    CPU_BIND_TO_THREADS = 0x0002,
    CPU_BIND_TO_CORES = 0x0004,
    CPU_BIND_TO_SOCKETS = 0x0008,
    CPU_BIND_TO_LDOMS = 0x0010,
    CPU_BIND_NONE = 0x0020,
    CPU_BIND_RANK = 0x0040,
    CPU_BIND_MAP = 0x0080,
    CPU_BIND_MASK = 0x0100,
    CPU_BIND_LDRANK = 0x0200,
    CPU_BIND_LDMAP = 0x0400,
    CPU_BIND_LDMASK = 0x0800,
    CPU_BIND_ONE_THREAD_PER_CORE = 0x2000,
    CPU_AUTO_BIND_TO_THREADS = 0x04000,
    CPU_AUTO_BIND_TO_CORES = 0x10000,
    CPU_AUTO_BIND_TO_SOCKETS = 0x20000,
    SLURMD_OFF_SPEC = 0x40000,
    CPU_BIND_OFF = 0x80000
} cpu_bind_type_t;

typedef enum mem_bind_type {
    MEM_BIND_VERBOSE = 0x01,
    MEM_BIND_NONE = 0x02,
    MEM_BIND_RANK = 0x04,
    MEM_BIND_MAP = 0x08,
    MEM_BIND_MASK = 0x10,
    MEM_BIND_LOCAL = 0x20,
    MEM_BIND_SORT = 0x40,
    MEM_BIND_PREFER = 0x80
} mem_bind_type_t;

typedef enum accel_bind_type {
    ACCEL_BIND_VERBOSE = 0x01,
    ACCEL_BIND_CLOSEST_GPU = 0x02,
    ACCEL_BIND_CLOSEST_NIC = 0x08
} accel_bind_type_t;

/* Base states of nodes. */
enum node_states {
    NODE_STATE_UNKNOWN,
    NODE_STATE_DOWN,
    NODE_STATE_IDLE,
    NODE_STATE_ALLOCATED,
    NODE_STATE_ERROR,
    NODE_STATE_MIXED,
    NODE_STATE_FUTURE,
    NODE_STATE_END
};

typedef enum {
    SSF_NONE = 0,
    SSF_EXCLUSIVE = 1 << 0,
    SSF_NO_KILL = 1 << 1,
    SSF_OVERCOMMIT = 1 << 2,
    SSF_WHOLE = 1 << 3,
    SSF_INTERACTIVE = 1 << 4,
    SSF_MEM_ZERO = 1 << 5,
    SSF_OVERLAP_FORCE = 1 << 6
} step_spec_flags_t;

#ifndef __hostlist_t_defined
#define __hostlist_t_defined

typedef struct hostlist *hostlist_t;
#endif
#ifndef __list_datatypes_defined
#define __list_datatypes_defined

typedef struct xlist *List;
typedef struct listIterator *ListIterator;
typedef void (*ListDelF)(void *x);
typedef int (*ListCmpF)(void *x, void *y);
typedef int (*ListFindF)(void *x, void *key);
typedef int (*ListForF)(void *x, void *arg);
#endif
#ifndef __bitstr_datatypes_defined
#define __bitstr_datatypes_defined

typedef int64_t bitstr_t;
typedef bitstr_t bitoff_t;
#define BITSTR_SHIFT BITSTR_SHIFT_WORD64
#endif
typedef struct dynamic_plugin_data {
    void *data;
    uint32_t plugin_id;
} dynamic_plugin_data_t;

typedef struct acct_gather_energy {
    uint32_t ave_watts;
    uint64_t base_consumed_energy;
    uint64_t consumed_energy;
    uint32_t current_watts;
    uint64_t previous_consumed_energy;
    time_t poll_time;
} acct_gather_energy_t;

typedef struct ext_sensors_data {
    uint64_t consumed_energy;
    uint32_t temperature;
    time_t energy_update_time;
    uint32_t current_watts;
} ext_sensors_data_t;

typedef struct power_mgmt_data {
    uint32_t cap_watts;
    uint32_t current_watts;
    uint64_t joule_counter;
    uint32_t new_cap_watts;
    uint32_t max_watts;
    uint32_t min_watts;
    time_t new_job_time;
    uint16_t state;
    uint64_t time_usec;
} power_mgmt_data_t;

/* What a job is to be: for submission, allocation and change. slurm_init_job_desc_msg() sets every member to "not given". */
typedef struct job_descriptor {
    char *account;
    char *acctg_freq;
    char *admin_comment;
    char *alloc_node;
    uint16_t alloc_resp_port;
    uint32_t alloc_sid;
    uint32_t argc;
    char **argv;
    char *array_inx;
    bitstr_t *array_bitmap;
    char *batch_features;
    time_t begin_time;
    uint64_t bitflags;
    char *burst_buffer;
    char *clusters;
    char *cluster_features;
    char *comment;
    uint16_t contiguous;
    char *container;
    uint16_t core_spec;
    char *cpu_bind;
    uint16_t cpu_bind_type;
    uint32_t cpu_freq_min;
    uint32_t cpu_freq_max;
    uint32_t cpu_freq_gov;
    char *cpus_per_tres;
    void *crontab_entry;
    time_t deadline;
    uint32_t delay_boot;
    char *dependency;
    time_t end_time;
    char **environment;
    slurm_hash_t env_hash;
    uint32_t env_size;
    char *extra;
    char *exc_nodes;
    char *features;
    uint64_t fed_siblings_active;
    uint64_t fed_siblings_viable;
    uint32_t group_id;
    uint32_t het_job_offset;
    uint16_t immediate;
    uint32_t job_id;
    char *job_id_str;
    uint16_t kill_on_node_fail;
    char *licenses;
    uint16_t mail_type;
    char *mail_user;
    char *mcs_label;
    char *mem_bind;
    uint16_t mem_bind_type;
    char *mem_per_tres;
    char *name;
    char *network;
    uint32_t nice;
    uint32_t num_tasks;
    uint8_t open_mode;
    char *origin_cluster;
    uint16_t other_port;
    uint8_t overcommit;
    char *partition;
    uint16_t plane_size;
    uint8_t power_flags;
    char *prefer;
    uint32_t priority;
    uint32_t profile;
    char *qos;
    uint16_t reboot;
    char *resp_host;
    uint16_t restart_cnt;
    char *req_nodes;
    uint16_t requeue;
    char *reservation;
    char *script;
    void *script_buf;
    slurm_hash_t script_hash;
    uint16_t shared;
    uint32_t site_factor;
    char **spank_job_env;
    uint32_t spank_job_env_size;
    char *submit_line;
    uint32_t task_dist;
    uint32_t time_limit;
    uint32_t time_min;
    char *tres_bind;
    char *tres_freq;
    char *tres_per_job;
    char *tres_per_node;
    char *tres_per_socket;
    char *tres_per_task;
    uint32_t user_id;
    uint16_t wait_all_nodes;
    uint16_t warn_flags;
    uint16_t warn_signal;
    uint16_t warn_time;
    char *work_dir;
    uint16_t cpus_per_task;
    uint32_t min_cpus;
    uint32_t max_cpus;
    uint32_t min_nodes;
    uint32_t max_nodes;
    uint16_t boards_per_node;
    uint16_t sockets_per_board;
    uint16_t sockets_per_node;
    uint16_t cores_per_socket;
    uint16_t threads_per_core;
    uint16_t ntasks_per_node;
    uint16_t ntasks_per_socket;
    uint16_t ntasks_per_core;
    uint16_t ntasks_per_board;
    uint16_t ntasks_per_tres;
    uint16_t pn_min_cpus;
    uint64_t pn_min_memory;
    uint32_t pn_min_tmp_disk;
    char *req_context;
    uint32_t req_switch;
    dynamic_plugin_data_t *select_jobinfo;
    char *selinux_context;
    char *std_err;
    char *std_in;
    char *std_out;
    uint64_t *tres_req_cnt;
    uint32_t wait4switch;
    char *wckey;
    uint16_t x11;
    char *x11_magic_cookie;
    char *x11_target;
    uint16_t x11_target_port;
} job_desc_msg_t;

/* A job of the queue. */
typedef struct job_info {
    char *account;
    time_t accrue_time;
    char *admin_comment;
    char *alloc_node;
    uint32_t alloc_sid;
    bitstr_t *array_bitmap;
    uint32_t array_job_id;
    uint32_t array_task_id;
    uint32_t array_max_tasks;
    char *array_task_str;
    uint32_t assoc_id;
    char *batch_features;
    uint16_t batch_flag;
    char *batch_host;
    uint64_t bitflags;
    uint16_t boards_per_node;
    char *burst_buffer;
    char *burst_buffer_state;
    char *cluster;
    char *cluster_features;
    char *command;
    char *comment;
    char *container;
    uint16_t contiguous;
    uint16_t core_spec;
    uint16_t cores_per_socket;
    double billable_tres;
    uint16_t cpus_per_task;
    uint32_t cpu_freq_min;
    uint32_t cpu_freq_max;
    uint32_t cpu_freq_gov;
    char *cpus_per_tres;
    char *cronspec;
    time_t deadline;
    uint32_t delay_boot;
    char *dependency;
    uint32_t derived_ec;
    time_t eligible_time;
    time_t end_time;
    char *exc_nodes;
    int32_t *exc_node_inx;
    uint32_t exit_code;
    char *features;
    char *fed_origin_str;
    uint64_t fed_siblings_active;
    char *fed_siblings_active_str;
    uint64_t fed_siblings_viable;
    char *fed_siblings_viable_str;
    uint32_t gres_detail_cnt;
    char **gres_detail_str;
    char *gres_total;
    uint32_t group_id;
    uint32_t het_job_id;
    char *het_job_id_set;
    uint32_t het_job_offset;
    uint32_t job_id;
    job_resources_t *job_resrcs;
    uint32_t job_state;
    time_t last_sched_eval;
    char *licenses;
    uint16_t mail_type;
    char *mail_user;
    uint32_t max_cpus;
    uint32_t max_nodes;
    char *mcs_label;
    char *mem_per_tres;
    char *name;
    char *network;
    char *nodes;
    uint32_t nice;
    int32_t *node_inx;
    uint16_t ntasks_per_core;
    uint16_t ntasks_per_tres;
    uint16_t ntasks_per_node;
    uint16_t ntasks_per_socket;
    uint16_t ntasks_per_board;
    uint32_t num_cpus;
    uint32_t num_nodes;
    uint32_t num_tasks;
    char *partition;
    char *prefer;
    uint64_t pn_min_memory;
    uint16_t pn_min_cpus;
    uint32_t pn_min_tmp_disk;
    uint8_t power_flags;
    time_t preempt_time;
    time_t preemptable_time;
    time_t pre_sus_time;
    uint32_t priority;
    uint32_t profile;
    char *qos;
    uint8_t reboot;
    char *req_nodes;
    int32_t *req_node_inx;
    uint32_t req_switch;
    uint16_t requeue;
    time_t resize_time;
    uint16_t restart_cnt;
    char *resv_name;
    char *sched_nodes;
    dynamic_plugin_data_t *select_jobinfo;
    char *selinux_context;
    uint16_t shared;
    uint16_t show_flags;
    uint32_t site_factor;
    uint16_t sockets_per_board;
    uint16_t sockets_per_node;
    time_t start_time;
    uint16_t start_protocol_ver;
    char *state_desc;
    uint16_t state_reason;
    char *std_err;
    char *std_in;
    char *std_out;
    time_t submit_time;
    time_t suspend_time;
    char *system_comment;
    uint32_t time_limit;
    uint32_t time_min;
    uint16_t threads_per_core;
    char *tres_bind;
    char *tres_freq;
    char *tres_per_job;
    char *tres_per_node;
    char *tres_per_socket;
    char *tres_per_task;
    char *tres_req_str;
    char *tres_alloc_str;
    uint32_t user_id;
    char *user_name;
    uint32_t wait4switch;
    char *wckey;
    char *work_dir;
} slurm_job_info_t;

typedef slurm_job_info_t job_info_t;
typedef struct priority_factors_object {
    char *cluster_name;
    uint32_t job_id;
    char *partition;
    uint32_t user_id;
    double priority_age;
    double priority_assoc;
    double priority_fs;
    double priority_js;
    double priority_part;
    double priority_qos;
    double direct_prio;
    uint32_t priority_site;
    double *priority_tres;
    uint32_t tres_cnt;
    char **tres_names;
    double *tres_weights;
    uint32_t nice;
} priority_factors_object_t;

typedef struct priority_factors_response_msg {
    List priority_factors_list;
} priority_factors_response_msg_t;

/* Answer of slurm_load_jobs() and its relatives. */
typedef struct job_info_msg {
    time_t last_backfill;
    time_t last_update;
    uint32_t record_count;
    slurm_job_info_t *job_array;
} job_info_msg_t;

typedef struct step_update_request_msg {
    uint32_t job_id;
    uint32_t step_id;
    uint32_t time_limit;
} step_update_request_msg_t;

typedef struct {
    char *node_list;
    uint16_t *cpus_per_node;
    uint32_t *cpu_count_reps;
    uint32_t num_hosts;
    uint32_t num_tasks;
    uint16_t *cpus_per_task;
    uint32_t *cpus_task_reps;
    uint32_t task_dist;
    uint16_t plane_size;
} slurm_step_layout_req_t;

typedef struct slurm_step_layout {
    char *front_end;
    uint32_t node_cnt;
    char *node_list;
    uint16_t plane_size;
    uint16_t start_protocol_ver;
    uint16_t *tasks;
    uint32_t task_cnt;
    uint32_t task_dist;
    uint32_t **tids;
} slurm_step_layout_t;

/* Names a step. */
typedef struct slurm_step_id_msg {
    uint32_t job_id;
    uint32_t step_het_comp;
    uint32_t step_id;
} slurm_step_id_t;

typedef struct slurm_step_io_fds {
    struct 
    {
      int fd;
      uint32_t taskid;
      uint32_t nodeid;
    } input, out, err;
} slurm_step_io_fds_t;

typedef struct launch_tasks_response_msg {
    uint32_t return_code;
    char *node_name;
    uint32_t srun_node_id;
    uint32_t count_of_pids;
    uint32_t *local_pids;
    slurm_step_id_t step_id;
    uint32_t *task_ids;
} launch_tasks_response_msg_t;

typedef struct task_ext_msg {
    uint32_t num_tasks;
    uint32_t *task_id_list;
    uint32_t return_code;
    slurm_step_id_t step_id;
} task_exit_msg_t;

typedef struct {
    uint32_t job_id;
    uint32_t flags;
    uint16_t port;
    char *target;
} net_forward_msg_t;

typedef struct srun_ping_msg {
    uint32_t job_id;
} srun_ping_msg_t;

typedef slurm_step_id_t srun_job_complete_msg_t;
typedef struct srun_timeout_msg {
    slurm_step_id_t step_id;
    time_t timeout;
} srun_timeout_msg_t;

typedef struct srun_user_msg {
    uint32_t job_id;
    char *msg;
} srun_user_msg_t;

typedef struct srun_node_fail_msg {
    char *nodelist;
    slurm_step_id_t step_id;
} srun_node_fail_msg_t;

typedef struct srun_step_missing_msg {
    char *nodelist;
    slurm_step_id_t step_id;
} srun_step_missing_msg_t;

enum suspend_opts {
    SUSPEND_JOB,
    RESUME_JOB
};

typedef struct suspend_msg {
    uint16_t op;
    uint32_t job_id;
    char *job_id_str;
} suspend_msg_t;

typedef struct top_job_msg {
    uint16_t op;
    uint32_t job_id;
    char *job_id_str;
} top_job_msg_t;

typedef struct {
    char *alias_list;
    uint32_t argc;
    char **argv;
    uint32_t envc;
    char **env;
    char *container;
    char *cwd;
    bool user_managed_io;
    uint32_t msg_timeout;
    uint16_t ntasks_per_board;
    uint16_t ntasks_per_core;
    uint16_t ntasks_per_tres;
    uint16_t ntasks_per_socket;
    bool buffered_stdio;
    bool labelio;
    char *remote_output_filename;
    char *remote_error_filename;
    char *remote_input_filename;
    slurm_step_io_fds_t local_fds;
    uint32_t gid;
    bool multi_prog;
    bool no_alloc;
    uint32_t slurmd_debug;
    uint32_t het_job_node_offset;
    uint32_t het_job_id;
    uint32_t het_job_nnodes;
    uint32_t het_job_ntasks;
    uint32_t het_job_step_cnt;
    uint16_t *het_job_task_cnts;
    uint32_t **het_job_tids;
    uint32_t *het_job_tid_offsets;
    uint32_t het_job_offset;
    uint32_t het_job_task_offset;
    char *het_job_node_list;
    bool parallel_debug;
    uint32_t profile;
    char *task_prolog;
    char *task_epilog;
    uint16_t cpu_bind_type;
    char *cpu_bind;
    uint32_t cpu_freq_min;
    uint32_t cpu_freq_max;
    uint32_t cpu_freq_gov;
    uint16_t mem_bind_type;
    char *mem_bind;
    uint16_t accel_bind_type;
    uint16_t max_sockets;
    uint16_t max_cores;
    uint16_t max_threads;
    uint16_t cpus_per_task;
    uint16_t threads_per_core;
    uint32_t task_dist;
    char *partition;
    bool preserve_env;
    char *mpi_plugin_name;
    uint8_t open_mode;
    char *acctg_freq;
    bool pty;
    char **spank_job_env;
    uint32_t spank_job_env_size;
    char *tres_bind;
    char *tres_freq;
} slurm_step_launch_params_t;

typedef struct {
    void (*step_complete)(srun_job_complete_msg_t *);
    void (*step_signal)(int);
    void (*step_timeout)(srun_timeout_msg_t *);
    void (*task_start)(launch_tasks_response_msg_t *);
    void (*task_finish)(task_exit_msg_t *);
} slurm_step_launch_callbacks_t;

typedef struct {
    void (*job_complete)(srun_job_complete_msg_t *);
    void (*timeout)(srun_timeout_msg_t *);
    void (*user_msg)(srun_user_msg_t *);
    void (*node_fail)(srun_node_fail_msg_t *);
    void (*job_suspend)(suspend_msg_t *);
} slurm_allocation_callbacks_t;

typedef struct {
    void (*acct_full)();
    void (*dbd_fail)();
    void (*dbd_resumed)();
    void (*db_fail)();
    void (*db_resumed)();
} slurm_trigger_callbacks_t;

typedef struct {
    uint32_t array_job_id;
    uint32_t array_task_id;
    char *cluster;
    char *container;
    uint32_t cpu_freq_min;
    uint32_t cpu_freq_max;
    uint32_t cpu_freq_gov;
    char *cpus_per_tres;
    char *mem_per_tres;
    char *name;
    char *network;
    char *nodes;
    int32_t *node_inx;
    uint32_t num_cpus;
    uint32_t num_tasks;
    char *partition;
    char *resv_ports;
    time_t run_time;
    dynamic_plugin_data_t *select_jobinfo;
    char *srun_host;
    uint32_t srun_pid;
    time_t start_time;
    uint16_t start_protocol_ver;
    uint32_t state;
    slurm_step_id_t step_id;
    char *submit_line;
    uint32_t task_dist;
    uint32_t time_limit;
    char *tres_alloc_str;
    char *tres_bind;
    char *tres_freq;
    char *tres_per_step;
    char *tres_per_node;
    char *tres_per_socket;
    char *tres_per_task;
    uint32_t user_id;
} job_step_info_t;

typedef struct job_step_info_response_msg {
    time_t last_update;
    uint32_t job_step_count;
    job_step_info_t *job_steps;
} job_step_info_response_msg_t;

typedef struct {
    char *node_name;
    uint32_t *pid;
    uint32_t pid_cnt;
} job_step_pids_t;

/* Processes of a step, by node. */
typedef struct {
    List pid_list;
    slurm_step_id_t step_id;
} job_step_pids_response_msg_t;

typedef struct {
    jobacctinfo_t *jobacct;
    uint32_t num_tasks;
    uint32_t return_code;
    job_step_pids_t *step_pids;
} job_step_stat_t;

typedef struct {
    List stats_list;
    slurm_step_id_t step_id;
} job_step_stat_response_msg_t;

/* A node. */
typedef struct node_info {
    char *arch;
    char *bcast_address;
    uint16_t boards;
    time_t boot_time;
    char *cluster_name;
    uint16_t cores;
    uint16_t core_spec_cnt;
    uint32_t cpu_bind;
    uint32_t cpu_load;
    uint64_t free_mem;
    uint16_t cpus;
    uint16_t cpus_efctv;
    char *cpu_spec_list;
    acct_gather_energy_t *energy;
    ext_sensors_data_t *ext_sensors;
    char *extra;
    power_mgmt_data_t *power;
    char *features;
    char *features_act;
    char *gres;
    char *gres_drain;
    char *gres_used;
    time_t last_busy;
    char *mcs_label;
    uint64_t mem_spec_limit;
    char *name;
    uint32_t next_state;
    char *node_addr;
    char *node_hostname;
    uint32_t node_state;
    char *os;
    uint32_t owner;
    char *partitions;
    uint16_t port;
    uint64_t real_memory;
    char *comment;
    char *reason;
    time_t reason_time;
    uint32_t reason_uid;
    dynamic_plugin_data_t *select_nodeinfo;
    time_t slurmd_start_time;
    uint16_t sockets;
    uint16_t threads;
    uint32_t tmp_disk;
    uint32_t weight;
    char *tres_fmt_str;
    char *version;
} node_info_t;

typedef struct node_info_msg {
    time_t last_update;
    uint32_t record_count;
    node_info_t *node_array;
} node_info_msg_t;

typedef struct front_end_info {
    char *allow_groups;
    char *allow_users;
    time_t boot_time;
    char *deny_groups;
    char *deny_users;
    char *name;
    uint32_t node_state;
    char *reason;
    time_t reason_time;
    uint32_t reason_uid;
    time_t slurmd_start_time;
    char *version;
} front_end_info_t;

typedef struct front_end_info_msg {
    time_t last_update;
    uint32_t record_count;
    front_end_info_t *front_end_array;
} front_end_info_msg_t;

/* A switch. */
typedef struct topo_info {
    uint16_t level;
    uint32_t link_speed;
    char *name;
    char *nodes;
    char *switches;
} topo_info_t;

typedef struct topo_info_response_msg {
    uint32_t record_count;
    topo_info_t *topo_array;
} topo_info_response_msg_t;

typedef struct job_alloc_info_msg {
    uint32_t job_id;
    char *req_cluster;
} job_alloc_info_msg_t;

typedef struct {
    uint32_t array_task_id;
    uint32_t het_job_offset;
    slurm_step_id_t step_id;
} slurm_selected_step_t;

typedef slurm_selected_step_t step_alloc_info_msg_t;
typedef struct acct_gather_node_resp_msg {
    acct_gather_energy_t *energy;
    char *node_name;
    uint16_t sensor_cnt;
} acct_gather_node_resp_msg_t;

typedef struct acct_gather_energy_req_msg {
    uint16_t context_id;
    uint16_t delta;
} acct_gather_energy_req_msg_t;

typedef struct job_defaults {
    uint16_t type;
    uint64_t value;
} job_defaults_t;

/* A partition. */
typedef struct partition_info {
    char *allow_alloc_nodes;
    char *allow_accounts;
    char *allow_groups;
    char *allow_qos;
    char *alternate;
    char *billing_weights_str;
    char *cluster_name;
    uint16_t cr_type;
    uint32_t cpu_bind;
    uint64_t def_mem_per_cpu;
    uint32_t default_time;
    char *deny_accounts;
    char *deny_qos;
    uint16_t flags;
    uint32_t grace_time;
    List job_defaults_list;
    char *job_defaults_str;
    uint32_t max_cpus_per_node;
    uint64_t max_mem_per_cpu;
    uint32_t max_nodes;
    uint16_t max_share;
    uint32_t max_time;
    uint32_t min_nodes;
    char *name;
    int32_t *node_inx;
    char *nodes;
    char *nodesets;
    uint16_t over_time_limit;
    uint16_t preempt_mode;
    uint16_t priority_job_factor;
    uint16_t priority_tier;
    char *qos_char;
    uint16_t resume_timeout;
    uint16_t state_up;
    uint32_t suspend_time;
    uint16_t suspend_timeout;
    uint32_t total_cpus;
    uint32_t total_nodes;
    char *tres_fmt_str;
} partition_info_t;

typedef struct delete_partition_msg {
    char *name;
} delete_part_msg_t;

/* An allocation that was granted, or the number of one that waits. */
typedef struct resource_allocation_response_msg {
    char *account;
    uint32_t job_id;
    char *alias_list;
    char *batch_host;
    uint32_t cpu_freq_min;
    uint32_t cpu_freq_max;
    uint32_t cpu_freq_gov;
    uint16_t *cpus_per_node;
    uint32_t *cpu_count_reps;
    uint32_t env_size;
    char **environment;
    uint32_t error_code;
    char *job_submit_user_msg;
    slurm_addr_t *node_addr;
    uint32_t node_cnt;
    char *node_list;
    uint16_t ntasks_per_board;
    uint16_t ntasks_per_core;
    uint16_t ntasks_per_tres;
    uint16_t ntasks_per_socket;
    uint32_t num_cpu_groups;
    char *partition;
    uint64_t pn_min_memory;
    char *qos;
    char *resv_name;
    dynamic_plugin_data_t *select_jobinfo;
    void *working_cluster_rec;
} resource_allocation_response_msg_t;

typedef struct partition_info_msg {
    time_t last_update;
    uint32_t record_count;
    partition_info_t *partition_array;
} partition_info_msg_t;

/* Expected start of a job. */
typedef struct will_run_response_msg {
    uint32_t job_id;
    char *job_submit_user_msg;
    char *node_list;
    char *part_name;
    List preemptee_job_id;
    uint32_t proc_cnt;
    time_t start_time;
    double sys_usage_per;
} will_run_response_msg_t;

typedef struct resv_core_spec {
    char *node_name;
    char *core_id;
} resv_core_spec_t;

/* An advance reservation. */
typedef struct reserve_info {
    char *accounts;
    char *burst_buffer;
    uint32_t core_cnt;
    uint32_t core_spec_cnt;
    resv_core_spec_t *core_spec;
    time_t end_time;
    char *features;
    uint64_t flags;
    char *groups;
    char *licenses;
    uint32_t max_start_delay;
    char *name;
    uint32_t node_cnt;
    int32_t *node_inx;
    char *node_list;
    char *partition;
    uint32_t purge_comp_time;
    time_t start_time;
    uint32_t resv_watts;
    char *tres_str;
    char *users;
} reserve_info_t;

typedef struct reserve_info_msg {
    time_t last_update;
    uint32_t record_count;
    reserve_info_t *reservation_array;
} reserve_info_msg_t;

/* An advance reservation that is to be made or changed. */
typedef struct resv_desc_msg {
    char *accounts;
    char *burst_buffer;
    uint32_t *core_cnt;
    uint32_t duration;
    time_t end_time;
    char *features;
    uint64_t flags;
    char *groups;
    char *licenses;
    uint32_t max_start_delay;
    char *name;
    uint32_t *node_cnt;
    char *node_list;
    char *partition;
    uint32_t purge_comp_time;
    time_t start_time;
    uint32_t resv_watts;
    char *tres_str;
    char *users;
} resv_desc_msg_t;

typedef struct reserve_response_msg {
    char *name;
} reserve_response_msg_t;

typedef struct reservation_name_msg {
    char *name;
} reservation_name_msg_t;

/* The configuration of the controller. */
typedef struct {
    time_t last_update;
    char *accounting_storage_tres;
    uint16_t accounting_storage_enforce;
    char *accounting_storage_backup_host;
    char *accounting_storage_ext_host;
    char *accounting_storage_host;
    char *accounting_storage_params;
    char *accounting_storage_pass;
    uint16_t accounting_storage_port;
    char *accounting_storage_type;
    char *accounting_storage_user;
    void *acct_gather_conf;
    char *acct_gather_energy_type;
    char *acct_gather_profile_type;
    char *acct_gather_interconnect_type;
    char *acct_gather_filesystem_type;
    uint16_t acct_gather_node_freq;
    char *authalttypes;
    char *authinfo;
    char *authalt_params;
    char *authtype;
    uint16_t batch_start_timeout;
    char *bb_type;
    char *bcast_exclude;
    char *bcast_parameters;
    time_t boot_time;
    void *cgroup_conf;
    char *cli_filter_plugins;
    char *core_spec_plugin;
    char *cluster_name;
    char *comm_params;
    uint16_t complete_wait;
    uint32_t conf_flags;
    char **control_addr;
    uint32_t control_cnt;
    char **control_machine;
    uint32_t cpu_freq_def;
    uint32_t cpu_freq_govs;
    char *cred_type;
    uint64_t debug_flags;
    uint64_t def_mem_per_cpu;
    char *dependency_params;
    uint16_t eio_timeout;
    uint16_t enforce_part_limits;
    char *epilog;
    uint32_t epilog_msg_time;
    char *epilog_slurmctld;
    char *ext_sensors_type;
    uint16_t ext_sensors_freq;
    void *ext_sensors_conf;
    char *fed_params;
    uint32_t first_job_id;
    uint16_t fs_dampening_factor;
    uint16_t get_env_timeout;
    char *gres_plugins;
    uint16_t group_time;
    uint16_t group_force;
    char *gpu_freq_def;
    uint32_t hash_val;
    uint16_t health_check_interval;
    uint16_t health_check_node_state;
    char *health_check_program;
    uint16_t inactive_limit;
    char *interactive_step_opts;
    char *job_acct_gather_freq;
    char *job_acct_gather_type;
    char *job_acct_gather_params;
    uint16_t job_acct_oom_kill;
    char *job_comp_host;
    char *job_comp_loc;
    char *job_comp_params;
    char *job_comp_pass;
    uint32_t job_comp_port;
    char *job_comp_type;
    char *job_comp_user;
    char *job_container_plugin;
    char *job_credential_private_key;
    char *job_credential_public_certificate;
    List job_defaults_list;
    uint16_t job_file_append;
    uint16_t job_requeue;
    char *job_submit_plugins;
    uint32_t keepalive_interval;
    uint32_t keepalive_probes;
    uint32_t keepalive_time;
    uint16_t kill_on_bad_exit;
    uint16_t kill_wait;
    char *launch_params;
    char *launch_type;
    char *licenses;
    uint16_t log_fmt;
    char *mail_domain;
    char *mail_prog;
    uint32_t max_array_sz;
    uint32_t max_dbd_msgs;
    uint32_t max_job_cnt;
    uint32_t max_job_id;
    uint64_t max_mem_per_cpu;
    uint32_t max_node_cnt;
    uint32_t max_step_cnt;
    uint16_t max_tasks_per_node;
    char *mcs_plugin;
    char *mcs_plugin_params;
    uint32_t min_job_age;
    void *mpi_conf;
    char *mpi_default;
    char *mpi_params;
    uint16_t msg_timeout;
    uint32_t next_job_id;
    void *node_features_conf;
    char *node_features_plugins;
    char *node_prefix;
    uint16_t over_time_limit;
    char *plugindir;
    char *plugstack;
    char *power_parameters;
    char *power_plugin;
    uint32_t preempt_exempt_time;
    uint16_t preempt_mode;
    char *preempt_type;
    char *prep_params;
    char *prep_plugins;
    uint32_t priority_decay_hl;
    uint32_t priority_calc_period;
    uint16_t priority_favor_small;
    uint16_t priority_flags;
    uint32_t priority_max_age;
    char *priority_params;
    uint16_t priority_reset_period;
    char *priority_type;
    uint32_t priority_weight_age;
    uint32_t priority_weight_assoc;
    uint32_t priority_weight_fs;
    uint32_t priority_weight_js;
    uint32_t priority_weight_part;
    uint32_t priority_weight_qos;
    char *priority_weight_tres;
    uint16_t private_data;
    char *proctrack_type;
    char *prolog;
    uint16_t prolog_epilog_timeout;
    char *prolog_slurmctld;
    uint16_t propagate_prio_process;
    uint16_t prolog_flags;
    char *propagate_rlimits;
    char *propagate_rlimits_except;
    char *reboot_program;
    uint16_t reconfig_flags;
    char *requeue_exit;
    char *requeue_exit_hold;
    char *resume_fail_program;
    char *resume_program;
    uint16_t resume_rate;
    uint16_t resume_timeout;
    char *resv_epilog;
    uint16_t resv_over_run;
    char *resv_prolog;
    uint16_t ret2service;
    char *route_plugin;
    char *sched_logfile;
    uint16_t sched_log_level;
    char *sched_params;
    uint16_t sched_time_slice;
    char *schedtype;
    char *scron_params;
    char *select_type;
    void *select_conf_key_pairs;
    uint16_t select_type_param;
    char *site_factor_plugin;
    char *site_factor_params;
    char *slurm_conf;
    uint32_t slurm_user_id;
    char *slurm_user_name;
    uint32_t slurmd_user_id;
    char *slurmd_user_name;
    char *slurmctld_addr;
    uint16_t slurmctld_debug;
    char *slurmctld_logfile;
    char *slurmctld_pidfile;
    char *slurmctld_plugstack;
    void *slurmctld_plugstack_conf;
    uint32_t slurmctld_port;
    uint16_t slurmctld_port_count;
    char *slurmctld_primary_off_prog;
    char *slurmctld_primary_on_prog;
    uint16_t slurmctld_syslog_debug;
    uint16_t slurmctld_timeout;
    char *slurmctld_params;
    uint16_t slurmd_debug;
    char *slurmd_logfile;
    char *slurmd_params;
    char *slurmd_pidfile;
    uint32_t slurmd_port;
    char *slurmd_spooldir;
    uint16_t slurmd_syslog_debug;
    uint16_t slurmd_timeout;
    char *srun_epilog;
    uint16_t *srun_port_range;
    char *srun_prolog;
    char *state_save_location;
    char *suspend_exc_nodes;
    char *suspend_exc_parts;
    char *suspend_program;
    uint16_t suspend_rate;
    uint32_t suspend_time;
    uint16_t suspend_timeout;
    char *switch_type;
    char *switch_param;
    char *task_epilog;
    char *task_plugin;
    uint32_t task_plugin_param;
    char *task_prolog;
    uint16_t tcp_timeout;
    char *tmp_fs;
    char *topology_param;
    char *topology_plugin;
    uint16_t tree_width;
    char *unkillable_program;
    uint16_t unkillable_timeout;
    char *version;
    uint16_t vsize_factor;
    uint16_t wait_time;
    char *x11_params;
} slurm_conf_t;

typedef struct slurmd_status_msg {
    time_t booted;
    time_t last_slurmctld_msg;
    uint16_t slurmd_debug;
    uint16_t actual_cpus;
    uint16_t actual_boards;
    uint16_t actual_sockets;
    uint16_t actual_cores;
    uint16_t actual_threads;
    uint64_t actual_real_mem;
    uint32_t actual_tmp_disk;
    uint32_t pid;
    char *hostname;
    char *slurmd_logfile;
    char *step_list;
    char *version;
} slurmd_status_t;

/* Answer of slurm_submit_batch_job(). */
typedef struct submit_response_msg {
    uint32_t job_id;
    uint32_t step_id;
    uint32_t error_code;
    char *job_submit_user_msg;
} submit_response_msg_t;

/* Change of nodes. */
typedef struct slurm_update_node_msg {
    char *comment;
    uint32_t cpu_bind;
    char *extra;
    char *features;
    char *features_act;
    char *gres;
    char *node_addr;
    char *node_hostname;
    char *node_names;
    uint32_t node_state;
    char *reason;
    uint32_t reason_uid;
    uint32_t weight;
} update_node_msg_t;

typedef struct slurm_update_front_end_msg {
    char *name;
    uint32_t node_state;
    char *reason;
    uint32_t reason_uid;
} update_front_end_msg_t;

/* A partition. */
typedef struct partition_info update_part_msg_t;

typedef struct job_sbcast_cred_msg {
    uint32_t job_id;
    char *node_list;
    sbcast_cred_t *sbcast_cred;
} job_sbcast_cred_msg_t;

typedef struct {
    uint32_t lifespan;
    char *username;
} token_request_msg_t;

typedef struct {
    char *token;
} token_response_msg_t;

typedef struct slurm_step_ctx_struct slurm_step_ctx_t;
typedef struct stats_info_request_msg {
    uint16_t command_id;
} stats_info_request_msg_t;

/* Counters of the controller. */
typedef struct stats_info_response_msg {
    uint32_t parts_packed;
    time_t req_time;
    time_t req_time_start;
    uint32_t server_thread_count;
    uint32_t agent_queue_size;
    uint32_t agent_count;
    uint32_t agent_thread_count;
    uint32_t dbd_agent_queue_size;
    uint32_t gettimeofday_latency;
    uint32_t schedule_cycle_max;
    uint32_t schedule_cycle_last;
    uint32_t schedule_cycle_sum;
    uint32_t schedule_cycle_counter;
    uint32_t schedule_cycle_depth;
    uint32_t schedule_queue_len;
    uint32_t jobs_submitted;
    uint32_t jobs_started;
    uint32_t jobs_completed;
    uint32_t jobs_canceled;
    uint32_t jobs_failed;
    uint32_t jobs_pending;
    uint32_t jobs_running;
    time_t job_states_ts;
    uint32_t bf_backfilled_jobs;
    uint32_t bf_last_backfilled_jobs;
    uint32_t bf_backfilled_het_jobs;
    uint32_t bf_cycle_counter;
    uint64_t bf_cycle_sum;
    uint32_t bf_cycle_last;
    uint32_t bf_cycle_max;
    uint32_t bf_last_depth;
    uint32_t bf_last_depth_try;
    uint32_t bf_depth_sum;
    uint32_t bf_depth_try_sum;
    uint32_t bf_queue_len;
    uint32_t bf_queue_len_sum;
    uint32_t bf_table_size;
    uint32_t bf_table_size_sum;
    time_t bf_when_last_cycle;
    uint32_t bf_active;
    uint32_t rpc_type_size;
    uint16_t *rpc_type_id;
    uint32_t *rpc_type_cnt;
    uint64_t *rpc_type_time;
    uint32_t rpc_user_size;
    uint32_t *rpc_user_id;
    uint32_t *rpc_user_cnt;
    uint64_t *rpc_user_time;
    uint32_t rpc_queue_type_count;
    uint32_t *rpc_queue_type_id;
    uint32_t *rpc_queue_count;
    uint32_t rpc_dump_count;
    uint32_t *rpc_dump_types;
    char **rpc_dump_hostlist;
} stats_info_response_msg_t;

typedef struct trigger_info {
    uint16_t flags;
    uint32_t trig_id;
    uint16_t res_type;
    char *res_id;
    uint32_t control_inx;
    uint32_t trig_type;
    uint16_t offset;
    uint32_t user_id;
    char *program;
} trigger_info_t;

typedef struct trigger_info_msg {
    uint32_t record_count;
    trigger_info_t *trigger_array;
} trigger_info_msg_t;

/* A license. */
typedef struct slurm_license_info {
    char *name;
    uint32_t total;
    uint32_t in_use;
    uint32_t available;
    uint8_t remote;
    uint32_t reserved;
} slurm_license_info_t;

typedef struct license_info_msg {
    time_t last_update;
    uint32_t num_lic;
    slurm_license_info_t *lic_array;
} license_info_msg_t;

typedef struct {
    uint32_t job_array_count;
    char **job_array_id;
    uint32_t *error_code;
} job_array_resp_msg_t;

typedef struct {
    List assoc_list;
    List qos_list;
    uint32_t tres_cnt;
    char **tres_names;
    List user_list;
} assoc_mgr_info_msg_t;

typedef struct {
    List acct_list;
    uint32_t flags;
    List qos_list;
    List user_list;
} assoc_mgr_info_request_msg_t;

typedef struct network_callerid_msg {
    unsigned char ip_src[16];
    unsigned char ip_dst[16];
    uint32_t port_src;
    uint32_t port_dst;
    int32_t af;
} network_callerid_msg_t;

typedef struct job_step_kill_msg {
    char *sjob_id;
    uint16_t signal;
    uint16_t flags;
    char *sibling;
    slurm_step_id_t step_id;
} job_step_kill_msg_t;

typedef struct {
    uint64_t granularity;
    char *name;
    uint64_t total_space;
    uint64_t used_space;
    uint64_t unfree_space;
} burst_buffer_pool_t;

typedef struct {
    char *account;
    uint32_t array_job_id;
    uint32_t array_task_id;
    time_t create_time;
    uint32_t job_id;
    char *name;
    char *partition;
    char *pool;
    char *qos;
    uint64_t size;
    uint16_t state;
    uint32_t user_id;
} burst_buffer_resv_t;

typedef struct {
    uint32_t user_id;
    uint64_t used;
} burst_buffer_use_t;

typedef struct {
    char *allow_users;
    char *default_pool;
    char *create_buffer;
    char *deny_users;
    char *destroy_buffer;
    uint32_t flags;
    char *get_sys_state;
    char *get_sys_status;
    uint64_t granularity;
    uint32_t pool_cnt;
    burst_buffer_pool_t *pool_ptr;
    char *name;
    uint32_t other_timeout;
    uint32_t stage_in_timeout;
    uint32_t stage_out_timeout;
    char *start_stage_in;
    char *start_stage_out;
    char *stop_stage_in;
    char *stop_stage_out;
    uint64_t total_space;
    uint64_t unfree_space;
    uint64_t used_space;
    uint32_t validate_timeout;
    uint32_t buffer_count;
    burst_buffer_resv_t *burst_buffer_resv_ptr;
    uint32_t use_count;
    burst_buffer_use_t *burst_buffer_use_ptr;
} burst_buffer_info_t;

typedef struct {
    burst_buffer_info_t *burst_buffer_array;
    uint32_t record_count;
} burst_buffer_info_msg_t;

typedef struct {
    char *err_msg;
    char *failed_lines;
    uint32_t *jobids;
    uint32_t jobids_count;
    uint32_t return_code;
} crontab_update_response_msg_t;

extern void slurm_init(const char *conf);
extern void slurm_fini(void);
extern hostlist_t slurm_hostlist_create(const char *hostlist);
extern int slurm_hostlist_count(hostlist_t hl);
extern void slurm_hostlist_destroy(hostlist_t hl);
extern int slurm_hostlist_find(hostlist_t hl, const char *hostname);
extern int slurm_hostlist_push(hostlist_t hl, const char *hosts);
extern int slurm_hostlist_push_host(hostlist_t hl, const char *host);
extern ssize_t slurm_hostlist_ranged_string(hostlist_t hl, size_t n, char *buf);
extern char *slurm_hostlist_ranged_string_malloc(hostlist_t hl);
extern char *slurm_hostlist_ranged_string_xmalloc(hostlist_t hl);
extern char *slurm_hostlist_shift(hostlist_t hl);
extern void slurm_hostlist_uniq(hostlist_t hl);
extern void *slurm_list_append(List l, void *x);
extern int slurm_list_count(List l);
extern List slurm_list_create(ListDelF f);
extern void slurm_list_destroy(List l);
extern void *slurm_list_find(ListIterator i, ListFindF f, void *key);
extern int slurm_list_is_empty(List l);
extern ListIterator slurm_list_iterator_create(List l);
extern void slurm_list_iterator_reset(ListIterator i);
extern void slurm_list_iterator_destroy(ListIterator i);
extern void *slurm_list_next(ListIterator i);
extern void slurm_list_sort(List l, ListCmpF f);
extern void *slurm_list_pop(List l);
extern void slurm_init_job_desc_msg(job_desc_msg_t *job_desc_msg);
extern int slurm_allocate_resources(job_desc_msg_t *job_desc_msg,
    resource_allocation_response_msg_t **job_alloc_resp_msg);
extern resource_allocation_response_msg_t *slurm_allocate_resources_blocking(const job_desc_msg_t *user_req,
    time_t timeout, void (*pending_callback)(uint32_t job_id));
extern void slurm_free_resource_allocation_response_msg(resource_allocation_response_msg_t *msg);
extern List slurm_allocate_het_job_blocking(List job_req_list, time_t timeout,
    void (*pending_callback)(uint32_t job_id));
extern int slurm_allocation_lookup(uint32_t job_id, resource_allocation_response_msg_t **resp);
extern int slurm_het_job_lookup(uint32_t jobid, List *resp);
extern char *slurm_read_hostfile(const char *filename, int n);
extern allocation_msg_thread_t *slurm_allocation_msg_thr_create(uint16_t *port,
    const slurm_allocation_callbacks_t *callbacks);
extern void slurm_allocation_msg_thr_destroy(allocation_msg_thread_t *msg_thr);
extern int slurm_submit_batch_job(job_desc_msg_t *job_desc_msg,
    submit_response_msg_t **slurm_alloc_msg);
extern int slurm_submit_batch_het_job(List job_req_list, submit_response_msg_t **slurm_alloc_msg);
extern void slurm_free_submit_response_response_msg(submit_response_msg_t *msg);
extern int slurm_job_batch_script(FILE *out, uint32_t jobid);
extern int slurm_job_will_run(job_desc_msg_t *job_desc_msg);
extern int slurm_het_job_will_run(List job_req_list);
extern int slurm_job_will_run2(job_desc_msg_t *req, will_run_response_msg_t **will_run_resp);
extern int slurm_sbcast_lookup(slurm_selected_step_t *selected_step, job_sbcast_cred_msg_t **info);
extern void slurm_free_sbcast_cred_msg(job_sbcast_cred_msg_t *msg);
extern int slurm_load_licenses(time_t, license_info_msg_t **, uint16_t);
extern void slurm_free_license_info_msg(license_info_msg_t *);
extern int slurm_load_assoc_mgr_info(assoc_mgr_info_request_msg_t *, assoc_mgr_info_msg_t **);
extern void slurm_free_assoc_mgr_info_msg(assoc_mgr_info_msg_t *);
extern void slurm_free_assoc_mgr_info_request_members(assoc_mgr_info_request_msg_t *);
extern void slurm_free_assoc_mgr_info_request_msg(assoc_mgr_info_request_msg_t *);
extern int slurm_kill_job(uint32_t job_id, uint16_t signal, uint16_t flags);
extern int slurm_kill_job_step(uint32_t job_id, uint32_t step_id, uint16_t signal);
extern int slurm_kill_job2(const char *job_id, uint16_t signal, uint16_t flags,
    const char *sibling);
extern int slurm_signal_job(uint32_t job_id, uint16_t signal);
extern int slurm_signal_job_step(uint32_t job_id, uint32_t step_id, uint32_t signal);
extern int slurm_complete_job(uint32_t job_id, uint32_t job_return_code);
extern int slurm_terminate_job_step(uint32_t job_id, uint32_t step_id);
extern void slurm_step_launch_params_t_init(slurm_step_launch_params_t *ptr);
extern int slurm_step_launch(slurm_step_ctx_t *ctx, const slurm_step_launch_params_t *params,
    const slurm_step_launch_callbacks_t *callbacks);
extern int slurm_step_launch_add(slurm_step_ctx_t *ctx, slurm_step_ctx_t *first_ctx,
    const slurm_step_launch_params_t *params, char *node_list);
extern int slurm_step_launch_wait_start(slurm_step_ctx_t *ctx);
extern void slurm_step_launch_wait_finish(slurm_step_ctx_t *ctx);
extern void slurm_step_launch_abort(slurm_step_ctx_t *ctx);
extern void slurm_step_launch_fwd_signal(slurm_step_ctx_t *ctx, int signo);
extern void slurm_step_launch_fwd_wake(slurm_step_ctx_t *ctx);
extern long slurm_api_version(void);
extern int slurm_load_ctl_conf(time_t update_time, slurm_conf_t **slurm_ctl_conf_ptr);
extern void slurm_free_ctl_conf(slurm_conf_t *slurm_ctl_conf_ptr);
extern void slurm_print_ctl_conf(FILE *out, slurm_conf_t *slurm_ctl_conf_ptr);
extern void slurm_write_ctl_conf(slurm_conf_t *slurm_ctl_conf_ptr, node_info_msg_t *node_info_ptr,
    partition_info_msg_t *part_info_ptr);
extern void *slurm_ctl_conf_2_key_pairs(slurm_conf_t *slurm_ctl_conf_ptr);
extern void slurm_print_key_pairs(FILE *out, void *key_pairs, char *title);
extern int slurm_load_slurmd_status(slurmd_status_t **slurmd_status_ptr);
extern void slurm_free_slurmd_status(slurmd_status_t *slurmd_status_ptr);
extern void slurm_print_slurmd_status(FILE *out, slurmd_status_t *slurmd_status_ptr);
extern void slurm_init_update_step_msg(step_update_request_msg_t *step_msg);
extern int slurm_get_statistics(stats_info_response_msg_t **buf, stats_info_request_msg_t *req);
extern int slurm_reset_statistics(stats_info_request_msg_t *req);
extern int slurm_job_cpus_allocated_on_node_id(job_resources_t *job_resrcs_ptr, int node_id);
extern int slurm_job_cpus_allocated_on_node(job_resources_t *job_resrcs_ptr, const char *node_name);
extern int slurm_job_cpus_allocated_str_on_node_id(char *cpus, size_t cpus_len,
    job_resources_t *job_resrcs_ptr, int node_id);
extern int slurm_job_cpus_allocated_str_on_node(char *cpus, size_t cpus_len,
    job_resources_t *job_resrcs_ptr, const char *node_name);
extern void slurm_free_job_info_msg(job_info_msg_t *job_buffer_ptr);
extern void slurm_free_priority_factors_response_msg(priority_factors_response_msg_t *factors_resp);
extern int slurm_get_end_time(uint32_t jobid, time_t *end_time_ptr);
extern void slurm_get_job_stderr(char *buf, int buf_size, job_info_t *job_ptr);
extern void slurm_get_job_stdin(char *buf, int buf_size, job_info_t *job_ptr);
extern void slurm_get_job_stdout(char *buf, int buf_size, job_info_t *job_ptr);
extern long slurm_get_rem_time(uint32_t jobid);
extern int slurm_job_node_ready(uint32_t job_id);
extern int slurm_load_job(job_info_msg_t **resp, uint32_t job_id, uint16_t show_flags);
extern int slurm_load_job_prio(priority_factors_response_msg_t **factors_resp, List job_id_list,
    char *partitions, List uid_list, uint16_t show_flags);
extern int slurm_load_job_user(job_info_msg_t **job_info_msg_pptr, uint32_t user_id,
    uint16_t show_flags);
extern int slurm_load_jobs(time_t update_time, job_info_msg_t **job_info_msg_pptr,
    uint16_t show_flags);
extern int slurm_notify_job(uint32_t job_id, char *message);
extern int slurm_pid2jobid(pid_t job_pid, uint32_t *job_id_ptr);
extern void slurm_print_job_info(FILE *out, slurm_job_info_t *job_ptr, int one_liner);
extern void slurm_print_job_info_msg(FILE *out, job_info_msg_t *job_info_msg_ptr, int one_liner);
extern char *slurm_sprint_job_info(slurm_job_info_t *job_ptr, int one_liner);
extern int slurm_update_job(job_desc_msg_t *job_msg);
extern int slurm_update_job2(job_desc_msg_t *job_msg, job_array_resp_msg_t **resp);
extern uint32_t slurm_xlate_job_id(char *job_id_str);
extern int slurm_get_job_steps(time_t update_time, uint32_t job_id, uint32_t step_id,
    job_step_info_response_msg_t **step_response_pptr, uint16_t show_flags);
extern void slurm_free_job_step_info_response_msg(job_step_info_response_msg_t *msg);
extern void slurm_print_job_step_info_msg(FILE *out,
    job_step_info_response_msg_t *job_step_info_msg_ptr, int one_liner);
extern void slurm_print_job_step_info(FILE *out, job_step_info_t *step_ptr, int one_liner);
extern slurm_step_layout_t *slurm_job_step_layout_get(slurm_step_id_t *step_id);
extern char *slurm_sprint_job_step_info(job_step_info_t *step_ptr, int one_liner);
extern int slurm_job_step_stat(slurm_step_id_t *step_id, char *node_list, uint16_t use_protocol_ver,
    job_step_stat_response_msg_t **resp);
extern int slurm_job_step_get_pids(slurm_step_id_t *step_id, char *node_list,
    job_step_pids_response_msg_t **resp);
extern void slurm_job_step_layout_free(slurm_step_layout_t *layout);
extern void slurm_job_step_pids_free(job_step_pids_t *object);
extern void slurm_job_step_pids_response_msg_free(void *object);
extern void slurm_job_step_stat_free(job_step_stat_t *object);
extern void slurm_job_step_stat_response_msg_free(void *object);
extern int slurm_update_step(step_update_request_msg_t *step_msg);
extern void slurm_destroy_selected_step(void *object);
extern int slurm_load_node(time_t update_time, node_info_msg_t **resp, uint16_t show_flags);
extern int slurm_load_node2(time_t update_time, node_info_msg_t **resp, uint16_t show_flags,
    slurmdb_cluster_rec_t *cluster);
extern int slurm_load_node_single(node_info_msg_t **resp, char *node_name, uint16_t show_flags);
extern int slurm_load_node_single2(node_info_msg_t **resp, char *node_name, uint16_t show_flags,
    slurmdb_cluster_rec_t *cluster);
extern void slurm_populate_node_partitions(node_info_msg_t *node_buffer_ptr,
    partition_info_msg_t *part_buffer_ptr);
extern int slurm_get_node_energy(char *host, uint16_t context_id, uint16_t delta,
    uint16_t *sensors_cnt, acct_gather_energy_t **energy);
extern void slurm_free_node_info_msg(node_info_msg_t *node_buffer_ptr);
extern void slurm_print_node_info_msg(FILE *out, node_info_msg_t *node_info_msg_ptr, int one_liner);
extern void slurm_print_node_table(FILE *out, node_info_t *node_ptr, int one_liner);
extern char *slurm_sprint_node_table(node_info_t *node_ptr, int one_liner);
extern void slurm_init_update_node_msg(update_node_msg_t *update_node_msg);
extern int slurm_create_node(update_node_msg_t *node_msg);
extern int slurm_update_node(update_node_msg_t *node_msg);
extern int slurm_delete_node(update_node_msg_t *node_msg);
extern int slurm_load_front_end(time_t update_time, front_end_info_msg_t **resp);
extern void slurm_free_front_end_info_msg(front_end_info_msg_t *front_end_buffer_ptr);
extern void slurm_print_front_end_info_msg(FILE *out, front_end_info_msg_t *front_end_info_msg_ptr,
    int one_liner);
extern void slurm_print_front_end_table(FILE *out, front_end_info_t *front_end_ptr, int one_liner);
extern char *slurm_sprint_front_end_table(front_end_info_t *front_end_ptr, int one_liner);
extern void slurm_init_update_front_end_msg(update_front_end_msg_t *update_front_end_msg);
extern int slurm_update_front_end(update_front_end_msg_t *front_end_msg);
extern int slurm_load_topo(topo_info_response_msg_t **topo_info_msg_pptr);
extern void slurm_free_topo_info_msg(topo_info_response_msg_t *msg);
extern void slurm_print_topo_info_msg(FILE *out, topo_info_response_msg_t *topo_info_msg_ptr,
    int one_liner);
extern void slurm_print_topo_record(FILE *out, topo_info_t *topo_ptr, int one_liner);
extern int slurm_get_select_nodeinfo(dynamic_plugin_data_t *nodeinfo,
    enum select_nodedata_type data_type, enum node_states state, void *data);
extern void slurm_init_part_desc_msg(update_part_msg_t *update_part_msg);
extern int slurm_load_partitions(time_t update_time, partition_info_msg_t **part_buffer_ptr,
    uint16_t show_flags);
extern int slurm_load_partitions2(time_t update_time, partition_info_msg_t **resp,
    uint16_t show_flags, slurmdb_cluster_rec_t *cluster);
extern void slurm_free_partition_info_msg(partition_info_msg_t *part_info_ptr);
extern void slurm_print_partition_info_msg(FILE *out, partition_info_msg_t *part_info_ptr,
    int one_liner);
extern void slurm_print_partition_info(FILE *out, partition_info_t *part_ptr, int one_liner);
extern char *slurm_sprint_partition_info(partition_info_t *part_ptr, int one_liner);
extern int slurm_create_partition(update_part_msg_t *part_msg);
extern int slurm_update_partition(update_part_msg_t *part_msg);
extern int slurm_delete_partition(delete_part_msg_t *part_msg);
extern void slurm_init_resv_desc_msg(resv_desc_msg_t *update_resv_msg);
extern char *slurm_create_reservation(resv_desc_msg_t *resv_msg);
extern int slurm_update_reservation(resv_desc_msg_t *resv_msg);
extern int slurm_delete_reservation(reservation_name_msg_t *resv_msg);
extern int slurm_load_reservations(time_t update_time, reserve_info_msg_t **resp);
extern void slurm_print_reservation_info_msg(FILE *out, reserve_info_msg_t *resv_info_ptr,
    int one_liner);
extern void slurm_print_reservation_info(FILE *out, reserve_info_t *resv_ptr, int one_liner);
extern char *slurm_sprint_reservation_info(reserve_info_t *resv_ptr, int one_liner);
extern void slurm_free_reservation_info_msg(reserve_info_msg_t *resv_info_ptr);
extern int slurm_ping(int dest);
extern int slurm_reconfigure(void);
extern int slurm_shutdown(uint16_t options);
extern int slurm_takeover(int backup_inx);
extern int slurm_set_debugflags(uint64_t debug_flags_plus, uint64_t debug_flags_minus);
extern int slurm_set_debug_level(uint32_t debug_level);
extern int slurm_set_schedlog_level(uint32_t schedlog_level);
extern int slurm_set_fs_dampeningfactor(uint16_t factor);
extern int slurm_suspend(uint32_t job_id);
extern int slurm_suspend2(char *job_id, job_array_resp_msg_t **resp);
extern int slurm_resume(uint32_t job_id);
extern int slurm_resume2(char *job_id, job_array_resp_msg_t **resp);
extern void slurm_free_job_array_resp(job_array_resp_msg_t *resp);
extern int slurm_requeue(uint32_t job_id, uint32_t flags);
extern int slurm_requeue2(char *job_id, uint32_t flags, job_array_resp_msg_t **resp);
extern int slurm_set_trigger(trigger_info_t *trigger_set);
extern int slurm_clear_trigger(trigger_info_t *trigger_clear);
extern int slurm_get_triggers(trigger_info_msg_t **trigger_get);
extern int slurm_pull_trigger(trigger_info_t *trigger_pull);
extern void slurm_free_trigger_msg(trigger_info_msg_t *trigger_free);
extern void slurm_init_trigger_msg(trigger_info_t *trigger_info_msg);
extern char *slurm_burst_buffer_state_string(uint16_t state);
extern int slurm_load_burst_buffer_stat(int argc, char **argv, char **status_resp);
extern int slurm_load_burst_buffer_info(burst_buffer_info_msg_t **burst_buffer_info_msg_pptr);
extern void slurm_free_burst_buffer_info_msg(burst_buffer_info_msg_t *burst_buffer_info_msg);
extern void slurm_print_burst_buffer_info_msg(FILE *out, burst_buffer_info_msg_t *info_ptr,
    int one_liner, int verbosity);
extern void slurm_print_burst_buffer_record(FILE *out, burst_buffer_info_t *burst_buffer_ptr,
    int one_liner, int verbose);
extern int slurm_network_callerid(network_callerid_msg_t req, uint32_t *job_id, char *node_name,
    int node_name_size);
extern int slurm_top_job(char *job_id_str);
extern char *slurm_fetch_token(char *username, int lifespan);
extern int slurm_load_federation(void **fed_pptr);
extern void slurm_print_federation(void *fed);
extern void slurm_destroy_federation_rec(void *fed);
extern int slurm_request_crontab(uid_t uid, char **crontab, char **disabled_lines);
extern crontab_update_response_msg_t *slurm_update_crontab(uid_t uid, gid_t gid, char *crontab,
    List jobs);
extern int slurm_remove_crontab(uid_t uid, gid_t gid);

#ifdef __cplusplus
}
#endif

#endif
