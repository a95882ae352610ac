//! The contract of the ports: written once, run on the ports in memory and on the AWS adapters, with
//! the real SDK clients, over the embedded AWS. So the fake earns its place, and what a clause says
//! may be relied on everywhere.
//!
//! Each clause is a test of its own on either side: `memory::a_save_of_an_old_revision_is_a_conflict`
//! and `embedded::a_save_of_an_old_revision_is_a_conflict`; and `in_company`, where whatever the adapters
//! write goes out together with something else. A clause that is written but not listed
//! below is dead code, and the compiler says so.
//!
//! One thing is left open, since the sides differ: how long it takes until an instance that knows
//! the newest version of a workflow sees one that was published later.

#![cfg(test)]

mod bus;
mod channel;
mod company;
mod definitions;
mod documents;
mod due;
mod ended;
mod expiry;
mod item_size;
mod samples;
mod shared;
mod tasks;
mod worlds;

macro_rules! contract {
    ($($chapter:ident: $($clause:ident),+;)+) => {
        mod memory {
            use super::worlds::{Memory, World as _};
            contract!(@tests Memory; $($($chapter::$clause)+)+);
        }
        mod embedded {
            use super::worlds::{Embedded, World as _};
            contract!(@tests Embedded; $($($chapter::$clause)+)+);
        }
        mod in_company {
            use super::{company::Company, worlds::World as _};
            contract!(@tests Company; $($($chapter::$clause)+)+);
        }
    };
    (@tests $world:ident; $($chapter:ident::$clause:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $clause() {
                super::$chapter::$clause($world::open().await).await;
            }
        )+
    };
}

contract! {
    tasks:
        a_created_task_loads_as_it_was,
        what_a_task_does_not_have_it_does_not_have_when_loaded,
        a_time_keeps_its_milliseconds_and_no_more,
        a_task_that_was_not_created_is_not_there,
        a_task_created_twice_exists_and_stays_as_it_was,
        a_task_is_not_created_without_its_document,
        a_document_is_not_created_without_its_task,
        of_sixteen_creations_of_one_task_one_wins,
        a_save_replaces_the_whole_task,
        a_task_is_saved_revision_after_revision,
        a_save_of_an_old_revision_is_a_conflict,
        a_save_of_a_revision_to_come_is_a_conflict,
        a_save_repeated_is_a_conflict_with_itself,
        a_save_of_a_missing_task_is_a_conflict_with_nothing,
        of_sixteen_saves_of_one_revision_one_wins,
        what_one_instance_wrote_another_reads_at_once;
    documents:
        a_document_reads_as_it_was_written,
        a_document_is_written_once,
        a_document_keeps_the_times_of_its_attempt,
        of_sixteen_writes_of_one_document_the_first_stays,
        any_number_of_documents_is_read,
        missing_documents_are_left_out,
        a_document_belongs_to_its_task,
        the_submission_is_a_document_like_any_other;
    expiry:
        a_task_that_has_expired_is_absent,
        a_document_that_has_expired_is_absent,
        a_new_task_takes_the_place_of_one_that_has_expired,
        a_new_task_takes_no_place_before_the_old_one_expires,
        documents_that_an_earlier_task_left_are_not_seen,
        the_task_of_a_step_takes_the_place_of_an_earlier_parents,
        of_sixteen_creations_in_the_place_of_an_expired_task_one_wins;
    shared:
        a_shared_record_reads_as_it_was_saved,
        a_shared_record_is_saved_revision_after_revision,
        of_sixteen_saves_of_one_shared_revision_one_wins,
        shared_records_are_listed_by_their_kind,
        a_shared_record_may_go_at_its_time_to_the_second,
        a_shared_record_is_no_task;
    due:
        a_task_is_found_when_it_is_due_and_not_before,
        due_tasks_are_found_earliest_first,
        a_task_without_a_due_time_is_never_found,
        a_task_that_ends_is_found_no_more,
        a_task_that_is_moved_is_found_at_its_new_time,
        a_task_that_ended_can_be_due_again,
        a_save_that_is_lost_moves_nothing,
        every_task_is_found_in_its_one_shard,
        pages_show_each_task_once,
        pages_of_tasks_due_at_the_same_time_show_each_once,
        tasks_that_are_moved_between_pages_do_not_hide_others,
        an_empty_shard_has_one_empty_page;
    ended:
        a_task_that_ended_is_found_by_how_and_when,
        what_a_task_ran_is_known_of_it_when_it_ended,
        a_task_that_goes_on_has_not_ended,
        a_task_in_error_may_be_due_and_have_ended,
        ended_tasks_are_found_once_earliest_first_in_their_own_parts;
    definitions:
        a_definition_reads_as_it_was_published,
        the_newest_is_the_one_with_the_highest_version,
        a_version_is_read_by_its_number,
        what_was_not_published_is_not_there,
        the_same_may_be_published_again,
        a_version_never_changes,
        a_definition_with_problems_is_refused,
        a_definition_that_is_too_large_is_refused,
        a_version_that_is_unpublished_is_for_its_own_tasks_only,
        once_unpublished_the_same_may_be_published_again_and_nothing_else,
        what_is_not_there_cannot_be_unpublished,
        a_trigger_finds_the_workflows_that_have_it_now,
        triggers_that_look_alike_are_told_apart,
        of_two_workflows_with_the_same_trigger_and_ids_one_is_refused;
    channel:
        a_message_arrives_with_its_attributes,
        any_text_arrives_as_it_was,
        messages_arrive_in_their_own_queues,
        more_than_ten_messages_all_arrive,
        large_messages_go_in_batches_that_queues_take,
        the_largest_message_is_taken,
        a_queue_that_is_not_there_fails_its_own_messages_alone,
        answers_come_in_the_order_asked,
        to_send_nothing_is_harmless;
    bus:
        an_event_is_published_with_its_kind_and_content,
        more_than_ten_events_are_all_published,
        to_publish_nothing_is_harmless;
}
