//! Any text as a PTX module: read, or refused with the line. What is read is made ready to run, or refused
//! with the line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vgpu_ptx::Module;
use vgpu_simt::Program;

fuzz_target!(|bytes: &[u8]| {
    let Ok(module) = Module::parse(bytes.to_vec()) else { return };
    let globals = vec![0x1000; module.globals().len()];
    for name in module.kernel_names() {
        if let Ok(kernel) = module.kernel(name) {
            // Refused or ready: either will do.
            let _ = Program::new(&kernel, &globals);
        }
    }
});
