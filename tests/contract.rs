//! The contract of the ports, as tests that run on every implementation: on the in-memory ports, and on the AWS adapters
//! with the real SDK clients over the embedded AWS. Other tests can rely on the in-memory ports because both pass.
//!
//! Each clause of the contract is one test for each backend, such as
//! `memory::a_save_of_an_old_revision_is_a_conflict` and `embedded::a_save_of_an_old_revision_is_a_conflict`. In the
//! backend `coalesced_writes`, every write of the AWS adapters shares its request with another write. The compiler reports a
//! clause that is missing in the list below as dead code.
//!
//! The contract does not define when an instance that cached the newest version of a workflow sees a newer one: the
//! implementations differ.

#![cfg(test)]

mod agents;
mod backends;
mod bus;
mod channel;
mod coalesced;
mod definitions;
mod documents;
mod due;
mod ended;
mod expiry;
mod item_size;
mod labels;
mod samples;
mod shared;
mod tasks;

macro_rules! contract {
    ($($chapter:ident: $($clause:ident),+;)+) => {
        mod memory {
            use super::backends::{Backend as _, InMemoryBackend};
            contract!(@tests InMemoryBackend; $($($chapter::$clause)+)+);
        }
        mod embedded {
            use super::backends::{AwsBackend, Backend as _};
            contract!(@tests AwsBackend; $($($chapter::$clause)+)+);
        }
        mod coalesced_writes {
            use super::{backends::Backend as _, coalesced::CoalescedBackend};
            contract!(@tests CoalescedBackend; $($($chapter::$clause)+)+);
        }
    };
    (@tests $backend:ident; $($chapter:ident::$clause:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $clause() {
                super::$chapter::$clause($backend::open().await).await;
            }
        )+
    };
}

contract! {
    tasks:
        a_created_task_is_loaded_unchanged,
        absent_fields_of_a_task_stay_absent,
        times_are_stored_with_millisecond_precision,
        a_task_that_was_not_created_is_absent,
        a_second_creation_reports_the_existing_task_and_changes_nothing,
        a_task_is_not_created_without_its_document,
        a_document_is_not_created_without_its_task,
        one_of_sixteen_concurrent_creations_wins,
        a_task_with_its_submission_in_its_item_is_created_once,
        a_save_replaces_the_whole_task,
        a_task_is_saved_revision_after_revision,
        a_save_of_an_old_revision_is_a_conflict,
        a_save_of_a_future_revision_is_a_conflict,
        a_repeated_save_is_a_conflict_with_itself,
        a_save_of_a_missing_task_is_a_conflict_without_a_task,
        one_of_sixteen_concurrent_saves_wins,
        another_instance_reads_a_write_at_once;
    documents:
        a_document_is_read_unchanged,
        documents_in_the_item_of_a_task_are_read_with_it,
        a_document_is_never_overwritten,
        a_document_keeps_the_times_of_its_attempt,
        the_first_of_sixteen_concurrent_document_writes_wins,
        any_number_of_documents_can_be_read,
        missing_documents_are_left_out,
        a_document_belongs_to_its_task,
        the_submission_is_read_and_written_like_any_document;
    expiry:
        an_expired_task_is_absent,
        an_expired_document_is_absent,
        a_new_task_replaces_an_expired_one,
        a_new_task_does_not_replace_an_unexpired_one,
        documents_of_an_earlier_task_are_not_visible,
        a_child_task_replaces_the_ended_child_of_an_earlier_parent,
        one_of_sixteen_concurrent_creations_replaces_an_expired_task;
    shared:
        a_shared_record_is_read_unchanged,
        a_shared_record_is_saved_revision_after_revision,
        one_of_sixteen_concurrent_saves_of_a_shared_record_wins,
        shared_records_are_listed_by_their_kind,
        the_expiry_of_a_shared_record_is_stored_in_seconds,
        a_shared_record_cannot_be_loaded_as_a_task;
    agents:
        a_registered_agent_is_found_and_listed,
        one_of_sixteen_stacks_registers_an_agent,
        a_stack_replaces_its_own_registration,
        an_agent_is_registered_again_after_its_deletion,
        an_agent_that_was_never_registered_is_deregistered_without_effect,
        a_missing_dead_letter_queue_has_its_own_error;
    due:
        a_task_is_listed_from_its_due_time_on,
        due_tasks_are_listed_earliest_first,
        a_task_without_a_due_time_is_never_listed,
        an_ended_task_is_no_longer_listed,
        a_rescheduled_task_is_listed_at_its_new_time,
        an_ended_task_can_be_due_again,
        a_rejected_save_does_not_change_the_due_time,
        every_task_is_listed_in_exactly_one_shard,
        pages_list_each_task_once,
        pages_of_tasks_due_at_the_same_time_list_each_once,
        rescheduling_tasks_between_pages_hides_no_other_task,
        an_empty_shard_has_one_empty_page;
    ended:
        an_ended_task_is_listed_by_its_state_and_end_time,
        an_ended_task_is_listed_with_its_workflow,
        a_resumed_task_is_no_longer_listed_as_ended,
        a_task_in_error_can_be_both_due_and_ended,
        ended_tasks_are_listed_once_earliest_first_in_their_partitions;
    definitions:
        a_definition_is_read_unchanged,
        the_newest_is_the_one_with_the_highest_version,
        a_version_is_read_by_its_number,
        an_unpublished_definition_is_absent,
        the_same_definition_can_be_published_again,
        a_version_never_changes,
        a_definition_with_problems_is_rejected,
        a_definition_that_is_too_large_is_rejected,
        an_unpublished_version_serves_only_its_existing_tasks,
        an_unpublished_version_can_only_be_republished_unchanged,
        an_absent_version_cannot_be_unpublished,
        an_event_finds_the_workflows_whose_newest_version_has_its_trigger,
        similar_triggers_are_distinguished,
        a_second_workflow_with_the_same_trigger_and_ids_is_rejected;
    channel:
        a_message_arrives_with_its_attributes,
        messages_of_tenants_arrive_and_are_not_deduplicated,
        any_text_arrives_unchanged,
        messages_arrive_in_the_queue_they_were_sent_to,
        more_than_ten_messages_all_arrive,
        large_messages_are_sent_in_batches_within_the_limits,
        a_message_of_the_maximum_size_is_accepted,
        a_missing_queue_fails_only_its_own_messages,
        results_are_in_the_order_of_the_messages,
        sending_nothing_succeeds;
    bus:
        an_event_is_published_with_its_kind_and_content,
        more_than_ten_events_are_all_published,
        publishing_nothing_succeeds;
}
