//! Injects faults into a host with `--wrong WHAT`, to test how a guest reacts. The faults wrap a device's
//! executor or override register values; device and executor contain no code for them.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use vgpu_device::{
    Executor, ExecutorError, LateError, Profile, Progress, RetiredMemory, Session, SessionError, SessionHost,
    SharedRange, Work, WorkerCount,
};
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::{Body, SEGMENT_BAR, SEGMENT_INLINE};

/// Interval between two checks whether a hanging session is being ended or a parked one is released.
const TICK: Duration = Duration::from_millis(1);
/// Number of this attribute in `CUdevice_attribute`.
const COMPUTE_CAPABILITY_MAJOR: usize = 75;
const COMPUTE_CAPABILITY_MINOR: usize = 76;

/// A fault that is injected into a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// `register:OFFSET=VALUE`: the register at this offset reads this value.
    Register(u32, u32),
    /// `facts:...`: the device reports wrong facts.
    Facts(FactsFault),
    /// `open:refuse`: the device refuses to open sessions.
    Open,
    /// `KIND:ACTION`: messages of this kind are mishandled.
    Message(String, FaultAction),
}

/// A fault in the facts that a device reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactsFault {
    /// `zero`: all facts are zero.
    Zero,
    /// `no-capability`: the compute capability is 0.0.
    NoCapability,
    /// `no-driver`: the driver version is 0.
    NoDriver,
}

/// Mishandling of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// `drop`: the message is not executed, but answered with success.
    Drop,
    /// `fail=CODE`: the message is not executed; this `CUresult` is returned, or stored as a sticky error.
    Fail(u32),
    /// `lose`: the executor loses the session on this message.
    Lose,
    /// `hang`: the message never completes.
    Hang,
    /// `park=FILE`: the message is executed only once FILE is gone, whatever happens to its session, like
    /// work that cannot be interrupted. Without FILE no message waits; each message that waits adds the name
    /// of its kind to FILE as a line.
    Park(PathBuf),
    /// `flip`: one bit of the uploaded data is changed, for kinds that upload data.
    Flip,
}

/// Error for a text that describes no fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected register:OFFSET=VALUE, facts:zero|no-capability|no-driver, open:refuse or \
     KIND:drop|fail=CODE|lose|hang|flip|park=FILE"
)]
pub struct UnknownFault;

fn number(text: &str) -> Option<u32> {
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |digits| u32::from_str_radix(digits, 16).ok())
}

fn action(text: &str) -> Option<FaultAction> {
    Some(match text.split_once('=') {
        None => match text {
            "drop" => FaultAction::Drop,
            "lose" => FaultAction::Lose,
            "hang" => FaultAction::Hang,
            "flip" => FaultAction::Flip,
            _ => return None,
        },
        Some(("fail", code)) => FaultAction::Fail(number(code)?),
        Some(("park", file)) if !file.is_empty() => FaultAction::Park(PathBuf::from(file)),
        Some(_) => return None,
    })
}

fn parse(text: &str) -> Option<InjectedFault> {
    let (what, how) = text.split_once(':')?;
    Some(match what {
        "register" => {
            let (offset, value) = how.split_once('=')?;
            InjectedFault::Register(number(offset)?, number(value)?)
        }
        "facts" => InjectedFault::Facts(match how {
            "zero" => FactsFault::Zero,
            "no-capability" => FactsFault::NoCapability,
            "no-driver" => FactsFault::NoDriver,
            _ => return None,
        }),
        "open" if how == "refuse" => InjectedFault::Open,
        kind if kind.starts_with(|first: char| first.is_ascii_uppercase()) => {
            InjectedFault::Message(kind.to_owned(), action(how)?)
        }
        _ => return None,
    })
}

impl FromStr for InjectedFault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        parse(text).ok_or(UnknownFault)
    }
}

/// Returns offset and value of the registers among `faults`.
pub fn registers(faults: &[InjectedFault]) -> Vec<(u32, u32)> {
    let register = |wrong: &InjectedFault| match *wrong {
        InjectedFault::Register(offset, value) => Some((offset, value)),
        _ => None,
    };
    faults.iter().filter_map(register).collect()
}

/// Wraps `executor` so that it commits `faults`. Without any that concern it, returns it unchanged.
pub fn inject(executor: Arc<dyn Executor>, faults: &[InjectedFault]) -> Arc<dyn Executor> {
    let own = |wrong: &&InjectedFault| !matches!(wrong, InjectedFault::Register(..));
    let faults: Arc<[InjectedFault]> = faults.iter().filter(own).cloned().collect();
    if faults.is_empty() { executor } else { Arc::new(FaultyExecutor { inner: executor, faults }) }
}

struct FaultyExecutor {
    inner: Arc<dyn Executor>,
    faults: Arc<[InjectedFault]>,
}

impl Executor for FaultyExecutor {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn facts(&self) -> DeviceFacts {
        let mut facts = self.inner.facts();
        for wrong in &*self.faults {
            let InjectedFault::Facts(wrong) = wrong else { continue };
            match wrong {
                FactsFault::Zero => {
                    facts = DeviceFacts {
                        name: [0; 256],
                        driver_text: [0; 80],
                        uuid: [0; 16],
                        total_bytes: 0,
                        driver_version: 0,
                        cc_major: 0,
                        cc_minor: 0,
                        granularity: 0,
                        abilities: 0,
                        reserved: [0; 13],
                        attributes: [0; 192],
                    };
                }
                FactsFault::NoCapability => {
                    (facts.cc_major, facts.cc_minor) = (0, 0);
                    facts.attributes[COMPUTE_CAPABILITY_MAJOR] = 0;
                    facts.attributes[COMPUTE_CAPABILITY_MINOR] = 0;
                }
                FactsFault::NoDriver => facts.driver_version = 0,
            }
        }
        facts
    }

