//! What a domain's XML says of its device.

use std::path::PathBuf;

use roxmltree::{Document, Node, ParsingOptions};
use serde_json::Value;

use super::request::{ELEMENT, NAMESPACE, Request};

/// Namespace of the arguments that libvirt passes on to QEMU.
pub(super) const QEMU: &str = "http://libvirt.org/schemas/domain/qemu/1.0";
/// Limit of the nodes of a domain's XML. Domains have hundreds.
const NODES: u32 = 100_000;

/// Reason for which a text is not the XML of a domain.
#[derive(Debug, thiserror::Error)]
pub(super) enum DomainError {
    #[error("the domain's XML cannot be understood: {0}")]
    Xml(#[from] roxmltree::Error),
    #[error("the domain's XML has no {0}")]
    Lacks(&'static str),
}

/// Parses a domain's XML.
pub(super) fn parse(xml: &str) -> Result<Document<'_>, DomainError> {
    let options = ParsingOptions { nodes_limit: NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(xml, options)?;
    if !document.root_element().has_tag_name("domain") {
        return Err(DomainError::Lacks("element `domain`"));
    }
    Ok(document)
}

/// Returns the first child of this name.
pub(super) fn child<'a, 'i>(of: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    of.children().find(|node| node.is_element() && node.tag_name().name() == name)
}

/// Returns the element with which a domain asks for a device.
pub(super) fn requested<'a, 'i>(domain: Node<'a, 'i>) -> Option<Node<'a, 'i>> {
    child(domain, "metadata")?.children().find(|node| node.has_tag_name((NAMESPACE, ELEMENT)))
}

/// Returns what an element asks for.
pub(super) fn request(element: Node<'_, '_>) -> Request {
    Request(
        element
            .attributes()
            .map(|attribute| (attribute.name().to_owned(), attribute.value().to_owned()))
            .collect(),
    )
}

/// Returns the arguments that are passed on to QEMU, with their elements.
pub(super) fn arguments<'a, 'i>(domain: Node<'a, 'i>) -> Vec<(Node<'a, 'i>, &'a str)> {
    let line = domain.children().find(|node| node.has_tag_name((QEMU, "commandline")));
    let all = line.into_iter().flat_map(|line| line.children());
    all.filter(|node| node.has_tag_name((QEMU, "arg")))
        .filter_map(|node| Some((node, node.attribute("value")?)))
        .collect()
}

/// A domain that asks for a device.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) uuid: String,
    pub(super) request: Request,
    /// QEMU's program.
    pub(super) emulator: Option<PathBuf>,
    /// Group as which libvirt runs this domain's QEMU, if the domain says so, unless it is root's.
    pub(super) group: Option<String>,
    /// Paths of the vfio-user sockets to which QEMU will connect.
    pub(super) sockets: Vec<String>,
}

impl Domain {
    /// Reads a domain. Returns `None` for one that asks for no device.
    pub(super) fn read(xml: &str) -> Result<Option<Self>, DomainError> {
        let document = parse(xml)?;
        let domain = document.root_element();
        let Some(element) = requested(domain) else { return Ok(None) };
        let text = |name| child(domain, name).and_then(|node| node.text()).map(str::trim);
        let emulator = child(domain, "devices").and_then(|devices| child(devices, "emulator")?.text());
        Ok(Some(Self {
            uuid: text("uuid").ok_or(DomainError::Lacks("element `uuid`"))?.to_owned(),
            request: request(element),
            emulator: emulator.map(|path| PathBuf::from(path.trim())),
            group: group(domain),
            sockets: arguments(domain).iter().filter_map(|(_, value)| socket(value)).collect(),
        }))
    }
}

/// Returns the group of the label that says as whom libvirt runs QEMU: `+64055:+106`, or names. Few domains
/// have one: libvirt 9 adds its own after the hook.
fn group(domain: Node<'_, '_>) -> Option<String> {
    let label = domain
        .children()
        .find(|node| node.has_tag_name("seclabel") && node.attribute("model") == Some("dac"))
        .and_then(|node| child(node, "label")?.text())?;
    let (user, group) = label.trim().split_once(':')?;
    let plain = |text: &str| text.trim_start_matches('+').to_owned();
    (!["0", "root"].contains(&plain(user).as_str())).then(|| plain(group))
}

/// Returns the path of the socket of an argument that defines a vfio-user device.
pub(super) fn socket(argument: &str) -> Option<String> {
    let device: Value = serde_json::from_str(argument).ok()?;
    let of_device = device["driver"] == "vfio-user-pci";
    device["socket"]["path"].as_str().filter(|_| of_device).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_read() {
        let xml = "<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
            <name>vm1</name><uuid>4dea22b3-1d52-d8f3-2516-782e98ab3fa0</uuid>
            <metadata><a:b xmlns:a='urn:a'/><x:device xmlns:x='urn:vgpu-run:device:1' memory='8G'/></metadata>
            <devices><emulator>/usr/bin/qemu</emulator></devices>
            <seclabel type='dynamic' model='apparmor' relabel='yes'><label>libvirt-4dea</label></seclabel>
            <seclabel type='dynamic' model='dac' relabel='yes'><label>+64055:+106</label></seclabel>
            <qemu:commandline><qemu:arg value='-device'/>
            <qemu:arg value='{\"driver\":\"vfio-user-pci\",\"socket\":{\"path\":\"/run/a\"}}'/></qemu:commandline>
            </domain>";
        let domain = Domain::read(xml).unwrap().unwrap();
        assert_eq!(domain.uuid, "4dea22b3-1d52-d8f3-2516-782e98ab3fa0");
        assert_eq!(domain.request.0.get("memory").map(String::as_str), Some("8G"));
        assert_eq!(domain.emulator, Some("/usr/bin/qemu".into()));
        assert_eq!((domain.group.as_deref(), domain.sockets), (Some("106"), vec!["/run/a".to_owned()]));
        // Root may connect anyway, and a domain that has not been prepared has no label.
        for (from, to) in [("+64055:+106", "+0:+0"), ("model='dac'", "model='none'")] {
            assert_eq!(Domain::read(&xml.replace(from, to)).unwrap().unwrap().group, None);
        }
        assert!(Domain::read(&xml.replace("urn:vgpu-run:device:1", "urn:other")).unwrap().is_none());
        assert!(Domain::read(&xml.replace("<metadata>", "<metadat>")).is_err());
        let entity = format!("<!DOCTYPE domain [<!ENTITY a 'urn:vgpu-run:device:1'>]>{xml}");
        assert!(Domain::read(&entity).is_err(), "a document type is refused");
    }
}
