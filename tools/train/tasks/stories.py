"""Short stories in a small vocabulary, and the prose that hides facts in long texts."""

from . import pools
from .item import Item, ask
from .source import Source

TRAITS = "small brave shy kind clever young old curious proud gentle lazy cheerful quiet hungry".split()
GOALS = [("a lost key", "the key"), ("a round red ball", "the ball"), ("a warm coat", "the coat"),
         ("a silver bell", "the bell"), ("a map of the hills", "the map"), ("a sweet cake", "the cake"),
         ("an old lantern", "the lantern"), ("a blue kite", "the kite"), ("a little boat", "the boat"),
         ("a bag of seeds", "the seeds"), ("a golden leaf", "the leaf"), ("a soft blanket", "the blanket"),
         ("a wooden flute", "the flute"), ("a letter from far away", "the letter"),
         ("a shiny stone", "the stone")]
OPENINGS = ["Once there was a {trait} {animal} named {name} who lived in a {place}.",
            "In a {place} far away lived a {trait} {animal} called {name}.",
            "{name} was a {trait} {animal}. {Name} lived near a {place}.",
            "Long ago, a {trait} {animal} named {name} had a home by the {place}.",
            "There once was a {animal} named {name}. Everyone in the {place} knew that {name} was {trait}."]
HABITS = ["Every morning {name} went for a walk and said hello to the birds.",
          "Each day {name} swept the floor and made a cup of tea.",
          "{Name} liked to sit in the sun and count the clouds.",
          "In the evening {name} used to sing by the window.",
          "{Name} loved the smell of bread and the sound of rain.",
          "Most of all {name} liked to hear stories by the fire.",
          "On warm days {name} swam in the pond.",
          "Nobody could whistle as well as {name}.",
          "{Name} had a little house with a green door.",
          "At night {name} looked at the stars for a long time."]
AIMS = ["One day {name} heard about {goal} and could think of nothing else.",
          "But there was one thing {name} wanted more than anything: {goal}.",
          "One morning {name} dreamed of {goal} and woke up with a smile.",
          "Then, on a windy day, {name} lost something dear: {goal}.",
          "One spring {name} made up {his} mind to find {goal}."]
SETOUTS = ["So {name} packed some bread and set out along the path.",
           "{Name} put on a hat, closed the door and began to walk.",
           "After breakfast {name} crossed the bridge and did not look back.",
           "With a small bag and a big heart, {name} went to look for it.",
           "\"I will be back before dark,\" said {name}, and off {he} went."]
TROUBLES = ["Soon dark clouds came and it began to rain hard.",
            "The path was steep, and the stones were wet.",
            "At the river the bridge was broken.",
            "In the wood all the trees looked the same, and {name} was lost.",
            "A cold wind blew, and {name} felt very tired.",
            "A tall gate stood in the way, and it was locked.",
            "The snow was deep, and every step was hard.",
            "Night fell early, and strange sounds came from the bushes.",
            "A deep hole opened in the road, and {name} could not jump over it.",
            "Thick fog came down, and {name} could not see {his} own feet."]
FEELINGS = ["{Name} wanted to cry, but did not give up.", "For a moment {name} thought of going home.",
            "{Name} sat down and took a deep breath.", "\"What shall I do now?\" {name} asked.",
            "{Name} was afraid, but {he} tried to be brave."]
HELPS = ["Just then a {trait2} {animal2} named {name2} came by.",
         "Then {name} met {name2}, a {trait2} {animal2}.",
         "Behind a tree stood a {trait2} {animal2}. \"I am {name2},\" it said.",
         "All at once a voice said hello. It was {name2}, the {animal2}.",
         "A {trait2} {animal2} looked out of a window. {Name2} was {his2} name."]
OFFERS = ["\"You look sad,\" said {name2}. \"Tell me what is wrong.\"",
          "\"Can I help you?\" asked {name2}.", "\"Why are you out here all alone?\" asked {name2}.",
          "{Name2} listened to the whole tale and nodded.",
          "\"Two can do more than one,\" said {name2} with a smile."]
