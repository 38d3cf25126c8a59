//! acct
