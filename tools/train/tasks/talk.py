"""Small talk, self-description, small facts, and system prompts that are obeyed."""

from . import pools, records
from .amounts import in_words
from .item import Item, ask
from .source import Source

SELF = ("I am Talon's small bundled model. I have 14 million parameters, and I am good at small jobs: "
        "JSON, tools, tables, lists, sums and short stories.")
SKILLS = ("I can extract JSON, call tools, answer questions about a text, convert units and dates, sort lists, "
          "write simple SQL and shell commands, and tell short stories.")
TALK = [
    (["Hello!", "Hi!", "Hello.", "Hey", "Hello there!", "Hi there", "Greetings!", "Hello, Talon!", "Hey there",
      "Hi, Talon."], "Hello! How can I help you?",
     ["Hey!", "Hello again.", "Hi, how are things?", "Good day!", "Hello, friend.", "Hiya",
      "Hello, is anybody there?"]),
    (["Good morning!", "Good morning.", "Morning!", "Good morning, Talon.", "Good morning to you."],
     "Good morning! How can I help you?",
     ["Good morning, friend.", "A good morning!", "Morning, Talon."]),
    (["How are you?", "How are you today?", "How do you do?", "How is it going?", "How are you doing?"],
     "I am fine, thank you. How can I help you?",
     ["How are things?", "How do you feel?", "Are you well?", "How are you, Talon?", "Are you fine?"]),
    (["Who are you?", "What are you?", "Tell me about yourself.", "What is your name?", "Who am I talking to?",
      "Introduce yourself.", "Please tell me who you are.", "Are you a model?", "What model are you?",
      "Can you tell me who you are?"], SELF,
     ["Describe yourself.", "What kind of model are you?", "How big are you?",
      "How many parameters do you have?", "What is your purpose?", "Say who you are.", "Who is there?",
      "Who is speaking?",
      "What are you, exactly?", "Is this a language model?"]),
    (["What can you do?", "What are you good at?", "How can you help me?", "What are your skills?",
      "What can you do for me?", "Help", "What should I ask you?", "What do you know?", "List your skills.",
      "Tell me what you can do."], SKILLS,
     ["What do you do well?", "What jobs can you do?", "What can I ask you?", "Which tasks can you do?",
      "Tell me what you are good at.", "What are you able to do?", "Show me what you can do.", "How can I use you?",
      "Name your skills.", "What skills do you have?", "What are you capable of?", "Tell me your skills.",
      "List what you can do.", "What is on your list of skills?"]),
    (["Thank you!", "Thanks.", "Thanks a lot!", "Thank you very much.", "Many thanks!"], "You are welcome!",
     ["Thank you.", "Thanks!", "Thank you so much!", "Thanks, Talon.", "That was helpful, thank you.", "Thx",
      "Thanks, that is all.", "Great, thanks!", "Thanks very much.", "I thank you.", "Much obliged!",
      "My thanks!", "So many thanks."]),
    (["Goodbye!", "Bye.", "See you later.", "Good night!", "Bye bye!"], "Goodbye! Have a nice day.",
     ["Goodbye!", "Bye!", "Until tomorrow.", "I have to go now.", "Farewell!", "So long!", "See you tomorrow.",
      "See you!"]),
    (["What is Talon?", "Tell me about Talon.", "What does Talon do?", "Explain Talon.",
      "Can you tell me what Talon is?"],
     "Talon is an engine that runs language models fast: a small draft guesses the next words, and the model "
     "checks several at once."),
    (["What is speculative decoding?", "Explain speculative decoding.", "How does speculative decoding work?",
      "Tell me about speculative decoding.", "Can you explain speculative decoding?"],
     "A small draft guesses a few words ahead, and the model checks them all in one pass. Right guesses are kept, "
     "so the text is the same but comes faster."),
    (["Tell me a joke.", "Do you know a joke?", "Make me laugh.", "A joke, please.", "Can you tell me a joke?"],
     "Why did the token cross the tree? To be accepted on the other side."),
    (["Are you a human?", "Are you a person?", "Are you real?", "Am I talking to a human?", "Are you human?"],
     "No, I am a small language model."),
]


