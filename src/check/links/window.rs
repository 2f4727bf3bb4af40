//! Link `window`: whether the shared window can be mapped, how it is mapped, and how fast it is. Measured in the child of link `device`.

use super::device::failed;
use crate::check::child::Report;
use crate::check::context::{Context, Looked};
use crate::diagnosis::cause::window as cause;
use crate::diagnosis::{Finding, LinkId};

const LINK: LinkId = LinkId::Window;
/// A window that is written more slowly than this is not mapped as it should be.
const SLOW_MB_S: f64 = 200.0;

/// Looks at the link.
pub async fn look(context: &mut Context) -> Finding {
    let mut findings = context.looks.iter().map(judge);
    let first = findings.next();
    findings
        .find(|finding| !finding.holds())
        .or(first)
        .unwrap_or_else(|| Finding::skip(LINK, "there is no device"))
}

fn judge(looked: &Looked) -> Finding {
    let name = looked.function.address;
    let open = looked.steps.get("open");
    if let Some(finding) = failed(looked, LINK) {
        return match (finding.cause, open) {
            (Some(cause::NO_CHANNEL), Some(open)) => {
                let channels = open.whole("channels").unwrap_or_default();
                finding
                    .expected("a free channel for each process that uses the device")
                    .fix("End programs that use the device, or have the host give it more channels.")
                    .detail(format!("{channels} channels of {name}, each with a living process"))
            }
            _ => finding,
        };
    }
    let Some(open) = open else {
        return Finding::unknown(LINK, format!("nothing is known of the window of {name}"));
    };
    if failed(looked, LinkId::Host).is_some_and(|_| !open.ok) {
        return Finding::skip(LINK, "not reached (needs host)");
    }
    if let Some(window) = looked.steps.get("window").filter(|report| report.whole("version") == Some(1)) {
        return version_1(window);
    }
    let mib = open.whole("window_mib").unwrap_or_default();
    let kind = open.text("kind");
    let Some(window) = looked.steps.get("window").filter(|report| report.whole("bytes").is_some()) else {
        return Finding::pass(LINK, format!("{mib} MiB, {kind}, speed not measured"));
    };
    let number = |field| window.number(field).unwrap_or_default();
    let (write, read) = (number("write_mb_s"), number("read_mb_s"));
    let mut found = format!("{mib} MiB, {kind}, writes {}, reads {}", speed(write), speed(read));
    let reading = reading(window);
    if let Some(pages) = window.whole("page_bytes").filter(|bytes| *bytes > 0) {
        found = format!("{found}; answers come through {} MiB of this guest's large pages", pages >> 20);
    }
    if write < SLOW_MB_S {
        return Finding::warn(cause::WINDOW_SLOW, found)
            .expected("a gigabyte per second and more")
            .fix(
                "Have the host back the window by shared memory that the hypervisor maps into the VM, and make BAR2 \
                 prefetchable.",
            )
            .detail(format!("measured with {} KiB", window.whole("bytes").unwrap_or_default() >> 10));
    }
    Finding::pass(LINK, found).details(reading)
}

/// Which way the host's answers and copies come, and why; what a few loads of each way showed.
fn reading(window: &Report) -> Vec<String> {
    let way = if window.whole("page_bytes").unwrap_or_default() > 0 { "guest pages" } else { "the window" };
    let why = window.text("why");
    let mut lines = if why.is_empty() { Vec::new() } else { vec![format!("read through {way}: {why}")] };
    if let (Some(polled), Some(pages)) = (window.number("polled_mb_s"), window.number("pages_mb_s")) {
        lines.push(format!(
            "loads of 8 bytes: {} from the window (resource2), {} from guest pages",
            speed(polled),
            speed(pages)
        ));
    }
    if window.fields.get("reads_well").is_some_and(|well| *well == false) {
        lines.push(
            "pinned memory of programs is ordinary memory: they would read the window far too slowly"
                .to_owned(),
        );
    }
    lines
}

/// A device of version 1 has no window of its own: guests give it pages, or go without.
fn version_1(window: &Report) -> Finding {
    match window.whole("pages") {
        Some(bytes) => Finding::pass(LINK, format!("{} MiB of this guest's large pages", bytes >> 20)),
        None => Finding::pass(LINK, "none: data goes through BAR1, 8 bytes at a time").detail(
            "root, with large pages set aside (sysctl vm.nr_hugepages=8 for each process) and hugetlbfs mounted (systemd does), has a window, \
             which is far faster",
        ),
    }
}

/// A speed as people write it, of megabytes a second.
fn speed(mb_s: f64) -> String {
    if mb_s < 1000.0 { format!("{mb_s:.0} MB/s") } else { format!("{:.1} GB/s", mb_s / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::super::device::tests::looked;
    use super::*;
    use crate::diagnosis::Status;

    const OPEN: &str = r#"{"step":"open","ok":true,"window_mib":256,"kind":"write-combined","channels":1}"#;

    #[test]
    fn fast_slow_and_not_measured() {
        let window = |write: u32| {
            format!(r#"{{"step":"window","ok":true,"bytes":4194304,"write_mb_s":{write},"read_mb_s":150}}"#)
        };
        let finding = judge(&looked(&[OPEN, &window(7400)], None));
        assert_eq!(finding.status, Status::Pass);
        assert_eq!(finding.found, "256 MiB, write-combined, writes 7.4 GB/s, reads 150 MB/s");
        assert_eq!(judge(&looked(&[OPEN, &window(90)], None)).issue().unwrap(), "window/window-slow");
        assert!(judge(&looked(&[OPEN], None)).found.ends_with("not measured"));
    }

    #[test]
    fn the_way_back_and_why() {
        let line = |fields: &str| {
            format!(
                r#"{{"step":"window","ok":true,"bytes":4194304,"write_mb_s":7400,"read_mb_s":150,{fields}}}"#
            )
        };
        let pages = line(
            r#""page_bytes":4194304,"why":"because","polled_mb_s":80,"pages_mb_s":9000,"reads_well":false"#,
        );
        let finding = judge(&looked(&[OPEN, &pages], None));
        assert!(
            finding.found.ends_with("; answers come through 4 MiB of this guest's large pages"),
            "{finding:?}"
        );
        assert_eq!(finding.details[0], "read through guest pages: because");
        assert_eq!(
            finding.details[1],
            "loads of 8 bytes: 80 MB/s from the window (resource2), 9.0 GB/s from guest pages"
        );
        assert!(finding.details[2].starts_with("pinned memory"));
        let window = line(r#""page_bytes":0,"why":"only root may","polled_mb_s":null,"reads_well":true"#);
        let finding = judge(&looked(&[OPEN, &window], None));
        assert!(finding.found.ends_with("reads 150 MB/s"));
        assert_eq!(finding.details, ["read through the window: only root may"]);
    }

    #[test]
    fn channels_that_are_all_taken() {
        let line = r#"{"step":"attach","ok":false,"link":"window","cause":"no-channel","found":"all 1 channels are in use"}"#;
        let finding = judge(&looked(&[OPEN, line], None));
        assert_eq!(finding.issue().unwrap(), "window/no-channel");
        assert!(finding.fix.is_some());
    }
}
