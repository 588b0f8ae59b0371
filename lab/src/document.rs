//! TOML with the line of every value. Serde reports a line only for syntax errors.

use crate::input::{InputError, Place, Problem};
use crate::setting::Setting;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A TOML file.
pub struct Document<'t> {
    file: &'t str,
    /// The offset of each line end.
    line_ends: Vec<usize>,
    root: Spanned<DeTable<'t>>,
}

impl<'t> Document<'t> {
    /// Parses `text`; errors name `file` and the line.
    ///
    /// # Errors
    /// The text is no TOML.
    pub fn parse(file: &'t str, text: &'t str) -> Result<Self, InputError> {
        let root = DeTable::parse(text).map_err(|error| {
            let line = error.span().map(|span| line_of(text, span.start));
            let place = Place { line, ..Place::file(file) };
            let given_again = error.span().filter(|_| error.message() == "duplicate key");
            let why = match given_again.and_then(|span| Some((text.get(span.clone())?, span.start))) {
                Some((key, at)) => twice(text, key, at),
                None => error.message().replace('\n', "; "),
            };
            InputError::new(&place, "", Problem::Syntax(why))
        })?;
        let line_ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
        Ok(Self { file, line_ends, root })
    }

    /// The whole file as one table.
    pub fn root(&self) -> Table<'_, 't> {
        Table { document: self, prefix: String::new(), place: Place::file(self.file), table: self.root.get_ref() }
    }
}

/// A table of a document.
#[derive(Clone)]
pub struct Table<'d, 't> {
    document: &'d Document<'t>,
    prefix: String,
    /// Its first line.
    pub place: Place,
    table: &'d DeTable<'t>,
}

/// The content of a key.
pub enum Node<'d, 't> {
    /// A string, number or flag.
    Scalar(Setting),
    /// A table.
    Table(Table<'d, 't>),
    /// An array, with its place and dotted key.
    Array(Setting, Vec<Node<'d, 't>>),
}

impl<'d, 't> Table<'d, 't> {
    /// Its keys, without the prefix, and what they hold, in the file's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'d str, Node<'d, 't>)> + '_ {
        self.table.iter().map(|(key, value)| {
            (
                key.get_ref().as_ref(),
                self.document.node(self.document.place(key.span().start), self.key(key.get_ref()), value.get_ref()),
            )
        })
    }

    /// The dotted key of the key `name` in this table.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The content of `key`.
    pub fn get(&self, key: &str) -> Option<Node<'d, 't>> {
        self.iter().find(|(name, _)| *name == key).map(|(_, node)| node)
    }

    /// The scalar under `key`.
    ///
    /// # Errors
    /// The key is missing, or holds a table or an array; `valid` describes the expected value.
    pub fn scalar(&self, key: &str, valid: &str) -> Result<Setting, InputError> {
        match self.get(key) {
            Some(node) => node.scalar(valid),
            None => Err(InputError::new(&self.place, self.key(key), Problem::Missing { valid: valid.to_owned() })),
        }
    }

    /// The whole number under `schema`, the form of the file, up to `newest`. A file without it has form 1.
    ///
    /// # Errors
    /// It is a string or anything else but a number, or a form that this program does not know.
    pub fn known_schema(&self, newest: u64, of: &str) -> Result<(), InputError> {
        let Some(node) = self.get("schema") else { return Ok(()) };
        let valid = if newest == 1 { "1".to_owned() } else { format!("1 to {newest}") };
        let schema = node.scalar(&valid)?;
        if self.table.get("schema").is_some_and(|value| matches!(value.get_ref(), DeValue::String(_))) {
            return Err(schema.wrong("is a string", format!("{valid}, without quotes")));
        }
        match schema.text.parse::<u64>() {
            Ok(form) if (1..=newest).contains(&form) => Ok(()),
            Ok(form) if form > newest => Err(schema.wrong("is a form that only a newer program reads", valid)),
            _ => Err(schema.wrong(format!("is no form of {of}"), valid)),
        }
    }

    /// Refuses every key that is not in `valid`.
    ///
    /// # Errors
    /// The first unknown key, with its line.
    pub fn only(&self, valid: &[&str]) -> Result<(), InputError> {
        for (key, node) in self.iter() {
            if !valid.contains(&key) {
                return Err(InputError::unknown(&node.place(), &self.key(key), valid.iter().copied()));
            }
        }
        Ok(())
    }
}

impl Node<'_, '_> {
    /// The place of its key.
    pub fn place(&self) -> Place {
        match self {
            Self::Scalar(setting) | Self::Array(setting, _) => setting.place.clone(),
            Self::Table(table) => table.place.clone(),
        }
    }

    /// This node as a scalar.
    ///
    /// # Errors
    /// The node is a table or an array.
    pub fn scalar(self, valid: &str) -> Result<Setting, InputError> {
        match self {
            Self::Scalar(setting) => Ok(setting),
            Self::Array(setting, _) => Err(setting.wrong("is a list", valid)),
            Self::Table(table) => {
                let key = table.prefix.trim_end_matches('.').to_owned();
                Err(InputError::value(&table.place, key, "{…}", "is a table", valid))
            }
        }
    }
}

impl<'t> Document<'t> {
    fn place(&self, offset: usize) -> Place {
        let ends = self.line_ends.partition_point(|&end| end < offset);
        Place::line(self.file, 1 + ends as u32)
    }

