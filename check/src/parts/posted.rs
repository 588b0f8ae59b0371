//! A posted descriptor and the handler of its notifications, against the rules of VT-d ("Posted Interrupt Descriptor (PID)",
//! "Interrupt-Posting Hardware Operation"). Posts come between any two of the handler's accesses.

use crate::draw::Draw;
use crate::trials::{differs, same};
use hal::{AtomicWord, Word, Work};
use irq::Vector;
use irq::posted::{Deliverable, Descriptor, Notification, Served};
use spec::vtd::posted::{CONTROL_WORD, Control, PIR_WORDS, WORDS};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Lower vectors are exceptions (Intel SDM 3, "Exception and Interrupt Vectors").
const FIRST_DEVICE: u8 = 0x20;

/// What the descriptor holds, and what its handler has taken and not yet dispatched.
struct Model<'a> {
    descriptor: Descriptor<'a, AtomicWord>,
    draw: &'a mut Draw,
    vectors: Vec<u8>,
    notification: Notification,
    requests: BTreeSet<u8>,
    taken: BTreeSet<u8>,
    outstanding: bool,
    suppressed: bool,
    served: Served,
    /// The first answer that was wrong.
    wrong: Result<(), String>,
}

impl Model<'_> {
    fn is_deliverable(&self, vector: u8) -> bool {
        (FIRST_DEVICE..self.notification.vector.0).contains(&vector)
    }

    fn judge(&mut self, answer: Result<(), String>) {
        if self.wrong.is_ok() {
            self.wrong = answer;
        }
    }

    fn post(&mut self) {
        let (vector, urgent) = (*self.draw.pick(&self.vectors), self.draw.percent(20));
        let notifies = !self.outstanding && (urgent || !self.suppressed);
        self.requests.insert(vector);
        self.outstanding |= notifies;
        let expected = notifies.then_some(self.notification);
        let found = self.descriptor.post(Vector(vector), urgent);
        self.judge(same("notification of a post", &expected, &found));
    }

    fn some_posts(&mut self) {
        while self.draw.percent(25) {
            self.post();
        }
    }

    /// The handler has read all words, found a request, and is about to take each word that was not 0.
    fn harvest(&mut self) {
        let words: BTreeSet<u8> = self.requests.iter().map(|vector| vector / 64).collect();
        if words.is_empty() || self.taken.iter().any(|&vector| self.is_deliverable(vector)) {
            let what = "a harvest of nothing, or before the last one's requests were dispatched";
            self.judge(Err(differs(what, &self.requests, &self.taken)));
        }
        self.some_posts();
        self.taken = self.requests.iter().copied().filter(|vector| words.contains(&(vector / 64))).collect();
        self.requests.retain(|vector| !words.contains(&(vector / 64)));
        let strays = self.taken.iter().filter(|&&vector| !self.is_deliverable(vector)).count();
        self.served.passes += 1;
        self.served.stray += strays as u32;
        self.taken = self.taken.iter().copied().filter(|&vector| self.is_deliverable(vector)).collect();
    }

    /// The vector whose turn it is: ascending from `from` on, then those below.
    fn next(&self, from: u8) -> Option<Vector> {
        self.taken.range(from..).next().or(self.taken.first()).map(|&vector| Vector(vector))
    }

    fn dispatch(&mut self, from: u8, vector: Vector) {
        let expected = self.next(from);
        self.judge(same("dispatched vector", &expected, &Some(vector)));
        self.taken.remove(&vector.0);
        self.served.vectors += 1;
        self.some_posts();
    }

    /// The descriptor's words are what the model holds.
    fn compare(&self, words: &[AtomicWord]) -> Result<(), String> {
        let mut expected = [0; WORDS];
        for vector in &self.requests {
            expected[usize::from(vector / 64)] |= 1 << (vector % 64);
        }
        let control = Control::new().with_outstanding(self.outstanding).with_suppress(self.suppressed);
        let control = control.with_notification_vector(self.notification.vector.0);
        expected[CONTROL_WORD] = control.with_destination(self.notification.destination).into_bits();
        let found: Vec<u64> = words.iter().map(Word::get).collect();
        same("descriptor", &expected.to_vec(), &found)
    }
}

