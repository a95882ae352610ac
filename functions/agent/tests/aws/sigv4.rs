//! Verifies AWS signatures (Signature Version 4) from the specification alone, without the library that signs.
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>

use axum::http::{HeaderMap, Method, Uri};
use sha2::{Digest, Sha256};

pub(crate) const ACCESS_KEY: &str = "AKIDEXAMPLE";
pub(crate) const SECRET_KEY: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
pub(crate) const SESSION_TOKEN: &str = "session-t0ken";

/// The signature of a request, taken apart.
struct Authorization<'a> {
    /// `20150830/us-east-1/service/aws4_request`
    scope: &'a str,
    signed_headers: Vec<&'a str>,
    signature: &'a str,
}

/// Verifies the signature of a request. Returns its scope, as `service/region`, or what is wrong with it.
pub(crate) fn verify(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<String, String> {
    let header = |name: &str| {
        let value = headers.get(name).ok_or(format!("no header {name}"))?;
        value.to_str().map_err(|_| format!("header {name} is not text"))
    };
    if header("x-amz-security-token")? != SESSION_TOKEN {
        return Err("another session token".to_owned());
    }
    let Authorization { scope, signed_headers, signature } =
        parse_authorization(header("authorization")?)?;
    let unsigned = headers.keys().find(|name| {
        name.as_str().starts_with("x-amz-") && !signed_headers.contains(&name.as_str())
    });
    if let Some(name) = unsigned
        .map(|name| name.as_str())
        .or_else(|| (!signed_headers.contains(&"host")).then_some("host"))
    {
        return Err(format!("header {name} is not signed"));
    }
    let parts: Vec<_> = scope.split('/').collect();
    let [date, region, service, "aws4_request"] = parts.as_slice() else {
        return Err(format!("scope {scope}"));
    };
    let mut canonical_headers = String::new();
    for name in &signed_headers {
        canonical_headers.push_str(&format!("{name}:{}\n", header(name)?.trim()));
    }
    let body_digest = hex(&Sha256::digest(body));
    let is_s3 = *service == "s3";
    if is_s3 && header("x-amz-content-sha256")? != body_digest {
        return Err("another digest of the body".to_owned());
    }
    let path = if is_s3 { uri.path().to_owned() } else { encode(uri.path(), b"/") };
    let canonical_request = format!(
        "{method}\n{path}\n{}\n{canonical_headers}\n{}\n{body_digest}",
        canonical_query(uri.query().unwrap_or_default()),
        signed_headers.join(";"),
    );
    let time = header("x-amz-date")?;
    if !time.starts_with(date) {
        return Err("another date".to_owned());
    }
    let digest = hex(&Sha256::digest(canonical_request.as_bytes()));
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}");
    let key = [*date, *region, *service, "aws4_request"]
        .iter()
        .fold(format!("AWS4{SECRET_KEY}").into_bytes(), |key, part| hmac(&key, part.as_bytes()));
    if hex(&hmac(&key, text.as_bytes())) != signature {
        return Err(format!("another signature; the canonical request is\n{canonical_request}"));
    }
    Ok(format!("{service}/{region}"))
}

fn parse_authorization(text: &str) -> Result<Authorization<'_>, String> {
    let wrong = || format!("authorization {text}");
    let rest = text.strip_prefix("AWS4-HMAC-SHA256 ").ok_or_else(wrong)?;
    let field = |name: &str| {
        let mut fields = rest.split(',').map(str::trim);
        fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('=')).ok_or_else(wrong)
    };
    let (key, scope) = field("Credential")?.split_once('/').ok_or_else(wrong)?;
    if key != ACCESS_KEY {
        return Err(format!("access key {key}"));
    }
    let signed_headers = field("SignedHeaders")?.split(';').collect();
    Ok(Authorization { scope, signed_headers, signature: field("Signature")? })
}

/// The parameters of a query, decoded, encoded again and sorted.
fn canonical_query(query: &str) -> String {
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    let mut parameters: Vec<_> = parameters
        .map(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            (encode_again(name), encode_again(value))
        })
        .collect();
    parameters.sort();
    let parameters = parameters.iter().map(|(name, value)| format!("{name}={value}"));
    parameters.collect::<Vec<_>>().join("&")
}

