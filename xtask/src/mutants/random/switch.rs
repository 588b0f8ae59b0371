//! Puts many changes into one text, each behind a switch that is thrown when the program runs.
//!
//! `fn f() { BODY }` becomes `fn f() { if DRAWN(7) { CHANGED BODY } else { BODY } }`. A body that the compiler may evaluate, or
//! whose type is its own (`impl Trait`), cannot have the form; its changes are refused.

use std::collections::BTreeMap;
use std::ops::Range;
use syn::visit::Visit;

/// The variable that names the change a program is to run with.
pub(in crate::mutants) const VARIABLE: &str = "CAMPANILE_CHANGE";

/// What the root of each switched crate gets. It does not allocate, so tests that count allocations count the same. Each
/// crate is `no_std`, so the variable comes from C's library.
const ROOT: &str = r#"
#[allow(unsafe_code, missing_docs, unreachable_pub, clippy::all)]
mod change_switch {
    use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static DRAWN: AtomicU32 = AtomicU32::new(u32::MAX);
    #[inline]
    pub(crate) fn drawn(number: u32) -> bool {
        let drawn = DRAWN.load(Relaxed);
        number == if drawn == u32::MAX { read() } else { drawn }
    }
    unsafe extern "C" {
        fn getenv(name: *const core::ffi::c_char) -> *const core::ffi::c_char;
    }
    #[cold]
    fn read() -> u32 {
        // SAFETY: the name ends in a zero byte, nothing sets variables, and a value ends in a zero byte.
        let drawn = unsafe {
            let value = getenv(c"CAMPANILE_CHANGE".as_ptr());
            if value.is_null() { None } else { core::ffi::CStr::from_ptr(value).to_str().ok() }
        };
        let drawn = drawn.and_then(|drawn| drawn.parse().ok()).unwrap_or(0);
        DRAWN.store(drawn, Relaxed);
        drawn
    }
}
"#;

/// A place in a text as compilers count: from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A change: the text from `start` up to `end` gives way to `text`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Edit {
    pub(super) start: Place,
    pub(super) end: Place,
    pub(super) text: String,
}

/// Where the rewritten text has a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Branch {
    pub(super) number: u32,
    /// The changed body.
    pub(super) body: Range<usize>,
    /// The whole function's body, with all that is switched in it.
    pub(super) function: Range<usize>,
}

/// A text with switches.
#[derive(Debug)]
pub(super) struct Switched {
    pub(super) text: String,
    pub(super) branches: Vec<Branch>,
    /// The changes that are not in it: they cannot be switched.
    pub(super) refused: Vec<u32>,
}

/// Puts `edits`, each with its number, into `source`.
///
/// # Errors
/// If `source` is no Rust.
pub(super) fn rewrite(source: &str, edits: &[(u32, &Edit)]) -> Result<Switched, String> {
    let bodies = bodies(source)?;
    let mut refused = Vec::new();
    let mut chosen: BTreeMap<usize, Vec<(u32, String)>> = BTreeMap::new();
    for &(number, edit) in edits {
        match place(source, &bodies, edit) {
            Some((body, changed)) => chosen.entry(body).or_default().push((number, changed)),
            None => refused.push(number),
        }
    }
    // Functions nest, so their beginnings and ends are put in in the order of the text.
    let mut marks: Vec<_> = chosen
        .keys()
        .flat_map(|&body| [(bodies[body].inner.start, true, body), (bodies[body].inner.end, false, body)])
        .collect();
    marks.sort_by_key(|&(at, begins, _)| (at, !begins));
    let (mut text, mut branches, mut copied) = (String::new(), Vec::new(), 0);
    for (at, begins, body) in marks {
        text.push_str(&source[copied..at]);
        copied = at;
        if begins {
            let start = text.len();
            for (number, changed) in &chosen[&body] {
                text.push_str(&format!(" if crate::change_switch::drawn({number}) {{"));
                let from = text.len();
                text.push_str(changed);
                branches.push((body, Branch { number: *number, body: from..text.len(), function: start..start }));
                text.push_str("} else");
            }
            text.push_str(" {");
        } else {
            text.push('}');
            let own = branches.iter_mut().filter(|(of, _)| *of == body);
            own.for_each(|(_, branch)| branch.function.end = text.len());
        }
    }
    text.push_str(&source[copied..]);
    Ok(Switched { text, branches: branches.into_iter().map(|(_, branch)| branch).collect(), refused })
}

/// The text of a crate's root with the switch itself.
pub(super) fn with_root(source: &str) -> String {
    format!("{source}{ROOT}")
}

