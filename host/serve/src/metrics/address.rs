//! Where metrics are served: the value of `--metrics`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MetricsAddress {
    /// At a TCP port.
    Tcp(SocketAddr),
    /// At a UNIX socket.
    Unix(PathBuf),
}

/// The option's value: an address, or none for `off`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetricsOption(pub(crate) Option<MetricsAddress>);

impl FromStr for MetricsOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected IP:PORT such as 127.0.0.1:19400, unix:PATH, or off";
        let address = match text.split_once(':') {
            None if text == "off" => return Ok(Self(None)),
            Some(("unix", path)) if !path.is_empty() => MetricsAddress::Unix(path.into()),
            _ => MetricsAddress::Tcp(text.parse().map_err(|_| expected.to_owned())?),
        };
        Ok(Self(Some(address)))
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/metrics"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let parse = |text: &str| text.parse::<MetricsOption>().map(|option| option.0);
        assert_eq!(parse("off"), Ok(None));
        assert_eq!(parse("unix:/run/a:b"), Ok(Some(MetricsAddress::Unix("/run/a:b".into()))));
        assert_eq!(parse("[::1]:80").unwrap().unwrap().to_string(), "http://[::1]:80/metrics");
        for wrong in ["", "unix:", "localhost:80", "127.0.0.1", "19400", "off:1", "tcp:127.0.0.1:1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
