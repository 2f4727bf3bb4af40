//! Entry of calls into the library: a single lock, a line of the record for each call, the device's thread,
//! and the thread that calls host functions of the program. As CUDA permits, there is one such thread: a
//! function that waits delays those of other streams, and no other work.
//!
//! A driver may make any call wait for its work, and other calls beside it. With driver 580.159.04 a load, an
//! unload and the end of pinned memory wait until no stream waits for the host. While one of them, or a
//! submission to a full queue, waits, submissions of all threads wait too, and queries return
//! (`testbed/bench/drivers`). The options `blocking` and `queue` make this library do so.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use vgpu_abi::CUresult;
use vgpu_abi::driver::arg::{In, InOut, Out, Text};
use vgpu_abi::driver::{
    CUcontext, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUhostFn, CUlinkState, CUmodule,
    CUstream,
};

use crate::graph::NodeKind;
use crate::machine::{DeviceStep, RecordingMachine};
use crate::options::RecordingOptions;
use crate::raw::{
    self, DeviceAddress, Extra, HostAddress, HostFunction, ImageAddress, JitValues, Parameters,
};
use crate::record::RecordLine;
use crate::rule::{CallRefusal, CallResult, Rule};

/// Interval at which the device polls words for which its work waits, and files that hold work.
const LOOK: Duration = Duration::from_micros(100);

/// Duration of each piece of work, so that a program that queries at once finds it pending.
const PACE: Duration = Duration::from_micros(20);

/// Prefixes of the functions that wait beside a call that waits for the device.
const SUBMISSIONS: [&str; 8] = [
    "cuLaunch",
    "cuMemcpy",
    "cuMemset",
    "cuGraphLaunch",
    "cuEventRecord",
    "cuModuleGetFunction",
    "cuStreamCreate",
    "cublas",
];

/// Functions that need no `cuInit`.
const BEFORE_INIT: &[&str] = &["cuInit", "cuDriverGetVersion"];

struct RecordingLibrary {
    machine: Mutex<RecordingMachine>,
    /// Condition that is notified when work is enqueued, completed or dropped.
    changed: Condvar,
}

thread_local! {
    /// Whether this is the thread that calls host functions of the program.
    static CALLS_FUNCTIONS: Cell<bool> = const { Cell::new(false) };
}

static LIBRARY: LazyLock<RecordingLibrary> = LazyLock::new(|| {
    let machine = Mutex::new(RecordingMachine::new(RecordingOptions::find(raw::library().as_deref())));
    thread::spawn(run_device);
    RecordingLibrary { machine, changed: Condvar::new() }
});

fn lock() -> MutexGuard<'static, RecordingMachine> {
    LIBRARY.machine.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the device: completes one piece of work after the other for as long as the process lives.