fn encode_again(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().unwrap(), rest.next().unwrap()];
            let digits = std::str::from_utf8(&digits).unwrap();
            bytes.push(u8::from_str_radix(digits, 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    percent_encode(&bytes, b"")
}

fn encode(text: &str, keep: &[u8]) -> String {
    percent_encode(text.as_bytes(), keep)
}

fn percent_encode(bytes: &[u8], keep: &[u8]) -> String {
    let encode = |byte: &u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(*byte).to_string()
        }
        byte if keep.contains(byte) => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    bytes.iter().map(encode).collect()
}

/// HMAC with SHA-256 (RFC 2104), for keys of at most 64 bytes.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    assert!(key.len() <= 64);
    let padded = |pad: u8| {
        let mut block = [pad; 64];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = Sha256::digest([&padded(0x36), message].concat());
    Sha256::digest([&padded(0x5c)[..], &inner].concat()).to_vec()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The verification detects each change of a request that was signed.
#[test]
fn a_changed_request_does_not_verify() {
    let mut headers = HeaderMap::new();
    headers.insert("host", "example.amazonaws.com".parse().unwrap());
    headers.insert("x-amz-date", "20150830T123600Z".parse().unwrap());
    headers.insert("x-amz-security-token", SESSION_TOKEN.parse().unwrap());
    let signed = "host;x-amz-date;x-amz-security-token";
    let canonical = format!(
        "GET\n/\n\nhost:example.amazonaws.com\nx-amz-date:20150830T123600Z\n\
         x-amz-security-token:{SESSION_TOKEN}\n\n{signed}\n{}",
        hex(&Sha256::digest(b""))
    );
    let scope = "20150830/us-east-1/service/aws4_request";
    let digest = hex(&Sha256::digest(canonical.as_bytes()));
    let text = format!("AWS4-HMAC-SHA256\n20150830T123600Z\n{scope}\n{digest}");
    let mut key = format!("AWS4{SECRET_KEY}").into_bytes();
    for part in scope.split('/') {
        key = hmac(&key, part.as_bytes());
    }
    let signature = hex(&hmac(&key, text.as_bytes()));
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders={signed}, Signature={signature}"
    );
    headers.insert("authorization", authorization.parse().unwrap());
    let uri = |text: &'static str| Uri::from_static(text);
    let verified = verify(&Method::GET, &uri("/"), &headers, b"");
    assert_eq!(verified, Ok("service/us-east-1".to_owned()));
    assert!(verify(&Method::POST, &uri("/"), &headers, b"").is_err());
    assert!(verify(&Method::GET, &uri("/a"), &headers, b"").is_err());
    assert!(verify(&Method::GET, &uri("/?a=1"), &headers, b"").is_err());
    assert!(verify(&Method::GET, &uri("/"), &headers, b"x").is_err());
    headers.insert("x-amz-target", "other".parse().unwrap());
    assert!(verify(&Method::GET, &uri("/"), &headers, b"").is_err(), "an unsigned header");
}

/// RFC 4231, test case 2, and the `get-vanilla` example of the test suite that AWS publishes.
#[test]
fn the_computation_gives_published_results() {
    let published = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    assert_eq!(hex(&hmac(b"Jefe", b"what do ya want for nothing?")), published);
    let empty = hex(&Sha256::digest(b""));
    let canonical = format!(
        "GET\n/\n\nhost:example.amazonaws.com\nx-amz-date:20150830T123600Z\n\nhost;x-amz-date\n{empty}"
    );
    let digest = hex(&Sha256::digest(canonical.as_bytes()));
    let scope = "20150830/us-east-1/service/aws4_request";
    let text = format!("AWS4-HMAC-SHA256\n20150830T123600Z\n{scope}\n{digest}");
    let mut key = format!("AWS4{SECRET_KEY}").into_bytes();
    for part in scope.split('/') {
        key = hmac(&key, part.as_bytes());
    }
    let published = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
    assert_eq!(hex(&hmac(&key, text.as_bytes())), published);
}
