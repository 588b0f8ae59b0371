//! The formula of a derived row: `(A5/A3 - 1) * 100`.

/// Arithmetic over rows, named by their ids, and numbers: `+`, `-`, `*`, `/` and parentheses.
#[derive(Clone, PartialEq, Debug)]
pub struct Formula {
    text: String,
    root: Node,
}

#[derive(Clone, PartialEq, Debug)]
enum Node {
    Number(f64),
    Row(String),
    Operation(Operator, Box<Node>, Box<Node>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// Deepest nesting of parentheses.
const DEPTH_MAX: u32 = 16;

impl Formula {
    /// Reads `text`. `ids` are all rows that it may name; an id may contain a hyphen, and the longest id that fits
    /// counts.
    ///
    /// # Errors
    /// What is wrong, as the rest of the sentence "`text` …".
    pub(crate) fn parse(text: &str, ids: &[&str]) -> Result<Self, String> {
        let mut parser = Parser { rest: text.trim(), ids, depth: 0 };
        let root = parser.sum()?;
        match parser.rest {
            "" => Ok(Self { text: text.trim().to_owned(), root }),
            rest => Err(format!("has `{rest}` where an operator is expected")),
        }
    }

    /// As the file has it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The ids of the rows that it needs, each as often as it stands there.
    pub fn rows(&self) -> Vec<&str> {
        let mut rows = Vec::new();
        self.root.collect(&mut rows);
        rows
    }

    /// Its value, `of` giving the value of a row. None if a row has none or the result is not finite.
    pub fn value(&self, of: &dyn Fn(&str) -> Option<f64>) -> Option<f64> {
        self.root.value(of).filter(|value| value.is_finite())
    }
}

impl Node {
    fn collect<'n>(&'n self, rows: &mut Vec<&'n str>) {
        match self {
            Self::Number(_) => {}
            Self::Row(id) => rows.push(id),
            Self::Operation(_, left, right) => {
                left.collect(rows);
                right.collect(rows);
            }
        }
    }

    fn value(&self, of: &dyn Fn(&str) -> Option<f64>) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Row(id) => of(id),
            Self::Operation(operator, left, right) => {
                let (left, right) = (left.value(of)?, right.value(of)?);
                Some(match operator {
                    Operator::Add => left + right,
                    Operator::Subtract => left - right,
                    Operator::Multiply => left * right,
                    Operator::Divide => left / right,
                })
            }
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
    ids: &'a [&'a str],
    depth: u32,
}

impl Parser<'_> {
    fn sum(&mut self) -> Result<Node, String> {
        let mut left = self.product()?;
        while let Some(operator) = self.operator(&[('+', Operator::Add), ('-', Operator::Subtract)]) {
            left = Node::Operation(operator, Box::new(left), Box::new(self.product()?));
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Node, String> {
        let mut left = self.operand()?;
        while let Some(operator) = self.operator(&[('*', Operator::Multiply), ('/', Operator::Divide)]) {
            left = Node::Operation(operator, Box::new(left), Box::new(self.operand()?));
        }
        Ok(left)
    }

    fn operator(&mut self, known: &[(char, Operator)]) -> Option<Operator> {
        let (_, operator) = known.iter().find(|(sign, _)| self.rest.starts_with(*sign))?;
        self.skip(1);
        Some(*operator)
    }

    /// A number, a row, or a sum in parentheses.
    fn operand(&mut self) -> Result<Node, String> {
        if self.rest.starts_with('(') {
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return Err(format!("has more than {DEPTH_MAX} parentheses in each other"));
            }
            self.skip(1);
            let inner = self.sum()?;
            if !self.rest.starts_with(')') {
                return Err("lacks a closing parenthesis".into());
            }
            self.skip(1);
            self.depth -= 1;
            return Ok(inner);
        }
        let digits = self.rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(self.rest.len());
        if digits > 0 {
            let number = self.rest[..digits].parse().map_err(|_| format!("has the wrong number {}", self.rest))?;
            self.skip(digits);
            return Ok(Node::Number(number));
        }
        let fitting = self.ids.iter().filter(|id| self.rest.starts_with(**id)).max_by_key(|id| id.len());
        match fitting {
            Some(id) => {
                let row = Node::Row((*id).to_owned());
                self.skip(id.len());
                Ok(row)
            }
            None if self.rest.is_empty() => Err("ends where a row or a number is expected".into()),
            None => Err(format!("has `{}` where a row or a number is expected", self.rest)),
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest[bytes..].trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: &[&str] = &["A3", "A5", "A", "L-eM", "E1", "E12"];

    fn of(id: &str) -> Option<f64> {
        match id {
            "A3" => Some(800.0),
            "A5" => Some(1000.0),
            "L-eM" => Some(21.0),
            "E12" => Some(12.0),
            _ => None,
        }
    }

    fn value(text: &str) -> Option<f64> {
        Formula::parse(text, IDS).unwrap().value(&of)
    }

    #[test]
    fn a_formula_has_the_value_of_school_arithmetic() {
        assert_eq!(value("A5/A3-1"), Some(0.25));
        assert_eq!(value("(A5/A3 - 1) * 100"), Some(25.0));
        assert_eq!(value("A5 - A3 - 100"), Some(100.0), "from left to right");
        assert_eq!(value("A5-A3/2*4"), Some(-600.0));
        assert_eq!(value("L-eM+1"), Some(22.0), "an id with a hyphen");
        assert_eq!(value("E12*0.5"), Some(6.0), "the longest id counts");
        assert_eq!((value("E1"), value("A5/0")), (None, None), "no value, not finite");
    }

    #[test]
    fn a_formula_names_its_rows() {
        let formula = Formula::parse("A5 / (A3 + L-eM) - A5", IDS).unwrap();
        assert_eq!(formula.rows(), ["A5", "A3", "L-eM", "A5"]);
        assert_eq!(formula.text(), "A5 / (A3 + L-eM) - A5");
    }

    #[test]
    fn a_wrong_formula_says_what_is_wrong() {
        let error = |text: &str| Formula::parse(text, IDS).unwrap_err();
        assert_eq!(error("A5/"), "ends where a row or a number is expected");
        assert_eq!(error("Q7*2"), "has `Q7*2` where a row or a number is expected");
        assert_eq!(error("(A5"), "lacks a closing parenthesis");
        assert_eq!(error("A5 A3"), "has `A3` where an operator is expected");
        assert_eq!(error("1.2.3"), "has the wrong number 1.2.3");
        assert_eq!(error(&"(".repeat(99)), "has more than 16 parentheses in each other");
    }
}