fn run_device() {
    let (functions, queue) = mpsc::channel();
    thread::spawn(move || call_functions(&queue));
    let mut machine = lock();
    loop {
        if machine.work.is_empty() {
            machine = LIBRARY.changed.wait(machine).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        if machine.options.hold.as_ref().is_some_and(|file| file.exists()) {
            let waited = LIBRARY.changed.wait_timeout(machine, LOOK);
            machine = waited.unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        let step = machine.step();
        match step {
            // The remaining work waits for words that the program writes.
            DeviceStep::Nothing => {
                let waited = LIBRARY.changed.wait_timeout(machine, LOOK);
                machine = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            DeviceStep::Completed => drop(machine),
            DeviceStep::Call(number, function) => {
                drop(machine);
                functions.send((number, function)).expect("the receiving thread lives as long");
            }
        }
        LIBRARY.changed.notify_all();
        thread::sleep(PACE);
        machine = lock();
    }
}

/// Calls host functions, each when the work before it is complete, one after the other.
fn call_functions(queue: &Receiver<(u64, HostFunction)>) {
    CALLS_FUNCTIONS.set(true);
    for (number, function) in queue {
        function.call();
        lock().work.returned(number);
        LIBRARY.changed.notify_all();
    }
}

/// A call in progress, with its line of the record.
pub struct ApiCall {
    /// The library's state. `None` only while the call waits.
    machine: Option<MutexGuard<'static, RecordingMachine>>,
    /// Line of the record for this call.
    pub line: RecordLine,
}

impl Deref for ApiCall {
    type Target = RecordingMachine;

    fn deref(&self) -> &RecordingMachine {
        self.machine.as_ref().expect("the lock is given away within `until` only")
    }
}

impl DerefMut for ApiCall {
    fn deref_mut(&mut self) -> &mut RecordingMachine {
        self.machine.as_mut().expect("the lock is given away within `until` only")
    }
}

impl ApiCall {
    /// Records an argument of the call in its line.
    pub fn show(&mut self, name: &str, argument: &impl Recordable) {
        if let Some(value) = argument.shown(self) {
            self.line.arg(name, value);
        }
    }

    /// Records a result of the call in its line.
    pub fn out(&mut self, name: &str, result: &impl Recordable) {
        if let Some(value) = result.shown(self) {
            self.line.out(name, value);
        }
    }

    /// Returns the current context, which must be neither destroyed nor lost.
    pub fn context(&mut self) -> CallResult<usize> {
        self.contexts.current()
    }

    /// Checks that the operands of a graph's node still exist: functions, and memory.
    pub fn check_operands(&mut self, kind: &NodeKind) -> CallResult {
        match kind {
            NodeKind::Kernel { context, function, .. } => self.modules.get(*context, *function).map(drop),
            NodeKind::Copy { sides, .. } => self.copy(*sides),
            NodeKind::Fill { range, .. } => self.device_range(*range, true),
            NodeKind::Product { ranges } => {
                ranges.iter().try_for_each(|&range| self.device_range(range, false))
            }
            _ => Ok(()),
        }
    }

    /// Checks both sides of a copy.
    pub fn copy(&mut self, sides: [crate::graph::CopySide; 2]) -> CallResult {
        let mut line = std::mem::replace(&mut self.line, RecordLine::new("", 0));
        let checked = RecordingMachine::copy(self, &mut line, sides);
        self.line = line;
        checked
    }

    /// Keeps the call from returning until `done` returns true. If it has to wait, the file that shows a held
    /// call is created.
    fn hold_until(&mut self, call: &str, done: impl Fn(&RecordingMachine) -> bool) {
        if !done(self) {
            self.options.show_held(call);
            self.until(done);
        }
    }

    /// Keeps the call from returning as [`Self::hold_until`] does. Meanwhile submissions of other threads
    /// wait, too.
    fn block_until(&mut self, call: &str, done: impl Fn(&RecordingMachine) -> bool) {
        self.blockers += 1;
        self.hold_until(call, done);
        self.blockers -= 1;
    }

    /// Releases the library's lock for `milliseconds`, as a driver does that compiles or destroys a context.
    pub fn pause(&mut self, milliseconds: u64) {
        drop(self.machine.take());
        thread::sleep(Duration::from_millis(milliseconds));
        self.machine = Some(lock());
    }

    /// Waits until `done` returns true. A wait is noted in the line of the record.
    pub fn until(&mut self, done: impl Fn(&RecordingMachine) -> bool) {
        while !done(self) {
            self.line.note("waited");
            let machine = self.machine.take().expect("the lock is given away here only");
            self.machine = Some(LIBRARY.changed.wait(machine).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// Carries out a call. Its arguments are recorded first, because the call may change the names of handles.
pub fn enter(
    name: &'static str,
    show: impl FnOnce(&mut ApiCall),
    body: impl FnOnce(&mut ApiCall) -> CallResult,
) -> CUresult {
    let mut machine = lock();
    while machine.options.holds(name) {
        let waited = LIBRARY.changed.wait_timeout(machine, LOOK);
        machine = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    let thread = machine.contexts.ordinal();
    let injected = machine.count(name);
    let submits = SUBMISSIONS.iter().any(|prefix| name.starts_with(prefix));
    let mut call = ApiCall { machine: Some(machine), line: RecordLine::new(name, thread) };
    show(&mut call);
    let outcome = if CALLS_FUNCTIONS.get() {
        Err(Rule::InHostFunction.into())
    } else if !call.initialized && !BEFORE_INIT.contains(&name) {
        Err(Rule::NotInitialized.into())
    } else if let Some(status) = injected {
        call.line.note("injected");
        Err(CallRefusal::Expected(status))
    } else {
        if call.options.blocking.iter().any(|blocking| blocking == name) {
            call.block_until(name, |machine| machine.work.is_empty());
        } else if submits {
            call.hold_until(name, |machine| machine.blockers == 0);
        }
        let outcome = body(&mut call);
        if submits && call.options.queue > 0 {
            call.block_until(name, |machine| !machine.work.exceeds(machine.options.queue));
        }
        outcome
    };
    let status = call.line.end(outcome);
    let ApiCall { machine, line } = call;
    if let Some(mut machine) = machine {
        machine.record.write(&line);
    }
    LIBRARY.changed.notify_all();
    status
}

/// An argument or a result that can be recorded.
pub trait Recordable {
    /// Returns the recorded value. `None` for addresses of results, and for values that are not recorded.
    fn shown(&self, machine: &RecordingMachine) -> Option<Value>;
}

macro_rules! shown {
    ($( $($ty:ty),+ => |$value:ident, $machine:ident| $shown:expr; )*) => {
        $( $(
            impl Recordable for $ty {
                fn shown(&self, $machine: &RecordingMachine) -> Option<Value> {
                    let $value = self;
                    $shown
                }
            }
        )+ )*
    };
}

shown! {
    u8, u16, u32, i32, u64, i64, usize => |value, _machine| Some((*value).into());
    CUresult => |value, _machine| Some(value.0.into());
    CUcontext, CUstream, CUevent, CUmodule, CUfunction, CUgraph, CUgraphNode, CUgraphExec, CUlinkState
        => |value, _machine| Some(RecordingMachine::handle(value.0));
    DeviceAddress => |value, machine| Some(machine.address(value.0));
    HostAddress => |value, machine| Some(match machine.address(value.number()) {
        Value::String(name) if name == "unknown" => "pageable".into(),
        known => known,
    });
    Text => |value, _machine| value.get().ok().map(|text| text.to_string_lossy().into_owned().into());
    Parameters, Extra, ImageAddress, JitValues, Option<CUhostFn> => |value, _machine| { let _ = value; None };
}

impl<T> Recordable for Out<T> {
    fn shown(&self, _: &RecordingMachine) -> Option<Value> {
        None
    }
}

impl<T: Copy> Recordable for InOut<T> {
    fn shown(&self, _: &RecordingMachine) -> Option<Value> {
        None
    }
}

impl<T> Recordable for In<T> {
    fn shown(&self, _: &RecordingMachine) -> Option<Value> {
        None
    }
}

/// A `cublasHandle_t`, or a descriptor of cuBLASLt.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct BlasHandle(pub usize);

impl Recordable for BlasHandle {
    fn shown(&self, _: &RecordingMachine) -> Option<Value> {
        Some(RecordingMachine::handle(self.0))
    }
}

/// Handle of physical memory, which is a plain number in CUDA's types.
pub struct PhysicalHandle(pub u64);

impl Recordable for PhysicalHandle {
    fn shown(&self, _: &RecordingMachine) -> Option<Value> {
        Some(RecordingMachine::handle(self.0 as usize))
    }
}

/// Defines exports of the driver API. Each enters the library with the library's lock.
macro_rules! calls {
    ($(
        $(#[$meta:meta])*
        pub fn $name:ident($($arg:ident : $ty:ty),* $(,)?) |$call:ident| $body:block
    )*) => {
        ::vgpu_abi::exports! { $(
            $(#[$meta])*
            pub fn $name($($arg: $ty),*) -> CUresult {
                $crate::call::enter(
                    stringify!($name),
                    #[allow(unused_variables, reason = "a call may have no arguments")]
                    |call: &mut $crate::call::ApiCall| { $( call.show(stringify!($arg), &$arg); )* },
                    |$call: &mut $crate::call::ApiCall| $body,
                ).ok()
            }
        )* }
    };
}

/// Defines exports of cuBLAS and cuBLASLt. Each enters the library with the library's lock.
macro_rules! blas_calls {
    ($(
        $(#[$meta:meta])*
        pub fn $name:ident($($arg:ident : $ty:ty),* $(,)?) |$call:ident| $body:block
    )*) => {
        ::vgpu_abi::export! { $(
            $(#[$meta])*
            pub fn $name($($arg: $ty),*) -> ::vgpu_abi::blas::BlasStatus {
                $crate::blas::status($crate::call::enter(
                    stringify!($name),
                    |call: &mut $crate::call::ApiCall| { $( call.show(stringify!($arg), &$arg); )* },
                    |$call: &mut $crate::call::ApiCall| $body,
                ))
            }
        )* }
    };
}
