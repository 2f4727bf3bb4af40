//! Tests of the traits, with an executor that works asynchronously, one that refuses, and one that fails.

use std::sync::mpsc::{Sender, channel as queue};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use vgpu_device::{
    Executor, ExecutorError, GpuConfig, LateError, ReplyTo, ResolvedSpan, RetiredMemory, Session,
    SessionError, SessionHost, Work,
};
use vgpu_host_testing::bench::{Bench, CHANNELS, SHARED, address, config, gpu};
use vgpu_host_testing::commands;
use vgpu_host_testing::guest::{Function, Guest, until};
use vgpu_wire::body::copy::CopyOut;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::memory::{MemAlloc, MemFree, MemInfo};
use vgpu_wire::body::session::WindowFree;
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::registers::{Refusal, channel};
use vgpu_wire::{Body, Mark, Message, Span, TABLE_DIGEST, WIRE_VERSION, area};

use crate::sessions::{signal, window_alloc};

/// A message to the thread that carries out the work of a late session.
enum Order {
    Reply(ReplyTo),
    Signal(Mark),
    Write(ResolvedSpan, Mark),
    Fail(u64),
    Retire(RetiredMemory),
    Wait(Arc<Mutex<()>>),
}

/// An executor that carries everything out on a separate thread, some time later.
struct Late {
    gpu: GpuConfig,
    /// Lock that a test holds while work should stay outstanding.
    barrier: Arc<Mutex<()>>,
    /// Bytes of the messages that arrived, as a worker process would get them.
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

struct LateSession {
    orders: Option<Sender<Order>>,
    worker: Option<JoinHandle<()>>,
    barrier: Arc<Mutex<()>>,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
    host: SessionHost,
}

impl Executor for Late {
    fn name(&self) -> &'static str {
        "late"
    }

    fn facts(&self) -> DeviceFacts {
        self.gpu.facts(0).unwrap()
    }

    fn allocated(&self) -> u64 {
        0
    }

    fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError> {
        if host.channel() == 7 {
            return Err(ExecutorError::NoRoom);
        }
        if host.channel() == 6 {
            return Err(ExecutorError::Failed("no context".to_owned()));
        }
        let (orders, work) = queue();
        let completions = host.clone();
        let worker = thread::spawn(move || {
            for order in work {
                match order {
                    Order::Reply(to) => completions.reply(to, 0, b"later"),
                    Order::Signal(mark) => completions.signal(&mark),
                    Order::Write(piece, mark) => {
                        completions.slice(&piece).copy_from(&vec![0x77u8; piece.bytes() as usize]);
                        completions.signal(&mark);
                    }
                    Order::Fail(message) => completions.fail(LateError { code: 2, sticky: false, message }),
                    Order::Retire(memory) => drop(memory),
                    Order::Wait(barrier) => drop(barrier.lock().unwrap()),
                }
            }
        });
        Ok(Box::new(LateSession {
            orders: Some(orders),
            worker: Some(worker),
            barrier: Arc::clone(&self.barrier),
            seen: Arc::clone(&self.seen),
            host,
        }))
    }
}

impl LateSession {
    fn order(&self, order: Order) {
        self.orders.as_ref().unwrap().send(order).unwrap();
    }
}

impl Session for LateSession {
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        self.seen.lock().unwrap().push(work.bytes.to_vec());
        match &work.message.body {
            Body::Signal(body) => self.order(Order::Signal(body.mark)),
            Body::CopyOut(body) => {
                self.order(Order::Write(self.host.piece(&body.destination)?, body.written));
            }
            Body::MemInfo(_) => self.order(Order::Reply(work.reply_to().unwrap())),
            Body::Launch(_) => self.order(Order::Fail(work.number)),
            Body::MemAlloc(_) => return Err(SessionError::Lost("the worker died".to_owned())),
            Body::MemFree(_) => panic!("a bug of the executor"),
            _ => {}
        }
        Ok(())
    }

    fn join(&mut self, _stream: u32) -> Result<(), SessionError> {
        self.order(Order::Wait(Arc::clone(&self.barrier)));
        Ok(())
    }

    fn retire(&mut self, memory: RetiredMemory) {
        self.order(Order::Retire(memory));
    }
}

impl Drop for LateSession {
    fn drop(&mut self) {
        drop(self.orders.take());
        self.worker.take().unwrap().join().unwrap();
    }
}

