//! Tests of the arena against a model, and against addresses that point anywhere.

use std::collections::BTreeMap;

use proptest::prelude::*;
use vgpu_arena::{AccessRights, Arena, ArenaError, FaultKind, LANES, PAGE, PhysicalPool, View, Window};

const BASE: u64 = 0x7000_0000_0000;
const SPAN: u64 = 64 * PAGE;

fn arena() -> Arena {
    Arena::new(BASE, SPAN).unwrap()
}

fn lanes(address: impl Fn(u64) -> u64) -> [u64; LANES] {
    std::array::from_fn(|lane| address(lane as u64))
}

fn byte(view: &View, address: u64) -> Option<u8> {
    view.load_uniform::<u8>(&mut Window::default(), address).ok()
}

#[test]
fn memory_is_zero_exact_and_gone_when_unmapped() {
    let arena = arena();
    arena.map(BASE + PAGE, 1000).unwrap();
    let view = arena.view();
    assert_eq!(byte(&view, BASE + PAGE), Some(0));
    assert_eq!(byte(&view, BASE + PAGE + 999), Some(0));
    for wrong in [BASE, BASE + PAGE - 1, BASE + PAGE + 1000, 0, u64::MAX, BASE + SPAN] {
        assert_eq!(byte(&view, wrong), None, "{wrong:#x}");
    }
    view.writable(BASE + PAGE, 1000).unwrap().copy_from(&[7u8; 1000]);
    assert!(view.readable(BASE + PAGE, 1001).is_err());
    assert!(view.readable(BASE + PAGE + 1, u64::MAX).is_err());
    arena.unmap(BASE + PAGE, 1000).unwrap();
    assert_eq!(byte(&arena.view(), BASE + PAGE), None);
    drop(view);
    arena.map(BASE + PAGE, 1000).unwrap();
    assert_eq!(byte(&arena.view(), BASE + PAGE + 5), Some(0), "nothing of the old is left");
}

#[test]
fn a_view_keeps_what_it_shows() {
    let arena = arena();
    arena.map(BASE, PAGE).unwrap();
    let view = arena.view();
    let mut window = Window::default();
    view.store_uniform::<u32>(&mut window, BASE, 5).unwrap();
    arena.unmap(BASE, PAGE).unwrap();
    assert_eq!(view.load_uniform::<u32>(&mut window, BASE), Ok(5));
    assert!(matches!(arena.map(BASE, PAGE), Err(ArenaError::NotFree { .. })));
    // The window was filled by a view that saw the memory, and a newer view must not use it.
    assert!(arena.view().load_uniform::<u32>(&mut window, BASE).is_err());
    drop(view);
    arena.map(BASE, PAGE).unwrap();
    assert_eq!(arena.view().load_uniform::<u32>(&mut window, BASE), Ok(0));
}

/// Returns the number of mappings of this process, as Linux counts them.
fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

