//! A few histories of each scenario, and the promises that hold for any of them.

use campanile_check::history::Recipe;
use campanile_check::run::{Run, Scenario};
use campanile_check::scenarios;
use std::collections::BTreeMap;

fn run(scenario: &dyn Scenario, recipe: &Recipe) -> Run {
    scenario.run(recipe).expect("nothing is set wrongly")
}

#[test]
fn histories_pass() {
    for &scenario in scenarios::all() {
        for seed in 1..=40 {
            let run = run(scenario, &Recipe { faults: Some([].into()), ..Recipe::of(seed) });
            if let Some(failure) = run.failure {
                panic!("{} {seed:#x}\n{}{}{failure}", scenario.name(), run.history, run.state);
            }
        }
    }
}

/// A history of the scenario `name` that was found before there were some kinds of unrest, which would make others of it.
fn passes(name: &str, recipe: &Recipe) {
    let mut recipe = recipe.clone();
    recipe.without.extend(["late-step", "late-starter"].map(String::from));
    passes_with_all(name, &recipe);
}

/// A history of the scenario `name` must pass.
fn passes_with_all(name: &str, recipe: &Recipe) {
    let scenario = scenarios::all().iter().find(|scenario| scenario.name() == name).expect("a scenario");
    let run = run(*scenario, recipe);
    assert!(run.failure.is_none(), "{}{}{}", run.history, run.state, run.failure.expect("looked at"));
}

/// A line storms on a CPU without a tick, and is let in again when its time is over.
#[test]
fn a_throttled_line_comes_back_without_a_tick() {
    passes("virtio", &Recipe::of(0x6_60db_6c2a_c701));
}

/// A CPU acknowledges an interrupt and stands still, while another frees its line.
#[test]
fn an_interrupt_may_be_acknowledged_when_its_line_is_freed() {
    passes("virtio", &Recipe::of(0x006a_cfff));
}

/// Knobs as `--set` takes them.
fn knobs(list: &str) -> BTreeMap<String, String> {
    list.split(' ').filter_map(|knob| knob.split_once('=')).map(|(name, value)| (name.into(), value.into())).collect()
}

/// A wire sticks on the only CPU and register writes are late. The thread that compares beliefs runs only while the line is
/// disabled, so every look that pushes no writes meets the line's enable on its way.
#[test]
fn an_enable_on_its_way_is_not_a_wrong_belief() {
    let set = knobs(
        "cpus=1 depth=1 faults=3 levels=2 linger_ns=0 load=20 managers=1 oneshot=2 pseudo_nmi=0 span_us=147 steps=400",
    );
    let others = "interleave late-command late-disable misplaced-thread preempt slow-store starved-thread";
    let without = others.split(' ').map(Into::into).collect();
    passes("gicv3", &Recipe { set, keep: Some([1, 4].into()), without, ..Recipe::of(0x6_60f3_191a_b785) });
}

/// A timer whose interrupt is disabled keeps nothing of a deadline that passes meanwhile.
#[test]
fn a_deadline_that_passes_while_its_line_is_disabled_is_served() {
    let set = knobs("beside=60 cpus=1 fills=0 load=726 roaming=0 secret_us=20 slice_us=3000 span_us=1474");
    let others = "far-write late-command late-disable late-write misplaced-thread slow-line";
    let without = others.split(' ').map(Into::into).collect();
    passes("pc-remapped", &Recipe { set, keep: Some([19, 27].into()), without, ..Recipe::of(0x4e7) });
}

/// A CPU goes offline while the writes that move a pin away from it are on their way, and the pin is raised: its message would
/// find no CPU, and the pin would wait for the EOI for ever.
#[test]
fn a_pin_has_left_a_cpu_that_goes_offline() {
    let set = knobs(
        "depth=8 gone=0 load=267 managed=0 removals=8 secret_entries=0 slice_us=3000 span_us=350 steps=400 think_ns=4059",
    );
    let others = "late-command late-disable misplaced-thread preempt slow-line starved-thread";
    let without = others.split(' ').map(Into::into).collect();
    let keep = Some([1, 2, 4, 10, 17, 18, 20, 29, 33].into());
    passes("pc-plain", &Recipe { set, keep, without, ..Recipe::of(0x6_60f9_0858_c334) });
}

/// The last look at a mask waits for the writes to its drive, which is pulled out meanwhile: the write that opened the entry is lost.
#[test]
fn a_drive_that_goes_during_a_look_is_not_compared() {
    let set = knobs(
        "apic_id_shift=0 beside=60 cpus=6 deeds=0 fills=0 load=364 old_ioapic=0 removals=8 secret_entries=0 slice_us=3000 span_us=725",
    );
    let others = "late-command late-disable late-reset misplaced-thread slow-line stall";
    let without = others.split(' ').map(Into::into).collect();
    passes_with_all("pc-plain", &Recipe { set, keep: Some([2, 5].into()), without, ..Recipe::of(0xd636_77ef_c288) });
}

