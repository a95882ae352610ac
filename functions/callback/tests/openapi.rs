//! The published description of the API.

use steward_callback::openapi::description;

/// To update the file: `STEWARD_RENEW=1 cargo test -p steward-callback`.
#[test]
fn the_published_description_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/contract/callbacks-openapi.json");
    let generated = format!("{:#}\n", description());
    if std::env::var_os("STEWARD_RENEW").is_some() {
        std::fs::write(path, &generated).unwrap();
    }
    assert!(std::fs::read_to_string(path).unwrap_or_default() == generated, "out of date");
}
