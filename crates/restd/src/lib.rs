//! `slurmrestd`: HTTP in front of the controller. It has no rights of its own: what a request asks is asked of the controller by a
//! connection of the user's, made with the user's token, so that the controller alone decides who may do what. Only over a socket of
//! this host, and only from its own user or root, are requests taken without a token; they are those of its own user.

mod connection_slots;
mod connections;
mod events;
mod identity;
mod line_limit;
mod listen;
mod packing;
mod pages;
mod parts;
mod request_headers;
mod served_paths;
mod server;
mod single;
mod user_stream;

pub use identity::Authentication;
pub use listen::{AddressError, ListenAddress, Listeners};
pub use served_paths::{RestAccess, ServedPaths};
pub use server::{Limits, serve};
