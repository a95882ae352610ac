//! Conditions under which a state runs: a decision diagram over the branches that `Choice` states take.
//!
//! A state machine has one current state, so the condition of a state is the set of choices that lead to it. A Steward step
//! runs unless its `when` is false, so its `when` must contain all of them. Diagrams are ordered by the numbers of the
//! choices and reduced, so that the condition of a state after the end of all branches of a choice does not mention that choice
//! (Bryant, Graph-Based Algorithms for Boolean Function Manipulation, 1986; here with one child for each branch).

use crate::cel::Cel;

/// Nodes of one condition. A definition with more is not readable, and its expressions would be too long.
const NODES_MAX: usize = 400;

/// The condition under which a state runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    Always,
    Never,
    /// The condition by the branch that this choice takes. The last branch is the default.
    Choice(usize, Vec<Condition>),
}

impl Condition {
    /// This condition, and the choice takes this branch. The choice has a greater number than all choices in `self`.
    pub(crate) fn and_branch(&self, choice: usize, branch: usize, branches: usize) -> Self {
        match self {
            Self::Never => Self::Never,
            Self::Always => {
                let taken = |n| if n == branch { Self::Always } else { Self::Never };
                Self::Choice(choice, (0..branches).map(taken).collect()).reduced()
            }
            Self::Choice(number, children) => {
                let children = children.iter();
                let children = children.map(|child| child.and_branch(choice, branch, branches));
                Self::Choice(*number, children.collect())
            }
        }
    }

    /// One of the two conditions; `None` if it has too many parts.
    pub(crate) fn or(&self, other: &Self) -> Option<Self> {
        let either = self.either(other);
        (either.nodes() <= NODES_MAX).then_some(either)
    }

    /// This condition, and not the other.
    pub(crate) fn but_not(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Always) => Self::Never,
            (condition, Self::Never) => condition.clone(),
            (Self::Choice(a, of_a), Self::Choice(b, _)) if a < b => {
                Self::Choice(*a, of_a.iter().map(|a| a.but_not(other)).collect()).reduced()
            }
            (Self::Choice(a, of_a), Self::Choice(b, of_b)) if a == b => {
                let children = of_a.iter().zip(of_b).map(|(a, b)| a.but_not(b));
                Self::Choice(*a, children.collect()).reduced()
            }
            (Self::Always | Self::Choice(..), Self::Choice(b, of_b)) => {
                Self::Choice(*b, of_b.iter().map(|b| self.but_not(b)).collect()).reduced()
            }
        }
    }

    fn either(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Always, _) | (_, Self::Always) => Self::Always,
            (Self::Never, condition) | (condition, Self::Never) => condition.clone(),
            (Self::Choice(a, of_a), Self::Choice(b, of_b)) => {
                let children = match a.cmp(b) {
                    std::cmp::Ordering::Equal => {
                        of_a.iter().zip(of_b).map(|(a, b)| a.either(b)).collect()
                    }
                    std::cmp::Ordering::Less => of_a.iter().map(|a| a.either(other)).collect(),
                    std::cmp::Ordering::Greater => of_b.iter().map(|b| b.either(self)).collect(),
                };
                Self::Choice(*a.min(b), children).reduced()
            }
        }
    }

    fn reduced(self) -> Self {
        match self {
            Self::Choice(_, ref children) => match children.split_first() {
                Some((first, rest)) if rest.iter().all(|child| child == first) => first.clone(),
                Some(_) | None => self,
            },
            Self::Always | Self::Never => self,
        }
    }

    fn nodes(&self) -> usize {
        match self {
            Self::Always | Self::Never => 1,
            Self::Choice(_, children) => 1 + children.iter().map(Self::nodes).sum::<usize>(),
        }
    }

    /// The expression, given the rules of each choice. A branch is taken if its rule holds and no rule before it does.
    pub(crate) fn truth(&self, rules: &[Vec<Cel>]) -> Truth {
        match self {
            Self::Always => Truth::Constant(true),
            Self::Never => Truth::Constant(false),
            Self::Choice(choice, children) => {
                let of_choice = rules.get(*choice).map_or(&[][..], Vec::as_slice);
                let mut children: Vec<_> =
                    children.iter().map(|child| child.truth(rules)).collect();
                let default = children.pop().unwrap_or(Truth::Constant(false));
                of_choice
                    .iter()
                    .zip(children)
                    .rev()
                    .fold(default, |otherwise, (rule, then)| Truth::choose(rule, then, otherwise))
            }
        }
    }
}

/// The value of a condition: a constant, or an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Truth {
    Constant(bool),
    Test(Cel),
}

impl Truth {
    /// `rule ? then : otherwise`, as short as possible. The rule comes first, because the rest may be evaluated only if the
    /// rule allows it.
    fn choose(rule: &Cel, then: Self, otherwise: Self) -> Self {
        match (then, otherwise) {
            (then, otherwise) if then == otherwise => then,
            (Self::Constant(true), Self::Constant(_)) => Self::Test(rule.clone()),
            (Self::Constant(false), Self::Constant(_)) => Self::Test(rule.not()),
            (Self::Constant(true), Self::Test(otherwise)) => Self::Test(rule.or(&otherwise)),
            (Self::Constant(false), Self::Test(otherwise)) => {
                Self::Test(rule.not().and(&otherwise))
            }
            (Self::Test(then), Self::Constant(false)) => Self::Test(rule.and(&then)),
            (Self::Test(then), Self::Constant(true)) => Self::Test(rule.not().or(&then)),
            (Self::Test(then), Self::Test(otherwise)) => Self::Test(rule.choose(&then, &otherwise)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Vec<Vec<Cel>> {
        vec![vec![Cel::member("a"), Cel::member("b")], vec![Cel::member("c")]]
    }

    fn text(condition: &Condition) -> String {
        match condition.truth(&rules()) {
            Truth::Constant(value) => value.to_string(),
            Truth::Test(cel) => cel.text,
        }
    }

    #[test]
    fn a_branch_runs_if_its_rule_holds_and_none_before_it() {
        let branch = |n| Condition::Always.and_branch(0, n, 3);
        assert_eq!(text(&branch(0)), "a");
        assert_eq!(text(&branch(1)), "!a && b");
        assert_eq!(text(&branch(2)), "!a && !b", "the default is the negation of all rules");
    }

    #[test]
    fn the_end_of_all_branches_needs_no_condition() {
        let branch = |n| Condition::Always.and_branch(0, n, 3);
        let joined = branch(0).or(&branch(1)).unwrap();
        assert_eq!(text(&joined), "a || b");
        assert_eq!(joined.or(&branch(2)), Some(Condition::Always));
    }

    #[test]
    fn nested_choices_are_tested_from_the_outside() {
        let inner = Condition::Always.and_branch(0, 1, 3).and_branch(1, 0, 2);
        assert_eq!(text(&inner), "!a && b && c");
        let other = Condition::Always.and_branch(0, 2, 3);
        assert_eq!(text(&inner.or(&other).unwrap()), "!a && (!b || c)");
    }
}