    fn node<'d>(&'d self, place: Place, key: String, value: &'d DeValue<'t>) -> Node<'d, 't> {
        match value {
            DeValue::Table(table) => Node::Table(Table { document: self, prefix: format!("{key}."), place, table }),
            DeValue::Array(array) => {
                let node = |item: &'d Spanned<DeValue<'t>>| {
                    self.node(self.place(item.span().start), key.clone(), item.get_ref())
                };
                let items = array.iter().map(node).collect();
                Node::Array(Setting::new(place, key.clone(), "[…]"), items)
            }
            DeValue::String(text) => Node::Scalar(Setting::new(place, key, text.as_ref())),
            DeValue::Integer(number) => {
                let text = match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(value) => value.to_string(),
                    Err(_) => number.as_str().to_owned(),
                };
                Node::Scalar(Setting::new(place, key, text))
            }
            DeValue::Float(number) => Node::Scalar(Setting::new(place, key, number.as_str())),
            DeValue::Boolean(flag) => Node::Scalar(Setting::new(place, key, flag.to_string())),
            DeValue::Datetime(date) => Node::Scalar(Setting::new(place, key, date.to_string())),
        }
    }
}

/// The line, counted from 1, of a byte of `text`.
fn line_of(text: &str, offset: usize) -> u32 {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count() as u32
}

/// What is wrong with a key that a table has already, and, if it can be told, in which line. The library does not tell.
fn twice(text: &str, key: &str, at: usize) -> String {
    let line_start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let mut starts = Vec::new();
    if let Ok(before) = DeTable::parse(&text[..line_start]) {
        starts_of(before.get_ref(), key, &mut starts);
    }
    // Of several of this name, the last is the one if no other table begins in between.
    let last = starts.iter().copied().max();
    let is_it = |start: &usize| starts.len() == 1 || !text[*start..at].contains("\n[") && line_start == at;
    match last.filter(is_it) {
        Some(start) => {
            format!("duplicate key `{key}`, which line {} has already; valid: one of them", line_of(text, start))
        }
        None => format!("duplicate key `{key}`; valid: one of them"),
    }
}

/// Where a key of this name begins, in a table and all below it.
fn starts_of(table: &DeTable<'_>, name: &str, found: &mut Vec<usize>) {
    for (key, value) in table {
        if key.get_ref() == name {
            found.push(key.span().start);
        }
        starts_within(value.get_ref(), name, found);
    }
}

fn starts_within(value: &DeValue<'_>, name: &str, found: &mut Vec<usize>) {
    match value {
        DeValue::Table(table) => starts_of(table, name, found),
        DeValue::Array(items) => items.iter().for_each(|item| starts_within(item.get_ref(), name, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_knows_its_line_and_key() {
        let text = "a = 1\n[b.c]\nd = \"x\"\ne = [0x10,\n  2.5]\n";
        let document = Document::parse("f.toml", text).unwrap();
        let Some(Node::Table(b)) = document.root().get("b") else { panic!("a table") };
        let Some(Node::Table(c)) = b.get("c") else { panic!("a table") };
        assert_eq!(c.scalar("d", "").unwrap(), Setting::new(Place::line("f.toml", 3), "b.c.d", "x"));
        let Some(Node::Array(_, items)) = c.get("e") else { panic!("a list") };
        let items: Vec<Setting> = items.into_iter().map(|item| item.scalar("").unwrap()).collect();
        assert_eq!(items[0], Setting::new(Place::line("f.toml", 4), "b.c.e", "16"));
        assert_eq!(items[1], Setting::new(Place::line("f.toml", 5), "b.c.e", "2.5"));
    }

    #[test]
    fn a_duplicate_key_is_named_with_its_first_line() {
        let error = |text| Document::parse("f.toml", text).err().unwrap().to_string();
        let said = "f.toml:3: duplicate key `a`, which line 1 has already; valid: one of them";
        assert_eq!(error("a = 1\nb = 2\na = 3\n"), said);
        // The same key in another table is another key.
        let jobs = "[[jobs]]\nrw = 1\n[[jobs]]\nrw = 2\nbs = 3\nrw = 4\n";
        assert_eq!(error(jobs), "f.toml:6: duplicate key `rw`, which line 4 has already; valid: one of them");
        assert_eq!(error("a.k = 1\nb.k = 2\na.k = 3\n"), "f.toml:3: duplicate key `k`; valid: one of them");
        assert_eq!(error("x = {a = 1, a = 2}\n"), "f.toml:1: duplicate key `a`; valid: one of them");
        assert_eq!(
            error("[a]\n[b]\n[a]\n"),
            "f.toml:3: duplicate key `a`, which line 1 has already; valid: one of them"
        );
    }

    #[test]
    fn syntax_and_shape_errors_name_their_line() {
        let error = Document::parse("f.toml", "a = 1\nb = = 2\n").err().unwrap();
        assert_eq!(error.place, Place::line("f.toml", 2));
        let document = Document::parse("f.toml", "a = 1\nbb = 2\n[t]\n").unwrap();
        let root = document.root();
        assert_eq!(root.only(&["a", "b", "t"]).unwrap_err().to_string(), "f.toml:2: bb: the name is unknown; valid: b");
        assert_eq!(root.scalar("t", "a name").unwrap_err().to_string(), "f.toml:3: t: `{…}` is a table; valid: a name");
        assert_eq!(root.scalar("z", "a name").unwrap_err().to_string(), "f.toml: z: must be given; valid: a name");
    }
}