/// A manager sets coalescing and waits for its CPU, while another compares beliefs: the drive has done what was asked, and the
/// driver has not heard of it.
#[test]
fn an_answer_that_nobody_has_read_is_not_a_wrong_belief() {
    let set = knobs("cpus=2 drives=1 queues=1 span_us=50 steps=400");
    passes("pc-plain", &Recipe { set, faults: Some([].into()), ..Recipe::of(0xb4) });
    let reseed = [("unrest".to_owned(), 0x8b74_430a_1c24_685a)].into();
    passes("pc-posted", &Recipe { reseed, ..Recipe::of(0xc) });
}

/// A thread programs the levels of two consumers; one of them wanted the next level as soon as it had one, and the other waited.
#[test]
fn a_level_that_is_wanted_waits_for_one_of_each_other_consumer() {
    passes("moderation", &Recipe::of(0x24ae));
}

/// A queue is deleted: what that takes from it is no stray to its handler.
#[test]
fn an_interrupt_of_what_a_deletion_took_is_the_queues_own() {
    passes("pc-plain", &Recipe::of(0x1106));
    passes("pc-posted", &Recipe::of(0x1615));
}

/// Two managers set the level of one consumer at once. The driver promises no order, so the harness lets one of them do it.
#[test]
fn two_managers_do_not_program_one_device_at_once() {
    passes("moderation", &Recipe::of(0xee62));
}

/// Nothing of a machine of trials has an event of its own: its time stood, and the step of a manager did not come.
#[test]
fn a_step_comes_though_nothing_else_happens() {
    let set = knobs("faults=20 load=0 span_us=50 steps=400");
    let others = "interleave late-command late-disable late-message late-timer late-write misplaced-thread preempt starved-thread";
    let without = others.split(' ').map(Into::into).collect();
    let reseed = [("steps".to_owned(), 0xd)].into();
    passes("parts", &Recipe { set, keep: Some([21, 26].into()), without, reseed, ..Recipe::of(0x20) });
}

/// The load took the machine's time, and with it that of three steps within a quarter of a microsecond.
#[test]
fn a_step_is_not_lost_at_the_start() {
    let set = knobs("faults=1 load=0 managers=1 span_us=50 steps=400");
    let without = "late-disable late-write misplaced-thread slow-line stall".split(' ').map(Into::into).collect();
    passes("firmware", &Recipe { set, keep: Some([12, 33, 40].into()), without, ..Recipe::of(0xfe) });
}

/// A message of a device whose line was freed comes just after the next line has its INTID.
#[test]
fn a_new_line_may_begin_with_an_interrupt() {
    passes("gicv3", &Recipe::of(0xab_d4e7));
}

/// Who has found a wish stands still between the controller's lock and the call that asks the programming thread.
#[test]
fn a_thread_cannot_serve_a_wish_that_it_has_not_heard() {
    passes("moderation", &Recipe::of(0x0006_610c_7ba1_f03b));
}

/// A queue of a disk was being reset when the last load began.
#[test]
fn the_last_load_waits_for_a_reset() {
    passes("virtio", &Recipe::of(0xaa_df7e_0702_c17f));
}

/// A device's level without a reason storms, so its line is throttled when the last change of the configuration comes.
#[test]
fn the_last_load_waits_for_the_end_of_a_throttle() {
    passes("virtio", &Recipe::of(0xf_131f_01e0_b4ad));
}

/// The thread that programs levels is starved, and always comes after its controller has given the step up.
#[test]
fn a_starved_thread_gets_the_level_that_is_wanted() {
    let set = knobs("comparable=1 cpus=1 load=1000 untuned=0");
    passes("moderation", &Recipe { set, faults: Some([].into()), ..Recipe::of(0xc49c_3e65_7fc5) });
}

/// A line was disabled over the reset of its drive, and delivered an interrupt of before it.
#[test]
fn an_interrupt_that_waits_over_a_reset_is_the_queues_own() {
    passes("pc-remapped", &Recipe::of(0xebc0_d7c8_8eb6_1b75));
}

/// An interrupt came while the core was asked what it had counted of a new line.
#[test]
fn a_count_is_taken_while_interrupts_come() {
    passes("gicv3", &Recipe::of(0x0b43_f223_d749_e50e));
}

/// A freed line's number went to another line before its guard's owner looked.
#[test]
fn a_freed_lines_number_may_be_anothers() {
    passes("gicv2", &Recipe::of(0x6_6114_c6c3_eb98));
}

