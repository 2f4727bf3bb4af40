//! Registers the instructions that access memory, for both translators.

use super::template::{Action, Elements, MemSpace, Templates};
use crate::ops::memory::{
    FromU8, FromU16, Generic, Global, Load, LoadPair, LoadScalar, LoadTwo, Local, Same32, Same64, Shared,
    Store,
};

const fn elements(memory: MemSpace, bytes: u32, count: usize) -> Elements {
    Elements { memory, bytes, count, align: bytes * count as u32 }
}

macro_rules! spaces {
    ($table:ident, $($space:ident),*) => { $(
        let of = |bytes, count| elements(MemSpace::$space, bytes, count);
        $table.add::<Load<$space, Same32, false, 1>>(Action::Load(of(4, 1)));
        $table.add::<Load<$space, Same32, false, 2>>(Action::Load(of(4, 2)));
        $table.add::<Load<$space, Same32, false, 4>>(Action::Load(of(4, 4)));
        $table.add::<Load<$space, FromU16, false, 1>>(Action::Load(of(2, 1)));
        $table.add::<Load<$space, FromU8, false, 1>>(Action::Load(of(1, 1)));
        $table.add::<Load<$space, Same64, false, 1>>(Action::Load(of(8, 1)));
        $table.add::<LoadScalar<$space, Same32, 1>>(Action::LoadScalar(of(4, 1)));
        $table.add::<LoadScalar<$space, Same32, 2>>(Action::LoadScalar(of(4, 2)));
        $table.add::<LoadScalar<$space, Same32, 4>>(Action::LoadScalar(of(4, 4)));
        $table.add::<LoadScalar<$space, FromU16, 1>>(Action::LoadScalar(of(2, 1)));
        $table.add::<LoadScalar<$space, Same64, 1>>(Action::LoadScalar(of(8, 1)));
        $table.add::<Store<$space, u8, false, 1>>(Action::Store(of(1, 1)));
        $table.add::<Store<$space, u16, false, 1>>(Action::Store(of(2, 1)));
        $table.add::<Store<$space, u16, false, 2>>(Action::Store(of(2, 2)));
        $table.add::<Store<$space, u32, false, 1>>(Action::Store(of(4, 1)));
        $table.add::<Store<$space, u32, false, 2>>(Action::Store(of(4, 2)));
        $table.add::<Store<$space, u32, false, 4>>(Action::Store(of(4, 4)));
        $table.add::<Store<$space, u64, false, 1>>(Action::Store(of(8, 1)));
    )* };
}

pub(super) fn register<B: Copy>(table: &mut Templates<B>) {
    spaces!(table, Global, Shared);
    let pair = |align| Elements { memory: MemSpace::Global, bytes: 4, count: 2, align };
    table.add::<LoadPair>(Action::Load(Elements { align: 2, ..elements(MemSpace::Global, 4, 1) }));
    table.add::<LoadTwo<false>>(Action::LoadTwo(pair(4)));
    table.add::<LoadTwo<true>>(Action::LoadTwo(pair(2)));
    let word = |generic| elements(MemSpace::Local { generic }, 4, 1);
    table.add::<Load<Local, Same32, false, 1>>(Action::Load(word(false)));
    table.add::<Load<Generic, Same32, false, 1>>(Action::Load(word(true)));
    table.add::<Store<Local, u32, false, 1>>(Action::Store(word(false)));
    table.add::<Store<Local, u16, false, 2>>(Action::Store(Elements { bytes: 2, count: 2, ..word(false) }));
}
