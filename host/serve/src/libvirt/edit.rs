//! Changes of a domain's XML: what its device needs is added, and the rest of the text stays as it is, byte
//! by byte.

use std::ops::Range;

use roxmltree::Node;
use serde_json::Value;

use super::domain::{DomainError, QEMU, arguments, child, parse, request, requested, socket};
use super::request::Request;
use crate::vm::{DEVICE, PORT, Vm, escaped};

/// Reason for which a domain cannot have a device.
#[derive(Debug, thiserror::Error)]
pub(super) enum EditError {
    #[error(transparent)]
    Domain(#[from] DomainError),
    #[error(
        "the device's port needs a machine of the type q35, and the domain's is {0}: with `vm-slot` in the instance's \
         settings the device needs none, but can then not be replugged"
    )]
    Machine(String),
    #[error("the memory of a NUMA cell is private (memAccess='private'): the device needs it shared")]
    PrivateCell,
    #[error(
        "the domain has virtio-mem, whose memory a device cannot follow: remove <memory model='virtio-mem'>"
    )]
    VirtioMem,
}

/// Replacements of ranges of the text.
#[derive(Debug, Default)]
struct Edits(Vec<(Range<usize>, String)>);

impl Edits {
    fn replace(&mut self, range: Range<usize>, text: impl Into<String>) {
        self.0.push((range, text.into()));
    }

    /// Removes a range with the blank before it.
    fn remove(&mut self, xml: &str, range: Range<usize>) {
        let blank = xml[..range.start].trim_end().len();
        self.replace(blank..range.end, "");
    }

    /// Returns the changed text. The ranges do not overlap; of several insertions at a place the first comes
    /// first.
    fn applied(mut self, to: &str) -> String {
        self.0.sort_by_key(|(range, _)| range.start);
        let mut text = String::new();
        let mut done = 0;
        for (range, with) in self.0 {
            text += &to[done..range.start];
            text += &with;
            done = range.end;
        }
        text + &to[done..]
    }
}

/// Returns the XML of a domain with a device, which is the same text if it has that device already. With a
/// request the domain asks the hook for it, and without one no longer.
pub(super) fn attached(xml: &str, vm: &Vm, ask: Option<&Request>) -> Result<String, EditError> {
    let document = parse(xml)?;
    let domain = document.root_element();
    refuse(domain, vm)?;
    let mut edits = Edits::default();
    let mut added = Vec::new();
    match (ask, requested(domain)) {
        (Some(ask), Some(element)) if request(element) == *ask => {}
        (Some(ask), Some(element)) => edits.replace(element.range(), ask.element()),
        (Some(ask), None) => add(&mut edits, xml, domain, "metadata", &[ask.element()], &mut added),
        (None, Some(element)) => edits.remove(xml, element.range()),
        (None, None) => {}
    }
    share_memory(&mut edits, xml, domain, &mut added);
    if child(domain, "features").and_then(|features| child(features, "acpi")).is_none() {
        // QEMU 11 knows no option that turns ACPI off, which libvirt 9 gives it otherwise.
        add(&mut edits, xml, domain, "features", &["<acpi/>".to_owned()], &mut added);
    }
    no_balloon(&mut edits, xml, domain, &mut added);
    devices(&mut edits, xml, domain, vm, &mut added);
    append(&mut edits, xml, domain, &added);
    Ok(edits.applied(xml))
}

/// Refuses a domain that would have to be another one.
fn refuse(domain: Node<'_, '_>, vm: &Vm) -> Result<(), EditError> {
    let machine = child(domain, "os").and_then(|os| child(os, "type")?.attribute("machine"));
    if let (None, Some(machine)) = (vm.slot, machine.filter(|machine| !machine.contains("q35"))) {
        return Err(EditError::Machine(machine.to_owned()));
    }
    let mut all = domain.descendants();
    if all.any(|node| node.has_tag_name("cell") && node.attribute("memAccess") == Some("private")) {
        return Err(EditError::PrivateCell);
    }
    let mut all = domain.descendants();
    if all.any(|node| node.has_tag_name("memory") && node.attribute("model") == Some("virtio-mem")) {
        return Err(EditError::VirtioMem);
    }
    Ok(())
}

