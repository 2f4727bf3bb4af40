//! Formatting of GPU times for people, in the guest and on the host.

/// Formats a time in seconds: with a tenth below a minute, from there on `minutes:seconds`, from an hour on
/// with hours.
#[must_use]
pub fn time(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        ..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{}:{:02}", whole / 60, whole % 60),
        _ => format!("{}:{:02}:{:02}", whole / 3600, whole % 3600 / 60, whole % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_people_write_them() {
        for (seconds, expected) in
            [(0.0, "0.0 s"), (59.94, "59.9 s"), (59.949_999, "59.9 s"), (61.0, "1:01"), (3661.5, "1:01:01")]
        {
            assert_eq!(time(seconds), expected);
        }
    }
}
