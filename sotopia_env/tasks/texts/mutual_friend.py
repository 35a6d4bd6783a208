"""The words of ``mutual_friend`` tasks: names and attributes of friends, phrasings of contexts, goals, claims."""

from __future__ import annotations

from collections.abc import Mapping

_FIRST_NAMES = (
    "Adaeze Aino Alberto Amira Anneke Anselm Ariadne Bastian Beatriz Benedikt Bogdan Branka Camilo "
    "Catarina Chidi Clodagh Cosima Dagmar Damir Desmond Dilara Dorothea Edgar Efua Elif Emeka Enrico "
    "Esperanza Fabienne Faisal Farida Fergus Fiorella Florian Gaspard Ghita Giancarlo Gudrun Halima Hamza "
    "Henrike Hiroko Ignacio Ilona Imke Ingmar Isidora Ivo Jadranka Jarek Jolanda Joris Kamil Katarzyna "
    "Kenji Kerstin Ksenia Lakshmi Leopold Liesel Lorcan Lubna Ludovic Magda Malik Marisol Mehmet Mirela "
    "Nadia Naoko Nestor Niamh Nikhil Octavia Oksana Olavi Ottilie Paloma Parvati Pavel Perpetua Piotr "
    "Radka Rashid Renske Rodrigo Rosalind Ruslan Sabine Salim Siobhan Sunniva Tadeusz Tamsin Teodora "
    "Thandiwe Torsten Ulrike Valentin Veronika Vikram Wiebke Winston Yasmin Yevgeny Yolanda Zainab Zdenka "
)
FIRST_NAMES: tuple[str, ...] = tuple(_FIRST_NAMES.split())
"""First names of friends."""
_LAST_NAMES = (
    "Abernathy Achterberg Adeyemi Albrecht Anagnos Ballantyne Barzani Bellamy Bergstrom Birkeland "
    "Bonaventura Brankovic Calloway Castellano Chaudhry Cisneros Dahlgren Delacroix Dimitrov Dobrowski "
    "Drummond Eberhart Echeverria Ekwueme Engstrom Fairweather Falkenberg Fitzmaurice Fontaine Gallagher "
    "Ghazali Giordano Goldschmidt Grigoryan Haavisto Hakimi Halvorsen Hashimoto Hernandez Holloway Ibarra "
    "Iwasaki Jankowski Jorgensen Kaczmarek Kapoor Karlsson Kavanagh Kowalczyk Lagerfeld Lancaster "
    "Lefebvre Lindqvist Lombardi Macintyre Mahmoud Makinen Marchetti Mbeki Montague Moreno Nakamura "
    "Nascimento Nowak Nystrom Obafemi Okonkwo Olofsson Ostrowski Pacheco Pellegrini Petrosyan Quintero "
    "Rahman Rasmussen Rothschild Sandoval Santangelo Schumacher Sikorski Sorensen Stavropoulos Takahashi "
    "Thistlewood Tremblay Ueland Valenzuela Vandermeer Villanueva Wainwright Weatherby Wojcik Yilmaz "
    "Zamora Zielinski "
)
LAST_NAMES: tuple[str, ...] = tuple(_LAST_NAMES.split())
"""Last names of friends."""
ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "school": (
        "Northgate College",
        "Saint Odile Academy",
        "Larkhill Polytechnic",
        "the Harbour Institute",
        "Elmfield University",
        "Westmoor School of Design",
        "the Kestrel Conservatory",
        "Ashby Technical School",
        "Rowan Valley College",
        "Meridian University",
    ),
    "employer": (
        "Copperfield Logistics",
        "the Bluestone Clinic",
        "Tandem Software",
        "Orchard Lane Bakery",
        "the city archive",
        "Halyard Shipping",
        "Greenwing Energy",
        "the Lantern Theatre",
        "Pinecrest Dairy",
        "Quarry Street Bank",
    ),
    "hobby": (
        "bouldering",
        "beekeeping",
        "salsa dancing",
        "chess",
        "watercolours",
        "trail running",
        "model railways",
        "choir singing",
        "birdwatching",
        "sourdough baking",
    ),
    "town": (
        "Fenwick Bay",
        "Upper Calder",
        "Stonebridge",
        "Marlow Heath",
        "Port Essen",
        "Kirkvale",
        "Lindenau",
        "Sandhollow",
        "Old Ferry",
        "Brackenridge",
    ),
    "pet": (
        "a greyhound",
        "two parrots",
        "a tortoise",
        "a tabby cat",
        "an old pony",
        "three hens",
        "a ferret",
        "a corn snake",
        "a dachshund",
        "an aquarium",
    ),
}
"""Attribute to its values. No value contains another one, so that each can be found in a text."""

