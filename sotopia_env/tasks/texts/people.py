"""People's names and what is told of them: occupations, habits, secrets, temperaments, backstories."""

from __future__ import annotations

from sotopia_env.world.scenario import RelationshipKind


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


WOMEN = _names(
    "Abena Adriana Ailsa Amal Anneke Beatriz Birgit Chiara Dagny Elif Esperanza Fatou Greta Hanako Ingrid Ioana "
    "Jacinta Katarzyna Leilani Linh Mairead Meera Nadia Noor Oksana Paloma Rosalind Saoirse Tamsin Ulrike Vesna "
    "Winifred Xiomara Yasmin Zuzana "
)
MEN = _names(
    "Alasdair Anselm Bartosz Bogdan Caspian Cheng Dariusz Diego Emeka Enzo Faisal Gareth Goran Hamid Henrik "
    "Ignacio Jerome Jomo Kenji Kofi Lorenz Luca Mateusz Milos Nikhil Oskar Piotr Quentin Ravi Ruben Sefton "
    "Stellan Tariq Umberto Viktor Wojtek Yusuf "
)
NEUTRAL = _names("Ariel Blair Emery Lark Marlowe Quinn Rowan Sasha Skyler Wren")
LAST_NAMES = _names(
    "Abara Achterberg Almeida Andersson Balogun Barzani Bellamy Bianchi Brandvold Calloway Castellano Chaudhry "
    "Cisneros Dahlgren Delacroix Demir Dimitrov Drummond Eriksen Escobedo Farrow Fitzroy Fontaine Gallardo Gorski "
    "Grimaldi Haddad Halloran Hashimoto Hollis Ibarra Ivanova Jablonski Jankovic Kaminski Kapoor Kilbride Kowal "
    "Lindqvist Lockhart Macalister Madaki Marchetti Mbeki Mirza Moreau Nakagawa Novak Obafemi Oduya Ortega "
    "Pemberton Petrov Quigley Rasmussen Reinholt Sabatini Salvatore Sandoval Sinclair Sorensen Takahashi "
    "Thistlewood Tremblay Ustinov Vandermeer Varga Villanueva Wainwright Westergaard Yamada Yildiz Zamora "
    "Zielinski "
)
OCCUPATIONS = (
    "bicycle mechanic",
    "primary school teacher",
    "night nurse",
    "tax adviser",
    "landscape gardener",
    "sound engineer",
    "bus driver",
    "pastry chef",
    "veterinary assistant",
    "patent clerk",
    "carpenter",
    "museum guard",
    "data analyst",
    "florist",
    "ferry captain",
    "court interpreter",
    "piano tuner",
    "warehouse supervisor",
    "dental hygienist",
    "freelance illustrator",
    "structural engineer",
    "beekeeper",
    "call centre agent",
    "geography student",
    "retired postal worker",
    "opera chorister",
    "swimming instructor",
    "bookbinder",
    "electrician",
    "pharmacist",
    "wedding photographer",
    "city councillor",
    "marine biologist",
    "tailor",
    "locksmith",
    "weather forecaster",
    "social worker",
    "train dispatcher",
    "cheese maker",
    "video editor",
)
PUBLIC_INFO = (
    "Sings in a neighbourhood choir.",
    "Runs the annual street festival's cake stand.",
    "Has lived abroad for several years.",
    "Is raising twins.",
    "Keeps a small allotment and gives away the surplus.",
    "Once came second in a regional chess tournament.",
    "Volunteers at the animal shelter on weekends.",
    "Writes a column about local history.",
    "Cycles to work in every weather.",
    "Restores old radios as a hobby.",
    "Coaches a youth handball team.",
    "Recently moved into a flat with a view of the harbour.",
    "Is known for never arriving late.",
    "Speaks four languages.",
    "Organises a film night in the community hall.",
    "Has an enormous and rather vocal dog.",
    "Bakes sourdough and talks about it.",
    "Collects old maps.",
    "Swims in the lake all year round.",
    "Grew up on a sheep farm.",
    "Plays the accordion in a folk band.",
    "Took over the family business and sold it again.",
    "Knits through every meeting.",
    "Climbed the highest mountain of the country last summer.",
)
SECRETS = (
    "Has failed the driving test four times and tells everyone it was never of interest.",
    "Is secretly taking evening classes in order to change careers.",
    "Has been lending money to a brother who gambles.",
    "Wrote the anonymous letter that the whole street talked about.",
    "Cannot stand the hobby shared with the best friend.",
    "Lost a large part of the savings in a doubtful investment.",
    "Has applied for a job in another country and told nobody.",
    "Pretends to have read the books that fill the living room.",
    "Was the one who broke the church window years ago.",
    "Has been sleeping in the office since the break-up.",
    "Is afraid of flying and invents excuses for every trip.",
    "Buys the famous home-made jam at a supermarket two towns away.",
    "Still writes to a former fiancé.",
    "Never finished the degree that hangs framed on the wall.",
    "Has a hearing problem and hides it.",
    "Feeds the neighbour's cat so that it prefers to stay.",
    "Reads the diary of a flatmate now and then.",
    "Owes three months of rent.",
    "Won a sizeable sum in a lottery and has not told the family.",
    "Copied the prize-winning recipe from a great-aunt's rival.",
    "Has been dismissed and leaves the house each morning as if for work.",
    "Is the author of a mocking blog about the town.",
    "Once let a colleague take the blame for a costly mistake.",
    "Dyes the hair and claims it is natural.",
)
PLAIN_INFO = (
    "Knows the name of every tree in the park.",
    "Is learning to juggle.",
    "Whistles without noticing it.",
    "Always carries an umbrella.",
    "Can name the capital of every country.",
    "Takes photographs of old doors.",
    "Gets up before the sun, also on Sundays.",
    "Tells long stories and never forgets a birthday.",
    "Plays table tennis rather well.",
    "Writes letters by hand.",
    "Draws small cartoons of everybody.",
    "Reads detective novels and guesses the end.",
    "Has a large collection of stamps.",
    "Sings the second voice to any song.",
    "Solves the crossword in ink.",
    "Likes to cook soup for many.",
)
"""What is told of people of any age, occupation and home."""
PLAIN_SECRETS = (
    "Cannot swim and has always found an excuse.",
    "Once cheated in a chess tournament and came third.",
    "Is afraid of dogs, also of small ones.",
    "Has read the last page of every book first.",
    "Keeps a diary in a code that nobody knows.",
    "Lost a borrowed ring and replaced it by a copy.",
    "Cannot tell red from green and hides it.",
    "Takes singing lessons in the next town.",
    "Has never liked the dish that everybody praises.",
    "Found a purse years ago and did not hand it in.",
    "Invented the story that is told at every party.",
    "Sends poems to a magazine under another name.",
    "Forgets faces and pretends to know everybody.",
    "Has a tattoo that nobody has seen.",
)
"""Secrets of people of any age, occupation and home."""
OPENINGS = (
    "Listens first and speaks late",
    "Talks quickly and thinks aloud",
    "Makes lists for everything",
    "Jokes when things get tense",
    "Prefers plain words to polite ones",
    "Remembers every favour ever done",
    "Asks one question more than is comfortable",
    "Smiles a great deal and gives away little",
    "Gets carried away by good ideas",
    "Weighs every word",
    "Warms to people slowly",
    "Takes pride in being fair",
)
CLOSINGS = (
    "but gives in when treated kindly.",
    "and holds on to a plan once it is made.",
    "and dislikes owing anybody anything.",
    "but cannot bear an awkward silence.",
    "and is seldom seen without a notebook.",
    "but loses patience with long explanations.",
    "and would rather walk away than quarrel.",
    "but enjoys a good argument.",
    "and notices when somebody feels left out.",
    "but worries afterwards about what was said.",
    "and expects others to keep their word.",
    "but is generous once trust is there.",
)
BACKSTORIES: dict[RelationshipKind, tuple[str, ...]] = {
    RelationshipKind.FAMILY: (
        "{a} and {b} are cousins who spent every summer at the same lake.",
        "{a} and {b} are siblings-in-law and share the Sunday lunches.",
        "{a} is a distant relative of {b}; they met again at a wedding last year.",
    ),
    RelationshipKind.FRIEND: (
        "{a} and {b} have been friends since they shared a desk at school.",
        "{a} and {b} became friends in a hiking club.",
        "{a} and {b} lived in the same house for years and still meet for coffee.",
    ),
    RelationshipKind.ROMANTIC: (
        "{a} and {b} have been a couple for two years.",
        "{a} and {b} met at a dance class and have been dating since the spring.",
        "{a} and {b} are engaged and look for a flat together.",
    ),
    RelationshipKind.ACQUAINTANCE: (
        "{a} and {b} greet each other at the bakery most mornings.",
        "{a} and {b} sit in the same evening class.",
        "{a} and {b} once worked in the same building.",
    ),
    RelationshipKind.KNOW_BY_NAME: (
        "{a} and {b} know each other's names from a common friend and have never talked.",
        "{a} and {b} have seen each other's names on a notice board.",
    ),
    RelationshipKind.STRANGER: ("",),
}
"""Backstories by kind; strangers have none."""

FACT_STORIES: dict[tuple[str, str], dict[RelationshipKind, str]] = {
    ("home", "shared"): {
        RelationshipKind.FAMILY: "{a} and {b} are cousins who share a flat.",
        RelationshipKind.FRIEND: "{a} and {b} are friends and have shared a flat since they were students.",
        RelationshipKind.ROMANTIC: "{a} and {b} have been a couple for two years and live together.",
    },
    ("home", "adjacent"): {
        RelationshipKind.FAMILY: "{a} and {b} are cousins who live next door to each other.",
        RelationshipKind.FRIEND: "{a} and {b} live next door to each other and became friends over the garden fence.",
        RelationshipKind.ACQUAINTANCE: "{a} and {b} live next door to each other and talk about the weather.",
    },
    ("property", "shared"): {
        RelationshipKind.FAMILY: "{a} and {b} are cousins who inherited a piece of land together.",
        RelationshipKind.FRIEND: "{a} and {b} are friends who bought a piece of land together.",
    },
}
"""Backstories that state a fact (its name and value), by kind; for scenarios that demand it."""
