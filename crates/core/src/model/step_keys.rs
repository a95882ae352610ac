//! The idempotency keys of a part: which one a message is about, what is learned of it, and which one is undone next.

use jiff::Timestamp;

use crate::model::{
    attempt::Action,
    command::CommandId,
    earlier_key::{EarlierKey, News, Ran, Report},
    step::{Progress, StepRecord, StepState},
};

impl StepRecord {
    /// Uses the agent at this position, and the input of this edit, from the next attempt on. What is known of the present key
    /// is kept. `None` stands for the first agent, or for one that is still to be chosen.
    pub(crate) fn change_key(&mut self, agent: Option<u32>, edit: Option<CommandId>) {
        let child_revision = self.forward.child_revision;
        if let Some(key) = self.keep_key_in_use() {
            key.child_revision = child_revision;
        }
        let forward = &mut self.forward;
        // From now on another child task runs for the step.
        forward.child_revision = None;
        forward.agent = agent;
        forward.input_edit_id = edit;
        forward.key_since = Some(forward.state.attempt_count().saturating_add(1));
        forward.key_valid_until = None;
    }

    /// The entry of the key in use among the others. There is one if the part has used the key before, and if its effect is
    /// undone or comes beside a completion by hand.
    fn keep_key_in_use(&mut self) -> Option<&mut EarlierKey> {
        let Self { forward, earlier, .. } = self;
        let since = forward.key_since.unwrap_or(1);
        let is_used = forward.state.attempt_count() >= since;
        if is_used && !earlier.iter().any(|key| forward.uses(key)) {
            let key = EarlierKey::new(since, forward.agent, forward.input_edit_id.clone());
            earlier.push(key);
        }
        earlier.iter_mut().find(|key| forward.uses(key))
    }

    /// The keys that it used before, and does not use now.
    pub(crate) fn other_keys(&self) -> impl Iterator<Item = &EarlierKey> {
        self.earlier.iter().filter(|key| !self.forward.uses(key))
    }

    /// The key that a message about this attempt belongs to: of the agent, if the message names it. `None` if it is the key
    /// in use.
    #[must_use]
    pub(crate) fn earlier_key_of(&self, attempt: u32, agent: Option<u32>) -> Option<&EarlierKey> {
        if self.forward.key_since.is_none_or(|since| attempt >= since) {
            return None;
        }
        let before = |key: &&EarlierKey| key.since <= attempt;
        let newest = self.earlier.iter().filter(before).max_by_key(|key| key.since)?;
        let is_same = |key: &&EarlierKey| {
            agent.is_some_and(|agent| key.agent.unwrap_or(0) == agent)
                && key.input_edit_id == newest.input_edit_id
        };
        let key = self.earlier.iter().find(is_same).unwrap_or(newest);
        (!self.forward.uses(key)).then_some(key)
    }

    /// Records what a message says about an attempt with the earlier key that was used from `since` on.
    pub(crate) fn learn(&mut self, since: u32, report: Report) -> News {
        let key = self.earlier.iter_mut().find(|key| key.since == since);
        key.map_or(News::None, |key| key.learn(report))
    }

    /// Records that the key in use ran, or may have, although the part does not await that. Returns whether it was not known.
    pub(crate) fn learn_of_key_in_use(&mut self, ran: Ran) -> bool {
        // An operator who skips a part states something of its key. A part that the task goes on without is skipped as it is.
        let attempt = self.forward.state.attempt_count();
        let is_denied = |key: &EarlierKey| key.denied.is_some_and(|known| known.through >= attempt);
        let is_stated = matches!(self.forward.state, StepState::Skipped { .. })
            && self.earlier.iter().any(|key| self.forward.uses(key) && is_denied(key));
        let is_completed = matches!(self.forward.state, StepState::Completed { .. });
        // A completion stands, and the effect comes beside it.
        let is_known = is_completed || std::mem::replace(&mut self.forward.may_have_run, true);
        let report = Report { attempt, ran, has_output: false, revision: None };
        let has_moved = (is_completed || is_stated)
            && self.keep_key_in_use().is_some_and(|key| key.learn(report) == News::Effect);
        !is_known || has_moved
    }

    /// Records that an operator knows of the requests with the key in use: they have not run the step, or the command stands
    /// although they may have. `known` is what the part itself knew of them, beside the record of the key.
    pub(crate) fn deny_key_in_use(&mut self, known: Ran) {
        let through = self.forward.state.attempt_count();
        let is_kept = self.earlier.iter().any(|key| self.forward.uses(key));
        if known == Ran::No && !is_kept {
            return;
        }
        if let Some(key) = self.keep_key_in_use() {
            key.ran = key.ran.max(known);
            key.deny(through);
        }
    }

    /// Records the statement of an operator that the requests with earlier keys have not run the step.
    pub(crate) fn deny_earlier_keys(&mut self) {
        let through = self.forward.state.attempt_count();
        self.earlier.iter_mut().filter(|key| !key.undone).for_each(|key| key.deny(through));
    }

    /// Records the revision of a report of the child task of an earlier key, the undo of which it ends.
    pub(crate) fn record_revision_of_undone_child(&mut self, revision: Option<u64>) {
        let since = self.undo.as_ref().and_then(|undo| undo.key_since);
        let key = self.earlier.iter_mut().find(|key| Some(key.since) == since);
        if let Some(key) = key {
            key.child_revision = revision.max(key.child_revision);
        }
    }

