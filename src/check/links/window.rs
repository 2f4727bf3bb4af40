//! Link `window`: checks that the shared window can be mapped, how it is mapped, and how fast it is. The
//! worker of link `device` measures it.

use super::device::failed;
use super::together;
use crate::check::context::CheckContext;
use crate::check::facts::OpenedFunction;
use crate::check::messages::{Open, Window};
use crate::diagnosis::cause::window as cause;
use crate::diagnosis::{Finding, LinkId};

const LINK: LinkId = LinkId::Window;
/// Speed of writes in MB/s below which the window is assumed to be mapped with the wrong caching.
const SLOW_MB_S: f64 = 200.0;

/// Examines the link of all devices.
pub async fn examine(context: &mut CheckContext) -> Finding {
    let judged = |opened: &OpenedFunction| (opened.function.address.to_string(), judge(opened));
    together(context.opened.iter().map(judged).collect())
        .unwrap_or_else(|| Finding::skip(LINK, "there is no device"))
}

fn judge(opened: &OpenedFunction) -> Finding {
    let name = opened.function.address;
    let open = opened.steps.said::<Open>();
    if let Some(finding) = failed(opened, LINK) {
        return match (finding.cause, &open) {
            (Some(cause::NO_CHANNEL), Some(open)) => {
                let channels = open.channels;
                finding
                    .expected("a free channel for each process that uses the device")
                    .detail(format!("{channels} channels of {name}, each with a living process"))
            }
            _ => finding,
        };
    }
    let Some(open) = open else {
        return Finding::unknown(LINK, format!("the window of {name} was not examined"));
    };
    if failed(opened, LinkId::Host).is_some() && opened.steps.succeeded::<Open>().is_none() {
        return Finding::skip(LINK, "not reached (needs host)");
    }
    let window = opened.steps.said::<Window>();
    if let Some(window) = window.as_ref().filter(|window| window.version == Some(1)) {
        return version_1(window);
    }
    let (mib, kind) = (open.window_mib, open.kind);
    let Some((window, bytes)) = window.and_then(|window| window.bytes.map(|bytes| (window, bytes))) else {
        return Finding::pass(LINK, format!("{mib} MiB, {kind}, speed not measured"));
    };
    let (write, read) = (window.write_mb_s, window.read_mb_s);
    let mut found = format!("{mib} MiB, {kind}, writes {}, reads {}", speed(write), speed(read));
    let reading = reading(&window);
    if window.page_bytes > 0 {
        let mib = window.page_bytes >> 20;
        found = format!("{found}; answers come through {mib} MiB of this guest's large pages");
    }
    if write < SLOW_MB_S {
        return Finding::warn(cause::WINDOW_SLOW, found)
            .expected("a gigabyte per second and more")
            .detail(format!("measured with {} KiB", bytes >> 10))
            .details(reading);
    }
    Finding::pass(LINK, found).details(reading)
}

/// Describes the path of the host's answers and copies, the reason for it, and the measured speeds of both
/// paths.
fn reading(window: &Window) -> Vec<String> {
    let way = if window.page_bytes > 0 { "guest pages" } else { "the window" };
    let why = &window.why;
    let mut lines = if why.is_empty() { Vec::new() } else { vec![format!("read through {way}: {why}")] };
    if let (Some(polled), Some(pages)) = (window.polled_mb_s, window.pages_mb_s) {
        lines.push(format!(
            "loads of 8 bytes: {} from the window (resource2), {} from guest pages",
            speed(polled),
            speed(pages)
        ));
    }
    if window.reads_well == Some(false) {
        lines.push(
            "pinned memory of programs is ordinary memory: they would read the window far too slowly"
                .to_owned(),
        );
    }
    lines
}

/// Returns the finding for a version 1 device, which has no window of its own. Guests give it pages or
/// transfer data through registers.
fn version_1(window: &Window) -> Finding {
    match window.pages {
        Some(bytes) => Finding::pass(LINK, format!("{} MiB of this guest's large pages", bytes >> 20)),
        None => Finding::pass(LINK, "none: data goes through BAR1, 8 bytes at a time").detail(
            "root, with large pages set aside (sysctl vm.nr_hugepages=8 for each process) and hugetlbfs mounted (systemd does), has a window, \
             which is far faster",
        ),
    }
}

/// Formats a speed given in megabytes per second.
fn speed(mb_s: f64) -> String {
    if mb_s < 1000.0 { format!("{mb_s:.0} MB/s") } else { format!("{:.1} GB/s", mb_s / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::super::device::tests::opened;
    use super::*;
    use crate::diagnosis::Status;

    const OPEN: &str = r#"{"step":"open","ok":true,"window_mib":256,"kind":"write-combined","channels":1}"#;

    #[test]
    fn fast_slow_and_not_measured() {
        let window = |write: u32| {
            format!(r#"{{"step":"window","ok":true,"bytes":4194304,"write_mb_s":{write},"read_mb_s":150}}"#)
        };
        let finding = judge(&opened(&[OPEN, &window(7400)], None));
        assert_eq!(finding.status, Status::Pass);
        assert_eq!(finding.found, "256 MiB, write-combined, writes 7.4 GB/s, reads 150 MB/s");
        assert_eq!(judge(&opened(&[OPEN, &window(90)], None)).issue().unwrap(), "window/window-slow");
        assert!(judge(&opened(&[OPEN], None)).found.ends_with("not measured"));
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
        let finding = judge(&opened(&[OPEN, &pages], None));
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
        let finding = judge(&opened(&[OPEN, &window], None));
        assert!(finding.found.ends_with("reads 150 MB/s"));
        assert_eq!(finding.details, ["read through the window: only root may"]);
    }

    #[test]
    fn channels_that_are_all_taken() {
        let line = r#"{"step":"attach","ok":false,"link":"window","cause":"no-channel","found":"all 1 channels are in use"}"#;
        let finding = judge(&opened(&[OPEN, line], None));
        assert_eq!(finding.issue().unwrap(), "window/no-channel");
        assert!(finding.fix.is_some());
    }
}
