//! A hostile client: it speaks the protocol below the commands, as users who must not get anything by it. What it attacks is
//! a private cluster that was started for the purpose on this machine, over that cluster's Unix sockets, by HTTP ([`rest`]), and
//! from other hosts ([`network`], `controller_port`).
//!
//! [`attacks`] holds attacks that once worked, one function each; [`load`] what many processes do at once; [`requests`] a
//! valid request of each kind; [`mutate`] the wrong values for every place of a message ([`cbor`]). After each of them
//! [`health`] says what must hold. [`campaign`] carries them out.
#![warn(missing_docs)]

pub mod attacks;
pub mod campaign;
pub mod cbor;
mod controller_port;
pub mod health;
mod jobs;
pub mod load;
pub mod mutate;
pub mod network;
pub mod outcome;
pub mod peer;
pub mod random;
pub mod requests;
pub mod rest;
mod roles;
pub mod slices;
pub mod sys;
pub mod target;
