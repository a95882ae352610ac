use serde_json::json;

use super::*;

const SECRET: &str = "whsec_0123456789abcdef";
const OLD_SECRET: &str = "whsec_of_last_year_000";
const BODY: &[u8] = br#"{"id":"evt_1","type":"paid","data":{"order":"o-1"}}"#;

fn webhook(configuration: Value) -> Result<Webhook, String> {
    let text = json!({ "payments": configuration }).to_string();
    let webhooks: Webhooks = text.parse().map_err(|error: InvalidWebhooks| error.to_string())?;
    Ok(webhooks.get("payments").unwrap().clone())
}

fn stripe() -> Webhook {
    webhook(json!({
        "header": "Stripe-Signature", "scheme": "timestamped", "source": "stripe",
        "detail_type_from": "/type", "id_from": "/id",
    }))
    .unwrap()
}

fn github() -> Webhook {
    webhook(json!({
        "header": "X-Hub-Signature-256", "scheme": "body", "source": "github", "detail_type": "push",
    }))
    .unwrap()
}

fn secrets(list: &[&str]) -> WebhookSecrets {
    json!({ "payments": list }).to_string().parse().unwrap()
}

fn hex(secret: &str, signed: &[u8]) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap().chain_update(signed);
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn timestamped(secret: &str, second: i64, body: &[u8]) -> String {
    let signed = [format!("{second}.").as_bytes(), body].concat();
    format!("t={second},v1={}", hex(secret, &signed))
}

fn verify(
    webhook: &Webhook,
    list: &[&str],
    header: &str,
    body: &[u8],
    now: i64,
) -> Result<(), SignatureRefusal> {
    webhook.verify(&secrets(list), "payments", &[header], body, at(now))
}

#[test]
fn webhooks_without_a_secret_are_named() {
    let webhooks = json!({ "payments": {
        "header": "X-Hub-Signature-256", "scheme": "body", "source": "github", "detail_type": "push",
    } });
    let webhooks: Webhooks = webhooks.to_string().parse().unwrap();
    assert_eq!(webhooks.without_secret(&WebhookSecrets::default()), ["payments"]);
    assert!(webhooks.without_secret(&secrets(&[SECRET])).is_empty());
}

/// The vectors of RFC 4231 (test case 2) and of GitHub's documentation, so that the scheme is not only compared with
/// itself.
#[test]
fn published_signatures_verify() {
    assert_eq!(
        hex("Jefe", b"what do ya want for nothing?"),
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    );
    let header = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let secret = "It's a Secret to Everybody";
    assert_eq!(verify(&github(), &[secret], header, b"Hello, World!", 0), Ok(()));
}

#[test]
fn a_timestamped_signature_verifies_within_the_tolerance() {
    let header = timestamped(SECRET, 1_000, BODY);
    for (now, expected) in [
        (1_000, Ok(())),
        (1_299, Ok(())),
        (701, Ok(())),
        (1_300, Err(SignatureRefusal::OutsideTolerance(TOLERANCE))),
        (700, Err(SignatureRefusal::OutsideTolerance(TOLERANCE))),
    ] {
        assert_eq!(verify(&stripe(), &[SECRET], &header, BODY, now), expected, "{now}");
    }
}

#[test]
fn two_secrets_and_two_signatures_verify_during_a_rotation() {
    let both = [SECRET, OLD_SECRET];
    for secret in both {
        let header = timestamped(secret, 1_000, BODY);
        assert_eq!(verify(&stripe(), &both, &header, BODY, 1_000), Ok(()));
        let header = format!("sha256={}", hex(secret, BODY));
        assert_eq!(verify(&github(), &both, &header, BODY, 1_000), Ok(()));
    }
    let old = timestamped(OLD_SECRET, 1_000, BODY);
    assert_eq!(verify(&stripe(), &[SECRET], &old, BODY, 1_000), Err(SignatureRefusal::Wrong));
    // The service signs with both; signatures of other versions are ignored.
    let new = timestamped(SECRET, 1_000, BODY);
    let (_, new) = new.split_once(',').unwrap();
    let header = format!("{old},{new},v0=00");
    assert_eq!(verify(&stripe(), &[SECRET], &header, BODY, 1_000), Ok(()));
}