/// One notification, from `from` on. Set: the time is over after so many vectors.
fn serve(model: &RefCell<Model<'_>>, from: u8, most: Option<u32>) -> Result<(), String> {
    let (descriptor, nv, passes) = {
        let mut model = model.borrow_mut();
        model.served = Served::default();
        let passes = model.draw.within(0..=4) as u32;
        (model.descriptor, model.notification.vector, passes)
    };
    let deliverable = Deliverable::below(nv);
    let cleared = RefCell::new(None);
    let name = |work| {
        let mut model = model.borrow_mut();
        match work {
            Work::PirHarvest => model.harvest(),
            Work::PidClearOn => {
                let before = model.served.passes;
                let answer = same("clears of ON", &None, &cleared.replace(Some(before)));
                model.judge(answer);
                // A handler with a limit is about to clear ON; the other one has.
                model.outstanding = false;
                if most.is_none() {
                    model.some_posts();
                }
            }
            other => model.judge(Err(format!("work of a notification: {other:?}"))),
        }
    };
    let (served, resume, expected) = match most {
        None => {
            (descriptor.serve(passes, &deliverable, name, |vector| model.borrow_mut().dispatch(0, vector)), None, None)
        }
        Some(most) => {
            let is_late = || {
                let mut model = model.borrow_mut();
                if model.served.vectors == 0 {
                    model.judge(Err("the time limit of a notification's first vector was asked for".into()));
                }
                model.served.vectors >= most
            };
            let dispatch = |vector| model.borrow_mut().dispatch(from, vector);
            let limited = descriptor.serve_until(passes, &deliverable, Vector(from), is_late, name, dispatch);
            let mut model = model.borrow_mut();
            let expected = model.next(from);
            // What is left goes back, and posters do not notify: the handler's own notification finds it.
            let mut left = std::mem::take(&mut model.taken);
            if !left.is_empty() {
                model.outstanding = true;
            }
            model.requests.append(&mut left);
            (limited.served, limited.resume, expected)
        }
    };
    let model = model.borrow();
    same("served", &model.served, &served)?;
    same("resume", &expected, &resume)?;
    let before = cleared.take();
    if before.is_none() && resume.is_none() {
        return Err(format!("a notification ended and did not clear ON: {served:?}"));
    }
    let (looped, behind) = (before.unwrap_or(served.passes), served.passes - before.unwrap_or(served.passes));
    if looped > passes || behind > 1 {
        return Err(format!("{looped} passes before ON was clear, and {behind} behind; {passes} and 1 are allowed"));
    }
    Ok(())
}

pub(super) fn posted(draw: &mut Draw) -> Result<(), String> {
    let words: Vec<AtomicWord> = (0..WORDS).map(|_| AtomicWord::new(0)).collect();
    let notification =
        Notification { vector: Vector(draw.within(0x40..=0xff) as u8), destination: draw.below(1 << 32) as u32 };
    let descriptor = Descriptor::new(&words);
    descriptor.initialise(notification);
    let vectors: Vec<u8> = (0..draw.within(1..=12)).map(|_| draw.below(PIR_WORDS as u64 * 64) as u8).collect();
    let rounds = draw.within(5..=40);
    let model = RefCell::new(Model {
        descriptor,
        draw,
        vectors,
        notification,
        requests: BTreeSet::new(),
        taken: BTreeSet::new(),
        outstanding: false,
        suppressed: false,
        served: Served::default(),
        wrong: Ok(()),
    });
    for _ in 0..rounds {
        let (kind, from, most) = {
            let mut model = model.borrow_mut();
            let (kind, from) = (model.draw.below(8), model.draw.below(256) as u8);
            (kind, from, model.draw.within(1..=6) as u32)
        };
        match kind {
            0..4 => model.borrow_mut().post(),
            4 => {
                let mut model = model.borrow_mut();
                model.suppressed = !model.suppressed;
                let control = Control::from_bits(words[CONTROL_WORD].get()).with_suppress(model.suppressed);
                words[CONTROL_WORD].set(control.into_bits());
            }
            5 => serve(&model, 0, None)?,
            // Who stops half-way relies on ON, so there must have been a notification.
            _ if !model.borrow().outstanding => {}
            _ => serve(&model, from, Some(most))?,
        }
        let model = model.borrow();
        model.wrong.clone()?;
        model.compare(&words)?;
        for vector in 0..=u8::MAX {
            same("is_pending", &model.requests.contains(&vector), &descriptor.is_pending(Vector(vector)))?;
        }
        same("is_outstanding", &model.outstanding, &descriptor.is_outstanding())?;
    }
    Ok(())
}
