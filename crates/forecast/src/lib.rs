//! What a workflow will do before it is deployed: [`cost`] runs it many times on in-memory ports and counts what AWS
//! would bill, [`capacity`] finds the rate that a deployment can carry.

pub mod capacity;
pub mod cost;
