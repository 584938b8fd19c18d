"""Everyday sentences and everyday tools, as people write them; training only.

The generators of extract.py and toolcalls.py build texts of one clause for each field, and requests that
name the tool's thing. People put several facts into one sentence, and say "wake me at seven".
"""

import re

from . import pools, records
from .item import Item, ask, compact
from .source import Source, join_words
from .toolcalls import NO_TOOL

# {key:kind}; the key is a fact's usual name, the kind says how its value is drawn.
SENTENCES = """{name:person} is {age:age} years old and lives in {city:city}.
{name:person}, {age:age}, lives in {city:city}.
{name:person} is {age:age} and comes from {city:city}.
{name:person} ({age:age}) is a {job:job} from {city:city}.
{name:person} works as a {job:job} in {city:city}.
{name:person} works at {company:company} as a {job:job}.
{name:person} is the new {job:job} of {company:company}.
Our {job:job} {name:person} can be reached at {email:mail}.
{name:person} ({email:mail}) will join us as a {job:job}.
Please write to {name:person} at {email:mail} or call {phone:phone}.
Hello, my name is {name:person}. My number is {phone:phone}.
Hi, I am {name:person} and you can call me at {phone:phone}.
My name is {name:person}, I am {age:age} years old and my email is {email:mail}.
I am {name:first}, a {job:job} from {city:city}.
This is {name:person} from {company:company}. Call me back at {phone:phone}.
{name:first} from {country:country} scored {score:number} points.
{name:first} won with a score of {score:number}.
In the last race {name:person} of {country:country} finished in place {place:small}.
The {color:colour} {product:product} costs {price:price} dollars.
A {color:colour} {product:product} made of {material:material} costs {price:price} dollars.
We sell a {product:product} in {color:colour} for {price:price} dollars.
The {product:product} is {color:colour} and made of {material:material}.
{stock:number} pieces of the {color:colour} {product:product} are left.
We still have {stock:number} of the {product:product} by {maker:company}.
{maker:company} sells its new {product:product} for {price:price} dollars.
I bought a {product:product} from {maker:company} for {price:price} dollars on {date:day}.
Order {order:code} for {name:person} comes to {total:price} dollars.
Your order {order:code} of {quantity:small} {product:product}s was sent on {date:day}.
Invoice {invoice:code} of {date:date} is over {total:price} euros.
Invoice {invoice:code}: {customer:person} owes {total:price} dollars, due on {date:day}.
{customer:person} ordered {quantity:small} {product:product}s on {date:day}.
The package {number:code} for {name:person} goes to {city:city}.
The book {title:title} by {author:person} was published in {year:year}.
{title:title} is a book of {pages:number} pages by {author:person}.
{author:person} wrote {title:title} in {year:year}.
In {year:year}, {author:person} published {title:title}.
I am reading {title:title}, written by {author:person}, on page {page:number}.
The film {title:title} of {year:year} was directed by {director:person}.
The song {title:title} by {artist:person} is {minutes:small} minutes long.
{title:title} by {artist:person} came out in {year:year}.
The {event:event} takes place in {city:city} on {date:day}.
The {event:event} in {city:city} starts at {time:time}.
The {event:event} with {name:person} is on {day:weekday} at {time:time} in room {room:small}.
Join us for the {event:event} on {date:day} at {time:time}.
{host:person} invites you to a {event:event} on {day:weekday} at {time:time}.
On {date:day} there is a {event:event} for {guests:number} guests in {city:city}.
My appointment with {name:person} is on {day:weekday} at {time:time}.
The meeting on {day:weekday} was moved to {time:time}, room {room:small}.
Flight {flight:code} from {from:city} to {to:city} leaves at {time:time}.
Train {train:code} goes from {from:city} to {to:city} on {date:day}.
The flight to {to:city} leaves at {time:time} from gate {gate:small}.
Your seat on flight {flight:code} is {seat:seat}.
The trip from {from:city} to {to:city} takes {hours:small} hours.
{name:first} is a {animal:animal} that is {age:small} years old.
{name:first} the {animal:animal} belongs to {owner:person}.
{owner:person} has a {color:colour} {animal:animal} called {name:first}.
Our {animal:animal} {name:first} is {age:small} years old and weighs {weight:small} kg.
In {city:city} it is {temperature:small} degrees and {weather:weather} today.
It is {weather:weather} in {city:city}, with {temperature:small} degrees.
{city:city} has {population:large} people and lies in {country:country}.
The capital of {country:country} is {capital:city}.
{company:company} of {city:city} was founded in {year:year} by {founder:person}.
{company:company} has {employees:large} employees.
The flat in {city:city} has {rooms:small} rooms and costs {rent:number} euros a month.
A room for {guests:small} people costs {price:number} euros a night at the {hotel:company}.
{name:person} booked a table for {people:small} people at {time:time}.
The recipe needs {eggs:small} eggs and {flour:number} grams of flour.
Patient {name:person}, born on {birthday:date}, has an appointment on {date:day}.
Ticket {ticket:code} was opened by {name:person} with priority {priority:level}.
The server {server:word} has {memory:small} GB of memory and runs version {version:version}.
The file {file:file} has {size:number} lines.
{student:person} got the grade {grade:letter} in {subject:subject}.
{teacher:person} teaches {subject:subject} in room {room:small}.
{name:person} speaks {language:language} and lives in {country:country}.
The car of {owner:person} is a {color:colour} {brand:company} of {year:year}.""".splitlines()

