//! Parses random text as a PTX module. It must be parsed and prepared to run, or rejected with the line of
//! the error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vgpu_ptx::Module;
use vgpu_simt::Program;

fuzz_target!(|bytes: &[u8]| {
    let Ok(module) = Module::parse(bytes.to_vec()) else { return };
    let globals = vec![0x1000; module.globals().len()];
    for name in module.kernel_names() {
        if let Ok(kernel) = module.kernel(name) {
            // The kernel may be rejected or prepared to run.
            let _ = Program::new(&kernel, &globals);
        }
    }
});