/// Returns the number of bytes between two addresses that are resident in the host's memory.
fn resident(memory: &View, address: u64) -> u64 {
    let at = memory.readable(address, 1).unwrap().ptr_guard().as_ptr() as usize;
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = smaps.lines();
    let holds = |line: &str| {
        let (range, _) = line.split_once(' ').unwrap_or_default();
        let (start, end) = range.split_once('-').unwrap_or_default();
        let number = |text| usize::from_str_radix(text, 16);
        matches!((number(start), number(end)), (Ok(start), Ok(end)) if (start..end).contains(&at))
    };
    lines.by_ref().find(|line| holds(line)).expect("the memory is mapped");
    let line = lines.find(|line| line.starts_with("Rss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn mappings_of_the_process_do_not_grow_with_allocations_and_memory_goes_back() {
    const COUNT: u64 = 40_000;
    // The allocation is longer than the pieces in which an arena is made accessible.
    let arena = Arena::new(BASE, 512 << 20).unwrap();
    arena.map(BASE, PAGE).unwrap();
    let before = mappings();
    for index in 1..COUNT {
        arena.map(BASE + 2 * index * PAGE, PAGE).unwrap();
    }
    // Other tests of this process have mappings of their own.
    assert!(mappings() < before + 1000, "{} after {before}", mappings());
    let view = arena.view();
    for index in 0..COUNT {
        view.writable(BASE + 2 * index * PAGE, 1).unwrap().copy_from(&[1u8]);
    }
    assert!(resident(&view, BASE) >= COUNT * PAGE);
    drop(view);
    for index in 1..COUNT {
        arena.unmap(BASE + 2 * index * PAGE, PAGE).unwrap();
    }
    assert!(mappings() < before + 1000, "{} after {before}", mappings());
    let view = arena.view();
    assert_eq!(resident(&view, BASE), PAGE, "only the first is left");
    drop(view);
    arena.map(BASE + 2 * PAGE, PAGE).unwrap();
    assert_eq!(byte(&arena.view(), BASE + 2 * PAGE), Some(0));
}

#[test]
fn physical_memory_of_many_pieces_is_one_file_and_goes_back() {
    const BYTES: u64 = 2 << 20;
    let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let pool = PhysicalPool::new().unwrap();
    let before = files();
    let mut held: Vec<_> = (0..500).map(|_| pool.allocate(BYTES).unwrap()).collect();
    assert!(files() < before + 100, "{} after {before}", files());
    let arena = Arena::new(BASE, 64 << 20).unwrap();
    arena.map_shared(BASE, BYTES, &held[7], 0, AccessRights::ReadWrite).unwrap();
    arena.map_shared(BASE + BYTES, BYTES, &held[8], 0, AccessRights::ReadWrite).unwrap();
    arena.view().writable(BASE, 2 * BYTES).unwrap().copy_from(&vec![3u8; 2 * BYTES as usize]);
    assert_eq!(pool.occupied().unwrap(), 2 * BYTES);
    held.remove(7);
    assert_eq!(pool.occupied().unwrap(), 2 * BYTES, "it is mapped");
    arena.unmap(BASE, BYTES).unwrap();
    assert_eq!(pool.occupied().unwrap(), BYTES);
    held.clear();
    arena.unmap(BASE + BYTES, BYTES).unwrap();
    assert_eq!(pool.occupied().unwrap(), 0);
    assert_eq!(byte(&arena.view(), BASE), None);
}

#[test]
fn a_view_outlives_its_arena() {
    let view = {
        let arena = arena();
        arena.map(BASE, PAGE).unwrap();
        arena.view()
    };
    assert_eq!(byte(&view, BASE + 1), Some(0));
}

#[test]
fn physical_memory_can_be_seen_at_two_addresses_and_joins_its_neighbour() {
    let arena = arena();
    let physical = PhysicalPool::new().unwrap().allocate(4 * PAGE).unwrap();
    arena.map_shared(BASE, 2 * PAGE, &physical, 0, AccessRights::ReadWrite).unwrap();
    arena.map_shared(BASE + 2 * PAGE, 2 * PAGE, &physical, 2 * PAGE, AccessRights::ReadWrite).unwrap();
    arena.map_shared(BASE + 8 * PAGE, PAGE, &physical, PAGE, AccessRights::Read).unwrap();
    let view = arena.view();
    let whole = view.writable(BASE, 4 * PAGE).unwrap();
    whole.copy_from(&(0..4 * PAGE).map(|i| (i / PAGE) as u8).collect::<Vec<_>>());
    assert_eq!(byte(&view, BASE + 8 * PAGE), Some(1));
    assert!(view.writable(BASE + 8 * PAGE, 1).is_err());
    let mut window = Window::default();
    let fault = view.store(&mut window, &lanes(|i| BASE + 8 * PAGE + i), u32::MAX, &[1u8; LANES]);
    assert_eq!(fault.unwrap_err().kind, FaultKind::Illegal);
    drop(view);
    // The content stays with the physical memory.
    arena.unmap(BASE, 4 * PAGE).unwrap();
    arena.map_shared(BASE, PAGE, &physical, 3 * PAGE, AccessRights::None).unwrap();
    assert_eq!(byte(&arena.view(), BASE), None);
    arena.set_access(BASE, PAGE, AccessRights::Read).unwrap();
    assert_eq!(byte(&arena.view(), BASE), Some(3));
    for (address, bytes) in
        [(BASE, 2 * PAGE), (BASE + 1, PAGE), (BASE + 4 * PAGE, PAGE), (BASE, 0), (BASE, u64::MAX)]
    {
        assert!(arena.set_access(address, bytes, AccessRights::Read).is_err(), "{address:#x} {bytes:#x}");
        assert!(arena.unmap(address, bytes).is_err());
    }
    for (bytes, offset) in [(PAGE, 4 * PAGE), (2 * PAGE, 3 * PAGE), (PAGE, 1), (PAGE, u64::MAX - PAGE + 1)] {
        assert!(arena.map_shared(BASE + 16 * PAGE, bytes, &physical, offset, AccessRights::Read).is_err());
    }
}

#[test]
fn what_is_no_arena_is_refused() {
    for (base, span) in
        [(1, PAGE), (0, 0), (0, 1), (u64::MAX - PAGE + 1, PAGE), (1 << 62, PAGE), (0, 1 << 61)]
    {
        assert!(Arena::new(base, span).is_err(), "{base:#x} {span:#x}");
    }
    let arena = arena();
    for (address, bytes) in [
        (BASE + 1, 1),
        (BASE - PAGE, PAGE),
        (BASE + SPAN, PAGE),
        (BASE + SPAN - PAGE, 2 * PAGE),
        (BASE, 0),
        (BASE, u64::MAX),
    ] {
        assert!(arena.map(address, bytes).is_err(), "{address:#x} {bytes:#x}");
    }
    arena.map(BASE + 4 * PAGE, PAGE).unwrap();
    for (address, bytes) in [(BASE + 4 * PAGE, 1), (BASE + 3 * PAGE, PAGE + 1), (BASE, 64 * PAGE)] {
        assert!(matches!(arena.map(address, bytes), Err(ArenaError::NotFree { .. })));
    }
    arena.map(BASE + 3 * PAGE, PAGE).unwrap();
}

#[test]
fn atomics_lose_nothing_among_threads() {
    let arena = arena();
    arena.map(BASE, PAGE).unwrap();
    let view = arena.view();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let view = view.clone();
            scope.spawn(move || {
                let (mut window, mut old) = (Window::default(), [0u32; LANES]);
                for _ in 0..500 {
                    view.rmw(
                        &mut window,
                        &[BASE + 8; LANES],
                        u32::MAX,
                        |lane, old| old + lane as u32,
                        &mut old,
                    )
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(view.load_uniform::<u32>(&mut Window::default(), BASE + 8), Ok(4 * 500 * (31 * 32 / 2)));
}

#[test]
fn rmw_goes_lane_by_lane_and_tells_what_was_there() {
    let arena = arena();
    arena.map(BASE, PAGE).unwrap();
    let view = arena.view();
    let mut old = [u64::MAX; LANES];
    view.rmw(&mut Window::default(), &[BASE; LANES], 0x8000_0005, |_, old| old + 1, &mut old).unwrap();
    assert_eq!((old[0], old[1], old[2], old[31]), (0, u64::MAX, 1, 2));
}

/// Two allocations of odd sizes: address and bytes.
const FILLED: [(u64, u64); 2] = [(BASE, 1000), (BASE + PAGE, 603)];

/// Returns a view of the allocations, filled with a pattern, and their contents.
fn filled() -> (View, BTreeMap<u64, u8>) {
    let arena = arena();
    let mut model = BTreeMap::new();
    for (address, bytes) in FILLED {
        arena.map(address, bytes).unwrap();
        let data: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect();
        arena.view().writable(address, bytes).unwrap().copy_from(&data);
        model.extend((address..).zip(data));
    }
    (arena.view(), model)
}

/// Returns a strategy for the addresses of a warp: mostly within the first allocation, and some beyond its
/// end, in the second, or anywhere.
fn addresses() -> impl Strategy<Value = [u64; LANES]> {
    let start = prop_oneof![4 => 0u64..900, 1 => PAGE..PAGE + 600, 1 => 900u64..2 * PAGE];
    let aligned = start.clone().prop_map(|offset| offset / 16 * 16);
    let stride = prop::sample::select(vec![0u64, 1, 2, 4, 8, 16, 24, 32]);
    let single = prop_oneof![10 => 0u64..124, 2 => 512u64..587, 1 => 0u64..1024].prop_map(|a| BASE + a * 8);
    // Vectors: strategies of arrays of 32 are too large for a test's stack.
    let each = |one: BoxedStrategy<u64>| {
        prop::collection::vec(one, LANES).prop_map(|all| lanes(|lane| all[lane as usize])).boxed()
    };
    let wild = prop_oneof![30 => single.clone(), 1 => BASE..BASE + 2 * PAGE, 1 => any::<u64>()];
    prop_oneof![
        (prop_oneof![start, aligned], stride)
            .prop_map(|(offset, stride)| lanes(|lane| BASE + offset + lane * stride)),
        each((0u64..62).prop_map(|a| BASE + a * 16).boxed()),
        each(single.boxed()),
        each(wild.boxed()),
    ]
}

fn expected(model: &BTreeMap<u64, u8>, address: u64, bytes: u64) -> Result<Vec<u8>, FaultKind> {
    if !address.is_multiple_of(bytes) {
        return Err(FaultKind::Misaligned);
    }
    // The two allocations are pages apart, so a range with both ends in the model is within one of them.
    (0..bytes)
        .map(|i| model.get(&address.wrapping_add(i)).copied())
        .collect::<Option<_>>()
        .ok_or(FaultKind::Illegal)
}

macro_rules! against_the_model {
    ($name:ident, $ty:ty) => {
        proptest! {
            #[test]
            fn $name(addresses in addresses(), mask in prop_oneof![Just(u32::MAX), any::<u32>()], warm in any::<bool>(), value: $ty) {
                const BYTES: u64 = size_of::<$ty>() as u64;
                let (view, mut model) = filled();
                let mut window = Window::default();
                if warm {
                    view.load_uniform::<u8>(&mut window, BASE).unwrap();
                }
                let active = |lane: usize| mask >> lane & 1 == 1;
                let number = |bytes: Vec<u8>| <$ty>::from_le_bytes(bytes.try_into().unwrap());
                let wants: Vec<_> = addresses.iter().map(|&address| expected(&model, address, BYTES)).collect();
                let first_bad = (0..LANES).find(|&lane| active(lane) && wants[lane].is_err());

                let mut out = [value; LANES];
                let loaded = view.load::<$ty>(&mut window, &addresses, mask, &mut out);
                let mut with = [value; LANES];
                let again = view.load_with::<$ty>(&mut window, &addresses, mask, |lane, value| with[lane] = value);
                prop_assert_eq!((loaded, out), (again, with));
                // Eight lanes at a time: all lanes or none, and only with a window that fits.
                let mut eights = [value; LANES];
                let bases = addresses.map(|address| address.wrapping_sub(16));
                let loaded_eights = view.load_eights::<$ty, 1, LANES>(&window, &bases, 16, BYTES, |index, _, eight| {
                    eights[8 * index..][..8].copy_from_slice(&eight);
                });
                if loaded_eights {
                    for lane in 0..LANES {
                        prop_assert_eq!(eights[lane], number(wants[lane].clone().unwrap()));
                    }
                } else {
                    prop_assert_eq!(eights, [value; LANES]);
                }
                let first = BASE <= addresses[0] && addresses.iter().all(|&address| address < BASE + PAGE);
                prop_assert_eq!(warm && first && mask == u32::MAX && loaded.is_ok() && !loaded_eights, false);
                if let Some(lane) = first_bad {
                    let fault = loaded.unwrap_err();
                    prop_assert_eq!((fault.lane as usize, fault.address), (lane, addresses[lane]));
                    prop_assert_eq!(Err(fault.kind), wants[lane].clone());
                    prop_assert_eq!(out, [value; LANES]);
                } else {
                    loaded.unwrap();
                    for lane in 0..LANES {
                        let want = if active(lane) { number(wants[lane].clone().unwrap()) } else { value };
                        prop_assert_eq!(out[lane], want, "lane {}", lane);
                    }
                }

                let values: [$ty; LANES] = std::array::from_fn(|lane| value.wrapping_mul(lane as $ty + 3));
                let stored = view.store::<$ty>(&mut window, &addresses, mask, &values);
                prop_assert_eq!(stored.is_err(), first_bad.is_some());
                if first_bad.is_none() {
                    for lane in (0..LANES).filter(|&lane| active(lane)) {
                        model.extend((addresses[lane]..).zip(values[lane].to_le_bytes()));
                    }
                }
                for (start, bytes) in FILLED {
                    let mut now = vec![0u8; bytes as usize];
                    view.readable(start, bytes).unwrap().copy_to(&mut now);
                    prop_assert!(now.iter().zip(model.range(start..)).all(|(a, (_, b))| a == b));
                }
            }
        }
    };
}

against_the_model!(bytes_are_what_the_model_says, u8);
against_the_model!(halves_are_what_the_model_says, u16);
against_the_model!(words_are_what_the_model_says, u32);
against_the_model!(doubles_are_what_the_model_says, u64);

proptest! {
    #[test]
    fn vectors_are_their_elements(addresses in addresses(), mask: u32) {
        let (view, model) = filled();
        let mut window = Window::default();
        let mut out = [[9u32; LANES]; 4];
        let loaded = view.load_vec(&mut window, &addresses, mask, |lane, element, value| out[element][lane] = value, 4);
        let good = (0..LANES).filter(|lane| mask >> lane & 1 == 1).all(|lane| expected(&model, addresses[lane], 16).is_ok());
        prop_assert_eq!(loaded.is_ok(), good);
        for (element, values) in out.iter().enumerate() {
            for lane in 0..LANES {
                let want = if good && mask >> lane & 1 == 1 {
                    let bytes = expected(&model, addresses[lane], 16).unwrap();
                    u32::from_le_bytes(bytes[element * 4..][..4].try_into().unwrap())
                } else { 9 };
                prop_assert_eq!(values[lane], want);
            }
        }
        let stored = view.store_vec(&mut window, &addresses, mask, |lane, element| out[element][lane], 4);
        prop_assert_eq!(stored.is_ok(), good);
        for (lane, &address) in addresses.iter().enumerate() {
            if good && mask >> lane & 1 == 1 {
                let uniform: [u32; 4] = view.load_uniform_vec(&mut window, address).unwrap();
                prop_assert_eq!(uniform, std::array::from_fn(|element| out[element][lane]));
            }
        }
    }

    #[test]
    fn any_sequence_of_maps_and_unmaps_keeps_memory_apart(steps in prop::collection::vec((0u64..64, 1u64..5 * PAGE, any::<prop::sample::Index>(), any::<bool>()), 1..60)) {
        let arena = arena();
        let mut held: Vec<(u64, u64, u8)> = Vec::new();
        let mut views = Vec::new();
        for (round, (page, bytes, which, free)) in steps.into_iter().enumerate() {
            if free && !held.is_empty() {
                let (address, bytes, _) = held.swap_remove(which.index(held.len()));
                arena.unmap(address, bytes).unwrap();
                if round % 3 == 0 {
                    views.clear();
                }
            } else {
                let address = BASE + page * PAGE;
                let overlaps = held.iter().any(|&(a, b, _)| address < a + b.next_multiple_of(PAGE) && a < address + bytes);
                let fits = address + bytes <= BASE + SPAN;
                match arena.map(address, bytes) {
                    Ok(()) => {
                        prop_assert!(fits && !overlaps);
                        let mut was = vec![1u8; bytes as usize];
                        arena.view().readable(address, bytes).unwrap().copy_to(&mut was);
                        prop_assert!(was.iter().all(|&byte| byte == 0));
                        arena.view().writable(address, bytes).unwrap().copy_from(&vec![round as u8 + 1; bytes as usize]);
                        held.push((address, bytes, round as u8 + 1));
                    }
                    // An older view may still hold memory that was unmapped.
                    Err(_) => prop_assert!(!fits || overlaps || !views.is_empty()),
                }
            }
            views.push(arena.view());
        }
        let view = arena.view();
        for (address, bytes, value) in held {
            let mut now = vec![0u8; bytes as usize];
            view.readable(address, bytes).unwrap().copy_to(&mut now);
            prop_assert!(now.iter().all(|&byte| byte == value));
        }
    }
}
