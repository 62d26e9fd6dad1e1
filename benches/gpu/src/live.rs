//! What a session that stops and starts leaves behind: a step of the transformer block before the process had a session,
//! after a hundred cycles, and while one records.
//!
//! "Never traced" cannot take turns with the others in one process, so it is measured again after them: a marked step while
//! the session is stopped, and once more when it is over. The session that is on and the one that is stopped take turns.

use gpu::{Gpu, Result};
use warpline::{Session, SessionBuilder};

use crate::figures::{Table, median, ratio, verdict};
use crate::options::Options;
use crate::steps::{BUDGET, MEASURED, Model, SETTLED};

const CYCLES: u64 = 100;

pub fn run(options: &Options) -> Result {
    let gpu = Gpu::new(0)?;
    let rounds = options.size("rounds", 8);
    let title = format!(
        "live: us per step of a transformer block, medians of {rounds} rounds; ratios to a step that was never traced"
    );
    let columns =
        ["dim", "session", "never traced", "after 100 cycles", "over", "goal 1.00 ± 0.01", "on : stopped", "goal 1.01"];
    let mut table = Table::new(&title, &columns);
    // Each shape has a process-wide past of its own: the first is truly never traced, the others only as far as they can be.
    for (dim, batch, tokens) in [(4096, 8, 2048), (1024, 4, 256)] {
        let model = Model::new(&gpu, dim, batch, tokens)?;
        for (name, builder) in [("plain", Session::builder()), ("budget 0.5%", Session::builder().budget(BUDGET))] {
            row(&mut table, &model, dim, name, builder, rounds)?;
        }
    }
    table.print();
    Ok(())
}

fn row(table: &mut Table, model: &Model<'_>, dim: usize, name: &str, builder: SessionBuilder, rounds: u64) -> Result {
    let steps = || -> Result<Vec<f64>> {
        model.steps_for(SETTLED)?;
        (0..rounds).map(|_| Ok(model.steps_for(MEASURED)?.us)).collect()
    };
    let never = steps()?;
    let session = builder.start()?;
    for _ in 0..CYCLES {
        session.start();
        model.steps_for(MEASURED / 100)?;
        session.stop();
        model.steps_for(MEASURED / 100)?;
    }
    let (mut on, mut stopped) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        session.start();
        model.steps_for(SETTLED)?;
        on.push(model.steps_for(MEASURED)?.us);
        session.stop();
        model.steps_for(SETTLED / 4)?;
        stopped.push(model.steps_for(MEASURED)?.us);
    }
    let report = session.finish();
    if report.begun != report.recorded + report.captured + report.dropped.total() {
        return Err(format!("the account is wrong: {report}").into());
    }
    let after = steps()?;
    let (over, while_on) = (ratio(&after, &never), ratio(&on, &stopped));
    table.row(&[
        dim.to_string(),
        name.to_owned(),
        format!("{:.1}", median(&never)),
        format!("{:.1}", median(&after)),
        format!("{over:.4}"),
        verdict((over - 1.0).abs(), 0.01).to_owned(),
        format!("{while_on:.4}"),
        verdict(while_on, 1.01).to_owned(),
    ]);
    Ok(())
}