ANSWERS = ["\"I am looking for {goal},\" said {name}.", "{Name} told {name2} about {goal}.",
           "\"I must find {goal}, but the way is hard,\" {name} answered.",
           "So {name} spoke of {goal} and of the long way.",
           "\"I came all this way for {goal},\" said {name} softly."]
WORKS = ["Together they built a small raft out of branches.",
         "They held hands and went on, step by step.",
         "{Name2} knew a secret path behind the old mill.",
         "{Name2} had a rope, and with it they climbed up the rocks.",
         "They shared the last piece of bread and felt strong again.",
         "They sang a song so that they would not be afraid.",
         "{Name2} lit a lamp, and the way was clear.",
         "They asked the wise old owl, who knew every stone of the land.",
         "They pushed and pulled until the way was free.",
         "They waited until the moon came out and then walked on."]
FINDS = ["And there, under a bush, was {thing}!", "At last they saw {thing} on top of a hill.",
         "In a hollow tree they found {thing}.", "Right in front of them lay {thing}.",
         "Behind the last door {name} found {thing} at last."]
JOYS = ["{Name} laughed and jumped for joy.", "{Name} was so happy that {he} danced.",
        "\"We did it!\" cried {name2}.", "{Name} gave {name2} a big hug.",
        "Their eyes shone like stars."]
TWISTS = ["But then {name} saw that {name2} had nothing at all.",
          "On the way home {name} became quiet and thought about {name2}.",
          "\"It is too much for one,\" said {name}, and shared it with {name2}.",
          "\"Without you I would still be out there,\" {name} said to {name2}.",
          "{Name} asked {name2} to come home with {him}."]
ENDS = ["From that day on the two were best friends.", "And they lived happily in the {place} for many years.",
        "That night they drank warm milk and told the tale to everyone.",
        "And if you walk by the {place}, you may still hear them laugh.",
        "They never forgot that long day."]
MORALS = ["A good friend is worth more than gold.", "It is never too late to ask for help.",
          "Being brave does not mean having no fear.", "What we share makes us rich.",
          "A long way is short with a friend."]


def story(s: Source, name: str, animal: str, place: str, trait: str = "", wide: bool = False) -> str:
    """`wide`: every list whole, for the text of a story (its prompt is what tells the sides apart)."""
    pick = s.any if wide else s.of
    other = s.any([a for a in pools.ANIMAL if a != animal])
    name2 = pick([n for n in pools.FIRST if n != name])
    he = "she" if name[-1] in "aehy" else "he"
    his, him = ("his", "him") if he == "he" else ("her", "her")
    goal, thing = pick(GOALS)
    words = dict(name=name, Name=name, animal=animal, place=place, trait=trait or pick(TRAITS), goal=goal,
                 thing=thing, name2=name2, Name2=name2, animal2=other, trait2=pick(TRAITS), he=he,
                 his=his, him=him, his2="her" if name2[-1] in "aehy" else "his")
    plan = [[OPENINGS], [HABITS] * s.number(1, 2) + [AIMS], [SETOUTS, TROUBLES, FEELINGS],
            [HELPS, OFFERS, ANSWERS], [WORKS] * s.number(1, 2) + [FINDS, JOYS], [TWISTS, ENDS]]
    if s.chance(0.4):
        plan.insert(3, [TROUBLES])
    if s.chance(0.5):
        plan[-1].append(MORALS)
    used: set[str] = set()
    paragraphs = []
    for part in plan:
        lines = []
        for pool in part:
            line = pick([x for x in pool if x not in used] or pool)
            used.add(line)
            lines.append(line.format(**words))
        paragraphs.append(" ".join(lines))
    return "\n\n".join(paragraphs)


REQUESTS = ["Tell me a story about a {animal} named {name} in a {place}.",
            "Write a short story about {name} the {animal}, who lives in a {place}.",
            "I would like a story about a {animal} called {name} and a {place}.",
            "Can you tell a story with a {animal} named {name}? It should be set in a {place}.",
            "Please tell a tale of {name}, a {animal} from the {place}.",
            "Write a story about a {animal} named {name}.", "Tell me a story about {name} the {animal}.",
            "Make up a story about a {animal} called {name}.",
            "A story about {name}, a {animal} in a {place}, please.",
            "Could you write me a little story about a {animal} called {name}?",
            "Tell me a story about a {animal}.", "Tell me a short story.", "Write a story for children.",
            "Tell a story about a {animal} and a {place}.",
            "I want to hear a story about a {animal} named {name} that lives near a {place}."]
