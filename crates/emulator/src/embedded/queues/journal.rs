//! The journal: every change of the queues, a line of JSON each, in a file. A change is written before it
//! is applied and answered, by one `write`: a killed process loses nothing that was answered. It is not
//! waited for the disk, so a power cut may lose the last changes, never the file; the tables are the same.
//!
//! At the start, and when most of the file is about messages that are gone, a new file with what there is
//! takes its place.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::attributes::Attributes;
use super::state::{Record, State};

/// The journal's file in the data directory.
const FILE_NAME: &str = "queues.jsonl";

/// What a new file is called until it is complete.
const NEW_FILE_NAME: &str = "queues.jsonl.new";

/// The version of the file's format, in its first line.
const VERSION: u32 = 1;

/// The least length at which the file is rewritten, in bytes.
const REWRITE_LENGTH_MIN: u64 = 32 * 1024 * 1024;

/// How many times its length after the last time the file is rewritten.
const REWRITE_GROWTH: u64 = 4;

/// The file's first line.
#[derive(Serialize, Deserialize)]
struct Header {
    steward_queues: u32,
}

/// Why a journal cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The file cannot be read or written.
    #[error("the operating system refuses")]
    Io(#[from] io::Error),
    /// The file's format is not this release's.
    #[error(
        "{} is not a journal of queues that this release can read: use the release that wrote it, \
         or move the file away and lose its messages",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
    },
    /// A line that is not the last cannot be read.
    #[error(
        "line {line} of {} is damaged, and others follow: restore the file, or move it away and lose its \
         messages",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which line.
        line: usize,
    },
    /// The file has something in it that a later release may have written.
    #[error(
        "line {line} of {} is of a kind that this release does not know: use the release that wrote it, \
         or move the file away and lose its messages",
        path.display()
    )]
    Unknown {
        /// The file.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// An open journal.
pub(super) struct Journal {
    dir: PathBuf,
    file: File,
    /// Bytes that were written completely.
    length: u64,
    /// The length at which the file is rewritten.
    rewrite_at: u64,
    /// Whether something incomplete may follow what was written completely.
    is_torn: bool,
    line: Vec<u8>,
}

impl Journal {
    /// Opens the journal in a folder that is locked, and applies it to an empty state.
    pub(super) fn open(dir: &Path, state: &mut State) -> Result<Self, JournalError> {
        let path = dir.join(FILE_NAME);
        match File::open(&path) {
            Ok(file) => replay(file, &path, state)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        // Also without what may be incomplete at its end.
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

    /// Writes changes: all, or it fails.
    pub(super) fn append(&mut self, records: &[Record]) -> io::Result<()> {
        if self.is_torn {
            // What follows an incomplete line would not be read.
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

    /// Writes a new file if this one has become long: most of it is about messages that are gone.
    pub(super) fn compact(&mut self, state: &State) -> io::Result<()> {
        if self.length < self.rewrite_at {
            return Ok(());
        }
        // If it fails, not again with the next change.
        self.rewrite_at = rewrite_at(self.length);
        (self.file, self.length) = write_new(&self.dir, state)?;
        self.rewrite_at = rewrite_at(self.length);
        Ok(())
    }
}

fn rewrite_at(length: u64) -> u64 {
    length.saturating_mul(REWRITE_GROWTH).max(REWRITE_LENGTH_MIN)
}

/// Writes a file with what there is, which takes the place of the old one when it is on disk.
fn write_new(dir: &Path, state: &State) -> io::Result<(File, u64)> {
    let (path, new_path) = (dir.join(FILE_NAME), dir.join(NEW_FILE_NAME));
    match std::fs::remove_file(&new_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let file = OpenOptions::new().append(true).create_new(true).open(&new_path)?;
    let mut writer = BufWriter::new(file);
    let mut line = serde_json::to_vec(&Header { steward_queues: VERSION })?;
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
    // From here on the new file is the journal, so nothing may fail any more.
    if let Err(error) = File::open(dir).and_then(|dir| dir.sync_all()) {
        tracing::warn!(%error, "data directory not synced: a power cut may bring back an older journal");
    }
    Ok((file, length))
}

/// Applies what a file says, up to an incomplete end.
fn replay(file: File, path: &Path, state: &mut State) -> Result<(), JournalError> {
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
            // A process that dies leaves an incomplete end; a damaged line with others after it is the disk's.
            if after > 0 {
                return Err(JournalError::Damaged { path: path.to_owned(), line: n });
            }
            let lost = line.len();
            let path = path.display();
            tracing::warn!(%path, line = n, bytes = lost, "journal of queues ends with an incomplete line; left out");
            break;
        }
    }
    Ok(())
}

/// Reads the first line; says whether it is complete.
fn read_header(line: &[u8], path: &Path) -> Result<bool, JournalError> {
    match serde_json::from_slice(line) {
        Ok(Header { steward_queues: VERSION }) => Ok(true),
        Ok(Header { .. }) | Err(_) => Err(JournalError::Version { path: path.to_owned() }),
    }
}

/// Applies a line; says whether it is complete.
fn read_record(
    text: &[u8],
    path: &Path,
    line: usize,
    state: &mut State,
) -> Result<bool, JournalError> {
    if text.last() != Some(&b'\n') {
        return Ok(false);
    }
    let unknown = |source| Err(JournalError::Unknown { path: path.to_owned(), line, source });
    match serde_json::from_slice(text) {
        Ok(Record::Queue { attributes, .. }) if Attributes::parse(attributes.clone()).is_err() => {
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
