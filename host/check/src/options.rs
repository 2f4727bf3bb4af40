//! QEMU's command line, as far as it defines the memory and the devices of a VM. Options have the form
//! `key=value,...` or are JSON.

use std::collections::BTreeMap;

use serde_json::Value;

/// The keys and values of an option. A value that stands first without a key has the key "". Values within a
/// JSON object have keys that are joined by dots, as in `socket.path`.
type Keys = BTreeMap<String, String>;

/// The command line of a VM, as far as it concerns memory and devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    objects: Vec<Keys>,
    devices: Vec<Keys>,
    machine: Keys,
    nodes: Vec<Keys>,
}

impl CommandLine {
    /// Parses the arguments of a QEMU process.
    pub fn read(arguments: &[String]) -> Self {
        let mut line = Self::default();
        for pair in arguments.windows(2) {
            let option = pair[0].strip_prefix('-').unwrap_or_default();
            match option.strip_prefix('-').unwrap_or(option) {
                "object" => line.objects.push(keys(&pair[1])),
                "device" => line.devices.push(keys(&pair[1])),
                "machine" | "M" => line.machine.extend(keys(&pair[1])),
                "numa" => line.nodes.push(keys(&pair[1])),
                _ => {}
            }
        }
        line
    }

    /// Returns the first device whose driver's name starts with `driver`.
    pub fn device(&self, driver: &str) -> Option<&str> {
        let name = |device: &'_ Keys| device.get("driver").or(device.get("")).cloned();
        let place = self
            .devices
            .iter()
            .position(|device| name(device).is_some_and(|name| name.starts_with(driver)))?;
        let device = &self.devices[place];
        device.get("driver").or(device.get("")).map(String::as_str)
    }

    /// Returns whether a device is served at the socket `path`.
    pub fn connects_to(&self, path: &str) -> bool {
        let driver = |device: &Keys| {
            device.get("driver").or(device.get("")).is_some_and(|name| name == "vfio-user-pci")
        };
        self.devices
            .iter()
            .any(|device| driver(device) && device.get("socket.path").is_some_and(|have| have == path))
    }

    /// Returns the reason for which the VM's memory is not shared with other processes, or `None` if it is
    /// shared.
    pub fn private_memory(&self) -> Option<String> {
        let machine = self.machine.get("memory-backend").into_iter();
        let nodes = self.nodes.iter().filter_map(|node| node.get("memdev"));
        let mut backends = machine.chain(nodes).peekable();
        if backends.peek().is_none() {
            return Some("the VM's memory has no memory backend".to_owned());
        }
        for name in backends {
            let object = self.objects.iter().find(|object| object.get("id") == Some(name));
            let Some(object) = object else { return Some(format!("there is no memory backend {name}")) };
            let kind = object.get("qom-type").or(object.get("")).map_or("", String::as_str);
            // memory-backend-memfd shares by default, and the others only on request.
            let usual = if kind == "memory-backend-memfd" { "on" } else { "off" };
            let share = object.get("share").map_or(usual, String::as_str);
            if !["on", "true", "yes", "y"].contains(&share) {
                return Some(format!("the memory backend {name} is a {kind} without share=on"));
            }
        }
        None
    }
}

fn keys(text: &str) -> Keys {
    let mut keys = Keys::new();
    if text.starts_with('{') {
        if let Ok(value) = serde_json::from_str(text) {
            flatten("", &value, &mut keys);
        }
        return keys;
    }
    // A comma within a value is doubled.
    for (index, part) in text.replace(",,", "\0").split(',').enumerate() {
        let part = part.replace('\0', ",");
        match part.split_once('=') {
            Some((key, value)) => drop(keys.insert(key.to_owned(), value.to_owned())),
            None if index == 0 => drop(keys.insert(String::new(), part)),
            // A name without a value is a switch.
            None => drop(keys.insert(part, "on".to_owned())),
        }
    }
    keys
}

fn flatten(prefix: &str, value: &Value, keys: &mut Keys) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&key, value, keys);
            }
        }
        Value::String(text) => drop(keys.insert(prefix.to_owned(), text.clone())),
        other => drop(keys.insert(prefix.to_owned(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &[&str]) -> CommandLine {
        CommandLine::read(&text.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn devices_are_found_in_either_spelling() {
        let json = line(&[
            "qemu",
            "-device",
            r#"{"driver":"vfio-user-pci","socket":{"type":"unix","path":"/a,b"}}"#,
        ]);
        let text = line(&["qemu", "--device", "vfio-user-pci,socket.type=unix,socket.path=/a,,b"]);
        for line in [json, text] {
            assert!(line.connects_to("/a,b") && !line.connects_to("/a"), "{line:?}");
            assert_eq!(line.device("vfio-user"), Some("vfio-user-pci"));
        }
        assert_eq!(
            line(&["-device", "virtio-balloon-pci,id=x"]).device("virtio-balloon"),
            Some("virtio-balloon-pci")
        );
        assert_eq!(line(&["-device"]).device(""), None);
    }

    #[test]
    fn memory_is_shared_where_every_backend_in_use_says_so() {
        let memfd = "memory-backend-memfd,id=ram,size=1G";
        let libvirt = r#"{"qom-type":"memory-backend-file","id":"ram","share":true,"size":1}"#;
        for shared in [
            line(&["-object", memfd, "-machine", "q35", "-machine", "memory-backend=ram"]),
            line(&["-object", libvirt, "-M", "pc,memory-backend=ram"]),
            line(&["-object", memfd, "-numa", "node,memdev=ram"]),
        ] {
            assert_eq!(shared.private_memory(), None, "{shared:?}");
        }
        for (private, why) in [
            (line(&["-m", "1G"]), "no memory backend"),
            (line(&["-object", memfd]), "no memory backend"),
            (line(&["-M", "q35,memory-backend=ram"]), "there is no memory backend ram"),
            (line(&["-M", "memory-backend=ram", "-object", "memory-backend-ram,id=ram"]), "share=on"),
            (
                line(&["-M", "memory-backend=ram", "-object", "memory-backend-memfd,id=ram,share=off"]),
                "share=on",
            ),
        ] {
            assert!(private.private_memory().is_some_and(|found| found.contains(why)), "{private:?}");
        }
    }
}