KINDS = {
    "person": records.full_name, "first": records.first_name, "city": records.city, "mail": lambda s:
    records.email(s, records.first_name(s)), "phone": records.phone, "date": records.date, "day": records.day,
    "time": records.clock, "price": records.price, "code": Source.code, "company": lambda s:
    s.made_up() if s.chance(0.5) else s.word(s.of(pools.LAST)), "age": lambda s: s.number(18, 95),
    "number": lambda s: s.number(2, 900), "small": lambda s: s.number(1, 40), "large": lambda s: s.number(100, 90000),
    "year": lambda s: s.number(1850, 2029), "job": lambda s: s.word(s.of(pools.JOB)),
    "country": lambda s: s.any(pools.COUNTRY_CAPITAL)[0], "colour": lambda s: s.any(pools.COLOUR),
    "product": lambda s: s.word(s.of(pools.PRODUCT)), "material": lambda s: s.word(s.of(pools.MATERIAL)),
    "animal": lambda s: s.any(pools.ANIMAL), "event": lambda s: s.word(s.of(pools.EVENT)),
    "weekday": lambda s: s.any(pools.DAY), "word": lambda s: s.word(s.of(pools.WORDS)),
    "seat": lambda s: f"{s.number(1, 40)}{s.any('ABCDEF')}", "letter": lambda s: s.any("ABCDEF"),
    "level": lambda s: s.any(["low", "medium", "high"]), "version": lambda s: f"{s.number(1, 9)}.{s.number(0, 20)}",
    "weather": lambda s: s.any("sunny rainy cloudy windy cold foggy".split()),
    "subject": lambda s: s.any("history music biology physics chemistry art".split()),
    "language": lambda s: s.any("Spanish Italian German Polish Greek Turkish Danish".split()),
    "file": lambda s: f"{s.word(s.of(pools.WORDS))}.{s.any(['txt', 'csv', 'py', 'md'])}",
    "title": lambda s: s.any([f"The {s.word('Silent')} {s.word('River')}", s.word("Harbour").capitalize(),
                              f"{s.word('Winter').capitalize()} and {s.word('Storm').capitalize()}",
                              f'"{s.word("Garden").capitalize()} of {s.word("Stone").capitalize()}"']),
}
SYNONYMS = {key: names.split() for key, names in (line.split(": ") for line in """\
name: person full_name who employee contact
age: years
city: town location place
job: role position occupation profession
company: employer firm
email: mail address email_address
phone: number telephone phone_number
price: cost amount
color: colour
product: item article
order: order_number order_id id
invoice: invoice_number id
total: amount sum
title: book work
author: writer written_by
event: what occasion
date: when day
time: start hour
from: origin start
to: destination end
flight: number flight_number
customer: client buyer
animal: pet species
score: points
quantity: count pieces
temperature: degrees
people: guests persons
rent: price cost
year: published""".splitlines())}
ORDERS = """Extract {f} as JSON|Give me {f} as JSON|Return JSON with {f}|Write {f} as JSON|Get {f} from this as JSON
Convert this to JSON with {f}|Turn this into JSON with {f}|Find {f} and answer in JSON|I need {f} as a JSON object
Make a JSON object with {f}|Put {f} into JSON|JSON with {f}, please|Answer in JSON with {f}
Read this and return {f} as JSON
Parse this into JSON with {f}|Pull {f} out as JSON|Output {f} as JSON|Please extract {f} in JSON format
Could you give me {f} as JSON|Show me {f} in JSON|Collect {f} as JSON|What are {f}? JSON, please|Note {f} as JSON
Create JSON from this text with {f}|From the text below, take {f} as JSON|Which {f} are named? Answer with JSON
Describe this as JSON with {f}|Summarize this in JSON: {f}""".replace("\n", "|").split("|")


