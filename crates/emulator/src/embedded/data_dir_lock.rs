//! The lock on the data directory. Only one process may use the directory at a time: two processes would each hold a
//! part of the queues in memory and overwrite the other's files.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use super::error::EmbeddedError;

/// The lock file in the data directory. It contains the id of the process that locked the directory last.
const FILE_NAME: &str = "lock";

/// A data directory that is locked until this value is dropped. The operating system releases the lock when the
/// process ends, also after a crash.
pub(super) struct LockedDataDir {
    _lock: File,
}

impl LockedDataDir {
    /// Creates the directory if it does not exist, and locks it.
    pub(super) fn lock(path: &Path) -> Result<Self, EmbeddedError> {
        let data_dir_error = |source| EmbeddedError::DataDir { path: path.to_owned(), source };
        std::fs::create_dir_all(path).map_err(data_dir_error)?;
        let options = File::options().read(true).write(true).create(true).truncate(false).clone();
        let mut file = options.open(path.join(FILE_NAME)).map_err(data_dir_error)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut process_id = String::new();
                // On some systems a locked file cannot be read.
                let _ = file.read_to_string(&mut process_id);
                let process = Some(process_id).filter(|id| !id.is_empty());
                return Err(EmbeddedError::InUse { path: path.to_owned(), process });
            }
            Err(TryLockError::Error(source)) => return Err(data_dir_error(source)),
        }
        file.set_len(0).map_err(data_dir_error)?;
        write!(file, "{}", std::process::id()).map_err(data_dir_error)?;
        Ok(Self { _lock: file })
    }
}
