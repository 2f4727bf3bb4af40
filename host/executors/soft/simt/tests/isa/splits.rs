//! Tests of instructions that lanes of a warp execute together although they come from different paths, with
//! different values in registers that each path shares, or with different member masks.
//!
//! The code at the label `MEET` is before that of the late lanes in the text, so that the others wait there.

use crate::case::Case;
use crate::device::{Params, Shape, same};

const LANES: u32 = 32;

/// Returns a kernel in which the lanes of `late` take a detour, on which `%u` becomes the parameter `other`
/// rather than 5. `meet` computes the results `%r0` to `%r3`, and has the thread's number in `%t`.
fn kernel(late: u32, meet: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 out, .param .u32 other)\n{{\n.reg .b64 %out, %a;\n\
         .reg .b32 %t, %u, %l, %m, %g, %r<8>;\n.reg .pred %p, %q;\n\
         ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmov.u32 %u, 5;\nshr.u32 %l, {late}, %t;\n\
         and.b32 %l, %l, 1;\nsetp.eq.u32 %p, %l, 1;\n@%p bra LATE;\nMEET:\n{meet}\n\
         mul.wide.u32 %a, %t, 16;\nadd.u64 %a, %a, %out;\nst.global.v4.u32 [%a], {{%r0, %r1, %r2, %r3}};\nret;\n\
         LATE:\nld.param.u32 %u, [other];\nbra MEET;\n}}\n"
    )
}

/// Returns a test of four results of each lane, which are computed from the values of `%u` in all lanes.
fn shared(name: &str, covers: &str, meet: &str, of: fn(&[u32; 32], u32) -> [u32; 4]) -> [Case; 2] {
    [0x0000_07f0, 0x8421_1248].map(|late| {
        Case::new(&format!("{name}, late {late:#x}"), covers, &kernel(late, meet), move |device| {
            let out = device.upload_words(&vec![0; 4 * LANES as usize]);
            device.launch("k", Shape::line(1, LANES), &Params::new().u64(out).u32(9))?;
            let values = std::array::from_fn(|lane| if late >> lane & 1 == 1 { 9 } else { 5 });
            let wanted: Vec<u32> = (0..LANES).flat_map(|lane| of(&values, lane)).collect();
            same("results", &device.read_words(out, u64::from(4 * LANES)), &wanted)
        })
    })
}

