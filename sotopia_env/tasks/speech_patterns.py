"""The phrases by which :mod:`sotopia_env.tasks.bargain_speech` reads offers, assent and their opposites.

Patterns apply to normalised text (lower case, contractions spelt out) in which values are tokens ``<0>``, ``<1>``.
Those named after a doubt (``PAST``, ``THIRD``, ``YOURS``, ``HYPOTHESIS``, ``LIMIT``) only ever make reading stricter.
"""

from __future__ import annotations

import re

SENTENCE = re.compile(r"([^.!?;\n]+)([.!?;\n]*)")
CLAUSE = re.compile(r"(,|:|\(|\)| -+ |\b(?:but|however|though|although|except|because|since|and|so that|as i|yet)\b)")
RESERVATIONS = ("but", "however", "though", "although", "except", "yet")
SIDE_BY_SIDE = re.compile(r"<(\d+)>(?: ?,)? (?:and|with|plus|starting|start|beginning)(?: on| from| in)? <(\d+)>")
TOKEN = re.compile(r"<(\d+)>")

TOUCHES = re.compile(r"\b(?:deal|accept|agree\w*)\b")
LONGEST = 600  # characters of a sentence; bounds the work that a hostile text can cause
MOST_MENTIONS = 40

BENIGN_IF = re.compile(
    r"\bif (?:that|this|it) (?:works|is|sounds|suits|seems) ?(?:fine|okay|ok|good|right|fair|acceptable|all right)?"
    r"(?: (?:for|with|to|by) you)?\b|\bif (?:you (?:agree|like|want|accept|will|do not mind|are still interested"
    r"|are (?:okay|ok|happy|fine|good)(?: with (?:that|it|this))?)|i may|possible|not)(?=\s*[,.!?]|\s*$)"
    r"|\beven if\b"
)
CONDITION = re.compile(
    r"\b(?:if|unless|as long as|so long as|provided|providing|on (?:the |one )?condition|assuming|only when"
    r"|once you|until"
    r"|subject to|contingent|in exchange|in return|whether|but only|only (?:with|for|in|on)"
    r"|when (?:you|we|hell|pigs|i get))\b"
)
MUTUAL_IF = re.compile(
    r"\bif (?:you|we) (?:can |could |will |would |are able to |are willing to )?(?:\w+ )?(?:do|go|make|come|drop|lower"
    r"|raise|meet|accept|take|agree|pay|give|offer|say|let|sell|settle|start|begin|join|manage|get)\b[^,]*<\d+>"
    r"|\b(?:if i|as long as (?:i|you|we)|provided (?:that )?(?:i|you|we)) (?:can |could |may )?(?:start|begin"
    r"|join)\b[^,]*<\d+>"
    r"|\bin (?:exchange|return) for (?:a |an )?(?:start\w*|beginning|joining|salary)\b[^,]*<\d+>"
)
CONDITION_PART = re.compile(r"\b(?:if|as long as|provided|in (?:exchange|return) for) [^,]*")
UP_TO = re.compile(r"\byou (go|come|move|raise|increase|bump|get)( it| the \w+)? (?:up|down) to\b")
SARCASM = re.compile(
    r"\b(?:yeah,? right|as if|in your dreams|dream on|very funny|ha ?ha\w*|lol|rofl|kidding|joking|joke|sarcas\w*"
    r"|just imagine|sure thing,? and|oh sure|when pigs|deal of the century|laughing|hilarious|not)\s*$"
    r"|\b(?:yeah,? right|in your dreams|dream on|very funny|haha\w*|lol|kidding|joking|a joke|sarcas\w*|when pigs"
    r"|deal of the century|oh sure|hilarious|over my dead body|opposite day)\b|/s\b"
)
RANGE = re.compile(r"<(\d+)> ?(?:to|or|-|/|and/or|through|versus|maybe|perhaps) ?<(\d+)>|between <(\d+)> and <(\d+)>")
LIMIT = re.compile(
    r"<\d+> ?(?:ish|or so|or thereabouts|or less|or more|plus|\+|at most|at least|maximum|max|minimum|min|tops|or lower"
    r"|or higher|or better|range|something|as an?|down|deposit|up ?front|per (?!year|annum)\w+"
    r"|in (?:\w+ )?instal?lments"
    r"|for (?:half|part|one|a part)|million|billion|at best|back)\b|\bany (?:day|date|time|salary|amount)\b"
    r"|(?<!how )(?<!what )\babout <\d+>"
    r"|\b(?:around|roughly|approximately|approx|somewhere|near|nearer|closer|close to|something like|at most|at least"
    r"|up to|under|below|beneath|above|over|beyond|more than|less than|higher than|lower than|better than"
    r"|cheaper than|north of|south of"
    r"|half|twice|double|triple|third|quarter|(?:day|week|month)s? (?:after|before|but|following)"
    r"|maximum of|minimum of|max|min|a bit|almost|nearly|circa|upwards of|in the|past|exceed)"
    r"(?: (?:of|to|than|the|like|a)){0,3} <\d+>"
)
PAST = re.compile(
    r"\b(?:paid|bought|sold (?!for <)|was|were|had|used to|went|costs?|offered|said|thought|asked|told|proposed|ago"
    r"|suggested|mentioned|originally|initially|last (?:week|month|year|time|summer)|yesterday|previously|earlier"
    r"|before"
    r"|seen|saw|would have|could have|should have|agreed to .*\b(?:with|another)|started (?:at|with)|turned down"
    r"|refused|rejected|did|got|wanted|expected|hoped|planned|read|heard|valued|appraised|been|started|began"
    r"|joined|earned|earns)\b"
)
THIRD = re.compile(
    r"\b(?:neighbou?rs?|brother|sister|colleague|cousin|uncle|aunt|mother|father|wife|husband|friend(?= (?:will"
    r"|would|is"
    r"|has|can|pays|offers|sells|takes))|boss|someone|somebody|anyone|anybody|everyone|nobody|another|other|others|else"
    r"|he|she|they|their|his|her|people|shops?|stores?|online|market|retail|new ones?|brand new|elsewhere|listed"
    r"|listing|list|sticker|catalogue|average|typically|usually|normally|worth|appraisal|insurance|shipping|delivery"
    r"|repairs?|rent|weighs?|percent|competitors?|rival|industry|current (?:job|employer|salary))\b"
)
YOURS = re.compile(
    r"\byou (?:want|said|offered|are asking|are offering|ask|mentioned|proposed|would like|need|named|quoted|mean|meant"
    r"|think|are at|started|insist|keep|would (?:pay|take|sell|accept|give|go))\b"
    r"|\byour (?:\w+ )?(?:price|offer|number|ask|figure|bid|demand|proposal|asking)\b|\bdid you\b"
    r"|\bthank(?:s| you) for\b|\bheard\b"
)
HYPOTHESIS = re.compile(
    r"\b(?:might|maybe|perhaps|possibly|suppose|supposing|imagine|hypothetical\w*|in theory|theoretically|what if"
    r"|were to"
    r"|wish|hope|hoping|ideally|thinking|think (?:about|it over|of)|tempted|depends|not sure|unsure|probably|someday"
    r"|one day|later|eventually|tomorrow|next (?:week|month)|consider|considering|wonder|wondering|dream|almost|nearly"
    r"|pretend|say for example|for example|for instance|budget|limit|aiming|target|goal|afford)\b"
)
ASKS_TO_CONSIDER = re.compile(r"\b(?:would|could|will|can) you (?:please |perhaps |possibly )?consider\b")
NEGATION = re.compile(
    r"\b(?:crazy|insane|mad|stupid|fool\w*|not|never|no|nor|neither|refuse|decline|hardly|without|nowhere"
    r"|rather than|instead of"
    r"|rather\b.*\bthan)\b"
)
DOUBT = re.compile(r"\bnot (?:so |quite |really |yet )?(?:sure|certain)\b|\bunsure\b")
IDIOM = re.compile(r"\b(?:why not|why do not we|no problem|no worries|not a problem|could not agree more|if not)\b")
REJECTION = re.compile(
    r"\b(?:no way|no deal|not a deal|absolutely not|certainly not|definitely not|not a chance|no chance"
    r"|out of the question"
    r"|forget (?:it|that|about it)|not interested|(?:have to|must|will|need to) (?:respectfully )?(?:pass|decline"
    r"|refuse"
    r"|reject)|i (?:decline|refuse|reject)|(?:far |way |much |a bit |a little |just |still )*too (?:low|high|much"
    r"|little"
    r"|steep|expensive|rich|early|late|far|cheap)|not (?:good |quite |nearly )?enough|unacceptable|not acceptable"
    r"|ridiculous|insult\w*|absurd|laughable|outrageous|deal ?breaker|not going to (?:work|happen|do)"
    r"|is (?:very |quite |so |rather |a bit |a little |pretty )?(?:low|high|expensive|steep|little|a lot)"
    r"|(?:can|do|will|would|could) not (?:possibly |really |quite )?(?:accept|agree|do (?:that|it|this)"
    r"|take (?:that|it|this)"
    r"|go for (?:that|it)|work|live with)|does not (?:really |quite )?work|never (?:agree|accept)"
    r"|must be (?:joking|kidding)"
    r"|in your dreams|dream on|walk(?:ing)? away|not (?:be )?happy with that|not fair|does not suit)\b"
    r"|^\s*(?:no|nope|nah|never|no thanks|no thank you|no no|oh no|sorry no|not)\s*$"
)
REFUSING = (
    *(
        "no",
        "never",
        "nah",
        "too ",
        "low",
        "high",
        "forget",
        "pass",
        "declin",
        "refus",
        "reject",
        "accept",
        "lot",
        "little",
    ),
    *(
        "ridic",
        "insult",
        "absurd",
        "laugh",
        "outrag",
        "breaker",
        "expens",
        "steep",
        "joking",
        "kidding",
        "dream",
        "walk",
    ),
)
"""A text that :data:`REJECTION` finds anything in has one of these in it."""
WITHDRAWAL = re.compile(
    r"\bi (?:now |hereby |will |must |have to |want to |would like to )?(?:withdraw|retract|rescind|revoke|take back)\b"
    r"|\btake (?:that|it|my offer|my words?) back\b|\bmy (?:\w+ )?(?:offer|price|bid|proposal) is (?:off"
    r"|withdrawn|no longer"
    r"|void)\b|\bscratch that\b|\bforget (?:what i|my (?:offer|price))|\bmy offer no longer\b|\bchanged my mind\b"
)
OFFER = re.compile(
    r"\bi (?:\w+ )?(?:pay|give|do|go|offer|take|accept|let|sell|part|come|meet|settle|manage|stretch|spend|agree|say|be"
    r"|propose|suggest|bid|ask|need|want|call|put|start|begin|join|counter|like|hand|drop|move|lower|raise|make)\b"
    r"|\b(?:i|we) (?:am|are|would be|will be|can be) (?:\w+ )?(?:offering|asking|willing|prepared|ready|happy"
    r"|proposing|able"
    r"|okay|ok|fine|good|glad|content|suggesting|looking|comfortable|settling)\b"
    r"|\b(?:we|you) (?:can |could |will |would |may )?(?:\w+ )?(?:do|go|settle|meet|make|agree|offer|have|say"
    r"|give|pay|take"
    r"|call|start|get|propose|set|put|bring)\b"
    r"|\b(?:my|our|the|a) (?:\w+ ){0,4}?(?:offer|price|counter\w*|bid|proposal|number|ask|package|salary|start"
    r"|suggestion"
    r"|answer|compromise|start date|starting date)\b"
    r"|\blet us (?:say|do|settle|meet|make|agree|go|call|split|close|start|set|try)\b|\bmake it\b|\bcall it\b"
    r"|\b(?:it|this|that) is yours\b|\byours for\b|\btake it for\b|\bgive me\b|\b(?:how"
    r"|what) about\b|\bsold (?:for|at)\b"
    r"|\b(?:works?|would work|is fine|is okay|is ok|is fair|would be|sounds?|suits?|is my|it is|is what|is acceptable"
    r"|and we have|gets it|buys it)\b|\b(?:shall we|why not|here is|deal (?:at|for)|i would|i can|i could|i will)\b"
)
PROPOSING_QUESTION = re.compile(
    r"\b(?:how|what) about\b|\b(?:would|could|can|will) (?:you|we|i) (?:\w+ )?(?:take|accept|consider|do|go|agree"
    r"|be|settle"
    r"|pay|give|sell|let|make|say|meet|offer|come|drop|start|have|get|buy|live|manage|lower|raise|call)\b"
    r"|\bshall we\b|\b(?:does|would|will|do) (?:\w+ ){0,4}?<\d+>(?: [\w<>]+){0,6}? (?:work|sound|suit|do|be)\b"
    r"|\b(?:is|are|would) (?:\w+ ){0,3}?<\d+>(?: [\w<>]+){0,6}? (?:ok|okay|fine|acceptable|fair|good|possible|alright"
    r"|all right"
    r"|doable|work)\b|\bdo we have (?:a deal|an agreement)\b|\bdeal (?:at|for|on)\b|\bare you (?:ok|okay|happy"
    r"|fine|willing"
    r"|open|good|alright)\b|\bwhat (?:do|would|will) you say\b|\bhow (?:does|would|do)\b|\bwhy (?:not|do not we)\b"
    r"|\bdo you (?:agree|accept)\b|\bis it a deal\b|\bcan (?:we|you|i)\b"
)
PROBING_QUESTION = re.compile(
    r"\b(?:should|why (?!not|do not we)|who|when|where|which|really|is it true|is that your|final)\b"
)

