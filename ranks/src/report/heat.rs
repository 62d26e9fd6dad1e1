//! The heat map of a report: the times of each rank in each step, compared with its peers. Only the page shows it, so
//! only the page computes it. Too many ranks or steps are merged to blocks, each shown as its worst rank and step, so
//! nothing that stands out disappears.

use std::sync::Arc;

use serde::Serialize;
use warpline_judge::own::Own;

use super::cells::{Cells, NONE, code, flags};
use crate::engine::Engine;
use crate::error::Error;
use crate::views;

/// Cells of a page: 1,000 ranks and 1,000 steps, which a browser draws within a frame, and which take 12 MB.
const CELLS: usize = 1 << 20;

/// Rows or columns of a page: canvases are not larger.
const SIDE: usize = 8_192;

/// Rank × step.
#[derive(Debug, Clone, Default, Serialize)]
pub struct HeatMap {
    /// The ranks, in order, as runs of first, last and stride.
    pub ranks: Vec<[i64; 3]>,
    /// The steps, in order, as runs of first, last and stride.
    pub steps: Vec<[i64; 3]>,
    /// Names of hosts.
    pub hosts: Vec<Arc<str>>,
    /// The host of each rank, by its place in `hosts`.
    pub host_of: Vec<usize>,
    /// Ranks in a row.
    pub rank_block: usize,
    /// Steps in a column.
    pub step_block: usize,
    /// One in this many steps was read.
    pub one_in: i64,
    /// The longest step of each column, in ns.
    pub wall_ns: Vec<i64>,
    /// How much longer than its peers the rank of each row took itself in a step, on average, in ns; of several ranks,
    /// the one that took longest. None if none is compared.
    pub mean_ns: Vec<Option<i64>>,
    /// The columns of the cells, row by row.
    pub cells: Cells,
}

/// The steps of all ranks, a row for each rank and step.
struct Read {
    rank: Vec<i64>,
    step: Vec<i64>,
    wall: Vec<i64>,
    compute: Vec<i64>,
    own: Vec<i64>,
    uncertain: Vec<i64>,
    dropped: Vec<i64>,
    err: Vec<i64>,
}

impl HeatMap {
    /// The heat map of an engine's run, which was judged by this own time of one in so many steps.
    pub(super) fn of(engine: &Engine, own: &Own, one_in: i64) -> Result<Self, Error> {
        let hosts = engine.query("steps", "SELECT rank, MIN(host) AS host FROM steps GROUP BY rank ORDER BY rank")?;
        let (ranks, host) = (hosts.ints("rank")?, hosts.texts("host")?);
        let rows = read(engine, one_in)?;
        let mut map = Self::merged(&ranks, own, &rows);
        map.one_in = one_in;
        for name in host {
            let known = map.hosts.iter().rposition(|known| *known == name);
            map.host_of.push(known.unwrap_or(map.hosts.len()));
            if known.is_none() {
                map.hosts.push(name);
            }
        }
        Ok(map)
    }

    fn merged(ranks: &[i64], own: &Own, rows: &Read) -> Self {
        let mut steps = rows.step.clone();
        steps.sort_unstable();
        steps.dedup();
        let (rank_block, step_block) = blocks(ranks.len(), steps.len());
        let (height, width) = (ranks.len().div_ceil(rank_block), steps.len().div_ceil(step_block));
        let at = |all: &[i64], value: i64| all.binary_search(&value).unwrap_or(0);
        let places: Vec<(usize, usize)> =
            rows.rank.iter().zip(&rows.step).map(|(rank, step)| (at(ranks, *rank), at(&steps, *step))).collect();
        let more = |(rank, step): (&i64, &i64)| {
            own.more_ns(own.ranks().binary_search(rank).ok()?, own.steps().binary_search(step).ok()?)
        };
        // None for a step that is not compared.
        let beyond: Vec<Option<i64>> = rows.rank.iter().zip(&rows.step).map(more).collect();
        let mut map = Self {
            ranks: runs(ranks),
            steps: runs(&steps),
            rank_block,
            step_block,
            one_in: 1,
            wall_ns: vec![0; width],
            mean_ns: means(&places, &beyond, ranks.len())
                .chunks(rank_block)
                .map(|row| row.iter().copied().flatten().max())
                .collect(),
            cells: Cells::empty(height * width),
            ..Self::default()
        };
        let mut worst: Vec<Option<usize>> = vec![None; height * width];
        for (row, (y, x)) in places.iter().enumerate() {
            let column = x / step_block;
            map.wall_ns[column] = map.wall_ns[column].max(rows.wall[row]);
            let cell = &mut worst[y / rank_block * width + column];
            if cell.is_none_or(|known| beyond[known] < beyond[row]) {
                *cell = Some(row);
            }
        }
        for (cell, row) in worst.iter().enumerate().filter_map(|(cell, row)| Some((cell, (*row)?))) {
            map.cells.beyond[cell] = beyond[row].map_or(NONE, code);
            map.cells.compute[cell] = code(rows.compute[row]);
            map.cells.idle[cell] = code(rows.own[row] - rows.compute[row]);
            map.cells.waiting[cell] = code(rows.wall[row] - rows.own[row] - rows.uncertain[row]);
            map.cells.uncertain[cell] = code(rows.uncertain[row]);
            map.cells.flags[cell] = flags(rows.err[row], rows.dropped[row] > 0);
        }
        if rows.uncertain.iter().all(|ns| *ns == 0) {
            map.cells.uncertain = Vec::new();
        }
        if rank_block > 1 || step_block > 1 {
            let in_block = |part: fn(&(usize, usize)) -> usize, block: usize| {
                worst.iter().map(|row| row.map_or(0, |row| (part(&places[row]) % block) as u16)).collect()
            };
            map.cells.rank_in_block = in_block(|place| place.0, rank_block);
            map.cells.step_in_block = in_block(|place| place.1, step_block);
        }
        map
    }
}

