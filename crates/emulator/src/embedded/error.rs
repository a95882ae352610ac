//! The errors of the embedded AWS.

use std::path::PathBuf;

use dynoxide::DynoxideError;

use super::{s3::StoreError, sqs::JournalError};

/// Why the embedded AWS could not start or do its housekeeping.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// The data directory cannot be created, locked or written to.
    #[error("cannot use the data directory {}", path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Another process uses the data directory, or this one does already.
    #[error(
        "the data directory {} is in use by process {}: stop it, or use another directory",
        path.display(),
        process.as_deref().unwrap_or("(unknown)")
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The id of that process, if the lock file contains it.
        process: Option<String>,
    },
    /// The queues could not be opened.
    #[error("cannot open the embedded queues")]
    OpenQueues(#[source] JournalError),
    /// The objects could not be opened.
    #[error("cannot open the embedded objects")]
    OpenObjects(#[source] StoreError),
    /// SQLite cannot open the database's path.
    #[error("the data directory's path is not UTF-8: {}", path.display())]
    PathNotUtf8 {
        /// The database file.
        path: PathBuf,
    },
    /// The tables could not be opened: a damaged file, or one locked by another process.
    #[error("cannot open the embedded tables")]
    OpenTables(#[source] DynoxideError),
    /// The second connection to the tables could not be opened.
    #[error("cannot open the second connection to the embedded tables")]
    OpenFastPath(#[source] rusqlite::Error),
    /// The thread that checkpoints the tables' write-ahead log could not be created.
    #[error("cannot start the thread that checkpoints the embedded tables")]
    StartCheckpointer(#[source] std::io::Error),
    /// Items past their time to live could not be removed.
    #[error("cannot remove expired items from the embedded tables")]
    SweepTtl(#[source] DynoxideError),
}
