//! What `lscpu` prints: lines, or JSON with `-J`; its tables (`-e`, `-p`). And where there is no lscpu, as with busybox:
//! `/proc/cpuinfo`, and the number that `nproc` prints.
//!
//! util-linux indents the fields of a CPU's model since version 2.37, and nests them in JSON. The fields' names are those of
//! the C locale, or of another language. Source: util-linux, `sys-utils/lscpu.c` and the translations in `po/`.

use crate::encoding::{bare, plain};
use crate::fio_job::text_of;
use crate::json_text::object_with;
use serde_json::Value;
use std::collections::BTreeSet;

/// Most bytes of a text.
const BYTES_MAX: usize = 1 << 20;

/// A colon, and the wide one of Chinese.
const COLONS: [char; 2] = [':', '：'];
/// The list of CPUs that are online, as util-linux names it in its languages.
const ONLINE: [&str; 23] = [
    "On-line CPU(s) list",
    "Danh sách CPU trực tuyến",
    "Lista CPU-urilor în linie (conectate)",
    "Lista aktywnych CPU",
    "Lista das CPUs online",
    "Lista de CPU(s) on-line",
    "Lista de la(s) CPU(s) en línea",
    "Lista över aktiva CPU(er)",
    "Liste de processeur(s) en ligne",
    "Liste der Online-CPU(s)",
    "Llista de CPU en línia",
    "Online CPU's-lijst",
    "Popis online CPU-a",
    "Seznam zapnutých CPU",
    "Tilkoblet cpu(er) liste",
    "Çevrimiçi işlemci(ler) listesi",
    "Списак присутних процесора",
    "Список робочих ЦП",
    "قائمة وحدات المعالجة المتصلة",
    "オンラインになっている CPU のリスト",
    "在线 CPU 列表",
    "線上 CPU (s) 清單",
    "온라인 CPU 목록",
];
/// Number of CPUs, likewise.
const CPUS: [&str; 15] = [
    "CPU'er",
    "CPU-uri",
    "CPU(-a)",
    "وحدات المعالجة",
    "CPU(s)",
    "CPU (s)",
    "CPU",
    "CPUs",
    "CPU's",
    "CPU(er)",
    "Processeur(s)",
    "Počet CPU",
    "İşlemciler",
    "Процесори",
    "Процессоры",
];
/// Number of sockets, likewise.
const SOCKETS: [&str; 28] = [
    "CPU podnožja",
    "CPU socketak",
    "CPU soket",
    "Sockets",
    "Socluri",
    "Sokler",
    "Số đế cắm",
    "Socket(s) da CPU",
    "Прикључнице",
    "مقابس",
    "Socket(s)",
    "Socket",
    "CPU socket(s)",
    "Sockel",
    "«Socket(s)»",
    "Soquete(s)",
    "Gniazd",
    "Gniazda",
    "Сокетов",
    "Сокети",
    "座",
    "通訊端",
    "ソケット数",
    "소켓",
    "Patic",
    "CPU-voeten",
    "Uttag",
    "Soket(ler)",
];

/// CPUs that are online; all, where the text does not list them.
pub fn cpus(text: &[u8]) -> Option<u32> {
    online(text).or_else(|| online(&bare(text)?))
}

/// Sockets.
pub fn sockets(text: &[u8]) -> Option<u32> {
    listed_sockets(text).or_else(|| listed_sockets(&bare(text)?))
}

/// The other numbers of CPUs that a text states, as where it is of several servers.
pub fn others(text: &[u8]) -> Vec<String> {
    let text = plain(&text[..text.len().min(BYTES_MAX)]).into_owned();
    let text = String::from_utf8_lossy(&text);
    let of_line = |line: &str| {
        let (name, value) = line.trim().split_once(COLONS)?;
        CPUS.contains(&name.trim_end()).then(|| value.trim().to_owned()).filter(|value| value.parse::<u32>().is_ok())
    };
    let mut found: Vec<String> = text.lines().filter_map(of_line).collect();
    let first = found.first().cloned();
    found.dedup();
    found.retain(|other| Some(other) != first.as_ref());
    found
}

fn online(text: &[u8]) -> Option<u32> {
    let online = field(text, &ONLINE).and_then(|list| count(&list));
    let of_table = || table(text).map(|rows| rows.len() as u32);
    let found = online.or_else(|| field(text, &CPUS)?.parse().ok()).or_else(of_table).or_else(|| number_alone(text));
    found.filter(|cpus| *cpus > 0)
}

