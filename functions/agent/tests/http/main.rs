//! The HTTP agent against real servers: what it sends, and how it interprets each response.

#![cfg(test)]

mod redirects;
mod requests;
mod responses;
mod test_server;