/// Has QEMU share the guest's memory by files.
fn share_memory(edits: &mut Edits, xml: &str, domain: Node<'_, '_>, added: &mut Vec<String>) {
    let backing = child(domain, "memoryBacking");
    let part = |name| backing.and_then(|backing| child(backing, name));
    let mut lines = Vec::new();
    match part("source") {
        Some(source) if ["memfd", "file"].contains(&source.attribute("type").unwrap_or_default()) => {}
        Some(source) => edits.replace(source.range(), "<source type='memfd'/>"),
        None => lines.push("<source type='memfd'/>".to_owned()),
    }
    match part("access") {
        Some(access) if access.attribute("mode") == Some("shared") => {}
        Some(access) => edits.replace(access.range(), "<access mode='shared'/>"),
        None => lines.push("<access mode='shared'/>".to_owned()),
    }
    if !lines.is_empty() {
        add(edits, xml, domain, "memoryBacking", &lines, added);
    }
}

/// Takes the balloon away, which libvirt adds to a domain that does not say that it has none.
fn no_balloon(edits: &mut Edits, xml: &str, domain: Node<'_, '_>, added: &mut Vec<String>) {
    let none = "<memballoon model='none'/>";
    match child(domain, "devices").and_then(|devices| child(devices, "memballoon")) {
        Some(balloon) if balloon.attribute("model") == Some("none") => {}
        Some(balloon) => edits.replace(balloon.range(), none),
        None => add(edits, xml, domain, "devices", &[none.to_owned()], added),
    }
}

/// Adds the arguments that define the device, in place of those that define another one of ours.
fn devices(edits: &mut Edits, xml: &str, domain: Node<'_, '_>, vm: &Vm, added: &mut Vec<String>) {
    let wanted = vm.devices();
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    let all = arguments(domain);
    let ours: Vec<_> =
        all.windows(2).filter(|pair| pair[0].1 == "-device" && is_ours(pair[1].1, vm)).collect();
    let same = ours.len() == wanted.len()
        && ours.iter().zip(&wanted).all(|(pair, wanted)| read(pair[1].1) == read(wanted));
    if same {
        return;
    }
    for (node, _) in ours.into_iter().flatten() {
        edits.remove(xml, node.range());
    }
    let prefix = domain.lookup_prefix(QEMU).unwrap_or_else(|| {
        let place = domain.range().start + 1 + qualified_name(&xml[domain.range()]).len();
        edits.replace(place..place, format!(" xmlns:qemu='{QEMU}'"));
        "qemu"
    });
    let lines: Vec<String> = wanted
        .iter()
        .flat_map(|device| ["-device", device])
        .map(|value| format!("<{prefix}:arg value='{}'/>", escaped(value)))
        .collect();
    match domain.children().find(|node| node.has_tag_name((QEMU, "commandline"))) {
        Some(line) => append(edits, xml, line, &lines),
        None => added.extend(element(&format!("{prefix}:commandline"), &lines)),
    }
}

/// Returns whether an argument defines our device or its port. Behind a slot the device has no id, but its
/// socket. Other programs have devices of the same driver, such as a disk of SPDK's.
fn is_ours(argument: &str, vm: &Vm) -> bool {
    let Ok(device) = serde_json::from_str::<Value>(argument) else { return false };
    [DEVICE, PORT].iter().any(|id| device["id"] == *id)
        || socket(argument).is_some_and(|path| path == vm.socket.to_string_lossy())
}

/// Returns the lines of an element with children.
fn element(name: &str, children: &[String]) -> Vec<String> {
    let mut lines = vec![format!("<{name}>")];
    lines.extend(children.iter().map(|line| format!("  {line}")));
    lines.push(format!("</{name}>"));
    lines
}

