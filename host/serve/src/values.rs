//! Values as command lines and configuration files spell them. Each type has one parser for both.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserializer;
use serde::de::{self, Deserialize, Visitor};
use vgpu_device::{ADDRESS_SPAN, parse_bytes, parse_compute_capability, parse_uuid};

macro_rules! values {
    ($($(#[$doc:meta])* $name:ident($inner:ty) $parse:path;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $name(pub(crate) $inner);

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                $parse(text).map(Self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any(Quoted($parse)).map(Self)
            }
        }
    )*};
}

/// Reads a value of a configuration file with the parser of the command line.
struct Quoted<T>(fn(&str) -> Result<T, String>);

impl<T> Visitor<'_> for Quoted<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value in quotation marks")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        self.0(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        // The parser knows which unit is missing, and where a plain number will do.
        let text = number.to_string();
        match self.0(&text) {
            Ok(_) => Err(E::custom(format!(
                "write it in quotation marks, with its unit if it has one: \"{text}\""
            ))),
            Err(why) => Err(E::custom(format!("{why}, in quotation marks"))),
        }
    }
}

values! {
    /// A size in bytes, such as `8G`.
    #[derive(serde::Serialize)]
    Size(u64) parse_size;
    /// A compute capability, such as `9.0`.
    #[derive(serde::Serialize)]
    Capability((u32, u32)) capability;
    /// The UUID of a GPU, with or without `GPU-` and hyphens.
    #[derive(serde::Serialize)]
    Uuid([u8; 16]) uuid;
    /// A limit of time above zero, such as `20m`, `90s`, `500ms`; a plain number is seconds.
    #[derive(serde::Serialize)]
    Limit(Duration) parse_limit;
    /// A time in whole seconds with a unit, such as `30s`, `5m`; zero is allowed.
    Period(Duration) period;
    /// A part of a range of addresses, such as `192G+64G`: bytes from the range's start, and bytes.
    #[derive(serde::Serialize)]
    Part((u64, u64)) part;
    /// A group of users, by name or number.
    #[derive(serde::Serialize)]
    Group(u32) group;
    /// Least severity that is logged: `error`, `warn`, `info` or `debug`.
    Level(tracing::Level) level;
}

/// Default log level.
pub(crate) const WARN: Level = Level(tracing::Level::WARN);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        let fits = |&(shift, _): &(u32, &str)| self.0 >> shift > 0 && self.0.trailing_zeros() >= shift;
        match units.into_iter().find(fits) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => self.0.fmt(f),
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.0, self.0.1)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0.as_secs())
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0.as_secs_f64())
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.as_str().to_ascii_lowercase())
    }
}

/// Bus on which a device is served.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(try_from = "String")]
pub(crate) enum Bus {
    /// A directory that looks like sysfs, for programs of this machine.
    Sim(PathBuf),
    /// A vfio-user socket, to which a virtual machine connects for one function.
    VfioUser(PathBuf),
    /// A mediator's socket, to which version 1 devices of other processes connect.
    V1(PathBuf),
}

impl Bus {
    /// Returns the path of the socket or of the directory.
    pub(crate) const fn path(&self) -> &PathBuf {
        match self {
            Self::Sim(path) | Self::VfioUser(path) | Self::V1(path) => path,
        }
    }
}

impl fmt::Display for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Sim(_) => "sim",
            Self::VfioUser(_) => "vfio-user",
            Self::V1(_) => "v1",
        };
        write!(f, "{kind}:{}", self.path().display())
    }
}

impl FromStr for Bus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, path) = text.split_once(':').filter(|(_, path)| !path.is_empty()).unwrap_or_default();
        let path = PathBuf::from(path);
        match kind {
            "sim" => Ok(Self::Sim(path)),
            "vfio-user" => Ok(Self::VfioUser(path)),
            "v1" => Ok(Self::V1(path)),
            _ => Err("expected vfio-user:SOCKET, sim:DIR or v1:SOCKET".to_owned()),
        }
    }
}

impl TryFrom<String> for Bus {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Parses `sim:DIR`, the only kind of bus with a control socket of its own.
pub fn parse_sim(text: &str) -> Result<PathBuf, String> {
    match text.parse() {
        Ok(Bus::Sim(folder)) => Ok(folder),
        _ => Err("expected sim:DIR".to_owned()),
    }
}

/// Parses a size such as `8G` into bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let expected = "expected a size such as 8G, 512M, 8GiB (units are powers of 1024)";
    parse_bytes(text).ok_or_else(|| expected.to_owned())
}

/// Reads a part of a range of device addresses.
fn part(text: &str) -> Result<(u64, u64), String> {
    // Both ends are where every driver could map memory.
    const UNIT: u64 = 2 << 20;
    let sizes =
        text.split_once('+').and_then(|(offset, bytes)| Some((parse_bytes(offset)?, parse_bytes(bytes)?)));
    let fits = |&(offset, bytes): &(u64, u64)| {
        let whole = [offset, bytes].iter().all(|number| number.is_multiple_of(UNIT));
        whole && bytes > 0 && offset.checked_add(bytes).is_some_and(|end| end <= ADDRESS_SPAN)
    };
    let expected = "expected OFFSET+SIZE such as 192G+64G, in units of 2M and within 1T";
    sizes.filter(fits).ok_or_else(|| expected.to_owned())
}

