//! Prints the instruction table of the engine.

fn main() {
    print!("{}", vgpu_simt::instruction_table());
}
