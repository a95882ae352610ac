//! The data directory, which one process uses at a time: two would each keep a part of the state in memory,
//! and write over the other's files.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use super::EmbeddedError;

/// The file in the data directory that is locked while a process uses it. It holds the process's id.
const FILE_NAME: &str = "lock";

/// A data directory that is this process's as long as this value lives. The operating system ends the lock
/// with the process, however it ends.
pub(super) struct Folder {
    _lock: File,
}

impl Folder {
    /// Creates the directory if need be, and locks it.
    pub(super) fn lock(path: &Path) -> Result<Self, EmbeddedError> {
        let failed = |source| EmbeddedError::DataDir { path: path.to_owned(), source };
        std::fs::create_dir_all(path).map_err(failed)?;
        let options = File::options().read(true).write(true).create(true).truncate(false).clone();
        let mut file = options.open(path.join(FILE_NAME)).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut process = String::new();
                // Some systems do not let it be read, either.
                let _ = file.read_to_string(&mut process);
                let process = Some(process).filter(|id| !id.is_empty());
                return Err(EmbeddedError::InUse { path: path.to_owned(), process });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        file.set_len(0).map_err(failed)?;
        write!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { _lock: file })
    }
}