#[test]
fn every_changed_byte_is_noticed() {
    let (stamped, plain) =
        (timestamped(SECRET, 1_000, BODY), format!("sha256={}", hex(SECRET, BODY)));
    for (webhook, header) in [(stripe(), stamped), (github(), plain)] {
        for index in 0..BODY.len() {
            let mut forged = BODY.to_vec();
            forged[index] ^= 1;
            let refused = verify(&webhook, &[SECRET], &header, &forged, 1_000);
            assert_eq!(refused, Err(SignatureRefusal::Wrong));
            let truncated = verify(&webhook, &[SECRET], &header, &BODY[..index], 1_000);
            assert_eq!(truncated, Err(SignatureRefusal::Wrong));
        }
        for index in 0..header.len() {
            let mut forged = header.clone().into_bytes();
            forged[index] = if forged[index] == b'1' { b'2' } else { b'1' };
            let forged = String::from_utf8(forged).unwrap();
            assert!(verify(&webhook, &[SECRET], &forged, BODY, 1_000).is_err(), "{forged}");
        }
    }
}

#[test]
fn a_header_that_is_no_signature_is_refused() {
    let mac = hex(SECRET, BODY);
    let many = format!("t=1000{}", ",v1=".to_owned() + &mac).repeat(40);
    for header in ["", "t=1000", "v1=00", &mac, &format!("t=x,v1={mac}"), &many, "t=1,t=1,v1=00"] {
        let refused = verify(&stripe(), &[SECRET], header, BODY, 1_000);
        assert!(matches!(refused, Err(SignatureRefusal::Malformed(_))), "{header}");
    }
    let doubled = format!("t=1000,t=1001,v1={mac}");
    assert!(verify(&stripe(), &[SECRET], &doubled, BODY, 1_000).is_err());
    for header in [&mac, "sha256=", &format!("sha1={mac}"), &format!("sha256={mac}00")] {
        let refused = verify(&github(), &[SECRET], header, BODY, 1_000);
        assert!(matches!(refused, Err(SignatureRefusal::Malformed(_))), "{header}");
    }
    let (all, none) = (secrets(&[SECRET]), []);
    let missing = stripe().verify(&all, "payments", &none, BODY, at(0));
    assert_eq!(missing, Err(SignatureRefusal::Missing("Stripe-Signature".to_owned())));
    let twice = github().verify(&all, "payments", &["a", "b"], BODY, at(0));
    assert!(matches!(twice, Err(SignatureRefusal::Missing(_))));
}

#[test]
fn a_webhook_without_a_secret_of_its_own_is_refused() {
    let header = timestamped(SECRET, 1_000, BODY);
    let refused = stripe().verify(&secrets(&[SECRET]), "other", &[&header], BODY, at(1_000));
    assert_eq!(refused, Err(SignatureRefusal::Wrong));
}

