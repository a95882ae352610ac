//! CPU time and memory of processes, from Linux's `/proc`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};

/// The unit of the CPU times in `/proc`: a hundredth of a second on every common Linux.
const TICK: Duration = Duration::from_millis(10);

/// The CPU time that all threads of the processes have used, given by their folders in `/proc`.
pub(crate) fn time(processes: &[PathBuf]) -> Result<Duration> {
    processes.iter().map(|process| time_of(process)).sum()
}

fn time_of(process: &Path) -> Result<Duration> {
    let stat = std::fs::read_to_string(process.join("stat"))
        .with_context(|| format!("read the CPU time of {}", process.display()))?;
    // The second field, the name, is in parentheses and may have spaces. User and system time are the 14th and 15th.
    let (_, fields) = stat.rsplit_once(')').context("unexpected format of /proc/PID/stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u32>);
    Ok(TICK * ticks.sum::<Result<u32, _>>()?)
}

/// The sum of the peak memory of the processes, in MiB.
pub(crate) fn peak_mib(processes: &[PathBuf]) -> f64 {
    processes.iter().filter_map(|process| peak_mib_of(process)).sum()
}

fn peak_mib_of(process: &Path) -> Option<f64> {
    let status = std::fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1_024.0)
}