SUSPECT = re.compile(
    rf"{CONDITION.pattern}|{HYPOTHESIS.pattern}|{NEGATION.pattern}|{SARCASM.pattern}"
    r"|\b(?:would|could|pretend\w*|play|opposite|another (?:life|world)|say|says|said|only)\b|[^\x00-\x7f]"
)
"""What in a sentence before an assent may turn it into something else."""
SPENT = re.compile(
    r"\b(?:paid|bought|sold|costs?|spent|earn(?:ed|s)?|listed|valued|appraised)\b|\byou (?:first |just )?\w+ed\b"
)
CLOSING = re.compile(
    r"(?:(?:final|last|best|cash|my|offer|price|firm|no|less|more|take it or leave it|your call|your turn|fair|deal"
    r"|please|all in|interested|think about it|think it over)(?: |$))+"
)
"""Short words that close an offer and do not spoil it."""
OFFERING = re.compile(
    r"\b(?:can|could|do|take|give|let|sell|pay|go|get|want|say|make|call|offer\w*|propose|proposal|suggest\w*|price"
    r"|salary|start\w*|date|first|day|begin\w*|firm|final|dollars?|flat|even|cash|year|annual\w*|then|please|there"
    r"|here)\b"
)
"""Words of plain offers, besides values and courtesies."""
TENTATIVE = re.compile(r"\bfor (?:now|today)\b|\bi would (?:\w+ )?(?:accept|take|agree)\b|\bdone with\b")
OF_PAY = re.compile(r"\b(?:salary|pay)\b")
OF_START = re.compile(r"\b(?:start|starting|start date|date|begin|beginning)\b")

