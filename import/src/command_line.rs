//! fio's command line in a text: people copy it together with what fio printed. It has options that the text lacks.

/// Options that say how fio prints or starts, and not what a job does. All others of this kind have a hyphen in their name.
const NOT_OF_A_JOB: [&str; 14] = [
    "client",
    "daemonize",
    "debug",
    "eta",
    "help",
    "include",
    "minimal",
    "output",
    "profile",
    "readonly",
    "section",
    "server",
    "showcmd",
    "version",
];
/// What begins another command of the shell, or another file.
const ENDS: [&str; 9] = ["|", "||", "&&", "&", ";", ">", ">>", "2>&1", "#"];

/// Options of jobs, by the job's name; of all jobs without one.
pub(crate) type Options = Vec<(String, String)>;

/// A command line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CommandLine {
    /// Options before the first `--name`, or of the only job.
    pub global: Options,
    /// Of each job, where there are several.
    pub jobs: Vec<(String, Options)>,
}

impl CommandLine {
    /// The command of a line: `root@host:~# fio --name=a --direct=1`. None if it runs no fio with options.
    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let mut found = Self::default();
        let mut words =
            words(behind_fio(line)?).into_iter().take_while(|word| !ENDS.contains(word)).map(plain).peekable();
        let mut is_command = false;
        while let Some(word) = words.next() {
            // Its options follow on the next lines.
            is_command |= word == "\\";
            let Some(option) = option(&word) else { continue };
            is_command = true;
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, plain(value)),
                None => (
                    option,
                    words.next_if(|next| self::option(next).is_none() && !next.starts_with('-')).unwrap_or_default(),
                ),
            };
            found.add(name, &value);
        }
        // The options of a single job are those of all.
        if let [(_, options)] = found.jobs.as_mut_slice() {
            found.global.append(options);
            found.jobs.clear();
        }
        is_command.then_some(found)
    }

    fn add(&mut self, name: &str, value: &str) {
        match name {
            // As in a job file.
            "name" if value == "global" => return,
            "name" => return self.jobs.push((value.to_owned(), Options::new())),
            _ => {}
        }
        let is_of_job = !name.contains('-') && !NOT_OF_A_JOB.contains(&name);
        // A variable of the shell has lost its value.
        if is_of_job && !value.contains('$') {
            let options = self.jobs.last_mut().map_or(&mut self.global, |(_, options)| options);
            options.push((name.to_owned(), value.to_owned()));
        }
    }
}

/// The option of a word. fio takes one hyphen or two, and pages of the web make a dash of two.
fn option(word: &str) -> Option<&str> {
    let option = word.trim_start_matches(['-', '\u{2010}', '\u{2011}', '\u{2013}', '\u{2014}', '\u{2212}']);
    let is_name = option.len() > 1 && option.starts_with(|first: char| first.is_ascii_lowercase());
    (option.len() < word.len() && is_name).then_some(option)
}

/// What stands behind the program's name; of a command within quotes (`sh -c 'fio …'`), up to its end.
fn behind_fio(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, more) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let quote = word.chars().next().filter(|first| matches!(first, '"' | '\''));
        let program = word.rsplit(['/', '\\']).next().unwrap_or(word);
        if matches!(quote.map_or(program, |quote| program.trim_start_matches(quote)), "fio" | "fio.exe") {
            return quote.map_or(Some(more), |quote| more.split(quote).next());
        }
        rest = more.trim_start();
    }
    None
}

/// Quotes of the shell, and those that pages of the web make of them.
const QUOTES: [(char, char); 4] = [('"', '"'), ('\'', '\''), ('\u{201c}', '\u{201d}'), ('\u{2018}', '\u{2019}')];

