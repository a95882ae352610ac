//! Payloads on the command line: `steward submit --payload` uploads one, `steward show --payload` downloads one.

use std::{
    io::{Read, Write},
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::{Context, Result, bail, ensure};
use aws_sdk_s3::primitives::ByteStream;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use steward_aws::payloads::S3Payloads;
use steward_core::{
    limits::PAYLOAD_BYTES_MAX,
    model::payload::{ContentType, PayloadKey, PayloadReference, Sha256Hex},
};

/// Bytes of a file that are read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// The types of files by the ends of their names. Any other file has the type of any bytes.
const CONTENT_TYPES: [(&str, &str); 9] = [
    ("csv", "text/csv"),
    ("gz", "application/gzip"),
    ("jpg", "image/jpeg"),
    ("json", "application/json"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("txt", "text/plain"),
    ("xml", "application/xml"),
    ("zip", "application/zip"),
];

/// `FILE`, for the whole input, or `FIELD=FILE`, for a field of it, such as `document.scan=scan.pdf`.
#[derive(Debug, Clone)]
pub(crate) struct PayloadFile {
    field: Option<String>,
    file: PathBuf,
}

impl FromStr for PayloadFile {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((field, file)) = text.split_once('=') else {
            return Ok(Self { field: None, file: text.into() });
        };
        let is_empty = field.split('.').any(str::is_empty);
        ensure!(!is_empty, "expected FILE or FIELD=FILE, such as document.scan=scan.pdf");
        Ok(Self { field: Some(field.to_owned()), file: file.into() })
    }
}

/// Uploads the files, and puts the references to them into a submission.
pub(crate) async fn upload_into(
    submission: &mut Value,
    files: &[PayloadFile],
    store: &S3Payloads,
) -> Result<()> {
    for PayloadFile { field, file } in files {
        let reference = upload(file, store).await?.to_value();
        let input = submission.as_object_mut().context("a submission is a JSON object")?;
        let input = input.entry("input").or_insert(Value::Null);
        let place = place(input, field.as_deref())
            .with_context(|| format!("--payload {}: ", field.as_deref().unwrap_or_default()))?;
        ensure!(place.is_null(), "--payload: the input has a value at this place already");
        *place = reference;
    }
    Ok(())
}

/// The place of a field in the input. Objects that do not exist are created.
fn place<'a>(input: &'a mut Value, field: Option<&str>) -> Result<&'a mut Value> {
    let mut place = input;
    for name in field.into_iter().flat_map(|field| field.split('.')) {
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        let fields = place.as_object_mut();
        let fields = fields.with_context(|| format!("`{name}` is not in an object"))?;
        place = fields.entry(name).or_insert(Value::Null);
    }
    Ok(place)
}

/// Uploads a file, and returns the reference to it.
async fn upload(file: &Path, store: &S3Payloads) -> Result<PayloadReference> {
    let name = || file.display().to_string();
    let (bytes, sha256) = read(file).with_context(name)?;
    if bytes > PAYLOAD_BYTES_MAX {
        bail!("{}: {bytes} bytes; the limit is {PAYLOAD_BYTES_MAX}", name());
    }
    let key = PayloadKey::upload(uuid::Uuid::new_v4().as_u128());
    let reference = PayloadReference::new(key, bytes, sha256, content_type(file));
    let content = ByteStream::from_path(file).await.with_context(name)?;
    store.upload(&reference, content).await.with_context(name)?;
    Ok(reference)
}

/// The size and the digest of a file.
fn read(file: &Path) -> std::io::Result<(u64, Sha256Hex)> {
    let mut file = std::fs::File::open(file)?;
    let (mut bytes, mut digest) = (0, Sha256::new());
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            return Ok((bytes, Sha256Hex::of_digest(&digest.finalize().into())));
        }
        bytes += read as u64;
        digest.update(chunk.get(..read).unwrap_or_default());
    }
}

fn content_type(file: &Path) -> ContentType {
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let extension = extension.to_ascii_lowercase();
    let known = CONTENT_TYPES.iter().find(|(name, _)| *name == extension);
    known.and_then(|(_, content_type)| content_type.parse().ok()).unwrap_or_default()
}

/// Writes an object to the standard output.
pub(crate) async fn download(key: &PayloadKey, store: &S3Payloads) -> Result<()> {
    let body = store.open(key).await?;
    let mut content = body.with_context(|| format!("there is no payload `{key}`"))?.content;
    let mut out = std::io::stdout().lock();
    while let Some(chunk) = content.next().await {
        out.write_all(&chunk.context("the download broke off")?)?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_payload_is_the_whole_input_or_a_field_of_it() {
        let put = |mut input: Value, field: Option<&str>| {
            *place(&mut input, field)? = json!("here");
            Ok::<_, anyhow::Error>(input)
        };
        assert_eq!(put(Value::Null, None).unwrap(), json!("here"));
        let nested = put(json!({ "n": 1 }), Some("document.scan")).unwrap();
        assert_eq!(nested, json!({ "n": 1, "document": { "scan": "here" } }));
        assert!(put(json!({ "n": 1 }), Some("n.scan")).is_err());
    }

    #[test]
    fn the_type_follows_from_the_name_of_the_file() {
        assert_eq!(content_type(Path::new("a/scan.PDF")).as_str(), "application/pdf");
        assert_eq!(content_type(Path::new("scan")).as_str(), "application/octet-stream");
    }
}