FILL = (
    r"(?:ok|okay|yes|yeah|yep|yup|sure|alright|all right|fine|great|good|perfect|excellent|wonderful|fantastic"
    r"|well|then"
    r"|now|right|very|oh|ah|hmm|thanks|thank you|in that case|please|honestly|look|listen|so|really|fair enough"
    r"|sounds good"
    r"|absolutely|of course|certainly|gladly|happily|you know what|splendid|lovely|brilliant|super|agreed|deal|done|too"
    r"|my friend|friend|sir|madam|indeed|hereby|let us|just|for sure|with pleasure|to me|that is|as well|i think|today)"
)
OBJECT = (
    r"(?:it|that|this|those|these|them|(?:your|the|this|that|those|these)(?: \w+)? (?:offer|price|proposal|terms"
    r"|counter ?offer|deal|package|conditions|figure|number|arrangement|compromise|amount))"
)
ADVERB = r"(?:(?:do|will|can|shall|hereby|gladly|happily|also|therefore|fully|definitely|certainly|just) )"
CORE = (
    r"(?:(?:it is |that is |we have |we have got |you have |you have got |you got |we got |you have just got )?"
    r"(?:yourself )?"
    rf"(?:a |an )?(?:done )?(?:deal|agreement)|(?:we are |i am )?agreed|accepted|sold|done|i {ADVERB}{{0,2}}accept(?: "
    + OBJECT
    + rf")?|i {ADVERB}{{0,2}}agree to "
    + OBJECT
    + rf"|i (?:will|can|am going to) {ADVERB}?(?:take|accept|go with|live with|do|agree to) "
    + OBJECT
    + r"|i am (?:happy|glad|pleased|fine|willing|ready|delighted|okay|ok|good) (?:with|to (?:accept|take|agree to)) "
    + OBJECT
    + r"|(?:(?!it\b)"
    + OBJECT
    + r" )?(?:works|would work|will work)(?: (?:well|fine|perfectly|great|nicely))?(?: for (?:me|us))?"
    r"|it (?:works|would work|will work)(?: (?:well|fine|perfectly|great|nicely))? for (?:me|us)|"
    + OBJECT
    + r" (?:is|are) (?:acceptable|accepted|fine|okay|ok|good)(?: (?:by|with|for|to) (?:me|us))?|you are on|you have my"
    r" (?:word|hand|agreement)|let us shake(?: hands)?(?: on (?:it|that))?|shake on (?:it|that)|let us do (?:it|that)"
    r"|(?:it|the \w+) is yours|consider it (?:done|sold)|count me in|i am in|fine by me"
    r"|let us close(?: on)? (?:it|that)"
    r"|let us (?:make|call) it a deal|works for me|i (?:will )?gladly accept|we can do (?:that|it))"
)
TAIL = (
    r"(?:then|with (?:that|you|pleasure)|to that|at|for|on|of|with|a|the|price|salary|pay|start|starting"
    r"|start date|that"
    r"|you|we|my friend|everything|it|to|me|us|now|today|<\d+>|in total|cash|as (?:agreed|offered|proposed)"
    r"|your offer"
    r"|date|begin|beginning|and|by|from|terms|these|those|on board|happily|gladly)"
)
END = rf"(?: (?:{FILL}|{TAIL})(?!\w))*+"  # possessive: the lists overlap, and nothing is gained by trying again
ASSENT = re.compile(rf"(?!deal with it\b)(?:{FILL} )*{CORE}{END}")
LINK = (
    r"(?:(?:your|the|this|that|my|an?|of|at|for|with|on|final|last|latest|offer|price|deal|proposal|counteroffer"
    r"|salary|start|terms) )"
)
ASSENT_TERMS = re.compile(
    rf"(?:{FILL} )*(?:<\d+> it is|(?:{LINK}|<\d+> )*<\d+>(?: (?:{TAIL})(?!\w))*? "
    r"(?:works|is (?:fine|acceptable|okay|ok|accepted|agreed|a deal))"
    rf"|(?:i {ADVERB}{{0,2}}|(?:i am |i would be )?(?:happy|glad|pleased|willing) to )(?:accept|take"
    rf"|agree to) (?:it )?"
    rf"(?:{LINK}{{0,5}}<\d+>){{1,2}}){END}"
)
ASSURED = re.compile(
    r"\b(?:ok|okay|yes|yeah|yep|sure|alright|all right|fine|agreed|very well|good|great|perfect|then|you win)\b"
)
OPENER = re.compile(r"(?:so |and |well |ok |okay )*(?:how|what|would|could|can|will|shall|do|does|is|are)\b")
WEAK = re.compile(rf"{FILL}(?: {FILL})*|i agree|i see|fair point")
BARE = re.compile(
    r"(?:<\d+>|with|a|an|the|at|for|on|in|of|to|start|starts|starting|salary|pay|price|date|total|cash|final"
    r"|offer|flat|even"
    r"|exactly|just"
    r"|only|then|please|ok|okay|well|now|yes|fine|good|great|right|alright|sure|hmm|by|from|firm|as|plus"
    r"|annual\w*|base|per"
    r"|year|a year|all in|take it or leave it|my|last|best|counteroffer|no|less|and|is|first|day|one|of work|beginning"
    r"|would|it|joining|you|me|here|there|maximum pay)(?: |$)"
)
