"""Texts on which tokenizers differ: many scripts, code, emoji, white space, ill-formed bytes.

texts(count) gives the same `count` byte strings every time. Sentences stand here; the rest is drawn from
Unicode's blocks with a fixed seed. Most texts are short, so that one that differs shows why.
"""
import random
import unicodedata

SENTENCES = {
    "latin": ["The lighthouse keeper hasn't slept; he'll wait until they've gone.", "I'd rather WE'RE late than you'RE lost, y'all!",
              "Antidisestablishmentarianism isn't floccinaucinihilipilification.", "She said: \u201cIt\u2019s 5 o\u2019clock\u201d \u2014 and left\u2026"],
    "french": ["L'été dernier, j'ai vu qu'aujourd'hui n'était pas loin.", "Où est passé le cœur naïf de l'œuvre ? « Là-bas ! »"],
    "german": ["Die Straßenbahn fährt über Größenunterschiede hinweg.", "Donaudampfschifffahrtsgesellschaftskapitän heißt er."],
    "polish": ["Zażółć gęślą jaźń, a źdźbło trawy śpi.", "Łódź płynie wzdłuż ściany."],
    "turkish": ["İstanbul'da ılık bir sabah, çığ düştü.", "Iğdır'ın güneşi şimdi söndü."],
    "czech": ["Příliš žluťoučký kůň běží k řece.", "Měsíc svítí na dům."],
    "vietnamese": ["Buổi sáng ở Huế trời mưa nhẹ và đường rất vắng.", "Nghề nghiệp của anh ấy là kỹ sư."],
    "icelandic": ["Það er þoka yfir öllum ánum í dag.", "Ég á þrjá hesta og eitt læmi."],
    "russian": ["Поезд пришёл вовремя, и всё было тихо.", "ОБЪЯВЛЕНИЕ: съезд с шоссе закрыт до 12:30!"],
    "ukrainian": ["Їжак з'їв ґрунтову жужелицю біля річки.", "Чи є у вас п'ять хвилин?"],
    "greek": ["Η θάλασσα ήταν ήρεμη το πρωί.", "Ὁ ἄνθρωπος φύσει πολιτικὸν ζῷον ἐστίν, λέγουν."],
    "hebrew": ["הים שקט הבוקר והרוח נושבת.", "שָׁלוֹם לְכֻלָּם, מַה נִּשְׁמַע?"],
    "arabic": ["البحر هادئ هذا الصباح والريح خفيفة.", "اَلسَّلَامُ عَلَيْكُمْ، كَيْفَ ٱلْحَالُ؟ ١٢٣٤"],
    "persian": ["می‌خواهم کتاب‌های تازه را ببینم.", "قطار ساعت ۱۲ می‌رسد."],
    "urdu": ["دریا کے پار ایک چھوٹا سا گاؤں ہے۔", "کیا آپ ٹھیک ہیں؟"],
    "hindi": ["समुद्र आज बहुत शांत है और हवा धीमी है।", "क्या आप मुझे १२३ रुपये देंगे?"],
    "bengali": ["নদীর ধারে একটি ছোট গ্রাম আছে।", "আজ আকাশ পরিষ্কার, বাতাস মৃদু।"],
    "punjabi": ["ਅੱਜ ਸਵੇਰੇ ਮੀਂਹ ਪਿਆ ਸੀ।", "ਤੁਸੀਂ ਕਿੱਥੇ ਜਾ ਰਹੇ ਹੋ?"],
    "gujarati": ["આજે સવારે દરિયો શાંત છે.", "તમે ક્યાં જાઓ છો?"],
    "tamil": ["கடல் இன்று அமைதியாக இருக்கிறது.", "நீங்கள் எங்கே போகிறீர்கள்?"],
    "telugu": ["ఈ రోజు సముద్రం ప్రశాంతంగా ఉంది.", "మీరు ఎక్కడికి వెళ్తున్నారు?"],
    "kannada": ["ಇಂದು ಸಮುದ್ರ ಶಾಂತವಾಗಿದೆ.", "ನೀವು ಎಲ್ಲಿಗೆ ಹೋಗುತ್ತಿದ್ದೀರಿ?"],
    "malayalam": ["ഇന്ന് കടൽ ശാന്തമാണ്.", "നിങ്ങൾ എവിടെ പോകുന്നു?"],
    "sinhala": ["අද මුහුද සන්සුන් ය.", "ඔබ කොහේද යන්නේ?"],
    "thai": ["วันนี้ทะเลสงบและลมพัดเบาๆ", "คุณกำลังจะไปไหน ราคา ๑๒๓ บาท"],
    "lao": ["ມື້ນີ້ທະເລສະຫງົບ", "ເຈົ້າຈະໄປໃສ?"],
    "khmer": ["ថ្ងៃនេះសមុទ្រស្ងប់ស្ងាត់។", "តើអ្នកទៅណា?"],
    "burmese": ["ဒီနေ့ ပင်လယ် ငြိမ်သက်နေတယ်။", "ဘယ်သွားမလဲ"],
    "tibetan": ["དེ་རིང་གནམ་གཤིས་བཟང་པོ་འདུག", "ཁྱེད་རང་ག་པར་འགྲོ་གི་ཡིན།"],
    "georgian": ["დღეს ზღვა მშვიდია.", "საით მიდიხართ?"],
    "armenian": ["Այսօր ծովը հանգիստ է։", "Ո՞ւր եք գնում:"],
    "amharic": ["ዛሬ ባሕሩ ጸጥ ብሏል።", "ወዴት እየሄድክ ነው?"],
    "chinese": ["今天早上海面很平静，风也不大。", "請問車站在哪裡？我有３個行李。"],
    "japanese": ["今朝の海はとても静かで、風も弱い。", "ｶﾀｶﾅとカタカナ、ガギグゲゴ、「引用」です。"],
    "korean": ["오늘 아침 바다는 아주 조용했다.", "어디로 가십니까? 가격은 12,000원입니다."],
    "mongolian": ["Өнөөдөр далай тайван байна.", "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ"],
    "cherokee": ["ᎣᏏᏲ ᏙᎯᏧ", "ꭳꮟᏺ ꮩꭿꮷ"],
}

