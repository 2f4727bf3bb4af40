//! Arguments with which a virtual machine must be started to get the device behind a vfio-user socket, for
//! QEMU, for libvirt and for Proxmox.
//!
//! The device accesses the guest's memory. That memory is therefore a file that QEMU shares with it: a memory
//! backend with `share=on`. Memory that is removed while the device has it mapped (a balloon, virtio-mem) is
//! not supported.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// Id of the memory backend among QEMU's objects.
const BACKEND: &str = "vgpu-ram";
/// Id of the device, and of the PCIe root port that it is behind.
pub(crate) const DEVICE: &str = "vgpu";
pub(crate) const PORT: &str = "vgpu-port";
/// Number of the root port's chassis, which no other port may have. libvirt counts its own from 1.
const CHASSIS: u8 = 200;
/// Time for which QEMU waits for the answer to a message, in milliseconds; its own default is 5 s.
///
/// Meanwhile QEMU holds its global lock, so that the VM and its monitor stand still. A shorter limit does not
/// keep them going: the next access waits anew, and once a limit has passed the connection is of no use, so
/// that the VM has lost its GPU until the device is replugged. The limit is longer than a host that swaps or pages in
/// takes to run this process again. It is shorter than the 90 s that systemd gives a service to stop, so that
/// a VM's unit can be stopped without SIGKILL, and than the 120 s after which Linux in the guest reports hung
/// tasks. `docs/host.md` has the measurements.
pub(crate) const ANSWER_MOST_MS: u32 = 60_000;

/// A virtual machine that is given a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// Path of the socket where the device is served. It is absolute, because QEMU may run in another
    /// directory.
    pub socket: PathBuf,
    /// Memory of the virtual machine in MiB.
    pub memory_mib: u64,
    /// PCI slot of the device, 1 to 31, or `None` for a PCIe root port of its own, behind which it can be
    /// taken out and put in again.
    pub slot: Option<u8>,
    /// Size of the device's window in bytes, for which the root port reserves addresses.
    pub window_bytes: u64,
}

impl Vm {
    /// Returns QEMU's arguments for `-device` as JSON, in which a path may have any character.
    pub(crate) fn devices(&self) -> Vec<String> {
        match self.slot {
            Some(slot) => {
                let mut device = device(&self.socket);
                device.insert("addr".to_owned(), format!("{slot:x}").into());
                vec![Value::Object(device).to_string()]
            }
            None => vec![self.port().to_string(), Value::Object(device_at_port(&self.socket)).to_string()],
        }
    }

    /// Returns the root port. Firmware gives an empty port no room for a window, so the port asks for the
    /// window's size, and as much again for its alignment.
    fn port(&self) -> Value {
        let reserve = self.window_bytes.saturating_mul(2);
        json!({ "driver": "pcie-root-port", "id": PORT, "chassis": CHASSIS, "pref64-reserve": reserve })
    }

    /// Returns QEMU's arguments. `-machine` may be given again with the machine's type, because QEMU merges
    /// the two.
    pub fn qemu(&self) -> Vec<String> {
        let memory = format!("{}M", self.memory_mib);
        let mut arguments = vec![
            "-m".to_owned(),
            memory.clone(),
            "-object".to_owned(),
            format!("memory-backend-memfd,id={BACKEND},size={memory},share=on"),
            "-machine".to_owned(),
            format!("memory-backend={BACKEND}"),
        ];
        arguments.extend(self.devices().into_iter().flat_map(|device| ["-device".to_owned(), device]));
        arguments
    }

    /// Returns the same arguments for a shell, one option per line.
    pub fn shell(&self) -> String {
        let arguments = self.qemu();
        let lines: Vec<String> =
            arguments.chunks(2).map(|pair| format!("{} {}", pair[0], quoted(&pair[1]))).collect();
        lines.join(" \\\n")
    }

    /// Returns the line of a Proxmox VM's configuration that hands arguments on to QEMU. The VM's memory is
    /// not among them, because Proxmox gives it from a setting of its own, which has to be the same.
    pub fn proxmox(&self) -> String {
        let words: Vec<String> = self.qemu().iter().skip(2).map(|word| quoted(word)).collect();
        format!("args: {}", words.join(" "))
    }

    /// Returns the elements for a libvirt domain. libvirt does not know vfio-user devices and passes
    /// `qemu:commandline` on to QEMU. The namespace of that element is declared in the first line.
    pub fn libvirt(&self) -> String {
        let mut lines = vec![
            "<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>".to_owned(),
            "  <memoryBacking>".to_owned(),
            "    <source type='memfd'/>".to_owned(),
            "    <access mode='shared'/>".to_owned(),
            "  </memoryBacking>".to_owned(),
            "  <devices>".to_owned(),
            "    <memballoon model='none'/>".to_owned(),
            "  </devices>".to_owned(),
            "  <qemu:commandline>".to_owned(),
        ];
        for device in self.devices() {
            lines.push("    <qemu:arg value='-device'/>".to_owned());
            lines.push(format!("    <qemu:arg value='{}'/>", escaped(&device)));
        }
        lines.extend(["  </qemu:commandline>".to_owned(), "</domain>\n".to_owned()]);
        lines.join("\n")
    }
}

