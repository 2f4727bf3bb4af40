//! How a call enters the library: one lock for all of it, a line of the record for each call, the device's
//! thread.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
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
use crate::machine::{Machine, Step};
use crate::options::Options;
use crate::raw::{self, Address, Extra, HostAddress, ImageAddress, JitValues, Parameters};
use crate::record::Line;
use crate::rule::{Answer, Refusal, Rule};

/// How often the device looks whether a word has been written that its work waits for, or work is held.
const LOOK: Duration = Duration::from_micros(100);

/// Functions that need no `cuInit`.
const BEFORE_INIT: &[&str] = &["cuInit", "cuDriverGetVersion"];

/// The library.
struct Library {
    machine: Mutex<Machine>,
    /// Work was given, completed, or let go.
    changed: Condvar,
}

thread_local! {
    /// Whether this thread is the device's, which calls functions of the program.
    static IS_DEVICE: Cell<bool> = const { Cell::new(false) };
}

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let machine = Mutex::new(Machine::new(Options::find(raw::library().as_deref())));
    thread::spawn(run_device);
    Library { machine, changed: Condvar::new() }
});

fn lock() -> MutexGuard<'static, Machine> {
    LIBRARY.machine.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device: completes work, a piece at a time, for as long as the process lives.
fn run_device() {
    IS_DEVICE.set(true);
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
        let pace = Duration::from_micros(machine.options.pace_us);
        match step {
            // What is left waits for words that the program writes.
            Step::Nothing => {
                let waited = LIBRARY.changed.wait_timeout(machine, LOOK);
                machine = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            Step::Completed => drop(machine),
            Step::Call(function) => {
                drop(machine);
                function.call();
            }
        }
        LIBRARY.changed.notify_all();
        // The time that work takes, so that whoever asks at once finds it pending.
        thread::sleep(pace);
        machine = lock();
    }
}

/// A call while it is carried out.
pub struct Call {
    /// Absent only while the call waits.
    machine: Option<MutexGuard<'static, Machine>>,
    /// Its line in the record.
    pub line: Line,
}

impl Deref for Call {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        self.machine.as_ref().expect("the lock is given away within `until` only")
    }
}

impl DerefMut for Call {
    fn deref_mut(&mut self) -> &mut Machine {
        self.machine.as_mut().expect("the lock is given away within `until` only")
    }
}

impl Call {
    /// Records an argument.
    pub fn show(&mut self, name: &str, argument: &impl Shown) {
        if let Some(value) = argument.shown(self) {
            self.line.arg(name, value);
        }
    }

    /// Records a result.
    pub fn out(&mut self, name: &str, result: &impl Shown) {
        if let Some(value) = result.shown(self) {
            self.line.out(name, value);
        }
    }

    /// The current context: one that is alive and not lost.
    pub fn context(&mut self) -> Answer<usize> {
        self.contexts.current()
    }

    /// The current context, for a call that is not safe while something is captured.
    pub fn context_unsafe(&mut self) -> Answer<usize> {
        let context = self.context()?;
        self.unsafe_call()?;
        Ok(context)
    }

    /// Refuses a call that is not safe while something is captured.
    pub fn unsafe_call(&mut self) -> Answer {
        self.captures.unsafe_call()
    }

    /// Checks that what a graph's node names is there still: functions, and the memory of copies and fills.
    pub fn check_operands(&mut self, kind: &NodeKind) -> Answer {
        match kind {
            NodeKind::Kernel { context, function } => self.modules.get(*context, *function).map(drop),
            NodeKind::Copy { sides, .. } => self.copy(*sides),
            NodeKind::Fill { range, .. } => self.device_range(*range, true),
            NodeKind::Product { ranges } => {
                ranges.iter().try_for_each(|&range| self.device_range(range, false))
            }
            _ => Ok(()),
        }
    }

    /// Both sides of a copy.
    pub fn copy(&mut self, sides: [crate::graph::Side; 2]) -> Answer {
        let mut line = std::mem::replace(&mut self.line, Line::new("", 0));
        let checked = Machine::copy(self, &mut line, sides);
        self.line = line;
        checked
    }

