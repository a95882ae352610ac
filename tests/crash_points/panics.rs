//! Counts the panics of this thread. A handler catches the panic of a single message, so it would not be detected
//! otherwise.

use std::{cell::Cell, panic, sync::Once};

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// The number of panics on this thread since the first call of this function.
pub(super) fn count() -> usize {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            report(info);
        }));
    });
    PANICS.get()
}