def facts_of(s: Source, template: str) -> tuple[dict, str]:
    facts: dict = {}

    def draw(match):
        value = KINDS[match[2]](s)
        facts[match[1]] = value.strip('"') if isinstance(value, str) else value
        return str(value)

    return facts, re.sub(r"\{(\w+):(\w+)\}", draw, template)


def _fields(s: Source, keys: list[str]) -> str:
    listed = join_words(keys) if s.chance(0.7) else ", ".join(keys)
    return s.any(["the {}", "the {}", "{}", "the fields {}", "the keys {}", "these fields: {}"]).format(listed)


def json_item(s: Source) -> Item:
    facts, text = facts_of(s, s.any(SENTENCES))
    if s.chance(0.3):
        more, sentence = facts_of(s, s.any(SENTENCES))
        if not facts.keys() & more.keys():
            facts, text = facts | more, f"{text} {sentence}"
    asked = {}
    for key in s.shuffled(facts)[:s.number(1, 4)] if s.chance(0.5) else list(facts):
        name = s.any(SYNONYMS[key]) if key in SYNONYMS and s.chance(0.25) else key
        asked[key if name in facts or name in asked else name] = facts[key]
    order = s.any(ORDERS).format(f=_fields(s, list(asked)))
    form = s.any(["{q}: {t}", "{q}: {t}", "{q}. {t}", "{q}.\n\n{t}", "{q}.\n{t}", "{q}:\n\n{t}", "{t}\n\n{q}.",
                  "Text: {t}\n\n{q}.", "{q}.\n\nText: {t}", '{q}: "{t}"', "{t} {q}."])
    return ask("json", form.format(q=order, t=text), compact(asked), check="json")


