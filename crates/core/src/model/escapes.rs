//! Texts as a reader may understand them who undoes the escapes of JSON, HTML or URLs, to find in them what must not be passed on or
//! shown.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// A text without the escapes of JSON strings, such as `\u00e9` and `\/`. What is no escape stays.
#[must_use]
pub fn unescaped_json(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return text.into();
    }
    let (mut units, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        let (unit, bytes) = json_escape(rest).unwrap_or((None, c.len_utf8()));
        match unit {
            Some(unit) => units.push(unit),
            None => units.extend(c.encode_utf16(&mut [0; 2]).iter()),
        }
        rest = rest.get(bytes..).unwrap_or_default();
    }
    String::from_utf16_lossy(&units).into()
}

/// The UTF-16 code unit of the escape at the beginning of a text, and the bytes of the escape.
fn json_escape(text: &str) -> Option<(Option<u16>, usize)> {
    let escape = text.strip_prefix('\\')?;
    let unit = match escape.chars().next()? {
        'u' => {
            let digits =
                escape.get(1..5).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
            return Some((u16::from_str_radix(digits, 16).ok(), 6));
        }
        'b' => 8,
        't' => 9,
        'n' => 10,
        'f' => 12,
        'r' => 13,
        c @ ('"' | '\\' | '/') => u16::try_from(u32::from(c)).ok()?,
        _ => return None,
    };
    Some((Some(unit), 2))
}

/// A text without the character references of HTML and XML: those by number, and the five names of XML.
#[must_use]
pub fn unescaped_html(text: &str) -> Cow<'_, str> {
    let mut parts = text.split('&');
    let mut unescaped = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let reference =
            part.split_once(';').and_then(|(name, rest)| Some((html_character(name)?, rest)));
        match reference {
            Some((c, rest)) => {
                unescaped.push(c);
                unescaped.push_str(rest);
            }
            None => {
                unescaped.push('&');
                unescaped.push_str(part);
            }
        }
    }
    unescaped.into()
}

fn html_character(name: &str) -> Option<char> {
    let number =
        |digits: &str, radix| u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
    match (name, name.strip_prefix('#')) {
        ("amp", _) => Some('&'),
        ("lt", _) => Some('<'),
        ("gt", _) => Some('>'),
        ("quot", _) => Some('"'),
        ("apos", _) => Some('\''),
        (_, Some(digits)) => match digits.strip_prefix(['x', 'X']) {
            Some(digits) => number(digits, 16),
            None => number(digits, 10),
        },
        (_, None) => None,
    }
}

/// A text without percent-encoding, and with a space in place of `+`, as in the data of forms.
#[must_use]
pub fn unescaped_url(text: &str) -> Cow<'_, str> {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_other_text_stays() {
        let json = r#"Zo\u00EB \"A\" \/ \ud83d\ude00 \u003c \x \u00 \"#;
        assert_eq!(unescaped_json(json), "Zoë \"A\" / 😀 < \\x \\u00 \\");
        let html = "Zo&#235; &#x3C;&lt;&quot;&#39;&amp;amp; &nbsp; & ; &#xD800;";
        assert_eq!(unescaped_html(html), "Zoë <<\"'&amp; &nbsp; & ; &#xD800;");
        assert_eq!(unescaped_url("Zo%c3%AB+%22A%22 %zz"), "Zoë \"A\" %zz");
    }
}