    /// Waits until `done` holds.
    pub fn until(&mut self, done: impl Fn(&Machine) -> bool) {
        while !done(self) {
            self.line.note("waited");
            let machine = self.machine.take().expect("the lock is given away here only");
            self.machine = Some(LIBRARY.changed.wait(machine).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// Carries out a call. Arguments are recorded before, so that they have the names that they had then.
pub fn enter(
    name: &'static str,
    show: impl FnOnce(&mut Call),
    body: impl FnOnce(&mut Call) -> Answer,
) -> CUresult {
    let mut machine = lock();
    while machine.options.holds(name) {
        let waited = LIBRARY.changed.wait_timeout(machine, LOOK);
        machine = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    let thread = machine.contexts.ordinal();
    let injected = machine.count(name);
    let mut call = Call { machine: Some(machine), line: Line::new(name, thread) };
    show(&mut call);
    let outcome = if IS_DEVICE.get() {
        Err(Rule::InHostFunction.into())
    } else if !call.initialized && !BEFORE_INIT.contains(&name) {
        Err(Rule::NotInitialized.into())
    } else if let Some(status) = injected {
        call.line.note("injected");
        Err(Refusal::Expected(status))
    } else {
        body(&mut call)
    };
    let status = call.line.end(outcome);
    let Call { machine, line } = call;
    if let Some(mut machine) = machine {
        machine.record.write(&line);
    }
    LIBRARY.changed.notify_all();
    status
}

/// An argument or a result, as records have it.
pub trait Shown {
    /// Its value; `None` for places of results, and for what is not recorded.
    fn shown(&self, machine: &Machine) -> Option<Value>;
}

macro_rules! shown {
    ($( $($ty:ty),+ => |$value:ident, $machine:ident| $shown:expr; )*) => {
        $( $(
            impl Shown for $ty {
                fn shown(&self, $machine: &Machine) -> Option<Value> {
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
        => |value, _machine| Some(Machine::handle(value.0));
    Address => |value, machine| Some(machine.address(value.0));
    HostAddress => |value, machine| Some(match machine.address(value.number()) {
        Value::String(name) if name == "unknown" => "pageable".into(),
        known => known,
    });
    Text => |value, _machine| value.get().ok().map(|text| text.to_string_lossy().into_owned().into());
    Parameters, Extra, ImageAddress, JitValues, Option<CUhostFn> => |value, _machine| { let _ = value; None };
}

impl<T> Shown for Out<T> {
    fn shown(&self, _: &Machine) -> Option<Value> {
        None
    }
}

impl<T: Copy> Shown for InOut<T> {
    fn shown(&self, _: &Machine) -> Option<Value> {
        None
    }
}

impl<T> Shown for In<T> {
    fn shown(&self, _: &Machine) -> Option<Value> {
        None
    }
}

/// `cublasHandle_t`, or a description of cuBLASLt's.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct BlasHandle(pub usize);

impl Shown for BlasHandle {
    fn shown(&self, _: &Machine) -> Option<Value> {
        Some(Machine::handle(self.0))
    }
}

/// Physical memory, whose handle is a plain number in CUDA's types.
pub struct PhysicalHandle(pub u64);

impl Shown for PhysicalHandle {
    fn shown(&self, _: &Machine) -> Option<Value> {
        Some(Machine::handle(self.0 as usize))
    }
}

/// Defines exports of the driver API, each of which enters the library.
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
                    |call: &mut $crate::call::Call| { $( call.show(stringify!($arg), &$arg); )* },
                    |$call: &mut $crate::call::Call| $body,
                ).ok()
            }
        )* }
    };
}

/// Defines exports of cuBLAS and cuBLASLt, each of which enters the library.
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
                    |call: &mut $crate::call::Call| { $( call.show(stringify!($arg), &$arg); )* },
                    |$call: &mut $crate::call::Call| $body,
                ))
            }
        )* }
    };
}
