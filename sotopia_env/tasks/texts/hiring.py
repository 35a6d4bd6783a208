"""The surface texts of the ``hiring`` family: companies, positions, settings, goals, and ways to offer and accept."""

from __future__ import annotations

_MONTHS = "January February March April May June July August September October November December"
MONTHS = tuple(_MONTHS.split())

COMPANIES = (
    "a maker of hearing aids",
    "a regional newspaper",
    "a chain of climbing halls",
    "a software house for hospitals",
    "a seed bank",
    "a shipyard for ferries",
    "a publisher of school books",
    "a wind farm operator",
    "a company that restores organs",
    "a start-up for reusable packaging",
    "a cooperative dairy",
    "a city's public transport company",
    "an architecture office",
    "a laboratory for water analysis",
    "a museum foundation",
    "a studio for board games",
)

POSITIONS = (
    "head of logistics",
    "data engineer",
    "senior editor",
    "product designer",
    "quality manager",
    "finance lead",
    "research scientist",
    "software developer",
    "head of customer service",
    "project manager",
    "procurement specialist",
    "communications officer",
    "safety engineer",
    "training coordinator",
)

# Nobody is named here: the same scenario may be played by other people, or with the people exchanged.
CONTEXTS = (
    "the manager hires for {company} and wants the candidate as {position}. What remains to be settled is the yearly "
    "salary "
    "({salaries}) and the start date ({dates}).",
    "After three interviews the candidate is the first choice for the post of {position} at {company}. the manager and "
    "the candidate meet to settle salary (one of {salaries}) and start date (one of {dates}).",
    "In a quiet meeting room of {company}, the manager and the candidate go through the contract for the position of "
    "{position}. Two lines are still blank: salary ({salaries}) and first day of work ({dates}).",
    "the manager calls the candidate with good news about the position of {position} at {company}. Open questions: the "
    "salary, {salaries}, and the start date, {dates}.",
    "{company} has a vacancy: {position}. the manager leads the talks, the candidate has applied. The personnel "
    "department "
    "allows these salaries: {salaries}; and these start dates: {dates}.",
    "Over lunch near the offices of {company}, the manager and the candidate talk about the last details of a "
    "contract as "
    "{position}. The salary can be {salaries}; the first day can be {dates}.",
    "A video call between the manager, who recruits for {company}, and the candidate, who would like to become "
    "{position} "
    "there. They have to choose a salary among {salaries} and a start date among {dates}.",
    "At the end of a trade fair the manager of {company} and the candidate sit down to negotiate a contract as "
    "{position}. "
    "On the form there are boxes for the salary ({salaries}) and for the start date ({dates}).",
    "the candidate has been offered a job as {position} by {company}. the manager may still negotiate salary "
    "({salaries}) and "
    "start date ({dates}).",
)

MANAGER_GOALS = (
    "Win the candidate for the company on terms that score as many points for you as possible.",
    "Agree on salary and start date so that your points are high; the tables tell what each option is worth to you.",
    "Close the contract on the best terms for the company, measured by your points.",
    "Hire this person, and bring home as many points as you can.",
    "Negotiate both open lines of the contract in the company's favour, as your points count it.",
    "Reach a contract that gives you a high total of points.",
    "Fill the position on terms that your superiors will like: the more points, the better.",
    "Find an agreement on salary and start date and get as many of your points as possible out of it.",
)

CANDIDATE_GOALS = (
    "Get the job on terms that score as many points for you as possible.",
    "Agree on salary and start date so that your points are high; the tables tell what each option is worth to you.",
    "Sign a contract on the best terms for you, measured by your points.",
    "Be hired, and bring home as many points as you can.",
    "Negotiate both open lines of the contract in your favour, as your points count it.",
    "Reach a contract that gives you a high total of points.",
    "Start the new job on terms that you would be proud of: the more points, the better.",
    "Find an agreement on salary and start date and get as many of your points as possible out of it.",
)

NO_AGREEMENT = (
    "Without an agreement you are left with what is worth {points} points to you, so accept nothing that gives "
    "you less.",
    "Your alternative to an agreement is worth {points} points.",
    "If the talks fail, you end with {points} points.",
    "You have another option in hand that is worth {points} points to you.",
)

HINTS = (
    "The contract is agreed when one of you accepts a salary and a start date that the other has offered.",
    "The other side may care about other things than you do; asking can pay off.",
    "An offer names both, salary and start date.",
    "What you say of a salary binds nobody; an offer does, once it is accepted.",
)

OFFERS = (
    "How about {salary} with a start on {start}?",
    "I propose {salary} and a start date of {start}.",
    "My offer is {salary}, starting on {start}.",
    "Could we agree on {salary} and {start}?",
    "Let's say {salary}, with {start} as the start date.",
    "I could agree to a salary of {salary} and a start on {start}.",
    "What would you say to {salary} and a start on {start}?",
    "Here is my suggestion: {salary}, start on {start}.",
    "I would be happy with {salary} and a first day of work on {start}.",
    "Would {salary} and {start} be acceptable to you?",
)
"""Words that go with an offer."""

ACCEPTS = (
    "Agreed: {salary} and a start on {start}.",
    "I accept {salary} and {start}.",
    "Deal, {salary} with a start on {start}.",
    "That works for me. {salary} and {start}, then.",
    "I accept your offer of {salary} with a start on {start}.",
    "Good, we have a deal: {salary}, starting on {start}.",
    "We have a deal at {salary}, start on {start}. Thank you!",
)
"""Words that accept an offer."""

REJECTIONS = (
    "{salary} with a start on {start} will not do for me.",
    "I am afraid I cannot agree to {salary} and {start}.",
    "No, not {salary} together with {start}.",
)
WITHDRAWALS = (
    "I take back what I offered, {salary} with a start on {start}.",
    "My offer of {salary} and {start} no longer stands.",
)