/// The mean of what is known of each rank.
fn means(places: &[(usize, usize)], beyond: &[Option<i64>], ranks: usize) -> Vec<Option<i64>> {
    let mut sums = vec![(0_i128, 0); ranks];
    for ((rank, _), more) in places.iter().zip(beyond) {
        if let Some(more) = more {
            sums[*rank] = (sums[*rank].0 + i128::from(*more), sums[*rank].1 + 1);
        }
    }
    sums.into_iter().map(|(sum, steps)| (steps > 0).then(|| (sum / i128::from(steps)) as i64)).collect()
}

fn read(engine: &Engine, one_in: i64) -> Result<Read, Error> {
    let rows = match (views::find("cells"), one_in) {
        (Some(view), 2..) => {
            engine.query("cells", &format!("SELECT * FROM ({}) c WHERE step % {one_in} = 0", view.sql))?
        }
        _ => engine.view("cells")?,
    };
    Ok(Read {
        rank: rows.ints("rank")?,
        step: rows.ints("step")?,
        wall: rows.ints("wall_ns")?,
        compute: rows.ints("compute_ns")?,
        own: rows.ints("own_ns")?,
        uncertain: rows.ints("uncertain_ns")?,
        dropped: rows.ints("dropped")?,
        err: rows.ints("clock_err_ns")?,
    })
}

/// How many ranks and steps are merged.
fn blocks(ranks: usize, steps: usize) -> (usize, usize) {
    let (mut rank_block, mut step_block) = (ranks.div_ceil(SIDE).max(1), steps.div_ceil(SIDE).max(1));
    loop {
        let (height, width) = (ranks.div_ceil(rank_block), steps.div_ceil(step_block));
        match height * width > CELLS {
            true if height >= width => rank_block += 1,
            true => step_block += 1,
            false => return (rank_block, step_block),
        }
    }
}

