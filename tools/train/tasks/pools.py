"""Values that the generators draw from."""

FIRST = """Mara Jonas Elin Tom Ruth Oskar Nadia Paul Irene Viktor Anna Ben Carla David Emma Frank Gina
Henry Ida Jack Karen Leo Maria Nils Olga Peter Rosa Sam Tina Ugo Vera Walter Yara Zoe Adam Bella Carl
Dora Eric Fiona George Helen Ivan Julia Kurt Laura Martin Nora Otto Paula Quinn Robert Sara Theo Una
Victor Wendy Alan Beth Chris Diana Edgar Flora Greg Hanna Isaac Jenny Kevin Lena Mark Nina Oliver Petra
Ralph Stella Tobias Ursula Vincent Amir Bianca Cyrus Dalia Elias Freya Hugo Ines Jorge Kira Luca Mina
Noah Omar Priya Rafael Selma Tariq Uma Yusuf Zara Agnes Bruno Celia Dario Edith Felix Greta Hector""".split()
LAST = """Holm Berger Castillo Dunn Evans Fischer Grant Hayes Ito Jensen Keller Lopez Moreau Novak Olsen
Park Quist Rossi Silva Turner Ueda Vance Weber Young Zeller Adams Brook Carter Dale Ellis Ford Gray Hill
Irwin Jones Knight Lang Miller North Owen Price Reed Stone Todd Underwood Vogel West York Baker Cook
Fisher Hunter Mason Porter Smith Taylor Wood Ashby Bauer Conti Drake Egan Falk Gomez Hale""".split()
CITY = """Oslo Bergen Lisbon Porto Madrid Seville Paris Lyon Rome Milan Vienna Graz Prague Brno Berlin
Hamburg Warsaw Krakow Athens Dublin Cork London Leeds Bristol Glasgow Helsinki Turku Riga Vilnius
Tallinn Zurich Geneva Basel Boston Denver Austin Dallas Chicago Seattle Portland Toronto Montreal Ottawa
Lima Quito Bogota Santiago Cairo Tunis Nairobi Accra Lagos Delhi Mumbai Kyoto Osaka Tokyo Seoul Hanoi
Manila Sydney Perth Auckland Reykjavik Ankara Izmir Beirut Doha Budapest Sofia Belgrade Zagreb""".split()
COUNTRY_CAPITAL = [line.split(":") for line in """France:Paris|Spain:Madrid|Italy:Rome|Germany:Berlin
Austria:Vienna|Portugal:Lisbon|Norway:Oslo|Sweden:Stockholm|Finland:Helsinki|Denmark:Copenhagen
Poland:Warsaw|Greece:Athens|Ireland:Dublin|Hungary:Budapest|Japan:Tokyo|China:Beijing|India:New Delhi
Egypt:Cairo|Kenya:Nairobi|Peru:Lima|Chile:Santiago|Canada:Ottawa|Cuba:Havana|Turkey:Ankara|Russia:Moscow
Belgium:Brussels|Iceland:Reykjavik|Thailand:Bangkok|Vietnam:Hanoi|Argentina:Buenos Aires""".replace(
    "\n", "|").split("|")]
JOB = """baker teacher nurse carpenter pilot painter farmer lawyer doctor driver gardener writer dentist
engineer waiter plumber singer tailor librarian chemist fisherman photographer mechanic cook architect
postman guide barber electrician judge""".split()
PRODUCT = """lamp chair table kettle bicycle backpack mirror clock camera blanket mug umbrella notebook
jacket tent guitar vase shovel pillow radio carpet drill basket helmet scarf stove ladder bucket bench
hammer""".split()
COLOUR = "red blue green yellow black white brown grey orange purple pink golden silver".split()
MATERIAL = "wood steel glass cotton leather paper wool clay copper stone plastic bamboo".split()
ANIMAL = """fox bear rabbit owl mouse hedgehog frog duck cat dog goat horse turtle squirrel crow deer
badger otter sparrow goose lamb pony hen snail beetle""".split()
PLACE = """forest village harbour meadow mountain valley island garden farm lake river orchard hill
castle town beach""".split()
FRUIT = """apples pears plums cherries grapes lemons peaches melons figs oranges bananas apricots""".split()
GOODS = """apples pears books pencils coins stamps shells marbles eggs candles cups boxes buttons cards
stones flowers bottles tickets stickers nails""".split()
TITLE_FIRST = """Silent Hidden Broken Golden Distant Winter Summer Burning Secret Lost Forgotten Quiet
Crystal Northern Endless Paper Velvet Iron""".split()
TITLE_SECOND = """River Garden Mountain House Letter Window Bridge Road Island Forest Tower Storm Key Lake
Harbour Clock Song Shadow""".split()
EVENT = """concert meeting workshop lecture wedding market exhibition picnic race festival dinner course
auction rehearsal conference party seminar parade""".split()
MONTH = """January February March April May June July August September October November
December""".split()
DAY = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
WORDS = """apple bridge candle door eagle flower garden hammer island jacket kettle ladder mirror needle
onion paper queen river stone table umbrella village window yellow zebra arrow basket cloud dragon engine
forest guitar house insect jungle king lemon mountain night orange pencil rabbit silver tiger uncle violin
water anchor button castle desert elephant father glass honey iron jewel kitchen lion market number ocean
pepper ring shadow tower valley winter""".split()
OPPOSITE = [p.split("/") for p in """hot/cold big/small fast/slow old/young happy/sad light/dark hard/soft
early/late open/closed full/empty rich/poor high/low long/short strong/weak clean/dirty wet/dry
thick/thin loud/quiet near/far good/bad sweet/sour heavy/light left/right up/down day/night
""".split()]
