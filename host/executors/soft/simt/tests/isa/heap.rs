//! Tests of `malloc` and `free` in kernels, across launches, and of assertions.

use crate::case::Case;
use crate::device::{Device, Params, Shape, same};

const FUNCTIONS: &str = ".extern .func (.param .b64 result) malloc(.param .b64 bytes);\n.extern .func free(.param .b64 address);\n";

/// Returns two kernels. `take` allocates `bytes` bytes for each thread, stores the address, and writes the
/// thread's index to the first and last word of the allocation. `leave` checks these words and frees the
/// allocation.
fn text() -> String {
    let head = "mov.u32 %t, %tid.x;\nmov.u32 %c, %ctaid.x;\nmov.u32 %n, %ntid.x;\nmad.lo.u32 %t, %c, %n, %t;\nmul.wide.u32 %o, %t, 8;\nadd.s64 %p, %p, %o;\n";
    let registers = ".reg .b32 %t, %c, %n, %v, %w;\n.reg .b64 %p, %o, %a, %e, %b;\n.reg .pred %q, %r;\n";
    format!(
        "{FUNCTIONS}.visible .entry take(.param .u64 pieces, .param .u64 bytes)\n{{\n{registers}ld.param.u64 %p, [pieces];\nld.param.u64 %b, [bytes];\n{head}\
         {{\n.param .b64 param0;\nst.param.b64 [param0+0], %b;\n.param .b64 retval0;\ncall.uni (retval0), malloc, (param0);\nld.param.b64 %a, [retval0+0];\n}}\n\
         st.global.u64 [%p], %a;\nsetp.eq.u64 %q, %a, 0;\n@%q bra DONE;\nadd.s64 %e, %a, %b;\nst.u32 [%a], %t;\nst.u32 [%e+-4], %t;\nDONE:\nret;\n}}\n\
         .visible .entry leave(.param .u64 pieces, .param .u64 bytes, .param .u64 right)\n{{\n{registers}ld.param.u64 %p, [pieces];\nld.param.u64 %b, [bytes];\n{head}\
         ld.global.u64 %a, [%p];\nsetp.eq.u64 %q, %a, 0;\n@%q bra DONE;\nadd.s64 %e, %a, %b;\nld.u32 %v, [%a];\nld.u32 %w, [%e+-4];\nsetp.eq.u32 %q, %v, %t;\nsetp.eq.u32 %r, %w, %t;\nand.pred %q, %q, %r;\n\
         ld.param.u64 %e, [right];\n@%q red.global.add.u32 [%e], 1;\n\
         {{\n.param .b64 param0;\nst.param.b64 [param0+0], %a;\ncall.uni free, (param0);\n}}\nDONE:\nret;\n}}\n"
    )
}

/// Number of blocks in a launch; the next constants are the numbers of threads of a block and of the grid.
const BLOCKS: u32 = 5;
const BLOCK: u32 = 70;
const THREADS: u64 = (BLOCKS * BLOCK) as u64;

fn allocate_pieces(device: &mut Device, pieces: u64, bytes: u64) -> Result<Vec<u64>, String> {
    let shape = Shape::line(BLOCKS, BLOCK);
    device.launch("take", shape, &Params::new().u64(pieces).u64(bytes))?;
    Ok(device.read_longs(pieces, THREADS))
}

fn free_pieces(device: &mut Device, pieces: u64, bytes: u64) -> Result<u32, String> {
    let right = device.allocate(4);
    let shape = Shape::line(BLOCKS, BLOCK);
    device.launch("leave", shape, &Params::new().u64(pieces).u64(bytes).u64(right))?;
    Ok(device.read_words(right, 1)[0])
}

