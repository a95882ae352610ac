//! Checkpoints SQLite's write-ahead log on a thread of its own. SQLite itself would do it within the commit that makes
//! the log too long: it copies the pages of the log into the database and waits for the disk, and every request waits
//! with it.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{Builder, JoinHandle},
};

use rusqlite::Connection;

/// The number of written items after which the log is checkpointed. An item takes one or two pages of 4 KB in the log.
const ITEMS_BETWEEN: usize = 16_000;

/// The most passes beside the writes. Each copies what was written during the pass before.
const PASSES_MAX: usize = 4;

/// When a pass has copied no more pages than this, the next one may block the writes: it takes some milliseconds.
const FEW_PAGES: i64 = 500;

/// Counts written items and wakes the thread. Dropping it ends the thread and waits for it, because the thread has the
/// database open.
pub(super) struct Checkpointer {
    written: usize,
    /// `None` when the thread is to end.
    due: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the thread. It uses `connection`, and locks `writer` to block the writes.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub(super) fn start<W: Send + 'static>(
        connection: Connection,
        writer: Arc<Mutex<W>>,
    ) -> io::Result<Self> {
        let (due, is_due) = sync_channel(1);
        let run = move || checkpoint_when_due(&connection, &writer, &is_due);
        let thread = Builder::new().name("checkpoint".to_owned()).spawn(run)?;
        Ok(Self { written: 0, due: Some(due), thread: Some(thread) })
    }

    /// Counts written items.
    pub(super) fn count(&mut self, items: usize) {
        self.written += items;
        if self.written >= ITEMS_BETWEEN {
            self.written = 0;
            // If the channel is full, a checkpoint is due already.
            let _ = self.due.as_ref().map(|due| due.try_send(()));
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.due = None;
        // A panic of the thread has been printed; the database closes all the same.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn checkpoint_when_due<W>(connection: &Connection, writer: &Mutex<W>, is_due: &Receiver<()>) {
    while is_due.recv().is_ok() {
        if let Err(error) = checkpoint(connection, writer) {
            tracing::warn!(%error, "the tables' write-ahead log was not checkpointed; the next checkpoint retries");
        }
    }
}

/// Copies the log into the database, most of it while others write. SQLite starts the log again from its beginning only
/// if nothing is written after the last pass has begun, so that pass blocks the writes.
fn checkpoint<W>(connection: &Connection, writer: &Mutex<W>) -> rusqlite::Result<()> {
    let mut copied_before = 0;
    for _ in 0..PASSES_MAX {
        let copied = pass(connection)?;
        if copied - copied_before <= FEW_PAGES {
            break;
        }
        copied_before = copied;
    }
    let _writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
    pass(connection).map(drop)
}

/// Copies what no reader needs in the log; returns the number of pages copied since the log began.
fn pass(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(2))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// An empty database in `dir` that is checkpointed by no one else.
    fn database(dir: &Path) -> Arc<Mutex<Connection>> {
        let connection = open(dir);
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        connection.execute_batch("CREATE TABLE items (n)").unwrap();
        Arc::new(Mutex::new(connection))
    }

    fn open(dir: &Path) -> Connection {
        Connection::open(dir.join("db")).unwrap()
    }

    fn insert(connection: &Connection) {
        connection.execute("INSERT INTO items VALUES (1)", []).unwrap();
    }

    /// The number of rows in the database file, without its log.
    fn rows_without_log(dir: &Path) -> i64 {
        let copy = dir.join("copy");
        std::fs::copy(dir.join("db"), &copy).unwrap();
        let copy = Connection::open(copy).unwrap();
        copy.query_row("SELECT count(*) FROM items", [], |row| row.get(0)).unwrap_or_default()
    }

    #[test]
    fn the_log_is_checkpointed_after_so_many_items_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let writer = database(dir.path());
        insert(&writer.lock().unwrap());
        for (items, expected) in [(ITEMS_BETWEEN - 1, 0), (ITEMS_BETWEEN, 1)] {
            let mut checkpointer = Checkpointer::start(open(dir.path()), writer.clone()).unwrap();
            checkpointer.count(items);
            drop(checkpointer);
            assert_eq!(rows_without_log(dir.path()), expected, "{items} items");
        }
    }

    #[test]
    fn a_checkpoint_ends_with_all_that_was_written_during_it() {
        let dir = tempfile::tempdir().unwrap();
        let writer = database(dir.path());
        let mut checkpointer = Checkpointer::start(open(dir.path()), writer.clone()).unwrap();
        let connection = writer.lock().unwrap();
        insert(&connection);
        checkpointer.count(ITEMS_BETWEEN);
        while rows_without_log(dir.path()) == 0 {
            std::thread::yield_now();
        }
        insert(&connection);
        drop(connection);
        drop(checkpointer);
        assert_eq!(rows_without_log(dir.path()), 2);
    }

    #[test]
    fn the_log_begins_again_after_a_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let writer = database(dir.path());
        let log_bytes = || std::fs::metadata(dir.path().join("db-wal")).unwrap().len();
        let insert_ten = || {
            let connection = writer.lock().unwrap();
            (0..10).for_each(|_| insert(&connection));
        };
        insert_ten();
        let before = log_bytes();
        let mut checkpointer = Checkpointer::start(open(dir.path()), writer.clone()).unwrap();
        checkpointer.count(ITEMS_BETWEEN);
        drop(checkpointer);
        insert_ten();
        assert_eq!(log_bytes(), before, "the log has grown");
    }
}
