//! The number of the protocol between the device's process and a worker. A worker runs the code with which it
//! was started until its session ends, also while the device's process is replaced by another version.
//!
//! The number changes with each change of the setup, the frames, the orders, the reports or the words of the
//! status page. The tests below hold the bytes of this number and of the one before it.

/// Number of the protocol that this code speaks.
pub(crate) const PROTOCOL: u32 = 1;

/// Protocol of another process that this code does not speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other process speaks protocol {0}, this one {PROTOCOL} and the one before it")]
pub(crate) struct OtherProtocol(pub(crate) u32);

/// Accepts this code's number and the one before it. Number 0 is that of code which does not say any.
///
/// # Errors
/// It is another number.
pub(crate) const fn accept(number: u32) -> Result<(), OtherProtocol> {
    match PROTOCOL.checked_sub(number) {
        Some(0 | 1) => Ok(()),
        _ => Err(OtherProtocol(number)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use vgpu_device::{Gauges, Limits, SharedRange, Window};
    use zerocopy::IntoBytes as _;

    use super::*;
    use crate::shared::frame::{FileRun, FrameHead, FrameKind, GrantRecord, RefusalRecord, room};
    use crate::shared::packet::WorkerOrder;
    use crate::shared::report::WorkerReport;
    use crate::shared::setup::{FileRange, Setup, WorkerUser};
    use crate::shared::status_page::{STATUS_PAGE_BYTES, Sleeper, StatusPage};

    /// A setup of protocol 1.
    const SETUP_1: &str = include_str!("setup-1.json");

    fn setup(protocol: u32) -> Setup {
        Setup {
            protocol,
            session: 7,
            channel: 3,
            process: 4711,
            wakes: true,
            window: FileRange { offset: 0, bytes: 1 << 28 },
            area: FileRange { offset: 0x40_0000, bytes: 0x10_0000 },
            returns: Some(FileRange { offset: 0x20_0000, bytes: 0x1_0000 }),
            lock: true,
            now: 123_456_789,
            limits: Limits::default(),
            identity: Some(WorkerUser { user: 997, group: 996, groups: vec![996, 44] }),
            connects: false,
            explains: true,
            log: "warn".to_owned(),
            executor: serde_json::json!({ "kind": "cuda", "gpu": 0 }),
        }
    }

    #[test]
    fn the_own_number_and_the_one_before_are_accepted() {
        let accepted: Vec<u32> = (0..5).chain([u32::MAX]).filter(|number| accept(*number).is_ok()).collect();
        assert_eq!(accepted, [PROTOCOL - 1, PROTOCOL]);
        let refused = accept(PROTOCOL + 1).unwrap_err().to_string();
        assert_eq!(refused, "the other process speaks protocol 2, this one 1 and the one before it");
    }

    /// Protocol 0 has the setup of protocol 1 without a number.
    #[test]
    fn setups_of_both_numbers_are_read() {
        let mut golden: serde_json::Value = serde_json::from_str(SETUP_1).unwrap();
        // The number of mappings depends on the system.
        let limits = golden["limits"].as_object_mut().unwrap();
        limits.insert("mappings".to_owned(), Limits::default().mappings.into());
        assert_eq!(serde_json::to_value(setup(1)).unwrap(), golden);
        assert_eq!(serde_json::from_value::<Setup>(golden.clone()).unwrap(), setup(1));
        golden.as_object_mut().unwrap().remove("protocol").unwrap();
        assert_eq!(serde_json::from_value::<Setup>(golden).unwrap(), setup(0));
    }

    /// Both numbers have these bytes.
    #[test]
    fn frames_orders_and_reports_keep_their_bytes() {
        let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let kinds = [
            FrameKind::Pad,
            FrameKind::Message,
            FrameKind::Payload,
            FrameKind::Refuse,
            FrameKind::Join,
            FrameKind::Through,
            FrameKind::Grant,
            FrameKind::Retire,
            FrameKind::Settle,
        ];
        for (number, kind) in (0..).zip(kinds) {
            assert_eq!((kind as u32, FrameKind::from_number(number)), (number, Some(kind)));
        }
        assert_eq!(FrameKind::from_number(9), None);
        let head = FrameHead { kind: 6, bytes: 40, number: 0x0102_0304_0506_0708 };
        assert_eq!(hex(head.as_bytes()), "06000000280000000807060504030201");
        let refusal = RefusalRecord { code: 999, reason: 5 };
        assert_eq!(hex(refusal.as_bytes()), "e703000005000000");
        let window = GrantRecord::from(SharedRange::Window { offset: 0x1000, bytes: 0x2000 });
        assert_eq!(hex(window.as_bytes()), "000000000000000000100000000000000020000000000000");
        let pages = GrantRecord::from(SharedRange::Pages { segment: 9 });
        assert_eq!(hex(pages.as_bytes()), "090000000000000000000000000000000000000000000000");
        let run = FileRun { file: 1, offset: 2, bytes: 3 };
        assert_eq!(hex(run.as_bytes()), "010000000000000002000000000000000300000000000000");
        assert_eq!((room(1), room(16), room(17)), (16, 16, 32));

        for (order, bytes) in [
            (WorkerOrder::Files(5), "01000000000000000500000000000000"),
            (WorkerOrder::Stop, "02000000000000000000000000000000"),
            (WorkerOrder::Reserved(true), "03000000000000000100000000000000"),
            (WorkerOrder::Reserved(false), "03000000000000000000000000000000"),
        ] {
            assert_eq!(hex(&order.encode()), bytes);
            assert_eq!(WorkerOrder::decode(&order.encode()), Some(order));
        }
        for (report, bytes) in [
            (WorkerReport::Memory, "01000000000000000000000000000000"),
            (WorkerReport::Retired(3), "02000000000000000300000000000000"),
            (WorkerReport::Violation(4, "ab".to_owned()), "030000000200000004000000000000006162"),
            (WorkerReport::Lost(5, "c".to_owned()), "0400000001000000050000000000000063"),
            (WorkerReport::Worked, "05000000000000000000000000000000"),
            (WorkerReport::Complete, "06000000000000000000000000000000"),
            (WorkerReport::Reserve(6), "07000000000000000600000000000000"),
        ] {
            assert_eq!(hex(&report.encode()), bytes);
            assert_eq!(WorkerReport::decode(&report.encode()), Ok(report));
        }
    }

    /// Both numbers have these words.
    #[test]
    fn words_of_the_status_page_keep_their_places() {
        let memory = Window::anonymous(STATUS_PAGE_BYTES).unwrap();
        let words =
            Window::from_file_range(memory.file().try_clone_to_owned().unwrap().into(), 0, STATUS_PAGE_BYTES)
                .unwrap();
        let page = StatusPage::new(memory);
        let gauges = Gauges::default();
        gauges.allocated.store(0x11, Ordering::Relaxed);
        gauges.out_of_memory.store(0x12, Ordering::Relaxed);
        let narrow =
            [&gauges.allocations, &gauges.streams, &gauges.events, &gauges.modules, &gauges.contexts];
        for (value, gauge) in (0x21..).zip(narrow) {
            gauge.store(value, Ordering::Relaxed);
        }
        page.store_gauges(&gauges, 0x13);
        page.set_tail(1);
        page.set_awake(2);
        page.set_head(3);
        page.set_executed(4);
        page.set_settled(5);
        page.set_complete(6);
        page.set_reserved(7);
        page.raise_busy(Duration::from_nanos(8));
        let wide = |at| words.u64_at(at).load(Ordering::Acquire);
        let expected = [
            (0x00, 1),
            (0x40, 3),
            (0x48, 4),
            (0x50, 5),
            (0x58, 6),
            (0x60, 7),
            (0x100, 0x11),
            (0x108, 0x13),
            (0x128, 8),
            (0x130, 0x12),
        ];
        for (at, value) in expected {
            assert_eq!(wide(at), value, "{at:#x}");
        }
        let small = |at| words.u32_at(at).load(Ordering::Acquire);
        let expected = [(0x08, 2), (0x110, 0x21), (0x114, 0x22), (0x118, 0x23), (0x11c, 0x24), (0x120, 0x25)];
        for (at, value) in expected {
            assert_eq!(small(at), value, "{at:#x}");
        }
        for (sleeper, at) in [(Sleeper::Worker, 0x80), (Sleeper::Device, 0xc0)] {
            let mut asleep = 0;
            page.sleep(sleeper, None, || {
                asleep = words.u32_at(at).load(Ordering::Acquire);
                true
            });
            assert_eq!((asleep, small(at)), (1, 0), "{at:#x}");
        }
    }
}