# A tool has names, descriptions (| between), arguments with their kinds, then requests, a line each.
TOOLS = """get_weather|weather|current_weather|weather_forecast
Get the weather of a city|Returns the current weather for a place|Weather forecast for a location|Look up the weather
city:city
How is the weather in {city}
What is the weather in {city}
Will it rain in {city} today
Is it cold in {city}
Do I need a coat in {city}
Tell me the weather of {city}
Weather in {city}
Is it sunny in {city} now
What's the forecast for {city}
Does it snow in {city}
How warm is it in {city}
What weather do they have in {city}
Show the weather for {city}

search|web_search|search_internet|find_page
Search the web|Looks something up on the internet|Find pages about a topic
query:topic
Search for {query}
Look up {query} on the web
Find pages about {query}
Google {query}
Search the internet for {query}
What does the web say about {query}
Find something on {query}

send_email|email|write_email|send_mail
Send an email|Sends an email to a person|Write a mail
to:mail body:quote
Send an email to {to} with the text {body}
Email {to}: {body}
Write to {to} that {body}
Tell {to} by mail: {body}
Mail {body} to {to}
Send {body} to {to}
Send a mail to {to} saying {body}

send_message|message|text_person|send_sms
Send a message to a contact|Sends a text message|Text someone
name:first text:quote
Text {name}: {text}
Send {name} a message saying {text}
Message {name}: {text}
Tell {name} {text}
Write {name} {text}
Let {name} know: {text}

set_alarm|alarm|create_alarm|wake_up
Set an alarm|Sets an alarm clock|Wake the user at a time
time:time
Wake me at {time}
Set the alarm to {time}
Alarm at {time}
I have to get up at {time}
Please wake me up at {time} tomorrow
I need an alarm for {time}
Ring at {time}
Make sure I am awake at {time}

set_timer|timer|start_timer|countdown
Start a timer|Sets a timer for some minutes|Count down minutes
minutes:small
Set a timer for {minutes} minutes
Timer for {minutes} minutes
Count down {minutes} minutes
Remind me in {minutes} minutes
Start a {minutes} minute timer
Tell me when {minutes} minutes are over

book_table|reserve_table|restaurant_booking
Book a table in a restaurant|Reserves a table|Make a reservation at a restaurant
people:small time:time
Reserve a table for {people} at {time}
We are {people} people and want to eat at {time}
A table for {people} at {time}, please
Book us a table at {time} for {people} people
Dinner for {people} at {time}
I need a table at {time} for {people}
Can we get a table for {people} people at {time}

book_flight|find_flight|reserve_flight
Book a flight|Finds a flight between two cities|Reserve a seat on a plane
from:city to:city
Book a flight from {from} to {to}
I want to fly from {from} to {to}
Fly me from {from} to {to}
Get me a flight to {to} from {from}
I need to go from {from} to {to} by plane

book_hotel|find_hotel|reserve_room
Book a hotel room|Finds a hotel in a city|Reserve a room for some nights
city:city nights:small
Find me a hotel in {city} for {nights} nights
Book a room in {city} for {nights} nights
I stay in {city} for {nights} nights and need a hotel
{nights} nights in {city}, please
I need a place to sleep in {city} for {nights} nights

get_stock_price|stock_quote|stock
Get the price of a stock|Returns the current stock price of a company|Look up a share
symbol:symbol
What is {symbol} trading at
Price of {symbol}
How much is {symbol} stock
Look up {symbol}
How does {symbol} stand
What does a share of {symbol} cost
Show me the stock {symbol}

convert_currency|exchange|currency_converter
Convert an amount to another currency|Converts money|Change money
amount:number to:currency
How much is {amount} dollars in {to}
Change {amount} dollars to {to}
Exchange {amount} dollars for {to}
{amount} dollars in {to}
I have {amount} dollars. What is that in {to}
Turn {amount} dollars into {to}

calculate|calculator|compute|math
Evaluate an arithmetic expression|Calculates a sum|A calculator
expression:sum
What is {expression}
Compute {expression}
Calculate {expression}
How much is {expression}
Work out {expression}

translate|translate_text|translator
Translate a text|Translates words into another language|Translation of a text
text:quote language:language
Translate {text} into {language}
How do you say {text} in {language}
What is {text} in {language}
Say {text} in {language}
Put {text} into {language}
I need {text} in {language}

create_event|add_event|calendar_add|add_appointment
Add an event to the calendar|Creates a calendar entry|Put an appointment into the calendar
title:quote date:day
Add {title} to my calendar on {date}
Put {title} on {date} in the calendar
On {date} I have {title}
Make an event {title} for {date}
Plan {title} on {date}
Schedule {title} for {date}

create_reminder|remind|add_reminder
Remind the user of something|Creates a reminder|Set a reminder at a time
text:quote time:time
Remind me at {time}: {text}
At {time} remind me of {text}
Don't let me forget {text} at {time}
Set a reminder {text} for {time}
I must think of {text} at {time}

play_music|play|play_song|start_song
Play a song|Plays music by title|Start a piece of music
title:quote
Play {title}
I want to hear {title}
Put on {title}
Play the title {title}
Let me listen to {title}
Can we hear {title}
Start {title}

get_time|current_time|clock|time_in_city
Get the time in a city|Returns the local time|What time it is somewhere
city:city
What time is it in {city}
Tell me the time in {city}
How late is it in {city}
Local time in {city}
What's the time in {city} now

get_directions|route|navigate|find_route
Get directions to a place|Finds the way between two places|Navigation
from:city to:city
How do I get from {from} to {to}
Show me the way from {from} to {to}
Directions from {from} to {to}
Route from {from} to {to}
Drive from {from} to {to}

track_order|order_status|get_order|where_is_my_order
Track an order|Tells where an order is|Status of a delivery
order_id:code
Where is my order {order_id}
What about order {order_id}
Track {order_id}
Has {order_id} been sent
When will {order_id} arrive
Status of order {order_id}
Is order {order_id} on its way

cancel_order|stop_order|delete_order
Cancel an order|Cancels an order by its number
order_id:code
Cancel order {order_id}
I do not want order {order_id} any more
Please cancel {order_id}
Stop my order {order_id}
Call off {order_id}

turn_on_light|light_on|switch_on_light
Turn on the light in a room|Switches a light on
room:room
Turn on the light in the {room}
Lights on in the {room}
It is dark in the {room}
Light in the {room}, please
Switch on the {room} light

set_temperature|heating|thermostat
Set the temperature of a room|Controls the heating|Thermostat
degrees:small
Set the heating to {degrees} degrees
Make it {degrees} degrees
I want {degrees} degrees in here
Heat to {degrees} degrees
Thermostat to {degrees}

find_restaurant|restaurants|restaurant_search
Find a restaurant in a city|Searches places to eat|Restaurants near a place
city:city
Where can I eat in {city}
Find a restaurant in {city}
I am hungry in {city}
Good places to eat in {city}
Show restaurants in {city}

get_news|news|latest_news|headlines
Get the news about a topic|Latest headlines|Returns news
topic:topic
What is new about {topic}
News on {topic}
Any headlines about {topic}
Show me the news about {topic}
What happened in {topic}

define_word|dictionary|definition|explain_word
Look up a word in the dictionary|Returns the definition of a word|Explains a word
word:word
What does {word} mean
Define {word}
Meaning of {word}
Explain the word {word}
Look up the word {word}

add_todo|add_task|todo|create_task
Add a task to the list|Puts something on the to-do list|Create a task
task:quote
Add {task} to my list
I have to do {task}
Put {task} on the to-do list
New task: {task}
Note that I must {task}
Don't forget {task}

call|make_call|phone_call|dial
Call a person|Makes a phone call|Phone somebody
name:person
Call {name}
Phone {name}
I want to talk to {name}
Ring up {name}
Give {name} a call
Get {name} on the phone

get_user|find_user|user_info|lookup_customer
Get a user by id|Returns the data of a customer|Look up a customer
id:code
Show user {id}
Who is customer {id}
Get the data of {id}
Look up user {id}
Find customer {id}

create_user|add_user|new_account|register
Create a user account|Registers a new user|Add an account
name:person email:mail
Create an account for {name} with {email}
Register {name}, email {email}
Add the user {name} ({email})
New user {name}, {email}
Sign up {name} with the mail {email}

run_query|sql|query_database
Run an SQL query|Queries the database
table:word
Count the rows of {table}
How many rows has the table {table}
Query the table {table}
Show the table {table}

read_file|open_file|show_file|cat
Read a file|Opens a file and returns its text|Show the content of a file
path:file
Open {path}
Read {path}
Show me {path}
What is in {path}
Print the file {path}
Look into {path}"""


