//! Tests of modules, libraries, functions and launches on a device that accepts them, and of the errors of a
//! device that runs no kernels.

use std::ffi::c_void;
use std::ptr;
use std::time::Instant;

use vgpu_abi::driver::{
    CUcontext, CUfunction, CUkernel, CUlaunchAttribute, CUlaunchConfig, CUlibrary, CUmodule, CUstream,
    launch_attribute,
};

use crate::executor::{changed, without_cubins};
use crate::host::{null, with_device};
use vgpu_conformance::calls::*;

const NO_STREAM: CUstream = CUstream(0);

fn device() -> vgpu_device::DeviceConfig {
    null("0000:00:05.0", |gpu| gpu.compute_capability = (7, 5))
}

/// Returns values for the 12 parameters of `hundred`, 100 bytes in all, and an empty list for the pointers to
/// them.
fn hundred() -> ([u64; 13], Vec<*mut c_void>) {
    let values: [u64; 13] = std::array::from_fn(|index| index as u64 * 0x0101_0101);
    (values, Vec::new())
}

fn pointers(values: &mut [u64; 13]) -> Vec<*mut c_void> {
    (0..12).map(|index| (&raw mut values[index]).cast()).collect()
}

fn load(image: *const c_void) -> CUmodule {
    get!(CUmodule, cuModuleLoadData(image))
}

#[test]
fn launches_are_one_message_each() {
    with_device("code::launches_are_one_message_each", device, || {
        begin();
        let before = counters();
        let module = load(PTX.as_ptr().cast());
        let kernel = function(module, "hundred");
        assert_eq!(function(module, "hundred"), kernel);
        let nothing = function(module, "nothing");
        assert_eq!(counters(), before, "nothing is sent before the first launch");
        assert_eq!(fails!(CUfunction, cuModuleGetFunction(module, c"missing".as_ptr())), 500);

        let (mut values, _) = hundred();
        let mut params = pointers(&mut values);
        assert_eq!(launch(kernel, NO_STREAM, &mut params), 0);
        let after = counters();
        assert_eq!(after.round_trips - before.round_trips, 4, "greeting, open, load, function");
        assert_eq!(after.messages - before.messages, 6, "those, the code and the launch");
        let stream = get!(CUstream, cuStreamCreate(1));
        let before = counters();
        for _ in 0..1000 {
            assert_eq!(launch(kernel, stream, &mut params), 0);
        }
        let after = counters();
        assert_eq!(after.messages - before.messages, 1000);
        assert_eq!((after.round_trips, after.waits), (before.round_trips, before.waits), "nobody waits");
        assert_eq!(
            cu!(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, ptr::null_mut(), ptr::null_mut())),
            0
        );

        // A variable: one round trip, and its memory can be copied to.
        let (mut address, mut bytes) = (0, 0);
        ok!(cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, c"table".as_ptr()));
        assert_eq!(
            messages(|| ok!(cuModuleGetGlobal_v2(
                &raw mut address,
                ptr::null_mut(),
                module,
                c"table".as_ptr()
            ))),
            0
        );
        upload(address, &vec![1; bytes]);
        assert_eq!(cu!(cuMemFree_v2(address)), 1, "it is the module's");

        // The other form of parameters.
        let mut size = 100_usize;
        let mut extra: [usize; 5] = [1, values.as_ptr() as usize, 2, &raw mut size as usize, 0];
        let extra: *mut *mut c_void = extra.as_mut_ptr().cast();
        ok!(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, ptr::null_mut(), extra));
        size -= 1;
        std::hint::black_box(&size);
        assert_eq!(cu!(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, ptr::null_mut(), extra)), 1);
        ok!(cuCtxSynchronize());
        ok!(cuModuleUnload(module));
        assert_eq!(launch(kernel, stream, &mut params), 400);
        assert_eq!(cu!(cuModuleUnload(module)), 400);
    });
}

