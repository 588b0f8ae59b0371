//! `campanile boot`.

use super::{ended, output_of_list, stop_flag, takes_standard_output, write_list};
use crate::atomic_file::{AtomicFile, say};
use crate::cli::{self, BootArgs, Failure};
use crate::input::{InputError, Place, Problem};
use crate::inputs::Read;
use crate::manifest::Manifest;
use qemu::{BootError, CASES, Document, Row, Selection};
use std::path::Path;

pub(super) fn boot(args: &BootArgs, arguments: &[String]) -> Result<(), Failure> {
    let selection = selection(args)?;
    let json = output_of_list(args.json.as_deref())?;
    let tables = args.table.as_deref().map(Tables::of).transpose()?;
    let stop = stop_flag()?;
    let campanile = std::env::current_exe().map_err(|error| Failure::Run(error.into()))?;
    let run = qemu::run(&selection, &campanile, || stop.is_set(), |setting| say(format_args!("{setting}")));
    let outcome = run.map_err(|error: BootError| Failure::Run(error.into()))?;
    if !takes_standard_output(json.as_ref()) {
        cli::print(&outcome.skipped.iter().map(|why| format!("skipped: {why}\n")).collect::<String>())?;
        if !outcome.rows.is_empty() {
            cli::print_wide(&qemu::table(&outcome.rows))?;
        }
    }
    write_list(json, &Manifest::new(arguments, &Read::default()), || qemu::json(&outcome.rows))?;
    ended(&stop)?;
    if let Some(tables) = tables.filter(|_| outcome.passes()) {
        tables.write(&outcome.rows)?;
    }
    if outcome.passes() { Ok(()) } else { Err(Failure::Run("a figure differs from its required value".into())) }
}

/// A document whose tables are written anew. Figures that are wrong go into none.
struct Tables {
    file: AtomicFile,
    text: String,
}

impl Tables {
    /// Reads the document, so that one that cannot be written is refused before the run.
    fn of(path: &Path) -> Result<Self, InputError> {
        let refused = |why: String| InputError::new(&Place::file(path.display().to_string()), "", Problem::Io(why));
        let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        qemu::document(&text, &[]).map_err(|error| refused(error.to_string()))?;
        Ok(Self { file: AtomicFile::prepare("--table", path)?, text })
    }

    fn write(self, rows: &[Row]) -> Result<(), Failure> {
        let Document { text, missing } =
            qemu::document(&self.text, rows).map_err(|error| Failure::Run(error.into()))?;
        self.file.commit(text.as_bytes())?;
        if !missing.is_empty() {
            say(format_args!("tables left as they were, since these cases did not run: {}", missing.join("; ")));
        }
        Ok(())
    }
}

/// The selections that have a quick form.
const QUICK: &str = "judges --quick, judges-virtio --quick, or --quick";

fn selection(args: &BootArgs) -> Result<Selection, InputError> {
    if let (Some(name), Some(image)) = (&args.case, &args.image) {
        let takes_none =
            || InputError::value(&Place::option("CASE"), "", name, "takes no image", "judges --image FILE");
        return if name == "judges" { Ok(Selection::JudgedImage(image.clone())) } else { Err(takes_none()) };
    }
    match &args.case {
        _ if args.all => Ok(Selection::All),
        Some(name) if name == "judges" => Ok(Selection::Judges { quick: args.quick }),
        Some(name) if name == "judges-virtio" => Ok(Selection::JudgesVirtio { quick: args.quick }),
        Some(name) if args.quick => {
            Err(InputError::value(&Place::option("CASE"), "", name, "has no quick form", QUICK))
        }
        _ if args.quick => Ok(Selection::Quick),
        Some(name) if name == "path" => Ok(Selection::Path),
        Some(name) => {
            let case = CASES.iter().find(|(known, _)| known == name);
            let names = CASES.map(|(name, _)| name).join(", ") + ", path, judges, judges-virtio";
            let place = Place::option("CASE");
            case.map(|&(_, case)| Selection::One(case))
                .ok_or_else(|| InputError::value(&place, "", name, "is no case", &names))
        }
        None => unreachable!("the command line asks for one of them"),
    }
}
