//! Texts of rates, shares and loads.

use steward_forecast::capacity::Load;

use crate::workflows::forecast::time;

/// The rate and duration of a load.
pub(super) fn load_text(load: &Load) -> String {
    let steady =
        format!("{} submissions per second for {}", number(load.rate), seconds(load.lasts_s));
    match load.spike_lasts_s > 0.0 {
        true => {
            format!("{steady}, {} for {}", number(load.spike), seconds(load.spike_lasts_s))
        }
        false => steady,
    }
}

/// One decimal below 10, otherwise an integer with a comma between groups of three digits.
pub(super) fn number(value: f64) -> String {
    if value < 10.0 && value.fract() != 0.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A share without decimals.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// A number of seconds, as a person writes it. A negative number, from rounding, is zero.
pub(super) fn seconds(s: f64) -> String {
    time((s.max(0.0) * 1_000.0).round() as u64)
}