def fact(s: Source) -> tuple[str, str, str]:
    """A question, the short answer, and the answer as a sentence."""
    kind = s.number(0, 4)
    if kind == 0:
        country, capital = s.any(pools.COUNTRY_CAPITAL)
        return s.of([f"What is the capital of {country}?", f"Which city is the capital of {country}?",
                     f"Name the capital of {country}.", f"Tell me the capital of {country}.",
                     f"Do you know the capital of {country}?"],
                    [f"The capital of {country}?", f"{country}'s capital is?", f"I forgot the capital of {country}.",
                     f"Can you name the capital of {country}?", f"Say the capital of {country}."]), capital, \
            f"The capital of {country} is {capital}."
    if kind == 1:
        word, other = s.any(pools.OPPOSITE)
        return s.of([f"What is the opposite of {word}?", f"Give the opposite of {word}.",
                     f"Name the opposite of {word}.", f"Which word is the opposite of {word}?",
                     f"Tell me the opposite of {word}."],
                    [f"The opposite of {word}?", f"Opposite of {word}, please.",
                     f"Do you know the opposite of {word}?", f"Say the opposite of {word}."]), other, \
            f"The opposite of {word} is {other}."
    if kind == 2:
        i = s.number(0, 10)
        return s.of([f"Which month comes after {pools.MONTH[i]}?", f"What month follows {pools.MONTH[i]}?",
                     f"What is the month after {pools.MONTH[i]}?", f"Name the month after {pools.MONTH[i]}.",
                     f"Tell me the month after {pools.MONTH[i]}."],
                    [f"What comes after {pools.MONTH[i]}?", f"The month after {pools.MONTH[i]}?",
                     f"Do you know the month after {pools.MONTH[i]}?",
                     f"Give the month that follows {pools.MONTH[i]}."]), pools.MONTH[i + 1], \
            f"The month after {pools.MONTH[i]} is {pools.MONTH[i + 1]}."
    if kind == 3:
        a, b = s.number(1, 9), s.number(1, 9)
        return s.of([f"What number is {a} and {b} together?", f"How many are {a} and {b}?",
                     f"What do {a} and {b} make?", f"How much do {a} and {b} make?",
                     f"What number do {a} and {b} make?"]), str(a + b), f"The sum of {a} and {b} is {a + b}."
    n = s.number(1, 20)
    return s.of([f"What is the word for {n}?", f"Which word stands for {n}?", f"Name the word for {n}.",
                 f"What word stands for the number {n}?", f"Tell me the word for {n}."],
                [f"The word for {n}?", f"Give the word for {n}.", f"Do you know the word for {n}?",
                 f"Say the word for {n}."]), in_words(n), \
        f"The word for {n} is {in_words(n)}."


