//! The functions' processes: found by their environment, killed, and asked for their credentials.

use std::{collections::HashMap, fs, process::Command};

use aws_credential_types::Credentials;

use super::emulator::endpoint;

/// A process that runs a function.
pub(super) struct Process {
    pid: String,
    environment: HashMap<String, String>,
}

impl Process {
    /// As the machine would: nothing is finished, nobody is told.
    pub(super) fn kill(&self) {
        // It may have ended by itself.
        let _ = Command::new("kill").args(["-KILL", &self.pid]).status().unwrap();
    }

    /// What it calls AWS with.
    pub(super) fn credentials(&self) -> Credentials {
        let of = |name: &str| self.environment[name].clone();
        let (key, secret) = (of("AWS_ACCESS_KEY_ID"), of("AWS_SECRET_ACCESS_KEY"));
        Credentials::new(key, secret, Some(of("AWS_SESSION_TOKEN")), None, "function")
    }
}

/// The processes that run this function now, on this emulator.
pub(super) fn processes(function: &str) -> Vec<Process> {
    let folders = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut processes: Vec<_> = folders.filter_map(|folder| read(&folder.path())).collect();
    processes.retain(|Process { environment, .. }| {
        let is = |name: &str, value: &str| environment.get(name).is_some_and(|set| set == value);
        is("AWS_LAMBDA_FUNCTION_NAME", function) && is("AWS_ENDPOINT_URL", &endpoint())
    });
    processes
}

/// A process that runs a `bootstrap`, if it is one, and is still there.
fn read(folder: &std::path::Path) -> Option<Process> {
    let program = fs::read_link(folder.join("exe")).ok()?;
    if program.file_name()? != "bootstrap" {
        return None;
    }
    let environment = fs::read(folder.join("environ")).ok()?;
    let pairs = environment.split(|byte| *byte == 0).filter_map(|pair| {
        let (name, value) = str::from_utf8(pair).ok()?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    Some(Process { pid: folder.file_name()?.to_str()?.to_owned(), environment: pairs.collect() })
}