/// Adds lines to the domain's child of this name. Where there is none, it is one of those to be added to the
/// domain.
fn add(
    edits: &mut Edits,
    xml: &str,
    domain: Node<'_, '_>,
    name: &str,
    lines: &[String],
    added: &mut Vec<String>,
) {
    match child(domain, name) {
        Some(node) => append(edits, xml, node, lines),
        None => added.extend(element(name, lines)),
    }
}

/// Adds lines at the end of an element's content, indented as it is.
fn append(edits: &mut Edits, xml: &str, to: Node<'_, '_>, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let range = to.range();
    let line_start = xml[..range.start].rfind('\n').map_or(0, |end| end + 1);
    let indent: String = xml[line_start..].chars().take_while(|letter| " \t".contains(*letter)).collect();
    let block = lines.iter().map(|line| format!("{indent}  {line}\n")).collect::<Vec<_>>().concat();
    let text = &xml[range.clone()];
    if text.ends_with("/>") {
        let end = format!(">\n{block}{indent}</{}>", qualified_name(text));
        edits.replace(range.end - 2..range.end, end);
        return;
    }
    // The last end tag of the element's text is its own.
    let end = range.start + text.rfind("</").unwrap_or(text.len());
    let last = xml[..end].rfind('\n').map_or(0, |end| end + 1);
    if last > range.start && xml[last..end].trim().is_empty() {
        edits.replace(last..last, block);
    } else {
        edits.replace(end..end, format!("\n{block}{indent}"));
    }
}