CODE = [
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i];  // total\n}\n", "def f(x: int) -> str:\n    return f\"{x!r:>10}\"\n\n\n",
    "SELECT id, COUNT(*) FROM t WHERE name LIKE '%x%' GROUP BY 1;", "#include <vector>\r\n#include \"a/b.h\"\r\n",
    "let mut v: Vec<&'static str> = vec![\"a\", \"b\"]; v.iter().map(|s| s.len())", "<div class=\"row\">&nbsp;<br/></div>\n<!-- end -->",
    "{\"key\": [1, 2.50, -3e-7, null, true], \"\\u00e9\": \"\\n\"}", "$ grep -rn 'a\\.b' ./src | sed -e 's/x/y/g' > out.txt 2>&1",
    "if(x!=NULL&&*x==0x7FFF){return-1;}", "@media (max-width:600px){.a>.b{color:#ff00aa;margin:0 auto!important}}",
    "\\begin{equation} \\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2} \\end{equation}", "x = [[0]*10 for _ in range(10)]\n\n\n\n\ny = 1\n",
    "CamelCaseNameXMLHttpRequest snake_case_name kebab-case-name SCREAMING_CASE iPhone15Pro", "a->b::c<d>(e)[f]; //////// ======== ######## ________",
]

EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇫🇷🇯🇵", "❤️‍🔥", "1️⃣", "🧑🏿‍🚀", "✈️", "☺", "🫠", "🤷‍♀️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "©️®️™️", "🕵🏻‍♂️"]

NUMBERS = ["0", "7", "42", "123", "1234", "12345678901234567890", "3.14159", "1,000,000.00", "-273.15", "1e-9", "0xDEADBEEF", "0b1010",
           "2024-02-29T12:34:56Z", "+1 (555) 010-9999", "192.168.0.1", "½ ¼ ²³ ⅷ ①②", "١٢٣", "१२३", "１２３", "𝟏𝟐𝟑", "50% €9.99 £1 ¥100"]

CONTRACTIONS = ["can't", "CAN'T", "I'll", "I'LL", "we've", "you're", "he'd", "it's", "IT'S", "o'clock", "'tis", "rock'n'roll", "dogs'", "I’m",
                "don’t", "'S", "'ſ", "x'ſ", "n't", "'d've", "l'été", "'''s", "the'RE're", "a'mb 'll'", "'K\u212A"]

URLS = ["https://example.org/a/b?c=1&d=%20e#frag", "mailto:someone+tag@mail.example", "file:///C:/Users/x/readme.txt", "www.example.com/~user/",
        "git@host:team/repo.git", "ftp://10.0.0.1:21//x", "a@b.c", "/usr/local/lib/libfoo.so.1.2"]

SPACES = [" ", "  ", "   ", "    ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r", " \n", "\n ", " \n \n", "\t \t", "\u00a0", "\u2003", "\u3000", "\u200b",
          "\u2028", "\u2029", "\u0085", "\v", "\f", "\ufeff", "\u202f", "\u1680", "\u180e", "\u205f", "\x1c", "\x1d", "\x1f"]

