//! One benchmark case. The benches measure its time, and `tests/counted` counts its instructions and allocations.

use std::hint::black_box;

/// The measured work with its input. It can run once, and drops its result.
pub(crate) type Work = Box<dyn FnOnce()>;

/// One benchmark case.
pub(crate) struct Case {
    /// The name in the form `group/name`, without spaces.
    pub(crate) name: String,
    prepare: Box<dyn Fn() -> Work>,
}

impl Case {
    /// Creates a case that measures `work` on the result of `input`. The time of `input` is not measured.
    pub(crate) fn new<I: 'static, O>(
        name: impl Into<String>,
        input: impl Fn() -> I + 'static,
        work: impl Fn(I) -> O + Copy + 'static,
    ) -> Self {
        let prepare = move || -> Work {
            let input = input();
            Box::new(move || drop(black_box(work(black_box(input)))))
        };
        Self { name: name.into(), prepare: Box::new(prepare) }
    }

    /// Runs the work once, and then returns it to be run again. So the result does not include one-time initialisation,
    /// such as that of the expression parser's tables.
    #[allow(dead_code, reason = "benches warm up by themselves")]
    pub(crate) fn warm(&self) -> Work {
        self.prepare()();
        self.prepare()
    }

    /// Returns the work with a new input.
    pub(crate) fn prepare(&self) -> Work {
        (self.prepare)()
    }
}
