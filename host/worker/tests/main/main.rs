//! Tests of sessions whose messages worker processes carry out, over a simulated bus. The test's program also
//! runs as a worker, and as a device that is killed, depending on the first argument.

mod bench;
mod data;
mod death;
mod memory;
mod probe;
mod reload;
mod replaced;
mod twins;
mod walls;
mod wrong_states;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// Makes a list of tests from the names of their functions.
macro_rules! trials {
    ($($module:ident { $($name:ident),* $(,)? })*) => {
        vec![$($(trial(concat!(stringify!($module), "::", stringify!($name)), $module::$name)),*),*]
    };
}

fn trial(name: &str, test: fn()) -> Trial {
    Trial::test(name, move || {
        test();
        Ok(())
    })
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mut options: Vec<String> = std::env::args().collect();
    match arguments.next().as_deref() {
        Some(bench::WORKER) => return vgpu_worker::main(bench::executor),
        Some(bench::DEVICE) => return bench::serve(&arguments.next().expect("a folder")),
        Some(replaced::BEFORE) => return replaced::before(),
        Some(replaced::AFTER) => return replaced::after(&arguments.next().expect("what it has inherited")),
        Some(bench::WITHOUT_PIDFD) => {
            death::take_pidfds_away();
            options.remove(1);
        }
        _ => {}
    }
    bench::keep_log();
    let trials = trials! {
        data {
            copies_come_back_as_they_went,
            launches_are_counted_with_what_the_device_answers_itself,
            a_graph_whose_records_lie_in_the_window_is_launched,
            window_memory_is_mapped_while_it_is_the_sessions,
            guest_pages_are_found,
            errors_arrive_as_without_a_worker,
            handles_that_were_refused_excuse_their_users,
            a_release_overtakes_what_waits_for_it,
            a_sleeping_guest_is_woken,
        }
        memory {
            who_only_looks_has_no_worker,
            memory_is_the_devices_and_comes_back,
            allocations_under_way_count_in_whole_units,
            managed_memory_is_not_reserved,
            variables_of_modules_are_the_devices_memory,
            what_a_session_holds_is_shown_to_its_guest,
            what_a_worker_has_worked_is_shown,
            what_a_dead_worker_had_is_free,
        }
        death {
            killed_while_it_starts,
            killed_while_idle,
            killed_in_the_middle_of_a_message,
            killed_with_work_queued,
            killed_with_a_full_ring,
            killed_while_the_device_waits_for_it,
            killed_while_it_ends,
            a_worker_that_does_not_stop_is_killed,
            a_worker_whose_device_is_killed_ends,
            a_worker_that_cannot_be_started_ends_its_session,
            rubbish_ends_the_session,
            a_panic_ends_the_session,
            a_system_without_descriptors_of_processes_will_do,
        }
        reload {
            work_in_flight_goes_on_in_the_next_process,
            a_kernel_that_never_ends_keeps_no_pause_waiting,
            an_allocation_that_waits_is_carried_out_once,
            a_request_for_window_memory_waits_on,
            a_session_that_failed_stays_failed_until_it_is_detached,
            the_death_of_a_worker_is_noticed_by_the_next_process,
            a_worker_that_reports_without_end_keeps_no_pause_waiting,
            sessions_without_a_worker_and_held_ones_are_restored,
            what_cannot_be_saved_goes_on,
        }
        replaced {
            a_process_that_executes_itself_keeps_its_sessions,
        }
        twins {
            a_device_that_was_saved_answers_as_one_that_was_not,
        }
        wrong_states {
            each_impossible_value_is_named,
            random_values_do_no_harm,
            what_is_missing_loses_its_session,
        }
        walls {
            calls_are_refused,
            calls_that_are_explained_are_refused_as_others,
            each_refused_call_is_named_once,
            sockets_are_connected_to_where_that_is_allowed,
            what_nvidias_driver_does_when_it_starts_works,
            compiled_code_is_kept_for_this_device_or_not_at_all,
            rights_are_given_up,
            another_user_is_who_was_asked_for,
            addresses_stay_the_devices_while_it_has_an_executor,
        }
    };
    libtest_mimic::run(&Arguments::from_iter(options), trials).exit_code()
}
