//! What a case measures.

use std::collections::BTreeMap;

/// The measured values, by name with unit.
pub(super) type Measurements = BTreeMap<String, f64>;

/// The peak memory of a process, given by its id or as `self`, in MiB. `None` except on Linux.
pub(super) fn peak_mib(process: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1_024.0)
}