pub fn cases(cases: &mut Vec<Case>) {
    cases.push(Case::new("malloc and free", "call.uni", &text(), |device| {
        let heap = device.make_heap(1 << 16);
        let pieces = device.allocate(8 * THREADS);
        for bytes in [4, 24, 100] {
            let mut got = allocate_pieces(device, pieces, bytes)?;
            got.sort_unstable();
            let apart = got.windows(2).all(|pair| pair[0] + bytes <= pair[1]);
            if got[0] == 0 || !apart || got.iter().any(|address| !address.is_multiple_of(16)) {
                return Err(format!("pieces of {bytes} at {got:#x?}"));
            }
            if free_pieces(device, pieces, bytes)? != BLOCKS * BLOCK || heap.allocations() != 0 {
                return Err(format!("{} pieces of {bytes} are left", heap.allocations()));
            }
        }
        Ok(())
    }));
    cases.push(Case::new("more than the heap has", "call.uni", &text(), |device| {
        let heap = device.make_heap(1 << 16);
        let pieces = device.allocate(8 * THREADS);
        let got = allocate_pieces(device, pieces, 1000)?;
        let given = got.iter().filter(|&&address| address != 0).count() as u64;
        if given != (1 << 16) / 1008 || heap.allocations() != given {
            return Err(format!("{given} pieces"));
        }
        if u64::from(free_pieces(device, pieces, 1000)?) != given || heap.allocations() != 0 {
            return Err("pieces are left".into());
        }
        // An allocation that the heap has no room for returns 0.
        same("pieces", &allocate_pieces(device, pieces, u64::MAX)?, &[0; THREADS as usize])?;
        same("pieces", &allocate_pieces(device, pieces, 0)?, &[0; THREADS as usize])
    }));
    cases.push(Case::new("a second free", "call.uni", &text(), |device| {
        device.make_heap(1 << 16);
        let pieces = device.allocate(8 * THREADS);
        allocate_pieces(device, pieces, 16)?;
        free_pieces(device, pieces, 16)?;
        let right = device.allocate(4);
        let params = Params::new().u64(pieces).u64(16).u64(right);
        device.expect_fault("leave", Shape::line(1, 1), &params, 719).map(drop)
    }));
    cases.push(Case::new("no heap", "call.uni", &text(), |device| {
        let pieces = device.allocate(8 * THREADS);
        same("pieces", &allocate_pieces(device, pieces, 16)?, &[0; THREADS as usize])
    }));
    let text = ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n\
         .global .align 1 .b8 message[6] = {120, 32, 62, 32, 49, 0};\n.global .align 1 .b8 file[4] = {97, 46, 99, 0};\n.global .align 1 .b8 function[2] = {102, 0};\n\
         .visible .entry k(.param .u32 from)\n{\n.reg .b32 %r<4>;\n.reg .b64 %d<4>;\n.reg .pred %p;\nld.param.u32 %r0, [from];\nmov.u32 %r1, %tid.x;\nsetp.lt.u32 %p, %r1, %r0;\n@%p bra DONE;\n\
         mov.u64 %d0, message;\ncvta.global.u64 %d0, %d0;\nmov.u64 %d1, generic(file);\nmov.u64 %d2, generic(function);\n\
         {\n.param .b64 param0;\nst.param.b64 [param0+0], %d0;\n.param .b64 param1;\nst.param.b64 [param1+0], %d1;\n.param .b32 param2;\nst.param.b32 [param2+0], 77;\n.param .b64 param3;\nst.param.b64 [param3+0], %d2;\n.param .b64 param4;\nst.param.b64 [param4+0], 1;\n\
         call.uni __assertfail, (param0, param1, param2, param3, param4);\n}\nDONE:\nret;\n}\n";
    cases.push(Case::new("assertions", "call.uni", text, |device| {
        device.launch("k", Shape::line(1, 40), &Params::new().u32(40))?;
        device.expect_fault("k", Shape::line(1, 40), &Params::new().u32(36), 710)?;
        let wanted = "a.c:77: f: block: [0,0,0], thread: [36,0,0] Assertion `x > 1` failed.\n";
        let printed = device.printed();
        if printed == wanted { Ok(()) } else { Err(format!("printed {printed:?}")) }
    }));
}
