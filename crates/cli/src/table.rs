//! The style of the tables that the command prints.

use comfy_table::{ContentArrangement, Table, presets};

/// An empty table. An empty `header` means no header row.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if !header.is_empty() {
        table.set_header(header);
    }
    table
}