#[test]
fn wrong_launches_are_refused_here() {
    with_device("code::wrong_launches_are_refused_here", device, || {
        begin();
        let module = load(PTX.as_ptr().cast());
        let kernel = function(module, "hundred");
        let (mut values, _) = hundred();
        let mut params = pointers(&mut values);
        assert_eq!(launch(kernel, NO_STREAM, &mut params), 0);
        let sent = messages(|| {
            let mut shape = |grid: [u32; 3], block: [u32; 3], shared| {
                cu!(cuLaunchKernel(
                    kernel,
                    grid[0],
                    grid[1],
                    grid[2],
                    block[0],
                    block[1],
                    block[2],
                    shared,
                    NO_STREAM,
                    params.as_mut_ptr(),
                    ptr::null_mut()
                ))
            };
            assert_eq!(shape([0, 1, 1], [1, 1, 1], 0), 1);
            assert_eq!(shape([1, 1, 1], [1, 0, 1], 0), 1);
            assert_eq!(shape([1, 65536, 1], [1, 1, 1], 0), 1);
            assert_eq!(shape([1, 1, 1], [1, 1, 65], 0), 1);
            assert_eq!(shape([1, 1, 1], [32, 32, 2], 0), 1);
            assert_eq!(shape([1, 1, 1], [1, 1, 1], 10 << 20), 1);
            let no = ptr::null_mut();
            assert_eq!(cu!(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NO_STREAM, no, no)), 1);
            assert_eq!(cu!(cuLaunchKernel(CUfunction(0), 1, 1, 1, 1, 1, 1, 0, NO_STREAM, no, no)), 400);
            assert_eq!(
                cu!(cuLaunchKernel(CUfunction(module.0), 1, 1, 1, 1, 1, 1, 0, NO_STREAM, no, no)),
                400
            );
            assert_eq!(launch(kernel, CUstream(kernel.0), &mut params), 400);
            params[3] = ptr::null_mut();
            assert_eq!(launch(kernel, NO_STREAM, &mut params), 1);
        });
        assert_eq!(sent, 0);
    });
}

#[test]
fn extended_launches_take_attributes() {
    with_device("code::extended_launches_take_attributes", device, || {
        begin();
        let module = load(PTX.as_ptr().cast());
        let nothing = function(module, "nothing");
        let attribute = |id, value| CUlaunchAttribute { id, value: [value, 0, 0, 0, 0, 0, 0, 0] };
        let run = |attributes: &[CUlaunchAttribute]| {
            let config = CUlaunchConfig {
                grid: [2, 1, 1],
                block: [64, 1, 1],
                shared_bytes: 0,
                stream: NO_STREAM,
                attributes: attributes.as_ptr(),
                attribute_count: attributes.len() as u32,
            };
            cu!(cuLaunchKernelEx(&raw const config, nothing, ptr::null_mut(), ptr::null_mut()))
        };
        assert_eq!(run(&[]), 0);
        assert_eq!(run(&[attribute(launch_attribute::PROGRAMMATIC_STREAM_SERIALIZATION, 1)]), 0);
        assert_eq!(run(&[attribute(launch_attribute::LAUNCH_COMPLETION_EVENT, 1)]), 801);
        assert_eq!(
            run(&[attribute(launch_attribute::CLUSTER_DIMENSION, 2 | 1 << 32)]),
            912,
            "clusters are for 9.0"
        );
        assert_eq!(run(&[attribute(77, 1)]), 1);
        assert_eq!(cu!(cuLaunchKernelEx(ptr::null(), nothing, ptr::null_mut(), ptr::null_mut())), 1);
    });
}

