//! Removes all parts of a program without which it still fails.

use std::ops::Range;

use crate::fuzz::program::{Program, Statement, text_of};

/// Returns the number of statements, those inside others included.
fn count(statements: &[Statement]) -> usize {
    let inner = |statement: &Statement| match statement {
        Statement::Lines(_) => 1,
        Statement::Block { body, other, .. } => 1 + count(body) + count(other),
        Statement::Far { body, .. } => 1 + count(body),
    };
    statements.iter().map(inner).sum()
}

/// Returns the statements with a change at some of them, which are counted in the order of the text.
fn edit(
    statements: &[Statement],
    next: &mut usize,
    change: &dyn Fn(usize, &Statement) -> Option<Vec<Statement>>,
) -> Vec<Statement> {
    let mut all = Vec::new();
    for statement in statements {
        let at = *next;
        if let Some(instead) = change(at, statement) {
            *next += count(std::slice::from_ref(statement));
            all.extend(instead);
            continue;
        }
        *next += 1;
        all.push(match statement {
            Statement::Lines(_) => statement.clone(),
            Statement::Block { open, body, middle, other, close } => Statement::Block {
                open: open.clone(),
                body: edit(body, next, change),
                middle: middle.clone(),
                other: edit(other, next, change),
                close: close.clone(),
            },
            Statement::Far { open, label, body, join } => Statement::Far {
                open: open.clone(),
                label: label.clone(),
                body: edit(body, next, change),
                join: join.clone(),
            },
        });
    }
    all
}

/// Returns the program without the statements in a range.
fn without(program: &Program, range: &Range<usize>) -> Program {
    let change = |at: usize, _: &Statement| range.contains(&at).then(Vec::new);
    Program { body: edit(&program.body, &mut 0, &change), ..program.clone() }
}

/// Returns the program in which the statements inside a branch or loop replace it, unless they name the lanes
/// that execute them.
fn unwrapped(program: &Program, index: usize, second: bool) -> Option<Program> {
    let change = |at: usize, statement: &Statement| {
        let inner = match statement {
            Statement::Block { other, .. } if second => other,
            Statement::Block { body, .. } | Statement::Far { body, .. } => body,
            Statement::Lines(_) => return None,
        };
        let text = text_of(inner, "");
        let named = text.split("%m").skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        (at == index && !named).then(|| inner.clone())
    };
    let body = edit(&program.body, &mut 0, &change);
    (count(&body) < count(&program.body)).then(|| Program { body, ..program.clone() })
}

/// Returns the smallest program found that still fails, of at most `most` tries.
pub fn reduce(program: &Program, most: usize, fails: &dyn Fn(&Program) -> bool) -> Program {
    let mut best = program.clone();
    let mut tries = 0;
    let mut attempt = |best: &mut Program, candidate: Program| {
        tries += 1;
        let better = tries <= most && fails(&candidate);
        if better {
            *best = candidate;
        }
        better
    };
    loop {
        let before = (count(&best.body), best.threads(), best.grid);
        let mut size = count(&best.body).div_ceil(2);
        while size > 0 {
            let mut start = 0;
            while start < count(&best.body) {
                let candidate = without(&best, &(start..start + size));
                if !attempt(&mut best, candidate) {
                    start += size;
                }
            }
            size /= 2;
        }
        let mut index = 0;
        while index < count(&best.body) {
            let found = [false, true]
                .into_iter()
                .filter_map(|second| unwrapped(&best, index, second))
                .collect::<Vec<_>>()
                .into_iter()
                .any(|candidate| attempt(&mut best, candidate));
            index += usize::from(!found);
        }
        let whole = best.threads().is_multiple_of(32);
        let smaller = [[1, 1, 1], [2, 1, 1], [32, 1, 1], [33, 1, 1], [64, 1, 1]]
            .map(|block| Program { block, ..best.clone() });
        for candidate in smaller {
            if candidate.threads() < best.threads() && candidate.threads().is_multiple_of(32) == whole {
                attempt(&mut best, candidate);
            }
        }
        if best.grid != [1; 3] {
            let candidate = Program { grid: [1; 3], ..best.clone() };
            attempt(&mut best, candidate);
        }
        if before == (count(&best.body), best.threads(), best.grid) {
            return best;
        }
    }
}
