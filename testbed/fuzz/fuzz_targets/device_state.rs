//! Reads random text as the saved state of a device, and a state of which random fields have random values.
//! What is accepted is written as it was read, names no process that cannot be a worker, and gives no memory
//! to two sessions.
#![no_main]

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use vgpu_device::{Device, DeviceConfig, DeviceState, Executor as _, GpuConfig, Window};
use vgpu_executor_null::Null;
use vgpu_worker::{WorkerConfig, WorkerExecutor};

const CHANNELS: u32 = 3;
const AREAS: u64 = CHANNELS as u64 * 0x8_0000;
const WINDOW: u64 = 4 << 20;

static CONFIG: LazyLock<DeviceConfig> = LazyLock::new(|| {
    let gpu = GpuConfig::new("VGPU-STUB fuzz").expect("a GPU");
    let workers = WorkerConfig {
        name: "fuzz",
        facts: Null::new(&gpu).expect("a null executor").facts(),
        memory_unit: 4096,
        context_bytes: 0,
        lock: None,
        addresses: gpu.addresses,
        program: "/proc/self/exe".into(),
        arguments: Vec::new(),
        executor: Value::Null,
        user: None,
        connects: false,
        explains: false,
        compiled: None,
    };
    let executor = Arc::new(WorkerExecutor::new(workers).expect("an executor"));
    let address = "0000:00:05.0".parse().expect("an address");
    DeviceConfig { window_bytes: WINDOW, channels: CHANNELS, ..DeviceConfig::new(address, executor) }
});

/// The state of an idle device, to which a session with every field is added.
static STATE: LazyLock<Value> = LazyLock::new(|| {
    let window = Arc::new(Window::private(WINDOW).expect("a window"));
    let device = Device::new(&CONFIG, window, 0).expect("a device");
    let paused = device.pause(Instant::now() + Duration::from_secs(20)).expect("a state");
    let mut state: Value = serde_json::from_str(&paused.state.to_json().expect("text")).expect("JSON");
    state["next_session"] = 3.into();
    state["channels"][0]["session"] = session(1, AREAS);
    state["channels"][2]["session"] = session(2, AREAS + 0x3_0000);
    let text = state.to_string();
    DeviceState::parse(text.as_bytes()).expect("a state").check(&CONFIG).expect("a possible one");
    state
});

fn session(number: u32, range: u64) -> Value {
    json!({
        "number": number, "process": 77, "sticky": false,
        "memory": { "may_register": false, "returns": null, "ranges": [[range, 0x1_0000]], "segments": [] },
        "figures": {
            "busy_ns": 1, "out_of_memory": 2, "out_of_memory_in_worker": 3, "messages": 4, "done": 5,
            "host_sleeps": 6, "kinds": [[1, 9]], "joins": 1, "waits": 1, "bytes_in": 1, "bytes_out": 1,
            "in_graphs": 1,
        },
        "running": {
            "head": 0x1000, "done": 7, "number": 9, "taken": "00".repeat(32),
            "dispatch": {
                "promised": [[3, 4]], "handles": [[1, 2], [3], [], [4]],
                "graphs": [{ "number": 4, "kinds": [], "copies": [] }],
                "refused": [false, true, false, false], "pending": null,
            },
            "executor": { "worker": {
                "protocol": 1, "pid": 4711 + number, "pidfd": true, "age": 5, "newest": 9, "done_here": 3, "asked": 2,
                "known": 9, "retirements": 6, "files": 2,
                "retired": [[5, { "Window": { "offset": range + 0x1_0000, "bytes": 0x1_0000 } }]],
                "tail": 0x400, "backlog": 16,
                "usage": { "context": true, "pending": [[8, 4096]], "granted": 1, "granted_bytes": 4096 },
            } },
        },
    })
}

/// Replaces the value at a place, which counts the values as they are written.
fn replace(value: &mut Value, place: &mut usize, with: &Value) {
    match value {
        Value::Array(all) if !all.is_empty() => all.iter_mut().for_each(|value| replace(value, place, with)),
        Value::Object(all) => all.values_mut().for_each(|value| replace(value, place, with)),
        value => {
            if *place == 0 {
                *value = with.clone();
            }
            *place = place.wrapping_sub(1);
        }
    }
}

fn judge(text: &[u8]) {
    let Ok(state) = DeviceState::parse(text) else { return };
    let written = state.to_json().expect("text");
    assert_eq!(DeviceState::parse(written.as_bytes()).expect("what was written"), state);
    if state.check(&CONFIG).is_err() {
        return;
    }
    let state: Value = serde_json::from_str(&written).expect("JSON");
    let mut granules = BTreeSet::new();
    let mut take = |offset: u64, bytes: u64| {
        assert!(bytes > 0 && offset >= AREAS && offset + bytes <= WINDOW);
        assert!((offset..offset + bytes).step_by(0x1_0000).all(|granule| granules.insert(granule)));
    };
    for channel in state["channels"].as_array().expect("channels") {
        let session = &channel["session"];
        for range in session["memory"]["ranges"].as_array().into_iter().flatten() {
            take(range[0].as_u64().expect("an offset"), range[1].as_u64().expect("a size"));
        }
        let worker = &session["running"]["executor"]["worker"];
        for retired in worker["retired"].as_array().into_iter().flatten() {
            let range = &retired[1]["Window"];
            take(range["offset"].as_u64().expect("an offset"), range["bytes"].as_u64().expect("a size"));
        }
        assert!(worker.is_null() || worker["pid"].as_u64().is_some_and(|pid| pid > 1 && pid < 1 << 31));
    }
}

fuzz_target!(|input: (Vec<(u16, u8, u64)>, &[u8])| {
    let (changes, text) = input;
    judge(text);
    let mut state = STATE.clone();
    for (place, form, number) in changes {
        let with = match form % 5 {
            0 => number.into(),
            1 => (number % 20).into(),
            2 => Value::Null,
            3 => String::from_utf8_lossy(text).into(),
            _ => json!([[number, number]]),
        };
        replace(&mut state, &mut place.into(), &with);
    }
    judge(state.to_string().as_bytes());
});