#[test]
fn attributes_cost_one_round_trip() {
    with_device("code::attributes_cost_one_round_trip", device, || {
        begin();
        let module = load(PTX.as_ptr().cast());
        let kernel = function(module, "hundred");
        let first = get!(i32, cuFuncGetAttribute(0, kernel));
        assert_eq!(first, 1024);
        let sent = messages(|| {
            for attribute in 0..16 {
                get!(i32, cuFuncGetAttribute(attribute, kernel));
            }
            assert_eq!(get!(i32, cuFuncGetAttribute(5, kernel)), 75);
            assert_eq!(fails!(i32, cuFuncGetAttribute(16, kernel)), 1);
            let mut bytes = 0;
            let mut offset = 0;
            ok!(cuFuncGetParamInfo(kernel, 11, &raw mut offset, &raw mut bytes));
            assert_eq!((offset, bytes), (88, 12));
            assert_eq!(cu!(cuFuncGetParamInfo(kernel, 12, &raw mut offset, &raw mut bytes)), 1);
        });
        assert_eq!(sent, 0);
        assert_eq!(messages(|| ok!(cuFuncSetAttribute(kernel, 8, 40_000))), 1);
        assert_eq!(messages(|| ok!(cuFuncSetAttribute(kernel, 8, 40_000))), 0, "it is so already");
        assert_eq!(get!(i32, cuFuncGetAttribute(8, kernel)), 40_000);
        assert_eq!(cu!(cuFuncSetAttribute(kernel, 8, 10 << 20)), 1);
        assert_eq!(cu!(cuFuncSetAttribute(kernel, 8, -1)), 1);
        assert_eq!(cu!(cuFuncSetAttribute(kernel, 0, 1)), 1, "read only");
        let ask = || get!(i32, cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel, 256, 0));
        let blocks = ask();
        assert!(blocks > 0);
        assert_eq!(messages(|| assert_eq!(ask(), blocks)), 0);
        assert_eq!(fails!(i32, cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel, 0, 0)), 1);
    });
}

#[test]
fn libraries_are_loaded_when_used() {
    with_device("code::libraries_are_loaded_when_used", device, || {
        let context = begin();
        let image = fatbin(61);
        let wrapper: [u64; 3] = [0x4662_43b1 | 1 << 32, image.as_ptr() as u64, 0];
        let mut options = [1_u32];
        let mut values = [ptr::without_provenance_mut::<c_void>(1)];
        let load = |code: *const c_void, options: &mut [u32], values: &mut [*mut c_void]| {
            get!(
                CUlibrary,
                cuLibraryLoadData(
                    code,
                    ptr::null_mut(),
                    ptr::null_mut(),
                    0,
                    options.as_mut_ptr(),
                    values.as_mut_ptr(),
                    options.len() as u32
                )
            )
        };
        let before = counters();
        let library = load(wrapper.as_ptr().cast(), &mut options, &mut values);
        let kernel = get!(CUkernel, cuLibraryGetKernel(library, c"hundred".as_ptr()));
        assert_eq!(fails!(CUkernel, cuLibraryGetKernel(library, c"none".as_ptr())), 500);
        assert_eq!(counters(), before);
        let (mut values_, _) = hundred();
        let mut params = pointers(&mut values_);
        // A kernel's handle is as good as a function's.
        assert_eq!(launch(CUfunction(kernel.0), NO_STREAM, &mut params), 0);
        let function = get!(CUfunction, cuKernelGetFunction(kernel));
        assert_eq!(messages(|| assert_eq!(launch(function, NO_STREAM, &mut params), 0)), 1);
        assert_eq!(messages(|| assert_eq!(launch(CUfunction(kernel.0), NO_STREAM, &mut params), 0)), 1);
        // In another context it is another function.
        let second = get!(CUcontext, cuCtxCreate_v2(0, 0));
        assert_eq!(launch(function, NO_STREAM, &mut params), 400, "of another context");
        assert_eq!(launch(CUfunction(kernel.0), NO_STREAM, &mut params), 0);
        assert_ne!(get!(CUfunction, cuKernelGetFunction(kernel)), function);
        ok!(cuCtxDestroy_v2(second));
        ok!(cuCtxSetCurrent(context));
        assert_eq!(launch(CUfunction(kernel.0), NO_STREAM, &mut params), 0);
        ok!(cuLibraryUnload(library));
        assert_eq!(launch(CUfunction(kernel.0), NO_STREAM, &mut params), 400);
        assert_eq!(cu!(cuLibraryUnload(library)), 400);

        // No code for this device: known at once for a module, at the first launch for a library.
        let newer = fatbin(90);
        assert_eq!(fails!(CUmodule, cuModuleLoadData(newer.as_ptr().cast())), 209);
        let library = load(newer.as_ptr().cast(), &mut [], &mut []);
        let kernel = get!(CUkernel, cuLibraryGetKernel(library, c"hundred".as_ptr()));
        assert_eq!(launch(CUfunction(kernel.0), NO_STREAM, &mut params), 209);
        assert_eq!(fails!(CUmodule, cuModuleLoadData(c"nonsense".as_ptr().cast())), 200);
        assert_eq!(fails!(CUmodule, cuModuleLoadData(ptr::null())), 1);
    });
}