/// Returns the properties of QEMU's device for a socket.
fn device(socket: &Path) -> Map<String, Value> {
    let socket = json!({ "type": "unix", "path": socket.to_string_lossy() });
    [("driver", "vfio-user-pci".into()), ("socket", socket), ("x-msg-timeout", ANSWER_MOST_MS.into())]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}

/// Returns the properties of the device behind its root port, as QEMU's monitor takes them too.
pub(crate) fn device_at_port(socket: &Path) -> Map<String, Value> {
    let mut device = device(socket);
    device.insert("id".to_owned(), DEVICE.into());
    device.insert("bus".to_owned(), PORT.into());
    device
}

/// Returns a word in a shell's syntax, quoted if necessary.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=,./:".contains(letter);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Returns the value of an XML attribute in single quotes.
pub(crate) fn escaped(value: &str) -> String {
    let mut text = String::new();
    for letter in value.chars() {
        match letter {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '\'' => text.push_str("&apos;"),
            letter => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(socket: &str) -> Vm {
        Vm { socket: socket.into(), memory_mib: 768, slot: Some(17), window_bytes: 256 << 20 }
    }

    #[test]
    fn the_vm_shares_its_memory_and_has_the_device() {
        let arguments = vm("/d\"e,'f").qemu();
        let value = |option: &str| &arguments[arguments.iter().position(|have| have == option).unwrap() + 1];
        assert_eq!(value("-m"), "768M");
        assert_eq!(value("-object"), "memory-backend-memfd,id=vgpu-ram,size=768M,share=on");
        assert_eq!(value("-machine"), "memory-backend=vgpu-ram");
        let device: serde_json::Value = serde_json::from_str(value("-device")).unwrap();
        assert_eq!(device["driver"], "vfio-user-pci");
        assert_eq!(device["socket"]["path"], "/d\"e,'f");
        assert_eq!(device["addr"], "11", "QEMU reads it as hexadecimal");
        assert_eq!(device["x-msg-timeout"], ANSWER_MOST_MS);
    }

    #[test]
    fn without_a_slot_the_device_can_be_taken_out() {
        let arguments = Vm { slot: None, ..vm("/a") }.qemu();
        let devices: Vec<Value> = (7..arguments.len())
            .step_by(2)
            .map(|index| serde_json::from_str(&arguments[index]).unwrap())
            .collect();
        let [port, device] = &devices[..] else { panic!("{arguments:?}") };
        assert_eq!((&port["driver"], &port["pref64-reserve"]), (&json!("pcie-root-port"), &json!(512 << 20)));
        assert_eq!(device["bus"], port["id"]);
        assert!(device["id"].is_string() && device.get("addr").is_none(), "{device}");
        assert_eq!(device.as_object(), Some(&device_at_port(Path::new("/a"))));
        assert_eq!(Vm { slot: None, ..vm("/a") }.libvirt().matches("value='-device'").count(), 2);
    }

    #[test]
    fn a_shell_makes_the_same_words_of_it() {
        let vm = vm("/a b/it's $HOME");
        let output = std::process::Command::new("sh")
            .arg("-c")
            .arg(format!("printf '%s\\n' {}", vm.shell()))
            .output()
            .unwrap();
        let words: Vec<_> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
        assert_eq!(words, vm.qemu());
    }

    #[test]
    fn proxmox_gets_one_line_without_the_memory_of_its_own_setting() {
        let line = vm("/a b").proxmox();
        assert!(
            line.starts_with("args: -object memory-backend-memfd,id=vgpu-ram,size=768M,share=on "),
            "{line}"
        );
        assert!(line.contains(" -device '{\"addr\":\"11\"") && !line.contains(['\n', '\\']), "{line}");
        assert!(!line.contains("-m 768M"), "{line}");
    }

    #[test]
    fn libvirt_gets_the_device_as_one_attribute() {
        let text = vm("/a<b&'c").libvirt();
        let line = text.lines().find(|line| line.contains("vfio-user-pci")).unwrap().trim();
        let value = line.strip_prefix("<qemu:arg value='").unwrap().strip_suffix("'/>").unwrap();
        assert!(!value.contains(['<', '\'']), "{value}");
        let read = value.replace("&lt;", "<").replace("&apos;", "'").replace("&amp;", "&");
        let device: serde_json::Value = serde_json::from_str(&read).unwrap();
        assert_eq!(device["socket"]["path"], "/a<b&'c");
        assert_eq!(device["x-msg-timeout"], ANSWER_MOST_MS);
        assert!(text.contains("memballoon model='none'") && text.contains("access mode='shared'"));
    }
}
