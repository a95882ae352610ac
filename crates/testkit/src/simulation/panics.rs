//! Panics as findings. The functions catch a panic and give its message back to the queue, so that an assertion of the
//! engine would otherwise look like a crash that the redelivery survives.

use std::{cell::RefCell, panic, sync::Once};

thread_local! {
    /// The panics of the run on this thread that are not yet findings.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Records the panics of this process from now on, and forgets those of earlier runs on this thread.
pub(super) fn record() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            PANICS.with_borrow_mut(|panics| panics.push(panicked.to_string()));
            before(panicked);
        }));
    });
    take();
}

/// Returns the panics on this thread since the last call.
pub(super) fn take() -> Vec<String> {
    PANICS.take()
}
