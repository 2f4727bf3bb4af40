//! Tests with a guest that sends random messages, bytes and tails, and stores into its own area. The device
//! and the other sessions must not be affected.

use proptest::prelude::*;
use vgpu_host_testing::bench::Bench;
use vgpu_host_testing::commands::log;
use vgpu_host_testing::guest::Guest;
use vgpu_wire::registers::channel;
use vgpu_wire::{Header, Kind, area};
use zerocopy::IntoBytes;

use crate::memory::allocate;

/// A random action of a guest.
#[derive(Clone, Debug)]
enum Step {
    Bytes(Vec<u8>),
    Message { kind: usize, join: bool, body: Vec<u8> },
    Tail(u64),
    Flip { at: u64, value: u8 },
}

/// Returns the size in bytes of the largest body that a kind has.
fn largest_body() -> usize {
    Kind::ALL.iter().map(|kind| kind.body_bytes()).max().unwrap_or(0)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 1..40).prop_map(Step::Bytes),
        6 => (0..Kind::ALL.len(), any::<bool>(), prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => 0u8..3, 1 => any::<u8>()], largest_body()))
            .prop_map(|(kind, join, body)| Step::Message { kind, join, body }),
        1 => any::<u64>().prop_map(Step::Tail),
        2 => (0..area::AREA_BYTES, any::<u8>()).prop_map(|(at, value)| Step::Flip { at, value }),
    ]
}

fn play(bench: &Bench, steps: &[Step]) {
    let mut guest = bench.guest(0);
    for step in steps {
        match step {
            Step::Bytes(bytes) => {
                let padded =
                    [bytes.as_slice(), &vec![0; bytes.len().next_multiple_of(16) - bytes.len()]].concat();
                if !room(&guest, padded.len()) {
                    break;
                }
                guest.send_bytes(&padded);
            }
            Step::Message { kind, join, body } => {
                let kind = Kind::ALL[*kind];
                let bytes = (size_of::<Header>() + kind.body_bytes()).next_multiple_of(16);
                if !room(&guest, bytes) {
                    break;
                }
                let header = Header {
                    kind: kind as u16,
                    flags: u16::from(*join),
                    bytes: bytes as u32,
                    number: guest.number as u32 + 1,
                    join: 0,
                };
                let mut bytes_of = header.as_bytes().to_vec();
                bytes_of.extend_from_slice(&body[..kind.body_bytes()]);
                bytes_of.resize(bytes, 0);
                guest.send_bytes(&bytes_of);
            }
            Step::Tail(tail) => guest.publish_tail(*tail),
            Step::Flip { at, value } => guest.function.put(guest.area + at, &[*value]),
        }
    }
    guest.detach();
    assert_eq!(guest.register(channel::STATE), channel::STATE_FREE);
}

/// Returns whether a message fits without waiting for a host that may no longer read.
fn room(guest: &Guest, bytes: usize) -> bool {
    guest.tail + bytes as u64 <= area::RING_BYTES
}

#[test]
fn a_guest_out_of_its_mind_does_no_harm() {
    log();
    for bench in [Bench::soft(), Bench::null()] {
        let mut other = bench.guest(1);
        let kept = allocate(&mut other, 4096).unwrap();
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            cases: 150,
            ..ProptestConfig::default()
        });
        runner
            .run(&prop::collection::vec(step(), 1..40), |steps| {
                play(&bench, &steps);
                Ok(())
            })
            .unwrap();
        other.echo();
        assert_eq!(other.late(), None);
        assert_eq!(bench.session(1).unwrap().allocated, 4096, "{kept:#x}");
        assert_eq!(bench.allocated(), 4096);
    }
}