/// Returns tests in which lanes exchange the value of a register that the lanes of each path share.
fn shared_values() -> Vec<Case> {
    let shuffles = "shfl.sync.bfly.b32 %r0, %u, 1, 31, -1;\nshfl.sync.up.b32 %r1, %u, 5, 0, -1;\n\
        shfl.sync.idx.b32 %r2, %u, 4, 31, -1;\nmov.u32 %r3, %u;\n";
    let votes = "setp.eq.u32 %q, %u, 5;\nvote.sync.ballot.b32 %r0, %q, -1;\nvote.sync.all.pred %p, %q, -1;\n\
        selp.u32 %r1, 1, 0, %p;\nvote.sync.any.pred %p, !%q, -1;\nselp.u32 %r2, 1, 0, %p;\n\
        vote.sync.uni.pred %p, %q, -1;\nselp.u32 %r3, 1, 0, %p;\n";
    let matches = "match.any.sync.b32 %r0, %u, -1;\nmatch.all.sync.b32 %r1|%p, %u, -1;\nselp.u32 %r2, 1, 0, %p;\n\
        redux.sync.add.u32 %r3, %u, -1;\n";
    let matrix = "mad.lo.u32 %r1, %u, 65536, %t;\nmovmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;\n\
        movmatrix.sync.aligned.m8n8.trans.b16 %r1, %u;\nmov.u32 %r2, %u;\nmov.u32 %r3, 0;\n";
    [
        shared("shuffles", "", shuffles, |u, lane| {
            let up = if lane >= 5 { lane - 5 } else { lane };
            [u[lane as usize ^ 1], u[up as usize], u[4], u[lane as usize]]
        }),
        shared("votes", "", votes, |u, _| {
            [u.iter().enumerate().fold(0, |all, (lane, &u)| all | u32::from(u == 5) << lane), 0, 1, 0]
        }),
        shared("matches", "", matches, |u, lane| {
            let own = u[lane as usize];
            let same = u.iter().enumerate().fold(0, |all, (lane, &u)| all | u32::from(u == own) << lane);
            [same, 0, 0, u.iter().sum()]
        }),
        shared("movmatrix", "", matrix, |u, lane| {
            let transposed = |values: &dyn Fn(u32) -> u32| {
                let element =
                    |row: u32, column: u32| values(4 * row + column / 2) >> (16 * (column % 2)) & 0xffff;
                let (row, column) = (lane / 4, lane % 4 * 2);
                element(column, row) | element(column + 1, row) << 16
            };
            let mixed = |lane: u32| u[lane as usize] << 16 | lane;
            [transposed(&mixed), transposed(&|lane| u[lane as usize]), u[lane as usize], 0]
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns a test of lanes that are one iteration ahead of the others in a loop whose counter each path
/// shares.
fn ahead() -> Case {
    let text = ".visible .entry k(.param .u64 out)\n{\n.reg .b64 %out, %a;\n.reg .b32 %t, %i, %x, %sum, %end;\n.reg .pred %p, %q;\n\
        ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmov.u32 %i, 0;\nmov.u32 %sum, 0;\nsetp.lt.u32 %p, %t, 16;\n\
        selp.u32 %end, 5, 4, %p;\nLOOP:\nsetp.eq.and.u32 %q, %i, 0, %p;\n@%q bra NEXT;\n\
        shfl.sync.bfly.b32 %x, %i, 16, 31, -1;\nmad.lo.u32 %sum, %sum, 10, %x;\n\
        NEXT:\nadd.u32 %i, %i, 1;\nsetp.lt.u32 %q, %i, %end;\n@%q bra LOOP;\n\
        mul.wide.u32 %a, %t, 4;\nadd.u64 %a, %a, %out;\nst.global.u32 [%a], %sum;\nret;\n}\n";
    Case::new("lanes that are an iteration ahead", "", text, |device| {
        let out = device.upload_words(&[0; 32]);
        device.launch("k", Shape::line(1, 32), &Params::new().u64(out))?;
        let wanted: Vec<u32> = (0..32).map(|lane| if lane < 16 { 123 } else { 1234 }).collect();
        same("sums", &device.read_words(out, 32), &wanted)
    })
}

/// Returns a test of a value that splits of a warp load from one address at different times.
fn loaded_apart() -> Case {
    let meet = "ld.volatile.global.u32 %u, [%out];\nadd.u32 %g, %u, 1;\nst.volatile.global.u32 [%out], %g;\n\
        shfl.sync.bfly.b32 %r0, %u, 16, 31, -1;\nmov.u32 %r1, %u;\nmov.u32 %r2, 0;\nmov.u32 %r3, 0;\n";
    let text = kernel(0xffff_0000, &format!("shfl.sync.bfly.b32 %r7, %t, 1, 31, %m;\n{meet}"))
        .replace("MEET:\n", "MEET:\nsetp.ge.u32 %p, %t, 16;\nselp.u32 %m, 0xffff0000, 65535, %p;\n")
        .replace("add.u64 %a, %a, %out;", "add.u64 %a, %a, %out;\nadd.u64 %a, %a, 16;");
    Case::new("a value that is loaded apart", "", &text, |device| {
        let out = device.upload_words(&vec![0; 4 * 33]);
        device.launch("k", Shape::line(1, 32), &Params::new().u64(out).u32(9))?;
        let results = device.read_words(out + 16, 4 * 32);
        // Whichever half runs first, and whether both run at once, each lane has got what its partner loaded.
        for lane in 0..32 {
            if results[4 * lane] != results[4 * (lane ^ 16) + 1] {
                return Err(format!("lane {lane}: {results:?}"));
            }
        }
        Ok(())
    })
}

/// Returns the member mask of a lane: those with the same remainder, of lanes that share a path.
fn group(lane: u32, by: u32, path: u32) -> u32 {
    (0..32)
        .filter(|other| other % by == lane % by && (path >> other ^ path >> lane) & 1 == 0)
        .fold(0, |all, other| all | 1 << other)
}

/// Returns a test of instructions whose members are different for the lanes of a warp. All lanes of a group
/// take the same path if `paths`, and arrive at different times otherwise.
fn groups(by: u32, late: u32, paths: bool) -> Case {
    let find = if paths {
        "mad.lo.u32 %g, %l, 64, %g;\nmatch.any.sync.b32 %m, %g, -1;\n"
    } else {
        "match.any.sync.b32 %m, %g, -1;\n"
    };
    // The groups are found before the lanes part, and used after that.
    let use_them = "setp.ge.u32 %q, %t, 11;\nvote.sync.ballot.b32 %r0, %q, %m;\nredux.sync.add.u32 %r1, %t, %m;\n\
        vote.sync.all.pred %p, %q, %m;\nselp.u32 %r2, 1, 0, %p;\nvote.sync.any.pred %p, %q, %m;\nselp.u32 %r3, 2, 0, %p;\n\
        or.b32 %r2, %r2, %r3;\nbfind.u32 %r4, %m;\nshfl.sync.idx.b32 %r3, %t, %r4, 31, %m;\nbar.warp.sync %m;\n\
        match.all.sync.b32 %r5|%p, %g, %m;\nselp.u32 %r6, 4, 0, %p;\nor.b32 %r2, %r2, %r6;\n\
        shr.u32 %r6, %t, 4;\nmatch.any.sync.b32 %r7, %r6, %m;\nxor.b32 %r5, %r5, %r7;\nadd.u32 %r3, %r3, %r5;\n";
    let text = kernel(late, use_them)
        .replace("setp.eq.u32 %p, %l, 1;", &format!("rem.u32 %g, %t, {by};\n{find}setp.eq.u32 %p, %l, 1;"));
    let name = format!("groups of every {by}th lane, late {late:#x}{}", if paths { " by group" } else { "" });
    Case::new(&name, "", &text, move |device| {
        let out = device.upload_words(&vec![0; 4 * 32]);
        device.launch("k", Shape::line(1, 32), &Params::new().u64(out).u32(9))?;
        let of = |lane: u32| {
            let members = group(lane, by, if paths { late } else { 0 });
            let all = |lanes: u32| (0..32u32).filter(move |lane| lanes >> lane & 1 == 1);
            let ballot = all(members).filter(|&lane| lane >= 11).fold(0, |all, lane| all | 1 << lane);
            let votes = u32::from(ballot == members) + 2 * u32::from(ballot != 0) + 4;
            let half =
                all(members).filter(|other| other / 16 == lane / 16).fold(0, |all, lane| all | 1 << lane);
            let last = members.ilog2();
            [ballot, all(members).sum(), votes, last.wrapping_add(members ^ half)]
        };
        same("results", &device.read_words(out, 4 * 32), &(0..32).flat_map(of).collect::<Vec<u32>>())
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    cases.extend(shared_values());
    cases.push(ahead());
    cases.push(loaded_apart());
    for by in [1, 2, 3, 5, 32] {
        for late in [0, 0x0000_07f0, 0x8421_1248] {
            for paths in [false, true] {
                cases.push(groups(by, late, paths));
            }
        }
    }
}
