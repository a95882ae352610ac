//! Partial comparison of JSON: a mapping needs only the expected keys; everything else must be equal.

use serde_json::Value;

/// The first place where `seen` does not match, such as `body.items.0.sku`, and what is wrong there.
pub(super) fn mismatch(at: &str, expected: &Value, seen: &Value) -> Option<String> {
    match (expected, seen) {
        (Value::Object(expected), Value::Object(seen)) => {
            expected.iter().find_map(|(key, value)| {
                let at = format!("{at}.{key}");
                match seen.get(key) {
                    Some(seen) => mismatch(&at, value, seen),
                    None => Some(format!("{at}: expected {value}, but there is none")),
                }
            })
        }
        (Value::Array(expected), Value::Array(seen)) if expected.len() == seen.len() => {
            let pairs = expected.iter().zip(seen).enumerate();
            pairs
                .into_iter()
                .find_map(|(n, (expected, seen))| mismatch(&format!("{at}.{n}"), expected, seen))
        }
        // Integers are compared exactly, 12 and 12.0 by value.
        (Value::Number(expected), Value::Number(seen))
            if (expected.is_f64() || seen.is_f64()) && expected.as_f64() == seen.as_f64() =>
        {
            None
        }
        _ if expected == seen => None,
        _ => Some(format!("{at}: expected {expected}, got {seen}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mapping_needs_only_the_expected_keys() {
        let seen =
            json!({ "order": "o-1", "items": [{ "sku": "tea", "quantity": 2 }], "sum": 12.0 });
        let expect = |expected| mismatch("body", &expected, &seen);
        assert_eq!(expect(json!({ "order": "o-1", "sum": 12 })), None);
        assert_eq!(expect(json!({ "items": [{ "sku": "tea" }] })), None);
        let large =
            mismatch("id", &json!(9_007_199_254_740_993_u64), &json!(9_007_199_254_740_992_u64));
        assert!(large.is_some());
        let wrong = expect(json!({ "items": [{ "sku": "coffee" }] })).unwrap();
        assert_eq!(wrong, r#"body.items.0.sku: expected "coffee", got "tea""#);
        let absent = expect(json!({ "to": null })).unwrap();
        assert_eq!(absent, "body.to: expected null, but there is none");
        assert!(expect(json!({ "items": [] })).is_some());
    }
}