/// Returns the name in a start tag, with its prefix.
fn qualified_name(tag: &str) -> &str {
    let name = tag.strip_prefix('<').unwrap_or(tag);
    let end = name.find(|letter: char| letter.is_whitespace() || "/>".contains(letter));
    &name[..end.unwrap_or(name.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str = "<domain type='kvm'>\n  <name>vm1</name>\n  <!-- kept -->\n  <os>\n    <type arch='x86_64' machine='pc-q35-9.0'>hvm</type>\n  </os>\n  <devices>\n    <disk/>\n    <memballoon model='virtio'>\n      <stats period='5'/>\n    </memballoon>\n  </devices>\n</domain>\n";

    fn vm(socket: &str) -> Vm {
        Vm { socket: socket.into(), memory_mib: 512, slot: None, window_bytes: 256 << 20 }
    }

    fn ask(memory: &str) -> Request {
        Request([("memory".to_owned(), memory.to_owned())].into())
    }

    #[test]
    fn a_domain_gets_a_device_once() {
        let once = attached(BARE, &vm("/run/a"), Some(&ask("8G"))).unwrap();
        for line in [
            "<domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0' type='kvm'>\n",
            "  <!-- kept -->\n",
            "    <disk/>\n    <memballoon model='none'/>\n  </devices>\n",
            "  <metadata>\n    <vgpu:device xmlns:vgpu='urn:vgpu-run:device:1' memory='8G'/>\n  </metadata>\n",
            "  <memoryBacking>\n    <source type='memfd'/>\n    <access mode='shared'/>\n  </memoryBacking>\n",
            "  <features>\n    <acpi/>\n  </features>\n",
            "  <qemu:commandline>\n    <qemu:arg value='-device'/>\n",
            "  </qemu:commandline>\n</domain>\n",
        ] {
            assert!(once.contains(line), "{line} is not in {once}");
        }
        let document = parse(&once).unwrap();
        let values: Vec<_> = arguments(document.root_element()).into_iter().map(|(_, value)| value).collect();
        let devices = vm("/run/a").devices();
        assert_eq!(values, ["-device", &devices[0], "-device", &devices[1]]);
        assert_eq!(attached(&once, &vm("/run/a"), Some(&ask("8G"))).unwrap(), once, "nothing changes twice");
        let by_hand = attached(&once, &vm("/run/a"), None).unwrap();
        assert!(
            by_hand.contains("  <metadata>\n  </metadata>\n") && !by_hand.contains("vgpu:device"),
            "{by_hand}"
        );
        assert_eq!(attached(&by_hand, &vm("/run/a"), None).unwrap(), by_hand);
        assert_eq!(attached(&by_hand, &vm("/run/a"), Some(&ask("8G"))).unwrap(), once);
    }

    #[test]
    fn what_has_changed_is_replaced_and_the_rest_stays() {
        let before = BARE
            .replace("</domain>", "  <memoryBacking>\n    <hugepages/>\n    <access mode='private'/>\n  </memoryBacking>\n  <features>\n    <apic/>\n  </features>\n  <metadata/>\n</domain>")
            .replace("<domain ", "<domain xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0' ")
            .replace("</domain>", "  <q:commandline>\n    <q:arg value='-no-hpet'/>\n  </q:commandline>\n</domain>");
        let one = attached(&before, &vm("/run/a"), Some(&ask("8G"))).unwrap();
        let two = attached(&one, &vm("/run/b"), Some(&ask("4G"))).unwrap();
        for kept in ["<hugepages/>", "<apic/>", "    <q:arg value='-no-hpet'/>\n", "<source type='memfd'/>"] {
            assert!(one.contains(kept) && two.contains(kept), "{kept}: {two}");
        }
        assert!(one.contains("<access mode='shared'/>") && !one.contains("private"), "{one}");
        assert!(
            one.contains("  <metadata>\n    <vgpu:device ") && one.matches("xmlns:q").count() == 1,
            "{one}"
        );
        assert!(two.contains("/run/b") && !two.contains("/run/a"), "{two}");
        assert!(two.contains("memory='4G'") && !two.contains("8G"), "{two}");
        assert_eq!(attached(&two, &vm("/run/a"), Some(&ask("8G"))).unwrap(), one, "and back");
    }

    #[test]
    fn a_vfio_user_device_of_another_program_stays() {
        let disk =
            r#"{"driver":"vfio-user-pci","id":"nvme0","socket":{"path":"/run/spdk/cntrl","type":"unix"}}"#;
        let line = format!(
            "  <q:commandline>\n    <q:arg value='-device'/>\n    <q:arg value='{disk}'/>\n  </q:commandline>\n</domain>"
        );
        let before = BARE
            .replace("</domain>", &line)
            .replace("<domain ", "<domain xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0' ");
        for vm in [vm("/run/a"), Vm { slot: Some(5), ..vm("/run/a") }] {
            let one = attached(&before, &vm, None).unwrap();
            assert!(one.contains(disk) && one.contains("/run/a"), "{one}");
            assert_eq!(attached(&one, &vm, None).unwrap(), one, "nothing changes twice");
            let wider = Vm { slot: Some(6), ..vm };
            let two = attached(&one, &wider, None).unwrap();
            assert!(two.contains(disk) && two.matches("/run/a").count() == 1, "{two}");
        }
    }

    #[test]
    fn a_domain_that_would_have_to_be_another_is_refused() {
        let old = BARE.replace("pc-q35-9.0", "pc-i440fx-9.0");
        assert!(matches!(attached(&old, &vm("/a"), None), Err(EditError::Machine(_))));
        let slot = Vm { slot: Some(5), ..vm("/a") };
        assert!(attached(&old, &slot, None).unwrap().contains("\"addr\":\"5\""));
        let cell = BARE.replace("<disk/>", "<cell memAccess='private'/>");
        assert!(matches!(attached(&cell, &vm("/a"), None), Err(EditError::PrivateCell)));
        let memory = BARE.replace("<disk/>", "<memory model='virtio-mem'/>");
        assert!(matches!(attached(&memory, &vm("/a"), None), Err(EditError::VirtioMem)));
    }

    #[test]
    fn an_element_on_one_line_gets_children_too() {
        let xml = "<domain><features/><devices><x/></devices></domain>";
        let text = attached(xml, &vm("/a"), Some(&ask("8G"))).unwrap();
        let document = parse(&text).unwrap();
        let root = document.root_element();
        assert!(child(child(root, "features").unwrap(), "acpi").is_some(), "{text}");
        assert!(child(child(root, "devices").unwrap(), "x").is_some(), "{text}");
        assert!(requested(root).is_some() && arguments(root).len() == 4, "{text}");
        assert_eq!(attached(&text, &vm("/a"), Some(&ask("8G"))).unwrap(), text);
    }
}