fn capability(text: &str) -> Result<(u32, u32), String> {
    parse_compute_capability(text).ok_or_else(|| "expected MAJOR.MINOR".to_owned())
}

fn uuid(text: &str) -> Result<[u8; 16], String> {
    // NVIDIA's tools print the UUID of a MIG instance with this prefix.
    parse_uuid(text.strip_prefix("MIG-").unwrap_or(text)).ok_or_else(|| "expected a UUID".to_owned())
}

fn level(text: &str) -> Result<tracing::Level, String> {
    text.parse().map_err(|_| "expected error, warn, info or debug".to_owned())
}

/// Parses a limit of time above zero: "20m", "1.5h", "500ms", or "60" for seconds.
pub fn parse_limit(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let number: f64 = digits.parse().unwrap_or(f64::NAN);
    Duration::try_from_secs_f64(number * unit)
        .ok()
        .filter(|limit| !limit.is_zero())
        .ok_or_else(|| "expected a time such as 20m, 90s, 500ms, 1h; a plain number is seconds".to_owned())
}

/// Parses a time of whole seconds with a unit: "30s", "5m", "0s".
fn period(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => 0,
    };
    let number = digits.parse::<u64>().ok().filter(|_| seconds > 0);
    let seconds = number.and_then(|number| number.checked_mul(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| "expected a time such as 30s, 5m, 1h".to_owned())
}

/// Parses a group: its number, or its name in `/etc/group`.
fn group(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let groups =
        std::fs::read_to_string("/etc/group").map_err(|error| format!("read /etc/group: {error}"))?;
    // Fields of a line: name:password:number:users.
    let number = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(text)).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    number.ok_or_else(|| "there is no such group in /etc/group".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_takes_units() {
        for (text, millis) in [
            ("20m", 1_200_000),
            ("2min", 120_000),
            ("90s", 90_000),
            ("60", 60_000),
            ("0.5", 500),
            ("500ms", 500),
            ("1.5h", 5_400_000),
        ] {
            assert_eq!(parse_limit(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "m", "20 m", "20d", "-1", "0", "0s", "nan", "inf", "1e300h", "20m30s"] {
            assert!(parse_limit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn periods_and_groups_are_read() {
        assert_eq!(period("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(period("5m"), Ok(Duration::from_mins(5)));
        assert_eq!(period("0h"), Ok(Duration::ZERO));
        for bad in ["", "s", "5", "-1s", "1d", "18446744073709551615h"] {
            assert!(period(bad).is_err(), "{bad}");
        }
        assert_eq!((group("107"), group("root")), (Ok(107), Ok(0)));
        assert!(group("no such group").is_err());
    }

    #[test]
    fn a_number_without_quotation_marks_is_told_what_it_lacks() {
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "only its errors are looked at")]
        struct File {
            memory: Option<Size>,
            grace: Option<Period>,
            kernel_timeout: Option<Limit>,
        }

        for (text, why) in [
            ("memory = 8", "in quotation marks, with its unit"),
            ("memory = \"8GB\"", "powers of 1024"),
            ("grace = 5", "a time such as 30s, 5m, 1h, in quotation marks"),
            ("kernel_timeout = 0", "500ms"),
            ("memory = true", "a value in quotation marks"),
        ] {
            let error = toml::from_str::<File>(text).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("line 1"), "{text}: {error}");
        }
    }

    #[test]
    fn a_part_lies_within_a_range() {
        assert_eq!(part("192G+64G"), Ok((192 << 30, 64 << 30)));
        assert_eq!(part("0+1T"), Ok((0, 1 << 40)));
        for bad in ["", "1G", "1G+", "+1G", "1G+0", "1M+1G", "1G+1M", "512G+513G", "1T+1T", "1G+1G+1G"] {
            assert!(part(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values_are_written_as_they_are_read() {
        for text in ["8G", "1536M", "1T", "3K", "7", "0"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        for text in ["sim:/a", "vfio-user:/run/x:y", "v1:m.sock"] {
            assert_eq!(text.parse::<Bus>().unwrap().to_string(), text);
        }
        for text in ["", "/a", "sim:", "vfio:/a"] {
            assert!(text.parse::<Bus>().is_err(), "{text}");
        }
        assert_eq!("6.1".parse::<Capability>().unwrap().to_string(), "6.1");
        assert_eq!("1.5m".parse::<Limit>().unwrap().to_string(), "90s");
        assert_eq!("2m".parse::<Period>().unwrap().to_string(), "120s");
        assert_eq!("INFO".parse::<Level>().unwrap().to_string(), "info");
    }
}
