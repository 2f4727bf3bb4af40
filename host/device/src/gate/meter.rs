//! Bounds the work that a session has in flight, by the number of messages between two questions whether all
//! work so far is complete, and of those behind the oldest question that is not answered.
//!
//! What a message takes is not known before it is complete: a launch may take microseconds or seconds. So the
//! number follows the time that the messages of the last questions took. Two questions are in flight, so that
//! the GPU has work while the first is answered. With several sessions the time of each includes that of the
//! others, so that the bound is one for the whole device, unless single messages take longer than that:
//! [`Admission`](super::admission::Admission) then lets sessions take turns.
//!
//! A session also asks whenever it has carried out all messages, which may be after each. Such questions are
//! counted by their messages, and their times are added up until they suffice for an estimate.

use std::collections::VecDeque;

/// Time that the messages between two questions should take, in nanoseconds. Two of them are less than a
/// slice, and one is longer than a host that is busy takes to wake a thread.
const AIM: u64 = 2_000_000;
/// Full questions whose answer is outstanding, at most.
const QUESTIONS_MOST: u64 = 2;
/// Largest number of messages between two questions.
const MESSAGES_MOST: u64 = 1024;
/// Number of messages before the first question.
const MESSAGES_FIRST: u64 = 8;

/// What a session does before its next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Throttle {
    /// It carries the message out, if the messages up to the next question are admitted.
    Pass,
    /// It asks whether all work so far is complete.
    Ask,
    /// It waits for an answer.
    Wait,
}

#[derive(Clone, Copy, Debug)]
struct Question {
    number: u64,
    messages: u64,
    /// Time at which the question was asked, or the one before it was answered.
    since: u64,
}

/// The meter of one session. Times are nanoseconds on the device's clock.
#[derive(Debug)]
pub(crate) struct InFlightMeter {
    /// Messages between two questions.
    messages: u64,
    /// Number of the newest message that was asked about.
    asked: u64,
    questions: VecDeque<Question>,
    /// Messages of the questions that were answered since the meter last learned, and the time they took.
    learned: (u64, u64),
    /// Recent upper estimate of the time that one message takes, in nanoseconds, or 0 before the first one.
    message_time: u64,
}

impl InFlightMeter {
    pub(crate) const fn new() -> Self {
        Self {
            messages: MESSAGES_FIRST,
            asked: 0,
            questions: VecDeque::new(),
            learned: (0, 0),
            message_time: 0,
        }
    }

    /// Makes the meter of a session whose first `number` messages nobody has metered.
    pub(crate) fn after(number: u64) -> Self {
        Self { asked: number, ..Self::new() }
    }

    /// Returns the number of the newest message that was asked about.
    pub(crate) const fn asked(&self) -> u64 {
        self.asked
    }

    /// Returns the time that the messages up to the next question are expected to take, in nanoseconds.
    pub(crate) const fn expected(&self) -> u64 {
        self.message_time.saturating_mul(self.messages)
    }

    /// Decides what follows message `number`, when those up to `settled` were complete at the time `at`.
    pub(crate) fn judge(&mut self, number: u64, settled: u64, at: u64) -> Throttle {
        // Of several questions that were answered since, only the time of the last answer is known.
        let first = self.questions.front().map_or(at, |question| question.since);
        let mut messages = 0;
        while let Some(question) = self.questions.pop_front_if(|question| question.number <= settled) {
            messages += question.messages;
        }
        if messages > 0 {
            if let Some(next) = self.questions.front_mut() {
                next.since = at;
            }
            self.learn(messages, at.saturating_sub(first));
        }
        let most = QUESTIONS_MOST * self.messages;
        if self.questions.front().is_some_and(|oldest| number - oldest.number >= most) {
            Throttle::Wait
        } else if number - self.asked < self.messages {
            Throttle::Pass
        } else {
            Throttle::Ask
        }
    }

    /// Records a question about messages up to `number`.
    pub(crate) fn ask(&mut self, number: u64, now: u64) {
        let messages = number - self.asked;
        self.asked = number;
        self.questions.push_back(Question { number, messages, since: now });
    }

    /// Adapts the number of messages to the time that messages took, once there were many or they took long:
    /// launches come between messages that take no time, and the driver lets other contexts work in between.
    /// Longer times count at once, and shorter ones by half of the difference.
    fn learn(&mut self, messages: u64, took: u64) {
        let (messages, took) = (self.learned.0 + messages, self.learned.1 + took);
        self.learned = (messages, took);
        if messages < 4 * self.messages && took < 2 * AIM {
            return;
        }
        self.learned = (0, 0);
        let each = took / messages.max(1);
        self.message_time = each.max(self.message_time - self.message_time.saturating_sub(each) / 2);
        let fitting = AIM / self.message_time.max(1);
        self.messages = fitting.clamp(1, (2 * self.messages).min(MESSAGES_MOST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs messages that each take `each` one after the other, and returns how long work waits in flight at
    /// most after a start. If `single`, the guest submits one message at a time, so that each is asked about.
    fn in_flight(each: u64, single: bool) -> u64 {
        let mut meter = InFlightMeter::new();
        let (mut now, mut free, mut settled, mut most) = (0, 0, (0, 0), 0);
        let mut answers: VecDeque<(u64, u64)> = VecDeque::new();
        let mut number = 0;
        while number < 20_000 {
            while let Some(answer) = answers.front().copied().filter(|answer| answer.1 <= now) {
                settled = answer;
                answers.pop_front();
            }
            match meter.judge(number, settled.0, settled.1) {
                Throttle::Pass => {
                    number += 1;
                    now += 2_000;
                    free = now.max(free) + each;
                    let first = 3 * MESSAGES_FIRST * each;
                    assert!(free - now <= first.max(6 * AIM), "{} of {each} at {number}", free - now);
                    if number > 2_000 {
                        most = most.max(free - now);
                    }
                    if single {
                        meter.ask(number, now);
                        answers.push_back((number, free));
                    }
                }
                Throttle::Ask => {
                    meter.ask(number, now);
                    answers.push_back((number, free));
                }
                Throttle::Wait => now = answers.front().expect("a question is open").1,
            }
        }
        most
    }

    #[test]
    fn work_in_flight_is_less_than_a_slice_or_two_messages() {
        for each in [5_000, 50_000, 400_000, 3_000_000, 100_000_000] {
            for single in [false, true] {
                let most = in_flight(each, single);
                assert!(most <= (4 * AIM).max(3 * each), "{most} of {each}, single: {single}");
                assert!(most >= AIM.min(each), "{most} of {each}, single: {single}");
            }
        }
    }

    #[test]
    fn answers_that_come_together_count_together() {
        let mut meter = InFlightMeter::new();
        for number in [8, 16, 24] {
            meter.ask(number, 0);
        }
        // Each message took 2 ms.
        assert_eq!(meter.judge(24, 24, 48_000_000), Throttle::Pass);
        meter.ask(25, 48_000_000);
        assert_eq!(meter.expected(), 2_000_000);
        assert_eq!(meter.judge(26, 24, 48_000_000), Throttle::Ask);
    }

    #[test]
    fn messages_that_take_no_time_are_asked_about_seldom() {
        let mut meter = InFlightMeter::new();
        let mut questions = 0;
        for number in 0..10_000 {
            if meter.judge(number, meter.asked(), number) == Throttle::Ask {
                meter.ask(number, number);
                questions += 1;
            }
        }
        assert!(questions < 40, "{questions}");
    }
}