/// Sorted numbers as runs of first, last and stride.
fn runs(numbers: &[i64]) -> Vec<[i64; 3]> {
    let mut runs: Vec<[i64; 3]> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run[0] == run[1] => *run = [run[0], *number, number - run[0]],
            Some(run) if number - run[1] == run[2] => run[1] = *number,
            _ => runs.push([*number, *number, 1]),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use warpline_judge::own::Step;

    use super::*;

    fn rows(ranks: i64, steps: i64, own: impl Fn(i64, i64) -> i64) -> Read {
        let all: Vec<(i64, i64)> = (0..ranks).flat_map(|rank| (0..steps).map(move |step| (rank, step))).collect();
        let own: Vec<i64> = all.iter().map(|(rank, step)| own(*rank, *step)).collect();
        Read {
            rank: all.iter().map(|one| one.0).collect(),
            step: all.iter().map(|one| one.1).collect(),
            wall: own.iter().map(|own| own + 7_000).collect(),
            compute: own.iter().map(|own| own - 3_000).collect(),
            uncertain: vec![2_000; all.len()],
            dropped: vec![0; all.len()],
            err: vec![200; all.len()],
            own,
        }
    }

    /// The own time of ranks with these numbers of peers.
    fn own(peers: &[usize], rows: &Read) -> Own {
        let step = |at: usize| Step { rank: rows.rank[at], step: rows.step[at], own_ns: rows.own[at] };
        Own::new(&(0..).zip(peers.iter().copied()).collect(), &(0..rows.rank.len()).map(step).collect::<Vec<_>>())
    }

    #[test]
    fn a_cell_is_compared_with_the_peers_of_its_role() {
        // The ranks of the second role work twice as long; rank 5 of them is late in step 2.
        let late = |rank, step| i64::from((rank, step) == (5, 2)) * 1_500_000;
        let rows = rows(8, 4, |rank, step| 10_000_000 * (1 + i64::from(rank >= 4)) + late(rank, step));
        let map = HeatMap::merged(&(0..8).collect::<Vec<_>>(), &own(&[1, 1, 1, 1, 2, 2, 2, 2], &rows), &rows);
        assert_eq!((map.ranks, map.steps), (vec![[0, 7, 1]], vec![[0, 3, 1]]));
        for cell in 0..32 {
            let expected = if cell == 5 * 4 + 2 { code(1_500_000) } else { 0 };
            assert_eq!(map.cells.beyond[cell], expected, "cell {cell}");
        }
        let mut means = vec![Some(0); 8];
        means[5] = Some(1_500_000 / 4);
        assert_eq!(map.mean_ns, means);
        // A rank that does what no other does is not compared.
        let alone = HeatMap::merged(&(0..8).collect::<Vec<_>>(), &own(&[0, 1, 1, 1, 2, 2, 2, 2], &rows), &rows);
        assert_eq!((alone.cells.beyond[1], alone.cells.compute[1]), (NONE, map.cells.compute[1]));
        assert_eq!((alone.mean_ns[0], alone.mean_ns[1]), (None, Some(0)));
        assert_eq!(map.wall_ns[2], 10_000_000 * 2 + 1_500_000 + 7_000);
        let cells = &map.cells;
        assert_eq!((cells.waiting[0], cells.idle[0], cells.uncertain[0]), (code(5_000), code(3_000), code(2_000)));
        // Most jobs have none.
        let known = Read { uncertain: vec![0; 32], ..rows };
        let cells = HeatMap::merged(&(0..8).collect::<Vec<_>>(), &own(&[1; 8], &known), &known).cells;
        assert_eq!((cells.waiting[0], cells.uncertain.len()), (code(7_000), 0));
    }

    #[test]
    fn what_nobody_wrote_is_no_zero() {
        let mut some = rows(4, 3, |_, _| 1_000_000);
        some.step[7] = 1; // Rank 2 has step 1 and no step 2 … and the row of step 1 twice.
        some.step[8] = 1;
        let map = HeatMap::merged(&[0, 1, 2, 3], &own(&[0; 4], &some), &some);
        assert_eq!(map.cells.beyond[2 * 3 + 2], crate::report::cells::NONE);
        assert_eq!(map.cells.beyond[2 * 3 + 1], 0);
    }

    #[test]
    fn too_many_are_merged_and_the_worst_is_shown() {
        assert_eq!(blocks(1_000, 600), (1, 1));
        assert_eq!(blocks(10_000, 600), (6, 1));
        assert_eq!(blocks(16, 100_000), (1, 13));
        let (rank_block, step_block) = blocks(20_000, 20_000);
        assert!(20_000usize.div_ceil(rank_block) * 20_000usize.div_ceil(step_block) <= CELLS);
        let rows = rows(2_000, 1_000, |rank, step| 1_000_000 + i64::from((rank, step) == (1_234, 567)) * 9_000_000);
        let map = HeatMap::merged(&(0..2_000).collect::<Vec<_>>(), &own(&[0; 2_000], &rows), &rows);
        assert_eq!((map.rank_block, map.step_block), (2, 1));
        let cell = 1_234 / 2 * 1_000 + 567;
        assert_eq!(map.cells.beyond[cell], code(9_000_000));
        assert_eq!((map.cells.rank_in_block[cell], map.cells.step_in_block[cell]), (0, 0));
        assert_eq!(map.cells.beyond.iter().filter(|code| **code != 0).count(), 1);
    }

    #[test]
    fn numbers_are_runs() {
        assert_eq!(runs(&[]), Vec::<[i64; 3]>::new());
        assert_eq!(runs(&[5]), [[5, 5, 1]]);
        assert_eq!(runs(&[0, 1, 2, 9, 10]), [[0, 2, 1], [9, 10, 1]]);
        assert_eq!(runs(&[0, 4, 8, 9]), [[0, 8, 4], [9, 9, 1]]);
    }
}