fn listed_sockets(text: &[u8]) -> Option<u32> {
    let of_table = || {
        let sockets: BTreeSet<String> = table(text)?.into_iter().flatten().collect();
        u32::try_from(sockets.len()).ok()
    };
    let found = number(text, &SOCKETS).or_else(|| in_books(text)).or_else(of_table);
    found.filter(|sockets| *sockets > 0)
}

fn number(text: &[u8], names: &[&str]) -> Option<u32> {
    field(text, names)?.parse().ok()
}

/// Sockets of s390, which stand in books, and these in drawers: as many of them as the CPUs that are online fill, for a
/// partition has some of the machine's.
fn in_books(text: &[u8]) -> Option<u32> {
    let or_one = |names: &[&str]| number(text, names).filter(|number| *number > 0).unwrap_or(1);
    let books = or_one(&["Book(s)", "Book(s) per drawer"]).checked_mul(or_one(&["Drawer(s)"]))?;
    let sockets = number(text, &["Socket(s) per book"])?.checked_mul(books)?;
    let of_socket = or_one(&["Core(s) per socket"]).saturating_mul(or_one(&["Thread(s) per core"]));
    Some(online(text).map_or(sockets, |cpus| sockets.min(cpus.div_ceil(of_socket))))
}

/// Most CPUs of a table.
const ROWS_MAX: usize = 65_536;

/// The CPUs that are online in a table, each with its socket where the table tells.
fn table(text: &[u8]) -> Option<Vec<Option<String>>> {
    let text = plain(&text[..text.len().min(BYTES_MAX)]).into_owned();
    let text = String::from_utf8_lossy(&text);
    if let Some(json) = object_with(&text, "cpus") {
        return Some(json.get("cpus")?.as_array()?.iter().filter_map(row_of_json).take(ROWS_MAX).collect());
    }
    let rows = columns(&text).filter(|rows| !rows.is_empty()).unwrap_or_else(|| cpuinfo(&text));
    (!rows.is_empty()).then_some(rows)
}

/// A CPU of `lscpu -e -J`. None if it is offline.
fn row_of_json(cpu: &Value) -> Option<Option<String>> {
    let plain = |key: &str| cpu.get(key).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    plain("cpu")?;
    let is_online = plain("online").is_none_or(|online| matches!(online.as_str(), "true" | "yes" | "Y"));
    is_online.then(|| plain("socket").filter(|socket| socket != "null" && socket != "-"))
}

/// The rows of `lscpu -e` (words under a head) or `-p` (commas under a comment). None without such a head.
fn columns(text: &str) -> Option<Vec<Option<String>>> {
    let split = |line: &str| -> Vec<String> {
        let is_end = |c: char| c == ',' || c.is_whitespace();
        let line = line.trim_start_matches('#').trim();
        match line.contains(',') {
            true => line.split(',').map(|word| word.trim().to_owned()).collect(),
            false => line.split(is_end).filter(|word| !word.is_empty()).map(str::to_owned).collect(),
        }
    };
    let mut lines = text.lines().skip_while(|line| {
        let names = split(line);
        // `/proc/cpuinfo` has lines such as `CPU implementer : 0x41` and `cpu family : 6`.
        let is_field = names.iter().any(|name| name.ends_with(':'));
        is_field || names.first().is_none_or(|name| !name.eq_ignore_ascii_case("CPU")) || names.len() < 2
    });
    let names = split(lines.next()?);
    let of = |name: &str| names.iter().position(|known| known.eq_ignore_ascii_case(name));
    let (socket, online) = (of("socket"), of("online"));
    let row = |line: &str| {
        let words = split(line);
        words.first()?.parse::<u32>().ok()?;
        let word = |at: Option<usize>| words.get(at?).filter(|word| *word != "-" && !word.is_empty()).cloned();
        let is_online = word(online).is_none_or(|word| word.eq_ignore_ascii_case("yes") || word == "Y");
        is_online.then(|| word(socket))
    };
    Some(lines.filter_map(row).take(ROWS_MAX).collect())
}

/// The processors of `/proc/cpuinfo`: `processor : 0`, or `processor 0: version = …` of s390.
fn cpuinfo(text: &str) -> Vec<Option<String>> {
    let mut rows: Vec<Option<String>> = Vec::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let (name, value) = (name.trim(), value.trim());
        let number = name.strip_prefix("processor").map(str::trim);
        let is_processor = number.is_some_and(|number| match number {
            "" => value.parse::<u32>().is_ok(),
            number => number.parse::<u32>().is_ok(),
        });
        if is_processor && rows.len() < ROWS_MAX {
            rows.push(None);
        } else if let Some(row) = rows.last_mut().filter(|_| name == "physical id") {
            *row = Some(value.to_owned());
        }
    }
    rows
}

