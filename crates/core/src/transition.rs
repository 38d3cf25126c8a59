//! The life of a job as one table: which event is possible in which phase, and where it leads.
