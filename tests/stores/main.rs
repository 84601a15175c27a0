//! What every store must do for a job, shown on each: a local directory, memory, and real servers of S3, Azure, Google's storage and
//! HDFS, which `tests/stores/servers` starts. Without them those tests say on stderr why they are skipped.
//!
//! A case is a function of a [`Place`] and a line in the list below: it then runs on every store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod jobs;
mod killed;
mod opening;
mod place;
mod seam;

use place::Place;

macro_rules! on_every_store {
    ($($module:ident::$case:ident,)*) => {$(
        mod $case {
            use crate::{$module, place};

            #[test]
            fn memory() {
                place::run("memory", $module::$case);
            }

            #[test]
            fn local() {
                place::run("local", $module::$case);
            }

            #[test]
            fn s3() {
                place::run("s3", $module::$case);
            }

            #[test]
            fn azure() {
                place::run("azure", $module::$case);
            }

            #[test]
            fn gcs() {
                place::run("gcs", $module::$case);
            }

            #[test]
            fn hdfs() {
                place::run("hdfs", $module::$case);
            }
        }
    )*};
}

on_every_store! {
    seam::puts_gets_and_deletes_do_what_they_say,
    seam::of_many_that_create_one_name_one_succeeds,
    seam::a_listing_sees_every_put_and_delete_before_it,
    seam::a_listing_of_more_than_a_thousand_objects_is_whole,
    seam::a_long_stream_arrives_whole_or_not_at_all,
    seam::roots_side_by_side_do_not_see_each_other,
    jobs::what_was_committed_comes_back_without_the_working_directory,
    jobs::a_job_is_restored_at_another_parallelism,
    jobs::an_aborted_checkpoint_leaves_the_next_one_whole,
    jobs::garbage_goes_and_what_is_reachable_stays,
    jobs::a_paused_writer_that_wakes_under_its_successor_is_fenced,
    jobs::objects_hold_no_credentials,
    killed::killed_at_every_step_the_newest_acknowledged_checkpoint_stands,
    killed::a_lost_answer_to_a_put_is_recognised_as_ones_own,
    opening::no_error_and_nothing_printed_shows_a_secret,
    opening::plain_http_is_refused_unless_asked_for,
}
