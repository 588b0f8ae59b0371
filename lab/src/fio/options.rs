//! The meaning of each of fio's options in a simulated run.

/// The meaning of an option here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// The model follows it.
    Modelled,
    /// Another name of that option.
    Alias(&'static str),
    /// The result does not depend on it.
    NoEffect,
    /// Only these values can be honoured, and they change nothing. The text gives the reason, as the rest of "`value`
    /// …".
    Only(&'static [&'static str], &'static str),
    /// Not modelled; the text gives the consequence for the result.
    Ignored(&'static str),
    /// Cannot be honoured; the texts give the reason, as the rest of "`value` …", and a valid alternative.
    Refused(&'static str, &'static str),
}

/// The meaning of the option `name`; none if fio has no such option that is known here.
pub fn meaning(name: &str) -> Option<Meaning> {
    let group = GROUPS.iter().find(|(names, _)| names.split_whitespace().any(|known| known == name));
    group.map(|&(_, meaning)| meaning)
}

/// The option's main name: `name` itself, or the name that it is an alias of.
pub fn canonical(name: &str) -> &str {
    match meaning(name) {
        Some(Meaning::Alias(other)) => other,
        _ => name,
    }
}

/// Every known name.
pub fn names() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|(names, _)| names.split_whitespace())
}