/// The words of a line. A blank within quotes, or behind a backslash, is part of its word.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut start, mut end_quote, mut before) = (None, None, ' ');
    for (at, sign) in line.char_indices() {
        let is_blank = sign.is_whitespace() && end_quote.is_none() && (before != '\\' || start == Some(at - 1));
        if is_blank {
            words.extend(start.take().map(|start| &line[start..at]));
        } else {
            start.get_or_insert(at);
            let opened = QUOTES.iter().find(|(open, _)| *open == sign && (before == '=' || before.is_whitespace()));
            let is_closed = |(_, close): &&(char, char)| line[at + sign.len_utf8()..].contains(*close);
            end_quote = match end_quote {
                Some(close) => Some(close).filter(|close| *close != sign),
                None => opened.filter(is_closed).map(|(_, close)| *close),
            };
        }
        before = sign;
    }
    words.extend(start.map(|start| &line[start..]));
    words
}

/// A word without the shell's quotes, and without the backslashes before its blanks.
fn plain(word: &str) -> String {
    let is_quote = |sign: char| sign == '`' || QUOTES.iter().any(|&(open, close)| sign == open || sign == close);
    word.replace(is_quote, "").replace("\\ ", " ")
}

/// The lines of a text, where a shell's continuation joins some.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = String> {
    let mut lines = text.lines();
    std::iter::from_fn(move || {
        let mut line = lines.next()?.to_owned();
        while let Some(more) = line.trim_end().strip_suffix('\\').filter(|line| line.len() < LINE_MAX) {
            let Some(next) = lines.next() else { break };
            line = format!("{more} {}", next.trim_start_matches(['>', ' ']));
        }
        Some(line)
    })
}

/// Most bytes of a command.
const LINE_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<String> {
        let found = lines(text).find_map(|line| CommandLine::of_line(&line))?;
        let join = |options: &Options| {
            options.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        let jobs: String = found.jobs.iter().map(|(name, options)| format!("; {name}: {}", join(options))).collect();
        Some(join(&found.global) + &jobs)
    }

    #[test]
    fn a_command_is_found_as_shells_show_it() {
        for (text, expected) in [
            ("root@host:~# fio --name=a --direct=1 --output-format=json --eta=never", Some("direct=1")),
            (
                "x\n$ sudo /usr/bin/fio --name a --filename '/dev/sda' \\\n> --time_based --rw=read\nb",
                Some("filename=/dev/sda time_based= rw=read"),
            ),
            ("fio --direct=1 --name=a --bs=4k --name=b --bs=8k | tee x --y=3", Some("direct=1; a: bs=4k; b: bs=8k")),
            ("+ fio --filename=$DISK --size=\"1g\" job.fio", Some("size=1g")),
            ("fio --name=global --rw=read --name=a", Some("rw=read")),
            ("fio-3.33", None),
            ("fio job.fio", None),
            ("we used fio - and more", None),
            ("fio --name=\\", Some("")),
            (
                "fio -filename=/dev/sdb -thread -iodepth 4 -rw=read -name=a -o x",
                Some("filename=/dev/sdb thread= iodepth=4 rw=read"),
            ),
            ("# fio \u{2013}name=a \u{2013}direct=1 \u{2014}thread \u{2013}bs=4k", Some("direct=1 thread= bs=4k")),
            ("$ fio \\\n  --rw=read", Some("rw=read")),
            (
                "fio --name='my job' --filename=\"/mnt/my disk/a\" --directory /srv/my\\ data --description 'a | b' --bs=4k",
                Some("filename=/mnt/my disk/a directory=/srv/my data description=a | b bs=4k"),
            ),
            ("sh -c 'fio --name=a --bs=4k'", Some("bs=4k")),
            ("we don't do: fio --name=a --bs=4k # 'that'", Some("bs=4k")),
            (
                "fio --name=a --filename=\u{201c}/dev/sd a\u{201d} --bs=\u{2018}8k\u{2019}",
                Some("filename=/dev/sd a bs=8k"),
            ),
            ("fio --name=a --bs=\"4k --rw=read", Some("bs=4k rw=read")),
        ] {
            assert_eq!(of(text).as_deref(), expected, "{text}");
        }
    }
}