    fn allocated(&self) -> u64 {
        self.inner.allocated()
    }

    fn charged_in_workers(&self) -> u64 {
        self.inner.charged_in_workers()
    }

    fn workers(&self) -> Option<WorkerCount> {
        self.inner.workers()
    }

    fn profile(&self, session: u32) -> Option<Profile> {
        self.inner.profile(session)
    }

    fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError> {
        if self.faults.contains(&InjectedFault::Open) {
            return Err(ExecutorError::Failed("it was told to refuse".to_owned()));
        }
        let inner = self.inner.open(host.clone())?;
        Ok(Box::new(FaultySession { inner, host, faults: Arc::clone(&self.faults) }))
    }
}

struct FaultySession {
    inner: Box<dyn Session>,
    host: SessionHost,
    faults: Arc<[InjectedFault]>,
}

impl FaultySession {
    fn action(&self, kind: &str) -> Option<FaultAction> {
        self.faults.iter().find_map(|wrong| match wrong {
            InjectedFault::Message(name, action) if name == kind => Some(action.clone()),
            _ => None,
        })
    }

    /// Signals and replies as if the work had been executed, with this status.
    fn answer_without_executing(&self, work: &Work<'_>, status: u32) {
        match &work.message.body {
            Body::CopyIn(body) => self.host.signal(&body.read),
            Body::CopyOut(body) => self.host.signal(&body.written),
            _ => {}
        }
        if let Some(to) = work.reply_to() {
            self.host.reply(to, status, &[]);
        }
    }

    fn hang(&self) {
        while !self.host.stopping() {
            thread::sleep(TICK);
        }
    }

    /// Appends a message's kind to the file, and waits until the file is gone.
    fn park(file: &Path, kind: &str) {
        let said = OpenOptions::new().append(true).open(file).and_then(|mut marks| writeln!(marks, "{kind}"));
        match said {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => tracing::error!("say in {} that a message is parked: {error}", file.display()),
        }
        while file.exists() {
            thread::sleep(TICK);
        }
    }

    /// Executes an upload with its first bit changed.
    fn flip(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        let Body::CopyIn(body) = &work.message.body else { return self.inner.execute(work) };
        match body.source.segment {
            SEGMENT_BAR => {
                let piece = self.host.piece(&body.source)?;
                let slice = self.host.slice(&piece);
                let mut first = [0u8];
                slice.copy_to(&mut first);
                slice.copy_from(&[first[0] ^ 1]);
                self.inner.execute(work)
            }
            SEGMENT_INLINE if !work.message.tail.is_empty() => {
                let mut tail = work.message.tail.to_vec();
                tail[0] ^= 1;
                let mut message = work.message;
                message.tail = &tail;
                self.inner.execute(&Work { message, payload: &tail, ..*work })
            }
            _ => self.inner.execute(work),
        }
    }
}

impl Session for FaultySession {
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        let kind = work.message.body.kind().name();
        match self.action(kind) {
            None => self.inner.execute(work),
            Some(FaultAction::Drop) => {
                self.answer_without_executing(work, 0);
                Ok(())
            }
            Some(FaultAction::Fail(code)) => {
                if work.reply_to().is_none() {
                    self.host.fail(LateError { code, sticky: true, message: work.number });
                }
                self.answer_without_executing(work, code);
                Ok(())
            }
            Some(FaultAction::Lose) => Err(SessionError::Lost("it was told to".to_owned())),
            Some(FaultAction::Hang) => {
                self.hang();
                Ok(())
            }
            Some(FaultAction::Park(file)) => {
                Self::park(&file, kind);
                self.inner.execute(work)
            }
            Some(FaultAction::Flip) => self.flip(work),
        }
    }

    fn join(&mut self, stream: u32) -> Result<(), SessionError> {
        self.inner.join(stream)
    }

    fn batch(&self) -> u32 {
        self.inner.batch()
    }

    fn granted(&mut self, range: SharedRange) -> Result<(), SessionError> {
        self.inner.granted(range)
    }

    fn refuse_in_order(&mut self, work: &Work<'_>, code: u32, why: &str) -> Result<bool, SessionError> {
        self.inner.refuse_in_order(work, code, why)
    }

    fn progress(&mut self, number: u64) -> Progress {
        self.inner.progress(number)
    }

    fn retire(&mut self, memory: RetiredMemory) {
        self.inner.retire(memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read() {
        assert_eq!("register:0x10=0xffffffff".parse(), Ok(InjectedFault::Register(0x10, u32::MAX)));
        assert_eq!("facts:no-driver".parse(), Ok(InjectedFault::Facts(FactsFault::NoDriver)));
        assert_eq!("open:refuse".parse(), Ok(InjectedFault::Open));
        assert_eq!(
            "Launch:fail=700".parse(),
            Ok(InjectedFault::Message("Launch".into(), FaultAction::Fail(700)))
        );
        let park = FaultAction::Park("/x=y".into());
        assert_eq!("Launch:park=/x=y".parse(), Ok(InjectedFault::Message("Launch".into(), park)));
        assert_eq!("CopyIn:flip".parse(), Ok(InjectedFault::Message("CopyIn".into(), FaultAction::Flip)));
        for bad in [
            "",
            "x",
            "open:",
            "Launch:",
            "Launch:fail",
            "Launch:park=",
            "register:1",
            "register:a=b",
            "launch:drop",
        ] {
            assert_eq!(bad.parse::<InjectedFault>(), Err(UnknownFault), "{bad}");
        }
    }
}