/// Names that share a meaning, and the meaning.
const GROUPS: &[(&str, Meaning)] = {
    use Meaning::{Alias, Ignored, Modelled, NoEffect, Only, Refused};
    &[
        (
            "bs cpus_allowed cpus_allowed_policy direct fdatasync filename fixedbufs fsync hipri iodepth iodepth_batch \
             iodepth_batch_complete_max iodepth_batch_complete_min ioengine kb_base numjobs ramp_time \
             registerfiles runtime rwmixread rwmixwrite rw thinktime thinktime_blocks",
            Modelled,
        ),
        ("readwrite", Alias("rw")),
        ("blocksize", Alias("bs")),
        ("iodepth_batch_submit", Alias("iodepth_batch")),
        ("iodepth_batch_complete", Alias("iodepth_batch_complete_min")),
        ("timeout", Alias("runtime")),
        (
            "allow_file_create allow_mounted_write allrandrepeat blockalign ba bs_is_seq_rand \
             buffer_compress_chunk buffer_compress_percentage buffer_pattern clat_percentiles continue_on_error \
             create_fsync create_on_open create_only create_serialize dedupe_global dedupe_mode dedupe_percentage \
             dedupe_working_set_percentage description disable_bw disable_bw_measurement disable_clat disable_lat \
             disable_slat disk_util end_fsync error_dump exit_what exitall exitall_on_error fadvise_hint \
             fallocate fill_device file_append file_service_type fsync_on_close group_reporting ignore_error \
             ignore_zone_limits invalidate job_max_open_zones lockmem lat_percentiles log_avg_msec \
             log_compression log_compression_cpus log_hist_coarseness log_hist_msec log_max_value log_offset \
             log_prio log_store_compressed log_unix_epoch max_open_zones name new_group nonvectored norandommap \
             openfiles overwrite percentile_list pre_read random_distribution random_generator randrepeat \
             randseed read_beyond_wp refill_buffers scramble_buffers serialize_overlap significant_figures \
             slat_percentiles softrandommap stats thread time_based unified_rw_reporting unit_base unlink \
             unlink_each_loop use_os_rand write_hint zero_buffers",
            NoEffect,
        ),
        ("buffered", Only(&["0"], "goes through the page cache, which is not modelled")),
        ("atomic", Only(&["0"], "asks for atomic writes, which are not modelled")),
        ("percentage_random", Only(&["100"], "mixes random and ascending offsets, which is not modelled")),
        ("io_submit_mode", Only(&["inline"], "submits from other threads, which is not modelled")),
        ("sqthread_poll", Only(&["0"], "submits from a kernel thread, which is not modelled")),
        ("uncached", Only(&["0"], "goes through the page cache, which is not modelled")),
        ("force_async", Only(&["0"], "submits from kernel workers, which are not modelled")),
        ("sync", Only(&["0", "none"], "makes writes synchronous, which is not modelled")),
        ("zonemode", Only(&["none"], "needs a zoned drive, which is not modelled")),
        ("gtod_reduce", Ignored("latencies are always measured, and the clock reads that fio saves are not modelled")),
        ("clocksource gtod_cpu", Ignored("the simulated clock is exact and free")),
        (
            "size filesize io_size io_limit offset offset_align offset_increment number_ios loops nrfiles \
             max_latency steadystate steadystate_duration steadystate_ramp_time steadystate_check_interval",
            Ignored("the job runs for the simulated span, over the whole drive"),
        ),
        ("startdelay", Ignored("all jobs start at once")),
        ("directory filename_format unique_filename opendir lockfile", Ignored("`filename` names the drive")),
        ("iodepth_low", Ignored("the queue is refilled whenever it has room")),
        (
            "iomem mem iomem_align mem_align hugepage-size",
            Ignored("buffers are plain memory; the gain of huge pages is not modelled"),
        ),
        ("userspace_reap", Ignored("completions are taken by a system call")),
        ("nowait", Ignored("submission never blocks on the simulated drive's tags below its queue's entries")),
        ("sqthread_poll_cpu", Ignored("there is no submission thread")),
        (
            "nice prio prioclass cmdprio_class cmdprio_hint cmdprio_percentage cmdprio_bssplit cmdprio_split \
             cgroup cgroup_weight cgroup_nodelete uid gid ioscheduler",
            Ignored("all threads and requests have the same priority"),
        ),
        (
            "numa_cpu_nodes numa_mem_policy",
            Ignored("memory is equally near to every CPU; place jobs with cpus_allowed"),
        ),
        (
            "write_bw_log write_lat_log write_iops_log write_hist_log write_iolog bwavgtime iopsavgtime \
             per_job_logs log_entries log_alternate_epoch log_alternate_epoch_clock_id log_window_value \
             log_issue_time block_error_percentiles",
            Ignored("fio's logs are not written; --json, --html and --trace are"),
        ),
        ("exec_prerun exec_postrun", Ignored("nothing is executed")),
        (
            "verify do_verify verify_async verify_async_cpus verify_backlog verify_backlog_batch verify_dump \
             verify_fatal verify_interval verify_offset verify_only verify_pattern verify_pattern_interval \
             verify_state_load verify_state_save verifysort verifysort_nr experimental_verify verify_header_seed \
             verify_write_sequence",
            Ignored("fio's verification is not done; `--set options.verify_data=true` compares every block"),
        ),
        ("thinktime_spin thinktime_blocks_type thinktime_iotime", Ignored("a pause of thinktime is idle")),
        (
            "stonewall wait_for_previous wait_for",
            Refused("makes jobs wait for others, which is not modelled", "a job file a phase"),
        ),
        (
            "rate rate_min rate_iops rate_iops_min rate_process rate_cycle rate_ignore_thinktime latency_target \
             latency_window latency_percentile latency_run flow flow_watermark flow_sleep flow_id",
            Refused(
                "paces submission, which is not modelled",
                "iodepth, numjobs and thinktime, which set the load too",
            ),
        ),
        (
            "bsrange blocksize_range bssplit blocksize_unaligned bs_unaligned",
            Refused("mixes block sizes, which is not modelled", "one size: bs=4k"),
        ),
        (
            "sync_file_range write_barrier trim_percentage trim_backlog trim_backlog_batch \
             trim_verify_zero num_range",
            Refused(
                "mixes trims or partial syncs into a job, which is not modelled",
                "rw=trimwrite, fsync or fdatasync",
            ),
        ),
        (
            "rw_sequencer zonesize zonerange zonecapacity zoneskip zone_reset_threshold zone_reset_frequency \
             read_iolog read_iolog_chunked replay_no_stall replay_time_scale replay_redirect replay_align \
             replay_scale replay_skip merge_blktrace_file merge_blktrace_scalars merge_blktrace_iters",
            Refused(
                "chooses offsets in a way that is not modelled",
                "rw=read, write, randread, randwrite, rw, randrw, trim or randtrim",
            ),
        ),
        ("cpumask", Refused("is a mask, which is not read", "the same CPUs as a list: cpus_allowed=0-7")),
        (
            "profile cpuload cpuchunks cpumode exit_on_io_done cmd_type",
            Refused("asks for another kind of job", "ioengine=libaio or io_uring"),
        ),
        (
            "sprandom dp_type fdp plids plid_select",
            Refused("asks for data placement, which is not modelled", "a job without it"),
        ),
    ]
};