SPECIAL = ["<s>", "</s>", "<unk>", "<pad>", "[INST]", "[/INST]", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>",
           "<|start_header_id|>user<|end_header_id|>", "<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<0x0A>", "<0xE2>", "<think>", "</think>",
           "<tool_call>", "<|fim_prefix|>", "<｜begin▁of▁sentence｜>", "<EOT>", "[UNK]", "<SPECIAL_30>", "▁", "▁▁", "Ġ", "Ċ", "Ġthe", "##ing", "<|", "|>", "<s", "s>"]

# First and last code points of the blocks that characters are drawn from.
BLOCKS = [
    (0x20, 0x7E), (0xA0, 0xFF), (0x100, 0x24F), (0x250, 0x2AF), (0x2B0, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x530, 0x58F),
    (0x590, 0x5FF), (0x600, 0x6FF), (0x700, 0x74F), (0x780, 0x7BF), (0x900, 0x97F), (0x980, 0x9FF), (0xA00, 0xA7F), (0xA80, 0xAFF), (0xB00, 0xB7F),
    (0xB80, 0xBFF), (0xC00, 0xC7F), (0xC80, 0xCFF), (0xD00, 0xD7F), (0xD80, 0xDFF), (0xE00, 0xE7F), (0xE80, 0xEFF), (0xF00, 0xFFF), (0x1000, 0x109F),
    (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F), (0x13A0, 0x13FF), (0x1680, 0x169F), (0x16A0, 0x16FF), (0x1780, 0x17FF), (0x1800, 0x18AF),
    (0x1D00, 0x1DBF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x209F), (0x20A0, 0x20CF), (0x20D0, 0x20FF), (0x2100, 0x214F),
    (0x2150, 0x218F), (0x2190, 0x21FF), (0x2200, 0x22FF), (0x2300, 0x23FF), (0x2460, 0x24FF), (0x2500, 0x257F), (0x2600, 0x26FF), (0x2700, 0x27BF),
    (0x2800, 0x28FF), (0x2C00, 0x2C5F), (0x2D30, 0x2D7F), (0x2E80, 0x2EFF), (0x3000, 0x303F), (0x3040, 0x309F), (0x30A0, 0x30FF), (0x3100, 0x312F),
    (0x3130, 0x318F), (0x3200, 0x32FF), (0x3300, 0x33FF), (0x3400, 0x34FF), (0x4E00, 0x9FFF), (0xA000, 0xA0FF), (0xA640, 0xA69F), (0xA720, 0xA7FF),
    (0xAC00, 0xD7A3), (0xE000, 0xE07F), (0xF900, 0xFAFF), (0xFB00, 0xFB4F), (0xFB50, 0xFDFF), (0xFE00, 0xFE0F), (0xFE20, 0xFE4F), (0xFE70, 0xFEFF),
    (0xFF00, 0xFFEF), (0x10000, 0x1007F), (0x10300, 0x1034F), (0x10400, 0x1044F), (0x12000, 0x120FF), (0x13000, 0x130FF), (0x1D100, 0x1D1FF),
    (0x1D400, 0x1D7FF), (0x1E900, 0x1E95F), (0x1F100, 0x1F1FF), (0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x1F680, 0x1F6FF), (0x1F900, 0x1F9FF),
    (0x20000, 0x200FF), (0x2F800, 0x2F8FF), (0xE0000, 0xE007F), (0x10FF00, 0x10FFFF),
]


def character(rng, block=None):
    low, high = block or rng.choice(BLOCKS)
    return chr(rng.randint(low, high))


def word(rng, letters, low=1, high=12):
    return "".join(rng.choice(letters) for _ in range(rng.randint(low, high)))


def sentence(rng):
    return rng.choice(SENTENCES[rng.choice(list(SENTENCES))])


def part_of_sentence(rng):
    text = sentence(rng)
    begin = rng.randrange(len(text))
    return text[begin:begin + rng.randint(1, 25)]


def mixed(rng):
    """A few things of different kinds side by side, as they meet in chats and web pages."""
    kinds = [lambda: part_of_sentence(rng), lambda: rng.choice(EMOJI), lambda: rng.choice(NUMBERS), lambda: rng.choice(SPACES),
             lambda: rng.choice(CONTRACTIONS), lambda: rng.choice(URLS), lambda: rng.choice(CODE)[:20], lambda: character(rng), lambda: " "]
    return "".join(rng.choice(kinds)() for _ in range(rng.randint(2, 7)))


