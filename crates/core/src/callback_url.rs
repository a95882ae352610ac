//! Signed URLs with which a service outside the account answers a callback.
//!
//! ```text
//! https://HOST/callbacks/KEY.EXPIRES.TOKEN.SIGNATURE
//!                         │    │       │     └ HMAC-SHA256 of `steward-callback KEY.EXPIRES.TOKEN`, base64url
//!                         │    │       └ the callback token, base64url
//!                         │    └ seconds since the epoch
//!                         └ the number of the key
//! ```
//!
//! The URL is a bearer credential: who has it may answer for one step of one task, and for nothing else. The newest key
//! signs, and all keys verify, so that a key can be replaced while URLs that it signed are still in use.
//!
//! A form that answers the callback contains a second token, `KEY.ISSUED.SIGNATURE`. It shows that whoever sends the form
//! opened its page a short time ago.

use std::{collections::BTreeMap, fmt, str::FromStr};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac, digest::InvalidLength};
use jiff::Timestamp;
use sha2::Sha256;

use crate::{limits, model::names::CallbackToken};

/// What every signed text of a URL begins with, so that the keys sign nothing else by accident.
const PURPOSE: &str = "steward-callback ";

/// What every signed text of a form begins with. A signature of one purpose is worth nothing for the other.
const FORM_PURPOSE: &str = "steward-callback-form ";

/// The path of a callback's URL, before the signed token.
pub const CALLBACKS_PATH: &str = "/callbacks/";

/// The keys that sign callback URLs, by number. The highest number signs.
#[derive(Clone)]
pub struct CallbackKeys {
    signing: (u32, Hmac<Sha256>),
    all: BTreeMap<u32, Hmac<Sha256>>,
}

/// Why a text does not contain keys. The error contains no part of the text, which is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the keys for callback URLs are not a JSON object of 1 to {keys} numbers, each with a text of at least {bytes} bytes",
    keys = limits::CALLBACK_KEYS_MAX,
    bytes = limits::CALLBACK_KEY_BYTES_MIN
)]
pub struct InvalidCallbackKeys;

/// Why a signed token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallbackUrlRefusal {
    /// It does not have the form of a signed token.
    #[error("this is not the address of a callback: use the URL from the request unchanged")]
    Malformed,
    /// This deployment does not have the key that signed it.
    #[error("this deployment does not know the key that signed the URL")]
    UnknownKey,
    /// The signature belongs to another token or to another deployment.
    #[error("the signature of the URL is wrong")]
    WrongSignature,
    /// The task has ended at this time at the latest.
    #[error("the URL expired at {0:.0}")]
    Expired(Timestamp),
}

/// Why the token of a form is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormTokenRefusal {
    /// It is missing, malformed, of the form of another callback, or signed by another key.
    #[error("the form was not opened by this link")]
    Wrong,
    /// The form was opened too long ago.
    #[error("the form was opened more than an hour ago")]
    TooOld,
}

/// The base address of the callback endpoint with its keys: creates the URLs.
#[derive(Debug, Clone)]
pub struct CallbackUrls {
    base: String,
    keys: CallbackKeys,
}

impl CallbackUrls {
    /// `base` is the address of the endpoint without a path, such as `https://callbacks.example.com`.
    #[must_use]
    pub fn new(base: &str, keys: CallbackKeys) -> Self {
        Self { base: base.trim_end_matches('/').to_owned(), keys }
    }

    /// The keys, for the verification of a URL.
    #[must_use]
    pub fn keys(&self) -> &CallbackKeys {
        &self.keys
    }

    /// The URL for a callback with this token. It is refused from `expires` on.
    #[must_use]
    pub fn url(&self, token: &CallbackToken, expires: Timestamp) -> String {
        format!("{}{CALLBACKS_PATH}{}", self.base, self.keys.sign(token, expires))
    }
}

impl CallbackKeys {
    /// The signed form of a token.
    fn sign(&self, token: &CallbackToken, expires: Timestamp) -> String {
        let (number, key) = &self.signing;
        let token = URL_SAFE_NO_PAD.encode(token.to_string());
        let signed = format!("{number}.{}.{token}", expires.as_second());
        let signature = URL_SAFE_NO_PAD.encode(mac(key, PURPOSE, &signed).finalize().into_bytes());
        format!("{signed}.{signature}")
    }

