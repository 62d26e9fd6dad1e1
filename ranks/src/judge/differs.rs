//! Ranks that called something else than the others of their group under one number, while the job went on. What they
//! called is in the tables, or, if sampling left it out, the others' signatures say that it differed, and its number is
//! missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use crate::engine::Engine;
use crate::error::Error;

/// Ranks that called something else.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Differs {
    /// The group.
    pub comm: Arc<str>,
    /// The first number at which they did.
    pub seq: i64,
    /// How many numbers there are.
    pub numbers: usize,
    /// The ranks of which there are fewer; of two halves, of which nothing says which one is wrong, those with the
    /// higher numbers.
    pub ranks: Vec<i64>,
    /// Their call; none if the tables do not have it.
    pub called: Option<Called>,
    /// The call of the others.
    pub others: Called,
    /// The other half, if there are two; otherwise empty.
    pub other_half: Vec<i64>,
}

/// A call.
#[derive(Debug, Clone, Serialize, PartialEq, Eq, PartialOrd, Ord)]
pub struct Called {
    /// The operation.
    pub kind: Arc<str>,
    /// The size.
    pub bytes: i64,
}

/// The ranks of each call under one number.
type Calls = BTreeMap<Called, BTreeSet<i64>>;

/// The ranks of each signature at one number.
type Signatures = BTreeMap<Arc<str>, Vec<i64>>;

/// From the views `differs` and `signatures`: the first number of each group.
pub fn differs(engine: &Engine) -> Result<Vec<Differs>, Error> {
    let rows = engine.view("differs")?;
    let (comm, seq, rank) = (rows.texts("comm")?, rows.ints("seq")?, rows.ints("rank")?);
    let (kind, bytes) = (rows.texts("kind")?, rows.ints("bytes")?);
    let mut by_number: BTreeMap<(&Arc<str>, i64), Calls> = BTreeMap::new();
    for row in 0..rows.len() {
        let called = Called { kind: kind[row].clone(), bytes: bytes[row] };
        by_number.entry((&comm[row], seq[row])).or_default().entry(called).or_default().insert(rank[row]);
    }
    let mut found: BTreeMap<Arc<str>, Differs> = BTreeMap::new();
    for ((comm, seq), mut called) in by_number {
        let Some(most) =
            called.iter().max_by_key(|(_, ranks)| (ranks.len(), std::cmp::Reverse(ranks.first().copied())))
        else {
            continue;
        };
        let others = most.0.clone();
        let of_others = called.remove(&others).unwrap_or_default();
        let Some((odd, _)) = called.first_key_value() else { continue };
        let ranks: BTreeSet<i64> = called.values().flatten().copied().collect();
        let other_half = if ranks.len() == of_others.len() { Vec::from_iter(of_others) } else { Vec::new() };
        let (ranks, called) = (Vec::from_iter(ranks), Some(odd.clone()));
        let one = Differs { comm: comm.clone(), seq, numbers: 1, ranks, called, others, other_half };
        found.entry(comm.clone()).and_modify(|known| known.numbers += 1).or_insert(one);
    }
    let unseen = left_out(engine, &found)?;
    let mut found: Vec<Differs> = found.into_values().chain(unseen).collect();
    found.sort_by(|a, b| (a.seq, &a.comm).cmp(&(b.seq, &b.comm)));
    Ok(found)
}

/// For groups whose signatures differ, but whose differing call is not in the tables: the number that only the others
/// have.
fn left_out(engine: &Engine, known: &BTreeMap<Arc<str>, Differs>) -> Result<Vec<Differs>, Error> {
    let rows = engine.view("signatures")?;
    let (comm, seq, rank) = (rows.texts("comm")?, rows.ints("seq")?, rows.ints("rank")?);
    let signature = rows.texts("signature")?;
    let mut by_comm: BTreeMap<&Arc<str>, BTreeMap<i64, Signatures>> = BTreeMap::new();
    for row in (0..rows.len()).filter(|row| !known.contains_key(&comm[*row])) {
        let of = by_comm.entry(&comm[row]).or_default().entry(seq[row]).or_default();
        of.entry(signature[row].clone()).or_default().push(rank[row]);
    }
    let mut found = Vec::new();
    for (comm, by_number) in by_comm {
        let Some((last, signatures)) = by_number.into_iter().next() else { continue };
        let most = signatures.values().map(Vec::len).max().unwrap_or(0);
        let (equal, fewer): (Vec<_>, Vec<_>) = signatures.into_values().partition(|ranks| ranks.len() == most);
        // If both sides have equally many ranks, those that lack a number are the ones whose call is left out.
        let sides = if fewer.is_empty() && equal.len() > 1 { equal } else { vec![fewer.concat()] };
        let mut of_sides = Vec::new();
        for mut ranks in sides.into_iter().filter(|ranks| !ranks.is_empty()) {
            ranks.sort_unstable();
            if let Some((seq, others)) = the_missing(engine, comm, last, &ranks)? {
                let (comm, other_half) = (comm.clone(), Vec::new());
                of_sides.push(Differs { comm, seq, numbers: 1, ranks, called: None, others, other_half });
            }
        }
        if of_sides.len() == 1 {
            found.append(&mut of_sides);
        }
    }
    Ok(found)
}

/// The only number up to the last one that these ranks do not have, and others have, and what it is.
fn the_missing(engine: &Engine, comm: &str, last: i64, ranks: &[i64]) -> Result<Option<(i64, Called)>, Error> {
    let listed = ranks.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let sql = format!(
        "SELECT c.seq AS seq, MIN(c.kind) AS kind, MIN(c.bytes) AS bytes, SUM(CASE WHEN c.rank IN ({listed}) THEN 1 ELSE 0 END) AS odd \
         FROM collectives c JOIN placed p ON c.run = p.run AND c.win = p.win AND c.rank = p.rank AND c.begin_ns >= p.since_ns \
         WHERE c.comm = '{}' AND c.seq <= {last} GROUP BY c.seq ORDER BY c.seq",
        comm.replace('\'', "''"),
    );
    let rows = engine.query("collectives", &sql)?;
    let (seq, odd) = (rows.ints("seq")?, rows.ints("odd")?);
    let (kind, bytes) = (rows.texts("kind")?, rows.ints("bytes")?);
    // A rank that has begun its session later has other signatures as well: it must have the numbers around it.
    let is_between = |at: usize| odd[..at].iter().any(|n| *n > 0) && odd[at + 1..].iter().any(|n| *n > 0);
    let missing: Vec<usize> = (0..rows.len()).filter(|at| odd[*at] == 0 && is_between(*at)).collect();
    Ok(match missing[..] {
        [at] => Some((seq[at], Called { kind: kind[at].clone(), bytes: bytes[at] })),
        _ => None,
    })
}
