//! The construction of an embedded AWS.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    aws::{EmbeddedAws, EmbeddedServices, ExternalServices, RequestCounters},
    data_dir_lock::LockedDataDir,
    dynamodb::DynamoTables,
    error::EmbeddedError,
    eventbridge::EventBuses,
    external::ExternalEndpoints,
    s3::EmbeddedS3,
    sdk_config::external_config,
    sqs::SqsQueues,
};

/// The subdirectory of the data directory with the objects.
const OBJECTS: &str = "objects";

/// Settings of an [`EmbeddedAws`]; see [`EmbeddedAws::builder`].
#[derive(Debug, Clone)]
pub struct EmbeddedAwsBuilder {
    data_dir: Option<PathBuf>,
    host: String,
    port: u16,
    external: Option<ExternalEndpoints>,
    use_fast_path: bool,
}

impl EmbeddedAws {
    /// Creates an instance in memory. Its state is lost with the last clone.
    ///
    /// # Errors
    /// [`EmbeddedError::OpenTables`] if SQLite cannot start.
    pub fn in_memory() -> Result<Self, EmbeddedError> {
        Self::builder().build()
    }

    /// Creates an instance whose tables and queues are files in `dir`, which is created if it does not exist.
    ///
    /// A killed process loses no acknowledged write and no acknowledged message, delayed messages and dead letters
    /// included. A power cut may lose the last writes and messages, but does not damage the files. Rules are not
    /// stored.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn on_disk(dir: &Path) -> Result<Self, EmbeddedError> {
        Self::builder().data_dir(dir).build()
    }

    /// A builder with in-memory tables and queue URLs under `http://127.0.0.1:4566`.
    #[must_use]
    pub fn builder() -> EmbeddedAwsBuilder {
        let host = "127.0.0.1".to_owned();
        EmbeddedAwsBuilder {
            data_dir: None,
            host,
            port: 4566,
            external: None,
            use_fast_path: false,
        }
    }
}

impl EmbeddedAwsBuilder {
    /// Stores the tables and queues in files in `dir` instead of in memory.
    #[must_use]
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(dir.into());
        self
    }

    /// Sets the address in queue URLs: the address at which the host serves [`EmbeddedAws::router`].
    #[must_use]
    pub fn public_address(mut self, host: impl Into<String>, port: u16) -> Self {
        self.host = host.into();
        self.port = port;
        self
    }

    /// Uses the services at these endpoints instead of those in this process.
    #[must_use]
    pub fn external_endpoints(mut self, endpoints: ExternalEndpoints) -> Self {
        self.external = Some(endpoints);
        self
    }

    /// Serves the most frequent DynamoDB requests without dynoxide, several times as fast. Off by default, so that tests
    /// use dynoxide. Batch reads always take the fast path, because dynoxide does not limit the bytes of a partition.
    #[must_use]
    pub fn fast_path(mut self, use_fast_path: bool) -> Self {
        self.use_fast_path = use_fast_path;
        self
    }

    /// Opens the tables and queues.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn build(self) -> Result<EmbeddedAws, EmbeddedError> {
        let lock = self.data_dir.as_deref().map(LockedDataDir::lock).transpose()?;
        let (tables, queues) = match &self.data_dir {
            Some(dir) => {
                let queues = SqsQueues::on_disk(dir, &self.host, self.port);
                (
                    DynamoTables::on_disk(dir, self.use_fast_path)?,
                    queues.map_err(EmbeddedError::OpenQueues)?,
                )
            }
            None => (
                DynamoTables::in_memory(self.use_fast_path)?,
                SqsQueues::in_memory(&self.host, self.port),
            ),
        };
        let objects = self.data_dir.as_deref().map(|dir| dir.join(OBJECTS));
        let objects = EmbeddedS3::open(objects.as_deref()).map_err(EmbeddedError::OpenObjects)?;
        let (events, requests) = (EventBuses::new(), RequestCounters::default());
        let external = self.external.map(|endpoints| {
            let sqs = aws_sdk_sqs::Client::new(&external_config(&endpoints, None));
            ExternalServices { endpoints, sqs }
        });
        let services = EmbeddedServices {
            tables,
            queues,
            events,
            objects,
            requests,
            external,
            _data_dir: lock,
        };
        Ok(EmbeddedAws { services: Arc::new(services) })
    }
}