/// Tests a device that announces cubins and refuses each, like a host of version 1 whose executor accepts
/// only PTX.
#[test]
fn a_device_that_refuses_a_cubin_gets_the_ptx_of_the_same_image() {
    use vgpu_image::fatbin::{Kind, Packing, build::fatbin};
    use vgpu_image::{cubin::build::cubin, ptx::Specific};
    with_device(
        "code::a_device_that_refuses_a_cubin_gets_the_ptx_of_the_same_image",
        || without_cubins("0000:00:05.0"),
        || {
            begin();
            let text =
                b".version 7.0\n.target sm_61\n.address_size 64\n.visible .entry k()\n{\n    ret;\n}\n\0";
            let code = cubin(&[("k".to_owned(), vec![], false)], 75);
            let alone = fatbin(&[(Kind::Cubin, 75, Specific::No, Packing::Plain, code.clone())]);
            let both = fatbin(&[
                (Kind::Ptx, 61, Specific::No, Packing::Plain, text.to_vec()),
                (Kind::Cubin, 75, Specific::No, Packing::Plain, code),
            ]);
            let launched = |module| launch(function(module, "k"), NO_STREAM, &mut []);
            for _ in 0..2 {
                assert_eq!(launched(load(both.as_ptr().cast())), 0);
            }
            let refused = |image: &[u8]| {
                let mut module = CUmodule(0);
                match cu!(cuModuleLoadData(&raw mut module, image.as_ptr().cast())) {
                    0 => launched(module),
                    error => error,
                }
            };
            assert_eq!(refused(&alone), 209, "there is nothing else to send");
        },
    );
}

#[test]
fn a_device_without_kernels_says_so() {
    with_device(
        "code::a_device_without_kernels_says_so",
        || changed("0000:00:05.0", |facts| facts.abilities = 0),
        || {
            begin();
            assert_eq!(fails!(CUmodule, cuModuleLoadData(PTX.as_ptr().cast())), 801);
            // The session continues.
            let address = alloc(100);
            ok!(cuMemFree_v2(address));
        },
    );
}

#[test]
fn launches_are_fast() {
    with_device("code::launches_are_fast", device, || {
        begin();
        let module = load(PTX.as_ptr().cast());
        let kernel = function(module, "hundred");
        let (mut values, _) = hundred();
        let mut params = pointers(&mut values);
        let stream = get!(CUstream, cuStreamCreate(1));
        assert_eq!(launch(kernel, stream, &mut params), 0);
        ok!(cuCtxSynchronize());
        let rounds = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
        let mut rates: Vec<f64> = (0..5)
            .map(|_| {
                let begin = Instant::now();
                for _ in 0..rounds {
                    assert_eq!(launch(kernel, stream, &mut params), 0);
                }
                ok!(cuCtxSynchronize());
                f64::from(rounds) / begin.elapsed().as_secs_f64() / 1e6
            })
            .collect();
        rates.sort_by(f64::total_cmp);
        eprintln!("{:.2} million launches a second, completed (median of 5 x {rounds})", rates[2]);
        // Measures what a launch costs the guest while the ring has room.
        let mut costs: Vec<u128> = (0..101)
            .map(|_| {
                ok!(cuCtxSynchronize());
                let begin = Instant::now();
                for _ in 0..1000 {
                    assert_eq!(launch(kernel, stream, &mut params), 0);
                }
                begin.elapsed().as_nanos() / 1000
            })
            .collect();
        costs.sort_unstable();
        eprintln!("a launch takes the guest {} ns (median of 101 x 1000)", costs[50]);
    });
}