def spaces(rng):
    out = ""
    for _ in range(rng.randint(1, 5)):
        out += rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 3, 5, 9, 17])
        out += rng.choice(["", "a", "Word", "7", "!", "é", "语", ".", "))"])
    return out


def marks(rng):
    """Letters with marks upon them, composed and not, and orders that normalisation changes."""
    text = "".join(rng.choice("aeiouncAEOzgßåÅḋ각한がはΑιωिक") + "".join(rng.choice("\u0300\u0301\u0308\u0323\u0327\u0345\u05b4\u064b\u093c\u3099\u11a8\u20dd")
                   for _ in range(rng.choice([0, 1, 1, 2, 3]))) for _ in range(rng.randint(2, 10)))
    return unicodedata.normalize(rng.choice(["NFC", "NFD", "NFKC", "NFKD"]), text) if rng.random() < 0.5 else text


def normal_form(rng):
    return unicodedata.normalize(rng.choice(["NFC", "NFD", "NFKC", "NFKD"]), sentence(rng))


def controls(rng):
    return "".join(rng.choice([chr(rng.randrange(0x20)), "\x7f", chr(rng.randint(0x80, 0x9F)), rng.choice("ab 1\u200d\u200e\u202e\u2060\ufffe\uffff\ufffd")])
                   for _ in range(rng.randint(1, 12)))


def numbers(rng):
    return rng.choice(["", " ", "\n"]).join(rng.choice(NUMBERS + [str(rng.randrange(10 ** rng.randint(1, 15)))]) for _ in range(rng.randint(1, 5)))


def long_word(rng):
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice("aAxz= -_.é語\n") * rng.randint(20, 120)
    if kind == 1:
        return word(rng, "abcdefghijklmnopqrstuvwxyz", 30, 120)
    if kind == 2:
        return word(rng, "ABCDEFabcdef0123456789+/=", 40, 120)
    return word(rng, ["ab", "ABC", "1", "_", "é", "'s", "-"], 15, 40)


def punctuation(rng):
    return "".join(rng.choice(["!", "?", "...", "()", "--", "\"", "'", " ", "\n", "/", "//", "\\", "<", ">", "{", "}", "$", "#", "@", "a", "B", "0",
                               "\u2014", "\u00bf", "\u3002", "\uff01", "\u00ab", "\u2026", "~", "^", "`", "|", "&", "*", "+", "=", "%", ";"])
                   for _ in range(rng.randint(1, 25)))


def random_block(rng):
    block = rng.choice(BLOCKS)
    return "".join(character(rng, block) if rng.random() < 0.9 else " " for _ in range(rng.randint(1, 15)))


def ill_formed(rng):
    """Bytes that are not UTF-8 among some that are: cut characters, lone bytes, surrogates, overlong forms."""
    bad = [b"\xff", b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xf8\x88"]
    out = b""
    for _ in range(rng.randint(1, 6)):
        out += rng.choice([part_of_sentence(rng).encode(), rng.choice(bad), bytes(rng.randrange(256) for _ in range(rng.randint(1, 4))), b" "])
    return out


def special(rng):
    return "".join(rng.choice([rng.choice(SPECIAL), rng.choice(SPECIAL), part_of_sentence(rng), " ", "\n", "a"]) for _ in range(rng.randint(1, 5)))


KINDS = [sentence, part_of_sentence, mixed, mixed, spaces, marks, normal_form, controls, numbers, long_word, punctuation, random_block, ill_formed, special,
         lambda rng: " ".join(rng.choice(CONTRACTIONS) for _ in range(rng.randint(1, 6))),
         lambda rng: rng.choice(CODE), lambda rng: "".join(rng.choice(EMOJI + [" ", "a"]) for _ in range(rng.randint(1, 8))),
         lambda rng: "".join(character(rng) for _ in range(rng.randint(1, 10)))]


def texts(count, seed=1):
    """Every fixed text once where `count` allows, then what the kinds give in turn."""
    rng = random.Random(seed)
    fixed = [s for group in SENTENCES.values() for s in group] + CODE + EMOJI + NUMBERS + CONTRACTIONS + URLS + SPACES + SPECIAL
    out, seen = [], set()
    if count > 2 * len(fixed):
        out = ["", *fixed]
        seen = set(out)
        out = [text.encode() for text in out]
    drawn = 0
    while len(out) < count:
        text = KINDS[drawn % len(KINDS)](rng)
        drawn += 1
        if text not in seen:
            seen.add(text)
            out.append(text if isinstance(text, bytes) else text.encode())
    return out[:count]
