//! The golden files of a release, in `tests/golden/RELEASE/`:
//!
//! - `samples.txt`: a sample of every kind of stored item, message, event and metric, and of a task as `steward show --json` prints
//!   it. Their [shape](super::shape) is what other releases are held to.
//! - `moments/*.json`: tables and queues in the middle of the scenario, which a later release must continue.
//! - `interfaces.txt`: the schemas of definitions and of workflow tests, and the HTTP interfaces.
//! - `contract.txt`: the schemas for agents and consumers of events.
//! - `commands.txt`, which the test `json_shapes` writes: every field of what commands print as JSON.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::Value;
use steward_core::contract::ContractDocument;

use super::{interfaces, samples::Samples, shape, world::Moment};

/// The schemas that are frozen with a release.
const SCHEMAS: [ContractDocument; 3] =
    [ContractDocument::Request, ContractDocument::Reply, ContractDocument::LifecycleEvent];

/// The formats of a release.
#[derive(Debug, Clone)]
pub(super) struct Release {
    pub(super) samples: Samples,
    /// Few moments that contain, together, almost everything that any moment contains.
    pub(super) moments: Vec<Moment>,
    interfaces: BTreeSet<String>,
    contract: BTreeMap<String, Value>,
}

impl Release {
    /// This state of the source.
    pub(super) fn current(samples: Samples, moments: Vec<Moment>) -> Self {
        let contract =
            SCHEMAS.map(|schema| (schema.file_name().to_owned(), schema.generate())).into();
        Self { samples, moments, interfaces: interfaces::lines(), contract }
    }

    pub(super) fn write(&self, folder: &Path) {
        drop(fs::remove_dir_all(folder.join("moments")));
        fs::create_dir_all(folder.join("moments")).unwrap();
        let write = |file: &str, lines: BTreeSet<String>| {
            let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
            fs::write(folder.join(file), lines).unwrap();
        };
        write("samples.txt", self.samples.lines());
        write("interfaces.txt", self.interfaces.clone());
        let contract = self.contract.iter().map(|(name, schema)| format!("{name} = {schema}"));
        write("contract.txt", contract.collect());
        for (n, moment) in self.moments.iter().enumerate() {
            let text = serde_json::to_string(moment).unwrap();
            // One line for each item, so that a difference can be read.
            let text = text.replace("},{", "},\n{");
            fs::write(folder.join(format!("moments/{:02}.json", n + 1)), text + "\n").unwrap();
        }
    }

    pub(super) fn read(folder: &Path) -> Self {
        let text = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
        let files = folder.join("moments").read_dir().unwrap().map(|file| file.unwrap().path());
        let files: BTreeSet<_> = files.collect();
        let moment = |file| serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let schema = |line: &str| {
            let (name, schema) = line.split_once(" = ").unwrap();
            (name.to_owned(), serde_json::from_str(schema).unwrap())
        };
        Self {
            samples: Samples::read(&text("samples.txt")),
            moments: files.into_iter().map(moment).collect(),
            interfaces: text("interfaces.txt").lines().map(str::to_owned).collect(),
            contract: text("contract.txt").lines().map(schema).collect(),
        }
    }

    /// What functions and users of this release meet in the newer one.
    pub(super) fn differences(&self, newer: &Self) -> Vec<String> {
        let mut differences = shape::difference(&self.samples.shape(), &newer.samples.shape());
        differences.extend(interfaces::differences(&self.interfaces, &newer.interfaces));
        differences
    }

    /// What authors of agents and consumers of events would meet in the newer release without another version.
    pub(super) fn contract_breaks(&self, newer: &Self) -> Vec<String> {
        let breaks = self.contract.iter().filter_map(|(name, old)| {
            let problem = contract_break(name, old, &newer.contract[name])?;
            Some(format!("{name}: {problem}"))
        });
        breaks.collect()
    }
}

/// A changed schema with the same version, and within one major version a field that they no longer get or suddenly have to send.
fn contract_break(name: &str, old: &Value, new: &Value) -> Option<&'static str> {
    let version = |schema: &Value| -> Vec<u32> {
        let text = schema["version"].as_str().unwrap();
        text.split('.').map(|number| number.parse().unwrap()).collect()
    };
    let required = |schema: &Value| -> BTreeSet<String> {
        let names = schema["required"].as_array().unwrap().iter();
        names.map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let (old_version, new_version) = (version(old), version(new));
    if new_version <= old_version {
        return (old != new).then_some("it changed, and its version did not increase");
    }
    // Steward sends requests and events; agents send replies.
    let is_kept = if name == ContractDocument::Reply.file_name() {
        required(new).is_subset(&required(old))
    } else {
        required(old).is_subset(&required(new))
    };
    (old_version[0] == new_version[0] && !is_kept)
        .then_some("other fields are required, so it needs another major version")
}

#[test]
fn a_change_of_the_contract_needs_another_version() {
    let reply = ContractDocument::Reply.generate();
    let changed = |version: &str, field: Option<&str>| {
        let mut changed = reply.clone();
        changed["version"] = version.into();
        changed["properties"]["cost"] = serde_json::json!({ "type": "number" });
        changed["required"].as_array_mut().unwrap().extend(field.map(Value::from));
        contract_break(ContractDocument::Reply.file_name(), &reply, &changed)
    };
    let same = reply["version"].as_str().unwrap();
    assert!(changed(same, None).is_some());
    assert!(changed("2.99.0", Some("cost")).is_some());
    assert_eq!(changed("2.99.0", None), None);
    assert_eq!(changed("3.0.0", Some("cost")), None);
}
