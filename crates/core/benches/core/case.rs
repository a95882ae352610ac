//! One thing that is measured: timed by the benches, and counted by `tests/counted`.

use std::hint::black_box;

/// What is done once, with all that it needs; what it makes is dropped with it.
pub(crate) type Work = Box<dyn FnOnce()>;

/// One thing that is measured.
pub(crate) struct Case {
    /// `group/what`, without spaces.
    pub(crate) name: String,
    prepare: Box<dyn Fn() -> Work>,
}

impl Case {
    /// A case whose work is to make something of an input; making the input is not measured.
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

    /// The same; it was done once before. What is made for good the first time, as the tables of the
    /// expressions' parser, is not each call's cost.
    #[allow(dead_code, reason = "benches warm up by themselves")]
    pub(crate) fn warm(&self) -> Work {
        self.prepare()();
        self.prepare()
    }

    /// The work, ready to be done once.
    pub(crate) fn prepare(&self) -> Work {
        (self.prepare)()
    }
}
