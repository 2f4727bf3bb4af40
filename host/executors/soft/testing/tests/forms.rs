//! Each form of the fuzzer is an instruction that the front end and all engines accept.

use vgpu_simt::Features;
use vgpu_simt_testing::device::Device;
use vgpu_simt_testing::fuzz::forms;

/// Returns a kernel with one instruction of a form.
fn kernel(form: &forms::Form) -> String {
    let operand = |letter: char| match letter {
        'h' | 'H' => "%h",
        'd' | 'D' | 'G' => "%d",
        'p' | 'o' => "%p",
        'P' => "%p|%q",
        'k' => "150",
        _ => "%r",
    };
    let sources: Vec<&str> = form.sources.chars().map(operand).collect();
    format!(
        ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry k()\n{{\n.reg .b16 %h;\n.reg .b32 %r;\n\
         .reg .b64 %d;\n.reg .pred %p, %q;\n{} {}, {};\nret;\n}}\n",
        form.spelling,
        operand(form.dst),
        sources.join(", ")
    )
}

#[test]
fn each_form_is_accepted() {
    let mut refused = Vec::new();
    for &features in Features::available() {
        for form in forms::all() {
            if let Err(error) = Device::new(&kernel(form), features) {
                refused.push(format!("{features:?}: {}: {error}", form.spelling));
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(forms::all().len() > 1500, "{}", forms::all().len());
}