/// What `nproc` prints.
fn number_alone(text: &[u8]) -> Option<u32> {
    let text = plain(&text[..text.len().min(64)]).into_owned();
    String::from_utf8_lossy(&text).trim().parse().ok().filter(|cpus| *cpus <= 65_536)
}

/// The number of CPUs in `0-3,8`.
pub fn count(list: &str) -> Option<u32> {
    let mut count: u32 = 0;
    for item in list.trim().split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    (1..=65_536).contains(&count).then_some(count)
}

/// The value of the first of these fields that is there, without its colon.
pub fn field(text: &[u8], names: &[&str]) -> Option<String> {
    let text = plain(&text[..text.len().min(BYTES_MAX)]).into_owned();
    let text = String::from_utf8_lossy(&text);
    if let Some(json) = object_with(&text, "lscpu") {
        return names.iter().find_map(|name| in_json(json.get("lscpu")?, name));
    }
    let value = |name: &str| {
        let value =
            |line: &str| Some(line.trim().strip_prefix(name)?.trim_start().strip_prefix(COLONS)?.trim().to_owned());
        text.lines().find_map(value)
    };
    names.iter().find_map(|name| value(name))
}

/// Lists of fields, each perhaps with others below it; the parser bounds their depth.
fn in_json(fields: &Value, name: &str) -> Option<String> {
    fields.as_array()?.iter().find_map(|field| {
        let is_meant = field
            .get("field")
            .and_then(Value::as_str)
            .is_some_and(|key| key.trim_end_matches(COLONS).trim_end() == name);
        // Newer versions print numbers without quotes.
        let value =
            field.get("data").filter(|data| is_meant && !data.is_null() && !data.is_array() && !data.is_object());
        value.map(text_of).or_else(|| in_json(field.get("children")?, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_every_form() {
        let old = "Architecture:          x86_64\nCPU(s):                16\nOn-line CPU(s) list:   0-15\nCPU socket(s):         2\n";
        let new = "CPU(s):                  16\n  On-line CPU(s) list:   0-15\n  Model name:            M\n    Socket(s):           2\n";
        let flat = r#"{"lscpu": [{"field": "CPU(s):", "data": "16"}, {"field": "Socket(s):", "data": "2"}]}"#;
        let nested = r#"{"lscpu": [{"field": "CPU(s):", "data": "16", "children": [{"field": "On-line", "data": "0"}]},
            {"field": "Vendor ID:", "data": "V", "children": [{"field": "Model name:", "data": "M",
             "children": [{"field": "Socket(s):", "data": "2"}]}]}]}"#;
        let numbers =
            r#"{"lscpu": [{"field": "CPU(s):", "data": 16}, {"field": "Socket(s):", "data": 2, "children": null}]}"#;
        let of_shell = format!("[root@host ~]# lscpu -J\n{nested}\n[root@host ~]# ");
        for text in [old, new, flat, nested, numbers, &of_shell] {
            assert_eq!(field(text.as_bytes(), &["CPU(s)"]).as_deref(), Some("16"), "{text}");
            assert_eq!(field(text.as_bytes(), &["Socket(s)", "CPU socket(s)"]).as_deref(), Some("2"), "{text}");
        }
    }

    #[test]
    fn other_languages_and_cpus_that_are_offline() {
        for (text, expected) in [
            (
                "CPU(s):               20\nOn-line CPU(s) list:  1-5,8-19\nOff-line CPU(s) list: 0,6,7\nSocket(s):   2\n",
                (Some(17), Some(2)),
            ),
            (
                "CPU(s):                             8\r\nListe der Online-CPU(s):            0-7\r\n  Sockel:     1\r\n",
                (Some(8), Some(1)),
            ),
            (
                "CPU(s):                             8\nListe der Online-CPU(s):            0-3\nListe der Offline-CPU(s):           4-7\n",
                (Some(4), None),
            ),
            (
                "Processeur(s) :                         12\nSocket(s) :                             1\n",
                (Some(12), Some(1)),
            ),
            (
                "CPU:                             4\n在线 CPU 列表：                  0-3\n座：                             1\n",
                (Some(4), Some(1)),
            ),
            (
                "CPU(s): 96\nOn-line CPU(s) list: 0-95\nThread(s) per core: 1\nCore(s) per socket: 4\nSocket(s) per book: 6\nBook(s): 4\n",
                (Some(96), Some(24)),
            ),
            (
                "CPU(s): 20\nOn-line CPU(s) list: 1-5,8-19\nThread(s) per core: 1\nCore(s) per socket: 4\nSocket(s) per book: 3\n\
                 Book(s) per drawer: 2\nDrawer(s): 4\n",
                (Some(17), Some(5)),
            ),
            ("On-line CPU(s) list: junk\nCPU(s): 0\nSocket(s): -\n", (None, None)),
        ] {
            assert_eq!((cpus(text.as_bytes()), sockets(text.as_bytes())), expected, "{text}");
        }
        assert_eq!([count("0-3,8"), count("9-3"), count("0-4294967295"), count("")], [Some(5), None, None, None]);
    }

    #[test]
    fn texts_of_several_servers_have_others() {
        for (text, expected) in [
            ("CPU(s): 8\nSocket(s): 1\nCPU(s):  64\n", &["64"][..]),
            ("CPU(s): 8\nCPU(s): 8\nNUMA node0 CPU(s): 0-3\n", &[]),
            ("", &[]),
        ] {
            assert_eq!(others(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn tables_and_what_stands_in_for_lscpu() {
        let wide = "CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE    MAXMHZ\n  0    0      0    0 0:0:0:0          yes 3800.0000\n  \
                    1    1      1    1 1:1:1:1          yes 3800.0000\n  2    -      -    - -                 no         -\n";
        let parsable = "# The following is the parsable format, which can be fed to other\n# programs. Each different item in every column has an unique ID\n\
                        # starting usually from zero.\n# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n0,0,0,0,,0,0,0,0\n1,0,1,0,,0,0,0,0\n";
        let without_sockets = "CPU CORE ONLINE\n0 0 yes\n1 1 yes\n";
        let json = r#"{"cpus": [{"cpu": 0, "node": 0, "socket": 0, "online": true}, {"cpu": "1", "socket": "1", "online": "yes"},
            {"cpu": 2, "socket": null, "online": false}]}"#;
        // Fields whose names begin with `cpu` are no head of a table.
        let of_x86 = |number: u32| {
            format!(
                "processor\t: {number}\ncpu family\t: 6\ncpu MHz\t\t: 2000.000\nphysical id\t: {number}\nflags\t\t: fpu\n\n"
            )
        };
        let x86 = of_x86(0) + &of_x86(1);
        let s390 = "vendor_id       : IBM/S390\n# processors    : 2\nprocessor 0: version = FF,  identification = 1\nprocessor 1: version = FF\n\n\
                    cpu number      : 0\ncpu MHz dynamic : 5000\n\ncpu number      : 1\n";
        let arm = "Processor\t: AArch64 rev 0\nprocessor\t: 0\nprocessor\t: 1\nHardware\t: x\n";
        let arm_64 =
            "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\n\nprocessor\t: 1\nCPU implementer\t: 0x41\n";
        let power = "processor\t: 0\ncpu\t\t: POWER9\nclock\t\t: 3800.000000MHz\n\nprocessor\t: 8\ncpu\t\t: POWER9, altivec supported\n";
        for (text, expected) in [
            (wide, (Some(2), Some(2))),
            (parsable, (Some(2), Some(2))),
            (without_sockets, (Some(2), None)),
            (json, (Some(2), Some(2))),
            (&x86, (Some(2), Some(2))),
            (s390, (Some(2), None)),
            (arm, (Some(2), None)),
            (arm_64, (Some(2), None)),
            (power, (Some(2), None)),
            ("2\n", (Some(2), None)),
            ("-bash: lscpu: command not found\n", (None, None)),
            ("CPU NODE\n", (None, None)),
            ("{\"cpus\": 3}", (None, None)),
        ] {
            assert_eq!((cpus(text.as_bytes()), sockets(text.as_bytes())), expected, "{text}");
        }
    }

    #[test]
    fn lines_of_a_log_are_read() {
        let text: String =
            ["CPU(s): 16", "Vendor ID: x", "Model: 3", "Socket(s): 2"].map(|line| format!("a  | {line}\n")).concat();
        assert_eq!((cpus(text.as_bytes()), sockets(text.as_bytes())), (Some(16), Some(2)));
    }

    #[test]
    fn damage_has_no_fields() {
        for text in [
            "",
            "{",
            "[]",
            "{\"lscpu\": 3}",
            "{\"lscpu\": [[], 4, {\"field\": 1, \"children\": 2}]}",
            "Socket(s)",
            "Socket(s) 2",
        ] {
            assert_eq!(field(text.as_bytes(), &["Socket(s)"]), None, "{text}");
        }
    }
}