    /// The token in `text`, the last part of a callback's URL.
    ///
    /// # Errors
    /// The token is malformed, not signed by one of these keys, or has expired at `now`.
    pub fn verify(&self, text: &str, now: Timestamp) -> Result<CallbackToken, CallbackUrlRefusal> {
        use CallbackUrlRefusal::{Expired, Malformed, UnknownKey, WrongSignature};
        if text.len() > limits::SIGNED_CALLBACK_CHARS_MAX {
            return Err(Malformed);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(Malformed)?;
        let mut fields = signed.split('.');
        let (Some(number), Some(expires), Some(token), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(Malformed);
        };
        let number: u32 = number.parse().map_err(|_| Malformed)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Malformed)?;
        let key = self.all.get(&number).ok_or(UnknownKey)?;
        // Compares in constant time.
        mac(key, PURPOSE, signed).verify_slice(&signature).map_err(|_| WrongSignature)?;
        let expires = expires.parse().ok().and_then(|s| Timestamp::from_second(s).ok());
        let expires = expires.ok_or(Malformed)?;
        let token = URL_SAFE_NO_PAD.decode(token).ok().and_then(|t| String::from_utf8(t).ok());
        let token = token.and_then(|token| token.parse().ok()).ok_or(Malformed)?;
        if expires <= now { Err(Expired(expires)) } else { Ok(token) }
    }

    /// The token of a form that is opened at `now` and answers the callback with this token.
    #[must_use]
    pub fn sign_form(&self, token: &CallbackToken, now: Timestamp) -> String {
        let (number, key) = &self.signing;
        let opened = format!("{number}.{}", now.as_second());
        let mac = mac(key, FORM_PURPOSE, &format!("{opened}.{token}"));
        format!("{opened}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    }

    /// Checks that `text` is the token of a form that answers the callback with this token and was opened a short time ago.
    ///
    /// # Errors
    /// It is another text, or the form is too old at `now`.
    pub fn verify_form(
        &self,
        text: &str,
        token: &CallbackToken,
        now: Timestamp,
    ) -> Result<(), FormTokenRefusal> {
        use FormTokenRefusal::{TooOld, Wrong};
        if text.len() > limits::SIGNED_CALLBACK_CHARS_MAX {
            return Err(Wrong);
        }
        let (opened, signature) = text.rsplit_once('.').ok_or(Wrong)?;
        let (number, second) = opened.split_once('.').ok_or(Wrong)?;
        let key = number.parse().ok().and_then(|number: u32| self.all.get(&number)).ok_or(Wrong)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Wrong)?;
        let mac = mac(key, FORM_PURPOSE, &format!("{opened}.{token}"));
        mac.verify_slice(&signature).map_err(|_| Wrong)?;
        let second: i64 = second.parse().map_err(|_| Wrong)?;
        let age_s = now.as_second().saturating_sub(second);
        if age_s > limits::CALLBACK_FORM_AGE_S_MAX { Err(TooOld) } else { Ok(()) }
    }
}

fn mac(key: &Hmac<Sha256>, purpose: &str, signed: &str) -> Hmac<Sha256> {
    key.clone().chain_update(purpose).chain_update(signed)
}

impl FromStr for CallbackKeys {
    type Err = InvalidCallbackKeys;

    /// Reads the keys from a JSON object such as `{ "1": "…", "2": "…" }`.
    fn from_str(text: &str) -> Result<Self, InvalidCallbackKeys> {
        let keys: BTreeMap<u32, String> =
            serde_json::from_str(text).map_err(|_| InvalidCallbackKeys)?;
        if keys.len() > limits::CALLBACK_KEYS_MAX
            || keys.values().any(|key| key.len() < limits::CALLBACK_KEY_BYTES_MIN)
        {
            return Err(InvalidCallbackKeys);
        }
        let mac = |key: String| Hmac::new_from_slice(key.as_bytes());
        let keys = keys.into_iter().map(|(number, key)| Ok((number, mac(key)?)));
        let all: BTreeMap<_, _> =
            keys.collect::<Result<_, InvalidLength>>().map_err(|_| InvalidCallbackKeys)?;
        let signing = all.last_key_value().map(|(number, key)| (*number, key.clone()));
        Ok(Self { signing: signing.ok_or(InvalidCallbackKeys)?, all })
    }
}

/// Shows the numbers of the keys only.
impl fmt::Debug for CallbackKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallbackKeys").field(&self.all.keys().collect::<Vec<_>>()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = r#"{ "1": "an-old-key-of-more-than-32-bytes-in-all" }"#;
    const BOTH: &str = r#"{ "1": "an-old-key-of-more-than-32-bytes-in-all", "2": "the-new-key-of-more-than-32-bytes-in-all" }"#;
    const NEW: &str = r#"{ "2": "the-new-key-of-more-than-32-bytes-in-all" }"#;

