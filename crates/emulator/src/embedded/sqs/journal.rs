//! The journal: a file with one line of JSON for each change of the queues. A change is written with one `write`
//! before it is applied and the response is sent, so a killed process loses no acknowledged change. The write does
//! not wait for the disk: a power cut may lose the last changes, but does not damage the file. The same holds for
//! the tables.
//!
//! At the start, and when most of the file is about deleted messages, the journal is replaced by a new file with
//! the current state. All requests wait meanwhile, so a file that consists of a backlog is not rewritten.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    attributes::QueueAttributes,
    state::{JournalRecord, QueuesState},
};

/// The journal's file in the data directory.
const FILE_NAME: &str = "queues.jsonl";

/// The name of a new file until it is complete.
const NEW_FILE_NAME: &str = "queues.jsonl.new";

/// The version of the file's format, in its first line.
const VERSION: u32 = 1;

/// A journal shorter than this, in bytes, is not rewritten.
const REWRITE_LENGTH_MIN: u64 = 32 * 1024 * 1024;

/// The file is rewritten when it is this many times as long as after the last rewrite, and as its messages.
const REWRITE_GROWTH: u64 = 4;

/// The file's first line.
#[derive(Serialize, Deserialize)]
struct JournalHeader {
    steward_queues: u32,
}

/// Why a journal cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The file cannot be read or written.
    #[error("the journal of the queues cannot be read or written")]
    Io(#[from] io::Error),
    /// The file's format is not the format of this release.
    #[error(
        "{} is not a journal of queues that this release can read: use the release that wrote it, \
         or move the file away and lose its messages",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
    },
    /// A line before the last one cannot be read.
    #[error(
        "line {line} of {} is damaged, and it is not the last line: restore the file, or move it away and lose its \
         messages",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The number of the line.
        line: usize,
    },
    /// A line is valid JSON but not a known record; a later release may have written it.
    #[error(
        "line {line} of {} is a record that this release does not know: use the release that wrote it, \
         or move the file away and lose its messages",
        path.display()
    )]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The number of the line.
        line: usize,
        /// The error in the line.
        source: serde_json::Error,
    },
}

/// An open journal.
pub(super) struct QueueJournal {
    dir: PathBuf,
    file: File,
    /// The length of the complete lines, in bytes.
    length: u64,
    /// The length at which the file is rewritten.
    rewrite_at: u64,
    /// Whether an incomplete line may follow the complete ones.
    is_torn: bool,
    line: Vec<u8>,
}

impl QueueJournal {
    /// Opens the journal in a locked directory, and applies it to an empty state.
    pub(super) fn open(dir: &Path, state: &mut QueuesState) -> Result<Self, JournalError> {
        let path = dir.join(FILE_NAME);
        match File::open(&path) {
            Ok(file) => replay(file, &path, state)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        // The new file also drops an incomplete line at the end.
        let (file, length) = write_new(dir, state)?;
        let dir = dir.to_owned();
        Ok(Self {
            dir,
            file,
            length,
            rewrite_at: rewrite_at(length),
            is_torn: false,
            line: Vec::new(),
        })
    }

    /// Writes all changes, or fails.
    pub(super) fn append(&mut self, records: &[JournalRecord]) -> io::Result<()> {
        if self.is_torn {
            // Lines after an incomplete line could not be read.
            self.file.set_len(self.length)?;
            self.is_torn = false;
        }
        self.line.clear();
        for record in records {
            serde_json::to_writer(&mut self.line, record)?;
            self.line.push(b'\n');
        }
        self.is_torn = true;
        self.file.write_all(&self.line)?;
        self.is_torn = false;
        self.length += self.line.len() as u64;
        Ok(())
    }

    /// Rewrites the file if it has become long, that is, if most of it is about deleted messages.
    pub(super) fn compact(&mut self, state: &QueuesState) -> io::Result<()> {
        let needed = state.message_bytes().saturating_mul(REWRITE_GROWTH);
        if self.length < self.rewrite_at.max(needed) {
            return Ok(());
        }
        // If the rewrite fails, do not retry it with the next change.
        self.rewrite_at = rewrite_at(self.length);
        (self.file, self.length) = write_new(&self.dir, state)?;
        self.rewrite_at = rewrite_at(self.length);
        Ok(())
    }
}

fn rewrite_at(length: u64) -> u64 {
    length.saturating_mul(REWRITE_GROWTH).max(REWRITE_LENGTH_MIN)
}

/// Writes a file with the current state, and replaces the old file when the new one is on disk.
fn write_new(dir: &Path, state: &QueuesState) -> io::Result<(File, u64)> {
    let (path, new_path) = (dir.join(FILE_NAME), dir.join(NEW_FILE_NAME));
    match std::fs::remove_file(&new_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let file = OpenOptions::new().append(true).create_new(true).open(&new_path)?;
    let mut writer = BufWriter::new(file);
    let mut line = serde_json::to_vec(&JournalHeader { steward_queues: VERSION })?;
    for record in state.snapshot() {
        line.push(b'\n');
        writer.write_all(&line)?;
        line.clear();
        serde_json::to_writer(&mut line, &record)?;
    }
    line.push(b'\n');
    writer.write_all(&line)?;
    let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_data()?;
    let length = file.metadata()?.len();
    std::fs::rename(new_path, path)?;
    // From here on the new file is the journal, so an error must not be returned.
    if let Err(error) = File::open(dir).and_then(|dir| dir.sync_all()) {
        tracing::warn!(%error, "data directory not synced: after a power cut, an older journal may reappear");
    }
    Ok((file, length))
}

/// Applies the records of a file, up to an incomplete line at its end.
fn replay(file: File, path: &Path, state: &mut QueuesState) -> Result<(), JournalError> {
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    for n in 1.. {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let read =
            if n == 1 { read_header(&line, path) } else { read_record(&line, path, n, state) };
        if !read? {
            let after = io::copy(&mut reader.by_ref(), &mut io::sink())?;
            // A killed process leaves an incomplete last line. A damaged line before the end is a disk error.
            if after > 0 {
                return Err(JournalError::Damaged { path: path.to_owned(), line: n });
            }
            let lost = line.len();
            let path = path.display();
            tracing::warn!(%path, line = n, bytes = lost, "dropped the incomplete last line of the queues' journal");
            break;
        }
    }
    Ok(())
}

/// Checks the first line; returns whether it is complete.
fn read_header(line: &[u8], path: &Path) -> Result<bool, JournalError> {
    match serde_json::from_slice(line) {
        Ok(JournalHeader { steward_queues: VERSION }) => Ok(true),
        Ok(JournalHeader { .. }) | Err(_) => Err(JournalError::Version { path: path.to_owned() }),
    }
}

/// Applies a line; returns whether it is complete.
fn read_record(
    text: &[u8],
    path: &Path,
    line: usize,
    state: &mut QueuesState,
) -> Result<bool, JournalError> {
    if text.last() != Some(&b'\n') {
        return Ok(false);
    }
    let unknown = |source| Err(JournalError::Unknown { path: path.to_owned(), line, source });
    match serde_json::from_slice(text) {
        Ok(JournalRecord::Queue { attributes, .. })
            if QueueAttributes::parse(attributes.clone()).is_err() =>
        {
            unknown(serde::de::Error::custom("an attribute of a queue"))
        }
        Ok(record) => {
            state.apply(record);
            Ok(true)
        }
        Err(source) if source.is_data() => unknown(source),
        Err(_) => Ok(false),
    }
}
