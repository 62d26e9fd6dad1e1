//! The strongly connected components of a graph, by Tarjan's algorithm: nodes of which each leads to each other. Without recursion, because the
//! graph of a job has millions of nodes.

/// A number for each node, which is the same for nodes that lead to each other. `edge` returns the node to which the `number`th edge of a node leads.
pub(super) fn components(nodes: u32, edge: impl Fn(u32, u32) -> Option<u32>) -> Vec<u32> {
    const NONE: u32 = u32::MAX;
    let all = nodes as usize;
    let (mut order, mut lowest, mut component) = (vec![NONE; all], vec![0; all], vec![NONE; all]);
    let (mut next, mut open) = (0, Vec::new());
    for root in 0..nodes {
        if order[root as usize] != NONE {
            continue;
        }
        // A node and the number of its next edge.
        let mut way = vec![(root, 0)];
        while let Some((node, number)) = way.last_mut() {
            let at = *node as usize;
            if *number == 0 {
                (order[at], lowest[at]) = (next, next);
                next += 1;
                open.push(*node);
            }
            *number += 1;
            match edge(*node, *number - 1) {
                Some(to) if order[to as usize] == NONE => way.push((to, 0)),
                Some(to) if component[to as usize] == NONE => lowest[at] = lowest[at].min(order[to as usize]),
                Some(_) => {}
                None => {
                    if lowest[at] == order[at] {
                        while let Some(member) = open.pop() {
                            component[member as usize] = at as u32;
                            if member as usize == at {
                                break;
                            }
                        }
                    }
                    let low = lowest[at];
                    way.pop();
                    if let Some((parent, _)) = way.last() {
                        lowest[*parent as usize] = lowest[*parent as usize].min(low);
                    }
                }
            }
        }
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_lead_to_each_other_have_one_number() {
        // Every graph of four nodes, against the way from each to each.
        for edges in 0_u32..1 << 16 {
            let leads = |from: u32, to: u32| edges >> (4 * from + to) & 1 == 1;
            let found = components(4, |from, number| (0..4).filter(|to| leads(from, *to)).nth(number as usize));
            let mut reaches = [[false; 4]; 4];
            for (from, row) in reaches.iter_mut().enumerate() {
                row.iter_mut().enumerate().for_each(|(to, it)| *it = from == to || leads(from as u32, to as u32));
            }
            for by in 0..4 {
                for from in 0..4 {
                    for to in 0..4 {
                        reaches[from][to] |= reaches[from][by] && reaches[by][to];
                    }
                }
            }
            for from in 0..4 {
                for to in 0..4 {
                    assert_eq!(found[from] == found[to], reaches[from][to] && reaches[to][from], "{edges:b}");
                }
            }
        }
    }
}
