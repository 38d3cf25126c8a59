//! squeue, sinfo, scontrol show, sacct: what they print.