def _tool_kinds() -> dict:
    quotes = ["see you soon", "happy birthday", "buy milk", "call the bank", "the report is ready", "team lunch",
              "good night", "water the plants", "thank you", "where are you", "pay the rent", "I am late", "yoga class"]
    return KINDS | {
        "quote": lambda s: '"' + (s.words(1, 4) or s.any(quotes) if s.chance(0.5) else s.any(quotes)) + '"',
        "topic": lambda s: s.words(1, 2) or "music",
        "symbol": lambda s: "".join(s.any("ABCDEFGHIKLMNOPRSTVXZ") for _ in range(s.number(2, 4))),
        "currency": lambda s: s.any("euros pounds yen francs crowns pesos rupees".split()),
        "sum": lambda s: f"{s.number(2, 99)} {s.any('+-*/')} {s.number(2, 99)}",
        "room": lambda s: s.any("kitchen bedroom hall garage office bathroom".split())}


# Other names of arguments, by kind.
NAMES = {"city": ["city", "location", "place", "town"], "quote": ["text", "message", "content", "title", "query"],
         "mail": ["to", "email", "recipient", "address"], "first": ["name", "contact", "person"],
         "person": ["name", "contact", "person"], "time": ["time", "hour", "at"], "day": ["date", "day", "when"],
         "small": ["number", "count", "value"], "code": ["id", "number", "reference"], "topic": ["query", "topic", "q"],
         "symbol": ["symbol", "ticker", "stock", "company"], "language": ["language", "target", "target_language"],
         "file": ["path", "file", "filename"], "word": ["word", "term"]}
