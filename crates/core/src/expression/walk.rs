//! The parts of a parsed expression.

use cel::{
    IdedExpr,
    common::ast::{EntryExpr, Expr},
};

/// Calls `visit` with each direct part of `expr`, in the order in which they are written.
pub(super) fn for_each_part(expr: &mut Expr, visit: &mut dyn FnMut(&mut IdedExpr)) {
    match expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        Expr::Select(select) => visit(&mut select.operand),
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| visit(target));
            call.args.iter_mut().for_each(visit);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(visit),
        Expr::Map(map) => map.entries.iter_mut().for_each(|of| entry(&mut of.expr, visit)),
        Expr::Struct(of) => of.entries.iter_mut().for_each(|of| entry(&mut of.expr, visit)),
        Expr::Comprehension(comprehension) => {
            visit(&mut comprehension.iter_range);
            visit(&mut comprehension.accu_init);
            visit(&mut comprehension.loop_cond);
            visit(&mut comprehension.loop_step);
            visit(&mut comprehension.result);
        }
    }
}

fn entry(entry: &mut EntryExpr, visit: &mut dyn FnMut(&mut IdedExpr)) {
    match entry {
        EntryExpr::MapEntry(entry) => {
            visit(&mut entry.key);
            visit(&mut entry.value);
        }
        EntryExpr::StructField(field) => visit(&mut field.value),
    }
}