/// The core looks at its clock at the end of a burst. It is not done when the line's thread answers elsewhere, nor when an
/// interrupt of the burst's last handler is left.
#[test]
fn a_burst_ends_when_the_core_has_looked() {
    passes("gicv2", &Recipe::of(0x0030_43c7_fd18_ebf5));
    passes("gicv3", &Recipe::of(0x0786_cd13_a0a4_06df));
}

/// Each completion submits the next command. A notification that finds two full queues keeps its CPU for as long as that takes.
#[test]
fn a_tick_waits_for_completions_that_submit() {
    passes("pc-posted", &Recipe::of(0x33ac_a97d_2629_ad56));
}

/// A line stormed in its last load, and still waited for the end of its throttle. Its last edge stays pending until then.
#[test]
fn an_edge_waits_for_the_end_of_a_throttle() {
    let set = knobs(
        "affinity_shift=0 faults=20 guarded=0 linger_ns=2922 load=2433 managers=2 messages_by=none node_caches=1 oneshot=1 \
         span_us=262 steps=400 threads=0",
    );
    let without =
        "far-write late-acceptance late-disable late-message late-timer preempt reserved-field starved-thread";
    let without = without.split(' ').map(Into::into).collect();
    passes("gicv3", &Recipe { set, keep: Some([18].into()), without, ..Recipe::of(0x65_be9c_559f_18e0) });
}

/// A CPU's acknowledgement had to wait for another CPU's doorbell, and its own read did not wait for it.
#[test]
fn a_read_comes_behind_the_writes_of_its_cpu() {
    let set =
        knobs("budget=256 cpus=2 disk_policy=0 load=1514 managed=0 managers=2 net_policy=0 net_vectors=3 steps=400");
    passes("virtio", &Recipe { set, keep: Some([1].into()), ..Recipe::of(0x6b_d9f5_61ce_3d34) });
}

/// A stranger's messages were blocked faster than the handler of the fault event read the records. The rest waited for an event that
/// never came.
#[test]
fn no_fault_waits_for_an_event_that_never_comes() {
    passes("pc-remapped", &Recipe { faults: Some(["stranger".into()].into()), ..Recipe::of(1) });
}

/// The invalidation queue had an error when a stranger's message was blocked, so the unit raised no event for the fault.
#[test]
fn no_fault_waits_behind_an_error_of_the_queue() {
    passes("pc-remapped", &Recipe::of(0x1119));
    passes("pc-posted", &Recipe::of(0x1119));
}

/// A command of the accelerator that must be refused kept another one away.
#[test]
fn a_refused_command_is_a_command() {
    passes("pc-posted", &Recipe::of(0x0027_8b67_ae89_4e12));
}

/// The devices still announced changes of their configuration when the load had ended.
#[test]
fn a_line_may_be_at_work_until_the_last_change_is_announced() {
    passes("virtio", &Recipe::of(0x4e2a_b72d_8c20));
}

/// A pseudo-NMI was acknowledged just when its handler had been taken off.
#[test]
fn a_pseudo_nmi_without_a_handler_is_not_counted() {
    passes("gicv3", &Recipe::of(0x00f0_57e1_4596_d23b));
}

/// A CPU moved the event of a managed line away while another CPU's operation returned.
#[test]
fn an_event_may_be_on_its_way_while_its_cpu_goes() {
    passes("gicv3", &Recipe::of(0x0003_5f4d_7bc8_0a73));
}

/// A managed line was allocated while its CPU was offline. Its hardware is set up when the CPU comes.
#[test]
fn a_line_without_its_cpu_has_no_hardware_set_up() {
    let set = knobs(
        "affinity_shift=0 depth=1 guarded=0 linger_ns=1783 load=910 managed=2 managers=2 node_caches=1 pseudo_nmi=0 \
         span_us=178 steps=400 strict_storms=0",
    );
    passes("gicv3", &Recipe { set, keep: Some([11, 15].into()), ..Recipe::of(0x2a61_e55a_c193) });
}

/// A message was sent to a line's old CPU just before its CPU came back, and its handler still ran when the last load began.
#[test]
fn an_interrupt_of_a_returning_line_may_still_run_elsewhere() {
    passes("gicv3", &Recipe { set: knobs("one_kind=0"), ..Recipe::of(0x0008_6bab_cd11_1bfb) });
}

/// A disk was bound again while a request that the old one refuses was with its submitter.
#[test]
fn a_request_that_is_refused_late_is_submitted_again() {
    passes("virtio", &Recipe { set: knobs("one_kind=0"), ..Recipe::of(0x0006_18b2_a72e_b127) });
}