#[test]
fn the_event_has_its_type_and_its_id_from_the_body() {
    let event = stripe().event(BODY).unwrap();
    assert_eq!((event.source.as_str(), event.detail_type.as_str()), ("stripe", "paid"));
    assert_eq!(event.detail.as_bytes(), BODY);
    // The id counts, not the rest of the body.
    let other = stripe().event(br#"{"id":"evt_1","type":"refunded"}"#).unwrap();
    assert_eq!(event.id_hash, other.id_hash);
    assert_ne!(github().event(BODY).unwrap().id_hash, event.id_hash);
    assert_eq!(github().event(BODY).unwrap().id_hash, github().event(BODY).unwrap().id_hash);
}

#[test]
fn a_body_that_cannot_become_an_event_is_refused_without_its_values() {
    let deep = format!("{{\"id\":1,\"type\":\"a\",\"x\":{}1{}}}", "[".repeat(40), "]".repeat(40));
    for (body, reason) in [
        ("secret", "the body is not JSON: expected value at line 1 column 1"),
        ("[\"secret\"]", "the body is not a JSON object"),
        (
            "{\"id\":\"secret\"}",
            "the body has no text of 1 to 256 characters and no integer at `/type`",
        ),
        (
            "{\"type\":\"secret\",\"id\":1.5}",
            "the body has no text of 1 to 256 characters and no integer at `/id`",
        ),
        (deep.as_str(), "the body nests deeper than 32 levels"),
    ] {
        assert_eq!(stripe().event(body.as_bytes()).unwrap_err(), reason);
    }
    assert_eq!(stripe().event(&[0xff]).unwrap_err(), "the body is not UTF-8");
}

#[test]
fn a_configuration_is_refused_with_what_is_wrong() {
    let valid = json!({ "header": "X-Sig", "scheme": "body", "source": "s", "detail_type": "t" });
    assert!(webhook(valid.clone()).is_ok());
    for (key, value, reason) in [
        ("header", json!("a b"), "`header` is not the name of a header"),
        ("source", json!("steward"), "`source` must not be `steward`"),
        ("source", json!("aws.s3"), "must not begin with `aws.`"),
        ("source", json!(""), "`source` and `detail_type` have from 1 to 256 characters"),
        ("detail_type_from", json!("/type"), "give either `detail_type` or `detail_type_from`"),
        ("detail_type", Value::Null, "give either `detail_type` or `detail_type_from`"),
        ("id_from", json!("id"), "JSON pointers, such as `/id`"),
        ("tolerance", json!("5m"), "`tolerance` is only for the scheme `timestamped`"),
        ("secret", json!("whsec"), "unknown field `secret`"),
    ] {
        let mut changed = valid.clone();
        changed[key] = value;
        let error = webhook(changed).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
    for tolerance in ["0s", "2h"] {
        let mut changed = valid.clone();
        (changed["scheme"], changed["tolerance"]) = (json!("timestamped"), json!(tolerance));
        assert!(webhook(changed).unwrap_err().contains("at most 3600s"));
    }
    let name = json!({ "A": valid }).to_string().parse::<Webhooks>().unwrap_err();
    assert!(name.to_string().contains("`A` is no name of a webhook"), "{name}");
    assert!("".parse::<Webhooks>().unwrap().is_empty());
}

#[test]
fn secrets_that_are_no_secrets_are_refused_and_never_printed() {
    for text in ["", "[]", "{\"a\":[]}", "{\"a\":[\"short\"]}", "{\"a\":\"0123456789abcdef\"}"] {
        assert!(text.parse::<WebhookSecrets>().is_err(), "{text}");
    }
    assert!("{}".parse::<WebhookSecrets>().is_ok());
    assert_eq!(format!("{:?}", secrets(&[SECRET])), "WebhookSecrets([\"payments\"])");
}

#[test]
fn one_delivery_of_a_webhook_publishes_its_event() {
    let WebhookClaim::Publish(receipt) = WebhookReceipt::claim(None, at(0)) else { panic!() };
    assert_eq!(WebhookReceipt::claim(Some(receipt), at(29)), WebhookClaim::Busy);
    // It crashed: another takes over.
    assert!(matches!(WebhookReceipt::claim(Some(receipt), at(30)), WebhookClaim::Publish(_)));
    let failed = receipt.after(false, at(1));
    assert!(matches!(WebhookReceipt::claim(Some(failed), at(1)), WebhookClaim::Publish(_)));
    let published = receipt.after(true, at(1));
    let week = 7 * 24 * 3600;
    assert_eq!(WebhookReceipt::claim(Some(published), at(week - 1)), WebhookClaim::Duplicate);
    assert!(matches!(WebhookReceipt::claim(Some(published), at(week)), WebhookClaim::Publish(_)));
}