/// The innermost body that holds `edit`, and its text with the change. None: it cannot be switched there.
fn place(source: &str, bodies: &[Body], edit: &Edit) -> Option<(usize, String)> {
    let (start, end) = (offset(source, edit.start)?, offset(source, edit.end)?);
    let holds = |body: &Body| body.inner.start <= start && end <= body.inner.end;
    let innermost =
        (0..bodies.len()).filter(|&body| holds(&bodies[body])).min_by_key(|&body| bodies[body].inner.len())?;
    let Body { inner, fits } = &bodies[innermost];
    let changed = || [&source[inner.start..start], &edit.text, &source[end..inner.end]].concat();
    fits.then(|| (innermost, changed()))
}

/// The byte at `place`, whose columns are characters.
fn offset(source: &str, place: Place) -> Option<usize> {
    let mut lines = source.split_inclusive('\n');
    let before = lines.clone().take(place.line.checked_sub(1)?).map(str::len).sum::<usize>();
    let line = lines.nth(place.line - 1)?;
    let mut columns = line.char_indices().map(|(byte, _)| byte).chain([line.len()]);
    Some(before + columns.nth(place.column.checked_sub(1)?)?)
}

/// The body of a function.
struct Body {
    /// What is between its braces.
    inner: Range<usize>,
    /// True if it can be switched.
    fits: bool,
}

fn bodies(source: &str) -> Result<Vec<Body>, String> {
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let mut bodies = Bodies(Vec::new());
    bodies.visit_file(&file);
    Ok(bodies.0)
}

struct Bodies(Vec<Body>);

impl Bodies {
    fn add(&mut self, attributes: &[syn::Attribute], signature: &syn::Signature, block: &syn::Block) {
        let mut opaque = Opaque(false);
        opaque.visit_return_type(&signature.output);
        let is_inner = |attribute: &syn::Attribute| matches!(attribute.style, syn::AttrStyle::Inner(_));
        let fits = signature.constness.is_none()
            && signature.asyncness.is_none()
            && !opaque.0
            && !attributes.iter().any(is_inner);
        let inner = block.brace_token.span.open().byte_range().end..block.brace_token.span.close().byte_range().start;
        self.0.push(Body { inner, fits });
    }
}

impl<'a> Visit<'a> for Bodies {
    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        self.add(&function.attrs, &function.sig, &function.block);
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        self.add(&function.attrs, &function.sig, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'a syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.add(&function.attrs, &function.sig, block);
        }
        syn::visit::visit_trait_item_fn(self, function);
    }
}

/// Whether a type has `impl Trait` in it.
struct Opaque(bool);