/// An event was to be set pending while its line's only CPU was offline: the ITS has no LPI for it then.
#[test]
fn an_event_without_its_cpu_cannot_be_set_pending() {
    let set = knobs("comparable=1 cpus=4 ppis=0");
    passes("gicv3", &Recipe { set, faults: Some([].into()), ..Recipe::of(0xb732_54ad_b496) });
}

/// A CPU that came back had noted a deadline of another, and was not through with all lines.
#[test]
fn a_cpu_that_comes_tells_of_deadlines_in_the_end() {
    let without = ["far-write", "stall"].map(str::to_owned).into();
    passes("pc-remapped", &Recipe { without, faults: Some([].into()), ..Recipe::of(0x4c_4cc6) });
}

/// Who looked at the timers was stopped between its first two looks, and the CPU in question came back just before the second.
#[test]
fn two_looks_are_too_few() {
    let set = knobs("beside=60 fills=17 load=904 node_caches=1 removals=8 secret_entries=0 steps=400 one_kind=0");
    passes("pc-remapped", &Recipe { set, keep: Some([8, 13, 25, 31].into()), ..Recipe::of(0x1273_6cc1_6b65) });
}

/// The admin queue took commands before its drive was ready after a reset: the doorbell of an Abort was lost, and the Abort, which
/// waited on the CPU of the reset, held up the command that would have rung again.
#[test]
fn an_abort_that_meets_the_start_of_its_drive_is_refused() {
    passes("pc-plain", &Recipe::of(0xcd1a_a812_660b));
}

/// A driver came for a wire while its CPU served another line, which is preferred, for 5 ms.
#[test]
fn an_adopted_wire_waits_for_a_line_that_is_preferred() {
    passes("gicv3", &Recipe::of(0x2e1d_d2de_2383));
}

/// How often these histories of a scenario saw a transition. All of them must pass.
fn saw(name: &str, set: &str, transition: &str) -> u64 {
    let scenario = scenarios::all().iter().find(|scenario| scenario.name() == name).expect("a scenario");
    let times = |seed| {
        let run = run(*scenario, &Recipe { set: knobs(set), faults: Some([].into()), ..Recipe::of(seed) });
        assert!(run.failure.is_none(), "{}{}{}", run.history, run.state, run.failure.expect("looked at"));
        run.coverage.iter().filter(|(seen, _)| *seen == transition).map(|(_, times)| times).sum::<u64>()
    };
    (1..=10).map(times).sum()
}

/// Its driver gives up, and then the ITS goes on.
#[test]
fn an_its_may_be_silent_for_longer_than_its_driver_waits() {
    let silent = "ITS: silent for longer than its driver waits";
    assert_eq!(saw("gicv3", "its_silence=1 messages_by=its cpus=2 load=20", silent), 10);
    assert_eq!(saw("gicv3", "its_silence=0 messages_by=its cpus=2 load=20", silent), 0);
}

/// A driver comes for a wire that rings and is nobody's.
#[test]
fn a_wire_that_rings_is_taken_over() {
    assert!(saw("gicv2", "steps=200 cpus=3", "adopted: a wire that rings") > 0);
}

/// A drive fails while the end of its reset gives it the level of its tuning.
#[test]
fn a_drive_that_fails_at_the_end_of_its_reset_is_reset_again() {
    let set = knobs(
        "batch=1 beside=60 blocks=5 cache_places=0 changes_percent=0 count_numbers=0 cpus=5 deeds=0 depth=2 fills=0 full=0 \
         linger_ns=0 load=20 node_caches=1 removals=8 secret_entries=0 slice_us=3000 span_us=304 steps=400 think_ns=1",
    );
    let others = "far-write interleave late-acceptance late-command late-message late-timer late-write misplaced-thread \
                  preempt slow-line stall starved-thread";
    let without = others.split(' ').filter(|name| !name.is_empty()).map(Into::into).collect();
    passes("pc-remapped", &Recipe { set, keep: Some([2, 5, 14].into()), without, ..Recipe::of(0x3197_8620_4bac) });
}

/// A CPU stands still between the look at a block's pins and the delivery of the line that it found there. Meanwhile the line is
/// freed, and its number is that of a driver which comes for a wire.
#[test]
fn a_line_that_was_looked_up_stays_what_it_is() {
    let set = knobs("deeds=0 load=710 steps=400");
    let others = "late-command late-reset misplaced-thread reserved-field slow-line";
    let without = others.split(' ').map(Into::into).collect();
    let keep = Some([8, 10, 18, 26, 27, 38, 57].into());
    passes("gicv2", &Recipe { set, keep, without, ..Recipe::of(0xc759_b69b_a133) });
}
