//! Variables in job files: `${NAME}`, and fio's own `$ncpus`, `$mb_memory` and `$pagesize`.

use super::expression;
use super::{Entry, Section};
use crate::input::{InputError, Place, Warning};
use std::collections::BTreeMap;

/// The memory of the simulated server in MiB: 256 GiB, assumed. Only `$mb_memory` asks for it.
const MEMORY_MIB: u64 = 256 << 10;
/// The page of the simulated server's kernel in bytes.
const PAGE_BYTES: u64 = 4096;
/// The longest text that fio hands to `bc`.
const SUM_BYTES_MAX: usize = 100;

/// What variables stand for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Variables {
    /// `--define VAR=VALUE`. These stand over the environment.
    pub defined: BTreeMap<String, String>,
    /// Whether the environment of the process is read too.
    pub environment: bool,
    /// `$ncpus`: CPUs of the simulated server.
    pub cpus: u32,
}

impl Variables {
    /// Variables of `--define` options, over the environment.
    ///
    /// # Errors
    /// One has no name, or no `=`.
    pub fn of(defines: &[String]) -> Result<Self, InputError> {
        let mut defined = BTreeMap::new();
        for define in defines {
            let place = Place::option("--define");
            let wrong = || InputError::value(&place, "", define, "is no VAR=VALUE", "DEV=/dev/nvme0n1 and the like");
            let (name, value) = define.split_once('=').ok_or_else(wrong)?;
            if name.is_empty() {
                return Err(wrong());
            }
            defined.insert(name.to_owned(), value.to_owned());
        }
        Ok(Self { defined, environment: true, cpus: 0 })
    }

    /// The value of a variable and where it is from.
    fn value(&self, name: &str) -> Option<(String, &'static str)> {
        if let Some(value) = self.defined.get(name) {
            return Some((value.clone(), "--define"));
        }
        let value = self.environment.then(|| crate::inputs::variable(name)).flatten()?;
        Some((value, "the environment"))
    }

    /// Replaces the variables of every section. Each variable that was used is told once, because the result depends on
    /// it.
    pub fn expand(&self, sections: &mut [Section]) -> (Vec<Warning>, Vec<InputError>) {
        let (mut told, mut errors) = (BTreeMap::new(), Vec::new());
        for entry in sections.iter_mut().flat_map(|section| &mut section.entries) {
            if let Err(error) = self.expand_entry(entry, &mut told) {
                errors.push(error);
            }
        }
        let mut warnings: Vec<Warning> = told.into_values().collect();
        warnings.sort_by_key(|warning| warning.place.line);
        (warnings, errors)
    }

    fn expand_entry(&self, entry: &mut Entry, told: &mut BTreeMap<String, Warning>) -> Result<(), InputError> {
        let key = self.braces(entry, &entry.setting.key, told)?;
        let text = self.braces(entry, &entry.setting.text, told)?;
        let (text, has_keyword) = self.keywords(&text);
        entry.setting.key = key;
        entry.setting.text = if has_keyword { sum(entry, text)? } else { text };
        Ok(())
    }

    /// `text` with its `${NAME}` replaced. Braces without an end stay, as in fio.
    fn braces(&self, entry: &Entry, text: &str, told: &mut BTreeMap<String, Warning>) -> Result<String, InputError> {
        let place = &entry.setting.place;
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, behind)) = after.split_once('}') else { break };
            out.push_str(before);
            let Some((value, origin)) = self.value(name) else {
                let why = "is a variable that is not set";
                let valid = format!("--define {name}=VALUE, or {name} in the environment");
                return Err(InputError::value(place, &entry.setting.key, format!("${{{name}}}"), why, valid));
            };
            told.entry(name.to_owned()).or_insert_with(|| Warning {
                place: place.clone(),
                key: format!("${{{name}}}"),
                meaning: format!("is `{value}`, from {origin}"),
            });
            out.push_str(&value);
            rest = behind;
        }
        Ok(out + rest)
    }

    /// `text` with fio's own words replaced, and whether there was one.
    fn keywords(&self, text: &str) -> (String, bool) {
        if !text.contains('$') {
            return (text.to_owned(), false);
        }
        let words = [("$pagesize", PAGE_BYTES), ("$mb_memory", MEMORY_MIB), ("$ncpus", u64::from(self.cpus))];
        let mut out = text.to_owned();
        for (word, value) in words {
            out = out.replace(word, &value.to_string());
        }
        let has_keyword = out != text;
        (out, has_keyword)
    }
}

/// The result of a sum: fio hands a text with one of its words and a sign of arithmetic to `bc`.
fn sum(entry: &Entry, text: String) -> Result<String, InputError> {
    if !text.contains(['+', '-', '*', '/']) || text.contains('\'') || text.len() > SUM_BYTES_MAX {
        return Ok(text);
    }
    let value = expression::calculate(&text)
        .map_err(|why| entry.wrong(format!("becomes `{text}`, which {why}"), "a sum such as $ncpus*2"))?;
    Ok(value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::sections;

    fn expanded(text: &str) -> (Vec<String>, Vec<String>, Vec<String>) {
        let defined = [("DEV".to_owned(), "/dev/nvme1n1".to_owned()), ("O".to_owned(), "io".to_owned())];
        let variables = Variables { defined: defined.into(), environment: false, cpus: 8 };
        let mut sections = sections("j.fio", text.as_bytes(), &|_, _| Err("no".into())).unwrap();
        let (told, errors) = variables.expand(&mut sections);
        let entries = sections.iter().flat_map(|section| &section.entries);
        (
            entries.map(|entry| format!("{}={}", entry.setting.key, entry.setting.text)).collect(),
            told.iter().map(ToString::to_string).collect(),
            errors.iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn variables_are_replaced_and_told() {
        let (entries, told, errors) = expanded("[a]\nfilename=${DEV}:${DEV}p\n${O}depth=$ncpus*2\nnumjobs=$ncpus\n");
        assert_eq!(entries, ["filename=/dev/nvme1n1:/dev/nvme1n1p", "iodepth=16", "numjobs=8"]);
        assert_eq!(
            told,
            ["j.fio:2: ${DEV}: is `/dev/nvme1n1`, from --define", "j.fio:3: ${O}: is `io`, from --define"]
        );
        assert!(errors.is_empty());
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        let (_, _, errors) = expanded("[a]\nfilename=${NOPE}\nsize=${\nbs=$ncpus/x\n");
        assert_eq!(
            errors,
            [
                "j.fio:2: filename: `${NOPE}` is a variable that is not set; \
             valid: --define NOPE=VALUE, or NOPE in the environment",
                "j.fio:4: bs: `$ncpus/x` becomes `8/x`, which has no number where one should be; \
             valid: a sum such as $ncpus*2"
            ]
        );
    }
}