impl<'a> Visit<'a> for Opaque {
    fn visit_type_impl_trait(&mut self, _: &'a syn::TypeImplTrait) {
        self.0 = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The change of the `nth` `from` into `to`.
    fn edit(source: &str, from: &str, nth: usize, to: &str) -> Edit {
        let (at, _) = source.match_indices(from).nth(nth).unwrap();
        let place = |at: usize| {
            let before = &source[..at];
            let line = before.rsplit('\n').next().unwrap_or(before);
            Place { line: before.matches('\n').count() + 1, column: line.chars().count() + 1 }
        };
        Edit { start: place(at), end: place(at + from.len()), text: to.to_owned() }
    }

    /// What becomes of `source` with the changes of each first `from`; `D` stands for the switch.
    fn switched(source: &str, changes: &[(&str, &str)]) -> (String, Vec<u32>) {
        let edits: Vec<_> = changes.iter().map(|(from, to)| edit(source, from, 0, to)).collect();
        let numbered: Vec<_> = (1..).zip(&edits).collect();
        let switched = rewrite(source, &numbered).unwrap();
        for branch in &switched.branches {
            let to = changes[branch.number as usize - 1].1;
            assert!(switched.text[branch.body.clone()].contains(to) && branch.function.contains(&branch.body.start));
        }
        (switched.text.replace("crate::change_switch::drawn", "D"), switched.refused)
    }

    #[test]
    fn changes_of_one_function_are_alternatives() {
        let (text, refused) = switched("/// é\nfn f(a: u8) -> u8 { a + 1 }\n", &[("+", "-"), ("a + 1", "0")]);
        let expected = "/// é\nfn f(a: u8) -> u8 { if D(1) { a - 1 } else if D(2) { 0 } else { a + 1 }}\n";
        assert_eq!((text.as_str(), refused), (expected, vec![]));
    }

    #[test]
    fn methods_generics_clauses_and_closures_keep_their_form() {
        let source = "impl<T: X> S<T> where T: Y {\n    fn f<U>(&self, é: U) -> T where U: Into<T> {\n        let g = |x| x == 1;\n        // é\n        é.into()\n    }\n}\ntrait Z { fn z() -> u8 { 7 } fn y(); }\n";
        let (text, refused) = switched(source, &[("==", "!="), ("7", "8")]);
        let body = "\n        let g = |x| x == 1;\n        // é\n        é.into()\n    ";
        let changed = body.replace("==", "!=");
        let expected = source
            .replace(body, &format!(" if D(1) {{{changed}}} else {{{body}}}"))
            .replace("{ 7 }", "{ if D(2) { 8 } else { 7 }}");
        assert_eq!((text, refused), (expected, vec![]));
    }

    #[test]
    fn a_nested_function_is_switched_where_the_outer_one_is_unchanged() {
        let source = "fn f() -> u8 { fn g() -> u8 { 1 } g() * 2 }";
        let (text, _) = switched(source, &[("1", "0"), ("*", "/")]);
        let expected = "fn f() -> u8 { if D(2) { fn g() -> u8 { 1 } g() / 2 } else { fn g() -> u8 { if D(1) { 0 } else { 1 }} g() * 2 }}";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_cannot_be_switched_is_refused() {
        for source in [
            "const fn f() -> u8 { 1 }",
            "async fn f() -> u8 { 1 }",
            "const A: u8 = 1;",
            "fn f() -> impl Fn() -> u8 { || 1 }",
            "fn f() -> Box<dyn Iterator<Item = impl Copy>> { a(1) }",
            "fn f() -> u8 { #![allow(unused)] 1 }",
            "fn f() { const fn g() -> u8 { 1 } }",
        ] {
            assert_eq!(switched(source, &[("1", "0")]), (source.to_owned(), vec![1]), "{source}");
        }
        assert!(rewrite("fn", &[]).is_err());
    }

    /// A program that prints what each of its functions makes of some numbers.
    const PROGRAM: &str = "
        #![allow(warnings)]
        struct Sum<T>(Vec<T>);
        impl<T: Copy> Sum<T> where u64: From<T> {
            fn all(&self) -> u64 { self.0.iter().map(|&x| u64::from(x) * 2).sum() }
            fn each(&mut self, mut f: impl FnMut(T)) { for &x in &self.0 { if u64::from(x) > 2 { f(x) } } }
        }
        fn outer(n: u64) -> Result<u64, String> {
            fn inner(n: u64) -> u64 { n + 40 }
            if n == 0 { return Err(\"none\".into()); }
            Ok(inner(n))
        }
        fn main() {
            let mut sum = Sum(vec![1u8, 2, 3]);
            let mut seen = Vec::new();
            sum.each(|x| seen.push(x));
            println!(\"{} {seen:?} {:?} {:?}\", sum.all(), outer(0), outer(2));
        }";

    #[test]
    fn a_program_with_no_change_drawn_does_what_it_did_and_else_what_the_change_does() {
        let changes = [("* 2", "* 3"), ("> 2", "< 2"), ("+ 40", "- 1"), ("==", "!="), ("sum()", "max().unwrap_or(0)")];
        let edits: Vec<_> = changes.iter().map(|(from, to)| edit(PROGRAM, from, 0, to)).collect();
        let numbered: Vec<_> = (1..).zip(&edits).collect();
        let text = with_root(&rewrite(PROGRAM, &numbered).unwrap().text);
        let folder = scratch();
        let built = |name: &str, text: &str| {
            let (source, program) = (folder.join(format!("{name}.rs")), folder.join(name));
            std::fs::write(&source, text).unwrap();
            let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
            let built =
                Command::new(rustc).args(["--edition", "2024", "-o"]).args([&program, &source]).output().unwrap();
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            program
        };
        let said = |program: &std::path::Path, number: u32| {
            let output = Command::new(program).env(VARIABLE, number.to_string()).output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let switched = built("switched", &text);
        assert_eq!(said(&switched, 0), said(&built("original", PROGRAM), 0));
        assert_eq!(said(&switched, 0), "12 [3] Err(\"none\") Ok(42)\n");
        let expected = [
            "18 [3] Err(\"none\") Ok(42)\n",
            "12 [1] Err(\"none\") Ok(42)\n",
            "12 [3] Err(\"none\") Ok(1)\n",
            "12 [3] Ok(40) Err(\"none\")\n",
            "6 [3] Err(\"none\") Ok(42)\n",
        ];
        for (number, expected) in (1..).zip(expected) {
            assert_eq!(said(&switched, number), expected, "change {number}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    fn scratch() -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("campanile-switch-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}
