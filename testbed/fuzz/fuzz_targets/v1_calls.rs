//! Sends random bytes to a device as frames. Each frame must be answered or the connection closed, and at the
//! end nothing of the owner may remain.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use vgpu_device::GpuConfig;
use vgpu_device_v1::{Frames, Mediator, MediatorRules, Verdict};
use vgpu_executor_null::Null;
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::frame::Call;
use zerocopy::{FromBytes, FromZeros};

/// Mediator that all inputs share; each input detaches whatever it attached.
static MEDIATOR: LazyLock<Arc<Mediator>> = LazyLock::new(|| {
    let gpu = GpuConfig::new("fuzz").expect("a GPU");
    Mediator::new(Arc::new(Null::new(&gpu).expect("an executor")), MediatorRules::default()).expect("a mediator")
});

fuzz_target!(|bytes: &[u8]| {
    let connection = MEDIATOR.connect();
    let mut frames = Frames::default();
    frames.push(bytes);
    let mut owners = Vec::new();
    while let Ok(Some((header, payload))) = frames.next_frame() {
        let Ok((call, data)) = Call::ref_from_prefix(payload) else { break };
        owners.push((header, call.owner));
        match connection.call(&header, call, data) {
            Verdict::Answer(answer) => assert!(answer.outcome.num_results.get() <= 8),
            _ => break,
        }
    }
    for (header, owner) in owners {
        for op in [Op::PrimaryCtxRetain, Op::ProcessCleanup] {
            let mut call = Call::new_zeroed();
            call.magic = vgpu_wire::v1::frame::MAGIC.into();
            call.op = (op as u32).into();
            call.owner = owner;
            connection.call(&header, &call, &[]);
        }
    }
    drop(connection);
    assert!(MEDIATOR.owners().is_empty());
});