def _memory(s: Source) -> Item:
    """The user says something, and asks for it later."""
    name, town, job = records.first_name(s), records.city(s), s.word(s.of(pools.JOB))
    colour = s.any(pools.COLOUR)
    said, question, answer, reply = s.any([
        (s.of([f"My name is {name}.", f"I am {name}.", f"Hi, I'm {name}.", f"You can call me {name}.",
               f"Hello, my name is {name}."],
              [f"Hello, {name} here.", f"I go by the name of {name}.", f"They call me {name}.", f"{name} is my name.",
               f"This is {name} speaking.", f"My parents named me {name}.", f"Please call me {name}.",
               f"My friends call me {name}.", f"~ is what I do and {name} is who I am."]),
         s.of(["What is my name?", "Do you remember my name?", "Who am I?", "Tell me my name.",
               "What was my name?"],
              ["Say my name.", "Which name did I give?", "What am I called?", "Do you still know my name?",
               "What name did I tell you?", "Can you tell me my name?"]), f"Your name is {name}.",
               f"Nice to meet you, {name}!"),
        (s.of([f"I live in {town}.", f"I am from {town}.", f"My home is {town}.", f"I moved to {town}.",
               f"I live in the town of {town}."],
              [f"My town is {town}.", f"{town} is my home.", f"My house is in {town}.",
               f"I live in the city of {town}.",
               f"I come from the village of {town}.", f"The town of {town} is where I live.",
               f"I have a flat in {town}.",
               f"I have lived in {town} for years.", f"We live in {town}.", f"I live near the centre of {town}.",
               f"I was born in the town of {town} and still live there.", f"My family lives in {town}, and so do I.",
               f"I live at the edge of {town}.", f"I live ~ in {town}.", f"My street is in the city of {town}.",
               f"I settled in the town of {town}.", f"The place where I live is {town}."]),
         s.of(["Where do I live?", "Which town do I live in?", "Do you know where I live?",
               "In which town do I live?", "What town do I live in?"],
              ["Which city is my home?", "In which city do I live?", "Name my town.", "Tell me where I live.",
               "What is my town?", "Where is my home?", "Where did I say I live?"]), f"You live in {town}.",
         f"{town} sounds nice."),
        (s.of([f"I work as a {job}.", f"I am a {job}.", f"My job is {job}.", f"I earn my money as a {job}.",
               f"I have a job as a {job}."],
              [f"I found work as a {job}.", f"They pay me as a {job}.", f"By day I am a {job}.",
               f"My work is that of a {job}.",
               f"I am a {job} by trade.", f"I have been a {job} for ~ years.", f"My profession is {job}."]),
         s.of(["What is my job?", "What do I do for a living?", "Do you remember my job?", "Tell me my job.",
               "What was my job?"],
              ["Which job do I have?", "What work do I do?", "Say what my job is.", "What do I work as?",
               "How do I earn my money?"]), f"You are a {job}.", "That sounds interesting."),
        (s.of([f"I like {colour}.", f"My favourite color is {colour}.", f"The color I like best is {colour}.",
               f"I love the color {colour}.", f"I like {colour} most of all colors."],
              [f"No color is as nice as {colour}.", f"{colour.capitalize()} is the color for me.",
               f"Of all colors, {colour} is mine.", f"I prefer {colour}.", f"My color is {colour}.",
               f"I think {colour} is the best color.", f"All my ~ is {colour}, the color I love."]),
         s.of(["Which color do I like?", "What is my favourite color?", "Do you remember my color?",
               "What color do I like best?", "Which color do I like best?"],
              ["What was my favourite color?", "Name my color.", "Which color did I say I like?",
               "Tell me the color I like.",
               "What color is my favourite?"]), f"You like {colour}.",
         f"{colour.capitalize()} is a nice color."),
    ])
    messages = [{"role": "user", "content": said}, {"role": "assistant", "content": reply}]
    for _ in range(s.number(0, 2)):
        middle, _, sentence = fact(s)
        messages += [{"role": "user", "content": middle}, {"role": "assistant", "content": sentence}]
    messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return Item("talk", messages, joinable=False)


def talk_item(s: Source) -> Item:
    share = s.r.random()
    if share < 0.35:
        asked, answer, *more = s.any(TALK)
        return ask("talk", s.of(asked, *more), answer)
    if share < 0.65:
        question, _, sentence = fact(s)
        return ask("talk", question, sentence)
    return _memory(s)


