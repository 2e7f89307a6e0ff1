"""Words of scripts that need invisible characters: joiners, marks of direction, and parts of emoji."""

WORDS = (
    *("می‌خواهم", "کتاب‌ها", "ده‌چم", "क्‍ष", "हिन्दी", "র‍্যাব", "ශ්‍රී"),
    *(
        "\u200fשלום!\u200e",
        "\u061cسلام",
        "👨‍👩‍👧‍👦",
        "👩🏽‍🚀",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "1️⃣",
    ),
    *("葛\U000e0100", "co\u00adop", "ไทย", "e\u0301tude"),
)