FACTS: Mapping[str, str] = {
    "school": "went to {value}",
    "employer": "works for {value}",
    "hobby": "is into {value}",
    "town": "lives in {value}",
    "pet": "keeps {value}",
}

CONTEXTS: tuple[str, ...] = (
    "At a housewarming party two guests end up by the same window and suspect that they have one friend in common.",
    "Two people share a table in a full café and find out that exactly one of their friends is the same person.",
    "On a delayed train two passengers pass the time; a name tag on a borrowed bag tells them they share one friend.",
    "During the break of a concert two people learn from the host that they have a single friend in common.",
    "At a wedding two guests have been put at one table because, so the card says, one friend connects them.",
    "Two members of a hiking group walk side by side and want to find out which one friend they both have.",
    "A networking site has told two people at a conference that they have exactly one contact in common.",
    "In the queue for the ferry two people begin to talk; somebody they both know must have told them of the same bay.",
    "Two volunteers sort books for a jumble sale and discover that one friend has sent both of them there.",
    "At an evening class two neighbours at the same desk were told by the teacher that they share one friend.",
)
RULES: tuple[str, ...] = (
    "They succeed when both of them claim the same person and it is the right one; claiming a wrong person costs.",
    "The game is won when each has claimed the friend and both are right. Every wrong claim costs the one who made it.",
    "Both have to put a claim on record. A wrong one is embarrassing and counts against whoever made it.",
)
GOALS: tuple[str, ...] = (
    "Find out which of your friends is also {other}'s friend, and name that person.",
    "Discover the one friend you share with {other}, without naming a wrong one.",
    "Work out together with {other} who your mutual friend is and say so.",
    "Identify the friend that you and {other} have in common; do not guess wildly.",
    "Get to know through talk which of your friends {other} knows too, then name that friend.",
    "Make sure that you and {other} both name the same mutual friend.",
    "Be able to say with certainty who connects you and {other}.",
    "Find the person who is on your list of friends and on {other}'s as well, and agree on the name.",
    "End the talk with {other} knowing, both of you, who your common friend is.",
)
HINTS: tuple[str, ...] = (
    "The mutual friend has the same full name and the same {attributes} on both lists.",
    "Two people may have a name in common and still differ in {attributes}.",
    "Compare {attributes} before you name somebody.",
)
LISTS: tuple[str, ...] = (
    "Your friends are: {friends}.",
    "These are your friends: {friends}.",
    "You think of your friends: {friends}.",
    "Your address book holds: {friends}.",
)

CLAIMS: tuple[str, ...] = (
    "Our mutual friend is {claim}.",
    "It must be {claim}!",
    "I'm sure now: the friend we share is {claim}.",
    "Then {claim} is our mutual friend.",
    "We both know {claim}, that is our common friend.",
    "That settles it, our common friend is {claim}.",
    "The person we both know is {claim}.",
)
CONFIRMATIONS: tuple[str, ...] = (
    "Yes, our mutual friend is {claim}.",
    "Exactly, {claim} is our mutual friend!",
    "You are right, it is {claim}.",
    "Agreed, the friend we share is {claim}.",
    "Indeed, it must be {claim}. How lovely!",
    "Yes! {claim} is the one we both know.",
    "That's right, {claim} is our common friend.",
)
SHARES: tuple[str, ...] = (
    "One of my friends is {name}, who {facts}.",
    "I know {name}: {first} {facts}.",
    "There is {name} among my friends, who {facts}.",
    "A friend of mine, {name}, {facts}.",
    "Let me tell you about {name}, a friend who {facts}.",
    "I am friends with {name}, who {facts}.",
)