# More of training's requests: ASKING, a KIND and ABOUT, each of any other.
ASKING = """Tell|Tell me|Write|Write me|Write down|Make up|Invent|Think of|Give me|Give us|Let me hear|Read me|Begin
Please write|Please tell me|Please make up|Please give me|Please invent|Can you write|Can you tell me|Can you make up
Could you tell me|Could you make up|Could you invent|Would you write|Would you tell us|Will you tell me|I want|I need
I would love|I'd like|I want to read|I wish to hear|I should like to have|We want|We need|My children want
My daughter would like|My son asks for|How about|What about|May I have|Do you know|Do you have|Have you got|Now tell
Now write|Go on and tell|Start|Compose|Create|Produce|Time for|One more time:|It is late:|Let us have""".replace(
    "\n", "|").split("|")
KINDS = """story|story|tale|tale|tale|fairy tale|fable|legend|short story|short tale|little story|little tale|nice story
bedtime story|children's story|animal story|folk tale|long story|simple story|happy story|sad story
small adventure|yarn|good tale|tale for children|story for children|story for the night|story with a happy end
tale with a happy end|story in easy words|tale in simple words|new tale|new story""".replace(
    "\n", "|").split("|")
ABOUT = """about {name} the {animal}|about a {animal}|about the {animal} {name}|of {name} the {animal}|of a {animal}
of a {animal} named {name}|of a {animal} called {name} in a {place}|of the {animal} {name} and the {place}
about a {animal} with the name {name}|about {name}, the {animal} of the {place}|about a {trait} {animal}
about {name}, a {trait} {animal}|of {name}, the {trait} {animal}|with a {animal} called {name} in it
with {name} the {animal}|in which a {animal} named {name} lives by a {place}|about a {place} and a {animal}
about a {animal} in a {place}|about the {animal} of the {place}|set in a {place}|from the {place}|from a {place}
that happens in a {place}|where {name} is a {animal}|for {name}|about a {animal} from a {place}
of a {animal} that came from the {place}|about {name} from the {place}, who is a {animal}|about animals
|about {name}, who is a {animal}|of {name}, who is a {trait} {animal}|whose hero is a {animal}
about a {animal} and its friend|with a {animal} and a {place}|of the {place} and of {name} the {animal}
""".replace("\n", "|").split("|")
ENDINGS = [".", ".", ".", "", "!", ", please.", "?"]


def _request(s: Source) -> str:
    kind, about = s.any(KINDS), s.any(ABOUT)
    if s.chance(0.15):
        kind = f"{s.word('short').lower()} {kind}"
    ending, shape = s.any(ENDINGS), s.r.random()
    if shape < 0.75:
        return f"{s.any(ASKING)} a {kind} {about}".rstrip() + ending
    if shape < 0.85:
        return f"A {kind} {about}".rstrip() + ending
    if shape < 0.95:
        return f"{about.capitalize() or 'Now'}: a {kind}{ending}" if about[:1] != "{" else f"A {kind}{ending}"
    return f"{s.words(1, 3).capitalize()}: {kind} {about}".rstrip() + ending


def story_item(s: Source) -> Item:
    name = s.of(pools.FIRST) if s.chance(0.85) else s.made_up()
    animal, place = s.any(pools.ANIMAL), s.any(pools.PLACE)
    request = _request(s) if not s.test and s.chance(0.8) else s.of(REQUESTS)
    trait = s.any(TRAITS)
    question = request.format(name=name, animal=animal, place=place, trait=trait)
    return ask("story", question, story(s, name, animal, place, trait, wide=True), check="")


def prose(s: Source, paragraphs: int) -> list[str]:
    """Paragraphs of story text, as filler."""
    parts: list[str] = []
    while len(parts) < paragraphs:
        name = s.made_up() if s.chance(0.5) else s.of(pools.FIRST)
        parts += story(s, name, s.any(pools.ANIMAL), s.any(pools.PLACE), wide=True).split("\n\n")
    return parts[:paragraphs]
