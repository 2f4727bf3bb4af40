//! Settings that a device keeps as long as it lives, as a program leaves them to the one that takes over.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::settings::Settings;

impl Settings {
    /// Returns the settings that a device keeps as long as it lives, by their names.
    ///
    /// # Errors
    /// A path is not UTF-8.
    pub(crate) fn kept(&self) -> serde_json::Result<BTreeMap<String, Value>> {
        macro_rules! given {
            ($($setting:ident)*) => {
                [$((stringify!($setting), self.$setting.as_ref().map(serde_json::to_value).transpose()?)),*]
            };
        }
        let all = given! {
            bus executor gpu memory reserve shares window channels address_range address_part group control libcuda
            libcublas worker_user worker_connects explain_refusals compiled cc threads kernel_timeout engine
        };
        Ok(all.into_iter().filter_map(|(name, value)| Some((name.replace('_', "-"), value?))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str) -> BTreeMap<String, Value> {
        toml::from_str::<Settings>(text).unwrap().kept().unwrap()
    }

    /// They are compared by their values, however they are spelt.
    #[test]
    fn settings_that_a_device_keeps_are_values() {
        for (name, one, same, other) in [
            ("memory", "3G", "3072M", "2G"),
            ("bus", "vfio-user:/run/x", "vfio-user:/run/x", "vfio-user:/run/y"),
            (
                "gpu",
                "GPU-00112233-4455-6677-8899-aabbccddeeff",
                "00112233445566778899aabbccddeeff",
                "GPU-10112233-4455-6677-8899-aabbccddeeff",
            ),
            ("kernel-timeout", "2m", "120s", "121s"),
            ("group", "root", "0", "1"),
            ("executor", "soft", "soft", "null"),
        ] {
            let of = |value: &str| kept(&format!("{name} = {value:?}"));
            assert_eq!(of(one), of(same), "{name}");
            assert_ne!(of(one), of(other), "{name}");
            assert_eq!(of(one).keys().collect::<Vec<_>>(), [name]);
        }
        assert!(
            kept("weight = 3\nlog = \"info\"\nvm-memory = \"2G\"\nvm-slot = 4").is_empty(),
            "they may change"
        );
        assert_eq!(serde_json::to_string(&kept("memory = \"3G\"")).unwrap(), r#"{"memory":3221225472}"#);
    }
}
