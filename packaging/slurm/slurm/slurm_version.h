/*
 * The version of the interface that libslurm has: 22.05.8.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef _SLURM_VERSION_H_
#define _SLURM_VERSION_H_

#define SLURM_VERSION_NUMBER 0x160508
#define SLURM_VERSION_NUM(major, minor, micro) (((major) << 16) + ((minor) << 8) + (micro))
#define SLURM_VERSION_MAJOR(version) (((version) >> 16) & 0xff)
#define SLURM_VERSION_MINOR(version) (((version) >> 8) & 0xff)
#define SLURM_VERSION_MICRO(version) ((version) & 0xff)

#endif
