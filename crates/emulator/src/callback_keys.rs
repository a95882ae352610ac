//! The keys that sign callback URLs on this machine.

use std::{net::SocketAddr, path::Path};

use anyhow::{Context, Result};
use steward_aws::ports::SharedCallbackUrls;
use steward_core::callback_url::{CallbackKeys, CallbackUrls};
use uuid::Uuid;

/// The file in the data directory with the keys.
const FILE: &str = "callback-keys.json";

/// The keys of callback URLs. With a data directory, they are kept there, as the tasks are.
pub(crate) fn callback_urls(
    data: Option<&Path>,
    address: SocketAddr,
) -> Result<SharedCallbackUrls> {
    let new_keys = || format!(r#"{{ "1": "{}{}" }}"#, Uuid::new_v4(), Uuid::new_v4());
    let text = match data.map(|dir| dir.join(FILE)) {
        None => new_keys(),
        Some(file) if file.exists() => {
            std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?
        }
        Some(file) => {
            let text = new_keys();
            std::fs::write(&file, &text).with_context(|| format!("write {}", file.display()))?;
            text
        }
    };
    let keys = text.parse::<CallbackKeys>().context(FILE)?;
    Ok(SharedCallbackUrls::new(CallbackUrls::new(&format!("http://{address}"), keys)))
}
