//! Saved states that cannot be: each is refused with the field's name, and nothing is taken.

use std::time::Instant;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde_json::{Value, json};
use vgpu_device::{
    Device, DeviceConfig, DeviceState, KeptDescriptors, Limits, RestoreError, STATE_VERSION, Window,
};
use vgpu_host_testing::bench::{CHANNELS, SHARED, WINDOW};
use vgpu_host_testing::commands::{LAUNCH, allocate, window};
use vgpu_host_testing::guest::{Guest, PATIENCE, until};
use vgpu_host_testing::reload::Reloadable;
use vgpu_wire::area;
use vgpu_wire::body::graph::GraphDefine;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::session::WindowFree;
use vgpu_wire::body::stream::{EventCreate, Signal, StreamCreate, StreamHold};
use vgpu_wire::{Mark, Span};

use crate::bench::{log_lines, worker_config};
use crate::probe;
use crate::reload::{configured, memory, reloadable_of};

/// A device with two sessions that have something of everything, its state, and how to configure it.
struct Scene {
    device: Reloadable,
    _guests: [Guest; 2],
    state: Value,
    config: DeviceConfig,
}

impl Scene {
    fn new() -> Self {
        let workers = worker_config("probe");
        let device = reloadable_of(workers.clone(), Limits::default());
        let (mut one, mut two) = (device.guest(0), device.guest(3));
        window(&mut two, 0x1_0000);
        let range = window(&mut one, 0x1_0000);
        window(&mut one, 0x2_0000);
        allocate(&mut one, 4096);
        one.send(&StreamCreate { stream: 5, flags: 0, priority: 0, reserved: 0 }, &[]);
        one.send(&EventCreate { event: 6, flags: 0 }, &[]);
        one.send(&GraphDefine { graph: 7, nodes: 0, flags: 0, records: Span::inline(0) }, &[]);
        one.send(&Signal { stream: 0, reserved: 0, mark: Mark::new(8, 9) }, &[]);
        one.send(&StreamHold { stream: 0, hold: 1, mark: Mark::NONE }, &[]);
        one.send(&Launch { function: probe::WAIT_FOR_RELEASE, ..LAUNCH }, &[]);
        one.send(&WindowFree { offset: range }, &[]);
        let number = one.number;
        until("all is read", || device.session(0).expect("a session").messages == number);
        let state = device.pause_and_resume().expect("a state").to_json().expect("text");
        let state: Value = serde_json::from_str(&state).expect("JSON");
        one.store_release(1);
        Self { device, _guests: [one, two], state, config: configured(&workers, &memory()) }
    }

    fn judge(&self, state: &Value) -> Result<(), RestoreError> {
        DeviceState::parse(state.to_string().as_bytes())?.check(&self.config)
    }
}

