//! Who reads a definition: of the tasks of a batch that miss the same one, the first. The others wait for
//! what it finds; and if it found nothing, each reads for itself, side by side, so that a table that is
//! down is waited for once and not by one after the other.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use steward_core::model::names::WorkflowName;
use tokio::sync::{Mutex as Turns, OwnedMutexGuard};

/// What is asked for: a version, or the newest.
type Asked = (WorkflowName, Option<u32>);

/// Who reads what.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    turns: Arc<Mutex<HashMap<Asked, Arc<Turns<()>>>>>,
}

/// The right to read.
pub(super) struct Turn {
    /// Whether another has read in the meantime: look at what it kept.
    pub(super) waited: bool,
    /// Held by the first; those who waited hold nobody up.
    _first: Option<First>,
}

/// The first reader; when it is done, nothing is left of it.
struct First {
    reading: Reading,
    asked: Asked,
    _guard: OwnedMutexGuard<()>,
}

impl Drop for First {
    fn drop(&mut self) {
        self.reading.turns.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.asked);
    }
}

impl Reading {
    /// Waits for whoever is reading this, if anyone is.
    pub(super) async fn turn(&self, name: &WorkflowName, version: Option<u32>) -> Turn {
        let asked = (name.clone(), version);
        let turns = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.entry(asked.clone()).or_default().clone()
        };
        match turns.clone().try_lock_owned() {
            Ok(guard) => {
                let first = First { reading: self.clone(), asked, _guard: guard };
                Turn { waited: false, _first: Some(first) }
            }
            Err(_) => {
                drop(turns.lock().await);
                Turn { waited: true, _first: None }
            }
        }
    }
}