def system_item(s: Source) -> Item:
    question, short, sentence = fact(s)
    word = s.word(s.of(pools.WORDS))
    kind = s.number(0, 7)
    if kind == 0:
        system = s.of(["Answer in upper case.", "Write all answers in capital letters.",
                       "Always answer in upper case letters.", "Use only capital letters.",
                       "Always write in upper case."],
                      ["Capital letters only.", "Your answers are all in capitals.", "Shout every answer.",
                       "Every answer must be in upper case.", "Reply in capitals."])
        answer = short.upper()
    elif kind == 1:
        key = s.any(["answer", "answer", "result", "value"])
        system = s.of([f'Answer in JSON with the key "{key}".', f'Always answer as JSON: {{"{key}": ...}}.',
                       f'Give every answer as a JSON object with the key "{key}".',
                       f'Your answers are JSON objects with one key, "{key}".',
                       f'Always answer with JSON that has the key "{key}".'],
                      [f'Reply with JSON: the key is "{key}".', f'Each reply is a JSON object: {{"{key}": ...}}',
                       f'Only JSON, please, with the key "{key}".',
                       f'Put your answer into a JSON object under "{key}".'])
        answer = f'{{"{key}": "{short}"}}'
    elif kind == 2:
        system = s.of(["Answer with one word.", "Be short: one word only.", "Give one-word answers.",
                       "Answer as briefly as you can.", "Always answer with a single word."],
                      ["One word per answer.", "Use a single word.", "Your answers have one word.",
                       "Do not use more than one word.", "Reply with just one word."])
        answer = short
    elif kind == 3:
        system = s.of(["Answer in a full sentence.", "Always answer with a whole sentence.",
                       "Use full sentences.", "Write complete sentences.",
                       "Always answer in full sentences."],
                      ["Your answers are full sentences.", "Reply in whole sentences.", "Speak in full sentences.",
                       "Answer every question with a complete sentence."])
        answer = sentence
    elif kind == 4:
        system = s.of([f'End every answer with "{word}".', f'Always finish with the word "{word}".',
                       f'Put "{word}" at the end of each answer.', f'After each answer, write "{word}".',
                       f'Always end your answers with "{word}".'],
                      [f'Finish all answers with "{word}".', f'Always end with "{word}".',
                       f'Your answers end with the word "{word}".', f'Always add "{word}" at the end.',
                       f'Close each answer with "{word}".', f'Say "{word}" after every answer.',
                       f'Every reply must end with "{word}".', f'End all your replies with "{word}".'])
        answer = f"{sentence} {word}"
    elif kind == 5:
        system = s.of([f'Begin every answer with "{word}:".', f'Always start with "{word}:".',
                       f'Put "{word}:" before each answer.', f'Before each answer, write "{word}:".',
                       f'Always begin your answers with "{word}:".'],
                      [f'Start all answers with "{word}:".', f'Always begin with "{word}:".',
                       f'Your answers start with "{word}:".', f'Open each answer with "{word}:".',
                       f'Every reply must begin with "{word}:".', f'Start all your replies with "{word}:".'])
        answer = f"{word}: {sentence}"
    elif kind == 6:
        name, place = records.first_name(s), s.any("library hotel bakery museum school station shop".split())
        system = s.of([f"You are {name}, a helper of the {place}.", f"Your name is {name}. You work at the {place}.",
                       f"You are called {name} and you help at the {place}.", f"You are {name} from the {place}.",
                       f"Your name is {name} and you help people at the {place}."])
        question, answer = s.of([("Who are you?", f"I am {name} from the {place}."),
                                 ("What is your name?", f"I am {name} from the {place}."),
                                 ("Tell me who you are.", f"I am {name} from the {place}."),
                                 ("Who am I talking to?", f"I am {name} from the {place}."),
                                 ("What are you called?", f"I am {name} from the {place}.")])
    else:
        topic = s.word(s.of("cooking sports music gardening history travel books films animals chess".split()))
        system = s.of([f"Only talk about {topic}.", f"You may only speak about {topic}.",
                       f"Do not talk about anything but {topic}.", f"Your only topic is {topic}.",
                       f"Talk about {topic} only."],
                      [f"Speak about {topic} only.", f"You talk only about {topic}.", f"Stick to {topic}.",
                       f"Answer questions about {topic} only.", f"Nothing but {topic} may be discussed.",
                       f"You know about {topic} only.", f"Discuss {topic} only.", f"{topic.capitalize()} only.",
                       f"Refuse to talk about anything that is not {topic}."])
        answer = f"I can only talk about {topic}."
    return ask("system", question, answer, system)