    fn keys(text: &str) -> CallbackKeys {
        text.parse().unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn signed(by: &str) -> (CallbackToken, String) {
        let token: CallbackToken = "order-7/approve[3]/i0mfvx3k5z/edit-1".parse().unwrap();
        let url = CallbackUrls::new("https://host/", keys(by)).url(&token, at(1_000));
        let signed = url.strip_prefix("https://host/callbacks/").unwrap().to_owned();
        (token, signed)
    }

    #[test]
    fn a_signed_token_reads_back_until_it_expires() {
        let (token, text) = signed(OLD);
        assert_eq!(keys(OLD).verify(&text, at(999)), Ok(token));
        let expired = Err(CallbackUrlRefusal::Expired(at(1_000)));
        assert_eq!(keys(OLD).verify(&text, at(1_000)), expired);
    }

    #[test]
    fn a_key_is_replaced_while_its_urls_are_in_use() {
        let (token, old) = signed(OLD);
        let (_, new) = signed(BOTH);
        assert_eq!(keys(BOTH).verify(&old, at(0)), Ok(token.clone()));
        assert_eq!(keys(NEW).verify(&new, at(0)), Ok(token));
        assert_eq!(keys(NEW).verify(&old, at(0)), Err(CallbackUrlRefusal::UnknownKey));
    }

    #[test]
    fn every_changed_character_is_noticed() {
        let (_, text) = signed(OLD);
        let other_deployment = r#"{ "1": "another-key-of-more-than-32-bytes-in-all" }"#;
        let wrong = Err(CallbackUrlRefusal::WrongSignature);
        assert_eq!(keys(other_deployment).verify(&text, at(0)), wrong);
        for place in 0..text.len() {
            for new in ["A", "B", "9", ".", "_", "\u{e9}"] {
                let mut changed = text.clone();
                changed.replace_range(place..=place, new);
                if changed != text {
                    assert!(keys(OLD).verify(&changed, at(0)).is_err(), "{changed}");
                }
            }
            let shorter = text.get(..place).unwrap();
            assert!(keys(OLD).verify(shorter, at(0)).is_err(), "{shorter}");
        }
        assert_eq!(
            keys(OLD).verify(&"x".repeat(100_000), at(0)),
            Err(CallbackUrlRefusal::Malformed)
        );
    }

    #[test]
    fn the_token_of_a_form_is_valid_for_its_callback_and_for_an_hour() {
        let (token, url) = signed(BOTH);
        let form = keys(BOTH).sign_form(&token, at(1_000));
        assert_eq!(keys(BOTH).verify_form(&form, &token, at(4_600)), Ok(()));
        assert_eq!(keys(NEW).verify_form(&form, &token, at(1_000)), Ok(()));
        let too_old = Err(FormTokenRefusal::TooOld);
        assert_eq!(keys(BOTH).verify_form(&form, &token, at(4_601)), too_old);
        let wrong = Err(FormTokenRefusal::Wrong);
        let later = form.replacen(".1000.", ".2000.", 1);
        let long = "x".repeat(100_000);
        // The signature of the URL has another purpose.
        for text in ["", "2.1000", &later, &url, &form[..form.len() - 1], &long] {
            assert_eq!(keys(BOTH).verify_form(text, &token, at(1_000)), wrong, "{text}");
        }
        assert_eq!(keys(OLD).verify_form(&form, &token, at(1_000)), wrong);
        let other: CallbackToken = "order-8/approve[3]/i0mfvx3k5z/edit-1".parse().unwrap();
        assert_eq!(keys(BOTH).verify_form(&form, &other, at(1_000)), wrong);
        // Nor is the token of a form a URL.
        assert!(keys(BOTH).verify(&form, at(0)).is_err());
    }

    #[test]
    fn weak_or_malformed_keys_are_refused_and_never_shown() {
        for text in ["", "{}", r#"{ "1": "short" }"#, r#"{ "a": "" }"#, r#"["x"]"#] {
            assert!(text.parse::<CallbackKeys>().is_err(), "{text}");
        }
        assert_eq!(format!("{:?}", keys(BOTH)), "CallbackKeys([1, 2])");
    }
}
