//! Which steps access memory, for all translators.

use super::template::{Elements, Entry, Memory, Table};
use crate::ops::memory::{
    FromU8, FromU16, Generic, Global, Load, LoadPair, LoadScalar, LoadTwo, Local, Same32, Same64, Shared,
    Store,
};

const fn elements(memory: Memory, bytes: u32, count: usize) -> Elements {
    Elements { memory, bytes, count, align: bytes * count as u32 }
}

macro_rules! spaces {
    ($table:ident, $($space:ident),*) => { $(
        let of = |bytes, count| elements(Memory::$space, bytes, count);
        $table.add::<Load<$space, Same32, false, 1>>(Entry::Load(of(4, 1)));
        $table.add::<Load<$space, Same32, false, 2>>(Entry::Load(of(4, 2)));
        $table.add::<Load<$space, Same32, false, 4>>(Entry::Load(of(4, 4)));
        $table.add::<Load<$space, FromU16, false, 1>>(Entry::Load(of(2, 1)));
        $table.add::<Load<$space, FromU8, false, 1>>(Entry::Load(of(1, 1)));
        $table.add::<Load<$space, Same64, false, 1>>(Entry::Load(of(8, 1)));
        $table.add::<LoadScalar<$space, Same32, 1>>(Entry::LoadScalar(of(4, 1)));
        $table.add::<LoadScalar<$space, Same32, 2>>(Entry::LoadScalar(of(4, 2)));
        $table.add::<LoadScalar<$space, Same32, 4>>(Entry::LoadScalar(of(4, 4)));
        $table.add::<LoadScalar<$space, FromU16, 1>>(Entry::LoadScalar(of(2, 1)));
        $table.add::<LoadScalar<$space, Same64, 1>>(Entry::LoadScalar(of(8, 1)));
        $table.add::<Store<$space, u8, false, 1>>(Entry::Store(of(1, 1)));
        $table.add::<Store<$space, u16, false, 1>>(Entry::Store(of(2, 1)));
        $table.add::<Store<$space, u16, false, 2>>(Entry::Store(of(2, 2)));
        $table.add::<Store<$space, u32, false, 1>>(Entry::Store(of(4, 1)));
        $table.add::<Store<$space, u32, false, 2>>(Entry::Store(of(4, 2)));
        $table.add::<Store<$space, u32, false, 4>>(Entry::Store(of(4, 4)));
        $table.add::<Store<$space, u64, false, 1>>(Entry::Store(of(8, 1)));
    )* };
}

pub(super) fn register<B: Copy>(table: &mut Table<B>) {
    spaces!(table, Global, Shared);
    let pair = |align| Elements { memory: Memory::Global, bytes: 4, count: 2, align };
    table.add::<LoadPair>(Entry::Load(Elements { align: 2, ..elements(Memory::Global, 4, 1) }));
    table.add::<LoadTwo<false>>(Entry::LoadTwo(pair(4)));
    table.add::<LoadTwo<true>>(Entry::LoadTwo(pair(2)));
    let word = |generic| elements(Memory::Local { generic }, 4, 1);
    table.add::<Load<Local, Same32, false, 1>>(Entry::Load(word(false)));
    table.add::<Load<Generic, Same32, false, 1>>(Entry::Load(word(true)));
    table.add::<Store<Local, u32, false, 1>>(Entry::Store(word(false)));
    table.add::<Store<Local, u16, false, 2>>(Entry::Store(Elements { bytes: 2, count: 2, ..word(false) }));
}