    /// Whether the undo of the key in use was requested.
    pub(crate) fn undo_of_key_in_use_has_begun(&self) -> bool {
        let is_its = |undo: &Progress| undo.key_since.is_none();
        self.undo.as_ref().is_some_and(is_its) || self.key_in_use_is_undone()
    }

    /// Whether the key in use was undone before the undo that goes on now, or went last.
    pub(crate) fn key_in_use_is_undone(&self) -> bool {
        self.earlier.iter().any(|key| key.undone && self.forward.uses(key))
    }

    /// Records that the key in use has an effect again, although it was undone.
    pub(crate) fn reopen_key_in_use(&mut self) {
        let Self { forward, earlier, .. } = self;
        earlier.iter_mut().filter(|key| forward.uses(key)).for_each(|key| key.undone = false);
        forward.may_have_run = true;
    }

    /// Whether an earlier key has an effect, or there is one beside a completion by an operator.
    #[must_use]
    pub fn has_stray_effect(&self) -> bool {
        self.other_keys().any(EarlierKey::has_effect) || self.ran_beside_completion()
    }

    /// Whether the key in use has an effect beside a completion by an operator. Their undos have the same idempotency key, so
    /// only an operator can undo both.
    #[must_use]
    pub fn ran_beside_completion(&self) -> bool {
        let is_beside = |key: &EarlierKey| key.has_effect() && self.forward.uses(key);
        self.forward.completed_by_hand.is_some() && self.earlier.iter().any(is_beside)
    }

    /// Whether the part completed, or may have run.
    #[must_use]
    pub fn has_effect(&self) -> bool {
        self.key_in_use_ran() || self.has_stray_effect()
    }

    /// The key that is undone next: an earlier one, by its first attempt, or `Some(None)` for the one in use. `None` if
    /// nothing is left to undo.
    #[must_use]
    pub fn next_to_undo(&self) -> Option<Option<u32>> {
        let forward = &self.forward;
        let open = self.other_keys().filter(|key| key.has_effect());
        if let Some(key) = open.max_by_key(|key| key.since) {
            return Some(Some(key.since));
        }
        let has_passed =
            |undo: &Progress| undo.key_since.is_none() && undo.state.is_completed_or_skipped();
        let is_undone = self.undo.as_ref().is_some_and(has_passed)
            || self.earlier.iter().any(|key| key.undone && forward.uses(key));
        (self.key_in_use_ran() && !is_undone).then_some(None)
    }

    /// Whether a request with the key in use ran the part, or may have.
    fn key_in_use_ran(&self) -> bool {
        matches!(self.forward.state, StepState::Completed { .. }) || self.forward.may_have_run
    }

    /// The earlier key that the undo is about. `None` if it is about the key in use.
    #[must_use]
    pub fn key_of_undo(&self) -> Option<&EarlierKey> {
        let since = self.undo.as_ref()?.key_since?;
        self.earlier.iter().find(|key| key.since == since)
    }

    /// The position of the agent that does or undoes the part.
    #[must_use]
    pub fn agent(&self, action: Action) -> Option<u32> {
        match (action, self.key_of_undo()) {
            (Action::Undo, Some(key)) => key.agent,
            (Action::Undo, None) | (Action::Do, _) => self.forward.agent,
        }
    }

    /// The edit of the input with which the part is done, or was done.
    #[must_use]
    pub fn edit(&self, action: Action) -> Option<&CommandId> {
        match (action, self.key_of_undo()) {
            (Action::Undo, Some(key)) => key.input_edit_id.as_ref(),
            (Action::Undo, None) | (Action::Do, _) => self.forward.input_edit_id.as_ref(),
        }
    }

    /// Records that the key of the undo is undone, by its agent or by an operator. The others have undos of their own.
    pub(crate) fn complete_undo(&mut self) {
        let Self { forward, earlier, undo: Some(undo), .. } = self else { return };
        let is_done = |key: &EarlierKey| match undo.key_since {
            Some(since) => key.since == since,
            None => forward.uses(key) && forward.completed_by_hand.is_none(),
        };
        earlier.iter_mut().filter(|key| is_done(key)).for_each(|key| key.undone = true);
    }

    /// Begins the undo of the key that is undone next. Its attempts are numbered on.
    pub(crate) fn begin_undo(&mut self, now: Timestamp) {
        let before = self.undo.take();
        if before.as_ref().is_some_and(|undo| undo.key_since.is_none())
            && let Some(key) = self.keep_key_in_use()
        {
            key.undone = true;
        }
        let attempt = before.as_ref().and_then(|undo| undo.state.newest_attempt());
        let mut undo = Progress::new(StepState::waiting(attempt, now));
        undo.call_may_run_until = before.and_then(|undo| undo.call_may_run_until);
        undo.key_since = self.next_to_undo().flatten();
        self.undo = Some(undo);
        let edit = self.edit(Action::Undo).cloned();
        if let Some(undo) = &mut self.undo {
            undo.input_edit_id = edit;
        }
    }
}

impl Progress {
    /// Whether this is the key of the present agent and input.
    fn uses(&self, key: &EarlierKey) -> bool {
        key.agent == self.agent && key.input_edit_id == self.input_edit_id
    }
}
