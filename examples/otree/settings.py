"""An oTree project with one app: a person meets a policy, or another person."""

from os import environ

SESSION_CONFIG_DEFAULTS = {
    "real_world_currency_per_point": 0.10,
    "participation_fee": 2.00,
    "doc": "tasks: as in `sotopia rollout --tasks`; partner: the policy in seats without people; people: per group",
    "tasks": "bargaining:n=20",
    "partner": "conceder",
    "people": 1,
    "max_turns": 20,
    "minutes": 20,
}
SESSION_CONFIGS = [
    {"name": "against_a_policy", "app_sequence": ["conversation"], "num_demo_participants": 1},
    {"name": "two_people", "app_sequence": ["conversation"], "num_demo_participants": 2, "people": 2},
]
ROOMS = [{"name": "study", "display_name": "Study"}]
PARTICIPANT_FIELDS: list[str] = []
SESSION_FIELDS: list[str] = []
LANGUAGE_CODE = "en"
REAL_WORLD_CURRENCY_CODE = "USD"
USE_POINTS = True
POINTS_DECIMAL_PLACES = 1
ADMIN_USERNAME = "admin"
ADMIN_PASSWORD = environ.get("OTREE_ADMIN_PASSWORD")
SECRET_KEY = environ.get("OTREE_SECRET_KEY", "only for tests on this machine")
DEMO_PAGE_INTRO_HTML = ""