type Seen = Arc<Mutex<Vec<Vec<u8>>>>;

fn late() -> (Bench, Arc<Mutex<()>>, Seen) {
    let (barrier, seen) = (Arc::new(Mutex::new(())), Seen::default());
    let executor = Late { gpu: gpu(), barrier: Arc::clone(&barrier), seen: Arc::clone(&seen) };
    (Bench::with(config(executor)), barrier, seen)
}

const LAUNCH: Launch = Launch { function: 1, ..commands::LAUNCH };

#[test]
fn completions_may_come_late_and_from_another_thread() {
    let (bench, barrier, seen) = late();
    let mut guest = bench.guest(0);
    let window = window_alloc(&mut guest, SHARED).unwrap();
    let outstanding = barrier.lock().unwrap();
    guest.send(&vgpu_wire::body::stream::Join { stream: 0, reserved: 0 }, &[]);
    let destination = Span::bar(window.offset, 64);
    guest.send(&CopyOut { stream: 0, reserved: 0, source: 0, destination, written: Mark::new(1, 1) }, &[]);
    guest.send(&WindowFree { offset: window.offset }, &[]);
    let launch = guest.send(&LAUNCH, &[]);
    let asked = guest.send(&MemInfo { reply: 9, reserved: 0 }, &[]);
    let last = guest.send(&signal(2, 8), &[]);
    until("the messages to be taken", || guest.done() == last);
    assert_eq!((guest.word(1), guest.word(2), guest.late()), (0, 0, None));
    // The outstanding copy still writes there, so the memory must not be reused.
    assert_eq!(window_alloc(&mut guest, SHARED), None);
    drop(outstanding);
    guest.wait_word(2, 8);
    assert_eq!(guest.answer(9, asked), (0, b"later".to_vec()));
    assert_eq!(guest.late(), Some((2, 0, launch)));
    assert_eq!(bench.bus.status_handle().figures().unwrap().done.out_of_memory, 1);
    assert_eq!(guest.word(1), 1);
    until("the memory to be given back", || window_alloc(&mut guest, SHARED).is_some());
    // A worker process could do its work from the bytes alone.
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|bytes| Message::decode(bytes).is_ok()));
    assert_eq!(seen.len(), 4);
}

#[test]
fn words_never_fall_back() {
    let (bench, barrier, _) = late();
    let mut guest = bench.guest(0);
    let outstanding = barrier.lock().unwrap();
    guest.send(&signal(4, 10), &[]);
    guest.wait_word(4, 10);
    drop(outstanding);
    // A value that a guest stores in its own word harms only the guest. The host never lowers it.
    guest
        .function
        .u64_at(guest.returns() + area::RETURN_WORDS + 4 * area::WORD_BYTES)
        .store(99, std::sync::atomic::Ordering::SeqCst);
    guest.send(&signal(4, 11), &[]);
    guest.send(&signal(5, 1), &[]);
    guest.wait_word(5, 1);
    assert_eq!(guest.word(4), 99);
}

#[test]
fn an_executor_can_refuse_a_session() {
    let (bench, ..) = late();
    for (channel, why) in [(7, Refusal::NoRoom), (6, Refusal::Executor)] {
        let function = Function::open(bench.folder(), address());
        let Err((refusal, function)) = Guest::try_attach(function, channel, WIRE_VERSION, TABLE_DIGEST)
        else {
            panic!("attached")
        };
        assert_eq!(refusal, why as u32);
        assert_eq!(function.read(channel::base(channel) + channel::STATE), channel::STATE_FREE);
    }
    assert_eq!(bench.bus.status().devices[0].free_channels, CHANNELS as usize);
}

#[test]
fn an_executor_that_breaks_costs_the_session_only() {
    let (bench, ..) = late();
    let mut other = bench.guest(1);
    for panics in [false, true] {
        let mut guest = bench.guest(0);
        let number = if panics {
            guest.send(&MemFree { address: 1 }, &[])
        } else {
            guest.send(&MemAlloc { reply: 0, flags: 0, bytes: 1 }, &[])
        };
        assert_eq!(guest.ended(), (999, area::ERROR_STICKY | area::ERROR_ENDED, number));
        assert_eq!(guest.register(channel::ERROR), Refusal::Executor as u32);
        other.echo();
    }
    assert_eq!(other.late(), None);
}
