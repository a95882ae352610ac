//! Counts instructions by running this binary under valgrind's callgrind.

use std::{env, fs, hint::black_box, path::Path, process::Command, thread};

use crate::case::{Case, Work};

/// A stack that is large enough for any expression. With a smaller one the core switches to another stack, and callgrind,
/// which follows calls by the stack, loses track.
const STACK_BYTES: usize = 256 * 1024 * 1024;

/// Functions that differ only in their name: callgrind counts each case in its own function.
macro_rules! counters {
    ($($name:ident)*) => {
        const COUNTERS: &[(&str, fn(Work))] = &[$((stringify!($name), $name)),*];
        $(
            #[inline(never)]
            fn $name(work: Work) {
                work();
                black_box(stringify!($name));
            }
        )*
    };
}

counters! {
    count_00 count_01 count_02 count_03 count_04 count_05 count_06 count_07 count_08
    count_09 count_10 count_11 count_12 count_13 count_14 count_15 count_16 count_17
    count_18 count_19 count_20 count_21 count_22 count_23 count_24 count_25 count_26
    count_27 count_28 count_29 count_30 count_31 count_32 count_33 count_34 count_35
    count_36 count_37 count_38 count_39
}

/// Runs each case in its own function, under valgrind: what `prepare` returns.
pub(crate) fn count(
    cases: impl Fn() -> Vec<Case> + Send + 'static,
    prepare: impl Fn(&Case) -> Work + Send + 'static,
) {
    let work = move || {
        let cases = cases();
        assert!(cases.len() <= COUNTERS.len(), "more cases than counters");
        cases.iter().zip(COUNTERS).for_each(|(case, (_, count))| count(prepare(case)));
    };
    thread::Builder::new().stack_size(STACK_BYTES).spawn(work).unwrap().join().unwrap();
}

/// Runs an ignored test of this binary that [counts](count); returns the number of instructions of each case.
///
/// # Errors
/// Valgrind is not installed.
pub(crate) fn instructions(test: &str) -> Result<Vec<u64>, String> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Err("valgrind is not installed".to_owned());
    }
    let file = env::temp_dir().join(format!("steward-counted-{}-{test}", std::process::id()));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*::count_*"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--test-threads=1"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "valgrind failed: {stderr}");
    let counted = read(&file);
    fs::remove_file(&file).unwrap();
    Ok(counted)
}

/// Reads the cost of each counter from callgrind's file. A section begins with `fn=(7) a::count_00`, or with `fn=(7)` if the
/// name is already known. The costs of its lines and of its calls follow, each at the end of a line.
fn read(file: &Path) -> Vec<u64> {
    let text = fs::read_to_string(file).unwrap();
    let mut counted = vec![0; COUNTERS.len()];
    let mut ids = vec![None; COUNTERS.len()];
    let mut at = None;
    for line in text.lines() {
        let (key, value) = line.split_once('=').unwrap_or(("", line));
        if let "fn" | "cfn" = key {
            let (id, name) = value.split_once(' ').unwrap_or((value, ""));
            let is_named = |(counter, _): &(&str, _)| name.ends_with(&format!("::{counter}"));
            if let Some(index) = COUNTERS.iter().position(is_named) {
                ids[index] = Some(id);
            }
            if key == "fn" {
                at = ids.iter().position(|known| *known == Some(id));
            }
        } else if let (Some(index), "") = (at, key) {
            let cost = line.rsplit(' ').next().and_then(|cost| cost.parse::<u64>().ok());
            counted[index] += cost.unwrap_or_default();
        }
    }
    counted.retain(|cost| *cost > 0);
    counted
}
