//! core

pub mod hostlist;