CATALOGUE = [block.splitlines() for block in TOOLS.split("\n\n")]
TOOL_KINDS = _tool_kinds()
ABOUT = ["", "", "The {}", "{} to use", "Which {}", "Name of the {}", "The {} that the user gives"]


def _spec(s: Source, block: list[str]) -> tuple[dict, dict]:
    """A tool, and what it calls its arguments."""
    about, properties, names = s.any(ABOUT), {}, {}
    for usual, kind in (a.split(":") for a in block[2].split()):
        name = s.any(NAMES.get(kind, [usual])) if s.chance(0.3) else s.word(usual) if s.chance(0.3) else usual
        name = usual if usual in ("from", "to") or name in properties else name
        properties[name] = {"type": "integer" if kind in ("small", "number") else "string"}
        if about:
            properties[name]["description"] = about.format(usual)
        names[usual] = name
    parameters = {"type": "object", "properties": properties}
    if s.chance(0.7):
        parameters["required"] = list(properties)
    function = {"name": s.any(block[0].split("|")), "description": s.any(block[1].split("|")),
                "parameters": parameters}
    return {"type": "function", "function": function}, names


def _request(s: Source, block: list[str]) -> tuple[str, dict]:
    values = {name: TOOL_KINDS[kind](s) for name, kind in (a.split(":") for a in block[2].split())}
    text = s.any(block[3:]).format(**values)
    asks = text.split()[0] in "How What What's Will Is Do Does Where Has When Can Who Any".split()
    if not asks and s.chance(0.2):
        text = s.any(["Please ", "Could you ", "Can you ", "I want you to "]) + text[0].lower() + text[1:]
    ending = "?" if asks else s.any([".", ".", "", "!", ", please."])
    return text + ending, {k: v.strip('"') if isinstance(v, str) else v for k, v in values.items()}


def _kinds(block: list[str]) -> set[str]:
    """What a tool takes; one that takes the same might serve as well."""
    kinds = {argument.split(":")[1] for argument in block[2].split()}
    return kinds | {"quote", "word", "topic"} if kinds & {"quote", "word", "topic"} else kinds


def tools_item(s: Source) -> Item:
    blocks = s.r.sample(CATALOGUE, s.number(1, 5))
    used = blocks[0]
    request, arguments = _request(s, used)
    others = [block for block in blocks if not _kinds(block) & _kinds(used)]
    fits = not others or s.chance(0.88)
    specs = [_spec(s, block) for block in (blocks if fits else others)]
    answer: dict = {"role": "assistant", "content": NO_TOOL}
    if fits:
        spec, names = specs[0]
        call = {"name": spec["function"]["name"], "arguments": {names[k]: v for k, v in arguments.items()}}
        answer = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": call}]}
    messages = [{"role": "user", "content": request}, answer]
    return Item("tools", messages, s.shuffled([spec for spec, _ in specs]), "tool_call", False)