pub fn each_impossible_value_is_named() {
    let scene = Scene::new();
    scene.judge(&scene.state).expect("a possible state");
    let session = "/channels/0/session";
    let worker = "/channels/0/session/running/executor/worker";
    let areas = u64::from(CHANNELS) * area::AREA_BYTES;
    let other = scene.state.pointer("/channels/3/session/memory/ranges/0/0").expect("a range").clone();
    for (part, place, value, named) in [
        ("", "/version", json!(STATE_VERSION + 1), "version"),
        ("", "/wire_version", json!(1), "contract"),
        ("", "/wire_digest", json!(1), "digest"),
        ("", "/address", json!("0000:00:06.0"), "address"),
        ("", "/executor", json!("soft"), "executor"),
        ("", "/facts", json!("00"), "facts"),
        ("", "/generation", json!(0), "generation"),
        ("", "/pages_key", json!(0), "key"),
        ("", "/window_bytes", json!(WINDOW * 2), "window"),
        ("", "/clock", json!(u64::MAX), "clock"),
        ("", "/channels", json!([]), "channels"),
        ("", "/executor_state/unit", json!(7), "unit"),
        ("", "/executor_state/context_bytes", json!(u64::MAX), "context"),
        ("", "/executor_state/other", json!(1), "unknown field"),
        (session, "/number", json!(0), "number of a session"),
        (session, "/number", scene.state["channels"][3]["session"]["number"].clone(), "number of a session"),
        (session, "/memory/ranges/0", json!([areas, 0]), "range of the window"),
        (session, "/memory/ranges/0", json!([areas + 1, 0x1_0000]), "range of the window"),
        (session, "/memory/ranges/0", json!([0, 0x1_0000]), "range of the window"),
        (session, "/memory/ranges/0", json!([other, 0x1_0000]), "range of the window"),
        (session, "/memory/ranges/0", json!([areas, SHARED * 2]), "range of the window"),
        (session, "/memory/ranges/0", json!([u64::MAX - 0xffff, 0x1_0000]), "range of the window"),
        (session, "/memory/returns", json!(1), "run of guest pages"),
        (session, "/memory/segments", json!([{ "number": 9, "runs": [[0, 4096]] }]), "right to register"),
        (session, "/memory/segments", json!([{ "number": 0, "runs": [[0, 4096]] }]), "number of a segment"),
        (session, "/memory/segments", json!([{ "number": 9, "runs": [] }]), "number of runs"),
        (session, "/memory/segments", json!([{ "number": 9, "runs": [[0, 4097]] }]), "run of guest pages"),
        (session, "/figures/kinds", json!([[9999, 1]]), "kind"),
        (session, "/running/head", json!(17), "position in the ring"),
        (session, "/running/head", json!(16), "position in the ring"),
        (session, "/running/done", json!(u64::MAX), "done"),
        (session, "/running/number", json!(u64::MAX), "position in the ring"),
        (session, "/running/taken", json!("00"), "size of a message"),
        (session, "/running/taken", json!("0"), "hexadecimal"),
        (session, "/running/dispatch/promised", json!([[area::WORDS, 1]]), "completion word"),
        (session, "/running/dispatch/promised", json!([[0, 1]]), "completion word"),
        (session, "/running/dispatch/handles/0", json!([5, 5]), "streams"),
        (session, "/running/dispatch/handles/1", json!((0..70_000).collect::<Vec<u32>>()), "events"),
        (session, "/running/dispatch/graphs/0/kinds", json!([3]), "kind of a graph's node"),
        (session, "/running/dispatch/graphs/0/copies", json!([[0, 1, 0]]), "node of a graph"),
        (
            session,
            "/running/dispatch/pending",
            json!({ "message": "", "records": null }),
            "message that waits",
        ),
        (worker, "/protocol", json!(7), "protocol"),
        (worker, "/pid", json!(0), "process of a worker"),
        (worker, "/pid", json!(1), "process of a worker"),
        (worker, "/pid", json!(u32::MAX), "process of a worker"),
        (worker, "/age", json!(u64::MAX), "age"),
        (worker, "/newest", json!(u64::MAX), "newest message"),
        (worker, "/known", json!(u64::MAX), "worker knows"),
        (worker, "/asked", json!(u64::MAX), "asked about"),
        (worker, "/done_here", json!(u64::MAX), "without the worker"),
        (worker, "/retirements", json!(0), "retired memory"),
        (
            worker,
            "/retired/0/1",
            json!({ "Window": { "offset": other, "bytes": 0x1_0000 } }),
            "range of the window",
        ),
        (worker, "/tail", json!(8), "position in a worker's ring"),
        (worker, "/backlog", json!(1_u64 << 30), "frames that wait"),
        (worker, "/files", json!(u64::MAX), "something of a worker"),
        (worker, "/usage/pending", json!([[u64::MAX, 1]]), "requests for memory"),
    ] {
        let mut state = scene.state.clone();
        let place = format!("{part}{place}");
        let (parent, name) = place.rsplit_once('/').expect("a field");
        match state.pointer_mut(parent).unwrap_or_else(|| panic!("{parent}")) {
            Value::Array(all) => all[name.parse::<usize>().expect("an index")] = value.clone(),
            all => all[name] = value.clone(),
        }
        let refused = scene.judge(&state).expect_err(&place).to_string();
        assert!(refused.contains(named), "{place}: {refused}");
    }
    // A worker may be of the version before.
    let mut state = scene.state.clone();
    state["channels"][0]["session"]["running"]["executor"]["worker"]["protocol"] = json!(0);
    scene.judge(&state).expect("a worker of the protocol before");
    // A state of another version is named as such, whatever its fields are.
    let refused = DeviceState::parse(br#"{ "version": 99, "news": 1 }"#);
    assert!(matches!(refused, Err(RestoreError::Version(99))));
    scene.device.reload();
}

/// Random values are refused, or at least nothing panics.
pub fn random_values_do_no_harm() {
    let scene = Scene::new();
    let places = leaves(&scene.state, String::new());
    let change = (any::<prop::sample::Index>(), 0..5, any::<u64>());
    let config = Config { cases: 2000, failure_persistence: None, ..Config::default() };
    let ran = TestRunner::new(config).run(&prop::collection::vec(change, 1..4), |changes| {
        let mut state = scene.state.clone();
        for (place, form, number) in changes {
            let value = match form {
                0 => json!(number),
                1 => json!(number % 30),
                2 => json!(u64::MAX - number % 30),
                3 => Value::Null,
                _ => json!([[number, number % 0x4_0000]]),
            };
            if let Some(place) = state.pointer_mut(&places[place.index(places.len())]) {
                *place = value;
            }
        }
        let _ = scene.judge(&state);
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
}

/// Returns the place of each value that has no parts.
fn leaves(value: &Value, place: String) -> Vec<String> {
    match value {
        Value::Array(all) if !all.is_empty() => {
            all.iter().enumerate().flat_map(|(at, value)| leaves(value, format!("{place}/{at}"))).collect()
        }
        Value::Object(all) => {
            all.iter().flat_map(|(name, value)| leaves(value, format!("{place}/{name}"))).collect()
        }
        _ => vec![place],
    }
}

/// A session whose worker is somebody else, or of which a descriptor is missing or is another file, is lost, and
/// no other with it.
pub fn what_is_missing_loses_its_session() {
    for case in ["a descriptor", "another file", "another process"] {
        let workers = worker_config("probe");
        let device = reloadable_of(workers.clone(), Limits::default());
        let (mut guest, mut other) = (device.guest(0), device.guest(1));
        for guest in [&mut guest, &mut other] {
            guest.send(&LAUNCH, &[]);
            until("all is done", || guest.done() == guest.number);
        }
        let worker = device.session(0).expect("a session").worker.expect("a worker");
        let paused = device.device().pause(Instant::now() + PATIENCE).expect("a state");
        let text = paused.state.to_json().expect("text");
        let mut state: Value = serde_json::from_str(&text).expect("JSON");
        let session = state["channels"][0]["session"]["number"].as_u64().expect("a number") as u32;
        let mut kept = paused.descriptors;
        let ring = KeptDescriptors::of_session(session, "ring");
        match case {
            "a descriptor" => drop(kept.take(&ring).expect("a ring")),
            "another file" => {
                drop(kept.take(&ring).expect("a ring"));
                let file = Window::anonymous(4096).expect("memory");
                kept.keep(ring.clone(), file.file()).expect("a descriptor");
            }
            _ => {
                let worker = &mut state["channels"][0]["session"]["running"]["executor"]["worker"];
                worker["pid"] = json!(std::process::id());
            }
        }
        let state = DeviceState::parse(state.to_string().as_bytes()).expect("a state");
        let window = Window::private(WINDOW).expect("a window");
        let config = configured(&workers, &memory());
        let restored = Device::restore(&config, &state, &mut kept, window.into(), 0).expect("a device");
        assert_eq!(kept.iter().count(), 0, "nothing is left");
        let status = restored.status();
        let states: Vec<&str> = status.sessions.iter().map(|session| session.state.as_str()).collect();
        assert_eq!((states, restored.figures().lost.worker), (vec!["failed", "attached"], 1), "{case}");
        let named = match case {
            "a descriptor" => format!("the descriptor {ring} is missing"),
            "another file" => format!("the descriptor {ring} cannot be used"),
            _ => format!("process of a worker cannot be {}", std::process::id()),
        };
        assert_eq!(
            log_lines(&["cannot be restored", &format!("session={session}"), &named]).len(),
            1,
            "{case}"
        );
        // Nobody else uses the memory of a session that is lost.
        if case != "another process" {
            let pid = Pid::from_raw(worker.cast_signed()).expect("a process");
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
            assert!(waitid(WaitId::Pid(pid), look).is_err(), "{case}: it is reaped");
        }
        std::mem::forget((restored, device));
    }
}
