//! The budget: shares the zones that it pays for among the ranges, by what a zone costs by now.

use super::context::Context;
use super::stage::Stage;
use crate::budget::Budget;

pub(crate) struct BudgetStage(pub(crate) Budget);

impl Stage for BudgetStage {
    fn pass(&mut self, cx: &mut Context) -> usize {
        let zone_ns = cx.pace.zone_ns(cx.streams.clocks.zone_ns());
        // What comes by while the session is stopped is no rate of its own.
        if cx.recorder.is_on() {
            self.0.adjust(zone_ns)
        } else {
            self.0.rest()
        }
        0
    }
}
